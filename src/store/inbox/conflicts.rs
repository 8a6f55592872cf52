//! The table `webhook_conflicts`: other bodies that came under a known event id.
//!
//! The first body is the event. Each further body is kept once, up to a limit, until a person puts it to work as an
//! event of its own or the event's payload is purged. This module does not decide whether bodies contradict each
//! other.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::{bytes_of, payload};
use crate::signature::Envelope;
use crate::verify::VerifiedEvent;

/// The most other bodies kept per event: without a limit a signing sender could fill the disk.
pub const KEPT_MAX: i64 = 8;

/// What was done with another body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is kept from now on.
    New,
    /// The same one came before.
    Before,
    /// It is not kept: [`KEPT_MAX`] are.
    Full,
}

/// Keeps the body of an event whose id belongs to the event of row `inbox_id`.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn keep(
    tx: &Transaction<'_>,
    inbox_id: i64,
    event: &VerifiedEvent,
    now_ms: i64,
) -> rusqlite::Result<Kept> {
    let sha256 = event.body_sha256();
    if tx.prepare_cached(IS_KEPT)?.exists((inbox_id, sha256))? {
        return Ok(Kept::Before);
    }
    let kept = tx.prepare_cached(KEEP)?.execute((
        inbox_id,
        event.event_type(),
        event.object_id(),
        event.account(),
        event.livemode(),
        event.api_version(),
        event.kept_headers(),
        event.query(),
        payload(event.body()),
        sha256,
        now_ms,
        KEPT_MAX,
        event.envelope().map(Envelope::to_json),
    ))?;
    Ok(if kept == 1 { Kept::New } else { Kept::Full })
}

/// Another body, for people. Everything but the bytes.
#[derive(Debug, Clone)]
pub struct Conflict {
    /// The row.
    pub id: i64,
    /// e.g. `invoice.paid`
    pub event_type: Option<String>,
    /// The business object.
    pub object_id: Option<String>,
    /// The body's length; `None` once purged.
    pub payload_bytes: Option<i64>,
    /// When it came first, in milliseconds since the epoch.
    pub received_at_ms: i64,
    /// The key under which it was put to work; `None`: not done.
    pub worked_as: Option<String>,
}

/// The other bodies that came under an event's id, in the order in which they came.
///
/// # Errors
/// Any SQLite error.
pub fn of_event(conn: &Connection, endpoint: &str, event_id: &str) -> rusqlite::Result<Vec<Conflict>> {
    conn.prepare_cached(OF_EVENT)?.query_map((endpoint, event_id), conflict)?.collect()
}

/// The stored bytes of one of them; `None`: purged, or no such row.
///
/// # Errors
/// Any SQLite error.
pub fn payload_of(conn: &Connection, id: i64) -> rusqlite::Result<Option<Vec<u8>>> {
    let payload: Option<Value> =
        conn.prepare_cached(PAYLOAD_OF)?.query_row([id], |row| row.get(0)).optional()?;
    Ok(payload.and_then(bytes_of))
}

/// Makes a pending event of another body. Returns its row and its key; `None`: that was done before, or the body was
/// purged.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn put_to_work(tx: &Transaction<'_>, id: i64, now_ms: i64) -> rusqlite::Result<Option<(i64, String)>> {
    let made: Option<(i64, String)> = tx
        .prepare_cached(MAKE_EVENT)?
        .query_row((id, now_ms), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((_, key)) = &made {
        tx.prepare_cached(NOTE_KEY)?.execute((id, key))?;
    }
    Ok(made)
}

fn conflict(row: &Row<'_>) -> rusqlite::Result<Conflict> {
    Ok(Conflict {
        id: row.get("id")?,
        event_type: row.get("event_type")?,
        object_id: row.get("object_id")?,
        payload_bytes: row.get("payload_bytes")?,
        received_at_ms: row.get("received_at_ms")?,
        worked_as: row.get("event_id")?,
    })
}

const IS_KEPT: &str = "
    SELECT 1 FROM main.webhook_conflicts WHERE inbox_id = ?1 AND body_sha256 = ?2";

const KEEP: &str = "
    INSERT INTO main.webhook_conflicts
           (inbox_id, event_type, object_id, account, livemode, api_version, headers, query, payload, body_sha256,
            received_at_ms, envelope)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?13
     WHERE (SELECT count(*) FROM main.webhook_conflicts WHERE inbox_id = ?1) < ?12";

const OF_EVENT: &str = "
    SELECT other.id, other.event_type, other.object_id, octet_length(other.payload) AS payload_bytes,
           other.received_at_ms, other.event_id
      FROM main.webhook_conflicts AS other
      JOIN main.webhook_inbox AS first ON first.id = other.inbox_id
     WHERE first.endpoint = ?1 AND first.event_id = ?2
     ORDER BY other.id";

const PAYLOAD_OF: &str = "
    SELECT payload FROM main.webhook_conflicts WHERE id = ?1";

// The row needs no replay key: a person has decided that this body is an event.
const MAKE_EVENT: &str = "
    INSERT INTO main.webhook_inbox
           (provider, endpoint, event_id, event_type, object_id, account, livemode, api_version,
            headers, query, envelope, payload, body_sha256, state, available_at_ms, received_at_ms)
    SELECT first.provider, first.endpoint, first.event_id || ':body-sha256:' || lower(hex(other.body_sha256)),
           other.event_type, other.object_id, other.account, other.livemode, other.api_version,
           other.headers, other.query, other.envelope, other.payload, other.body_sha256, 'pending', ?2, other.received_at_ms
      FROM main.webhook_conflicts AS other
      JOIN main.webhook_inbox AS first ON first.id = other.inbox_id
     WHERE other.id = ?1 AND other.event_id IS NULL AND other.payload IS NOT NULL
    ON CONFLICT (provider, endpoint, event_id) DO NOTHING
    RETURNING id, event_id";

const NOTE_KEY: &str = "
    UPDATE main.webhook_conflicts SET event_id = ?2 WHERE id = ?1";
