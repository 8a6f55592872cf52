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
