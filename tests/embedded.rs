//! inboxd inside an application's own SQLite file: what it makes there, what it leaves alone, and both of
//! them writing at once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use support::{Daemon, Ran, event, folder, inboxd};
use tempfile::TempDir;

const CONFIG: &str = r#"
database = "app.db"
[database_options]
allow_wal = true
[listen]
webhooks = "127.0.0.1:0"
admin = "off"
[limits]
disk_free_min = 0
[endpoint.shop]
provider = "stripe"
path = "/webhooks/stripe"
secrets = ["file:stripe.secret"]
handlers = ["sql:shop"]
[destination.app]
url = "http://127.0.0.1:9/hooks"
sign = "none"
"#;

const SHOP: &[(&str, &str)] = &[(
    "shop/charge.succeeded.sql",
    "UPDATE customers SET cents = cents + (:object ->> 'amount') WHERE id = :object ->> 'customer';
     INSERT INTO orders (what) VALUES (:id);
     SELECT inboxd_emit('app', 'Charged', :id, '{}');",
)];

/// An application's file: with tables of its own, one of them of a name that inboxd uses elsewhere.
fn application(dir: &Path) -> PathBuf {
    let path = dir.join("app.db");
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(
        "PRAGMA user_version = 77;
         PRAGMA application_id = 1234;
         CREATE TABLE customers (id TEXT PRIMARY KEY, cents INTEGER NOT NULL DEFAULT 0);
         CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT DEFAULT \"double quoted\");
         CREATE TRIGGER speaks AFTER INSERT ON orders BEGIN UPDATE customers SET cents = cents WHERE id = \"nobody\"; END;
         INSERT INTO customers (id) VALUES ('cus_1');",
    )
    .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    path
}

fn prepared(config: &str) -> TempDir {
    let dir = folder(config, SHOP);
    application(dir.path());
    dir
}

fn app(daemon: &Daemon) -> Connection {
    support::open(&daemon.dir.path().join("app.db"))
}

fn number(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn text(conn: &Connection, sql: &str) -> String {
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn charge(id: &str, cents: i64) -> String {
    event(id, "charge.succeeded", &format!(r#"{{"id":"ch_1","customer":"cus_1","amount":{cents}}}"#))
}

fn refused(ran: &Ran, said: &str) {
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains(said), "{said} in {}", ran.stderr);
}

#[test]
fn only_what_an_event_needs_is_made_in_the_applications_file_and_nothing_else_is_touched() {
    let daemon = Daemon::in_dir(Arc::new(prepared(CONFIG)));
    assert_eq!(daemon.stripe(&charge("evt_1", 500)).1, r#"{"outcome":"processed"}"#);
    assert_eq!(daemon.stripe(&charge("evt_1", 500)).1, r#"{"outcome":"duplicate"}"#);
    let conn = app(&daemon);
    let tables = "SELECT group_concat(name, ' ' ORDER BY name) FROM sqlite_schema WHERE type = 'table'";
    assert_eq!(
        text(&conn, tables),
        "customers inboxd_audit inboxd_meta inboxd_minutes orders outbox outbox_attempts outbox_destinations reviews webhook_attempts webhook_conflicts webhook_counts webhook_failures webhook_inbox"
    );
    assert_eq!(number(&conn, "PRAGMA user_version"), 77);
    assert_eq!(number(&conn, "PRAGMA application_id"), 1234);
    assert_eq!(number(&conn, "PRAGMA auto_vacuum"), 0);
    assert_eq!(number(&conn, "SELECT cents FROM customers"), 500);
    assert_eq!(text(&conn, "SELECT what FROM orders"), "evt_1");
    assert_eq!(number(&conn, "SELECT count(*) FROM outbox"), 1);
    let path = daemon.dir.path().join("app.db");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    // the reading verbs find the same file
    let ran = daemon.inboxd(&["events", "list", "--json"]);
    assert!(ran.stdout.contains("evt_1"), "{ran:?}");
    // a second daemon on the same file is kept out
    assert_eq!(daemon.inboxd(&["serve"]).code, 6);
    let daemon = Daemon::in_dir(daemon.kill());
    assert_eq!(daemon.stripe(&charge("evt_1", 500)).1, r#"{"outcome":"duplicate"}"#);
    let journal = text(&app(&daemon), "PRAGMA journal_mode");
    assert_eq!(journal, "wal");
    assert!(!daemon.log().contains("free space"), "a path of one part has a folder too: {}", daemon.log());
}

#[test]
fn what_is_forwarded_from_there_is_delivered_and_the_commands_about_it_work() {
    let hooks = support::app::App::answering(200);
    let config = CONFIG
        .replace("http://127.0.0.1:9/hooks", &hooks.url)
        .replace("handlers = [", "forward = [\"app\"]\nhandlers = [");
    let daemon = Daemon::in_dir(Arc::new(prepared(&config)));
    assert_eq!(daemon.stripe(&charge("evt_1", 500)).1, r#"{"outcome":"processed"}"#);
    let delivered = "SELECT count(*) FROM outbox WHERE state = 'delivered'";
    daemon.wait_for("both are delivered", || number(&app(&daemon), delivered) == 2);
    let mut keys: Vec<_> = hooks.seen().iter().map(|request| request.key().to_owned()).collect();
    keys.sort();
    assert_eq!(keys, ["evt_1", "shop:evt_1:forward:app"]);
    for args in [vec!["status"], vec!["outbox", "pause", "app"], vec!["outbox", "show", "1"]] {
        let ran = daemon.inboxd(&args);
        assert_eq!(ran.code, 0, "{args:?} {}", ran.stderr);
    }
}

#[test]
fn write_ahead_logging_is_switched_on_with_consent_only() {
    let dir = prepared(&CONFIG.replace("allow_wal = true", "allow_wal = false"));
    let ran = inboxd(dir.path(), &["check"]);
    refused(&ran, "database: the file's journal mode is delete; inboxd needs write-ahead logging");
    refused(&ran, "allow_wal = true");
    assert_eq!(inboxd(dir.path(), &["serve"]).code, 5);
    let conn = support::open(&dir.path().join("app.db"));
    assert_eq!(text(&conn, "PRAGMA journal_mode"), "delete");
    assert_eq!(number(&conn, "SELECT count(*) FROM sqlite_schema WHERE name = 'webhook_inbox'"), 0);
    // the application's own consent is as good
    conn.execute_batch("PRAGMA journal_mode = WAL").unwrap();
    assert_eq!(inboxd(dir.path(), &["check"]).code, 0);
}

#[test]
fn a_command_leaves_the_journal_mode_that_the_application_has_chosen() {
    let daemon = Daemon::in_dir(Arc::new(prepared(CONFIG)));
    daemon.stripe(&charge("evt_1", 500));
    let dir = Arc::clone(&daemon.dir);
    assert_eq!(daemon.stop(), Some(0));
    let conn = support::open(&dir.path().join("app.db"));
    assert_eq!(text(&conn, "PRAGMA journal_mode = DELETE"), "delete");
    drop(conn);
    for args in [
        &["outbox", "pause", "app"][..],
        &["retry", "evt_1"],
        &["purge"],
        &["status"],
        &["events", "show", "evt_1"],
    ] {
        let ran = inboxd(dir.path(), args);
        // no daemon runs: that is not well
        let code = if args == ["status"] { 8 } else { 0 };
        assert_eq!(ran.code, code, "{args:?} {ran:?}");
        let conn = Connection::open(dir.path().join("app.db")).unwrap();
        assert_eq!(text(&conn, "PRAGMA journal_mode"), "delete", "{args:?}");
    }
}

#[test]
fn damage_that_is_found_while_the_tables_are_made_is_exit_7() {
    let dir = prepared(CONFIG);
    let path = dir.path().join("app.db");
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("CREATE TABLE big (b); INSERT INTO big VALUES (zeroblob(100000)); DROP TABLE big")
        .unwrap();
    drop(conn);
    // the list of free pages begins at a page that the file does not have
    let mut bytes = fs::read(&path).unwrap();
    bytes[32..36].copy_from_slice(&0x00ff_ffff_u32.to_be_bytes());
    fs::write(&path, bytes).unwrap();
    let ran = inboxd(dir.path(), &["serve"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.stderr.contains("damaged") && ran.stderr.contains("restore a copy"), "{ran:?}");
}

#[test]
fn a_table_of_one_of_inboxds_names_is_refused_and_nothing_is_changed() {
    for (sql, said) in [
        ("CREATE TABLE outbox (a)", "the application's table outbox has a name that inboxd needs"),
        ("CREATE VIEW Reviews AS SELECT 1", "the application's view reviews has a name that inboxd needs"),
        (
            "CREATE INDEX webhook_inbox_key ON customers (cents)",
            "the application's index webhook_inbox_key has a name that inboxd needs",
        ),
        (
            "CREATE TABLE inboxd_meta (key, value)",
            "the application's table inboxd_meta has a name that inboxd needs",
        ),
    ] {
        let dir = prepared(CONFIG);
        let conn = support::open(&dir.path().join("app.db"));
        conn.execute_batch(sql).unwrap();
        refused(&inboxd(dir.path(), &["check"]), said);
        assert_eq!(inboxd(dir.path(), &["serve"]).code, 5, "{sql}");
        assert_eq!(text(&conn, "PRAGMA journal_mode"), "delete");
        let made = "SELECT count(*) FROM sqlite_schema WHERE name = 'webhook_inbox'";
        assert_eq!(number(&conn, made), 0);
    }
}

#[test]
fn check_refuses_what_cannot_live_in_an_applications_file() {
    for handler in ["billing", "money", "orders"] {
        let dir = prepared(&CONFIG.replace("sql:shop", handler));
        refused(&inboxd(dir.path(), &["check"]), "keeps its tables in inboxd's own file");
    }
    let dir = prepared(&format!("data_dir = \"data\"\n{CONFIG}"));
    refused(&inboxd(dir.path(), &["check"]), "database: \"app.db\": stands instead of data_dir");
    let dir = folder(CONFIG, SHOP);
    refused(&inboxd(dir.path(), &["check"]), "database: \"app.db\": is not a file");
    assert_eq!(inboxd(dir.path(), &["serve"]).code, 3);
    assert!(!dir.path().join("app.db").exists(), "an application's database is not made");
}

#[test]
fn the_users_sql_may_not_write_inboxds_tables_there_and_may_write_all_others() {
    let dir = prepared(CONFIG);
    fs::write(dir.path().join("shop/a.sql"), "UPDATE orders SET what = 'x'; DELETE FROM orders").unwrap();
    assert_eq!(inboxd(dir.path(), &["check"]).code, 0);
    fs::write(dir.path().join("shop/a.sql"), "UPDATE outbox SET state = 'dead'").unwrap();
    refused(&inboxd(dir.path(), &["check"]), "shop/a.sql:1:1: not allowed here: writes outbox");
}

#[test]
fn what_check_prints_is_the_same_configuration() {
    let dir = prepared(CONFIG);
    let ran = inboxd(dir.path(), &["check", "--print"]);
    assert!(ran.stdout.contains("database = \"app.db\""), "{}", ran.stdout);
    assert!(ran.stdout.contains("[database_options]\nallow_wal = true"), "{}", ran.stdout);
    fs::write(dir.path().join("inboxd.toml"), &ran.stdout).unwrap();
    assert_eq!(inboxd(dir.path(), &["check", "--print"]).stdout, ran.stdout);
}

/// An application in another language: makes the file, holds it open and writes 200 transactions a second
/// until its input ends. Prints `ready`, and at the end how many it wrote and how many failed.
const APPLICATION: &str = r#"
import sqlite3, sys, threading, time
conn = sqlite3.connect(sys.argv[1], timeout=10, isolation_level=None)
conn.executescript("""
  PRAGMA user_version = 77;
  CREATE TABLE customers (id TEXT PRIMARY KEY, cents INTEGER NOT NULL DEFAULT 0);
  CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT);
  CREATE TABLE clicks (id INTEGER PRIMARY KEY, n INTEGER);
  INSERT INTO customers (id) VALUES ('cus_1');
""")
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
print('ready', flush=True)
written = failed = 0
errors = set()
begun = time.monotonic()
while not stop.is_set():
    try:
        conn.execute('BEGIN IMMEDIATE')
        conn.execute('INSERT INTO clicks (n) SELECT coalesce(max(n), 0) + 1 FROM clicks')
        conn.execute('COMMIT')
        written += 1
    except sqlite3.Error as error:
        failed += 1
        errors.add(str(error))
        if conn.in_transaction:
            conn.execute('ROLLBACK')
    time.sleep(max(0, begun + (written + failed) / 200 - time.monotonic()))
print(written, failed, sorted(errors), flush=True)
"#;

struct Python {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Python {
    /// `None` where there is no Python.
    fn start(path: &Path) -> Option<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", APPLICATION]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        Some(Self { child, lines })
    }

    /// How many transactions it wrote, and what went wrong.
    fn stop(mut self) -> (i64, String) {
        self.child.stdin.take().unwrap().write_all(b"stop\n").unwrap();
        let said = self.lines.next().unwrap().unwrap();
        support::ended(&mut self.child);
        let (written, rest) = said.split_once(' ').unwrap();
        (written.parse().unwrap(), rest.to_owned())
    }
}

#[test]
fn an_application_that_writes_all_the_time_and_2000_events_lose_nothing_and_lock_nobody_out() {
    let dir = folder(CONFIG, SHOP);
    let Some(application) = Python::start(&dir.path().join("app.db")) else {
        support::skipped("there is no python3: no application in another language");
        return;
    };
    let daemon = Daemon::in_dir(Arc::new(dir));
    deliver_2000(&daemon);
    let (written, failures) = application.stop();
    assert_eq!(failures, "0 []", "the application was locked out");
    assert_nothing_is_lost(&daemon, written);
    assert_eq!(number(&app(&daemon), "PRAGMA user_version"), 77);
    assert_eq!(daemon.stop(), Some(0));
}

/// The same where the application's SQLite is as new as inboxd's, and its file is in WAL mode already.
#[test]
fn an_application_in_rust_and_2000_events_lose_nothing_and_lock_nobody_out() {
    let dir = folder(CONFIG, SHOP);
    let path = application(dir.path());
    let conn = support::open(&path);
    conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE clicks (id INTEGER PRIMARY KEY, n INTEGER)")
        .unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&is_over);
    let writer = thread::spawn(move || {
        let (begun, mut written) = (Instant::now(), 0);
        while !stop.load(Ordering::Acquire) {
            let one =
                "BEGIN IMMEDIATE; INSERT INTO clicks (n) SELECT coalesce(max(n), 0) + 1 FROM clicks; COMMIT";
            conn.execute_batch(one).expect("not locked out");
            written += 1;
            thread::sleep(
                (begun + Duration::from_millis(5) * written).saturating_duration_since(Instant::now()),
            );
        }
        i64::from(written)
    });
    let daemon = Daemon::in_dir(Arc::new(dir));
    deliver_2000(&daemon);
    is_over.store(true, Ordering::Release);
    assert_nothing_is_lost(&daemon, writer.join().unwrap());
    assert_eq!(daemon.stop(), Some(0));
}

fn deliver_2000(daemon: &Daemon) {
    thread::scope(|scope| {
        for sender in 0..8 {
            scope.spawn(move || {
                let (mut client, conn) = (daemon.client(), app(daemon));
                for n in 0..250 {
                    // so that the application writes some hundreds in the meantime
                    support::wait_for("the application has written as well", || {
                        number(&conn, "SELECT count(*) FROM clicks") >= n
                    });
                    let body = charge(&format!("evt_{sender}_{n}"), 1);
                    let signature =
                        support::stripe_signature(&body, support::now_s(), support::STRIPE_SECRET);
                    let answer = client.post("/webhooks/stripe", &[&signature], &body);
                    assert_eq!(answer, (200, r#"{"outcome":"processed"}"#.to_owned()));
                }
            });
        }
    });
}

fn assert_nothing_is_lost(daemon: &Daemon, written: i64) {
    assert!(!daemon.log().contains("locked"), "{}", daemon.log());
    let conn = app(daemon);
    assert_eq!(number(&conn, "SELECT cents FROM customers"), 2000);
    assert_eq!(number(&conn, "SELECT count(*) FROM webhook_inbox WHERE state = 'done'"), 2000);
    assert_eq!(number(&conn, "SELECT count(*) FROM outbox"), 2000);
    assert!(written >= 200, "{written}");
    assert_eq!(number(&conn, "SELECT max(n) FROM clicks"), written);
    assert_eq!(number(&conn, "SELECT count(*) FROM clicks"), written);
    assert_eq!(text(&conn, "PRAGMA integrity_check"), "ok");
}
