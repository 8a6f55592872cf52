//! Which addresses may be reached: pure rules over a configured host and an address.
//!
//! An IPv4 address inside an IPv6 one (mapped, compatible, NAT64, 6to4) is judged as that IPv4 address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ureq::http::Uri;

/// An address range such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const RULE: &str = "is not a network; write e.g. \"10.0.0.0/8\"";
        let (address, bits) = text.split_once('/').ok_or(RULE)?;
        let address: IpAddr = address.parse().map_err(|_| RULE)?;
        let bits: u8 = bits.parse().map_err(|_| RULE)?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        if bits > bits_max { Err(RULE) } else { Ok(Self { address, bits }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.bits);
                let differing = network.to_bits() ^ address.to_bits();
                differing.checked_shr(shift).is_none_or(|rest| rest == 0)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.bits);
                let differing = network.to_bits() ^ address.to_bits();
                differing.checked_shr(shift).is_none_or(|rest| rest == 0)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// The addresses that a configured host may resolve to.
#[derive(Debug, Clone)]
pub struct Reach {
    kind: Kind,
    networks: Vec<Network>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Exactly this address.
    Literal(IpAddr),
    /// `localhost`: this machine.
    Localhost,
    /// Public addresses.
    Name,
}

impl Reach {
    /// The rule for the host of a URL; a name may also resolve into these networks.
    pub fn of_host(host: &str, networks: &[Network]) -> Self {
        let kind = match literal(host) {
            Some(address) => Kind::Literal(canonical(address)),
            None if host.eq_ignore_ascii_case("localhost") => Kind::Localhost,
            None => Kind::Name,
        };
        Self { kind, networks: networks.to_vec() }
    }

    /// Why this address must not be reached; `None`: it may be.
    pub fn refusal(&self, address: IpAddr) -> Option<&'static str> {
        let address = canonical(address);
        if let Some(reason) = never(address) {
            return Some(reason);
        }
        match self.kind {
            Kind::Literal(literal) if literal == address => None,
            Kind::Literal(_) => Some("not the configured address"),
            Kind::Localhost if address.is_loopback() => None,
            Kind::Localhost => Some("localhost must be this machine"),
            Kind::Name if self.networks.iter().any(|network| network.contains(address)) => None,
            Kind::Name => private(address),
        }
    }
}

/// The host of a URL as an address, if it is written as one: `127.0.0.1` or `[::1]`.
pub fn literal(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    }
}

/// The rule that a URL breaks, for every URL of the configuration.
pub fn base_url_rule(url: &Uri) -> Option<&'static str> {
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Some("must begin with http:// or https://");
    }
    match url.authority() {
        None => Some("has no host"),
        Some(authority) if authority.as_str().contains('@') => Some("must not contain a user or password"),
        Some(authority) if authority.host().is_empty() => Some("has no host"),
        Some(_) => None,
    }
}

/// The rule that the URL of a destination or an alert breaks, judged by the URL alone.
pub fn url_rule(url: &Uri) -> Option<&'static str> {
    if let Some(rule) = base_url_rule(url) {
        return Some(rule);
    }
    let authority = url.authority()?;
    let host = authority.host();
    let has_port = authority.as_str().len() > host.len();
    if has_port && authority.port_u16().is_none_or(|port| port == 0) {
        return Some("has an invalid port; ports are from 1 to 65535");
    }
    if let Some(address) = literal(host) {
        if canonical(address) != address {
            return Some("hides an IPv4 address inside an IPv6 one; write the IPv4 address");
        }
        return never(address);
    }
    host_rule(host)
}

/// A name must not be an address in disguise: resolvers read `0x7f.1` and `2130706433` as 127.0.0.1.
fn host_rule(host: &str) -> Option<&'static str> {
    if host.starts_with('[') {
        return Some("has a host that is not an IPv6 address (a zone is not possible)");
    }
    if host.ends_with('.') {
        return Some("has a host that ends in a dot; write it without");
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if !host.bytes().all(is_plain) || host.split('.').any(str::is_empty) {
        return Some("has an invalid host name; it may contain letters, digits, - and .");
    }
    let last = host.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_hex = last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    if is_hex || last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some("has a number as its host; write an IPv4 address as four decimal numbers");
    }
    None
}

/// The IPv4 address inside an IPv6 one, if any.
fn canonical(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let [_, b, c, _, _, _, g, h] = v6.segments();
    let v4_of = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    if let Some(v4) = v6.to_ipv4_mapped() {
        return IpAddr::V4(v4);
    }
    match v6.segments() {
        // the well-known prefix of NAT64 (RFC 6052)
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => v4_of(g, h),
        // 6to4 (RFC 3056)
        [0x2002, ..] => v4_of(b, c),
        // IPv4-compatible (RFC 4291), except :: and ::1
        [0, 0, 0, 0, 0, 0, _, _] if (g, h) != (0, 0) && (g, h) != (0, 1) => v4_of(g, h),
        // IPv4-translated (RFC 2765)
        [0, 0, 0, 0, 0xffff, 0, _, _] => v4_of(g, h),
        _ => address,
    }
}

/// Addresses that no configuration can open.
fn never(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => match v4.octets() {
            [169, 254, _, _] => Some("link-local, where cloud metadata is"),
            [100, 100, 100, 200] | [192, 0, 0, 192] | [168, 63, 129, 16] => Some("cloud metadata"),
            [0, _, _, _] => Some("unspecified"),
            [255, 255, 255, 255] => Some("broadcast"),
            [224..=239, _, _, _] => Some("multicast"),
            _ => None,
        },
        IpAddr::V6(v6) => match v6.segments() {
            [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] => Some("cloud metadata"),
            [0xfe80..=0xfebf, ..] => Some("link-local"),
            [0xff00..=0xffff, ..] => Some("multicast"),
            [0, 0, 0, 0, 0, 0, 0, 0] => Some("unspecified"),
            _ => None,
        },
    }
}

/// Addresses that a name must not resolve to unless `allow_networks` lists them.
fn private(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => match v4.octets() {
            [127, ..] => Some("this machine; write localhost or the address itself"),
            [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Some("private; allow_networks can name it"),
            [100, 64..=127, ..] => Some("shared address space; allow_networks can name it"),
            [192, 0, 0 | 2, _]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
            | [240..=255, ..] => Some("reserved"),
            _ => None,
        },
        IpAddr::V6(v6) => match v6.segments() {
            [0, 0, 0, 0, 0, 0, 0, 1] => Some("this machine; write localhost or the address itself"),
            [0xfc00..=0xfdff, ..] => Some("private; allow_networks can name it"),
            [0xfec0..=0xfeff, ..] => Some("site-local"),
            [0x64, 0xff9b, 1, ..] => Some("local NAT64"),
            // Teredo, ORCHID, benchmarking, documentation
            [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Some("reserved"),
            [0x2000..=0x3fff, ..] => None,
            _ => Some("not a public address"),
        },
    }
}
