//! The front door: the only code that reads bytes from the network.
//!
//! It bounds everything a stranger can make the process hold (connections, bytes, time), checks the framing strictly,
//! and calls its service with each complete, well-formed request, on the connection's own thread. The service returns
//! the whole answer, so whatever it does is done before the network is waited for. Only the private listener has an
//! HTTP server between the front and its service: see [`Relay`].
//!
//! It never looks at a path (except to ask for the size limit of its body, and who answers it), at a
//! signature or at the content of a body; it never touches the database; nothing a client does ends the
//! accept loop.

mod budget;
mod buffer;
mod chunked;
mod client;
mod connection;
mod head;
mod refusal;
mod relay;
mod stream;
mod table;

use std::fmt;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use log::Level;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::clock;
use crate::intake::answer::Refused;
use crate::intake::exchange::{Request, Response, Service};
use crate::intake::permit::Permits;
use crate::intake::refused;
use crate::logging;
use crate::measure;
use budget::Budget;
use refusal::Refusal;
pub use relay::Relay;
use stream::Stream;
use table::{Admission, Slot, Table};

/// The name of the public listener.
pub const WEBHOOKS: &str = "webhooks";

/// The name of the private listener.
pub const ADMIN: &str = "admin";

/// A socket that is bound and listening, made here or handed over by systemd.
#[derive(Debug)]
pub enum Listener {
    /// Clients have an address; the flood of one cannot lock out another.
    Tcp(TcpListener),
    /// Clients are local and have no address: they count as a trusted proxy.
    Unix(UnixListener),
}

/// A setting per path (without its query).
pub type PerPath<T> = Box<dyn Fn(&str) -> T + Send + Sync>;

/// What one front is to serve.
pub struct Settings {
    /// `webhooks` or `admin`: said of every request.
    pub listener: &'static str,
    /// What answers requests.
    pub respond: Service,
    /// Connections open at one time, if the descriptors allow.
    pub connections_max: usize,
    /// How many file descriptors this front may use, those of its requests to applications included.
    pub descriptors_max: usize,
    /// The largest body in bytes.
    pub body_bytes_max: PerPath<usize>,
    /// Paths whose answer waits for an application, if there are any. They have permits of their own, as many again,
    /// and at most half of the connections, so others are never delayed by them.
    pub waits_for_application: Option<PerPath<bool>>,
    /// Peers whose connections are evicted only when there is no other to evict, and who are believed when they
    /// say for whom they ask.
    pub trusted_proxies: Vec<IpAddr>,
    /// How long and how much.
    pub bounds: Bounds,
}

/// Total times and sizes; the defaults suit providers and the usual proxies.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// From the first byte (of a new connection: from its acceptance) to the end of the head.
    pub head_time: Duration,
    /// From the end of the head to the end of the body.
    pub body_time: Duration,
    /// Between two requests; above the 60 s of the usual proxy, so that the proxy closes first.
    pub idle_time: Duration,
    /// For the client to take the answer.
    pub write_time: Duration,
    /// Waiting for one of the `requests_max` permits.
    pub queue_time: Duration,
    /// For the service to answer.
    pub answer_time: Duration,
    /// Requests that are being answered at one time; of those that wait for an application as many again.
    pub requests_max: usize,
    /// Memory for all bodies together until their requests are answered, in bytes. The first 32 KiB of a request are free,
    /// so that a small one is never refused for memory.
    pub bodies_bytes_max: usize,
    /// For a body to wait for such memory that is about to come back.
    pub bodies_wait: Duration,
    /// A request that is not complete after this is slow: it is the first to give way.
    pub slow_time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            head_time: Duration::from_secs(5),
            body_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(75),
            write_time: Duration::from_secs(10),
            queue_time: Duration::from_secs(5),
            answer_time: Duration::from_secs(30),
            requests_max: 64,
            bodies_bytes_max: 64 << 20,
            bodies_wait: Duration::from_secs(1),
            slow_time: Duration::from_secs(1),
        }
    }
}

/// What one front has done since its start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Waiting connections that were closed to make room.
    pub evicted: AtomicU64,
    /// Errors of `accept` and of starting a thread.
    pub accept_errors: AtomicU64,
    /// Connections that were accepted and given a thread.
    pub served: AtomicU64,
    refused: [AtomicU64; Refused::ALL.len()],
}

impl Counters {
    /// `(status, error, count)` of the requests that were answered here.
    #[cfg(any(test, feature = "internals"))]
    pub fn refused(&self) -> impl Iterator<Item = (u16, &'static str, u64)> + '_ {
        Refused::ALL.into_iter().map(|reason| {
            let (status, word) = Refusal::new(reason, "").status_and_word();
            (status, word, self.refused[reason as usize].load(Ordering::Relaxed))
        })
    }
}

/// The accept loop; a thread serves each connection.
#[derive(Debug)]
pub struct Front {
    shared: Arc<Shared>,
    listener: Listener,
    stopped: UnixStream,
}

impl Front {
    /// Prepares to serve, and logs the caps that follow from the descriptors.
    ///
    /// # Errors
    /// If the listener cannot be made to listen without blocking, or a socket pair cannot be made.
    pub fn new(listener: Listener, settings: Settings) -> io::Result<Self> {
        match &listener {
            Listener::Tcp(tcp) => tcp.set_nonblocking(true)?,
            Listener::Unix(unix) => unix.set_nonblocking(true)?,
        }
        // Again, for a longer queue than std asks for: where it overflows, a client waits a second.
        rustix::net::listen(&listener, QUEUE_MAX)?;
        let caps = Caps::derive(
            settings.connections_max,
            settings.descriptors_max,
            settings.bounds.requests_max,
            settings.waits_for_application.is_some(),
        );
        let is_cut = caps.connections < settings.connections_max;
        log::log!(
            if is_cut { Level::Warn } else { Level::Debug },
            "front {}: at most {} connections, {} requests and {} for applications at a time \
             (limits.connections_max {}, {} descriptors)",
            settings.listener,
            caps.connections,
            settings.bounds.requests_max,
            caps.calls,
            settings.connections_max,
            settings.descriptors_max,
        );
        let (stop, stopped) = UnixStream::pair()?;
        let counters = Arc::new(Counters::default());
        let bounds = &settings.bounds;
        let shared = Arc::new(Shared {
            table: Table::new((caps.connections, caps.leaving), bounds.slow_time, Arc::clone(&counters)),
            permits: Permits::new(bounds.requests_max, usize::MAX),
            call_permits: Permits::new(caps.calls, (caps.connections / 2).saturating_sub(caps.calls)),
            budget: Budget::new(bounds.bodies_bytes_max, bounds.bodies_wait, bounds.slow_time),
            counters,
            stop,
            settings,
        });
        Ok(Self { shared, listener, stopped })
    }

    /// Stops this front from elsewhere, and reads its counters.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { shared: Arc::clone(&self.shared) }
    }

    /// Accepts until [`Handle::stop_accepting`], and those who have come by then; then closes the
    /// listener.
    pub fn run(self) {
        while !self.shared.table.is_closing() {
            match self.accept() {
                Ok((stream, peer)) => self.welcome(stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for_client(),
                Err(error) if connection_failed(&error) => {}
                Err(error) => self.back_off("accept", &error),
            }
        }
        for _ in 0..QUEUE_MAX {
            match self.accept() {
                Ok((stream, peer)) => self.welcome(stream, peer),
                Err(error) if connection_failed(&error) => {}
                Err(_) => break,
            }
        }
    }

    fn accept(&self) -> io::Result<(Stream, Option<IpAddr>)> {
        match &self.listener {
            Listener::Tcp(tcp) => {
                tcp.accept().map(|(stream, peer)| (Stream::Tcp(stream), Some(peer.ip().to_canonical())))
            }
            Listener::Unix(unix) => unix.accept().map(|(stream, _)| (Stream::Unix(stream), None)),
        }
    }

    fn welcome(&self, stream: Stream, peer: Option<IpAddr>) {
        let shared = &self.shared;
        let trusted = peer.is_none_or(|ip| shared.settings.trusted_proxies.contains(&ip));
        let (slot, work): (Slot, fn(&Shared, &Slot)) = match shared.table.admit(stream, peer, trusted) {
            Admission::Serve(slot) => (slot, connection::serve),
            Admission::Refuse(slot) => (slot, connection::refuse_for_want_of_room),
            Admission::Full(stream) => {
                return self.turn_away(&stream, peer, "no connection could be evicted");
            }
        };
        let connection = Arc::clone(slot.connection());
        if let Err(error) = self.spawn(slot, work) {
            self.turn_away(&connection.stream, peer, "no thread could be started");
            drop(connection); // frees its descriptor, which accept may lack
            self.back_off("starting a thread", &error);
        }
    }

    fn turn_away(&self, stream: &Stream, peer: Option<IpAddr>, why: &'static str) {
        let refusal = Refusal::new(Refused::Unavailable, why);
        self.shared.note_refusal(refusal, peer);
        stream.turn_away(&refusal.answer());
    }

    fn spawn(&self, slot: Slot, work: fn(&Shared, &Slot)) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name(format!("front-{}", self.shared.settings.listener))
            .stack_size(STACK_BYTES)
            .spawn(move || work(&shared, &slot))
            .map(drop)
    }

    /// Nothing that goes wrong here ends the loop: room is made, and after a pause it goes on.
    fn back_off(&self, doing: &str, error: &io::Error) {
        self.shared.counters.accept_errors.fetch_add(1, Ordering::Relaxed);
        let kind = format!("front {}: {doing}", self.shared.settings.listener);
        logging::limited(Level::Error, 1, &kind, || {
            format!(": {error}; retrying. Look at LimitNOFILE and TasksMax")
        });
        // more than the one that is wanted here: a reader of the database and a request to an application need some too
        for _ in 0..EVICTED_AT_ONCE {
            self.shared.table.evict();
        }
        self.wait(&mut [PollFd::new(&self.stopped, PollFlags::IN)], Some(BACK_OFF));
    }

    fn wait_for_client(&self) {
        self.wait(
            &mut [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.stopped, PollFlags::IN)],
            None,
        );
    }

    fn wait(&self, descriptors: &mut [PollFd<'_>], at_most: Option<Timespec>) {
        if let Err(error) = poll(descriptors, at_most.as_ref())
            && error != rustix::io::Errno::INTR
        {
            let kind = format!("front {}: poll", self.shared.settings.listener);
            logging::limited(Level::Error, 1, &kind, || format!(": {error}; retrying"));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.shared.table.stop_accepting();
    }
}

/// Stops a [`Front`] and reads its counters.
#[derive(Debug, Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

/// How many connections a front has, for whoever must not keep the front from ending.
#[derive(Debug, Clone)]
pub struct Gauge(Weak<Shared>);

impl Gauge {
    /// Connections that are open, and those that were closed to make room since the start.
    pub fn read(&self) -> (u64, u64) {
        let counts = self.0.upgrade().map(|shared| {
            let open = u64::try_from(shared.table.open()).unwrap_or(u64::MAX);
            (open, shared.counters.evicted.load(Ordering::Relaxed))
        });
        counts.unwrap_or_default()
    }
}

impl Handle {
    /// Counts this front's connections.
    pub fn gauge(&self) -> Gauge {
        Gauge(Arc::downgrade(&self.shared))
    }

    /// Ends the accept loop and gives the open connections so long to send what they are about to: each
    /// request still gets its response, with `Connection: close`. Closing at once would cut off the
    /// clients whose next request is on its way.
    pub fn last_call(&self, at_most: Duration) {
        self.shared.table.begin_closing();
        self.end_accepting();
        self.shared.table.await_end(at_most);
    }

    /// Ends the accept loop and closes the connections on which no request has begun. The others
    /// finish their request, with `Connection: close` in the response.
    pub fn stop_accepting(&self) {
        self.shared.table.close_idle();
        self.end_accepting();
    }

    fn end_accepting(&self) {
        // Readable for good from now on: the loop may look whenever it likes. Fails only if it was done before.
        self.shared.stop.shutdown(std::net::Shutdown::Both).ok();
    }

    /// Waits until no connection is open; after `at_most` it shuts down those that are. Returns how
    /// many that were.
    #[must_use]
    pub fn drain(&self, at_most: Duration) -> usize {
        self.shared.table.drain(at_most)
    }

    /// `webhooks` or `admin`.
    #[must_use]
    pub fn listener(&self) -> &'static str {
        self.shared.settings.listener
    }

    /// Connections open now.
    #[must_use]
    #[cfg(any(test, feature = "internals"))]
    pub fn connections_open(&self) -> usize {
        self.shared.table.open()
    }

    /// Memory that bodies hold now, beyond what each request has free.
    #[must_use]
    #[cfg(any(test, feature = "internals"))]
    pub fn bodies_bytes(&self) -> usize {
        self.shared.budget.held()
    }

    /// What was done since the start.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.shared.counters
    }
}

/// Raises the soft limit of open files to the hard one and returns the limit in force.
pub fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log::warn!("the limit of open files stays at {:?}: {error}", limit.current);
    }
    let in_force = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(in_force).unwrap_or(usize::MAX)
}

/// Everything the threads of one front have in common.
struct Shared {
    settings: Settings,
    table: Table,
    permits: Permits,
    /// For requests that wait for an application.
    call_permits: Permits,
    budget: Budget,
    counters: Arc<Counters>,
    stop: UnixStream,
}

impl Shared {
    fn permits_for(&self, path: &str) -> &Permits {
        let waits = self.settings.waits_for_application.as_ref().is_some_and(|waits| waits(path));
        if waits { &self.call_permits } else { &self.permits }
    }

    /// A bug of the service costs one request.
    fn respond(&self, request: Request) -> Result<Response, Refusal> {
        catch_unwind(AssertUnwindSafe(|| (self.settings.respond)(request))).map_err(|_| {
            log::error!("a request handler panicked; its sender is told to try again");
            Refusal::new(Refused::Unavailable, "its handler panicked")
        })
    }

    fn note_refusal(&self, refusal: Refusal, peer: Option<IpAddr>) {
        self.counters.refused[refusal.reason as usize].fetch_add(1, Ordering::Relaxed);
        let (status, error) = refusal.status_and_word();
        measure::REFUSED.record("", error, Duration::ZERO);
        refused::note(refused::Line {
            at_ms: clock::now_ms(),
            endpoint: None,
            status,
            reason: error,
            method: String::new(),
            path: String::new(),
            peer,
            body_bytes: 0,
        });
        let kind = format!("front {}: refused {status} {error}: {}", self.settings.listener, refusal.why);
        logging::limited(Level::Info, 1, &kind, || format!(" peer={}", Peer(peer)));
    }
}

/// How many of what, so that the descriptors suffice.
#[derive(Debug, PartialEq, Eq)]
struct Caps {
    connections: usize,
    /// Connections beyond the cap that are on their way out.
    leaving: usize,
    /// Requests to applications.
    calls: usize,
}

impl Caps {
    fn derive(connections_max: usize, descriptors_max: usize, requests_max: usize, has_calls: bool) -> Self {
        let calls_max = if has_calls { requests_max.min(descriptors_max / 16).max(1) } else { 0 };
        let room = descriptors_max.saturating_sub(calls_max * DESCRIPTORS_PER_CALL);
        let connections = connections_max.min(room / 9 * 8).max(1);
        let calls = calls_max.min((connections / 2).max(1));
        Self { connections, leaving: (connections / 8).clamp(1, 64), calls }
    }
}

/// Who asked, for the log.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub Option<IpAddr>);

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(ip) => write!(f, "{ip}"),
            None => f.write_str("local"),
        }
    }
}

/// Errors of one client's connection, not of the listener.
fn connection_failed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(tcp) => tcp.as_fd(),
            Self::Unix(unix) => unix.as_fd(),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("listener", &self.listener)
            .field("connections_max", &self.connections_max)
            .field("descriptors_max", &self.descriptors_max)
            .field("trusted_proxies", &self.trusted_proxies)
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("settings", &self.settings)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// Three times what the deepest calls touch in a debug build (TLS to an application 148 KiB, nested JSON 156 KiB; 56 in
/// a release); untouched pages cost nothing.
const STACK_BYTES: usize = 512 << 10;

/// Its socket, and what looking up a name opens.
const DESCRIPTORS_PER_CALL: usize = 2;

/// Where a descriptor or a thread is wanted.
const EVICTED_AT_ONCE: usize = 4;

/// Connections that wait to be accepted; the system's own limit applies too.
const QUEUE_MAX: i32 = 4096;

const BACK_OFF: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caps_never_need_more_descriptors_than_there_are() {
        for (descriptors_max, connections_max) in
            [(20, 512), (100, 512), (192, 512), (960, 512), (1 << 20, 512), (5000, 20_000)]
        {
            for has_calls in [false, true] {
                let caps = Caps::derive(connections_max, descriptors_max, 64, has_calls);
                let needed = caps.connections + caps.leaving + caps.calls * DESCRIPTORS_PER_CALL;
                assert!(needed <= descriptors_max, "{descriptors_max}: {caps:?}");
            }
        }
        let ample = Caps::derive(512, 1 << 20, 64, true);
        assert_eq!(ample, Caps { connections: 512, leaving: 64, calls: 64 });
        assert_eq!(Caps::derive(8, 1 << 20, 64, true).calls, 4, "others keep half of the connections");
    }
}
