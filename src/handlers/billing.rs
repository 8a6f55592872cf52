//! The handler `billing`: Stripe's invoice events become the state of each invoice and one ledger entry per
//! payment.
//!
//! It reads only the fields it needs and checks only what it reads, so one row results from every API
//! version: `status`, not `paid`; `amount_paid`, not `amount_due`; never `charge` or `payment_intent`.
//! Content it cannot be sure of is quarantined with a reason. It never guesses, never rounds, never unbooks.
//!
//! **What an event proves.** Its type names the state the invoice has been in. `invoice.updated` names none:
//! it proves what its snapshot's `status` says, by the same table, however stale or early it is. So a snapshot
//! that says `paid` books the payment like `invoice.paid` does, under the same key: an endpoint that is sent
//! only one of the two misses nothing, and one that is sent both books once.
//!
//! **What is booked.** `amount_paid` as the provider states it, at the moment the invoice is paid as a whole.
//! Part payments of an open invoice are not booked before. A payment of zero (trial, full discount, credit
//! balance) moves the state, and writes neither an entry nor an outbox row: no money came in. A payment
//! outside Stripe counts as far as `amount_paid` counts it: since API 2025-03-31 it does, before it did not.

use rusqlite::Transaction;
use serde_json::{Value, json};

use super::fields::{amount, currency, id_text};
use super::{Event, Handled, Handler, HandlerError, Message, Table, notify};
use crate::books::invoices::{self, Noted, Report, Status, Step};
use crate::books::ledger::{self, Booked, Payment};

/// Invoices and the ledger, kept by Stripe's invoice events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Billing;

impl Handler for Billing {
    fn name(&self) -> &str {
        "billing"
    }

    fn takes(&self, event_type: &str) -> bool {
        proof_of(event_type).is_some()
    }

    fn reads(&self) -> Option<&[&'static str]> {
        Some(&[
            "/data/object/amount_paid",
            "/data/object/amount_remaining",
            "/data/object/currency",
            "/data/object/customer",
            "/data/object/id",
            "/data/object/object",
            "/data/object/status",
        ])
    }

    fn tables(&self) -> &[Table] {
        const { &[Table::own("invoices"), Table::own("ledger_entries")] }
    }

    fn needs_signed_body(&self) -> bool {
        true
    }

    fn is_money(&self) -> bool {
        true
    }

    fn providers(&self) -> &[&'static str] {
        &["stripe"]
    }

    fn writes_to_notify_only(&self) -> bool {
        true
    }

    fn has_start(&self) -> bool {
        false
    }

    fn handle(&self, tx: &Transaction<'_>, event: &Event<'_>) -> Result<Handled, HandlerError> {
        let Some(proof) = proof_of(event.event_type) else {
            return Ok(Handled::Ignored);
        };
        if event.is_test_send {
            return Ok(Handled::Ignored);
        }
        match Told::read(event.body, proof) {
            Ok(told) if is_sample_id(told.id) => Ok(Handled::Ignored),
            Ok(told) => apply(tx, event, &told),
            Err(reason) => Ok(Handled::Quarantine(reason)),
        }
    }
}

/// What an event of some type proves by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// The invoice has been in this state.
    Of(Status),
    /// A payment came in: of the whole invoice, unless the snapshot says that some is left to pay.
    OfPayment,
    /// Only what the snapshot says.
    OfSnapshot,
}

/// Every event type this handler takes. Other `invoice.*` types tell nothing that is kept here, and
/// `invoice.upcoming` is about an invoice that does not exist.
const PROOFS: [(&str, Proof); 9] = [
    ("invoice.created", Proof::Of(Status::Draft)),
    ("invoice.finalized", Proof::Of(Status::Open)),
    ("invoice.payment_failed", Proof::Of(Status::Open)),
    ("invoice.marked_uncollectible", Proof::Of(Status::Uncollectible)),
    ("invoice.paid", Proof::Of(Status::Paid)),
    ("invoice.payment_succeeded", Proof::OfPayment),
    ("invoice.voided", Proof::Of(Status::Void)),
    ("invoice.deleted", Proof::Of(Status::Deleted)),
    ("invoice.updated", Proof::OfSnapshot),
];

fn proof_of(event_type: &str) -> Option<Proof> {
    PROOFS.iter().find(|(name, _)| *name == event_type).map(|(_, proof)| *proof)
}

/// Ids of Stripe's sample objects: a test send from the dashboard is about no invoice at all.
fn is_sample_id(id: &str) -> bool {
    id.ends_with("_00000000000000")
}

fn apply(tx: &Transaction<'_>, event: &Event<'_>, told: &Told<'_>) -> Result<Handled, HandlerError> {
    if let Noted::Refused(reason) = invoices::note(tx, &told.report(), event.now_ms)? {
        return Ok(Handled::Quarantine(reason));
    }
    let Some(payment) = told.payment(event) else {
        return Ok(Handled::Applied);
    };
    match ledger::book(tx, &payment, event.now_ms)? {
        // Only the booking itself tells others: entries stay for ever, delivered outbox rows do not.
        Booked::New => {
            notify(tx, event, booked(told, &payment))?;
            Ok(Handled::Applied)
        }
        Booked::Already => Ok(Handled::Applied),
        Booked::Conflicts { amount, currency } => Ok(Handled::Quarantine(format!(
            "a payment of {} {} where {amount} {currency} is booked ({})",
            payment.amount, payment.currency, told.id
        ))),
    }
}

fn booked(told: &Told<'_>, payment: &Payment<'_>) -> Message {
    Message {
        topic: "InvoicePaymentBooked",
        // The fact's key, not the event's: the receiver sees one Idempotency-Key per payment.
        operation_key: ledger::payment_key(payment.invoice_id),
        object_id: payment.invoice_id.to_owned(),
        facts: json!({
            "invoice": payment.invoice_id,
            "customer": told.customer_id,
            "amount": payment.amount,
            "currency": payment.currency,
        }),
    }
}

/// What an event says, read and checked.
#[derive(Debug)]
struct Told<'a> {
    id: &'a str,
    customer_id: Option<&'a str>,
    currency: Option<String>,
    proved: Status,
    /// 0 unless `proved` is paid.
    amount_paid: i64,
}

impl<'a> Told<'a> {
    /// Reads the invoice inside the event; the error is the reason to quarantine it.
    fn read(body: &'a Value, proof: Proof) -> Result<Self, String> {
        let invoice = &body["data"]["object"];
        if !invoice.is_object() {
            return Err("data.object is missing or not an object".to_owned());
        }
        if !matches!(&invoice["object"], Value::Null) && invoice["object"] != "invoice" {
            return Err("data.object is not an invoice".to_owned());
        }
        let id = id_text(&invoice["id"])
            .map_err(|problem| format!("the invoice's id {problem}"))?
            .ok_or("the invoice has no id")?;
        let proved = proved(invoice, proof)?;
        let amount_paid = if proved == Status::Paid {
            amount(invoice.get("amount_paid")).map_err(|problem| format!("amount_paid {problem} ({id})"))?
        } else {
            0
        };
        let currency = currency(&invoice["currency"])?;
        if amount_paid > 0 && currency.is_none() {
            return Err(format!("a payment without a currency ({id})"));
        }
        Ok(Self { id, customer_id: customer_id(&invoice["customer"])?, currency, proved, amount_paid })
    }

    fn report(&self) -> Report<'_> {
        Report {
            id: self.id,
            customer_id: self.customer_id,
            currency: self.currency.as_deref(),
            proved: self.proved,
            amount_paid: self.amount_paid,
        }
    }

    /// The money to book, if any.
    fn payment<'b>(&'b self, event: &Event<'b>) -> Option<Payment<'b>> {
        let currency = self.currency.as_deref().filter(|_| self.amount_paid > 0)?;
        Some(Payment {
            invoice_id: self.id,
            amount: self.amount_paid,
            currency,
            event_id: event.id,
            endpoint: event.endpoint,
        })
    }
}

/// The state that the event proves.
fn proved(invoice: &Value, proof: Proof) -> Result<Status, String> {
    let snapshot = snapshot_status(&invoice["status"])?;
    let proved = match (proof, snapshot) {
        (Proof::OfPayment, _) if is_unpaid(invoice, snapshot)? => snapshot.unwrap_or(Status::Open),
        (Proof::OfPayment, _) => Status::Paid,
        (Proof::Of(Status::Paid), _) if is_unpaid(invoice, snapshot)? => {
            return Err("the event says paid, its invoice says that some is left to pay".to_owned());
        }
        (Proof::Of(status), _) => status,
        (Proof::OfSnapshot, Some(snapshot)) => snapshot,
        // Without a state that is known here, an update proves no more than that the invoice exists.
        (Proof::OfSnapshot, None) => Status::Draft,
    };
    match invoices::step(snapshot, proved) {
        Step::Move | Step::Stay => Ok(proved),
        Step::Contradiction(what) => Err(format!("the event contradicts itself: {what}")),
    }
}

/// Whether the snapshot says that some is left to pay. Since API 2025-03-31 an invoice can take several
/// payments, each of which succeeds; it stays open until the last. One that says paid or void is believed.
fn is_unpaid(invoice: &Value, snapshot: Option<Status>) -> Result<bool, String> {
    let is_settled = matches!(snapshot, Some(Status::Paid | Status::Void | Status::Deleted));
    match &invoice["amount_remaining"] {
        _ if is_settled => Ok(false),
        Value::Null => Ok(false),
        left => {
            amount(Some(left)).map(|left| left > 0).map_err(|problem| format!("amount_remaining {problem}"))
        }
    }
}

/// Stripe's states, an unknown one (they may add some) and none at all (before 2018-11) read alike.
fn snapshot_status(status: &Value) -> Result<Option<Status>, String> {
    match status {
        Value::Null => Ok(None),
        Value::String(name) => Ok(Status::parse(name)),
        _ => Err("the invoice's status is not text".to_owned()),
    }
}

/// A string, an expanded or deleted object, or nobody.
fn customer_id(customer: &Value) -> Result<Option<&str>, String> {
    let (id, problem_with) = match customer {
        Value::Object(expanded) => (expanded.get("id").unwrap_or(&Value::Null), "the customer's id"),
        other => (other, "the customer"),
    };
    let id = id_text(id).map_err(|problem| format!("{problem_with} {problem}"))?;
    if id.is_none() && customer.is_object() {
        return Err("the customer has no id".to_owned());
    }
    Ok(id)
}
