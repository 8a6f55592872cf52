//! One client connection: its requests one after the other, each within its deadlines.
//!
//! A deadline counts from where its part began, not from the last byte: a client that dribbles gets
//! no more time than one that is silent.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::Shared;
use super::chunked::Decoder;
use super::head::{self, Framing, HEAD_BYTES_MAX, Head};
use super::refusal::{Reason, Refusal};
use super::table::{Evicted, Slot};
use super::upstream::{Failure, for_client, timed_out};
use super::{LISTENER_HEADER, PEER_HEADER};

/// Serves the connection until either side ends it.
pub(super) fn serve(shared: &Shared, slot: &Slot) {
    let mut session = Session::new(shared, slot);
    if let Err(End::Refused(refusal)) = session.requests() {
        session.refuse(refusal);
    }
}

/// Answers 503 without reading a request.
pub(super) fn refuse_for_want_of_room(shared: &Shared, slot: &Slot) {
    Session::new(shared, slot).refuse(Refusal::new(Reason::Unavailable, "no connection could be evicted"));
}

struct Session<'a> {
    shared: &'a Shared,
    slot: &'a Slot,
    stream: &'a Stream,
    peer: Option<IpAddr>,
    buffer: Buffer,
    /// Spares a system call when the next read waits as long as the last.
    read_timeout: Option<Duration>,
    /// When the connection was accepted; `None` once it has sent something.
    fresh_since: Option<Instant>,
    /// The end of every head that goes to tiny_http, up to the value of Content-Length.
    own_headers: String,
}

/// Why there is no next request.
enum End {
    Refused(Refusal),
    /// The client went away, or was made to.
    Closed,
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

impl From<Evicted> for End {
    fn from(_: Evicted) -> Self {
        Self::Closed
    }
}

impl<'a> Session<'a> {
    fn new(shared: &'a Shared, slot: &'a Slot) -> Self {
        let peer = slot.connection().peer;
        let mut own_headers = String::with_capacity(128);
        if let Some(ip) = peer {
            write!(own_headers, "{PEER_HEADER}: {ip}\r\n").unwrap_or_default();
        }
        write!(
            own_headers,
            "{LISTENER_HEADER}: {}\r\nConnection: close\r\nContent-Length: ",
            shared.settings.listener
        )
        .unwrap_or_default();
        Self {
            shared,
            slot,
            stream: &slot.connection().stream,
            peer,
            buffer: Buffer::new(Arc::clone(&shared.bodies_bytes), shared.settings.bounds.bodies_bytes_max),
            read_timeout: None,
            fresh_since: Some(Instant::now()),
            own_headers,
        }
    }

    fn requests(&mut self) -> Result<(), End> {
        self.slot.start()?;
        if self.slot.is_closed_to_idle() {
            self.stream.shutdown(Shutdown::Read); // what has arrived can still be read
        }
        self.stream.send_at_once()?;
        self.stream.set_write_timeout(FIRST_WRITE_TIME.min(self.shared.settings.bounds.write_time))?;
        while let Some(head_deadline) = self.await_request()? {
            let (head, head_bytes) = self.read_head(head_deadline)?;
            let (body, request_end) = self.read_body(&head, head_bytes)?;
            if !self.answer(head, body, request_end)? {
                self.part();
                return Ok(());
            }
            self.slot.served()?;
            if self.slot.is_closed_to_idle() && self.buffer.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits for the first byte of a request: when its head must be complete. `None` if the client
    /// has no more, or has kept us idle for too long.
    fn await_request(&mut self) -> Result<Option<Instant>, End> {
        let bounds = &self.shared.settings.bounds;
        let fresh_since = self.fresh_since.take();
        let at_most = if fresh_since.is_some() { bounds.head_time } else { bounds.idle_time };
        let arrived = self.await_byte(at_most).and_then(|arrived| {
            // RFC 9112, section 2.2: one empty line before a request is ignored.
            if self.buffer.filled().starts_with(b"\r\n") {
                self.buffer.consume(2);
            }
            if arrived { self.await_byte(at_most) } else { Ok(false) }
        });
        match arrived {
            Ok(true) => {}
            // A 408 to an idle client could pass for the answer to its next request.
            Ok(false) => return Ok(None),
            Err(End::Refused(_)) if fresh_since.is_none() => return Ok(None),
            Err(end) => return Err(end),
        }
        self.slot.inside()?;
        Ok(Some(fresh_since.unwrap_or_else(Instant::now) + bounds.head_time))
    }

    fn await_byte(&mut self, at_most: Duration) -> Result<bool, End> {
        Ok(!self.buffer.is_empty() || self.read(HEAD_BYTES_MAX, at_most)?)
    }

    /// The head and its length. What a client sends ahead is read too, up to 16 KiB in all.
    fn read_head(&mut self, deadline: Instant) -> Result<(Head, usize), End> {
        let mut seen = 0;
        loop {
            if let Some(end) = head::find_end(self.buffer.filled(), seen)? {
                return Ok((head::parse(&self.buffer.filled()[..end])?, end));
            }
            seen = self.buffer.filled().len();
            self.read_more(HEAD_BYTES_MAX, deadline)?;
        }
    }

    /// Where the body stands in the buffer, and where the request ends there.
    fn read_body(&mut self, head: &Head, start: usize) -> Result<(Range<usize>, usize), End> {
        let body_bytes_max = (self.shared.settings.body_bytes_max)(head.path());
        let deadline = Instant::now() + self.shared.settings.bounds.body_time;
        match head.framing {
            Framing::Length(length) if length > body_bytes_max => {
                Err(Refusal::new(Reason::BodyTooLarge, "a Content-Length beyond the body limit").into())
            }
            Framing::Length(length) => {
                let end = start + length;
                if self.buffer.filled().len() < end {
                    self.invite_body(head, start)?;
                }
                while self.buffer.filled().len() < end {
                    self.read_more(end, deadline)?;
                }
                Ok((start..end, end))
            }
            Framing::Chunked => {
                self.invite_body(head, start)?;
                self.read_chunks(Decoder::new(body_bytes_max), start, deadline)
            }
        }
    }

    fn invite_body(&mut self, head: &Head, start: usize) -> Result<(), End> {
        if head.expects_continue && self.buffer.filled().len() == start {
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        Ok(())
    }

    fn read_chunks(
        &mut self,
        mut decoder: Decoder,
        start: usize,
        deadline: Instant,
    ) -> Result<(Range<usize>, usize), End> {
        loop {
            let complete = decoder.advance(&mut self.buffer.filled_mut()[start..])?;
            self.buffer.remove(start + decoder.decoded..start + decoder.consumed);
            decoder.closed_up();
            let end = start + decoder.decoded;
            if complete {
                return Ok((start..end, end));
            }
            self.read_more(self.buffer.filled().len() + READ_AHEAD_BYTES_MAX, deadline)?;
        }
    }

    /// Has the request answered by tiny_http. Whether the connection goes on.
    fn answer(&mut self, head: Head, body: Range<usize>, request_end: usize) -> Result<bool, End> {
        self.slot.busy()?;
        let Head { mut forward, keep_alive, is_head, .. } = head;
        write!(forward, "{}{}\r\n\r\n", self.own_headers, body.len())?;
        let exchanged = self.shared.upstream.exchange(&mut forward, &self.buffer.filled()[body]);
        self.buffer.consume(request_end);
        let answer = match exchanged {
            Ok(answer) => answer,
            Err(failure) => return Err(self.give_up(failure)),
        };
        self.shared.counters.forwarded.fetch_add(1, Ordering::Relaxed);
        let keep_alive = keep_alive && !self.slot.is_closing();
        let answer = for_client(&answer, is_head, !keep_alive).ok_or_else(|| {
            self.shared.note_failure(
                "tiny_http",
                &io::Error::other("an answer that is incomplete, malformed or over 16 MiB"),
            );
            Refusal::new(Reason::Unavailable, "no usable answer from tiny_http")
        })?;
        self.write(&answer)?;
        Ok(keep_alive)
    }

    fn give_up(&mut self, failure: Failure) -> End {
        let why = match failure {
            Failure::Busy => "too many requests in progress",
            Failure::Dead(error) => {
                self.shared.note_dead(&error);
                "tiny_http accepts no more"
            }
            Failure::Failed(error) => {
                self.shared.note_failure("passing a request to tiny_http", &error);
                "tiny_http could not be reached or gave no answer"
            }
            Failure::Late(unanswered) => {
                self.refuse(Refusal::new(Reason::Unavailable, "tiny_http took too long"));
                unanswered.wait();
                return End::Closed;
            }
        };
        Refusal::new(Reason::Unavailable, why).into()
    }

    /// Answers without tiny_http, and ends the connection.
    fn refuse(&mut self, refusal: Refusal) {
        self.shared.note_refusal(refusal, self.peer);
        if self.write(refusal.answer().as_bytes()).is_ok() {
            self.part();
        }
    }

    /// Ends the connection such that the last answer arrives: closing with bytes unread would reset
    /// it, and the reset can overtake the answer. So a little is read away.
    fn part(&mut self) {
        if self.slot.idle().is_err() {
            return;
        }
        self.stream.shutdown(Shutdown::Write);
        let deadline = Instant::now() + PARTING_TIME;
        let mut left = PARTING_BYTES_MAX;
        while left > 0 {
            self.buffer.clear();
            let before = Instant::now();
            if before >= deadline || !self.read(HEAD_BYTES_MAX, deadline - before).unwrap_or(false) {
                return;
            }
            left = left.saturating_sub(self.buffer.filled().len());
        }
    }

    /// Reads at least a byte of the unfinished request, up to `filled_max` bytes in the buffer.
    fn read_more(&mut self, filled_max: usize, deadline: Instant) -> Result<(), End> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(TOO_SLOW.into());
        }
        if self.read(filled_max, left)? {
            return Ok(());
        }
        self.slot.still_there()?; // an eviction looks like an end of input
        Err(Refusal::bad("a request that is cut short").into())
    }

    /// One read; `false` at the end of the input.
    fn read(&mut self, filled_max: usize, at_most: Duration) -> Result<bool, End> {
        let at_most = at_most.max(Duration::from_millis(1)); // zero is not a valid timeout
        if self.read_timeout != Some(at_most) {
            self.stream.set_read_timeout(at_most)?;
            self.read_timeout = Some(at_most);
        }
        let room = self.buffer.room(filled_max)?;
        loop {
            match self.stream.read(room) {
                Ok(bytes) => {
                    self.buffer.filled += bytes;
                    return Ok(bytes > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if timed_out(&error) => return Err(TOO_SLOW.into()),
                Err(_) => return Err(End::Closed),
            }
        }
    }

    /// Writes all of it within `write_time`. A client that does not take it is one that we wait for:
    /// it may be evicted.
    fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        let mut written = self.stream.write(bytes)?;
        if written == bytes.len() {
            return Ok(());
        }
        self.slot.inside()?;
        let deadline = Instant::now() + self.shared.settings.bounds.write_time;
        while written < bytes.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(End::Closed);
            }
            self.stream.set_write_timeout(left.max(Duration::from_millis(1)))?;
            written += self.stream.write(&bytes[written..])?;
        }
        self.stream.set_write_timeout(FIRST_WRITE_TIME.min(self.shared.settings.bounds.write_time))?;
        Ok(())
    }
}

const TOO_SLOW: Refusal = Refusal::new(Reason::Timeout, "a request that is not complete in time");

/// How long a write may take before its connection counts as waiting for the client.
const FIRST_WRITE_TIME: Duration = Duration::from_secs(1);

/// How much more than what it needs a read of a chunked body may bring.
const READ_AHEAD_BYTES_MAX: usize = 16 << 10;

const PARTING_TIME: Duration = Duration::from_secs(1);
/// Enough for a client that sends a body somewhat over the limit before it looks at the answer.
const PARTING_BYTES_MAX: usize = 4 << 20;

/// What has arrived and is not used up. Beyond `FREE_BYTES` its memory is charged to the budget that
/// all unfinished bodies share.
struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
    charged: usize,
    budget: Arc<AtomicUsize>,
    budget_max: usize,
}

impl Buffer {
    const START_BYTES: usize = 4 << 10;
    const FREE_BYTES: usize = 32 << 10;

    fn new(budget: Arc<AtomicUsize>, budget_max: usize) -> Self {
        Self { bytes: Vec::new(), filled: 0, charged: 0, budget, budget_max }
    }

    fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.filled]
    }

    fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Room to read into, at least a byte, such that at most `filled_max` bytes are filled then.
    fn room(&mut self, filled_max: usize) -> Result<&mut [u8], Refusal> {
        if self.filled == self.bytes.len() {
            let grown = (self.bytes.len() * 2).max(Self::START_BYTES).min(filled_max.max(Self::START_BYTES));
            self.charge(grown.saturating_sub(Self::FREE_BYTES))?;
            self.bytes.reserve_exact(grown - self.filled);
            self.bytes.resize(grown, 0);
        }
        let end = self.bytes.len().min(filled_max);
        Ok(&mut self.bytes[self.filled..end])
    }

    fn charge(&mut self, charged: usize) -> Result<(), Refusal> {
        let more = charged.saturating_sub(self.charged);
        if more > 0 && self.budget.fetch_add(more, Ordering::Relaxed) + more > self.budget_max {
            self.budget.fetch_sub(more, Ordering::Relaxed);
            return Err(Refusal::new(Reason::Unavailable, "unfinished bodies hold all the memory they may"));
        }
        self.charged += more;
        Ok(())
    }

    /// Drops the first bytes, and with them what a large request has made it grow.
    fn consume(&mut self, count: usize) {
        self.remove(0..count);
        if self.bytes.len() > Self::FREE_BYTES {
            self.bytes.truncate(self.filled.max(Self::START_BYTES));
            self.bytes.shrink_to_fit();
            self.release();
        }
    }

    fn clear(&mut self) {
        self.consume(self.filled);
    }

    fn remove(&mut self, range: Range<usize>) {
        self.bytes.copy_within(range.end..self.filled, range.start);
        self.filled -= range.len();
    }

    fn release(&mut self) {
        self.budget.fetch_sub(std::mem::take(&mut self.charged), Ordering::Relaxed);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.release();
    }
}

/// A client's socket.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Answers are whole when they are written: waiting to fill a packet only delays them. Accepted
    /// sockets inherit the listener's non-blocking mode on some systems.
    fn send_at_once(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.set_nonblocking(false).and_then(|()| tcp.set_nodelay(true)),
            Self::Unix(unix) => unix.set_nonblocking(false),
        }
    }

    fn set_read_timeout(&self, at_most: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.set_read_timeout(Some(at_most)),
            Self::Unix(unix) => unix.set_read_timeout(Some(at_most)),
        }
    }

    fn set_write_timeout(&self, at_most: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.set_write_timeout(Some(at_most)),
            Self::Unix(unix) => unix.set_write_timeout(Some(at_most)),
        }
    }

    fn read(&self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => (&*tcp).read(room),
            Self::Unix(unix) => (&*unix).read(room),
        }
    }

    /// Bytes written before the timeout; 0 if none were.
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self {
            Self::Tcp(tcp) => (&*tcp).write(bytes),
            Self::Unix(unix) => (&*unix).write(bytes),
        };
        match written {
            Err(error) if timed_out(&error) || error.kind() == io::ErrorKind::Interrupted => Ok(0),
            written => written,
        }
    }

    /// Writes what the socket takes at once, for a client that no thread serves.
    pub(super) fn write_without_waiting(&self, bytes: &[u8]) {
        let ready = match self {
            Self::Tcp(tcp) => tcp.set_nonblocking(true),
            Self::Unix(unix) => unix.set_nonblocking(true),
        };
        ready.and_then(|()| self.write(bytes)).ok(); // there is nobody left to tell
    }

    /// A client that is gone needs no shutdown.
    pub(super) fn shutdown(&self, how: Shutdown) {
        match self {
            Self::Tcp(tcp) => tcp.shutdown(how).ok(),
            Self::Unix(unix) => unix.shutdown(how).ok(),
        };
    }
}
