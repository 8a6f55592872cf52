//! Handshakes: what a provider asks before it sends events, and the answers it wants.
//!
//! Signed ones are answered only after signature and time have been checked. The three unsigned ones give
//! nothing away and change nothing: one echoes a text as plain text, the others say yes.

use serde_json::{Value, json};

use super::preset::{Handshake, Preset};
use crate::signature::{
    Algorithm, Challenge, Delivery, Encoding, Headers, Key, Scheme, Source, at, form_decoded, form_fields,
    is_form,
};

/// A longer challenge is nobody's.
const CHALLENGE_BYTES_MAX: usize = 1024;

const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// An answer as the provider wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// e.g. 200
    pub status: u16,
    /// The body's type.
    pub content_type: &'static str,
    /// The whole body.
    pub body: String,
}

/// What [`signed`] reads, as JSON pointers.
pub(crate) fn pointers(handshake: Handshake) -> &'static [&'static str] {
    match handshake {
        Handshake::SlackChallenge => &["/challenge", "/type"],
        Handshake::ZoomValidation => &["/payload/plainToken", "/event"],
        Handshake::DiscordPing => &["/type", "/event"],
        Handshake::KomojuPing => &["/type"],
        Handshake::IntercomPing => &["/topic", "/id"],
        Handshake::None | Handshake::DropboxChallenge | Handshake::WooCommercePing => &[],
    }
}

/// The answer to a signed handshake.
pub(crate) fn signed(preset: &Preset, key: &Key, json: &Value) -> Option<Reply> {
    match preset.handshake {
        Handshake::SlackChallenge => {
            let challenge = json.get("challenge").and_then(Value::as_str)?;
            is(json, "/type", "url_verification").then(|| reply(200, PLAIN, challenge))
        }
        Handshake::ZoomValidation => {
            let plain = json.pointer("/payload/plainToken").and_then(Value::as_str)?;
            let tag = key.keyed(Algorithm::Sha256).next()?.tag(std::iter::once(plain.as_bytes()))?;
            let encrypted = tag.encode(Encoding::Hex, Algorithm::Sha256);
            let body = json!({"plainToken": plain, "encryptedToken": encrypted});
            is(json, "/event", "endpoint.url_validation").then(|| reply(200, JSON, body))
        }
        // webhook events say 0 for a ping and 1 for an event; interactions, which have no `event`, say 1
        Handshake::DiscordPing => match (json.get("type")?.as_i64()?, json.get("event")) {
            (0, None) => Some(reply(204, JSON, "")),
            (1, None) => Some(reply(200, JSON, json!({"type": 1}))),
            _ => None,
        },
        Handshake::KomojuPing => {
            is(json, "/type", "ping").then(|| reply(200, JSON, r#"{"outcome":"ignored"}"#))
        }
        Handshake::IntercomPing => {
            let has_id = json.get("id").is_some_and(|id| !id.is_null());
            (is(json, "/topic", "ping") && !has_id).then(|| reply(200, JSON, r#"{"outcome":"ignored"}"#))
        }
        Handshake::None | Handshake::DropboxChallenge | Handshake::WooCommercePing => None,
    }
}

/// The challenge of a sender that has no preset.
pub(crate) fn echo(challenge: &Challenge, headers: &Headers, json: &Value) -> Option<Reply> {
    let said = match &challenge.when {
        Source::Header(name) => headers.first(name),
        Source::Json(pointer) | Source::Batch(pointer) => at(json, pointer).and_then(Value::as_str),
    };
    let is_one = said.is_some_and(|said| said.trim().eq_ignore_ascii_case(&challenge.is));
    let text = at(json, &challenge.pointer).and_then(Value::as_str).filter(|_| is_one)?;
    if !challenge.as_json {
        return Some(reply(200, PLAIN, text));
    }
    let field = challenge.pointer.rsplit('/').next().unwrap_or_default();
    Some(reply(200, JSON, json!({ field.replace("~1", "/").replace("~0", "~"): text })))
}

/// Whether a form or query has this field exactly once, with this value.
fn has_once(form: &[u8], wanted: &[u8], value: &[u8]) -> bool {
    let mut values = form_fields(form).filter(|(name, _)| **name == *wanted);
    matches!((values.next(), values.next()), (Some((_, found)), None) if *found == *value)
}

/// The answer to a handshake that carries no signature.
pub(crate) fn unsigned(preset: &Preset, scheme: &Scheme, delivery: &Delivery<'_>) -> Option<Reply> {
    match preset.handshake {
        Handshake::DropboxChallenge if delivery.method == "GET" => {
            let (_, query) = delivery.url.split_once('?')?;
            let challenge = query.split('&').find_map(|pair| pair.strip_prefix("challenge="))?;
            let challenge = form_decoded(challenge.as_bytes());
            let challenge = std::str::from_utf8(&challenge).ok()?;
            (challenge.len() <= CHALLENGE_BYTES_MAX).then(|| reply(200, PLAIN, challenge))
        }
        // a command's URL, saved in the app's settings; nobody can do anything with the answer
        Handshake::SlackChallenge if delivery.headers.first(&scheme.header.name).is_none() => {
            let form = match delivery.method {
                "GET" => delivery.url.split_once('?')?.1.as_bytes(),
                "POST" if is_form(delivery.headers) => delivery.body,
                _ => return None,
            };
            has_once(form, b"ssl_check", b"1").then(|| reply(200, JSON, r#"{"outcome":"ignored"}"#))
        }
        Handshake::WooCommercePing if delivery.method == "POST" => {
            let number = delivery.body.strip_prefix(b"webhook_id=")?;
            let is_number = (1..=20).contains(&number.len()) && number.iter().all(u8::is_ascii_digit);
            let is_unsigned = delivery.headers.first(&scheme.header.name).is_none();
            (is_number && is_unsigned && is_form(delivery.headers))
                .then(|| reply(200, JSON, r#"{"outcome":"ignored"}"#))
        }
        _ => None,
    }
}

fn is(json: &Value, pointer: &str, wanted: &str) -> bool {
    json.pointer(pointer).and_then(Value::as_str) == Some(wanted)
}

fn reply(status: u16, content_type: &'static str, body: impl ToString) -> Reply {
    Reply { status, content_type, body: body.to_string() }
}
