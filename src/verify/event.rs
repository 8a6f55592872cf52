//! The event whose signature held.
//!
//! [`VerifiedEvent`] has private fields and one constructor, which only this room can call, so that unverified data
//! cannot reach a transaction.

use std::fmt;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::providers::Provider;
use crate::signature::{Envelope, EventId, Headers, Parsed, Rejection, at, body_key, identify};

/// What is known once the signature holds and its time is within tolerance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authentic {
    /// Which of the secrets matched, in the order given.
    pub secret_index: usize,
    /// The signed time in seconds since the epoch, where the scheme has one.
    pub signed_at_s: Option<i64>,
}

/// An event whose signature held. It exists only because the check passed; no other code can make or change one:
///
/// ```compile_fail,E0451
/// fn forge(real: inboxd::internals::verify::VerifiedEvent) -> inboxd::internals::verify::VerifiedEvent {
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

    /// The key in the inbox: the provider's id; if it gives none, a key of the facts that the preset names;
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

    /// What stays the same when a captured delivery is sent again under another id: a hash of body and type, of the
    /// signed text where that runs URL and fields together, or of the value the provider uses once. `None` where the id
    /// is signed: then ids tell.
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
    /// be parsed. After [`super::verifier::Verifier::read_only`] only the fields named there are in it.
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
    #[cfg_attr(not(feature = "internals"), allow(dead_code, reason = "for the tests"))]
    pub fn authentic(&self) -> Authentic {
        self.authentic
    }
}

/// A delivery whose signature holds, while its events are read.
pub(super) struct Reading<'a> {
    pub(super) provider: &'a Provider,
    pub(super) headers: &'a Headers,
    pub(super) query: Option<&'a str>,
    pub(super) authentic: Authentic,
    /// Of the signed text, where that runs pieces of the delivery together.
    pub(super) signed_sha256: Option<[u8; 32]>,
    pub(super) now_ms: i64,
}

impl Reading<'_> {
    /// The one constructor of [`VerifiedEvent`]. `around` is what stands around the event in a batch, as text and as
    /// fields; `None` where it came alone.
    pub(super) fn event(
        &self,
        body: Vec<u8>,
        parsed: Parsed,
        around: Option<(&Envelope, &Value)>,
    ) -> Result<VerifiedEvent, (Rejection, Vec<u8>)> {
        let (provider, scheme) = (self.provider, self.provider.scheme());
        let fields = around.map_or(&Value::Null, |(_, fields)| fields);
        let identity = identify(scheme, self.headers, &parsed, fields);
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
        let replay_key = provider.has_replay_key().then(|| match (&scheme.nonce, self.signed_sha256) {
            (Some(nonce), _) => {
                Sha256::digest(at(&parsed.json, nonce).map(Value::to_string).unwrap_or_default()).into()
            }
            // an attacker can cut one signed text into URL, names and values in many ways, each with another body and key
            (None, Some(signed_sha256)) => signed_sha256,
            // one body under two types is two events: shops send an order as created and as paid
            (None, None) => Sha256::new()
                .chain_update(body_sha256)
                .chain_update(identity.replay_type.as_deref().unwrap_or_default())
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
        let is_test_button = provider.is_test_button(self.headers, &parsed.json, event_type);
        Ok(VerifiedEvent {
            provider: provider.name().to_owned(),
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
