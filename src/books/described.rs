//! What the books hold of an object that a row of a table describes: a sale, refund, fee, dispute or payout at a provider
//! other than Stripe.
//!
//! | known of the object | the books hold |
//! |---|---|
//! | it counts, and is not dead | its kind = its amount, with the kind's usual sign |
//! | it does not count yet, or is dead | nothing |
//!
//! Facts of `<object>:<provider>/<id>`: `currency` (once), `amount` (once, or a maximum where it is cumulative), `counts`,
//! `dead`. Pure: no event, no order and no time is known here.

use crate::books::facts::Evidence;
use crate::books::kinds::Kind;
use crate::books::ledger::Target;

/// What the books should hold of it; `is_negative`: the kind takes money away from the provider's account.
pub fn target(kind: Kind, is_negative: bool, object: &Evidence) -> Target {
    let mut target = Target::default();
    let is_real = object.is("counts") && !object.is("dead");
    if let (Some(currency), Some(amount)) =
        (object.text("currency"), object.number("amount").filter(|_| is_real))
    {
        target.put(kind, currency, if is_negative { -amount } else { amount });
    }
    target
}
