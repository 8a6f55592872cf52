//! The table `reviews`: all that waits for a person.
//!
//! A review is opened in the transaction of what it is about and closed only by an act with a note.

use rusqlite::{Connection, Transaction};

/// Why a person is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An event that cannot be applied.
    Quarantined,
    /// A known event id came again with another body.
    BodyConflict,
    /// A known body came again under another id that nobody signed.
    Replay,
}

impl Kind {
    /// As stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quarantined => "quarantined",
            Self::BodyConflict => "body_conflict",
            Self::Replay => "replay",
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

/// A question to a person.
#[derive(Debug, Clone)]
pub struct Review {
    /// The row.
    pub id: i64,
    /// See [`Kind`].
    pub kind: String,
    /// One sentence.
    pub reason: String,
    /// When it was opened, in milliseconds since the epoch.
    pub opened_at_ms: i64,
    /// When somebody closed it.
    pub resolved_at_ms: Option<i64>,
    /// What they decided.
    pub note: Option<String>,
}

/// The reviews about one event, oldest first.
///
/// # Errors
/// Any SQLite error.
pub fn about(conn: &Connection, endpoint: &str, event_id: &str) -> rusqlite::Result<Vec<Review>> {
    conn.prepare_cached(ABOUT)?
        .query_map((endpoint, event_id), |row| {
            Ok(Review {
                id: row.get("id")?,
                kind: row.get("kind")?,
                reason: row.get("reason")?,
                opened_at_ms: row.get("opened_at_ms")?,
                resolved_at_ms: row.get("resolved_at_ms")?,
                note: row.get("note")?,
            })
        })?
        .collect()
}

/// How many wait for a person.
///
/// # Errors
/// Any SQLite error.
pub fn open_count(conn: &Connection) -> rusqlite::Result<i64> {
    conn.query_row(OPEN_COUNT, [], |row| row.get(0))
}

const OPEN: &str = "
    INSERT INTO main.reviews (kind, subject, reason, endpoint, event_id, opened_at_ms)
    VALUES (?1, ?2 || '/' || ?3, ?4, ?2, ?3, ?5)
    ON CONFLICT (kind, subject) WHERE resolved_at_ms IS NULL DO NOTHING";

const ABOUT: &str = "
    SELECT id, kind, reason, opened_at_ms, resolved_at_ms, note
      FROM main.reviews
     WHERE endpoint = ?1 AND event_id = ?2
     ORDER BY id";

const OPEN_COUNT: &str = "
    SELECT count(*) FROM main.reviews WHERE resolved_at_ms IS NULL";
