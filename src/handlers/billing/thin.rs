//! Thin events: they name an object and say nothing of it, so that nothing can be booked from them.
//!
//! One whose snapshot twin is held here is done. Another is never ignored: a person is asked, and told what to subscribe.

use super::journal::{Journal, Refusal};
use super::subject;
use crate::handlers::Handled;
use crate::handlers::fields::reference;
use crate::store::inbox;

/// Whether events of this type tell of money, without its amount. `v1.` is written before the type of the snapshot event;
/// what begins with `v2.` has no such twin.
pub(super) fn is_about_money(event_type: &str) -> bool {
    if let Some(snapshot_type) = event_type.strip_prefix("v1.") {
        return OBJECTS.iter().any(|object| snapshot_type.starts_with(object));
    }
    event_type.strip_prefix("v2.").is_some_and(|rest| V2_AREAS.iter().any(|area| rest.starts_with(area)))
}

pub(super) fn apply(journal: &Journal<'_>) -> Result<Handled, Refusal> {
    let event = journal.event;
    let snapshot = reference(&event.body["snapshot_event"], "snapshot_event").map_err(Refusal::Unreadable)?;
    if let Some(snapshot) = snapshot
        && inbox::is_held(journal.tx, snapshot)?
    {
        return Ok(Handled::Applied);
    }
    let wanted = event.event_type.strip_prefix("v1.").filter(|wanted| subject(wanted).is_some());
    let advice = match wanted {
        Some(wanted) => format!("subscribe the snapshot event {wanted} for this endpoint"),
        None => "subscribe the snapshot events of this object for this endpoint".to_owned(),
    };
    Ok(Handled::Thin(format!(
        "a thin event ({}) says that something happened, and not what: no amount can be booked from it; {advice}, then \
         `inboxd retry {}`",
        event.event_type, event.id
    )))
}

/// Objects that money hangs on, as the types of snapshot events begin.
const OBJECTS: [&str; 10] = [
    "invoice.",
    "invoice_payment.",
    "charge.",
    "refund.",
    "credit_note.",
    "payment_intent.",
    "checkout.session.",
    "payout.",
    "topup.",
    "customer.subscription.",
];

/// Where v2 events tell of money.
const V2_AREAS: [&str; 3] = ["money_management.", "payments.", "billing."];
