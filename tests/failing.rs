//! A handler that fails is seen: by the table of failures, by `status`, by `events list` and by alerts; and a person
//! is asked when the provider sends the event no more.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};
use support::{Daemon, signed_stripe};

const CONFIG: &str = r#"
data_dir = "data"
[listen]
webhooks = "127.0.0.1:0"
admin = "off"
[limits]
disk_free_min = 0
handler_timeout = "100ms"
[endpoint.shop]
provider = "stripe"
path = "/webhooks/stripe"
secrets = ["file:stripe.secret"]
handlers = ["sql:shop"]
"#;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS parent (k TEXT PRIMARY KEY) STRICT;
    CREATE TABLE IF NOT EXISTS thing (
      name   TEXT NOT NULL,
      parent TEXT REFERENCES parent (k) DEFERRABLE INITIALLY DEFERRED
    ) STRICT;";

/// One file for each way to fail, and one that does not.
const FILES: &[(&str, &str)] = &[
    ("shop/schema.sql", SCHEMA),
    ("shop/thing.made.sql", "INSERT INTO thing (name) VALUES (:object ->> 'name');"),
    ("shop/thing.waits.sql", "SELECT inboxd_retry('the thing is not here yet');"),
    (
        "shop/thing.loops.sql",
        "INSERT INTO thing (name) WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) SELECT 'x' || i FROM n;",
    ),
    ("shop/thing.ends.sql", "INSERT OR ROLLBACK INTO thing (name) VALUES (NULL);"),
    ("shop/thing.dangles.sql", "INSERT INTO thing (name, parent) VALUES ('x', 'nobody');"),
];

fn start() -> Daemon {
    Daemon::with_files(CONFIG, FILES)
}

fn event(id: &str, event_type: &str, name: &Value) -> String {
    json!({ "id": id, "type": event_type, "data": { "object": { "id": "obj_1", "name": name } } }).to_string()
}

fn json_of(daemon: &Daemon, args: &[&str]) -> Value {
    let ran = daemon.inboxd(args);
    serde_json::from_str(ran.stdout.lines().next().unwrap_or("null")).unwrap_or_else(|_| panic!("{ran:?}"))
}

#[test]
fn each_way_to_fail_is_noted_and_a_later_success_removes_the_note() {
    let daemon = start();
    let cases = [
        ("thing.made", "NOT NULL"),
        ("thing.waits", "the thing is not here yet"),
        ("thing.loops", "handler_timeout"),
        ("thing.ends", "NOT NULL"),
        ("thing.dangles", "FOREIGN KEY"),
    ];
    for (event_type, said) in cases {
        let id = format!("evt_{event_type}");
        for count in 1..=2 {
            assert_eq!(daemon.stripe(&event(&id, event_type, &Value::Null)).0, 500, "{event_type}");
            let noted = format!(
                "SELECT endpoint || ' ' || event_type || ' ' || count || ' ' || (last_at_ms >= first_at_ms)
                   FROM webhook_failures WHERE event_id = '{id}'"
            );
            assert_eq!(daemon.text(&noted), format!("shop {event_type} {count} 1"));
        }
        let error = daemon.text(&format!("SELECT error FROM webhook_failures WHERE event_id = '{id}'"));
        assert!(error.contains(said), "{event_type}: {error}");
    }
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox"), 0);
    assert_eq!(daemon.count("SELECT count(*) FROM thing"), 0);

    // sent again with what was missing
    let mended = event("evt_thing.made", "thing.made", &json!("a chair"));
    assert_eq!(daemon.stripe(&mended), (200, r#"{"outcome":"processed"}"#.to_owned()));
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_failures WHERE event_id = 'evt_thing.made'"), 0);
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_failures"), 4);
}

#[test]
fn failures_are_noted_for_each_event_whoever_shares_its_commit() {
    let daemon = Arc::new(start());
    let types = ["thing.made", "thing.ends", "thing.dangles", "thing.waits"];
    let senders: Vec<_> = (0..24)
        .map(|n| {
            let daemon = Arc::clone(&daemon);
            thread::spawn(move || {
                let is_good = n % 3 == 0;
                let event_type = if is_good { "thing.made" } else { types[n % types.len()] };
                let name = if is_good { json!("good") } else { Value::Null };
                let answer = signed_stripe(&daemon.webhooks, &event(&format!("evt_{n}"), event_type, &name));
                assert_eq!(answer.unwrap().0, if is_good { 200 } else { 500 });
            })
        })
        .collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_failures"), 16);
    assert_eq!(daemon.count("SELECT sum(count) FROM webhook_failures"), 16);
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox WHERE state = 'done'"), 8);
    assert_eq!(daemon.count("SELECT count(*) FROM thing"), 8);
}

#[test]
fn status_and_lists_show_what_fails_with_its_error() {
    let daemon = start();
    for id in ["evt_1", "evt_2", "evt_2"] {
        assert_eq!(daemon.stripe(&event(id, "thing.made", &Value::Null)).0, 500);
    }
    let failing = &json_of(&daemon, &["status", "--json"])["failing"][0];
    assert_eq!(failing["endpoint"], "shop");
    assert_eq!(failing["event_type"], "thing.made");
    assert_eq!((failing["events"].as_i64(), failing["deliveries"].as_i64()), (Some(2), Some(3)));
    assert!(failing["last_error"].as_str().unwrap().contains("NOT NULL"), "{failing}");
    assert!(failing["last_at_ms"].as_i64() >= failing["first_at_ms"].as_i64(), "{failing}");
    let text = daemon.inboxd(&["status"]).stdout;
    assert!(text.contains("FAILING       shop thing.made: 2 events in 3 deliveries"), "{text}");

    let listed = daemon.inboxd(&["events", "list", "--state", "failing", "--json"]);
    assert_eq!((listed.code, listed.stdout.lines().count()), (0, 2), "{listed:?}");
    let latest: Value = serde_json::from_str(listed.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((&latest["event_id"], &latest["state"]), (&json!("evt_2"), &json!("failing")));
    let table = daemon.inboxd(&["events", "list", "--state", "failing", "--type", "thing.made"]).stdout;
    assert!(table.contains("evt_1") && table.contains("NOT NULL"), "{table}");
    assert_eq!(daemon.inboxd(&["events", "list", "--state", "failing", "--type", "other"]).stdout, "");
    // there is nothing that could be put back to work
    let retried = daemon.inboxd(&["retry", "--state", "failing", "--yes"]);
    assert_eq!(retried.code, 2, "{retried:?}");
    assert!(retried.stderr.contains("not stored"), "{retried:?}");
}

#[test]
fn a_person_is_asked_when_the_provider_sends_the_event_no_more_and_not_before() {
    let daemon = start();
    for id in ["evt_old", "evt_new"] {
        assert_eq!(daemon.stripe(&event(id, "thing.made", &Value::Null)).0, 500);
    }
    // Stripe sends for three days
    let age = "UPDATE webhook_failures SET first_at_ms = first_at_ms - ?1 WHERE event_id = ?2";
    daemon.sql().execute(age, (73 * 3_600_000_i64, "evt_old")).unwrap();
    daemon.sql().execute(age, (71 * 3_600_000_i64, "evt_new")).unwrap();
    let daemon = Daemon::in_dir(daemon.kill());
    daemon.wait_for_count("SELECT count(*) FROM reviews WHERE kind = 'undelivered'", 1);
    let review = daemon.text("SELECT subject || ': ' || reason FROM reviews");
    assert!(review.starts_with("shop/evt_old: 1 deliveries of this event (thing.made) failed"), "{review}");
    assert!(review.contains("not stored") && review.contains("NOT NULL"), "{review}");
    assert_eq!(daemon.text("SELECT group_concat(event_id) FROM webhook_failures"), "evt_new");
    // a provider that is asked for it sends it again, and the question is answered
    assert_eq!(daemon.stripe(&event("evt_old", "thing.made", &json!("a chair"))).0, 200);
    assert_eq!(daemon.count("SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL"), 0);
}

#[test]
fn people_are_told_of_a_handler_that_has_been_failing_for_long() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let (program, told) = (dir.path().join("tell"), dir.path().join("told"));
    std::fs::write(&program, format!("#!/bin/sh\necho \"$1\" >> {}\n", told.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let alert = format!("[alert]\ncommand = \"{}\"\non = [\"failing>10m\"]\n", program.display());
    let daemon = Daemon::with_files(&format!("{CONFIG}{alert}"), FILES);
    assert!(daemon.inboxd(&["check", "--print"]).stdout.contains("failing>10m"));
    assert_eq!(daemon.stripe(&event("evt_1", "thing.made", &Value::Null)).0, 500);
    daemon.sql().execute("UPDATE webhook_failures SET first_at_ms = first_at_ms - 900000", []).unwrap();
    let said = || std::fs::read_to_string(&told).unwrap_or_default();
    daemon.wait_for("somebody is told", || said().contains("the handlers of 1 events fail, for 15 minutes"));
    assert!(!said().contains("evt_1"), "{}", said());
    assert_eq!(daemon.stripe(&event("evt_1", "thing.made", &json!("a chair"))).0, 200);
    daemon.wait_for("somebody is told that it is over", || said().contains("over: no handler"));
}

#[test]
fn failures_are_kept_up_to_a_bound_and_their_errors_are_cut() {
    let daemon = Daemon::with_files(
        CONFIG,
        &[(
            "shop/thing.made.sql",
            "SELECT inboxd_retry(substr(replace(hex(zeroblob(1024)), '00', 'ä'), 1, 1023) || 'x' || :id);",
        )],
    );
    // as of the last minute: what is older than `give_up_after` becomes a review at the daemon's next look
    let fill =
        "INSERT INTO webhook_failures (endpoint, event_type, event_id, error, count, first_at_ms, last_at_ms)
                WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
                SELECT 'shop', 'thing.made', 'old_' || i, 'x', 1, at + i, at + i
                  FROM n, (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) - 60000 AS at)";
    daemon.sql().execute(fill, []).unwrap();
    assert_eq!(daemon.stripe(&event("evt_1", "thing.made", &Value::Null)).0, 500);
    let rows = daemon.count("SELECT count(*) FROM webhook_failures");
    assert!((5_000..=10_000).contains(&rows), "{rows}");
    assert_eq!(
        daemon.count("SELECT count(*) FROM webhook_failures WHERE event_id IN ('old_10000', 'evt_1')"),
        2
    );
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_failures WHERE event_id = 'old_1'"), 0);
    let bytes = daemon.count("SELECT octet_length(error) FROM webhook_failures WHERE event_id = 'evt_1'");
    assert!((1_000..=1_024).contains(&bytes), "{bytes}");
}
