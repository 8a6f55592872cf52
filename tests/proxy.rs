//! Mode `proxy` from outside: the application answers for the event while its sender waits.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use inboxd::internals::background::given_up;
use inboxd::internals::intake::front::raise_descriptor_limit;
use inboxd::internals::store::open;
use inboxd::internals::store::writer::{Settings, Writer};
use support::app::{Absent, App, Gate, respond};
use support::{Client, Daemon, STRIPE_SECRET, hmac_hex, now_s, stripe_signature};

const EVENT: &str = r#"{"id":"evt_1","type":"foo.bar","data":{"object":{"id":"x"}}}"#;

/// The longest `proxy_timeout`: no application of these tests needs it.
const PATIENT: &str = "25s";

fn config(url: &str, timeout: &str) -> String {
    let endpoint = format!("mode = \"proxy\"\nforward = [\"app\"]\nproxy_timeout = \"{timeout}\"");
    support::CONFIG.replace("handlers = [\"billing\"]", &endpoint)
        + &format!("[destination.app]\nurl = \"{url}\"\nsign = \"provider\"\n")
}

fn outcome(word: &str) -> (u16, String) {
    (200, format!(r#"{{"outcome":"{word}"}}"#))
}

fn failed(status: u16) -> (u16, String) {
    (status, r#"{"error":"application_failed"}"#.to_owned())
}

/// With the answer's head, for the sake of `Retry-After`.
fn send(address: &str, body: &str) -> (u16, String, String) {
    let mut client = Client::connect(address);
    client.send(
        "POST",
        "/webhooks/stripe",
        &[&stripe_signature(body, now_s(), STRIPE_SECRET)],
        body.as_bytes(),
    );
    let (status, head, body) = client.try_answer_with_head().unwrap();
    (status, head.to_ascii_lowercase(), body)
}

fn row(daemon: &Daemon) -> String {
    daemon.text("SELECT state || ' ' || attempts FROM webhook_inbox")
}

#[test]
fn the_applications_yes_is_the_answer_and_a_redelivery_does_not_ask_again() {
    let app = App::answering(201);
    let daemon = Daemon::with_config(&config(&app.url, "8s"));
    assert_eq!(daemon.stripe(EVENT), outcome("processed"));
    assert_eq!(row(&daemon), "done 1");
    assert_eq!(daemon.stripe(EVENT), outcome("duplicate"));
    let seen = app.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].text(), EVENT);
    assert!(seen[0].header("stripe-signature").is_some());
    assert_eq!(seen[0].key(), "billing:evt_1:forward:app");
    assert_eq!(daemon.count("SELECT count(*) FROM outbox"), 0);
}

#[test]
fn an_application_that_fails_for_all_is_seen_in_status() {
    let app = App::answering(500);
    let daemon = Daemon::with_config(&config(&app.url, "8s"));
    assert_eq!(daemon.stripe(EVENT), failed(502));
    let status = support::inboxd(daemon.dir.path(), &["status"]);
    assert_eq!(status.code, 8, "{}", status.stdout);
    let line = "UNHEALTHY     1 event of billing failed and will be tried again";
    assert!(status.stdout.contains(line), "{}", status.stdout);
    assert!(status.stdout.contains("the latest error: the application answered 500"), "{}", status.stdout);
    let json: serde_json::Value =
        serde_json::from_str(&support::inboxd(daemon.dir.path(), &["status", "--json"]).stdout).unwrap();
    assert_eq!(json["retrying"][0]["endpoint"], "billing");
    assert_eq!(json["retrying"][0]["events"], 1);
}

#[test]
fn the_applications_no_is_passed_on_and_the_next_delivery_asks_again() {
    let app = App::start(|seen, back| respond(back, if seen.number == 0 { 500 } else { 200 }, "", ""));
    let daemon = Daemon::with_config(&config(&app.url, "8s"));
    let (status, head, body) = send(&daemon.webhooks, EVENT);
    assert_eq!((status, body), failed(502));
    assert!(head.contains("retry-after: "), "{head}");
    assert_eq!(row(&daemon), "pending 1");
    assert_eq!(daemon.text("SELECT last_error FROM webhook_inbox"), "the application answered 500");
    assert_eq!(daemon.stripe(EVENT), outcome("processed"));
    assert_eq!(row(&daemon), "done 2");
    assert_eq!(app.seen()[0].key(), app.seen()[1].key());
}

#[test]
fn an_application_that_is_not_there_is_a_503_and_one_that_is_too_slow_a_504() {
    let absent = Absent::new();
    let daemon = Daemon::with_config(&config(&absent.url, "8s"));
    assert_eq!(daemon.stripe(EVENT), failed(503));

    let gate = Gate::default();
    let app = App::behind(&gate, 200);
    let daemon = Daemon::with_config(&config(&app.url, "1s"));
    assert_eq!(daemon.stripe(EVENT), failed(504), "while the application is still at work");
    assert_eq!(row(&daemon), "pending 1");
    gate.open();
}

#[test]
fn the_review_of_a_replay_closes_when_a_person_hands_it_to_the_application() {
    let app = App::answering(200);
    let scheme = "[endpoint.a.scheme]\nsignature_header = \"X-Signature\"\nevent_id = \"header:X-Id\"\n";
    let endpoint = "[endpoint.a]\nprovider = \"custom\"\nsecrets = [\"file:stripe.secret\"]\nmode = \"proxy\"\nforward = [\"app\"]\n";
    let daemon = Daemon::with_config(&format!("{}{endpoint}{scheme}", config(&app.url, "8s")));
    let signature = format!("X-Signature: {}", hmac_hex(STRIPE_SECRET.as_bytes(), &[EVENT.as_bytes()]));
    let deliver =
        |id: &str| daemon.client().post("/webhooks/a", &[&signature, &format!("X-Id: {id}")], EVENT);
    assert_eq!(deliver("one"), outcome("processed"));
    assert_eq!(deliver("two"), outcome("quarantined"));
    let open = "SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL";
    assert_eq!(daemon.count(open), 1);
    assert_eq!(daemon.inboxd(&["retry", "two"]).code, 0);
    app.wait_for(2);
    assert_eq!(app.seen()[1].key(), "a:two:forward:app");
    assert_eq!(deliver("two"), outcome("duplicate"));
    assert_eq!(daemon.count(open), 0);
}

#[test]
fn what_the_application_never_took_and_nobody_sends_any_more_waits_for_a_person() {
    let app = App::start(|seen, stream| respond(stream, if seen.number == 0 { 500 } else { 200 }, "", ""));
    let daemon = Daemon::with_config(&config(&app.url, "8s"));
    assert_eq!(daemon.stripe(EVENT), failed(502));
    let dir = daemon.kill();
    let path = dir.path().join("data/inboxd.db");
    let (writer, handle) = Writer::new(
        open::open_writer(&path).unwrap(),
        Settings::new(path.clone(), Duration::from_secs(2), 0),
    )
    .unwrap();
    let thread = thread::spawn(|| writer.run());
    let now_ms = now_s() * 1_000;
    let three_days_ms: i64 = 3 * 86_400_000;
    let state = || -> String {
        let conn = support::open(&path);
        conn.query_row("SELECT state FROM webhook_inbox", [], |row| row.get(0)).unwrap()
    };
    let endpoints = [("billing".to_owned(), Duration::from_millis(three_days_ms.unsigned_abs()))];
    given_up::ask_about_untaken(&handle, &endpoints, now_ms + three_days_ms - 60_000).unwrap();
    assert_eq!(state(), "pending", "its sender may still try");
    given_up::ask_about_untaken(&handle, &endpoints, now_ms + three_days_ms + 60_000).unwrap();
    assert_eq!(state(), "quarantined");
    drop(handle);
    thread.join().unwrap().unwrap();

    let daemon = Daemon::in_dir(dir);
    let open = "SELECT count(*) FROM reviews WHERE kind = 'quarantined' AND resolved_at_ms IS NULL";
    assert_eq!(daemon.count(open), 1);
    // sent again from the provider's own page
    assert_eq!(daemon.stripe(EVENT), outcome("processed"));
    assert_eq!(daemon.count(open), 0);
}

#[test]
fn another_body_under_the_id_of_an_event_that_failed_is_no_yes() {
    let app = App::start(|seen, back| respond(back, if seen.number < 2 { 500 } else { 200 }, "", ""));
    let daemon = Daemon::with_config(&config(&app.url, "8s"));
    let other = EVENT.replace("\"x\"", "\"y\"");
    assert_eq!(daemon.stripe(EVENT), failed(502));
    assert_eq!(daemon.stripe(&other), failed(502));
    assert_eq!(daemon.stripe(&other), outcome("processed"));
    assert_eq!(daemon.stripe(&other), outcome("duplicate"));
    let seen = app.seen();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|request| request.text() == EVENT), "the first body counts");
    assert_eq!(daemon.count("SELECT count(*) FROM reviews WHERE kind = 'body_conflict'"), 1);
}

#[test]
fn a_paused_application_is_not_asked_and_nothing_is_lost() {
    let app = App::answering(200);
    let daemon = Daemon::with_config(&config(&app.url, "8s"));
    assert_eq!(daemon.inboxd(&["outbox", "pause", "app"]).code, 0);
    assert_eq!(daemon.stripe(EVENT), failed(503));
    assert_eq!(app.seen().len(), 0);
    assert_eq!(daemon.inboxd(&["outbox", "resume", "app"]).code, 0);
    assert_eq!(daemon.stripe(EVENT), outcome("processed"));
}

#[test]
fn of_eight_simultaneous_deliveries_one_reaches_the_application() {
    let gate = Gate::default();
    let app = App::behind(&gate, 200);
    let daemon = Daemon::with_config(&config(&app.url, PATIENT));
    let (answer, coming) = mpsc::channel();
    let answers: Vec<_> = thread::scope(|scope| {
        for _ in 0..8 {
            let (answer, address) = (answer.clone(), &daemon.webhooks);
            scope.spawn(move || answer.send(send(address, EVENT)).unwrap());
        }
        // the application works on the one until all others have their answer
        let others = coming.iter().take(7).collect::<Vec<_>>();
        gate.open();
        others.into_iter().chain(coming.iter().take(1)).collect()
    });
    let with = |wanted: u16| answers.iter().filter(|(status, ..)| *status == wanted).count();
    assert_eq!((with(200), with(409)), (1, 7), "{answers:?}");
    let (_, head, body) = answers.iter().find(|(status, ..)| *status == 409).unwrap();
    assert_eq!(body, r#"{"error":"in_progress"}"#);
    assert!(head.contains("retry-after: "), "{head}");
    assert_eq!(app.seen().len(), 1);
    assert_eq!(daemon.stripe(EVENT), outcome("duplicate"));
}

#[test]
fn as_many_slow_calls_as_there_may_be_do_not_stop_other_deliveries() {
    // that many requests are inside at a time, if the descriptors allow
    let calls = if raise_descriptor_limit() >= 8_192 { 64 } else { 16 };
    let gate = Gate::default();
    let app = App::behind(&gate, 200);
    let daemon = Daemon::with_config(&config(&app.url, PATIENT));
    thread::scope(|scope| {
        for n in 0..calls {
            let (daemon, body) = (&daemon, EVENT.replace("evt_1", &format!("evt_{n}")));
            scope.spawn(move || assert_eq!(daemon.stripe(&body), outcome("processed")));
        }
        app.wait_for(calls);
        let signature = support::github_signature("{}");
        let headers = [signature.as_str(), "X-GitHub-Delivery: d-1", "X-GitHub-Event: ping"];
        assert_eq!(daemon.client().post("/webhooks/github", &headers, "{}").0, 200);
        let asked = daemon.count("SELECT count(*) FROM webhook_inbox WHERE state = 'processing'");
        assert_eq!(usize::try_from(asked), Ok(calls));
        gate.open();
    });
}

#[test]
fn after_a_kill_during_the_call_the_event_is_taken_over_when_the_lease_has_ended() {
    let gate = Gate::default();
    let held = gate.clone();
    let app = App::start(move |seen, back| {
        if seen.number == 0 {
            held.pass();
        }
        respond(back, 200, "", "");
    });
    let daemon = Daemon::with_config(&config(&app.url, PATIENT));
    let address = daemon.webhooks.clone();
    let waiting = thread::spawn(move || {
        let mut client = Client::connect(&address);
        client.send(
            "POST",
            "/webhooks/stripe",
            &[&stripe_signature(EVENT, now_s(), STRIPE_SECRET)],
            EVENT.as_bytes(),
        );
        client.try_answer()
    });
    app.wait_for(1);
    let next = Daemon::in_dir(daemon.kill());
    assert_eq!(waiting.join().unwrap(), None, "the sender got no answer");
    assert_eq!(next.stripe(EVENT).0, 409, "the application may still be at work");
    let held_ms = "SELECT available_at_ms - (SELECT started_at_ms FROM webhook_attempts) FROM webhook_inbox";
    assert_eq!(next.count(held_ms), 27_000, "proxy_timeout and 2 s");
    let lease_ends = "UPDATE webhook_inbox SET available_at_ms = available_at_ms - 27000";
    next.sql().execute_batch(lease_ends).unwrap();
    assert_eq!(next.stripe(EVENT), outcome("processed"));
    assert_eq!(row(&next), "done 2");
    assert_eq!(next.text("SELECT group_concat(result, ' ') FROM webhook_attempts"), "lost done");
    assert_eq!(app.seen().len(), 2);
    gate.open();
}
