//! Purging the inbox: payloads first, the keys that make redeliveries harmless much later.
//!
//! Only finished events are purged; events that wait for a worker or a person are kept whole. A reader finds the rows,
//! a page at a time, and the writer changes a few hundred at a time.

use rusqlite::{Connection, Transaction};

use crate::store::page::Row;

/// Rows after `after_id` and whether their payload may go, at most `rows_max`.
///
/// # Errors
/// Any SQLite error.
pub fn payloads_after(conn: &Connection, after_id: i64, rows_max: u32) -> rusqlite::Result<Vec<Row>> {
    Row::find(conn, PAYLOADS_AFTER, (after_id, rows_max))
}

/// As [`payloads_after`], of these rows (a JSON array of ids).
///
/// # Errors
/// Any SQLite error.
pub fn payloads_of(conn: &Connection, ids: &str) -> rusqlite::Result<Vec<Row>> {
    Row::find(conn, PAYLOADS_OF, [ids])
}

/// Rows after `after_id` and whether their key may be forgotten, at most `rows_max`.
///
/// # Errors
/// Any SQLite error.
pub fn keys_after(conn: &Connection, after_id: i64, rows_max: u32) -> rusqlite::Result<Vec<Row>> {
    Row::find(conn, KEYS_AFTER, (after_id, rows_max))
}

/// Drops the payloads of these rows (a JSON array of ids), with the other bodies that came under their keys and the
/// query strings, and leaves the keys.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn drop_payloads(tx: &Transaction<'_>, ids: &str) -> rusqlite::Result<usize> {
    tx.prepare_cached(DROP_OTHER_BODIES)?.execute([ids])?;
    tx.prepare_cached(DROP_PAYLOADS)?.execute([ids])
}

/// Deletes these rows (a JSON array of ids).
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn forget(tx: &Transaction<'_>, ids: &str) -> rusqlite::Result<usize> {
    tx.prepare_cached(FORGET)?.execute([ids])
}

const PAYLOADS_AFTER: &str = "
    SELECT id, received_at_ms, payload IS NOT NULL AND processed_at_ms IS NOT NULL, payload IS NOT NULL
      FROM main.webhook_inbox
     WHERE id > ?1
     ORDER BY id
     LIMIT ?2";

const PAYLOADS_OF: &str = "
    SELECT id, received_at_ms, payload IS NOT NULL AND processed_at_ms IS NOT NULL, payload IS NOT NULL
      FROM main.webhook_inbox
     WHERE id IN (SELECT value FROM json_each(?1))
     ORDER BY id";

const KEYS_AFTER: &str = "
    SELECT id, received_at_ms, processed_at_ms IS NOT NULL, processed_at_ms IS NULL
      FROM main.webhook_inbox
     WHERE id > ?1
     ORDER BY id
     LIMIT ?2";

const DROP_PAYLOADS: &str = "
    UPDATE main.webhook_inbox
       SET payload = NULL, envelope = NULL, query = NULL
     WHERE id IN (SELECT value FROM json_each(?1)) AND processed_at_ms IS NOT NULL";

const DROP_OTHER_BODIES: &str = "
    UPDATE main.webhook_conflicts
       SET payload = NULL, envelope = NULL, query = NULL
     WHERE inbox_id IN (SELECT id
                          FROM main.webhook_inbox
                         WHERE id IN (SELECT value FROM json_each(?1)) AND processed_at_ms IS NOT NULL)";

const FORGET: &str = "
    DELETE FROM main.webhook_inbox
     WHERE id IN (SELECT value FROM json_each(?1)) AND processed_at_ms IS NOT NULL";
