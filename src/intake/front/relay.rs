//! tiny_http between the fronts and the workers, and both ends of the private socket.
//!
//! What a request says stays in memory: over the socket goes its number, and back comes the answer. So
//! nothing that a stranger wrote is parsed twice, and no body is copied through the kernel.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::wake::lock;

/// A complete, well-formed request.
pub struct Request {
    /// `webhooks` or `admin`: the listener it came through.
    pub listener: &'static str,
    /// The client's address, where a trusted proxy asks for one that it names; a local client has none.
    pub peer: Option<IpAddr>,
    /// e.g. `POST`
    pub method: String,
    /// The path with its query.
    pub target: String,
    /// Names and values of the end-to-end headers, in order. Values that are not UTF-8 are taken for Latin-1.
    pub headers: Vec<(String, String)>,
    /// The exact bytes of the body.
    pub body: Vec<u8>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listener, method, body, .. } = self;
        write!(f, "Request({listener} {method}, {} bytes)", body.len())
    }
}

/// tiny_http, and the requests whose numbers it has not brought to a worker yet.
pub struct Relay {
    server: tiny_http::Server,
    socket: PathBuf,
    waiting: Mutex<Waiting>,
    /// Held while a connection is opened.
    opening: Mutex<()>,
}

#[derive(Default)]
struct Waiting {
    last_number: u64,
    requests: HashMap<u64, Request>,
}

impl Relay {
    /// Has tiny_http listen on a socket, which is to be in a directory that only this user can enter.
    ///
    /// # Errors
    /// If it cannot be bound.
    pub fn bind(socket: PathBuf) -> io::Result<Self> {
        let server = tiny_http::Server::http_unix(&socket).map_err(io::Error::other)?;
        Ok(Self { server, socket, waiting: Mutex::default(), opening: Mutex::new(()) })
    }

    /// The next request, for a worker; and the way back to who sent it.
    ///
    /// # Errors
    /// When tiny_http accepts no more connections, or after [`Relay::unblock`].
    pub fn receive(&self) -> io::Result<(Request, WayBack)> {
        loop {
            let carried = self.server.recv()?;
            let number = carried.url().get(1..).and_then(|digits| digits.parse().ok());
            match number.and_then(|number| self.withdraw(number)) {
                Some(request) => return Ok((request, WayBack(carried))),
                None => respond_to_greeting(carried),
            }
        }
    }

    /// Makes one worker's [`Relay::receive`] return.
    pub fn unblock(&self) {
        self.server.unblock();
    }

    /// A connection to tiny_http, of which `greet` has to get an answer to [`GREETING`]: tiny_http's pool forgets
    /// a connection that comes while the thread for the one before has not begun. One at a time, and
    /// spoken on before the next, none is forgotten.
    pub(super) fn open<T>(&self, greet: impl FnOnce(io::Result<UnixStream>) -> T) -> T {
        let _one_at_a_time = lock(&self.opening);
        greet(UnixStream::connect(&self.socket))
    }

    /// Keeps a request until a worker takes it. Returns its number.
    pub(super) fn deposit(&self, request: Request) -> u64 {
        let mut waiting = lock(&self.waiting);
        waiting.last_number += 1;
        let number = waiting.last_number;
        waiting.requests.insert(number, request);
        number
    }

    /// Takes a request out, once.
    pub(super) fn withdraw(&self, number: u64) -> Option<Request> {
        lock(&self.waiting).requests.remove(&number)
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Where the answer to one request goes. Who drops it instead has its sender told to come again.
pub struct WayBack(tiny_http::Request);

impl WayBack {
    /// Sends an answer of HTTP/1.0 or 1.1 that states its length and is not chunked; to HEAD as to GET.
    ///
    /// # Errors
    /// If the front is gone.
    pub fn send(self, answer: &[u8]) -> io::Result<()> {
        let mut out = self.0.into_writer();
        out.write_all(answer)?;
        out.flush()
    }
}

impl fmt::Debug for WayBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WayBack").finish()
    }
}

/// How tiny_http is sent the number of a request.
pub(super) fn line(number: u64) -> String {
    format!("GET /{number} HTTP/1.1\r\n\r\n")
}

/// The number that no request has.
pub(super) const GREETING: u64 = 0;

fn respond_to_greeting(greeting: tiny_http::Request) {
    if let Err(error) = greeting.respond(tiny_http::Response::empty(204)) {
        log::debug!("a greeting could not be answered: {error}");
    }
}
