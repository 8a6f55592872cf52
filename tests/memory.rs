//! The memory of the real binary, as the system counts it: large bodies, of strangers and of genuine senders.

#![allow(clippy::unwrap_used, reason = "the rig of these tests fails by panicking")]

mod support;

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::thread;

use rustix::net::{AddressFamily, SocketAddrV4, SocketType, bind, connect, socket};
use support::{Daemon, HANG_TIME};

/// The shipped unit's `MemoryMax`.
const UNIT_MIB: usize = 512;

/// What is to be left when the load is over.
const RESTING_MIB: usize = 64;

/// One figure of `/proc/PID/status`, in MiB.
fn mib(daemon: &Daemon, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

fn peak_mib(daemon: &Daemon) -> usize {
    mib(daemon, "VmHWM:")
}

fn rests(daemon: &Daemon) {
    daemon.wait_for("its memory is given back", || mib(daemon, "VmRSS:") < RESTING_MIB);
}

#[test]
fn complete_bodies_of_strangers_need_no_more_memory_than_their_budget() {
    for (connections, each) in [(1, 4), (2, 3), (16, 2)] {
        let daemon = Daemon::start();
        let body = vec![b'0'; 25_000_000];
        thread::scope(|scope| {
            for _ in 0..connections {
                scope.spawn(|| {
                    for _ in 0..each {
                        let wrong = format!("X-Hub-Signature-256: sha256={}", "0".repeat(64));
                        // one that finds no memory is cut off while it sends
                        let answer = daemon.client().try_post("/webhooks/github", &[&wrong], &body);
                        assert!(matches!(answer, None | Some((400 | 503, _))), "{answer:?}");
                    }
                });
            }
        });
        let peak = peak_mib(&daemon);
        assert!(peak < UNIT_MIB / 3, "{peak} MiB with {connections} connections");
        rests(&daemon);
    }
}

#[test]
fn unfinished_bodies_from_five_hundred_addresses_need_no_more_memory_than_their_budget() {
    let daemon = Daemon::start();
    let port = daemon.webhooks.rsplit(':').next().unwrap().parse().unwrap();
    let piece = vec![b'0'; 1 << 20];
    let held: Vec<_> = (0..500)
        .map(|n: u16| {
            let [high, low] = n.to_be_bytes();
            let mut stream = from_address(Ipv4Addr::new(127, 77, 1 + high, 1 + low % 250), port);
            stream.set_nonblocking(true).unwrap();
            stream.write_all(b"POST /webhooks/github HTTP/1.1\r\nContent-Length: 25000000\r\n\r\n").unwrap();
            stream
        })
        .collect();
    for _ in 0..10 {
        for mut stream in &held {
            // as much as it takes; one that had to give way takes nothing more
            drop(stream.write(&piece));
        }
    }
    assert_eq!(daemon.client().get("/livez").0, 200);
    let peak = peak_mib(&daemon);
    assert!(peak < UNIT_MIB / 2, "{peak} MiB");
    drop(held);
    rests(&daemon);
}

fn from_address(source: Ipv4Addr, port: u16) -> TcpStream {
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &SocketAddrV4::new(source, 0)).unwrap();
    connect(&fd, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).unwrap();
    let stream = TcpStream::from(fd);
    stream.set_read_timeout(Some(HANG_TIME)).unwrap();
    stream
}

#[test]
fn the_worst_json_of_a_genuine_sender_fits_into_the_memory_of_the_unit() {
    let config = support::CONFIG
        .replace("disk_free_min = 0", "disk_free_min = 0\nhandler_timeout = \"1m\"")
        .replace("provider = \"github\"", "provider = \"github\"\nmode = \"sync\"\nhandlers = [\"sql:sql\"]");
    let files = [
        (
            "sql/schema.sql",
            "CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, bytes INTEGER, objects INTEGER) STRICT;",
        ),
        (
            "sql/push.sql",
            "INSERT INTO seen VALUES (:id, length(:event), json_array_length(:object -> '$.many'));",
        ),
    ];
    let daemon = Daemon::with_files(&config, &files);
    let count = 3_000_000;
    let body = format!(r#"{{"many":[{}0]}}"#, r#"{"a":1},"#.repeat(count));
    let headers = [&*support::github_signature(&body), "X-GitHub-Event: push", "X-GitHub-Delivery: 1"];
    let answer = daemon.client().post("/webhooks/github", &headers, &body);
    assert_eq!(answer, (200, r#"{"outcome":"processed"}"#.to_owned()), "{}", daemon.log());
    let seen = daemon.text("SELECT bytes || ' ' || objects FROM seen");
    assert_eq!(seen, format!("{} {}", body.len(), count + 1));
    let peak = peak_mib(&daemon);
    assert!(peak < UNIT_MIB * 3 / 4, "{peak} MiB");
    rests(&daemon);
}

#[test]
fn what_is_parsed_before_the_signature_is_known_stays_small() {
    let config =
        support::CONFIG.replace("provider = \"github\"", "provider = \"mailgun\"\nhandlers = [\"sql:sql\"]");
    let daemon = Daemon::with_files(&config, &[("sql/_default.sql", "SELECT 1;")]);
    let many = r#"{"a":1},"#.repeat(120_000);
    // where nobody reads it, and where the signature is looked for
    for (token, data) in [("\"t\"".to_owned(), format!("[{many}0]")), (format!("[{many}0]"), "0".to_owned())]
    {
        let signature = "0".repeat(64);
        let body = format!(
            r#"{{"signature":{{"token":{token},"timestamp":"1","signature":"{signature}"}},"event-data":{data}}}"#
        );
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let json = "Content-Type: application/json";
                    assert_eq!(daemon.client().post("/webhooks/github", &[json], &body).0, 400);
                });
            }
        });
    }
    let peak = peak_mib(&daemon);
    assert!(peak < UNIT_MIB / 4, "{peak} MiB");
}
