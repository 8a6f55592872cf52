//! Payments that may be sales: payment intents and checkout sessions.
//!
//! Invoices are paid by payment intents too. A payment is a sale unless anything, at any time, says that it is an
//! invoice's: the sale is taken back then. What the customer saw in another currency is never booked.

use serde_json::Value;

use super::journal::{Journal, Refusal, currency_of, id_in, money};
use super::own_id;
use crate::handlers::Handled;

pub(super) fn apply_intent(journal: &Journal<'_>, intent: &Value) -> Result<Handled, Refusal> {
    let id = own_id(intent, "payment intent")?;
    let received = if intent["amount_received"].is_null() { "amount" } else { "amount_received" };
    let received = money(intent, received, id)?;
    let currency = currency_of(intent, "a payment", id)?;
    // since API 2025-10-29 the order's name; Stripe sets it for invoices, a merchant may set it as well
    let reference = intent["payment_details"]["order_reference"].as_str().unwrap_or_default();
    let is_of_invoice = id_in(intent, "invoice")?.is_some() || reference.starts_with("in_");
    let object = format!("payment_intent:{id}");
    journal.whose(&object)?;
    join(journal, &object, &currency, Some(received), is_of_invoice)?;
    journal.settle_payment(id)?;
    Ok(Handled::Applied)
}

pub(super) fn apply_session(journal: &Journal<'_>, session: &Value) -> Result<Handled, Refusal> {
    let id = own_id(session, "checkout session")?;
    let is_payment = session["mode"].is_null() || session["mode"] == "payment";
    let Some(intent) = id_in(session, "payment_intent")?.filter(|_| is_payment) else {
        return Ok(Handled::Ignored);
    };
    let is_of_invoice =
        id_in(session, "invoice")?.is_some() || session["invoice_creation"]["enabled"] == Value::Bool(true);
    let received = match session["payment_status"].as_str() {
        Some("paid") => Some(money(session, "amount_total", id)?),
        _ => None,
    };
    if received.is_none() && !is_of_invoice {
        return Ok(Handled::Ignored);
    }
    let object = format!("payment_intent:{intent}");
    journal.whose(&object)?;
    join(journal, &object, &currency_of(session, "a payment", id)?, received, is_of_invoice)?;
    journal.settle_payment(intent)?;
    Ok(Handled::Applied)
}

fn join(
    journal: &Journal<'_>,
    object: &str,
    currency: &str,
    received: Option<i64>,
    is_of_invoice: bool,
) -> Result<(), Refusal> {
    journal.once(object, "currency", currency)?;
    if let Some(received) = received {
        journal.most(object, "received", received)?;
    }
    if is_of_invoice {
        journal.mark(object, "of_invoice")?;
    }
    Ok(())
}
