//! The table `ledger_entries`: the books.
//!
//! An entry is unique by its key, the name of the money fact it records, whatever event told of the fact.
//! This module only appends. It has no statement that edits or removes an entry, the schema's triggers refuse
//! both, and a correction is a new entry under a key of its own.

use rusqlite::{Connection, OptionalExtension, Row, Transaction};

/// The payment of an invoice, to be booked.
#[derive(Debug, Clone, Copy)]
pub struct Payment<'a> {
    /// The provider's invoice id.
    pub invoice_id: &'a str,
    /// In minor units; never 0.
    pub amount: i64,
    /// Lower case.
    pub currency: &'a str,
    /// The event that tells of it.
    pub event_id: &'a str,
    /// The endpoint that event came to.
    pub endpoint: &'a str,
}

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Booked {
    /// Written now.
    New,
    /// This very fact is in the books; nothing was written.
    Already,
    /// The fact is in the books with this other amount or currency; nothing was written.
    Conflicts {
        /// The booked amount, in minor units.
        amount: i64,
        /// The booked currency.
        currency: String,
    },
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The fact's own name, e.g. `payment:in_1`.
    pub entry_key: String,
    /// The invoice it belongs to.
    pub invoice_id: Option<String>,
    /// `payment`.
    pub kind: String,
    /// In minor units.
    pub amount: i64,
    /// Lower case.
    pub currency: String,
    /// The event that was first to tell.
    pub event_id: String,
    /// The endpoint of that event.
    pub endpoint: String,
    /// When it was booked.
    pub booked_at_ms: i64,
}

/// The key of an invoice's payment: the same for every event that tells of it.
#[must_use]
pub fn payment_key(invoice_id: &str) -> String {
    format!("payment:{invoice_id}")
}

/// Books the payment of an invoice, once.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn book(tx: &Transaction<'_>, payment: &Payment<'_>, now_ms: i64) -> rusqlite::Result<Booked> {
    let entry_key = payment_key(payment.invoice_id);
    if let Some(entry) = find(tx, &entry_key)? {
        return Ok(compare(entry, payment));
    }
    tx.prepare_cached(BOOK)?.execute((
        &entry_key,
        payment.invoice_id,
        payment.amount,
        payment.currency,
        payment.event_id,
        payment.endpoint,
        now_ms,
    ))?;
    Ok(Booked::New)
}

/// The entry with this key.
///
/// # Errors
/// Any SQLite error.
pub fn find(conn: &Connection, entry_key: &str) -> rusqlite::Result<Option<Entry>> {
    conn.prepare_cached(FIND)?.query_row([entry_key], from_row).optional()
}

/// The entries with these keys (a JSON array), at most a hundred.
///
/// # Errors
/// Any SQLite error.
pub fn with_keys(conn: &Connection, entry_keys: &str) -> rusqlite::Result<Vec<Entry>> {
    conn.prepare_cached(WITH_KEYS)?.query_map([entry_keys], from_row)?.collect()
}

/// How many lines of the books are about an invoice.
///
/// # Errors
/// Any SQLite error.
pub fn count_of(conn: &Connection, invoice_id: &str) -> rusqlite::Result<i64> {
    conn.prepare_cached(COUNT_OF)?.query_row([invoice_id], |row| row.get(0))
}

fn compare(entry: Entry, payment: &Payment<'_>) -> Booked {
    if entry.amount == payment.amount && entry.currency == payment.currency {
        Booked::Already
    } else {
        Booked::Conflicts { amount: entry.amount, currency: entry.currency }
    }
}

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
    })
}

// No ON CONFLICT: an entry that is there already was found before, and an error is right for all else.
const BOOK: &str = "
    INSERT INTO main.ledger_entries
           (entry_key, invoice_id, kind, amount, currency, event_id, endpoint, booked_at_ms)
    VALUES (?1, ?2, 'payment', ?3, ?4, ?5, ?6, ?7)";

const FIND: &str = "
    SELECT entry_key, invoice_id, kind, amount, currency, event_id, endpoint, booked_at_ms
      FROM main.ledger_entries
     WHERE entry_key = ?1";

const WITH_KEYS: &str = "
    SELECT entry_key, invoice_id, kind, amount, currency, event_id, endpoint, booked_at_ms
      FROM main.ledger_entries
     WHERE entry_key IN (SELECT value FROM json_each(?1))
     ORDER BY id
     LIMIT 100";

const COUNT_OF: &str = "
    SELECT count(*) FROM main.ledger_entries WHERE invoice_id = ?1";
