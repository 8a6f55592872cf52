//! What the books say of a month: what moved in it, and the balances at its end. Reads, and never writes.
//!
//! A line counts in the month in which it happened by the sender's clock, not in that in which it was booked. Lines whose
//! time is not known count when they were booked. Accounts, modes and currencies are never added up.

use rusqlite::{Connection, Row};

use crate::books::kinds::Kind;

/// Which lines are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// From this time on, in milliseconds since the epoch.
    pub from_ms: i64,
    /// Up to this time, which is not in it.
    pub to_ms: i64,
    /// As the books were at this time: what was booked later is left out.
    pub as_of_ms: i64,
}

/// One line of the statement: an account, a mode and a currency.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// The provider's account; `None` for the endpoint's own.
    pub account: Option<String>,
    /// Live or test; `None` where nobody said.
    pub livemode: Option<bool>,
    /// Lower case.
    pub currency: String,
    /// What invoices asked for.
    pub invoiced: i128,
    /// What credit notes took off or gave back.
    pub credited: i128,
    /// What came in through the provider.
    pub cash_in: i128,
    /// What came in elsewhere.
    pub outside: i128,
    /// What refunds gave back.
    pub refunds: i128,
    /// What disputes took, and gave back.
    pub disputes: i128,
    /// What the provider took.
    pub fees: i128,
    /// What went to the bank, less what came from it.
    pub payouts: i128,
    /// At the end: what customers owe.
    pub receivable: i128,
    /// At the end: what lies with the provider.
    pub provider: i128,
    /// At the end: what belongs to customers.
    pub customer_credit: i128,
}

impl Line {
    fn add(&mut self, kind: Kind, moved: i128, held: i128) {
        let figure = match kind {
            Kind::Invoiced => &mut self.invoiced,
            Kind::CreditNote | Kind::CreditToBalance | Kind::CreditOutside => &mut self.credited,
            Kind::Payment | Kind::Sale => &mut self.cash_in,
            Kind::PaidOutside => &mut self.outside,
            Kind::Refund => &mut self.refunds,
            Kind::Dispute => &mut self.disputes,
            Kind::DisputeFee | Kind::Fee => &mut self.fees,
            Kind::Payout | Kind::Topup => &mut self.payouts,
            // they move between balances, and have no column of their own
            Kind::CreditApplied | Kind::Overpaid | Kind::WrittenOff | Kind::Converted => &mut 0,
        };
        *figure += moved;
        for (book, amount) in [(kind.book(), held), (kind.contra(), -held)] {
            match book {
                "receivable" => self.receivable += amount,
                "provider" => self.provider += amount,
                "customer_credit" => self.customer_credit += amount,
                _ => {}
            }
        }
    }
}

/// The statement of a period, by account, mode and currency.
///
/// # Errors
/// Any SQLite error.
pub fn statement(conn: &Connection, period: &Period) -> rusqlite::Result<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    let mut statement = conn.prepare_cached(SUMS)?;
    let mut rows = statement.query((period.from_ms, period.to_ms, period.as_of_ms))?;
    while let Some(row) = rows.next()? {
        let (account, livemode, currency) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (kind, moved, held): (Kind, i64, i64) = (row.get(3)?, row.get(4)?, row.get(5)?);
        let is_same = |line: &&mut Line| {
            line.account == account && line.livemode == livemode && line.currency == currency
        };
        if lines.last_mut().as_ref().is_none_or(|line| !is_same(line)) {
            lines.push(Line { account, livemode, currency, ..Line::default() });
        }
        if let Some(line) = lines.last_mut() {
            line.add(kind, moved.into(), held.into());
        }
    }
    Ok(lines)
}

/// A line of the books that came late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// Its key.
    pub entry_key: String,
    /// What it records.
    pub kind: Kind,
    /// In minor units, signed.
    pub amount: i64,
    /// Lower case.
    pub currency: String,
    /// What it is about.
    pub object: String,
    /// When it was booked.
    pub booked_at_ms: i64,
}

/// Lines of a period that were booked after `as_of_ms`, at most `limit`, and how many there are.
///
/// # Errors
/// Any SQLite error.
pub fn late(conn: &Connection, period: &Period, limit: u32) -> rusqlite::Result<(Vec<Late>, i64)> {
    let bounds = (period.from_ms, period.to_ms, period.as_of_ms);
    let count = conn.prepare_cached(LATE_COUNT)?.query_row(bounds, |row| row.get(0))?;
    let late = |row: &Row<'_>| {
        Ok(Late {
            entry_key: row.get(0)?,
            kind: row.get(1)?,
            amount: row.get(2)?,
            currency: row.get(3)?,
            object: row.get(4)?,
            booked_at_ms: row.get(5)?,
        })
    };
    let bounds = (period.from_ms, period.to_ms, period.as_of_ms, limit);
    let found = conn.prepare_cached(LATE)?.query_map(bounds, late)?.collect::<rusqlite::Result<_>>()?;
    Ok((found, count))
}

/// An invoice of which customers owe something, or which was paid before the books knew what it asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsettled {
    /// The provider's id.
    pub invoice: String,
    /// The provider's account.
    pub account: Option<String>,
    /// Live or test.
    pub livemode: Option<bool>,
    /// Lower case.
    pub currency: String,
    /// What is owed; negative where more came in than was asked for.
    pub receivable: i64,
    /// Whether the books know what it asked for.
    pub was_invoiced: bool,
    /// When the first of its lines happened, or was booked.
    pub since_ms: i64,
}

/// Invoices whose receivable is not 0, the oldest first, at most `limit`.
///
/// # Errors
/// Any SQLite error.
pub fn unsettled(conn: &Connection, limit: u32) -> rusqlite::Result<Vec<Unsettled>> {
    let unsettled = |row: &Row<'_>| {
        Ok(Unsettled {
            invoice: row.get(0)?,
            account: row.get(1)?,
            livemode: row.get(2)?,
            currency: row.get(3)?,
            receivable: row.get(4)?,
            was_invoiced: row.get(5)?,
            since_ms: row.get(6)?,
        })
    };
    conn.prepare_cached(UNSETTLED)?.query_map([limit], unsettled)?.collect()
}

const SUMS: &str = "
    SELECT account, livemode, currency, kind,
           sum(iif(coalesce(occurred_at_ms, booked_at_ms) >= ?1, amount, 0)), sum(amount)
      FROM main.ledger_entries
     WHERE coalesce(occurred_at_ms, booked_at_ms) < ?2 AND booked_at_ms <= ?3
     GROUP BY account, livemode, currency, kind
     ORDER BY account, livemode, currency, kind";

const LATE: &str = "
    SELECT entry_key, kind, amount, currency, object, booked_at_ms
      FROM main.ledger_entries
     WHERE coalesce(occurred_at_ms, booked_at_ms) >= ?1 AND coalesce(occurred_at_ms, booked_at_ms) < ?2
       AND booked_at_ms > ?3
     ORDER BY id
     LIMIT ?4";

const LATE_COUNT: &str = "
    SELECT count(*)
      FROM main.ledger_entries
     WHERE coalesce(occurred_at_ms, booked_at_ms) >= ?1 AND coalesce(occurred_at_ms, booked_at_ms) < ?2
       AND booked_at_ms > ?3";

const UNSETTLED: &str = "
    SELECT e.invoice_id, max(e.account), max(e.livemode), e.currency,
           sum(iif(k.book = 'receivable', e.amount, 0) - iif(k.contra = 'receivable', e.amount, 0)) AS receivable,
           max(e.kind = 'invoiced'),
           min(coalesce(e.occurred_at_ms, e.booked_at_ms)) AS since_ms
      FROM main.ledger_entries e
      JOIN main.ledger_kinds k ON k.kind = e.kind
     WHERE e.invoice_id IS NOT NULL
     GROUP BY e.invoice_id, e.currency
    HAVING receivable <> 0
     ORDER BY since_ms, e.invoice_id
     LIMIT ?1";
