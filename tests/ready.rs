//! Ready is what the last outcome says: a lock held by another process, a disk without room, a lock of its own that
//! was never given back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::sync::Arc;
use std::thread;

use rusqlite::Connection;
use support::{CONFIG, Client, Daemon, invoice_event, signed_stripe};

fn event(n: u32) -> String {
    invoice_event(&format!("evt_{n}"), "paid", &format!("in_{n}"), 4200)
}

/// A shell with an open transaction.
fn hold_lock(daemon: &Daemon) -> Connection {
    let conn = daemon.sql();
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    conn
}

fn readyz(daemon: &Daemon) -> u16 {
    daemon.client().get("/readyz").0
}

#[test]
fn while_another_process_holds_the_write_lock_it_is_not_ready_and_says_who_does() {
    let daemon = Daemon::start();
    assert_eq!(daemon.stripe(&event(0)).0, 200);
    assert_eq!(readyz(&daemon), 200);
    let lock = hold_lock(&daemon);
    // the answer comes while the lock is held
    assert_eq!(daemon.stripe(&event(1)), (503, r#"{"error":"unavailable"}"#.to_owned()));
    for _ in 0..3 {
        assert_eq!(readyz(&daemon), 503);
    }
    assert_eq!(daemon.client().get("/readyz").1, r#"{"error":"unavailable"}"#, "strangers are not told why");
    let (status, why) = Client::connect(&daemon.admin).get("/readyz");
    assert!(status == 503 && why.contains("holds the database's write lock"), "{why}");
    assert_eq!(daemon.client().get("/livez").0, 200);
    daemon.wait_for_log(&format!("process {} (", std::process::id()));
    daemon.wait_for_log("has held the database's write lock");
    lock.execute_batch("ROLLBACK").unwrap();
    // nobody has to send anything
    daemon.wait_for("it is ready again", || readyz(&daemon) == 200);
    assert_eq!(daemon.stripe(&event(1)).1, r#"{"outcome":"processed"}"#);
    daemon.wait_for_log("can be stored again");
}

#[test]
fn a_lock_that_nobody_waits_for_is_noticed_as_well() {
    let daemon = Daemon::start();
    let lock = hold_lock(&daemon);
    daemon.wait_for("it is not ready", || readyz(&daemon) == 503);
    lock.execute_batch("COMMIT").unwrap();
    daemon.wait_for("it is ready again", || readyz(&daemon) == 200);
}

#[test]
fn a_short_lock_delays_deliveries_and_refuses_none() {
    let daemon = Arc::new(Daemon::start());
    let lock = hold_lock(&daemon);
    let senders: Vec<_> = (0..100)
        .map(|n| {
            let daemon = Arc::clone(&daemon);
            thread::spawn(move || signed_stripe(&daemon.webhooks, &event(n)).unwrap().0)
        })
        .collect();
    thread::sleep(std::time::Duration::from_millis(300));
    lock.execute_batch("ROLLBACK").unwrap();
    for sender in senders {
        assert_eq!(sender.join().unwrap(), 200);
    }
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries WHERE kind = 'payment'"), 100);
}

#[test]
fn a_stop_does_not_wait_for_another_process_lock() {
    let mut daemon = Daemon::start();
    assert_eq!(daemon.stripe(&event(0)).0, 200);
    let lock = hold_lock(&daemon);
    let webhooks = daemon.webhooks.clone();
    let waiting = thread::spawn(move || signed_stripe(&webhooks, &event(1)));
    support::terminate(daemon.pid());
    assert_eq!(daemon.exit_code(), Some(0), "{}", daemon.log());
    assert!(matches!(waiting.join().unwrap(), None | Some((503, _))));
    lock.execute_batch("ROLLBACK").unwrap();
    let daemon = Daemon::in_dir(Arc::clone(&daemon.dir));
    assert_eq!(daemon.stripe(&event(1)).0, 200);
}

#[test]
fn a_delivery_to_a_provider_in_a_hurry_is_answered_under_a_lock_as_well() {
    let config =
        format!("{CONFIG}[endpoint.slack]\nprovider = \"slack\"\nsecrets = [\"file:github.secret\"]\n");
    let daemon = Daemon::with_config(&config);
    let lock = hold_lock(&daemon);
    let sent = daemon.inboxd(&[
        "send",
        "slack",
        "event_callback",
        "--to",
        &format!("http://{}/webhooks/slack", daemon.webhooks),
        "--secret-file",
        "github.secret",
    ]);
    assert!(sent.stdout.contains("503") || sent.stderr.contains("503"), "{sent:?}");
    lock.execute_batch("ROLLBACK").unwrap();
}

/// `inboxd query … --json | less`
#[test]
fn a_reader_of_a_query_that_stalls_keeps_nobody_from_cutting_the_wal() {
    use std::io::Read as _;
    use std::process::{Command, Stdio};
    let daemon = Daemon::start();
    let rows = "SELECT value, printf('%.1000c', 'x') AS filler FROM generate_rows";
    let sql = rows.replace(
        "FROM generate_rows",
        "FROM (WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 20000) SELECT value FROM n), webhook_inbox",
    );
    assert_eq!(daemon.stripe(&event(0)).0, 200);
    for format in ["--json", "--csv"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_inboxd"))
            .args(["query", &sql, format])
            .current_dir(daemon.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut first = [0; 1];
        stdout.read_exact(&mut first).unwrap();
        // more than a pipe holds is still to come, and nobody takes it
        assert_eq!(daemon.stripe(&event(1)).0, 200);
        let other = daemon.sql();
        let is_cut = || {
            let busy = other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
            busy.is_ok_and(|busy| busy == 0)
        };
        daemon.wait_for("the WAL can be cut", is_cut);
        assert!(child.try_wait().unwrap().is_none(), "it has more to say");
        let mut rest = Vec::new();
        stdout.read_to_end(&mut rest).unwrap();
        assert!(rest.len() > 20_000_000, "{}", rest.len());
        assert!(child.wait().unwrap().success());
        let ends = if format == "--json" { &b"20000}\n"[..] } else { b"x\r\n" };
        assert!(rest.ends_with(ends), "{:?}", String::from_utf8_lossy(&rest[rest.len() - 20..]));
    }
}
