//! Who asked, where proxies stand between: the client's address out of what the trusted ones have added.
//!
//! Each proxy adds the address it was called from at the end. So the list is read from its end, for as long as the
//! proxies are trusted: an address further left was written by the client, and may be made up.

use std::net::{IpAddr, SocketAddr};

/// The first address from the right that is no trusted proxy's. `X-Forwarded-For` is read; `Forwarded` (RFC 7239)
/// only without it. `peer` is who the connection is from, `None` for a local client, which counts as trusted.
pub(super) fn of(peer: Option<IpAddr>, headers: &[(String, String)], trusted: &[IpAddr]) -> Option<IpAddr> {
    let is_trusted = |ip: &Option<IpAddr>| ip.is_none_or(|ip| trusted.contains(&ip));
    let mut client = peer;
    for hop in hops(headers) {
        if !is_trusted(&client) {
            break;
        }
        match address(hop) {
            Some(ip) => client = Some(ip),
            // "unknown", a name, or anything else: so much is known
            None => break,
        }
    }
    client
}

/// What proxies have added, the latest first.
fn hops(headers: &[(String, String)]) -> impl Iterator<Item = &str> {
    let all = |wanted: &'static str| {
        let lines = headers.iter().rev().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted));
        lines.flat_map(|(_, value)| value.rsplit(',').map(str::trim))
    };
    let is_plain = all("x-forwarded-for").next().is_some();
    let forwarded = all("forwarded").map(|element| {
        let pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
        let mut of = pairs.filter(|(key, _)| key.eq_ignore_ascii_case("for"));
        of.next().map_or("", |(_, node)| node.trim_matches('"'))
    });
    all("x-forwarded-for").chain(forwarded.filter(move |_| !is_plain))
}

/// An address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse::<IpAddr>().ok();
    ip.or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip())).map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "127.0.0.1";

    fn client(peer: &str, lines: &[(&str, &str)]) -> String {
        let headers: Vec<_> = lines.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let trusted = [PROXY.parse().unwrap(), "10.0.0.9".parse().unwrap()];
        of(peer.parse().ok(), &headers, &trusted).map_or_else(|| "local".to_owned(), |ip| ip.to_string())
    }

    #[test]
    fn the_client_is_the_last_address_that_no_trusted_proxy_has() {
        let xff = |value| client(PROXY, &[("X-Forwarded-For", value)]);
        for (value, expected) in [
            ("203.0.113.7", "203.0.113.7"),
            ("6.6.6.6, 203.0.113.7", "203.0.113.7"),
            ("6.6.6.6, 203.0.113.7,10.0.0.9", "203.0.113.7"),
            ("203.0.113.7:4711", "203.0.113.7"),
            ("2001:db8::7", "2001:db8::7"),
            ("[2001:db8::7]:4711", "2001:db8::7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("10.0.0.9", "10.0.0.9"),
            ("203.0.113.7, unknown", PROXY),
            ("6.6.6.6, \u{1b}[31m", PROXY),
            ("", PROXY),
        ] {
            assert_eq!(xff(value), expected, "{value}");
        }
        let lines = [("x-forwarded-for", "6.6.6.6"), ("X-Forwarded-For", "203.0.113.7")];
        assert_eq!(client(PROXY, &lines), "203.0.113.7", "several lines are one list");
        assert_eq!(client("", &lines), "203.0.113.7", "a Unix socket is the proxy's");
        assert_eq!(client(PROXY, &[]), PROXY);
    }

    #[test]
    fn a_stranger_cannot_say_who_it_is() {
        assert_eq!(client("198.51.100.1", &[("X-Forwarded-For", "203.0.113.7")]), "198.51.100.1");
        assert_eq!(client("198.51.100.1", &[("Forwarded", "for=203.0.113.7")]), "198.51.100.1");
        let both = [("Forwarded", "for=6.6.6.6"), ("X-Forwarded-For", "203.0.113.7")];
        assert_eq!(client(PROXY, &both), "203.0.113.7", "a proxy that adds one lets the other pass");
    }

    #[test]
    fn the_header_of_the_standard_is_read_alike() {
        for (value, expected) in [
            ("for=203.0.113.7;proto=https;by=10.0.0.9", "203.0.113.7"),
            ("for=6.6.6.6, For=\"[2001:db8::7]:4711\"", "2001:db8::7"),
            ("for=203.0.113.7, for=10.0.0.9", "203.0.113.7"),
            ("proto=https", PROXY),
            ("for=_hidden", PROXY),
        ] {
            assert_eq!(client(PROXY, &[("Forwarded", value)]), expected, "{value}");
        }
    }
}
