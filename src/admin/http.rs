//! What the pages need of HTTP: forms, queries, cookies, hosts and origins, and the headers of an answer.
//!
//! Nothing here knows a page. Each answer carries the headers that keep a browser from doing more than it was asked to.

use std::net::IpAddr;

use crate::encode::{is_unreserved, percent_encoded};
use crate::intake::exchange::{Request, Response};

/// The query's names and values.
pub fn query(request: &Request) -> Form {
    Form::parse(request.query().unwrap_or_default())
}

/// The body's names and values.
pub fn form(request: &Request) -> Form {
    Form::parse(std::str::from_utf8(&request.body).unwrap_or_default())
}

/// A cookie's value.
pub fn cookie<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let mut lines = request.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case("cookie"));
    lines.find_map(|(_, line)| {
        let mut pairs = line.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.find_map(|(known, value)| (known == name).then_some(value))
    })
}

/// The only header of this name; `None` where there is none, or several.
fn only<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let mut found = request.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
    let (_, value) = found.next()?;
    found.next().is_none().then_some(value.trim())
}

/// The names and values of a form or a query. Of a name that stands there twice the last one counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Of `application/x-www-form-urlencoded`; what cannot be decoded is replaced, not refused.
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let decoded = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        Self(decoded.collect())
    }

    /// The value of a name; empty ones count as absent.
    pub fn value(&self, name: &str) -> Option<&str> {
        let value = self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.trim());
        value.filter(|value| !value.is_empty())
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.value(name)?.parse().ok()
    }

    /// All of it, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, code.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = tail;
            }
            (byte, _) => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A path with a query; names without a value are left out.
pub fn link(path: &str, query: &[(&str, Option<&str>)]) -> String {
    let pairs = query.iter().filter_map(|(name, value)| value.map(|value| (name, value)));
    let pairs: Vec<_> = pairs.map(|(name, value)| format!("{name}={}", segment(value))).collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

/// A text as one segment of a path.
pub fn segment(text: &str) -> String {
    percent_encoded(text, is_unreserved)
}

/// The text of a segment of a path.
pub fn from_segment(text: &str) -> String {
    // a plus is a plus in a path
    decoded(&text.replace('+', "%2B"))
}

/// A browser loads, sends and frames nothing but what is this listener's own.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; form-action 'self'; \
                      frame-ancestors 'none'; base-uri 'none'";

/// An answer with the headers that each has, whatever it holds.
pub fn answer(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Response {
    Response::new(status, body)
        .with("Content-Type", content_type)
        .with("Content-Security-Policy", POLICY)
        .with("X-Content-Type-Options", "nosniff")
        .with("X-Frame-Options", "DENY")
        // with no-referrer a browser would send a form with `Origin: null`
        .with("Referrer-Policy", "same-origin")
        .with("Cross-Origin-Opener-Policy", "same-origin")
        .with("Cross-Origin-Resource-Policy", "same-origin")
}

/// A page. Nobody keeps it: it is true at one moment, and for one person.
pub fn page(status: u16, page: maud::Markup) -> Response {
    answer(status, "text/html; charset=utf-8", page.into_string()).with("Cache-Control", "no-store")
}

/// A line of text.
pub fn text(status: u16, text: &str) -> Response {
    answer(status, "text/plain; charset=utf-8", format!("{text}\n")).with("Cache-Control", "no-store")
}

/// Sends the browser to a page of this listener.
pub fn see_other(path: &str) -> Response {
    text(303, path).with("Location", path)
}

/// Whether a request may name this host. A site that has its own name resolve to this machine (DNS rebinding) names
/// itself; it cannot name an address. `None` is no browser.
pub fn is_known_host(host: Option<&str>, names: &[String]) -> bool {
    let Some(host) = host else { return true };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_name = |known: &String| known.eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(host);
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost") || names.iter().any(is_name)
}

/// Whether a browser sent this from a page of this listener. A browser says so itself where it trusts the URL (https,
/// or this machine); elsewhere it names the page's origin.
pub fn is_same_origin(request: &Request) -> bool {
    if request.header("sec-fetch-site").is_some() {
        return only(request, "sec-fetch-site") == Some("same-origin");
    }
    let (Some(origin), Some(host)) = (only(request, "origin"), only(request, "host")) else { return false };
    let Some((scheme, named)) = origin.split_once("://") else { return false };
    matches!(scheme, "http" | "https") && named.eq_ignore_ascii_case(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_decoded_and_links_encoded() {
        let form = Form::parse("a=1&b=%C3%A4+%2B&c&a=2&d=%zz%&e=+");
        assert_eq!((form.number("a"), form.value("b"), form.value("c")), (Some(2), Some("ä +"), None));
        assert_eq!((form.value("d"), form.value("e")), (Some("%zz%"), None));
        let link = link("/events", &[("type", Some("a&b=ä")), ("state", None), ("x", Some("1"))]);
        assert_eq!(link, "/events?type=a%26b%3D%C3%A4&x=1");
        assert_eq!(from_segment(&segment("a/b +%?#")), "a/b +%?#");
    }

    #[test]
    fn a_foreign_name_is_no_host_of_ours_and_an_address_is_no_name() {
        let names = ["inbox.lan".to_owned()];
        for host in
            ["localhost", "localhost:8788", "127.0.0.1:8788", "[::1]:8788", "10.0.0.7", "inbox.lan:8788"]
        {
            assert!(is_known_host(Some(host), &names), "{host}");
        }
        for host in
            ["evil.example", "evil.example:8788", "127.0.0.1.evil.example", "localhost.evil", "", "[x]"]
        {
            assert!(!is_known_host(Some(host), &names), "{host}");
        }
        assert!(is_known_host(None, &[]));
    }

    #[test]
    fn a_form_of_another_site_is_not_ours() {
        let is_ours = |headers: &[(&str, &str)]| {
            is_same_origin(&Request {
                listener: "admin",
                peer: None,
                peer_uid: None,
                method: "POST".to_owned(),
                target: "/".to_owned(),
                headers: headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
                body: Vec::new(),
                answer_by: std::time::Instant::now(),
            })
        };
        let host = ("Host", "127.0.0.1:8788");
        assert!(is_ours(&[host, ("Sec-Fetch-Site", "same-origin")]));
        assert!(is_ours(&[host, ("Origin", "http://127.0.0.1:8788")]));
        assert!(!is_ours(&[host, ("Sec-Fetch-Site", "same-site"), ("Origin", "http://127.0.0.1:8788")]));
        assert!(!is_ours(&[host, ("Sec-Fetch-Site", "none")]));
        assert!(!is_ours(&[host, ("Origin", "http://127.0.0.1:9")]));
        assert!(!is_ours(&[host, ("Origin", "null")]));
        assert!(!is_ours(&[host]));
    }
}
