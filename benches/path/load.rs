//! The senders: events as Stripe writes them, signed, over keep-alive connections.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

pub(crate) const SECRET: &str = "whsec_a_secret_of_the_bench";

/// Bytes of a body: an ordinary invoice.
const BODY_BYTES: usize = 2048;

pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) invoice: String,
    pub(crate) body: String,
}

/// A run's events, each about an invoice of its own.
pub(crate) struct Events {
    pub(crate) all: Vec<Event>,
}

impl Events {
    pub(crate) fn new(run: &str, count: usize) -> Self {
        Self { all: (0..count).map(|number| event(run, number)).collect() }
    }

    pub(crate) fn signed(&self) -> Vec<Vec<u8>> {
        let t = now_s();
        self.all.iter().map(|event| request(&event.body, t)).collect()
    }
}

/// Ids like Stripe's: they begin with the time and the account, and end at random.
pub(crate) fn event(run: &str, number: usize) -> Event {
    let second = number / 200;
    let random = (number as u64 ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let id = format!("evt_1{second:06}2eZvKYlo2C{random:016x}{run}");
    let invoice = format!("in_1{second:06}2eZvKYlo2C{random:016x}{run}");
    let mut body = format!(
        r#"{{"id":"{id}","object":"event","api_version":"2025-03-31.basil","created":1764000000,"livemode":false,"pending_webhooks":1,"type":"invoice.paid","data":{{"object":{{"id":"{invoice}","object":"invoice","customer":"cus_1","currency":"eur","status":"paid","amount_due":4200,"amount_paid":4200,"amount_remaining":0,"total":4200,"lines":{{"object":"list","data":["#
    );
    let mut line = 0;
    while body.len() < BODY_BYTES - 200 {
        let comma = if line == 0 { "" } else { "," };
        write!(body, r#"{comma}{{"id":"il_{line:020}","object":"line_item","amount":4200,"currency":"eur","description":"A seat for a month","quantity":1,"proration":false}}"#).unwrap();
        line += 1;
    }
    write!(
        body,
        r#"]}},"metadata":{{"note":"{:width$}"}}}}}}}}"#,
        "",
        width = BODY_BYTES.saturating_sub(body.len() + 32)
    )
    .unwrap();
    Event { id, invoice, body }
}

pub(crate) fn request(body: &str, t: i64) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(t.to_string().as_bytes());
    mac.update(b".");
    mac.update(body.as_bytes());
    let mut v1 = String::with_capacity(64);
    for byte in mac.finalize().into_bytes() {
        write!(v1, "{byte:02x}").unwrap();
    }
    format!(
        "POST /webhooks/stripe HTTP/1.1\r\nHost: hooks.example.com\r\nUser-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\nContent-Type: application/json; charset=utf-8\r\nStripe-Signature: t={t},v1={v1}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub(crate) fn now_s() -> i64 {
    inboxd::clock::now_ms() / 1000
}

/// Sends all requests over so many connections, one at a time on each; events per second.
pub(crate) fn run(address: &str, connections: usize, requests: &[Vec<u8>]) -> f64 {
    let next = AtomicUsize::new(0);
    run_each(address, connections, || requests.get(next.fetch_add(1, Ordering::Relaxed)), requests.len())
}

/// As [`run`], with requests that are made when they are sent.
pub(crate) fn run_made(address: &str, connections: usize, run: &str, numbers: std::ops::Range<usize>) -> f64 {
    let (next, count, t) = (AtomicUsize::new(numbers.start), numbers.len(), now_s());
    let make = || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        (number < numbers.end).then(|| request(&event(run, number).body, t))
    };
    run_each(address, connections, make, count)
}

fn run_each<R: AsRef<[u8]>>(
    address: &str,
    connections: usize,
    next: impl Fn() -> Option<R> + Sync,
    count: usize,
) -> f64 {
    let barrier = Barrier::new(connections + 1);
    std::thread::scope(|scope| {
        for _ in 0..connections {
            scope.spawn(|| {
                let mut connection = Connection::open(address);
                barrier.wait();
                while let Some(request) = next() {
                    let status = connection.send(request.as_ref());
                    assert_eq!(status, 200, "every event of the bench is good");
                }
                barrier.wait();
            });
        }
        barrier.wait();
        let started = Instant::now();
        barrier.wait();
        crate::rate(count, started)
    })
}

struct Connection {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Connection {
    fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream), line: String::new() }
    }

    fn send(&mut self, request: &[u8]) -> u16 {
        self.stream.get_mut().write_all(request).unwrap();
        let (mut status, mut length) = (0, 0);
        loop {
            self.line.clear();
            assert!(self.stream.read_line(&mut self.line).unwrap() > 0, "the connection ended");
            let line = self.line.trim_end();
            if line.is_empty() {
                break;
            }
            if status == 0 {
                status = line.split(' ').nth(1).unwrap().parse().unwrap();
            } else if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = [0; 512];
        self.stream.read_exact(&mut body[..length]).unwrap();
        status
    }
}
