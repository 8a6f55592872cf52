//! The shipped binary from outside: memory, starts, a large file.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::load;
use crate::report;
use crate::stack;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_inboxd");

pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: String,
    pub(crate) ready_after: Duration,
    pub(crate) dir: Arc<TempDir>,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::spawn(Arc::new(stack::folder()), Command::new(BINARY))
    }

    pub(crate) fn spawn(dir: Arc<TempDir>, mut command: Command) -> Self {
        let started = Instant::now();
        let mut child = command
            .args(["--config", "inboxd.toml", "serve"])
            .current_dir(dir.path())
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let ready = lines.by_ref().find(|line| {
            said.lock().unwrap().push_str(line);
            line.starts_with("ready")
        });
        let ready_after = started.elapsed();
        let Some(ready) = ready else {
            panic!("the daemon did not get ready: {}", said.lock().unwrap());
        };
        let address = ready.split("http://").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address, ready_after, dir }
    }

    /// Stops it with SIGTERM.
    pub(crate) fn stop(mut self) -> Arc<TempDir> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap();
        Arc::clone(&self.dir)
    }

    fn database(&self) -> std::path::PathBuf {
        self.dir.path().join("data/inboxd.db")
    }

    /// A line of `/proc/PID/status` in MiB.
    fn status_mib(&self, name: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn memory() {
    let daemon = Daemon::start();
    std::thread::sleep(Duration::from_secs(2));
    report("resident memory, idle, MiB", daemon.status_mib("VmRSS"), 20.0, false);
    let rate = load::run_made(&daemon.address, 64, "m", 0..100_000);
    println!("100,000 events at {rate:.0} events/s, signed while they were sent");
    report("resident memory after 100,000 events, MiB", daemon.status_mib("VmRSS"), 64.0, false);
    println!("{:<64} {:>9.2}", "its peak, MiB", daemon.status_mib("VmHWM"));
}

pub(crate) fn start() {
    let mut empty: Vec<_> = (0..20).map(|_| Daemon::start().ready_after).collect();
    empty.sort();
    report("start to ready on an empty database, ms: median", ms(empty[10]), 200.0, false);
    report("start to ready on an empty database, ms: slowest of 20", ms(empty[19]), 200.0, false);

    let (master, log_mib) = killed_with_a_long_log();
    let mut restarts: Vec<_> = (0..100)
        .map(|_| {
            let dir = Arc::new(stack::folder());
            copy(&master.path().join("data"), &dir.path().join("data"));
            Daemon::spawn(dir, Command::new(BINARY)).ready_after
        })
        .collect();
    restarts.sort();
    println!("100 restarts after a kill, with a WAL of {log_mib} MiB to move into the file");
    println!("{:<64} {:>9.2}", "restart to ready, ms: median", ms(restarts[50]));
    report("restart to ready, ms: p99", ms(restarts[98]), 500.0, false);
}

/// A reader keeps the WAL from being cut; then the process is killed.
fn killed_with_a_long_log() -> (Arc<TempDir>, u64) {
    let mut daemon = Daemon::start();
    let reader = rusqlite::Connection::open(daemon.database()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM webhook_inbox").unwrap();
    let log = daemon.dir.path().join("data/inboxd.db-wal");
    let bytes = || log.metadata().unwrap().len();
    let mut number = 0;
    while bytes() < 32 << 20 {
        load::run_made(&daemon.address, 16, "l", number..number + 500);
        number += 500;
    }
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    let log_mib = bytes() >> 20;
    // a reader that closes last would move the WAL itself, so the reader is leaked
    std::mem::forget(reader);
    (Arc::clone(&daemon.dir), log_mib)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for name in ["inboxd.db", "inboxd.db-wal"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Whether the file's size slows the path down. A machine's speed changes from minute to minute, so the last of a
/// million events take turns with the first of a fresh file.
pub(crate) fn million() {
    const STEP: usize = 50_000;
    let daemon = Daemon::start();
    let part = |daemon: &Daemon, part: usize| {
        load::run_made(&daemon.address, 64, "k", part * STEP..(part + 1) * STEP)
    };
    let mut rates: Vec<_> = (0..15).map(|number| part(&daemon, number)).collect();
    let mut turns = Vec::new();
    for number in 15..20 {
        let beginning = part(&Daemon::start(), 0);
        let end = part(&daemon, number);
        turns.push((end / beginning, beginning));
        rates.push(end);
    }
    for (number, rate) in rates.iter().enumerate() {
        let beside = number.checked_sub(15).map(|turn| format!(", a fresh file {:.0}", turns[turn].1));
        let (from, to) = (number * STEP, (number + 1) * STEP);
        println!("events {from:>9} to {to:>9}: {rate:>7.0} events/s{}", beside.unwrap_or_default());
    }
    let file_mib = daemon.database().metadata().unwrap().len() >> 20;
    println!("the file has {file_mib} MiB; resident memory {:.1} MiB", daemon.status_mib("VmRSS"));
    println!(
        "{:<64} {:>9.2}",
        "the last 250,000 of 1,000,000 events / the first 250,000",
        crate::median(&rates[15..]) / crate::median(&rates[..5])
    );
    let turns: Vec<_> = turns.iter().map(|(ratio, _)| *ratio).collect();
    report("a file of a million events / a fresh one, by turns", crate::median(&turns), 0.8, true);
}
