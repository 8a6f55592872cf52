//! Disputes: what a dispute took and gave back, by its balance transactions.
//!
//! A status is shown, and no money hangs on it: a lost dispute can be won late.

use serde_json::Value;

use super::journal::{Journal, Refusal, currency_of, id_in, money, signed_money};
use super::own_id;
use crate::books::disputes::transaction_text;
use crate::handlers::Handled;

pub(super) fn apply(journal: &Journal<'_>, dispute: &Value) -> Result<Handled, Refusal> {
    let id = own_id(dispute, "dispute")?;
    let object = format!("dispute:{id}");
    let charge = id_in(dispute, "charge")?;
    join(journal, dispute, id, &object)?;
    if let Some(charge) = charge {
        journal.once(&object, "charge", charge)?;
        journal.once(&format!("charge:{charge}"), &format!("dispute:{id}"), "1")?;
    }
    let known = journal.settle_dispute(id)?;
    if let Some(charge) = known.text("charge") {
        let charge = format!("charge:{charge}");
        let evidence = journal.evidence(&charge)?;
        journal.ask_whether_over_reversed(&charge, &evidence)?;
    }
    tell(journal, dispute, id, &object)?;
    Ok(Handled::Applied)
}

fn join(journal: &Journal<'_>, dispute: &Value, id: &str, object: &str) -> Result<(), Refusal> {
    let amount = money(dispute, "amount", id)?;
    let currency = currency_of(dispute, "a dispute", id)?;
    journal.whose(object)?;
    journal.once(object, "currency", currency.as_str())?;
    let transactions = dispute["balance_transactions"].as_array();
    for transaction in transactions.into_iter().flatten() {
        join_transaction(journal, transaction, object)?;
    }
    let field = match journal.event.event_type {
        "charge.dispute.funds_withdrawn" => "withdrawn",
        "charge.dispute.funds_reinstated" => "reinstated",
        _ => return Ok(()),
    };
    let is_inquiry = dispute["status"].as_str().is_some_and(|status| status.starts_with("warning"));
    if is_inquiry && transactions.is_none_or(Vec::is_empty) {
        return Err(Refusal::Contradiction(format!(
            "money of an inquiry, without a balance transaction ({id})"
        )));
    }
    journal.most(object, field, amount)
}

/// Each is in the currency of the provider's balance, and its fee is apart.
fn join_transaction(journal: &Journal<'_>, transaction: &Value, object: &str) -> Result<(), Refusal> {
    let id = own_id(transaction, "balance transaction")?;
    let amount = signed_money(transaction, "amount", id)?;
    let fee = signed_money(transaction, "fee", id)?;
    let currency = currency_of(transaction, "a balance transaction", id)?;
    if !transaction["net"].is_null() && Some(signed_money(transaction, "net", id)?) != amount.checked_sub(fee)
    {
        return Err(Refusal::Contradiction(format!("net is not amount less fee ({id})")));
    }
    let text = transaction_text(amount, fee, &currency);
    journal.once(object, &format!("txn:{id}"), text.as_str())?;
    Ok(())
}

/// Once when it is first heard of, and once when it is closed.
fn tell(journal: &Journal<'_>, dispute: &Value, id: &str, object: &str) -> Result<(), Refusal> {
    let status = dispute["status"].as_str().unwrap_or_default();
    let facts = || {
        [
            ("dispute", id.into()),
            ("charge", dispute["charge"].as_str().into()),
            ("amount", dispute["amount"].clone()),
            ("currency", dispute["currency"].clone()),
            ("reason", dispute["reason"].clone()),
            ("status", status.into()),
        ]
    };
    if journal.mark(object, "opened")? {
        journal.tell("DisputeOpened", format!("dispute-opened:{id}"), id, facts())?;
    }
    let is_closed = journal.event.event_type == "charge.dispute.closed"
        || matches!(status, "won" | "lost" | "warning_closed" | "prevented");
    if is_closed && journal.mark(object, "closed")? {
        journal.tell("DisputeClosed", format!("dispute-closed:{id}"), id, facts())?;
    }
    Ok(())
}
