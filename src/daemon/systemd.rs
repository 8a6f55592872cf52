//! The service manager: the socket it passes, what it is told, and the watchdog.
//!
//! Without a service manager nothing here does anything. The watchdog is fed by a round trip of the
//! kind that deliveries make, never by a timer alone: a process that only looks alive is restarted.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use listenfd::ListenFd;
use sd_notify::NotifyState;

use crate::config::Address;
use crate::intake::front;
use crate::store::inbox;
use crate::store::open;

/// How long a round trip may take; the writer alone may wait 5 s for another process's lock.
const PROBE_TIME_MAX: Duration = Duration::from_secs(10);

/// The one socket that was passed, and its address.
pub(super) fn passed_listener() -> Result<(front::Listener, Address), String> {
    let mut passed = ListenFd::from_env();
    match passed.len() {
        0 => return Err("no socket was passed: start inboxd.socket".to_owned()),
        1 => {}
        count => {
            return Err(format!(
                "{count} sockets were passed where one is served: leave one ListenStream= in inboxd.socket \
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

/// Stopping: what is in flight is being finished.
pub(super) fn tell_stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("finishing what is in flight")]);
}

/// A service manager that cannot be told is not a reason to stop serving.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        log::warn!("cannot tell the service manager: {error}");
    }
}

/// How often the watchdog is to be fed, where there is one: twice in the time it allows.
pub(super) fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|timeout| timeout / 2)
}

/// A path that nobody else can guess.
pub(super) fn new_probe_path() -> io::Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(format!("/probe/{:032x}", u128::from_le_bytes(random)))
}

/// The round trip: through the public front, tiny_http and the writer's queue, and a read of the file.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) address: Address,
    pub(super) path: String,
    pub(super) database: PathBuf,
}

impl Probe {
    /// Feeds the watchdog as long as the round trips succeed, until `stop` hangs up.
    pub(super) fn feed_watchdog(&self, every: Duration, stop: &Receiver<()>) {
        let mut is_well = true;
        loop {
            match self.go_round() {
                Ok(()) => {
                    tell(&[NotifyState::Watchdog]);
                    if !std::mem::replace(&mut is_well, true) {
                        log::info!("a round trip through front, writer and database succeeded again");
                    }
                }
                Err(reason) => {
                    is_well = false;
                    log::error!(
                        "a round trip through front, writer and database failed: {reason}; \
                         without one the service manager starts this process again"
                    );
                }
            }
            if stop.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn go_round(&self) -> Result<(), String> {
        let answer = self.ask().map_err(|error| format!("front or writer: {error}"))?;
        if !answer.starts_with(b"HTTP/1.1 200 ") {
            let status = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
            return Err(format!("front or writer: answered {:?}", String::from_utf8_lossy(status)));
        }
        let reader = open::open_reader(&self.database, PROBE_TIME_MAX).map_err(|error| error.to_string())?;
        inbox::last_id(&reader).map_err(|error| format!("database: {error}"))?;
        Ok(())
    }

    fn ask(&self) -> io::Result<Vec<u8>> {
        let timeout = Some(PROBE_TIME_MAX);
        match &self.address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, PROBE_TIME_MAX)?;
                stream.set_read_timeout(timeout)?;
                self.converse(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(timeout)?;
                self.converse(stream)
            }
            Address::Systemd => Err(io::Error::other("the address is not known")),
        }
    }

    fn converse(&self, mut stream: impl Read + Write) -> io::Result<Vec<u8>> {
        let request = format!("GET {} HTTP/1.1\r\nHost: inboxd\r\nConnection: close\r\n\r\n", self.path);
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(answer)
    }
}

const ANSWER_BYTES_MAX: u64 = 64 << 10;
