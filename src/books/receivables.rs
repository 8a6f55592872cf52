//! What the books hold of an invoice.
//!
//! | known of the invoice | the books hold |
//! |---|---|
//! | final, with its amount due | `invoiced` = due, `credit_applied` = total − due |
//! | money through the provider | `payment` = the larger of the parts told one by one, and the cumulative amount paid less what came in outside |
//! | money outside the provider | `paid_outside` = the parts told so, or the invoice's own word, whichever is larger |
//! | more money than was due after live credit notes | `overpaid` = what is too much |
//! | given up | `written_off` = −(due − live credit notes − all money), until it is paid |
//! | void | nothing of what was invoiced; money of a void invoice contradicts |
//!
//! `due` is what the provider asked for before any credit note. It stands in the invoice's row with the total and with what
//! was paid as a whole. Facts of `invoice:<id>`: `paid` (maximum), `outside` (once), `overpaid`, and the sets `part` and `outside_part` (by invoice payment), `note` and `void`
//! (by credit note). Pure: no event, no order and no time is known here.

use crate::books::facts::{BooksError, Evidence};
use crate::books::invoices::Status;
use crate::books::kinds::Kind;
use crate::books::ledger::Target;

/// What is known of an invoice, out of its row and its facts.
#[derive(Debug, Clone, Copy)]
pub struct Invoice<'a> {
    /// The provider's id.
    pub id: &'a str,
    /// Where it stands; `None` where only its payments or credit notes are known.
    pub status: Option<Status>,
    /// Lower case; `None` until an event names it.
    pub currency: Option<&'a str>,
    /// What was paid when it was paid as a whole, money outside the provider included; 0 until then.
    pub amount_paid: i64,
    /// What it asks for before any credit note, and in total; `None` until it is final.
    pub asked: Option<(i64, i64)>,
}

/// What the books should hold of it.
///
/// # Errors
/// A contradiction: two currencies, money of a void or deleted invoice, or credit notes above what was due.
pub fn target(invoice: &Invoice<'_>, evidence: &Evidence) -> Result<Target, BooksError> {
    let mut target = Target::default();
    let inside = evidence.sum("part");
    let outside = evidence.sum("outside_part").max(evidence.number("outside").unwrap_or(0));
    let paid = evidence.number("paid").unwrap_or(0).max(i128::from(invoice.amount_paid));
    let cash = inside.max(paid - outside).max(0);
    let notes = evidence.sum("note") - evidence.sum("void");
    refuse_contradictions(invoice, evidence, cash + outside, notes)?;
    let Some(currency) = invoice.currency.or(evidence.text("currency")) else { return Ok(target) };
    target.put(Kind::Payment, currency, cash);
    target.put(Kind::PaidOutside, currency, outside);
    let Some((due, total)) = invoice.asked.map(|(due, total)| (i128::from(due), i128::from(total))) else {
        return Ok(target);
    };
    if invoice.status == Some(Status::Void) {
        return Ok(target);
    }
    target.put(Kind::Invoiced, currency, due);
    target.put(Kind::CreditApplied, currency, total - due);
    let left = due - notes - cash - outside;
    target.put(Kind::Overpaid, currency, (-left).max(0));
    if invoice.status == Some(Status::Uncollectible) {
        target.put(Kind::WrittenOff, currency, -left.max(0));
    }
    Ok(target)
}

fn refuse_contradictions(
    invoice: &Invoice<'_>,
    evidence: &Evidence,
    money: i128,
    notes: i128,
) -> Result<(), BooksError> {
    let what = match invoice.status {
        Some(Status::Void) if money > 0 => "payment of a void invoice",
        Some(Status::Deleted) if money > 0 => "payment of a deleted draft",
        Some(Status::Void) if notes > 0 => "a credit note of a void invoice",
        Some(Status::Deleted) if notes > 0 => "a credit note of a deleted draft",
        _ if invoice.currency.zip(evidence.text("currency")).is_some_and(|(one, other)| one != other) => {
            "another currency than before"
        }
        _ if invoice.asked.is_some_and(|(due, _)| notes > i128::from(due)) => {
            "credit notes above what was due"
        }
        _ => return Ok(()),
    };
    Err(BooksError::Contradiction(format!("{what} ({})", invoice.id)))
}
