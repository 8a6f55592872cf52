//! `health` and `status`: what they say of the daemon, and with which exit code.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::sync::Arc;

use serde_json::{Value, json};
use support::{CONFIG, Daemon, folder, inboxd, invoice_event};

fn json_of(text: &str) -> Value {
    serde_json::from_str(text.lines().next().unwrap_or("null")).unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn health_is_0_while_the_daemon_is_ready_and_8_with_a_reason_otherwise() {
    let dir = folder(CONFIG, &[]);
    let never = inboxd(dir.path(), &["health"]);
    assert_eq!((never.code, never.stdout.as_str()), (8, ""), "{never:?}");
    assert!(never.stderr.contains("no daemon is running"), "{never:?}");

    let daemon = Daemon::in_dir(Arc::new(dir));
    let ready = daemon.inboxd(&["health"]);
    assert_eq!((ready.code, ready.stdout.as_str(), ready.stderr.as_str()), (0, "ready\n", ""), "{ready:?}");
    let told = json_of(&daemon.inboxd(&["health", "--json"]).stdout);
    assert_eq!(
        (&told["running"], &told["ready"], &told["reasons"]),
        (&json!(true), &json!(true), &json!([]))
    );
    assert_eq!(told["pid"], daemon.pid());

    let lock = daemon.sql();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200)).0, 503);
    let blocked = daemon.inboxd(&["health"]);
    assert_eq!((blocked.code, blocked.stdout.as_str()), (8, ""), "{blocked:?}");
    assert!(blocked.stderr.contains("not ready: ") && blocked.stderr.contains("write lock"), "{blocked:?}");
    let told = json_of(&daemon.inboxd(&["health", "--json"]).stdout);
    assert_eq!((&told["running"], &told["ready"]), (&json!(true), &json!(false)));
    lock.execute_batch("ROLLBACK").unwrap();
    daemon.wait_for("it is ready again", || daemon.inboxd(&["health"]).code == 0);

    // killed: what it has left behind says nothing
    let dir = daemon.kill();
    let killed = inboxd(dir.path(), &["health", "--json"]);
    assert_eq!(killed.code, 8, "{killed:?}");
    assert_eq!(json_of(&killed.stdout)["running"], false);
    let daemon = Daemon::in_dir(Arc::clone(&dir));
    assert_eq!(daemon.inboxd(&["health"]).code, 0);
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(inboxd(dir.path(), &["health"]).code, 8);
}

#[test]
fn status_says_whether_a_daemon_runs_and_counts_what_was_answered_at_once_and_after_a_stop() {
    let daemon = Daemon::start();
    for n in 0..7 {
        assert_eq!(
            daemon.stripe(&invoice_event(&format!("evt_{n}"), "paid", &format!("in_{n}"), 4200)).0,
            200
        );
    }
    let ran = daemon.inboxd(&["status", "--json"]);
    let status = json_of(&ran.stdout);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(status["answers_since_start"], json!({ "2xx": 7, "4xx": 0, "5xx": 0 }));
    assert_eq!((&status["daemon"]["running"], &status["daemon"]["ready"]), (&json!(true), &json!(true)));
    assert_eq!((&status["healthy"], &status["complaints"]), (&json!(true), &json!([])));
    let text = daemon.inboxd(&["status"]).stdout;
    assert!(text.starts_with(&format!("daemon        process {}, ready\n", daemon.pid())), "{text}");

    let dir = Arc::clone(&daemon.dir);
    assert_eq!(daemon.stop(), Some(0));
    let ran = inboxd(dir.path(), &["status", "--json"]);
    let status = json_of(&ran.stdout);
    assert_eq!(ran.code, 8, "{ran:?}");
    assert_eq!(status["daemon"]["running"], false);
    assert_eq!(status["answers_since_start"], json!({ "2xx": 7, "4xx": 0, "5xx": 0 }));
    let text = inboxd(dir.path(), &["status"]);
    assert!(
        text.stdout.contains("NOT RUNNING") && text.stdout.contains("UNHEALTHY     no daemon"),
        "{text:?}"
    );
}

#[test]
fn status_is_8_below_the_floor_of_free_space_and_counts_what_could_not_be_stored() {
    let daemon = Daemon::with_config(&CONFIG.replace("disk_free_min = 0", "disk_free_min = \"999999GiB\""));
    assert_eq!(daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200)).0, 503);
    let ran = daemon.inboxd(&["status", "--json"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    let status = json_of(&ran.stdout);
    assert!(status["daemon"]["reasons"][0].as_str().unwrap().contains("free disk space"), "{status}");
    assert_eq!(status["unavailable_since_start"], 1);
    assert_eq!(daemon.inboxd(&["health"]).code, 8);
}

#[test]
fn status_remembers_the_latest_outages_from_stop_to_start() {
    let mut daemon = Daemon::start();
    assert_eq!(daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200)).0, 200);
    for outage in 1..=2 {
        let dir = Arc::clone(&daemon.dir);
        assert_eq!(daemon.stop(), Some(0));
        // an hour passes
        let database = dir.path().join("data/inboxd.db");
        let back =
            "UPDATE inboxd_meta SET updated_at_ms = updated_at_ms - 3600000 WHERE updated_at_ms IS NOT NULL";
        let conn = support::open(&database);
        conn.execute(back, []).unwrap();
        conn.execute("UPDATE webhook_inbox SET received_at_ms = received_at_ms - 3600000, processed_at_ms = processed_at_ms - 3600000", []).unwrap();
        drop(conn);
        daemon = Daemon::in_dir(dir);
        let gaps = || json_of(&daemon.inboxd(&["status", "--json"]).stdout)["gaps"].clone();
        daemon.wait_for("the outage is noted", || gaps().as_array().is_some_and(|gaps| gaps.len() == outage));
        let gap = gaps()[outage - 1].clone();
        let hours = (gap["to_ms"].as_i64().unwrap() - gap["from_ms"].as_i64().unwrap()) / 3_600_000;
        assert_eq!((&gap["endpoint"], hours), (&json!("billing"), 1), "{gap}");
    }
    assert!(daemon.inboxd(&["status"]).stdout.contains("no daemon ran from "));
}
