//! The handler `orders`: orders become paid by Stripe's checkout sessions and payment intents.
//!
//! An order is found by `metadata.order_id`, else the session's `client_reference_id`, else the payment
//! that its row names. The application creates the rows, or a completed session does. Amount, currency
//! and payment are compared as the provider states them, integer with integer; what differs is
//! quarantined, and nothing ever moves backwards. What has no order yet is kept and waits for it: the
//! provider is never answered with a failure for what the shop has not done yet.
//!
//! `checkout.session.completed` is no payment by itself: `payment_status` says whether one came in.
//! An unpaid session leaves the order open for `.async_payment_succeeded` (which opens it where it comes
//! first); `.async_payment_failed` changes nothing, since the customer may pay in another session.

use std::time::Duration;

use rusqlite::Transaction;
use serde_json::{Value, json};

use super::fields::{amount, currency, reference};
use super::{Event, Handled, Handler, HandlerError, Message, Park, Table, notify};
use crate::books::orders::{self, NewOrder, Paid, Payment};
use crate::store::inbox::queue;

/// How long a payment waits for the order that it names.
const NAMED_ORDER_TIME_MAX: Duration = Duration::from_hours(72);

/// How long a payment that names no order waits for one that names it. Mostly it is none of the shop's: an invoice's,
/// or made by hand. A checkout writes its order within moments.
const OTHER_ORDER_TIME_MAX: Duration = Duration::from_mins(10);

/// Orders, paid by Stripe's checkout and payment events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Orders;

impl Handler for Orders {
    fn name(&self) -> &str {
        "orders"
    }

    fn takes(&self, event_type: &str) -> bool {
        matches!(
            event_type,
            "payment_intent.succeeded"
                | "checkout.session.completed"
                | "checkout.session.async_payment_succeeded"
        )
    }

    fn reads(&self) -> Option<&[&'static str]> {
        Some(&[
            "/data/object/amount",
            "/data/object/amount_received",
            "/data/object/amount_total",
            "/data/object/client_reference_id",
            "/data/object/currency",
            "/data/object/id",
            "/data/object/invoice",
            "/data/object/metadata/order_id",
            "/data/object/mode",
            "/data/object/object",
            "/data/object/payment_details/order_reference",
            "/data/object/payment_intent",
            "/data/object/payment_status",
        ])
    }

    fn tables(&self) -> &[Table] {
        const { &[Table::shared("orders")] }
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
        if event.is_test_send {
            return Ok(Handled::Ignored);
        }
        let read = match event.event_type {
            "payment_intent.succeeded" => PaymentFacts::of_intent(event),
            "checkout.session.completed" | "checkout.session.async_payment_succeeded" => {
                PaymentFacts::of_session(event)
            }
            _ => Ok(None),
        };
        match read {
            Ok(Some(facts)) => apply(tx, event, &facts),
            Ok(None) => Ok(Handled::Ignored),
            Err(reason) => Ok(Handled::Quarantine(reason)),
        }
    }
}

/// What an event says about an order.
#[derive(Debug)]
struct PaymentFacts<'a> {
    /// `None` where only the payment can lead to the order.
    order_id: Option<&'a str>,
    amount: i64,
    currency: String,
    /// `None` where no payment came in yet.
    payment_id: Option<&'a str>,
    /// Whether it opens an order that is not there: a session says all about it.
    opens: bool,
}

impl<'a> PaymentFacts<'a> {
    /// `None` where the payment is no order's; the error is the reason to quarantine the event.
    fn of_intent(event: &Event<'a>) -> Result<Option<Self>, String> {
        let intent = object(event, "payment_intent")?;
        if is_of_an_invoice(intent) {
            return Ok(None);
        }
        let payment_id = required_id(&intent["id"], "payment intent")?;
        // what was captured, which may be less than what was authorized
        let paid = intent.get("amount_received").filter(|value| !value.is_null()).or(intent.get("amount"));
        Ok(Some(Self {
            order_id: reference(&intent["metadata"]["order_id"], "metadata.order_id")?,
            amount: amount(paid).map_err(|problem| format!("amount_received {problem} ({payment_id})"))?,
            currency: required_currency(&intent["currency"], payment_id)?,
            payment_id: Some(payment_id),
            opens: false,
        }))
    }

    /// As [`PaymentFacts::of_intent`]. A session that sets up a card or a subscription is no order's.
    fn of_session(event: &Event<'a>) -> Result<Option<Self>, String> {
        let session = object(event, "checkout.session")?;
        if !session["mode"].is_null() && session["mode"] != "payment" {
            return Ok(None);
        }
        let session_id = required_id(&session["id"], "checkout session")?;
        let named = reference(&session["metadata"]["order_id"], "metadata.order_id")?;
        let referred = reference(&session["client_reference_id"], "client_reference_id")?;
        let intent = reference(&session["payment_intent"], "payment_intent")?;
        let is_paid = match session["payment_status"].as_str() {
            Some("paid" | "no_payment_required") => true,
            Some("unpaid") => false,
            _ => return Err(format!("payment_status is not one that is known ({session_id})")),
        };
        Ok(Some(Self {
            order_id: Some(named.or(referred).unwrap_or(session_id)),
            amount: amount(session.get("amount_total"))
                .map_err(|problem| format!("amount_total {problem} ({session_id})"))?,
            currency: required_currency(&session["currency"], session_id)?,
            // where nothing had to be paid there is no payment intent
            payment_id: is_paid.then_some(intent.unwrap_or(session_id)),
            opens: true,
        }))
    }
}

fn apply(tx: &Transaction<'_>, event: &Event<'_>, facts: &PaymentFacts<'_>) -> Result<Handled, HandlerError> {
    let PaymentFacts { amount, currency, .. } = facts;
    if let Some(id) = facts.order_id.filter(|_| facts.opens) {
        let order = NewOrder { account: event.account, id, currency, total: *amount };
        if orders::open(tx, &order, event.now_ms)? {
            queue::wake_waiting(tx, event.endpoint, &order_named(event.account, id), event.now_ms)?;
        }
    }
    let Some(payment_id) = facts.payment_id else {
        return Ok(Handled::Applied);
    };
    let payment =
        Payment { account: event.account, order_id: facts.order_id, payment_id, amount: *amount, currency };
    match orders::pay(tx, &payment, event.now_ms)? {
        Paid::Now(order_id) => {
            queue::wake_waiting(tx, event.endpoint, &order_of(event.account, payment_id), event.now_ms)?;
            notify(tx, event, paid(order_id, &payment))?;
            Ok(Handled::Applied)
        }
        Paid::Already => Ok(Handled::Applied),
        Paid::NotYet => Ok(Handled::Park(match facts.order_id {
            Some(id) => {
                Park { waits_for: order_named(event.account, id), time_max: NAMED_ORDER_TIME_MAX, asks: true }
            }
            None => Park {
                waits_for: order_of(event.account, payment_id),
                time_max: OTHER_ORDER_TIME_MAX,
                asks: false,
            },
        })),
        Paid::Conflicts(reason) => Ok(Handled::Quarantine(reason)),
    }
}

/// An order by its name, as it is waited for.
fn order_named(account: Option<&str>, id: &str) -> String {
    format!("order {id}{}", of_account(account))
}

/// An order by its payment, as it is waited for.
fn order_of(account: Option<&str>, payment_id: &str) -> String {
    format!("the order of payment {payment_id}{}", of_account(account))
}

fn of_account(account: Option<&str>) -> String {
    account.map(|account| format!(" of account {account}")).unwrap_or_default()
}

fn paid(order_id: String, payment: &Payment<'_>) -> Message {
    Message {
        topic: "OrderPaid",
        // a payment pays one order: its id alone is the fact's name, in every account
        operation_key: format!("order-paid:{}", payment.payment_id),
        facts: json!({
            "account": payment.account,
            "order": order_id,
            "payment": payment.payment_id,
            "amount": payment.amount,
            "currency": payment.currency,
        }),
        object_id: order_id,
    }
}

fn object<'a>(event: &Event<'a>, kind: &str) -> Result<&'a Value, String> {
    let object = &event.body["data"]["object"];
    if !object.is_object() {
        return Err("data.object is missing or not an object".to_owned());
    }
    if !object["object"].is_null() && object["object"] != kind {
        return Err(format!("data.object is not a {kind}"));
    }
    Ok(object)
}

/// Invoices have payment intents too, and are no orders: named directly, or since API 2025-03-31 as the
/// order reference.
fn is_of_an_invoice(intent: &Value) -> bool {
    let reference = intent["payment_details"]["order_reference"].as_str().unwrap_or_default();
    !intent["invoice"].is_null() || reference.starts_with("in_")
}

fn required_id<'a>(id: &'a Value, what: &str) -> Result<&'a str, String> {
    reference(id, what)?.ok_or_else(|| format!("the {what} has no id"))
}

fn required_currency(code: &Value, id: &str) -> Result<String, String> {
    currency(code)?.ok_or_else(|| format!("a payment without a currency ({id})"))
}
