//! What the books hold of a dispute.
//!
//! | known of the dispute | the books hold |
//! |---|---|
//! | balance transactions | `dispute` = the sum of their amounts, `dispute_fee` = −the sum of their fees, each in its own currency |
//! | none, but that funds were withdrawn or given back | `dispute` = given back − withdrawn |
//! | only an inquiry, or a status | nothing: no money hangs on a status |
//!
//! Facts of `dispute:<id>`: `currency` and `charge` (once), `withdrawn` and `reinstated` (maximum), and the set `txn` (by
//! balance transaction, once: amount, fee and currency). Pure: no event, no order and no time is known here.

use crate::books::facts::{BooksError, Evidence};
use crate::books::kinds::Kind;
use crate::books::ledger::Target;

/// A balance transaction as it is kept: amount, fee and currency.
pub fn transaction_text(amount: i64, fee: i64, currency: &str) -> String {
    format!("{amount} {fee} {currency}")
}

/// What the books should hold of it.
///
/// # Errors
/// A contradiction: more was given back than was withdrawn.
pub fn target(id: &str, dispute: &Evidence) -> Result<Target, BooksError> {
    let mut target = Target::default();
    let mut is_told = false;
    for (amount, fee, currency) in dispute.members("txn").filter_map(|(_, text)| transaction(text)) {
        is_told = true;
        target.put(Kind::Dispute, currency, amount);
        target.put(Kind::DisputeFee, currency, -fee);
    }
    if is_told {
        refuse_gains(id, dispute, &target)?;
        return Ok(target);
    }
    let (withdrawn, reinstated) = (dispute.number("withdrawn"), dispute.number("reinstated"));
    if let (Some(withdrawn), Some(reinstated)) = (withdrawn, reinstated)
        && reinstated > withdrawn
    {
        return Err(gain(id));
    }
    if let Some(currency) = dispute.text("currency") {
        target.put(Kind::Dispute, currency, reinstated.unwrap_or(0) - withdrawn.unwrap_or(0));
    }
    Ok(target)
}

fn transaction(text: &str) -> Option<(i128, i128, &str)> {
    let mut words = text.split(' ');
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?))
}

/// Nothing is known of a withdrawal yet where only what came back is told.
fn refuse_gains(id: &str, dispute: &Evidence, target: &Target) -> Result<(), BooksError> {
    let gains = dispute
        .members("txn")
        .filter_map(|(_, text)| transaction(text))
        .any(|(amount, _, currency)| amount < 0 && target.amount(Kind::Dispute, currency) > 0);
    if gains { Err(gain(id)) } else { Ok(()) }
}

fn gain(id: &str) -> BooksError {
    BooksError::Contradiction(format!("more was given back than was withdrawn ({id})"))
}
