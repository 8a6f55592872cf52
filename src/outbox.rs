//! The table `outbox`: what must happen outside this file, written in the event's own transaction.
//!
//! A row is unique by its operation key, the effect's own name: asking twice for one effect queues it
//! once. This module never talks to the network.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

/// A row to queue.
#[derive(Debug)]
pub struct NewOperation<'a> {
    /// The destination's name in the configuration.
    pub destination: &'a str,
    /// What happened, e.g. `InvoicePaymentBooked`.
    pub topic: &'a str,
    /// Unique for the effect, deterministic, without personal data, e.g. `payment:in_1`.
    pub operation_key: &'a str,
    /// The endpoint of the event it comes from.
    pub endpoint: &'a str,
    /// The event it comes from.
    pub event_id: &'a str,
    /// The business object it is about.
    pub object_id: Option<&'a str>,
    /// The body to send.
    pub payload: &'a str,
    /// The body's media type.
    pub content_type: &'a str,
}

/// Queues the operation. Returns whether it is new: `false` means the effect was queued before.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn enqueue(tx: &Transaction<'_>, operation: &NewOperation<'_>, now_ms: i64) -> rusqlite::Result<bool> {
    let inserted = tx.prepare_cached(ENQUEUE)?.execute((
        operation.destination,
        operation.topic,
        operation.operation_key,
        operation.endpoint,
        operation.event_id,
        operation.object_id,
        operation.payload,
        operation.content_type,
        now_ms,
    ))?;
    Ok(inserted == 1)
}

/// What was asked for under an operation key.
#[derive(Debug, Clone, PartialEq)]
pub struct Queued {
    /// The destination's name.
    pub destination: String,
    /// The body to send.
    pub payload: Value,
}

/// The operation with this key.
///
/// # Errors
/// Any SQLite error.
pub fn find(conn: &Connection, operation_key: &str) -> rusqlite::Result<Option<Queued>> {
    conn.prepare_cached(FIND)?.query_row([operation_key], queued).optional()
}

/// The newest row; 0 where there is none.
///
/// # Errors
/// Any SQLite error.
pub fn last_id(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached(LAST_ID)?.query_row([], |row| row.get(0))
}

/// The operations queued after a row, with their keys.
///
/// # Errors
/// Any SQLite error.
pub fn queued_after(conn: &Connection, id: i64) -> rusqlite::Result<Vec<(String, Queued)>> {
    conn.prepare_cached(QUEUED_AFTER)?.query_map([id], |row| Ok((row.get(2)?, queued(row)?)))?.collect()
}

fn queued(row: &Row<'_>) -> rusqlite::Result<Queued> {
    Ok(Queued { destination: row.get(0)?, payload: row.get(1)? })
}

/// Rows that wait to be delivered, per destination.
///
/// # Errors
/// Any SQLite error.
pub fn undelivered(conn: &Connection) -> rusqlite::Result<Vec<(String, i64)>> {
    conn.prepare_cached(COUNT_UNDELIVERED)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Rows that were given up.
///
/// # Errors
/// Any SQLite error.
pub fn dead_count(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached(DEAD_COUNT)?.query_row([], |row| row.get(0))
}

const ENQUEUE: &str = "
    INSERT INTO main.outbox
           (destination, topic, operation_key, endpoint, event_id, object_id, payload, content_type,
            available_at_ms, created_at_ms)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9)
    ON CONFLICT (operation_key) DO NOTHING";

const FIND: &str = "
    SELECT destination, payload FROM main.outbox WHERE operation_key = ?1";

const LAST_ID: &str = "
    SELECT coalesce(max(id), 0) FROM main.outbox";

const QUEUED_AFTER: &str = "
    SELECT destination, payload, operation_key FROM main.outbox WHERE id > ?1";

const COUNT_UNDELIVERED: &str = "
    SELECT destination, count(*)
      FROM main.outbox
     WHERE state IN ('pending', 'sending')
     GROUP BY destination
     ORDER BY destination";

const DEAD_COUNT: &str = "
    SELECT count(*) FROM main.outbox WHERE state = 'dead'";
