//! Sample events: how a row describes the bodies of test deliveries. Invented data; ids come from a seed.
//!
//! A row gives what is in a body besides id, type, object and whatever else the preset reads: that is put where the
//! preset reads it, so that a sample is always understood.

use serde_json::{Value, json};

use crate::encode::{is_unreserved, percent_encoded};

/// What is in a sample.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    pub(crate) event_type: &'a str,
    pub(crate) event_id: &'a str,
    pub(crate) seed: &'a str,
    pub(crate) now_s: i64,
}

impl About<'_> {
    /// The time as most providers write it.
    pub(crate) fn now(&self) -> String {
        jiff::Timestamp::from_second(self.now_s).unwrap_or_default().to_string()
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.now_s.saturating_mul(1000)
    }
}

/// How a provider's sample events look.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// An event id of the provider's shape, made of 64 hex digits.
    pub(crate) id: fn(&str) -> String,
    /// The body's media type; of a form the fields are the texts of the object that `body` makes.
    pub(crate) content_type: &'static str,
    /// Headers that no signature needs; a provider's own library may.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// What is in a body besides the facts that the preset reads.
    pub(crate) body: fn(&About<'_>) -> Value,
    /// Whether `body` has put the facts where they belong by itself.
    pub(crate) is_whole: bool,
    /// What stands around the events of a batch: JSON pointers and texts.
    pub(crate) around: &'static [(&'static str, &'static str)],
}

impl Sample {
    pub(crate) const PLAIN: Self = Self {
        id: |digits| format!("msg_{}", &digits[..27]),
        content_type: "application/json",
        headers: &[],
        body: |about| json!({"created_at": about.now(), "data": {"object": "sample"}}),
        is_whole: false,
        around: &[],
    };
}

/// `evt_` and 24 digits.
pub(crate) fn evt(digits: &str) -> String {
    format!("evt_{}", &digits[..24])
}

pub(crate) fn uuid(digits: &str) -> String {
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..32]];
    parts.join("-")
}

/// An object of texts as a form.
pub(crate) fn form(event: &Value) -> String {
    let fields = event.as_object().into_iter().flatten().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", percent_encoded(&value, is_unreserved))
    });
    fields.collect::<Vec<_>>().join("&")
}
