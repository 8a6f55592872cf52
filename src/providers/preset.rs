//! What a row says of a provider: how it signs, where it writes what, how it delivers and what it wants of us.
//!
//! What a row does not mention is as in [`Preset::PLAIN`].

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::handshake::Handshake;
use super::sample::{About, Sample, form};
use crate::encode::hex;
use crate::signature::{FORM, Recipe, put};

/// One provider.
#[derive(Debug)]
pub struct Preset {
    /// The name used in the configuration.
    pub name: &'static str,
    /// Other names that mean the same.
    pub aliases: &'static [&'static str],
    /// The name people know.
    pub title: &'static str,
    /// Where the provider's own description of its signatures is.
    pub docs: &'static str,
    /// What to click to get deliveries.
    pub setup: &'static str,
    /// What the provider calls the secret.
    pub secret: &'static str,
    /// What one should know before using it, in a sentence or two.
    pub notes: &'static str,
    /// What is believed and has not been confirmed; nothing relies on it.
    pub unconfirmed: &'static str,
    /// When and how the row was last held against the provider: its library, its source, its documentation.
    pub confirmed: &'static str,
    /// How it signs, and where it says what.
    pub recipe: Recipe<'static>,
    /// How far a signed time may be from now, in seconds, either way.
    pub tolerance_s: u32,
    /// Another kind of secret that the same provider has.
    pub other_kind: Option<OtherKind>,
    /// Headers stored with the event, besides the content type and those that carry id and type.
    pub kept_headers: &'static [&'static str],
    /// Whether it delivers again after a failure.
    pub retries_by_itself: bool,
    /// How often and how long it delivers again; empty: not known.
    pub retries: &'static str,
    /// From the first failed delivery of an event to the last that it makes; as long as most do where that is not known.
    pub retries_for: Duration,
    /// How long it waits for an answer, in seconds, where that is known.
    pub deadline_s: Option<u32>,
    /// Whether two attempts of one event may have different bodies.
    pub body_varies: BodyVaries,
    /// The status it wants for a bad signature.
    pub bad_signature_status: u16,
    /// The status of every refusal of ours, where a 4xx would make it drop the event.
    pub refusal_status: Option<u16>,
    /// How a stored event is answered.
    pub acceptance: Acceptance,
    /// What it asks before it sends events.
    pub handshake: Handshake,
    /// How its events look, for test deliveries.
    pub sample: Sample,
    /// The marks of its test button, or of a hook's set-up: the same bytes again open no review then.
    pub tests: &'static [TestSign],
    /// Its own limit on bodies, in bytes, where that is above the usual default.
    pub body_bytes_max: Option<usize>,
}

/// A kind of secret that belongs to another row of the same provider.
#[derive(Debug, Clone, Copy)]
pub struct OtherKind {
    /// The other row.
    pub provider: &'static str,
    /// Whether a secret looks like one of that kind.
    pub fits: fn(&[u8]) -> bool,
}

/// How a stored event is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceptance {
    /// 200 and the outcome as JSON.
    Outcome,
    /// 200 without a body.
    Empty,
    /// 204
    NoContent,
    /// 200 and an empty TwiML document.
    Twiml,
}

/// A mark of what a provider itself calls a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestSign {
    /// A header with this value.
    Header(&'static str, &'static str),
    /// An event of this type.
    Type(&'static str),
    /// An event of this type, with the same text at two JSON pointers.
    Equal(&'static str, [&'static str; 2]),
}

/// Whether two attempts of one event may have different bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyVaries {
    /// Never: another body under the same id is worth a person's look.
    No,
    /// Only at these JSON pointers.
    Fields(&'static [&'static str]),
    /// Anywhere.
    Yes,
}

impl Preset {
    /// A provider that retries, repeats bodies byte for byte and has no wishes.
    pub const PLAIN: Self = Self {
        name: "",
        aliases: &[],
        title: "",
        docs: "",
        setup: "",
        secret: "",
        notes: "",
        unconfirmed: "",
        confirmed: "",
        recipe: Recipe::PLAIN,
        tolerance_s: 300,
        other_kind: None,
        kept_headers: &[],
        retries_by_itself: true,
        retries: "",
        retries_for: Duration::from_hours(72),
        deadline_s: None,
        body_varies: BodyVaries::No,
        bad_signature_status: 400,
        refusal_status: None,
        acceptance: Acceptance::Outcome,
        handshake: Handshake::NONE,
        sample: Sample::PLAIN,
        tests: &[],
        body_bytes_max: None,
    };

    /// What stands in for a row where the scheme is the user's own.
    pub const CUSTOM: Self = Self { name: "custom", title: "this scheme", ..Self::PLAIN };
}

impl Preset {
    /// The JSON pointer of the (first) event's id, where it stands in the body rather than in a header.
    pub fn id_in_body(&self) -> Option<String> {
        let pointer = self.own_id()?.strip_prefix("json:")?;
        Some(match self.recipe.batch {
            Some(list) => format!("{list}/0{pointer}"),
            None => pointer.to_owned(),
        })
    }

    /// Whether its events have ids of its own making.
    pub fn has_ids(&self) -> bool {
        self.own_id().is_some()
    }

    /// Where the id is in what it sends ordinarily: not in a list beside forms, which [`Preset::sample`] never makes.
    pub(crate) fn own_id(&self) -> Option<&'static str> {
        self.recipe.event_id.first().copied().filter(|source| !source.starts_with("json:/0/"))
    }
}

impl Preset {
    /// From the first failed delivery of an event to the last that the provider makes; zero where it makes no other.
    pub fn gives_up_after(&self) -> Duration {
        if self.retries_by_itself { self.retries_for } else { Duration::ZERO }
    }

    /// An event id of the provider's shape. Different seeds give different ids.
    pub fn sample_id(&self, seed: &str) -> String {
        (self.sample.id)(&hex(&Sha256::digest(seed)))
    }

    /// The content type of [`Preset::sample`].
    pub fn sample_content_type(&self) -> &'static str {
        self.sample.content_type
    }

    /// Headers that go with [`Preset::sample`] and that no signature needs; a provider's own library may.
    pub fn sample_headers(&self) -> &'static [(&'static str, &'static str)] {
        self.sample.headers
    }

    /// A minimal, realistic body. The business object's ids come from the seed (`in_<seed>`), so that
    /// several events can be about one object. The event's id is in the body only where the provider has it
    /// there; where it has none at all, `event_id` makes the body this event's own.
    pub fn sample(&self, event_type: &str, event_id: &str, seed: &str, now_s: i64) -> String {
        let about = About { event_type, event_id, seed, now_s };
        if let Some(handshake) = (self.handshake.sample)(&about) {
            return handshake.to_string();
        }
        let mut event = (self.sample.body)(&about);
        if self.sample.is_whole {
            return event.to_string();
        }
        self.fill(&mut event, &about);
        match self.recipe.batch {
            Some("") => json!([event]).to_string(),
            Some(list) => {
                let mut batch = json!({});
                put(&mut batch, list, json!([event]));
                for (pointer, text) in self.sample.around {
                    put(&mut batch, pointer, Value::from(*text));
                }
                batch.to_string()
            }
            None if self.sample.content_type == FORM => form(&event),
            None => event.to_string(),
        }
    }

    /// Puts id, type, object, scope and the pieces of a key where this preset reads them.
    fn fill(&self, event: &mut Value, about: &About<'_>) {
        let recipe = &self.recipe;
        let pointer = |sources: &[&'static str]| sources.first()?.strip_prefix("json:");
        let (kind, action) = match recipe.event_action.strip_prefix("json:") {
            Some(action) => {
                let (kind, happened) = about.event_type.split_once('.').unwrap_or((about.event_type, ""));
                (kind, (!happened.is_empty()).then_some((action, happened)))
            }
            None => (about.event_type, None),
        };
        let id = self.own_id().and_then(|source| source.strip_prefix("json:"));
        let id = id.map(|pointer| (pointer, about.event_id));
        let kind = pointer(recipe.event_type).map(|pointer| (pointer, kind));
        for (pointer, value) in [id, kind, action].into_iter().flatten() {
            put(event, pointer, Value::from(value));
        }
        // what the body of this provider has already stays
        let account = pointer(recipe.account).map(|pointer| (pointer, "acct_sample"));
        let object = pointer(recipe.object_id).map(|pointer| (pointer, about.seed));
        let is_list = |pointer: &&str| pointer.starts_with("/0/");
        let key = recipe.event_key.iter().filter_map(|source| source.strip_prefix("json:"));
        // where only older versions go without an id, the key is of no account
        let key = key.filter(|pointer| !self.has_ids() && !is_list(pointer));
        let key = key.map(|pointer| (pointer, about.event_id));
        for (pointer, value) in [account, object].into_iter().flatten().chain(key) {
            if event.pointer(pointer).is_none() {
                put(event, pointer, Value::from(value));
            }
        }
        if !self.has_ids() {
            put(event, "/sample", Value::from(about.event_id));
        }
    }
}

impl BodyVaries {
    /// Whether two bodies under one id are the same event as far as the provider is concerned.
    pub fn same_event(self, first: &[u8], second: &[u8]) -> bool {
        if first == second {
            return true;
        }
        match self {
            Self::No => false,
            Self::Yes => true,
            Self::Fields(pointers) => match (without(first, pointers), without(second, pointers)) {
                (Some(first), Some(second)) => first == second,
                _ => false,
            },
        }
    }
}

fn without(body: &[u8], pointers: &[&str]) -> Option<Value> {
    let mut json: Value = serde_json::from_slice(body).ok()?;
    for (parent, key) in pointers.iter().filter_map(|pointer| pointer.rsplit_once('/')) {
        if let Some(Value::Object(fields)) = json.pointer_mut(parent) {
            fields.remove(key);
        }
    }
    Some(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_in_the_body_does_not_make_it_another_event() {
        let varies = BodyVaries::Fields(&["/pending_webhooks"]);
        let body = |pending: u8, kind: &str| {
            format!(r#"{{"id":"evt_1","type":"{kind}","pending_webhooks":{pending}}}"#)
        };
        assert!(varies.same_event(body(1, "a").as_bytes(), body(2, "a").as_bytes()));
        assert!(!varies.same_event(body(1, "a").as_bytes(), body(1, "b").as_bytes()));
        assert!(!varies.same_event(b"x", b"y"));
        assert!(!BodyVaries::No.same_event(b"1", b"2") && BodyVaries::Yes.same_event(b"1", b"2"));
    }
}
