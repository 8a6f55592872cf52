//! inboxd's own files stay its own: modes that others change, umasks, users, core dumps and limits.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use support::{CONFIG, Daemon, invoice_event};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_inboxd");

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Everything below a folder, and the folder.
fn tree(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    if path.is_dir() {
        found.extend(fs::read_dir(path).unwrap().flat_map(|entry| tree(&entry.unwrap().path())));
    }
    found
}

/// Changes the mode of everything below a folder: one for folders, one for files.
fn change_modes(path: &Path, change: impl Fn(u32, bool) -> u32) {
    for path in tree(path) {
        let old = mode(&path);
        fs::set_permissions(&path, Permissions::from_mode(change(old, path.is_dir()))).unwrap();
    }
}

/// Another user than root.
const USER: u32 = 65534;

/// Makes everything in a folder that user's.
fn give_away(dir: &Path) {
    fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    for path in tree(dir) {
        chown(&path, Some(USER), None).unwrap();
    }
}

/// The binary run as that user.
fn as_user() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--clear-groups", BINARY]);
    command
}

fn process(event: &str, daemon: &Daemon) {
    assert_eq!(daemon.stripe(&invoice_event(event, "paid", event, 4200)).0, 200);
}

/// A folder with data that a daemon has served, and a copy made by an upgrade.
fn used_folder() -> Arc<TempDir> {
    let daemon = Daemon::start();
    process("evt_1", &daemon);
    let dir = Arc::clone(&daemon.dir);
    assert_eq!(daemon.stop(), Some(0));
    fs::create_dir(dir.path().join("data/backups")).unwrap();
    fs::write(dir.path().join("data/backups/pre-migration-v1-20260131T090000Z.db"), "a copy").unwrap();
    dir
}

#[test]
fn after_others_have_changed_all_modes_it_starts_and_its_own_are_private_again() {
    type Change = fn(u32, bool) -> u32;
    let changes: [(&str, Change); 4] = [
        ("a volume with an fsGroup", |mode, is_dir| mode | if is_dir { 0o2070 } else { 0o060 }),
        ("chmod -R g+rwX", |mode, is_dir| mode | if is_dir { 0o070 } else { 0o060 }),
        ("chmod -R a+rwX", |mode, is_dir| mode | if is_dir { 0o077 } else { 0o066 }),
        ("a restore that keeps no modes", |_, is_dir| if is_dir { 0o755 } else { 0o644 }),
    ];
    for (what, change) in changes {
        let dir = used_folder();
        let data = dir.path().join("data");
        change_modes(&data, change);
        let daemon = Daemon::in_dir(Arc::clone(&dir));
        process("evt_2", &daemon);
        for path in tree(&data).iter().filter(|path| **path != data) {
            assert_eq!(mode(path) & 0o077, 0, "after {what}: {}", path.display());
        }
        assert_eq!(mode(&data) & 0o022, 0, "after {what} others may replace the database");
        assert_eq!(mode(&data.join("run")) & 0o777, 0o700, "after {what}");
        assert!(daemon.log().contains("backups: mode") && daemon.log().contains("it is 0700 now"), "{what}");
        assert_eq!(daemon.stop(), Some(0));
        process("evt_3", &Daemon::in_dir(dir));
    }
}

#[test]
fn a_directory_with_files_of_others_is_only_warned_about() {
    let dir = used_folder();
    let data = dir.path().join("data");
    fs::write(data.join("app.log"), "the application's").unwrap();
    fs::set_permissions(data.join("app.log"), Permissions::from_mode(0o664)).unwrap();
    fs::set_permissions(&data, Permissions::from_mode(0o2775)).unwrap();
    let daemon = Daemon::in_dir(dir);
    assert_eq!((mode(&data), mode(&data.join("app.log"))), (0o2775, 0o664));
    assert!(
        daemon.log().contains("mode 2775 lets others in; unless that is meant, run: chmod 700"),
        "{}",
        daemon.log()
    );
}

#[test]
fn a_data_directory_that_leads_to_the_listeners_socket_keeps_its_mode() {
    let dir = Arc::new(Daemon::folder(&CONFIG.replacen("\"127.0.0.1:0\"", "\"unix:data/in.sock\"", 1)));
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, Permissions::from_mode(0o770)).unwrap();
    let _daemon = Daemon::in_dir(dir);
    assert_eq!(mode(&data), 0o770);
    assert_eq!(mode(&data.join("in.sock")) & 0o777, 0o660);
}

#[test]
fn whatever_the_umask_own_files_are_private_and_usable() {
    for umask in ["000", "077", "777"] {
        let dir = Arc::new(Daemon::folder(CONFIG));
        let mut command = Command::new("sh");
        command.args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\""), BINARY]);
        let daemon = Daemon::spawn(Arc::clone(&dir), command);
        process("evt_1", &daemon);
        for path in tree(&dir.path().join("data")) {
            let wanted = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode(&path) & 0o777, wanted, "umask {umask}: {}", path.display());
        }
    }
}

#[test]
fn after_a_start_as_root_the_user_is_told_what_to_run() {
    if !rustix::process::geteuid().is_root() {
        return support::skipped("needs root, to be two users");
    }
    let dir = used_folder();
    let data = dir.path().join("data");
    give_away(dir.path());
    chown(data.join("run"), Some(0), None).unwrap();
    // the folder that root has left is empty: it is replaced
    let daemon = Daemon::spawn(Arc::clone(&dir), as_user());
    process("evt_2", &daemon);
    assert_eq!(fs::metadata(data.join("run")).unwrap().uid(), USER);
    assert_eq!(daemon.stop(), Some(0));
    // a killed daemon of root leaves its socket, and a lock that the user may not open
    fs::write(data.join("run/left"), "").unwrap();
    chown(data.join("run"), Some(0), None).unwrap();
    let (status, log) = Daemon::try_spawn(Arc::clone(&dir), as_user()).err().unwrap();
    assert_eq!(status.code(), Some(5), "{log}");
    assert!(log.contains("belongs to user 0") && log.contains("run as root: rm -r"), "{log}");
    chown(data.join("lock"), Some(0), None).unwrap();
    let (_, log) = Daemon::try_spawn(dir, as_user()).err().unwrap();
    assert!(log.contains("was inboxd started as root?") && log.contains("chown -R 65534"), "{log}");
}

#[test]
fn no_core_dump_and_no_other_process_of_the_user_sees_its_secrets() {
    let dir = Arc::new(Daemon::folder(CONFIG));
    let daemon = if rustix::process::geteuid().is_root() {
        give_away(dir.path());
        Daemon::spawn(dir, as_user())
    } else {
        Daemon::in_dir(dir)
    };
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    // the kernel gives the files of a process that may not be dumped to root
    assert_eq!(fs::metadata(format!("/proc/{}/environ", daemon.pid())).unwrap().uid(), 0);
}

#[test]
fn a_file_size_limit_is_an_answer_of_503_and_not_a_death_by_signal() {
    let dir = Arc::new(Daemon::folder(CONFIG));
    let mut command = Command::new("sh");
    // in units of 512 bytes: room for the database and some events
    command.args(["-c", "ulimit -f 1000; exec \"$0\" \"$@\"", BINARY]);
    let mut daemon = Daemon::spawn(Arc::clone(&dir), command);
    let mut stored = 0;
    for number in 0..2_000 {
        let event = format!("evt_{number}");
        let body = invoice_event(&event, "paid", &event, 4200);
        let signature = support::stripe_signature(&body, support::now_s(), support::STRIPE_SECRET);
        let Ok(mut client) = support::Client::try_connect(&daemon.webhooks) else { break };
        match client.try_post("/webhooks/stripe", &[&signature], &body) {
            Some((200, _)) => stored += 1,
            _ => break,
        }
    }
    assert!(stored > 10, "{stored}");
    support::terminate(daemon.pid());
    let ended = daemon.exit_code();
    assert!(ended.is_some(), "a signal ended it: {:?}", daemon.log());
    let conn = support::open(&dir.path().join("data/inboxd.db"));
    let found: i64 = conn.query_row("SELECT count(*) FROM webhook_inbox", [], |row| row.get(0)).unwrap();
    assert!(found >= stored, "{found} of {stored} acknowledged events are there");
}
