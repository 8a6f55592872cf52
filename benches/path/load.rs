//! The senders: events as Stripe writes them, signed, over keep-alive connections.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use hmac::{Hmac, KeyInit, Mac};
use rustix::event::{PollFd, PollFlags, poll};
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

/// The value of `Stripe-Signature`.
pub(crate) fn signature(body: &str, t: i64) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(t.to_string().as_bytes());
    mac.update(b".");
    mac.update(body.as_bytes());
    let mut value = format!("t={t},v1=");
    for byte in mac.finalize().into_bytes() {
        write!(value, "{byte:02x}").unwrap();
    }
    value
}

pub(crate) fn request(body: &str, t: i64) -> Vec<u8> {
    let signature = signature(body, t);
    format!(
        "POST /webhooks/stripe HTTP/1.1\r\nHost: hooks.example.com\r\nUser-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\nContent-Type: application/json; charset=utf-8\r\nStripe-Signature: {signature}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub(crate) fn now_s() -> i64 {
    inboxd::internals::clock::now_ms() / 1000
}

/// Sends all requests over so many connections, one at a time on each; events per second.
pub(crate) fn run(address: &str, connections: usize, requests: &[Vec<u8>]) -> f64 {
    let mut next = requests.iter();
    run_each(address, connections, || next.next(), requests.len())
}

/// As [`run`], with requests that are made when they are sent.
pub(crate) fn run_made(address: &str, connections: usize, run: &str, numbers: std::ops::Range<usize>) -> f64 {
    let (count, t) = (numbers.len(), now_s());
    let mut requests = numbers.map(|number| request(&event(run, number).body, t));
    run_each(address, connections, || requests.next(), count)
}

/// One thread waits for all connections at once, so that the senders cost as little as they can.
fn run_each<R: AsRef<[u8]>>(
    address: &str,
    connections: usize,
    mut next: impl FnMut() -> Option<R>,
    count: usize,
) -> f64 {
    let mut open: Vec<_> = (0..connections).map(|_| Connection::open(address)).collect();
    let started = Instant::now();
    open.retain_mut(|connection| next().is_some_and(|request| connection.send(request.as_ref())));
    while !open.is_empty() {
        let mut waiting: Vec<_> =
            open.iter().map(|connection| PollFd::new(&connection.stream, PollFlags::IN)).collect();
        poll(&mut waiting, None).unwrap();
        let mut ready: Vec<_> = waiting.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.drain(..);
        open.retain_mut(|connection| {
            !ready.next().unwrap()
                || !connection.take_answer()
                || next().is_some_and(|request| connection.send(request.as_ref()))
        });
    }
    crate::rate(count, started)
}

struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, answer: Vec::with_capacity(1024) }
    }

    fn send(&mut self, request: &[u8]) -> bool {
        self.stream.write_all(request).unwrap();
        true
    }

    /// Reads what has come; whether that completes the answer, which must be a 200.
    fn take_answer(&mut self) -> bool {
        let mut room = [0; 1024];
        let count = self.stream.read(&mut room).unwrap();
        assert!(count > 0, "the connection ended");
        self.answer.extend_from_slice(&room[..count]);
        let text = std::str::from_utf8(&self.answer).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            return false;
        };
        let length = head.lines().filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
        });
        if body.len() < length.unwrap() {
            return false;
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "every event of the bench is good: {text}");
        self.answer.clear();
        true
    }
}
