//! Explaining: what a person should look at when a delivery does not verify.
//!
//! The hints name headers, lengths, seconds and likely causes. They never contain a secret, a
//! signature, or any byte of a body. A [`Report`], which is for the terminal of whoever holds the body,
//! also shows the first and last bytes of the signed string. Trying out what *would* have matched costs
//! many MACs: the command line tries everything, the daemon's [`hint`] little, and little of large bodies.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::verifier::{Verifier, age_ms, skew_s};
use crate::providers::{self, Provider};
use crate::signature::{
    BadDigest, Delivery, EventId, Headers, Judge, Key, KeyForm, Keyed, Malformed, Parsed, Presented,
    Rejection, SECONDS_BELOW, Scheme, SchemeError, Secret, Source, TimeUnit, Timestamp, identify, joined,
    parse_element, rename, split,
};

mod rewritten;

use rewritten::rewritten;

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

/// The events of a genuine delivery, as far as people are told.
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

/// What to look at, in a sentence or a few.
pub fn explain(verifier: &Verifier, delivery: &Delivery<'_>, rejection: &Rejection, now_s: i64) -> String {
    Extent::EVERYTHING.explain(verifier, delivery, rejection, now_s)
}

/// As [`explain`], for a line of the log that strangers cause: at a bounded cost, and without the names of headers.
pub fn hint(verifier: &Verifier, delivery: &Delivery<'_>, rejection: &Rejection, now_s: i64) -> String {
    Extent::LITTLE.explain(verifier, delivery, rejection, now_s)
}

/// How much is tried, and how much of a stranger's request is told.
struct Extent {
    names_headers: bool,
    /// Bodies up to this are held against other secrets and URLs, each of which takes a MAC of the whole.
    macs_bytes_max: usize,
    /// Bodies up to this are changed in the usual ways.
    changes_bytes_max: usize,
    /// Bodies up to this are written again as other serialisers do, in dozens of ways.
    rewriting_bytes_max: usize,
}

impl Extent {
    const EVERYTHING: Self = Self {
        names_headers: true,
        macs_bytes_max: usize::MAX,
        changes_bytes_max: usize::MAX,
        rewriting_bytes_max: usize::MAX,
    };
    const LITTLE: Self = Self {
        names_headers: false,
        macs_bytes_max: 1 << 20,
        changes_bytes_max: 64 << 10,
        rewriting_bytes_max: 16 << 10,
    };

    fn explain(
        &self,
        verifier: &Verifier,
        delivery: &Delivery<'_>,
        rejection: &Rejection,
        now_s: i64,
    ) -> String {
        let scheme = verifier.scheme();
        match (scheme.present(delivery), rejection) {
            (Err(malformed), _) => self.explain_malformed(verifier, delivery, &malformed),
            (Ok(_), Rejection::TimestampOutsideTolerance { skew_s }) => explain_skew(verifier, *skew_s),
            (Ok(presented), Rejection::SignatureMismatch) => {
                self.explain_mismatch(verifier, delivery, &presented, now_s)
            }
            (Ok(_), Rejection::EventIdMissing) => {
                match scheme.sources.event_id.iter().find_map(Source::header) {
                    Some(name) => {
                        format!(
                            "There is not exactly one value of {name}{}.",
                            self.received(delivery.headers)
                        )
                    }
                    None => String::from("The event carries no id."),
                }
            }
            (Ok(_), Rejection::SignatureMalformed { part }) => format!("{}.", capital(part)),
            (Ok(_), Rejection::SignatureMissing) => {
                self.explain_missing(verifier.provider(), delivery.headers)
            }
        }
    }

    fn explain_malformed(
        &self,
        verifier: &Verifier,
        delivery: &Delivery<'_>,
        malformed: &Malformed,
    ) -> String {
        let advice = match malformed {
            Malformed::NoSignature => return self.explain_missing(verifier.provider(), delivery.headers),
            Malformed::SeveralLines(_) => {
                String::from("; a proxy may have merged two requests or added its own")
            }
            Malformed::NamesDisagree(..) => String::from("; the sender or a proxy must send one set"),
            Malformed::NoneWellFormed(BadDigest::Length(_)) => {
                String::from("; it was cut off, or made another way")
            }
            Malformed::NoneWellFormed(_) => String::from("; it was re-encoded, or is written another way"),
            Malformed::TooMany => String::from("; no provider sends so many"),
            Malformed::TimestampMissing(_) | Malformed::NoId(_) | Malformed::SignedHeadersOdd(_) => {
                self.received(delivery.headers)
            }
            Malformed::TimestampRepeated => String::from(", so it is unclear which one was signed"),
            Malformed::AlgorithmUnknown(_) => String::from("; known are HMAC_SHA1 and HMAC_SHA256"),
            Malformed::IdAmbiguous => String::from(", so the signed text could be read in two ways"),
            Malformed::BodyUncovered => String::from(
                " (bodySHA256), so the signature says nothing about it; a proxy may have changed the content type or dropped the query",
            ),
            Malformed::BodyHashDiffers => String::from(" (bodySHA256): the body was changed on the way"),
            Malformed::NoneLabelled | Malformed::TimestampUnreadable(_) | Malformed::FieldMissing(_) => {
                String::new()
            }
        };
        format!("{}{advice}.", capital(&verifier.scheme().in_words(malformed)))
    }

    fn explain_missing(&self, provider: &Provider, headers: &Headers) -> String {
        let scheme = provider.scheme();
        let header = &scheme.header.name;
        let star = if scheme.header.numbered { "1" } else { "" };
        let other = providers::all()
            .iter()
            .filter(|preset| {
                preset.name != provider.name()
                    && !preset.recipe.signature_header.is_empty()
                    && !preset.recipe.signature_header.eq_ignore_ascii_case(header)
            })
            .find(|preset| headers.first(preset.recipe.signature_header).is_some());
        if let Some(pointer) = &scheme.signature_field {
            return format!(
                "There is no signature in the body at {pointer}; the sender may use its older webhooks."
            );
        }
        let advice = match other {
            Some(preset) => format!("this looks like a delivery from {}", preset.title),
            None => String::from("a proxy or CDN may have dropped it, or the sender has no secret set"),
        };
        format!("There is no signature in {header}{star}{}; {advice}.", self.received(headers))
    }

    fn explain_mismatch(
        &self,
        verifier: &Verifier,
        delivery: &Delivery<'_>,
        presented: &Presented<'_>,
        now_s: i64,
    ) -> String {
        let scheme = verifier.scheme();
        let may_try = delivery.body.len() <= self.macs_bytes_max;
        let cause = may_try.then_some(()).and_then(|()| {
            secret_that_would_match(verifier, delivery, presented)
                .or_else(|| url_that_would_match(verifier, delivery))
                .or_else(|| self.body_that_would_match(verifier, delivery))
        });
        let mut hint = match cause {
            Some(cause) => cause,
            None if verifier.keys.is_empty() => String::from("No secret could be used."),
            None if delivery.body.is_empty() => {
                String::from("The body is empty: something before us (a body parser?) may have read it.")
            }
            None => String::from(
                "Either the secret is another one (each endpoint, account, mode and CLI listener has its own), \
                 or the body was changed on the way: it must be the exact bytes received.",
            ),
        };
        if let (Some(timestamp), Some(signed_at_ms)) = (&scheme.timestamp, presented.signed_at_ms) {
            hint.extend(time_remark(verifier, timestamp, presented.ts, signed_at_ms, now_s));
        }
        hint
    }

    fn body_that_would_match(&self, verifier: &Verifier, delivery: &Delivery<'_>) -> Option<String> {
        let body = delivery.body;
        if body.len() > self.changes_bytes_max {
            return None;
        }
        let matches = |body: &[u8]| verifier.would_match(&Delivery { body, ..*delivery });
        simple_variants(body)
            .into_iter()
            .find(|(variant, _)| matches(variant))
            .map(|(_, what)| format!("The signature matches {what}."))
            .or_else(|| {
                let may_rewrite = body.len() <= self.rewriting_bytes_max;
            (may_rewrite && rewritten(body).any(|variant| matches(&variant))).then(|| {
                    String::from("The signature matches the same JSON written differently: the body was parsed and serialised again; pass on the exact bytes received.")
                })
            })
    }

    /// As the end of a sentence.
    fn received(&self, headers: &Headers) -> String {
        if self.names_headers { format!("; {}", received(headers)) } else { String::new() }
    }
}

/// A sentence's beginning, unless it is a name.
fn capital(text: &str) -> String {
    match text.strip_prefix("the ").or_else(|| text.strip_prefix("there ")) {
        Some(_) => format!("T{}", &text[1..]),
        None => text.to_owned(),
    }
}

fn explain_skew(verifier: &Verifier, skew_s: i64) -> String {
    let direction = if skew_s < 0 { "in the future" } else { "ago" };
    let tolerance_s = verifier.tolerance_ms / 1000;
    let seconds = skew_s.unsigned_abs();
    format!(
        "The signature is right, but it was made {seconds} s {direction}, and {tolerance_s} s are tolerated: \
         check this machine's clock (is NTP running?), or it is an old delivery sent again."
    )
}

fn time_remark(
    verifier: &Verifier,
    timestamp: &Timestamp,
    text: &str,
    signed_at_ms: i128,
    now_s: i64,
) -> Option<String> {
    let looks_like_ms = text.parse().is_ok_and(|number: i64| number >= SECONDS_BELOW);
    let age_ms = age_ms(signed_at_ms, now_s);
    match (timestamp.unit, looks_like_ms) {
        (TimeUnit::Seconds, true) => {
            Some(String::from(" The time looks like milliseconds, where seconds are expected."))
        }
        (TimeUnit::Milliseconds, false) => {
            Some(String::from(" The time looks like seconds, where milliseconds are expected."))
        }
        _ if verifier.tolerates(age_ms) => None,
        _ => Some(format!(" It is also {} s away from our clock.", skew_s(age_ms).unsigned_abs())),
    }
}

fn secret_that_would_match(
    verifier: &Verifier,
    delivery: &Delivery<'_>,
    presented: &Presented<'_>,
) -> Option<String> {
    let scheme = verifier.scheme();
    verifier.keys.iter().find_map(|key| {
        let found = key_variants(scheme, key.secret.expose()).into_iter().find(|(bytes, _)| {
            Keyed::new(presented.algorithm, bytes)
                .is_ok_and(|keyed| presented.has(&scheme.judge(&keyed, delivery, presented)))
        });
        found.map(|(_, what)| format!("The secret {} {what}.", key.secret.label()))
    })
}

/// The usual ways to hold the right secret wrongly.
fn key_variants(scheme: &Scheme, secret: &[u8]) -> Vec<(Vec<u8>, &'static str)> {
    let trimmed = secret.trim_ascii();
    let unquoted = trimmed.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(trimmed);
    let bare = unquoted.strip_prefix(b"whsec_").unwrap_or(unquoted);
    let with_prefix = [b"whsec_".as_slice(), unquoted].concat();
    let with_newline = [secret, b"\n"].concat();
    let decoded =
        |form: KeyForm, what: &'static str| form.key_bytes("whsec_", unquoted).ok().map(|key| (key, what));
    let as_configured = |bytes: &[u8], what: &'static str| {
        scheme.key.key_bytes(&scheme.key_prefix, bytes).ok().map(|key| (key, what))
    };
    [
        as_configured(trimmed, "would match without the newline or blank around it"),
        as_configured(unquoted, "would match without the quotes around it"),
        as_configured(bare, "would match without whsec_"),
        as_configured(&with_prefix, "would match with whsec_ in front of it"),
        as_configured(&with_newline, "would match with a newline at its end: the sender's copy has one"),
        decoded(KeyForm::Base64, "would match base64-decoded, as Standard Webhooks and Svix do it; this may be the wrong provider"),
        Some((unquoted.to_vec(), "would match as plain text, not base64-decoded, as Stripe and Polar do it; this may be the wrong provider")),
        decoded(KeyForm::Hex, "would match hex-decoded"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn url_that_would_match(verifier: &Verifier, delivery: &Delivery<'_>) -> Option<String> {
    if !verifier.scheme().signs_url() {
        return None;
    }
    let url = delivery.url;
    if url.is_empty() {
        return Some(String::from(
            "The signature covers the URL, and none is known: give the public URL exactly as the sender knows it.",
        ));
    }
    let other_scheme = match url.split_once("://") {
        Some(("http", rest)) => format!("https://{rest}"),
        Some((_, rest)) => format!("http://{rest}"),
        None => format!("https://{url}"),
    };
    let path = url.split('?').next().unwrap_or(url);
    [
        (other_scheme, "http and https swapped"),
        (format!("{url}/"), "a slash at its end"),
        (url.trim_end_matches('/').to_owned(), "no slash at its end"),
        (path.to_owned(), "no query"),
        (url.replacen(":443/", "/", 1).replacen(":80/", "/", 1), "no port"),
        (with_port(url), "the port in it"),
    ]
    .into_iter()
    .find(|(url, _)| verifier.would_match(&Delivery { url, ..*delivery }))
    .map(|(_, what)| {
        format!(
            "The signature would match a URL with {what}: give the public URL exactly as the sender knows it."
        )
    })
}

/// The default port written out, as some proxies show it and some senders sign it.
fn with_port(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let port = if scheme == "http" { 80 } else { 443 };
    format!("{scheme}://{host}:{port}{path}")
}

fn simple_variants(body: &[u8]) -> Vec<(Vec<u8>, &'static str)> {
    let lf = replaced(body, b"\r\n", b"\n");
    let mut variants = vec![
        (body.trim_ascii().to_vec(), "the body without the white space around it"),
        ([body, b"\n"].concat(), "the body with a newline at its end, which was cut off"),
        ([body, b"\r\n"].concat(), "the body with CR LF at its end, which was cut off"),
        (replaced(&lf, b"\n", b"\r\n"), "the body with CR LF line ends; they were changed on the way"),
        (lf, "the body with LF line ends; they were changed on the way"),
        (body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).to_vec(), "the body without its byte order mark"),
        ([b"\xef\xbb\xbf", body].concat(), "the body with a byte order mark, which was cut off"),
        (STANDARD.encode(body).into_bytes(), "the base64 of the body: something decoded it on the way"),
        (Vec::new(), "an empty body"),
    ];
    if let Ok(decoded) = STANDARD.decode(body.trim_ascii()) {
        variants.push((
            decoded,
            "the base64-decoded body: a gateway encoded it on the way and must pass it on unchanged",
        ));
    }
    variants
}

fn replaced(body: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(byte) = rest.first() {
        if let Some(after) = rest.strip_prefix(from) {
            out.extend_from_slice(to);
            rest = after;
        } else {
            out.push(*byte);
            rest = &rest[1..];
        }
    }
    out
}

/// `header names received: a, b`, with nothing else of them.
fn received(headers: &Headers) -> String {
    const SHOWN_MAX: usize = 30;
    const NAME_CHARS_MAX: usize = 60;
    let printable =
        |name: &str| -> String { name.chars().filter(char::is_ascii_graphic).take(NAME_CHARS_MAX).collect() };
    let names: Vec<_> = headers.iter().take(SHOWN_MAX).map(|(name, _)| printable(name)).collect();
    match headers.iter().count() {
        0 => String::from("no header was received"),
        1..=SHOWN_MAX => format!("header names received: {}", names.join(", ")),
        more => format!("header names received: {} and {} more", names.join(", "), more - SHOWN_MAX),
    }
}

impl Verifier {
    fn would_match(&self, delivery: &Delivery<'_>) -> bool {
        self.scheme().present(delivery).is_ok_and(|presented| self.matching(delivery, &presented).is_some())
    }
}

impl Presented<'_> {
    fn has(&self, judge: &Judge<'_>) -> bool {
        self.candidates.iter().any(|candidate| bool::from(judge.accepts(candidate)))
    }
}
