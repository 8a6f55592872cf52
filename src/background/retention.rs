//! Retention: payloads are purged first, keys much later, in small steps between the events.
//!
//! A step function: `upkeep` runs it hourly, the verb `purge` by hand. A reader finds the rows; the writer changes a
//! few hundred at a time, so that no delivery waits long. Rows that still need work are not touched. Each step opens a
//! reader of its own, because a reader's time is limited and a purge's is not.
//!
//! A purge goes on where the previous one ended, and ends at the page with the first young row. Old rows that still
//! need work are remembered by their ids and checked again; once a week all old rows are checked.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::store::inbox::tombstones;
use crate::store::meta;
use crate::store::open::OpenError;
use crate::store::outbox;
use crate::store::page::{Page, Row};
use crate::store::writer::{WriteError, WriterHandle};
use crate::store::{Connection, SqlError, SqlResult, Transaction};
use crate::terminal::counted;
use crate::work::retry;
use crate::work::timeline::{self, Timeline};

/// Rows read in one step.
const STRETCH_ROWS: u32 = 500;

/// Free pages given back to the file system in one step.
const VACUUM_PAGES: u32 = 1_000;

/// The most waiting rows remembered by their ids; the weekly check finds the others.
const WAITING_MAX: usize = 1_000;

/// The time between two checks of all old rows.
const WHOLE_EVERY_MS: i64 = 7 * 86_400_000;

/// The phase of a purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Begin,
    Waiting(Rows),
    Rows { what: Rows, after_id: i64 },
    Pages { free_before: i64 },
    Done,
}

/// The rows of one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Payloads of events.
    Payloads,
    /// Payloads of the outbox.
    Sent,
    /// Whole events.
    Keys,
}

/// How far purges got.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    payloads: Reached,
    sent: Reached,
    /// When all old rows were looked at.
    whole_at_ms: i64,
}

/// How far purges got in one table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Reached {
    after_id: i64,
    /// Earlier rows that still needed their payload.
    waiting: Vec<i64>,
}

impl Place {
    fn recall(conn: &Connection, now_ms: i64) -> SqlResult<Self> {
        let text = meta::recall(conn, meta::PURGE_PLACE)?.map_or_else(String::new, |(text, _)| text);
        let place: Self = serde_json::from_str(&text).unwrap_or_default();
        let is_recent = (0..WHOLE_EVERY_MS).contains(&now_ms.saturating_sub(place.whole_at_ms));
        Ok(if is_recent { place } else { Self { whole_at_ms: now_ms, ..Self::default() } })
    }

    fn of(&mut self, what: Rows) -> Option<&mut Reached> {
        match what {
            Rows::Payloads => Some(&mut self.payloads),
            Rows::Sent => Some(&mut self.sent),
            // the rows that were read are gone
            Rows::Keys => None,
        }
    }
}

/// One purge, from the oldest row to the first young one.
#[derive(Debug)]
pub struct Purge {
    payload_before_ms: i64,
    key_before_ms: i64,
    is_dry: bool,
    believes_clock: bool,
    timeline: Timeline,
    place: Place,
    phase: Phase,
    /// Payloads dropped so far (or that would be).
    pub payloads: i64,
    /// Keys forgotten so far (or that would be).
    pub keys: i64,
}

/// Applies the changes that a step found.
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
    /// The clock and all times in the file are right.
    BelieveClock {
        /// The time.
        now_ms: i64,
    },
    /// Rows of one kind.
    Drop {
        /// Which.
        what: Rows,
        /// A JSON array of ids.
        ids: String,
    },
    /// Some free pages.
    GiveBackPages,
    /// The note that `status` shows, and where the next purge goes on.
    NoteEnd {
        /// What was done, for people.
        summary: String,
        /// Where it ended.
        place: String,
        /// When.
        now_ms: i64,
    },
}

impl Change {
    /// Does it. Returns how many rows were purged.
    ///
    /// # Errors
    /// Any SQLite error; nothing was written then.
    pub fn apply(&self, tx: &Transaction<'_>) -> SqlResult<usize> {
        match self {
            Self::BelieveClock { now_ms } => timeline::believe(tx, *now_ms).map(|()| 0),
            Self::Drop { what: Rows::Payloads, ids } => tombstones::drop_payloads(tx, ids),
            Self::Drop { what: Rows::Sent, ids } => outbox::drop_payloads(tx, ids),
            Self::Drop { what: Rows::Keys, ids } => tombstones::forget(tx, ids),
            Self::GiveBackPages => {
                // yields a row per page, and works while it is stepped
                let mut statement = tx.prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
                let mut pages = statement.query([])?;
                while pages.next()?.is_some() {}
                Ok(0)
            }
            Self::NoteEnd { summary, place, now_ms } => {
                meta::note(tx, meta::PURGE_PLACE, place, *now_ms)?;
                meta::note(tx, meta::LAST_PURGE, summary, *now_ms).map(|()| 0)
            }
        }
    }
}

impl Changes for WriterHandle {
    fn change(&self, change: Change) -> Result<(), WriteError> {
        self.run(move |tx| Ok(change.apply(tx).map(drop)?))
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
            believes_clock: false,
            timeline: Timeline::default(),
            place: Place::default(),
            phase: Phase::Begin,
            payloads: 0,
            keys: 0,
        }
    }

    /// Trusts the clock and every time in the file: noted jumps are forgotten.
    #[must_use]
    pub fn believing_the_clock(mut self) -> Self {
        self.believes_clock = true;
        self
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
        let reader = &open().map_err(|error| WriteError::Unavailable(error.to_string()))?;
        match self.phase {
            Phase::Begin => self.begin(reader, changes, now_ms)?,
            Phase::Waiting(what) => self.look_again(what, reader, changes, now_ms)?,
            Phase::Rows { what, after_id } => self.walk(what, after_id, reader, changes, now_ms)?,
            Phase::Pages { free_before } => self.give_back(free_before, reader, changes)?,
            Phase::Done => {}
        }
        if self.phase != Phase::Done {
            return Ok(true);
        }
        if !self.is_dry {
            let place = serde_json::to_string(&self.place).unwrap_or_default();
            changes.change(Change::NoteEnd { summary: self.summary(), place, now_ms })?;
        }
        Ok(false)
    }

    /// What was done, or would be.
    pub fn summary(&self) -> String {
        format!("{} and {}", counted(self.payloads, "payload"), counted(self.keys, "key"))
    }

    fn begin(&mut self, reader: &Connection, changes: &impl Changes, now_ms: i64) -> Result<(), WriteError> {
        if self.believes_clock && !self.is_dry {
            changes.change(Change::BelieveClock { now_ms })?;
        }
        if !self.believes_clock {
            self.timeline = Timeline::recall(reader).map_err(unavailable)?;
        }
        if !self.is_dry {
            self.place = Place::recall(reader, now_ms).map_err(unavailable)?;
        }
        self.phase = Phase::Waiting(Rows::Payloads);
        Ok(())
    }

    /// Rows that needed their payload last time.
    fn look_again(
        &mut self,
        what: Rows,
        reader: &Connection,
        changes: &impl Changes,
        now_ms: i64,
    ) -> Result<(), WriteError> {
        let Some(Reached { after_id, waiting }) = self.place.of(what).cloned() else {
            self.phase = Phase::Rows { what, after_id: 0 };
            return Ok(());
        };
        if !waiting.is_empty() {
            let (ids, times) = (json(&waiting), (self.before_ms(what), now_ms));
            let rows = match what {
                Rows::Sent => outbox::payloads_of(reader, &ids, times),
                Rows::Payloads | Rows::Keys => tombstones::payloads_of(reader, &ids),
            };
            let rows = rows.map_err(unavailable)?;
            let found = self.judge(what, &rows, now_ms);
            self.drop(what, &found, changes)?;
            if let Some(reached) = self.place.of(what) {
                let is_left = |row: &&Row| (row.may_go || row.waits) && !found.ids.contains(&row.id);
                reached.waiting = rows.iter().filter(is_left).map(|row| row.id).collect();
            }
        }
        self.phase = Phase::Rows { what, after_id };
        Ok(())
    }

    /// The next rows in the order of their ids.
    fn walk(
        &mut self,
        what: Rows,
        after_id: i64,
        reader: &Connection,
        changes: &impl Changes,
        now_ms: i64,
    ) -> Result<(), WriteError> {
        let rows = match what {
            Rows::Payloads => tombstones::payloads_after(reader, after_id, STRETCH_ROWS),
            Rows::Sent => {
                outbox::payloads_after(reader, after_id, STRETCH_ROWS, (self.before_ms(what), now_ms))
            }
            Rows::Keys => tombstones::keys_after(reader, after_id, STRETCH_ROWS),
        };
        let found = self.judge(what, &rows.map_err(unavailable)?, now_ms);
        self.drop(what, &found, changes)?;
        if let (Some(last_id), Some(reached)) = (found.last_id, self.place.of(what)) {
            reached.after_id = last_id;
            let room = WAITING_MAX.saturating_sub(reached.waiting.len());
            reached.waiting.extend(found.waiting.iter().take(room));
        }
        self.phase = match (found.last_id, what) {
            (Some(after_id), what) if !found.is_over => Phase::Rows { what, after_id },
            (_, Rows::Payloads) => Phase::Waiting(Rows::Sent),
            (_, Rows::Sent) => Phase::Rows { what: Rows::Keys, after_id: 0 },
            (_, Rows::Keys) => Phase::Pages { free_before: i64::MAX },
        };
        Ok(())
    }

    fn give_back(
        &mut self,
        free_before: i64,
        reader: &Connection,
        changes: &impl Changes,
    ) -> Result<(), WriteError> {
        let free: i64 =
            reader.pragma_query_value(None, "freelist_count", |row| row.get(0)).map_err(unavailable)?;
        // an application's file may have auto_vacuum off
        self.phase = if free > 0 && free < free_before && !self.is_dry {
            changes.change(Change::GiveBackPages)?;
            Phase::Pages { free_before: free }
        } else {
            Phase::Done
        };
        Ok(())
    }

    fn before_ms(&self, what: Rows) -> i64 {
        match what {
            Rows::Payloads | Rows::Sent => self.payload_before_ms,
            Rows::Keys => self.key_before_ms,
        }
    }

    fn judge(&self, what: Rows, rows: &[Row], now_ms: i64) -> Page {
        let shift_ms = |id| match what {
            Rows::Payloads | Rows::Keys => self.timeline.of_event(id),
            Rows::Sent => self.timeline.of_operation(id),
        };
        Page::of(rows, self.before_ms(what), now_ms, shift_ms)
    }

    fn drop(&mut self, what: Rows, found: &Page, changes: &impl Changes) -> Result<(), WriteError> {
        if !found.ids.is_empty() && !self.is_dry {
            changes.change(Change::Drop { what, ids: json(&found.ids) })?;
        }
        let counted = match what {
            Rows::Payloads | Rows::Sent => &mut self.payloads,
            Rows::Keys => &mut self.keys,
        };
        *counted += i64::try_from(found.ids.len()).unwrap_or(i64::MAX);
        Ok(())
    }
}

fn json(ids: &[i64]) -> String {
    serde_json::json!(ids).to_string()
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unavailable(error: SqlError) -> WriteError {
    WriteError::Unavailable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::open;

    /// Changes made at once, as the command makes them.
    struct AtOnce(Connection);

    impl Changes for AtOnce {
        fn change(&self, change: Change) -> Result<(), WriteError> {
            let tx = open::begin_immediate(&self.0).unwrap();
            change.apply(&tx).unwrap();
            tx.commit().unwrap();
            Ok(())
        }
    }

    #[test]
    fn a_key_outlives_its_payload_and_neither_goes_before_its_own_age() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("inboxd.db");
        let conn = open::open_writer(&path).unwrap();
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
            let open = || open::open_reader(&path, Duration::from_secs(3600));
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
        let conn = open::open_writer(&path).unwrap();
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
            let mut reader = open::open_reader(&path, Duration::from_secs(3600))?;
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

    const DAY_MS: i64 = 86_400_000;
    const START_MS: i64 = 1_000 * DAY_MS;

    /// A database with events that came so many days before the start, in the order of their ids.
    fn events_of_days(days: &[i64]) -> (tempfile::TempDir, AtOnce) {
        let dir = tempfile::tempdir().unwrap();
        let conn = open::open_writer(&dir.path().join("inboxd.db")).unwrap();
        for (number, days) in days.iter().enumerate() {
            conn.execute(
                "INSERT INTO webhook_inbox (provider, endpoint, event_id, headers, payload, body_sha256, state,
                                            available_at_ms, received_at_ms, processed_at_ms)
                 VALUES ('stripe', 'billing', ?1, '{}', '{}', zeroblob(32), 'done', 0, ?2, ?2)",
                (number.to_string(), START_MS - days * DAY_MS),
            )
            .unwrap();
        }
        (dir, AtOnce(conn))
    }

    /// Purges payloads after 30 days and keys after 400; the counts.
    fn purge(dir: &tempfile::TempDir, changes: &AtOnce, now_ms: i64) -> (i64, i64) {
        let days = |days: u64| Duration::from_secs(days * 86_400);
        let path = dir.path().join("inboxd.db");
        let mut purge = Purge::new(days(30), days(400), now_ms, false);
        let open = || open::open_reader(&path, Duration::from_secs(3600));
        while purge.step(open, changes, now_ms).unwrap() {}
        (purge.payloads, purge.keys)
    }

    #[test]
    fn a_purge_goes_on_where_the_one_before_ended_and_once_a_week_looks_at_all_old_rows() {
        let (dir, changes) = events_of_days(&[40, 35, 31, 29, 28]);
        assert_eq!(purge(&dir, &changes, START_MS), (3, 0));
        // as nothing of ours does: what was purged has a payload again
        changes.0.execute("UPDATE webhook_inbox SET payload = '{}' WHERE id = 1", []).unwrap();
        assert_eq!(purge(&dir, &changes, START_MS + DAY_MS + 1), (1, 0), "only what has become old since");
        assert_eq!(purge(&dir, &changes, START_MS + 3 * DAY_MS), (1, 0));
        assert_eq!(purge(&dir, &changes, START_MS + 7 * DAY_MS), (1, 0), "all old rows");
    }

    #[test]
    fn an_event_that_waited_for_a_person_is_purged_when_it_needs_its_payload_no_more() {
        let (dir, changes) = events_of_days(&[40, 35, 31, 1]);
        let waits = "UPDATE webhook_inbox SET state = 'quarantined', processed_at_ms = NULL WHERE id = 2";
        changes.0.execute(waits, []).unwrap();
        assert_eq!(purge(&dir, &changes, START_MS), (2, 0));
        assert_eq!(purge(&dir, &changes, START_MS + 1), (0, 0));
        let done = "UPDATE webhook_inbox SET state = 'done', processed_at_ms = 0 WHERE id = 2";
        changes.0.execute(done, []).unwrap();
        assert_eq!(purge(&dir, &changes, START_MS + 2), (1, 0));
        assert_eq!(purge(&dir, &changes, START_MS + 3), (0, 0));
    }

    #[test]
    fn what_came_by_a_clock_ahead_stays_and_keeps_nothing_else() {
        let (dir, changes) = events_of_days(&[450, -500, 420, 31, 0]);
        assert_eq!(purge(&dir, &changes, START_MS), (3, 2));
        assert_eq!(purge(&dir, &changes, START_MS + 531 * DAY_MS), (2, 2), "it goes when its time has come");
        assert_eq!(purge(&dir, &changes, START_MS + 901 * DAY_MS), (0, 1));
    }

    #[test]
    fn a_jump_that_was_noted_makes_nothing_old() {
        let (dir, changes) = events_of_days(&[10, 5]);
        let tx = open::begin_immediate(&changes.0).unwrap();
        // the clock is a year ahead from here on
        let jump = timeline::Jump { inbox_id: 2, outbox_id: 0, shift_ms: 365 * DAY_MS };
        timeline::note(&tx, Some(jump), START_MS + 365 * DAY_MS).unwrap();
        tx.commit().unwrap();
        assert_eq!(purge(&dir, &changes, START_MS + 366 * DAY_MS), (0, 0));
        assert_eq!(purge(&dir, &changes, START_MS + 386 * DAY_MS), (1, 0), "it ages by the days that passed");
    }

    #[test]
    fn of_the_outbox_only_what_was_delivered_loses_its_payload_and_its_key_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("inboxd.db");
        let conn = open::open_writer(&path).unwrap();
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
        let open = || open::open_reader(&path, Duration::from_secs(3600));
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
        let conn = open::open_writer(&dir.path().join("inboxd.db")).unwrap();
        conn.execute_batch(
            "CREATE TABLE big (b); INSERT INTO big VALUES (zeroblob(4000000)); DROP TABLE big",
        )
        .unwrap();
        let free = |conn: &Connection| -> u32 {
            conn.pragma_query_value(None, "freelist_count", |row| row.get(0)).unwrap()
        };
        let before = free(&conn);
        assert!(before > 500, "{before}");
        let tx = open::begin_immediate(&conn).unwrap();
        Change::GiveBackPages.apply(&tx).unwrap();
        tx.commit().unwrap();
        assert_eq!(free(&conn), before.saturating_sub(VACUUM_PAGES));
    }
}
