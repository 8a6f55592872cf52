//! How fast rows leave the outbox: 8 dispatcher threads to a local sink, and a bare ureq loop beside it.
//!
//! `cargo bench --bench outbox [-- ROWS]`. Prints rows per second of both and their ratio. The bare loop runs
//! twice: with the deadline that each of our requests has, for which ureq starts a thread per request, and
//! without a deadline, which no production code should do.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use inboxd::config::{Config, MissingSecrets};
use inboxd::handlers::Registry;
use inboxd::internals::background::dispatcher::Dispatcher;
use inboxd::internals::background::poller::{Poller as _, Step, Tick};
use inboxd::internals::clock;
use inboxd::internals::store::open;
use inboxd::internals::store::outbox::{self, NewOperation};
use inboxd::internals::store::writer::{self, Writer};
use inboxd::internals::work::target::Target;
use ureq::Agent;

const THREADS: usize = 8;

/// As a destination's default.
const DEADLINE: Duration = Duration::from_secs(15);

fn main() {
    // cargo passes --bench
    let rows = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(20_000);
    let url = sink();
    let payload = format!(r#"{{"id":"evt_1","data":"{}"}}"#, "x".repeat(500));
    let mut ratios = [Vec::new(), Vec::new()];
    for round in 1..=3 {
        let bare = [Some(DEADLINE), None].map(|deadline| bare(&url, &payload, rows, deadline));
        let ours = dispatched(&url, &payload, rows);
        let percent = bare.map(|bare| ours * 100 / bare);
        println!(
            "round {round}: outbox {ours} rows/s, bare ureq {} requests/s, {} %; without a deadline {}, {} %",
            bare[0], percent[0], bare[1], percent[1]
        );
        ratios.iter_mut().zip(percent).for_each(|(ratios, percent)| ratios.push(percent));
    }
    let [with, without] = ratios.map(|mut ratios| {
        ratios.sort_unstable();
        ratios[1]
    });
    println!(
        "median ratio: {with} % of a bare ureq loop, {THREADS} threads each; {without} % of one without a deadline"
    );
}

fn per_second(count: usize, time: Duration) -> u128 {
    u128::try_from(count).unwrap() * 1_000_000 / time.as_micros().max(1)
}

/// The same number of requests by ureq alone, without a database: nothing shared, a connection per thread.
fn bare(url: &str, payload: &str, rows: usize, deadline: Option<Duration>) -> u128 {
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let agent: Agent = Agent::config_builder().timeout_global(deadline).build().into();
                while next.fetch_add(1, Ordering::Relaxed) < rows {
                    let mut answer = agent.post(url).send(payload).unwrap();
                    assert_eq!(answer.body_mut().read_to_string().unwrap(), "ok");
                }
            });
        }
    });
    per_second(rows, start.elapsed())
}

/// Every row claimed, sent and settled.
fn dispatched(url: &str, payload: &str, rows: usize) -> u128 {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("inboxd.db");
    let settings = writer::Settings::new(path.clone(), Duration::from_secs(2), 0);
    let (writer, handle) = Writer::new(open::open_writer(&path).unwrap(), settings).unwrap();
    let running = thread::spawn(move || writer.run());
    let config = format!("[destination.app]\nurl = \"{url}\"\nsign = \"none\"\nthreads = {THREADS}\n");
    std::fs::write(dir.path().join("inboxd.toml"), config).unwrap();
    let config =
        Config::load(Some(&dir.path().join("inboxd.toml")), MissingSecrets::Report, Registry::new().facts())
            .unwrap();
    let target = Target::new(config.into_parts().2.into_iter().next().unwrap(), &[]).unwrap();
    for from in (0..rows).step_by(1_000) {
        let payload = payload.to_owned();
        let enqueue = move |tx: &rusqlite::Transaction<'_>| {
            for n in from..rows.min(from + 1_000) {
                let object = format!("in_{n}");
                let operation = NewOperation {
                    destination: "app",
                    topic: "invoice.paid",
                    operation_key: &format!("billing:evt_{n}:forward:app"),
                    endpoint: "billing",
                    event_id: "evt_1",
                    object_id: Some(&object),
                    payload: payload.as_bytes(),
                    content_type: "application/json",
                    headers: None,
                    event_type: Some("invoice.paid"),
                    query: None,
                };
                outbox::enqueue(tx, &operation, clock::now_ms())?;
            }
            Ok(())
        };
        handle.run(enqueue).unwrap();
    }
    let dispatcher = Dispatcher::new(handle, Arc::new(target));
    let lease = AtomicUsize::new(0);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut tick = || {
                    let lease_id = format!("lease-{}", lease.fetch_add(1, Ordering::Relaxed));
                    Some(Tick { lease_id, now_ms: clock::now_ms(), steady_ms: clock::steady_ms(), random: 0 })
                };
                loop {
                    match dispatcher.steps(&mut tick) {
                        Step::Worked => {}
                        // nothing due for long: all is sent
                        Step::Idle(time) if time >= Duration::from_secs(1) => break,
                        Step::Idle(time) => thread::sleep(time),
                    }
                }
            });
        }
    });
    let time = start.elapsed();
    drop(dispatcher);
    running.join().unwrap().unwrap();
    let conn = rusqlite::Connection::open(&path).unwrap();
    let sql = "SELECT count(*) FROM outbox WHERE state = 'delivered'";
    let delivered: i64 = conn.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(usize::try_from(delivered), Ok(rows));
    per_second(rows, time)
}

/// Answers 200 to everything, on connections that stay open.
fn sink() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(stream));
        }
    });
    url
}

fn serve(stream: TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        let mut length = 0u64;
        loop {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let text = line.trim_end().to_ascii_lowercase();
            if text.is_empty() {
                break;
            }
            if let Some(value) = text.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).ok()?;
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").ok()?;
    }
}
