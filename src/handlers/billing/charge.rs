//! Charges: what was taken from the customer, and what went back, cumulatively.
//!
//! A charge of an invoice or of a payment intent books nothing by itself; the money came in with those. What went back is
//! booked here, whichever of its tellings comes first.

use serde_json::Value;

use super::journal::{Journal, Refusal, currency_of, id_in, known_money, money};
use super::{own_id, refund};
use crate::handlers::Handled;
use crate::store::reviews;

/// What the event says of a charge.
struct Told<'a> {
    id: &'a str,
    object: String,
    currency: String,
    amount: i64,
    is_captured: bool,
    /// `None` where the version says nothing of it.
    taken: Option<i64>,
    refunded: i64,
    payment_intent: Option<&'a str>,
    is_of_invoice: bool,
}

pub(super) fn apply(journal: &Journal<'_>, charge: &Value) -> Result<Handled, Refusal> {
    let event_type = journal.event.event_type;
    if event_type == "charge.failed" {
        return late_failure(journal, charge);
    }
    let told = Told::read(charge, event_type)?;
    join(journal, &told)?;
    let mut refunds = Vec::new();
    // until API 2022-11-15 a charge lists its newest refunds
    for listed in charge["refunds"]["data"].as_array().into_iter().flatten() {
        refunds.push(refund::join(journal, listed, Some(told.id))?);
    }
    if event_type == "charge.captured" && told.is_captured {
        // what the capture released: until API 2025-03-31 it is told as if it had been refunded, since then not at all
        journal.most(&told.object, "released", told.refunded)?;
    }
    for refund in &refunds {
        refund.settle_notes(journal)?;
    }
    journal.settle_charge(told.id)?;
    if let Some(payment_intent) = told.payment_intent {
        journal.settle_payment(payment_intent)?;
    }
    Ok(Handled::Applied)
}

impl<'a> Told<'a> {
    fn read(charge: &'a Value, event_type: &str) -> Result<Self, Refusal> {
        let id = own_id(charge, "charge")?;
        let amount = money(charge, "amount", id)?;
        let refunded = known_money(charge, "amount_refunded", id)?.unwrap_or(0);
        let is_captured = charge["captured"].as_bool().unwrap_or(true) && charge["status"] != "failed";
        let taken = known_money(charge, "amount_captured", id)?.filter(|_| is_captured);
        if taken.is_some_and(|taken| taken > amount) {
            return Err(Refusal::Contradiction(format!("more was captured than was authorised ({id})")));
        }
        // before `amount_captured` was sent, these two events tell it
        let taken = taken.or(match event_type {
            "charge.captured" => Some(amount - refunded.min(amount)).filter(|_| is_captured),
            "charge.succeeded" => Some(amount).filter(|_| is_captured),
            _ => None,
        });
        Ok(Self {
            id,
            object: format!("charge:{id}"),
            currency: currency_of(charge, "a charge", id)?,
            amount,
            is_captured,
            taken,
            refunded,
            payment_intent: id_in(charge, "payment_intent")?,
            is_of_invoice: id_in(charge, "invoice")?.is_some(),
        })
    }
}

fn join(journal: &Journal<'_>, told: &Told<'_>) -> Result<(), Refusal> {
    let object = &told.object;
    journal.whose(object)?;
    journal.once(object, "currency", told.currency.as_str())?;
    journal.most(object, "amount", told.amount)?;
    if told.refunded > 0 {
        journal.most(object, "refunded", told.refunded)?;
    }
    if told.is_captured {
        journal.mark(object, "captured")?;
    }
    if let Some(taken) = told.taken {
        journal.most(object, "taken", taken)?;
    }
    match told.payment_intent {
        Some(payment_intent) => {
            let payment = format!("payment_intent:{payment_intent}");
            journal.once(&payment, "currency", told.currency.as_str())?;
            if told.is_of_invoice {
                journal.mark(&payment, "of_invoice")?;
            }
            if let Some(taken) = told.taken {
                journal.most(&payment, "received", taken)?;
            }
        }
        None if told.is_of_invoice => {
            journal.mark(object, "of_invoice")?;
        }
        None => {}
    }
    if is_direct_sale(journal.event.body, told) {
        journal.mark(object, "direct")?;
    }
    Ok(())
}

/// A charge of the time before payment intents, or made without one: the charge itself is the sale. It says so by naming
/// neither an invoice nor a payment intent where it could.
fn is_direct_sale(body: &Value, told: &Told<'_>) -> bool {
    let charge = &body["data"]["object"];
    let could_name = charge.get("payment_intent").is_some() || charge.get("invoice").is_some();
    told.payment_intent.is_none() && !told.is_of_invoice && could_name
}

/// A bank debit can fail after it had succeeded. What becomes of its invoice is not documented: a person decides.
fn late_failure(journal: &Journal<'_>, charge: &Value) -> Result<Handled, Refusal> {
    let id = own_id(charge, "charge")?;
    if id_in(charge, "failure_balance_transaction")?.is_none() {
        return Ok(Handled::Ignored);
    }
    let object = format!("charge:{id}");
    if journal.mark(&object, "failed_late")? {
        let reason = format!(
            "{id} failed after it had succeeded, and the provider took the money back; it is not booked: look at the \
             charge at the provider and at its invoice"
        );
        let (event, kind) = (journal.event, reviews::Kind::LateFailure);
        reviews::open_on_object(
            journal.tx,
            kind,
            &object,
            (event.endpoint, event.id),
            &reason,
            event.now_ms,
        )?;
    }
    Ok(Handled::Applied)
}
