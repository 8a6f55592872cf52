//! What came in lately, in numbers. A bounded stretch of the latest rows is read, never the whole table.

use rusqlite::Connection;

/// Rows read at most.
const ROWS_MAX: u32 = 100_000;

/// The events of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfType {
    /// e.g. `invoice.paid`; empty where the provider names none.
    pub event_type: String,
    /// Events.
    pub events: i64,
    /// Further deliveries of them.
    pub duplicates: i64,
}

impl OfType {
    /// Further deliveries per hundred events, in words.
    pub fn rate(&self) -> String {
        format!("{} %", self.duplicates.saturating_mul(100) / self.events.max(1))
    }
}

/// How long events took from receipt to done, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Took {
    /// Half of them took no longer.
    pub p50_ms: i64,
    /// 95 of 100 took no longer.
    pub p95_ms: i64,
    /// The slowest.
    pub max_ms: i64,
}

/// When an endpoint was silent around a start of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The endpoint's name.
    pub endpoint: String,
    /// The latest event before the start.
    pub from_ms: i64,
    /// The first event after it; `None`: none yet.
    pub to_ms: Option<i64>,
}

/// Events received since, by type, the most frequent first.
///
/// # Errors
/// Any SQLite error.
pub fn by_type(conn: &Connection, since_ms: i64) -> rusqlite::Result<Vec<OfType>> {
    conn.prepare_cached(BY_TYPE)?
        .query_map((since_ms, ROWS_MAX), |row| {
            Ok(OfType { event_type: row.get(0)?, events: row.get(1)?, duplicates: row.get(2)? })
        })?
        .collect()
}

/// How long the events took that were received since and are done.
///
/// # Errors
/// Any SQLite error.
pub fn took(conn: &Connection, since_ms: i64) -> rusqlite::Result<Option<Took>> {
    let mut statement = conn.prepare_cached(TOOK)?;
    let took = statement.query_map((since_ms, ROWS_MAX), |row| row.get(0))?;
    let mut took = took.collect::<rusqlite::Result<Vec<i64>>>()?;
    took.sort_unstable();
    let at = |percent: usize| took.get((took.len().saturating_sub(1)) * percent / 100).copied();
    Ok(at(50).zip(at(95)).zip(at(100)).map(|((p50_ms, p95_ms), max_ms)| Took { p50_ms, p95_ms, max_ms }))
}

/// The silence of each endpoint around a start: what to ask the provider for after an outage.
///
/// # Errors
/// Any SQLite error.
pub fn gaps(conn: &Connection, start_ms: i64) -> rusqlite::Result<Vec<Gap>> {
    conn.prepare_cached(GAPS)?
        .query_map((start_ms, ROWS_MAX), |row| {
            Ok(Gap { endpoint: row.get(0)?, from_ms: row.get(1)?, to_ms: row.get(2)? })
        })?
        .collect()
}

const BY_TYPE: &str = "
    SELECT coalesce(event_type, ''), count(*), sum(duplicates)
      FROM (SELECT event_type, duplicates, received_at_ms
              FROM main.webhook_inbox
             ORDER BY id DESC
             LIMIT ?2)
     WHERE received_at_ms >= ?1
     GROUP BY 1
     ORDER BY 2 DESC, 1";

const TOOK: &str = "
    SELECT processed_at_ms - received_at_ms
      FROM (SELECT processed_at_ms, received_at_ms, state
              FROM main.webhook_inbox
             ORDER BY id DESC
             LIMIT ?2)
     WHERE received_at_ms >= ?1 AND state = 'done'";

const GAPS: &str = "
    SELECT endpoint,
           max(received_at_ms) FILTER (WHERE received_at_ms < ?1),
           min(received_at_ms) FILTER (WHERE received_at_ms >= ?1)
      FROM (SELECT endpoint, received_at_ms
              FROM main.webhook_inbox
             ORDER BY id DESC
             LIMIT ?2)
     GROUP BY endpoint
    HAVING max(received_at_ms) FILTER (WHERE received_at_ms < ?1) IS NOT NULL
     ORDER BY endpoint";
