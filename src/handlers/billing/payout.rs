//! Payouts to the bank, and top-ups from it.

use serde_json::Value;

use super::journal::{Journal, Refusal, currency_of, money, signed_money};
use super::own_id;
use crate::handlers::Handled;

pub(super) fn apply(journal: &Journal<'_>, payout: &Value) -> Result<Handled, Refusal> {
    let id = own_id(payout, "payout")?;
    let object = format!("payout:{id}");
    // negative where the bank has to make good what the provider lacks
    let amount = signed_money(payout, "amount", id)?;
    let currency = currency_of(payout, "a payout", id)?;
    journal.whose(&object)?;
    journal.once(&object, "amount", amount)?;
    journal.once(&object, "currency", currency.as_str())?;
    let event_type = journal.event.event_type;
    let is_dead = matches!(event_type, "payout.failed" | "payout.canceled") || is_dead(payout);
    let has_failed = is_dead && journal.mark(&object, "dead")?;
    journal.settle_transfer(&object)?;
    let facts = || [("payout", id.into()), ("amount", amount.into()), ("currency", currency.as_str().into())];
    if event_type == "payout.paid" && journal.mark(&object, "paid")? {
        journal.tell("PayoutPaid", format!("payout-paid:{id}"), id, facts())?;
    }
    if has_failed {
        journal.tell("PayoutFailed", format!("payout-failed:{id}"), id, facts())?;
    }
    Ok(Handled::Applied)
}

pub(super) fn apply_topup(journal: &Journal<'_>, topup: &Value) -> Result<Handled, Refusal> {
    let id = own_id(topup, "top-up")?;
    let object = format!("topup:{id}");
    journal.whose(&object)?;
    journal.once(&object, "amount", money(topup, "amount", id)?)?;
    journal.once(&object, "currency", currency_of(topup, "a top-up", id)?.as_str())?;
    let event_type = journal.event.event_type;
    if event_type == "topup.succeeded" || topup["status"] == "succeeded" {
        journal.mark(&object, "succeeded")?;
    }
    if matches!(event_type, "topup.failed" | "topup.canceled" | "topup.reversed") || is_dead(topup) {
        journal.mark(&object, "dead")?;
    }
    journal.settle_transfer(&object)?;
    Ok(Handled::Applied)
}

fn is_dead(transfer: &Value) -> bool {
    matches!(transfer["status"].as_str(), Some("failed" | "canceled" | "reversed"))
}
