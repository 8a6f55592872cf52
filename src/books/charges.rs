//! What the books hold of a charge, and of a refund that has none.
//!
//! The money of a charge is booked with its invoice or payment intent; here stands what went back.
//!
//! | known of the charge | the books hold |
//! |---|---|
//! | refunds told one by one | `refund` = −(those that did not fail) |
//! | a cumulative amount refunded above them | `refund` also of the rest, which nothing names |
//! | a capture that released a part of the authorisation | less the released part: before API 2025-03-31 it looks like a refund |
//! | authorised and never captured | nothing: no money moved |
//! | captured, and it has neither an invoice nor a payment intent | `sale` = what was captured |
//!
//! Facts of `charge:<id>`: `currency` (once), `amount`, `taken`, `refunded` and `released` (maximum), `captured`,
//! `direct`, `of_invoice`, and the sets `refund` and `dead` (by refund) and `dispute`. Facts of `refund:<id>`: `amount`, `currency`, `charge` (once), `dead`, and the
//! set `note` (credit notes that name it). Pure: no event, no order and no time is known here.

use crate::books::facts::Evidence;
use crate::books::kinds::Kind;
use crate::books::ledger::Target;

/// What the books should hold of a charge.
pub fn target(charge: &Evidence) -> Target {
    let mut target = Target::default();
    if let Some(currency) = charge.text("currency") {
        target.put(Kind::Refund, currency, -returned(charge));
        let is_sale = charge.is("direct") && !charge.is("of_invoice");
        target.put(Kind::Sale, currency, captured(charge).filter(|_| is_sale).unwrap_or(0));
    }
    target
}

/// What went back of it.
pub fn returned(charge: &Evidence) -> i128 {
    let was_never_captured = charge.number("amount").is_some() && !charge.is("captured");
    if was_never_captured {
        return 0;
    }
    let named = charge.sum("refund");
    let alive = named - charge.sum("dead");
    let unnamed = (charge.number("refunded").unwrap_or(0) - named).max(0);
    (alive + unnamed - charge.number("released").unwrap_or(0)).max(0)
}

/// What was taken from the customer, as far as that is known.
pub fn captured(charge: &Evidence) -> Option<i128> {
    charge.number("taken").or(charge.number("amount").filter(|_| charge.is("captured")))
}

/// What the books should hold of a refund: nothing where it belongs to a charge, which has it.
pub fn target_of_refund(refund: &Evidence) -> Target {
    let mut target = Target::default();
    let is_apart = refund.text("charge").is_none() && !refund.is("dead");
    if let (Some(currency), Some(amount)) =
        (refund.text("currency"), refund.number("amount").filter(|_| is_apart))
    {
        target.put(Kind::Refund, currency, -amount);
    }
    target
}
