//! A user's application: an HTTP server in a few lines that remembers what it was sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

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

pub struct App {
    pub url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    at_once_max: Arc<AtomicUsize>,
}

impl App {
    /// Answers each request with what `reply` writes.
    pub fn start(reply: impl Fn(&Seen, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), reply)
    }

    pub fn on(listener: TcpListener, reply: impl Fn(&Seen, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let url = format!("http://{}/hooks", listener.local_addr().unwrap());
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let (at_once, at_once_max) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let reply = Arc::new(reply);
        let app = Self { url, seen: Arc::clone(&seen), at_once_max: Arc::clone(&at_once_max) };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, reply) = (Arc::clone(&seen), Arc::clone(&reply));
                let (at_once, at_once_max) = (Arc::clone(&at_once), Arc::clone(&at_once_max));
                thread::spawn(move || {
                    let now = at_once.fetch_add(1, Ordering::SeqCst) + 1;
                    at_once_max.fetch_max(now, Ordering::SeqCst);
                    if let Some((request, mut stream)) = read(stream, &seen) {
                        reply(&request, &mut stream);
                    }
                    at_once.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        app
    }

    /// Answers every request alike.
    pub fn answering(status: u16) -> Self {
        Self::start(move |_, stream| respond(stream, status, "", "ok"))
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn bodies(&self) -> Vec<String> {
        self.seen().iter().map(|seen| seen.text().to_owned()).collect()
    }

    /// The most requests that were there at once.
    pub fn at_once_max(&self) -> usize {
        self.at_once_max.load(Ordering::SeqCst)
    }
}

fn read(stream: TcpStream, all: &Mutex<Vec<Seen>>) -> Option<(Seen, TcpStream)> {
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
    let mut all = all.lock().unwrap();
    let seen = Seen { path, headers, body, number: all.len() };
    all.push(seen.clone());
    Some((seen, reader.into_inner()))
}

/// Writes a whole answer and closes.
pub fn respond(stream: &mut TcpStream, status: u16, header: &str, body: &str) {
    let head = format!(
        "HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n{header}\r\n{body}",
        body.len()
    );
    drop(stream.write_all(head.as_bytes()));
}
