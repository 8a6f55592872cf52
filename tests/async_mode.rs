//! Mode `async` from outside: the real binary, kills included, and the verbs for people.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use support::{Daemon, STRIPE_SECRET, invoice_event, now_s, stripe_signature};

fn config(more: &str) -> String {
    let endpoint = "handlers = [\"billing\"]\nmode = \"async\"";
    support::CONFIG.replace("handlers = [\"billing\"]", endpoint) + more
}

const UNPROCESSED: &str = "SELECT count(*) FROM webhook_inbox WHERE state IN ('pending', 'processing')";

#[test]
fn an_event_is_accepted_first_and_worked_on_at_once() {
    let daemon = Daemon::with_config(&config(""));
    let answer = daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200));
    assert_eq!(answer, (200, r#"{"outcome":"accepted"}"#.to_owned()));
    daemon.wait_for_count(UNPROCESSED, 0);
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries WHERE kind = 'payment'"), 1);
    assert_eq!(daemon.text("SELECT state || ' ' || attempts FROM webhook_inbox"), "done 1");
}

#[test]
fn an_event_that_no_handler_takes_is_ignored_at_once() {
    let daemon = Daemon::with_config(&config(""));
    let answer = daemon.stripe(r#"{"id":"evt_1","type":"foo.bar","data":{"object":{}}}"#);
    assert_eq!(answer, (200, r#"{"outcome":"ignored"}"#.to_owned()));
}

#[test]
fn a_redelivered_quarantined_event_is_put_back_to_work() {
    let daemon = Daemon::with_config(&config(""));
    daemon.stripe(&invoice_event("evt_1", "voided", "in_1", 4200));
    let paid = invoice_event("evt_2", "paid", "in_1", 4200);
    daemon.stripe(&paid);
    daemon.wait_for_count(UNPROCESSED, 0);
    assert_eq!(daemon.text("SELECT state FROM webhook_inbox WHERE event_id = 'evt_2'"), "quarantined");
    assert_eq!(daemon.stripe(&paid), (200, r#"{"outcome":"accepted"}"#.to_owned()));
    daemon.wait_for_count(UNPROCESSED, 0);
    assert_eq!(daemon.text("SELECT state FROM webhook_inbox WHERE event_id = 'evt_2'"), "quarantined");
    assert_eq!(daemon.count("SELECT count(*) FROM reviews"), 1);
}

#[test]
fn a_person_retries_what_failed_and_the_review_closes_when_it_goes_through() {
    let daemon = Daemon::with_config(&config("[worker]\nmax_attempts = 1\n"));
    let fail = "CREATE TRIGGER broken BEFORE INSERT ON ledger_entries BEGIN SELECT RAISE(ABORT, 'broken books'); END";
    daemon.sql().execute_batch(fail).unwrap();
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200));
    daemon.wait_for_count(UNPROCESSED, 0);
    assert_eq!(
        daemon.text("SELECT state || ': ' || last_error FROM webhook_inbox"),
        "quarantined: broken books"
    );
    let reviews = daemon.inboxd(&["reviews", "list"]);
    assert!(reviews.stdout.contains("billing/evt_1"), "{reviews:?}");
    let show = daemon.inboxd(&["events", "show", "evt_1"]);
    assert!(show.stdout.contains(" quarantined: broken books"), "{show:?}");

    daemon.sql().execute_batch("DROP TRIGGER broken").unwrap();
    let counted = daemon.inboxd(&["retry", "--state", "quarantined"]);
    assert_eq!(counted.code, 5, "{counted:?}");
    assert!(counted.stderr.contains("would retry 1 event ("), "{counted:?}");
    let retried = daemon.inboxd(&["retry", "--state", "quarantined", "--yes"]);
    assert_eq!(retried.code, 0, "{retried:?}");
    daemon.wait_for_count(UNPROCESSED, 0);
    assert_eq!(
        daemon.text("SELECT state || ' ' || attempts || ' ' || attempts_excused FROM webhook_inbox"),
        "done 2 1"
    );
    assert_eq!(daemon.count("SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL"), 0);
    let again = daemon.inboxd(&["retry", "evt_1"]);
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (0, "evt_1 on billing was processed before; nothing was changed\n")
    );
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries WHERE kind = 'payment'"), 1);
}

#[test]
fn a_review_is_closed_with_a_note_once() {
    let daemon = Daemon::start();
    daemon.stripe(&invoice_event("evt_1", "voided", "in_1", 4200));
    daemon.stripe(&invoice_event("evt_2", "paid", "in_1", 4200));
    let closed = daemon.inboxd(&["resolve", "1", "--note", "refunded by hand"]);
    assert_eq!(closed.code, 0, "{closed:?}");
    assert_eq!(daemon.text("SELECT note FROM reviews"), "refunded by hand");
    assert_eq!(daemon.inboxd(&["resolve", "1", "--note", "again"]).code, 4);
    assert_eq!(daemon.inboxd(&["resolve", "2", "--note", " "]).code, 2);
}

#[test]
fn every_event_has_one_effect_though_handlers_fail_and_the_process_is_killed_again_and_again() {
    let events = 600;
    let kills = 8;
    let mut daemon =
        Daemon::with_config(&config("[worker]\nthreads = 4\nbackoff_cap = \"50ms\"\nmax_attempts = 1000\n"));
    daemon
        .sql()
        .execute_batch(
            "CREATE TRIGGER one_in_ten BEFORE INSERT ON ledger_entries WHEN abs(random()) % 10 = 0
             BEGIN SELECT RAISE(ABORT, 'bad luck'); END",
        )
        .unwrap();
    let mut sent = 0;
    for round in 0..=kills {
        let upto = if round == kills { events } else { (round + 1) * events / (kills + 1) };
        let mut client = daemon.client();
        while sent < upto {
            let body = invoice_event(&format!("evt_{sent}"), "paid", &format!("in_{sent}"), 100);
            let signature = stripe_signature(&body, now_s(), STRIPE_SECRET);
            assert_eq!(client.post("/webhooks/stripe", &[&signature], &body).0, 200);
            sent += 1;
        }
        if round < kills {
            daemon = Daemon::in_dir(daemon.kill());
        }
    }
    daemon.wait_for_count(UNPROCESSED, 0);
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox WHERE state = 'done'"), i64::from(events));
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries WHERE kind = 'payment'"), i64::from(events));
    assert!(
        daemon.count("SELECT count(*) FROM webhook_inbox WHERE attempts > 1") > 10,
        "the faults did not happen"
    );
}

#[test]
fn github_events_with_handlers_are_asynchronous_unless_forced_and_check_warns() {
    let dir = tempfile::tempdir().unwrap();
    support::write_secret(dir.path(), "s", "a secret of the tests");
    let config = |mode: &str| {
        format!(
            "[endpoint.hooks]\nprovider = \"github\"\nsecrets = [\"file:s\"]\nhandlers = [\"billing\"]\n{mode}\n"
        )
    };
    std::fs::write(dir.path().join("inboxd.toml"), config("")).unwrap();
    assert!(support::inboxd(dir.path(), &["check", "--print"]).stdout.contains("mode = \"async\""));
    std::fs::write(dir.path().join("inboxd.toml"), config("mode = \"sync\"")).unwrap();
    let checked = support::inboxd(dir.path(), &["check"]);
    assert_eq!(checked.code, 0, "{checked:?}");
    assert!(checked.stdout.contains("does not send again by itself"), "{checked:?}");
}

#[test]
fn payloads_are_purged_first_and_keys_later_and_the_books_never_change() {
    let daemon = Daemon::with_config(&config("[retention]\npayload = \"30d\"\nkey = \"400d\"\n"));
    let paid = invoice_event("evt_1", "paid", "in_1", 4200);
    daemon.stripe(&paid);
    daemon.stripe(&invoice_event("evt_2", "voided", "in_1", 4200));
    daemon.wait_for_count(UNPROCESSED, 0);
    let age = |days: i64| {
        let sql = format!("UPDATE webhook_inbox SET received_at_ms = received_at_ms - {}", days * 86_400_000);
        daemon.sql().execute_batch(&sql).unwrap();
    };
    age(31);
    assert_eq!(daemon.inboxd(&["purge", "--dry-run"]).stdout, "would purge 1 payload and 0 keys\n");
    assert_eq!(daemon.inboxd(&["purge"]).stdout, "purged 1 payload and 0 keys\n");
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox WHERE payload IS NULL"), 1);
    assert_eq!(
        daemon
            .count("SELECT count(*) FROM webhook_inbox WHERE state = 'quarantined' AND payload IS NOT NULL"),
        1
    );
    assert_eq!(daemon.stripe(&paid), (200, r#"{"outcome":"duplicate"}"#.to_owned()));
    assert_eq!(daemon.inboxd(&["events", "body", "evt_1"]).code, 4);
    age(370);
    assert_eq!(daemon.inboxd(&["purge"]).stdout, "purged 0 payloads and 1 key\n");
    assert_eq!(daemon.stripe(&paid), (200, r#"{"outcome":"accepted"}"#.to_owned()));
    daemon.wait_for_count(UNPROCESSED, 0);
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries WHERE kind = 'payment'"), 1);
    assert!(daemon.inboxd(&["status"]).stdout.contains("0 payloads and 1 key"));
}

#[test]
fn people_are_told_by_a_program_when_a_review_opens_and_without_the_body() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("tell");
    let told = dir.path().join("told");
    std::fs::write(&program, format!("#!/bin/sh\necho \"$1\" >> {}\n", told.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let daemon = Daemon::with_config(&config(&format!("[alert]\ncommand = \"{}\"\n", program.display())));
    let tested = daemon.inboxd(&["alert", "test"]);
    assert_eq!(tested.code, 0, "{tested:?}");
    assert!(std::fs::read_to_string(&told).unwrap().contains("this is a test"));
    daemon.stripe(&invoice_event("evt_1", "voided", "in_1", 4200));
    daemon.stripe(&invoice_event("evt_2", "paid", "in_1", 4200));
    let is_told = || std::fs::read_to_string(&told).unwrap().contains("1 review waits");
    daemon.wait_for("somebody is told", is_told);
    assert!(!std::fs::read_to_string(&told).unwrap().contains("in_1"));
}

#[test]
fn status_tells_the_last_hour_by_type() {
    let daemon = Daemon::with_config(&config(""));
    let paid = invoice_event("evt_1", "paid", "in_1", 4200);
    daemon.stripe(&paid);
    daemon.stripe(&paid);
    daemon.wait_for_count(UNPROCESSED, 0);
    let status: serde_json::Value =
        serde_json::from_str(&daemon.inboxd(&["status", "--json"]).stdout).unwrap();
    assert_eq!(
        status["last_hour"][0],
        serde_json::json!({"event_type": "invoice.paid", "events": 1, "duplicates": 1})
    );
    assert!(status["receipt_to_done_ms"]["max"].as_i64().is_some(), "{status}");
    // of a hundred deliveries fifty were further ones
    assert!(daemon.inboxd(&["status"]).stdout.contains("50 %"));
}

#[test]
fn status_tells_how_deliveries_were_answered_since_the_start() {
    let daemon = Daemon::with_config(&config(""));
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200));
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200));
    assert_eq!(daemon.client().post("/webhooks/stripe", &[], "{}").0, 400);
    let told = || {
        let ran = daemon.inboxd(&["status", "--json"]);
        serde_json::from_str::<serde_json::Value>(&ran.stdout).unwrap()["answers_since_start"].clone()
    };
    let counts = serde_json::json!({"2xx": 2, "4xx": 1, "5xx": 0});
    daemon.wait_for(&format!("status tells {counts}"), || told() == counts);
    assert!(daemon.inboxd(&["status"]).stdout.contains("2 accepted (2xx), 1 refused (4xx)"));
}
