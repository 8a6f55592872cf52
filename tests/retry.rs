//! `retry` from outside: whatever is stored can be put to work by a person, and is told truly what came of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::fs;
use std::sync::Arc;

use support::app::{Absent, App, respond};
use support::{CONFIG, Daemon, STRIPE_SECRET, github_signature, hmac_hex, inboxd, open};

const SQL: &str = "CREATE TABLE IF NOT EXISTS pushes (id TEXT PRIMARY KEY) STRICT;";
const PUSH: &str = "INSERT INTO pushes VALUES (:id)";
const UNFINISHED: &str = "SELECT count(*) FROM webhook_inbox WHERE processed_at_ms IS NULL";

fn push(daemon: &Daemon, id: &str) -> (u16, String) {
    let body = format!(r#"{{"ref":"refs/heads/{id}"}}"#);
    let headers =
        [github_signature(&body), format!("X-GitHub-Delivery: {id}"), "X-GitHub-Event: push".to_owned()];
    daemon.client().post("/webhooks/github", &headers.each_ref().map(String::as_str), body)
}

fn outcome(word: &str) -> (u16, String) {
    (200, format!(r#"{{"outcome":"{word}"}}"#))
}

/// Stops the daemon, gives its GitHub endpoint a folder of SQL, and starts it again.
fn with_a_handler(daemon: Daemon) -> Daemon {
    let dir = Arc::clone(&daemon.dir);
    assert_eq!(daemon.stop(), Some(0));
    fs::create_dir(dir.path().join("pushes")).unwrap();
    fs::write(dir.path().join("pushes/schema.sql"), SQL).unwrap();
    fs::write(dir.path().join("pushes/push.sql"), PUSH).unwrap();
    let path = dir.path().join("inboxd.toml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{config}handlers = [\"sql:pushes\"]\n")).unwrap();
    Daemon::in_dir(dir)
}

#[test]
fn what_came_before_a_handler_was_configured_is_worked_on_when_a_person_says_so() {
    let daemon = Daemon::start();
    for id in ["a", "b", "c"] {
        assert_eq!(push(&daemon, id), outcome("ignored"));
    }
    let unwanted = daemon.inboxd(&["retry", "a"]);
    assert_eq!(unwanted.code, 5, "{unwanted:?}");
    assert!(unwanted.stderr.contains("endpoint github has no handlers and no forward"), "{unwanted:?}");
    let all = daemon.inboxd(&["retry", "--state", "ignored", "--yes"]);
    assert_eq!(all.code, 0, "{all:?}");
    assert!(all.stdout.starts_with("3 events were not retried: endpoint github has no handlers"), "{all:?}");
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox WHERE state = 'ignored'"), 3);

    let daemon = with_a_handler(daemon);
    let counted = daemon.inboxd(&["retry", "--state", "ignored"]);
    assert_eq!((counted.code, counted.stdout.as_str()), (5, ""), "{counted:?}");
    assert!(counted.stderr.contains("would retry 3 events (received from 2"), "{counted:?}");
    assert!(counted.stderr.contains(" to 2") && counted.stderr.contains("add --yes"), "{counted:?}");
    let one = daemon.inboxd(&["retry", "b"]);
    assert!(one.code == 0 && one.stdout.starts_with("b on github is tried again"), "{one:?}");
    daemon.wait_for_count("SELECT count(*) FROM pushes", 1);
    let rest = daemon.inboxd(&["retry", "--state", "ignored", "--yes"]);
    assert!(rest.code == 0 && rest.stdout.starts_with("2 events are tried again"), "{rest:?}");
    daemon.wait_for_count("SELECT count(*) FROM pushes", 3);
    daemon.wait_for_count("SELECT count(*) FROM webhook_inbox WHERE state = 'done'", 3);

    // what is done stays done, by name and by filter, and both say so
    let again = daemon.inboxd(&["retry", "b"]);
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (0, "b on github was processed before; nothing was changed\n")
    );
    let none = daemon.inboxd(&["retry", "--state", "ignored", "--yes"]);
    assert_eq!((none.code, none.stderr.as_str()), (0, "no event matches\n"));
    let none = daemon.inboxd(&["retry", "--endpoint", "github", "--yes"]);
    assert_eq!((none.code, none.stderr.as_str()), (0, "no matching event needs work\n"));
}

#[test]
fn what_nobody_took_is_left_alone_by_a_filter_that_does_not_name_it() {
    let daemon = Daemon::start();
    push(&daemon, "a");
    let daemon = with_a_handler(daemon);
    let all = daemon.inboxd(&["retry", "--endpoint", "github", "--yes"]);
    assert_eq!((all.code, all.stderr.as_str()), (0, "no matching event needs work\n"));
    assert_eq!(daemon.text("SELECT state FROM webhook_inbox"), "ignored");
}

#[test]
fn more_events_than_a_list_shows_are_retried_and_a_limit_takes_the_oldest() {
    let daemon = Daemon::start();
    for n in 0..130 {
        push(&daemon, &format!("d{n}"));
    }
    let daemon = with_a_handler(daemon);
    let two = daemon.inboxd(&["retry", "--state", "ignored", "--limit", "2", "--yes"]);
    assert!(two.stdout.starts_with("2 events are tried again"), "{two:?}");
    assert_eq!(two.stderr, "only the oldest 2; a larger --limit takes more\n");
    daemon.wait_for_count("SELECT count(*) FROM pushes WHERE id IN ('d0', 'd1')", 2);
    let all = daemon.inboxd(&["retry", "--state", "ignored", "--yes"]);
    assert!(all.stdout.starts_with("128 events are tried again"), "{all:?}");
    daemon.wait_for_count("SELECT count(*) FROM pushes", 130);
}

#[test]
fn an_event_whose_body_is_gone_is_not_given_to_anybody() {
    let daemon = Daemon::start();
    push(&daemon, "a");
    daemon.sql().execute("UPDATE webhook_inbox SET payload = NULL", []).unwrap();
    let daemon = with_a_handler(daemon);
    let ran = daemon.inboxd(&["retry", "a"]);
    assert!(ran.code == 5 && ran.stderr.contains("the body was purged"), "{ran:?}");
    assert_eq!(daemon.text("SELECT state FROM webhook_inbox"), "ignored");
}

#[test]
fn an_event_of_another_account_is_told_so_and_stays_ignored() {
    let scoped = "handlers = [\"billing\"]\naccount = \"acct_ours\"\non_scope_mismatch = \"ignore\"";
    let daemon = Daemon::with_config(&CONFIG.replace("handlers = [\"billing\"]", scoped));
    let body =
        r#"{"id":"evt_1","type":"invoice.paid","account":"acct_theirs","data":{"object":{"id":"in_1"}}}"#;
    assert_eq!(daemon.stripe(body), outcome("ignored"));
    let ran = daemon.inboxd(&["retry", "evt_1"]);
    assert!(ran.code == 5 && ran.stderr.contains("of another mode or account"), "{ran:?}");
    assert_eq!(daemon.text("SELECT state FROM webhook_inbox"), "ignored");
}

#[test]
fn one_id_that_does_not_exist_keeps_no_other_from_being_retried() {
    let daemon = Daemon::start();
    push(&daemon, "a");
    let daemon = with_a_handler(daemon);
    let ran = daemon.inboxd(&["retry", "nonsense", "a"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("there is no event nonsense"), "{ran:?}");
    assert!(ran.stdout.starts_with("a on github is tried again"), "{ran:?}");
    daemon.wait_for_count("SELECT count(*) FROM pushes", 1);
}

fn proxied(url: &str) -> String {
    let endpoint = "mode = \"proxy\"\nforward = [\"app\"]";
    CONFIG.replace("handlers = [\"billing\"]", endpoint)
        + &format!("[destination.app]\nurl = \"{url}\"\nsign = \"provider\"\n")
}

const EVENT: &str = r#"{"id":"evt_p","type":"parcel.sent","data":{"object":{"id":"parcel_1"}}}"#;

#[test]
fn in_proxy_mode_the_stored_bytes_are_handed_on_though_nobody_sends_them_again() {
    let app = App::start(|seen, back| respond(back, if seen.number == 0 { 500 } else { 200 }, "", ""));
    let daemon = Daemon::with_config(&proxied(&app.url));
    assert_eq!(daemon.stripe(EVENT).0, 502);
    let ran = daemon.inboxd(&["retry", "evt_p"]);
    assert!(ran.code == 0 && ran.stdout.starts_with("evt_p on billing is handed to app"), "{ran:?}");
    app.wait_for(2);
    let seen = app.seen();
    assert_eq!((seen[1].text(), seen[1].key()), (EVENT, "billing:evt_p:forward:app"));
    assert_eq!(seen[0].key(), seen[1].key());
    assert_eq!(seen[0].header("content-type"), seen[1].header("content-type"));
    let signature = seen[1].header("stripe-signature").unwrap();
    let (t, v1) = signature.split_once(',').unwrap();
    let signed = hmac_hex(STRIPE_SECRET.as_bytes(), &[&t.as_bytes()[2..], b".", EVENT.as_bytes()]);
    assert_eq!(v1, format!("v1={signed}"));
    daemon.wait_for_count("SELECT count(*) FROM outbox WHERE state = 'delivered'", 1);
    assert_eq!(daemon.text("SELECT state FROM webhook_inbox"), "done");

    // whoever sends it after all is told that it is known, and the application is not asked again
    assert_eq!(daemon.stripe(EVENT), outcome("duplicate"));
    let again = daemon.inboxd(&["retry", "evt_p"]);
    assert!(
        again.code == 0 && again.stdout.contains("was processed before; nothing was changed"),
        "{again:?}"
    );
    assert_eq!(app.seen().len(), 2);
}

#[test]
fn what_is_retried_while_the_daemon_is_stopped_is_handed_on_at_its_next_start() {
    let absent = Absent::new();
    let daemon = Daemon::with_config(&proxied(&absent.url));
    assert_eq!(daemon.stripe(EVENT).0, 503);
    let dir = daemon.kill();
    let ran = inboxd(dir.path(), &["retry", "--state", "pending", "--yes"]);
    assert!(ran.code == 0 && ran.stdout.starts_with("1 event is handed to app"), "{ran:?}");
    let app = absent.come_up(|_, back| respond(back, 200, "", ""));
    let daemon = Daemon::in_dir(dir);
    app.wait_for(1);
    assert_eq!(app.seen()[0].text(), EVENT);
    daemon.wait_for_count(UNFINISHED, 0);
}

#[test]
fn a_claim_that_its_process_did_not_live_to_end_is_no_obstacle() {
    let absent = Absent::new();
    let daemon = Daemon::with_config(&proxied(&absent.url));
    assert_eq!(daemon.stripe(EVENT).0, 503);
    let claim = |ends: &str| {
        let sql = format!(
            "UPDATE webhook_inbox SET state = 'processing', lease_id = 'x', available_at_ms = {ends};
             DELETE FROM webhook_attempts;
             INSERT INTO webhook_attempts (inbox_id, number, started_at_ms) SELECT id, attempts, 1 FROM webhook_inbox"
        );
        daemon.sql().execute_batch(&sql).unwrap();
    };
    claim("CAST(unixepoch('subsec') * 1000 AS INTEGER) + 8000");
    let held = daemon.inboxd(&["retry", "evt_p"]);
    assert!(held.code == 0 && held.stdout.contains("is being worked on; nothing was changed"), "{held:?}");
    claim("2");
    let ran = daemon.inboxd(&["retry", "evt_p"]);
    assert!(ran.stdout.contains("is handed to app"), "{ran:?}");
    assert_eq!(daemon.text("SELECT group_concat(result, ' ') FROM webhook_attempts"), "lost done");
}

#[test]
fn an_application_that_is_paused_is_named_and_gets_the_event_when_it_is_resumed() {
    let app = App::start(|seen, back| respond(back, if seen.number == 0 { 500 } else { 200 }, "", ""));
    let daemon = Daemon::with_config(&proxied(&app.url));
    assert_eq!(daemon.stripe(EVENT).0, 502);
    assert_eq!(daemon.inboxd(&["outbox", "pause", "app"]).code, 0);
    let ran = daemon.inboxd(&["retry", "evt_p"]);
    assert!(ran.stdout.contains("queued for app, which is paused"), "{ran:?}");
    assert_eq!(daemon.inboxd(&["outbox", "resume", "app"]).code, 0);
    app.wait_for(2);
}

#[test]
fn what_was_given_up_behind_an_event_that_is_done_is_named() {
    let absent = Absent::new();
    let daemon = Daemon::with_config(&proxied(&absent.url));
    assert_eq!(daemon.stripe(EVENT).0, 503);
    assert_eq!(daemon.inboxd(&["outbox", "pause", "app"]).code, 0);
    assert_eq!(daemon.inboxd(&["retry", "evt_p"]).code, 0);
    daemon.sql().execute("UPDATE outbox SET state = 'dead'", []).unwrap();
    let again = daemon.inboxd(&["retry", "evt_p"]);
    assert!(again.stdout.contains("`inboxd outbox retry 1` sends that again"), "{again:?}");
    let one = daemon.inboxd(&["outbox", "list", "--event", "evt_p", "--json"]);
    assert_eq!(one.stdout.lines().count(), 1, "{one:?}");
    assert_eq!(daemon.inboxd(&["outbox", "list", "--event", "evt_q", "--json"]).stdout, "");
}

#[test]
fn a_database_that_another_process_writes_to_is_busy_for_every_act() {
    let daemon = Daemon::start();
    push(&daemon, "a");
    let dir = daemon.kill();
    fs::create_dir(dir.path().join("pushes")).unwrap();
    let path = dir.path().join("inboxd.toml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{config}handlers = [\"sql:pushes\"]\n")).unwrap();
    let other = open(&dir.path().join("data/inboxd.db"));
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        let acts: [&[&str]; 3] = [&["retry", "a"], &["retry", "--state", "ignored", "--yes"], &["purge"]];
        for act in acts {
            let dir = dir.path();
            scope.spawn(move || {
                let ran = inboxd(dir, act);
                assert_eq!(ran.code, 6, "{act:?} {ran:?}");
                assert_eq!(ran.stderr.matches("locked").count(), 1, "{act:?} {ran:?}");
            });
        }
    });
}

#[test]
fn what_a_person_has_decided_on_is_not_undone_by_a_filter() {
    let daemon = Daemon::start();
    for n in [1, 2] {
        daemon.stripe(&support::invoice_event(&format!("evt_v{n}"), "voided", &format!("in_{n}"), 100));
        daemon.stripe(&support::invoice_event(&format!("evt_p{n}"), "paid", &format!("in_{n}"), 100));
    }
    assert_eq!(daemon.inboxd(&["resolve", "1", "--note", "refunded"]).code, 0);
    let counted = daemon.inboxd(&["retry", "--state", "quarantined"]);
    assert!(counted.stderr.contains("would retry 1 event ("), "{counted:?}");
    assert!(counted.stderr.contains("a person has decided on 1 more"), "{counted:?}");
    let attempts = "SELECT attempts FROM webhook_inbox WHERE event_id = 'evt_p1'";
    let before = daemon.count(attempts);
    let ran = daemon.inboxd(&["retry", "--state", "quarantined", "--yes"]);
    assert!(ran.stdout.starts_with("1 event is tried again"), "{ran:?}");
    daemon.wait_for_count("SELECT attempts FROM webhook_inbox WHERE event_id = 'evt_p2'", before + 1);
    assert_eq!(daemon.count(attempts), before);
    assert_eq!(daemon.inboxd(&["resolve", "2", "--note", "refunded"]).code, 0);
    let none = daemon.inboxd(&["retry", "--state", "quarantined", "--yes"]);
    assert!(none.code == 0 && none.stderr.contains("people have decided on all matching events"), "{none:?}");
    assert!(daemon.inboxd(&["retry", "evt_p1"]).stdout.starts_with("evt_p1 on billing is tried again"));
}
