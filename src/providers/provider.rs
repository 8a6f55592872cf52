//! A provider as an endpoint uses it: its row, and the scheme built from the row or from the user's own keys.

use serde_json::{Value, json};

use super::handshake::{Reply, echo};
use super::preset::{BodyVaries, Preset, TestSign};
use super::sample::About;
use super::table;
use crate::signature::{
    CustomScheme, Delivery, Headers, Key, Scheme, SchemeError, Secret, Source, TimestampPlace, at, put,
    rename,
};

/// A row of the table with its scheme; for a scheme of the user's own, [`Preset::CUSTOM`].
#[derive(Debug, Clone)]
pub struct Provider {
    preset: &'static Preset,
    scheme: Scheme,
}

impl Provider {
    /// The preset of that name, or with that alias.
    ///
    /// # Errors
    /// There is no preset of that name.
    pub fn named(name: &str) -> Result<Self, SchemeError> {
        let preset = table::find(name).ok_or_else(|| SchemeError::UnknownProvider {
            name: name.to_owned(),
            known: table::all().iter().map(|preset| preset.name).collect(),
        })?;
        Ok(Self { preset, scheme: preset.scheme()? })
    }

    /// The user's own scheme.
    ///
    /// # Errors
    /// As [`Scheme::custom`].
    pub fn custom(custom: &CustomScheme) -> Result<Self, SchemeError> {
        static CUSTOM: Preset = Preset::CUSTOM;
        Ok(Self { preset: &CUSTOM, scheme: Scheme::custom(custom)? })
    }

    /// The preset's name, or `custom`.
    pub fn name(&self) -> &'static str {
        self.preset.name
    }

    /// The name people know.
    pub fn title(&self) -> &'static str {
        self.preset.title
    }

    /// How the provider behaves and what it wants of us; as usual where the scheme is the user's own.
    pub fn preset(&self) -> &'static Preset {
        self.preset
    }

    /// How it signs.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Keeps of a body's JSON what the provider's scheme reads and what these pointers lead to.
    pub(crate) fn read_only(&mut self, pointers: &[&str]) {
        self.scheme.read_only(pointers);
    }

    /// Whether events need a replay key: a captured delivery can come again under another id, and attempts of one event
    /// have the same body.
    pub fn has_replay_key(&self) -> bool {
        let scheme = &self.scheme;
        let has_unsigned_key = !scheme.id_is_signed() || scheme.key_is_unsigned();
        scheme.nonce.is_some()
            || scheme.signs_form_fields()
            || has_unsigned_key && self.preset.body_varies != BodyVaries::Yes
    }

    /// Whether the secret can be a key of this provider's; `Ok(Some(warning))` when it is weak or odd.
    ///
    /// # Errors
    /// See [`SchemeError::Secret`].
    pub fn check_secret(&self, secret: &Secret) -> Result<Option<String>, SchemeError> {
        let text = secret.expose().trim_ascii();
        let other = self.preset.other_kind.filter(|other| (other.fits)(text));
        self.scheme.check_secret(secret, other.map(|other| other.provider))
    }

    /// The answer to a handshake that carries no signature.
    pub(crate) fn unsigned_handshake(&self, delivery: &Delivery<'_>) -> Option<Reply> {
        (self.preset.handshake.unsigned)(&self.scheme, delivery)
    }

    /// The answer to a signed handshake.
    pub(crate) fn signed_handshake(&self, key: &Key, headers: &Headers, json: &Value) -> Option<Reply> {
        match &self.scheme.challenge {
            Some(challenge) => echo(challenge, headers, json),
            None => (self.preset.handshake.signed)(key, json),
        }
    }

    /// Whether the provider itself calls this delivery a test.
    pub(crate) fn is_test_button(&self, headers: &Headers, json: &Value, event_type: Option<&str>) -> bool {
        self.preset.tests.iter().any(|sign| match sign {
            TestSign::Header(name, value) => headers
                .first(&rename(name, self.scheme.family(headers)))
                .is_some_and(|found| found.trim().eq_ignore_ascii_case(value)),
            TestSign::Type(name) => event_type == Some(name),
            TestSign::Equal(name, [one, other]) => {
                let text = |pointer: &str| at(json, pointer).and_then(Value::as_str);
                event_type == Some(name) && text(one).is_some() && text(one) == text(other)
            }
        })
    }

    /// A body that this provider's scheme understands: [`Preset::sample`], or for a scheme of the user's own one that
    /// says what the scheme reads.
    pub fn sample(&self, event_type: &str, event_id: &str, seed: &str, now_s: i64) -> String {
        if !self.is_custom() {
            return self.preset.sample(event_type, event_id, seed, now_s);
        }
        let (scheme, about) = (&self.scheme, About { event_type, event_id, seed, now_s });
        let mut event = json!({"created_at": about.now(), "sample": seed});
        for (sources, value) in scheme.sources.said(event_id, event_type, seed) {
            if let Some(pointer) = sources.iter().find_map(Source::pointer) {
                put(&mut event, pointer, Value::from(value));
            }
        }
        if scheme.sources.event_id.is_empty() {
            put(&mut event, "/sample", Value::from(event_id));
        }
        if let Some(TimestampPlace::Json(pointer)) =
            scheme.timestamp.as_ref().map(|timestamp| &timestamp.place)
        {
            // written when it is signed
            put(&mut event, pointer, Value::Null);
        }
        event.to_string()
    }

    /// Whether its events have ids of its own making.
    pub fn has_ids(&self) -> bool {
        if self.is_custom() { !self.scheme.sources.event_id.is_empty() } else { self.preset.has_ids() }
    }

    /// The JSON pointer of the (first) event's id, where it stands in the body rather than in a header.
    pub fn id_in_body(&self) -> Option<String> {
        if self.is_custom() {
            return self.scheme.sources.event_id.first()?.pointer().map(str::to_owned);
        }
        self.preset.id_in_body()
    }

    /// Writes an id into a body where this provider has it there.
    pub fn put_id(&self, body: &mut Value, id: &str) {
        if let Some(pointer) = self.id_in_body() {
            put(body, &pointer, Value::from(id));
        }
    }

    fn is_custom(&self) -> bool {
        self.preset.name == Preset::CUSTOM.name
    }
}

impl Preset {
    /// How this provider signs.
    ///
    /// # Errors
    /// The row contradicts itself: a test builds every one of them.
    pub fn scheme(&self) -> Result<Scheme, SchemeError> {
        let tests = self.tests.iter().flat_map(|sign| match sign {
            TestSign::Equal(_, pointers) => pointers.as_slice(),
            TestSign::Header(..) | TestSign::Type(_) => &[],
        });
        let also_read: Vec<_> = self.handshake.reads.iter().chain(tests).copied().collect();
        Scheme::of_preset(&self.recipe, self.kept_headers, &also_read)
    }
}
