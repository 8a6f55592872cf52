//! The daemon is killed, at exact points and at random ones, and started again: nothing acknowledged is
//! lost, nothing is done twice, and what is sent again has one effect.
//!
//! `INBOXD_KILLS=2000 cargo test --release --features failpoints --test crash random -- --nocapture` is the long run.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::print_stdout, reason = "what was skipped, and figures")]

mod support;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use support::truth::{self, ClientLog, Senders};
use support::{CONFIG, Daemon, HANG_TIME};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_inboxd");

/// The daemon in this folder, armed to die. `None`: it did so before it was ready.
#[cfg(feature = "failpoints")]
fn armed(dir: &Arc<TempDir>, failpoint: &str) -> Option<Daemon> {
    use std::os::unix::process::ExitStatusExt;
    let mut command = Command::new(BINARY);
    command.env("INBOXD_FAILPOINT", failpoint).stdin(Stdio::null());
    match Daemon::try_spawn(Arc::clone(dir), command) {
        Ok(daemon) => Some(daemon),
        Err((end, log)) => {
            assert_eq!(end.signal(), Some(9), "{failpoint}: {log}");
            None
        }
    }
}

fn database(dir: &TempDir) -> std::path::PathBuf {
    dir.path().join("data/inboxd.db")
}

/// Each of the first 10 hits of the point under load kills the daemon, and so do those before it in the start;
/// then everything is sent again.
#[cfg(feature = "failpoints")]
fn first_10_hits(point: &str, body_bytes: usize) {
    let mut under_load = 0;
    for hit in 1.. {
        if under_load == 10 {
            return;
        }
        let dir = Arc::new(Daemon::folder(CONFIG));
        let log = Arc::new(ClientLog::new(dir.path()));
        let senders = Senders::start(4, &log, body_bytes);
        if let Some(mut daemon) = armed(&dir, &format!("{point}:{hit}")) {
            senders.aim(&daemon.webhooks);
            assert_eq!(daemon.exit_signal(), Some(9), "{point}:{hit} did not end it");
            under_load += 1;
        }
        truth::check(&database(&dir), &log);
        let daemon = Daemon::in_dir(dir);
        senders.aim(&daemon.webhooks);
        senders.finish();
        truth::check(&daemon.database(), &log);
    }
}

#[test]
#[cfg(feature = "failpoints")]
fn a_kill_before_the_inbox_row_is_written_has_one_effect_in_the_end() {
    first_10_hits("inbox_insert_before", 0);
}

#[test]
#[cfg(feature = "failpoints")]
fn a_kill_after_the_inbox_row_is_written_has_one_effect_in_the_end() {
    first_10_hits("inbox_insert_after", 0);
}

#[test]
#[cfg(feature = "failpoints")]
fn a_kill_after_the_handler_has_one_effect_in_the_end() {
    first_10_hits("handler_after", 0);
}

#[test]
#[cfg(feature = "failpoints")]
fn a_kill_before_commit_has_one_effect_in_the_end() {
    first_10_hits("commit_before", 0);
}

#[test]
#[cfg(feature = "failpoints")]
fn a_kill_between_commit_and_answer_has_one_effect_in_the_end() {
    first_10_hits("commit_after", 0);
}

#[test]
#[cfg(feature = "failpoints")]
fn a_kill_around_a_checkpoint_has_one_effect_in_the_end() {
    first_10_hits("checkpoint_before", 500_000);
    first_10_hits("checkpoint_after", 500_000);
}

#[test]
#[cfg(feature = "failpoints")]
fn a_kill_in_the_recovery_of_a_start_loses_nothing() {
    let dir = Arc::new(Daemon::folder(CONFIG));
    let log = Arc::new(ClientLog::new(dir.path()));
    let senders = Senders::start(4, &log, 5_000);
    for point in ["recovery_before", "recovery_after"] {
        for hit in 1..=10 {
            let daemon = Daemon::in_dir(Arc::clone(&dir));
            senders.aim(&daemon.webhooks);
            senders.acknowledge_more(20);
            daemon.kill();
            let status = support::ended(
                &mut serve(&dir).env("INBOXD_FAILPOINT", format!("{point}:1")).spawn().unwrap(),
            );
            assert_eq!(status.code(), None, "{point} was not reached in start {hit}");
            truth::check(&database(&dir), &log);
        }
    }
    let daemon = Daemon::in_dir(dir);
    senders.aim(&daemon.webhooks);
    senders.finish();
    truth::check(&daemon.database(), &log);
}

/// A start of which nobody waits for readiness.
fn serve(dir: &Arc<TempDir>) -> Command {
    let mut command = Command::new(BINARY);
    command.args(["--config", "inboxd.toml", "serve"]).current_dir(dir.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// xorshift, seeded by the clock: the seed is printed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn time(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        Duration::from_micros(from_ms * 1_000 + self.below((to_ms - from_ms) * 1_000))
    }
}

/// What a long run is asked for.
fn number_from_env(name: &str, default: u64) -> u64 {
    #[allow(clippy::disallowed_methods, reason = "how long a test runs is no setting of the daemon")]
    std::env::var(name).ok().and_then(|typed| typed.parse().ok()).unwrap_or(default)
}

/// Kills of one file before a fresh one is begun.
const KILLS_PER_FILE: u64 = 200;

#[derive(Default)]
struct Figures {
    kills: u64,
    in_recovery: u64,
    stops: u64,
    files: u64,
    acknowledged: usize,
    events: usize,
    unanswered: usize,
    ready_after: Vec<Duration>,
}

#[test]
fn random_kills_under_load_lose_nothing_and_do_nothing_twice() {
    let kills = number_from_env("INBOXD_KILLS", 60);
    let seed = number_from_env("INBOXD_SEED", support::now_s().unsigned_abs() | 1);
    println!("{kills} kills, INBOXD_SEED={seed}");
    let mut random = Random(seed);
    let mut figures = Figures::default();
    while figures.kills < kills {
        let up_to = kills.min(figures.kills + KILLS_PER_FILE);
        one_file(&mut random, &mut figures, up_to, if kills > 100 { 300 } else { 100 });
    }
    figures.ready_after.sort();
    let p99 = figures.ready_after[figures.ready_after.len() * 99 / 100];
    println!(
        "{} kills ({} of them during start-up recovery) and {} stops over {} files, 8 senders: {} events, \
         {} acknowledgements, {} requests unanswered; lost 0, done twice 0; restart to ready p99 {p99:?}",
        figures.kills,
        figures.in_recovery,
        figures.stops,
        figures.files,
        figures.events,
        figures.acknowledged,
        figures.unanswered
    );
}

fn one_file(random: &mut Random, figures: &mut Figures, kills: u64, life_max_ms: u64) {
    let dir = Arc::new(Daemon::folder(CONFIG));
    let log = Arc::new(ClientLog::new(dir.path()));
    let senders = Senders::start(8, &log, 2_000);
    while figures.kills < kills {
        let started = Instant::now();
        let daemon = Daemon::in_dir(Arc::clone(&dir));
        figures.ready_after.push(started.elapsed());
        senders.aim(&daemon.webhooks);
        thread::sleep(random.time(3, life_max_ms));
        if random.below(10) == 0 {
            let stopping = Instant::now();
            assert_eq!(daemon.stop(), Some(0));
            assert!(stopping.elapsed() < HANG_TIME, "a stop took {:?}", stopping.elapsed());
            figures.stops += 1;
        } else {
            daemon.kill();
            figures.kills += 1;
        }
        if random.below(20) == 0 {
            let mut child = serve(&dir).spawn().unwrap();
            thread::sleep(random.time(0, 30));
            child.kill().unwrap();
            child.wait().unwrap();
            figures.kills += 1;
            figures.in_recovery += 1;
        }
        if figures.kills.is_multiple_of(50) {
            truth::check(&database(&dir), &log);
        }
    }
    let daemon = Daemon::in_dir(dir);
    senders.aim(&daemon.webhooks);
    senders.finish();
    let told = truth::check(&daemon.database(), &log);
    figures.files += 1;
    figures.events += told.sent.len();
    figures.acknowledged += told.acknowledgements;
    figures.unanswered += told.unanswered;
}
