//! What passes between a front and the service behind it: one complete request, and one response.
//!
//! This is the shape of every service here, that of the private listener (probes, page, metrics) included:
//! `fn(Request) -> Response`. A service is called on a thread that does nothing else meanwhile, may block until
//! [`Request::answer_by`], and never sees a socket: the front has bounded and framed what it is given, and writes what
//! it returns. tiny_http prints the response.

use std::fmt;
use std::io::Cursor;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Instant;

use tiny_http::{HTTPVersion, Header, StatusCode};

use crate::clock;
use crate::wake::lock;

/// A response larger than this is a fault: pages and short lines are answered.
pub const RESPONSE_BYTES_MAX: usize = 16 << 20;

/// What stands behind a front.
pub type Service = Box<dyn Fn(Request) -> Response + Send + Sync>;

/// A complete, well-formed request.
pub struct Request {
    /// `webhooks` or `admin`: the listener it came through.
    pub listener: &'static str,
    /// The client's address, where a trusted proxy asks for one that it names; a local client has none.
    pub peer: Option<IpAddr>,
    /// The user of the process that asks, where it asks through a Unix socket of the private listener.
    pub peer_uid: Option<u32>,
    /// e.g. `POST`
    pub method: String,
    /// The path with its query.
    pub target: String,
    /// Names and values of the end-to-end headers, in order. Values that are not UTF-8 are taken for Latin-1.
    pub headers: Vec<(String, String)>,
    /// The exact bytes of the body.
    pub body: Vec<u8>,
    /// Until when the client should have an answer.
    pub answer_by: Instant,
}

impl Request {
    /// The path without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// What stands behind the path's `?`, as it was sent.
    pub fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// The first header of this name, in whatever case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        all.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listener, method, body, .. } = self;
        write!(f, "Request({listener} {method}, {} bytes)", body.len())
    }
}

/// What is left to be done after an answer was given early.
pub type Rest = Box<dyn FnOnce() + Send>;

/// A response of known length. Connection, Date and Content-Length are added when it is printed.
pub struct Response {
    status: u16,
    headers: Vec<Header>,
    body: Vec<u8>,
    /// Of the body; also where that is left out, because it answers HEAD.
    length: usize,
    rest: Option<Rest>,
}

impl Response {
    /// With a body, which may be empty.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self { status, headers: Vec::with_capacity(HEADERS_USUAL), length: body.len(), body, rest: None }
    }

    /// With one header more. A value that cannot stand in a header (a control character, anything outside ASCII) is
    /// left out with its name.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        let is_fit = value.bytes().all(|byte| byte == b'\t' || byte == b' ' || byte.is_ascii_graphic());
        match Header::from_bytes(name, value) {
            Ok(header) if is_fit => self.headers.push(header),
            _ => log::error!("a response header was left out: the value of {name} cannot stand in one"),
        }
        self
    }

    /// An answer that is given although work for it goes on: the connection closes after it, and what the request
    /// holds (its permit, the memory of its body) is kept until `rest` returns.
    #[must_use]
    pub fn with_rest(self, rest: Rest) -> Self {
        Self { rest: Some(rest), ..self }
    }

    /// e.g. 200
    pub fn status(&self) -> u16 {
        self.status
    }

    pub(super) fn take_rest(&mut self) -> Option<Rest> {
        self.rest.take()
    }

    /// The bytes for the client: HTTP/1.1 with an exact length, and no word about what serves it.
    pub(super) fn print(self, is_head: bool, close: bool) -> Vec<u8> {
        let Self { status, mut headers, body, length, .. } = self;
        headers.extend(date());
        let mut text = Vec::with_capacity(HEAD_BYTES_USUAL + body.len());
        let printed =
            tiny_http::Response::new(StatusCode(status), headers, Cursor::new(body), Some(length), None)
                // else a long one is chunked
                .with_chunked_threshold(usize::MAX)
                .raw_print(&mut text, HTTPVersion(1, 1), &[], is_head, None);
        if let Err(error) = printed {
            log::error!("a response could not be printed: {error}");
        }
        // tiny_http ignores a Connection header, and its first header is Server
        let from = text.windows(2).position(|pair| pair == b"\r\n").map_or(text.len(), |at| at + 2);
        if text[from..].starts_with(b"Server: ") {
            let line = text[from..].windows(2).position(|pair| pair == b"\r\n").map_or(0, |at| at + 2);
            let instead: &[u8] = if close { b"Connection: close\r\n" } else { b"" };
            text.splice(from..from + line, instead.iter().copied());
        }
        // RFC 9110, section 8.6: no length with 204
        if status == 204 && text.ends_with(NO_LENGTH) {
            text.truncate(text.len() - NO_LENGTH.len());
            text.extend_from_slice(b"\r\n");
        }
        text
    }

    /// The same as [`tiny_http::Server`] sends it.
    pub(super) fn for_server(self) -> tiny_http::Response<Cursor<Vec<u8>>> {
        let Self { status, headers, body, length, .. } = self;
        tiny_http::Response::new(StatusCode(status), headers, Cursor::new(body), Some(length), None)
            .with_chunked_threshold(usize::MAX)
    }

    /// Reads what [`Response::for_server`] became on its way. `None` where it is cut short.
    pub(super) fn read(mut text: Vec<u8>, is_head: bool) -> Option<Self> {
        let end = text.windows(4).position(|window| window == b"\r\n\r\n")?;
        let body = text.split_off(end + 4);
        let mut lines = str::from_utf8(text.get(..end)?).ok()?.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let (mut headers, mut length) = (Vec::new(), None);
        for line in lines {
            let header: Header = line.parse().ok()?;
            match header.field.as_str().as_str() {
                "Content-Length" => length = header.value.as_str().parse().ok(),
                "Server" | "Date" => {}
                _ => headers.push(header),
            }
        }
        let length = length?;
        let has_no_body = is_head || matches!(status, 204 | 304);
        (body.len() == if has_no_body { 0 } else { length }).then_some(Self {
            status,
            headers,
            body,
            length,
            rest: None,
        })
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Response({}, {} bytes)", self.status, self.length)
    }
}

/// The time of the response: made anew each second.
fn date() -> Option<Header> {
    static LATEST: Mutex<Option<(i64, Header)>> = Mutex::new(None);
    let now_ms = clock::now_ms();
    let second = now_ms.div_euclid(1_000);
    let mut latest = lock(&LATEST);
    if latest.as_ref().is_none_or(|(made, _)| *made != second) {
        let made = Header::from_bytes("Date", clock::http_date(now_ms)).ok();
        *latest = made.map(|header| (second, header));
    }
    latest.as_ref().map(|(_, header)| header.clone())
}

/// Of an answer to a delivery.
const HEADERS_USUAL: usize = 4;

/// What those take, printed.
const HEAD_BYTES_USUAL: usize = 256;

const NO_LENGTH: &[u8] = b"Content-Length: 0\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(response: Response, is_head: bool, close: bool) -> String {
        let text = String::from_utf8(response.print(is_head, close)).unwrap();
        let (before, rest) = text.split_once("Date: ").unwrap();
        format!("{before}{}", rest.split_once("\r\n").unwrap().1)
    }

    #[test]
    fn a_response_has_an_exact_length_and_does_not_say_what_serves_it() {
        let ok = || Response::new(200, "hi").with("Content-Type", "text/plain");
        let cases = [
            (
                ok(),
                false,
                false,
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi",
            ),
            (
                ok(),
                false,
                true,
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi",
            ),
            (ok(), true, false, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n"),
            (Response::new(204, ""), false, false, "HTTP/1.1 204 No Content\r\n\r\n"),
            (Response::new(204, ""), false, true, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"),
            (Response::new(304, ""), false, false, "HTTP/1.1 304 Not Modified\r\nContent-Length: 0\r\n\r\n"),
            (Response::new(404, ""), false, false, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        ];
        for (response, is_head, close, expected) in cases {
            assert_eq!(printed(response, is_head, close), expected);
        }
        let large = printed(Response::new(200, vec![b'x'; 100_000]), false, false);
        assert!(
            large.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nxxx"),
            "{}",
            &large[..99]
        );
    }

    #[test]
    fn a_value_that_would_end_its_header_is_left_out() {
        for value in ["a\r\nSet-Cookie: b", "a\nb", "caf\u{e9}", "a\0"] {
            let response = Response::new(200, "").with("X", value);
            assert_eq!(printed(response, false, false), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    }

    #[test]
    fn what_the_server_was_given_is_read_back_and_nothing_that_is_cut_short() {
        let sent = |is_head| {
            let mut text = Vec::new();
            let response = Response::new(200, "hi").with("Content-Type", "text/plain").for_server();
            response.raw_print(&mut text, HTTPVersion(1, 1), &[], is_head, None).unwrap();
            text
        };
        let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n";
        let read = Response::read(sent(false), false).unwrap();
        assert_eq!(printed(read, false, false), format!("{expected}hi"));
        assert_eq!(printed(Response::read(sent(true), true).unwrap(), true, false), expected);
        for length in 0..sent(false).len() {
            assert!(Response::read(sent(false)[..length].to_vec(), false).is_none(), "{length}");
        }
    }
}
