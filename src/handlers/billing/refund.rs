//! Refunds, told by their own events, by the list of their charge, or as part of a credit note.

use serde_json::Value;

use super::journal::{Journal, Refusal, currency_of, id_in, money};
use super::own_id;
use crate::handlers::Handled;

/// A refund whose facts are joined, and what they touch.
pub(super) struct Joined<'a> {
    id: &'a str,
    charge: Option<String>,
    notes: Vec<String>,
}

pub(super) fn apply(journal: &Journal<'_>, refund: &Value) -> Result<Handled, Refusal> {
    let status = refund["status"].as_str().unwrap_or_default();
    if journal.event.event_type == "refund.failed" && !is_dead(status) {
        let id = own_id(refund, "refund")?;
        return Err(Refusal::Contradiction(format!(
            "the event says failed, its refund says {status} ({id})"
        )));
    }
    let joined = join(journal, refund, None)?;
    joined.settle_notes(journal)?;
    if let Some(charge) = &joined.charge {
        journal.settle_charge(charge)?;
    }
    journal.settle_refund(joined.id)?;
    Ok(Handled::Applied)
}

/// Joins what is told of a refund to what is known of it, of its charge, and of the credit notes that name it.
/// `charge` is the one in whose list it stands.
pub(super) fn join<'a>(
    journal: &Journal<'_>,
    refund: &'a Value,
    charge: Option<&str>,
) -> Result<Joined<'a>, Refusal> {
    let id = own_id(refund, "refund")?;
    let amount = money(refund, "amount", id)?;
    let currency = currency_of(refund, "a refund", id)?;
    let object = format!("refund:{id}");
    journal.whose(&object)?;
    journal.once(&object, "amount", amount)?;
    journal.once(&object, "currency", currency.as_str())?;
    if let Some(charge) = id_in(refund, "charge")?.or(charge) {
        journal.once(&object, "charge", charge)?;
    }
    if is_dead(refund["status"].as_str().unwrap_or_default()) {
        journal.mark(&object, "dead")?;
    }
    let known = journal.evidence(&object)?;
    let charge = known.text("charge").map(str::to_owned);
    if let Some(charge) = &charge {
        let object = format!("charge:{charge}");
        journal.once(&object, "currency", currency.as_str())?;
        journal.once(&object, &format!("refund:{id}"), amount)?;
        if known.is("dead") {
            journal.once(&object, &format!("dead:{id}"), amount)?;
        }
    }
    let notes: Vec<_> = known.members("note").map(|(note, _)| note.to_owned()).collect();
    for note in &notes {
        journal.once(&format!("credit_note:{note}"), &format!("own:{id}"), amount.to_string().as_str())?;
    }
    Ok(Joined { id, charge, notes })
}

impl Joined<'_> {
    /// A credit note that named the refund without its amount may have waited for it.
    pub(super) fn settle_notes(&self, journal: &Journal<'_>) -> Result<(), Refusal> {
        self.notes.iter().try_for_each(|note| journal.settle_credit_note(note))
    }
}

/// A refund that failed or was canceled stays so; nothing else is final.
fn is_dead(status: &str) -> bool {
    matches!(status, "failed" | "canceled")
}
