//! A socket to a client, or to the server of the private listener. Every call on it returns at once; only [`Stream::wait`]
//! waits, until its deadline at most.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Answers are whole when they are written: waiting to fill a packet only delays them.
    pub(super) fn send_at_once(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.set_nodelay(true),
            Self::Unix(_) => Ok(()),
        }
    }

    /// What has arrived: `None` if nothing has, `Some(0)` at the end of the input.
    pub(super) fn receive(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        or_later(|| recv(self, &mut *room, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes))
    }

    /// How many of these bytes the socket takes now.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        or_later(|| send(self, bytes, flags)).map(Option::unwrap_or_default)
    }

    /// The user of the process that connected, as the system tells it. Over the network there is none.
    pub(super) fn peer_uid(&self) -> Option<u32> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(unix) => {
                rustix::net::sockopt::socket_peercred(unix).ok().map(|credentials| credentials.uid.as_raw())
            }
        }
    }

    /// Whether unread bytes have arrived; at the end of the input there are none.
    pub(super) fn has_input(&self) -> bool {
        recv(self, &mut [0], RecvFlags::DONTWAIT | RecvFlags::PEEK).is_ok_and(|(bytes, _)| bytes > 0)
    }

    /// Waits until there is something to read (or the end of it), or room to write; `false` if there
    /// is not by the deadline.
    pub(super) fn wait(&self, what: PollFlags, deadline: Instant) -> io::Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).min(LONGEST_WAIT);
            let at_most = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(self, what)], Some(&at_most)) {
                Ok(0) if Instant::now() < deadline => {}
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The last words to a client that is not served any further, without waiting for it. Closing
    /// with bytes unread would reset the connection, and the reset could overtake them.
    pub(super) fn turn_away(&self, answer: &[u8]) {
        self.send(answer).ok(); // a client that is gone gets no response
        self.shutdown(Shutdown::Write);
        self.read_away();
    }

    /// Reads away what has arrived, within reason.
    pub(super) fn read_away(&self) {
        let mut scrap = [0; 4 << 10];
        for _ in 0..READ_AWAY_MAX {
            if !matches!(self.receive(&mut scrap), Ok(Some(1..))) {
                return;
            }
        }
    }

    /// Has the close reset a connection whose reading side was shut down. That side opens its window no more: a
    /// client in the middle of a large body would go on trying for a minute, since nothing else tells it.
    pub(super) fn cut(&self) {
        // where the system refuses, the client waits
        rustix::net::sockopt::set_socket_linger(self, Some(Duration::ZERO)).ok();
    }

    /// A client that is gone needs no shutdown.
    pub(super) fn shutdown(&self, how: Shutdown) {
        match self {
            Self::Tcp(tcp) => tcp.shutdown(how).ok(),
            Self::Unix(unix) => unix.shutdown(how).ok(),
        };
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(tcp) => tcp.as_fd(),
            Self::Unix(unix) => unix.as_fd(),
        }
    }
}

fn or_later(mut call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        return match call() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::INTR) => continue,
            Err(error) => Err(error.into()),
        };
    }
}

/// Any wait fits into what `poll` takes.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Reads of 4 KiB: more than what a client sends ahead usually.
const READ_AWAY_MAX: usize = 64;
