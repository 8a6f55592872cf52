//! The inbox as a person looks through it: a page at a time, and never further than a bounded number of rows.

use rusqlite::{Connection, OptionalExtension};

use super::{Event, Filter, event};

/// Rows that one look reads at least, where it finds less than was asked for.
pub const ROWS_LOOKED_AT: i64 = 5_000;

/// Counts beyond this are not made: "10,000+".
pub const COUNTED_MAX: i64 = 10_000;

/// A part of a list.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// Newest first.
    pub rows: Vec<T>,
    /// The row before which the next look begins. `None`: there is nothing further back.
    pub next: Option<i64>,
    /// Whether the look ended before the page was full, because it had read its rows.
    pub is_cut: bool,
}

/// Whether events of this state wait for work or a person, so that an index finds them.
pub fn is_waiting(state: Option<&str>) -> bool {
    matches!(state, Some("pending" | "processing" | "quarantined"))
}

/// Events that match and came before row `before`, newest first. Where the filter names a state in which events wait,
/// all of those are looked at; else the `rows_max` rows before `before`.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn page(
    conn: &Connection,
    filter: &Filter,
    before: Option<i64>,
    limit: u32,
    rows_max: i64,
) -> rusqlite::Result<Page<Event>> {
    let Filter { endpoint, event_type, object_id, state, since_ms, until_ms, error } = filter;
    let wanted = limit.saturating_add(1);
    let (mut rows, floor) = if is_waiting(state.as_deref()) {
        let cursor: Option<(i64, i64)> = before.map(|id| place(conn, id)).transpose()?.flatten();
        let (before_ms, before) = cursor.unwrap_or((i64::MAX, i64::MAX));
        let values =
            (endpoint, event_type, object_id, state, since_ms, until_ms, error, before_ms, before, wanted);
        let rows = conn.prepare_cached(WAITING)?.query_map(values, event)?.collect::<Result<Vec<_>, _>>()?;
        (rows, 0)
    } else {
        let before = before.unwrap_or(super::last_id(conn)?.saturating_add(1));
        let floor = before.saturating_sub(rows_max);
        let values =
            (endpoint, event_type, object_id, state, since_ms, until_ms, error, before, floor, wanted);
        let rows = conn.prepare_cached(LATEST)?.query_map(values, event)?.collect::<Result<Vec<_>, _>>()?;
        (rows, floor)
    };
    let is_full = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next = match rows.last() {
        Some(last) if is_full => Some(last.id),
        _ => (floor > 1).then_some(floor),
    };
    Ok(Page { rows, next, is_cut: !is_full && floor > 1 })
}

/// When a row was received, and its number.
fn place(conn: &Connection, id: i64) -> rusqlite::Result<Option<(i64, i64)>> {
    conn.prepare_cached(PLACE)?.query_row([id], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// Events that wait in the state that the filter names, and match, behind a place (when it was received, and its row),
/// oldest first, at most `limit`.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn waiting_after(
    conn: &Connection,
    filter: &Filter,
    (after_ms, after_id): (i64, i64),
    limit: u32,
) -> rusqlite::Result<Vec<Event>> {
    let Filter { endpoint, event_type, object_id, state, since_ms, until_ms, error } = filter;
    let values =
        (endpoint, event_type, object_id, state, since_ms, until_ms, error, after_ms, after_id, limit);
    conn.prepare_cached(WAITING_AFTER)?.query_map(values, event)?.collect()
}

/// What a filter chooses of the events that wait, by type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The event's type; empty where it has none.
    pub event_type: String,
    /// How many, of the first [`COUNTED_MAX`].
    pub count: i64,
    /// When the first of them was received, in milliseconds since the epoch.
    pub oldest_ms: i64,
    /// When the last of them was received.
    pub newest_ms: i64,
}

/// What a filter chooses of the events that wait in the state that it names, by type, the most frequent first.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn chosen(conn: &Connection, filter: &Filter) -> rusqlite::Result<Vec<Chosen>> {
    let Filter { endpoint, event_type, object_id, state, since_ms, until_ms, error } = filter;
    let values = (endpoint, event_type, object_id, state, since_ms, until_ms, error, COUNTED_MAX + 1);
    conn.prepare_cached(CHOSEN)?
        .query_map(values, |row| {
            let (oldest_ms, newest_ms) = (row.get(2)?, row.get(3)?);
            Ok(Chosen { event_type: row.get(0)?, count: row.get(1)?, oldest_ms, newest_ms })
        })?
        .collect()
}

/// The events about one object among the latest rows, oldest first, at most a hundred.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn of_object(
    conn: &Connection,
    endpoint: &str,
    object_id: &str,
    around: i64,
) -> rusqlite::Result<Vec<Event>> {
    let (from, to) = (around.saturating_sub(ROWS_LOOKED_AT), around.saturating_add(ROWS_LOOKED_AT));
    conn.prepare_cached(OF_OBJECT)?.query_map((endpoint, object_id, from, to), event)?.collect()
}

/// How many events an endpoint has in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// The endpoint's name.
    pub endpoint: String,
    /// See [`State`](super::State).
    pub state: String,
    /// Events.
    pub events: i64,
    /// Further deliveries of them.
    pub duplicates: i64,
    /// When the latest event came that is in this state, in milliseconds since the epoch.
    pub last_received_at_ms: i64,
}

/// All that is counted, by endpoint and state.
///
/// # Errors
/// Any SQLite error.
pub fn counts(conn: &Connection) -> rusqlite::Result<Vec<Count>> {
    conn.prepare_cached(COUNTS)?
        .query_map([], |row| {
            Ok(Count {
                endpoint: row.get(0)?,
                state: row.get(1)?,
                events: row.get(2)?,
                duplicates: row.get(3)?,
                last_received_at_ms: row.get(4)?,
            })
        })?
        .collect()
}

/// When the event that has waited longest for work or a person was received, in milliseconds since the epoch.
///
/// # Errors
/// Any SQLite error.
pub fn oldest_unprocessed_ms(conn: &Connection) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(super::OLDEST_UNPROCESSED)?.query_row([], |row| row.get(0))
}

/// The event that has waited longest for work or a person.
///
/// # Errors
/// Any SQLite error.
pub fn oldest_unprocessed(conn: &Connection) -> rusqlite::Result<Option<Event>> {
    conn.prepare_cached(OLDEST)?.query_row([], event).optional()
}

const LATEST: &str = "
    SELECT id, provider, endpoint, event_id, event_type, object_id, account, livemode, api_version, headers,
           octet_length(payload) AS payload_bytes, state, attempts, attempts_excused, duplicates, last_error,
           error_class, available_at_ms, received_at_ms, processed_at_ms, query
      FROM main.webhook_inbox
     WHERE (?1 IS NULL OR endpoint = ?1)
       AND (?2 IS NULL OR event_type = ?2)
       AND (?3 IS NULL OR object_id = ?3)
       AND (?4 IS NULL OR state = ?4)
       AND (?5 IS NULL OR received_at_ms >= ?5)
       AND (?6 IS NULL OR received_at_ms < ?6)
       AND (?7 IS NULL OR instr(last_error, ?7) > 0)
       AND id < ?8 AND id >= ?9
     ORDER BY id DESC
     LIMIT ?10";

const WAITING: &str = "
    SELECT id, provider, endpoint, event_id, event_type, object_id, account, livemode, api_version, headers,
           octet_length(payload) AS payload_bytes, state, attempts, attempts_excused, duplicates, last_error,
           error_class, available_at_ms, received_at_ms, processed_at_ms, query
      FROM main.webhook_inbox
     WHERE processed_at_ms IS NULL AND state = ?4
       AND received_at_ms <= ?8 AND (received_at_ms < ?8 OR id < ?9)
       AND (?1 IS NULL OR endpoint = ?1)
       AND (?2 IS NULL OR event_type = ?2)
       AND (?3 IS NULL OR object_id = ?3)
       AND (?5 IS NULL OR received_at_ms >= ?5)
       AND (?6 IS NULL OR received_at_ms < ?6)
       AND (?7 IS NULL OR instr(last_error, ?7) > 0)
     ORDER BY received_at_ms DESC, id DESC
     LIMIT ?10";

const WAITING_AFTER: &str = "
    SELECT id, provider, endpoint, event_id, event_type, object_id, account, livemode, api_version, headers,
           octet_length(payload) AS payload_bytes, state, attempts, attempts_excused, duplicates, last_error,
           error_class, available_at_ms, received_at_ms, processed_at_ms, query
      FROM main.webhook_inbox
     WHERE processed_at_ms IS NULL AND state = ?4
       AND received_at_ms >= ?8 AND (received_at_ms > ?8 OR id > ?9)
       AND (?1 IS NULL OR endpoint = ?1)
       AND (?2 IS NULL OR event_type = ?2)
       AND (?3 IS NULL OR object_id = ?3)
       AND (?5 IS NULL OR received_at_ms >= ?5)
       AND (?6 IS NULL OR received_at_ms < ?6)
       AND (?7 IS NULL OR instr(last_error, ?7) > 0)
     ORDER BY received_at_ms, id
     LIMIT ?10";

const CHOSEN: &str = "
    SELECT coalesce(event_type, ''), count(*), min(received_at_ms), max(received_at_ms)
      FROM (SELECT event_type, received_at_ms
              FROM main.webhook_inbox
             WHERE processed_at_ms IS NULL AND state = ?4
               AND (?1 IS NULL OR endpoint = ?1)
               AND (?2 IS NULL OR event_type = ?2)
               AND (?3 IS NULL OR object_id = ?3)
               AND (?5 IS NULL OR received_at_ms >= ?5)
               AND (?6 IS NULL OR received_at_ms < ?6)
               AND (?7 IS NULL OR instr(last_error, ?7) > 0)
             ORDER BY received_at_ms
             LIMIT ?8)
     GROUP BY 1
     ORDER BY 2 DESC, 1
     LIMIT 50";

const PLACE: &str = "
    SELECT received_at_ms, id FROM main.webhook_inbox WHERE id = ?1";

const OF_OBJECT: &str = "
    SELECT id, provider, endpoint, event_id, event_type, object_id, account, livemode, api_version, headers,
           octet_length(payload) AS payload_bytes, state, attempts, attempts_excused, duplicates, last_error,
           error_class, available_at_ms, received_at_ms, processed_at_ms, query
      FROM main.webhook_inbox
     WHERE id >= ?3 AND id <= ?4 AND object_id = ?2 AND endpoint = ?1
     ORDER BY id
     LIMIT 100";

const COUNTS: &str = "
    SELECT endpoint, state, events, duplicates, last_received_at_ms
      FROM main.webhook_counts
     ORDER BY endpoint, state";

const OLDEST: &str = "
    SELECT id, provider, endpoint, event_id, event_type, object_id, account, livemode, api_version, headers,
           octet_length(payload) AS payload_bytes, state, attempts, attempts_excused, duplicates, last_error,
           error_class, available_at_ms, received_at_ms, processed_at_ms, query
      FROM main.webhook_inbox
     WHERE id = (SELECT id
                   FROM (SELECT (SELECT id
                                   FROM main.webhook_inbox
                                  WHERE processed_at_ms IS NULL AND state = waits.column1
                                  ORDER BY received_at_ms
                                  LIMIT 1) AS id
                           FROM (VALUES ('pending'), ('processing'), ('quarantined')) AS waits)
                  WHERE id IS NOT NULL
                  ORDER BY id
                  LIMIT 1)";
