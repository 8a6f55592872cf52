//! Handshakes: what a provider asks before it sends events, and the answers it wants.
//!
//! A row says what it asks. Signed handshakes are answered only after signature and time have been checked. The unsigned
//! ones give nothing away and change nothing: they echo a text as plain text or say yes.

use serde_json::{Value, json};

use super::sample::About;
use crate::signature::{Challenge, Delivery, Headers, Key, Scheme, Source, at, form_fields};

/// No known provider sends a longer challenge.
pub(crate) const CHALLENGE_BYTES_MAX: usize = 1024;

/// What a provider asks before it sends events.
#[derive(Debug, Clone, Copy)]
pub struct Handshake {
    /// What is asked and answered, for people; empty: nothing is, or an ordinary event.
    pub title: &'static str,
    /// Whether it is asked by GET.
    pub by_get: bool,
    /// What `signed` reads, as JSON pointers.
    pub(crate) reads: &'static [&'static str],
    /// The answer to a signed one, whose key is given with the body's JSON.
    pub(crate) signed: fn(&Key, &Value) -> Option<Reply>,
    /// The answer to one that carries no signature.
    pub(crate) unsigned: fn(&Scheme, &Delivery<'_>) -> Option<Reply>,
    /// A signed one to try, where the type of the sample asks for it.
    pub(crate) sample: fn(&About<'_>) -> Option<Value>,
}

impl Handshake {
    pub(crate) const NONE: Self = Self {
        title: "",
        by_get: false,
        reads: &[],
        signed: |_, _| None,
        unsigned: |_, _| None,
        sample: |_| None,
    };
}

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

impl Reply {
    pub(crate) fn text(body: impl ToString) -> Self {
        Self { status: 200, content_type: "text/plain; charset=utf-8", body: body.to_string() }
    }

    pub(crate) fn json(body: impl ToString) -> Self {
        Self { status: 200, content_type: "application/json", body: body.to_string() }
    }

    /// Taken, and of no consequence.
    pub(crate) fn ignored() -> Self {
        Self::json(r#"{"outcome":"ignored"}"#)
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
        return Some(Reply::text(text));
    }
    let field = challenge.pointer.rsplit('/').next().unwrap_or_default();
    Some(Reply::json(json!({ field.replace("~1", "/").replace("~0", "~"): text })))
}

/// Whether a form or query has this field exactly once, with this value.
pub(crate) fn has_once(form: &[u8], wanted: &[u8], value: &[u8]) -> bool {
    let mut values = form_fields(form).filter(|(name, _)| **name == *wanted);
    matches!((values.next(), values.next()), (Some((_, found)), None) if *found == *value)
}

/// Whether this text stands at this pointer.
pub(crate) fn is(json: &Value, pointer: &str, wanted: &str) -> bool {
    json.pointer(pointer).and_then(Value::as_str) == Some(wanted)
}
