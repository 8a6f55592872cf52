//! The open connections: who holds how many, which of them wait for their client, and so who goes
//! when there are too many.
//!
//! A connection whose request is inside tiny_http is never evicted: its event may be committed.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Shutdown};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connection::Stream;
use super::{Counters, lock};

pub(super) struct Table {
    connections_max: usize,
    leaving_max: usize,
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Some connection has left, or may be evicted now.
    changed: Condvar,
    /// Orders the connections by when they began to wait.
    clock: AtomicU64,
    /// How much later those who were served seem to have begun their wait.
    credit: u64,
    /// The next answer on each connection says that it is the last.
    closing: AtomicBool,
    /// Nobody is waited for who has not begun a request.
    closed_to_idle: AtomicBool,
    counters: Arc<Counters>,
}

#[derive(Default)]
pub(super) struct State {
    open: HashMap<u64, Arc<Connection>>,
    held: HashMap<Holder, usize>,
    accepted: u64,
}

/// Whose connections are counted together. A household or a server gets a whole IPv6 /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Holder {
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
    pub(super) fn new(connections_max: usize, leaving_max: usize, counters: Arc<Counters>) -> Self {
        let inner = Inner {
            state: Mutex::default(),
            changed: Condvar::new(),
            clock: AtomicU64::new(0),
            credit: u64::try_from(connections_max).unwrap_or(0) * CREDIT_WAITS * (KIND + 1),
            closing: AtomicBool::new(false),
            closed_to_idle: AtomicBool::new(false),
            counters,
        };
        Self { connections_max, leaving_max, inner: Arc::new(inner) }
    }

    /// Takes the connection in. At the cap the one that has waited longest, of the address that holds
    /// most, is shut down for it; trusted peers come last.
    pub(super) fn admit(&self, stream: Stream, peer: Option<IpAddr>, trusted: bool) -> Admission {
        let mut room = Room::None;
        let waited = self.inner.changed.wait_timeout_while(lock(&self.inner.state), ROOM_TIME, |state| {
            room = self.room(state);
            room == Room::Soon
        });
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if room != Room::Free && state.open.len() >= self.connections_max + self.leaving_max {
            return Admission::Full(stream);
        }
        let holder = Holder::of(peer, trusted);
        state.accepted += 1;
        let id = state.accepted;
        let connection = Arc::new(Connection { stream, peer, holder, phase: AtomicU64::new(STARTING) });
        state.open.insert(id, Arc::clone(&connection));
        *state.held.entry(holder).or_default() += 1;
        let slot = Slot { inner: Arc::clone(&self.inner), id, connection };
        if room == Room::Free { Admission::Serve(slot) } else { Admission::Refuse(slot) }
    }

    /// Whether there is room for another connection, having made some if need be. Those that are
    /// about to start or to leave are worth a moment of back-pressure: without it, a burst of
    /// connections would run over itself before their threads had a turn.
    fn room(&self, state: &State) -> Room {
        let open = state.open.len();
        if open < self.connections_max {
            return Room::Free;
        }
        let is_leaving = |open: &Arc<Connection>| open.phase.load(Ordering::Relaxed) == CLOSED;
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

    /// Ends the connections on which no request has begun. Only their reading is shut down, so that a
    /// request which is already in the socket is still served.
    pub(super) fn close_idle(&self) {
        self.begin_closing();
        self.inner.closed_to_idle.store(true, Ordering::SeqCst);
        for connection in lock(&self.inner.state).open.values() {
            if connection.phase.load(Ordering::SeqCst) & KIND == IDLE {
                connection.stream.shutdown(Shutdown::Read);
            }
        }
    }

    pub(super) fn wait_until_empty(&self, at_most: Duration) -> MutexGuard<'_, State> {
        let (state, _) = self
            .inner
            .changed
            .wait_timeout_while(lock(&self.inner.state), at_most, |state| !state.open.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        state
    }

    /// Waits until all have left; those which have not after `at_most` are shut down and counted.
    pub(super) fn drain(&self, at_most: Duration) -> usize {
        let state = self.wait_until_empty(at_most);
        for connection in state.open.values() {
            connection.stream.shutdown(Shutdown::Both);
        }
        state.open.len()
    }
}

impl Inner {
    fn next_wait(&self, kind: u64) -> u64 {
        self.clock.fetch_add(KIND + 1, Ordering::Relaxed) & !KIND | kind
    }

    /// `Room::Soon` if the one to go has not even started: it may be a good client's.
    fn evict(&self, state: &State) -> Room {
        // A connection may turn busy between the choice and the claim; then another is chosen.
        for _ in 0..8 {
            let candidates = state.open.values().filter_map(|connection| {
                let phase = connection.phase.load(Ordering::Relaxed);
                (phase & KIND != BUSY || phase == STARTING).then_some((connection, phase))
            });
            let Some((connection, phase)) = candidates.max_by_key(|(connection, phase)| {
                let held = match connection.holder {
                    Holder::Trusted => None, // less than any number
                    holder => state.held.get(&holder),
                };
                let since = if *phase == STARTING { u64::MAX } else { *phase };
                (held, Reverse(since))
            }) else {
                return Room::None;
            };
            if phase == STARTING {
                return Room::Soon;
            }
            if connection.claim(phase, CLOSED) {
                connection.stream.shutdown(Shutdown::Both);
                self.counters.evicted.fetch_add(1, Ordering::Relaxed);
                return Room::Free;
            }
        }
        Room::Soon
    }
}

/// One open connection.
pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) peer: Option<IpAddr>,
    holder: Holder,
    /// When it began to wait, with its kind in the lowest bits.
    phase: AtomicU64,
}

impl Connection {
    fn claim(&self, from: u64, to: u64) -> bool {
        self.phase.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

/// In tiny_http, or about to say good-bye: not to be touched. Evicted connections are in this state too.
const BUSY: u64 = 0;
/// Waiting, and no byte of a request has arrived.
const IDLE: u64 = 1;
/// Waiting for the rest of a request, or for the client to take its answer.
const INSIDE: u64 = 2;
const KIND: u64 = 3;
/// Its thread has not had a turn yet.
const STARTING: u64 = 8;
/// Evicted: different from `BUSY`, yet of its kind.
const CLOSED: u64 = 4;

/// A connection's place in the table; dropping it leaves, whatever ended the thread.
pub(super) struct Slot {
    inner: Arc<Inner>,
    id: u64,
    connection: Arc<Connection>,
}

/// Evicted: whoever serves the connection must end, quietly.
#[derive(Debug)]
pub(super) struct Evicted;

impl Slot {
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Its thread runs: from now on it may be evicted.
    pub(super) fn start(&self) -> Result<(), Evicted> {
        let _state = lock(&self.inner.state); // nobody is between looking and waiting
        self.inner.changed.notify_all();
        self.idle()
    }

    /// A request was answered and the next may begin any time. Who has been a good client outlives
    /// newcomers, though not for ever.
    pub(super) fn served(&self) -> Result<(), Evicted> {
        self.enter(|| self.inner.next_wait(IDLE) + self.inner.credit)
    }

    /// Nothing is owed to the client.
    pub(super) fn idle(&self) -> Result<(), Evicted> {
        self.enter(|| self.inner.next_wait(IDLE))
    }

    /// A request has begun, or an answer is stuck.
    pub(super) fn inside(&self) -> Result<(), Evicted> {
        self.enter(|| self.inner.next_wait(INSIDE))
    }

    /// Not to be evicted from here on.
    pub(super) fn busy(&self) -> Result<(), Evicted> {
        self.enter(|| BUSY)
    }

    /// Whether the connection is to close unless a request has begun.
    pub(super) fn is_closed_to_idle(&self) -> bool {
        self.inner.closed_to_idle.load(Ordering::SeqCst)
    }

    /// Whether the connection is to close after this request.
    pub(super) fn is_closing(&self) -> bool {
        self.inner.closing.load(Ordering::SeqCst)
    }

    pub(super) fn still_there(&self) -> Result<(), Evicted> {
        if self.connection.phase.load(Ordering::Relaxed) == CLOSED { Err(Evicted) } else { Ok(()) }
    }

    fn enter(&self, phase: impl FnOnce() -> u64) -> Result<(), Evicted> {
        let now = self.connection.phase.load(Ordering::Relaxed);
        if now != CLOSED && self.connection.claim(now, phase()) { Ok(()) } else { Err(Evicted) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = lock(&self.inner.state);
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
    Soon,
    None,
}

/// How long a new connection may wait for others to start or to leave.
const ROOM_TIME: Duration = Duration::from_secs(1);

/// Waits (of any connection) for each place in the table that a served connection outlives.
const CREDIT_WAITS: u64 = 16;
