//! How fast a delivery is, as ratios within one run: they hold on a busy machine as well.
//!
//! `cargo bench` measures everything; `cargo bench --bench path -- ratios` (or `fsync`, `memory`, `start`,
//! `million`, `large`, `backlog`) one part; `large 10000000` sets the number
//! of rows. The files are made below `target/`: only a real disk gives figures of interest.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on should stop")]
#![allow(clippy::print_stdout, clippy::float_arithmetic, reason = "it prints rates and ratios")]
#![allow(missing_docs, reason = "a program, not a library")]

mod large;
mod load;
mod process;
mod slow_disk;
mod stack;

use std::time::{Duration, Instant};

use load::Events;
use rusqlite::Connection;
use stack::{Stack, Upstream};

/// Rounds of the whole comparison; each ratio is the median of its rounds.
const ROUNDS: usize = 3;

fn main() {
    let is_name = |arg: &String| !arg.starts_with('-') && arg.parse::<usize>().is_err();
    let wanted: Vec<_> = std::env::args().skip(1).filter(is_name).collect();
    let is_wanted = |part: &str| wanted.is_empty() || wanted.iter().any(|name| name == part);
    println!("machine: {} cores, files in {}", cores(), stack::base().display());
    let parts: [(&str, fn()); 8] = [
        ("ratios", ratios),
        ("writer", writer),
        ("fsync", slow_fsync),
        ("memory", process::memory),
        ("start", process::start),
        ("million", process::million),
        ("large", large::large),
        ("backlog", large::backlog),
    ];
    for (name, part) in parts {
        if is_wanted(name) {
            println!("\n== {name}");
            part();
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// One line of a table: what was measured, and how it compares with the bar.
pub(crate) fn report(what: &str, value: f64, bar: f64, at_least: bool) {
    let holds = if at_least { value >= bar } else { value <= bar };
    let (sign, word) = (if at_least { ">=" } else { "<=" }, if holds { "holds" } else { "FALLS SHORT" });
    println!("{what:<64} {value:>9.2}   bar {sign} {bar:<6} {word}");
}

/// Rates of one round, in events per second.
#[derive(Default)]
struct Round {
    raw_1: f64,
    raw_64: f64,
    writer: f64,
    verified: f64,
    whole_1: f64,
    whole_16: f64,
    whole_64: f64,
    ungrouped_64: f64,
    /// Processor time of an event, senders included, in microseconds: it hardly depends on what else runs.
    raw_64_us: f64,
    whole_64_us: f64,
}

fn ratios() {
    let mut rounds = Vec::new();
    let others = others_percent(|| rounds = (0..ROUNDS).map(round).collect());
    println!("other processes used {others:.0} % of the processors during the run");
    let rate = |what: &str, of: fn(&Round) -> f64| {
        let all: Vec<_> = rounds.iter().map(|round| format!("{:>7.0}", of(round))).collect();
        println!("{what:<64} {} events/s", all.join(" "));
    };
    rate("(a) raw SQLite, the same rows, 1 per transaction", |r| r.raw_1);
    rate("(a) raw SQLite, the same rows, 64 per transaction", |r| r.raw_64);
    rate("    the writer with 64 verified events queued, no HTTP", |r| r.writer);
    rate("(b) front + verification, no database, 64 conn.", |r| r.verified);
    rate("(c) whole path, 1 connection", |r| r.whole_1);
    rate("(c) whole path, 16 connections", |r| r.whole_16);
    rate("(c) whole path, 64 connections", |r| r.whole_64);
    rate("(d) whole path, 64 connections, group commit off", |r| r.ungrouped_64);
    let median = |of: fn(&Round) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    report("whole path, 64 connections / raw SQLite, 64", median(|r| r.whole_64 / r.raw_64), 0.30, true);
    report("whole path, 1 connection / raw SQLite, 1", median(|r| r.whole_1 / r.raw_1), 0.40, true);
    report("group commit on / off, 64 connections", median(|r| r.whole_64 / r.ungrouped_64), 3.0, true);
    println!(
        "{:<64} {:>9.1} and {:.1}",
        "processor time, µs per event: whole path with its senders; raw",
        median(|r| r.whole_64_us),
        median(|r| r.raw_64_us)
    );
    println!(
        "{:<64} {:>9.2}",
        "whole path, 64 connections / the same without a database",
        median(|r| r.whole_64 / r.verified)
    );
}

fn writer() {
    let before = processor_us();
    let rate = stack::writer_rate(&Events::new("q", 100_000));
    let cost = (processor_us() - before) / 100_000.0;
    println!(
        "the writer alone: {rate:.0} events/s, {cost:.1} µs per event, making and verifying it included"
    );
    let events = Events::new("r", 100_000);
    let before = processor_us();
    let rate = raw(&events, 64);
    println!(
        "raw, 64 per transaction: {rate:.0} events/s, {:.1} µs per event",
        (processor_us() - before) / 100_000.0
    );
}

fn round(number: usize) -> Round {
    let events = |name: &str, count: usize| Events::new(&format!("{name}{number}"), count);
    let whole = |name: &str, connections: usize, count: usize, batch_jobs_max: usize| {
        let stack = Stack::start(Upstream::Daemon { batch_jobs_max });
        let rate = load::run(&stack.address, connections, &events(name, count).signed());
        stack.stop(count);
        rate
    };
    let mut costs = Vec::new();
    let mut costing = |count: usize, run: &mut dyn FnMut() -> f64| {
        let before = processor_us();
        let rate = run();
        costs.push((processor_us() - before) / ratio(count, 1));
        rate
    };
    let grouped =
        inboxd::internals::store::writer::Settings::new(std::path::PathBuf::new(), Duration::ZERO, 0)
            .batch_jobs_max;
    let raw_events = events("rb", 60_000);
    let raw_64 = costing(60_000, &mut || raw(&raw_events, 64));
    drop(raw_events);
    let stack = Stack::start(Upstream::Daemon { batch_jobs_max: grouped });
    let requests = events("wc", 60_000).signed();
    let whole_64 = costing(60_000, &mut || load::run(&stack.address, 64, &requests));
    drop(requests);
    stack.stop(60_000);
    // compared runs are side by side, because a machine's speed changes from hour to hour
    let ungrouped_64 = whole("u", 64, 15_000, 1);
    Round {
        raw_1: raw(&events("ra", 8_000), 1),
        whole_1: whole("wa", 1, 8_000, grouped),
        raw_64,
        writer: stack::writer_rate(&events("q", 60_000)),
        whole_64,
        raw_64_us: costs[0],
        whole_64_us: costs[1],
        verified: {
            let stack = Stack::start(Upstream::Verifier);
            let rate = load::run(&stack.address, 64, &events("v", 60_000).signed());
            stack.stop(0);
            rate
        },
        whole_16: whole("wb", 16, 40_000, grouped),
        ungrouped_64,
    }
}

/// With every fsync 2 ms longer: how many events share one. The fsyncs of checkpoints are counted too.
fn slow_fsync() {
    slow_disk::install();
    slow_disk::delay(Duration::from_millis(2));
    let grouped =
        inboxd::internals::store::writer::Settings::new(std::path::PathBuf::new(), Duration::ZERO, 0)
            .batch_jobs_max;
    let run = |name: String, count: usize, batch_jobs_max: usize| {
        let requests = Events::new(&name, count).signed();
        let stack = Stack::start(Upstream::Daemon { batch_jobs_max });
        let before = slow_disk::syncs();
        let rate = load::run(&stack.address, 64, &requests);
        let synced = usize::try_from(slow_disk::syncs() - before).unwrap();
        stack.stop(count);
        (rate, synced)
    };
    let (mut per_sync, mut gains) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let count = 20_000;
        let (rate, synced) = run(format!("f{round}"), count, grouped);
        let (alone, _) = run(format!("g{round}"), 1_000, 1);
        println!(
            "(e) {count} events over 64 connections: {rate:.0} events/s, {synced} fsyncs; group commit off: {alone:.0} events/s"
        );
        per_sync.push(ratio(count, synced));
        gains.push(rate / alone);
    }
    slow_disk::delay(Duration::ZERO);
    println!("{:<64} {:>9.2}", "group commit on / off, every fsync + 2 ms", median(&gains));
    report("events per fsync, 64 connections, every fsync + 2 ms", median(&per_sync), 20.0, true);
}

/// The least that any program must do: the three rows of a payment, by prepared statements, in
/// the same schema with the same durability.
fn raw(events: &Events, batch: usize) -> f64 {
    let dir = tempfile::tempdir_in(stack::base()).unwrap();
    let conn = inboxd::internals::store::open::open_writer(&dir.path().join("inboxd.db")).unwrap();
    conn.pragma_update(None, "wal_autocheckpoint", 1000).unwrap();
    let started = Instant::now();
    for chunk in events.all.chunks(batch) {
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        for event in chunk {
            insert(&conn, event);
        }
        conn.execute_batch("COMMIT").unwrap();
    }
    rate(events.all.len(), started)
}

fn insert(conn: &Connection, event: &load::Event) {
    let inbox = "INSERT INTO webhook_inbox (provider, endpoint, event_id, event_type, object_id, livemode,
            api_version, headers, payload, body_sha256, state, attempts, available_at_ms, received_at_ms,
            processed_at_ms)
        VALUES ('stripe', 'billing', ?1, 'invoice.paid', ?2, 0, '2025-03-31.basil', '{}', ?3, ?4, 'done', 1, ?5, ?5, ?5)";
    let invoice = "INSERT INTO invoices (id, customer_id, status, currency, amount_paid, paid_at_ms,
            created_at_ms, updated_at_ms)
        VALUES (?1, 'cus_1', 'paid', 'eur', 4200, ?2, ?2, ?2)";
    let entry =
        "INSERT INTO ledger_entries (entry_key, invoice_id, kind, amount, currency, event_id, endpoint,
            booked_at_ms, object)
        VALUES (?1, ?2, 'payment', 4200, 'eur', ?3, 'billing', ?4, ?5)";
    let now_ms = 1_764_000_000_000_i64;
    conn.prepare_cached(inbox)
        .unwrap()
        .execute((&event.id, &event.invoice, &event.body, [7_u8; 32], now_ms))
        .unwrap();
    conn.prepare_cached(invoice).unwrap().execute((&event.invoice, now_ms)).unwrap();
    let (key, object) = (format!("payment:{}", event.invoice), format!("invoice:{}", event.invoice));
    conn.prepare_cached(entry).unwrap().execute((key, &event.invoice, &event.id, now_ms, &object)).unwrap();
}

/// How much of the machine other processes have used while `during` ran, in percent.
fn others_percent(during: impl FnOnce()) -> f64 {
    let busy = || {
        let stat = std::fs::read_to_string("/proc/stat").unwrap();
        let ticks: Vec<f64> =
            stat.lines().next().unwrap().split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal
        let idle = ticks[3] + ticks[4];
        (ticks[..8].iter().sum::<f64>(), idle, processor_us() / 10_000.0)
    };
    let before = busy();
    during();
    let after = busy();
    let [total, idle, own] = [after.0 - before.0, after.1 - before.1, after.2 - before.2];
    (total - idle - own) / total * 100.0
}

/// Processor time of this process so far.
fn processor_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
    // a tick is 10 ms on every Linux
    ticks.map(|ticks| ticks.parse::<f64>().unwrap() * 10_000.0).sum()
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn ratio(a: usize, b: usize) -> f64 {
    a as f64 / b as f64
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn rate(count: usize, since: Instant) -> f64 {
    count as f64 / since.elapsed().as_secs_f64()
}
