//! The table `webhook_inbox`: one row per event and endpoint, the record that makes a redelivery harmless.
//!
//! This module never decides what an event means; it stores, finds and marks.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use crate::verify::VerifiedEvent;

pub mod browse;
pub mod conflicts;
pub mod failures;
pub mod queue;
pub mod recent;
pub mod tombstones;

/// The states of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Waits for work.
    Pending,
    /// Somebody works on it, under a lease.
    Processing,
    /// Its effects are committed.
    Done,
    /// Nobody's business here.
    Ignored,
    /// Waits for a person.
    Quarantined,
}

impl State {
    /// As stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Done => "done",
            Self::Ignored => "ignored",
            Self::Quarantined => "quarantined",
        }
    }

    fn is_processed(self) -> bool {
        match self {
            Self::Done | Self::Ignored => true,
            Self::Pending | Self::Processing | Self::Quarantined => false,
        }
    }
}

/// What the inbox remembers of an event that came before.
#[derive(Debug)]
pub struct Known {
    /// The row.
    pub id: i64,
    /// Whether it waits for a person.
    pub is_quarantined: bool,
    /// Of the first body.
    pub body_sha256: [u8; 32],
    /// The version of its shape.
    pub api_version: Option<String>,
    /// JSON of the headers kept with it.
    pub headers: String,
    /// The key.
    pub key: String,
}

/// Stores the event in `state` unless its key is known. Returns the new row's id, or `None` for a known key.
///
/// `key` is the event's id except where several events share one (constant test ids).
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn insert(
    tx: &Transaction<'_>,
    endpoint: &str,
    key: &str,
    event: &VerifiedEvent,
    state: State,
    now_ms: i64,
) -> rusqlite::Result<Option<i64>> {
    let inserted = tx.prepare_cached(INSERT)?.execute(rusqlite::params![
        event.provider(),
        endpoint,
        key,
        event.event_type(),
        event.object_id(),
        event.account(),
        event.livemode(),
        event.api_version(),
        event.kept_headers(),
        payload(event.body()),
        event.body_sha256(),
        event.replay_key(),
        state.as_str(),
        // what waits for a worker has not been attempted yet
        i64::from(state != State::Pending),
        now_ms,
        state.is_processed().then_some(now_ms),
        event.query(),
        event.fact_key(),
    ])?;
    if inserted == 0 {
        return Ok(None);
    }
    let id = tx.last_insert_rowid();
    if let Some(envelope) = event.envelope() {
        tx.prepare_cached(KEEP_ENVELOPE)?.execute((id, envelope.to_json()))?;
    }
    Ok(Some(id))
}

/// What is known of the event with this key.
///
/// # Errors
/// Any SQLite error.
pub fn known(
    conn: &Connection,
    provider: &str,
    endpoint: &str,
    key: &str,
) -> rusqlite::Result<Option<Known>> {
    conn.prepare_cached(KNOWN)?.query_row((provider, endpoint, key), as_known).optional()
}

/// Whether an event of this id is stored, on whichever endpoint.
///
/// # Errors
/// Any SQLite error.
pub fn is_held(conn: &Connection, event_id: &str) -> rusqlite::Result<bool> {
    conn.prepare_cached(IS_HELD)?.exists([event_id])
}

/// What is known of the events that another body under this key made, oldest first, at most a hundred.
///
/// # Errors
/// Any SQLite error.
pub fn known_beside(
    conn: &Connection,
    provider: &str,
    endpoint: &str,
    key: &str,
) -> rusqlite::Result<Vec<Known>> {
    conn.prepare_cached(KNOWN_BESIDE)?.query_map((provider, endpoint, key), as_known)?.collect()
}

/// What is known of the event with this fact key.
///
/// # Errors
/// Any SQLite error.
pub fn known_by_fact(
    conn: &Connection,
    provider: &str,
    endpoint: &str,
    fact_key: &[u8; 32],
) -> rusqlite::Result<Option<Known>> {
    conn.prepare_cached(KNOWN_BY_FACT)?.query_row((provider, endpoint, fact_key), as_known).optional()
}

fn as_known(row: &Row<'_>) -> rusqlite::Result<Known> {
    Ok(Known {
        id: row.get("id")?,
        is_quarantined: row.get("is_quarantined")?,
        body_sha256: row.get("body_sha256")?,
        api_version: row.get("api_version")?,
        headers: row.get("headers")?,
        key: row.get("event_id")?,
    })
}

/// Counts one more delivery of a known event.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn count_duplicate(tx: &Transaction<'_>, id: i64) -> rusqlite::Result<()> {
    tx.prepare_cached(COUNT_DUPLICATE)?.execute([id])?;
    Ok(())
}

/// The id of the first event on this endpoint with this replay key that was stored before row `before`.
///
/// # Errors
/// Any SQLite error.
pub fn first_with_replay_key(
    tx: &Transaction<'_>,
    endpoint: &str,
    replay_key: &[u8; 32],
    before: i64,
) -> rusqlite::Result<Option<String>> {
    tx.prepare_cached(FIRST_WITH_REPLAY_KEY)?
        .query_row((endpoint, replay_key, before), |row| row.get(0))
        .optional()
}

/// Counts row `id` on the first replay of the same event that is kept for a person already; whether there is one.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn count_kept_replay(tx: &Transaction<'_>, id: i64) -> rusqlite::Result<bool> {
    Ok(tx.prepare_cached(COUNT_KEPT_REPLAY)?.execute([id])? == 1)
}

/// Takes back a row of this very transaction, as if it had not been inserted.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn take_back(tx: &Transaction<'_>, id: i64) -> rusqlite::Result<()> {
    tx.prepare_cached(TAKE_BACK)?.execute([id])?;
    Ok(())
}

/// The stored bytes of an event; `None` once purged.
///
/// # Errors
/// Any SQLite error.
pub fn payload_of(conn: &Connection, id: i64) -> rusqlite::Result<Option<Vec<u8>>> {
    conn.prepare_cached(PAYLOAD_OF)?.query_row([id], |row| Ok(bytes_of(row.get(0)?)))
}

fn bytes_of(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::Text(text) => Some(text.into_bytes()),
        Value::Blob(bytes) => Some(bytes),
        Value::Null | Value::Integer(_) | Value::Real(_) => None,
    }
}

/// Marks a row that was inserted in another state, counting the attempt that led there.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn mark(
    tx: &Transaction<'_>,
    id: i64,
    state: State,
    last_error: Option<&str>,
    now_ms: i64,
) -> rusqlite::Result<()> {
    tx.prepare_cached(MARK)?.execute((
        id,
        state.as_str(),
        state.is_processed().then_some(now_ms),
        last_error,
    ))?;
    Ok(())
}

/// Counts a further attempt on a row.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn count_attempt(tx: &Transaction<'_>, id: i64) -> rusqlite::Result<()> {
    tx.prepare_cached(COUNT_ATTEMPT)?.execute([id])?;
    Ok(())
}

/// One event as people are shown it. Everything but the body.
#[derive(Debug, Clone)]
pub struct Event {
    /// The row; rises with the order of commits.
    pub id: i64,
    /// The preset's name, or `custom`.
    pub provider: String,
    /// The endpoint's name.
    pub endpoint: String,
    /// The provider's id.
    pub event_id: String,
    /// e.g. `invoice.paid`
    pub event_type: Option<String>,
    /// The business object it is about.
    pub object_id: Option<String>,
    /// The provider's account.
    pub account: Option<String>,
    /// Live or test.
    pub livemode: Option<bool>,
    /// The provider's version of its format.
    pub api_version: Option<String>,
    /// JSON of the kept headers.
    pub headers: String,
    /// The body's length; `None` once purged.
    pub payload_bytes: Option<i64>,
    /// See [`State`].
    pub state: String,
    /// Attempts at the work.
    pub attempts: i64,
    /// Of those, not the event's fault: the storage's, or excused by an operator's retry.
    pub attempts_excused: i64,
    /// Further deliveries of the same event.
    pub duplicates: i64,
    /// Why the latest attempt did not end well.
    pub last_error: Option<String>,
    /// Whose fault that was, see [`queue::ErrorClass`].
    pub error_class: Option<String>,
    /// While it is pending: not worked on before this time, in milliseconds since the epoch.
    pub available_at_ms: i64,
    /// When it was first received, in milliseconds since the epoch.
    pub received_at_ms: i64,
    /// When its effects were committed.
    pub processed_at_ms: Option<i64>,
    /// The delivery's query string without `?`.
    pub query: Option<String>,
}

/// Which events to list. What is `None` does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The endpoint's name.
    pub endpoint: Option<String>,
    /// The event's type.
    pub event_type: Option<String>,
    /// The business object.
    pub object_id: Option<String>,
    /// See [`State`].
    pub state: Option<String>,
    /// Received at this time or later.
    pub since_ms: Option<i64>,
    /// Received before this time.
    pub until_ms: Option<i64>,
    /// A part of the last error.
    pub error: Option<String>,
}

/// What the inbox holds, in numbers.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Rows by state, in the order of [`State`].
    pub by_state: Vec<(String, i64)>,
    /// When the oldest row was received that waits for work or a person.
    pub oldest_unprocessed_ms: Option<i64>,
    /// Per endpoint: name, events, further deliveries, and when the latest event came.
    pub endpoints: Vec<(String, i64, i64, i64)>,
}

/// Events that match, newest first, at most `limit`.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn list(conn: &Connection, filter: &Filter, limit: u32) -> rusqlite::Result<Vec<Event>> {
    let Filter { endpoint, event_type, object_id, state, since_ms, until_ms, error } = filter;
    conn.prepare_cached(LIST)?
        .query_map((endpoint, event_type, object_id, state, since_ms, until_ms, error, limit), event)?
        .collect()
}

/// Events that match and come after row `after_id`, oldest first, at most `limit`: a long list in stretches.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn list_after(
    conn: &Connection,
    filter: &Filter,
    after_id: i64,
    limit: u32,
) -> rusqlite::Result<Vec<Event>> {
    let Filter { endpoint, event_type, object_id, state, since_ms, until_ms, error } = filter;
    let wanted = (endpoint, event_type, object_id, state, since_ms, until_ms, error, after_id, limit);
    conn.prepare_cached(LIST_AFTER)?.query_map(wanted, event)?.collect()
}

/// How many events match, and when they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Events.
    pub count: i64,
    /// When the first of them was received, in milliseconds since the epoch.
    pub oldest_ms: i64,
    /// When the last of them was received.
    pub newest_ms: i64,
}

/// Events that match, by state.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn tally(conn: &Connection, filter: &Filter) -> rusqlite::Result<Vec<(String, Tally)>> {
    let Filter { endpoint, event_type, object_id, state, since_ms, until_ms, error } = filter;
    conn.prepare_cached(TALLY)?
        .query_map((endpoint, event_type, object_id, state, since_ms, until_ms, error), |row| {
            let tally = Tally { count: row.get(1)?, oldest_ms: row.get(2)?, newest_ms: row.get(3)? };
            Ok((row.get(0)?, tally))
        })?
        .collect()
}

/// Every event with this id, one per endpoint; `endpoint` narrows it down.
///
/// # Errors
/// Any SQLite error.
pub fn find(conn: &Connection, event_id: &str, endpoint: Option<&str>) -> rusqlite::Result<Vec<Event>> {
    conn.prepare_cached(FIND)?.query_map((event_id, endpoint), event)?.collect()
}

/// What the inbox holds.
///
/// # Errors
/// Any SQLite error.
pub fn summary(conn: &Connection) -> rusqlite::Result<Summary> {
    Ok(Summary {
        by_state: conn
            .prepare_cached(COUNT_BY_STATE)?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?,
        oldest_unprocessed_ms: conn.prepare_cached(OLDEST_UNPROCESSED)?.query_row([], |row| row.get(0))?,
        endpoints: conn
            .prepare_cached(COUNT_BY_ENDPOINT)?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
            .collect::<rusqlite::Result<_>>()?,
    })
}

/// Events of one endpoint whose latest attempt failed and that wait for the next: a worker's, or in proxy mode the
/// sender's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retrying {
    /// The endpoint's name.
    pub endpoint: String,
    /// How many, among the oldest 10,000 that wait.
    pub events: i64,
    /// When the latest of them was received, in milliseconds since the epoch.
    pub received_at_ms: i64,
    /// Its error.
    pub last_error: String,
}

/// What failed and is tried again, by endpoint.
///
/// # Errors
/// Any SQLite error.
pub fn retrying(conn: &Connection) -> rusqlite::Result<Vec<Retrying>> {
    let row = |row: &Row<'_>| {
        Ok(Retrying {
            endpoint: row.get(0)?,
            events: row.get(1)?,
            received_at_ms: row.get(2)?,
            last_error: row.get(3)?,
        })
    };
    conn.prepare_cached(RETRYING)?.query_map([], row)?.collect()
}

/// When the oldest event was received that waits for a worker, in milliseconds since the epoch.
///
/// # Errors
/// Any SQLite error.
pub fn oldest_waiting_ms(conn: &Connection) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(OLDEST_WAITING)?.query_row([], |row| row.get(0))
}

/// When this row was received, in milliseconds since the epoch.
///
/// # Errors
/// Any SQLite error.
pub fn received_at_ms(conn: &Connection, id: i64) -> rusqlite::Result<i64> {
    conn.prepare_cached(RECEIVED_AT)?.query_row([id], |row| row.get(0))
}

/// The number of the latest row: events stored since the file was made.
///
/// # Errors
/// Any SQLite error.
pub fn last_id(conn: &Connection) -> rusqlite::Result<i64> {
    conn.query_row(LAST_ID, [], |row| row.get(0))
}

/// The latest of the newest rows whose time is this far from `now_ms` or farther: it came by another clock.
///
/// # Errors
/// Any SQLite error.
pub fn last_id_far_from(conn: &Connection, now_ms: i64, apart_ms: i64) -> rusqlite::Result<i64> {
    conn.query_row(LAST_ID_FAR_FROM, (now_ms, apart_ms), |row| row.get(0))
}

fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    Ok(Event {
        id: row.get("id")?,
        provider: row.get("provider")?,
        endpoint: row.get("endpoint")?,
        event_id: row.get("event_id")?,
        event_type: row.get("event_type")?,
        object_id: row.get("object_id")?,
        account: row.get("account")?,
        livemode: row.get("livemode")?,
        api_version: row.get("api_version")?,
        headers: row.get("headers")?,
        payload_bytes: row.get("payload_bytes")?,
        state: row.get("state")?,
        attempts: row.get("attempts")?,
        attempts_excused: row.get("attempts_excused")?,
        duplicates: row.get("duplicates")?,
        last_error: row.get("last_error")?,
        error_class: row.get("error_class")?,
        available_at_ms: row.get("available_at_ms")?,
        received_at_ms: row.get("received_at_ms")?,
        processed_at_ms: row.get("processed_at_ms")?,
        query: row.get("query")?,
    })
}

/// TEXT where the bytes are valid UTF-8, so that `json_extract` works on them; BLOB otherwise.
fn payload(bytes: &[u8]) -> rusqlite::types::ToSqlOutput<'_> {
    use rusqlite::types::{ToSqlOutput, ValueRef};
    match std::str::from_utf8(bytes) {
        Ok(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        Err(_) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
    }
}

const INSERT: &str = "
    INSERT INTO main.webhook_inbox
           (provider, endpoint, event_id, event_type, object_id, account, livemode, api_version,
            headers, payload, body_sha256, replay_key,
            state, attempts, available_at_ms, received_at_ms, processed_at_ms, query, fact_key)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?15, ?16, ?17, ?18)
    ON CONFLICT (provider, endpoint, event_id) DO NOTHING";

// Only the events of batches have one.
const KEEP_ENVELOPE: &str = "
    UPDATE main.webhook_inbox SET envelope = ?2 WHERE id = ?1";

const IS_HELD: &str = "
    SELECT 1 FROM main.webhook_inbox WHERE event_id = ?1";

const KNOWN: &str = "
    SELECT id, event_id, state = 'quarantined' AS is_quarantined, body_sha256, api_version, headers
      FROM main.webhook_inbox
     WHERE provider = ?1 AND endpoint = ?2 AND event_id = ?3";

// ';' comes after ':'
const KNOWN_BESIDE: &str = "
    SELECT id, event_id, state = 'quarantined' AS is_quarantined, body_sha256, api_version, headers
      FROM main.webhook_inbox
     WHERE event_id > ?3 || ':body-sha256:' AND event_id < ?3 || ':body-sha256;'
       AND endpoint = ?2 AND provider = ?1
     ORDER BY id
     LIMIT 100";

const KNOWN_BY_FACT: &str = "
    SELECT id, event_id, state = 'quarantined' AS is_quarantined, body_sha256, api_version, headers
      FROM main.webhook_inbox
     WHERE endpoint = ?2 AND fact_key = ?3 AND provider = ?1
     ORDER BY id
     LIMIT 1";

const COUNT_DUPLICATE: &str = "
    UPDATE main.webhook_inbox SET duplicates = duplicates + 1 WHERE id = ?1";

const FIRST_WITH_REPLAY_KEY: &str = "
    SELECT event_id
      FROM main.webhook_inbox
     WHERE endpoint = ?1 AND replay_key = ?2 AND id < ?3
     ORDER BY id
     LIMIT 1";

/// The very first of them is the event itself; what a person has put to work is no open question any more.
const COUNT_KEPT_REPLAY: &str = "
    UPDATE main.webhook_inbox
       SET duplicates = duplicates + 1
     WHERE id = (SELECT kept.id
                   FROM main.webhook_inbox AS new, main.webhook_inbox AS kept
                  WHERE new.id = ?1
                    AND kept.endpoint = new.endpoint AND kept.replay_key = new.replay_key AND kept.id < new.id
                    AND kept.state IN ('quarantined', 'ignored')
                    AND EXISTS (SELECT 1 FROM main.webhook_inbox AS first
                                 WHERE first.endpoint = new.endpoint AND first.replay_key = new.replay_key
                                   AND first.id < kept.id)
                  ORDER BY kept.id
                  LIMIT 1)";

const TAKE_BACK: &str = "
    DELETE FROM main.webhook_inbox WHERE id = ?1";

const PAYLOAD_OF: &str = "
    SELECT payload FROM main.webhook_inbox WHERE id = ?1";

const MARK: &str = "
    UPDATE main.webhook_inbox
       SET state = ?2, processed_at_ms = ?3, last_error = ?4
     WHERE id = ?1";

const COUNT_ATTEMPT: &str = "
    UPDATE main.webhook_inbox
       SET attempts = attempts + 1
     WHERE id = ?1";

const LIST: &str = "
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
     ORDER BY id DESC
     LIMIT ?8";

const LIST_AFTER: &str = "
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
       AND id > ?8
     ORDER BY id
     LIMIT ?9";

const TALLY: &str = "
    SELECT state, count(*), min(received_at_ms), max(received_at_ms)
      FROM main.webhook_inbox
     WHERE (?1 IS NULL OR endpoint = ?1)
       AND (?2 IS NULL OR event_type = ?2)
       AND (?3 IS NULL OR object_id = ?3)
       AND (?4 IS NULL OR state = ?4)
       AND (?5 IS NULL OR received_at_ms >= ?5)
       AND (?6 IS NULL OR received_at_ms < ?6)
       AND (?7 IS NULL OR instr(last_error, ?7) > 0)
     GROUP BY state";

const FIND: &str = "
    SELECT id, provider, endpoint, event_id, event_type, object_id, account, livemode, api_version, headers,
           octet_length(payload) AS payload_bytes, state, attempts, attempts_excused, duplicates, last_error,
           error_class, available_at_ms, received_at_ms, processed_at_ms, query
      FROM main.webhook_inbox
     WHERE event_id = ?1 AND (?2 IS NULL OR endpoint = ?2)
     ORDER BY id";

const COUNT_BY_STATE: &str = "
    SELECT state, sum(events)
      FROM main.webhook_counts
     GROUP BY state
     ORDER BY state";

const COUNT_BY_ENDPOINT: &str = "
    SELECT endpoint, sum(events), sum(duplicates), max(last_received_at_ms)
      FROM main.webhook_counts
     GROUP BY endpoint
     ORDER BY endpoint";

const OLDEST_UNPROCESSED: &str = "
    SELECT min((SELECT min(received_at_ms)
                  FROM main.webhook_inbox
                 WHERE processed_at_ms IS NULL AND state = waits.column1))
      FROM (VALUES ('pending'), ('processing'), ('quarantined')) AS waits";

const LAST_ID: &str = "
    SELECT coalesce(max(id), 0) FROM main.webhook_inbox";

const LAST_ID_FAR_FROM: &str = "
    SELECT coalesce(max(id), 0)
      FROM (SELECT id, received_at_ms
              FROM main.webhook_inbox
             ORDER BY id DESC
             LIMIT 100000)
     WHERE abs(received_at_ms - ?1) >= ?2";

const RECEIVED_AT: &str = "
    SELECT received_at_ms FROM main.webhook_inbox WHERE id = ?1";

// What is parked waits for something else.
const OLDEST_WAITING: &str = "
    SELECT min((SELECT received_at_ms
                  FROM main.webhook_inbox
                 WHERE processed_at_ms IS NULL AND state = waits.column1 AND error_class IS NOT 'parked'
                 ORDER BY received_at_ms
                 LIMIT 1))
      FROM (VALUES ('pending'), ('processing')) AS waits";

const RETRYING: &str = "
    SELECT endpoint, count(*), max(received_at_ms), last_error
      FROM (SELECT endpoint, received_at_ms, last_error, error_class
              FROM main.webhook_inbox
             WHERE processed_at_ms IS NULL AND state = 'pending'
             ORDER BY received_at_ms
             LIMIT 10000)
     WHERE (error_class = 'handler' OR error_class = 'timeout') AND last_error IS NOT NULL
     GROUP BY endpoint";
