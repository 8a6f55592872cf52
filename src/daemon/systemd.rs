//! The service manager: the socket it passes, the notices it gets, and the watchdog.
//!
//! Without a service manager nothing here does anything. The watchdog is fed when the front has served a connection,
//! the writer has finished an empty job and the database was read, never by a timer alone: a process that only looks alive is
//! restarted.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use listenfd::ListenFd;
use sd_notify::NotifyState;

use crate::config::Address;
use crate::intake::deliveries::App;
use crate::intake::front;
use crate::store::inbox;
use crate::store::open;

/// How long each part may take; the writer alone may wait 5 s for another process's lock.
const PROBE_TIME_MAX: Duration = Duration::from_secs(10);

/// The one socket that was passed, and its address.
pub(super) fn passed_listener() -> Result<(front::Listener, Address), String> {
    let mut passed = ListenFd::from_env();
    match passed.len() {
        0 => return Err("no socket was passed: start inboxd.socket".to_owned()),
        1 => {}
        count => {
            return Err(format!(
                "{count} sockets were passed, but one is served: leave one ListenStream= in inboxd.socket \
                 (\"[::]:8787\" with BindIPv6Only=both takes IPv4 as well)"
            ));
        }
    }
    let failed = |error: io::Error| format!("the socket that was passed cannot be used: {error}");
    if let Ok(Some(tcp)) = passed.take_tcp_listener(0) {
        let address = Address::Tcp(tcp.local_addr().map_err(failed)?);
        return Ok((front::Listener::Tcp(tcp), address));
    }
    let unix = passed.take_unix_listener(0).map_err(failed)?.ok_or("no socket was passed")?;
    let bound = unix.local_addr().map_err(failed)?;
    let address = Address::Unix(bound.as_pathname().unwrap_or("/".as_ref()).to_owned());
    Ok((front::Listener::Unix(unix), address))
}

/// Ready: deliveries are accepted.
pub(super) fn tell_ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("accepting deliveries")]);
}

/// Still starting, and that is right.
pub(super) fn tell_waiting(for_what: &str) {
    tell(&[NotifyState::Status(for_what), NotifyState::ExtendTimeoutUsec(60_000_000)]);
}

/// Stopping: requests in flight are being finished.
pub(super) fn tell_stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("finishing requests in flight")]);
}

/// A failure to notify the service manager is not a reason to stop serving.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        log::warn!("cannot notify the service manager: {error}");
    }
}

/// How often the watchdog is to be fed, where there is one: twice in the time it allows.
pub(super) fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|timeout| timeout / 2)
}

/// What shows that deliveries would be taken: the accept loop of the public front, the writer, and the database file.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) address: Address,
    pub(super) counters: Arc<front::Counters>,
    /// The writer ends only when nobody holds it: a stop does not wait for a probe.
    pub(super) app: Weak<App>,
    pub(super) database: PathBuf,
}

impl Probe {
    /// Feeds the watchdog as long as all of them are well, until `stop` hangs up.
    pub(super) fn feed_watchdog(&self, every: Duration, stop: &Receiver<()>) {
        let mut is_well = true;
        loop {
            match self.look() {
                Ok(()) => {
                    tell(&[NotifyState::Watchdog]);
                    if !std::mem::replace(&mut is_well, true) {
                        log::info!("front, writer and database are well again");
                    }
                }
                Err(reason) => {
                    is_well = false;
                    log::error!(
                        "the watchdog is not fed: {reason}; if that lasts, the service manager restarts this process"
                    );
                }
            }
            if stop.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn look(&self) -> Result<(), String> {
        self.look_at_writer()?;
        self.look_at_front()?;
        let reader = open::open_reader(&self.database, PROBE_TIME_MAX).map_err(|error| error.to_string())?;
        inbox::last_id(&reader).map_err(|error| format!("the database cannot be read: {error}"))?;
        Ok(())
    }

    fn look_at_writer(&self) -> Result<(), String> {
        let (came_round, comes_round) = mpsc::channel();
        // the waiting thread may have given up
        let app = self.app.upgrade().ok_or("it is stopping")?;
        app.probe_writer(move || came_round.send(()).unwrap_or_default());
        drop(app);
        comes_round
            .recv_timeout(PROBE_TIME_MAX)
            .map_err(|_| format!("the writer has not answered within {} s", PROBE_TIME_MAX.as_secs()))
    }

    /// Connects as a client does, and waits until some connection was given a thread. It is closed without a word.
    fn look_at_front(&self) -> Result<(), String> {
        let served = &self.counters.served;
        let before = served.load(Ordering::Relaxed);
        let _connection =
            self.connect().map_err(|error| format!("the listener takes no connection: {error}"))?;
        let end = Instant::now() + PROBE_TIME_MAX;
        while served.load(Ordering::Relaxed) == before {
            if Instant::now() >= end {
                let seconds = PROBE_TIME_MAX.as_secs();
                return Err(format!("the front has served no new connection within {seconds} s"));
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn connect(&self) -> io::Result<OwnedFd> {
        match &self.address {
            Address::Tcp(address) => TcpStream::connect_timeout(address, PROBE_TIME_MAX).map(OwnedFd::from),
            Address::Unix(path) => UnixStream::connect(path).map(OwnedFd::from),
            Address::Systemd => Err(io::Error::other("the address is not known")),
        }
    }
}

/// Between two looks whether a connection was served.
const LOOK_EVERY: Duration = Duration::from_millis(5);
