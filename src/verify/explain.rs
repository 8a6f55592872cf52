//! Explaining: what a person should look at when a delivery does not verify.
//!
//! The hints name headers, lengths, seconds and likely causes. They never contain a secret, a signature, or any byte of
//! a body. Finding out what *would* have matched costs many MACs: the command line tries everything, the daemon's
//! [`hint`] little, and little of large bodies.

use super::cause;
use super::verifier::{Verifier, age_ms, skew_s};
use crate::providers::{self, Provider};
use crate::signature::{
    BadDigest, Delivery, Headers, Malformed, Presented, Rejection, SECONDS_BELOW, Source, TimeUnit, Timestamp,
};

/// What to look at, in a sentence or a few.
pub fn explain(verifier: &Verifier, delivery: &Delivery<'_>, rejection: &Rejection, now_s: i64) -> String {
    Extent::EVERYTHING.explain(verifier, delivery, rejection, now_s)
}

/// As [`explain`], for a line of the log that strangers cause: at a bounded cost, and without the names of headers.
pub fn hint(verifier: &Verifier, delivery: &Delivery<'_>, rejection: &Rejection, now_s: i64) -> String {
    Extent::LITTLE.explain(verifier, delivery, rejection, now_s)
}

/// How much is tried, and whether the names of a stranger's headers are shown.
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
            let body_bytes = delivery.body.len();
            let may_rewrite = body_bytes <= self.rewriting_bytes_max;
            cause::secret(verifier, delivery, presented).or_else(|| cause::url(verifier, delivery)).or_else(
                || {
                    (body_bytes <= self.changes_bytes_max)
                        .then(|| cause::body(verifier, delivery, may_rewrite))
                        .flatten()
                },
            )
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

/// `header names received: a, b`, with nothing else of them.
pub(super) fn received(headers: &Headers) -> String {
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
