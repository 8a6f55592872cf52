//! The asynchronous path: claims, leases, retries, and what a person can do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use inboxd::config::{Config, MissingSecrets};
use inboxd::handlers::{Event, Handled, Handler, HandlerError, Registry};
use inboxd::internals::background::poller::{Poller as _, Step, Tick};
use inboxd::internals::background::worker::{Settings, Worker};
use inboxd::internals::intake::receive::{self, Outcome};
use inboxd::internals::store::open;
use inboxd::internals::store::writer::{self, Writer, WriterHandle};
use inboxd::internals::work::endpoint::Endpoint;
use inboxd::internals::work::lease::Held;
use inboxd::internals::work::screen;
use rusqlite::Transaction;
use support::{count, text};

const NOW_MS: i64 = 1_000_000_000;

/// Writes one row per event, or does what the event's id asks for.
#[derive(Default)]
struct Books {
    calls: AtomicUsize,
    failures: HashMap<String, i64>,
}

impl Books {
    /// Fails in the first attempts at the event, however often the writer runs one.
    fn failing(event_id: &str, attempts: i64) -> Arc<Self> {
        let failures = HashMap::from([(event_id.to_owned(), attempts)]);
        Arc::new(Self { failures, ..Self::default() })
    }
}

impl Handler for Books {
    fn name(&self) -> &str {
        "books"
    }

    fn takes(&self, event_type: &str) -> bool {
        event_type.starts_with("thing.")
    }

    fn handle(&self, tx: &Transaction<'_>, event: &Event<'_>) -> Result<Handled, HandlerError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        tx.execute("INSERT INTO effect (event_id) VALUES (?1)", [event.id])?;
        if event.event_type == "thing.endless" {
            tx.query_row(
                "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
                [],
                |_| Ok(()),
            )?;
        }
        if event.event_type == "thing.contradictory" {
            return Ok(Handled::Quarantine("it contradicts the books".to_owned()));
        }
        let attempt = "SELECT attempts FROM webhook_inbox WHERE event_id = ?1";
        let attempt: i64 = tx.query_row(attempt, [event.id], |row| row.get(0))?;
        if self.failures.get(event.id).is_some_and(|failing| attempt <= *failing) {
            return Err(HandlerError::Failed("not yet".to_owned()));
        }
        Ok(Handled::Applied)
    }
}

/// One daemon's writer and worker on a file; several may share it.
struct Process {
    writer: Option<WriterHandle>,
    worker: Option<Worker>,
    endpoint: Arc<Endpoint>,
    thread: Option<JoinHandle<rusqlite::Result<()>>>,
}

impl Process {
    fn on(dir: &Path, handler: Arc<dyn Handler>, settings: Settings) -> Self {
        let path = dir.join("inboxd.db");
        let conn = open::open_writer(&path).unwrap();
        conn.execute_batch("CREATE TABLE IF NOT EXISTS effect (event_id TEXT NOT NULL) STRICT").unwrap();
        let limits = writer::Settings::new(path, Duration::from_millis(200), 0);
        let (writer, handle) = Writer::new(conn, limits).unwrap();
        let thread = Some(thread::spawn(|| writer.run()));
        // two writers that start on one file at once make each other wait
        support::wait_for("the store is ready", || !handle.health().is_recovering());
        let config =
            support::CONFIG.replace("handlers = [\"billing\"]", "handlers = [\"billing\"]\nmode = \"async\"");
        std::fs::write(dir.join("inboxd.toml"), config).unwrap();
        support::write_secret(dir, "stripe.secret", support::STRIPE_SECRET);
        support::write_secret(dir, "github.secret", support::GITHUB_SECRET);
        let config =
            Config::load(Some(&dir.join("inboxd.toml")), MissingSecrets::Report, Registry::new().facts())
                .unwrap();
        let config = config.into_parts().1.into_iter().next().unwrap();
        let endpoint = Arc::new(Endpoint::new(config, vec![handler]));
        let worker = Worker::new(handle.clone(), &[Arc::clone(&endpoint)], settings);
        Self { writer: Some(handle), worker: Some(worker), endpoint, thread }
    }

    fn worker(&self) -> &Worker {
        self.worker.as_ref().unwrap()
    }

    /// A verified delivery, as the HTTP side hands it to the writer.
    fn deliver(&self, id: &str, event_type: &str, now_ms: i64) -> Outcome {
        let body = format!(r#"{{"id":"{id}","type":"{event_type}","data":{{"object":{{"id":"x"}}}}}}"#);
        let event = support::stripe_event(&self.endpoint.config.verifier, &body, now_ms);
        let endpoint = Arc::clone(&self.endpoint);
        let disposition = screen::disposition(&endpoint, &event);
        self.writer
            .as_ref()
            .unwrap()
            .run(move |tx| receive::store(tx, &endpoint, &event, &disposition, now_ms))
            .unwrap()
            .outcome
    }

    /// One step with the longest possible wait.
    fn step(&self, now_ms: i64) -> Step {
        self.worker().step(&Tick { lease_id: lease(), now_ms, steady_ms: now_ms, random: u64::MAX })
    }

    fn work_until_idle(&self, now_ms: i64) {
        while self.step(now_ms) == Step::Worked {}
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.worker = None;
        self.writer = None;
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn lease() -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    format!("lease-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn settings(attempts_max: u32) -> Settings {
    Settings { attempts_max, ..Settings::default() }
}

const ROW: &str = "SELECT state || ' ' || attempts || ' ' || attempts_excused FROM webhook_inbox";
const EFFECTS: &str = "SELECT count(*) FROM effect";

#[test]
fn a_stored_event_is_worked_on_once() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Arc::new(Books::default()), settings(3));
    assert_eq!(process.deliver("evt_1", "thing.happened", NOW_MS), Outcome::Accepted);
    assert_eq!(process.deliver("evt_1", "thing.happened", NOW_MS), Outcome::Duplicate);
    assert_eq!(text(&dir, ROW), "pending 0 0");
    assert_eq!(process.step(NOW_MS), Step::Worked);
    assert!(matches!(process.step(NOW_MS), Step::Idle(_)));
    assert_eq!(text(&dir, ROW), "done 1 0");
    assert_eq!(process.deliver("evt_1", "thing.happened", NOW_MS), Outcome::Duplicate);
    assert_eq!(count(&dir, EFFECTS), 1);
}

#[test]
fn an_event_that_no_handler_takes_is_ignored_in_this_mode_too() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Arc::new(Books::default()), settings(3));
    assert_eq!(process.deliver("evt_1", "other.happened", NOW_MS), Outcome::Ignored);
    assert!(matches!(process.step(NOW_MS), Step::Idle(_)));
}

#[test]
fn fifty_events_and_four_workers_on_two_processes_make_fifty_effects() {
    let dir = tempfile::tempdir().unwrap();
    let processes = [
        Process::on(dir.path(), Arc::new(Books::default()), settings(3)),
        Process::on(dir.path(), Arc::new(Books::default()), settings(3)),
    ];
    for n in 0..50 {
        processes[n % 2].deliver(&format!("evt_{n}"), "thing.happened", NOW_MS);
    }
    thread::scope(|scope| {
        for process in &processes {
            for _ in 0..2 {
                scope.spawn(|| {
                    // a worker that finds the store busy is idle as well
                    support::wait_for("all are worked on", || {
                        process.work_until_idle(NOW_MS);
                        count(&dir, "SELECT count(*) FROM webhook_inbox WHERE state = 'done'") == 50
                    });
                });
            }
        }
    });
    assert_eq!(count(&dir, EFFECTS), 50);
    assert_eq!(count(&dir, "SELECT count(*) FROM webhook_inbox WHERE state = 'done' AND attempts = 1"), 50);
}

#[test]
fn one_step_claims_sixteen_events_each_with_a_lease_and_an_attempt_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let leases = Arc::new(Leases::default());
    let process = Process::on(dir.path(), Arc::clone(&leases) as Arc<dyn Handler>, settings(3));
    for n in 0..20 {
        process.deliver(&format!("evt_{n}"), "thing.happened", NOW_MS + n);
    }
    assert_eq!(process.step(NOW_MS + 100), Step::Worked);
    let seen = leases.0.lock().unwrap();
    assert_eq!(seen.len(), 16);
    assert!(seen.iter().all(|(_, held)| *held == 16), "all were claimed before the first was worked on");
    let distinct: std::collections::HashSet<_> = seen.iter().map(|(lease, _)| lease).collect();
    assert_eq!(distinct.len(), 16);
    assert_eq!(
        text(&dir, "SELECT group_concat(DISTINCT state || attempts) FROM webhook_inbox WHERE id <= 16"),
        "done1"
    );
    assert_eq!(
        text(&dir, "SELECT group_concat(DISTINCT state || attempts) FROM webhook_inbox WHERE id > 16"),
        "pending0"
    );
    assert_eq!(count(&dir, "SELECT count(*) FROM webhook_attempts WHERE result = 'done'"), 16);
}

/// Notes the lease of each event, and how many were claimed by then and not worked on when the first began.
#[derive(Default)]
struct Leases(Mutex<Vec<(String, i64)>>);

impl Handler for Leases {
    fn name(&self) -> &str {
        "leases"
    }

    fn takes(&self, _: &str) -> bool {
        true
    }

    fn handle(&self, tx: &Transaction<'_>, event: &Event<'_>) -> Result<Handled, HandlerError> {
        let lease = "SELECT lease_id FROM webhook_inbox WHERE event_id = ?1";
        let lease = tx.query_row(lease, [event.id], |row| row.get(0))?;
        let claimed = "SELECT count(*) FROM webhook_attempts WHERE number = 1";
        self.0.lock().unwrap().push((lease, tx.query_row(claimed, [], |row| row.get(0))?));
        Ok(Handled::Applied)
    }
}

#[test]
fn of_events_claimed_together_each_stands_or_falls_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Books::failing("evt_2", 1), settings(3));
    for n in 0..5 {
        let event_type = if n == 3 { "thing.contradictory" } else { "thing.happened" };
        process.deliver(&format!("evt_{n}"), event_type, NOW_MS);
    }
    process.step(NOW_MS);
    let states = "SELECT group_concat(state, ' ') FROM (SELECT state FROM webhook_inbox ORDER BY id)";
    assert_eq!(text(&dir, states), "done done pending quarantined done");
    assert_eq!(count(&dir, EFFECTS), 3);
    process.step(NOW_MS + 1_000);
    assert_eq!(text(&dir, states), "done done done quarantined done");
    assert_eq!(count(&dir, EFFECTS), 4);
}

#[test]
fn large_bodies_are_not_claimed_together() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Arc::new(Books::default()), settings(3));
    for n in 0..3 {
        process.deliver(&format!("evt_{n}"), "thing.happened", NOW_MS);
    }
    let enlarge = "UPDATE webhook_inbox SET payload = payload || printf('%*s', 3000000, ' ')";
    support::open(&dir.path().join("inboxd.db")).execute(enlarge, []).unwrap();
    for done in 1..=3 {
        process.step(NOW_MS);
        assert_eq!(count(&dir, "SELECT count(*) FROM webhook_inbox WHERE state = 'done'"), done);
    }
}

#[test]
fn a_stop_gives_back_what_was_claimed_and_charges_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let books = Arc::new(Books::default());
    let process = Process::on(dir.path(), Arc::clone(&books) as Arc<dyn Handler>, settings(1));
    process.deliver("evt_1", "thing.happened", NOW_MS);
    process.deliver("evt_2", "thing.happened", NOW_MS);
    process.worker().stop();
    process.step(NOW_MS);
    assert_eq!(books.calls.load(Ordering::Relaxed), 0);
    assert_eq!(
        text(&dir, "SELECT group_concat(DISTINCT state || (attempts - attempts_excused)) FROM webhook_inbox"),
        "pending0"
    );
    assert_eq!(text(&dir, "SELECT group_concat(result, ' ') FROM webhook_attempts"), "excused excused");
    drop(process);
    let process = Process::on(dir.path(), Arc::new(Books::default()), settings(1));
    process.work_until_idle(NOW_MS);
    assert_eq!(count(&dir, EFFECTS), 2);
}

#[test]
fn a_failure_leaves_no_effect_and_is_retried_after_a_wait() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Books::failing("evt_1", 2), settings(5));
    process.deliver("evt_1", "thing.happened", NOW_MS);
    process.step(NOW_MS);
    assert_eq!(text(&dir, ROW), "pending 1 0");
    assert_eq!(count(&dir, EFFECTS), 0);
    assert_eq!(
        text(&dir, "SELECT error_class || ': ' || last_error FROM webhook_inbox"),
        "handler: handler books: not yet"
    );
    assert_eq!(
        process.step(NOW_MS + 999),
        Step::Idle(Duration::from_millis(1)),
        "the first wait is up to 1 s"
    );
    process.step(NOW_MS + 1_000);
    assert_eq!(text(&dir, ROW), "pending 2 0");
    process.step(NOW_MS + 3_000);
    assert_eq!(text(&dir, ROW), "done 3 0");
    assert_eq!(count(&dir, EFFECTS), 1);
    let history = "SELECT group_concat(number || result, ' ') FROM webhook_attempts";
    assert_eq!(text(&dir, history), "1failed 2failed 3done");
}

#[test]
fn an_event_that_always_fails_waits_for_a_person_after_its_last_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Books::failing("evt_1", 99), settings(3));
    process.deliver("evt_1", "thing.happened", NOW_MS);
    process.deliver("evt_2", "thing.happened", NOW_MS);
    for n in 0..10 {
        process.work_until_idle(NOW_MS + n * 1_000_000);
    }
    assert_eq!(
        text(&dir, "SELECT state || ' ' || attempts FROM webhook_inbox WHERE event_id = 'evt_1'"),
        "quarantined 3"
    );
    assert_eq!(text(&dir, "SELECT state FROM webhook_inbox WHERE event_id = 'evt_2'"), "done");
    assert_eq!(count(&dir, "SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL"), 1);
    assert_eq!(count(&dir, EFFECTS), 1);
}

#[test]
fn a_claim_that_never_ends_is_counted_and_the_third_is_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Arc::new(Books::default()), settings(3));
    process.deliver("evt_1", "thing.kills", NOW_MS);
    for attempt in 1..=3 {
        // claimed and committed, then the process dies before the work ends
        let lease = format!("dead-{attempt}");
        let sql = "UPDATE webhook_inbox SET state = 'processing', attempts = attempts + 1, lease_id = ?1";
        support::open(&dir.path().join("inboxd.db")).execute(sql, [lease]).unwrap();
        process.worker().take_over(NOW_MS).unwrap();
    }
    assert_eq!(process.step(NOW_MS), Step::Worked);
    assert_eq!(text(&dir, ROW), "quarantined 3 0");
    assert_eq!(count(&dir, EFFECTS), 0);
    assert_eq!(count(&dir, "SELECT count(*) FROM reviews"), 1);
}

#[test]
fn a_worker_that_lost_its_lease_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Arc::new(Books::default()), settings(5));
    process.deliver("evt_1", "thing.happened", NOW_MS);
    // a first worker claimed it and stood still for longer than its lease
    let sql = "UPDATE webhook_inbox SET state = 'processing', attempts = 1, lease_id = 'slow', available_at_ms = ?1";
    support::open(&dir.path().join("inboxd.db")).execute(sql, [NOW_MS + 120_000]).unwrap();
    assert!(matches!(process.step(NOW_MS + 119_999), Step::Idle(_)), "the lease still holds");
    assert_eq!(process.step(NOW_MS + 120_000), Step::Worked);
    assert_eq!(text(&dir, ROW), "done 2 0");
    // the first one comes back
    let settled = process
        .writer
        .as_ref()
        .unwrap()
        .run(|tx| Ok(inboxd::internals::store::inbox::queue::is_held(tx, 1, "slow")?))
        .unwrap();
    assert!(!settled);
    assert_eq!(count(&dir, EFFECTS), 1);
}

#[test]
fn a_statement_that_never_ends_is_interrupted_and_the_worker_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Arc::new(Books::default()), settings(5));
    process.deliver("evt_1", "thing.endless", NOW_MS);
    process.deliver("evt_2", "thing.happened", NOW_MS);
    process.work_until_idle(NOW_MS);
    assert_eq!(text(&dir, "SELECT error_class FROM webhook_inbox WHERE event_id = 'evt_1'"), "timeout");
    assert_eq!(text(&dir, "SELECT state FROM webhook_inbox WHERE event_id = 'evt_2'"), "done");
    assert_eq!(count(&dir, EFFECTS), 1);
}

#[test]
fn a_contradiction_is_kept_for_a_person_and_a_redelivery_tries_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Arc::new(Books::default()), settings(5));
    process.deliver("evt_1", "thing.contradictory", NOW_MS);
    process.work_until_idle(NOW_MS);
    assert_eq!(text(&dir, ROW), "quarantined 1 0");
    assert_eq!(count(&dir, EFFECTS), 0);
    assert_eq!(process.deliver("evt_1", "thing.contradictory", NOW_MS), Outcome::Accepted);
    assert_eq!(text(&dir, ROW), "pending 1 1");
    process.work_until_idle(NOW_MS);
    assert_eq!(text(&dir, ROW), "quarantined 2 1");
    assert_eq!(count(&dir, "SELECT count(*) FROM reviews"), 1, "the same question is not asked twice");
}

/// Changes its mind.
struct Undecided(AtomicUsize);

impl Handler for Undecided {
    fn name(&self) -> &str {
        "undecided"
    }

    fn takes(&self, _: &str) -> bool {
        true
    }

    fn handle(&self, _: &Transaction<'_>, _: &Event<'_>) -> Result<Handled, HandlerError> {
        Ok(match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => Handled::Quarantine("what is this?".to_owned()),
            _ => Handled::Ignored,
        })
    }
}

#[test]
fn a_review_closes_when_its_event_turns_out_to_be_nobodys_business() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Arc::new(Undecided(AtomicUsize::new(0))), settings(5));
    process.deliver("evt_1", "thing.happened", NOW_MS);
    process.work_until_idle(NOW_MS);
    let open = "SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL";
    assert_eq!(count(&dir, open), 1);
    assert_eq!(process.deliver("evt_1", "thing.happened", NOW_MS), Outcome::Accepted);
    process.work_until_idle(NOW_MS);
    assert_eq!(text(&dir, ROW), "ignored 2 1");
    assert_eq!(count(&dir, open), 0);
}

#[test]
fn a_full_disk_is_not_charged_to_the_event() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Arc::new(Fills), settings(2));
    process.deliver("evt_1", "thing.happened", NOW_MS);
    let pages = |n: &'static str| {
        let writer = process.writer.as_ref().unwrap();
        writer
            .run(move |tx| {
                let now: i64 = tx.pragma_query_value(None, "page_count", |row| row.get(0))?;
                let max = if n == "few" { now + 8 } else { now + 10_000 };
                tx.pragma_update(None, "max_page_count", max)?;
                Ok(())
            })
            .unwrap();
    };
    pages("few");
    for n in 0..5 {
        process.step(NOW_MS + n * 1_000_000);
    }
    let row = text(
        &dir,
        "SELECT state || ' ' || (attempts = attempts_excused) || ' ' || error_class FROM webhook_inbox",
    );
    assert_eq!(row, "pending 1 storage");
    pages("many");
    process.work_until_idle(NOW_MS + 100_000_000);
    assert_eq!(text(&dir, "SELECT state FROM webhook_inbox"), "done");
    assert_eq!(count(&dir, EFFECTS), 1);
}

/// Needs a hundred pages.
struct Fills;

impl Handler for Fills {
    fn name(&self) -> &str {
        "fills"
    }

    fn takes(&self, _: &str) -> bool {
        true
    }

    fn handle(&self, tx: &Transaction<'_>, event: &Event<'_>) -> Result<Handled, HandlerError> {
        tx.execute("INSERT INTO effect (event_id) VALUES (?1)", [event.id])?;
        tx.execute_batch(
            "CREATE TABLE IF NOT EXISTS bulk (b BLOB); INSERT INTO bulk VALUES (zeroblob(400000))",
        )?;
        Ok(Handled::Applied)
    }
}

#[test]
fn a_clock_that_is_set_back_two_hours_does_not_stall_a_retry() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Books::failing("evt_1", 1), settings(5));
    process.deliver("evt_1", "thing.happened", NOW_MS);
    process.step(NOW_MS);
    let back = NOW_MS - 2 * 3_600_000;
    assert!(matches!(process.step(back), Step::Idle(_)), "it is not due yet, and not forgotten");
    let due = count(&dir, "SELECT available_at_ms FROM webhook_inbox");
    assert!(due <= back + 300_000, "due {} ms after now", due - back);
    assert_eq!(process.step(back + 300_000), Step::Worked);
    assert_eq!(text(&dir, ROW), "done 2 0");
}

#[test]
fn a_clock_that_is_set_back_leaves_a_retry_its_own_wait() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Books::failing("evt_1", 3), settings(9));
    process.deliver("evt_1", "thing.happened", NOW_MS);
    // waits of 1, 2 and 4 s
    for at in [0, 1_000, 3_000] {
        process.step(NOW_MS + at);
    }
    assert_eq!(count(&dir, "SELECT available_at_ms FROM webhook_inbox"), NOW_MS + 7_000);
    process.deliver("evt_2", "thing.happened", NOW_MS + 3_000);
    let back = NOW_MS - 60_000;
    assert_eq!(process.step(back), Step::Worked, "what came by the other clock is due at once");
    assert_eq!(process.step(back), Step::Idle(Duration::from_secs(1)));
    assert_eq!(
        count(&dir, "SELECT available_at_ms FROM webhook_inbox WHERE event_id = 'evt_1'"),
        back + 4_000
    );
    process.step(back + 3_999);
    assert_eq!(process.step(back + 4_000), Step::Worked);
    assert_eq!(count(&dir, EFFECTS), 2);
}

#[test]
fn a_start_after_the_clock_was_set_back_leaves_a_retry_its_own_wait() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Books::failing("evt_1", 1), settings(9));
    process.deliver("evt_1", "thing.happened", NOW_MS);
    process.step(NOW_MS);
    drop(process);
    let process = Process::on(dir.path(), Arc::new(Books::default()), settings(9));
    let back = NOW_MS - 100_000;
    process.worker().take_over(back).unwrap();
    assert_eq!(count(&dir, "SELECT available_at_ms FROM webhook_inbox"), back + 1_000);
}

#[test]
fn an_event_that_the_application_has_is_in_progress_whatever_is_done_to_the_clock() {
    const DAY_MS: i64 = 86_400_000;
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Arc::new(Books::default()), settings(3));
    let (held, lease) = (Arc::new(Held::default()), Duration::from_secs(600));
    let claim = |now_ms: i64| {
        let body = r#"{"id":"evt_1","type":"thing.happened","data":{"object":{"id":"x"}}}"#;
        let event = support::stripe_event(&process.endpoint.config.verifier, body, now_ms);
        let (endpoint, held, lease_id) = (Arc::clone(&process.endpoint), Arc::clone(&held), self::lease());
        let writer = process.writer.as_ref().unwrap();
        writer
            .run(move |tx| receive::claim(tx, &endpoint, &event, (&lease_id, lease, &held), now_ms))
            .unwrap()
    };
    let receive::Claim::Ask(claimed) = claim(NOW_MS) else { panic!("it is not ours") };
    for now_ms in [NOW_MS, NOW_MS - 3_600_000, NOW_MS + 3_600_000, NOW_MS + 400 * DAY_MS, NOW_MS - DAY_MS] {
        let again = claim(now_ms);
        assert!(matches!(again, receive::Claim::InProgress(left) if left <= lease), "{now_ms}: {again:?}");
    }
    held.release(claimed.id, &claimed.lease_id);
    assert!(matches!(claim(NOW_MS - DAY_MS), receive::Claim::Ask(_)), "nobody holds it any more");
}

#[test]
fn a_clock_that_jumps_a_day_ahead_starts_each_event_once() {
    let dir = tempfile::tempdir().unwrap();
    let books = Arc::new(Books::default());
    let process = Process::on(dir.path(), Arc::clone(&books) as Arc<dyn Handler>, settings(5));
    for n in 0..20 {
        process.deliver(&format!("evt_{n}"), "thing.happened", NOW_MS);
    }
    process.work_until_idle(NOW_MS + 86_400_000);
    assert_eq!(books.calls.load(Ordering::Relaxed), 20);
    assert_eq!(count(&dir, EFFECTS), 20);
}

/// Ends the whole process for one event, as a bug in native code or the OOM killer would.
struct Aborts;

impl Handler for Aborts {
    fn name(&self) -> &str {
        "aborts"
    }

    fn takes(&self, _: &str) -> bool {
        true
    }

    fn handle(&self, tx: &Transaction<'_>, event: &Event<'_>) -> Result<Handled, HandlerError> {
        if event.id == "evt_kills" {
            std::process::abort();
        }
        tx.execute("INSERT INTO effect (event_id) VALUES (?1)", [event.id])?;
        Ok(Handled::Applied)
    }
}

/// Where the process that is killed finds its database.
const FOLDER: &str = "INBOXD_TEST_FOLDER";

#[test]
#[ignore = "is started by another test, as a process"]
#[allow(clippy::disallowed_methods, reason = "the parent's word to its child")]
fn as_a_process_that_an_event_kills() {
    let folder = std::env::var(FOLDER).unwrap();
    let process = Process::on(Path::new(&folder), Arc::new(Aborts), settings(3));
    process.worker().take_over(NOW_MS).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| process.work_until_idle(NOW_MS));
        }
    });
}

#[test]
fn an_event_that_kills_the_process_waits_for_a_person_while_the_others_are_worked_on() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Arc::new(Aborts), settings(3));
    for n in 0..40 {
        let id = if n == 7 { "evt_kills".to_owned() } else { format!("evt_{n}") };
        process.deliver(&id, "thing.happened", NOW_MS);
    }
    drop(process);
    let mut deaths = 0;
    loop {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "as_a_process_that_an_event_kills"])
            .env(FOLDER, dir.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        if child.success() {
            break;
        }
        deaths += 1;
        assert!(deaths < 10, "the event is tried for ever");
    }
    assert_eq!(deaths, 3);
    assert_eq!(
        text(&dir, "SELECT state || ' ' || attempts FROM webhook_inbox WHERE event_id = 'evt_kills'"),
        "quarantined 3"
    );
    assert_eq!(count(&dir, "SELECT count(*) FROM webhook_inbox WHERE state = 'done'"), 39);
    assert_eq!(count(&dir, EFFECTS), 39);
    assert_eq!(count(&dir, "SELECT count(*) FROM reviews"), 1);
}

#[test]
fn a_test_send_that_is_worked_on_later_is_still_a_test_send() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::on(dir.path(), Arc::new(inboxd::handlers::Billing), settings(3));
    let id = "evt_00000000000000";
    assert_eq!(process.deliver(id, "invoice.paid", NOW_MS), Outcome::Accepted);
    assert_eq!(process.deliver(id, "invoice.voided", NOW_MS), Outcome::Accepted);
    process.work_until_idle(NOW_MS);
    assert_eq!(count(&dir, "SELECT count(*) FROM webhook_inbox WHERE state = 'ignored'"), 2);
    assert_eq!(count(&dir, "SELECT count(*) FROM reviews"), 0);
}
