//! What the books hold of a payment that may be a sale.
//!
//! | known of the payment | the books hold |
//! |---|---|
//! | money was received, and nothing says that it is an invoice's | `sale` = the amount received |
//! | anything, at any time, says that it is an invoice's | nothing: the invoice has it |
//!
//! Facts of `payment_intent:<id>`, or of `charge_sale:<id>` for a charge of the time before payment intents: `currency`
//! (once), `received` (maximum), `of_invoice`. Pure: no event, no order and no time is known here.

use crate::books::facts::Evidence;
use crate::books::kinds::Kind;
use crate::books::ledger::Target;

/// What the books should hold of it.
pub fn target(payment: &Evidence) -> Target {
    let mut target = Target::default();
    let received = payment.number("received").filter(|_| !payment.is("of_invoice"));
    if let (Some(currency), Some(received)) = (payment.text("currency"), received) {
        target.put(Kind::Sale, currency, received);
    }
    target
}
