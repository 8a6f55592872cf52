//! The outbox as a queue: claim, settle, retry.
//!
//! A claim counts the attempt and is committed before the request is made. Every settling statement checks the
//! lease: a dispatcher that lost its lease changes nothing. The rules hold for several processes on one file.

use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::bytes;

/// The most rows passed over in one claim because their object has an earlier row.
const PASSED_OVER_MAX: usize = 200;

/// A row that one dispatcher holds until its lease ends.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The row.
    pub id: i64,
    /// Proves who holds it.
    pub lease_id: String,
    /// The attempt that this claim counted, 1 for the first.
    pub attempt: i64,
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
    /// The exact bytes to send.
    pub payload: Vec<u8>,
    /// Their media type.
    pub content_type: String,
    /// Of a forwarded delivery: JSON of the headers kept from it.
    pub headers: Option<String>,
    /// The type of the event it came from.
    pub event_type: Option<String>,
    /// Of a forwarded delivery: its query string without `?`.
    pub query: Option<String>,
    /// Since when it has been failing.
    pub failing_since_ms: Option<i64>,
    /// The first request under this key that may have had its effect, before this attempt.
    pub first_sent_at_ms: Option<i64>,
    /// When this attempt was claimed.
    pub claimed_at_ms: i64,
    /// Whether the rows of its object are sent one after the other.
    pub in_order: bool,
}

/// The terms of a claim.
#[derive(Clone, Copy)]
pub struct ClaimTerms<'a> {
    /// The destination's name.
    pub destination: &'a str,
    /// Whether the rows of one business object are sent one after the other.
    pub in_order: bool,
    /// Unique for this claim.
    pub lease_id: &'a str,
    /// How long the row is held, in milliseconds.
    pub lease_ms: i64,
    /// How long a row is passed over if an earlier row of its object waits, in milliseconds.
    pub pass_over_ms: i64,
    /// How much longer this very process holds a row, in milliseconds, by a clock that cannot be set.
    pub held_ms: &'a dyn Fn(i64) -> Option<i64>,
    /// The time of this step.
    pub now_ms: i64,
}

impl std::fmt::Debug for ClaimTerms<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimTerms").field("lease_id", &self.lease_id).finish_non_exhaustive()
    }
}

/// The result of a claim.
#[derive(Debug)]
pub enum Claim {
    /// The claimed row.
    Work(Box<Claimed>),
    /// So far only rows were found that wait for an earlier row of their object: look again.
    PassedOver,
    /// Nothing is due.
    Nothing,
}

/// Claims the row that has been due for longest and may be sent now.
///
/// # Errors
/// Any SQLite error; nothing was claimed then.
pub fn claim_next(tx: &Transaction<'_>, terms: &ClaimTerms<'_>) -> rusqlite::Result<Claim> {
    for _ in 0..PASSED_OVER_MAX {
        let due = tx
            .prepare_cached(NEXT_DUE_ROW)?
            .query_row((terms.destination, terms.now_ms), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((id, object_id, was_sending)): Option<(i64, Option<String>, bool)> = due else {
            return Ok(Claim::Nothing);
        };
        if was_sending && let Some(left_ms) = (terms.held_ms)(id) {
            // the lease ended by the wall clock only, which was set; this process still holds the row
            tx.prepare_cached(PASS_OVER)?.execute((id, terms.now_ms.saturating_add(left_ms)))?;
            continue;
        }
        if terms.in_order
            && let Some(object_id) = &object_id
            && tx.prepare_cached(MUST_WAIT)?.exists((terms.destination, object_id, id))?
        {
            // it is due again when the row before it is settled, or after a while
            tx.prepare_cached(PASS_OVER)?.execute((id, terms.now_ms + terms.pass_over_ms))?;
            continue;
        }
        if was_sending {
            tx.prepare_cached(CLOSE_LOST_ATTEMPT)?.execute([id])?;
        }
        let until_ms = terms.now_ms + terms.lease_ms;
        tx.prepare_cached(CLAIM)?.execute((id, terms.lease_id, until_ms, terms.now_ms, was_sending))?;
        let claimed = tx.prepare_cached(CLAIMED)?.query_row([id], |row| claimed(row, terms))?;
        tx.prepare_cached(OPEN_ATTEMPT)?.execute((id, claimed.attempt, terms.now_ms))?;
        return Ok(Claim::Work(Box::new(claimed)));
    }
    Ok(Claim::PassedOver)
}

/// The result of an attempt, for its row in the history.
#[derive(Debug, Clone, Default)]
pub struct Ending {
    /// How long the request took.
    pub duration_ms: i64,
    /// The answer's status.
    pub status: Option<u16>,
    /// The first KiB of its body.
    pub excerpt: Option<String>,
    /// The error; `None`: it was delivered.
    pub error: Option<String>,
}

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is tried again at this time.
    RetryAt(i64),
    /// It is given up.
    Dead,
}

/// Marks a held row as delivered and keeps the result. `false`: the lease is lost, nothing was changed.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn deliver(
    tx: &Transaction<'_>,
    claimed: &Claimed,
    ending: &Ending,
    result: Option<&str>,
    now_ms: i64,
) -> rusqlite::Result<bool> {
    let delivered = tx.prepare_cached(DELIVER)?.execute((
        claimed.id,
        &claimed.lease_id,
        now_ms,
        ending.status,
        &ending.excerpt,
        result,
    ))?;
    if delivered == 0 {
        return Ok(false);
    }
    close_attempt(tx, claimed, "delivered", ending)?;
    release_next(tx, claimed, now_ms)?;
    Ok(true)
}

/// Requeues or gives up a held row after a failed attempt; `may_have_had_effect` starts the lifetime of its key.
/// `false`: the lease is lost, nothing was changed.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn fail(
    tx: &Transaction<'_>,
    claimed: &Claimed,
    ending: &Ending,
    next: Next,
    may_have_had_effect: bool,
    now_ms: i64,
) -> rusqlite::Result<bool> {
    let (state, at_ms) = match next {
        Next::RetryAt(at_ms) => ("pending", at_ms),
        Next::Dead => ("dead", now_ms),
    };
    let failed = tx.prepare_cached(FAIL)?.execute((
        claimed.id,
        &claimed.lease_id,
        state,
        at_ms,
        &ending.error,
        ending.status,
        &ending.excerpt,
        now_ms,
        claimed.first_sent_at_ms.or(may_have_had_effect.then_some(claimed.claimed_at_ms)),
    ))?;
    if failed == 0 {
        return Ok(false);
    }
    close_attempt(tx, claimed, "failed", ending)?;
    if next == Next::Dead {
        release_next(tx, claimed, now_ms)?;
    }
    Ok(true)
}

fn close_attempt(
    tx: &Transaction<'_>,
    claimed: &Claimed,
    result: &str,
    ending: &Ending,
) -> rusqlite::Result<()> {
    tx.prepare_cached(CLOSE_ATTEMPT)?.execute((
        claimed.id,
        claimed.attempt,
        result,
        ending.duration_ms,
        ending.status,
        &ending.excerpt,
        &ending.error,
    ))?;
    Ok(())
}

/// Makes the next row of the object due.
fn release_next(tx: &Transaction<'_>, claimed: &Claimed, now_ms: i64) -> rusqlite::Result<()> {
    if claimed.in_order
        && let Some(object_id) = &claimed.object_id
    {
        tx.prepare_cached(RELEASE_NEXT)?.execute((&claimed.destination, object_id, now_ms))?;
    }
    Ok(())
}

/// Makes a pending or dead row due now and starts its `give_up_after` again. A row that is delivered or being sent is
/// not touched. Returns whether there was anything to do.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn requeue(tx: &Transaction<'_>, id: i64, now_ms: i64) -> rusqlite::Result<bool> {
    Ok(tx.prepare_cached(REQUEUE)?.execute((id, now_ms))? == 1)
}

/// At a start, releases the previous process's leases and makes the rows due now. Returns how many.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn release_all(tx: &Transaction<'_>, destination: &str, now_ms: i64) -> rusqlite::Result<usize> {
    tx.prepare_cached(RELEASE_ALL)?.execute((destination, now_ms))
}

/// After the clock was set back, corrects the waits: each row waits from now on as long as was intended after its
/// latest attempt, at most `wait_max_ms`. Returns how many were changed.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn clamp_due(
    tx: &Transaction<'_>,
    destination: &str,
    wait_max_ms: i64,
    now_ms: i64,
) -> rusqlite::Result<usize> {
    tx.prepare_cached(CLAMP_DUE)?.execute((destination, wait_max_ms, now_ms))
}

/// When the next row of this destination is due.
///
/// # Errors
/// Any SQLite error.
pub fn next_due_ms(conn: &Connection, destination: &str) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(NEXT_DUE)?.query_row([destination], |row| row.get(0))
}

fn claimed(row: &Row<'_>, terms: &ClaimTerms<'_>) -> rusqlite::Result<Claimed> {
    Ok(Claimed {
        id: row.get("id")?,
        lease_id: row.get("lease_id")?,
        attempt: row.get("attempts")?,
        destination: row.get("destination")?,
        topic: row.get("topic")?,
        operation_key: row.get("operation_key")?,
        endpoint: row.get("endpoint")?,
        event_id: row.get("event_id")?,
        object_id: row.get("object_id")?,
        payload: bytes(row.get("payload")?),
        content_type: row.get("content_type")?,
        headers: row.get("headers")?,
        event_type: row.get("event_type")?,
        query: row.get("query")?,
        failing_since_ms: row.get("failing_since_ms")?,
        first_sent_at_ms: row.get("first_sent_at_ms")?,
        claimed_at_ms: terms.now_ms,
        in_order: terms.in_order,
    })
}

const NEXT_DUE_ROW: &str = "
    SELECT id, object_id, state = 'sending'
      FROM main.outbox
     WHERE state IN ('pending', 'sending')
       AND destination = ?1
       AND available_at_ms <= ?2
     ORDER BY available_at_ms, id
     LIMIT 1";

// An earlier row of the object exists, or one is being sent.
const MUST_WAIT: &str = "
    SELECT 1
      FROM main.outbox
     WHERE destination = ?1 AND object_id = ?2 AND state IN ('pending', 'sending') AND id < ?3
     UNION ALL
    SELECT 1
      FROM main.outbox
     WHERE destination = ?1 AND object_id = ?2 AND state = 'sending' AND id <> ?3";

const PASS_OVER: &str = "
    UPDATE main.outbox SET available_at_ms = ?2 WHERE id = ?1";

// An attempt that never ended may have had its effect, so the lifetime of the key began with it.
const CLAIM: &str = "
    UPDATE main.outbox
       SET state = 'sending', attempts = attempts + 1, lease_id = ?2, available_at_ms = ?3,
           first_sent_at_ms = CASE WHEN ?5 AND first_sent_at_ms IS NULL
                                   THEN coalesce((SELECT max(started_at_ms) FROM main.outbox_attempts WHERE outbox_id = ?1), ?4)
                                   ELSE first_sent_at_ms END
     WHERE id = ?1";

// Not RETURNING: it makes a temporary table for every row.
const CLAIMED: &str = "
    SELECT id, lease_id, attempts, destination, topic, operation_key, endpoint, event_id, object_id, payload,
           content_type, headers, event_type, query, failing_since_ms, first_sent_at_ms
      FROM main.outbox
     WHERE id = ?1";

const OPEN_ATTEMPT: &str = "
    INSERT INTO main.outbox_attempts (outbox_id, number, started_at_ms) VALUES (?1, ?2, ?3)";

const CLOSE_ATTEMPT: &str = "
    UPDATE main.outbox_attempts
       SET result = ?3, duration_ms = ?4, status = ?5, excerpt = ?6, error = ?7
     WHERE outbox_id = ?1 AND number = ?2 AND result IS NULL";

const CLOSE_LOST_ATTEMPT: &str = "
    UPDATE main.outbox_attempts
       SET result = 'lost', error = 'the process died, or stood still for longer than the lease'
     WHERE outbox_id = ?1 AND result IS NULL";

const DELIVER: &str = "
    UPDATE main.outbox
       SET state = 'delivered', lease_id = NULL, delivered_at_ms = ?3, last_error = NULL,
           response_status = ?4, response_excerpt = ?5, result = ?6
     WHERE id = ?1 AND lease_id = ?2";

const FAIL: &str = "
    UPDATE main.outbox
       SET state = ?3, lease_id = NULL, available_at_ms = ?4, last_error = ?5,
           response_status = ?6, response_excerpt = ?7,
           failing_since_ms = coalesce(failing_since_ms, ?8), first_sent_at_ms = ?9
     WHERE id = ?1 AND lease_id = ?2";

const RELEASE_NEXT: &str = "
    UPDATE main.outbox
       SET available_at_ms = ?3
     WHERE available_at_ms > ?3
       AND state = 'pending'
       AND id = (SELECT min(id) FROM main.outbox
                  WHERE destination = ?1 AND object_id = ?2 AND state IN ('pending', 'sending'))";

const REQUEUE: &str = "
    UPDATE main.outbox
       SET state = 'pending', available_at_ms = ?2, failing_since_ms = NULL, first_sent_at_ms = NULL
     WHERE id = ?1 AND state IN ('pending', 'dead')";

const RELEASE_ALL: &str = "
    UPDATE main.outbox SET available_at_ms = ?2 WHERE destination = ?1 AND state = 'sending'";

// A row that was queued, or tried, later than now has a time of another clock: its wait begins now.
const CLAMP_DUE: &str = "
    UPDATE main.outbox AS waiting
       SET available_at_ms = ?3 + min(?2, coalesce(
             (SELECT max(0, waiting.available_at_ms - latest.started_at_ms - latest.duration_ms)
                FROM main.outbox_attempts AS latest
               WHERE latest.outbox_id = waiting.id AND latest.number = waiting.attempts
                 AND latest.started_at_ms + latest.duration_ms > ?3),
             CASE WHEN created_at_ms > ?3 THEN max(0, available_at_ms - created_at_ms) ELSE available_at_ms - ?3 END))
     WHERE destination = ?1
       AND state IN ('pending', 'sending')
       AND available_at_ms > ?3
       AND (available_at_ms > ?3 + ?2
            OR created_at_ms > ?3
            OR EXISTS (SELECT 1 FROM main.outbox_attempts AS latest
                        WHERE latest.outbox_id = waiting.id AND latest.number = waiting.attempts
                          AND latest.started_at_ms + latest.duration_ms > ?3))";

const NEXT_DUE: &str = "
    SELECT min(available_at_ms)
      FROM main.outbox
     WHERE state IN ('pending', 'sending') AND destination = ?1";
