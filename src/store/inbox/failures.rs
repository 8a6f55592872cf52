//! The table `webhook_failures`: genuine deliveries whose work failed. Nothing else of them is stored, because the
//! provider sends them again.
//!
//! A row is written in the commit that undoes the work, and removed by the commit that stores the event after all. It
//! never contains a body, and the table has a limit.

use rusqlite::{Connection, OptionalExtension, Transaction};

/// The most rows; the latest are kept.
const ROWS_MAX: i64 = 10_000;

/// Rows removed at once above the limit, so that the whole table is not searched for each new row.
const ROWS_REMOVED: i64 = 1_000;

/// The most bytes of an error's text.
const ERROR_BYTES_MAX: usize = 1024;

/// The most rows taken out at once.
const GIVEN_UP_MAX: i64 = 100;

/// A delivery whose work failed.
#[derive(Debug, Clone, Copy)]
pub struct Failed<'a> {
    /// The endpoint's name.
    pub endpoint: &'a str,
    /// e.g. `invoice.paid`
    pub event_type: Option<&'a str>,
    /// The provider's id.
    pub event_id: &'a str,
    /// Why, in one sentence.
    pub error: &'a str,
}

/// Notes a failure, or counts one more of the same event.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn note(tx: &Transaction<'_>, failed: &Failed<'_>, now_ms: i64) -> rusqlite::Result<()> {
    let Failed { endpoint, event_type, event_id, error } = failed;
    let error = if error.is_empty() { "failed" } else { shortened(error) };
    let count: i64 = tx
        .prepare_cached(NOTE)?
        .query_row((endpoint, event_type, event_id, error, now_ms), |row| row.get(0))?;
    if count == 1 && tx.prepare_cached(COUNT)?.query_row([], |row| row.get::<_, i64>(0))? > ROWS_MAX {
        tx.prepare_cached(REMOVE_OLDEST)?.execute([ROWS_REMOVED])?;
    }
    Ok(())
}

/// Forgets the failures of an event that is stored now. Returns whether there were any.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn forget(tx: &Transaction<'_>, endpoint: &str, event_id: &str) -> rusqlite::Result<bool> {
    Ok(tx.prepare_cached(FORGET)?.execute((endpoint, event_id))? == 1)
}

/// One event that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingEvent {
    /// The endpoint's name.
    pub endpoint: String,
    /// e.g. `invoice.paid`
    pub event_type: Option<String>,
    /// The provider's id.
    pub event_id: String,
    /// The error of the latest delivery.
    pub error: String,
    /// Deliveries that failed.
    pub count: i64,
    /// When the first of them came, in milliseconds since the epoch.
    pub first_at_ms: i64,
    /// When the latest came.
    pub last_at_ms: i64,
}

/// Removes and returns the events of an endpoint that first failed before `before_ms`, at most a hundred.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn take_given_up(
    tx: &Transaction<'_>,
    endpoint: &str,
    before_ms: i64,
) -> rusqlite::Result<Vec<FailingEvent>> {
    let mut statement = tx.prepare_cached(GIVEN_UP)?;
    let given_up = statement.query_map((endpoint, before_ms, GIVEN_UP_MAX), failing_event)?;
    let given_up = given_up.collect::<rusqlite::Result<Vec<_>>>()?;
    for event in &given_up {
        forget(tx, &event.endpoint, &event.event_id)?;
    }
    Ok(given_up)
}

/// The failing event with this id, the latest if several endpoints have one.
///
/// # Errors
/// Any SQLite error.
pub fn find(conn: &Connection, event_id: &str) -> rusqlite::Result<Option<FailingEvent>> {
    conn.prepare_cached(FIND)?.query_row([event_id], failing_event).optional()
}

/// The endpoints that have failing events.
///
/// # Errors
/// Any SQLite error.
pub fn endpoints(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    conn.prepare_cached(ENDPOINTS)?.query_map([], |row| row.get(0))?.collect()
}

/// How many events of each endpoint fail.
///
/// # Errors
/// Any SQLite error.
pub fn by_endpoint(conn: &Connection) -> rusqlite::Result<Vec<(String, i64)>> {
    conn.prepare_cached(BY_ENDPOINT)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// The failing events of one endpoint and type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingType {
    /// The endpoint's name.
    pub endpoint: String,
    /// e.g. `invoice.paid`
    pub event_type: Option<String>,
    /// How many events.
    pub events: i64,
    /// Deliveries of them that failed.
    pub deliveries: i64,
    /// The error of the latest delivery.
    pub error: String,
    /// When the first of them came, in milliseconds since the epoch.
    pub first_at_ms: i64,
    /// When the latest came.
    pub last_at_ms: i64,
}

/// The failing events by endpoint and type, the latest first, at most fifty.
///
/// # Errors
/// Any SQLite error.
pub fn by_type(conn: &Connection) -> rusqlite::Result<Vec<FailingType>> {
    let row = |row: &rusqlite::Row<'_>| {
        Ok(FailingType {
            endpoint: row.get(0)?,
            event_type: row.get(1)?,
            events: row.get(2)?,
            deliveries: row.get(3)?,
            first_at_ms: row.get(4)?,
            last_at_ms: row.get(5)?,
            error: row.get(6)?,
        })
    };
    conn.prepare_cached(BY_TYPE)?.query_map([], row)?.collect()
}

/// The failing events that match, the latest first, at most `limit`. Times are compared with the first failure.
///
/// # Errors
/// Any SQLite error.
pub fn list(conn: &Connection, filter: &super::Filter, limit: u32) -> rusqlite::Result<Vec<FailingEvent>> {
    let super::Filter { endpoint, event_type, since_ms, until_ms, error, .. } = filter;
    conn.prepare_cached(LIST)?
        .query_map((endpoint, event_type, since_ms, until_ms, error, limit), failing_event)?
        .collect()
}

/// How many events fail, and when the first of them did for the first time.
///
/// # Errors
/// Any SQLite error.
pub fn standing(conn: &Connection) -> rusqlite::Result<(i64, Option<i64>)> {
    conn.prepare_cached(STANDING)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
}

fn failing_event(row: &rusqlite::Row<'_>) -> rusqlite::Result<FailingEvent> {
    Ok(FailingEvent {
        endpoint: row.get(0)?,
        event_type: row.get(1)?,
        event_id: row.get(2)?,
        error: row.get(3)?,
        count: row.get(4)?,
        first_at_ms: row.get(5)?,
        last_at_ms: row.get(6)?,
    })
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_BYTES_MAX)]
}

const NOTE: &str = "
    INSERT INTO main.webhook_failures (endpoint, event_type, event_id, error, count, first_at_ms, last_at_ms)
    VALUES (?1, ?2, ?3, ?4, 1, ?5, ?5)
    ON CONFLICT (endpoint, event_id) DO UPDATE
       SET event_type = ?2, error = ?4, count = count + 1, last_at_ms = ?5
    RETURNING count";

const COUNT: &str = "
    SELECT count(*) FROM main.webhook_failures";

const REMOVE_OLDEST: &str = "
    DELETE FROM main.webhook_failures
     WHERE (endpoint, event_id) IN (SELECT endpoint, event_id
                                      FROM main.webhook_failures
                                     ORDER BY last_at_ms
                                     LIMIT ?1)";

const FORGET: &str = "
    DELETE FROM main.webhook_failures WHERE endpoint = ?1 AND event_id = ?2";

const GIVEN_UP: &str = "
    SELECT endpoint, event_type, event_id, error, count, first_at_ms, last_at_ms
      FROM main.webhook_failures
     WHERE endpoint = ?1 AND first_at_ms <= ?2
     LIMIT ?3";

const ENDPOINTS: &str = "
    SELECT DISTINCT endpoint FROM main.webhook_failures";

const BY_ENDPOINT: &str = "
    SELECT endpoint, count(*) FROM main.webhook_failures GROUP BY endpoint";

const BY_TYPE: &str = "
    SELECT endpoint, event_type, count(*), sum(count), min(first_at_ms), max(last_at_ms),
           (SELECT error
              FROM main.webhook_failures AS latest
             WHERE latest.endpoint = failing.endpoint AND latest.event_type IS failing.event_type
             ORDER BY last_at_ms DESC
             LIMIT 1)
      FROM main.webhook_failures AS failing
     GROUP BY endpoint, event_type
     ORDER BY 6 DESC
     LIMIT 50";

// Scans the table: the key begins with the endpoint, and the table is short.
const FIND: &str = "
    SELECT endpoint, event_type, event_id, error, count, first_at_ms, last_at_ms
      FROM main.webhook_failures
     WHERE event_id = ?1
     ORDER BY last_at_ms DESC
     LIMIT 1";

const LIST: &str = "
    SELECT endpoint, event_type, event_id, error, count, first_at_ms, last_at_ms
      FROM main.webhook_failures
     WHERE (?1 IS NULL OR endpoint = ?1)
       AND (?2 IS NULL OR event_type = ?2)
       AND (?3 IS NULL OR last_at_ms >= ?3)
       AND (?4 IS NULL OR first_at_ms < ?4)
       AND (?5 IS NULL OR instr(error, ?5) > 0)
     ORDER BY last_at_ms DESC
     LIMIT ?6";

const STANDING: &str = "
    SELECT count(*), min(first_at_ms) FROM main.webhook_failures";
