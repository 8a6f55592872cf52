//! The table `bookkeeping`: the few things inboxd remembers about itself.

use rusqlite::{Connection, OptionalExtension, Transaction};

/// When the daemon became ready.
pub const LAST_START: &str = "last_start";

/// When the latest purge ended, and what it did.
pub const LAST_PURGE: &str = "last_purge";

/// A remembered value, and when it was noted in milliseconds since the epoch.
///
/// # Errors
/// Any SQLite error.
pub fn recall(conn: &Connection, name: &str) -> rusqlite::Result<Option<(String, i64)>> {
    conn.prepare_cached(RECALL)?.query_row([name], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// Remembers a value in place of the one before.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn note(tx: &Transaction<'_>, name: &str, value: &str, now_ms: i64) -> rusqlite::Result<()> {
    tx.prepare_cached(NOTE)?.execute((name, value, now_ms))?;
    Ok(())
}

const RECALL: &str = "
    SELECT value, updated_at_ms FROM main.bookkeeping WHERE name = ?1";

const NOTE: &str = "
    INSERT INTO main.bookkeeping (name, value, updated_at_ms) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET value = ?2, updated_at_ms = ?3";
