//! The table `invoices`: where each invoice stands.
//!
//! An event never assigns a state. It proves that the invoice *has been* in one, and [`step`], the declared
//! table, says what that changes. Proofs are evidence and not commands, so their order does not matter:
//! what arrives late proves what is known already, and what cannot be true together is refused in every
//! order. Neither the events' own times nor the order of arrival decide anything here.
//!
//! This module never touches money: the books are in [`crate::books::ledger`].

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

/// The states of an invoice, as Stripe names them, and `deleted`, which at Stripe is the end of a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Being written; may still be deleted.
    Draft,
    /// Finalized and payable.
    Open,
    /// Given up, and still payable: a late payment or a void may follow.
    Uncollectible,
    /// Paid, also where nothing was due. Final.
    Paid,
    /// Cancelled after it was finalized. Final.
    Void,
    /// Removed while it was a draft. Final.
    Deleted,
}

/// What a proof does to an invoice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The invoice is now in the proved state.
    Move,
    /// Nothing new: the invoice has been there, or is further on.
    Stay,
    /// Both cannot be true at the provider. The text names what was told.
    Contradiction(&'static str),
}

/// The state table: what it means for an invoice in state `from` (`None`: not known yet) that it has been in
/// state `proved`.
///
/// The moves are those of Stripe's "Status transitions and finalization", closed under leaving steps out,
/// since any event may be late: an invoice can be first heard of as paid. Read as pairs the contradictions
/// are symmetrical, which is why one of the two events opens a review whichever comes first.
#[must_use]
pub fn step(from: Option<Status>, proved: Status) -> Step {
    use Status::{Deleted, Draft, Open, Paid, Uncollectible, Void};
    match (from, proved) {
        (None, Draft | Open | Uncollectible | Paid | Void | Deleted) => Step::Move,

        (Some(Draft), Draft) => Step::Stay,
        (Some(Draft), Open | Uncollectible | Paid | Void | Deleted) => Step::Move,

        (Some(Open), Draft | Open) => Step::Stay,
        (Some(Open), Uncollectible | Paid | Void) => Step::Move,

        // A failed attempt at a late payment also proves `open`: it does not bring the invoice back.
        (Some(Uncollectible), Draft | Open | Uncollectible) => Step::Stay,
        (Some(Uncollectible), Paid | Void) => Step::Move,

        // An uncollectible invoice can be paid, a paid one not given up: that proof is merely late.
        (Some(Paid), Draft | Open | Uncollectible | Paid) => Step::Stay,
        (Some(Paid), Void) => Step::Contradiction("void of a paid invoice"),

        (Some(Void), Draft | Open | Uncollectible | Void) => Step::Stay,
        (Some(Void), Paid) => Step::Contradiction("payment of a void invoice"),

        (Some(Deleted), Draft | Deleted) => Step::Stay,
        (Some(Deleted), Open) => Step::Contradiction("finalization of a deleted draft"),
        (Some(Deleted), Uncollectible) => Step::Contradiction("write-off of a deleted draft"),
        (Some(Deleted), Paid) => Step::Contradiction("payment of a deleted draft"),
        (Some(Deleted), Void) => Step::Contradiction("void of a deleted draft"),

        (Some(Open | Uncollectible | Paid | Void), Deleted) => {
            Step::Contradiction("deletion of a finalized invoice")
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invoice {
    /// The provider's invoice id. Stripe's are unique across all accounts, so connected accounts share the table.
    pub id: String,
    /// The customer's id; `None` until an event names one.
    pub customer_id: Option<String>,
    /// Where it stands.
    pub status: Status,
    /// Lower case; `None` until an event names it.
    pub currency: Option<String>,
    /// What the payment came to, in minor units; 0 until paid.
    pub amount_paid: i64,
    /// When it became paid here.
    pub paid_at_ms: Option<i64>,
    /// When the first event about it was applied.
    pub created_at_ms: i64,
    /// When its state last moved.
    pub updated_at_ms: i64,
}

/// What an event tells about an invoice.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The provider's invoice id.
    pub id: &'a str,
    /// The customer's id, where the event names one.
    pub customer_id: Option<&'a str>,
    /// Lower case, where the event names it.
    pub currency: Option<&'a str>,
    /// The state the invoice has been in.
    pub proved: Status,
    /// What the payment came to, in minor units; 0 unless `proved` is [`Status::Paid`].
    pub amount_paid: i64,
}

/// What became of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Noted {
    /// The invoice's state moved.
    Moved,
    /// The state stands; at most a missing customer or currency was filled in.
    Stayed,
    /// It contradicts what is known. Nothing was written; the sentence says why, without personal data.
    Refused(String),
}

/// Applies a report to its invoice.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn note(tx: &Transaction<'_>, report: &Report<'_>, now_ms: i64) -> rusqlite::Result<Noted> {
    let known = find(tx, report.id)?;
    if let Some(reason) = known.as_ref().and_then(|known| disagreement(known, report)) {
        return Ok(Noted::Refused(reason));
    }
    let from = known.map(|known| known.status);
    match step(from, report.proved) {
        Step::Move => advance(tx, from, report, now_ms).map(|()| Noted::Moved),
        Step::Stay => complete(tx, report).map(|()| Noted::Stayed),
        Step::Contradiction(what) => Ok(Noted::Refused(format!("{what} ({})", report.id))),
    }
}

/// The invoice with this id.
///
/// # Errors
/// Any SQLite error.
pub fn find(conn: &Connection, id: &str) -> rusqlite::Result<Option<Invoice>> {
    conn.prepare_cached(FIND)?.query_row([id], from_row).optional()
}

/// What never changes at the provider is compared, not overwritten: were the last one to win, the order would.
fn disagreement(known: &Invoice, report: &Report<'_>) -> Option<String> {
    let differ =
        |known: Option<&str>, told: Option<&str>| matches!((known, told), (Some(k), Some(t)) if k != t);
    let paid_twice = known.status == Status::Paid && report.proved == Status::Paid;
    let what = if differ(known.currency.as_deref(), report.currency) {
        "another currency than before"
    } else if differ(known.customer_id.as_deref(), report.customer_id) {
        "another customer than before"
    } else if paid_twice && known.amount_paid != report.amount_paid {
        "paid before, with another amount"
    } else {
        return None;
    };
    Some(format!("{what} ({})", report.id))
}

fn advance(
    tx: &Transaction<'_>,
    from: Option<Status>,
    report: &Report<'_>,
    now_ms: i64,
) -> rusqlite::Result<()> {
    let paid_at_ms = (report.proved == Status::Paid).then_some(now_ms);
    let changed = tx.prepare_cached(ADVANCE)?.execute((
        report.id,
        report.customer_id,
        report.proved,
        report.currency,
        report.amount_paid,
        paid_at_ms,
        now_ms,
        from,
    ))?;
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}

fn complete(tx: &Transaction<'_>, report: &Report<'_>) -> rusqlite::Result<()> {
    tx.prepare_cached(COMPLETE)?.execute((report.id, report.customer_id, report.currency))?;
    Ok(())
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Invoice> {
    Ok(Invoice {
        id: row.get("id")?,
        customer_id: row.get("customer_id")?,
        status: row.get("status")?,
        currency: row.get("currency")?,
        amount_paid: row.get("amount_paid")?,
        paid_at_ms: row.get("paid_at_ms")?,
        created_at_ms: row.get("created_at_ms")?,
        updated_at_ms: row.get("updated_at_ms")?,
    })
}

impl Status {
    /// Every state, in the order in which an invoice can pass through them.
    pub const ALL: [Self; 6] =
        [Self::Draft, Self::Open, Self::Uncollectible, Self::Paid, Self::Void, Self::Deleted];

    /// As stored, and as the provider writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Open => "open",
            Self::Uncollectible => "uncollectible",
            Self::Paid => "paid",
            Self::Void => "void",
            Self::Deleted => "deleted",
        }
    }

    /// The state of this name; `None` for one that this program does not know.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

impl ToSql for Status {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.as_str().into())
    }
}

impl FromSql for Status {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::parse(value.as_str()?).ok_or(FromSqlError::InvalidType)
    }
}

const FIND: &str = "
    SELECT id, customer_id, status, currency, amount_paid, paid_at_ms, created_at_ms, updated_at_ms
      FROM main.invoices
     WHERE id = ?1";

// Moves from the one state that the step was judged by, or not at all.
const ADVANCE: &str = "
    INSERT INTO main.invoices AS known
           (id, customer_id, status, currency, amount_paid, paid_at_ms, created_at_ms, updated_at_ms)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)
    ON CONFLICT (id) DO UPDATE
       SET customer_id   = coalesce(known.customer_id, excluded.customer_id),
           status        = excluded.status,
           currency      = coalesce(known.currency, excluded.currency),
           amount_paid   = excluded.amount_paid,
           paid_at_ms    = excluded.paid_at_ms,
           updated_at_ms = excluded.updated_at_ms
     WHERE known.status = ?8";

// A late event may still be the first to name the customer or the currency.
const COMPLETE: &str = "
    UPDATE main.invoices
       SET customer_id = coalesce(customer_id, ?2),
           currency    = coalesce(currency, ?3)
     WHERE id = ?1
       AND ((customer_id IS NULL AND ?2 IS NOT NULL) OR (currency IS NULL AND ?3 IS NOT NULL))";
