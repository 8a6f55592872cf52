//! The inbox ages: payloads go first, the keys that make redeliveries harmless much later.
//!
//! Only events that need no more work age; what waits for a worker or a person is kept whole. Rows are found
//! by a reader, a stretch of ids at a time, and changed by the writer, a few hundred at a time.

use rusqlite::{Connection, Transaction};

use crate::stretch::Stretch;

/// Rows after `after_id` whose payload may go: at most `rows_max` are looked at.
///
/// # Errors
/// Any SQLite error.
pub fn with_old_payload(
    conn: &Connection,
    after_id: i64,
    rows_max: u32,
    before_ms: i64,
) -> rusqlite::Result<Stretch> {
    Stretch::find(conn, WITH_OLD_PAYLOAD, after_id, rows_max, before_ms)
}

/// Rows after `after_id` whose key may be forgotten: at most `rows_max` are looked at.
///
/// # Errors
/// Any SQLite error.
pub fn with_old_key(
    conn: &Connection,
    after_id: i64,
    rows_max: u32,
    before_ms: i64,
) -> rusqlite::Result<Stretch> {
    Stretch::find(conn, WITH_OLD_KEY, after_id, rows_max, before_ms)
}

/// Drops the payloads of these rows (a JSON array of ids) and leaves their keys.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn drop_payloads(tx: &Transaction<'_>, ids: &str) -> rusqlite::Result<usize> {
    tx.prepare_cached(DROP_PAYLOADS)?.execute([ids])
}

/// Forgets these rows (a JSON array of ids) for good.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn forget(tx: &Transaction<'_>, ids: &str) -> rusqlite::Result<usize> {
    tx.prepare_cached(FORGET)?.execute([ids])
}

const WITH_OLD_PAYLOAD: &str = "
    SELECT json_group_array(id) FILTER (WHERE is_old), count(*) FILTER (WHERE is_old), max(id)
      FROM (SELECT id,
                   payload IS NOT NULL AND processed_at_ms IS NOT NULL AND received_at_ms < ?3 AS is_old
              FROM main.webhook_inbox
             WHERE id > ?1
             ORDER BY id
             LIMIT ?2)";

const WITH_OLD_KEY: &str = "
    SELECT json_group_array(id) FILTER (WHERE is_old), count(*) FILTER (WHERE is_old), max(id)
      FROM (SELECT id, processed_at_ms IS NOT NULL AND received_at_ms < ?3 AS is_old
              FROM main.webhook_inbox
             WHERE id > ?1
             ORDER BY id
             LIMIT ?2)";

const DROP_PAYLOADS: &str = "
    UPDATE main.webhook_inbox
       SET payload = NULL, envelope = NULL
     WHERE id IN (SELECT value FROM json_each(?1)) AND processed_at_ms IS NOT NULL";

const FORGET: &str = "
    DELETE FROM main.webhook_inbox
     WHERE id IN (SELECT value FROM json_each(?1)) AND processed_at_ms IS NOT NULL";
