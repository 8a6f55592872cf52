//! The table `ledger_entries`: the books.
//!
//! An entry is unique by its key, the name of the money fact it records, whatever event told of the fact. Nobody books
//! "an amount": [`settle`] compares what the books should hold of an object with what they hold, and appends the
//! difference. This module only appends. It has no statement that edits or removes an entry, the schema's triggers
//! refuse both, and a correction is a new entry under a key of its own.

pub mod statement;

use rusqlite::{Connection, Row, Transaction};

use crate::books::facts::{BooksError, id_of};
use crate::books::kinds::{KINDS, Kind};

/// The event whose evidence is being settled.
#[derive(Debug, Clone, Copy)]
pub struct Cause<'a> {
    /// The event.
    pub event_id: &'a str,
    /// The endpoint that event came to.
    pub endpoint: &'a str,
    /// The provider's account, where it is known.
    pub account: Option<&'a str>,
    /// Live or test, where it is known.
    pub livemode: Option<bool>,
    /// When it happened, by the sender's clock.
    pub occurred_at_ms: Option<i64>,
    /// This step's time.
    pub now_ms: i64,
}

/// What the books should hold of one object: at most one signed amount for each kind and currency.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    lines: Vec<(Kind, String, i128)>,
}

impl Target {
    /// Adds a signed amount; 0 says that the books should hold nothing of this kind.
    pub fn put(&mut self, kind: Kind, currency: &str, amount: i128) {
        let same = |line: &&mut (Kind, String, i128)| line.0 == kind && line.1 == currency;
        match self.lines.iter_mut().find(same) {
            Some(line) => line.2 += amount,
            None if amount == 0 => {}
            None => self.lines.push((kind, currency.to_owned(), amount)),
        }
    }

    /// The amount of a kind and currency.
    pub fn amount(&self, kind: Kind, currency: &str) -> i128 {
        self.lines.iter().find(|line| line.0 == kind && line.1 == currency).map_or(0, |line| line.2)
    }
}

/// An object that the books are about.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    /// e.g. `charge:ch_1`
    pub name: &'a str,
    /// The invoice it belongs to, where that is known.
    pub invoice_id: Option<&'a str>,
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The fact's own name, e.g. `payment:in_1`.
    pub entry_key: String,
    /// The invoice it belongs to.
    pub invoice_id: Option<String>,
    /// What it records.
    pub kind: Kind,
    /// In minor units, signed.
    pub amount: i64,
    /// Lower case.
    pub currency: String,
    /// The event that was first to tell.
    pub event_id: String,
    /// The endpoint of that event.
    pub endpoint: String,
    /// When it was booked.
    pub booked_at_ms: i64,
    /// What it is about.
    pub object: String,
    /// The provider's account.
    pub account: Option<String>,
    /// Live or test.
    pub livemode: Option<bool>,
    /// When it happened, by the sender's clock.
    pub occurred_at_ms: Option<i64>,
}

/// The keys of an object's first lines, one for each kind: the same whichever event told of them.
pub fn first_keys(id: &str) -> impl Iterator<Item = String> {
    KINDS.iter().map(move |(kind, ..)| format!("{kind}:{id}"))
}

/// Appends what the books lack of the target, in the order of kinds and currencies, and returns the new entries.
///
/// # Errors
/// A contradiction where an amount has more than 64 bits; nothing was written then.
pub fn settle(
    tx: &Transaction<'_>,
    object: Object<'_>,
    target: &Target,
    cause: &Cause<'_>,
) -> Result<Vec<Entry>, BooksError> {
    let held = held(tx, object.name)?;
    let mut lines: Vec<_> =
        target.lines.iter().map(|(kind, currency, amount)| (*kind, currency.as_str(), *amount)).collect();
    for Held { kind, currency, amount, .. } in &held {
        match lines.iter_mut().find(|line| line.0 == *kind && line.1 == currency) {
            Some(line) => line.2 -= i128::from(*amount),
            None => lines.push((*kind, currency, -i128::from(*amount))),
        }
    }
    lines.retain(|line| line.2 != 0);
    lines.sort_unstable();
    let mut entries: Vec<Entry> = Vec::with_capacity(lines.len());
    for (kind, currency, difference) in lines {
        let amount = i64::try_from(difference).map_err(|_| {
            BooksError::Contradiction(format!("an amount of more than 64 bits ({})", id_of(object.name)))
        })?;
        let before: i64 = held.iter().filter(|held| held.kind == kind).map(|held| held.count).sum();
        let new = entries.iter().filter(|entry| entry.kind == kind).count();
        let number = before + i64::try_from(new).unwrap_or(i64::MAX) + 1;
        entries.push(append(tx, object, (kind, currency, amount), number, cause)?);
    }
    Ok(entries)
}

/// What the books hold of an object, of one kind and currency.
struct Held {
    kind: Kind,
    currency: String,
    amount: i64,
    count: i64,
}

fn held(tx: &Transaction<'_>, object: &str) -> rusqlite::Result<Vec<Held>> {
    let held = |row: &Row<'_>| {
        Ok(Held { kind: row.get(0)?, currency: row.get(1)?, amount: row.get(2)?, count: row.get(3)? })
    };
    tx.prepare_cached(HELD)?.query_map([object], held)?.collect()
}

fn append(
    tx: &Transaction<'_>,
    object: Object<'_>,
    (kind, currency, amount): (Kind, &str, i64),
    number: i64,
    cause: &Cause<'_>,
) -> rusqlite::Result<Entry> {
    let id = id_of(object.name);
    let entry_key = match number {
        1 => format!("{}:{id}", kind.as_str()),
        number => format!("{}:{id}#{number}", kind.as_str()),
    };
    let Cause { event_id, endpoint, account, livemode, occurred_at_ms, now_ms } = *cause;
    tx.prepare_cached(APPEND)?.execute((
        &entry_key,
        object.invoice_id,
        kind,
        amount,
        currency,
        event_id,
        endpoint,
        now_ms,
        object.name,
        account,
        livemode,
        occurred_at_ms,
    ))?;
    Ok(Entry {
        entry_key,
        invoice_id: object.invoice_id.map(str::to_owned),
        kind,
        amount,
        currency: currency.to_owned(),
        event_id: event_id.to_owned(),
        endpoint: endpoint.to_owned(),
        booked_at_ms: now_ms,
        object: object.name.to_owned(),
        account: account.map(str::to_owned),
        livemode,
        occurred_at_ms,
    })
}

/// The entries with these keys (a JSON array), at most a hundred.
///
/// # Errors
/// Any SQLite error.
pub fn with_keys(conn: &Connection, entry_keys: &str) -> rusqlite::Result<Vec<Entry>> {
    conn.prepare_cached(WITH_KEYS)?.query_map([entry_keys], from_row)?.collect()
}

/// The entries about an object, in the order in which they were booked, at most `limit`.
///
/// # Errors
/// Any SQLite error.
pub fn about(conn: &Connection, object: &str, limit: u32) -> rusqlite::Result<Vec<Entry>> {
    conn.prepare_cached(ABOUT)?.query_map((object, limit), from_row)?.collect()
}

/// How many payments are booked of an invoice.
///
/// # Errors
/// Any SQLite error.
pub fn payments_of(conn: &Connection, invoice_id: &str) -> rusqlite::Result<i64> {
    conn.prepare_cached(PAYMENTS_OF)?.query_row([format!("invoice:{invoice_id}")], |row| row.get(0))
}

/// The number of the latest entry: how many there are, as none is ever removed.
///
/// # Errors
/// Any SQLite error.
pub fn last_id(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached(LAST_ID)?.query_row([], |row| row.get(0))
}

/// Hands each entry to `take`, in the order in which they were booked, until it fails.
///
/// # Errors
/// Any SQLite error, or that of `take`.
pub fn each<E: From<rusqlite::Error>>(
    conn: &Connection,
    mut take: impl FnMut(Entry) -> Result<(), E>,
) -> Result<(), E> {
    let mut statement = conn.prepare_cached(ALL)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        take(from_row(row)?)?;
    }
    Ok(())
}

/// One line as people are shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The row; rises with the order of commits.
    pub id: i64,
    /// The fact's own name.
    pub entry_key: String,
    /// What it is about, e.g. `invoice:in_1`.
    pub object: String,
    /// e.g. `payment`
    pub kind: String,
    /// In minor units.
    pub amount: i64,
    /// Lower case.
    pub currency: String,
    /// The event that was first to tell.
    pub event_id: String,
    /// The endpoint of that event.
    pub endpoint: String,
    /// When it was booked, in milliseconds since the epoch.
    pub booked_at_ms: i64,
}

/// The latest lines before row `before`, newest first, at most `limit`; or with `about` (an object such as
/// `charge:ch_1`, or an invoice's id) those about it.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn page(
    conn: &Connection,
    about: Option<&str>,
    before: Option<i64>,
    limit: u32,
) -> rusqlite::Result<Vec<Line>> {
    let before = before.unwrap_or(i64::MAX);
    match about {
        Some(about) => conn.prepare_cached(LINES_OF)?.query_map((about, before, limit), line)?.collect(),
        None => conn.prepare_cached(LINES)?.query_map((before, limit), line)?.collect(),
    }
}

fn line(row: &Row<'_>) -> rusqlite::Result<Line> {
    Ok(Line {
        id: row.get("id")?,
        entry_key: row.get("entry_key")?,
        object: row.get("object")?,
        kind: row.get("kind")?,
        amount: row.get("amount")?,
        currency: row.get("currency")?,
        event_id: row.get("event_id")?,
        endpoint: row.get("endpoint")?,
        booked_at_ms: row.get("booked_at_ms")?,
    })
}

const LINES: &str = "
    SELECT id, entry_key, object, kind, amount, currency, event_id, endpoint, booked_at_ms
      FROM main.ledger_entries
     WHERE id < ?1
     ORDER BY id DESC
     LIMIT ?2";

const LINES_OF: &str = "
    SELECT id, entry_key, object, kind, amount, currency, event_id, endpoint, booked_at_ms
      FROM main.ledger_entries
     WHERE object IN (?1, 'invoice:' || ?1) AND id < ?2
     ORDER BY id DESC
     LIMIT ?3";

fn from_row(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        entry_key: row.get("entry_key")?,
        invoice_id: row.get("invoice_id")?,
        kind: row.get("kind")?,
        amount: row.get("amount")?,
        currency: row.get("currency")?,
        event_id: row.get("event_id")?,
        endpoint: row.get("endpoint")?,
        booked_at_ms: row.get("booked_at_ms")?,
        object: row.get("object")?,
        account: row.get("account")?,
        livemode: row.get("livemode")?,
        occurred_at_ms: row.get("occurred_at_ms")?,
    })
}

/// Has every new line refused, or (`false`) no longer: how the demo makes a handler fail.
///
/// # Errors
/// Any SQLite error.
pub fn refuse_entries(conn: &Connection, is_refused: bool) -> rusqlite::Result<()> {
    conn.execute_batch(if is_refused { REFUSE_ENTRIES } else { ACCEPT_ENTRIES })
}

const HELD: &str = "
    SELECT kind, currency, sum(amount), count(*)
      FROM main.ledger_entries
     WHERE object = ?1
     GROUP BY kind, currency";

// No ON CONFLICT: a key is made from what is there, so that one that is taken is an error.
const APPEND: &str = "
    INSERT INTO main.ledger_entries
           (entry_key, invoice_id, kind, amount, currency, event_id, endpoint, booked_at_ms, object, account, livemode,
            occurred_at_ms)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

const WITH_KEYS: &str = "
    SELECT entry_key, invoice_id, kind, amount, currency, event_id, endpoint, booked_at_ms, object, account, livemode,
           occurred_at_ms
      FROM main.ledger_entries
     WHERE entry_key IN (SELECT value FROM json_each(?1))
     ORDER BY id
     LIMIT 100";

const ABOUT: &str = "
    SELECT entry_key, invoice_id, kind, amount, currency, event_id, endpoint, booked_at_ms, object, account, livemode,
           occurred_at_ms
      FROM main.ledger_entries
     WHERE object = ?1
     ORDER BY id
     LIMIT ?2";

const PAYMENTS_OF: &str = "
    SELECT count(*) FROM main.ledger_entries WHERE object = ?1 AND kind = 'payment'";

const LAST_ID: &str = "
    SELECT coalesce(max(id), 0) FROM main.ledger_entries";

const ALL: &str = "
    SELECT entry_key, invoice_id, kind, amount, currency, event_id, endpoint, booked_at_ms, object, account, livemode,
           occurred_at_ms
      FROM main.ledger_entries
     ORDER BY id";

const REFUSE_ENTRIES: &str = "
    CREATE TRIGGER demo_failure BEFORE INSERT ON ledger_entries
    BEGIN SELECT RAISE(ABORT, 'the demo makes the handler fail'); END";

const ACCEPT_ENTRIES: &str = "
    DROP TRIGGER demo_failure";
