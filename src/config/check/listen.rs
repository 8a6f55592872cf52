//! `[listen]`: where connections are accepted.

use std::fmt;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;

use super::{Checker, without_user};
use crate::config::keys::{Default, Kind, Table, key};
use crate::config::values::{Shown, Values};

pub(in crate::config) const TABLE: Table = Table {
    header: "listen",
    doc: "Where connections are accepted.",
    keys: &[
        key(
            "webhooks",
            Kind::Text,
            Default::Is("127.0.0.1:8787"),
            "The public listener: `host:port`, `unix:PATH`, or `systemd` for the socket of inboxd.socket.",
        ),
        key(
            "admin",
            Kind::Text,
            Default::Is("127.0.0.1:8788"),
            "The private listener, for people and monitors: `host:port` or `unix:PATH`; `off` disables it.",
        ),
        key(
            "trusted_proxies",
            Kind::Texts,
            Default::Unset,
            "Addresses of proxies whose X-Forwarded-For (else Forwarded) is believed; their connections are closed last when there are too many.",
        ),
    ],
};

/// `[listen]`
#[derive(Debug, Clone)]
pub struct Listen {
    /// The public listener.
    pub webhooks: Address,
    /// The private listener; `None` when switched off.
    pub admin: Option<Address>,
    /// Peers whose connections are closed last when there are too many.
    pub trusted_proxies: Vec<IpAddr>,
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `host:port`; `localhost` may resolve to several addresses, the first is taken.
    Tcp(std::net::SocketAddr),
    /// `unix:PATH`
    Unix(PathBuf),
    /// `systemd`: the socket that the service manager holds and passes.
    Systemd,
}

impl Address {
    /// What a client would be given: a URL where there is one.
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}"),
            Self::Unix(_) | Self::Systemd => self.to_string(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Systemd => f.write_str("systemd"),
        }
    }
}

impl Checker {
    pub(super) fn listen(&mut self, table: &Values) -> Listen {
        let webhooks = self.text(table, "webhooks").and_then(|typed| self.address("listen.webhooks", &typed));
        let admin = match self.text(table, "admin").as_deref() {
            None | Some("off") => None,
            Some(typed) => self.address("listen.admin", typed),
        };
        if let (Some(webhooks), Some(admin)) = (&webhooks, &admin)
            && overlap(webhooks, admin)
        {
            let rule =
                "is the public listener; the admin pages must never be there; write another port, or \"off\"";
            self.problem("listen.admin", format!("\"{admin}\": {rule}"));
        }
        if let Some(Address::Tcp(address)) = &admin
            && !address.ip().is_loopback()
        {
            self.warn(format!(
                "listen.admin {address} can be reached from other machines, and what is typed there is not encrypted: put it behind \
                 a proxy with TLS, or use unix:PATH and `ssh -L`"
            ));
        }
        let trusted_proxies: Vec<_> =
            table.texts("trusted_proxies").iter().filter_map(|typed| self.proxy(typed)).collect();
        table.show("trusted_proxies", Shown::texts(&trusted_proxies));
        // a missing address is a problem noted above, so this one is never used
        let webhooks = webhooks.unwrap_or(Address::Unix(PathBuf::new()));
        table.show("webhooks", Shown::text(&webhooks));
        table.show("admin", admin.as_ref().map_or(Shown::text("off"), Shown::text));
        Listen { webhooks, admin, trusted_proxies }
    }

    fn address(&mut self, key: &str, typed: &str) -> Option<Address> {
        let rule = match typed.split_once(':') {
            None if typed == "systemd" && key == "listen.webhooks" => return Some(Address::Systemd),
            None if typed == "systemd" => "is for listen.webhooks only; write host:port or unix:PATH",
            Some(("unix", "")) => "names no path; write e.g. \"unix:/run/inboxd/inboxd.sock\"",
            // sun_path has 108 bytes, one of them a zero
            Some(("unix", path)) if self.base.join(path).as_os_str().len() > 107 => {
                "is longer than the 107 bytes a Unix socket's path may have"
            }
            Some(("unix", path)) => return Some(Address::Unix(self.base.join(path))),
            Some(("", _)) => {
                "has no host; write e.g. \"127.0.0.1:8787\", or \"0.0.0.0:8787\" for every network"
            }
            _ => match typed.to_socket_addrs().map(|mut found| found.next()) {
                Ok(Some(address)) => return Some(Address::Tcp(address)),
                _ => "is not an address of this machine; write e.g. \"127.0.0.1:8787\" or \"unix:PATH\"",
            },
        };
        self.problem(key, format!("\"{}\": {rule}", without_user(typed)));
        None
    }

    fn proxy(&mut self, typed: &str) -> Option<IpAddr> {
        let proxy = typed.parse().ok();
        if proxy.is_none() {
            self.problem(
                "listen.trusted_proxies",
                format!("\"{typed}\": is not an IP address; write e.g. \"127.0.0.1\""),
            );
        }
        proxy
    }
}

/// Whether two listeners would get each other's connections.
fn overlap(a: &Address, b: &Address) -> bool {
    match (a, b) {
        (Address::Tcp(a), Address::Tcp(b)) => {
            let same_ip = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
            a.port() == b.port() && a.port() != 0 && same_ip
        }
        (Address::Unix(a), Address::Unix(b)) => a == b,
        (Address::Tcp(_), Address::Unix(_)) | (Address::Unix(_), Address::Tcp(_)) => false,
        // what the service manager listens on is not known here
        (Address::Systemd, _) | (_, Address::Systemd) => false,
    }
}
