//! Why a signature does not match: the secret is held wrongly, the URL is spelled otherwise, or the body was changed.
//!
//! Each try costs a MAC of the whole body, so the caller bounds the tries.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::rewritten::rewritten;
use super::verifier::Verifier;
use crate::signature::{Delivery, Judge, KeyForm, Keyed, Presented, Scheme};

/// The secret that would match if it were held rightly.
pub(super) fn secret(
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

/// The URL that would match, where it is signed.
pub(super) fn url(verifier: &Verifier, delivery: &Delivery<'_>) -> Option<String> {
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

/// The body that would match: as it was before something on the way changed it. `may_rewrite`: also as other serialisers
/// would have written it, in dozens of ways.
pub(super) fn body(verifier: &Verifier, delivery: &Delivery<'_>, may_rewrite: bool) -> Option<String> {
    let matches = |body: &[u8]| verifier.would_match(&Delivery { body, ..*delivery });
    simple_variants(delivery.body)
        .into_iter()
        .find(|(variant, _)| matches(variant))
        .map(|(_, what)| format!("The signature matches {what}."))
        .or_else(|| {
            (may_rewrite && rewritten(delivery.body).any(|variant| matches(&variant))).then(|| {
                String::from(
                    "The signature matches the same JSON written differently: the body was parsed and serialised again; pass on the exact bytes received.",
                )
            })
        })
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
