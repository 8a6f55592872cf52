//! Credit notes: what they take off an unpaid invoice, and what they give back of a paid one.

use serde_json::Value;

use super::journal::{Journal, Refusal, currency_of, id_in, known_money, money};
use super::own_id;
use crate::handlers::Handled;

pub(super) fn apply(journal: &Journal<'_>, note: &Value) -> Result<Handled, Refusal> {
    let id = own_id(note, "credit note")?;
    let object = format!("credit_note:{id}");
    let amount = money(note, "amount", id)?;
    let currency = currency_of(note, "a credit note", id)?;
    let (pre, post) = parts(note, amount, id)?;
    let invoice = id_in(note, "invoice")?
        .ok_or_else(|| Refusal::Unreadable(format!("a credit note without an invoice ({id})")))?;
    journal.whose(&object)?;
    journal.once(&object, "currency", currency.as_str())?;
    journal.once(&object, "invoice", invoice)?;
    journal.once(&object, "pre", pre)?;
    journal.once(&object, "post", post)?;
    if let Some(outside) = known_money(note, "out_of_band_amount", id)? {
        journal.once(&object, "outside", outside)?;
    }
    let invoice_object = format!("invoice:{invoice}");
    // a part of nothing tells nothing of the invoice
    if pre > 0 {
        journal.once(&invoice_object, &format!("note:{id}"), pre)?;
    }
    join_refunds(journal, note, id, &object)?;
    // the type of the event counts as well: the object in it may still say "issued"
    let is_void = journal.event.event_type == "credit_note.voided" || note["status"] == "void";
    if is_void {
        journal.mark(&object, "void")?;
        if pre > 0 {
            journal.once(&invoice_object, &format!("void:{id}"), pre)?;
        }
    }
    journal.settle_credit_note(id)?;
    journal.settle_invoice(invoice)?;
    if is_void {
        // an invoice that was voided, or another note, contradicted this one until now
        journal.try_again(invoice)?;
    }
    if journal.mark(&object, "issued")? {
        let facts = [
            ("credit_note", id.into()),
            ("invoice", invoice.into()),
            ("amount", amount.into()),
            ("currency", currency.into()),
        ];
        journal.tell("CreditNoteIssued", format!("credit-note-issued:{id}"), id, facts)?;
    }
    Ok(Handled::Applied)
}

/// What it takes off before and after the payment.
fn parts(note: &Value, amount: i64, id: &str) -> Result<(i64, i64), Refusal> {
    let told = (known_money(note, "pre_payment_amount", id)?, known_money(note, "post_payment_amount", id)?);
    let (pre, post) = match (told, note["type"].as_str()) {
        ((Some(pre), Some(post)), _) => (pre, post),
        ((Some(pre), None), _) => (pre, amount - pre),
        ((None, Some(post)), _) => (amount - post, post),
        ((None, None), Some("pre_payment")) => (amount, 0),
        ((None, None), Some("post_payment")) => (0, amount),
        ((None, None), _) => {
            return Err(Refusal::Unreadable(format!(
                "neither type nor parts of a credit note are known ({id})"
            )));
        }
    };
    if pre < 0 || post < 0 || pre.checked_add(post) != Some(amount) {
        return Err(Refusal::Contradiction(format!("the parts of a credit note do not add up ({id})")));
    }
    Ok((pre, post))
}

/// Since API 2025-03-31 a list with amounts, before that one id.
fn join_refunds(journal: &Journal<'_>, note: &Value, id: &str, object: &str) -> Result<(), Refusal> {
    for (number, listed) in note["refunds"].as_array().into_iter().flatten().enumerate() {
        let amount = money(listed, "amount_refunded", id)?.to_string();
        // one outside the provider has no refund of its own
        let outside = format!("outside-{number}");
        let refund = id_in(listed, "refund")?;
        let name = refund.unwrap_or(&outside);
        journal.once(object, &format!("names:{name}"), "1")?;
        journal.once(object, &format!("refund:{name}"), amount.as_str())?;
        if let Some(refund) = refund {
            journal.once(&format!("refund:{refund}"), &format!("note:{id}"), "1")?;
        }
    }
    if let Some(refund) = id_in(note, "refund")? {
        journal.once(object, &format!("names:{refund}"), "1")?;
        let name = format!("refund:{refund}");
        journal.once(&name, &format!("note:{id}"), "1")?;
        if let Some(amount) = journal.evidence(&name)?.number("amount") {
            journal.once(object, &format!("own:{refund}"), amount.to_string().as_str())?;
        }
    }
    Ok(())
}
