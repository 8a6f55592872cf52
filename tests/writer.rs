//! Group commit under fault: the guilty job fails alone, nothing acknowledged is missing, nothing
//! refused is present.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use inboxd::internals::store::open;
use inboxd::internals::store::writer::{JobError, Settings, WriteError, Writer, WriterHandle};
use rusqlite::{Connection, StatementStatus, Transaction};
use tempfile::TempDir;

const TABLES: &str = "
    CREATE TABLE fact (k INTEGER PRIMARY KEY, filler BLOB) STRICT;
    CREATE TABLE parent (k INTEGER PRIMARY KEY) STRICT;
    CREATE TABLE child (k INTEGER PRIMARY KEY, parent INTEGER NOT NULL
        REFERENCES parent (k) DEFERRABLE INITIALLY DEFERRED) STRICT;
    CREATE TABLE guarded (k INTEGER PRIMARY KEY) STRICT;
    CREATE TRIGGER guarded_is_closed BEFORE INSERT ON guarded
    BEGIN SELECT RAISE(ROLLBACK, 'closed'); END;";

/// What only bounds a hang.
const HANG_TIME: Duration = Duration::from_secs(40);

/// An answer of the writer.
fn in_time<T>(answers: &mpsc::Receiver<T>) -> T {
    answers.recv_timeout(HANG_TIME).unwrap_or_else(|error| panic!("no answer within {HANG_TIME:?}: {error}"))
}

/// Waits until a writer that has no handles any more has ended.
fn join<T>(thread: JoinHandle<T>) -> T {
    let begun = Instant::now();
    while !thread.is_finished() {
        assert!(begun.elapsed() < HANG_TIME, "the writer did not end within {HANG_TIME:?}");
        thread::sleep(Duration::from_millis(1));
    }
    thread.join().unwrap()
}

struct Store {
    dir: TempDir,
    writer: Option<WriterHandle>,
    thread: Option<JoinHandle<rusqlite::Result<()>>>,
}

impl Store {
    fn new(job_time_max: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("inboxd.db");
        let conn = open::open_writer(&path).unwrap();
        conn.execute_batch(TABLES).unwrap();
        let (writer, handle) = Writer::new(conn, Settings::new(path, job_time_max, 0)).unwrap();
        let thread = Some(thread::spawn(|| writer.run()));
        Self { dir, writer: Some(handle), thread }
    }

    fn writer(&self) -> &WriterHandle {
        self.writer.as_ref().unwrap()
    }

    fn reader(&self) -> Connection {
        Connection::open(self.dir.path().join("inboxd.db")).unwrap()
    }

    /// Queues all jobs while the writer is held, so that they share one batch, and returns their results.
    fn together(&self, jobs: Vec<Work>) -> Vec<Result<(), WriteError>> {
        let (go, gate) = mpsc::channel::<()>();
        self.writer().submit(
            move |_| {
                gate.recv().ok();
                Ok(())
            },
            |_| {},
        );
        let (answer, answers) = mpsc::channel();
        let count = jobs.len();
        for (index, work) in jobs.into_iter().enumerate() {
            let answer = answer.clone();
            self.writer().submit(work, move |result| answer.send((index, result)).unwrap());
        }
        drop(go);
        let mut results: Vec<_> = (0..count).map(|_| in_time(&answers)).collect();
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }

    fn facts(&self) -> BTreeSet<i64> {
        let conn = self.reader();
        let mut statement = conn.prepare("SELECT k FROM fact").unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Ends the writer as a stop of the daemon does, and looks at the file.
    fn stop(mut self) {
        self.writer = None;
        join(self.thread.take().unwrap()).unwrap();
        let check: String = self.reader().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
    }
}

type Work = Box<dyn FnMut(&Transaction<'_>) -> Result<(), JobError> + Send>;

fn insert(k: i64, bytes: usize) -> Work {
    Box::new(move |tx| {
        let sql = "INSERT INTO fact (k, filler) VALUES (?1, zeroblob(?2))";
        tx.prepare_cached(sql)?.execute((k, i64::try_from(bytes).unwrap()))?;
        Ok(())
    })
}

/// Writes until it is interrupted.
fn endless(k: i64) -> Work {
    Box::new(move |tx| {
        tx.execute(
            "INSERT INTO fact (k, filler)
             WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) SELECT -?1 * 100000000 - i, x'' FROM n",
            [k],
        )?;
        Ok(())
    })
}

/// A user's SQL that ends the transaction: the row it complains about is its own.
fn or_rollback(k: i64) -> Work {
    Box::new(move |tx| {
        tx.execute("INSERT INTO fact (k) VALUES (?1)", [k])?;
        tx.execute("INSERT OR ROLLBACK INTO fact (k) VALUES (?1)", [k])?;
        Ok(())
    })
}

/// As above, but the handler shrugs and goes on: its later statements must not commit by themselves.
fn shrugs_off_a_rollback(k: i64) -> Work {
    Box::new(move |tx| {
        drop(tx.execute("INSERT INTO guarded (k) VALUES (1)", []));
        drop(tx.execute("INSERT INTO fact (k) VALUES (?1)", [k]));
        Ok(())
    })
}

/// Opens a transaction of its own after ending the one it was given.
fn begins_anew(k: i64) -> Work {
    Box::new(move |tx| {
        tx.execute_batch("ROLLBACK; BEGIN IMMEDIATE; SAVEPOINT job")?;
        tx.execute("INSERT INTO fact (k) VALUES (?1)", [k])?;
        Ok(())
    })
}

fn breaks_a_deferred_key(k: i64) -> Work {
    Box::new(move |tx| {
        tx.execute("INSERT INTO fact (k) VALUES (?1)", [k])?;
        tx.execute("INSERT INTO child (k, parent) VALUES (?1, -1)", [k])?;
        Ok(())
    })
}

fn panics(k: i64) -> Work {
    Box::new(move |tx| {
        tx.execute("INSERT INTO fact (k) VALUES (?1)", [k])?;
        panic!("a bug in a handler");
    })
}

fn assert_only_the_guilty_fails(guilty: fn(i64) -> Work) {
    let store = Store::new(Duration::from_millis(200));
    let results = store.together(vec![insert(1, 10), insert(2, 10), guilty(3), insert(4, 10), insert(5, 10)]);
    let failed: Vec<_> = results.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, false, true, false, false], "{results:?}");
    assert!(matches!(results[2], Err(WriteError::Job(_))), "{:?}", results[2]);
    assert_eq!(store.facts(), BTreeSet::from([1, 2, 4, 5]));
    store.stop();
}

#[test]
fn a_job_that_is_interrupted_fails_alone() {
    assert_only_the_guilty_fails(endless);
}

#[test]
fn a_job_that_rolls_the_transaction_back_fails_alone() {
    assert_only_the_guilty_fails(or_rollback);
}

#[test]
fn a_job_that_ignores_its_own_roll_back_fails_and_commits_nothing_by_itself() {
    assert_only_the_guilty_fails(shrugs_off_a_rollback);
}

#[test]
fn a_job_that_swaps_the_transaction_fails_and_commits_nothing() {
    assert_only_the_guilty_fails(begins_anew);
}

#[test]
fn a_job_that_breaks_a_deferred_foreign_key_fails_alone() {
    assert_only_the_guilty_fails(breaks_a_deferred_key);
}

#[test]
fn a_job_that_panics_fails_alone() {
    assert_only_the_guilty_fails(panics);
}

#[test]
fn a_job_whose_row_is_there_already_fails_alone() {
    assert_only_the_guilty_fails(|_| insert(2, 10));
}

#[test]
fn a_full_database_refuses_what_does_not_fit_and_takes_the_rest() {
    let store = Store::new(Duration::from_secs(2));
    let free = |pages: i64| {
        store.writer().run(move |tx| {
            let now: i64 = tx.pragma_query_value(None, "page_count", |row| row.get(0))?;
            tx.pragma_update(None, "max_page_count", now + pages)?;
            Ok(())
        })
    };
    free(10).unwrap();
    let results = store.together(vec![insert(1, 4_000), insert(2, 400_000), insert(3, 4_000)]);
    assert!(results[0].is_ok() && results[2].is_ok(), "{results:?}");
    assert!(matches!(results[1], Err(WriteError::Unavailable(_))), "{:?}", results[1]);
    free(1_000).unwrap();
    assert!(store.together(vec![insert(2, 400_000)])[0].is_ok());
    assert_eq!(store.facts(), BTreeSet::from([1, 2, 3]));
    store.stop();
}

#[test]
fn a_lock_held_by_another_process_is_waited_for() {
    let store = Store::new(Duration::from_secs(2));
    let other = store.reader();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (answer, answers) = mpsc::channel();
    store.writer().submit(insert(1, 10), move |result| answer.send(result.is_ok()).unwrap());
    assert!(answers.recv_timeout(Duration::from_millis(300)).is_err(), "answered before the lock was free");
    other.execute_batch("COMMIT").unwrap();
    assert!(in_time(&answers));
    store.stop();
}

#[test]
fn free_space_below_the_floor_refuses_before_the_disk_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("inboxd.db");
    let conn = open::open_writer(&path).unwrap();
    let settings = Settings::new(path, Duration::from_secs(2), u64::MAX);
    let (writer, handle) = Writer::new(conn, settings).unwrap();
    let thread = thread::spawn(|| writer.run());
    let is_low = || handle.health().obstacle().is_some_and(|reason| reason.contains("free disk space"));
    let begun = Instant::now();
    while !is_low() {
        assert!(begun.elapsed() < HANG_TIME, "nothing stands in the way though no disk has so much room");
        thread::yield_now();
    }
    let (answer, answers) = mpsc::channel();
    handle.submit(|_| Ok(()), move |result| answer.send(result).unwrap());
    assert!(matches!(in_time(&answers), Err(WriteError::Unavailable(_))));
    drop(handle);
    join(thread).unwrap();
}

#[test]
fn the_log_is_moved_into_the_database_while_events_arrive() {
    let store = Store::new(Duration::from_secs(2));
    for k in 0..3_000 {
        store.writer().run(move |tx| insert(k, 8_000)(tx)).unwrap();
    }
    let log = wal_bytes(store.dir.path());
    assert!(log < 24 << 20, "3,000 commits of 8 KB left a log of {log} bytes");
    store.stop();
}

fn wal_bytes(dir: &Path) -> u64 {
    dir.join("inboxd.db-wal").metadata().unwrap().len()
}

/// xorshift: the same batches in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn below_usize(&mut self, n: u64) -> usize {
        usize::try_from(self.below(n)).unwrap()
    }
}

/// What 3,000 random batches came to.
struct Faults {
    /// Innocent jobs for which there was no room.
    full: usize,
    /// Jobs that broke their transaction.
    lost: usize,
}

/// Runs 3,000 batches, of which those have guilty jobs that `is_faulty` names by their number.
fn run_random_batches(is_faulty: fn(u64) -> bool) -> Faults {
    // far more than an innocent job needs, even where it has to wait for its turn
    let store = Store::new(Duration::from_millis(250));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut acknowledged, mut refused) = (BTreeSet::new(), BTreeSet::new());
    let (mut k, mut full, mut lost) = (0, 0, 0);
    for batch in 0..3_000_u64 {
        if batch % 50 == 0 {
            let room = 40 + i64::try_from(random.below(200)).unwrap();
            // the limit itself never fails, whatever room is left
            store
                .writer()
                .run(move |tx| {
                    let now: i64 = tx.pragma_query_value(None, "page_count", |row| row.get(0))?;
                    tx.pragma_update(None, "max_page_count", now + room)?;
                    Ok(())
                })
                .unwrap();
        }
        let mut jobs = Vec::new();
        let mut planned = Vec::new();
        for _ in 0..=random.below(8) {
            k += 1;
            let drawn = random.below(1_000);
            let (work, is_innocent) = match if is_faulty(batch) { drawn } else { 999 } {
                0..40 => (or_rollback(k), false),
                40..80 => (shrugs_off_a_rollback(k), false),
                80..120 => (begins_anew(k), false),
                120..160 => (breaks_a_deferred_key(k), false),
                160..161 => (endless(k), false),
                161..180 => (panics(k), false),
                _ => (insert(k, random.below_usize(9_000)), true),
            };
            jobs.push(work);
            planned.push((k, is_innocent));
        }
        for (result, (k, is_innocent)) in store.together(jobs).into_iter().zip(planned) {
            match result {
                Ok(()) => {
                    assert!(is_innocent, "job {k} broke its transaction and was acknowledged");
                    acknowledged.insert(k);
                }
                Err(error) => {
                    let out_of_room = matches!(error, WriteError::Unavailable(_));
                    assert!(!is_innocent || out_of_room, "innocent job {k} was failed: {error}");
                    full += usize::from(is_innocent);
                    lost += usize::from(!is_innocent);
                    refused.insert(k);
                }
            }
        }
    }
    let stored = store.facts();
    assert_eq!(acknowledged.difference(&stored).count(), 0, "acknowledged but missing");
    assert_eq!(refused.intersection(&stored).count(), 0, "refused but present");
    assert_eq!(stored.difference(&acknowledged).count(), 0, "present but never acknowledged");
    store.stop();
    Faults { full, lost }
}

#[test]
fn in_3000_random_batches_nothing_acknowledged_is_missing_and_nothing_refused_is_present() {
    let Faults { full, lost } = run_random_batches(|_| true);
    assert!(full > 100 && lost > 1_000, "the faults did not happen: {full} full, {lost} other");
}

/// Between two faults there are more good batches than run with savepoints after one: each fault meets a batch without.
#[test]
fn in_3000_random_batches_with_rare_faults_nothing_acknowledged_is_missing_and_nothing_refused_is_present() {
    let Faults { full, lost } = run_random_batches(|batch| batch % 75 == 74);
    assert!(full > 100 && lost > 20, "the faults did not happen: {full} full, {lost} other");
}

#[test]
fn a_batch_with_a_failing_job_runs_again_and_the_next_ones_run_once() {
    let store = Store::new(Duration::from_secs(2));
    let batch = |k: i64| {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let mut work = insert(k, 10);
        let counting: Work = Box::new(move |tx| {
            counted.fetch_add(1, Ordering::Relaxed);
            work(tx)
        });
        let results = store.together(vec![counting, insert(1, 10), insert(k + 1, 10)]);
        let failed: Vec<_> = results.iter().map(Result::is_err).collect();
        assert_eq!(failed, [false, true, false], "{results:?}");
        runs.load(Ordering::Relaxed)
    };
    store.writer().run(move |tx| insert(1, 10)(tx)).unwrap();
    assert_eq!(batch(10), 2, "without savepoints the whole batch is undone");
    assert_eq!(batch(20), 1, "with savepoints only the failing job is");
    assert_eq!(store.facts(), BTreeSet::from([1, 10, 11, 20, 21]));
    store.stop();
}

#[test]
fn whoever_waits_when_the_writer_ends_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("inboxd.db");
    let conn = open::open_writer(&path).unwrap();
    let (writer, handle) = Writer::new(conn, Settings::new(path, Duration::from_secs(2), 0)).unwrap();
    let (answer, answers) = mpsc::channel();
    handle.submit(insert(1, 10), move |result| answer.send(result).unwrap());
    drop(writer);
    assert!(matches!(in_time(&answers), Err(WriteError::Unavailable(_))));
    assert!(matches!(handle.run(|_| Ok(())), Err(WriteError::Unavailable(_))));
}

#[test]
fn a_statement_is_prepared_once_whatever_is_bound() {
    let dir = tempfile::tempdir().unwrap();
    let conn = open::open_writer(&dir.path().join("inboxd.db")).unwrap();
    let mut due = conn
        .prepare(
            "SELECT id FROM outbox
              WHERE state IN ('pending', 'sending') AND destination = ?1 AND available_at_ms <= ?2",
        )
        .unwrap();
    for now_ms in 0..3 {
        due.exists(("app", now_ms)).unwrap();
    }
    assert_eq!(due.get_status(StatementStatus::RePrepare), 0);
}
