//! `money object`: all that is known and booked of one invoice, charge, dispute or other object.

use std::collections::BTreeSet;

use clap::Args;
use serde_json::{Value, json};

use super::books;
use crate::books::currencies::{provider_of, shown};
use crate::books::facts::{self, Fact};
use crate::books::invoices::{self, Invoice};
use crate::books::ledger::{self, Entry};
use crate::cli::reviews;
use crate::cli::store::{read_failed, short_time};
use crate::cli::{Context, Exit, Failure, put, put_lines};
use crate::store::reviews::{self as review_table, Review};
use crate::store::{Connection, SqlResult};

/// Show all evidence, entries, events and questions of one object
#[derive(Debug, Args)]
pub(crate) struct ObjectArgs {
    /// The provider's id (in_…, ch_…, dp_…), or the name in the books (charge:ch_…)
    #[arg(value_name = "ID")]
    id: String,
    /// Print one JSON object per line: object, facts, entries, events, reviews
    #[arg(long)]
    json: bool,
}

/// Facts and entries that are shown of one object.
const ROWS: u32 = 10_000;

/// The kinds of objects, as their names in the books begin.
const KINDS: [&str; 9] =
    ["invoice", "charge", "refund", "dispute", "credit_note", "payment_intent", "payout", "topup", "txn"];

/// Kinds of other providers' objects beside those.
const KINDS_ELSEWHERE: [&str; 2] = ["sale", "fee"];

struct Known {
    object: String,
    facts: Vec<Fact>,
    entries: Vec<Entry>,
    reviews: Vec<Review>,
}

pub(super) fn run(args: &ObjectArgs, context: &Context) -> Result<(), Failure> {
    let conn = books(context)?;
    let names: Vec<_> = if args.id.contains(':') {
        vec![args.id.clone()]
    } else {
        KINDS.iter().chain(&KINDS_ELSEWHERE).map(|kind| format!("{kind}:{}", args.id)).collect()
    };
    let mut found = Vec::new();
    for object in names {
        found.extend(known(&conn, object).map_err(read_failed)?);
    }
    if found.is_empty() {
        let message = format!(
            "the books know nothing of {}; objects are named by the provider's ids, e.g. in_…, ch_…, re_…, dp_…",
            args.id
        );
        return Err(Failure::new(Exit::NotFound, message));
    }
    if args.json {
        return put_lines(found.iter().map(to_json));
    }
    found.iter().try_for_each(|known| put(&to_text(known)))
}

fn known(conn: &Connection, object: String) -> SqlResult<Option<Known>> {
    let mut facts = facts::about(conn, &object, ROWS)?;
    if let Some(row) =
        object.strip_prefix("invoice:").map(|id| invoices::find(conn, id)).transpose()?.flatten()
    {
        facts.splice(0..0, of_row(&object, &row));
    }
    let entries = ledger::about(conn, &object, ROWS)?;
    if facts.is_empty() && entries.is_empty() {
        return Ok(None);
    }
    let reviews = review_table::on_object(conn, &object)?;
    Ok(Some(Known { object, facts, entries, reviews }))
}

/// What the invoice's own events told, as its row keeps it.
fn of_row(object: &str, row: &Invoice) -> Vec<Fact> {
    let number = |number: Option<i64>| number.map(|number| number.to_string());
    let fields = [
        ("status", Some(row.status.as_str().to_owned())),
        ("customer", row.customer_id.clone()),
        ("amount_due", number(row.amount_due)),
        ("total", number(row.total)),
        ("amount_paid", number((row.amount_paid > 0).then_some(row.amount_paid))),
    ];
    let fact = |(field, value): (&str, Option<String>)| {
        Some(Fact {
            object: object.to_owned(),
            field: field.to_owned(),
            value: value?,
            event_id: String::new(),
        })
    };
    fields.into_iter().filter_map(fact).collect()
}

fn events(known: &Known) -> BTreeSet<&str> {
    let of_facts = known.facts.iter().map(|fact| fact.event_id.as_str()).filter(|event| !event.is_empty());
    of_facts.chain(known.entries.iter().map(|entry| entry.event_id.as_str())).collect()
}

fn to_json(known: &Known) -> Value {
    let fact = |fact: &Fact| json!({"field": fact.field, "value": fact.value, "event_id": fact.event_id});
    let entry = |entry: &Entry| {
        json!({
            "entry_key": entry.entry_key,
            "kind": entry.kind.as_str(),
            "amount": entry.amount,
            "currency": entry.currency,
            "invoice_id": entry.invoice_id,
            "account": entry.account,
            "livemode": entry.livemode,
            "event_id": entry.event_id,
            "endpoint": entry.endpoint,
            "occurred_at_ms": entry.occurred_at_ms,
            "booked_at_ms": entry.booked_at_ms,
        })
    };
    json!({
        "object": known.object,
        "facts": known.facts.iter().map(fact).collect::<Vec<_>>(),
        "entries": known.entries.iter().map(entry).collect::<Vec<_>>(),
        "events": events(known),
        "reviews": known.reviews.iter().map(reviews::to_json).collect::<Vec<_>>(),
    })
}

fn to_text(known: &Known) -> String {
    let mut text = format!("{}\n", known.object);
    for Fact { field, value, event_id, .. } in &known.facts {
        let by = if event_id.is_empty() { String::new() } else { format!(", told by {event_id}") };
        text.push_str(&format!("  known   {field} = {value}{by}\n"));
    }
    for entry in &known.entries {
        let amount = shown(provider_of(&entry.object), entry.amount.into(), &entry.currency);
        let at = entry.occurred_at_ms.map_or_else(|| "-".to_owned(), short_time);
        text.push_str(&format!("  booked  {} {amount}, {at}, by {}\n", entry.entry_key, entry.event_id));
    }
    for review in &known.reviews {
        let end = review.resolved_at_ms.map_or("open", |_| "closed");
        text.push_str(&format!(
            "  asked   review {} ({}, {end}): {}\n",
            review.id, review.kind, review.reason
        ));
    }
    text.push_str(&format!("  events  {}\n", events(known).into_iter().collect::<Vec<_>>().join(" ")));
    text
}
