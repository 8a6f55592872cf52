//! A start on a large file and a long backlog of async events, compared with a fresh file and a short backlog.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tempfile::TempDir;

use crate::load;
use crate::median;
use crate::process::{BINARY, Daemon};
use crate::report;
use crate::stack;

/// Rows of the large file, unless the command line has a number.
const ROWS: usize = 1_000_000;

/// The newest of these rows have their bodies; the others look purged.
const ROWS_WITH_BODY: usize = 100_000;

/// Rows of one transaction while a file is filled.
const STEP: usize = 100_000;

/// A daemon that starts on a large file, by turns with one on a fresh file.
pub(crate) fn large() {
    const TURN: usize = 30_000;
    let rows = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(ROWS);
    let dir = made();
    let filled = Instant::now();
    fill(&dir, rows);
    let file_mib = dir.path().join("data/inboxd.db").metadata().unwrap().len() >> 20;
    println!("{rows} events in {file_mib} MiB, made in {:.0} s", filled.elapsed().as_secs_f64());
    let mut ratios = Vec::new();
    let mut large = Daemon::spawn(dir, Command::new(BINARY));
    println!("{:<64} {:>9.2}", "start to ready, ms", large.ready_after.as_secs_f64() * 1000.0);
    for turn in 0..5 {
        let beginning = load::run_made(&Daemon::start().address, 64, "f", 0..TURN);
        let rate = load::run_made(&large.address, 64, "g", turn * TURN..(turn + 1) * TURN);
        println!("events/s after the start: {rate:>7.0}, a fresh file {beginning:>7.0}");
        ratios.push(rate / beginning);
        if turn == 2 {
            large = Daemon::spawn(large.stop(), Command::new(BINARY));
        }
    }
    report("a file of that size after its start / a fresh one, by turns", median(&ratios), 0.9, true);
    let status = Instant::now();
    let ran = Command::new(BINARY)
        .args(["--config", "inboxd.toml", "status"])
        .current_dir(large.dir.path())
        .output()
        .unwrap();
    assert!(!ran.stdout.is_empty(), "{ran:?}");
    println!("{:<64} {:>9.2}", "inboxd status, ms", status.elapsed().as_secs_f64() * 1000.0);
}

/// How fast the workers work off events that wait when the daemon starts.
pub(crate) fn backlog() {
    let mut ratios = Vec::new();
    let mut rates = Vec::new();
    for _ in 0..3 {
        let (short, long) = (work_off(1_000), work_off(20_000));
        println!("a backlog of 1,000: {short:>7.0} events/s; of 20,000: {long:>7.0} events/s");
        ratios.push(long / short);
        rates.push(long);
    }
    report("a backlog of 20,000 / of 1,000", median(&ratios), 0.9, true);
    report("events/s of a backlog of 20,000", median(&rates), 3_000.0, true);
}

fn work_off(count: usize) -> f64 {
    let dir = made();
    let config = stack::CONFIG.replace("handlers =", "mode = \"async\"\nhandlers =");
    std::fs::write(dir.path().join("inboxd.toml"), config).unwrap();
    let conn = Connection::open(dir.path().join("data/inboxd.db")).unwrap();
    wait(&conn, count);
    let daemon = Daemon::spawn(dir, Command::new(BINARY));
    let started = Instant::now();
    let waiting =
        "SELECT coalesce(sum(events), 0) FROM webhook_counts WHERE state IN ('pending', 'processing')";
    let mut waiting = conn.prepare(waiting).unwrap();
    while waiting.query_row([], |row| row.get::<_, i64>(0)).unwrap() > 0 {
        assert!(started.elapsed() < Duration::from_secs(600), "the backlog is not worked off");
        std::thread::sleep(Duration::from_millis(2));
    }
    let rate = crate::rate(count, started);
    let done = "SELECT sum(events) FROM webhook_counts WHERE state = 'done'";
    let done: i64 = conn.query_row(done, [], |row| row.get(0)).unwrap();
    assert_eq!(usize::try_from(done).unwrap(), count);
    drop(daemon);
    rate
}

/// A folder with a database as a start makes it.
fn made() -> Arc<TempDir> {
    Daemon::start().stop()
}

/// Events that wait for a worker.
fn wait(conn: &Connection, count: usize) {
    let insert = "INSERT INTO webhook_inbox (provider, endpoint, event_id, event_type, object_id, livemode, headers, payload,
                                             body_sha256, state, available_at_ms, received_at_ms)
                  VALUES ('stripe', 'billing', ?1, 'invoice.paid', ?2, 0, '{}', ?3, zeroblob(32), 'pending', ?4, ?4)";
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    let now_ms = inboxd::internals::clock::now_ms();
    for number in 0..count {
        let load::Event { id, invoice, body } = load::event("b", number);
        conn.prepare_cached(insert).unwrap().execute((id, invoice, body, now_ms)).unwrap();
    }
    conn.execute_batch("COMMIT").unwrap();
}

/// Paid invoices of the last 400 days, as the daemon would have written them.
fn fill(dir: &TempDir, rows: usize) {
    let conn = Connection::open(dir.path().join("data/inboxd.db")).unwrap();
    conn.execute_batch(
        "PRAGMA synchronous = OFF; PRAGMA cache_size = -500000; PRAGMA wal_autocheckpoint = 20000",
    )
    .unwrap();
    let now_ms = inboxd::internals::clock::now_ms();
    let body = load::event("x", 0).body;
    for from in (0..rows).step_by(STEP) {
        let to = (from + STEP).min(rows);
        let bodies_from = rows.saturating_sub(ROWS_WITH_BODY);
        let source = format!(
            "WITH RECURSIVE n (i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {to}),
                  k (i, k, at) AS (SELECT i, printf('1%08d2eZvKYlo2C%08x', i / 200, (i * 2654435761) % 4294967296),
                                          {now_ms} - 34560000000 + i * 34560000000 / {rows} FROM n)"
        );
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        conn.execute(
            &format!(
                "{source} INSERT INTO webhook_inbox (provider, endpoint, event_id, event_type, object_id, livemode,
                                                     api_version, headers, payload, body_sha256, state, attempts,
                                                     available_at_ms, received_at_ms, processed_at_ms)
                 SELECT 'stripe', 'billing', 'evt_' || k, 'invoice.paid', 'in_' || k, 0, '2025-03-31.basil', '{{}}',
                        CASE WHEN i >= {bodies_from} THEN ?1 END, randomblob(32), 'done', 1, at, at, at FROM k"
            ),
            [&body],
        )
        .unwrap();
        conn.execute_batch(&format!(
            "{source} INSERT INTO invoices (id, customer_id, status, currency, amount_paid, paid_at_ms, created_at_ms, updated_at_ms)
             SELECT 'in_' || k, 'cus_1', 'paid', 'eur', 4200, at, at, at FROM k;
             {source} INSERT INTO ledger_entries (entry_key, invoice_id, kind, amount, currency, event_id, endpoint, booked_at_ms, object)
             SELECT 'payment:in_' || k, 'in_' || k, 'payment', 4200, 'eur', 'evt_' || k, 'billing', at, 'invoice:in_' || k FROM k;
             COMMIT"
        ))
        .unwrap();
    }
    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
}
