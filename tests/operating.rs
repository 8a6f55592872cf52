//! What an operator sees when the machine is in the way: permissions, other processes, files that are not
//! what they should be, addresses that cannot be had. Exit codes and words of the built binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use support::{Daemon, Ran, inboxd, invoice_event, terminate};
use tempfile::TempDir;

const READERS: [&[&str]; 4] =
    [&["status"], &["events", "list"], &["events", "show", "evt_1"], &["events", "body", "evt_1"]];

/// A folder with the usual configuration and nothing else.
fn folder() -> Arc<TempDir> {
    folder_with(support::CONFIG)
}

fn folder_with(config: &str) -> Arc<TempDir> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("inboxd.toml"), config).unwrap();
    support::write_secret(dir.path(), "stripe.secret", support::STRIPE_SECRET);
    support::write_secret(dir.path(), "github.secret", support::GITHUB_SECRET);
    Arc::new(dir)
}

/// A folder in which inboxd ran, stored one event and was stopped.
fn used_folder() -> Arc<TempDir> {
    let daemon = Daemon::start();
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200));
    let dir = Arc::clone(&daemon.dir);
    assert_eq!(daemon.stop(), Some(0));
    dir
}

fn database(dir: &Path) -> std::path::PathBuf {
    dir.join("data/inboxd.db")
}

/// Runs `serve` where it is expected to end by itself.
fn serve(dir: &Path) -> Ran {
    let mut child = start(dir);
    let code = ended(&mut child).unwrap_or(-1);
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    Ran { code, stdout: String::new(), stderr }
}

/// The exit code of a process that should end by itself; one that does not is killed.
fn ended(child: &mut Child) -> Option<i32> {
    support::ended(child).code()
}

/// Runs inboxd as somebody who may not enter or write what is closed to others.
fn as_a_stranger(dir: &Path, closed: &Path, args: &[&str]) -> Ran {
    fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_inboxd"));
    command.args(args).current_dir(dir).stdin(Stdio::null());
    let is_root = rustix::process::geteuid().is_root();
    let mode = fs::metadata(closed).unwrap().permissions();
    if is_root {
        command.uid(65_534).gid(65_534);
    } else {
        // nobody but root can become another user; the owner can lock itself out
        fs::set_permissions(closed, Permissions::from_mode(0o000)).unwrap();
    }
    let output = command.output();
    fs::set_permissions(closed, mode).unwrap();
    let output = output.unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A daemon that is not expected to get ready.
fn start(dir: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_inboxd"))
        .arg("serve")
        .current_dir(dir)
        .env("RUST_LOG", "info")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn assert_one_line(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    let last = ran.stderr.lines().last().unwrap_or_default();
    assert_eq!(ran.stderr.lines().filter(|line| line.starts_with("inboxd: ")).count(), 1, "{ran:?}");
    for word in words {
        assert!(last.contains(word), "{word}: {ran:?}");
    }
}

#[test]
fn who_may_not_enter_the_data_dir_is_not_told_that_there_is_no_database() {
    let dir = used_folder();
    let data = dir.path().join("data");
    for args in READERS.into_iter().chain([&["query", "SELECT 1"][..]]) {
        let ran = as_a_stranger(dir.path(), &data, args);
        assert_one_line(&ran, 1, &["permission denied", "as the user that owns it"]);
    }
}

#[test]
fn check_says_what_this_user_may_not_do() {
    let dir = tempfile::tempdir().unwrap();
    let config = "data_dir = \"data\"\n[endpoint.a]\nprovider = \"stripe\"\nsecrets = [\"file:a.secret\"]\n";
    fs::write(dir.path().join("inboxd.toml"), config.replace("file:a.secret", "env:PATH")).unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    fs::set_permissions(dir.path().join("data"), Permissions::from_mode(0o700)).unwrap();
    let closed = as_a_stranger(dir.path(), &dir.path().join("data"), &["check"]);
    assert_eq!(closed.code, 0, "{closed:?}");
    assert!(
        closed.stdout.contains("cannot be looked at") && closed.stdout.contains("cannot be written"),
        "{closed:?}"
    );
    assert!(!closed.stdout.contains("does not exist yet"), "{closed:?}");
    fs::set_permissions(dir.path().join("data"), Permissions::from_mode(0o750)).unwrap();
    let open = inboxd(dir.path(), &["check"]);
    assert!(open.stdout.contains("0750") && open.stdout.contains("chmod 700"), "{open:?}");
}

#[test]
fn a_data_dir_that_cannot_be_written_is_exit_75_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("closed")).unwrap();
    let config = "data_dir = \"closed/data\"\n[listen]\nwebhooks = \"127.0.0.1:0\"\nadmin = \"off\"\n[endpoint.a]\nprovider = \"stripe\"\nsecrets = [\"env:PATH\"]\n";
    fs::write(dir.path().join("inboxd.toml"), config).unwrap();
    let ran = as_a_stranger(dir.path(), &dir.path().join("closed"), &["serve"]);
    assert_one_line(&ran, 75, &["closed/data", "ermission denied", "chown"]);
}

#[test]
fn a_file_that_is_no_database_is_exit_7_for_all() {
    let dir = used_folder();
    fs::write(database(dir.path()), "no database ".repeat(1000)).unwrap();
    for args in READERS {
        assert_one_line(&inboxd(dir.path(), args), 7, &["damaged", "restore a copy"]);
    }
    assert_one_line(&serve(dir.path()), 7, &["damaged", "restore a copy"]);
}

#[test]
fn damage_that_is_found_while_reading_is_exit_7_as_well() {
    let dir = used_folder();
    let path = database(dir.path());
    let conn = support::open(&path);
    let root: u32 = conn
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'webhook_inbox'", [], |row| row.get(0))
        .unwrap();
    let page: u32 = conn.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
    drop(conn);
    let mut bytes = fs::read(&path).unwrap();
    bytes[((root - 1) * page) as usize..(root * page) as usize].fill(0xff);
    fs::write(&path, bytes).unwrap();
    for args in
        [&["events", "list"][..], &["query", "SELECT count(state) FROM webhook_inbox WHERE state > ''"]]
    {
        assert_one_line(&inboxd(dir.path(), args), 7, &["damaged", "restore a copy"]);
    }
}

#[test]
fn a_file_that_is_not_ours_is_exit_5_for_all_and_in_one_line() {
    for (change, words) in [
        ("PRAGMA application_id = 7", "not made by inboxd"),
        ("PRAGMA user_version = 99", "schema version 99"),
        ("ALTER TABLE reviews RENAME TO reviews_of_old", "reviews is missing or was altered"),
    ] {
        let dir = used_folder();
        support::open(&database(dir.path())).execute_batch(change).unwrap();
        for args in READERS {
            assert_one_line(&inboxd(dir.path(), args), 5, &[words]);
        }
        assert_one_line(&serve(dir.path()), 5, &[words]);
    }
}

#[test]
fn a_file_that_is_not_inboxds_is_changed_by_no_command() {
    let dir = folder();
    fs::create_dir(dir.path().join("data")).unwrap();
    let path = database(dir.path());
    let foreign = rusqlite::Connection::open(dir.path().join("foreign.db")).unwrap();
    foreign.execute_batch("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)").unwrap();
    for mode in ["DELETE", "WAL"] {
        let sql = format!("PRAGMA journal_mode = {mode}; INSERT INTO theirs VALUES (2)");
        foreign.execute_batch(&sql).unwrap();
        // with its log beside it, as an application leaves it that was killed
        for suffix in ["", "-wal"] {
            let from = dir.path().join(format!("foreign.db{suffix}"));
            if from.exists() {
                fs::copy(from, dir.path().join(format!("data/inboxd.db{suffix}"))).unwrap();
            }
        }
        let bytes = || (fs::read(&path).unwrap(), fs::read(path.with_extension("db-wal")).ok());
        let before = bytes();
        assert_eq!(before.1.is_some(), mode == "WAL");
        for args in READERS.into_iter().chain([
            &["retry", "evt_1"][..],
            &["resolve", "1", "--note", "x"],
            &["outbox", "retry", "1"],
            &["purge"],
            &["query", "SELECT 1"],
        ]) {
            assert_one_line(&inboxd(dir.path(), args), 5, &["not made by inboxd"]);
            assert!(bytes() == before, "{mode}: {args:?} changed the file");
        }
        assert_one_line(&serve(dir.path()), 5, &["not made by inboxd"]);
        assert!(bytes() == before, "{mode}: serve changed the file");
        assert_eq!(inboxd(dir.path(), &["check"]).code, 0);
        assert!(bytes() == before, "{mode}: check changed the file");
    }
}

#[test]
fn a_wrong_query_is_told_in_one_line_and_tables_that_were_altered_can_still_be_looked_at() {
    let dir = used_folder();
    support::open(&database(dir.path())).execute_batch("ALTER TABLE reviews RENAME TO old").unwrap();
    assert_eq!(inboxd(dir.path(), &["query", "SELECT count(*) FROM old"]).code, 0);
    assert_one_line(
        &inboxd(dir.path(), &["query", "SELECT *\nFROM reviews"]),
        2,
        &["no such table: reviews"],
    );
}

#[test]
fn what_stands_in_the_databases_place_but_is_no_file_is_refused() {
    let dir = folder();
    fs::create_dir_all(database(dir.path())).unwrap();
    for ran in [serve(dir.path()), inboxd(dir.path(), &["status"])] {
        assert_one_line(&ran, 5, &["is a directory"]);
    }
    fs::remove_dir(database(dir.path())).unwrap();
    symlink("/nonexistent/disk/inboxd.db", database(dir.path())).unwrap();
    for ran in [serve(dir.path()), inboxd(dir.path(), &["status"])] {
        assert_one_line(&ran, 5, &["symbolic link", "not mounted"]);
    }
    assert!(!Path::new("/nonexistent").exists());
}

#[test]
fn an_empty_file_in_the_databases_place_is_told_of() {
    let dir = folder();
    fs::create_dir(dir.path().join("data")).unwrap();
    fs::write(database(dir.path()), "").unwrap();
    let daemon = Daemon::in_dir(dir);
    assert!(
        daemon.log().contains("was an empty file; a new database was made in its place"),
        "{}",
        daemon.log()
    );
    let dir = Arc::clone(&daemon.dir);
    assert_eq!(daemon.stop(), Some(0));
    assert!(!Daemon::in_dir(dir).log().contains("was an empty file"));
}

#[test]
fn a_reader_that_meets_an_exclusive_lock_is_told_that_the_database_is_busy() {
    let dir = used_folder();
    let conn = support::open(&database(dir.path()));
    conn.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    assert_one_line(&inboxd(dir.path(), &["status"]), 6, &["another process holds the database"]);
}

#[test]
fn a_start_that_waits_for_another_process_says_so_meanwhile_and_can_be_stopped() {
    let dir = used_folder();
    for lock in ["PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE", "BEGIN IMMEDIATE"] {
        let conn = support::open(&database(dir.path()));
        conn.execute_batch(lock).unwrap();
        let mut child = start(dir.path());
        let mut stderr = child.stderr.take().unwrap();
        let mut log = String::new();
        while !log.contains("another process holds the database") {
            let mut bytes = [0; 1024];
            let count = stderr.read(&mut bytes).unwrap();
            assert!(count > 0, "{log}");
            log.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        terminate(child.id());
        assert_eq!(ended(&mut child), Some(0), "{lock}");
        drop(conn);
    }
    // with nobody in the way it starts
    assert_eq!(Daemon::in_dir(dir).stop(), Some(0));
}

#[test]
fn a_database_file_that_is_deleted_or_replaced_ends_the_daemon_with_75() {
    for replace in [false, true] {
        let mut daemon = Daemon::start();
        daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200));
        let path = daemon.database();
        if replace {
            fs::copy(&path, path.with_extension("new")).unwrap();
            fs::rename(path.with_extension("new"), &path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(daemon.exit_code(), Some(75), "{}", daemon.log());
        daemon.wait_for_log("was deleted or replaced while inboxd ran");
    }
}

#[test]
fn nothing_is_acknowledged_into_a_file_that_is_gone() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    fs::remove_file(daemon.database()).unwrap();
    let body = invoice_event("evt_1", "paid", "in_1", 4200);
    let signature = support::stripe_signature(&body, support::now_s(), support::STRIPE_SECRET);
    let (status, _) = client.post("/webhooks/stripe", &[&signature], &body);
    assert_eq!(status, 503);
    assert_eq!(daemon.exit_code(), Some(75));
}

#[test]
fn a_reader_that_keeps_the_log_from_being_cut_is_told_of_wherever_the_file_lies() {
    for is_link in [false, true] {
        let dir = used_folder();
        let path = database(dir.path());
        if is_link {
            let elsewhere = dir.path().join("elsewhere.db");
            fs::rename(&path, &elsewhere).unwrap();
            symlink(elsewhere, &path).unwrap();
        }
        let daemon = Daemon::in_dir(dir);
        let reader = support::open(&path);
        reader.execute_batch("BEGIN; SELECT count(*) FROM webhook_inbox").unwrap();
        for n in 0..80 {
            let pad = "x".repeat(500_000);
            let object = format!(r#"{{"id":"x","pad":"{pad}"}}"#);
            assert_eq!(daemon.stripe(&support::event(&format!("evt_{n}"), "foo.bar", &object)).0, 200);
        }
        daemon.wait_for_log("the database's WAL has grown to 3");
    }
}

#[test]
fn a_database_that_others_can_read_is_closed_and_a_data_dir_only_told_of() {
    let dir = used_folder();
    fs::set_permissions(database(dir.path()), Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(dir.path().join("data"), Permissions::from_mode(0o755)).unwrap();
    let daemon = Daemon::in_dir(dir);
    daemon.stripe(&invoice_event("evt_2", "paid", "in_2", 4200));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let path = daemon.database();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&path.with_extension("db-wal")), 0o600);
    assert_eq!(mode(&path.with_extension("db-shm")), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o755, "it may be shared on purpose");
    let log = daemon.log();
    assert!(log.contains("mode 0644 let others in; it is 0600 now"), "{log}");
    assert!(log.contains("mode 0755 lets others in") && log.contains("chmod 700"), "{log}");
}

#[test]
fn the_private_socket_of_a_long_data_dir_is_in_a_new_directory_that_goes_away() {
    let long = "long/".repeat(20);
    let dir =
        folder_with(&support::CONFIG.replace("data_dir = \"data\"", &format!("data_dir = \"{long}data\"")));
    let tmp = dir.path().join("tmp");
    fs::create_dir(&tmp).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_inboxd"));
    command.env("TMPDIR", &tmp);
    let daemon = Daemon::spawn(Arc::clone(&dir), command);
    let made: Vec<_> = fs::read_dir(&tmp).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let name = made[0].file_name().into_string().unwrap();
    assert_ne!(name, format!("inboxd-{}", daemon.pid()), "a name that others can guess can be taken before");
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200));
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0);
}

#[test]
fn a_unix_socket_is_for_owner_and_group_and_goes_away_with_the_daemon() {
    let config = support::CONFIG.replace("webhooks = \"127.0.0.1:0\"", "webhooks = \"unix:in.sock\"");
    let dir = folder_with(&config);
    let daemon = Daemon::in_dir(Arc::clone(&dir));
    let socket = dir.path().join("in.sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    assert_eq!(daemon.stop(), Some(0));
    assert!(fs::symlink_metadata(&socket).is_err());
}

#[test]
fn a_port_that_is_taken_is_exit_6_and_makes_no_database() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let config = support::CONFIG
        .replace("webhooks = \"127.0.0.1:0\"", "webhooks = \"unix:in.sock\"")
        .replace("admin = \"127.0.0.1:0\"", &format!("admin = \"{address}\""));
    let dir = folder_with(&config);
    assert_one_line(&serve(dir.path()), 6, &[&address, "is another inboxd running?"]);
    assert!(!database(dir.path()).exists());
    assert!(fs::symlink_metadata(dir.path().join("in.sock")).is_err(), "no socket is left behind");
}

#[test]
fn an_address_that_cannot_be_had_is_exit_3_with_what_to_do() {
    let listen = |address: &str| {
        folder_with(
            &support::CONFIG.replace("webhooks = \"127.0.0.1:0\"", &format!("webhooks = \"{address}\"")),
        )
    };
    // reserved for documentation: no machine has it
    let ran = serve(listen("192.0.2.1:8787").path());
    assert_one_line(&ran, 3, &["192.0.2.1:8787", "no such address"]);
    assert!(!ran.stderr.contains("another inboxd"), "{ran:?}");
    let ran = serve(listen("unix:absent/in.sock").path());
    assert_one_line(&ran, 3, &["absent/in.sock", "make that directory first"]);
}

#[test]
fn what_waits_for_a_person_is_logged_with_its_reason_and_in_one_line() {
    let daemon = Daemon::start();
    daemon.stripe(&invoice_event("evt_1", "voided", "in_1", 4200));
    daemon.stripe(&invoice_event("evt_2", "paid", "in_1", 4200));
    daemon.stripe(&invoice_event("evt_1", "voided", "in_1", 4300));
    daemon.stripe(&invoice_event("evt_\\u202e3", "paid", "in_1", 4300));
    daemon.wait_for("it has told of three", || daemon.log().matches("review endpoint=").count() >= 3);
    let log = daemon.log();
    let line = |words: &str| {
        log.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}: {log}"))
    };
    let quarantined = line("review endpoint=billing event_id=evt_2 outcome=quarantined: ");
    assert!(quarantined.contains(" WARN "), "{quarantined}");
    assert!(line("review endpoint=billing event_id=evt_1 outcome=duplicate: ").contains("another body"));
    line("review endpoint=billing event_id=evt_?3 outcome=quarantined");
    assert!(!log.contains('\u{202e}'));
}

#[test]
fn a_file_restored_from_a_dump_is_recognised_and_starts_with_the_two_pragmas_that_are_named() {
    let dir = used_folder();
    let path = database(dir.path());
    // what `.dump` carries: the schema and the rows, nothing of the header
    let restored = dir.path().join("restored.db");
    let from = support::open(&path);
    let to = rusqlite::Connection::open(&restored).unwrap();
    for kind in ["table", "index", "view", "trigger"] {
        let mut statement =
            from.prepare("SELECT name, sql FROM sqlite_schema WHERE type = ?1 AND sql IS NOT NULL").unwrap();
        let objects = statement
            .query_map([kind], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
            .unwrap();
        for object in objects {
            let (name, sql) = object.unwrap();
            to.execute_batch(&sql).unwrap();
            if kind == "table" {
                to.execute("ATTACH ?1 AS old", [path.to_str().unwrap()]).unwrap();
                to.execute_batch(&format!("INSERT INTO main.{name} SELECT * FROM old.{name}; DETACH old"))
                    .unwrap();
            }
        }
    }
    drop((from, to));
    fs::remove_file(&path).unwrap();
    fs::rename(&restored, &path).unwrap();
    let ran = serve(dir.path());
    assert_one_line(
        &ran,
        5,
        &["has all of inboxd's tables", "`.dump`", "PRAGMA application_id = ", "PRAGMA user_version = "],
    );
    assert!(!ran.stderr.contains("none of its tables"), "{ran:?}");
    let pragmas = ran.stderr.split('"').nth(1).unwrap();
    support::open(&path).execute_batch(pragmas).unwrap();
    let daemon = Daemon::in_dir(dir);
    assert_eq!(daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200)).1, r#"{"outcome":"duplicate"}"#);
}
