//! The outbox: what is queued, sent, signed, ordered, given up; and what a person can do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use inboxd::config::{Config, MissingSecrets};
use inboxd::handlers::{Event, Handled, Handler, HandlerError, Registry};
use inboxd::internals::background::dispatcher::Dispatcher;
use inboxd::internals::background::poller::{Poller as _, Step, Tick};
use inboxd::internals::intake::deliveries;
use inboxd::internals::intake::front::{self, Front, Listener};
use inboxd::internals::intake::proxy::Proxy;
use inboxd::internals::intake::receive::{self, Outcome};
use inboxd::internals::providers::Provider;
use inboxd::internals::signature::{Delivery, Headers, Secret};
use inboxd::internals::store::open;
use inboxd::internals::store::outbox;
use inboxd::internals::store::outbox::queue::{self, Claim, ClaimTerms};
use inboxd::internals::store::writer::{self, Writer, WriterHandle};
use inboxd::internals::verify::Verifier;
use inboxd::internals::wake::Wake;
use inboxd::internals::work::endpoint::Endpoint;
use inboxd::internals::work::screen;
use inboxd::internals::work::target::{Parcel, Target, message_id};
use rusqlite::Transaction;
use support::app::{Absent, App, Gate, Seen, respond};
use support::{Daemon, count, only_event, text};
use tempfile::TempDir;

const NOW_MS: i64 = 1_764_000_000_000;
const HOUR_MS: i64 = 3_600_000;
const STANDARD_SECRETS: [&str; 2] =
    ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2Vjb25kIHNlY3JldCBvZiB0aGUgdGVzdHM="];

/// Quarantines what it takes.
struct Doubter;

impl Handler for Doubter {
    fn name(&self) -> &str {
        "doubter"
    }

    fn takes(&self, event_type: &str) -> bool {
        event_type == "thing.doubtful"
    }

    fn handle(&self, _: &Transaction<'_>, _: &Event<'_>) -> Result<Handled, HandlerError> {
        Ok(Handled::Quarantine("doubtful".to_owned()))
    }
}

/// One daemon's writer and dispatcher on a file; several may share it.
struct Process {
    writer: Option<WriterHandle>,
    dispatcher: Option<Arc<Dispatcher>>,
    target: Option<Arc<Target>>,
    endpoints: Vec<Arc<Endpoint>>,
    thread: Option<JoinHandle<rusqlite::Result<()>>>,
    now_ms: AtomicI64,
}

impl Process {
    /// `[destination.app]` with these lines, forwarded to by a Stripe and a GitHub endpoint.
    fn on(dir: &TempDir, url: &str, destination: &str) -> Self {
        Self::with(dir, url, destination, "")
    }

    fn with(dir: &TempDir, url: &str, destination: &str, endpoint: &str) -> Self {
        let path = dir.path().join("inboxd.db");
        let conn = open::open_writer(&path).unwrap();
        let limits = writer::Settings::new(path, Duration::from_millis(500), 0);
        let (writer, handle) = Writer::new(conn, limits).unwrap();
        let thread = Some(thread::spawn(|| writer.run()));
        // two writers that start on one file at once make each other wait
        support::wait_for("the store is ready", || !handle.health().is_recovering());
        let config = support::CONFIG
            .replace("handlers = [\"billing\"]", &format!("forward = [\"app\"]\n{endpoint}"))
            .replace("provider = \"github\"", "provider = \"github\"\nforward = [\"app\"]")
            + &format!("[destination.app]\nurl = \"{url}\"\n{destination}\n");
        std::fs::write(dir.path().join("inboxd.toml"), config).unwrap();
        support::write_secret(dir.path(), "stripe.secret", support::STRIPE_SECRET);
        support::write_secret(dir.path(), "github.secret", support::GITHUB_SECRET);
        support::write_secret(dir.path(), "one.secret", STANDARD_SECRETS[0]);
        support::write_secret(dir.path(), "two.secret", STANDARD_SECRETS[1]);
        support::write_secret(dir.path(), "token.secret", "Bearer the-token");
        let config = Config::load(
            Some(&dir.path().join("inboxd.toml")),
            MissingSecrets::Report,
            Registry::new().facts(),
        )
        .unwrap();
        let handlers: Vec<Arc<dyn Handler>> = vec![Arc::new(Doubter)];
        let (_, endpoints, destinations) = config.into_parts();
        let endpoints: Vec<_> =
            endpoints.into_iter().map(|config| Arc::new(Endpoint::new(config, handlers.clone()))).collect();
        let destination = destinations.into_iter().next().unwrap();
        let target = Arc::new(Target::new(destination, &endpoints).unwrap());
        let dispatcher = Arc::new(Dispatcher::new(handle.clone(), Arc::clone(&target)));
        Self {
            writer: Some(handle),
            dispatcher: Some(dispatcher),
            target: Some(target),
            endpoints,
            thread,
            now_ms: AtomicI64::new(NOW_MS),
        }
    }

    fn writer(&self) -> &WriterHandle {
        self.writer.as_ref().unwrap()
    }

    fn dispatcher(&self) -> &Arc<Dispatcher> {
        self.dispatcher.as_ref().unwrap()
    }

    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn pass(&self, ms: i64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
    }

    fn event(id: &str, event_type: &str, object: &str) -> String {
        format!(r#"{{"id":"{id}","type":"{event_type}","data":{{"object":{{"id":"{object}"}}}}}}"#)
    }

    fn deliver(&self, id: &str, object: &str) -> Outcome {
        self.deliver_body(&Self::event(id, "thing.happened", object))
    }

    fn deliver_body(&self, body: &str) -> Outcome {
        let now_ms = self.now_ms();
        let line = support::stripe_signature(body, now_ms / 1000, support::STRIPE_SECRET);
        self.store(0, &[&line, "Content-Type: application/json; charset=utf-8"], body.as_bytes())
    }

    fn deliver_github(&self, body: &str) -> Outcome {
        let lines = [
            &support::github_signature(body),
            "Content-Type: application/json",
            "X-GitHub-Delivery: d-1",
            "X-GitHub-Event: issues",
            "X-GitHub-Hook-ID: 77",
        ];
        self.store(1, &lines, body.as_bytes())
    }

    fn store(&self, endpoint: usize, lines: &[&str], body: &[u8]) -> Outcome {
        let now_ms = self.now_ms();
        let headers = Headers::from_iter(lines.iter().map(|line| line.split_once(": ").unwrap()));
        let delivery = Delivery { method: "POST", url: "/", headers: &headers, body: body.to_vec() };
        let endpoint = Arc::clone(&self.endpoints[endpoint]);
        let event = only_event(endpoint.config.verifier.verify(delivery, now_ms).unwrap());
        let disposition = screen::disposition(&endpoint, &event);
        self.writer()
            .run(move |tx| receive::store(tx, &endpoint, &event, &disposition, now_ms))
            .unwrap()
            .outcome
    }

    /// One step with the longest possible wait.
    fn step(&self) -> Step {
        step(self.dispatcher(), self.now_ms())
    }

    /// Steps in so many threads until so many rows are delivered. The clock runs as it does on the wall: it
    /// overtakes no lease while a thread has to wait for its turn.
    fn deliver_in_threads(&self, threads: usize, dir: &TempDir, rows: i64) {
        let (start, from_ms) = (Instant::now(), self.now_ms());
        let now_ms = || from_ms + i64::try_from(start.elapsed().as_millis()).unwrap();
        let work = || {
            let mut delivered = 0;
            while delivered < rows {
                support::wait_for("another row is delivered", || {
                    while step(self.dispatcher(), now_ms()) == Step::Worked {}
                    let before = std::mem::replace(&mut delivered, count(dir, DELIVERED));
                    delivered > before
                });
            }
        };
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    }

    /// Steps, and lets the clock run to where something is due, until this many milliseconds have passed.
    fn run_for(&self, ms: i64) {
        let end_ms = self.now_ms() + ms;
        // a daemon looks once a second; hours are run through in larger strides
        let stride_ms = if ms > HOUR_MS { 10_000 } else { 1 };
        while self.now_ms() < end_ms {
            if let Step::Idle(time) = self.step() {
                self.pass(i64::try_from(time.as_millis()).unwrap().max(stride_ms));
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.dispatcher = None;
        self.target = None;
        self.writer = None;
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn step(dispatcher: &Dispatcher, now_ms: i64) -> Step {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let lease_id = format!("lease-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut once = Some(Tick { lease_id, now_ms, steady_ms: now_ms, random: u64::MAX });
    dispatcher.steps(&mut || once.take())
}

const ROW: &str = "SELECT state || ' ' || attempts FROM outbox";
const HISTORY: &str = "SELECT group_concat(number || ifnull(result, '?'), ' ') FROM outbox_attempts";
const DELIVERED: &str = "SELECT count(*) FROM outbox WHERE state = 'delivered'";

fn headers(seen: &Seen) -> Headers {
    Headers::from_iter(seen.headers.clone())
}

// ---- rows

#[test]
fn a_forwarded_event_is_sent_byte_for_byte_and_only_once() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::answering(200);
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    let body = "{\"id\" : \"evt_1\",\n \"type\":\"thing.happened\", \"n\": 1.0e2, \"é\":\"\\u00e9\"}";
    assert_eq!(process.deliver_body(body), Outcome::Processed);
    assert_eq!(text(&dir, "SELECT operation_key FROM outbox"), "billing:evt_1:forward:app");
    assert_eq!(process.step(), Step::Worked);
    assert_eq!(text(&dir, ROW), "delivered 1");
    let seen = &app.seen()[0];
    assert_eq!((seen.text(), seen.path.as_str()), (body, "/hooks"));
    let expected = [
        ("content-type", "application/json; charset=utf-8"),
        ("idempotency-key", "billing:evt_1:forward:app"),
        ("inboxd-event-id", "evt_1"),
        ("inboxd-endpoint", "billing"),
        ("inboxd-attempt", "1"),
    ];
    for (name, value) in expected {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }

    process.pass(29 * 24 * HOUR_MS);
    assert_eq!(process.deliver_body(body), Outcome::Duplicate);
    assert!(matches!(process.step(), Step::Idle(_)));
    assert_eq!(app.seen().len(), 1);
}

#[test]
fn bytes_that_are_no_text_are_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::answering(200);
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    let (key, bytes) = ("k", [0xff, 0x00, 0xfe]);
    let job = move |tx: &Transaction<'_>| {
        let operation = outbox::NewOperation {
            destination: "app",
            topic: "t",
            operation_key: key,
            endpoint: "billing",
            event_id: "e",
            object_id: None,
            payload: &bytes,
            content_type: "application/octet-stream",
            headers: None,
            event_type: None,
            query: None,
        };
        Ok((outbox::enqueue(tx, &operation, NOW_MS)?, outbox::enqueue(tx, &operation, NOW_MS)?))
    };
    assert_eq!(process.writer().run(job).unwrap(), (true, false), "one effect is queued once");
    process.step();
    assert_eq!(app.seen()[0].body, bytes);
}

#[test]
fn in_async_mode_an_event_that_is_only_forwarded_is_processed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::answering(200);
    let process = Process::with(&dir, &app.url, "sign = \"none\"", "mode = \"async\"");
    assert_eq!(process.deliver("evt_1", "x"), Outcome::Processed);
    assert_eq!(process.deliver_body(&Process::event("evt_2", "thing.doubtful", "x")), Outcome::Accepted);
    assert_eq!(count(&dir, "SELECT count(*) FROM outbox"), 2);
}

#[test]
fn a_quarantined_event_keeps_its_forwards_and_has_a_review() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::answering(200);
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    assert_eq!(process.deliver_body(&Process::event("evt_1", "thing.doubtful", "x")), Outcome::Quarantined);
    process.step();
    assert_eq!(app.seen().len(), 1);
    assert_eq!(text(&dir, "SELECT kind FROM reviews"), "quarantined");
}

/// Where the workers and the dispatchers hear of it; the daemon's threads wait there.
#[test]
fn what_is_stored_rings_for_those_who_work_on_it_before_it_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let absent = Absent::new();
    let process = Process::with(&dir, &absent.url, "sign = \"none\"", "mode = \"async\"");
    let (workers, dispatchers) = (Arc::new(Wake::default()), Arc::new(Wake::default()));
    let wakes = (Arc::clone(&workers), Arc::clone(&dispatchers));
    let proxy = Arc::new(Proxy::new(process.writer().clone(), &[]));
    let app = deliveries::App::new(&process.endpoints, None, process.writer().clone(), wakes, proxy);
    let socket = dir.path().join("public.sock");
    let settings = front::Settings {
        listener: front::WEBHOOKS,
        respond: Box::new(move |request| app.respond(request)),
        connections_max: 8,
        descriptors_max: 100,
        body_bytes_max: Box::new(|_| 1 << 20),
        waits_for_application: None,
        trusted_proxies: Vec::new(),
        bounds: front::Bounds::default(),
    };
    let front = Front::new(Listener::Unix(UnixListener::bind(&socket).unwrap()), settings).unwrap();
    let deliver = |body: &str| {
        let signature = support::stripe_signature(body, support::now_s(), support::STRIPE_SECRET);
        let length = body.len();
        let mut stream = UnixStream::connect(&socket).unwrap();
        write!(stream, "POST /webhooks/stripe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{signature}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split("\r\n\r\n").nth(1).unwrap().to_owned(), workers.count(), dispatchers.count())
    };
    let (forwarded, handled) =
        (Process::event("evt_1", "thing.happened", "x"), Process::event("evt_2", "thing.doubtful", "x"));
    let told = thread::scope(|scope| {
        let handle = front.handle();
        scope.spawn(|| front.run());
        let told = [&forwarded, &forwarded, &handled].map(|body| deliver(body));
        handle.stop_accepting();
        told
    });
    let expected = [("processed", 0, 1), ("duplicate", 0, 1), ("accepted", 1, 2)];
    let expected = expected.map(|(word, wake, outbox)| (format!(r#"{{"outcome":"{word}"}}"#), wake, outbox));
    assert_eq!(told, expected);
}

// ---- attempts and their results

#[test]
fn a_failed_delivery_is_tried_again_with_the_same_key() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::start(|seen, back| respond(back, if seen.number < 2 { 500 } else { 204 }, "", "why not"));
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    process.deliver("evt_1", "x");
    process.step();
    assert_eq!(text(&dir, ROW), "pending 1");
    assert_eq!(
        text(&dir, "SELECT last_error || ' ' || response_status || ' ' || response_excerpt FROM outbox"),
        "the answer was 500 500 why not"
    );
    assert!(matches!(process.step(), Step::Idle(_)), "not before its wait is over");
    process.run_for(10_000);
    assert_eq!(text(&dir, ROW), "delivered 3");
    assert_eq!(text(&dir, HISTORY), "1failed 2failed 3delivered");
    let seen = app.seen();
    let keys: Vec<_> = seen.iter().map(|seen| (seen.key(), seen.header("inboxd-attempt").unwrap())).collect();
    assert_eq!(
        keys,
        [
            ("billing:evt_1:forward:app", "1"),
            ("billing:evt_1:forward:app", "2"),
            ("billing:evt_1:forward:app", "3")
        ]
    );
    assert_eq!(
        text(&dir, "SELECT status || ' ' || excerpt FROM outbox_attempts WHERE number = 1"),
        "500 why not"
    );
}

#[test]
fn killed_between_the_answer_and_the_mark_it_is_sent_a_second_time_and_marked_once() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::answering(200);
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    process.deliver("evt_1", "x");
    let claim = process.writer().run(|tx| {
        let terms = ClaimTerms {
            destination: "app",
            in_order: true,
            lease_id: "dead",
            lease_ms: 120_000,
            pass_over_ms: 1,
            held_ms: &|_| None,
            now_ms: NOW_MS,
        };
        Ok(queue::claim_next(tx, &terms)?)
    });
    let Claim::Work(claimed) = claim.unwrap() else { panic!("no row") };
    let parcel = Parcel {
        operation_key: &claimed.operation_key,
        endpoint: &claimed.endpoint,
        event_id: &claimed.event_id,
        topic: &claimed.topic,
        attempt: claimed.attempt,
        payload: &claimed.payload,
        content_type: &claimed.content_type,
        headers: claimed.headers.as_deref(),
        event_type: claimed.event_type.as_deref(),
        query: claimed.query.as_deref(),
    };
    let answer = process.target.as_ref().unwrap().send(&parcel, Duration::from_secs(5), NOW_MS).unwrap();
    assert_eq!(answer.status, 200);
    drop(process);

    let next = Process::on(&dir, &app.url, "sign = \"none\"");
    assert!(matches!(next.step(), Step::Idle(_)), "the lease of the dead process still runs");
    assert_eq!(next.dispatcher().take_over(NOW_MS).unwrap(), 1);
    assert_eq!(next.step(), Step::Worked);
    assert!(matches!(next.step(), Step::Idle(_)));
    let seen = app.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].key(), seen[1].key());
    assert_eq!(text(&dir, ROW), "delivered 2");
    assert_eq!(text(&dir, HISTORY), "1lost 2delivered");
}

#[test]
fn a_result_that_comes_after_its_lease_was_lost_is_discarded_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Gate::default();
    let held = gate.clone();
    let app = App::start(move |seen, back| {
        if seen.number == 0 {
            held.pass();
            return respond(back, 500, "", "late");
        }
        respond(back, 200, "", "in time");
    });
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    let other = Process::on(&dir, &app.url, "sign = \"none\"");
    process.deliver("evt_1", "x");
    thread::scope(|scope| {
        let slow = scope.spawn(|| process.step());
        app.wait_for(1);
        assert!(matches!(step(other.dispatcher(), NOW_MS + 119_000), Step::Idle(_)));
        assert_eq!(step(other.dispatcher(), NOW_MS + 121_000), Step::Worked);
        gate.open();
        assert_eq!(slow.join().unwrap(), Step::Worked);
    });
    assert_eq!(text(&dir, ROW), "delivered 2");
    assert_eq!(text(&dir, "SELECT response_excerpt FROM outbox"), "in time");
    assert_eq!(text(&dir, HISTORY), "1lost 2delivered");
    assert_eq!(count(&dir, "SELECT stale_results FROM outbox_destinations"), 1);
}

#[test]
fn a_late_yes_does_not_settle_a_row_that_another_took_and_gave_back() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Gate::default();
    let held = gate.clone();
    let app = App::start(move |seen, back| {
        if seen.number == 0 {
            held.pass();
        }
        respond(back, if seen.number == 0 { 200 } else { 500 }, "", "");
    });
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    process.deliver("evt_1", "x");
    thread::scope(|scope| {
        let slow = scope.spawn(|| process.step());
        app.wait_for(1);
        assert_eq!(step(process.dispatcher(), NOW_MS + 121_000), Step::Worked);
        gate.open();
        slow.join().unwrap();
    });
    assert_eq!(text(&dir, ROW), "pending 2");
    assert_eq!(text(&dir, HISTORY), "1lost 2failed");
    assert_eq!(count(&dir, "SELECT stale_results FROM outbox_destinations"), 1);
}

#[test]
fn an_answer_that_never_ends_or_is_huge_is_cut_and_its_status_counts() {
    let dir = tempfile::tempdir().unwrap();
    let taken_whole = Arc::new(AtomicUsize::new(0));
    let count_whole = Arc::clone(&taken_whole);
    let app = App::start(move |seen, back| {
        let head = match seen.number {
            0 => "HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\n",
            _ => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        };
        drop(back.write_all(head.as_bytes()));
        let chunk =
            if seen.number == 0 { "x".repeat(65_536) } else { format!("1000\r\n{}\r\n", "y".repeat(4096)) };
        // 64 MiB are far more than what is kept and what the sockets hold
        let chunks = (64 << 20) / chunk.len();
        let is_whole = (0..chunks).all(|_| back.write_all(chunk.as_bytes()).is_ok());
        count_whole.fetch_add(usize::from(is_whole), Ordering::SeqCst);
    });
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    process.deliver("evt_1", "a");
    process.deliver("evt_2", "b");
    process.step();
    process.step();
    assert_eq!(count(&dir, DELIVERED), 2);
    assert_eq!(count(&dir, "SELECT max(length(excerpt)) FROM outbox_attempts"), 1024);
    app.wait_for_end(2);
    assert_eq!(taken_whole.load(Ordering::SeqCst), 0, "answers of 64 MiB were taken");
}

#[test]
fn an_answer_that_comes_byte_by_byte_is_cut_at_the_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let cut = Arc::new(AtomicUsize::new(0));
    let count_cut = Arc::clone(&cut);
    let app = App::start(move |seen, back| {
        let beginning = match seen.number {
            0 => "HTTP/1.1 200 OK\r\nX-Slow: ",
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
        };
        drop(back.write_all(beginning.as_bytes()));
        // a byte now and then keeps no request open
        let begun = Instant::now();
        while begun.elapsed() < support::HANG_TIME {
            if back.write_all(b"z").is_err() {
                count_cut.fetch_add(1, Ordering::SeqCst);
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    let process = Process::on(&dir, &app.url, "sign = \"none\"\ntimeout = \"2s\"");
    process.deliver("evt_1", "x");
    process.deliver("evt_2", "y");
    process.step();
    assert_eq!(
        count(&dir, "SELECT first_sent_at_ms FROM outbox WHERE id = 1"),
        NOW_MS,
        "it may have had its effect"
    );
    let error = text(&dir, "SELECT state || ' ' || last_error FROM outbox WHERE id = 1");
    assert_eq!(error, "pending the answer was not complete within 2 s");
    process.step();
    assert_eq!(text(&dir, "SELECT state FROM outbox WHERE id = 2"), "delivered", "its status was known");
    app.wait_for_end(2);
    assert_eq!(cut.load(Ordering::SeqCst), 2, "one answer was taken to its end");
}

#[test]
fn a_redirect_is_a_failure_and_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let other = App::answering(200);
    let location = format!("Location: {}\r\n", other.url);
    let app = App::start(move |seen, back| {
        let metadata = "Location: http://169.254.169.254/latest/meta-data/\r\n";
        respond(
            back,
            if seen.number == 0 { 303 } else { 302 },
            if seen.number == 0 { &location } else { metadata },
            "",
        );
    });
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    process.deliver("evt_1", "x");
    process.deliver("evt_2", "y");
    process.step();
    process.step();
    assert_eq!(count(&dir, "SELECT count(*) FROM outbox WHERE state = 'pending' AND attempts = 1"), 2);
    assert!(other.seen().is_empty());
}

#[test]
fn retry_after_is_honoured_up_to_the_longest_wait() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::start(|seen, back| {
        let seconds = if seen.number == 0 { "Retry-After: 30\r\n" } else { "Retry-After: 99999999\r\n" };
        respond(back, 429, seconds, "");
    });
    let process = Process::on(&dir, &app.url, "sign = \"none\"\nbackoff_cap = \"10m\"");
    process.deliver("evt_1", "x");
    let assert_waits = |wait_ms: i64| {
        let (now_ms, start) = (process.now_ms(), Instant::now());
        process.step();
        let took_ms = i64::try_from(start.elapsed().as_millis()).unwrap();
        // it is counted from the answer, which came at some time during the step
        let due_ms = count(&dir, "SELECT available_at_ms FROM outbox") - now_ms;
        assert!((wait_ms..=wait_ms + took_ms).contains(&due_ms), "{due_ms} instead of {wait_ms}");
    };
    assert_waits(30_000);
    process.pass(60_000);
    assert_waits(600_000);
}

#[test]
fn retry_after_is_honoured_as_a_date_and_a_date_in_the_past_adds_no_wait() {
    let dir = tempfile::tempdir().unwrap();
    // NOW_MS is Mon, 24 Nov 2025 16:00:00 GMT
    let dates = [
        "Mon, 24 Nov 2025 16:00:40 GMT",
        "Monday, 24-Nov-25 16:02:00 GMT",
        "Mon Nov 24 16:04:00 2025",
        "Mon, 24 Nov 2025 15:00:00 GMT",
        "Tue, 25 Nov 2025 15:00:00 GMT",
    ];
    let app = App::start(move |seen, back| {
        respond(back, 503, &format!("Retry-After: {}\r\n", dates[seen.number]), "");
    });
    let process = Process::on(&dir, &app.url, "sign = \"none\"\nbackoff_cap = \"10m\"");
    process.deliver("evt_1", "x");
    let due_ms = || {
        process.step();
        let due_ms = count(&dir, "SELECT available_at_ms FROM outbox");
        process.pass(due_ms - process.now_ms());
        due_ms - NOW_MS
    };
    assert_eq!([due_ms(), due_ms(), due_ms()], [40_000, 120_000, 240_000]);
    let after_the_past = due_ms();
    assert!((240_000..300_000).contains(&after_the_past), "{after_the_past}");
    let clamped = due_ms() - after_the_past;
    assert!((600_000..602_000 + 120_000).contains(&clamped), "{clamped}");
}

#[test]
fn what_the_destination_does_not_want_is_tried_at_the_slowest_pace() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::answering(422);
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    for n in 0..8 {
        process.deliver(&format!("evt_{n}"), &format!("x{n}"));
    }
    process.run_for(14 * 60_000);
    assert_eq!(app.seen().len(), 8, "one attempt each in a quarter of an hour");
    assert_eq!(
        count(&dir, "SELECT count(*) FROM outbox_destinations WHERE circuit_open_since_ms IS NOT NULL"),
        0
    );
}

#[test]
fn gone_pauses_the_destination_and_asks_a_person() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::start(|seen, back| respond(back, if seen.number == 0 { 410 } else { 200 }, "", ""));
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    process.deliver("evt_1", "x");
    process.deliver("evt_2", "y");
    process.run_for(HOUR_MS);
    assert_eq!(app.seen().len(), 1, "nothing more is sent");
    assert_eq!(text(&dir, "SELECT group_concat(state, ' ') FROM outbox"), "dead pending");
    assert_eq!(text(&dir, "SELECT paused_because FROM outbox_destinations"), "it answered 410 Gone");
    assert_eq!(
        text(&dir, "SELECT kind || ' ' || subject FROM reviews"),
        "undelivered billing:evt_1:forward:app"
    );
    process.writer().run(|tx| Ok(outbox::resume(tx, "app")?)).unwrap();
    process.run_for(1_000);
    assert_eq!(app.seen().len(), 2);
}

#[test]
fn what_fails_for_longer_than_give_up_after_is_dead_and_a_retry_gives_it_all_its_time_again() {
    let dir = tempfile::tempdir().unwrap();
    let works = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&works);
    let app = App::start(move |_, back| {
        respond(back, if is_up.load(Ordering::SeqCst) { 200 } else { 500 }, "", "")
    });
    let process = Process::on(&dir, &app.url, "sign = \"none\"\ngive_up_after = \"2h\"");
    process.deliver("evt_1", "x");
    process.run_for(HOUR_MS);
    assert_eq!(text(&dir, "SELECT state FROM outbox"), "pending");
    process.run_for(2 * HOUR_MS);
    assert_eq!(text(&dir, "SELECT state FROM outbox"), "dead");
    assert_eq!(
        count(&dir, "SELECT count(*) FROM reviews WHERE kind = 'undelivered' AND resolved_at_ms IS NULL"),
        1
    );

    let now_ms = process.now_ms();
    works.store(true, Ordering::SeqCst);
    assert!(process.writer().run(move |tx| Ok(queue::requeue(tx, 1, now_ms)?)).unwrap());
    process.run_for(HOUR_MS);
    assert_eq!(text(&dir, "SELECT state FROM outbox"), "delivered");
    assert_eq!(count(&dir, "SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL"), 0);
    assert!(
        !process.writer().run(move |tx| Ok(queue::requeue(tx, 1, now_ms)?)).unwrap(),
        "delivered is for ever"
    );
}

#[test]
fn a_clock_that_was_set_back_delays_nothing_for_long() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::answering(200);
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    process.deliver("evt_1", "x");
    process.pass(-400 * 24 * HOUR_MS);
    process.run_for(16 * 60_000);
    assert_eq!(text(&dir, ROW), "delivered 1");
}

#[test]
fn a_clock_that_was_set_back_leaves_a_row_its_own_wait() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::start(|seen, back| match seen.number {
        0 => respond(back, 500, "", ""),
        1 => respond(back, 503, "Retry-After: 100\r\n", ""),
        _ => respond(back, 200, "", ""),
    });
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    process.deliver("evt_1", "x");
    process.step();
    process.pass(-HOUR_MS);
    process.run_for(1_000);
    assert_eq!(text(&dir, ROW), "pending 1");
    process.run_for(1_000);
    assert_eq!(text(&dir, ROW), "pending 2", "the first wait is up to 1 s");
    process.pass(-60_000);
    process.run_for(95_000);
    assert_eq!(text(&dir, ROW), "pending 2", "it asked for 100 s");
    process.run_for(10_000);
    assert_eq!(text(&dir, ROW), "delivered 3");
}

/// A tick whose wall clock was set, while the other clock went on.
fn tick(process: &Process, wall_ms: i64, steady_ms: i64) -> Step {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let lease_id = format!("tick-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut once = Some(Tick { lease_id, now_ms: NOW_MS + wall_ms, steady_ms, random: u64::MAX });
    process.dispatcher().steps(&mut || once.take())
}

const DAY_MS: i64 = 24 * HOUR_MS;

#[test]
fn a_clock_set_ahead_makes_no_second_request_while_the_first_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Gate::default();
    let held = gate.clone();
    let app = App::start(move |_, back| {
        held.pass();
        respond(back, 200, "", "");
    });
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    process.deliver("evt_1", "x");
    thread::scope(|scope| {
        let slow = scope.spawn(|| tick(&process, 0, 0));
        app.wait_for(1);
        for wall_ms in [30 * DAY_MS, 0, -DAY_MS] {
            let step = tick(&process, wall_ms, 1_000);
            assert!(matches!(step, Step::Idle(_)), "{wall_ms}: {step:?}");
        }
        gate.open();
        slow.join().unwrap();
    });
    assert_eq!(app.seen().len(), 1);
    assert_eq!(text(&dir, ROW), "delivered 1");
}

#[test]
fn a_clock_set_ahead_gives_nothing_up_that_has_failed_for_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::answering(500);
    let process = Process::on(&dir, &app.url, "sign = \"none\"");
    process.deliver("evt_1", "x");
    tick(&process, 0, 0);
    tick(&process, 30 * DAY_MS, 2_000);
    assert_eq!(text(&dir, ROW), "pending 2");
    // and what has really failed for three days is given up
    tick(&process, 30 * DAY_MS + 3 * DAY_MS, 2_000 + 3 * DAY_MS);
    assert_eq!(text(&dir, ROW), "dead 3");
}

// ---- outages

#[test]
fn a_thousand_rows_outlive_twenty_hours_without_the_application() {
    const ROWS: usize = 1_000;
    let dir = tempfile::tempdir().unwrap();
    let absent = Absent::new();
    let process = Process::on(&dir, &absent.url, "sign = \"none\"\nthreads = 4");
    let endpoint = Arc::clone(&process.endpoints[0]);
    for n in 0..ROWS {
        let body = Process::event(&format!("evt_{n}"), "thing.happened", &format!("x{n}"));
        let event = support::stripe_event(&endpoint.config.verifier, &body, NOW_MS);
        let (endpoint, disposition) = (Arc::clone(&endpoint), screen::disposition(&endpoint, &event));
        process.writer().submit(move |tx| receive::store(tx, &endpoint, &event, &disposition, NOW_MS), drop);
    }
    process.run_for(20 * HOUR_MS);
    let attempts = count(&dir, "SELECT sum(attempts) FROM outbox");
    assert!((80..200).contains(&attempts), "{attempts} attempts in twenty hours: one probe at a time");
    assert!(count(&dir, "SELECT circuit_open_since_ms FROM outbox_destinations") > 0);

    let app = absent.come_up(|_, back| {
        thread::sleep(Duration::from_millis(2));
        respond(back, 200, "", "");
    });
    // by now each row is due; twice as many threads as may send
    process.pass(16 * 60_000);
    process.deliver_in_threads(8, &dir, 1_000);
    assert_eq!(count(&dir, DELIVERED), 1_000);
    assert_eq!(count(&dir, "SELECT count(*) FROM outbox WHERE state = 'dead'"), 0);
    let mut keys: Vec<_> = app.seen().iter().map(|seen| seen.key().to_owned()).collect();
    keys.sort();
    keys.dedup();
    assert_eq!((app.seen().len(), keys.len()), (ROWS, ROWS));
    assert!(app.at_once_max() <= 4, "{} requests at once", app.at_once_max());
    assert_eq!(
        count(&dir, "SELECT count(*) FROM outbox_destinations WHERE circuit_open_since_ms IS NOT NULL"),
        0
    );
}

// ---- order

#[test]
fn a_failing_object_holds_up_nobody_else_and_its_own_rows_arrive_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let works = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&works);
    let app = App::start(move |seen, back| {
        let fails = seen.text().contains("in_A") && !is_up.load(Ordering::SeqCst);
        respond(back, if fails { 500 } else { 200 }, "", "");
    });
    let process = Process::on(&dir, &app.url, "sign = \"none\"\norder = \"object\"");
    for n in 0..5 {
        process.deliver(&format!("evt_a{n}"), "in_A");
        process.deliver(&format!("evt_b{n}"), "in_B");
        process.deliver_body(&format!(r#"{{"id":"evt_c{n}","type":"thing.happened"}}"#));
    }
    process.run_for(60_000);
    assert_eq!(
        count(&dir, "SELECT count(*) FROM outbox WHERE state = 'delivered' AND object_id = 'in_B'"),
        5
    );
    assert_eq!(count(&dir, "SELECT count(*) FROM outbox WHERE state = 'delivered' AND object_id IS NULL"), 5);
    assert_eq!(
        count(
            &dir,
            "SELECT max(attempts) FROM outbox WHERE event_id IN ('evt_a1','evt_a2','evt_a3','evt_a4')"
        ),
        0
    );
    works.store(true, Ordering::SeqCst);
    process.run_for(120_000);
    assert_eq!(count(&dir, DELIVERED), 15);
    let of = |object: &str| {
        let events = app
            .seen()
            .iter()
            .filter(|seen| seen.text().contains(object))
            .map(|seen| seen.header("inboxd-event-id").unwrap().to_owned())
            .collect::<Vec<_>>();
        let mut distinct = events.clone();
        distinct.dedup();
        distinct
    };
    assert_eq!(of("in_A"), ["evt_a0", "evt_a1", "evt_a2", "evt_a3", "evt_a4"]);
    assert_eq!(of("in_B"), ["evt_b0", "evt_b1", "evt_b2", "evt_b3", "evt_b4"]);
}

#[test]
fn two_rows_of_one_object_are_never_sent_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::start(|_, back| {
        thread::sleep(Duration::from_millis(3));
        respond(back, 200, "", "");
    });
    let process = Process::on(&dir, &app.url, "sign = \"none\"\norder = \"object\"\nthreads = 4");
    for n in 0..20 {
        process.deliver(&format!("evt_{n}"), "in_A");
    }
    process.deliver_in_threads(4, &dir, 20);
    assert_eq!(app.at_once_max(), 1);
    let ids: Vec<_> =
        app.seen().iter().map(|seen| seen.header("inboxd-event-id").unwrap().to_owned()).collect();
    assert_eq!(ids, (0..20).map(|n| format!("evt_{n}")).collect::<Vec<_>>());
}

#[test]
fn a_dead_row_releases_its_object() {
    let dir = tempfile::tempdir().unwrap();
    let app =
        App::start(|seen, back| respond(back, if seen.text().contains("evt_0") { 500 } else { 200 }, "", ""));
    let process = Process::on(&dir, &app.url, "sign = \"none\"\norder = \"object\"\ngive_up_after = \"1h\"");
    process.deliver("evt_0", "in_A");
    process.deliver("evt_1", "in_A");
    process.run_for(2 * HOUR_MS);
    assert_eq!(text(&dir, "SELECT group_concat(state, ' ') FROM outbox"), "dead delivered");
    assert_eq!(count(&dir, "SELECT count(*) FROM reviews"), 1);
}

// ---- results of operations

fn emit(process: &Process, key: &'static str, json: &'static str) -> bool {
    let now_ms = process.now_ms();
    let job = move |tx: &Transaction<'_>| {
        let operation = outbox::NewOperation {
            destination: "app",
            topic: "RefundRequested",
            operation_key: key,
            endpoint: "billing",
            event_id: "evt_1",
            object_id: None,
            payload: json.as_bytes(),
            content_type: "application/json",
            headers: None,
            event_type: None,
            query: None,
        };
        Ok(outbox::enqueue(tx, &operation, now_ms)?)
    };
    process.writer().run(job).unwrap()
}

#[test]
fn an_operation_carries_its_token_and_form_and_keeps_its_result() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::start(|_, back| respond(back, 200, "", r#"{"id":"re_1","object":"refund"}"#));
    let lines = "sign = \"none\"\nbody_format = \"form\"\nresult = \"/id\"\nheaders = { Authorization = \"file:token.secret\" }";
    let process = Process::on(&dir, &app.url, lines);
    assert!(emit(&process, "refund:in_1", r#"{"charge":"ch_1","metadata":{"invoice":"in_1"}}"#));
    process.step();
    let seen = &app.seen()[0];
    assert_eq!(seen.text(), "charge=ch_1&metadata[invoice]=in_1");
    assert_eq!(seen.header("content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(seen.header("authorization"), Some("Bearer the-token"));
    assert_eq!(seen.key(), "refund:in_1");
    assert_eq!(text(&dir, "SELECT result || ' ' || response_status FROM outbox"), "re_1 200");
    process.pass(30 * 24 * HOUR_MS);
    assert!(!emit(&process, "refund:in_1", "{}"));
    process.run_for(HOUR_MS);
    assert_eq!(app.seen().len(), 1, "a delivered operation is never sent again");
}

#[test]
fn an_outcome_nobody_knows_is_asked_for_while_the_key_lives_and_becomes_a_review_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    // reads the request, and hangs up
    let app = App::start(|_, _| {});
    let process = Process::on(&dir, &app.url, "sign = \"none\"\nkey_lifetime = \"24h\"");
    emit(&process, "refund:in_1", "{}");
    process.run_for(23 * HOUR_MS);
    let asked = app.seen().len();
    assert!(asked > 20, "{asked}");
    assert_eq!(text(&dir, "SELECT state FROM outbox"), "pending");
    process.run_for(2 * HOUR_MS);
    let after = app.seen().len();
    assert_eq!(text(&dir, "SELECT state FROM outbox"), "dead");
    assert_eq!(text(&dir, "SELECT kind || ' ' || subject FROM reviews"), "outcome_unknown refund:in_1");
    process.run_for(48 * HOUR_MS);
    assert_eq!(app.seen().len(), after);
    assert!(app.seen().iter().all(|seen| seen.key() == "refund:in_1"));
}

#[test]
fn what_was_refused_at_the_door_does_not_use_up_the_keys_life() {
    let dir = tempfile::tempdir().unwrap();
    let absent = Absent::new();
    let process = Process::on(&dir, &absent.url, "sign = \"none\"\nkey_lifetime = \"24h\"");
    emit(&process, "refund:in_1", "{}");
    process.run_for(30 * HOUR_MS);
    assert_eq!(text(&dir, "SELECT state FROM outbox"), "pending");
    let app = absent.come_up(|_, back| respond(back, 200, "", ""));
    process.run_for(HOUR_MS);
    assert_eq!(app.seen().len(), 1);
}

// ---- signatures

#[test]
fn days_later_stripes_signature_is_fresh_and_holds() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::answering(200);
    let process = Process::on(&dir, &app.url, "sign = \"provider\"");
    process.deliver("evt_1", "x");
    process.pass(72 * HOUR_MS);
    process.step();
    let seen = &app.seen()[0];
    let verifier = &process.endpoints[0].config.verifier;
    let headers = headers(seen);
    let delivery = Delivery { method: "POST", url: "/", headers: &headers, body: seen.body.clone() };
    let event = only_event(verifier.verify(delivery.clone(), process.now_ms()).unwrap());
    assert_eq!(event.event_id(), "evt_1");
    assert!(verifier.verify(delivery, NOW_MS).is_err(), "the time is the time of sending");
}

#[test]
fn githubs_headers_are_kept_and_its_signature_holds() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::answering(200);
    let process = Process::on(&dir, &app.url, "sign = \"provider\"");
    process.deliver_github(r#"{"action":"opened","issue":{"node_id":"I_1"}}"#);
    process.step();
    let seen = &app.seen()[0];
    assert_eq!(seen.header("x-github-event"), Some("issues"));
    assert_eq!(seen.header("x-github-delivery"), Some("d-1"));
    assert_eq!(seen.header("x-github-hook-id"), Some("77"));
    let headers = headers(seen);
    let delivery = Delivery { method: "POST", url: "/", headers: &headers, body: seen.body.clone() };
    let event = only_event(process.endpoints[1].config.verifier.verify(delivery, NOW_MS).unwrap());
    assert_eq!(event.event_type(), Some("issues.opened"));
    let names = seen.headers.iter().map(|(name, _)| name).filter(|name| *name == "x-github-event").count();
    assert_eq!(names, 1, "each header once");
}

#[test]
fn standard_webhooks_are_signed_with_every_secret() {
    let dir = tempfile::tempdir().unwrap();
    let app = App::answering(200);
    let lines = "sign = \"standard\"\nsecrets = [\"file:one.secret\", \"file:two.secret\"]";
    let process = Process::on(&dir, &app.url, lines);
    process.deliver("evt_1", "x");
    process.step();
    let seen = &app.seen()[0];
    assert_eq!(seen.header("webhook-id"), Some(message_id("billing:evt_1:forward:app").as_str()));
    assert_eq!(seen.header("webhook-id").unwrap().len(), "msg_".len() + 32);
    let headers = headers(seen);
    for secret in STANDARD_SECRETS {
        let secrets = vec![Secret::new("test", secret.as_bytes())];
        let verifier =
            Verifier::new(Provider::named("standardwebhooks").unwrap(), secrets, Duration::from_secs(300))
                .unwrap();
        let delivery = Delivery { method: "POST", url: "/", headers: &headers, body: seen.body.clone() };
        verifier.verify(delivery, NOW_MS).unwrap();
    }
}

// ---- from outside

fn config(url: &str, more: &str) -> String {
    support::CONFIG.replace("handlers = [\"billing\"]", "handlers = [\"billing\"]\nforward = [\"app\"]")
        + &format!("[destination.app]\nurl = \"{url}\"\n{more}\n")
}

#[test]
fn the_daemon_forwards_at_once_and_says_so() {
    let app = App::answering(200);
    let daemon = Daemon::with_config(&config(&app.url, "sign = \"provider\""));
    assert_eq!(daemon.stripe(r#"{"id":"evt_1","type":"foo.bar"}"#).1, r#"{"outcome":"processed"}"#);
    daemon.wait_for_count(DELIVERED, 1);
    let listed = daemon.inboxd(&["outbox", "list", "--state", "delivered", "--json"]);
    assert!(listed.stdout.contains(r#""operation_key":"billing:evt_1:forward:app""#), "{listed:?}");
    let shown = daemon.inboxd(&["outbox", "show", "1"]);
    assert!(shown.stdout.contains("delivered") && shown.stdout.contains("200"), "{shown:?}");
}

#[test]
fn rows_for_a_destination_that_is_not_configured_any_more_are_told_of() {
    let daemon = Daemon::with_config(&config("http://127.0.0.1:9/", "sign = \"none\""));
    daemon.stripe(&support::event("evt_1", "foo.bar", "{}"));
    assert_eq!(daemon.count("SELECT count(*) FROM outbox"), 1);
    let dir = Arc::clone(&daemon.dir);
    assert!(!daemon.inboxd(&["check"]).stdout.contains("[destination.app]"));
    drop(daemon);
    std::fs::write(dir.path().join("inboxd.toml"), support::CONFIG).unwrap();
    let said = "1 row of the outbox waits for the destination app, which is not in the configuration";
    let check = support::inboxd(dir.path(), &["check"]);
    assert_eq!(check.code, 0);
    assert!(check.stdout.contains(said) && check.stdout.contains("put [destination.app] back"), "{check:?}");
    let daemon = Daemon::in_dir(dir);
    assert!(daemon.log().contains(said), "{}", daemon.log());
}

#[test]
fn a_daemon_killed_while_the_application_answers_sends_it_again_with_the_same_key() {
    let daemon = Arc::new(std::sync::Mutex::new(None::<u32>));
    let victim = Arc::clone(&daemon);
    let app = App::start(move |seen, back| {
        if seen.number == 0
            && let Some(pid) = victim.lock().unwrap().take()
        {
            support::signal(pid, rustix::process::Signal::KILL);
        }
        respond(back, 200, "", "");
    });
    let mut running = Daemon::with_config(&config(&app.url, "sign = \"none\""));
    *daemon.lock().unwrap() = Some(running.pid());
    // the kill may come before the answer
    drop(support::signed_stripe(&running.webhooks, r#"{"id":"evt_1","type":"foo.bar"}"#));
    running.exit_code();
    let next = Daemon::in_dir(running.kill());
    next.wait_for_count(DELIVERED, 1);
    assert_eq!(app.seen().len(), 2);
    assert_eq!(app.seen()[0].key(), app.seen()[1].key());
    assert_eq!(next.text(ROW), "delivered 2");
}

#[test]
fn a_person_pauses_retries_and_resumes() {
    let app = App::answering(200);
    let daemon = Daemon::with_config(&config(&app.url, "sign = \"none\""));
    assert_eq!(daemon.inboxd(&["outbox", "pause", "appp"]).code, 4);
    assert_eq!(daemon.inboxd(&["outbox", "pause", "app"]).code, 0);
    daemon.stripe(r#"{"id":"evt_1","type":"foo.bar"}"#);
    let status = daemon.inboxd(&["status"]);
    assert!(status.stdout.contains("app") && status.stdout.contains("paused since"), "{status:?}");
    assert!(daemon.inboxd(&["status", "--json"]).stdout.contains(r#""paused_because":"by hand""#));

    assert_eq!(daemon.inboxd(&["outbox", "retry"]).code, 2);
    let counted = daemon.inboxd(&["outbox", "retry", "--state", "pending"]);
    assert!(counted.code == 5 && counted.stderr.contains("would retry 1 row ("), "{counted:?}");
    assert_eq!(daemon.inboxd(&["outbox", "retry", "--state", "pending", "--yes"]).code, 0);
    assert!(app.seen().is_empty());
    assert_eq!(daemon.inboxd(&["outbox", "resume", "app"]).code, 0);
    daemon.wait_for_count(DELIVERED, 1);
    let again = daemon.inboxd(&["outbox", "retry", "1"]);
    assert!(again.stdout.contains("delivered before; nothing was changed"), "{again:?}");
    assert_eq!(daemon.inboxd(&["outbox", "show", "99"]).code, 4);
}
