//! One database file, one daemon: a file that goes away under a running daemon, one that has two names, and a
//! data directory whose database is gone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use support::{CONFIG, Daemon, HANG_TIME, folder, invoice_event, signed_stripe, skipped, wait_for_some};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_inboxd");

fn event(n: u32) -> String {
    invoice_event(&format!("evt_{n}"), "paid", &format!("in_{n}"), 4200)
}

/// Sends events until the daemon takes no more or has ended; returns those it acknowledged.
fn send_until_refused(daemon: &mut Daemon, first: u32) -> Vec<u32> {
    let mut acknowledged = Vec::new();
    for n in first..first + 10_000 {
        match signed_stripe(&daemon.webhooks, &event(n)) {
            Some((200, _)) => acknowledged.push(n),
            Some((503, _)) | None => return acknowledged,
            Some(other) => panic!("{other:?}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    panic!("{} events were acknowledged: {}", acknowledged.len(), daemon.log());
}

/// A start that is expected to end by itself: its exit code and what it said.
fn serve(dir: &Path) -> (i32, String) {
    let log = dir.join("serve.log");
    let mut child = Command::new(BINARY)
        .args(["--config", "inboxd.toml", "serve"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code().unwrap_or(-1);
        }
        if begun.elapsed() > HANG_TIME {
            child.kill().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    (code, fs::read_to_string(log).unwrap())
}

fn stored(database: &Path) -> i64 {
    support::open(database).query_row("SELECT count(*) FROM webhook_inbox", [], |row| row.get(0)).unwrap()
}

fn wal(dir: &TempDir) -> PathBuf {
    dir.path().join("data/inboxd.db-wal")
}

#[test]
fn a_wal_that_is_deleted_under_a_running_daemon_ends_it_and_loses_no_acknowledged_event() {
    for moved_away in [false, true] {
        let mut daemon = Daemon::start();
        for n in 0..5 {
            assert_eq!(daemon.stripe(&event(n)).0, 200);
        }
        let dir = Arc::clone(&daemon.dir);
        if moved_away {
            fs::rename(wal(&dir), dir.path().join("elsewhere")).unwrap();
        } else {
            fs::remove_file(wal(&dir)).unwrap();
        }
        let acknowledged = send_until_refused(&mut daemon, 5);
        assert_eq!(daemon.exit_code(), Some(75), "{}", daemon.log());
        daemon.wait_for_log("inboxd.db-wal was deleted while inboxd ran");
        daemon.wait_for_log("nothing is lost");
        let daemon = Daemon::in_dir(dir);
        let all = i64::try_from(5 + acknowledged.len()).unwrap();
        assert!(stored(&daemon.database()) >= all, "acknowledged {all}");
        for n in (0..5).chain(acknowledged) {
            assert_eq!(daemon.stripe(&event(n)).1, r#"{"outcome":"duplicate"}"#);
        }
        let check: String = daemon.text("PRAGMA integrity_check");
        assert_eq!(check, "ok");
    }
}

#[test]
fn nothing_is_acknowledged_into_a_wal_that_was_cut_or_overwritten() {
    // to nothing, in the middle of what was stored, and over its first bytes
    for cut in ["all", "middle", "header"] {
        let mut daemon = Daemon::start();
        for n in 0..20 {
            assert_eq!(daemon.stripe(&event(n)).0, 200);
        }
        let file = OpenOptions::new().write(true).open(wal(&daemon.dir)).unwrap();
        match cut {
            "all" => file.set_len(0).unwrap(),
            "middle" => file.set_len(file.metadata().unwrap().len() / 2).unwrap(),
            _ => std::os::unix::fs::FileExt::write_all_at(&file, &[0; 32], 0).unwrap(),
        }
        let acknowledged = send_until_refused(&mut daemon, 20);
        assert_eq!(acknowledged, [0; 0], "{cut}");
        assert_eq!(daemon.exit_code(), Some(75), "{cut}: {}", daemon.log());
        daemon.wait_for_log("inboxd.db-wal was cut or overwritten while inboxd ran");
        let daemon = Daemon::in_dir(Arc::clone(&daemon.dir));
        assert_eq!(daemon.text("PRAGMA integrity_check"), "ok", "{cut}");
        assert_eq!(daemon.stripe(&event(30)).0, 200);
    }
}

#[test]
fn a_wal_that_another_process_checkpoints_and_cuts_is_no_loss() {
    let mut daemon = Daemon::start();
    for n in 0..30 {
        assert_eq!(daemon.stripe(&event(n)).0, 200);
        if n % 10 == 5 {
            let other = daemon.sql();
            let busy: i64 = other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
            assert_eq!(busy, 0);
        }
        if n % 10 == 7 {
            // written by another, behind what the daemon knows of the WAL
            let note = "INSERT INTO inboxd_meta (key, value) VALUES (?1, 1)";
            daemon.sql().execute(note, [format!("test {n}")]).unwrap();
        }
    }
    assert!(daemon.is_running());
    assert_eq!(stored(&daemon.database()), 30);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn an_index_of_the_wal_that_is_deleted_ends_it_with_nothing_lost() {
    let mut daemon = Daemon::start();
    assert_eq!(daemon.stripe(&event(0)).0, 200);
    fs::remove_file(daemon.dir.path().join("data/inboxd.db-shm")).unwrap();
    let acknowledged = send_until_refused(&mut daemon, 1);
    assert_eq!(daemon.exit_code(), Some(75), "{}", daemon.log());
    daemon.wait_for_log("inboxd.db-shm was deleted or replaced while inboxd ran");
    let daemon = Daemon::in_dir(Arc::clone(&daemon.dir));
    for n in [0].into_iter().chain(acknowledged) {
        assert_eq!(daemon.stripe(&event(n)).1, r#"{"outcome":"duplicate"}"#);
    }
}

#[test]
fn a_database_that_is_emptied_under_a_running_daemon_ends_it() {
    let mut daemon = Daemon::start();
    assert_eq!(daemon.stripe(&event(0)).0, 200);
    OpenOptions::new().write(true).open(daemon.database()).unwrap().set_len(0).unwrap();
    send_until_refused(&mut daemon, 1);
    assert_eq!(daemon.exit_code(), Some(75), "{}", daemon.log());
    daemon.wait_for_log("was cut while inboxd ran");
    let dir = Arc::clone(&daemon.dir);
    let before = fs::metadata(wal(&dir)).map(|wal| wal.len()).unwrap_or(0);
    assert!(before > 0, "the WAL still has the latest events");
    let (code, said) = serve(dir.path());
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("is empty") && said.contains("put the file back"), "{said}");
    // nor does a look at it delete the WAL
    assert_eq!(support::inboxd(dir.path(), &["status"]).code, 5);
    assert_eq!(support::inboxd(dir.path(), &["query", "SELECT 1"]).code, 5);
    assert_eq!(fs::metadata(wal(&dir)).unwrap().len(), before);
}

#[test]
fn a_database_that_is_cut_under_a_running_daemon_ends_it() {
    let daemon = Daemon::start();
    for n in 0..20 {
        assert_eq!(daemon.stripe(&event(n)).0, 200);
    }
    let dir = Arc::clone(&daemon.dir);
    assert_eq!(daemon.stop(), Some(0));
    let mut daemon = Daemon::in_dir(dir);
    assert_eq!(daemon.stripe(&event(20)).0, 200);
    let file = OpenOptions::new().write(true).open(daemon.database()).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    send_until_refused(&mut daemon, 21);
    assert_eq!(daemon.exit_code(), Some(75), "{}", daemon.log());
    daemon.wait_for_log("was cut while inboxd ran");
}

#[test]
fn a_data_directory_that_lost_its_database_is_refused_and_its_wal_is_left() {
    let mut daemon = Daemon::start();
    for n in 0..5 {
        assert_eq!(daemon.stripe(&event(n)).0, 200);
    }
    let (dir, database) = (Arc::clone(&daemon.dir), daemon.database());
    let aside = dir.path().join("aside.db");
    fs::rename(&database, &aside).unwrap();
    assert_eq!(daemon.exit_code(), Some(75), "{}", daemon.log());
    let kept = fs::read(wal(&dir)).unwrap();
    for _ in 0..2 {
        let (code, said) = serve(dir.path());
        assert_eq!(code, 5, "{said}");
        for words in ["inboxd.db: ", "is missing", "was in use", "put the file back", "inboxd.db-wal"] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(!database.exists(), "no empty database was made");
    }
    assert_eq!(fs::read(wal(&dir)).unwrap(), kept);
    fs::rename(&aside, &database).unwrap();
    let daemon = Daemon::in_dir(dir);
    for n in 0..5 {
        assert_eq!(daemon.stripe(&event(n)).1, r#"{"outcome":"duplicate"}"#);
    }
}

#[test]
fn a_directory_of_which_all_but_the_lock_is_gone_is_refused_until_that_is_removed() {
    let daemon = Daemon::start();
    assert_eq!(daemon.stripe(&event(0)).0, 200);
    let (dir, data) = (Arc::clone(&daemon.dir), daemon.dir.path().join("data"));
    assert_eq!(daemon.stop(), Some(0));
    fs::remove_file(data.join("inboxd.db")).unwrap();
    drop(fs::remove_dir_all(data.join("run")));
    let (code, said) = serve(dir.path());
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("remove data/lock"), "{said}");
    fs::remove_file(data.join("lock")).unwrap();
    let daemon = Daemon::in_dir(dir);
    assert_eq!(daemon.stripe(&event(0)).1, r#"{"outcome":"processed"}"#);
}

#[test]
fn a_first_start_that_failed_does_not_stand_in_the_way_of_the_next() {
    let dir = Arc::new(folder(CONFIG, &[]));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = CONFIG.replacen("127.0.0.1:0", &taken.local_addr().unwrap().to_string(), 1);
    fs::write(dir.path().join("inboxd.toml"), busy).unwrap();
    assert_eq!(serve(dir.path()).0, 6);
    fs::write(dir.path().join("inboxd.toml"), CONFIG).unwrap();
    assert_eq!(Daemon::in_dir(dir).stripe(&event(0)).0, 200);
}

/// A second configuration whose database is the first one's, under another name.
fn second_at(dir: &Path, config: &str) -> (i32, String) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("inboxd.toml"), config).unwrap();
    support::write_secret(dir, "stripe.secret", support::STRIPE_SECRET);
    support::write_secret(dir, "github.secret", support::GITHUB_SECRET);
    serve(dir)
}

#[test]
fn a_database_in_use_is_refused_under_every_other_name() {
    let mut daemon = Daemon::start();
    let second = daemon.dir.path().join("second");
    fs::create_dir_all(second.join("data")).unwrap();
    symlink(daemon.database(), second.join("data/inboxd.db")).unwrap();
    let (code, said) = second_at(&second, CONFIG);
    assert_eq!(code, 6, "{said}");
    assert!(said.contains("another inboxd uses this database file"), "{said}");

    // one file mounted at another place
    let third = daemon.dir.path().join("third");
    fs::create_dir_all(third.join("data")).unwrap();
    let target = third.join("data/inboxd.db");
    fs::write(&target, "").unwrap();
    let mounted = Command::new("mount").arg("--bind").args([&daemon.database(), &target]).status();
    if mounted.is_ok_and(|status| status.success()) {
        let (code, said) = second_at(&third, CONFIG);
        drop(Command::new("umount").arg("-l").arg(&target).status());
        assert_eq!(code, 6, "{said}");
    } else {
        skipped("nothing can be mounted here: a file under two mounts is not tried");
    }
    assert!(daemon.is_running());
    assert_eq!(daemon.stripe(&event(0)).0, 200);
}

#[test]
fn an_applications_database_in_use_is_refused_through_a_link() {
    let config = CONFIG
        .replace("data_dir = \"data\"", "database = \"app.db\"")
        .replace("handlers = [\"billing\"]", "")
        + "[database_options]\nallow_wal = true\n";
    let dir = folder(&config, &[]);
    rusqlite::Connection::open(dir.path().join("app.db"))
        .unwrap()
        .execute_batch("CREATE TABLE t (a)")
        .unwrap();
    let daemon = Daemon::in_dir(Arc::new(dir));
    let second = daemon.dir.path().join("second");
    fs::create_dir_all(&second).unwrap();
    symlink("../app.db", second.join("app.db")).unwrap();
    let (code, said) = second_at(&second, &config);
    assert_eq!(code, 6, "{said}");
    assert!(said.contains("another inboxd uses this database file"), "{said}");
}

#[test]
fn a_database_with_two_hard_links_is_refused_with_the_reason() {
    let daemon = Daemon::start();
    assert_eq!(daemon.stripe(&event(0)).0, 200);
    let (dir, database) = (Arc::clone(&daemon.dir), daemon.database());
    let other = dir.path().join("other.db");
    fs::hard_link(&database, &other).unwrap();
    // what writes beside the daemon is refused as well: it may have come by the other name
    let ran = daemon.inboxd(&["retry", "evt_0"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(daemon.stop(), Some(0));
    let (code, said) = serve(dir.path());
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("2 names (hard links)") && said.contains("remove the other names"), "{said}");
    fs::remove_file(other).unwrap();
    assert_eq!(Daemon::in_dir(dir).stripe(&event(0)).1, r#"{"outcome":"duplicate"}"#);
}

#[test]
fn a_daemon_that_was_killed_leaves_no_lock_behind() {
    let daemon = Daemon::start();
    assert_eq!(daemon.stripe(&event(0)).0, 200);
    let daemon = Daemon::in_dir(daemon.kill());
    let started = wait_for_some("it takes events", || signed_stripe(&daemon.webhooks, &event(1)));
    assert_eq!(started.0, 200);
}
