//! The engine: a signature scheme as data.
//!
//! A [`Recipe`] is a scheme in the words of `[endpoint.NAME.scheme]`; a [`Scheme`] is the same, checked
//! and split into parts. The presets and the user's own schemes go through the same door, so there is
//! one reader of headers and one place where a signed string is put together (`read`).

use std::borrow::Cow;

use super::canonical::{query_mark, with_body_hash};
use super::delivery::Headers;
use super::form::{Form, is_form};
use super::malformed::Malformed;
use super::projection::Projection;
use super::secret::{Algorithm, Encoding, KeyForm};
use super::sources::{KeyPiece, Source, Sources};
use super::time::TimeUnit;

/// A checked scheme: how a provider signs, and where it says what about an event.
#[derive(Debug, Clone)]
pub struct Scheme {
    pub(crate) header: SignatureHeader,
    pub(crate) signature_field: Option<String>,
    pub(crate) encoding: Encoding,
    pub(crate) algorithm: Algorithm,
    pub(crate) algorithm_header: Option<String>,
    pub(crate) key: KeyForm,
    pub(crate) key_prefix: String,
    pub(crate) also_decoded: bool,
    pub(crate) signs_both: bool,
    pub(crate) signed: Vec<Part>,
    pub(crate) url_decoded: bool,
    pub(crate) signed_headers_header: Option<String>,
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) families: Option<[String; 2]>,
    pub(crate) form: Option<Form>,
    pub(crate) form_field_signed: bool,
    pub(crate) batch: Option<String>,
    pub(crate) nonce: Option<String>,
    pub(crate) sources: Sources,
    pub(crate) challenge: Option<Challenge>,
    /// JSON pointers of what its provider reads besides, such as a handshake.
    pub(crate) also_read: Vec<String>,
    /// Of the body's JSON.
    pub(crate) projection: Projection,
}

/// A text that the sender wants back, and the mark of a delivery that asks for it.
#[derive(Debug, Clone)]
pub(crate) struct Challenge {
    pub(crate) pointer: String,
    pub(crate) when: Source,
    pub(crate) is: String,
    /// The answer is an object with the text in it.
    pub(crate) as_json: bool,
}

/// Where signatures stand.
#[derive(Debug, Clone)]
pub(crate) struct SignatureHeader {
    /// Without the `*` of numbered headers.
    pub(crate) name: String,
    pub(crate) numbered: bool,
    pub(crate) prefix: String,
    pub(crate) prefix_optional: bool,
    pub(crate) list_separator: Option<String>,
    pub(crate) pair: Option<String>,
    /// Case does not matter: hex has none, so its prefix has none either.
    pub(crate) any_case: bool,
}

/// Where the signed time stands.
#[derive(Debug, Clone)]
pub(crate) struct Timestamp {
    pub(crate) place: TimestampPlace,
    pub(crate) unit: TimeUnit,
    /// A time as in RFC 3339 cannot be mistaken for a number: it is read whatever the unit is.
    pub(crate) or_rfc3339: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum TimestampPlace {
    Header(String),
    Pair(String),
    Json(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Ts,
    Id,
    Body,
    Url,
    Method,
    // the rest is put together while a delivery is read, and only presets use it
    Json(String),
    Params,
    Path,
    SignedHeaders,
}

impl Scheme {
    /// Keeps of a body's JSON what the scheme itself reads and what these pointers lead to.
    pub(crate) fn read_only(&mut self, pointers: &[&str]) {
        self.projection = self.own_fields(pointers);
    }

    /// What the scheme itself reads, and what these pointers lead to.
    pub(crate) fn own_fields(&self, pointers: &[&str]) -> Projection {
        let signed = self.signed.iter().filter_map(|part| match part {
            Part::Json(pointer) => Some(pointer.as_str()),
            _ => None,
        });
        let time = self.timestamp.iter().filter_map(|timestamp| match &timestamp.place {
            TimestampPlace::Json(pointer) => Some(pointer.as_str()),
            _ => None,
        });
        let own = self.sources.pointers().chain(self.signature_field.as_deref()).chain(self.nonce.as_deref());
        let own = own.chain(self.also_read.iter().map(String::as_str));
        let challenge = self.challenge.iter().flat_map(|challenge| {
            [Some(challenge.pointer.as_str()), challenge.when.pointer()].into_iter().flatten()
        });
        let own = own.chain(challenge);
        Projection::only(own.chain(signed).chain(time).chain(pointers.iter().copied()))
    }

    /// Whether the signature covers the body. Money handlers refuse schemes where it does not.
    pub fn body_signed(&self) -> bool {
        !self.algorithm.is_token()
            && (self.signed.contains(&Part::Body) || self.signed.contains(&Part::Params))
    }

    /// Whether several events may come in one body.
    pub fn is_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Whether inboxd can sign for this provider: not where that takes a private key.
    pub fn can_sign(&self) -> bool {
        self.algorithm.can_sign()
    }

    /// Whether the signature covers the event's id. Where not, a captured delivery can be sent again
    /// under a new id, and only the body's hash shows that.
    pub fn id_is_signed(&self) -> bool {
        self.sources.event_id.iter().all(|source| match source {
            Source::Header(_) => self.signed.contains(&Part::Id),
            Source::Json(_) | Source::Batch(_) => self.body_signed(),
        })
    }

    /// Whether the key of an event that has no id says what an unsigned header says: there another header makes another
    /// key of the same body.
    pub fn key_is_unsigned(&self) -> bool {
        let in_header = |piece: &KeyPiece| matches!(piece, KeyPiece::Fact(Source::Header(_)));
        self.sources.event_id.is_empty() && self.sources.event_key.iter().any(in_header)
    }

    /// Whether the value of a header may be shown to people: that it is no signature and no credential is known.
    pub fn is_shown(&self, header: &str) -> bool {
        const HARMLESS: [&str; 6] =
            ["content-type", "content-length", "forwarded", "host", "user-agent", "x-forwarded-for"];
        HARMLESS.iter().any(|harmless| harmless.eq_ignore_ascii_case(header)) || self.sources.keeps(header)
    }

    /// Whether the signature stands in the body, where `with_time_and_signature` writes it.
    pub fn signature_in_body(&self) -> bool {
        self.signature_field.is_some()
    }

    /// Whether a body that is no form is covered by its hash in the URL; see [`with_body_hash`].
    pub fn signs_form_fields(&self) -> bool {
        self.signed.contains(&Part::Params)
    }

    /// The URL under which a delivery is signed and sent: with the hash of the body in it, where the signature covers
    /// such a body in no other way.
    pub fn url_to_sign<'a>(&self, url: &'a str, content_type: &str, body: &[u8]) -> Cow<'a, str> {
        let headers = Headers::from_iter([("content-type", content_type)]);
        if !self.signs_form_fields() || body.is_empty() || is_form(&headers) {
            return Cow::Borrowed(url);
        }
        Cow::Owned(with_body_hash(url, body))
    }

    /// Whether the signed time stands inside the body, where signing anew does not change it.
    pub fn has_time_in_body(&self) -> bool {
        matches!(&self.timestamp, Some(Timestamp { place: TimestampPlace::Json(_), .. }))
    }

    /// Whether a time is signed.
    pub fn signs_time(&self) -> bool {
        self.timestamp.is_some()
    }

    /// Whether its events may name an account.
    pub fn names_account(&self) -> bool {
        self.sources.names_account()
    }

    /// Whether the public URL is part of what is signed, so that it must be configured.
    pub fn signs_url(&self) -> bool {
        self.signed.contains(&Part::Url)
    }

    /// See [`query_mark`]; `None` unless the signature covers the URL, since an attacker can change an unsigned query.
    pub(crate) fn query_mark(&self, query: Option<&str>) -> Option<String> {
        query.filter(|_| self.signs_url()).and_then(query_mark)
    }

    /// The header that carries the signed time, where one does.
    pub(crate) fn timestamp_header(&self) -> Option<&str> {
        match &self.timestamp.as_ref()?.place {
            TimestampPlace::Header(name) => Some(name),
            TimestampPlace::Pair(_) | TimestampPlace::Json(_) => None,
        }
    }
}

impl SignatureHeader {
    /// Whether a header's name is the given one of ours, or one of the numbered ones.
    pub(crate) fn matches(&self, ours: &str, name: &str) -> bool {
        if !self.numbered {
            return name.eq_ignore_ascii_case(ours);
        }
        let (start, number) = name.split_at_checked(ours.len()).unwrap_or(("", ""));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        start.eq_ignore_ascii_case(ours) && digits(number)
    }

    /// One signature as the provider writes it.
    pub(crate) fn element(&self, signature: &str) -> String {
        match &self.pair {
            Some(pair) => format!("{pair}={signature}"),
            None => format!("{}{signature}", self.prefix),
        }
    }
}

impl Timestamp {
    /// Milliseconds since 1970. `place` is where the text stands.
    pub(crate) fn read(&self, text: &str, place: &str) -> Result<i128, Malformed> {
        let read = self.unit.read(text, place);
        if self.or_rfc3339 {
            read.or_else(|malformed| TimeUnit::Rfc3339.read(text, place).map_err(|_| malformed))
        } else {
            read
        }
    }
}
