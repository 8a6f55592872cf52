//! One client connection: its requests one after the other, each within its deadlines.
//!
//! A deadline counts from where its part began, not from the last byte: a client that dribbles gets
//! no more time than one that is silent.

use std::io;
use std::net::{IpAddr, Shutdown};
use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::Shared;
use super::budget::{Budget, Denied};
use super::chunked::Decoder;
use super::client;
use super::head::{self, Framing, HEAD_BYTES_MAX, Head};
use super::refusal::{Reason, Refusal};
use super::relay::Request;
use super::stream::Stream;
use super::table::{Evicted, GIVES_WAY, Slot};
use super::upstream::{Failure, for_client};

/// Serves the connection until either side ends it.
pub(super) fn serve(shared: &Shared, slot: &Slot) {
    let mut session = Session::new(shared, slot);
    match session.requests() {
        Err(End::Refused(refusal)) => session.refuse(refusal),
        Err(End::Evicted) => {
            shared.note_refusal(GIVES_WAY, session.client); // who evicted it has told the client
            session.stream.read_away();
            session.stream.cut();
        }
        Ok(()) | Err(End::Closed) => {}
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
    /// For whom the peer asks: of the latest request whose head was read.
    client: Option<IpAddr>,
    buffer: Buffer<'a>,
    /// When the connection was accepted; `None` once it has sent something.
    fresh_since: Option<Instant>,
}

/// Why there is no next request.
enum End {
    Refused(Refusal),
    /// Evicted in a request, and the client told.
    Evicted,
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
        Self::Evicted
    }
}

impl From<Denied> for End {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Refused(refusal) => Self::Refused(refusal),
            Denied::Evicted => Self::Evicted,
        }
    }
}

impl<'a> Session<'a> {
    fn new(shared: &'a Shared, slot: &'a Slot) -> Self {
        Self {
            shared,
            slot,
            stream: &slot.connection().stream,
            peer: slot.connection().peer,
            client: slot.connection().peer,
            buffer: Buffer::new(&shared.budget, slot),
            fresh_since: Some(Instant::now()),
        }
    }

    fn requests(&mut self) -> Result<(), End> {
        self.slot.start()?;
        self.stream.send_at_once()?;
        while let Some(head_deadline) = self.await_request()? {
            self.client = self.peer;
            let (head, head_bytes) = self.read_head(head_deadline)?;
            let trusted = &self.shared.settings.trusted_proxies;
            self.client = client::of(self.peer, &head.headers, trusted);
            let (body, request_end) = self.read_body(&head, head_bytes)?;
            if !self.answer(head, body, request_end)? {
                self.part();
                return Ok(());
            }
            if self.slot.served().is_err()
                || self.slot.is_closed_to_idle() && self.buffer.is_empty() && !self.stream.has_input()
            {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits for the first bytes of a request: when its head must be complete. `None` if the client
    /// has no more, or has kept us idle for too long.
    fn await_request(&mut self) -> Result<Option<Instant>, End> {
        let bounds = &self.shared.settings.bounds;
        let fresh_since = self.fresh_since.take();
        let is_closing = self.slot.is_closing();
        let at_most = match fresh_since {
            Some(_) if is_closing => CLOSING_TIME.min(bounds.head_time),
            Some(_) => bounds.head_time,
            None => bounds.idle_time,
        };
        let deadline = Instant::now() + at_most;
        let mut may_be_blank = true;
        loop {
            // Bytes are left in the socket until the phase says so: an idle connection is closed only
            // if its socket is empty.
            let has_input = !self.buffer.is_empty() || self.stream.wait(PollFlags::IN, deadline)?;
            if self.slot.begin().is_err() {
                self.turn_away(fresh_since.is_some());
                return Err(End::Closed);
            }
            if !has_input {
                return match fresh_since {
                    Some(_) if is_closing => Err(STOPPING.into()),
                    Some(_) => Err(TOO_SLOW.into()),
                    // A 408 to an idle client could pass for the answer to its next request.
                    None => Ok(None),
                };
            }
            if self.buffer.is_empty() && !self.read(HEAD_BYTES_MAX, deadline)? {
                return Ok(None);
            }
            // RFC 9112, section 2.2: one empty line before a request is ignored.
            if std::mem::take(&mut may_be_blank) && self.buffer.filled().starts_with(b"\r\n") {
                self.buffer.consume(2);
                if self.buffer.is_empty() {
                    self.slot.idle()?;
                    continue;
                }
            }
            return Ok(Some(fresh_since.unwrap_or_else(Instant::now) + bounds.head_time));
        }
    }

    /// Evicted before a request had begun. One may have arrived in that moment; and to a new
    /// connection nothing can be said that could pass for another answer.
    fn turn_away(&mut self, is_fresh: bool) {
        if is_fresh || !self.buffer.is_empty() || self.stream.has_input() {
            self.shared.note_refusal(GIVES_WAY, self.client);
            self.stream.turn_away(&GIVES_WAY.answer());
        }
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
        const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        let is_awaited = head.expects_continue && self.buffer.filled().len() == start;
        if is_awaited && self.stream.send(CONTINUE)? < CONTINUE.len() {
            return Err(End::Closed); // earlier answers have been left lying
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
        let upstream = self.shared.upstream_of(head.path());
        let Head { method, target, headers, keep_alive, .. } = head;
        let is_head = method == "HEAD";
        let (listener, peer) = (self.shared.settings.listener, self.client);
        let exchanged = upstream.exchange(|| {
            let body = self.buffer.take(body, request_end);
            Request { listener, peer, method, target, headers, body }
        });
        let answer = match exchanged {
            Ok(answer) => answer,
            Err(failure) => return Err(self.give_up(failure)),
        };
        // only now is the body gone
        self.buffer.release();
        self.slot.answering()?;
        let keep_alive = keep_alive && !self.slot.is_closing() && !self.slot.makes_room();
        let for_client = for_client(&answer, is_head, !keep_alive).ok_or_else(|| {
            self.shared.note_failure(
                "tiny_http",
                &io::Error::other("an answer that is empty, incomplete, malformed or over 16 MiB"),
            );
            Refusal::new(Reason::Unavailable, "no usable answer from tiny_http")
        })?;
        drop(answer); // a client that reads slowly holds one copy
        self.write(&for_client)?;
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
                self.slot.busy().ok(); // not to be waited for
                unanswered.wait();
                return End::Closed;
            }
        };
        Refusal::new(Reason::Unavailable, why).into()
    }

    /// Answers without tiny_http, and ends the connection.
    fn refuse(&mut self, refusal: Refusal) {
        self.buffer.clear(); // a client that reads slowly is not to hold memory
        self.shared.note_refusal(refusal, self.client);
        if self.slot.answering().is_ok() && self.write(refusal.answer().as_bytes()).is_ok() {
            self.part();
        }
    }

    /// Ends the connection such that the last answer arrives: closing with bytes unread would reset
    /// it, and the reset can overtake the answer. So a little is read away.
    fn part(&mut self) {
        if self.slot.parting().is_err() {
            return;
        }
        self.stream.shutdown(Shutdown::Write);
        let deadline = Instant::now() + PARTING_TIME;
        let mut left = PARTING_BYTES_MAX;
        while left > 0 && Instant::now() < deadline {
            self.buffer.clear();
            if !self.read(HEAD_BYTES_MAX, deadline).unwrap_or(false) {
                return;
            }
            left = left.saturating_sub(self.buffer.filled().len());
        }
    }

    /// Reads at least a byte of the unfinished request, up to `filled_max` bytes in the buffer.
    fn read_more(&mut self, filled_max: usize, deadline: Instant) -> Result<(), End> {
        if Instant::now() >= deadline {
            return Err(TOO_SLOW.into());
        }
        if self.read(filled_max, deadline)? {
            return Ok(());
        }
        self.slot.reads()?; // an eviction looks like an end of input
        Err(Refusal::bad("a request that is cut short").into())
    }

    /// One read; `false` at the end of the input.
    fn read(&mut self, filled_max: usize, deadline: Instant) -> Result<bool, End> {
        let room = self.buffer.room(filled_max)?;
        loop {
            if let Some(bytes) = self.stream.receive(room)? {
                self.buffer.filled += bytes;
                return Ok(bytes > 0);
            }
            self.slot.waits()?;
            let is_there = self.stream.wait(PollFlags::IN, deadline)?;
            self.slot.reads()?;
            if !is_there {
                return Err(TOO_SLOW.into());
            }
        }
    }

    /// Writes all of it within `write_time`. A client that does not take it is one that we wait for:
    /// it may be evicted.
    fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        let mut written = self.stream.send(bytes)?;
        if written == bytes.len() {
            return Ok(());
        }
        let deadline = Instant::now() + self.shared.settings.bounds.write_time;
        self.slot.writing().map_err(|Evicted| End::Closed)?;
        while written < bytes.len() {
            if !self.stream.wait(PollFlags::OUT, deadline)? {
                return Err(End::Closed);
            }
            written += self.stream.send(&bytes[written..])?;
        }
        Ok(())
    }
}

const TOO_SLOW: Refusal = Refusal::new(Reason::Timeout, "a request that is not complete in time");

const STOPPING: Refusal = Refusal::new(Reason::Unavailable, "a connection that came while stopping");

/// How long a connection that came while stopping may take to begin its request.
const CLOSING_TIME: Duration = Duration::from_millis(250);

/// How much more than what it needs a read of a chunked body may bring.
const READ_AHEAD_BYTES_MAX: usize = 16 << 10;

const PARTING_TIME: Duration = Duration::from_secs(1);
/// Enough for a client that sends a body somewhat over the limit before it looks at the answer.
const PARTING_BYTES_MAX: usize = 4 << 20;

/// What has arrived and is not used up. Beyond `FREE_BYTES` its memory is charged to the budget that
/// all bodies share, until their requests are answered.
struct Buffer<'a> {
    bytes: Vec<u8>,
    filled: usize,
    charged: usize,
    budget: &'a Budget,
    slot: &'a Slot,
}

impl<'a> Buffer<'a> {
    const START_BYTES: usize = 4 << 10;
    const FREE_BYTES: usize = 32 << 10;

    fn new(budget: &'a Budget, slot: &'a Slot) -> Self {
        Self { bytes: Vec::new(), filled: 0, charged: 0, budget, slot }
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
    fn room(&mut self, filled_max: usize) -> Result<&mut [u8], Denied> {
        if self.filled == self.bytes.len() {
            let grown = (self.bytes.len() * 2).max(Self::START_BYTES).min(filled_max.max(Self::START_BYTES));
            self.charge(grown.saturating_sub(Self::FREE_BYTES))?;
            self.bytes.reserve_exact(grown - self.filled);
            self.bytes.resize(grown, 0);
        }
        let end = self.bytes.len().min(filled_max);
        Ok(&mut self.bytes[self.filled..end])
    }

    fn charge(&mut self, charged: usize) -> Result<(), Denied> {
        let more = charged.saturating_sub(self.charged);
        if more > 0 {
            self.budget.take(self.slot.id(), self.slot.connection(), more)?;
            self.charged += more;
        }
        Ok(())
    }

    /// Takes a body out, with all that stands before it and up to the end of its request. A large one takes its memory
    /// along, which stays charged: see [`Buffer::release`].
    fn take(&mut self, body: Range<usize>, request_end: usize) -> Vec<u8> {
        if self.bytes.len() <= Self::FREE_BYTES {
            let taken = self.filled()[body].to_vec();
            self.remove(0..request_end);
            return taken;
        }
        let ahead = self.bytes[request_end..self.filled].to_vec();
        self.filled = ahead.len();
        let mut taken = std::mem::replace(&mut self.bytes, ahead);
        taken.truncate(body.end);
        taken.drain(..body.start);
        taken
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
        if std::mem::take(&mut self.charged) > 0 {
            self.budget.release(self.slot.id());
        }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.release();
    }
}
