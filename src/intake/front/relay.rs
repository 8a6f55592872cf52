//! The private listener's way to its service: tiny_http's server, one complete request per connection.
//!
//! The front has bounded and framed the request; here it goes over a Unix socket in a directory that only this user can
//! enter, and its answer is read back, bounded and within its time. tiny_http's server may stop accepting, panic or
//! hang: a request that it does not hand over soon goes to a new one, and the old one is left behind. No delivery
//! comes this way, and a stop waits for nothing here.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use log::Level;
use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::stream::Stream;
use crate::intake::answer::Answer;
use crate::intake::exchange::{RESPONSE_BYTES_MAX, Request, Response, Service};
use crate::logging;
use crate::wake::lock;

/// tiny_http needs microseconds. If it has not handed a request over by then, it never will.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(2);

/// The head beside the body of a response.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Names the request to the thread that gets it.
const NUMBER_HEADER: &str = "Inboxd-Request";

/// The way through tiny_http to one service.
pub struct Relay {
    sockets: PathBuf,
    service: Service,
    server: Mutex<Option<Arc<Server>>>,
    servers_made: AtomicU64,
    requests: AtomicU64,
    me: Weak<Self>,
}

/// One life of tiny_http's server.
struct Server {
    /// Taken when this is dropped.
    http: Option<tiny_http::Server>,
    socket: PathBuf,
    is_dead: AtomicBool,
    /// Requests on their way through it.
    tickets: Mutex<HashMap<u64, Ticket>>,
}

/// What is known of a request and does not travel with it.
struct Ticket {
    listener: &'static str,
    peer: Option<IpAddr>,
    peer_uid: Option<u32>,
    answer_by: Instant,
    /// Hung up when the service is done with the request.
    _at_work: Sender<()>,
}

/// Why there is no response.
enum Failure {
    /// The server never handed the request over.
    Dead(String),
    /// There is no whole response, and the server is not to blame.
    Broken(String),
    /// The service is still at work.
    Late(Receiver<()>),
}

impl Relay {
    /// Requests at one time, each with a thread that waits for it behind tiny_http. The front in front of a relay has
    /// as many permits.
    pub const REQUESTS_MAX: usize = 4;

    /// For each of them: our end of its connection, tiny_http's end, and tiny_http's duplicate of it.
    pub const DESCRIPTORS_MAX: usize = Self::REQUESTS_MAX * 3;

    /// A relay to this service, with its sockets in a directory that only this user can enter.
    pub fn new(sockets: PathBuf, service: Service) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            sockets,
            service,
            server: Mutex::default(),
            servers_made: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            me: me.clone(),
        })
    }

    /// Starts tiny_http's server, which otherwise the first request does.
    ///
    /// # Errors
    /// If the socket cannot be bound or a thread cannot be started.
    pub fn start(&self) -> io::Result<()> {
        self.server().map(drop)
    }

    /// Has the service answer a request.
    pub fn respond(&self, request: Request) -> Response {
        let is_head = request.method == "HEAD";
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let text = text_of(&request, number);
        let mut reason = String::new();
        // one that was never handed over can be sent again, to another server
        for _ in 0..2 {
            match self.attempt(&request, number, &text) {
                Ok(bytes) => match Response::read(bytes, is_head) {
                    Some(response) => return response,
                    None => return unavailable("the response was cut short"),
                },
                Err(Failure::Dead(why)) => reason = why,
                Err(Failure::Broken(why)) => return unavailable(&why),
                Err(Failure::Late(at_work)) => {
                    return unavailable("the response took too long").with_rest(Box::new(move || {
                        at_work.recv().unwrap_or_default(); // hung up when it is done
                    }));
                }
            }
        }
        unavailable(&reason)
    }

    fn attempt(&self, request: &Request, number: u64, text: &[u8]) -> Result<Vec<u8>, Failure> {
        let server = self.server().map_err(|error| Failure::Broken(format!("no server: {error}")))?;
        let answer = server.converse(request, number, text);
        if let Err(Failure::Dead(why)) = &answer {
            logging::limited(Level::Error, 1, "the server of the private listener is dead", || {
                format!(": {why}; another takes its place")
            });
            server.retire();
        }
        answer
    }

    /// A bug of the service costs one request.
    fn ask(&self, request: Request) -> Response {
        catch_unwind(AssertUnwindSafe(|| (self.service)(request))).unwrap_or_else(|_| {
            log::error!("a request handler of the private listener panicked");
            Answer::Unavailable.plain()
        })
    }

    /// The one at work, or a new one.
    fn server(&self) -> io::Result<Arc<Server>> {
        let mut server = lock(&self.server);
        if let Some(alive) = server.as_ref().filter(|server| !server.is_dead.load(Ordering::Acquire)) {
            return Ok(Arc::clone(alive));
        }
        let name = match self.servers_made.fetch_add(1, Ordering::Relaxed) {
            0 => "http.sock".to_owned(),
            earlier => format!("http-{earlier}.sock"),
        };
        let made = Arc::new(Server::bind(self.sockets.join(name))?);
        for index in 0..Self::REQUESTS_MAX {
            let (relay, server) = (self.me.clone(), Arc::clone(&made));
            let thread = thread::Builder::new().name(format!("private-{index}"));
            // those that were started end with the server, which is dropped here
            thread.spawn(move || server.serve(&relay)).inspect_err(|_| made.retire())?;
        }
        *server = Some(Arc::clone(&made));
        Ok(made)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(server) = lock(&self.server).take() {
            server.retire();
        }
    }
}

impl Server {
    fn bind(socket: PathBuf) -> io::Result<Self> {
        // it panics where the system has no thread for it
        let bound = catch_unwind(|| tiny_http::Server::http_unix(&socket));
        let http =
            bound.map_err(|_| io::Error::other("no thread could be started"))?.map_err(io::Error::other)?;
        // whatever the umask: the directory keeps others out already
        fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
        Ok(Self { http: Some(http), socket, is_dead: AtomicBool::new(false), tickets: Mutex::default() })
    }

    /// Hands requests to the service until this server has ended.
    fn serve(&self, relay: &Weak<Relay>) {
        while let Some(http) = self.http.as_ref().filter(|_| !self.is_dead.load(Ordering::Acquire)) {
            match http.recv() {
                Ok(carried) => self.hand_over(carried, relay),
                Err(_) if self.is_dead.load(Ordering::Acquire) => return,
                Err(error) => {
                    log::error!("the server of the private listener accepts no more: {error}");
                    self.retire();
                }
            }
        }
    }

    fn hand_over(&self, mut carried: tiny_http::Request, relay: &Weak<Relay>) {
        let number = carried.headers().iter().find(|header| header.field.equiv(NUMBER_HEADER));
        let number = number.and_then(|header| header.value.as_str().parse().ok());
        let ticket = number.and_then(|number| lock(&self.tickets).remove(&number));
        // without a ticket it was given up, and may have been sent again
        let (Some(ticket), Some(relay)) = (ticket, relay.upgrade()) else { return };
        let mut body = Vec::new();
        let length = carried.body_length().unwrap_or(0);
        let is_whole = carried.as_reader().read_to_end(&mut body).is_ok_and(|read| read == length);
        let mut response = match request_of(&carried, &ticket, body) {
            request if is_whole => relay.ask(request),
            _ => Answer::Unavailable.plain(),
        };
        drop(relay);
        let rest = response.take_rest();
        if let Err(error) = carried.respond(response.for_server()) {
            log::debug!("a response was not taken: {error}");
        }
        if let Some(rest) = rest {
            rest();
        }
    }

    /// Sends the request and reads its response to the end.
    fn converse(&self, request: &Request, number: u64, text: &[u8]) -> Result<Vec<u8>, Failure> {
        let stream = self.connect()?;
        let (at_work, done) = mpsc::channel();
        let Request { listener, peer, peer_uid, answer_by, .. } = *request;
        let ticket = Ticket { listener, peer, peer_uid, answer_by, _at_work: at_work };
        lock(&self.tickets).insert(number, ticket);
        let mut wait = Wait { server: self, number, answer_by, is_handed_over: false };
        let result = wait.send(&stream, text).and_then(|()| wait.receive(&stream));
        match result {
            Ok(bytes) => Ok(bytes),
            // a request that was not handed over must not be handled later
            _ if self.withdraw(number) => Err(Failure::Dead("it does not hand requests over".to_owned())),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(Failure::Late(done)),
            Err(error) => Err(Failure::Broken(error.to_string())),
        }
    }

    fn withdraw(&self, number: u64) -> bool {
        lock(&self.tickets).remove(&number).is_some()
    }

    /// Without waiting: a server that accepts nothing has a full queue at last.
    fn connect(&self) -> Result<Stream, Failure> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|error| Failure::Broken(format!("no socket: {error}")))?;
        let connected = SocketAddrUnix::new(&self.socket).and_then(|address| connect(&socket, &address));
        connected.map_err(|error| Failure::Dead(format!("it takes no connection: {error}")))?;
        Ok(Stream::Unix(UnixStream::from(socket)))
    }

    /// No request goes to it any more, and those who wait for one end.
    fn retire(&self) {
        if !self.is_dead.swap(true, Ordering::AcqRel)
            && let Some(http) = &self.http
        {
            (0..Relay::REQUESTS_MAX).for_each(|_| http.unblock());
        }
    }
}

impl Drop for Server {
    /// tiny_http connects to itself to end, which may hang: a thread of its own waits for that.
    fn drop(&mut self) {
        let http = self.http.take();
        drop(thread::Builder::new().name("private-end".to_owned()).spawn(move || drop(http)));
    }
}

/// How long the other side may take: shortly, until the service has the request.
struct Wait<'a> {
    server: &'a Server,
    number: u64,
    answer_by: Instant,
    is_handed_over: bool,
}

impl Wait<'_> {
    fn send(&mut self, stream: &Stream, text: &[u8]) -> io::Result<()> {
        let mut sent = stream.send(text)?;
        while sent < text.len() {
            self.until(stream, PollFlags::OUT)?;
            sent += stream.send(&text[sent..])?;
        }
        Ok(())
    }

    fn receive(&mut self, stream: &Stream) -> io::Result<Vec<u8>> {
        let (mut bytes, mut room) = (Vec::new(), vec![0; 16 << 10]);
        loop {
            self.until(stream, PollFlags::IN)?;
            match stream.receive(&mut room)? {
                Some(0) => return Ok(bytes),
                received => bytes.extend_from_slice(&room[..received.unwrap_or(0)]),
            }
            if bytes.len() > RESPONSE_BYTES_MAX + HEAD_BYTES_MAX {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
    }

    fn until(&mut self, stream: &Stream, what: PollFlags) -> io::Result<()> {
        if !self.is_handed_over {
            let deadline = self.answer_by.min(Instant::now() + HANDED_OVER_WITHIN);
            if stream.wait(what, deadline)? {
                return Ok(());
            }
            self.is_handed_over = !lock(&self.server.tickets).contains_key(&self.number);
        }
        if self.is_handed_over && stream.wait(what, self.answer_by)? {
            return Ok(());
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// As tiny_http reads it. Header values outside ASCII, which it cannot read, stay behind.
fn text_of(request: &Request, number: u64) -> Vec<u8> {
    let Request { method, target, headers, body, .. } = request;
    let mut text =
        format!("{method} {target} HTTP/1.1\r\n{NUMBER_HEADER}: {number}\r\nConnection: close\r\n");
    let is_ours = |name: &str| name.eq_ignore_ascii_case(NUMBER_HEADER);
    for (name, value) in headers.iter().filter(|(name, value)| !is_ours(name) && value.is_ascii()) {
        text.extend([name, ": ", value, "\r\n"]);
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    let mut text = text.into_bytes();
    text.extend_from_slice(body);
    text
}

fn request_of(carried: &tiny_http::Request, ticket: &Ticket, body: Vec<u8>) -> Request {
    let added = [NUMBER_HEADER, "Connection", "Content-Length"];
    let is_sent = |header: &&tiny_http::Header| !added.iter().any(|name| header.field.equiv(name));
    let text_of = |header: &tiny_http::Header| (header.field.to_string(), header.value.to_string());
    Request {
        listener: ticket.listener,
        peer: ticket.peer,
        peer_uid: ticket.peer_uid,
        method: carried.method().to_string(),
        target: carried.url().to_owned(),
        headers: carried.headers().iter().filter(is_sent).map(text_of).collect(),
        body,
        answer_by: ticket.answer_by,
    }
}

fn unavailable(why: &str) -> Response {
    logging::limited(Level::Warn, 1, "a request of the private listener was not answered", || {
        format!(": {why}")
    });
    Answer::Unavailable.plain()
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("sockets", &self.sockets).finish_non_exhaustive()
    }
}
