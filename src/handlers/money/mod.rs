//! The handler `money`: the books of providers other than Stripe, by the table in [`rows`].
//!
//! The same machine as for Stripe: what an event tells is joined to what is known of its object, and the difference is
//! booked under the object's key. The provider stands in the key, because ids of two providers can be alike. A matching
//! event whose fields cannot be read is quarantined. An amount is never rounded: decimal text becomes minor units by
//! shifting digits.

mod rows;

use rusqlite::Transaction;
use serde_json::Value;

use super::fields::{self, amount, id_text, is_currency_code};
use super::{Event, Handled, Handler, HandlerError, Table};
use crate::books::currencies::{exponent, minor_units};
use crate::books::described;
use crate::books::facts::{self, BooksError, Evidence};
use crate::books::ledger::{self, Cause, Object};
use rows::{Condition, ROWS, Row, Written};

/// Sales, refunds, fees and payouts at Shopify, Paddle, Lemon Squeezy, PayPal, Razorpay and Square.
#[derive(Debug, Clone, Copy, Default)]
pub struct Money;

impl Handler for Money {
    fn name(&self) -> &str {
        "money"
    }

    fn takes(&self, event_type: &str) -> bool {
        ROWS.iter().any(|row| row.types.contains(&event_type))
    }

    fn tables(&self) -> &[Table] {
        const { &[Table::own("ledger_kinds"), Table::own("ledger_entries"), Table::own("money_facts")] }
    }

    fn needs_signed_body(&self) -> bool {
        true
    }

    fn is_money(&self) -> bool {
        true
    }

    fn providers(&self) -> &[&'static str] {
        &["lemonsqueezy", "paddle", "paypal", "razorpay", "shopify", "shopify_events", "square"]
    }

    fn has_start(&self) -> bool {
        false
    }

    fn handle(&self, tx: &Transaction<'_>, event: &Event<'_>) -> Result<Handled, HandlerError> {
        if event.is_test_send {
            return Ok(Handled::Ignored);
        }
        let mut handled = Handled::Ignored;
        for row in ROWS.iter().filter(|row| is_meant(row, event)) {
            let objects: Vec<&Value> = match row.each {
                Some(list) => {
                    event.body.pointer(list).and_then(Value::as_array).into_iter().flatten().collect()
                }
                None => vec![event.body],
            };
            for object in objects.into_iter().filter(|object| matches(row, object)) {
                match book(tx, event, row, object) {
                    Ok(()) => handled = Handled::Applied,
                    Err(Refusal::Unreadable(reason)) => return Ok(Handled::Quarantine(reason)),
                    Err(Refusal::Books(BooksError::Contradiction(reason))) => {
                        return Ok(Handled::Contradiction(reason));
                    }
                    Err(Refusal::Books(BooksError::Sql(error))) => return Err(error.into()),
                }
            }
        }
        Ok(handled)
    }
}

enum Refusal {
    Unreadable(String),
    Books(BooksError),
}

impl From<BooksError> for Refusal {
    fn from(error: BooksError) -> Self {
        Self::Books(error)
    }
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Books(BooksError::Sql(error))
    }
}

fn is_meant(row: &Row, event: &Event<'_>) -> bool {
    row.providers.contains(&event.provider) && row.types.contains(&event.event_type)
}

fn matches(row: &Row, object: &Value) -> bool {
    row.only.iter().all(|condition| holds(object, condition))
        && !row.never.iter().any(|condition| holds(object, condition))
}

fn holds(object: &Value, (pointer, values): &Condition) -> bool {
    match object.pointer(pointer) {
        Some(Value::String(text)) => values.contains(&text.as_str()),
        Some(Value::Bool(is_so)) => values.contains(&if *is_so { "true" } else { "false" }),
        _ => false,
    }
}

fn book(tx: &Transaction<'_>, event: &Event<'_>, row: &Row, object: &Value) -> Result<(), Refusal> {
    let id = id(row, object)?;
    let name = format!("{}:{}/{id}", row.object, row.provider);
    let currency = currency(row, object, &id)?;
    let amount = units(row, object, &currency, &id)?;
    if let Some(livemode) = event.livemode {
        facts::once(tx, (&name, "livemode"), i64::from(livemode), event.id)?;
    }
    facts::once(tx, (&name, "currency"), currency.as_str(), event.id)?;
    if row.is_cumulative {
        facts::most(tx, (&name, "amount"), amount, event.id)?;
    } else {
        facts::once(tx, (&name, "amount"), amount, event.id)?;
    }
    if row.counts.is_none_or(|condition| holds(object, &condition)) {
        facts::mark(tx, (&name, "counts"), event.id)?;
    }
    if row.dead.is_some_and(|condition| holds(object, &condition)) {
        facts::mark(tx, (&name, "dead"), event.id)?;
    }
    let cause = Cause {
        event_id: event.id,
        endpoint: event.endpoint,
        account: event.account,
        livemode: event.livemode,
        occurred_at_ms: object.pointer(row.at).or_else(|| event.body.pointer(row.at)).and_then(time_ms),
        now_ms: event.now_ms,
    };
    let target = described::target(row.kind, row.is_negative, &Evidence::of(tx, &name)?);
    ledger::settle(tx, Object { name: &name, invoice_id: None }, &target, &cause)?;
    Ok(())
}

/// Text, or a number as Shopify has it.
fn id(row: &Row, object: &Value) -> Result<String, Refusal> {
    let unreadable = |what: &str| Refusal::Unreadable(format!("the id at {} {what}", row.id));
    match object.pointer(row.id).unwrap_or(&Value::Null) {
        Value::Number(number) if number.is_u64() => Ok(number.to_string()),
        other => match id_text(other) {
            Ok(Some(id)) => Ok(id.to_owned()),
            Ok(None) => Err(unreadable("is missing")),
            Err(problem) => Err(unreadable(problem)),
        },
    }
}

fn currency(row: &Row, object: &Value, id: &str) -> Result<String, Refusal> {
    let code = object.pointer(row.currency).and_then(Value::as_str).unwrap_or_default();
    if is_currency_code(code) {
        return Ok(code.to_ascii_lowercase());
    }
    Err(Refusal::Unreadable(format!(
        "the currency at {} is not a code of three letters ({id})",
        row.currency
    )))
}

fn units(row: &Row, object: &Value, currency: &str, id: &str) -> Result<i64, Refusal> {
    let value = object.pointer(row.amount);
    let text = value.and_then(Value::as_str);
    let units = match row.written {
        Written::Minor => amount(value).ok(),
        Written::MinorText => text.and_then(|text| minor_units(text, 0)),
        Written::Decimal => {
            exponent(row.provider, currency).zip(text).and_then(|(digits, text)| minor_units(text, digits))
        }
    };
    units.filter(|units| *units >= 0).ok_or_else(|| {
        Refusal::Unreadable(format!("the amount at {} is no amount of {currency} ({id})", row.amount))
    })
}

fn time_ms(time: &Value) -> Option<i64> {
    match time {
        Value::Number(_) => fields::time_ms(time),
        Value::String(text) => text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond),
        _ => None,
    }
}
