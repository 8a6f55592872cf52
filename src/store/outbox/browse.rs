//! The outbox as a person looks through it, and its figures: read by indexes of what is undelivered and dead, never by
//! what was delivered long ago.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension};

use super::{Filter, Operation, operation};

/// Rows that one look reads at least, where it finds less than was asked for.
pub const ROWS_LOOKED_AT: i64 = 5_000;

/// What is queued for one destination.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Load {
    /// Rows that wait.
    pub pending: i64,
    /// Rows that are being sent.
    pub sending: i64,
    /// Rows that were given up.
    pub dead: i64,
    /// When the oldest undelivered row was queued, in milliseconds since the epoch.
    pub oldest_ms: Option<i64>,
}

/// What is queued, by destination.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn loads(conn: &Connection) -> rusqlite::Result<BTreeMap<String, Load>> {
    let mut loads = BTreeMap::<String, Load>::new();
    let mut statement = conn.prepare_cached(UNDELIVERED)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (first, load): (i64, &mut Load) = (row.get(2)?, loads.entry(row.get(0)?).or_default());
        load.pending = row.get(1)?;
        load.oldest_ms = conn.prepare_cached(QUEUED_AT)?.query_row([first], |row| row.get(0)).optional()?;
    }
    let mut statement = conn.prepare_cached(SENDING)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let load = loads.entry(row.get(0)?).or_default();
        load.sending = row.get(1)?;
        load.pending = (load.pending - load.sending).max(0);
    }
    let mut statement = conn.prepare_cached(DEAD)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        loads.entry(row.get(0)?).or_default().dead = row.get(1)?;
    }
    Ok(loads)
}

/// Rows that match and come before row `before`, newest first, at most `limit`, and whether older ones were not looked
/// at. Where the filter names a state in which rows wait or were given up, the first ten thousand of those are looked
/// at; else the latest `rows_max` rows.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn page(
    conn: &Connection,
    filter: &Filter,
    before: Option<i64>,
    limit: u32,
    rows_max: i64,
) -> rusqlite::Result<(Vec<Operation>, Option<i64>)> {
    let Filter { destination, endpoint, topic, object_id, state, since_ms, until_ms, error, event_id } =
        filter;
    let before = before.unwrap_or(super::last_id(conn)?.saturating_add(1));
    let (sql, floor) = match state.as_deref() {
        Some("pending" | "sending") => (UNDELIVERED_PAGE, 0),
        Some("dead") => (DEAD_PAGE, 0),
        _ => (LATEST_PAGE, before.saturating_sub(rows_max)),
    };
    let values = rusqlite::params![
        destination,
        endpoint,
        topic,
        object_id,
        state,
        since_ms,
        until_ms,
        error,
        event_id,
        before,
        floor,
        limit.saturating_add(1)
    ];
    let mut rows =
        conn.prepare_cached(sql)?.query_map(values, operation)?.collect::<rusqlite::Result<Vec<_>>>()?;
    let is_full = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next = match rows.last() {
        Some(last) if is_full => Some(last.id),
        _ => (floor > 1).then_some(floor),
    };
    Ok((rows, next))
}

/// What a person or the dispatcher decided on a destination: the times since when it is paused or fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    /// The destination's name.
    pub name: String,
    /// Since when nothing is sent there.
    pub paused_at_ms: Option<i64>,
    /// Since when only one request at a time is tried.
    pub circuit_open_since_ms: Option<i64>,
}

/// What is known of destinations beside their rows.
///
/// # Errors
/// Any SQLite error.
pub fn marks(conn: &Connection) -> rusqlite::Result<Vec<Marks>> {
    conn.prepare_cached(MARKS)?
        .query_map([], |row| {
            Ok(Marks { name: row.get(0)?, paused_at_ms: row.get(1)?, circuit_open_since_ms: row.get(2)? })
        })?
        .collect()
}

const MARKS: &str = "
    SELECT name, paused_at_ms, circuit_open_since_ms FROM main.outbox_destinations";

const UNDELIVERED: &str = "
    SELECT destination, count(*), min(id)
      FROM main.outbox
     WHERE state IN ('pending', 'sending')
     GROUP BY destination";

const SENDING: &str = "
    SELECT destination, count(*)
      FROM main.outbox
     WHERE state = 'sending'
     GROUP BY destination";

const DEAD: &str = "
    SELECT destination, count(*)
      FROM main.outbox
     WHERE state = 'dead'
     GROUP BY destination";

const QUEUED_AT: &str = "
    SELECT created_at_ms FROM main.outbox WHERE id = ?1";

const LATEST_PAGE: &str = "
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
       AND (?9 IS NULL OR event_id = ?9)
       AND id < ?10 AND id >= ?11
     ORDER BY id DESC
     LIMIT ?12";

const UNDELIVERED_PAGE: &str = "
    SELECT id, destination, topic, operation_key, endpoint, event_id, object_id, state, attempts, available_at_ms,
           failing_since_ms, last_error, response_status, response_excerpt, result, created_at_ms, delivered_at_ms
      FROM main.outbox
     WHERE id IN (SELECT id
                    FROM main.outbox
                   WHERE state IN ('pending', 'sending') AND (?1 IS NULL OR destination = ?1)
                     AND id < ?10 AND id >= ?11
                   LIMIT 10000)
       AND (?2 IS NULL OR endpoint = ?2)
       AND (?3 IS NULL OR topic = ?3)
       AND (?4 IS NULL OR object_id = ?4)
       AND (?5 IS NULL OR state = ?5)
       AND (?6 IS NULL OR created_at_ms >= ?6)
       AND (?7 IS NULL OR created_at_ms < ?7)
       AND (?8 IS NULL OR instr(last_error, ?8) > 0)
       AND (?9 IS NULL OR event_id = ?9)
     ORDER BY id DESC
     LIMIT ?12";

const DEAD_PAGE: &str = "
    SELECT id, destination, topic, operation_key, endpoint, event_id, object_id, state, attempts, available_at_ms,
           failing_since_ms, last_error, response_status, response_excerpt, result, created_at_ms, delivered_at_ms
      FROM main.outbox
     WHERE id IN (SELECT id
                    FROM main.outbox
                   WHERE state = 'dead' AND (?1 IS NULL OR destination = ?1)
                     AND id < ?10 AND id >= ?11
                   LIMIT 10000)
       AND (?2 IS NULL OR endpoint = ?2)
       AND (?3 IS NULL OR topic = ?3)
       AND (?4 IS NULL OR object_id = ?4)
       AND (?5 IS NULL OR state = ?5)
       AND (?6 IS NULL OR created_at_ms >= ?6)
       AND (?7 IS NULL OR created_at_ms < ?7)
       AND (?8 IS NULL OR instr(last_error, ?8) > 0)
       AND (?9 IS NULL OR event_id = ?9)
     ORDER BY id DESC
     LIMIT ?12";
