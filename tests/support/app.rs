//! A user's application: an HTTP server in a few lines that remembers what it was sent.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::wait_for;

/// One request.
#[derive(Debug, Clone)]
pub struct Seen {
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// 0 for the first request.
    pub number: usize,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub fn key(&self) -> &str {
        self.header("idempotency-key").unwrap()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// An application that is not there yet. Its address is taken, so that nobody else comes up there, and refuses
/// connections.
pub struct Absent {
    pub url: String,
    socket: OwnedFd,
}

impl Absent {
    pub fn new() -> Self {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
        Self { url: format!("http://{address}/hooks"), socket }
    }

    /// From now on connections are taken.
    pub fn come_up(self, reply: impl Fn(&Seen, &mut Reply) + Send + Sync + 'static) -> App {
        rustix::net::listen(&self.socket, 128).unwrap();
        App::on(TcpListener::from(self.socket), reply)
    }
}

/// Holds whoever comes until it is opened: the end of work that takes as long as a test needs.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn pass(&self) {
        let (is_open, opened) = &*self.0;
        let is_open = is_open.lock().unwrap();
        drop(opened.wait_timeout_while(is_open, super::HANG_TIME, |is_open| !*is_open).unwrap());
    }

    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

/// Requests that were read and not answered yet.
#[derive(Default)]
struct AtOnce {
    now: AtomicUsize,
    max: AtomicUsize,
}

/// The way back of one request. It is there until the first byte of its answer: whoever waits for that answer
/// sends the next request after this one was counted down, so the count is never too high.
pub struct Reply {
    stream: TcpStream,
    at_once: Arc<AtOnce>,
    is_there: bool,
}

impl Reply {
    fn new(stream: TcpStream, at_once: Arc<AtOnce>) -> Self {
        let now = at_once.now.fetch_add(1, Ordering::SeqCst) + 1;
        at_once.max.fetch_max(now, Ordering::SeqCst);
        Self { stream, at_once, is_there: true }
    }

    fn count_down(&mut self) {
        if std::mem::take(&mut self.is_there) {
            self.at_once.now.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Write for Reply {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.count_down();
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// To hang up is an answer as well.
impl Drop for Reply {
    fn drop(&mut self) {
        self.count_down();
    }
}

pub struct App {
    pub url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    at_once: Arc<AtOnce>,
    ended: Arc<AtomicUsize>,
}

impl App {
    /// Answers each request with what `reply` writes.
    pub fn start(reply: impl Fn(&Seen, &mut Reply) + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), reply)
    }

    fn on(listener: TcpListener, reply: impl Fn(&Seen, &mut Reply) + Send + Sync + 'static) -> Self {
        let url = format!("http://{}/hooks", listener.local_addr().unwrap());
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let at_once = Arc::<AtOnce>::default();
        let (reply, ended) = (Arc::new(reply), Arc::<AtomicUsize>::default());
        let app =
            Self { url, seen: Arc::clone(&seen), at_once: Arc::clone(&at_once), ended: Arc::clone(&ended) };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, reply) = (Arc::clone(&seen), Arc::clone(&reply));
                let (at_once, ended) = (Arc::clone(&at_once), Arc::clone(&ended));
                thread::spawn(move || {
                    if let Some((request, mut back)) = read(stream, &seen, at_once) {
                        reply(&request, &mut back);
                        ended.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        app
    }

    /// Answers when the gate is open.
    pub fn behind(gate: &Gate, status: u16) -> Self {
        let gate = gate.clone();
        Self::start(move |_, back| {
            gate.pass();
            respond(back, status, "", "");
        })
    }

    /// Answers every request alike.
    pub fn answering(status: u16) -> Self {
        Self::start(move |_, back| respond(back, status, "", "ok"))
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits for so many requests.
    pub fn wait_for(&self, count: usize) {
        wait_for(&format!("{count} requests have come"), || self.seen.lock().unwrap().len() >= count);
    }

    /// Waits until it has done what it does for so many requests.
    pub fn wait_for_end(&self, count: usize) {
        wait_for(&format!("{count} requests have ended"), || self.ended.load(Ordering::SeqCst) >= count);
    }

    pub fn bodies(&self) -> Vec<String> {
        self.seen().iter().map(|seen| seen.text().to_owned()).collect()
    }

    /// The most requests that were there at once.
    pub fn at_once_max(&self) -> usize {
        self.at_once.max.load(Ordering::SeqCst)
    }
}

fn read(stream: TcpStream, all: &Mutex<Vec<Seen>>, at_once: Arc<AtOnce>) -> Option<(Seen, Reply)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let back = Reply::new(reader.into_inner(), at_once);
    let mut all = all.lock().unwrap();
    let seen = Seen { path, headers, body, number: all.len() };
    all.push(seen.clone());
    Some((seen, back))
}

/// Writes a whole answer and closes.
pub fn respond(stream: &mut impl Write, status: u16, header: &str, body: &str) {
    let head = format!(
        "HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n{header}\r\n{body}",
        body.len()
    );
    drop(stream.write_all(head.as_bytes()));
}
