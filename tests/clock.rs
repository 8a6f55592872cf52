//! A wall clock that jumps: nothing is deleted, given up or done twice by an age that the jump made.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::path::Path;
use std::sync::Arc;

use inboxd::internals::clock;
use inboxd::internals::store::open;
use inboxd::internals::work::timeline;
use support::{Daemon, invoice_event};

const DAY_MS: i64 = 86_400_000;

/// What a clock that was wrong by so many days, until this moment, has written.
fn as_if_the_clock_had_been_wrong(dir: &Path, days: i64) {
    let conn = support::open(&dir.join("data/inboxd.db"));
    let ms = days * DAY_MS;
    conn.execute_batch(&format!(
        "UPDATE webhook_inbox SET received_at_ms = received_at_ms + {ms}, processed_at_ms = processed_at_ms + {ms};
         UPDATE outbox SET created_at_ms = created_at_ms + {ms}, delivered_at_ms = delivered_at_ms + {ms},
                           failing_since_ms = failing_since_ms + {ms}, available_at_ms = available_at_ms + {ms};
         UPDATE inboxd_meta SET updated_at_ms = updated_at_ms + {ms} WHERE key <> 'clock_jumps'"
    ))
    .unwrap();
}

fn purged(daemon: &Daemon) -> String {
    let ran = daemon.inboxd(&["purge"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout
}

const NOTED: &str =
    "SELECT count(*) FROM inboxd_meta WHERE key = 'clock' AND updated_at_ms > 1000 * unixepoch() - 60000";

#[test]
fn what_came_before_the_clock_was_right_is_as_young_as_it_is() {
    let daemon = Daemon::start();
    let paid = invoice_event("evt_1", "paid", "in_1", 4200);
    daemon.stripe(&paid);
    let dir = Arc::clone(&daemon.dir);
    assert_eq!(daemon.stop(), Some(0));
    as_if_the_clock_had_been_wrong(dir.path(), -26 * 365);
    let daemon = Daemon::in_dir(dir);
    daemon.wait_for_count(NOTED, 1);
    assert!(daemon.log().contains("days ahead of when inboxd last saw it"), "{}", daemon.log());
    assert_eq!(purged(&daemon), "purged 0 payloads and 0 keys\n");
    assert_eq!(daemon.stripe(&paid), (200, r#"{"outcome":"duplicate"}"#.to_owned()));
    // who knows that the times are right says so
    let ran = daemon.inboxd(&["purge", "--accept-clock"]);
    assert_eq!(ran.stdout, "purged 1 payload and 1 key\n", "{ran:?}");
}

#[test]
fn a_clock_far_ahead_purges_nothing_and_what_it_did_is_undone_with_it() {
    let daemon = Daemon::start();
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200));
    let dir = Arc::clone(&daemon.dir);
    assert_eq!(daemon.stop(), Some(0));
    as_if_the_clock_had_been_wrong(dir.path(), -402);
    for args in [&["purge"][..], &["purge", "--dry-run"]] {
        let ran = support::inboxd(dir.path(), args);
        assert_eq!((ran.code, ran.stdout.as_str()), (5, ""), "{ran:?}");
        assert!(ran.stderr.contains("402 days after") && ran.stderr.contains("--accept-clock"), "{ran:?}");
    }
    let daemon = Daemon::in_dir(dir);
    daemon.wait_for_count(NOTED, 1);
    assert_eq!(purged(&daemon), "purged 0 payloads and 0 keys\n");
    daemon.stripe(&invoice_event("evt_2", "paid", "in_2", 4200));
    let dir = Arc::clone(&daemon.dir);
    assert_eq!(daemon.stop(), Some(0));
    // back on time: both events are of today
    as_if_the_clock_had_been_wrong(dir.path(), 402);
    let daemon = Daemon::in_dir(dir);
    daemon.wait_for_count(NOTED, 1);
    assert_eq!(purged(&daemon), "purged 0 payloads and 0 keys\n");
    daemon
        .sql()
        .execute_batch(&format!("UPDATE webhook_inbox SET received_at_ms = received_at_ms - {}", 31 * DAY_MS))
        .unwrap();
    assert_eq!(purged(&daemon), "purged 2 payloads and 0 keys\n");
}

#[test]
fn a_row_that_failed_for_seconds_is_not_given_up_after_a_start_with_a_clock_ahead() {
    let config = format!(
        "{}forward = [\"app\"]\n[destination.app]\nurl = \"http://127.0.0.1:9/\"\nsign = \"none\"\nbackoff_cap = \"10ms\"\n",
        support::CONFIG
    );
    let daemon = Daemon::with_config(&config);
    let body = r#"{"action":"opened"}"#;
    let lines = [
        support::github_signature(body),
        "X-GitHub-Delivery: d-1".to_owned(),
        "X-GitHub-Event: issues".to_owned(),
    ];
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    assert_eq!(daemon.client().post("/webhooks/github", &lines, body).0, 200);
    const FAILED: &str = "SELECT count(*) FROM outbox WHERE failing_since_ms IS NOT NULL AND state = 'pending' AND attempts > ";
    daemon.wait_for_count(&format!("{FAILED} 1"), 1);
    let dir = Arc::clone(&daemon.dir);
    assert_eq!(daemon.stop(), Some(0));
    let attempts: i64 = support::open(&dir.path().join("data/inboxd.db"))
        .query_row("SELECT attempts FROM outbox", [], |row| row.get(0))
        .unwrap();
    as_if_the_clock_had_been_wrong(dir.path(), -30);
    let daemon = Daemon::in_dir(dir);
    daemon.wait_for_count(&format!("SELECT min(attempts, {}) FROM outbox", attempts + 2), attempts + 2);
    assert_eq!(daemon.count("SELECT count(*) FROM outbox WHERE state = 'dead'"), 0);
    let failing = "SELECT 1000 * unixepoch() - failing_since_ms < 3600000 FROM outbox";
    assert_eq!(daemon.count(failing), 1, "the jump is no time of failing");
}

#[test]
fn a_jump_while_inboxd_runs_concerns_the_rows_before_it_alone() {
    let dir = tempfile::tempdir().unwrap();
    let conn = open::open_writer(&dir.path().join("inboxd.db")).unwrap();
    let now_ms = clock::now_ms();
    let before_ms = now_ms - 400 * DAY_MS;
    for (id, at_ms) in [(1, before_ms - 90 * DAY_MS), (2, before_ms), (3, now_ms - 900), (4, now_ms)] {
        conn.execute(
            "INSERT INTO webhook_inbox (provider, endpoint, event_id, headers, body_sha256, state, available_at_ms,
                                        received_at_ms, processed_at_ms)
             VALUES ('stripe', 'billing', ?1, '{}', zeroblob(32), 'done', 0, ?2, ?2)",
            (id, at_ms),
        )
        .unwrap();
    }
    let jump = timeline::noticed(&conn, 400 * DAY_MS, 2_000, now_ms).unwrap();
    assert_eq!((jump.inbox_id, jump.outbox_id), (2, 0));
    let tx = open::begin_immediate(&conn).unwrap();
    timeline::note(&tx, Some(jump), now_ms).unwrap();
    tx.commit().unwrap();
    let timeline = timeline::Timeline::recall(&conn).unwrap();
    assert_eq!([1, 2, 3].map(|id| timeline.of_event(id) / DAY_MS), [400, 400, 0]);
    assert_eq!(timeline::Seen::look(&conn).unwrap().last_ms, Some(now_ms));
    // a minute later it is back, and nothing came meanwhile
    let back_ms = before_ms + 60_000;
    let tx = open::begin_immediate(&conn).unwrap();
    tx.execute("DELETE FROM webhook_inbox WHERE id > 2", []).unwrap();
    let jump = timeline::noticed(&tx, -400 * DAY_MS, 2_000, back_ms).unwrap();
    timeline::note(&tx, Some(jump), back_ms).unwrap();
    tx.commit().unwrap();
    assert_eq!(timeline::Timeline::recall(&conn).unwrap(), timeline::Timeline::default(), "it never was");
}
