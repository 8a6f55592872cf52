//! The handler `billing`: Stripe's events about money become evidence, and the evidence becomes the books.
//!
//! One file per kind of object reads the fields of its events and checks only what it reads; which API version wrote
//! them is never asked: each field is taken where it stands. An event joins what it tells to what is known of its object
//! ([`crate::books::facts`]), and each object that it touched is settled: the books get the difference. So one fact told
//! by several events, in any order, is booked once.
//!
//! Content that cannot be read is quarantined. What cannot be true together with what is known is a contradiction: it is
//! not booked, and a person is asked. It never guesses and never rounds.

mod charge;
mod credit_note;
mod dispute;
mod invoice;
mod journal;
mod payment;
mod payout;
mod refund;
mod subscription;
mod thin;

use rusqlite::Transaction;
use serde_json::Value;

use super::fields::id_text;
use super::{Event, Handled, Handler, HandlerError, Table};
use journal::{Journal, Refusal};

/// Money at Stripe, kept by Stripe's events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Billing;

impl Handler for Billing {
    fn name(&self) -> &str {
        "billing"
    }

    fn takes(&self, event_type: &str) -> bool {
        subject(event_type).is_some()
    }

    fn reads(&self) -> Option<&[&'static str]> {
        Some(&READS)
    }

    fn tables(&self) -> &[Table] {
        const {
            &[
                Table::own("invoices"),
                Table::own("ledger_kinds"),
                Table::own("ledger_entries"),
                Table::own("money_facts"),
                Table::own("subscription_states"),
            ]
        }
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
        let Some(subject) = subject(event.event_type).filter(|_| !event.is_test_send) else {
            return Ok(Handled::Ignored);
        };
        match apply(&Journal { tx, event }, subject) {
            Ok(handled) => Ok(handled),
            Err(Refusal::Sql(error)) => Err(HandlerError::Sql(error)),
            Err(Refusal::Unreadable(reason)) => Ok(Handled::Quarantine(reason)),
            Err(Refusal::Contradiction(reason)) => Ok(Handled::Contradiction(reason)),
        }
    }
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Invoice(invoice::Proof),
    InvoicePayment,
    Charge,
    Refund,
    Dispute,
    CreditNote,
    PaymentIntent,
    CheckoutSession,
    Payout,
    Topup,
    Subscription,
    /// An event without its object.
    Thin,
}

/// Every event type that tells of money. Other types of the same objects tell nothing that is kept here.
fn subject(event_type: &str) -> Option<Subject> {
    if let Some(proof) = invoice::proof_of(event_type) {
        return Some(Subject::Invoice(proof));
    }
    Some(match event_type {
        "invoice_payment.paid" => Subject::InvoicePayment,
        "charge.succeeded" | "charge.captured" | "charge.updated" | "charge.refunded" | "charge.expired"
        | "charge.failed" => Subject::Charge,
        "refund.created" | "refund.updated" | "refund.failed" | "charge.refund.updated" => Subject::Refund,
        "charge.dispute.created"
        | "charge.dispute.updated"
        | "charge.dispute.closed"
        | "charge.dispute.funds_withdrawn"
        | "charge.dispute.funds_reinstated" => Subject::Dispute,
        "credit_note.created" | "credit_note.updated" | "credit_note.voided" => Subject::CreditNote,
        "payment_intent.succeeded" => Subject::PaymentIntent,
        "checkout.session.completed" | "checkout.session.async_payment_succeeded" => Subject::CheckoutSession,
        "payout.created"
        | "payout.updated"
        | "payout.paid"
        | "payout.failed"
        | "payout.canceled"
        | "payout.reconciliation_completed" => Subject::Payout,
        "topup.created" | "topup.succeeded" | "topup.failed" | "topup.canceled" | "topup.reversed" => {
            Subject::Topup
        }
        "customer.subscription.created"
        | "customer.subscription.updated"
        | "customer.subscription.deleted"
        | "customer.subscription.paused"
        | "customer.subscription.resumed" => Subject::Subscription,
        _ if thin::is_about_money(event_type) => Subject::Thin,
        _ => return None,
    })
}

fn apply(journal: &Journal<'_>, subject: Subject) -> Result<Handled, Refusal> {
    if subject == Subject::Thin {
        return thin::apply(journal);
    }
    let object = object(journal.event, subject)?;
    if is_sample(&object["id"]) {
        return Ok(Handled::Ignored);
    }
    match subject {
        Subject::Invoice(proof) => invoice::apply(journal, object, proof),
        Subject::InvoicePayment => invoice::apply_payment(journal, object),
        Subject::Charge => charge::apply(journal, object),
        Subject::Refund => refund::apply(journal, object),
        Subject::Dispute => dispute::apply(journal, object),
        Subject::CreditNote => credit_note::apply(journal, object),
        Subject::PaymentIntent => payment::apply_intent(journal, object),
        Subject::CheckoutSession => payment::apply_session(journal, object),
        Subject::Payout => payout::apply(journal, object),
        Subject::Topup => payout::apply_topup(journal, object),
        Subject::Subscription => subscription::apply(journal, object),
        Subject::Thin => Ok(Handled::Ignored),
    }
}

/// The object inside the event, of the kind that the event's type says.
fn object<'a>(event: &Event<'a>, subject: Subject) -> Result<&'a Value, Refusal> {
    let (kind, article) = match subject {
        Subject::Invoice(_) => ("invoice", "an"),
        Subject::InvoicePayment => ("invoice_payment", "an"),
        Subject::Charge => ("charge", "a"),
        Subject::Refund => ("refund", "a"),
        Subject::Dispute => ("dispute", "a"),
        Subject::CreditNote => ("credit_note", "a"),
        Subject::PaymentIntent => ("payment_intent", "a"),
        Subject::CheckoutSession => ("checkout.session", "a"),
        Subject::Payout => ("payout", "a"),
        Subject::Topup => ("topup", "a"),
        Subject::Subscription => ("subscription", "a"),
        Subject::Thin => ("event", "an"),
    };
    let object = &event.body["data"]["object"];
    if !object.is_object() {
        return Err(Refusal::Unreadable("data.object is missing or not an object".to_owned()));
    }
    if !object["object"].is_null() && object["object"] != kind {
        return Err(Refusal::Unreadable(format!("data.object is not {article} {kind}")));
    }
    Ok(object)
}

/// Ids of Stripe's sample objects: a test send from the dashboard is about no object at all.
fn is_sample(id: &Value) -> bool {
    id.as_str().is_some_and(|id| id.ends_with("_00000000000000"))
}

/// The object's own id.
fn own_id<'a>(object: &'a Value, what: &str) -> Result<&'a str, Refusal> {
    id_text(&object["id"])
        .map_err(|problem| Refusal::Unreadable(format!("the {what}'s id {problem}")))?
        .ok_or_else(|| Refusal::Unreadable(format!("the {what} has no id")))
}

/// All that is read of an event, whatever it is about.
const READS: [&str; 49] = [
    "/created",
    "/snapshot_event",
    "/data/object/amount",
    "/data/object/amount_captured",
    "/data/object/amount_due",
    "/data/object/amount_overpaid",
    "/data/object/amount_paid",
    "/data/object/amount_received",
    "/data/object/amount_refunded",
    "/data/object/amount_remaining",
    "/data/object/amount_total",
    "/data/object/balance_transactions",
    "/data/object/captured",
    "/data/object/charge",
    "/data/object/currency",
    "/data/object/customer",
    "/data/object/failure_balance_transaction",
    "/data/object/id",
    "/data/object/invoice",
    "/data/object/invoice_creation/enabled",
    "/data/object/mode",
    "/data/object/object",
    "/data/object/out_of_band_amount",
    "/data/object/paid_out_of_band",
    "/data/object/payment/charge",
    "/data/object/payment/payment_intent",
    "/data/object/payment/payment_record",
    "/data/object/payment/type",
    "/data/object/payment_details/order_reference",
    "/data/object/payment_intent",
    "/data/object/payment_status",
    "/data/object/post_payment_amount",
    "/data/object/pre_payment_amount",
    "/data/object/pre_payment_credit_notes_amount",
    "/data/object/reason",
    "/data/object/refund",
    "/data/object/refunds",
    "/data/object/status",
    "/data/object/total",
    "/data/object/type",
    "/related_object/id",
    "/related_object/type",
    "/data/object/paid",
    "/data/object/cancel_at",
    "/data/object/cancel_at_period_end",
    "/data/object/current_period_end",
    "/data/object/items",
    "/data/object/pause_collection",
    "/data/object/plan",
];
