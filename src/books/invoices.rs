//! The table `invoices`: where each invoice stands.
//!
//! An event never assigns a state. It proves that the invoice *has been* in one, and [`step`], the declared
//! table, says what that changes. Proofs are evidence and not commands, so their order does not matter:
//! what arrives late proves what is known already, and what cannot be true together is refused in every
//! order. Neither the events' own times nor the order of arrival decide anything here.
//!
//! This module never touches money: what the books hold of an invoice is in [`crate::books::receivables`].

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use crate::books::facts::{self, BooksError};

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
    /// What was paid, in minor units, with what came in outside the provider; 0 until paid.
    pub amount_paid: i64,
    /// The provider's account; `None` for the endpoint's own.
    pub account: Option<String>,
    /// Live or test; `None` until an event says.
    pub livemode: Option<bool>,
    /// What it asks for before any credit note; `None` until it is final.
    pub amount_due: Option<i64>,
    /// The same before the customer's credit balance.
    pub total: Option<i64>,
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
    /// What was paid, in minor units, with what came in outside the provider; 0 unless `proved` is [`Status::Paid`].
    pub amount_paid: i64,
    /// Whether that may be another amount than before: more was paid than was due.
    pub is_overpaid: bool,
    /// The provider's account, where the event names one.
    pub account: Option<&'a str>,
    /// Live or test, where the event says.
    pub livemode: Option<bool>,
    /// Of a final invoice: what it asks for before any credit note, and its total.
    pub asked: Option<(i64, i64)>,
}

/// What became of a report: the invoice as it stands now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// The row.
    pub invoice: Invoice,
    /// Whether its state moved.
    pub has_moved: bool,
}

/// Applies a report to its invoice.
///
/// # Errors
/// A contradiction with what is known; nothing was written then.
pub fn note(tx: &Transaction<'_>, report: &Report<'_>, now_ms: i64) -> Result<Noted, BooksError> {
    let known = find(tx, report.id)?;
    if let Some(known) = &known {
        refuse_another_invoice(known, report)?;
        refuse_another_payment(tx, known, report)?;
    }
    let from = known.as_ref().map(|known| known.status);
    match step(from, report.proved) {
        Step::Move => {
            advance(tx, from, report, now_ms)?;
            Ok(Noted { invoice: joined(known, report, now_ms), has_moved: true })
        }
        Step::Stay => {
            complete(tx, report)?;
            let status = from.unwrap_or(report.proved);
            let before = known.as_ref().map_or(0, |known| known.amount_paid);
            let amount_paid = if status == Status::Paid { before.max(report.amount_paid) } else { before };
            let invoice = Invoice { status, amount_paid, ..joined(known, report, now_ms) };
            Ok(Noted { invoice, has_moved: false })
        }
        Step::Contradiction(what) => Err(BooksError::Contradiction(format!("{what} ({})", report.id))),
    }
}

/// The row after a move: what was known stays, the report adds what was missing.
fn joined(known: Option<Invoice>, report: &Report<'_>, now_ms: i64) -> Invoice {
    let told = |text: Option<&str>| text.map(str::to_owned);
    let paid_at_ms = (report.proved == Status::Paid).then_some(now_ms);
    let (due, total) = report.asked.unzip();
    let first = Invoice {
        id: report.id.to_owned(),
        customer_id: None,
        status: report.proved,
        currency: None,
        amount_paid: report.amount_paid,
        account: None,
        livemode: None,
        amount_due: None,
        total: None,
        paid_at_ms,
        created_at_ms: now_ms,
        updated_at_ms: now_ms,
    };
    let known = known.unwrap_or(first);
    Invoice {
        customer_id: known.customer_id.or_else(|| told(report.customer_id)),
        status: report.proved,
        currency: known.currency.or_else(|| told(report.currency)),
        amount_paid: report.amount_paid,
        account: known.account.or_else(|| told(report.account)),
        livemode: known.livemode.or(report.livemode),
        amount_due: known.amount_due.or(due),
        total: known.total.or(total),
        paid_at_ms,
        updated_at_ms: now_ms,
        ..known
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
fn refuse_another_invoice(known: &Invoice, report: &Report<'_>) -> Result<(), BooksError> {
    let differ =
        |known: Option<&str>, told: Option<&str>| matches!((known, told), (Some(k), Some(t)) if k != t);
    let what = if differ(known.currency.as_deref(), report.currency) {
        "another currency than before"
    } else if differ(known.customer_id.as_deref(), report.customer_id) {
        "another customer than before"
    } else if differ(known.account.as_deref(), report.account) {
        "of another account than before"
    } else if matches!((known.livemode, report.livemode), (Some(known), Some(told)) if known != told) {
        "both live and a test"
    } else if matches!((known.amount_due, report.asked), (Some(known), Some((told, _))) if known != told) {
        "another amount due than before"
    } else if matches!((known.total, report.asked), (Some(known), Some((_, told))) if known != told) {
        "another total than before"
    } else {
        return Ok(());
    };
    Err(BooksError::Contradiction(format!("{what} ({})", report.id)))
}

/// What a paid invoice came to is told once; only where more was paid than was due, it may be told with and without that.
fn refuse_another_payment(
    tx: &Transaction<'_>,
    known: &Invoice,
    report: &Report<'_>,
) -> Result<(), BooksError> {
    let is_paid_twice = known.status == Status::Paid && report.proved == Status::Paid;
    if !is_paid_twice || known.amount_paid == report.amount_paid || report.is_overpaid {
        return Ok(());
    }
    let was_overpaid = facts::number(tx, &format!("invoice:{}", report.id), "overpaid")?.is_some();
    if was_overpaid {
        return Ok(());
    }
    Err(BooksError::Contradiction(format!("paid before, with another amount ({})", report.id)))
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
        report.account,
        report.livemode,
        report.asked.map(|(due, _)| due),
        report.asked.map(|(_, total)| total),
    ))?;
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}

fn complete(tx: &Transaction<'_>, report: &Report<'_>) -> rusqlite::Result<()> {
    let Report { id, customer_id, currency, account, livemode, amount_paid, asked, .. } = *report;
    let (due, total) = asked.unzip();
    let told = (id, customer_id, currency, account, livemode, amount_paid, due, total);
    tx.prepare_cached(COMPLETE)?.execute(told)?;
    Ok(())
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Invoice> {
    Ok(Invoice {
        id: row.get("id")?,
        customer_id: row.get("customer_id")?,
        status: row.get("status")?,
        currency: row.get("currency")?,
        amount_paid: row.get("amount_paid")?,
        account: row.get("account")?,
        livemode: row.get("livemode")?,
        amount_due: row.get("amount_due")?,
        total: row.get("total")?,
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
    SELECT id, customer_id, status, currency, amount_paid, account, livemode, amount_due, total, paid_at_ms, created_at_ms,
           updated_at_ms
      FROM main.invoices
     WHERE id = ?1";

// Moves from the one state that the step was judged by, or not at all.
const ADVANCE: &str = "
    INSERT INTO main.invoices AS known
           (id, customer_id, status, currency, amount_paid, paid_at_ms, created_at_ms, updated_at_ms, account, livemode,
            amount_due, total)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?9, ?10, ?11, ?12)
    ON CONFLICT (id) DO UPDATE
       SET customer_id   = coalesce(known.customer_id, excluded.customer_id),
           status        = excluded.status,
           currency      = coalesce(known.currency, excluded.currency),
           amount_paid   = excluded.amount_paid,
           paid_at_ms    = excluded.paid_at_ms,
           updated_at_ms = excluded.updated_at_ms,
           account       = coalesce(known.account, excluded.account),
           livemode      = coalesce(known.livemode, excluded.livemode),
           amount_due    = coalesce(known.amount_due, excluded.amount_due),
           total         = coalesce(known.total, excluded.total)
     WHERE known.status = ?8";

// A late event may still be the first to name the customer, the currency, the account or the mode, or to count what was
// paid above what was due.
const COMPLETE: &str = "
    UPDATE main.invoices
       SET customer_id = coalesce(customer_id, ?2),
           currency    = coalesce(currency, ?3),
           account     = coalesce(account, ?4),
           livemode    = coalesce(livemode, ?5),
           amount_due  = coalesce(amount_due, ?7),
           total       = coalesce(total, ?8),
           amount_paid = iif(status = 'paid', max(amount_paid, ?6), amount_paid)
     WHERE id = ?1
       AND ((status = 'paid' AND amount_paid < ?6) OR (total IS NULL AND ?8 IS NOT NULL)
         OR (customer_id IS NULL AND ?2 IS NOT NULL) OR (currency IS NULL AND ?3 IS NOT NULL)
         OR (account IS NULL AND ?4 IS NOT NULL) OR (livemode IS NULL AND ?5 IS NOT NULL))";
