//! A provider with its keys: checks signature and time of a delivery, then reads its events or its handshake.
//!
//! The signature is checked over the exact bytes received, and only then is the content read. (Twilio's form fields and
//! Mailgun's JSON fields are read before, because the signature covers them one by one.)

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde_json::Value;
use subtle::{Choice, ConditionallySelectable as _};

use super::event::{Authentic, Reading, VerifiedEvent};
use crate::providers::{Provider, Reply};
use crate::signature::{
    self, Batch, Delivery, Headers, Key, Parsed, Presented, Rejection, Scheme, SchemeError, Secret,
};

/// A provider with its keys.
pub struct Verifier {
    provider: Provider,
    pub(super) keys: Vec<Key>,
    pub(super) tolerance_ms: i64,
    /// See [`Verifier::known_at`].
    bases: Vec<String>,
}

/// What a delivery whose signature holds turned out to be.
#[derive(Debug)]
pub enum Verified {
    /// Events to be stored: one, or the elements of a batch in their order (which may be none).
    Events(Vec<VerifiedEvent>),
    /// The provider's handshake: nothing to store, and this to answer.
    Handshake(Reply),
}

impl Verifier {
    /// A provider with its secrets, all of which are tried on every delivery.
    ///
    /// # Errors
    /// There is no secret, or [`Provider::check_secret`] refuses one. Its warnings are dropped here.
    pub fn new(provider: Provider, secrets: Vec<Secret>, tolerance: Duration) -> Result<Self, SchemeError> {
        if secrets.is_empty() {
            return Err(SchemeError::NoSecret);
        }
        for secret in &secrets {
            provider.check_secret(secret)?;
        }
        let (verifier, mut problems) = Self::any_length(provider, secrets, tolerance);
        match problems.pop() {
            None => Ok(verifier),
            Some(problem) => Err(problem),
        }
    }

    /// The same with secrets of any length, for checking a delivery by hand. Those that cannot be a key at
    /// all (empty, not decodable) are left out, and the second value says why.
    pub fn any_length(
        provider: Provider,
        secrets: Vec<Secret>,
        tolerance: Duration,
    ) -> (Self, Vec<SchemeError>) {
        let (mut keys, mut problems) = (Vec::new(), Vec::new());
        for secret in secrets {
            match provider.scheme().key(secret) {
                Ok(key) => keys.push(key),
                Err(problem) => problems.push(problem),
            }
        }
        let tolerance_ms = i64::try_from(tolerance.as_millis()).unwrap_or(i64::MAX);
        (Self { provider, keys, tolerance_ms, bases: Vec::new() }, problems)
    }

    /// Who sends.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// How that provider signs.
    pub fn scheme(&self) -> &Scheme {
        self.provider.scheme()
    }

    /// The public base URLs, without a final slash, under which the sender may know us. The URL of a delivery
    /// begins with the first of them; what it signed may begin with another.
    pub fn known_at(&mut self, bases: &[String]) {
        self.bases = bases.to_vec();
    }

    /// The URLs that the sender may have signed; one, where it signs none.
    fn spellings(&self, url: &str) -> Vec<String> {
        let mut urls = vec![url.to_owned()];
        if !self.scheme().signs_url() {
            return urls;
        }
        if let [first, others @ ..] = self.bases.as_slice()
            && let Some(rest) = url.strip_prefix(first.as_str())
        {
            urls.extend(others.iter().map(|base| format!("{base}{rest}")));
        }
        // the daemon takes a path with or without its last slash; a URL that was typed in is meant exactly
        signature::spellings(urls, !self.bases.is_empty(), self.scheme().url_decoded)
    }

    /// Of each body's JSON only what the scheme reads and what these pointers lead to is kept: see
    /// [`VerifiedEvent::json`].
    pub fn read_only(&mut self, pointers: &[&str]) {
        self.provider.read_only(pointers);
    }

    /// Checks signature and time, and nothing else.
    ///
    /// # Errors
    /// A missing signature, else whatever is malformed in the headers, an id missing that is signed included;
    /// then a signature that does not match; then the time, so that `timestamp_outside_tolerance` is only
    /// said of a signature that is right.
    pub fn authenticate(&self, delivery: &Delivery<'_>, now_s: i64) -> Result<Authentic, Rejection> {
        self.check(delivery, now_s).map(|checked| checked.authentic)
    }

    /// The answer to a handshake that the provider does not sign (a challenge in the URL, a ping before
    /// there is a secret); `None` for everything else. Says nothing about who asks and stores nothing.
    pub fn unsigned_handshake(&self, delivery: &Delivery<'_>) -> Option<Reply> {
        self.provider.unsigned_handshake(delivery)
    }

    /// Checks signature and time, then reads what the events say about themselves.
    ///
    /// # Errors
    /// As [`Verifier::authenticate`], and `event_id_missing` also where the id's header is not signed. A signed
    /// body is never refused for its content (see [`VerifiedEvent::defect`]) but for a signed time inside it.
    #[cfg_attr(not(feature = "internals"), allow(dead_code, reason = "for the tests"))]
    pub fn verify(&self, delivery: Delivery<'_, Vec<u8>>, now_ms: i64) -> Result<Verified, Rejection> {
        self.verify_or_return(delivery, now_ms).map_err(|(rejection, _)| rejection)
    }

    /// The same; a rejection returns the body, so that it can be explained.
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
        let Checked { authentic, parsed, signed_sha256 } = match checked {
            Ok(checked) => checked,
            Err(rejection) => return Err((rejection, body)),
        };
        let read = Reading { provider: &self.provider, headers, query, authentic, signed_sha256, now_ms };
        let mut defect = None;
        if let Some(list) = &self.scheme().batch {
            match signature::split(&body, list) {
                Ok(Batch { elements, fields, envelope }) => {
                    let around = Some((&envelope, &fields));
                    let events = elements.into_iter().map(|element| {
                        let parsed = signature::parse_element(element, &self.scheme().projection);
                        read.event(element.as_bytes().to_vec(), parsed, around)
                    });
                    let events = events.collect::<Result<_, _>>();
                    return events.map(Verified::Events).map_err(|(rejection, _)| (rejection, body));
                }
                Err(why) => defect = Some(why.to_string()),
            }
        }
        let mut parsed = parsed.unwrap_or_else(|| self.scheme().parse(headers, &body));
        parsed.defect = parsed.defect.or(defect);
        let key = self.keys.get(authentic.secret_index);
        if let Some(reply) = key.and_then(|key| self.provider.signed_handshake(key, headers, &parsed.json)) {
            return Ok(Verified::Handshake(reply));
        }
        Ok(Verified::Events(vec![read.event(body, parsed, None)?]))
    }

    /// The signature, then the time.
    fn check(&self, delivery: &Delivery<'_>, now_s: i64) -> Result<Checked, Rejection> {
        let scheme = self.scheme();
        let presented = scheme.present(delivery).map_err(|malformed| scheme.rejection(&malformed))?;
        let (secret_index, url) = self.matching(delivery, &presented).ok_or(Rejection::SignatureMismatch)?;
        let signed_sha256 = scheme
            .signs_form_fields()
            .then(|| scheme.signed_sha256(&Delivery { url: &url, ..*delivery }, &presented));
        let Presented { signed_at_ms, mut parsed, .. } = presented;
        let Some(timestamp) = &scheme.timestamp else {
            let authentic = Authentic { secret_index, signed_at_s: None };
            return Ok(Checked { authentic, parsed, signed_sha256 });
        };
        let signed_at_ms = match signed_at_ms {
            Some(signed_at_ms) => signed_at_ms,
            None => {
                let parsed = parsed.get_or_insert_with(|| scheme.parse(delivery.headers, delivery.body));
                signature::time_in_body(timestamp, &parsed.json)
                    .map_err(|malformed| scheme.rejection(&malformed))?
            }
        };
        let age_ms = age_ms(signed_at_ms, now_s);
        if !self.tolerates(age_ms) {
            return Err(Rejection::TimestampOutsideTolerance { skew_s: skew_s(age_ms) });
        }
        let signed_at_s = i64::try_from(i128::from(now_s) - age_ms.div_euclid(1000)).ok();
        Ok(Checked { authentic: Authentic { secret_index, signed_at_s }, parsed, signed_sha256 })
    }

    /// Whether a signed time may be this far from now, before or after it.
    pub(super) fn tolerates(&self, age_ms: i128) -> bool {
        age_ms.unsigned_abs() <= u128::from(self.tolerance_ms.unsigned_abs())
    }

    /// The first secret that made one of the signatures, and the first spelling of the URL that one fits.
    pub(super) fn matching(
        &self,
        delivery: &Delivery<'_>,
        presented: &Presented<'_>,
    ) -> Option<(usize, String)> {
        self.spellings(delivery.url).into_iter().find_map(|url| {
            let secret_index = self.matching_at(&Delivery { url: &url, ..*delivery }, presented)?;
            Some((secret_index, url))
        })
    }

    /// Every secret is compared with every signature, whatever matched before: how long it takes says nothing.
    fn matching_at(&self, delivery: &Delivery<'_>, presented: &Presented<'_>) -> Option<usize> {
        let (mut found, mut index) = (Choice::from(0), 0u64);
        for (number, key) in (0u64..).zip(&self.keys) {
            for keyed in key.keyed(presented.algorithm) {
                let judge = self.scheme().judge(keyed, delivery, presented);
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
        let parsed = self.scheme().parse(&headers, body);
        let defect = signature::content_defect(self.scheme(), &headers, &parsed);
        let content_type = headers.first("content-type").map(str::to_owned);
        Reread { json: parsed.json, defect, content_type }
    }

    /// The sender's own text of a body's JSON (of a form: the decoded field), without a byte order mark. `None` where
    /// the body is a form of fields, or no text at all.
    pub fn json_text<'a>(&self, content_type: Option<&str>, body: &'a [u8]) -> Option<Cow<'a, str>> {
        let headers = Headers::from_iter(content_type.map(|value| ("content-type", value)));
        signature::json_text(self.scheme().form.as_ref(), &headers, body)
    }

    /// What names the hook, the app or the account of a delivery that was stored before; see
    /// [`VerifiedEvent::told_apart_by`]. Without its body only the headers tell.
    pub fn told_apart_by(&self, kept_headers: &str, body: Option<&[u8]>) -> Vec<Option<String>> {
        let headers = kept(kept_headers);
        let parsed = self.scheme().parse(&headers, body.unwrap_or_default());
        signature::told_apart_by(self.scheme(), &headers, &parsed)
    }
}

/// What is known of a delivery whose signature and time hold.
struct Checked {
    authentic: Authentic,
    /// The body's JSON, where it had to be read before.
    parsed: Option<Parsed>,
    /// Of the signed text, where that runs pieces of the delivery together.
    signed_sha256: Option<[u8; 32]>,
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

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<_> = self.keys.iter().map(|key| key.secret.label()).collect();
        f.debug_struct("Verifier")
            .field("provider", &self.provider.name())
            .field("secrets", &labels)
            .field("tolerance_ms", &self.tolerance_ms)
            .finish()
    }
}

/// Now minus the signed time. Cannot overflow: both are made of `i64` seconds or milliseconds.
pub(super) fn age_ms(signed_at_ms: i128, now_s: i64) -> i128 {
    i128::from(now_s) * 1000 - signed_at_ms
}

/// Whole seconds, rounded away from zero, so that a skew just outside is not shown as just inside.
pub(super) fn skew_s(age_ms: i128) -> i64 {
    let seconds = i64::try_from(age_ms.unsigned_abs().div_ceil(1000)).unwrap_or(i64::MAX);
    if age_ms < 0 { -seconds } else { seconds }
}
