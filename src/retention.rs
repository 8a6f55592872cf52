//! Retention: payloads are purged first, keys much later, in small steps between the events.
//!
//! A step function: `daemon` runs it by itself, `purge` by hand. A reader finds the rows; the writer changes
//! a few hundred at a time, so that no delivery waits long. Nothing that still needs work is touched. Each
//! step opens a reader of its own: a reader's time is limited, a purge's is not.

use std::time::Duration;

use rusqlite::Connection;

use crate::bookkeeping;
use crate::db::OpenError;
use crate::inbox::tombstones;
use crate::outbox;
use crate::retry;
use crate::stretch::Stretch;
use crate::writer::{WriteError, WriterHandle};

/// Rows looked at in one step.
const STRETCH_ROWS: u32 = 500;

/// Free pages given back to the file system in one step.
const VACUUM_PAGES: u32 = 1_000;

/// Where a purge is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Rows { what: Rows, after_id: i64 },
    Pages { free_before: i64 },
    Done,
}

/// The rows of one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    Payloads,
    Sent,
    Keys,
}

/// One purge, from the oldest row to the youngest.
#[derive(Debug)]
pub struct Purge {
    payload_before_ms: i64,
    key_before_ms: i64,
    is_dry: bool,
    phase: Phase,
    /// Payloads dropped so far (or that would be).
    pub payloads: i64,
    /// Keys forgotten so far (or that would be).
    pub keys: i64,
}

/// Who changes the rows that a step found.
pub trait Changes {
    /// Runs one of the changes of a purge in a transaction of its own.
    ///
    /// # Errors
    /// When it could not be committed.
    fn change(&self, change: Change) -> Result<(), WriteError>;
}

/// A change in one transaction.
#[derive(Debug, Clone)]
pub enum Change {
    /// Payloads of these rows, a JSON array of ids.
    DropPayloads(String),
    /// Payloads of these delivered rows of the outbox, a JSON array of ids.
    DropSent(String),
    /// These rows for good, a JSON array of ids.
    Forget(String),
    /// Some free pages.
    GiveBackPages,
    /// The note that `status` shows.
    NoteEnd {
        /// What was done, for people.
        summary: String,
        /// When.
        now_ms: i64,
    },
}

impl Change {
    /// Does it.
    ///
    /// # Errors
    /// Any SQLite error; nothing was written then.
    pub fn apply(&self, tx: &rusqlite::Transaction<'_>) -> rusqlite::Result<()> {
        match self {
            Self::DropPayloads(ids) => tombstones::drop_payloads(tx, ids).map(drop),
            Self::DropSent(ids) => outbox::drop_payloads(tx, ids).map(drop),
            Self::Forget(ids) => tombstones::forget(tx, ids).map(drop),
            Self::GiveBackPages => {
                // a row for each page: it goes on while it is stepped
                let mut statement = tx.prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
                let mut pages = statement.query([])?;
                while pages.next()?.is_some() {}
                Ok(())
            }
            Self::NoteEnd { summary, now_ms } => {
                bookkeeping::note(tx, bookkeeping::LAST_PURGE, summary, *now_ms)
            }
        }
    }
}

impl Changes for WriterHandle {
    fn change(&self, change: Change) -> Result<(), WriteError> {
        self.run(move |tx| Ok(change.apply(tx)?))
    }
}

impl Purge {
    /// Payloads older than `payload`, keys older than `key`; with `is_dry` it only counts.
    pub fn new(payload: Duration, key: Duration, now_ms: i64, is_dry: bool) -> Self {
        let before = |age| now_ms.saturating_sub(retry::as_ms(age));
        Self {
            payload_before_ms: before(payload),
            key_before_ms: before(key),
            is_dry,
            phase: Phase::Rows { what: Rows::Payloads, after_id: 0 },
            payloads: 0,
            keys: 0,
        }
    }

    /// Takes one step with a reader that `open` makes for it; `false` when the purge is done.
    ///
    /// # Errors
    /// Of the reader (as text) or of the writer; the step can be taken again.
    pub fn step(
        &mut self,
        open: impl FnOnce() -> Result<Connection, OpenError>,
        changes: &impl Changes,
        now_ms: i64,
    ) -> Result<bool, WriteError> {
        let unavailable = |error: rusqlite::Error| WriteError::Unavailable(error.to_string());
        let reader = &open().map_err(|error| WriteError::Unavailable(error.to_string()))?;
        match self.phase {
            Phase::Rows { what, after_id } => {
                let found = self.find(what, reader, after_id).map_err(unavailable)?;
                self.drop(what, &found, changes)?;
                let begin = |what| Phase::Rows { what, after_id: 0 };
                self.phase = match (found.last_id, what) {
                    (Some(after_id), what) => Phase::Rows { what, after_id },
                    (None, Rows::Payloads) => begin(Rows::Sent),
                    (None, Rows::Sent) => begin(Rows::Keys),
                    (None, Rows::Keys) => Phase::Pages { free_before: i64::MAX },
                };
            }
            Phase::Pages { free_before } => {
                let free: i64 = reader
                    .pragma_query_value(None, "freelist_count", |row| row.get(0))
                    .map_err(unavailable)?;
                // an application's file may be made so that it keeps its free pages
                if free > 0 && free < free_before && !self.is_dry {
                    changes.change(Change::GiveBackPages)?;
                    self.phase = Phase::Pages { free_before: free };
                } else {
                    self.phase = Phase::Done;
                }
            }
            Phase::Done => {}
        }
        if self.phase != Phase::Done {
            return Ok(true);
        }
        if !self.is_dry {
            changes.change(Change::NoteEnd { summary: self.summary(), now_ms })?;
        }
        Ok(false)
    }

    /// What was done, or would be.
    pub fn summary(&self) -> String {
        format!("{} payloads and {} keys", self.payloads, self.keys)
    }

    fn find(&self, what: Rows, reader: &Connection, after_id: i64) -> rusqlite::Result<Stretch> {
        let (payload, key) = (self.payload_before_ms, self.key_before_ms);
        match what {
            Rows::Payloads => tombstones::with_old_payload(reader, after_id, STRETCH_ROWS, payload),
            Rows::Sent => outbox::delivered_before(reader, after_id, STRETCH_ROWS, payload),
            Rows::Keys => tombstones::with_old_key(reader, after_id, STRETCH_ROWS, key),
        }
    }

    fn drop(&mut self, what: Rows, found: &Stretch, changes: &impl Changes) -> Result<(), WriteError> {
        let (change, counted): (fn(String) -> Change, _) = match what {
            Rows::Payloads => (Change::DropPayloads, &mut self.payloads),
            Rows::Sent => (Change::DropSent, &mut self.payloads),
            Rows::Keys => (Change::Forget, &mut self.keys),
        };
        if found.count > 0 && !self.is_dry {
            changes.change(change(found.ids.clone()))?;
        }
        *counted += found.count;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db;

    /// Changes made at once, as the command makes them.
    struct AtOnce(Connection);

    impl Changes for AtOnce {
        fn change(&self, change: Change) -> Result<(), WriteError> {
            let tx = db::begin_immediate(&self.0).unwrap();
            change.apply(&tx).unwrap();
            tx.commit().unwrap();
            Ok(())
        }
    }

    #[test]
    fn a_key_outlives_its_payload_and_neither_goes_before_its_own_age() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("inboxd.db");
        let conn = db::open_writer(&path).unwrap();
        // ages of 5, 50 and 500 s; what nobody has finished has no age
        conn.execute_batch(
            "INSERT INTO webhook_inbox (provider, endpoint, event_id, headers, payload, body_sha256, state,
                                        available_at_ms, received_at_ms, processed_at_ms)
             VALUES ('stripe', 'e', 'young',  '{}', 'p', zeroblob(32), 'done',        0, 995000, 995000),
                    ('stripe', 'e', 'older',  '{}', 'p', zeroblob(32), 'ignored',     0, 950000, 950000),
                    ('stripe', 'e', 'oldest', '{}', 'p', zeroblob(32), 'done',        0, 500000, 500000),
                    ('stripe', 'e', 'waits',  '{}', 'p', zeroblob(32), 'pending',     0, 500000, NULL),
                    ('stripe', 'e', 'asks',   '{}', 'p', zeroblob(32), 'quarantined', 0, 500000, NULL)",
        )
        .unwrap();
        let (payload, key, now_ms) = (Duration::from_secs(10), Duration::from_secs(100), 1_000_000);
        let changes = AtOnce(conn);
        for is_dry in [true, false] {
            let mut purge = Purge::new(payload, key, now_ms, is_dry);
            let open = || db::open_reader(&path, Duration::from_secs(3600));
            while purge.step(open, &changes, now_ms).unwrap() {}
            assert_eq!((purge.payloads, purge.keys), (2, 1), "is_dry {is_dry}");
        }
        let left = "SELECT group_concat(event_id || ' ' || coalesce(payload, '-'), ', ' ORDER BY id) FROM webhook_inbox";
        let left: String = changes.0.query_row(left, [], |row| row.get(0)).unwrap();
        assert_eq!(left, "young p, older -, waits p, asks p");
    }

    #[test]
    fn a_purge_may_take_longer_than_a_reader() {
        const ROWS: i64 = 10_000;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("inboxd.db");
        let conn = db::open_writer(&path).unwrap();
        conn.execute(
            "INSERT INTO webhook_inbox (provider, endpoint, event_id, headers, payload, body_sha256, state,
                                        available_at_ms, received_at_ms, processed_at_ms)
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
             SELECT 'stripe', 'billing', 'evt_' || i, '{}', '{}', zeroblob(32), 'done', 0, 0, 0 FROM n",
            [ROWS],
        )
        .unwrap();
        let age = Duration::from_secs(1);
        let mut purge = Purge::new(age, age, 10_000, false);
        // it lasts for a few steps, by the work that SQLite does and not by the clock
        let open = || {
            let mut reader = db::open_reader(&path, Duration::from_secs(3600))?;
            let mut looks = 0;
            let is_over = move || {
                looks += 1;
                looks > 5
            };
            reader.progress_handler(10_000, Some(is_over)).unwrap();
            Ok(reader)
        };
        let changes = AtOnce(conn);
        while purge.step(open, &changes, 10_000).unwrap() {}
        assert_eq!((purge.payloads, purge.keys), (ROWS, ROWS));
    }

    #[test]
    fn of_the_outbox_only_what_was_delivered_loses_its_payload_and_its_key_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("inboxd.db");
        let conn = db::open_writer(&path).unwrap();
        conn.execute_batch(
            r#"INSERT INTO outbox (destination, topic, operation_key, endpoint, event_id, payload, content_type,
                                  state, response_excerpt, available_at_ms, created_at_ms, delivered_at_ms)
               VALUES ('app', 'T', 'old', 'e', '1', '{"a":1}', 'application/json', 'delivered', 'ok', 0, 0, 999),
                      ('app', 'T', 'new', 'e', '2', '{"a":1}', 'application/json', 'delivered', 'ok', 0, 0, 9500),
                      ('app', 'T', 'dead', 'e', '3', '{"a":1}', 'application/json', 'dead', 'no', 0, 0, NULL),
                      ('app', 'T', 'waits', 'e', '4', '{"a":1}', 'application/json', 'pending', NULL, 0, 0, NULL)"#,
        )
        .unwrap();
        conn.execute_batch(
            "INSERT INTO outbox_attempts (outbox_id, number, started_at_ms, result, status, excerpt)
             SELECT id, 1, 0, 'delivered', 200, 'ok' FROM outbox WHERE state = 'delivered'",
        )
        .unwrap();
        let open = || db::open_reader(&path, Duration::from_secs(3600));
        let mut purge = Purge::new(Duration::from_secs(1), Duration::from_secs(1), 10_000, false);
        let changes = AtOnce(conn);
        while purge.step(open, &changes, 10_000).unwrap() {}
        assert_eq!(purge.payloads, 1);
        let left: String = changes
            .0
            .query_row(
                "SELECT group_concat(operation_key || ' ' || coalesce(payload || response_excerpt, '-'), ', ')
                   FROM (SELECT * FROM outbox WHERE state = 'delivered' ORDER BY id)",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(left, r#"old -, new {"a":1}ok"#);
        let kept: i64 = changes
            .0
            .query_row("SELECT count(*) FROM outbox WHERE payload IS NOT NULL", [], |row| row.get(0))
            .unwrap();
        assert_eq!(kept, 3);
        let answers: i64 =
            changes.0.query_row("SELECT count(excerpt) FROM outbox_attempts", [], |row| row.get(0)).unwrap();
        assert_eq!(answers, 1);

        // the key still tells that the effect was queued, to whatever payload
        let known = outbox::queued_as(&changes.0, "old").unwrap().unwrap();
        let asked = |destination: &str, payload: &str| outbox::Queued {
            destination: destination.to_owned(),
            payload: rusqlite::types::Value::Text(payload.to_owned()),
        };
        assert!(known.is(&asked("app", r#"{"a":1}"#)) && !known.is(&asked("other", r#"{"a":1}"#)));
        let known = outbox::queued_as(&changes.0, "new").unwrap().unwrap();
        assert!(known.is(&asked("app", r#"{"a":1}"#)) && !known.is(&asked("app", r#"{"a":2}"#)));
    }

    #[test]
    fn free_pages_are_given_back_by_the_thousand() {
        let dir = tempfile::tempdir().unwrap();
        let conn = db::open_writer(&dir.path().join("inboxd.db")).unwrap();
        conn.execute_batch(
            "CREATE TABLE big (b); INSERT INTO big VALUES (zeroblob(4000000)); DROP TABLE big",
        )
        .unwrap();
        let free = |conn: &Connection| -> u32 {
            conn.pragma_query_value(None, "freelist_count", |row| row.get(0)).unwrap()
        };
        let before = free(&conn);
        assert!(before > 500, "{before}");
        let tx = db::begin_immediate(&conn).unwrap();
        Change::GiveBackPages.apply(&tx).unwrap();
        tx.commit().unwrap();
        assert_eq!(free(&conn), before.saturating_sub(VACUUM_PAGES));
    }
}
