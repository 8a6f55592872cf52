//! What one transaction does with copies of one event, or with the events of one delivery, when work fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use inboxd::config::{Config, MissingSecrets};
use inboxd::handlers::{Event, Handled, Handler, HandlerError, Registry};
use inboxd::internals::config::Endpoint as Configured;
use inboxd::internals::intake::deliveries::App;
use inboxd::internals::intake::front::{self, Bounds, Front, Listener};
use inboxd::internals::intake::proxy::Proxy;
use inboxd::internals::intake::receive::{self, Incoming, Outcome};
use inboxd::internals::signature::{Delivery, Headers, Unsigned, sign};
use inboxd::internals::store::open;
use inboxd::internals::store::writer::{Settings, WriteError, Writer};
use inboxd::internals::verify::{Verified, VerifiedEvent};
use inboxd::internals::work::endpoint::Endpoint;
use inboxd::internals::work::screen::{self, Disposition};
use rusqlite::Transaction;
use support::count;
use tempfile::TempDir;

/// Writes a row and fails, for the first `failures` deliveries, however often the writer runs one.
struct Fails {
    failures: usize,
    delivery: Arc<AtomicUsize>,
}

impl Handler for Fails {
    fn name(&self) -> &str {
        "fails"
    }

    fn takes(&self, event_type: &str) -> bool {
        event_type == "thing.happened"
    }

    fn handle(&self, tx: &Transaction<'_>, event: &Event<'_>) -> Result<Handled, HandlerError> {
        tx.execute("INSERT INTO effect (event_id) VALUES (?1)", [event.id])?;
        if self.delivery.load(Ordering::Relaxed) < self.failures {
            return Err(HandlerError::Failed("not yet".to_owned()));
        }
        Ok(Handled::Applied)
    }
}

fn configured(dir: &std::path::Path) -> Configured {
    std::fs::write(dir.join("inboxd.toml"), support::CONFIG).unwrap();
    support::write_secret(dir, "stripe.secret", support::STRIPE_SECRET);
    support::write_secret(dir, "github.secret", support::GITHUB_SECRET);
    let config =
        Config::load(Some(&dir.join("inboxd.toml")), MissingSecrets::Report, Registry::new().facts())
            .unwrap();
    config.into_parts().1.into_iter().next().unwrap()
}

fn event(endpoint: &Endpoint, id: &str) -> VerifiedEvent {
    let body = format!(r#"{{"id":"{id}","type":"thing.happened","data":{{"object":{{"id":"x"}}}}}}"#);
    support::stripe_event(&endpoint.config.verifier, &body, 1_000_000_000)
}

/// Queues copies of one event so that they share a batch, and returns their outcomes in order.
fn deliver_together(failures: usize, copies: usize) -> (Vec<Result<Outcome, WriteError>>, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("inboxd.db");
    let conn = open::open_writer(&path).unwrap();
    conn.execute_batch("CREATE TABLE effect (event_id TEXT NOT NULL) STRICT").unwrap();
    let settings = Settings::new(path.clone(), Duration::from_secs(2), 0);
    let (writer, handle) = Writer::new(conn, settings).unwrap();
    let thread = thread::spawn(|| writer.run());
    let delivery = Arc::new(AtomicUsize::new(0));
    let endpoint = Arc::new(Endpoint::new(
        configured(dir.path()),
        vec![Arc::new(Fails { failures, delivery: Arc::clone(&delivery) })],
    ));

    let (go, gate) = mpsc::channel::<()>();
    handle.submit(move |_| Ok(gate.recv().ok()), |_| {});
    let (answer, answers) = mpsc::channel();
    for copy in 0..copies {
        let (endpoint, answer, delivery) = (Arc::clone(&endpoint), answer.clone(), Arc::clone(&delivery));
        let event = event(&endpoint, "evt_1");
        let disposition = screen::disposition(&endpoint, &event);
        handle.submit(
            move |tx| {
                delivery.store(copy, Ordering::Relaxed);
                receive::store(tx, &endpoint, &event, &disposition, 1_000_000_000)
            },
            move |result| answer.send((copy, result.map(|receipt| receipt.outcome))).unwrap(),
        );
    }
    drop(go);
    let mut results: Vec<_> = answers.iter().take(copies).collect();
    results.sort_by_key(|(copy, _)| *copy);
    drop(handle);
    thread.join().unwrap().unwrap();
    (results.into_iter().map(|(_, result)| result).collect(), dir)
}

const LINE_CONFIG: &str = r#"
data_dir = "data"
[endpoint.line]
provider = "line"
secrets = ["file:line.secret"]
"#;

/// A LINE delivery of these elements at a fixed signature, for an endpoint whose work fails `failures` times.
fn deliver_batch(failures: usize, deliveries: &[&[&str]]) -> (Vec<Result<Outcome, WriteError>>, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("inboxd.toml"), LINE_CONFIG).unwrap();
    support::write_secret(dir.path(), "line.secret", "a secret of the line tests");
    let config =
        Config::load(Some(&dir.path().join("inboxd.toml")), MissingSecrets::Report, Registry::new().facts())
            .unwrap();
    let delivery = Arc::new(AtomicUsize::new(0));
    let endpoint = Arc::new(Endpoint::new(
        config.into_parts().1.into_iter().next().unwrap(),
        vec![Arc::new(Fails { failures, delivery: Arc::clone(&delivery) })],
    ));
    let path = dir.path().join("inboxd.db");
    let conn = open::open_writer(&path).unwrap();
    conn.execute_batch("CREATE TABLE effect (event_id TEXT NOT NULL) STRICT").unwrap();
    let (writer, handle) = Writer::new(conn, Settings::new(path, Duration::from_secs(2), 0)).unwrap();
    let thread = thread::spawn(|| writer.run());
    let (answer, answers) = mpsc::channel();
    let mut results = Vec::new();
    for (number, elements) in deliveries.iter().enumerate() {
        let events = line_events(&endpoint, elements);
        let events = screen::dispositions(&endpoint, events).unwrap();
        let incoming = Incoming::new(Arc::clone(&endpoint), events, 1_000_000_000);
        let (answer, delivery) = (answer.clone(), Arc::clone(&delivery));
        handle.submit(
            move |tx| {
                delivery.store(number, Ordering::Relaxed);
                incoming.store(tx)
            },
            move |result| answer.send(result.map(|receipt| receipt.outcome)).unwrap(),
        );
        results.push(answers.recv().unwrap());
    }
    drop(handle);
    thread.join().unwrap().unwrap();
    (results, dir)
}

fn line_events(endpoint: &Endpoint, elements: &[&str]) -> Vec<VerifiedEvent> {
    let elements: Vec<_> =
        elements.iter().map(|id| format!(r#"{{"type":"thing.happened","webhookEventId":"{id}"}}"#)).collect();
    let body = format!(r#"{{"destination":"U1","events":[{}]}}"#, elements.join(","));
    let unsigned = Unsigned {
        method: "POST",
        url: "",
        content_type: "application/json",
        event_id: "",
        event_type: None,
        signed_at_s: 0,
        body: body.as_bytes(),
    };
    let secret = &endpoint.config.secrets[0];
    let headers = sign(endpoint.config.verifier.scheme(), secret, &unsigned).unwrap();
    let headers: Headers = headers.into_iter().collect();
    let delivery = Delivery { method: "POST", url: "", headers: &headers, body: body.into_bytes() };
    match endpoint.config.verifier.verify(delivery, 1_000_000_000).unwrap() {
        Verified::Events(events) => events,
        Verified::Handshake(reply) => panic!("{reply:?}"),
    }
}

#[test]
fn when_the_first_copy_fails_the_one_that_waits_behind_it_is_processed() {
    let (results, dir) = deliver_together(1, 3);
    assert!(matches!(results[0], Err(WriteError::Job(_))), "{results:?}");
    assert_eq!(results[1].as_ref().unwrap(), &Outcome::Processed);
    assert_eq!(results[2].as_ref().unwrap(), &Outcome::Duplicate);
    assert_eq!(count(&dir, "SELECT count(*) FROM effect"), 1);
    assert_eq!(count(&dir, "SELECT count(*) FROM webhook_inbox WHERE state = 'done'"), 1);
}

#[test]
fn when_every_copy_fails_nothing_is_stored() {
    let (results, dir) = deliver_together(9, 3);
    assert!(results.iter().all(|result| matches!(result, Err(WriteError::Job(_)))), "{results:?}");
    assert_eq!(count(&dir, "SELECT count(*) FROM effect"), 0);
    assert_eq!(count(&dir, "SELECT count(*) FROM webhook_inbox"), 0);
}

#[test]
fn the_events_of_a_delivery_are_stored_together_or_not_at_all() {
    let (results, dir) = deliver_batch(1, &[&["a", "b"], &["a", "b"]]);
    assert!(matches!(results[0], Err(WriteError::Job(_))), "{results:?}");
    assert_eq!(results[1].as_ref().unwrap(), &Outcome::Processed);
    assert_eq!(count(&dir, "SELECT count(*) FROM effect"), 2);
    assert_eq!(count(&dir, "SELECT count(*) FROM webhook_inbox WHERE state = 'done'"), 2);
}

#[test]
fn one_new_event_among_known_ones_makes_a_delivery_processed() {
    let (results, dir) = deliver_batch(0, &[&["a", "a"], &["a"], &["a", "b"], &["b", "a"]]);
    let outcomes: Vec<_> = results.into_iter().map(Result::unwrap).collect();
    use Outcome::{Duplicate, Processed};
    assert_eq!(outcomes, [Processed, Duplicate, Processed, Duplicate]);
    assert_eq!(count(&dir, "SELECT count(*) FROM effect"), 2);
}

#[test]
fn of_several_outcomes_the_weightiest_is_told() {
    use Outcome::{Duplicate, Ignored, Processed, Quarantined};
    for (outcomes, told) in [
        (vec![Duplicate, Ignored, Quarantined, Processed], Processed),
        (vec![Ignored, Quarantined, Duplicate], Quarantined),
        (vec![Duplicate, Ignored], Ignored),
        (vec![Duplicate, Duplicate], Duplicate),
        (vec![], Ignored),
    ] {
        assert_eq!(Outcome::of_batch(outcomes), told);
    }
}

#[test]
fn foreign_events_of_a_mixed_batch_are_ignored_and_a_wholly_foreign_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = "data_dir = \"data\"\n[endpoint.cash]\nprovider = \"gocardless\"\nsecrets = [\"file:s\"]\naccount = \"OR1\"\n";
    std::fs::write(dir.path().join("inboxd.toml"), config).unwrap();
    support::write_secret(dir.path(), "s", "a secret of the cash tests");
    let config =
        Config::load(Some(&dir.path().join("inboxd.toml")), MissingSecrets::Report, Registry::new().facts())
            .unwrap();
    let endpoint = Endpoint::new(
        config.into_parts().1.into_iter().next().unwrap(),
        vec![Arc::new(Fails { failures: 0, delivery: Arc::default() })],
    );
    let decided = |accounts: &[&str]| {
        let elements: Vec<_> = accounts
            .iter()
            .map(|account| {
                format!(
                    r#"{{"id":"EV{account}","resource_type":"thing","action":"happened","links":{{"organisation":"{account}"}}}}"#
                )
            })
            .collect();
        let body = format!(r#"{{"events":[{}]}}"#, elements.join(","));
        let signature = support::hmac_hex(b"a secret of the cash tests", &[body.as_bytes()]);
        let headers = Headers::from_iter([("Webhook-Signature", signature)]);
        let delivery = Delivery { method: "POST", url: "", headers: &headers, body: body.into_bytes() };
        let Verified::Events(events) = endpoint.config.verifier.verify(delivery, 0).unwrap() else {
            panic!("no events");
        };
        let decided = screen::dispositions(&endpoint, events)?;
        Some(decided.into_iter().map(|(_, what)| what).collect::<Vec<_>>())
    };
    use Disposition::{Handle, Ignore};
    assert_eq!(decided(&["OR1", "OR2"]), Some(vec![Handle, Ignore]));
    assert_eq!(decided(&["OR2", "OR3"]), None);
}

struct Panics;

impl Handler for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn takes(&self, _event_type: &str) -> bool {
        true
    }

    fn handle(&self, tx: &Transaction<'_>, event: &Event<'_>) -> Result<Handled, HandlerError> {
        tx.execute("INSERT INTO effect (event_id) VALUES (?1)", [event.id])?;
        panic!("a bug of this handler");
    }
}

#[test]
fn a_handler_that_panics_leaves_word_of_the_event_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("inboxd.db");
    let conn = open::open_writer(&path).unwrap();
    conn.execute_batch("CREATE TABLE effect (event_id TEXT NOT NULL) STRICT").unwrap();
    let (writer, handle) = Writer::new(conn, Settings::new(path, Duration::from_secs(2), 0)).unwrap();
    let thread = thread::spawn(|| writer.run());
    let endpoint = Arc::new(Endpoint::new(configured(dir.path()), vec![Arc::new(Panics)]));
    let event = event(&endpoint, "evt_1");
    let incoming = Arc::new(Incoming::new(endpoint, vec![(event, Disposition::Handle)], 1_000));
    let (answer, answers) = mpsc::channel();
    let failing = Arc::clone(&incoming);
    handle.submit_noting(
        Duration::from_secs(5),
        move |tx| incoming.store(tx),
        Box::new(move |tx, error| failing.note_failure(tx, error)),
        move |result| answer.send(result).unwrap(),
    );
    assert!(matches!(answers.recv(), Ok(Err(WriteError::Job(_)))));
    drop(handle);
    thread.join().unwrap().unwrap();
    let noted = "SELECT event_id || ': ' || error FROM webhook_failures";
    assert_eq!(support::text(&dir, noted), "evt_1: panicked: a bug of this handler");
    assert_eq!(count(&dir, "SELECT (SELECT count(*) FROM effect) + (SELECT count(*) FROM webhook_inbox)"), 0);
}

/// A disk that hangs: the sender is answered in time, and what is stuck never becomes more than there are permits.
#[test]
fn a_delivery_whose_commit_takes_too_long_is_answered_503_keeps_its_permit_and_is_stored_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("inboxd.db");
    let settings = Settings::new(path.clone(), Duration::from_secs(2), 0);
    let (writer, handle) = Writer::new(open::open_writer(&path).unwrap(), settings).unwrap();
    let thread = thread::spawn(|| writer.run());
    let endpoint = Arc::new(Endpoint::new(configured(dir.path()), Vec::new()));
    let proxy = Arc::new(Proxy::new(handle.clone(), &[]));
    let app = App::new(&[endpoint], None, handle.clone(), Default::default(), proxy);
    let socket = dir.path().join("public.sock");
    let front = Front::new(
        Listener::Unix(UnixListener::bind(&socket).unwrap()),
        front::Settings {
            listener: front::WEBHOOKS,
            respond: Box::new(move |request| app.respond(request)),
            connections_max: 8,
            descriptors_max: 100,
            body_bytes_max: Box::new(|_| 1 << 20),
            waits_for_application: None,
            trusted_proxies: Vec::new(),
            bounds: Bounds {
                requests_max: 1,
                answer_time: Duration::from_millis(200),
                queue_time: Duration::from_millis(200),
                ..Bounds::default()
            },
        },
    )
    .unwrap();
    let deliver = || {
        let body = r#"{"id":"evt_1","type":"thing.happened","data":{"object":{"id":"x"}}}"#;
        let signature = support::stripe_signature(body, support::now_s(), support::STRIPE_SECRET);
        let mut stream = UnixStream::connect(&socket).unwrap();
        let head = format!("POST /webhooks/stripe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{signature}");
        write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.contains("\r\nRetry-After: 5"), body.to_owned())
    };
    let unavailable = (true, r#"{"error":"unavailable"}"#.to_owned());
    let (go, gate) = mpsc::channel::<()>();
    handle.submit(move |_| Ok(gate.recv().ok()), |_| {});
    thread::scope(|scope| {
        let stop = front.handle();
        scope.spawn(|| front.run());
        assert_eq!(deliver(), unavailable);
        assert_eq!(deliver(), unavailable, "there is no second permit");
        go.send(()).unwrap();
        support::wait_for("its permit is free again", || deliver().1 == r#"{"outcome":"duplicate"}"#);
        stop.stop_accepting();
        assert_eq!(stop.drain(support::HANG_TIME), 0);
    });
    drop(handle);
    thread.join().unwrap().unwrap();
    // the one that found no permit was not handed to the writer
    assert_eq!(count(&dir, "SELECT duplicates FROM webhook_inbox"), 1);
}
