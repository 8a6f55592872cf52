//! The tables `outbox`, `outbox_attempts` and `outbox_destinations`: requests that are queued in the event's own
//! transaction, and their delivery.
//!
//! A row is unique by its operation key, the effect's own name: queueing one effect twice makes one row. A delivered
//! row is never sent again. This module never talks to the network.

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};
use sha2::{Digest, Sha256};

use crate::encode::hex;
use crate::store::page;

pub mod browse;
pub mod queue;

/// The longest operation key, in bytes: HTTP APIs accept idempotency keys of this length.
const KEY_BYTES_MAX: usize = 255;

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
    pub payload: &'a [u8],
    /// The body's media type.
    pub content_type: &'a str,
    /// Of a forwarded delivery: JSON of the headers kept from it.
    pub headers: Option<&'a str>,
    /// The type of the event it comes from.
    pub event_type: Option<&'a str>,
    /// Of a forwarded delivery: its query string without `?`.
    pub query: Option<&'a str>,
}

/// Queues the operation. Returns whether it is new: `false` means the effect was queued before.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn enqueue(tx: &Transaction<'_>, operation: &NewOperation<'_>, now_ms: i64) -> rusqlite::Result<bool> {
    let payload = match std::str::from_utf8(operation.payload) {
        Ok(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        Err(_) => ToSqlOutput::Borrowed(ValueRef::Blob(operation.payload)),
    };
    let inserted = tx.prepare_cached(ENQUEUE)?.execute((
        operation.destination,
        operation.topic,
        operation.operation_key,
        operation.endpoint,
        operation.event_id,
        operation.object_id,
        payload,
        operation.content_type,
        operation.headers,
        now_ms,
        operation.event_type,
        operation.query,
    ))?;
    Ok(inserted == 1)
}

/// The request queued under an operation key.
#[derive(Debug, Clone, PartialEq)]
pub struct Queued {
    /// The destination's name.
    pub destination: String,
    /// The body to send; `Null` once it was sent and purged.
    pub payload: Value,
}

impl Queued {
    /// Whether `other` is the same effect, compared on the fields that are not purged yet.
    pub fn is(&self, asked: &Self) -> bool {
        self.destination == asked.destination
            && (self.payload == Value::Null || self.payload == asked.payload)
    }
}

/// The operation with this key.
///
/// # Errors
/// Any SQLite error.
pub fn queued_as(conn: &Connection, operation_key: &str) -> rusqlite::Result<Option<Queued>> {
    conn.prepare_cached(QUEUED_AS)?.query_row([operation_key], queued).optional()
}

/// Rows after `after_id` and whether their payload may go, at most `rows_max`. Besides being old, a row has to be
/// delivered before `before_ms`.
///
/// # Errors
/// Any SQLite error.
pub fn payloads_after(
    conn: &Connection,
    after_id: i64,
    rows_max: u32,
    (before_ms, now_ms): (i64, i64),
) -> rusqlite::Result<Vec<page::Row>> {
    page::Row::find(conn, PAYLOADS_AFTER, (after_id, rows_max, before_ms, now_ms))
}

/// As [`payloads_after`], of these rows (a JSON array of ids).
///
/// # Errors
/// Any SQLite error.
pub fn payloads_of(
    conn: &Connection,
    ids: &str,
    (before_ms, now_ms): (i64, i64),
) -> rusqlite::Result<Vec<page::Row>> {
    page::Row::find(conn, PAYLOADS_OF, (ids, before_ms, now_ms))
}

/// After the clock jumped, corrects since when rows have been failing.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn shift_failing(tx: &Transaction<'_>, shift_ms: i64, now_ms: i64) -> rusqlite::Result<()> {
    tx.prepare_cached(SHIFT_FAILING)?.execute((shift_ms, now_ms))?;
    Ok(())
}

/// The latest of the newest rows whose time differs from `now_ms` by at least this much: the clock was another one.
///
/// # Errors
/// Any SQLite error.
pub fn last_id_far_from(conn: &Connection, now_ms: i64, apart_ms: i64) -> rusqlite::Result<i64> {
    conn.query_row(LAST_ID_FAR_FROM, (now_ms, apart_ms), |row| row.get(0))
}

/// Purges payloads and answers of these delivered rows (a JSON array of ids). Their keys stay, so that the same effect
/// is not queued again.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn drop_payloads(tx: &Transaction<'_>, ids: &str) -> rusqlite::Result<usize> {
    tx.prepare_cached(DROP_EXCERPTS)?.execute([ids])?;
    tx.prepare_cached(DROP_PAYLOADS)?.execute([ids])
}

/// The newest row; 0: none.
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

/// The operation key of a forwarded event: `<endpoint>:<event id>:forward:<destination>`, or where that is
/// over 255 bytes, its beginning and a hash of all of it.
pub fn forward_key(endpoint: &str, event_id: &str, destination: &str) -> String {
    bounded_key(format!("{endpoint}:{event_id}:forward:{destination}"))
}

fn bounded_key(key: String) -> String {
    if key.len() <= KEY_BYTES_MAX {
        return key;
    }
    let hash = hex(&Sha256::digest(&key));
    let mut end = KEY_BYTES_MAX - hash.len() - 1;
    while !key.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}:{hash}", &key[..end])
}

/// Rows that were given up.
///
/// # Errors
/// Any SQLite error.
pub fn dead_count(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached(DEAD_COUNT)?.query_row([], |row| row.get(0))
}

/// The state of one destination.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The destination's name.
    pub name: String,
    /// Rows that wait or are being sent.
    pub pending: i64,
    /// When the oldest of them was queued, in milliseconds since the epoch.
    pub oldest_pending_ms: Option<i64>,
    /// Rows that were given up.
    pub dead: i64,
    /// Since when it is paused, and why.
    pub paused: Option<(i64, String)>,
    /// Since when the row fails that has been failing for longest, of the thousand whose next attempt is furthest away:
    /// the more often a row failed, the longer it waits.
    pub failing_since_ms: Option<i64>,
    /// Since when the circuit is open: one request at a time is tried.
    pub circuit_open_since_ms: Option<i64>,
    /// Results that came after their lease was lost.
    pub stale_results: i64,
}

/// Every destination that has undelivered or dead rows or a state of its own, by name. Rows are counted in indexes, so
/// that a destination that is down does not make every look at it slower.
///
/// # Errors
/// Any SQLite error.
pub fn standings(conn: &Connection) -> rusqlite::Result<Vec<Standing>> {
    conn.prepare_cached(STANDINGS)?
        .query_map([], |row| {
            let paused_at: Option<i64> = row.get("paused_at_ms")?;
            let because: Option<String> = row.get("paused_because")?;
            Ok(Standing {
                name: row.get("name")?,
                pending: row.get("pending")?,
                oldest_pending_ms: row.get("oldest_pending_ms")?,
                dead: row.get("dead")?,
                paused: paused_at.map(|at| (at, because.unwrap_or_default())),
                failing_since_ms: row.get("failing_since_ms")?,
                circuit_open_since_ms: row.get("circuit_open_since_ms")?,
                stale_results: row.get("stale_results")?,
            })
        })?
        .collect()
}

/// Rows that wait for destinations outside this list (a JSON array), by the destination's name.
///
/// # Errors
/// Any SQLite error.
pub fn waiting_elsewhere(conn: &Connection, destinations: &str) -> rusqlite::Result<Vec<(String, i64)>> {
    conn.prepare_cached(WAITING_ELSEWHERE)?
        .query_map([destinations], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// Stops sending to a destination. `false`: it was paused before.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn pause(tx: &Transaction<'_>, destination: &str, because: &str, now_ms: i64) -> rusqlite::Result<bool> {
    Ok(tx.prepare_cached(PAUSE)?.execute((destination, now_ms, because))? == 1)
}

/// Sends to a destination again. `false`: it was not paused.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn resume(tx: &Transaction<'_>, destination: &str) -> rusqlite::Result<bool> {
    Ok(tx.prepare_cached(RESUME)?.execute([destination])? == 1)
}

/// Whether a destination is paused.
///
/// # Errors
/// Any SQLite error.
pub fn is_paused(conn: &Connection, destination: &str) -> rusqlite::Result<bool> {
    conn.prepare_cached(IS_PAUSED)?.exists([destination])
}

/// Remembers that the circuit is open, or (`None`) that it is closed.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn note_circuit(
    tx: &Transaction<'_>,
    destination: &str,
    open: Option<(i64, i64)>,
) -> rusqlite::Result<()> {
    let (since_ms, probe_at_ms) = open.unzip();
    tx.prepare_cached(NOTE_CIRCUIT)?.execute((destination, since_ms, probe_at_ms))?;
    Ok(())
}

/// Counts a result that came after its lease was lost.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn count_stale_result(tx: &Transaction<'_>, destination: &str) -> rusqlite::Result<()> {
    tx.prepare_cached(COUNT_STALE_RESULT)?.execute([destination])?;
    Ok(())
}

/// One row as people are shown it. Everything but the body.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The row; rises with the order of commits.
    pub id: i64,
    /// The destination's name.
    pub destination: String,
    /// What happened.
    pub topic: String,
    /// The effect's own key.
    pub operation_key: String,
    /// The endpoint of the event it came from.
    pub endpoint: String,
    /// That event.
    pub event_id: String,
    /// The business object.
    pub object_id: Option<String>,
    /// `pending`, `sending`, `delivered` or `dead`
    pub state: String,
    /// Attempts so far.
    pub attempts: i64,
    /// When it is due, or while it is being sent, when its lease ends.
    pub available_at_ms: i64,
    /// Since when it has been failing.
    pub failing_since_ms: Option<i64>,
    /// Why the latest attempt failed.
    pub last_error: Option<String>,
    /// The status of the latest answer.
    pub response_status: Option<i64>,
    /// The beginning of its body.
    pub response_excerpt: Option<String>,
    /// The part of the answer that was kept.
    pub result: Option<String>,
    /// When it was queued.
    pub created_at_ms: i64,
    /// When it was delivered.
    pub delivered_at_ms: Option<i64>,
}

/// Which rows to list. What is `None` does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The destination's name.
    pub destination: Option<String>,
    /// The endpoint's name.
    pub endpoint: Option<String>,
    /// What happened.
    pub topic: Option<String>,
    /// The business object.
    pub object_id: Option<String>,
    /// `pending`, `sending`, `delivered` or `dead`
    pub state: Option<String>,
    /// Queued at this time or later.
    pub since_ms: Option<i64>,
    /// Queued before this time.
    pub until_ms: Option<i64>,
    /// A part of the last error.
    pub error: Option<String>,
    /// The event that the row came from.
    pub event_id: Option<String>,
}

/// Rows that match, newest first, at most `limit`.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn list(conn: &Connection, filter: &Filter, limit: u32) -> rusqlite::Result<Vec<Operation>> {
    let Filter { destination, endpoint, topic, object_id, state, since_ms, until_ms, error, event_id } =
        filter;
    let wanted = (destination, endpoint, topic, object_id, state, since_ms, until_ms, error, event_id, limit);
    let order = "ORDER BY id DESC LIMIT ?10";
    if event_id.is_some() {
        // by the index on the event, however many rows there are
        let sql = MATCHING.replace("(?9 IS NULL OR event_id = ?9)", "event_id = ?9");
        return conn.prepare_cached(&format!("{sql} {order}"))?.query_map(wanted, operation)?.collect();
    }
    conn.prepare_cached(&format!("{MATCHING} {order}"))?.query_map(wanted, operation)?.collect()
}

/// Rows that match and come after row `after_id`, oldest first, at most `limit`: one page of a long list.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn list_after(
    conn: &Connection,
    filter: &Filter,
    after_id: i64,
    limit: u32,
) -> rusqlite::Result<Vec<Operation>> {
    let Filter { destination, endpoint, topic, object_id, state, since_ms, until_ms, error, event_id } =
        filter;
    let wanted = (
        destination,
        endpoint,
        topic,
        object_id,
        state,
        since_ms,
        until_ms,
        error,
        event_id,
        after_id,
        limit,
    );
    let order = "AND id > ?10 ORDER BY id LIMIT ?11";
    conn.prepare_cached(&format!("{MATCHING} {order}"))?.query_map(wanted, operation)?.collect()
}

/// One row.
///
/// # Errors
/// Any SQLite error.
pub fn find(conn: &Connection, id: i64) -> rusqlite::Result<Option<Operation>> {
    conn.prepare_cached(FIND)?.query_row([id], operation).optional()
}

/// The rows of an event, oldest first, at most a hundred.
///
/// # Errors
/// Any SQLite error.
pub fn of_event(conn: &Connection, endpoint: &str, event_id: &str) -> rusqlite::Result<Vec<Operation>> {
    conn.prepare_cached(OF_EVENT)?.query_map((endpoint, event_id), operation)?.collect()
}

/// One attempt, for people.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// 1 for the first.
    pub number: i64,
    /// When it was claimed, in milliseconds since the epoch.
    pub started_at_ms: i64,
    /// How long the request took; `None` where it never ended.
    pub duration_ms: Option<i64>,
    /// `delivered`, `failed` or `lost`; `None` while it runs, or when its process died.
    pub result: Option<String>,
    /// The answer's status.
    pub status: Option<i64>,
    /// The beginning of its body.
    pub excerpt: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
}

/// The history of a row's attempts, oldest first.
///
/// # Errors
/// Any SQLite error.
pub fn attempts(conn: &Connection, id: i64) -> rusqlite::Result<Vec<Attempt>> {
    conn.prepare_cached(ATTEMPTS)?
        .query_map([id], |row| {
            Ok(Attempt {
                number: row.get("number")?,
                started_at_ms: row.get("started_at_ms")?,
                duration_ms: row.get("duration_ms")?,
                result: row.get("result")?,
                status: row.get("status")?,
                excerpt: row.get("excerpt")?,
                error: row.get("error")?,
            })
        })?
        .collect()
}

fn operation(row: &Row<'_>) -> rusqlite::Result<Operation> {
    Ok(Operation {
        id: row.get("id")?,
        destination: row.get("destination")?,
        topic: row.get("topic")?,
        operation_key: row.get("operation_key")?,
        endpoint: row.get("endpoint")?,
        event_id: row.get("event_id")?,
        object_id: row.get("object_id")?,
        state: row.get("state")?,
        attempts: row.get("attempts")?,
        available_at_ms: row.get("available_at_ms")?,
        failing_since_ms: row.get("failing_since_ms")?,
        last_error: row.get("last_error")?,
        response_status: row.get("response_status")?,
        response_excerpt: row.get("response_excerpt")?,
        result: row.get("result")?,
        created_at_ms: row.get("created_at_ms")?,
        delivered_at_ms: row.get("delivered_at_ms")?,
    })
}

fn bytes(value: Value) -> Vec<u8> {
    match value {
        Value::Text(text) => text.into_bytes(),
        Value::Blob(bytes) => bytes,
        Value::Null | Value::Integer(_) | Value::Real(_) => Vec::new(),
    }
}

const ENQUEUE: &str = "
    INSERT INTO main.outbox
           (destination, topic, operation_key, endpoint, event_id, object_id, payload, content_type, headers,
            available_at_ms, created_at_ms, event_type, query)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, ?11, ?12)
    ON CONFLICT (operation_key) DO NOTHING";

// A row that was delivered within a day ages from its delivery. A time of delivery ahead of the clock proves nothing.
const PAYLOADS_AFTER: &str = "
    SELECT id,
           CASE WHEN delivered_at_ms BETWEEN created_at_ms AND created_at_ms + 86400000 THEN delivered_at_ms
                ELSE created_at_ms END,
           payload IS NOT NULL AND (delivered_at_ms < ?3 OR delivered_at_ms > ?4 + 86400000) IS TRUE,
           payload IS NOT NULL
      FROM main.outbox
     WHERE id > ?1
     ORDER BY id
     LIMIT ?2";

const PAYLOADS_OF: &str = "
    SELECT id,
           CASE WHEN delivered_at_ms BETWEEN created_at_ms AND created_at_ms + 86400000 THEN delivered_at_ms
                ELSE created_at_ms END,
           payload IS NOT NULL AND (delivered_at_ms < ?2 OR delivered_at_ms > ?3 + 86400000) IS TRUE,
           payload IS NOT NULL
      FROM main.outbox
     WHERE id IN (SELECT value FROM json_each(?1))
     ORDER BY id";

const SHIFT_FAILING: &str = "
    UPDATE main.outbox
       SET failing_since_ms = min(?2, failing_since_ms + max(?1, 0))
     WHERE state IN ('pending', 'sending') AND failing_since_ms IS NOT NULL";

const LAST_ID_FAR_FROM: &str = "
    SELECT coalesce(max(id), 0)
      FROM (SELECT id, created_at_ms
              FROM main.outbox
             ORDER BY id DESC
             LIMIT 100000)
     WHERE abs(created_at_ms - ?1) >= ?2";

const DROP_EXCERPTS: &str = "
    UPDATE main.outbox_attempts
       SET excerpt = NULL
     WHERE outbox_id IN (SELECT value FROM json_each(?1)) AND excerpt IS NOT NULL";

const DROP_PAYLOADS: &str = "
    UPDATE main.outbox
       SET payload = NULL, query = NULL, response_excerpt = NULL
     WHERE id IN (SELECT value FROM json_each(?1)) AND delivered_at_ms IS NOT NULL";

const QUEUED_AS: &str = "
    SELECT destination, payload FROM main.outbox WHERE operation_key = ?1";

const LAST_ID: &str = "
    SELECT coalesce(max(id), 0) FROM main.outbox";

const QUEUED_AFTER: &str = "
    SELECT destination, payload, operation_key FROM main.outbox WHERE id > ?1";

const DEAD_COUNT: &str = "
    SELECT count(*) FROM main.outbox WHERE state = 'dead'";

const STANDINGS: &str = "
      WITH waiting AS (SELECT destination, count(*) AS pending, min(id) AS first
                         FROM main.outbox
                        WHERE state IN ('pending', 'sending')
                        GROUP BY destination),
           given_up AS (SELECT destination, count(*) AS dead
                          FROM main.outbox
                         WHERE state = 'dead'
                         GROUP BY destination),
           names AS (SELECT destination AS name FROM waiting
                      UNION SELECT destination FROM given_up
                      UNION SELECT name FROM main.outbox_destinations)
    SELECT names.name, coalesce(pending, 0) AS pending, coalesce(dead, 0) AS dead,
           (SELECT created_at_ms FROM main.outbox WHERE id = waiting.first) AS oldest_pending_ms,
           (SELECT min(failing_since_ms)
              FROM main.outbox
             WHERE id IN (SELECT id
                            FROM main.outbox
                           WHERE state IN ('pending', 'sending') AND destination = names.name
                           ORDER BY available_at_ms DESC
                           LIMIT 1000)) AS failing_since_ms,
           paused_at_ms, paused_because, circuit_open_since_ms, coalesce(stale_results, 0) AS stale_results
      FROM names
      LEFT JOIN waiting ON waiting.destination = names.name
      LEFT JOIN given_up ON given_up.destination = names.name
      LEFT JOIN main.outbox_destinations AS known ON known.name = names.name
     ORDER BY names.name";

const WAITING_ELSEWHERE: &str = "
    SELECT destination, count(*)
      FROM main.outbox
     WHERE state IN ('pending', 'sending') AND destination NOT IN (SELECT value FROM json_each(?1))
     GROUP BY destination
     ORDER BY destination";

const PAUSE: &str = "
    INSERT INTO main.outbox_destinations (name, paused_at_ms, paused_because) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET paused_at_ms = ?2, paused_because = ?3 WHERE paused_at_ms IS NULL";

const RESUME: &str = "
    UPDATE main.outbox_destinations
       SET paused_at_ms = NULL, paused_because = NULL
     WHERE name = ?1 AND paused_at_ms IS NOT NULL";

const IS_PAUSED: &str = "
    SELECT 1 FROM main.outbox_destinations WHERE name = ?1 AND paused_at_ms IS NOT NULL";

const NOTE_CIRCUIT: &str = "
    INSERT INTO main.outbox_destinations (name, circuit_open_since_ms, next_probe_at_ms) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET circuit_open_since_ms = ?2, next_probe_at_ms = ?3";

const COUNT_STALE_RESULT: &str = "
    INSERT INTO main.outbox_destinations (name, stale_results) VALUES (?1, 1)
    ON CONFLICT (name) DO UPDATE SET stale_results = stale_results + 1";

const MATCHING: &str = "
    SELECT id, destination, topic, operation_key, endpoint, event_id, object_id, state, attempts, available_at_ms,
           failing_since_ms, last_error, response_status, response_excerpt, result, created_at_ms, delivered_at_ms
      FROM main.outbox
     WHERE (?1 IS NULL OR destination = ?1)
       AND (?2 IS NULL OR endpoint = ?2)
       AND (?3 IS NULL OR topic = ?3)
       AND (?4 IS NULL OR object_id = ?4)
       AND (?5 IS NULL OR state = ?5)
       AND (?6 IS NULL OR created_at_ms >= ?6)
       AND (?7 IS NULL OR created_at_ms < ?7)
       AND (?8 IS NULL OR instr(last_error, ?8) > 0)
       AND (?9 IS NULL OR event_id = ?9)";

const FIND: &str = "
    SELECT id, destination, topic, operation_key, endpoint, event_id, object_id, state, attempts, available_at_ms,
           failing_since_ms, last_error, response_status, response_excerpt, result, created_at_ms, delivered_at_ms
      FROM main.outbox
     WHERE id = ?1";

const OF_EVENT: &str = "
    SELECT id, destination, topic, operation_key, endpoint, event_id, object_id, state, attempts, available_at_ms,
           failing_since_ms, last_error, response_status, response_excerpt, result, created_at_ms, delivered_at_ms
      FROM main.outbox
     WHERE event_id = ?2 AND endpoint = ?1
     ORDER BY id
     LIMIT 100";

const ATTEMPTS: &str = "
    SELECT number, started_at_ms, duration_ms, result, status, excerpt, error
      FROM main.outbox_attempts
     WHERE outbox_id = ?1
     ORDER BY number";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_too_long_ends_in_a_hash() {
        assert_eq!(forward_key("billing", "evt_1", "app"), "billing:evt_1:forward:app");
        let long = "é".repeat(200);
        let (one, other) = (forward_key("a", &long, "app"), forward_key("a", &format!("{long}x"), "app"));
        assert!(one.len() <= 255 && one.starts_with("a:éé"), "{one}");
        assert_ne!(one, other);
    }
}
