//! Everything known about one event, put together for `events show`: deliveries, attempts, configured handlers,
//! effects, and the decisions of people.
//!
//! Each part is found by a key that has an index, however many rows there are.

use std::collections::BTreeSet;

use crate::books::ledger::{self, Entry};
use crate::books::orders::{self, Order};
use crate::config::{Instance, Sketch};
use crate::store::inbox::conflicts::{self, Conflict};
use crate::store::inbox::queue::{self, Attempt};
use crate::store::inbox::{self, Event};
use crate::store::meta;
use crate::store::outbox::{self, Operation};
use crate::store::reviews::{self, Review};
use crate::store::{Connection, SqlResult};
use crate::terminal::printable;
use serde_json::{Value, json};

use super::conflicts as conflicts_verb;
use super::events;
use super::outbox as outbox_verb;
use super::reviews as reviews_verb;
use super::store::{counted, fields, time};

/// A body larger than this is not looked through for names.
const BODY_BYTES_MAX: i64 = 4 << 20;

/// Names out of a body that are looked up.
const NAMES_MAX: usize = 2_000;

/// No id is longer.
const NAME_BYTES_MAX: usize = 255;

pub(crate) struct Story {
    event: Event,
    endpoint: Option<Sketch>,
    attempts: Vec<Attempt>,
    outbox: Vec<Operation>,
    ledger: Vec<Entry>,
    orders: Vec<Order>,
    reviews: Vec<Review>,
    conflicts: Vec<Conflict>,
}

impl Story {
    pub(crate) fn read(conn: &Connection, instance: &Instance, event: Event) -> SqlResult<Self> {
        let (endpoint, event_id) = (event.endpoint.as_str(), event.event_id.as_str());
        let names = names(conn, &event)?;
        Ok(Self {
            endpoint: instance.sketch(endpoint).cloned(),
            attempts: queue::attempts(conn, event.id)?,
            outbox: outbox::of_event(conn, endpoint, event_id)?,
            ledger: entries(conn, &event, &names)?,
            orders: paid_orders(conn, &names)?,
            reviews: reviews::about(conn, endpoint, event_id)?,
            conflicts: conflicts::of_event(conn, endpoint, event_id)?,
            event,
        })
    }

    /// New fields may be added; ignore what you do not know.
    pub(crate) fn to_json(&self) -> Value {
        let mut json = events::to_json(&self.event);
        json["history"] = self.attempts.iter().map(attempt_json).collect();
        json["configured"] = self.endpoint.as_ref().map_or(Value::Null, |endpoint| {
            json!({
                "mode_is_proxy": endpoint.is_proxy,
                "handlers": endpoint.handlers,
                "forward": endpoint.forward,
            })
        });
        json["outbox"] = self.outbox.iter().map(outbox_verb::to_json).collect();
        json["ledger"] = self.ledger.iter().map(|entry| self.entry_json(entry)).collect();
        json["orders"] = self.orders.iter().map(order_json).collect();
        json["conflicts"] = conflicts_verb::to_json(&self.conflicts);
        json["reviews"] = self.reviews.iter().map(reviews_verb::to_json).collect();
        json
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = fields(&events::to_json(&self.event), &[]);
        let mut tell = |line: String| text.push_str(&format!("{}\n", printable(&line)));
        tell(self.deliveries());
        tell(self.configured());
        self.attempts.iter().for_each(|attempt| tell(attempt_line(attempt)));
        self.outbox.iter().for_each(|row| tell(outbox_line(row)));
        self.ledger.iter().for_each(|entry| tell(self.entry_line(entry)));
        self.orders.iter().for_each(|order| tell(order_line(order)));
        self.reviews.iter().for_each(|review| tell(review_line(review)));
        conflicts_verb::lines(&self.event.event_id, &self.conflicts).for_each(tell);
        text
    }

    fn deliveries(&self) -> String {
        let first = time(self.event.received_at_ms);
        match self.event.duplicates {
            0 => format!("delivered once, {first}"),
            more => format!("delivered first {first}, and {} since", counted(more, "more time")),
        }
    }

    fn configured(&self) -> String {
        let name = &self.event.endpoint;
        let Some(Sketch { is_proxy, handlers, forward, .. }) = &self.endpoint else {
            return format!("endpoint {name} is not in the configuration any more");
        };
        let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let mode = if *is_proxy { "; the application answers (proxy)" } else { "" };
        format!("endpoint {name}: handlers {}; forward {}{mode}", list(handlers), list(forward))
    }

    fn is_its(&self, entry: &Entry) -> bool {
        entry.event_id == self.event.event_id && entry.endpoint == self.event.endpoint
    }

    fn entry_json(&self, entry: &Entry) -> Value {
        json!({
            "entry_key": entry.entry_key,
            "invoice_id": entry.invoice_id,
            "kind": entry.kind.as_str(),
            "amount": entry.amount,
            "currency": entry.currency,
            "event_id": entry.event_id,
            "endpoint": entry.endpoint,
            "booked_at_ms": entry.booked_at_ms,
            "booked_by_this_event": self.is_its(entry),
        })
    }

    fn entry_line(&self, entry: &Entry) -> String {
        let Entry { entry_key, kind, amount, currency, event_id, endpoint, booked_at_ms, .. } = entry;
        let by = if self.is_its(entry) {
            "by this event".to_owned()
        } else {
            format!("by event {event_id} on {endpoint}, which reported it first")
        };
        format!("ledger {entry_key}: {kind} {amount} {currency}, booked {} {by}", time(*booked_at_ms))
    }
}

/// What the event may be about: its object, and every text of its body that is short enough for an id.
fn names(conn: &Connection, event: &Event) -> SqlResult<BTreeSet<String>> {
    let mut names: BTreeSet<_> = event.object_id.iter().cloned().collect();
    if event.payload_bytes.is_some_and(|bytes| bytes <= BODY_BYTES_MAX) {
        let body = inbox::payload_of(conn, event.id)?.unwrap_or_default();
        if let Ok(body) = serde_json::from_slice::<Value>(&body) {
            collect(&body, &mut names);
        }
    }
    Ok(names)
}

fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        _ if names.len() >= NAMES_MAX => {}
        Value::String(text) if !text.is_empty() && text.len() <= NAME_BYTES_MAX => {
            names.insert(text.clone());
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
        Value::Object(fields) => fields.values().for_each(|value| collect(value, names)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Lines that this event told of first, and those of its own object. What a body only mentions is not its business.
fn entries(conn: &Connection, event: &Event, names: &BTreeSet<String>) -> SqlResult<Vec<Entry>> {
    if is_embedded(conn)? {
        return Ok(Vec::new());
    }
    let keys: Vec<_> = names.iter().flat_map(|name| ledger::first_keys(name)).collect();
    let own: Vec<_> = event.object_id.as_deref().into_iter().flat_map(ledger::first_keys).collect();
    let mut entries = ledger::with_keys(conn, &json!(keys).to_string())?;
    entries.retain(|entry| {
        let is_its = entry.event_id == event.event_id && entry.endpoint == event.endpoint;
        is_its || own.contains(&entry.entry_key)
    });
    // money that moved comes first
    entries.sort_by_key(|entry| entry.kind.book() != "provider");
    Ok(entries)
}

/// In an application's own file there are no books, and its `orders` are its own.
fn is_embedded(conn: &Connection) -> SqlResult<bool> {
    Ok(meta::schema_version(conn)?.is_some())
}

fn paid_orders(conn: &Connection, names: &BTreeSet<String>) -> SqlResult<Vec<Order>> {
    if is_embedded(conn)? {
        return Ok(Vec::new());
    }
    orders::of_payments(conn, &json!(names).to_string())
}

fn attempt_json(attempt: &Attempt) -> Value {
    json!({
        "number": attempt.number,
        "started_at_ms": attempt.started_at_ms,
        "ended_at_ms": attempt.ended_at_ms,
        "result": attempt.result,
        "error": attempt.error,
    })
}

fn attempt_line(attempt: &Attempt) -> String {
    let result = attempt.result.as_deref().unwrap_or("is running, or ended with its process");
    let error = attempt.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    format!("attempt {} {} {result}{error}", attempt.number, time(attempt.started_at_ms))
}

fn outbox_line(row: &Operation) -> String {
    let Operation { id, destination, topic, state, attempts, operation_key, .. } = row;
    let attempts = counted(*attempts, "attempt");
    let how = match (state.as_str(), row.delivered_at_ms, &row.last_error) {
        ("delivered", Some(at), _) => format!("delivered {} after {attempts}", time(at)),
        (state, _, Some(error)) => format!("{state} after {attempts}: {error}"),
        (state, _, None) => format!("{state}, {attempts}"),
    };
    format!("outbox {id} to {destination}: {topic} ({operation_key}) {how}")
}

fn order_json(order: &Order) -> Value {
    json!({
        "account": order.account,
        "id": order.id,
        "status": order.status,
        "currency": order.currency,
        "total": order.total,
        "payment_id": order.payment_id,
        "paid_at_ms": order.paid_at_ms,
    })
}

fn order_line(order: &Order) -> String {
    let Order { id, status, currency, total, payment_id, paid_at_ms, .. } = order;
    let payment = payment_id.as_deref().unwrap_or("-");
    let paid = paid_at_ms.map(|at| format!(", paid {}", time(at))).unwrap_or_default();
    format!("order {id}: {status}, {total} {currency} by payment {payment}{paid}")
}

fn review_line(review: &Review) -> String {
    let Review { id, kind, reason, resolved_at_ms, note, .. } = review;
    let end = resolved_at_ms.map_or_else(|| "open".to_owned(), |at| format!("closed {}", time(at)));
    let note = note.as_deref().map(|note| format!("; decided: {note}")).unwrap_or_default();
    format!("review {id} ({kind}, {end}): {reason}{note}")
}
