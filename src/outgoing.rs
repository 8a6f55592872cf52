//! Outgoing HTTP: the one way out, for deliveries, proxied requests and alerts.
//!
//! A [`Client`] reaches one configured URL and no other. Every address is judged where the connection is
//! made, in the connector: what a name pointed to a moment before does not count. Redirects are never followed,
//! no proxy is taken from the environment, certificates are always verified, and an answer is read only so far.

use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    ConnectionDetails, Connector, DefaultConnector, NextTimeout, Transport, time,
};

mod address;

pub use address::{Network, Reach, base_url_rule, literal, url_rule};

/// Of an answer, no more than this is read.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// An answer's head may not be larger.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// How long a connection may take to be made.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// How long an answer's body may take; its status is known by then.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// e.g. 200
    pub status: u16,
    /// How long it asks to be left alone, where it says so in seconds.
    pub retry_after: Option<Duration>,
    /// Its first 64 KiB.
    pub body: Vec<u8>,
    /// From the first byte sent to the last byte read.
    pub took: Duration,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoAnswer {
    /// In one sentence; never a secret.
    pub reason: String,
    /// The request cannot have had an effect: no connection was made.
    pub is_unsent: bool,
    /// It took too long.
    pub is_timeout: bool,
    /// From the beginning to the end of the attempt.
    pub took: Duration,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// The way to one URL.
#[derive(Debug)]
pub struct Client {
    url: String,
    agent: ureq::Agent,
}

impl Client {
    /// The way to this URL. A name may lead to the given private networks; a literal address, or `localhost`,
    /// to what it says. `ca` are certificates in PEM to trust instead of the public ones.
    ///
    /// # Errors
    /// One sentence: the URL must not be used, or the certificates cannot be read.
    pub fn new(url: &str, networks: &[Network], ca: Option<&Path>) -> Result<Self, String> {
        Self::with_resolver(url, networks, ca, DefaultResolver::default())
    }

    /// As [`Client::new`], with another source of addresses; they are judged all the same.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn with_resolver(
        url: &str,
        networks: &[Network],
        ca: Option<&Path>,
        resolver: impl Resolver,
    ) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| "is not a URL".to_owned())?;
        if let Some(rule) = url_rule(&uri) {
            return Err(rule.to_owned());
        }
        let host = uri.host().unwrap_or_default().to_owned();
        let config = ureq::Agent::config_builder()
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .max_response_header_size(HEAD_BYTES_MAX)
            .user_agent(concat!("inboxd/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .max_idle_connections(64)
            .max_idle_connections_per_host(64)
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .timeout_recv_body(Some(BODY_TIME_MAX))
            .tls_config(tls(ca)?)
            .build();
        let reach = Reach::of_host(&host, networks);
        let door = Door { host, reach, resolver, connector: DefaultConnector::default() };
        let agent = ureq::Agent::with_parts(config, door, Nowhere);
        Ok(Self { url: url.to_owned(), agent })
    }

    /// The URL, as configured.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// POSTs the body and waits for the answer, at most for `time_max`.
    ///
    /// # Errors
    /// See [`NoAnswer`]. An answer of any status is an answer.
    pub fn post(
        &self,
        headers: &[(String, String)],
        body: &[u8],
        time_max: Duration,
    ) -> Result<Answer, NoAnswer> {
        let start = Instant::now();
        let mut request = self
            .agent
            .post(&self.url)
            .config()
            .timeout_global(Some(time_max))
            .timeout_recv_response(Some(time_max))
            .build();
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let mut response = request.send(body).map_err(|error| no_answer(&error, start.elapsed()))?;
        let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        let status = response.status().as_u16();
        Ok(Answer { status, retry_after, body: read(response.body_mut()), took: start.elapsed() })
    }
}

/// As much as came: a body that is cut short changes nothing about the status before it.
fn read(body: &mut ureq::Body) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(error) = body.as_reader().take(ANSWER_BYTES_MAX).read_to_end(&mut bytes) {
        log::debug!("an answer's body was cut short after {} bytes: {error}", bytes.len());
    }
    bytes
}

fn tls(ca: Option<&Path>) -> Result<TlsConfig, String> {
    let Some(path) = ca else {
        return Ok(TlsConfig::default());
    };
    let pem = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(format!("{}: holds no certificate in PEM", path.display()));
    }
    Ok(TlsConfig::builder().root_certs(RootCerts::new_with_certs(&certificates)).build())
}

/// The door: an address that may not be reached is no address. It is looked up where a connection is made:
/// a request over one that is open needs none.
#[derive(Debug)]
struct Door<R> {
    host: String,
    reach: Reach,
    resolver: R,
    connector: DefaultConnector,
}

impl<R: Resolver> Connector for Door<R> {
    type Out = Box<dyn Transport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let ConnectionDetails { uri, config, request_level, resolver, timeout, .. } = *details;
        if uri.host() != Some(self.host.as_str()) {
            return Err(blocked("another host than the configured one".to_owned()));
        }
        let start = Instant::now();
        let addrs = self.resolver.resolve(uri, config, timeout)?;
        for address in &addrs {
            if let Some(reason) = self.reach.refusal(address.ip()) {
                return Err(blocked(format!("{} is {} ({reason})", self.host, address.ip())));
            }
        }
        // no time at all would be no limit
        let left = timeout.after.saturating_sub(start.elapsed()).max(Duration::from_millis(1));
        let details = ConnectionDetails {
            uri,
            addrs,
            config,
            request_level,
            resolver,
            now: (details.current_time)(),
            timeout: NextTimeout { after: time::Duration::Exact(left), ..timeout },
            current_time: Arc::clone(&details.current_time),
            run_connector: Arc::clone(&details.run_connector),
            register_shutdown: Arc::clone(&details.register_shutdown),
        };
        self.connector.connect(&details, chained)
    }
}

/// ureq would look up the name for every request, each time in a thread of its own.
#[derive(Debug)]
struct Nowhere;

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
    ureq::Error::Other(Box::new(Blocked(reason)))
}

#[derive(Debug)]
struct Blocked(String);

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blocked: {}", self.0)
    }
}

impl std::error::Error for Blocked {}

fn no_answer(error: &ureq::Error, took: Duration) -> NoAnswer {
    use ureq::{Error, Timeout};
    let is_timeout = matches!(error, Error::Timeout(_))
        || matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::TimedOut);
    let is_unsent = match error {
        Error::Timeout(phase) => matches!(phase, Timeout::Resolve | Timeout::Connect),
        Error::Io(error) => matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::AddrNotAvailable
        ),
        Error::HostNotFound | Error::ConnectionFailed | Error::BadUri(_) | Error::Http(_) => true,
        Error::Tls(_) | Error::Rustls(_) | Error::Pem(_) => true,
        Error::Other(error) => error.is::<Blocked>(),
        _ => false,
    };
    NoAnswer { reason: error.to_string(), is_unsent, is_timeout, took }
}
