//! The open connections: who holds how many, which of them wait for their client, and so who goes
//! when there are too many.
//!
//! A connection whose request is being answered is never evicted: its event may be committed. One
//! whose request has begun gets a response when it has to go; only an idle one is closed without a response.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Shutdown};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Counters;
use super::refusal::Refusal;
use super::stream::Stream;
use crate::intake::answer::Refused;
use crate::wake::lock;

pub(super) struct Table {
    connections_max: usize,
    leaving_max: usize,
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Some connection has left, or may be evicted now.
    changed: Condvar,
    /// What the times of the phases count from.
    epoch: Instant,
    /// Microseconds after which a request that is still not complete is a slow one.
    slow: u64,
    /// No connection is to come, and the next answer on each says that it is the last.
    closing: AtomicBool,
    /// Shutdown no longer waits for idle connections.
    closed_to_idle: AtomicBool,
    /// A new connection waits, and an answered one could leave for it.
    crowded: AtomicBool,
    counters: Arc<Counters>,
}

struct State {
    open: HashMap<u64, Arc<Connection>>,
    held: HashMap<Holder, usize>,
    accepted: u64,
    /// More connections may come.
    accepting: bool,
    /// A new connection has waited for those that are being answered, and none has left since.
    stuck: bool,
}

impl State {
    /// Who is to go first: whoever holds most, and trusted proxies last.
    fn weight(&self, connection: &Connection) -> usize {
        match connection.holder {
            Holder::Trusted => 0,
            holder => self.held.get(&holder).copied().unwrap_or(0),
        }
    }
}

/// Whose connections are counted together. A household or a server gets a whole IPv6 /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    V4(Ipv4Addr),
    V6(u64),
    Trusted,
}

impl Holder {
    fn of(peer: Option<IpAddr>, trusted: bool) -> Self {
        match peer {
            Some(IpAddr::V4(ip)) if !trusted => Self::V4(ip),
            Some(IpAddr::V6(ip)) if !trusted => {
                let [a, b, c, d, e, f, g, h, ..] = ip.octets();
                Self::V6(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
            }
            _ => Self::Trusted,
        }
    }
}

/// What becomes of a new connection.
pub(super) enum Admission {
    Serve(Slot),
    /// Over the cap with nothing to evict; there is room to say so properly.
    Refuse(Slot),
    /// Not even room for that.
    Full(Stream),
}

impl Table {
    pub(super) fn new(
        (connections_max, leaving_max): (usize, usize),
        slow_time: Duration,
        counters: Arc<Counters>,
    ) -> Self {
        let state =
            State { open: HashMap::new(), held: HashMap::new(), accepted: 0, accepting: true, stuck: false };
        let inner = Inner {
            state: Mutex::new(state),
            changed: Condvar::new(),
            epoch: Instant::now(),
            slow: u64::try_from(slow_time.as_micros()).unwrap_or(u64::MAX),
            closing: AtomicBool::new(false),
            closed_to_idle: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            counters,
        };
        Self { connections_max, leaving_max, inner: Arc::new(inner) }
    }

    /// Takes the connection in. At the cap the one that has waited longest, of the address that holds
    /// most, is shut down for it; trusted peers come last.
    pub(super) fn admit(&self, stream: Stream, peer: Option<IpAddr>, trusted: bool) -> Admission {
        let (mut state, has_room) = self.await_room();
        if !has_room && state.open.len() >= self.connections_max + self.leaving_max {
            return Admission::Full(stream);
        }
        let holder = Holder::of(peer, trusted);
        state.accepted += 1;
        let id = state.accepted;
        let connection = Arc::new(Connection { stream, peer, holder, phase: AtomicU64::new(STARTING) });
        state.open.insert(id, Arc::clone(&connection));
        *state.held.entry(holder).or_default() += 1;
        let slot = Slot { inner: Arc::clone(&self.inner), id, connection };
        if has_room { Admission::Serve(slot) } else { Admission::Refuse(slot) }
    }

    /// Those that are about to start, to read, to be answered or to leave are worth a moment of
    /// back-pressure: without it, a burst of connections would run over itself.
    fn await_room(&self) -> (MutexGuard<'_, State>, bool) {
        let deadline = Instant::now() + ROOM_TIME;
        let mut state = lock(&self.inner.state);
        loop {
            let room = self.room(&state);
            self.inner.crowded.store(matches!(room, Room::Answered | Room::None), Ordering::Relaxed);
            let is_in_vain = room == Room::None && state.stuck || Instant::now() >= deadline;
            if room == Room::Free || is_in_vain {
                self.inner.crowded.store(false, Ordering::Relaxed);
                state.stuck = room == Room::None;
                return (state, room == Room::Free);
            }
            let waited = self.inner.changed.wait_timeout(state, LOOK_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether there is room for another connection, having made some if need be.
    fn room(&self, state: &State) -> Room {
        let open = state.open.len();
        if open < self.connections_max {
            return Room::Free;
        }
        let is_leaving = |open: &Arc<Connection>| open.is_closed();
        let is_packed = open >= self.connections_max + self.leaving_max;
        if is_packed && state.open.values().any(is_leaving) {
            return Room::Soon;
        }
        match self.inner.evict(state) {
            Room::Free if is_packed => Room::Soon,
            Room::None if state.open.values().any(is_leaving) => Room::Soon,
            room => room,
        }
    }

    /// Shuts one waiting connection down, if there is one.
    pub(super) fn evict(&self) {
        self.inner.evict(&lock(&self.inner.state));
    }

    pub(super) fn open(&self) -> usize {
        lock(&self.inner.state).open.len()
    }

    /// No request is to follow the present one, or the next, on any connection.
    pub(super) fn begin_closing(&self) {
        self.inner.closing.store(true, Ordering::SeqCst);
    }

    /// Whether [`Table::begin_closing`] was called: no request is to follow the present one.
    pub(super) fn is_closing(&self) -> bool {
        self.inner.closing.load(Ordering::SeqCst)
    }

    /// Ends the connections on which no request has begun. One whose request is already in the socket
    /// is still served.
    pub(super) fn close_idle(&self) {
        self.begin_closing();
        self.inner.closed_to_idle.store(true, Ordering::SeqCst);
        for connection in lock(&self.inner.state).open.values() {
            let phase = connection.phase.load(Ordering::SeqCst);
            if matches!(phase & KIND, IDLE | RESTED) && !connection.stream.has_input() {
                connection.close(phase);
            }
        }
    }

    /// No connection comes any more.
    pub(super) fn stop_accepting(&self) {
        lock(&self.inner.state).accepting = false;
        self.inner.changed.notify_all();
    }

    /// Waits until all have left and none can come, for so long at most.
    pub(super) fn await_end(&self, at_most: Duration) {
        drop(self.state_at_end(at_most));
    }

    fn state_at_end(&self, at_most: Duration) -> MutexGuard<'_, State> {
        let is_in_use = |state: &mut State| state.accepting || !state.open.is_empty();
        let waited = self.inner.changed.wait_timeout_while(lock(&self.inner.state), at_most, is_in_use);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until all have left; those still open after `at_most` get a 503, are shut down and
    /// counted.
    pub(super) fn drain(&self, at_most: Duration) -> usize {
        let state = self.state_at_end(at_most);
        for connection in state.open.values() {
            // Some turn from waiting to reading and back in between.
            while !connection.is_closed() && !connection.close(connection.phase.load(Ordering::SeqCst)) {}
            connection.stream.shutdown(Shutdown::Both);
        }
        state.open.len()
    }
}

impl Inner {
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX >> 8)
    }

    fn phase(&self, kind: u64) -> u64 {
        self.now() << KIND_BITS | kind
    }

    fn evict(&self, state: &State) -> Room {
        let those: Vec<_> = state
            .open
            .values()
            .map(|connection| {
                (state.weight(connection), connection.phase.load(Ordering::Relaxed), connection)
            })
            .filter(|(_, phase, _)| !matches!(phase & KIND, BUSY | ANSWERING | CLOSED))
            .collect();
        let Some(most) = those.iter().map(|(weight, ..)| *weight).max() else {
            return Room::None;
        };
        let mut in_order: BinaryHeap<_> = those
            .iter()
            .enumerate()
            .filter(|(_, (weight, ..))| *weight == most)
            .map(|(index, (_, phase, _))| (Reverse(waiting_since(*phase)), index))
            .collect();
        let now = self.now();
        // If a response is about to make room, no client that may be about to ask again has to go.
        let is_any_in_progress = state.open.values().any(|connection| connection.is_in_progress());
        let rest = if is_any_in_progress { REST_IN_PROGRESS } else { REST };
        let mut room = Room::Answered;
        while let Some((_, index)) = in_order.pop() {
            let (_, phase, connection) = those[index];
            if phase & KIND == RESTED && room == Room::Soon {
                return room; // those before it are to have had their moment
            }
            if connection.may_go(phase, now, rest, self.slow) && connection.close(phase) {
                self.counters.evicted.fetch_add(1, Ordering::Relaxed);
                return Room::Free;
            }
            if !matches!(phase & KIND, RESTED | PARTING) {
                room = Room::Soon;
            }
        }
        room
    }
}

/// In which order they go: first those that have their last answer; and who was a good client
/// outlives newcomers, though not for ever.
fn waiting_since(phase: u64) -> u64 {
    let since = phase >> KIND_BITS;
    match phase & KIND {
        PARTING => 0,
        RESTED => since + SERVED_CREDIT,
        STARTING => u64::MAX,
        _ => since,
    }
}

/// One open connection.
pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) peer: Option<IpAddr>,
    pub(super) holder: Holder,
    /// What it does, and in the higher bits since when.
    phase: AtomicU64,
}

impl Connection {
    #[cfg(test)]
    pub(super) fn unfinished(stream: Stream, holder: Holder) -> Self {
        Self { stream, peer: None, holder, phase: AtomicU64::new(INSIDE) }
    }

    fn claim(&self, from: u64, to: u64) -> bool {
        self.phase.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    fn kind(&self) -> u64 {
        self.phase.load(Ordering::SeqCst) & KIND
    }

    pub(super) fn is_closed(&self) -> bool {
        self.kind() == CLOSED
    }

    /// Its request is complete and on its way.
    pub(super) fn is_in_progress(&self) -> bool {
        matches!(self.kind(), BUSY | ANSWERING)
    }

    /// The rest of its request is awaited.
    pub(super) fn is_unfinished(&self) -> bool {
        matches!(self.kind(), READING | INSIDE)
    }

    /// Ends it if the rest of its request is awaited.
    pub(super) fn evict_unfinished(&self) -> bool {
        let phase = self.phase.load(Ordering::SeqCst);
        matches!(phase & KIND, READING | INSIDE) && self.close(phase)
    }

    /// Not while something of it is about to be read, nor while that can be expected any moment.
    fn may_go(&self, phase: u64, now: u64, rest: u64, slow: u64) -> bool {
        let age = now.saturating_sub(phase >> KIND_BITS);
        match phase & KIND {
            IDLE => age > YOUNG && !self.stream.has_input(),
            RESTED => age > rest && !self.stream.has_input(),
            INSIDE => age > slow || age > YOUNG && !self.stream.has_input(),
            READING => age > slow,
            PARTING => age > YOUNG || !self.stream.has_input(),
            WRITING => true,
            _ => false,
        }
    }

    /// Ends it if it is still in this phase. A client that is owed an answer gets one, without waiting
    /// for it; whoever serves the connection wakes and does the rest.
    fn close(&self, phase: u64) -> bool {
        if !self.claim(phase, CLOSED) {
            return false;
        }
        match phase & KIND {
            READING | INSIDE | BUSY | STARTING => {
                self.stream.send(&GIVES_WAY.answer()).ok(); // a client that is gone needs none
                self.stream.shutdown(Shutdown::Both);
            }
            // Something may have arrived just now: its thread looks.
            IDLE | RESTED => self.stream.shutdown(Shutdown::Read),
            _ => self.stream.shutdown(Shutdown::Both),
        }
        true
    }
}

/// The response to an evicted client whose request has begun.
pub(super) const GIVES_WAY: Refusal = Refusal::new(Refused::Unavailable, "its connection has to give way");

const KIND_BITS: u32 = 4;
const KIND: u64 = (1 << KIND_BITS) - 1;

/// Its request is being answered: not to be touched.
const BUSY: u64 = 0;
/// Its thread has not had a turn yet.
const STARTING: u64 = 1;
/// New, and no byte of a request has been read.
const IDLE: u64 = 2;
/// As `IDLE`, after an answer.
const RESTED: u64 = 3;
/// In a request, whose bytes are being read.
const READING: u64 = 4;
/// In a request, and waiting for the rest of it.
const INSIDE: u64 = 5;
/// An answer is being written.
const ANSWERING: u64 = 6;
/// Waiting for the client to take its answer.
const WRITING: u64 = 7;
/// Has its last answer, and is given a moment to take it.
const PARTING: u64 = 8;
/// Evicted.
const CLOSED: u64 = 9;

/// A connection's place in the table; dropping it leaves, whatever ended the thread.
pub(super) struct Slot {
    inner: Arc<Inner>,
    id: u64,
    connection: Arc<Connection>,
}

/// Evicted: the thread of the connection must end. If a request had begun, its response was sent.
#[derive(Debug)]
pub(super) struct Evicted;

impl Slot {
    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Its thread runs: from now on it may be evicted.
    pub(super) fn start(&self) -> Result<(), Evicted> {
        let _state = lock(&self.inner.state); // so that no thread is between looking and waiting
        self.inner.changed.notify_all();
        self.idle()
    }

    /// No request has begun.
    pub(super) fn idle(&self) -> Result<(), Evicted> {
        self.enter(IDLE)
    }

    /// A request was answered and the next may begin any time.
    pub(super) fn served(&self) -> Result<(), Evicted> {
        self.enter(RESTED)
    }

    /// A request begins.
    pub(super) fn begin(&self) -> Result<(), Evicted> {
        self.enter(READING)
    }

    /// In a request: there is nothing to read for now.
    pub(super) fn waits(&self) -> Result<(), Evicted> {
        self.turn(READING, INSIDE)
    }

    /// In a request: there may be something to read.
    pub(super) fn reads(&self) -> Result<(), Evicted> {
        self.turn(INSIDE, READING)
    }

    /// The request is complete: not to be evicted from here on.
    pub(super) fn busy(&self) -> Result<(), Evicted> {
        self.enter(BUSY)
    }

    /// From here on no other thread writes to the client.
    pub(super) fn answering(&self) -> Result<(), Evicted> {
        self.enter(ANSWERING)
    }

    /// The client does not take its answer at once.
    pub(super) fn writing(&self) -> Result<(), Evicted> {
        self.enter(WRITING)
    }

    /// Nothing more is owed to the client.
    pub(super) fn parting(&self) -> Result<(), Evicted> {
        self.enter(PARTING)
    }

    /// Whether the connection is to close unless a request has begun.
    pub(super) fn is_closed_to_idle(&self) -> bool {
        self.inner.closed_to_idle.load(Ordering::SeqCst)
    }

    /// Whether the connection is to close after this request.
    pub(super) fn is_closing(&self) -> bool {
        self.inner.closing.load(Ordering::SeqCst)
    }

    /// Whether this connection is to close after its answer, so that a new one finds room: better
    /// than to close it later, when its next request may be on its way.
    pub(super) fn makes_room(&self) -> bool {
        self.inner.crowded.load(Ordering::Relaxed) && self.inner.crowded.swap(false, Ordering::Relaxed)
    }

    fn enter(&self, kind: u64) -> Result<(), Evicted> {
        self.to(self.inner.phase(kind))
    }

    /// From one kind of phase to another that counts from the same time.
    fn turn(&self, from: u64, to: u64) -> Result<(), Evicted> {
        let now = self.connection.phase.load(Ordering::Relaxed);
        match now & KIND {
            CLOSED => Err(Evicted),
            kind if kind == from => self.to(now & !KIND | to),
            _ => Ok(()),
        }
    }

    fn to(&self, phase: u64) -> Result<(), Evicted> {
        let now = self.connection.phase.load(Ordering::Relaxed);
        if now & KIND != CLOSED && self.connection.claim(now, phase) { Ok(()) } else { Err(Evicted) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = lock(&self.inner.state);
        state.stuck = false;
        state.open.remove(&self.id);
        if let Some(held) = state.held.get_mut(&self.connection.holder) {
            *held -= 1;
            if *held == 0 {
                state.held.remove(&self.connection.holder);
            }
        }
        self.inner.changed.notify_all();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Free,
    /// Some are about to do something.
    Soon,
    /// All have just been answered.
    Answered,
    /// All are being answered.
    None,
}

/// How long a new connection may wait for others to start, to be answered or to leave.
const ROOM_TIME: Duration = Duration::from_secs(1);

/// Not every change that makes room is announced.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Microseconds that any wait may last: the next bytes may be on their way.
const YOUNG: u64 = 20_000;

/// The same for one that was served, and whose client may be about to ask again. With more, clients
/// that ask once and then hold on to their connection would slow the accepting down.
const REST: u64 = 50_000;

/// The same while some are being answered.
const REST_IN_PROGRESS: u64 = 500_000;

/// Microseconds by which the wait of a connection that was served seems shorter.
const SERVED_CREDIT: u64 = 5_000_000;
