//! The latest deliveries that were refused, kept in memory for whoever finds out why.
//!
//! Off unless `[debug] keep_refused` says so. They are what strangers sent as well: bounded in number and bytes, never
//! written to a disk, and gone with the process. What is shown of them has no signature and no credential; they are
//! judged as they came.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::signature::{Delivery, Headers, Rejection};
use crate::verify::{Report, Verifier, report_of};
use crate::wake::lock;

/// A larger body is not kept.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Bodies and heads together.
const BYTES_MAX: usize = 8 << 20;

/// Requests of which a line is kept, whether or not they are kept whole.
pub const LINES_KEPT: usize = 1_000;

/// Of a path or method that a stranger chose, so many characters are kept.
const CHARS_KEPT: usize = 200;

static LINES: Mutex<VecDeque<Line>> = Mutex::new(VecDeque::new());

/// What is kept of every refused request: never a header, a query or a body.
#[derive(Debug, Clone)]
pub struct Line {
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// The endpoint's name, where the path leads to one.
    pub endpoint: Option<String>,
    /// What was answered.
    pub status: u16,
    /// The word of the answer.
    pub reason: &'static str,
    /// e.g. `POST`
    pub method: String,
    /// Without the query.
    pub path: String,
    /// The client.
    pub peer: Option<IpAddr>,
    /// Of the body, as far as it was read.
    pub body_bytes: usize,
}

/// Keeps a line; the oldest makes room for it.
pub fn note(mut line: Line) {
    for text in [&mut line.method, &mut line.path] {
        if let Some((end, _)) = text.char_indices().nth(CHARS_KEPT) {
            text.truncate(end);
        }
    }
    let mut lines = lock(&LINES);
    if lines.len() >= LINES_KEPT {
        lines.pop_front();
    }
    lines.push_back(line);
}

/// The lines of the latest refused requests, the oldest first.
pub fn latest() -> Vec<Line> {
    lock(&LINES).iter().cloned().collect()
}

/// One delivery that was refused.
#[derive(Debug)]
pub struct Refused {
    /// Counted from 1 since the start.
    pub number: u64,
    /// The endpoint's name.
    pub endpoint: String,
    received_at_ms: i64,
    peer: Option<IpAddr>,
    method: String,
    url: String,
    headers: Headers,
    /// `None` where it was too large.
    body: Option<Vec<u8>>,
    body_bytes: usize,
    reason: &'static str,
}

/// What the HTTP side knows of a delivery that it refuses.
#[derive(Debug)]
pub struct Delivered<'a> {
    /// The endpoint's name.
    pub endpoint: &'a str,
    /// The client.
    pub peer: Option<IpAddr>,
    /// As the verifier was given it.
    pub delivery: Delivery<'a, Vec<u8>>,
    /// When it came, in milliseconds since the epoch.
    pub received_at_ms: i64,
}

/// The latest ones, so many at most.
#[derive(Debug)]
pub struct Kept {
    deliveries_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_number: u64,
    bytes: usize,
    deliveries: VecDeque<Arc<Refused>>,
}

impl Kept {
    /// Keeps so many at most; 0 keeps none.
    pub fn new(deliveries_max: usize) -> Self {
        Self { deliveries_max, state: Mutex::default() }
    }

    /// Whether any are kept.
    pub fn is_on(&self) -> bool {
        self.deliveries_max > 0
    }

    /// Keeps one more; the oldest make room for it.
    pub fn keep(&self, delivered: Delivered<'_>, rejection: &Rejection) {
        if !self.is_on() {
            return;
        }
        let Delivered { endpoint, peer, delivery, received_at_ms } = delivered;
        let Delivery { method, url, headers, mut body } = delivery;
        let body_bytes = body.len();
        body.shrink_to_fit();
        let mut state = lock(&self.state);
        state.last_number += 1;
        let refused = Refused {
            number: state.last_number,
            endpoint: endpoint.to_owned(),
            received_at_ms,
            peer,
            method: method.to_owned(),
            url: url.to_owned(),
            headers: headers.clone(),
            body: (body_bytes <= BODY_BYTES_MAX).then_some(body),
            body_bytes,
            reason: rejection.reason(),
        };
        state.bytes += refused.bytes();
        state.deliveries.push_back(Arc::new(refused));
        while state.deliveries.len() > self.deliveries_max || state.bytes > BYTES_MAX {
            let Some(oldest) = state.deliveries.pop_front() else { break };
            state.bytes -= oldest.bytes();
        }
    }

    /// The oldest first.
    pub fn all(&self) -> Vec<Arc<Refused>> {
        lock(&self.state).deliveries.iter().map(Arc::clone).collect()
    }
}

impl Refused {
    fn bytes(&self) -> usize {
        let head: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        head + self.method.len() + self.url.len() + self.body.as_ref().map_or(0, Vec::len)
    }

    /// A line of a list: `number`, `received_at_ms`, `endpoint`, `peer` (null for a local client), `method`, `path`,
    /// `reason`, `body_bytes`.
    pub fn line(&self) -> Value {
        // a query may hold a token
        let path = self.url.split('?').next().unwrap_or_default();
        json!({
            "number": self.number,
            "received_at_ms": self.received_at_ms,
            "endpoint": self.endpoint,
            "peer": self.peer.map(|ip| ip.to_string()),
            "method": self.method,
            "path": path,
            "reason": self.reason,
            "body_bytes": self.body_bytes,
        })
    }

    /// The same with `headers`, a list of name and value (`***` for those that may be credentials), and the body:
    /// `body` as text or `body_base64`, or neither with `body_missing`, the reason why.
    pub fn whole(&self, verifier: &Verifier) -> Value {
        let shown = |(name, value): (&str, &str)| {
            let value = if verifier.scheme().is_shown(name) { value } else { "***" };
            json!([name, value])
        };
        let mut whole = self.line();
        whole["headers"] = self.headers.iter().map(shown).collect();
        match &self.body {
            None => whole["body_missing"] = json!("it was larger than 1 MiB"),
            Some(_) if verifier.scheme().signature_in_body() => {
                whole["body_missing"] = json!("the signature stands in it");
            }
            Some(body) => match std::str::from_utf8(body) {
                Ok(text) => whole["body"] = json!(text),
                Err(_) => whole["body_base64"] = json!(STANDARD.encode(body)),
            },
        }
        whole
    }

    /// Judges it again, as of when it came. `None` where the body was too large to be kept.
    pub fn report(&self, verifier: &Verifier) -> Option<Report> {
        let (method, url, headers) = (self.method.as_str(), self.url.as_str(), &self.headers);
        let delivery = Delivery { method, url, headers, body: self.body.as_deref()? };
        Some(report_of(verifier, &[], &delivery, self.received_at_ms.div_euclid(1000)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(kept: &Kept, body: Vec<u8>) {
        let headers = Headers::from_iter([("X-Signature", "s")]);
        let delivery = Delivery { method: "POST", url: "/a?token=t", headers: &headers, body };
        let delivered = Delivered { endpoint: "a", peer: None, delivery, received_at_ms: 1_000 };
        kept.keep(delivered, &Rejection::SignatureMismatch);
    }

    fn numbers(kept: &Kept) -> Vec<u64> {
        kept.all().iter().map(|refused| refused.number).collect()
    }

    #[test]
    fn the_latest_are_kept_within_their_number_and_their_bytes() {
        let kept = Kept::new(20);
        for _ in 0..25 {
            keep(&kept, b"{}".to_vec());
        }
        assert_eq!(numbers(&kept), (6..=25).collect::<Vec<_>>());
        for _ in 0..9 {
            keep(&kept, vec![b'x'; BODY_BYTES_MAX]);
        }
        assert_eq!(numbers(&kept), (28..=34).collect::<Vec<_>>());
        keep(&kept, vec![b'x'; BODY_BYTES_MAX + 1]);
        let last = kept.all().pop().unwrap();
        assert_eq!((last.body.as_ref(), last.body_bytes), (None, BODY_BYTES_MAX + 1));
    }

    #[test]
    fn none_is_kept_where_that_is_off_and_no_query_is_shown() {
        let kept = Kept::new(0);
        keep(&kept, Vec::new());
        assert!(kept.all().is_empty());
        let kept = Kept::new(1);
        keep(&kept, Vec::new());
        assert_eq!(kept.all()[0].line()["path"], "/a");
    }
}
