//! Figures of recent activity. The first row of a period is found by binary search, because ids rise with the order of
//! commits. From there a limited number of rows is read, never the whole table.

use rusqlite::{Connection, OptionalExtension};

/// The most rows read per period, the newest ones: with a body, each row is a page of the file.
pub const ROWS_MAX: u32 = 10_000;

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
    /// The share of further deliveries, in percent, as text.
    pub fn rate(&self) -> String {
        let deliveries = self.events.saturating_add(self.duplicates);
        format!("{} %", self.duplicates.saturating_mul(100) / deliveries.max(1))
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

/// Events received since, by type, the most frequent first.
///
/// # Errors
/// Any SQLite error.
pub fn by_type(conn: &Connection, since_ms: i64) -> rusqlite::Result<Vec<OfType>> {
    conn.prepare_cached(BY_TYPE)?
        .query_map((since_ms, ROWS_MAX, last_id_before(conn, since_ms)?), |row| {
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
    let before = last_id_before(conn, since_ms)?;
    let took = statement.query_map((since_ms, ROWS_MAX, before), |row| row.get(0))?;
    let mut took = took.collect::<rusqlite::Result<Vec<i64>>>()?;
    took.sort_unstable();
    let at = |percent: usize| took.get((took.len().saturating_sub(1)) * percent / 100).copied();
    Ok(at(50).zip(at(95)).zip(at(100)).map(|((p50_ms, p95_ms), max_ms)| Took { p50_ms, p95_ms, max_ms }))
}

/// Whether more events came since then than are read.
///
/// # Errors
/// Any SQLite error.
pub fn is_cut(conn: &Connection, since_ms: i64) -> rusqlite::Result<bool> {
    Ok(super::last_id(conn)? - last_id_before(conn, since_ms)? > i64::from(ROWS_MAX))
}

/// The latest event before a time, by binary search.
fn last_id_before(conn: &Connection, time_ms: i64) -> rusqlite::Result<i64> {
    let mut next = conn.prepare_cached(NEXT_AFTER)?;
    let (mut low, mut high) = (0, super::last_id(conn)?);
    while low < high {
        let middle = low + (high - low) / 2;
        let at_ms: Option<i64> = next.query_row([middle], |row| row.get(0)).optional()?;
        if at_ms.is_some_and(|at_ms| at_ms < time_ms) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

const NEXT_AFTER: &str = "
    SELECT received_at_ms FROM main.webhook_inbox WHERE id > ?1 ORDER BY id LIMIT 1";

/// The types of the newest events of an endpoint, each with the newest version of its format, where it names one.
///
/// # Errors
/// Any SQLite error.
pub fn types_of(conn: &Connection, endpoint: &str) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    conn.prepare_cached(TYPES_OF)?
        .query_map((endpoint, ROWS_MAX), |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

const TYPES_OF: &str = "
    SELECT coalesce(event_type, ''), max(api_version)
      FROM (SELECT event_type, api_version, endpoint
              FROM main.webhook_inbox
             ORDER BY id DESC
             LIMIT ?2)
     WHERE endpoint = ?1
     GROUP BY 1
     ORDER BY 1";

const BY_TYPE: &str = "
    SELECT coalesce(event_type, ''), count(*), sum(duplicates)
      FROM (SELECT event_type, duplicates, received_at_ms
              FROM main.webhook_inbox
             WHERE id > ?3
             ORDER BY id DESC
             LIMIT ?2)
     WHERE received_at_ms >= ?1
     GROUP BY 1
     ORDER BY 2 DESC, 1";

const TOOK: &str = "
    SELECT processed_at_ms - received_at_ms
      FROM (SELECT processed_at_ms, received_at_ms, state
              FROM main.webhook_inbox
             WHERE id > ?3
             ORDER BY id DESC
             LIMIT ?2)
     WHERE received_at_ms >= ?1 AND state = 'done'";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::open;

    #[test]
    fn the_beginning_of_a_time_is_found_whatever_rows_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open::open_writer(&dir.path().join("inboxd.db")).unwrap();
        assert_eq!(last_id_before(&conn, 5).unwrap(), 0);
        for id in 1..=100 {
            conn.execute(
                "INSERT INTO webhook_inbox (id, provider, endpoint, event_id, event_type, headers, body_sha256, state,
                                            available_at_ms, received_at_ms, processed_at_ms)
                 VALUES (?1, 'stripe', CASE WHEN ?1 < 40 THEN 'a' ELSE 'b' END, ?1, 't', '{}', zeroblob(32), 'done', 0,
                         ?1 * 10, ?1 * 10 + 1)",
                [id],
            )
            .unwrap();
        }
        conn.execute("DELETE FROM webhook_inbox WHERE id % 7 = 0", []).unwrap();
        for (time_ms, events) in [(0, 86), (10, 86), (11, 85), (490, 44), (500, 44), (1000, 1), (1001, 0)] {
            let counted: i64 = by_type(&conn, time_ms).unwrap().iter().map(|of| of.events).sum();
            let really = "SELECT count(*) FROM webhook_inbox WHERE received_at_ms >= ?1";
            let really: i64 = conn.query_row(really, [time_ms], |row| row.get(0)).unwrap();
            assert_eq!((counted, really), (events, events), "since {time_ms}");
        }
    }
}
