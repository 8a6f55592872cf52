//! The table `reviews`: questions for a person.
//!
//! A review is opened in the transaction of its event or row. A person closes it with a note, or it closes by itself
//! when the event or row succeeds after all.

use rusqlite::{Connection, OptionalExtension, Row, Transaction};

/// The kind of question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An event that cannot be applied.
    Quarantined,
    /// An event that cannot be true together with what is known.
    Contradiction,
    /// An event that only says that something happened to an object, and not what.
    ThinEvent,
    /// More of a charge went back than was taken. It is booked.
    OverReversed,
    /// A charge that failed after it had succeeded. It is not booked.
    LateFailure,
    /// A known event id came again with another body.
    BodyConflict,
    /// A known body came again under another, unsigned id.
    Replay,
    /// An outbox row that was given up; or an event whose deliveries all failed, so that it is not stored: its
    /// subject is `<endpoint>/<event id>`.
    Undelivered,
    /// An outbox row that may have had its effect, and must not be sent again.
    OutcomeUnknown,
}

impl Kind {
    /// As stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quarantined => "quarantined",
            Self::Contradiction => "contradiction",
            Self::ThinEvent => "thin_event",
            Self::OverReversed => "over_reversed",
            Self::LateFailure => "late_failure",
            Self::BodyConflict => "body_conflict",
            Self::Replay => "replay",
            Self::Undelivered => "undelivered",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }
}

/// Opens a review about an event, unless the same question is open already.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn open(
    tx: &Transaction<'_>,
    kind: Kind,
    endpoint: &str,
    event_id: &str,
    reason: &str,
    now_ms: i64,
) -> rusqlite::Result<()> {
    tx.prepare_cached(OPEN)?.execute((kind.as_str(), endpoint, event_id, reason, now_ms))?;
    Ok(())
}

/// Closes the open reviews about an event that has succeeded now. A review about another body under its id stays
/// open.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn close_on_event(
    tx: &Transaction<'_>,
    (endpoint, event_id): (&str, &str),
    note: &str,
    now_ms: i64,
) -> rusqlite::Result<()> {
    tx.prepare_cached(CLOSE_ON_EVENT)?.execute((endpoint, event_id, note, now_ms))?;
    Ok(())
}

/// Closes the review about an event whose deliveries all failed: a later delivery succeeded, and it is stored.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn close_undelivered_event(
    tx: &Transaction<'_>,
    (endpoint, event_id): (&str, &str),
    note: &str,
    now_ms: i64,
) -> rusqlite::Result<()> {
    tx.prepare_cached(CLOSE_UNDELIVERED_EVENT)?.execute((endpoint, event_id, note, now_ms))?;
    Ok(())
}

/// Opens a review about an outbox row, named by its operation key, unless the same question is open already.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn open_on_operation(
    tx: &Transaction<'_>,
    kind: Kind,
    operation_key: &str,
    (endpoint, event_id): (&str, &str),
    reason: &str,
    now_ms: i64,
) -> rusqlite::Result<()> {
    let row = (kind.as_str(), operation_key, reason, endpoint, event_id, now_ms);
    tx.prepare_cached(OPEN_ON_OPERATION)?.execute(row)?;
    Ok(())
}

/// Opens a review about an object of the books, unless the same question is open already.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn open_on_object(
    tx: &Transaction<'_>,
    kind: Kind,
    object: &str,
    (endpoint, event_id): (&str, &str),
    reason: &str,
    now_ms: i64,
) -> rusqlite::Result<()> {
    open_on_operation(tx, kind, object, (endpoint, event_id), reason, now_ms)
}

/// Closes the question of this kind about an object of the books: what is known by now answers it.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn close_on_object(
    tx: &Transaction<'_>,
    kind: Kind,
    object: &str,
    note: &str,
    now_ms: i64,
) -> rusqlite::Result<()> {
    tx.prepare_cached(CLOSE_ON_OBJECT)?.execute((kind.as_str(), object, note, now_ms))?;
    Ok(())
}

/// Closes the open reviews about an outbox row: it was delivered after all, or is tried again.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn close_on_operation(
    tx: &Transaction<'_>,
    operation_key: &str,
    note: &str,
    now_ms: i64,
) -> rusqlite::Result<()> {
    tx.prepare_cached(CLOSE_ON_OPERATION)?.execute((operation_key, note, now_ms))?;
    Ok(())
}

/// A question to a person.
#[derive(Debug, Clone)]
pub struct Review {
    /// The row.
    pub id: i64,
    /// See [`Kind`].
    pub kind: String,
    /// `<endpoint>/<event id>`, or an outbox row's operation key.
    pub subject: String,
    /// One sentence.
    pub reason: String,
    /// The endpoint's name.
    pub endpoint: String,
    /// The event.
    pub event_id: String,
    /// When it was opened, in milliseconds since the epoch.
    pub opened_at_ms: i64,
    /// When it was closed.
    pub resolved_at_ms: Option<i64>,
    /// What the person decided.
    pub note: Option<String>,
}

/// The reviews about one event, oldest first.
///
/// # Errors
/// Any SQLite error.
pub fn about(conn: &Connection, endpoint: &str, event_id: &str) -> rusqlite::Result<Vec<Review>> {
    conn.prepare_cached(ABOUT)?.query_map((endpoint, event_id), review)?.collect()
}

/// The open reviews about an object of the books, oldest first.
///
/// # Errors
/// Any SQLite error.
pub fn on_object(conn: &Connection, object: &str) -> rusqlite::Result<Vec<Review>> {
    conn.prepare_cached(ON_OBJECT)?.query_map([object], review)?.collect()
}

/// The review of this number.
///
/// # Errors
/// Any SQLite error.
pub fn find(conn: &Connection, id: i64) -> rusqlite::Result<Option<Review>> {
    conn.prepare_cached(FIND)?.query_row([id], review).optional()
}

/// Open reviews, oldest first; with `all`, the closed ones as well. At most `limit`.
///
/// # Errors
/// Any SQLite error.
pub fn list(conn: &Connection, all: bool, limit: u32) -> rusqlite::Result<Vec<Review>> {
    conn.prepare_cached(LIST)?.query_map((all, limit), review)?.collect()
}

/// Closes one review with the person's note. `false`: no open review has that number.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn resolve(tx: &Transaction<'_>, id: i64, note: &str, now_ms: i64) -> rusqlite::Result<bool> {
    Ok(tx.prepare_cached(RESOLVE)?.execute((id, note, now_ms))? == 1)
}

fn review(row: &Row<'_>) -> rusqlite::Result<Review> {
    Ok(Review {
        id: row.get("id")?,
        kind: row.get("kind")?,
        subject: row.get("subject")?,
        reason: row.get("reason")?,
        endpoint: row.get("endpoint")?,
        event_id: row.get("event_id")?,
        opened_at_ms: row.get("opened_at_ms")?,
        resolved_at_ms: row.get("resolved_at_ms")?,
        note: row.get("note")?,
    })
}

/// The number of open reviews.
///
/// # Errors
/// Any SQLite error.
pub fn open_count(conn: &Connection) -> rusqlite::Result<i64> {
    conn.query_row(OPEN_COUNT, [], |row| row.get(0))
}

/// How many wait for a person, by kind.
///
/// # Errors
/// Any SQLite error.
pub fn open_by_kind(conn: &Connection) -> rusqlite::Result<Vec<(String, i64)>> {
    conn.prepare_cached(OPEN_BY_KIND)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Open reviews that ask the same: of one endpoint, kind and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The endpoint's name.
    pub endpoint: String,
    /// See [`Kind`].
    pub kind: String,
    /// One sentence.
    pub reason: String,
    /// How many reviews.
    pub count: i64,
    /// When the first was opened, in milliseconds since the epoch.
    pub first_ms: i64,
    /// When the latest was opened.
    pub last_ms: i64,
    /// The oldest of them.
    pub sample_id: i64,
    /// One of the events that they are about.
    pub sample_event_id: String,
}

/// The oldest ten thousand open reviews in groups, the largest first, at most a hundred.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn groups(conn: &Connection) -> rusqlite::Result<Vec<Group>> {
    conn.prepare_cached(GROUPS)?
        .query_map([], |row| {
            Ok(Group {
                endpoint: row.get(0)?,
                kind: row.get(1)?,
                reason: row.get(2)?,
                count: row.get(3)?,
                first_ms: row.get(4)?,
                last_ms: row.get(5)?,
                sample_id: row.get(6)?,
                sample_event_id: row.get(7)?,
            })
        })?
        .collect()
}

/// Which open reviews to look for. What is `None` does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The endpoint's name.
    pub endpoint: Option<String>,
    /// See [`Kind`].
    pub kind: Option<String>,
    /// The whole sentence.
    pub reason: Option<String>,
    /// Opened before this time.
    pub until_ms: Option<i64>,
}

/// Open reviews that match and come after review `after_id`, oldest first, at most `limit`.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn open_after(
    conn: &Connection,
    filter: &Filter,
    after_id: i64,
    limit: u32,
) -> rusqlite::Result<Vec<Review>> {
    let Filter { endpoint, kind, reason, until_ms } = filter;
    conn.prepare_cached(OPEN_AFTER)?
        .query_map((endpoint, kind, reason, until_ms, after_id, limit), review)?
        .collect()
}

const OPEN_BY_KIND: &str = "
    SELECT kind, count(*) FROM main.reviews WHERE resolved_at_ms IS NULL GROUP BY kind";

const GROUPS: &str = "
    SELECT endpoint, kind, reason, count(*), min(opened_at_ms), max(opened_at_ms), min(id), min(event_id)
      FROM (SELECT endpoint, kind, reason, opened_at_ms, id, event_id
              FROM main.reviews
             WHERE resolved_at_ms IS NULL
             LIMIT 10000)
     GROUP BY endpoint, kind, reason
     ORDER BY 4 DESC, 7
     LIMIT 100";

const OPEN_AFTER: &str = "
    SELECT id, kind, subject, reason, endpoint, event_id, opened_at_ms, resolved_at_ms, note
      FROM main.reviews
     WHERE id IN (SELECT id
                    FROM main.reviews
                   WHERE resolved_at_ms IS NULL AND (?2 IS NULL OR kind = ?2) AND id > ?5)
       AND (?1 IS NULL OR endpoint = ?1)
       AND (?3 IS NULL OR reason = ?3)
       AND (?4 IS NULL OR opened_at_ms < ?4)
     ORDER BY id
     LIMIT ?6";

const OPEN: &str = "
    INSERT INTO main.reviews (kind, subject, reason, endpoint, event_id, opened_at_ms)
    VALUES (?1, ?2 || '/' || ?3, ?4, ?2, ?3, ?5)
    ON CONFLICT (kind, subject) WHERE resolved_at_ms IS NULL DO NOTHING";

const OPEN_ON_OPERATION: &str = "
    INSERT INTO main.reviews (kind, subject, reason, endpoint, event_id, opened_at_ms)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (kind, subject) WHERE resolved_at_ms IS NULL DO NOTHING";

const CLOSE_ON_OPERATION: &str = "
    UPDATE main.reviews
       SET resolved_at_ms = ?3, note = ?2
     WHERE kind IN ('undelivered', 'outcome_unknown') AND subject = ?1 AND resolved_at_ms IS NULL";

const ABOUT: &str = "
    SELECT id, kind, subject, reason, endpoint, event_id, opened_at_ms, resolved_at_ms, note
      FROM main.reviews
     WHERE endpoint = ?1 AND event_id = ?2
     ORDER BY id";

const ON_OBJECT: &str = "
    SELECT id, kind, subject, reason, endpoint, event_id, opened_at_ms, resolved_at_ms, note
      FROM main.reviews
     WHERE kind IN ('over_reversed', 'late_failure') AND subject = ?1 AND resolved_at_ms IS NULL
     ORDER BY id";

const FIND: &str = "
    SELECT id, kind, subject, reason, endpoint, event_id, opened_at_ms, resolved_at_ms, note
      FROM main.reviews
     WHERE id = ?1";

const OPEN_COUNT: &str = "
    SELECT count(*) FROM main.reviews WHERE resolved_at_ms IS NULL";

const CLOSE_ON_EVENT: &str = "
    UPDATE main.reviews
       SET resolved_at_ms = ?4, note = ?3
     WHERE kind IN ('quarantined', 'contradiction', 'thin_event', 'replay')
       AND subject = ?1 || '/' || ?2 AND resolved_at_ms IS NULL";

const CLOSE_ON_OBJECT: &str = "
    UPDATE main.reviews
       SET resolved_at_ms = ?4, note = ?3
     WHERE kind = ?1 AND subject = ?2 AND resolved_at_ms IS NULL";

const CLOSE_UNDELIVERED_EVENT: &str = "
    UPDATE main.reviews
       SET resolved_at_ms = ?4, note = ?3
     WHERE kind = 'undelivered' AND subject = ?1 || '/' || ?2 AND resolved_at_ms IS NULL";

const LIST: &str = "
    SELECT id, kind, subject, reason, endpoint, event_id, opened_at_ms, resolved_at_ms, note
      FROM main.reviews
     WHERE ?1 OR resolved_at_ms IS NULL
     ORDER BY id
     LIMIT ?2";

const RESOLVE: &str = "
    UPDATE main.reviews
       SET resolved_at_ms = ?3, note = ?2
     WHERE id = ?1 AND resolved_at_ms IS NULL";
