//! One request from a provider, as received, and the words in which one is refused.
//!
//! Nothing here knows how anybody signs, and nothing is shown of a header but its name.

use std::borrow::Cow;
use std::fmt;

use super::malformed::Malformed;

/// The headers of one request, in the order received. Names compare without case; values are never
/// shown, since some are signatures.
#[derive(Clone, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Adds one header line.
    #[cfg(any(test, feature = "internals"))]
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), value.into()));
    }

    /// All values of a name, in order.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The first value of a name.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Every line, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Headers {
    fn from_iter<T: IntoIterator<Item = (N, V)>>(lines: T) -> Self {
        Self(lines.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

/// One HTTP request from a provider, as received. With `B = Vec<u8>` it owns its body.
#[derive(Clone, Copy)]
pub struct Delivery<'a, B = &'a [u8]> {
    /// e.g. `POST`
    pub method: &'a str,
    /// The public URL with path and query, for the schemes that sign it.
    pub url: &'a str,
    /// The request's headers.
    pub headers: &'a Headers,
    /// The exact bytes of the body.
    pub body: B,
}

impl<'a, B> Delivery<'a, B> {
    /// What stands behind the first `?` of the URL; `None` where there is nothing.
    pub fn query(&self) -> Option<&'a str> {
        let (_, query) = self.url.split_once('?')?;
        (!query.is_empty()).then_some(query)
    }
}

impl<'a> Delivery<'a, Vec<u8>> {
    /// The same delivery, borrowing the body.
    pub fn borrowed(&self) -> Delivery<'_> {
        Delivery { method: self.method, url: self.url, headers: self.headers, body: &self.body }
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Delivery<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Delivery({} {:?}, {} bytes)", self.method, self.headers, self.body.as_ref().len())
    }
}

/// Why a delivery is refused. The words are the contract with senders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// No signature where the scheme has it.
    SignatureMissing,
    /// A signature that cannot be one: wrong length, alphabet, shape or number; or a time that cannot be one.
    SignatureMalformed {
        /// Which part, as a sentence without a byte of what was sent.
        part: String,
    },
    /// Well-formed, but made with another key or for other bytes.
    SignatureMismatch,
    /// The signature is right; the signed time is too far from now. Positive: in the past.
    TimestampOutsideTolerance {
        /// Now minus the signed time, in seconds.
        skew_s: i64,
    },
    /// The header that carries the event's id is missing.
    EventIdMissing,
}

impl Rejection {
    /// The word used in answers and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::SignatureMissing => "signature_missing",
            Self::SignatureMalformed { .. } => "signature_malformed",
            Self::SignatureMismatch => "signature_mismatch",
            Self::TimestampOutsideTolerance { .. } => "timestamp_outside_tolerance",
            Self::EventIdMissing => "event_id_missing",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for Rejection {}

/// A header's only value. A second line, even an equal one, is refused.
pub(crate) fn single<'a>(headers: &'a Headers, name: &str) -> Result<Option<&'a str>, Malformed> {
    let mut values = headers.all(name);
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Malformed::SeveralLines(name.to_owned())),
        (value, None) => Ok(value),
    }
}

/// A header's name as this delivery writes it.
pub(crate) fn rename<'a>(name: &'a str, renamed: Option<(&str, &str)>) -> Cow<'a, str> {
    match renamed.and_then(|(from, to)| Some((after(name, from)?, to))) {
        Some((rest, to)) => Cow::Owned(format!("{to}{rest}")),
        None => Cow::Borrowed(name),
    }
}

/// The rest of a header's name after a beginning in any case.
pub(crate) fn after<'a>(name: &'a str, start: &str) -> Option<&'a str> {
    let (own, rest) = name.split_at_checked(start.len())?;
    own.eq_ignore_ascii_case(start).then_some(rest)
}
