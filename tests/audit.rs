//! The audit trail: each act of a person is a row, committed together with the act.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use serde_json::Value;
use support::{CONFIG, Daemon, github_signature, invoice_event};

/// A destination where nobody listens: what is queued waits.
const WITH_DESTINATION: &str = r#"
handlers = ["sql:pushes"]
forward = ["app"]
[destination.app]
url = "http://127.0.0.1:9"
sign = "none"
"#;

const PUSHES: [(&str, &str); 1] =
    [("pushes/push.sql", "SELECT inboxd_quarantine('nobody knows this branch') WHERE :id LIKE 'q%'")];

fn daemon() -> Daemon {
    Daemon::with_files(&format!("{CONFIG}{WITH_DESTINATION}"), &PUSHES)
}

fn push(daemon: &Daemon, id: &str) {
    let body = format!(r#"{{"ref":"refs/heads/{id}"}}"#);
    let headers =
        [github_signature(&body), format!("X-GitHub-Delivery: {id}"), "X-GitHub-Event: push".to_owned()];
    let (status, _) = daemon.client().post("/webhooks/github", &headers.each_ref().map(String::as_str), body);
    assert_eq!(status, 200);
}

/// What `audit list` tells, the oldest first.
fn trail(daemon: &Daemon) -> Vec<Value> {
    let ran = daemon.inboxd(&["audit", "list", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.reverse();
    lines
}

/// Act, what it was done to, and how many rows.
fn acts(daemon: &Daemon) -> Vec<(String, String, i64)> {
    let act = |line: &Value| {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (text(&line["act"]), line["filter"].to_string(), line["count"].as_i64().unwrap())
    };
    trail(daemon).iter().map(act).collect()
}

fn row(act: &str, filter: &str, count: i64) -> (String, String, i64) {
    (act.to_owned(), filter.to_owned(), count)
}

#[test]
fn each_act_of_the_command_line_is_a_row_that_says_who_did_what_to_what() {
    let daemon = daemon();
    daemon.stripe(&invoice_event("evt_void", "voided", "in_1", 100));
    daemon.stripe(&invoice_event("evt_paid", "paid", "in_1", 100));
    let review = daemon.count("SELECT id FROM reviews");
    for args in [
        &["outbox", "pause", "app"][..],
        &["retry", "evt_paid"],
        &["resolve", &review.to_string(), "--note", "asked the bank"],
        &["outbox", "resume", "app"],
    ] {
        let ran = daemon.inboxd(args);
        assert_eq!(ran.code, 0, "{args:?} {ran:?}");
    }
    let wanted = [
        row("outbox pause", r#"{"destination":"app"}"#, 1),
        row("retry", r#"{"endpoint":"billing","event_id":"evt_paid"}"#, 1),
        row("resolve", &format!(r#"{{"review":{review}}}"#), 1),
        row("outbox resume", r#"{"destination":"app"}"#, 1),
    ];
    assert_eq!(acts(&daemon), wanted);
    let trail = trail(&daemon);
    for line in &trail {
        let actor = line["actor"].as_str().unwrap();
        assert!(actor.starts_with("cli:") && actor.len() > 4, "{line}");
        assert!(line["at_ms"].as_i64().unwrap() > 1_600_000_000_000, "{line}");
    }
    assert_eq!(trail[2]["note"], "asked the bank");
    let table = daemon.inboxd(&["audit", "list"]);
    assert!(table.code == 0 && table.stdout.contains("asked the bank"), "{table:?}");
}

#[test]
fn an_act_over_many_rows_is_one_row_that_counts_what_was_changed() {
    let daemon = daemon();
    for number in 0..130 {
        push(&daemon, &format!("q{number}"));
    }
    daemon.wait_for_count("SELECT count(*) FROM webhook_inbox WHERE state = 'quarantined'", 130);
    let refused = daemon.inboxd(&["retry", "--state", "quarantined"]);
    assert_eq!(refused.code, 5, "{refused:?}");
    assert_eq!(acts(&daemon), [], "what was not done leaves no row");
    let ran = daemon.inboxd(&["retry", "--state", "quarantined", "--yes", "--limit", "120"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(acts(&daemon), [row("retry", r#"{"state":"quarantined"}"#, 120)]);
}

#[test]
fn what_changes_nothing_leaves_no_row() {
    let daemon = daemon();
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 100));
    for args in [&["retry", "evt_1"][..], &["outbox", "resume", "app"], &["resolve", "77", "--note", "x"]] {
        daemon.inboxd(args);
    }
    let ran = daemon.inboxd(&["audit", "list"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{ran:?}");
    assert_eq!(ran.stderr, "nothing was done by hand yet\n");
}

#[test]
fn rows_of_the_outbox_and_a_purge_are_in_the_trail_with_their_counts() {
    let daemon = daemon();
    for number in 0..3 {
        push(&daemon, &format!("d{number}"));
    }
    daemon.wait_for_count("SELECT count(*) FROM outbox WHERE attempts > 0 AND state = 'pending'", 3);
    let ran = daemon.inboxd(&["outbox", "retry", "--destination", "app", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    daemon
        .sql()
        .execute("UPDATE webhook_inbox SET received_at_ms = 1000, processed_at_ms = 1000", [])
        .unwrap();
    let ran = daemon.inboxd(&["purge", "--accept-clock"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let acts = acts(&daemon);
    let named: Vec<_> = acts.iter().map(|(act, filter, _)| (act.as_str(), filter.as_str())).collect();
    assert_eq!(named, [("outbox retry", r#"{"destination":"app"}"#), ("purge", "{}")]);
    assert!(acts.iter().all(|(_, _, count)| (1..=6).contains(count)), "{acts:?}");
}
