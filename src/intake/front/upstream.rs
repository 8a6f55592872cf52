//! The private side: what the front asks of tiny_http, and its whole answer.
//!
//! Connections are kept and used again. tiny_http is never shown anything but a complete request, and
//! never waits for anyone but us.

use std::cmp::Ordering;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::Bounds;
use super::relay::{self, Relay, Request};
use super::stream::Stream;
use crate::wake::lock;

pub(super) struct Upstream {
    relay: Arc<Relay>,
    places: Arc<Places>,
    queue_time: Duration,
    answer_time: Duration,
}

/// Why there is no answer.
pub(super) enum Failure {
    /// No place became free in time, or too many wait for one; nothing was sent.
    Busy,
    /// tiny_http does not accept any more; nothing was sent.
    Dead(io::Error),
    /// The connection failed; the request may have been handled.
    Failed(io::Error),
    /// tiny_http still has the request.
    Late(Unanswered),
}

impl Upstream {
    /// With so many places, and at most `waiting_max` requests that wait for one.
    pub(super) fn new(relay: Arc<Relay>, places_max: usize, waiting_max: usize, bounds: &Bounds) -> Self {
        let free = Free { places: places_max, kept: Vec::new(), waiting: 0 };
        let places = Arc::new(Places { free: Mutex::new(free), freed: Condvar::new(), waiting_max });
        Self { relay, places, queue_time: bounds.queue_time, answer_time: bounds.answer_time }
    }

    /// Has a request answered, which is made when there is a place for it: the whole answer, or as much as
    /// tiny_http has written of it.
    pub(super) fn exchange(&self, request: impl FnOnce() -> Request) -> Result<Vec<u8>, Failure> {
        let mut place = Place::take(&self.places, self.queue_time).ok_or(Failure::Busy)?;
        let stream = match place.kept.take() {
            Some(stream) => stream,
            None => self.open()?,
        };
        let number = self.relay.deposit(request());
        match self.converse(&stream, number) {
            Ok(Answer { bytes, end: End::Whole }) => {
                place.kept = Some(stream);
                Ok(bytes)
            }
            Ok(Answer { end: End::Late, .. }) => Err(Failure::Late(Unanswered { stream, _place: place })),
            broken => {
                self.relay.withdraw(number); // where no worker has it, none shall
                broken.map(|answer| answer.bytes).map_err(Failure::Failed)
            }
        }
    }

    fn open(&self) -> Result<Stream, Failure> {
        self.relay.open(|connected| {
            let stream = connected.map(Stream::Unix).map_err(|error| match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Failure::Dead(error),
                _ => Failure::Failed(error),
            })?;
            match self.converse(&stream, relay::GREETING).map_err(Failure::Failed)?.end {
                End::Whole => Ok(stream),
                End::Closed | End::Late => {
                    Err(Failure::Failed(io::Error::other("a new connection does not answer")))
                }
            }
        })
    }

    /// Sends the number of a request and reads the answer to its end.
    fn converse(&self, stream: &Stream, number: u64) -> io::Result<Answer> {
        let deadline = Instant::now() + self.answer_time;
        let line = relay::line(number);
        // a connection carries one at a time, so there is room for it
        if stream.send(line.as_bytes())? < line.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let (mut bytes, mut room) = (Vec::new(), [0; 1024]);
        loop {
            if !stream.wait(PollFlags::IN, deadline)? {
                return Ok(Answer { bytes, end: End::Late });
            }
            let received = stream.receive(&mut room)?;
            bytes.extend_from_slice(&room[..received.unwrap_or(0)]);
            let end = match whole_length(&bytes).map(|whole| bytes.len().cmp(&whole)) {
                Some(Ordering::Equal) => End::Whole,
                Some(Ordering::Greater) => End::Closed,
                _ if received == Some(0) || bytes.len() > ANSWER_BYTES_MAX => End::Closed,
                Some(Ordering::Less) | None => continue,
            };
            return Ok(Answer { bytes, end });
        }
    }
}

struct Answer {
    bytes: Vec<u8>,
    end: End,
}

/// How an exchange ended.
enum End {
    /// With the answer, so that the connection can take another request.
    Whole,
    /// Otherwise: the connection is of no more use.
    Closed,
    /// tiny_http takes too long.
    Late,
}

/// A request that tiny_http has kept for longer than `answer_time`. It holds its place, so that
/// requests which are stuck never become more than `upstream_max`.
pub(super) struct Unanswered {
    stream: Stream,
    _place: Place,
}

impl Unanswered {
    /// Returns when tiny_http answers after all, or has let go of it.
    pub(super) fn wait(self) {
        while let Ok(false) = self.stream.wait(PollFlags::IN, Instant::now() + LOOK_EVERY) {}
    }
}

/// The places inside tiny_http.
struct Places {
    free: Mutex<Free>,
    freed: Condvar,
    waiting_max: usize,
}

struct Free {
    places: usize,
    /// Connections of free places. The one used last is used next: its thread is the warmest.
    kept: Vec<Stream>,
    waiting: usize,
}

struct Place {
    places: Arc<Places>,
    /// The connection on which the place was used before.
    kept: Option<Stream>,
}

impl Place {
    fn take(places: &Arc<Places>, at_most: Duration) -> Option<Self> {
        let mut free = lock(&places.free);
        if free.places == 0 {
            if free.waiting >= places.waiting_max {
                return None;
            }
            free.waiting += 1;
            let waited = places.freed.wait_timeout_while(free, at_most, |free| free.places == 0);
            (free, _) = waited.unwrap_or_else(PoisonError::into_inner);
            free.waiting -= 1;
        }
        free.places = free.places.checked_sub(1)?;
        Some(Self { kept: free.kept.pop(), places: Arc::clone(places) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut free = lock(&self.places.free);
        free.places += 1;
        free.kept.extend(self.kept.take());
        if free.waiting > 0 {
            self.places.freed.notify_one();
        }
    }
}

/// tiny_http's answer as the client is to see it: HTTP/1.1, an exact length, our own `Connection`, and
/// no word about what serves it. `None` if it is cut short, over 16 MiB, or the empty 500 with which
/// tiny_http lets go of a request that nobody has answered: a panic, or the end of the process. The
/// application's own answers say what failed.
pub(super) fn for_client(answer: &[u8], is_head: bool, close: bool) -> Option<Vec<u8>> {
    let (head, body) = split(answer)?;
    let mut lines = head.split_inclusive(|byte| *byte == b'\n');
    let status_line = lines.next()?.strip_prefix(b"HTTP/1.")?.get(1..)?;
    let status = status(head)?;
    let (has_no_length, has_no_body) = (status == b"204", has_no_body(status, is_head));

    let mut out = Vec::with_capacity(answer.len() + 64);
    out.extend_from_slice(b"HTTP/1.1");
    out.extend_from_slice(status_line);
    let mut length = None;
    for line in lines {
        let (name, value) = field(line)?;
        if name.eq_ignore_ascii_case(b"content-length") {
            length = Some(number(value)?);
            if has_no_length {
                continue;
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return None; // workers state a length
        } else if DROPPED.iter().any(|dropped| name.eq_ignore_ascii_case(dropped.as_bytes())) {
            continue;
        }
        out.extend_from_slice(line);
    }
    if status == b"500" && body.is_empty() && length.unwrap_or(0) == 0 {
        return None;
    }
    if close {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    if has_no_body {
        out.extend_from_slice(b"\r\n");
        return Some(out);
    }
    if length.is_some_and(|length| length != body.len()) || answer.len() > ANSWER_BYTES_MAX {
        return None;
    }
    if length.is_none() {
        out.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    Some(out)
}

/// How long it is in all, once that is known. What states no length ends with its connection.
fn whole_length(answer: &[u8]) -> Option<usize> {
    let (head, _) = split(answer)?;
    let length = match status(head) {
        Some(status) if has_no_body(status, false) => 0,
        _ => {
            let mut fields = head.split(|byte| *byte == b'\n').filter_map(field);
            let (_, length) = fields.find(|(name, _)| name.eq_ignore_ascii_case(b"content-length"))?;
            number(length)?
        }
    };
    (head.len() + b"\r\n".len()).checked_add(length)
}

/// The head with the end of its last line, and what has come of the body.
fn split(answer: &[u8]) -> Option<(&[u8], &[u8])> {
    let head_end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some((&answer[..head_end + 2], &answer[head_end + 4..]))
}

fn status(head: &[u8]) -> Option<&[u8]> {
    head.get(9..12).filter(|digits| digits.iter().all(u8::is_ascii_digit))
}

fn has_no_body(status: &[u8], is_head: bool) -> bool {
    is_head || status == b"204" || status == b"304"
}

fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((&line[..colon], &line[colon + 1..]))
}

fn number(value: &[u8]) -> Option<usize> {
    str::from_utf8(value).ok()?.trim().parse().ok()
}

/// Headers of an answer that are not passed on.
const DROPPED: [&str; 3] = ["connection", "keep-alive", "server"];

/// Answers are pages and short lines; more than this is a fault.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// How often a thread that has nothing else to do looks whether tiny_http is done.
const LOOK_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn client_sees(answer: &str, is_head: bool, close: bool) -> Option<String> {
        for_client(answer.as_bytes(), is_head, close).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn the_client_sees_http_1_1_with_an_exact_length_and_our_connection_header() {
        let cases = [
            (
                "HTTP/1.0 200 OK\r\nServer: s\r\nContent-Length: 2\r\n\r\nhi",
                false,
                false,
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
            ),
            (
                "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\ncontent-length: 2\r\n\r\nhi",
                false,
                true,
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nConnection: close\r\n\r\nhi",
            ),
            (
                "HTTP/1.0 404 Not Found\r\n\r\nno",
                false,
                false,
                "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
            ),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n",
                true,
                false,
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
            ),
            (
                "HTTP/1.0 204 No Content\r\nContent-Length: 0\r\n\r\n",
                false,
                false,
                "HTTP/1.1 204 No Content\r\n\r\n",
            ),
            (
                "HTTP/1.0 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
                false,
                false,
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
            ),
        ];
        for (answer, is_head, close, expected) in cases {
            assert_eq!(client_sees(answer, is_head, close).as_deref(), Some(expected));
        }
    }

    #[test]
    fn an_answer_that_is_cut_short_never_reaches_the_client() {
        let whole = "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        for length in 0..whole.len() {
            assert_eq!(client_sees(&whole[..length], false, false), None, "{length}");
        }
        for answer in [
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.0 xyz\r\n\r\n",
            "SPDY\r\n\r\n",
            "HTTP/1.0 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.0 500 Internal Server Error\r\n\r\n",
        ] {
            assert_eq!(client_sees(answer, false, false), None);
        }
    }
}
