//! System calls that fail, on the shipped binary: strace makes them fail, in one thread of the running
//! daemon, and writes down that it did. Skipped with a message where strace is missing or not allowed to.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::truth::{self, ClientLog, Senders};
use support::{CONFIG, Client, Daemon, HANG_TIME, invoice_event, skipped, wait_for};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_inboxd");

/// strace on one thread of the daemon.
struct Injection {
    strace: Child,
    trace: PathBuf,
}

impl Injection {
    /// `fault` as strace writes it: `fsync:error=EIO:when=1`. `None`: not possible here.
    fn into(daemon: &Daemon, thread: &str, fault: &str) -> Option<Self> {
        let trace = daemon.dir.path().join("trace");
        let calls = fault.split(':').next().unwrap();
        let spawned = Command::new("strace")
            .args(["-e", &format!("trace={calls}"), "-e", &format!("inject={fault}"), "-o"])
            .arg(&trace)
            .args(["-p", &daemon.thread(thread).to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut strace) = spawned else {
            skipped("strace is not installed");
            return None;
        };
        let mut said = String::new();
        let mut stderr = BufReader::new(strace.stderr.take().unwrap());
        stderr.read_line(&mut said).unwrap();
        if !said.contains("attached") {
            stderr.read_to_string(&mut said).unwrap();
            skipped(&format!("strace cannot attach here: {said}"));
            support::ended(&mut strace);
            return None;
        }
        Some(Self { strace, trace })
    }

    /// Ends the injection; how many calls it made fail.
    fn end(mut self) -> usize {
        support::terminate(self.strace.id());
        support::ended(&mut self.strace);
        injected(&self.trace)
    }
}

fn injected(trace: &Path) -> usize {
    std::fs::read_to_string(trace).unwrap().lines().filter(|line| line.contains("(INJECTED)")).count()
}

/// A daemon under the load of `count` senders.
struct Loaded {
    daemon: Daemon,
    log: Arc<ClientLog>,
    senders: Senders,
}

impl Loaded {
    fn start(count: usize, body_bytes: usize) -> Self {
        Self::with(Daemon::start(), count, body_bytes)
    }

    fn with(daemon: Daemon, count: usize, body_bytes: usize) -> Self {
        let log = Arc::new(ClientLog::new(daemon.dir.path()));
        let senders = Senders::start(count, &log, body_bytes);
        senders.aim(&daemon.webhooks);
        senders.acknowledge_more(20);
        Self { daemon, log, senders }
    }

    /// Once the daemon has ended: a start without faults serves what is sent again, and the books are right.
    fn recovers(self) {
        let Self { daemon, log, senders } = self;
        let dir = Arc::clone(&daemon.dir);
        truth::check(&daemon.database(), &log);
        let daemon = Daemon::in_dir(dir);
        senders.aim(&daemon.webhooks);
        senders.finish();
        truth::check(&daemon.database(), &log);
    }
}

#[test]
#[cfg(feature = "failpoints")]
fn the_directories_of_new_files_are_synced_before_anything_is_stored_in_them() {
    let dir = Arc::new(Daemon::folder(CONFIG));
    let trace = dir.path().join("trace");
    let spawned = Command::new("strace")
        .args(["-f", "-y", "-e", "trace=fsync", "-o"])
        .arg(&trace)
        .args([BINARY, "--config", "inboxd.toml", "serve"])
        .env("INBOXD_FAILPOINT", "recovery_before:1")
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut traced) = spawned else {
        return skipped("strace is not installed");
    };
    support::ended(&mut traced);
    let said = std::fs::read_to_string(&trace).unwrap_or_default();
    if !said.contains("killed by SIG") {
        return skipped(&format!("strace cannot trace here: {said}"));
    }
    let folder = dir.path().canonicalize().unwrap();
    for synced in [folder.join("data"), folder.clone()] {
        let call = format!("<{}>)", synced.display());
        let is_call = |line: &str| line.contains("fsync(") && line.contains(&call) && line.ends_with("= 0");
        assert!(said.lines().any(is_call), "{call}: {said}");
    }
}

#[test]
fn after_a_failed_fsync_nothing_is_acknowledged_and_the_next_start_works() {
    let mut daemon = Daemon::start();
    let event = |n: u32| invoice_event(&format!("evt_{n}"), "paid", &format!("in_{n}"), 4200);
    assert_eq!(daemon.stripe(&event(1)).0, 200);
    // until another answer is counted it writes nothing by itself
    daemon.wait_for_count("SELECT count(*) FROM inboxd_meta WHERE key = 'answers' AND value = '1 0 0'", 1);
    let Some(injection) = Injection::into(&daemon, "writer", "fsync:error=EIO:when=1") else {
        return;
    };
    let mut client = daemon.client();
    let mut status = |n: u32| {
        let body = event(n);
        let signature = support::stripe_signature(&body, support::now_s(), support::STRIPE_SECRET);
        client.try_post("/webhooks/stripe", &[&signature], &body).map(|(status, _)| status)
    };
    assert_eq!(status(2), Some(503));
    for n in [2, 3, 1] {
        let next = status(n);
        assert!(matches!(next, None | Some(503)), "answered {next:?} after a failed fsync");
    }
    assert_eq!(daemon.exit_code(), Some(75));
    assert!(injection.end() >= 1, "the fault was not hit");
    daemon.wait_for_log("the storage failed (");
    daemon.wait_for_log("the storage failed: ");
    let daemon = Daemon::in_dir(Arc::clone(&daemon.dir));
    for n in [1, 2, 3] {
        assert_eq!(daemon.stripe(&event(n)).0, 200);
    }
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries WHERE kind = 'payment'"), 3);
}

#[test]
fn an_io_error_of_the_writer_at_any_of_its_calls_ends_it_and_loses_nothing() {
    for fault in ["fsync:error=EIO:when=3", "pwrite64:error=EIO:when=1", "pwrite64:error=EIO:when=20"] {
        let mut loaded = Loaded::start(8, 2_000);
        let Some(injection) = Injection::into(&loaded.daemon, "writer", fault) else {
            return;
        };
        assert_eq!(loaded.daemon.exit_code(), Some(75), "{fault}");
        assert!(injection.end() >= 1, "{fault} was not hit");
        loaded.recovers();
    }
}

#[test]
fn an_io_error_in_a_checkpoint_ends_it_and_loses_nothing() {
    // with bodies of 500 KB every few events are a checkpoint, which syncs the log and the file
    for fault in ["fsync:error=EIO:when=12", "pwrite64:error=EIO:when=2500"] {
        let mut loaded = Loaded::start(4, 500_000);
        let Some(injection) = Injection::into(&loaded.daemon, "writer", fault) else {
            return;
        };
        assert_eq!(loaded.daemon.exit_code(), Some(75), "{fault}");
        assert!(injection.end() >= 1, "{fault} was not hit");
        loaded.recovers();
    }
}

#[test]
fn a_kill_at_any_write_or_sync_loses_nothing() {
    let counts = [1, 2, 3, 7, 40, 333, 1_500, 2_600];
    let calls = counts.iter().map(|n| format!("pwrite64:signal=KILL:when={n}"));
    let calls = calls.chain((1..=5).map(|n| format!("fsync:signal=KILL:when={}", n * 3)));
    for fault in calls {
        let mut loaded = Loaded::start(4, 100_000);
        let Some(mut injection) = Injection::into(&loaded.daemon, "writer", &fault) else {
            return;
        };
        assert_eq!(loaded.daemon.exit_signal(), Some(9), "{fault} was not hit");
        support::ended(&mut injection.strace);
        loaded.recovers();
    }
}

#[test]
fn a_kill_in_the_middle_of_start_up_recovery_loses_nothing() {
    let loaded = Loaded::start(4, 20_000);
    loaded.senders.acknowledge_more(30);
    let dir = loaded.daemon.kill();
    // every thread is traced: the writer moves the log into the file
    for hit in 1..=10 {
        let killed = Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=pwrite64", "-e"])
            .arg(format!("inject=pwrite64:signal=KILL:when={hit}"))
            .args(["-o", "/dev/null", BINARY, "--config", "inboxd.toml", "serve"])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut killed) = killed else {
            skipped("strace is not installed");
            break;
        };
        let has_come = || killed.try_wait().unwrap().is_some();
        wait_for(&format!("write {hit} of the recovery comes"), has_come);
        truth::check(&dir.path().join("data/inboxd.db"), &loaded.log);
    }
    let daemon = Daemon::in_dir(dir);
    loaded.senders.aim(&daemon.webhooks);
    loaded.senders.finish();
    truth::check(&daemon.database(), &loaded.log);
}

#[test]
fn writes_that_find_no_space_are_answered_503_and_it_recovers_by_itself() {
    let mut loaded = Loaded::start(4, 2_000);
    let Some(injection) = Injection::into(&loaded.daemon, "writer", "pwrite64:error=ENOSPC:when=5..30")
    else {
        return;
    };
    loaded.senders.acknowledge_more(200);
    assert!(injection.end() >= 20, "the fault was not hit");
    assert!(loaded.daemon.is_running());
    let Loaded { daemon, log, senders } = loaded;
    senders.finish();
    let told = truth::check(&daemon.database(), &log);
    assert!(told.refused.get("503").is_some_and(|count| *count > 0), "{:?}", told.refused);
    assert!(told.refused.len() == 1, "{:?}", told.refused);
}

#[test]
fn a_disk_without_room_and_without_a_floor_is_not_ready_until_there_is_room() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let (program, told) = (dir.path().join("tell"), dir.path().join("told"));
    std::fs::write(&program, format!("#!/bin/sh\necho \"$1\" >> {}\n", told.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let alert = format!("[alert]\ncommand = \"{}\"\non = [\"disk\", \"store\"]\n", program.display());
    let daemon = Daemon::with_config(&format!("{CONFIG}{alert}"));
    let event = |n: u32| invoice_event(&format!("evt_{n}"), "paid", &format!("in_{n}"), 4200);
    let readyz = || daemon.client().get("/readyz").0;
    assert_eq!(daemon.stripe(&event(1)).0, 200);
    let Some(injection) = Injection::into(&daemon, "writer", "pwrite64:error=ENOSPC:when=1+") else {
        return;
    };
    assert_eq!(daemon.stripe(&event(2)).0, 503);
    assert_eq!(readyz(), 503);
    let said = |words: &str| std::fs::read_to_string(&told).unwrap_or_default().contains(words);
    daemon.wait_for("people are told of the disk", || said("free disk space is below"));
    daemon.wait_for("people are told of the store", || said("nothing can be stored for"));
    assert!(injection.end() >= 1, "the fault was not hit");
    wait_for("it is ready again", || readyz() == 200);
    assert_eq!(daemon.stripe(&event(2)).0, 200);
}

/// On file systems whose locks can fail. The worst is an unlock: SQLite believes in the lock for ever.
#[test]
fn a_call_for_a_lock_that_fails_once_never_makes_it_refuse_for_good() {
    let event = |n: u32| invoice_event(&format!("evt_{n}"), "paid", &format!("in_{n}"), 4200);
    let mut ended = 0;
    // an idle writer's look at the lock counts as well, so that the unlock of a commit is not always among the first six
    for when in 1..=24 {
        if when > 6 && ended > 0 {
            break;
        }
        let mut daemon = Daemon::start();
        assert_eq!(daemon.stripe(&event(1)).0, 200);
        let fault = format!("fcntl:error=EIO:when={when}");
        let Some(injection) = Injection::into(&daemon, "writer", &fault) else {
            return;
        };
        let (mut n, mut stored) = (1, 0);
        let webhooks = daemon.webhooks.clone();
        let mut is_over = || {
            n += 1;
            let was_hit = injected(&injection.trace) > 0;
            let answer = support::signed_stripe(&webhooks, &event(n)).map(|(status, _)| status);
            // the delivery that was hit may be stored all the same: those behind it tell
            stored += u32::from(was_hit && answer == Some(200));
            !daemon.is_running() || stored >= 2
        };
        wait_for(&format!("{fault}: it stores again, or ends"), &mut is_over);
        if !daemon.is_running() {
            ended += 1;
            assert_eq!(daemon.exit_code(), Some(75), "{fault}: {}", daemon.log());
            let daemon = Daemon::in_dir(Arc::clone(&daemon.dir));
            assert_eq!(daemon.stripe(&event(1)).1, r#"{"outcome":"duplicate"}"#);
            assert_eq!(daemon.stripe(&event(9_999)).0, 200);
        }
        drop(injection);
    }
    assert!(ended >= 1, "no unlock was hit");
}

#[test]
fn without_descriptors_it_goes_on_accepting_later() {
    let mut daemon = Daemon::start();
    let Some(injection) = Injection::into(&daemon, "webhooks", "accept4:error=EMFILE:when=1..6") else {
        return;
    };
    let statuses: Vec<_> = (0..8).map(|_| Client::connect(&daemon.webhooks).get("/livez").0).collect();
    assert_eq!(statuses, [200; 8]);
    assert_eq!(injection.end(), 6, "the fault was not hit");
    assert!(daemon.is_running());
    daemon.wait_for_log("Look at LimitNOFILE");
}

/// A file system of a few megabytes, unmounted in the end.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(mib: u32) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "inboxd-test"])
            .arg(dir.path())
            .stderr(Stdio::null())
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            skipped(
                "no tmpfs can be mounted here; writer::a_full_database_refuses_what_does_not_fit_and_takes_the_rest does it with max_page_count",
            );
            return None;
        }
        Some(Self(dir))
    }

    fn resize(&self, mib: u32) {
        let remount = format!("remount,size={mib}m");
        assert!(Command::new("mount").args(["-o", &remount]).arg(self.0.path()).status().unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").args(["-l"]).arg(self.0.path()).status());
    }
}

fn fills_up_and_recovers(disk_free_min: &str, body_bytes: usize) {
    let Some(disk) = SmallDisk::mount(8) else {
        return;
    };
    let data_dir = disk.0.path().join("data");
    let config = CONFIG
        .replace("data_dir = \"data\"", &format!("data_dir = \"{}\"", data_dir.display()))
        .replace("disk_free_min = 0", &format!("disk_free_min = {disk_free_min}"));
    let mut daemon = Daemon::with_config(&config);
    let log = Arc::new(ClientLog::new(daemon.dir.path()));
    let senders = Senders::start(4, &log, body_bytes);
    senders.aim(&daemon.webhooks);
    let is_full = || log.read().refused.get("503").is_some_and(|count| *count >= 50);
    daemon.wait_briefly_for("the disk is full, and deliveries are refused for it", is_full);
    if disk_free_min != "0" {
        // a fast sender can fill the disk between two looks at it
        let says_so = || daemon.log().contains("less than limits.disk_free_min");
        daemon.wait_briefly_for("it says that there is less than the floor", says_so);
    }
    let database = data_dir.join("inboxd.db");
    assert!(daemon.is_running(), "{}", daemon.log());
    disk.resize(1024);
    senders.acknowledge_more(50);
    senders.finish();
    assert!(daemon.is_running());
    let told = truth::check(&database, &log);
    assert_eq!(told.refused.keys().collect::<Vec<_>>(), ["503"], "{:?}", told.refused);
    let rows = support::open(&database)
        .query_row("SELECT count(*) FROM webhook_inbox", [], |row| row.get::<_, i64>(0));
    assert_eq!(usize::try_from(rows.unwrap()).unwrap(), told.acknowledged.len());
    if disk_free_min != "0" {
        daemon.wait_for_log("there is room on");
    }
}

#[test]
fn a_disk_that_is_mounted_read_only_is_no_fault_of_the_configuration() {
    let Some(disk) = SmallDisk::mount(8) else {
        return;
    };
    let data_dir = disk.0.path().join("data");
    let config = CONFIG.replace("data_dir = \"data\"", &format!("data_dir = \"{}\"", data_dir.display()));
    let daemon = Daemon::with_config(&config);
    let dir = Arc::clone(&daemon.dir);
    assert_eq!(daemon.stop(), Some(0));
    let remount = |mode: &str| {
        let options = format!("remount,{mode}");
        Command::new("mount").args(["-o", &options]).arg(disk.0.path()).status().unwrap().success()
    };
    assert!(remount("ro"));
    let command = Command::new(BINARY);
    let Err((status, said)) = Daemon::try_spawn(Arc::clone(&dir), command) else { panic!("it started") };
    assert_eq!(status.code(), Some(75), "{said}");
    assert!(said.contains("ead-only") && said.contains("mount it again"), "{said}");
    let ran = support::inboxd(dir.path(), &["retry", "evt_1"]);
    assert_eq!(ran.code, 75, "{ran:?}");
    assert!(remount("rw"));
    assert_eq!(Daemon::in_dir(dir).client().get("/readyz").0, 200);
}

/// SQLite takes a page that cannot be read for one that is wrong.
#[test]
fn a_read_that_fails_once_at_a_start_is_not_called_damage() {
    let daemon = Daemon::start();
    let event = |n: u32| invoice_event(&format!("evt_{n}"), "paid", &format!("in_{n}"), 4200);
    for n in 0..5 {
        assert_eq!(daemon.stripe(&event(n)).0, 200);
    }
    let dir = daemon.kill();
    for when in [1, 2, 3, 5, 8, 13, 21, 34] {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-e", "trace=pread64", "-e"]);
        command.arg(format!("inject=pread64:error=EIO:when={when}")).args(["-o", "/dev/null", "-P"]);
        command.arg(dir.path().join("data/inboxd.db")).arg(BINARY);
        if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
            return skipped("strace is not installed");
        }
        match Daemon::try_spawn(Arc::clone(&dir), command) {
            // the child is strace: it ends when the daemon has
            Ok(mut traced) => {
                let told: serde_json::Value =
                    serde_json::from_str(&traced.inboxd(&["health", "--json"]).stdout).unwrap();
                support::terminate(u32::try_from(told["pid"].as_u64().unwrap()).unwrap());
                traced.exit_code();
            }
            Err((status, said)) => assert_eq!(status.code(), Some(75), "{when}: {said}"),
        }
    }
    let daemon = Daemon::in_dir(dir);
    assert_eq!(daemon.text("PRAGMA integrity_check"), "ok");
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries WHERE kind = 'payment'"), 5);
}

#[test]
fn on_a_full_disk_it_answers_503_and_recovers_by_itself() {
    fills_up_and_recovers("0", 2_000);
    fills_up_and_recovers("0", 50_000);
}

#[test]
fn below_the_floor_of_free_space_it_answers_503_and_recovers_by_itself() {
    fills_up_and_recovers("\"2MiB\"", 10_000);
}

#[test]
fn a_writer_that_hangs_is_not_covered_up_by_the_watchdog() {
    let dir = Arc::new(Daemon::folder(CONFIG));
    let socket = std::os::unix::net::UnixDatagram::bind(dir.path().join("notify")).unwrap();
    let mut message = [0; 1024];
    let mut is_fed_within = |time: Duration| {
        socket.set_read_timeout(Some(time)).unwrap();
        let length = socket.recv(&mut message).unwrap_or(0);
        message[..length].starts_with(b"WATCHDOG=1")
    };
    let mut command = Command::new(BINARY);
    command.env("NOTIFY_SOCKET", dir.path().join("notify")).env("WATCHDOG_USEC", "200000");
    let daemon = Daemon::spawn(dir, command);
    for _ in 0..3 {
        wait_for("it is fed", || is_fed_within(HANG_TIME));
    }
    // whatever it does next takes 60 s
    let Some(injection) = Injection::into(&daemon, "writer", "futex,fcntl:delay_enter=60000000") else {
        return;
    };
    // what it was fed before waits in the socket, and one round trip may have been under way
    while is_fed_within(Duration::from_millis(1)) {}
    let begun = Instant::now();
    let mut fed = 0;
    while begun.elapsed() < Duration::from_secs(3) {
        fed += usize::from(is_fed_within(Duration::from_millis(100)));
    }
    assert!(fed <= 2, "fed {fed} times while the writer hangs");
    drop(daemon);
    drop(injection);
}
