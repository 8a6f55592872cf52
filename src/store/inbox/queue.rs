//! The inbox as a queue: claim, settle, requeue.
//!
//! A claim counts the attempt and is committed before the work starts, so an event that kills the process
//! still runs out of attempts. Every settling statement checks the lease: a worker that lost its lease changes nothing.
//! The rules hold for several processes on one file.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, Transaction};

use super::State;
use crate::signature::Envelope;

/// The cause of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The handler returned an error.
    Handler,
    /// The handler ran too long.
    Timeout,
    /// The storage failed: the attempt is excused.
    Storage,
    /// Something that the event needs does not exist yet: the attempt is excused.
    Parked,
    /// Unknown: the process died, or was stopped for longer than the lease.
    Lost,
    /// The event's content: it cannot be applied.
    Content,
}

impl ErrorClass {
    /// As stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Handler => "handler",
            Self::Timeout => "timeout",
            Self::Storage => "storage",
            Self::Parked => "parked",
            Self::Lost => "lost",
            Self::Content => "content",
        }
    }
}

/// A row that one worker holds until its lease ends.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The row.
    pub id: i64,
    /// Proves who holds it.
    pub lease_id: String,
    /// The attempt that this claim counted, 1 for the first.
    pub attempt: i64,
    /// Attempts that count against the limit, this one included.
    pub attempts_charged: i64,
    /// The preset's name, or `custom`.
    pub provider: String,
    /// The endpoint's name.
    pub endpoint: String,
    /// The key.
    pub event_id: String,
    /// e.g. `invoice.paid`
    pub event_type: Option<String>,
    /// The business object.
    pub object_id: Option<String>,
    /// The provider's account.
    pub account: Option<String>,
    /// Live or test.
    pub livemode: Option<bool>,
    /// JSON of the kept headers.
    pub headers: String,
    /// The delivery's query string without `?`.
    pub query: Option<String>,
    /// The exact bytes.
    pub payload: Vec<u8>,
    /// The body's text around it in a batch.
    pub envelope: Option<Envelope>,
    /// When it was received, in milliseconds since the epoch.
    pub received_at_ms: i64,
}

/// A row that has used up its attempts and now waits for a person.
#[derive(Debug, Clone)]
pub struct Exhausted {
    /// The endpoint's name.
    pub endpoint: String,
    /// The key.
    pub event_id: String,
    /// The reason for the review.
    pub reason: String,
}

/// The result of a claim.
#[derive(Debug, Default)]
pub struct Claims {
    /// The claimed rows, the one that has been due for longest first.
    pub work: Vec<Claimed>,
    /// The rows that were quarantined instead.
    pub exhausted: Vec<Exhausted>,
}

impl Claims {
    /// Whether nothing was due.
    pub fn is_empty(&self) -> bool {
        self.work.is_empty() && self.exhausted.is_empty()
    }
}

/// The terms of a claim.
#[derive(Debug, Clone, Copy)]
pub struct ClaimTerms<'a> {
    /// The endpoints whose handlers are here.
    pub endpoints: &'a [String],
    /// Unique for this call; each row's lease appends its index.
    pub lease_id: &'a str,
    /// How long the rows are held, in milliseconds.
    pub lease_ms: i64,
    /// The most attempts of an event.
    pub attempts_max: i64,
    /// Rows claimed at most.
    pub rows_max: u32,
    /// `true`: only rows whose attempt never ended; `false`: only pending rows.
    pub takeover: bool,
    /// The time of this step.
    pub now_ms: i64,
}

/// The most bytes of all bodies of one claim; a larger single body is claimed alone.
const CLAIM_BYTES_MAX: i64 = 4 << 20;

/// A row that may be claimed.
#[derive(Debug)]
struct Due {
    available_at_ms: i64,
    id: i64,
    attempts_charged: i64,
    payload_bytes: i64,
}

/// Claims the rows that have been due for longest, each with a lease and a counted attempt of its own.
///
/// # Errors
/// Any SQLite error; nothing was claimed then.
pub fn claim_due(tx: &Transaction<'_>, terms: &ClaimTerms<'_>) -> rusqlite::Result<Claims> {
    let mut claims = Claims::default();
    for due in due(tx, terms)? {
        if terms.takeover {
            tx.prepare_cached(CLOSE_LOST_ATTEMPT)?.execute((due.id, terms.now_ms))?;
        }
        if due.attempts_charged >= terms.attempts_max {
            claims.exhausted.push(exhaust(tx, &due, terms.takeover)?);
            continue;
        }
        let lease_id = format!("{}.{}", terms.lease_id, claims.work.len());
        let claimed = take(tx, due.id, &lease_id, (terms.now_ms, terms.lease_ms))?;
        claims.work.push(claimed);
    }
    Ok(claims)
}

/// The rows to claim. The index finds each endpoint's rows, so the backlog of other endpoints is not read.
fn due(tx: &Transaction<'_>, terms: &ClaimTerms<'_>) -> rusqlite::Result<Vec<Due>> {
    let state = if terms.takeover { State::Processing } else { State::Pending };
    let mut found = Vec::new();
    let mut statement = tx.prepare_cached(DUE)?;
    for endpoint in terms.endpoints {
        let rows = statement.query_map((endpoint, state.as_str(), terms.now_ms, terms.rows_max), |row| {
            Ok(Due {
                available_at_ms: row.get(0)?,
                id: row.get(1)?,
                attempts_charged: row.get(2)?,
                payload_bytes: row.get::<_, Option<i64>>(3)?.unwrap_or_default(),
            })
        })?;
        for row in rows {
            found.push(row?);
        }
    }
    found.sort_unstable_by_key(|due| (due.available_at_ms, due.id));
    let mut bytes = 0;
    let fits = |due: &Due| {
        let is_first = bytes == 0;
        bytes += due.payload_bytes.max(1);
        is_first || bytes <= CLAIM_BYTES_MAX
    };
    Ok(found.into_iter().take(terms.rows_max as usize).take_while(fits).collect())
}

fn take(
    tx: &Transaction<'_>,
    id: i64,
    lease_id: &str,
    (now_ms, lease_ms): (i64, i64),
) -> rusqlite::Result<Claimed> {
    let until_ms = now_ms.saturating_add(lease_ms);
    let claimed = tx.prepare_cached(CLAIM)?.query_row((id, lease_id, until_ms), claimed)?;
    tx.prepare_cached(OPEN_ATTEMPT)?.execute((id, claimed.attempt, now_ms))?;
    Ok(claimed)
}

/// The result of claiming one row.
#[derive(Debug)]
pub enum OneClaim {
    /// The row is claimed.
    Work(Box<Claimed>),
    /// Another worker has it, at most until this time.
    HeldUntil(i64),
    /// It needs no work, or a person.
    Settled,
}

/// Claims this row, due or not, unless it is leased: for work that a sender waits for. `held_ms` is how much longer
/// this very process holds it, if it does.
///
/// # Errors
/// Any SQLite error; nothing was claimed then.
pub fn claim_one(
    tx: &Transaction<'_>,
    id: i64,
    (lease_id, lease_ms): (&str, i64),
    held_ms: Option<i64>,
    now_ms: i64,
) -> rusqlite::Result<OneClaim> {
    let (state, available_at_ms): (String, i64) =
        tx.prepare_cached(STATE_OF)?.query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let was_processing = match state.as_str() {
        "pending" => false,
        "processing" if let Some(left_ms) = held_ms => {
            return Ok(OneClaim::HeldUntil(now_ms.saturating_add(left_ms)));
        }
        // a lease that ends later than any lease of ours was made before the clock was set back
        "processing" if (now_ms..=now_ms + lease_ms).contains(&(available_at_ms - 1)) => {
            return Ok(OneClaim::HeldUntil(available_at_ms));
        }
        "processing" => true,
        _ => return Ok(OneClaim::Settled),
    };
    if was_processing {
        tx.prepare_cached(CLOSE_LOST_ATTEMPT)?.execute((id, now_ms))?;
    }
    let claimed = take(tx, id, lease_id, (now_ms, lease_ms))?;
    Ok(OneClaim::Work(Box::new(claimed)))
}

fn exhaust(tx: &Transaction<'_>, due: &Due, was_processing: bool) -> rusqlite::Result<Exhausted> {
    let charged = due.attempts_charged;
    let reason = if was_processing {
        format!("the process died during attempt {charged}, the last one it had")
    } else {
        format!("{charged} attempts failed; the latest error is kept with the event")
    };
    let lost = was_processing.then_some((reason.as_str(), ErrorClass::Lost.as_str()));
    tx.prepare_cached(EXHAUST)?.query_row((due.id, lost.map(|l| l.0), lost.map(|l| l.1)), |row| {
        Ok(Exhausted { endpoint: row.get(0)?, event_id: row.get(1)?, reason: reason.clone() })
    })
}

/// Whether the row is still held under this lease and still wants work.
///
/// # Errors
/// Any SQLite error.
pub fn is_held(tx: &Transaction<'_>, id: i64, lease_id: &str) -> rusqlite::Result<bool> {
    tx.prepare_cached(IS_HELD)?.exists((id, lease_id))
}

/// Ends a held row's work in the transaction of its effects. `false`: the lease is lost, nothing was changed.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn settle(
    tx: &Transaction<'_>,
    claimed: &Claimed,
    state: State,
    error: Option<(ErrorClass, &str)>,
    now_ms: i64,
) -> rusqlite::Result<bool> {
    let processed_at_ms = state.is_processed().then_some(now_ms);
    let (class, error) = error.map(|(class, text)| (class.as_str(), text)).unzip();
    let settled = tx.prepare_cached(SETTLE)?.execute((
        claimed.id,
        &claimed.lease_id,
        state.as_str(),
        processed_at_ms,
        error,
        class,
    ))?;
    close_attempt(tx, claimed, state.as_str(), error, now_ms)?;
    Ok(settled == 1)
}

/// Gives a held row back after a failure, due again at `next_at_ms`. An excused attempt does not count
/// against the limit. `false`: the lease is lost, nothing was changed.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn give_back(
    tx: &Transaction<'_>,
    claimed: &Claimed,
    class: ErrorClass,
    error: &str,
    next_at_ms: i64,
    now_ms: i64,
) -> rusqlite::Result<bool> {
    let is_excused = matches!(class, ErrorClass::Storage | ErrorClass::Parked);
    let given = tx.prepare_cached(GIVE_BACK)?.execute((
        claimed.id,
        &claimed.lease_id,
        next_at_ms,
        error,
        class.as_str(),
        is_excused,
    ))?;
    close_attempt(tx, claimed, if is_excused { "excused" } else { "failed" }, Some(error), now_ms)?;
    Ok(given == 1)
}

/// Parks an unleased row that waits for something else; it is due again at `next_at_ms`. The attempt that found this
/// out is excused.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn park(tx: &Transaction<'_>, id: i64, waits_for: &str, next_at_ms: i64) -> rusqlite::Result<()> {
    tx.prepare_cached(PARK)?.execute((id, next_at_ms, waiting_text(waits_for)))?;
    Ok(())
}

/// The `last_error` of a parked row.
pub fn waiting_text(waits_for: &str) -> String {
    format!("waits for {waits_for}")
}

/// Makes the parked events of an endpoint due now, because what they wait for may exist.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn wake_waiting(
    tx: &Transaction<'_>,
    endpoint: &str,
    waits_for: &str,
    now_ms: i64,
) -> rusqlite::Result<()> {
    tx.prepare_cached(WAKE_WAITING)?.execute((endpoint, waiting_text(waits_for), now_ms))?;
    Ok(())
}

/// Makes a parked row due now, because its event was sent again. Other rows are not touched.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn wake(tx: &Transaction<'_>, id: i64, now_ms: i64) -> rusqlite::Result<()> {
    tx.prepare_cached(WAKE)?.execute((id, now_ms))?;
    Ok(())
}

/// Gives back a held row on which no work was done, due at once; the attempt is excused. `false`: the lease is
/// lost, nothing was changed.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn hand_back(tx: &Transaction<'_>, claimed: &Claimed, now_ms: i64) -> rusqlite::Result<bool> {
    let handed = tx.prepare_cached(HAND_BACK)?.execute((claimed.id, &claimed.lease_id, now_ms))?;
    close_attempt(tx, claimed, "excused", Some("inboxd was stopped before the work began"), now_ms)?;
    Ok(handed == 1)
}

fn close_attempt(
    tx: &Transaction<'_>,
    claimed: &Claimed,
    result: &str,
    error: Option<&str>,
    now_ms: i64,
) -> rusqlite::Result<()> {
    tx.prepare_cached(CLOSE_ATTEMPT)?.execute((claimed.id, claimed.attempt, now_ms, result, error))?;
    Ok(())
}

/// Puts an event back to work now that is pending, quarantined or ignored. Earlier attempts are excused and stay in the
/// history. Returns `false` if there was nothing to do: the event is done, being worked on, or its body was purged.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn requeue(tx: &Transaction<'_>, id: i64, now_ms: i64) -> rusqlite::Result<bool> {
    Ok(tx.prepare_cached(REQUEUE)?.execute((id, now_ms))? == 1)
}

/// At a start, releases the previous process's leases on the events of these endpoints (a JSON array) and makes the
/// events due now. Returns how many.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn release_all(tx: &Transaction<'_>, endpoints: &str, now_ms: i64) -> rusqlite::Result<usize> {
    tx.prepare_cached(RELEASE_ALL)?.execute((now_ms, endpoints))
}

/// After the clock was set back, corrects the waits of the rows of these endpoints (a JSON array): each waits from now
/// on as long as was intended after its latest attempt, at most `wait_max_ms`. Returns how many were changed.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn clamp_due(
    tx: &Transaction<'_>,
    endpoints: &str,
    wait_max_ms: i64,
    now_ms: i64,
) -> rusqlite::Result<usize> {
    tx.prepare_cached(CLAMP_DUE)?.execute((endpoints, wait_max_ms, now_ms))
}

/// Quarantines the events of this endpoint (proxy mode) that no sender has sent since `before_ms`; a person is asked.
/// `jumps` are those of the clock, see [`crate::work::timeline::Timeline::of_events`]. Returns their keys, at most a
/// hundred.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn give_up(
    tx: &Transaction<'_>,
    endpoint: &str,
    before_ms: i64,
    jumps: &str,
    now_ms: i64,
) -> rusqlite::Result<Vec<String>> {
    let given_up: Vec<(i64, String)> = tx
        .prepare_cached(GIVE_UP)?
        .query_map((endpoint, before_ms, jumps), |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (id, _) in &given_up {
        tx.prepare_cached(CLOSE_LOST_ATTEMPT)?.execute((id, now_ms))?;
    }
    Ok(given_up.into_iter().map(|(_, event_id)| event_id).collect())
}

/// Whether a row of these endpoints (a JSON array) is due whose attempt never ended.
///
/// # Errors
/// Any SQLite error.
pub fn takeover_is_due(conn: &Connection, endpoints: &str, now_ms: i64) -> rusqlite::Result<bool> {
    conn.prepare_cached(TAKEOVER_IS_DUE)?.exists((endpoints, now_ms))
}

/// When the next row of these endpoints (a JSON array) is due.
///
/// # Errors
/// Any SQLite error.
pub fn next_due_ms(conn: &Connection, endpoints: &str) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(NEXT_DUE)?.query_row([endpoints], |row| row.get(0))
}

/// One attempt, for people.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// 1 for the first.
    pub number: i64,
    /// When it was claimed, in milliseconds since the epoch.
    pub started_at_ms: i64,
    /// When it ended; `None` while it runs, or when its process died.
    pub ended_at_ms: Option<i64>,
    /// `done`, `ignored`, `quarantined`, `failed`, `excused` or `lost`.
    pub result: Option<String>,
    /// The error.
    pub error: Option<String>,
}

/// The history of an event's attempts, oldest first.
///
/// # Errors
/// Any SQLite error.
pub fn attempts(conn: &Connection, id: i64) -> rusqlite::Result<Vec<Attempt>> {
    conn.prepare_cached(ATTEMPTS)?
        .query_map([id], |row| {
            Ok(Attempt {
                number: row.get("number")?,
                started_at_ms: row.get("started_at_ms")?,
                ended_at_ms: row.get("ended_at_ms")?,
                result: row.get("result")?,
                error: row.get("error")?,
            })
        })?
        .collect()
}

fn claimed(row: &Row<'_>) -> rusqlite::Result<Claimed> {
    Ok(Claimed {
        id: row.get("id")?,
        lease_id: row.get("lease_id")?,
        attempt: row.get("attempts")?,
        attempts_charged: row.get("attempts_charged")?,
        provider: row.get("provider")?,
        endpoint: row.get("endpoint")?,
        event_id: row.get("event_id")?,
        event_type: row.get("event_type")?,
        object_id: row.get("object_id")?,
        account: row.get("account")?,
        livemode: row.get("livemode")?,
        headers: row.get("headers")?,
        query: row.get("query")?,
        payload: match row.get("payload")? {
            Value::Text(text) => text.into_bytes(),
            Value::Blob(bytes) => bytes,
            Value::Null | Value::Integer(_) | Value::Real(_) => Vec::new(),
        },
        envelope: row.get::<_, Option<String>>("envelope")?.and_then(|text| Envelope::from_json(&text)),
        received_at_ms: row.get("received_at_ms")?,
    })
}

// A condition on one state repeats the list of both: without the list SQLite does not see that the index
// `webhook_inbox_due` has every such row, and reads the whole table. On a large file every start blocked the writer so.
const DUE: &str = "
    SELECT available_at_ms, id, attempts - attempts_excused, octet_length(payload)
      FROM main.webhook_inbox
     WHERE state IN ('pending', 'processing')
       AND endpoint = ?1
       AND state = ?2
       AND available_at_ms <= ?3
     ORDER BY available_at_ms, id
     LIMIT ?4";

const TAKEOVER_IS_DUE: &str = "
    SELECT 1
      FROM json_each(?1) AS ours CROSS JOIN main.webhook_inbox AS held
     WHERE held.endpoint = ours.value
       AND held.state IN ('pending', 'processing')
       AND held.state = 'processing'
       AND held.available_at_ms <= ?2";

const CLAIM: &str = "
    UPDATE main.webhook_inbox
       SET state = 'processing', attempts = attempts + 1, lease_id = ?2, available_at_ms = ?3
     WHERE id = ?1
    RETURNING id, lease_id, attempts, attempts - attempts_excused AS attempts_charged, provider, endpoint,
              event_id, event_type, object_id, account, livemode, headers, query, payload, envelope, received_at_ms";

const OPEN_ATTEMPT: &str = "
    INSERT INTO main.webhook_attempts (inbox_id, number, started_at_ms) VALUES (?1, ?2, ?3)";

const CLOSE_ATTEMPT: &str = "
    UPDATE main.webhook_attempts
       SET ended_at_ms = ?3, result = ?4, error = ?5
     WHERE inbox_id = ?1 AND number = ?2 AND ended_at_ms IS NULL";

const CLOSE_LOST_ATTEMPT: &str = "
    UPDATE main.webhook_attempts
       SET ended_at_ms = ?2, result = 'lost', error = 'the process died, or stood still for longer than the lease'
     WHERE inbox_id = ?1 AND ended_at_ms IS NULL";

const EXHAUST: &str = "
    UPDATE main.webhook_inbox
       SET state = 'quarantined', lease_id = NULL,
           last_error = coalesce(?2, last_error), error_class = coalesce(?3, error_class)
     WHERE id = ?1
    RETURNING endpoint, event_id";

const IS_HELD: &str = "
    SELECT 1 FROM main.webhook_inbox WHERE id = ?1 AND lease_id = ?2 AND processed_at_ms IS NULL";

const SETTLE: &str = "
    UPDATE main.webhook_inbox
       SET state = ?3, lease_id = NULL, processed_at_ms = ?4, last_error = ?5, error_class = ?6
     WHERE id = ?1 AND lease_id = ?2";

const GIVE_BACK: &str = "
    UPDATE main.webhook_inbox
       SET state = 'pending', lease_id = NULL, available_at_ms = ?3, last_error = ?4, error_class = ?5,
           attempts_excused = attempts_excused + ?6
     WHERE id = ?1 AND lease_id = ?2";

const PARK: &str = "
    UPDATE main.webhook_inbox
       SET state = 'pending', processed_at_ms = NULL, available_at_ms = ?2, last_error = ?3, error_class = 'parked',
           attempts_excused = min(attempts_excused + 1, attempts)
     WHERE id = ?1";

const WAKE_WAITING: &str = "
    UPDATE main.webhook_inbox
       SET available_at_ms = ?3
     WHERE state IN ('pending', 'processing')
       AND endpoint = ?1 AND state = 'pending' AND available_at_ms > ?3
       AND error_class = 'parked' AND last_error = ?2";

const WAKE: &str = "
    UPDATE main.webhook_inbox
       SET available_at_ms = ?2
     WHERE id = ?1 AND state = 'pending' AND error_class = 'parked'";

const HAND_BACK: &str = "
    UPDATE main.webhook_inbox
       SET state = 'pending', lease_id = NULL, available_at_ms = ?3, attempts_excused = attempts_excused + 1
     WHERE id = ?1 AND lease_id = ?2";

/// Puts back to work what waits for a person because it contradicted something that is known of these objects (a JSON array):
/// new evidence about them has come. At most ten events.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn requeue_about(
    tx: &Transaction<'_>,
    endpoint: &str,
    object_ids: &str,
    now_ms: i64,
) -> rusqlite::Result<()> {
    let mut found = tx.prepare_cached(QUARANTINED_ABOUT)?;
    let ids = found.query_map((endpoint, object_ids), |row| row.get(0))?;
    for id in ids.collect::<rusqlite::Result<Vec<i64>>>()? {
        requeue(tx, id, now_ms)?;
    }
    Ok(())
}

const QUARANTINED_ABOUT: &str = "
    SELECT id
      FROM main.webhook_inbox
     WHERE state = 'quarantined' AND processed_at_ms IS NULL
       AND endpoint = ?1 AND object_id IN (SELECT value FROM json_each(?2))
     LIMIT 10";

const REQUEUE: &str = "
    UPDATE main.webhook_inbox
       SET state = 'pending', available_at_ms = ?2, attempts_excused = attempts, processed_at_ms = NULL
     WHERE id = ?1 AND state IN ('pending', 'quarantined', 'ignored') AND payload IS NOT NULL";

const RELEASE_ALL: &str = "
    UPDATE main.webhook_inbox
       SET available_at_ms = ?1
     WHERE state IN ('pending', 'processing')
       AND state = 'processing'
       AND endpoint IN (SELECT value FROM json_each(?2))";

const GIVE_UP: &str = "
    UPDATE main.webhook_inbox
       SET state = 'quarantined', lease_id = NULL
     WHERE id IN (SELECT id
                    FROM main.webhook_inbox
                   WHERE state IN ('pending', 'processing') AND endpoint = ?1 AND available_at_ms < ?2
                     AND available_at_ms < ?2 - (SELECT coalesce(sum(value ->> 1), 0) FROM json_each(?3) WHERE value ->> 0 >= id)
                   LIMIT 100)
    RETURNING id, event_id";

const STATE_OF: &str = "
    SELECT state, available_at_ms FROM main.webhook_inbox WHERE id = ?1";

// A row that came, or was tried, later than now has a time of another clock: its wait begins now.
const CLAMP_DUE: &str = "
    UPDATE main.webhook_inbox AS waiting
       SET available_at_ms = ?3 + min(?2, coalesce(
             (SELECT max(0, waiting.available_at_ms - latest.ended_at_ms)
                FROM main.webhook_attempts AS latest
               WHERE latest.inbox_id = waiting.id AND latest.number = waiting.attempts AND latest.ended_at_ms > ?3),
             CASE WHEN received_at_ms > ?3 THEN max(0, available_at_ms - received_at_ms) ELSE available_at_ms - ?3 END))
     WHERE endpoint IN (SELECT value FROM json_each(?1))
       AND state IN ('pending', 'processing')
       AND available_at_ms > ?3
       AND (available_at_ms > ?3 + ?2
            OR received_at_ms > ?3
            OR EXISTS (SELECT 1 FROM main.webhook_attempts AS latest
                        WHERE latest.inbox_id = waiting.id AND latest.number = waiting.attempts
                          AND latest.ended_at_ms > ?3))";

const NEXT_DUE: &str = "
    SELECT min((SELECT min(available_at_ms)
                  FROM main.webhook_inbox
                 WHERE endpoint = ours.value
                   AND state IN ('pending', 'processing')
                   AND state = waits.column1))
      FROM json_each(?1) AS ours, (VALUES ('pending'), ('processing')) AS waits";

const ATTEMPTS: &str = "
    SELECT number, started_at_ms, ended_at_ms, result, error
      FROM main.webhook_attempts
     WHERE inbox_id = ?1
     ORDER BY number";
