//! Why there was no answer, in words for people, and whether the request may be repeated.

use std::io;
use std::time::Duration;

use ureq::Error;
use ureq::http::Uri;
use ureq::http::uri::Authority;

use super::NoAnswer;
use super::connection::{Exchange, NoConnection, plain};

/// Whether a kept connection ended before a byte of the answer arrived.
pub(super) fn is_end_of_kept_connection(error: &Error, exchange: Exchange) -> bool {
    let Error::Io(error) = error else { return false };
    exchange == Exchange::default() && is_end(error.kind())
}

/// The other side ended the connection.
fn is_end(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::NotConnected
    )
}

/// The failure of a request to `url` that has no answer.
pub(super) fn no_answer(
    error: &Error,
    exchange: Exchange,
    url: &str,
    time_max: Duration,
    took: Duration,
) -> NoAnswer {
    let no_connection = match error {
        Error::Other(error) => error.downcast_ref::<NoConnection>(),
        _ => None,
    };
    let is_final = matches!(error, Error::Http(_) | Error::BadUri(_));
    NoAnswer {
        reason: reason(error, exchange, url, time_max),
        is_unsent: is_final
            || no_connection.is_some()
            || matches!(error, Error::Tls(_) | Error::Rustls(_) | Error::Pem(_)),
        is_timeout: no_connection.map_or_else(|| is_timeout(error), |error| error.is_timeout),
        is_final,
        took,
    }
}

/// Why a request to `url`, made by another agent, has no answer.
pub fn in_words(error: &Error, url: &str, time_max: Duration) -> String {
    reason(error, Exchange::default(), url, time_max)
}

fn is_timeout(error: &Error) -> bool {
    match error {
        Error::Timeout(_) => true,
        Error::Io(error) => error.kind() == io::ErrorKind::TimedOut,
        _ => false,
    }
}

fn reason(error: &Error, exchange: Exchange, url: &str, time_max: Duration) -> String {
    let when = if exchange.is_answered { "in the middle of the answer" } else { "before an answer came" };
    match error {
        error if is_timeout(error) && exchange.is_answered => {
            format!("the answer was not complete within {}", seconds(time_max))
        }
        error if is_timeout(error) => format!("no answer within {}", seconds(time_max)),
        Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            format!("connection refused by {}", host(url))
        }
        Error::HostNotFound => format!("the host {} has no address", host(url)),
        Error::Io(error) if error.kind() == io::ErrorKind::ConnectionReset => {
            format!("the connection was reset {when}")
        }
        Error::Io(error) if is_end(error.kind()) => format!("the connection was closed {when}"),
        // TLS reports an untrusted certificate in this way
        Error::Io(error) if error.kind() == io::ErrorKind::InvalidData && url.starts_with("https:") => {
            format!("no secure connection to {}: {error}", host(url))
        }
        Error::Io(error) => format!("the connection failed {when}: {}", plain(error)),
        Error::Rustls(error) => format!("no secure connection to {}: {error}", host(url)),
        Error::Tls(error) => format!("no secure connection to {}: {error}", host(url)),
        Error::Protocol(error) => format!("the answer is not HTTP: {error}"),
        Error::LargeResponseHeader(_, max) => format!("the head of the answer is larger than {max} bytes"),
        Error::Http(error) => format!("the request cannot be made: {error}"),
        Error::BadUri(error) => format!("the URL cannot be used: {error}"),
        Error::Other(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn host(url: &str) -> String {
    let uri: Option<Uri> = url.parse().ok();
    let authority = uri.as_ref().and_then(Uri::authority).map(Authority::as_str);
    authority.unwrap_or("the destination").to_owned()
}

/// `15 s`, `0.2 s`
fn seconds(time: Duration) -> String {
    let ms = time.as_millis();
    match ms % 1000 {
        0 => format!("{} s", ms / 1000),
        rest => format!("{}.{} s", ms / 1000, format!("{rest:03}").trim_end_matches('0')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_in_seconds() {
        let shown = [15_000, 200, 1_250, 0].map(|ms| seconds(Duration::from_millis(ms)));
        assert_eq!(shown, ["15 s", "0.2 s", "1.25 s", "0 s"]);
    }

    #[test]
    fn only_a_kept_connection_that_brought_nothing_is_replaced() {
        let ended = |kind: io::ErrorKind, has_connected: bool, is_answered: bool| {
            is_end_of_kept_connection(&Error::Io(kind.into()), Exchange { has_connected, is_answered })
        };
        assert!(ended(io::ErrorKind::ConnectionReset, false, false));
        assert!(ended(io::ErrorKind::UnexpectedEof, false, false));
        assert!(!ended(io::ErrorKind::ConnectionReset, true, false), "a new one");
        assert!(!ended(io::ErrorKind::ConnectionReset, false, true), "an answer had begun");
        assert!(!ended(io::ErrorKind::TimedOut, false, false), "a slow one may have had its effect");
        assert!(!is_end_of_kept_connection(&Error::HostNotFound, Exchange::default()));
    }
}
