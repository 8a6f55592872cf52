//! Verification: `(raw bytes, headers, secrets, now) → VerifiedEvent | Rejection`, and nothing else.
//!
//! Pure: no clock, no database, no configuration file. The signature is checked over the exact bytes
//! received; what they say is read when it holds. (Before, only as much is read as the signature itself is
//! made of: fields of a form for a few providers, and of the JSON for Mailgun.) [`VerifiedEvent`] has private
//! fields and one constructor, in this module, so that unverified data cannot reach a transaction.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _};

#[path = "../providers/preset.rs"]
pub mod presets;
#[path = "../signature/scheme.rs"]
mod scheme;
#[path = "../signature/identity.rs"]
mod identity;
#[path = "../signature/canonical.rs"]
mod canonical;
#[path = "../signature/secret.rs"]
mod secret;
#[path = "../signature/envelope.rs"]
mod envelope;
#[path = "../providers/handshake.rs"]
mod handshake;
mod explain;
#[path = "../signature/sign.rs"]
mod sign;
#[path = "../providers/patience.rs"]
mod patience;
#[path = "../providers/sample.rs"]
mod samples;
#[path = "../signature/projection.rs"]
mod wanted;

pub use canonical::with_body_hash;
pub use envelope::Envelope;
pub use explain::{Report, explain, hint, report, report_of};
pub use handshake::Reply;
pub use identity::is_test_send;
pub use patience::gives_up_after;
pub use presets::{Acceptance, BodyVaries, Handshake, Preset, TestSign};
pub use scheme::{CustomScheme, Recipe, Scheme};
pub use secret::Secret;
pub use sign::{Unsigned, sign, with_time_and_signature};

use identity::{Batch, EventId, Parsed, at, body_key};
use scheme::{Flaw, Presented, Timestamp, TimestampPlace};
use secret::{Algorithm, Keyed};

/// The headers of one request, in the order received. Names compare without case; values are never
/// shown, since some are signatures.
#[derive(Clone, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Adds one header line.
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

/// A scheme with its keys.
pub struct Verifier {
    scheme: Scheme,
    keys: Vec<Key>,
    tolerance_ms: i64,
    /// See [`Verifier::known_at`].
    bases: Vec<String>,
}

struct Key {
    secret: Secret,
    /// One for each algorithm of the scheme and each way to make a key from the secret.
    keyed: Vec<(Algorithm, Keyed)>,
}

impl Key {
    fn new(scheme: &Scheme, secret: Secret) -> Result<Self, String> {
        let mut keyed = Vec::new();
        for bytes in scheme.keys_of(secret.expose())? {
            for algorithm in scheme.algorithms() {
                keyed.push((algorithm, Keyed::new(algorithm, &bytes)?));
            }
        }
        Ok(Self { secret, keyed })
    }

    fn keyed(&self, algorithm: Algorithm) -> impl Iterator<Item = &Keyed> {
        self.keyed.iter().filter(move |(own, _)| *own == algorithm).map(|(_, keyed)| keyed)
    }
}

/// What a delivery whose signature holds turned out to be.
#[derive(Debug)]
pub enum Verified {
    /// Events to be stored: one, or the elements of a batch in their order (which may be none).
    Events(Vec<VerifiedEvent>),
    /// The provider's handshake: nothing to store, and this to answer.
    Handshake(Reply),
}

/// What is known once the signature holds and its time is within tolerance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authentic {
    /// Which of the secrets matched, in the order given.
    pub secret_index: usize,
    /// The signed time in seconds since the epoch, where the scheme has one.
    pub signed_at_s: Option<i64>,
}

impl Verifier {
    /// A scheme with its secrets, all of which are tried on every delivery.
    ///
    /// # Errors
    /// There is no secret, or [`Scheme::check_secret`] refuses one. Its warnings are not told here.
    pub fn new(scheme: Scheme, secrets: Vec<Secret>, tolerance: Duration) -> Result<Self, String> {
        if secrets.is_empty() {
            return Err(String::from(
                "there is no secret: nothing could be verified; name at least one in `secrets`",
            ));
        }
        for secret in &secrets {
            scheme.check_secret(secret)?;
        }
        let (verifier, mut problems) = Self::any_length(scheme, secrets, tolerance);
        match problems.pop() {
            None => Ok(verifier),
            Some(problem) => Err(problem),
        }
    }

    /// The same with secrets of any length, for checking a delivery by hand. Those that cannot be a key at
    /// all (empty, not decodable) are left out, and the second value says why.
    pub fn any_length(scheme: Scheme, secrets: Vec<Secret>, tolerance: Duration) -> (Self, Vec<String>) {
        let (mut keys, mut problems) = (Vec::new(), Vec::new());
        for secret in secrets {
            let label = secret.label().to_owned();
            let key = match secret.expose() {
                [] => Err(String::from("is empty")),
                _ => Key::new(&scheme, secret),
            };
            match key {
                Ok(key) => keys.push(key),
                Err(problem) => problems.push(format!("secret {label} {problem}")),
            }
        }
        let tolerance_ms = i64::try_from(tolerance.as_millis()).unwrap_or(i64::MAX);
        (Self { scheme, keys, tolerance_ms, bases: Vec::new() }, problems)
    }

    /// The scheme.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// The public base URLs, without a final slash, under which the sender may know us. The URL of a delivery
    /// begins with the first of them; what it signed may begin with another.
    pub fn known_at(&mut self, bases: &[String]) {
        self.bases = bases.to_vec();
    }

    /// The URLs that the sender may have signed; one, where it signs none.
    fn spellings(&self, url: &str) -> Vec<String> {
        let mut urls = vec![url.to_owned()];
        if !self.scheme.signs_url() {
            return urls;
        }
        if let [first, others @ ..] = self.bases.as_slice()
            && let Some(rest) = url.strip_prefix(first.as_str())
        {
            urls.extend(others.iter().map(|base| format!("{base}{rest}")));
        }
        // the daemon takes a path with or without its last slash; a URL that was typed in is meant exactly
        canonical::spellings(urls, !self.bases.is_empty(), self.scheme.url_decoded)
    }

    /// Of each body's JSON only what the scheme reads and what these pointers lead to is kept: see
    /// [`VerifiedEvent::json`].
    pub fn read_only(&mut self, pointers: &[&str]) {
        self.scheme.read_only(pointers);
    }

    /// Checks signature and time, and nothing else.
    ///
    /// # Errors
    /// A missing signature, else whatever is malformed in the headers, an id missing that is signed included;
    /// then a signature that does not match; then the time, so that `timestamp_outside_tolerance` is only
    /// said of a signature that is right.
    pub fn authenticate(&self, delivery: &Delivery<'_>, now_s: i64) -> Result<Authentic, Rejection> {
        self.check(delivery, now_s).map(|(authentic, _)| authentic)
    }

    /// The answer to a handshake that the provider does not sign (a challenge in the URL, a ping before
    /// there is a secret); `None` for everything else. Says nothing about who asks and stores nothing.
    pub fn unsigned_handshake(&self, delivery: &Delivery<'_>) -> Option<Reply> {
        handshake::unsigned(&self.scheme, delivery)
    }

    /// Checks signature and time, then reads what the events say about themselves.
    ///
    /// # Errors
    /// As [`Verifier::authenticate`], and `event_id_missing` also where the id's header is not signed. A signed
    /// body is never refused for its content (see [`VerifiedEvent::defect`]) but for a signed time inside it.
    pub fn verify(&self, delivery: Delivery<'_, Vec<u8>>, now_ms: i64) -> Result<Verified, Rejection> {
        self.verify_or_return(delivery, now_ms).map_err(|(rejection, _)| rejection)
    }

    /// The same; a rejection comes with the body, for whoever looks into it.
    ///
    /// # Errors
    /// As [`Verifier::verify`].
    pub fn verify_or_return(
        &self,
        delivery: Delivery<'_, Vec<u8>>,
        now_ms: i64,
    ) -> Result<Verified, (Rejection, Vec<u8>)> {
        let checked = self.check(&delivery.borrowed(), now_ms.div_euclid(1000));
        let query = delivery.query();
        let Delivery { headers, body, .. } = delivery;
        let (authentic, parsed) = match checked {
            Ok(checked) => checked,
            Err(rejection) => return Err((rejection, body)),
        };
        let read = Read { verifier: self, headers, query, authentic, now_ms };
        let mut defect = None;
        if let Some(list) = &self.scheme.batch {
            match identity::split(&body, list) {
                Ok(Batch { elements, fields, envelope }) => {
                    let around = Some((&envelope, &fields));
                    let events = elements.into_iter().map(|element| {
                        let parsed = identity::parse_element(element, &self.scheme.wanted);
                        read.event(element.as_bytes().to_vec(), parsed, around)
                    });
                    let events = events.collect::<Result<_, _>>();
                    return events.map(Verified::Events).map_err(|(rejection, _)| (rejection, body));
                }
                Err(why) => defect = Some(why),
            }
        }
        let mut parsed = parsed.unwrap_or_else(|| self.scheme.parse(headers, &body));
        parsed.defect = parsed.defect.or(defect);
        let key = self.keys.get(authentic.secret_index);
        if let Some(reply) = key.and_then(|key| handshake::signed(&self.scheme, key, headers, &parsed.json)) {
            return Ok(Verified::Handshake(reply));
        }
        Ok(Verified::Events(vec![read.event(body, parsed, None)?]))
    }

    /// The signature, then the time. Hands on the body's JSON where it had to be read for that.
    fn check(&self, delivery: &Delivery<'_>, now_s: i64) -> Result<(Authentic, Option<Parsed>), Rejection> {
        let presented = self.scheme.present(delivery).map_err(|flaw| flaw.rejection(&self.scheme))?;
        let secret_index = self.matching(delivery, &presented).ok_or(Rejection::SignatureMismatch)?;
        let Presented { signed_at_ms, mut parsed, .. } = presented;
        let Some(timestamp) = &self.scheme.timestamp else {
            return Ok((Authentic { secret_index, signed_at_s: None }, parsed));
        };
        let signed_at_ms = match signed_at_ms {
            Some(signed_at_ms) => signed_at_ms,
            None => {
                let parsed = parsed.get_or_insert_with(|| self.scheme.parse(delivery.headers, delivery.body));
                time_in_body(timestamp, &parsed.json).map_err(|flaw| flaw.rejection(&self.scheme))?
            }
        };
        let age_ms = age_ms(signed_at_ms, now_s);
        if !self.tolerates(age_ms) {
            return Err(Rejection::TimestampOutsideTolerance { skew_s: skew_s(age_ms) });
        }
        let signed_at_s = i64::try_from(i128::from(now_s) - age_ms.div_euclid(1000)).ok();
        Ok((Authentic { secret_index, signed_at_s }, parsed))
    }

    /// Whether a signed time may be this far from now, before or after it.
    fn tolerates(&self, age_ms: i128) -> bool {
        age_ms.unsigned_abs() <= u128::from(self.tolerance_ms.unsigned_abs())
    }

    /// The first secret that made one of the signatures, for the first spelling of the URL that one fits.
    fn matching(&self, delivery: &Delivery<'_>, presented: &Presented<'_>) -> Option<usize> {
        let spelled = self.spellings(delivery.url);
        spelled.iter().find_map(|url| self.matching_at(&Delivery { url, ..*delivery }, presented))
    }

    /// Every secret is compared with every signature, whatever matched before: how long it takes says nothing.
    fn matching_at(&self, delivery: &Delivery<'_>, presented: &Presented<'_>) -> Option<usize> {
        let (mut found, mut index) = (Choice::from(0), 0u64);
        for (number, key) in (0u64..).zip(&self.keys) {
            for keyed in key.keyed(presented.algorithm) {
                let judge = self.scheme.judge(keyed, delivery, presented);
                for candidate in &presented.candidates {
                    let hit = judge.accepts(candidate);
                    index.conditional_assign(&number, hit & !found);
                    found |= hit;
                }
            }
        }
        bool::from(found).then(|| usize::try_from(index).ok()).flatten()
    }

    /// Reads a body that was verified and stored before as it was read then.
    pub fn reread(&self, kept_headers: &str, body: &[u8]) -> Reread {
        let headers = kept(kept_headers);
        let parsed = self.scheme.parse(&headers, body);
        let defect = identity::content_defect(&self.scheme, &headers, &parsed);
        let content_type = headers.first("content-type").map(str::to_owned);
        Reread { json: parsed.json, defect, content_type }
    }

    /// The sender's own text of a body's JSON (of a form: the decoded field), without a byte order mark. `None` where
    /// the body is a form of fields, or no text at all.
    pub fn json_text<'a>(&self, content_type: Option<&str>, body: &'a [u8]) -> Option<Cow<'a, str>> {
        let headers = Headers::from_iter(content_type.map(|value| ("content-type", value)));
        identity::json_text(self.scheme.form.as_ref(), &headers, body)
    }

    /// What names the hook, the app or the account of a delivery that was stored before; see
    /// [`VerifiedEvent::told_apart_by`]. Without its body only the headers tell.
    pub fn told_apart_by(&self, kept_headers: &str, body: Option<&[u8]>) -> Vec<Option<String>> {
        let headers = kept(kept_headers);
        let parsed = self.scheme.parse(&headers, body.unwrap_or_default());
        identity::told_apart_by(&self.scheme, &headers, &parsed)
    }
}

/// The headers that were kept of a delivery.
fn kept(json: &str) -> Headers {
    let kept: std::collections::BTreeMap<String, String> = serde_json::from_str(json).unwrap_or_default();
    Headers::from_iter(kept)
}

/// A stored body, read again.
#[derive(Debug)]
pub struct Reread {
    /// As [`VerifiedEvent::json`].
    pub json: Value,
    /// As [`VerifiedEvent::defect`], except for the event's id: the row has a key.
    pub defect: Option<String>,
    /// As [`VerifiedEvent::content_type`].
    pub content_type: Option<String>,
}

/// A delivery whose signature holds, while its events are read.
struct Read<'a> {
    verifier: &'a Verifier,
    headers: &'a Headers,
    query: Option<&'a str>,
    authentic: Authentic,
    now_ms: i64,
}

impl Read<'_> {
    /// `around` is what stands around the event in a batch, as text and as fields; `None` where it came alone.
    fn event(
        &self,
        body: Vec<u8>,
        parsed: Parsed,
        around: Option<(&Envelope, &Value)>,
    ) -> Result<VerifiedEvent, (Rejection, Vec<u8>)> {
        let scheme = &self.verifier.scheme;
        let fields = around.map_or(&Value::Null, |(_, fields)| fields);
        let identity = identity::identify(scheme, self.headers, &parsed, fields);
        let body_sha256: [u8; 32] = Sha256::digest(&body).into();
        let mark = scheme.query_mark(self.query);
        let event_id = match identity.id {
            EventId::Own(id) => id,
            EventId::Derived(facts) => {
                scheme.sources.derived_key(facts, &body_sha256, mark.as_deref(), self.now_ms)
            }
            EventId::BodyHash => body_key(&body_sha256, mark.as_deref()),
            EventId::HeaderMissing(_) => return Err((Rejection::EventIdMissing, body)),
        };
        let replay_key = scheme.has_replay_key().then(|| match &scheme.nonce {
            Some(nonce) => {
                Sha256::digest(at(&parsed.json, nonce).map(Value::to_string).unwrap_or_default()).into()
            }
            // one body under two types is two events: shops send an order as created and as paid
            None => Sha256::new()
                .chain_update(body_sha256)
                .chain_update(identity.event_type.as_deref().unwrap_or_default())
                .chain_update(mark.as_deref().unwrap_or_default())
                .finalize()
                .into(),
        });
        let fact_key = identity.fact.map(|pieces| {
            let parts = [identity.event_type.as_deref(), identity.object_id.as_deref()];
            let parts = parts.map(|part| part.unwrap_or_default().to_owned());
            Sha256::digest(serde_json::json!([pieces, parts]).to_string()).into()
        });
        let event_type = identity.event_type.as_deref();
        let is_test_button = identity::is_test_button(scheme, self.headers, &parsed.json, event_type);
        Ok(VerifiedEvent {
            provider: scheme.name().to_owned(),
            event_id,
            event_type: identity.event_type,
            object_id: identity.object_id,
            account: identity.account,
            livemode: identity.livemode,
            api_version: identity.api_version,
            kept_headers: scheme.sources.kept(self.headers, scheme.family(self.headers)),
            content_type: self.headers.first("content-type").map(str::to_owned),
            body,
            envelope: around.map(|(envelope, _)| envelope.clone()),
            query: self.query.map(str::to_owned),
            body_sha256,
            replay_key,
            fact_key,
            told_apart_by: identity.told_apart_by,
            json: parsed.json,
            defect: identity.defect,
            is_test_send: identity.is_test_send,
            is_test_button,
            authentic: self.authentic,
        })
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<_> = self.keys.iter().map(|key| key.secret.label()).collect();
        f.debug_struct("Verifier")
            .field("scheme", &self.scheme.name())
            .field("secrets", &labels)
            .field("tolerance_ms", &self.tolerance_ms)
            .finish()
    }
}

/// Now minus the signed time. Cannot overflow: both are made of `i64` seconds or milliseconds.
fn age_ms(signed_at_ms: i128, now_s: i64) -> i128 {
    i128::from(now_s) * 1000 - signed_at_ms
}

/// Whole seconds, rounded away from zero, so that a skew just outside is not shown as just inside.
fn skew_s(age_ms: i128) -> i64 {
    let seconds = i64::try_from(age_ms.unsigned_abs().div_ceil(1000)).unwrap_or(i64::MAX);
    if age_ms < 0 { -seconds } else { seconds }
}

fn time_in_body(timestamp: &Timestamp, json: &Value) -> Result<i128, Flaw> {
    let TimestampPlace::Json(pointer) = &timestamp.place else {
        return Err(Flaw::TimestampMissing(String::from("the message")));
    };
    let place = format!("{pointer} in the body");
    match at(json, pointer) {
        Some(Value::Number(number)) => timestamp.read(&number.to_string(), &place),
        Some(Value::String(text)) => timestamp.read(text, &place),
        _ => Err(Flaw::TimestampMissing(place)),
    }
}

/// An event whose signature held. It exists only because the check passed; nobody can make or change one:
///
/// ```compile_fail,E0451
/// fn forge(real: inboxd::internals::verify::VerifiedEvent) -> inboxd::verify::VerifiedEvent {
///     inboxd::internals::verify::VerifiedEvent { event_id: String::from("evt_forged"), ..real }
/// }
/// ```
///
/// (What it says can be read:)
///
/// ```
/// fn read(real: &inboxd::internals::verify::VerifiedEvent) -> &str {
///     real.event_id()
/// }
/// ```
pub struct VerifiedEvent {
    provider: String,
    event_id: String,
    event_type: Option<String>,
    object_id: Option<String>,
    account: Option<String>,
    livemode: Option<bool>,
    api_version: Option<String>,
    kept_headers: String,
    content_type: Option<String>,
    body: Vec<u8>,
    envelope: Option<Envelope>,
    query: Option<String>,
    body_sha256: [u8; 32],
    replay_key: Option<[u8; 32]>,
    fact_key: Option<[u8; 32]>,
    told_apart_by: Vec<Option<String>>,
    json: Value,
    defect: Option<String>,
    is_test_send: bool,
    is_test_button: bool,
    authentic: Authentic,
}

impl fmt::Debug for VerifiedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedEvent")
            .field("provider", &self.provider)
            .field("event_id", &self.event_id)
            .field("event_type", &self.event_type)
            .field("defect", &self.defect)
            .finish_non_exhaustive()
    }
}

impl VerifiedEvent {
    /// The preset's name, or `custom`.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The key in the inbox: the provider's id; where it gives none, one made of what the preset names;
    /// else `body-sha256:` and the body's hash in hex.
    pub fn event_id(&self) -> &str {
        &self.event_id
    }

    /// e.g. `invoice.paid`, `issues.opened`; at most 255 bytes, without control characters.
    pub fn event_type(&self) -> Option<&str> {
        self.event_type.as_deref()
    }

    /// The business object the event is about; at most 255 bytes.
    pub fn object_id(&self) -> Option<&str> {
        self.object_id.as_deref()
    }

    /// The provider's account, where the event names one.
    pub fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// `Some(true)` live, `Some(false)` test.
    pub fn livemode(&self) -> Option<bool> {
        self.livemode
    }

    /// The version of the body's shape.
    pub fn api_version(&self) -> Option<&str> {
        self.api_version.as_deref()
    }

    /// A JSON object of the few headers the preset names, lower-case; never a signature or credential.
    pub fn kept_headers(&self) -> &str {
        &self.kept_headers
    }

    /// As received.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The exact bytes received: of the body, or of this element of a batch.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// What stood around this element of a batch; `None` where the event came alone.
    pub fn envelope(&self) -> Option<&Envelope> {
        self.envelope.as_ref()
    }

    /// The query string of the URL, without `?`, as received; `None` where there was none. Whether it was signed is up
    /// to the scheme.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// The SHA-256 of [`VerifiedEvent::body`].
    pub fn body_sha256(&self) -> [u8; 32] {
        self.body_sha256
    }

    /// What stays the same when a captured delivery is sent again under another id: a hash of body and
    /// type, or of the value the provider uses once. `None` where the id is signed: then ids tell.
    pub fn replay_key(&self) -> Option<[u8; 32]> {
        self.replay_key
    }

    /// What names the event where every subscription has ids of its own: the same for all of them. `None` where the id
    /// names it.
    pub fn fact_key(&self) -> Option<[u8; 32]> {
        self.fact_key
    }

    /// What names the hook, the app or the account it came through, where the id is the same for all of them: two
    /// bodies under one id are two events where these differ. Empty where that cannot be.
    pub fn told_apart_by(&self) -> &[Option<String>] {
        &self.told_apart_by
    }

    /// The key of an event that has no id of its own: `body-sha256:` and the hash in hex.
    pub fn body_key(&self) -> String {
        body_key(&self.body_sha256, None)
    }

    /// The body as JSON (for form bodies: the JSON inside the form, or its fields); `Null` where it could not
    /// be parsed. After [`Verifier::read_only`] only the fields named there are in it.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// Why this event must be quarantined rather than handled, in one sentence without its content.
    pub fn defect(&self) -> Option<&str> {
        self.defect.as_deref()
    }

    /// A test delivery with a constant id: never business.
    pub fn is_test_send(&self) -> bool {
        self.is_test_send
    }

    /// What the provider's own test button or a hook's set-up sends: the same bytes each time.
    pub fn is_test_button(&self) -> bool {
        self.is_test_button
    }

    /// Which secret matched, and the signed time.
    pub fn authentic(&self) -> Authentic {
        self.authentic
    }
}
