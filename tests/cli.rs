//! The command line against a running daemon and its database.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::fs;

use support::{Daemon, inboxd, invoice_event};

/// A daemon on a fixed port, so that `send` finds it through the configuration.
fn reachable() -> Daemon {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config =
        support::CONFIG.replace("webhooks = \"127.0.0.1:0\"", &format!("webhooks = \"127.0.0.1:{port}\""));
    Daemon::with_config(&config)
}

#[test]
fn send_signs_what_serve_accepts() {
    let daemon = reachable();
    let sent = daemon.inboxd(&["send", "stripe", "invoice.paid", "--id", "evt_sent"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    assert!(sent.stdout.starts_with(r#"200 {"outcome":"processed"}  invoice.paid evt_sent"#), "{sent:?}");
    let github = daemon.inboxd(&["send", "github", "issues.opened"]);
    assert_eq!(github.code, 0, "{github:?}");
    assert_eq!(
        daemon.text("SELECT event_type FROM webhook_inbox WHERE endpoint = 'github'"),
        "issues.opened"
    );
}

#[test]
fn send_makes_copies_of_one_event() {
    let daemon = reachable();
    let sent = daemon.inboxd(&["send", "stripe", "invoice.paid", "--times", "20", "--concurrency", "4"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    assert!(sent.stderr.contains(r#"1 x 200 {"outcome":"processed"}"#), "{sent:?}");
    assert!(sent.stderr.contains(r#"19 x 200 {"outcome":"duplicate"}"#), "{sent:?}");
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries"), 1);
}

#[test]
fn send_plays_a_history_about_one_object_in_any_order() {
    let daemon = reachable();
    let history = "invoice.created,invoice.finalized,invoice.paid";
    let sent = daemon.inboxd(&["send", "stripe", history, "--times", "3", "--shuffle"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    assert_eq!(daemon.text("SELECT group_concat(status) FROM invoices"), "paid");
}

#[test]
fn a_spoiled_signature_and_a_shifted_clock_are_refused() {
    let daemon = reachable();
    let spoiled = daemon.inboxd(&["send", "stripe", "invoice.paid", "--bad-signature"]);
    assert_eq!(spoiled.code, 0, "a refusal is what was asked for: {spoiled:?}");
    assert!(spoiled.stdout.contains("400 {\"error\":\"signature_mismatch\"}"), "{spoiled:?}");
    let late = daemon.inboxd(&["send", "stripe", "invoice.paid", "--skew=-10m"]);
    assert_eq!(late.code, 1, "{late:?}");
    assert!(late.stdout.contains("timestamp_outside_tolerance"), "{late:?}");
}

#[test]
fn send_without_a_daemon_says_how_to_start_one() {
    let daemon = reachable();
    let dir = daemon.kill();
    let sent = inboxd(dir.path(), &["send", "stripe", "invoice.paid"]);
    assert_eq!(sent.code, 6, "{sent:?}");
    assert!(sent.stderr.contains("inboxd serve"), "{sent:?}");
}

#[test]
fn send_takes_a_file_and_another_id() {
    let daemon = reachable();
    let path = daemon.dir.path().join("body.json");
    fs::write(&path, invoice_event("evt_in_the_file", "paid", "in_1", 700)).unwrap();
    let sent = daemon.inboxd(&["send", "stripe", "invoice.paid", "--file", "body.json"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    let sent = daemon.inboxd(&["send", "stripe", "invoice.paid", "--file", "body.json", "--id", "evt_other"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    let ids = "SELECT group_concat(event_id) FROM (SELECT event_id FROM webhook_inbox ORDER BY id)";
    assert_eq!(daemon.text(ids), "evt_in_the_file,evt_other");
}

#[test]
fn events_are_listed_shown_and_printed_byte_for_byte() {
    let daemon = Daemon::start();
    let body = invoice_event("evt_1", "paid", "in_1", 4200);
    daemon.stripe(&body);
    daemon.stripe(&invoice_event("evt_2", "voided", "in_1", 4200));

    let list = daemon.inboxd(&["events", "list"]);
    assert!(list.stdout.contains("evt_1") && list.stdout.contains("quarantined"), "{list:?}");
    let list = daemon.inboxd(&["events", "list", "--type", "invoice.paid", "--object", "in_1", "--json"]);
    let line: serde_json::Value = serde_json::from_str(list.stdout.trim()).unwrap();
    assert_eq!((&line["event_id"], &line["state"]), (&"evt_1".into(), &"done".into()));
    let none = daemon.inboxd(&["events", "list", "--since", "2099-01-01T00:00:00Z"]);
    assert_eq!((none.code, none.stdout.as_str()), (0, ""));

    let show = daemon.inboxd(&["events", "show", "evt_2", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&show.stdout).unwrap();
    assert_eq!(shown["reviews"][0]["kind"], "quarantined");
    assert_eq!(daemon.inboxd(&["events", "body", "evt_1"]).stdout, body);
    let missing = daemon.inboxd(&["events", "show", "evt_9"]);
    assert_eq!(missing.code, 4, "{missing:?}");
}

#[test]
fn status_counts_what_is_stored_and_what_waits_for_a_person() {
    let daemon = Daemon::start();
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200));
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200));
    daemon.stripe(&invoice_event("evt_2", "voided", "in_1", 4200));
    let status = daemon.inboxd(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    let numbers = ["done", "ignored", "quarantined", "pending", "reviews_open"]
        .map(|key| status[key].as_i64().unwrap());
    assert_eq!(numbers, [1, 0, 1, 0, 1]);
    assert_eq!(status["endpoints"][0]["duplicates"], 1);
    assert!(daemon.inboxd(&["status"]).stdout.contains("need a person 1"));
}

#[test]
fn query_reads_and_never_writes() {
    let daemon = Daemon::start();
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200));
    let sql = "SELECT entry_key, amount FROM ledger_entries";
    assert_eq!(daemon.inboxd(&["query", sql, "--csv"]).stdout, "entry_key,amount\r\npayment:in_1,4200\r\n");
    let json = daemon.inboxd(&["query", sql, "--json"]).stdout;
    assert_eq!(json, "{\"amount\":4200,\"entry_key\":\"payment:in_1\"}\n");
    assert!(daemon.inboxd(&["query", sql]).stdout.contains("payment:in_1  4200"));
    for forbidden in
        ["DELETE FROM webhook_inbox", "CREATE TABLE t (x)", "SELECT 1; DELETE FROM webhook_inbox", "BEGIN"]
    {
        let refused = daemon.inboxd(&["query", forbidden]);
        assert_ne!(refused.code, 0, "{forbidden}: {refused:?}");
    }
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox"), 1);
}

#[test]
fn verify_judges_as_the_daemon_does_and_explains() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("body"), r#"{"test": 2432232314}"#).unwrap();
    support::write_secret(dir.path(), "secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let judge = |body: &str, now: &str| {
        inboxd(
            dir.path(),
            &[
                "verify",
                "--provider",
                "standardwebhooks",
                "--secret-file",
                "secret",
                "--header",
                "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek",
                "--header",
                "webhook-timestamp: 1614265330",
                "--header",
                "webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
                "--body",
                body,
                "--now",
                now,
            ],
        )
    };
    // the vector of the specification's own libraries
    let good = judge("body", "1614265330");
    assert_eq!(good.code, 0, "{good:?}");
    let good: serde_json::Value = serde_json::from_str(&good.stdout).unwrap();
    assert_eq!((&good["ok"], &good["event_id"]), (&true.into(), &"msg_p5jXN8AQM9LWM0D4loKWxJek".into()));

    let late = judge("body", "1614265931");
    assert_eq!(late.code, 7);
    assert!(late.stdout.contains("timestamp_outside_tolerance") && late.stdout.contains("601"), "{late:?}");

    fs::write(dir.path().join("again"), r#"{"test":2432232314}"#).unwrap();
    let again = judge("again", "1614265330");
    assert_eq!(again.code, 7);
    assert!(again.stdout.contains("signature_mismatch") && again.stdout.contains("serialised"), "{again:?}");
}

#[test]
fn without_a_configuration_serve_and_send_agree_on_everything() {
    let dir = tempfile::tempdir().unwrap();
    // the fixed ports of the development instance may be taken on this machine: only the secrets are tried here
    let check = inboxd(dir.path(), &["check"]);
    assert_eq!(check.code, 0, "{check:?}");
    assert!(!dir.path().join("inboxd-data").exists(), "check makes nothing");
    let sent = inboxd(
        dir.path(),
        &["send", "stripe", "invoice.paid", "--to", "http://127.0.0.1:1/", "--secret-file", "no"],
    );
    assert_eq!(sent.code, 2, "{sent:?}");
}

#[test]
fn the_demo_shows_that_every_line_holds() {
    let dir = tempfile::tempdir().unwrap();
    let demo = inboxd(dir.path(), &["demo"]);
    assert_eq!(demo.code, 0, "{demo:?}");
    assert_eq!(demo.stdout.lines().filter(|line| line.starts_with("ok ")).count(), 8, "{demo:?}");
    assert!(!demo.stdout.contains("BROKEN"), "{demo:?}");
}

#[test]
fn there_is_nothing_to_show_before_the_first_start() {
    let dir = tempfile::tempdir().unwrap();
    let status = inboxd(dir.path(), &["status"]);
    assert_eq!(status.code, 4, "{status:?}");
    assert!(status.stderr.contains("inboxd serve"), "{status:?}");
}
