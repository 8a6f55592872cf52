//! The table `inboxd_audit`: who did what by hand, from the page or the command line.
//!
//! A row is written in the transaction of the act itself: there is no act without its row, and no row without its
//! act. It never contains a body, a secret or a stranger's text, except the filter that a person typed.

use rusqlite::{Connection, Row, Transaction};

/// The most bytes kept of a filter or a note.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// An act of a person.
#[derive(Debug, Clone, Copy)]
pub struct Act<'a> {
    /// e.g. `cli:ann`, `token:ops`, `socket:ann`
    pub actor: &'a str,
    /// The verb, as the command line has it, e.g. `outbox retry`.
    pub act: &'a str,
    /// What it is done to: a JSON object.
    pub filter: &'a str,
    /// How many rows it changed.
    pub count: i64,
    /// Why, in their own words.
    pub note: Option<&'a str>,
}

/// Writes the row of an act. Returns its id.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn note(tx: &Transaction<'_>, act: &Act<'_>, now_ms: i64) -> rusqlite::Result<i64> {
    let note = act.note.map(shortened).filter(|note| !note.is_empty());
    let row = (now_ms, act.actor, act.act, shortened(act.filter), act.count, note);
    tx.prepare_cached(NOTE)?.execute(row)?;
    Ok(tx.last_insert_rowid())
}

/// Adds to the count of an act that takes several transactions.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn add(tx: &Transaction<'_>, id: i64, count: i64) -> rusqlite::Result<()> {
    tx.prepare_cached(ADD)?.execute((id, count))?;
    Ok(())
}

/// One act, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The row; rises with time.
    pub id: i64,
    /// When it was committed, in milliseconds since the epoch.
    pub at_ms: i64,
    /// Who.
    pub actor: String,
    /// What.
    pub act: String,
    /// To what: a JSON object.
    pub filter: String,
    /// How many rows were changed.
    pub count: i64,
    /// Why.
    pub note: Option<String>,
}

/// The latest acts before row `before` (`None`: the latest of all), newest first, at most `limit`.
///
/// # Errors
/// Any SQLite error.
pub fn list(conn: &Connection, before: Option<i64>, limit: u32) -> rusqlite::Result<Vec<Entry>> {
    conn.prepare_cached(LIST)?.query_map((before.unwrap_or(i64::MAX), limit), entry)?.collect()
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        id: row.get(0)?,
        at_ms: row.get(1)?,
        actor: row.get(2)?,
        act: row.get(3)?,
        filter: row.get(4)?,
        count: row.get(5)?,
        note: row.get(6)?,
    })
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

const NOTE: &str = "
    INSERT INTO main.inboxd_audit (at_ms, actor, act, filter, count, note) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

const ADD: &str = "
    UPDATE main.inboxd_audit SET count = count + ?2 WHERE id = ?1";

const LIST: &str = "
    SELECT id, at_ms, actor, act, filter, count, note
      FROM main.inboxd_audit
     WHERE id < ?1
     ORDER BY id DESC
     LIMIT ?2";
