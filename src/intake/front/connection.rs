//! One client connection: its requests one after the other, each within its deadlines.
//!
//! A deadline counts from where its part began, not from the last byte: a client that dribbles gets
//! no more time than one that is silent.

use std::io;
use std::net::{IpAddr, Shutdown};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::budget::Denied;
use super::buffer::Buffer;
use super::chunked::Decoder;
use super::client;
use super::head::{self, Framing, HEAD_BYTES_MAX, Head};
use super::refusal::Refusal;
use super::stream::Stream;
use super::table::{Evicted, GIVES_WAY, Slot};
use super::{Settings, Shared};
use crate::intake::answer::Refused;
use crate::intake::exchange::{Request, Rest};

/// Serves the connection until either side ends it.
pub(super) fn serve(shared: &Shared, slot: &Slot) {
    shared.counters.served.fetch_add(1, Ordering::Relaxed);
    let mut session = Session::new(shared, slot);
    match session.requests() {
        Err(End::Refused(refusal)) => session.refuse(refusal),
        Err(End::Evicted) => {
            shared.note_refusal(GIVES_WAY, session.client); // the evicting thread has sent the response
            session.stream.read_away();
            session.stream.cut();
        }
        Ok(()) | Err(End::Closed) => {}
    }
}

/// Answers 503 without reading a request.
pub(super) fn refuse_for_want_of_room(shared: &Shared, slot: &Slot) {
    Session::new(shared, slot).refuse(Refusal::new(Refused::Unavailable, "no connection could be evicted"));
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
    /// Evicted in a request; the response was sent.
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
                Err(Refusal::new(Refused::BodyTooLarge, "a Content-Length beyond the body limit").into())
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

    /// Has the request answered by the service, on this thread. Whether the connection goes on.
    fn answer(&mut self, head: Head, body: Range<usize>, request_end: usize) -> Result<bool, End> {
        self.slot.busy()?;
        let permits = self.shared.permits_for(head.path());
        let Some(permit) = permits.take(self.shared.settings.bounds.queue_time) else {
            return Err(Refusal::new(Refused::Unavailable, "too many requests in progress").into());
        };
        let (is_head, keep_alive) = (head.method == "HEAD", head.keep_alive);
        let body = self.buffer.take(body, request_end);
        let mut response = self.shared.respond(self.request(head, body))?;
        if let Some(rest) = response.take_rest() {
            return Err(self.answer_early(response.print(is_head, true), rest));
        }
        // only now is the body gone
        self.buffer.release();
        drop(permit);
        self.slot.answering()?;
        let keep_alive = keep_alive && !self.slot.is_closing() && !self.slot.makes_room();
        self.write(&response.print(is_head, !keep_alive))?;
        Ok(keep_alive)
    }

    fn request(&self, head: Head, body: Vec<u8>) -> Request {
        let Settings { listener, bounds, .. } = &self.shared.settings;
        let Head { method, target, headers, .. } = head;
        let answer_by = Instant::now() + bounds.answer_time;
        let peer_uid = if *listener == super::ADMIN { self.stream.peer_uid() } else { None };
        Request { listener, peer: self.client, peer_uid, method, target, headers, body, answer_by }
    }

    /// Gives an answer although work for it goes on. Permit and memory are held until that is done, so that there
    /// are never more stuck requests than permits.
    fn answer_early(&mut self, text: Vec<u8>, rest: Rest) -> End {
        if self.slot.answering().is_ok() && self.write(&text).is_ok() {
            self.part();
        }
        self.slot.busy().ok(); // keeps it from eviction; an evicted connection finishes the rest as well
        rest();
        End::Closed
    }

    /// Answers without the service, and ends the connection.
    fn refuse(&mut self, refusal: Refusal) {
        self.buffer.clear(); // a client that reads slowly is not to hold memory
        self.shared.note_refusal(refusal, self.client);
        if self.slot.answering().is_ok() && self.write(&refusal.answer()).is_ok() {
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

const TOO_SLOW: Refusal = Refusal::new(Refused::Timeout, "a request that is not complete in time");

const STOPPING: Refusal = Refusal::new(Refused::Unavailable, "a connection that came while stopping");

/// How long a connection that came while stopping may take to begin its request.
const CLOSING_TIME: Duration = Duration::from_millis(250);

/// How much more than what it needs a read of a chunked body may bring.
const READ_AHEAD_BYTES_MAX: usize = 16 << 10;

const PARTING_TIME: Duration = Duration::from_secs(1);
/// Enough for a client that sends a body somewhat over the limit before it looks at the answer.
const PARTING_BYTES_MAX: usize = 4 << 20;
