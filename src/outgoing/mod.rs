//! Outgoing HTTP: the one way out, for deliveries, proxied requests and alerts.
//!
//! A [`Client`] reaches one configured URL and no other. Every address is judged in the connector, for each
//! connection: an earlier lookup proves nothing, because DNS may answer differently the next time. Redirects are
//! never followed, no proxy is taken from the environment, certificates are always verified, and the bytes read of an
//! answer are limited. The connector lives on `ureq::unversioned`, which may change in any release of ureq: read its
//! changes before an upgrade.

use std::borrow::Cow;
use std::fmt;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ureq::http::{HeaderValue, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{DefaultResolver, Resolver};

use crate::encode::percent_encoded;

mod address;
mod connection;
mod failure;
mod retry_after;

pub use address::{Network, Reach, base_url_rule, literal, url_rule};
pub use failure::in_words;
pub use retry_after::RetryAfter;

use connection::{Door, Exchange, Nowhere};

/// The most bytes read of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// The largest head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Open connections that wait for the next request.
const CONNECTIONS_KEPT_MAX: usize = 64;

/// How long a connection may take to be made.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// How long an answer's body may take; its status is known by then.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// e.g. 200
    pub status: u16,
    /// `Retry-After`, if the answer has it.
    pub retry_after: Option<RetryAfter>,
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
    /// No connection was made, so the request had no effect.
    pub is_unsent: bool,
    /// It took too long.
    pub is_timeout: bool,
    /// A repetition cannot succeed: a person has to change something.
    pub is_final: bool,
    /// From the beginning to the end of the attempt.
    pub took: Duration,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl NoAnswer {
    /// A failure before any request.
    pub fn impossible(reason: String) -> Self {
        Self { reason, is_unsent: true, is_timeout: false, is_final: true, took: Duration::ZERO }
    }
}

/// Makes requests to one URL.
#[derive(Debug)]
pub struct Client {
    url: String,
    /// Keeps connections for the next request.
    agent: ureq::Agent,
    /// Makes a connection for each request.
    fresh: ureq::Agent,
}

impl Client {
    /// A client for this URL. A name may resolve into the given private networks; a literal address, or `localhost`,
    /// means itself. `ca` are certificates in PEM to trust instead of the public ones.
    ///
    /// # Errors
    /// One sentence: the URL must not be used, or the certificates cannot be read.
    pub fn new(url: &str, networks: &[Network], ca: Option<&Path>) -> Result<Self, String> {
        Self::with_resolver(url, networks, ca, DefaultResolver::default())
    }

    /// As [`Client::new`], with another resolver; its addresses are judged all the same.
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
        let (tls, resolver) = (tls(ca)?, Arc::new(resolver));
        let agent = |kept_max: usize| {
            let config = ureq::Agent::config_builder()
                .proxy(None)
                .max_redirects(0)
                .http_status_as_error(false)
                .max_response_header_size(HEAD_BYTES_MAX)
                .user_agent(concat!("inboxd/", env!("CARGO_PKG_VERSION")))
                .accept_encoding("identity")
                .max_idle_connections(kept_max)
                .max_idle_connections_per_host(kept_max)
                .timeout_connect(Some(CONNECT_TIME_MAX))
                .timeout_recv_body(Some(BODY_TIME_MAX))
                .tls_config(tls.clone())
                .build();
            let door = Door::new(&host, Reach::of_host(&host, networks), Arc::clone(&resolver));
            ureq::Agent::with_parts(config, door, Nowhere)
        };
        Ok(Self { url: url.to_owned(), agent: agent(CONNECTIONS_KEPT_MAX), fresh: agent(0) })
    }

    /// The URL, as configured.
    #[cfg(any(test, feature = "internals"))]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL with this query string added to its own.
    pub fn url_with(&self, query: Option<&str>) -> Cow<'_, str> {
        match query {
            None => Cow::Borrowed(&self.url),
            Some(query) => Cow::Owned(joined(&self.url, query)),
        }
    }

    /// POSTs the body to the URL and waits for the answer, at most for `time_max`.
    ///
    /// # Errors
    /// See [`NoAnswer`]. An answer of any status is an answer.
    pub fn post(
        &self,
        headers: &[(String, String)],
        body: &[u8],
        time_max: Duration,
    ) -> Result<Answer, NoAnswer> {
        self.post_to(&self.url, headers, body, time_max)
    }

    /// As [`Client::post`], to the URL with another query.
    ///
    /// The other side may close a kept connection at the moment of its use. If it ends before a byte of the answer has
    /// arrived, the request is made once more over a new connection.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub fn post_to(
        &self,
        url: &str,
        headers: &[(String, String)],
        body: &[u8],
        time_max: Duration,
    ) -> Result<Answer, NoAnswer> {
        let start = Instant::now();
        let post = |agent: &ureq::Agent, time_max: Duration| {
            Exchange::begin();
            exchange(agent, url, headers, body, time_max)
        };
        let (mut answer, mut may_be_sent) = (post(&self.agent, time_max), false);
        if let Err(error) = &answer
            && failure::is_end_of_kept_connection(error, Exchange::end())
            && let Some(left) = time_max.checked_sub(start.elapsed())
        {
            log::debug!("a kept connection had ended; the request goes over a new one");
            (answer, may_be_sent) = (post(&self.fresh, left), true);
        }
        let took = start.elapsed();
        match answer {
            Ok(answer) => Ok(Answer { took, ..answer }),
            Err(error) => {
                let failed = failure::no_answer(&error, Exchange::end(), url, time_max, took);
                Err(NoAnswer { is_unsent: failed.is_unsent && !may_be_sent, ..failed })
            }
        }
    }
}

fn exchange(
    agent: &ureq::Agent,
    url: &str,
    headers: &[(String, String)],
    body: &[u8],
    time_max: Duration,
) -> Result<Answer, ureq::Error> {
    let mut request =
        agent.post(url).config().timeout_global(Some(time_max)).timeout_recv_response(Some(time_max)).build();
    for (name, value) in headers {
        // from bytes, because senders' values are handed on unchanged and text would have to be ASCII
        let value =
            HeaderValue::from_bytes(value.as_bytes()).map_err(|error| ureq::Error::Http(error.into()))?;
        request = request.header(name, value);
    }
    let mut response = request.send(body)?;
    let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let retry_after = retry_after.and_then(RetryAfter::parse);
    let status = response.status().as_u16();
    Ok(Answer { status, retry_after, body: read(response.body_mut()), took: Duration::ZERO })
}

/// Joins a URL and a query string. Senders may write bytes that a URL must not contain; these are escaped.
fn joined(url: &str, query: &str) -> String {
    let (url, fragment) = url.split_once('#').map_or((url, None), |(url, rest)| (url, Some(rest)));
    let separator = match url.split_once('?') {
        None => "?",
        Some((_, own)) if own.is_empty() || own.ends_with('&') => "",
        Some(_) => "&",
    };
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'#' | b'<' | b'>');
    let query = percent_encoded(query, fits);
    let fragment = fragment.map(|rest| format!("#{rest}")).unwrap_or_default();
    format!("{url}{separator}{query}{fragment}")
}

/// The bytes that arrived: a body that is cut short changes nothing about its status.
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
