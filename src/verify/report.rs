//! The answer of `inboxd verify`: whether a delivery is genuine, and what it holds.
//!
//! A [`Report`] also shows the first and last bytes of the signed string, and never a secret or a signature.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::explain::{explain, received};
use super::verifier::Verifier;
use crate::providers::Provider;
use crate::signature::{
    Delivery, EventId, Key, Parsed, Presented, Rejection, Scheme, SchemeError, Secret, identify, joined,
    parse_element, rename, split,
};

/// How many bytes of the signed string are shown at each end.
const SIGNED_BYTES_SHOWN: usize = 16;

/// The answer of `inboxd verify`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The signature holds.
    Genuine {
        /// The provider's id; `None` where the body's hash would be the key, a header is missing, or the
        /// body is not exactly one event.
        event_id: Option<String>,
        /// The type, where it is known.
        event_type: Option<String>,
        /// Of each event of a batch, id and type; `None` where the body is one event.
        events: Option<Vec<(Option<String>, Option<String>)>>,
        /// The label of the secret that matched.
        secret: String,
        /// What was read and signed.
        signed: Option<Signed>,
        /// What the daemon would object to all the same, or do instead of storing.
        hint: Option<String>,
    },
    /// It does not.
    Refused {
        /// Why.
        rejection: Rejection,
        /// What was read and should have been signed, where the headers say enough.
        signed: Option<Signed>,
        /// What to look at.
        hint: String,
    },
}

/// What was read, and the string that the signature is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signed {
    /// The header the signature was read from, or `json:/pointer`.
    pub header: String,
    /// e.g. `HMAC-SHA256`
    pub algorithm: &'static str,
    /// The length of the signed string; 0 for a static token, which signs nothing.
    pub bytes: usize,
    /// Its first bytes; those that are no visible ASCII are escaped.
    pub first: String,
    /// Its last bytes, escaped.
    pub last: String,
}

impl Signed {
    fn of(scheme: &Scheme, delivery: &Delivery<'_>, presented: &Presented<'_>) -> Self {
        let string = joined(scheme.pieces(delivery, presented));
        let end = string.len().min(SIGNED_BYTES_SHOWN);
        let header = match &scheme.signature_field {
            Some(pointer) => format!("json:{pointer}"),
            None if scheme.header.numbered => format!("{}*", scheme.header.name),
            None => rename(&scheme.header.name, scheme.family(delivery.headers)).into_owned(),
        };
        Self {
            header,
            algorithm: presented.algorithm.title(),
            bytes: string.len(),
            first: shown(&string[..end]),
            last: shown(&string[string.len() - end..]),
        }
    }
}

/// Visible ASCII as it is, all else as `\n`, `\xe2` and the like.
fn shown(bytes: &[u8]) -> String {
    let shown = |byte: &u8| match byte {
        b' '..=b'~' => vec![*byte],
        byte => std::ascii::escape_default(*byte).collect(),
    };
    bytes.iter().flat_map(shown).map(char::from).collect()
}

impl Report {
    /// Whether the signature holds.
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Genuine { .. })
    }

    /// One line of JSON: `{"ok":true,"event_id":…,"event_type":…,"secret":…,"signed":{…}}`, with `events` for
    /// a batch and a `hint` where there is one, or `{"ok":false,"reason":…,"hint":…,"signed":{…}}`.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct One {
            event_id: Option<String>,
            event_type: Option<String>,
        }
        #[derive(Serialize)]
        struct Genuine<'a> {
            ok: bool,
            event_id: Option<&'a str>,
            event_type: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            events: Option<Vec<One>>,
            secret: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            signed: Option<&'a Signed>,
            #[serde(skip_serializing_if = "Option::is_none")]
            hint: Option<&'a str>,
        }
        #[derive(Serialize)]
        struct Refused<'a> {
            ok: bool,
            reason: &'a str,
            hint: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            signed: Option<&'a Signed>,
        }
        match self {
            Self::Genuine { event_id, event_type, events, secret, signed, hint } => {
                let events = events.as_ref().map(|events| {
                    let one = |(id, kind): &'_ (Option<String>, Option<String>)| One {
                        event_id: id.clone(),
                        event_type: kind.clone(),
                    };
                    events.iter().map(one).collect()
                });
                serde_json::to_string(&Genuine {
                    ok: true,
                    event_id: event_id.as_deref(),
                    event_type: event_type.as_deref(),
                    events,
                    secret,
                    signed: signed.as_ref(),
                    hint: hint.as_deref(),
                })
            }
            Self::Refused { rejection, signed, hint } => serde_json::to_string(&Refused {
                ok: false,
                reason: rejection.reason(),
                hint,
                signed: signed.as_ref(),
            }),
        }
        .unwrap_or_else(|_| String::from(r#"{"ok":false}"#))
    }
}

/// Judges a delivery with the daemon's own verifier, secrets of any length.
///
/// It judges the *signature*: a missing unsigned id is reported as `event_id` null and a hint.
#[cfg_attr(not(feature = "internals"), allow(dead_code, reason = "for the tests"))]
pub fn report(
    provider: Provider,
    secrets: Vec<Secret>,
    tolerance: Duration,
    delivery: &Delivery<'_>,
    now_s: i64,
) -> Report {
    let (verifier, problems) = Verifier::any_length(provider, secrets, tolerance);
    report_of(&verifier, &problems, delivery, now_s)
}

/// The same with a verifier that is there already. `problems` are those of secrets that it has no key of.
pub fn report_of(
    verifier: &Verifier,
    problems: &[SchemeError],
    delivery: &Delivery<'_>,
    now_s: i64,
) -> Report {
    let scheme = verifier.scheme();
    let presented = scheme.present(delivery).ok();
    let signed = presented.map(|presented| Signed::of(scheme, delivery, &presented));
    let authentic = match verifier.authenticate(delivery, now_s) {
        Ok(authentic) => authentic,
        Err(rejection) => {
            let mut hints: Vec<_> = problems.iter().map(|problem| format!("The {problem}.")).collect();
            if let Some(reply) = verifier.unsigned_handshake(delivery) {
                hints.push(format!(
                    "This is the provider's handshake, which nobody signs: the daemon answers {} and stores nothing.",
                    reply.status
                ));
            }
            hints.push(explain(verifier, delivery, &rejection, now_s));
            return Report::Refused { rejection, signed, hint: hints.join(" ") };
        }
    };
    let key = verifier.keys.get(authentic.secret_index);
    let secret = key.map_or(String::new(), |key| key.secret.label().to_owned());
    let Found { events, mut hints } = found(verifier, key, delivery, now_s);
    if !scheme.body_signed() {
        hints.push(String::from(
            "This provider does not sign the body: whoever saw one delivery could have changed it.",
        ));
    }
    let (event_id, event_type) = match events.as_slice() {
        [(id, kind)] => (id.clone(), kind.clone()),
        _ => (None, None),
    };
    Report::Genuine {
        event_id,
        event_type,
        events: scheme.is_batch().then_some(events),
        secret,
        signed,
        hint: (!hints.is_empty()).then(|| hints.join(" ")),
    }
}

/// The events of a genuine delivery, for people.
struct Found {
    events: Vec<(Option<String>, Option<String>)>,
    hints: Vec<String>,
}

fn found(verifier: &Verifier, key: Option<&Key>, delivery: &Delivery<'_>, now_s: i64) -> Found {
    let scheme = verifier.scheme();
    let mut found = Found { events: Vec::new(), hints: Vec::new() };
    let mark = scheme.query_mark(delivery.query());
    let mut add = |body: &[u8], parsed: &Parsed, envelope: &Value| {
        let identity = identify(scheme, delivery.headers, parsed, envelope);
        let id = match identity.id {
            EventId::Own(id) => Some(id),
            EventId::Derived(facts) => {
                let hash = Sha256::digest(body).into();
                Some(scheme.sources.derived_key(facts, &hash, mark.as_deref(), now_s.saturating_mul(1000)))
            }
            EventId::BodyHash => None,
            EventId::HeaderMissing(name) => {
                found.hints.push(format!(
                    "The signature holds, but the daemon needs the id in {name}; {}.",
                    received(delivery.headers)
                ));
                None
            }
        };
        if let (Some(defect), true) = (identity.defect, found.hints.is_empty()) {
            found
                .hints
                .push(format!("The signature holds, but the daemon would quarantine this event: {defect}."));
        }
        found.events.push((id, identity.event_type));
    };
    if let Some(Ok(batch)) = scheme.batch.as_ref().map(|list| split(delivery.body, list)) {
        for element in &batch.elements {
            add(element.as_bytes(), &parse_element(element, &scheme.projection), &batch.fields);
        }
        if batch.elements.is_empty() {
            found.hints.push(String::from(
                "The delivery holds no event: the daemon answers 200 and stores nothing.",
            ));
        }
        return found;
    }
    let parsed = scheme.parse(delivery.headers, delivery.body);
    if let Some(reply) =
        key.and_then(|key| verifier.provider().signed_handshake(key, delivery.headers, &parsed.json))
    {
        found.events.push((None, None));
        let status = reply.status;
        found.hints.push(format!(
            "This is the provider's handshake: the daemon answers {status} as the provider wants it and stores nothing."
        ));
        return found;
    }
    add(delivery.body, &parsed, &Value::Null);
    found
}
