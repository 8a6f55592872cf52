//! The head of a request: strict framing (RFC 9112), and what of it goes on to the workers.
//!
//! Pure functions of bytes. What two parsers could read differently is refused, never repaired:
//! nothing that is ambiguous passes.

use std::borrow::Cow;

use super::refusal::Refusal;
use crate::intake::answer::Refused;

/// The largest head, request line and blank line included.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
const METHOD_BYTES_MAX: usize = 32;

/// A request head that passed every check.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: String,
    /// The path with its query, also where the client wrote the whole URL.
    pub(super) target: String,
    /// The end-to-end ones, in order.
    pub(super) headers: Vec<(String, String)>,
    /// Where the body ends.
    pub(super) framing: Framing,
    /// The client waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
    /// The client may send another request.
    pub(super) keep_alive: bool,
}

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// By its length in bytes; `usize::MAX` stands for everything larger.
    Length(usize),
    /// By a last chunk.
    Chunked,
}

impl Head {
    /// The path without its query.
    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

/// Looks for the end of the head, having seen `bytes[..seen]` before: its length once it is there.
/// Refuses at the first impossible byte, so that TLS on the plain port need not wait for a deadline.
pub(super) fn find_end(bytes: &[u8], seen: usize) -> Result<Option<usize>, Refusal> {
    if bytes.first().is_some_and(|first| !is_token_byte(*first)) {
        return Err(Refusal::bad("the first byte begins no method"));
    }
    for at in seen.saturating_sub(1)..bytes.len() {
        match bytes[at] {
            b'\r' if bytes.get(at + 1).is_some_and(|next| *next != b'\n') => {
                return Err(Refusal::bad("a bare CR"));
            }
            b'\n' if at == 0 || bytes[at - 1] != b'\r' => return Err(Refusal::bad("a bare LF")),
            b'\n' if at >= 3 && bytes[at - 2] == b'\n' => return within_limit(at + 1).map(Some),
            b'\r' | b'\n' | b'\t' => {}
            byte if byte.is_ascii_control() => {
                return Err(Refusal::bad("a control byte in the head"));
            }
            _ => {}
        }
    }
    // One more byte must fit for the end to come.
    within_limit(bytes.len() + 1).map(|_| None)
}

fn within_limit(length: usize) -> Result<usize, Refusal> {
    if length > HEAD_BYTES_MAX {
        Err(Refusal::new(Refused::HeadTooLarge, "a head over 16 KiB"))
    } else {
        Ok(length)
    }
}

/// Reads a head that [`find_end`] has delimited, blank line included.
///
/// A missing `Host` is accepted (HTTP/1.0 has none and nothing here depends on it), several are not.
/// Origin-form and absolute-form targets are served. Headers that `Connection` names are *not* removed: this is the
/// end of the line, and a client could otherwise remove what a proxy has added.
pub(super) fn parse(head: &[u8]) -> Result<Head, Refusal> {
    let text = head.strip_suffix(b"\r\n\r\n").ok_or(Refusal::bad("no blank line"))?;
    let mut lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let request_line = RequestLine::parse(lines.next().unwrap_or_default())?;
    let (mut fields, mut headers) = (Fields::default(), Vec::new());
    for (index, line) in lines.enumerate() {
        if index == HEADERS_MAX {
            return Err(Refusal::new(Refused::HeadTooLarge, "more than 64 headers"));
        }
        let (name, value) = split_field(line)?;
        if fields.take(name, value)? {
            headers.push((text_of(name), text_of(value)));
        }
    }
    Ok(Head {
        method: text_of(request_line.method),
        target: text_of(&request_line.target),
        headers,
        framing: fields.framing(request_line.is_1_0)?,
        expects_continue: fields.expects_continue && !request_line.is_1_0,
        keep_alive: !fields.asks_to_close && !request_line.is_1_0,
    })
}

/// Bytes over 0x7F are legal in a value; those that are not UTF-8 are taken for Latin-1.
fn text_of(bytes: &[u8]) -> String {
    str::from_utf8(bytes).map_or_else(|_| bytes.iter().copied().map(char::from).collect(), str::to_owned)
}

struct RequestLine<'a> {
    method: &'a [u8],
    target: Cow<'a, [u8]>,
    is_1_0: bool,
}

impl<'a> RequestLine<'a> {
    fn parse(line: &'a [u8]) -> Result<Self, Refusal> {
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Refusal::bad("a request line without exactly three parts"));
        };
        if method.is_empty() || method.len() > METHOD_BYTES_MAX || !method.iter().copied().all(is_token_byte)
        {
            return Err(Refusal::bad("a malformed method"));
        }
        let is_1_0 = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                return Err(Refusal::new(Refused::VersionNotSupported, "neither HTTP/1.1 nor HTTP/1.0"));
            }
            _ => return Err(Refusal::bad("a malformed HTTP version")),
        };
        let target = if target.iter().all(u8::is_ascii_graphic) { path_and_query(target) } else { None };
        let target = target.ok_or(Refusal::bad("a target that is neither a path nor an http URL"))?;
        Ok(Self { method, target, is_1_0 })
    }
}

/// Path and query of the origin form and of the absolute form, which forward proxies and some senders write and a
/// server must take (RFC 9112, section 3.2.2). Whatever the authority, this is the server.
fn path_and_query(target: &[u8]) -> Option<Cow<'_, [u8]>> {
    if target.first() == Some(&b'/') {
        return Some(Cow::Borrowed(target));
    }
    let schemes = [&b"http://"[..], b"https://"];
    let scheme = schemes
        .iter()
        .find(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))?;
    let rest = &target[scheme.len()..];
    let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    let (authority, after) = rest.split_at(end);
    match after.first() {
        _ if authority.is_empty() => None,
        Some(b'/') => Some(Cow::Borrowed(after)),
        Some(b'?') => Some(Cow::Owned([b"/", after].concat())),
        None => Some(Cow::Borrowed(b"/")),
        Some(_) => None,
    }
}

/// `Name : value` and folded lines fail here: a space is no token byte.
fn split_field(line: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    let colon =
        line.iter().position(|byte| *byte == b':').ok_or(Refusal::bad("a header line without a colon"))?;
    let name = &line[..colon];
    if name.is_empty() || !name.iter().copied().all(is_token_byte) {
        return Err(Refusal::bad("a malformed header name"));
    }
    Ok((name, line[colon + 1..].trim_ascii()))
}

/// What the headers that concern the connection say.
#[derive(Default)]
struct Fields {
    length: Option<usize>,
    transfer_encoding: Option<TransferEncoding>,
    expects_continue: bool,
    asks_to_close: bool,
    has_host: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TransferEncoding {
    Chunked,
    Other,
}

impl Fields {
    /// Whether the header is one of the message, not of the connection.
    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is("content-length") {
            if self.length.replace(content_length(value)?).is_some() {
                return Err(Refusal::bad("several Content-Length headers"));
            }
        } else if is("transfer-encoding") {
            let is_single_chunked =
                self.transfer_encoding.is_none() && value.eq_ignore_ascii_case(b"chunked");
            self.transfer_encoding =
                Some(if is_single_chunked { TransferEncoding::Chunked } else { TransferEncoding::Other });
        } else if is("connection") {
            self.asks_to_close |= value
                .split(|byte| *byte == b',')
                .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"));
        } else if is("expect") {
            if !value.eq_ignore_ascii_case(b"100-continue") {
                return Err(Refusal::new(
                    Refused::ExpectationFailed,
                    "an expectation other than 100-continue",
                ));
            }
            self.expects_continue = true;
        } else if is("content-encoding") {
            if !value.is_empty() && !value.eq_ignore_ascii_case(b"identity") {
                return Err(Refusal::new(Refused::UnsupportedEncoding, "a Content-Encoding"));
            }
        } else if is("host") {
            if std::mem::replace(&mut self.has_host, true) {
                return Err(Refusal::bad("several Host headers"));
            }
            return Ok(true);
        } else {
            return Ok(!HOP_BY_HOP.iter().any(|hop| is(hop)));
        }
        Ok(false)
    }

    fn framing(&self, is_1_0: bool) -> Result<Framing, Refusal> {
        match (self.transfer_encoding, self.length) {
            (None, length) => Ok(Framing::Length(length.unwrap_or(0))),
            (Some(_), Some(_)) => Err(Refusal::bad("both Content-Length and Transfer-Encoding")),
            (Some(_), None) if is_1_0 => Err(Refusal::bad("Transfer-Encoding in HTTP/1.0")),
            (Some(TransferEncoding::Chunked), None) => Ok(Framing::Chunked),
            (Some(TransferEncoding::Other), None) => {
                Err(Refusal::new(Refused::NotImplemented, "a Transfer-Encoding other than a single chunked"))
            }
        }
    }
}

/// Digits only; of any number, since a length that no one can hold is still a length.
fn content_length(value: &[u8]) -> Result<usize, Refusal> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Refusal::bad("a malformed Content-Length"));
    }
    Ok(value
        .iter()
        .fold(0_usize, |sum, digit| sum.saturating_mul(10).saturating_add(usize::from(digit - b'0'))))
}

const HOP_BY_HOP: [&str; 5] = ["keep-alive", "proxy-connection", "te", "trailer", "upgrade"];

/// `tchar` of RFC 9110, section 5.6.2.
pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the end as bytes arrive one by one, and in one go; both must agree.
    fn read(bytes: &[u8]) -> Result<Option<Head>, Refusal> {
        let at_once = find_end(bytes, 0);
        let mut one_by_one = Ok(None);
        for seen in 0..bytes.len() {
            one_by_one = find_end(&bytes[..=seen], seen);
            if one_by_one != Ok(None) {
                break;
            }
        }
        assert_eq!(at_once, one_by_one, "{:?}", String::from_utf8_lossy(bytes));
        at_once?.map(|end| parse(&bytes[..end])).transpose()
    }

    fn status(bytes: &[u8]) -> u16 {
        match read(bytes) {
            Ok(Some(_)) => 200,
            Ok(None) => 0,
            Err(refusal) => refusal.status_and_word().0,
        }
    }

    const HEADS: [(&str, u16); 59] = [
        ("\u{80}.", 400),
        ("GET / HTTP/1.1\r\n\r\n", 200),
        ("GET / HTTP/1.0\r\n\r\n", 200),
        ("POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nX:\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nX: \t a\tb \r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: x\r\n", 0),
        ("GET / HTTP/2.0\r\n\r\n", 505),
        ("GET / HTTP/1.2\r\n\r\n", 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("GET * HTTP/1.1\r\n\r\n", 400),
        ("GET http://x/ HTTP/1.1\r\n\r\n", 200),
        ("CONNECT x:443 HTTP/1.1\r\n\r\n", 400),
        ("GET ftp://x/ HTTP/1.1\r\n\r\n", 400),
        ("GET http:///a HTTP/1.1\r\n\r\n", 400),
        ("GET http://x#a HTTP/1.1\r\n\r\n", 400),
        ("GET http:/a HTTP/1.1\r\n\r\n", 400),
        ("GET x/a HTTP/1.1\r\n\r\n", 400),
        ("GET / http/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.11\r\n\r\n", 400),
        ("GET /\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\n\r\n", 400),
        ("GET / x HTTP/1.1\r\n\r\n", 400),
        ("GET /\u{e9} HTTP/1.1\r\n\r\n", 400),
        ("G(T / HTTP/1.1\r\n\r\n", 400),
        (" GET / HTTP/1.1\r\n\r\n", 400),
        ("\u{16}\u{3}\u{1}\u{2}", 400),
        ("\r\n\r\n", 400),
        ("GET / HTTP/1.1\n\n", 400),
        ("GET / HTTP/1.1\r\nX: a\nY: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nX: a\rY: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nX: a\0b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nX: a\u{7f}b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nX : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nX\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 0x5\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 1 2\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length:\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\nContent-Length: 4\r\n\r\n", 400),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n", 200),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nTransfer-Encoding:\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: \u{b}chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nExpect: 200-ok\r\n\r\n", 417),
        ("POST / HTTP/1.1\r\nExpect: 100-Continue\r\n\r\n", 200),
        ("POST / HTTP/1.1\r\nContent-Encoding: gzip\r\n\r\n", 415),
        ("POST / HTTP/1.1\r\nContent-Encoding: Identity\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nX: \u{e9}\r\n\r\n", 200),
    ];

    #[test]
    fn ambiguous_or_malformed_heads_are_refused_with_the_status_of_the_contract() {
        for (head, expected) in HEADS {
            assert_eq!(status(head.as_bytes()), expected, "{head:?}");
        }
    }

    #[test]
    fn of_a_whole_url_path_and_query_are_the_target() {
        for (target, expected) in [
            ("/a//b?c=/d", "/a//b?c=/d"),
            ("//a", "//a"),
            ("http://hooks.example.com/a?b=c", "/a?b=c"),
            ("HTTPS://u:p@[2001:db8::1]:8443/a/", "/a/"),
            ("http://x", "/"),
            ("http://x?a=http://y/", "/?a=http://y/"),
        ] {
            let head = read(format!("POST {target} HTTP/1.1\r\nHost: other\r\n\r\n").as_bytes());
            assert_eq!(head.unwrap().unwrap().target, expected, "{target}");
        }
    }

    #[test]
    fn a_head_is_bounded_in_bytes_and_in_headers() {
        let padded = |length: usize| {
            let frame = "GET / HTTP/1.1\r\nX: \r\n\r\n".len();
            format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(length - frame))
        };
        assert_eq!(status(padded(HEAD_BYTES_MAX).as_bytes()), 200);
        assert_eq!(status(padded(HEAD_BYTES_MAX + 1).as_bytes()), 431);
        assert_eq!(status(&padded(HEAD_BYTES_MAX + 500).as_bytes()[..HEAD_BYTES_MAX]), 431);
        assert_eq!(status(format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(64)).as_bytes()), 200);
        assert_eq!(status(format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65)).as_bytes()), 431);
    }

    #[test]
    fn a_well_formed_length_of_any_size_is_a_length() {
        for (digits, expected) in [
            ("0", 0),
            ("007", 7),
            ("9000000000000000000", 9_000_000_000_000_000_000),
            (&"9".repeat(30), usize::MAX),
        ] {
            let head = read(format!("POST / HTTP/1.1\r\nContent-Length: {digits}\r\n\r\n").as_bytes())
                .unwrap()
                .unwrap();
            assert_eq!(head.framing, Framing::Length(expected));
        }
    }

    #[test]
    fn what_goes_on_are_the_end_to_end_headers_as_they_are() {
        let sent = b"POST /a/b?c=d HTTP/1.1\r\nHost: h\r\nX-A:  b\xc3\xa9%41 \r\nX-B: b\xe9%41\r\nConnection: keep-alive, X-A\r\n\
            Keep-Alive: 5\r\nTE: trailers\r\nTrailer: X\r\nUpgrade: h2c\r\nProxy-Connection: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\nStripe-Signature: t=1,v1=a\r\n\r\n";
        let head = read(sent).unwrap().unwrap();
        let headers =
            [("Host", "h"), ("X-A", "b\u{e9}%41"), ("X-B", "b\u{e9}%41"), ("Stripe-Signature", "t=1,v1=a")];
        assert_eq!(head.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!((head.method.as_str(), head.target.as_str(), head.path()), ("POST", "/a/b?c=d", "/a/b"));
        assert_eq!((head.framing, head.expects_continue, head.keep_alive), (Framing::Length(3), true, true));
    }

    #[test]
    fn the_connection_closes_when_either_side_would() {
        let keeps_alive = |head: &str| read(head.as_bytes()).unwrap().unwrap().keep_alive;
        assert!(keeps_alive("GET / HTTP/1.1\r\n\r\n"));
        assert!(!keeps_alive("GET / HTTP/1.1\r\nConnection: x, Close\r\n\r\n"));
        assert!(!keeps_alive("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    }

    #[test]
    fn no_prefix_or_mutation_of_a_head_panics() {
        let head = b"POST /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\nExpect: 100-continue\r\n\r\n";
        for at in 0..head.len() {
            for byte in 0..=255_u8 {
                let mut mutated = head.to_vec();
                mutated[at] = byte;
                if let Ok(Some(end)) = find_end(&mutated, 0) {
                    parse(&mutated[..end]).map(drop).unwrap_or_default();
                }
            }
        }
    }
}
