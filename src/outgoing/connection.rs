//! Makes connections: judges each address, tries it, and names it if it could not be reached.
//!
//! The HTTP library reports neither whether a request used a kept connection nor whether a byte of its answer had
//! come. Both are noted here, per thread, because the library works on the calling thread.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, NextTimeout, RustlsConnector, TcpConnector, Transport, time,
};

use super::Reach;

/// The notes about this thread's request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Exchange {
    /// A connection was made for it; else it used a kept one.
    pub(super) has_connected: bool,
    /// A byte of the answer has arrived.
    pub(super) is_answered: bool,
}

thread_local! {
    static EXCHANGE: Cell<Exchange> = const { Cell::new(Exchange { has_connected: false, is_answered: false }) };
}

impl Exchange {
    /// Before a request.
    pub(super) fn begin() {
        EXCHANGE.set(Self::default());
    }

    /// After it.
    pub(super) fn end() -> Self {
        EXCHANGE.get()
    }
}

/// The gate: filters out addresses that may not be reached. The host is looked up when a connection is made, so a
/// request over an open connection needs no lookup.
#[derive(Debug)]
pub(super) struct Door<R> {
    pub(super) host: String,
    pub(super) reach: Reach,
    pub(super) resolver: Arc<R>,
    pub(super) tcp: TcpConnector,
    pub(super) tls: RustlsConnector,
}

impl<R: Resolver> Door<R> {
    pub(super) fn new(host: &str, reach: Reach, resolver: Arc<R>) -> Self {
        let (tcp, tls) = (TcpConnector::default(), RustlsConnector::default());
        Self { host: host.to_owned(), reach, resolver, tcp, tls }
    }

    /// The host's current addresses, judged.
    fn addresses(&self, details: &ConnectionDetails<'_>) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let ConnectionDetails { uri, config, timeout, .. } = *details;
        let found = self.resolver.resolve(uri, config, timeout);
        let found = found.map_err(|error| NoConnection::unknown_host(&self.host, &error).into_error())?;
        for address in &found {
            if let Some(reason) = self.reach.refusal(address.ip()) {
                return Err(blocked(format!("{} leads to {}: {reason}", self.host, address.ip())));
            }
        }
        Ok(found)
    }
}

impl<R: Resolver> Connector for Door<R> {
    type Out = Watched<Box<dyn Transport>>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        if details.uri.host() != Some(self.host.as_str()) {
            return Err(blocked("another host than the configured one".to_owned()));
        }
        let (start, found) = (Instant::now(), self.addresses(details)?);
        let mut tried = Vec::new();
        for (n, address) in found.iter().enumerate() {
            let left = details.timeout.after.saturating_sub(start.elapsed());
            // the last address may use all the time that is left; a limit of zero would mean none
            let share = if n + 1 == found.len() { left } else { left / 2 }.max(Duration::from_millis(1));
            let mut addrs = self.resolver.empty();
            addrs.push(*address);
            let details = narrowed(details, addrs, share);
            let made = Connector::<()>::connect(&self.tcp, &details, None);
            match made {
                Ok(Some(tcp)) => {
                    EXCHANGE.set(Exchange { has_connected: true, is_answered: false });
                    let secured = self.tls.connect(&details, Some(tcp))?;
                    return Ok(secured.map(|transport| Watched(boxed(transport))));
                }
                Ok(None) => {}
                Err(error) => tried.push((*address, error)),
            }
        }
        Err(NoConnection::to(&tried).into_error())
    }
}

fn boxed(transport: impl Transport) -> Box<dyn Transport> {
    Box::new(transport)
}

/// The same request for connection, with one address and this time limit.
fn narrowed<'a>(
    details: &ConnectionDetails<'a>,
    addrs: ResolvedSocketAddrs,
    time: Duration,
) -> ConnectionDetails<'a> {
    let ConnectionDetails { uri, config, request_level, resolver, timeout, .. } = *details;
    ConnectionDetails {
        uri,
        addrs,
        config,
        request_level,
        resolver,
        now: (details.current_time)(),
        timeout: NextTimeout { after: time::Duration::Exact(time), ..timeout },
        current_time: Arc::clone(&details.current_time),
        run_connector: Arc::clone(&details.run_connector),
        register_shutdown: Arc::clone(&details.register_shutdown),
    }
}

/// A connection that notes when bytes arrive.
#[derive(Debug)]
pub(super) struct Watched<T>(T);

impl<T: Transport> Transport for Watched<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.0.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.0.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let has_come = self.0.await_input(timeout)?;
        if has_come {
            EXCHANGE.set(Exchange { is_answered: true, ..EXCHANGE.get() });
        }
        Ok(has_come)
    }

    fn is_open(&mut self) -> bool {
        self.0.is_open()
    }

    fn is_tls(&self) -> bool {
        self.0.is_tls()
    }
}

/// Replaces ureq's resolver, which looks up the name for every request, each time in a new thread.
#[derive(Debug)]
pub(super) struct Nowhere;

impl Resolver for Nowhere {
    fn resolve(
        &self,
        _: &Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}

fn blocked(reason: String) -> ureq::Error {
    let reason = format!("blocked: {reason}");
    NoConnection { reason, is_timeout: false }.into_error()
}

/// Why no connection was made, and so no request.
#[derive(Debug)]
pub(super) struct NoConnection {
    reason: String,
    pub(super) is_timeout: bool,
}

impl NoConnection {
    fn into_error(self) -> ureq::Error {
        ureq::Error::Other(Box::new(self))
    }

    fn unknown_host(host: &str, error: &ureq::Error) -> Self {
        let is_timeout = matches!(error, ureq::Error::Timeout(_));
        let reason = match error {
            ureq::Error::Timeout(_) => format!("looking up the host {host} took too long"),
            ureq::Error::HostNotFound => format!("the host {host} has no address"),
            ureq::Error::Io(error) => format!("the host {host} could not be found: {}", plain(error)),
            error => format!("the host {host} could not be found: {error}"),
        };
        Self { reason, is_timeout }
    }

    /// One sentence; addresses that failed alike share a clause.
    fn to(tried: &[(SocketAddr, ureq::Error)]) -> Self {
        let mut clauses: Vec<(String, Vec<String>)> = Vec::new();
        for (address, error) in tried {
            let (what, address) = (failure(error), address.to_string());
            match clauses.iter_mut().find(|(known, _)| *known == what) {
                Some((_, addresses)) => addresses.push(address),
                None => clauses.push((what, vec![address])),
            }
        }
        let clauses =
            clauses.into_iter().map(|(what, addresses)| format!("{what} {}", addresses.join(" and ")));
        let is_timeout = !tried.is_empty() && tried.iter().all(|(_, error)| is_timeout(error));
        Self { reason: clauses.collect::<Vec<_>>().join("; "), is_timeout }
    }
}

fn is_timeout(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Timeout(_) => true,
        ureq::Error::Io(error) => error.kind() == io::ErrorKind::TimedOut,
        _ => false,
    }
}

/// The error's text without the system's number.
pub(super) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// The clause before the address.
fn failure(error: &ureq::Error) -> String {
    match error {
        error if is_timeout(error) => "no connection in time to".to_owned(),
        ureq::Error::Io(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused by".to_owned(),
            io::ErrorKind::HostUnreachable => "no route to".to_owned(),
            io::ErrorKind::NetworkUnreachable => "no network to".to_owned(),
            io::ErrorKind::ConnectionReset => "connection reset by".to_owned(),
            _ => format!("no connection ({}) to", plain(error)),
        },
        error => format!("no connection ({error}) to"),
    }
}

impl fmt::Display for NoConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for NoConnection {}
