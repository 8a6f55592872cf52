//! What the books hold of a credit note.
//!
//! | part of the note | the books hold |
//! |---|---|
//! | before the invoice is paid | `credit_note` = −the part; void takes it back |
//! | of a paid invoice, to the customer's balance | `credit_to_balance` = −(the part − its refunds − what is given back outside) |
//! | of a paid invoice, outside the provider | `credit_outside` = −the amount |
//! | of a paid invoice, by refund | nothing: the refund has it |
//!
//! Before API 2025-03-31 a note names a refund without its amount; the part for the balance waits for the refund's own
//! event. Facts of `credit_note:<id>`: `currency`, `invoice`, `pre`, `post` and `outside` (once), `void`, and the sets
//! `names` (refunds it names), `refund` (what it says of each) and `own` (what each says of itself). Pure: no event, no
//! order and no time is known here.

use crate::books::facts::{BooksError, Evidence};
use crate::books::kinds::Kind;
use crate::books::ledger::Target;

/// What the books should hold of it.
///
/// # Errors
/// A contradiction: parts above the whole, or a void note of a paid invoice.
pub fn target(id: &str, note: &Evidence) -> Result<Target, BooksError> {
    let mut target = Target::default();
    let number = |field| note.number(field).unwrap_or(0);
    let (pre, post, outside) = (number("pre"), number("post"), number("outside"));
    let contradiction = |what: &str| Err(BooksError::Contradiction(format!("{what} ({id})")));
    if note.is("void") && post > 0 {
        return contradiction("a voided credit note of a paid invoice");
    }
    let Some(currency) = note.text("currency") else { return Ok(target) };
    target.put(Kind::CreditNote, currency, if note.is("void") { 0 } else { -pre });
    target.put(Kind::CreditOutside, currency, -outside);
    if let Some(refunded) = refunded(note) {
        let balance = post - refunded - outside;
        if balance < 0 {
            return contradiction("a credit note whose refunds are more than the note");
        }
        target.put(Kind::CreditToBalance, currency, -balance);
    }
    Ok(target)
}

/// What its refunds come to; `None` while the amount of one is not known.
pub fn refunded(note: &Evidence) -> Option<i128> {
    let said = |set, refund: &str| {
        note.members(set)
            .find(|(member, _)| *member == refund)
            .and_then(|(_, amount)| amount.parse::<i128>().ok())
    };
    note.members("names").map(|(refund, _)| said("refund", refund).or_else(|| said("own", refund))).sum()
}
