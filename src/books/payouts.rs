//! What the books hold of a payout to the bank and of a top-up from it.
//!
//! | known | the books hold |
//! |---|---|
//! | a payout, on its way or arrived | `payout` = −its amount |
//! | a payout that failed or was canceled, at any time | nothing |
//! | a top-up that succeeded | `topup` = its amount |
//! | a top-up that failed, was canceled or reversed, at any time | nothing |
//!
//! That a payout is "paid" is only an expected arrival: it can fail afterwards. Facts of `payout:<id>` and `topup:<id>`:
//! `amount` and `currency` (once), `dead`, and of a top-up `succeeded`. Pure: no event, no order and no time is known here.

use crate::books::facts::Evidence;
use crate::books::kinds::Kind;
use crate::books::ledger::Target;

/// What the books should hold of a payout.
pub fn target(payout: &Evidence) -> Target {
    one(Kind::Payout, payout, payout.number("amount").map(|amount| -amount))
}

/// What the books should hold of a top-up.
pub fn target_of_topup(topup: &Evidence) -> Target {
    one(Kind::Topup, topup, topup.number("amount").filter(|_| topup.is("succeeded")))
}

fn one(kind: Kind, evidence: &Evidence, amount: Option<i128>) -> Target {
    let mut target = Target::default();
    if let (Some(currency), Some(amount)) =
        (evidence.text("currency"), amount.filter(|_| !evidence.is("dead")))
    {
        target.put(kind, currency, amount);
    }
    target
}
