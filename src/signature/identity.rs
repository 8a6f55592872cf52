//! Who and what: the event's id, type, object, account and mode, read from a delivery whose signature held.
//!
//! Nothing here refuses a signed delivery for its content. What cannot be used is either treated as
//! absent (object, version) or named as a *defect*, so that the event is stored and a person looks at
//! it: an unreadable body, an unusable id, and what decides routing and scope (type, account).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::canonical;
use super::presets::TestSign;
use super::scheme::{Recipe, Scheme, is_header_name, rename, rule};
use super::wanted::{Twice, Unread, Wanted};
use super::{Envelope, Headers};
use crate::encode::hex;

/// Ids, types and the like are at most this long, in bytes.
const TEXT_BYTES_MAX: usize = 255;

/// More events than any provider puts into one body.
const BATCH_EVENTS_MAX: usize = 10_000;

/// More than any provider writes around the events of a body: it is kept with each of them.
const ENVELOPE_BYTES_MAX: usize = 16 << 10;

/// More fields than any provider sends in a form.
const FORM_FIELDS_MAX: usize = 10_000;

/// What the keys of bodies without a usable id begin with.
const BODY_KEY_PREFIX: &str = "body-sha256:";

/// Test sends of dashboards carry constant ids that end like this (`evt_00000000000000`).
const TEST_SEND_SUFFIX: &str = "00000000000000";

/// The media type of form bodies.
pub(super) const FORM: &str = "application/x-www-form-urlencoded";

/// Where one fact is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    Header(String),
    Json(String),
    /// In the body around a list of events.
    Batch(String),
}

impl Source {
    pub(super) fn parse(key: &str, text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("header", name)) if is_header_name(name) => Ok(Self::Header(name.to_owned())),
            Some(("json", pointer)) if pointer.starts_with('/') => Ok(Self::Json(pointer.to_owned())),
            Some(("batch", pointer)) if pointer.starts_with('/') => Ok(Self::Batch(pointer.to_owned())),
            _ => Err(rule(key, text, "write header:NAME or json:/pointer")),
        }
    }

    pub(super) fn header(&self) -> Option<&str> {
        match self {
            Self::Header(name) => Some(name),
            Self::Json(_) | Self::Batch(_) => None,
        }
    }

    /// The JSON pointer into the event itself, where it is one.
    pub(super) fn pointer(&self) -> Option<&str> {
        match self {
            Self::Json(pointer) => Some(pointer),
            Self::Header(_) | Self::Batch(_) => None,
        }
    }

    fn shown(&self) -> &str {
        match self {
            Self::Header(name) => name,
            Self::Json(pointer) | Self::Batch(pointer) => pointer,
        }
    }
}

/// A piece of the key of an event whose provider gives it no id.
#[derive(Debug, Clone, PartialEq, Eq)]
enum KeyPiece {
    Fact(Source),
    /// The body's hash.
    BodyHash,
    /// Our time of receipt: every delivery is an event of its own.
    Arrival,
}

impl KeyPiece {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "body-sha256" => Ok(Self::BodyHash),
            "arrival" => Ok(Self::Arrival),
            text => Source::parse("event_key", text).map(Self::Fact),
        }
    }
}

/// Where everything is written; of several sources the first one present counts.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    pub(super) event_id: Vec<Source>,
    event_key: Vec<KeyPiece>,
    fact: Vec<Source>,
    told_apart_by: Vec<Source>,
    pub(super) event_type: Vec<Source>,
    pub(super) event_action: Option<Source>,
    object_id: Vec<Source>,
    account: Vec<Source>,
    livemode: Vec<Source>,
    api_version: Vec<Source>,
    integer_ids: bool,
    form_has_no_id: bool,
    several_at: Option<Source>,
    kept_headers: Vec<String>,
}

impl Sources {
    pub(super) fn build(recipe: &Recipe<'_>) -> Result<Self, String> {
        let list = |key: &str, texts: &[&str]| {
            texts.iter().map(|text| Source::parse(key, text)).collect::<Result<Vec<_>, _>>()
        };
        let action =
            (!recipe.event_action.is_empty()).then(|| Source::parse("event_action", recipe.event_action));
        let mut sources = Self {
            event_id: list("event_id", recipe.event_id)?,
            event_key: recipe.event_key.iter().map(|text| KeyPiece::parse(text)).collect::<Result<_, _>>()?,
            fact: list("fact", recipe.fact)?,
            told_apart_by: list("told_apart_by", recipe.told_apart_by)?,
            event_type: list("event_type", recipe.event_type)?,
            event_action: action.transpose()?,
            object_id: list("object_id", recipe.object_id)?,
            account: list("account", recipe.account)?,
            livemode: list("livemode", recipe.livemode)?,
            api_version: list("api_version", recipe.api_version)?,
            integer_ids: recipe.integer_ids,
            form_has_no_id: recipe.form_has_no_id,
            several_at: list(
                "several_at",
                recipe.several_at.split_terminator('\n').collect::<Vec<_>>().as_slice(),
            )?
            .pop(),
            kept_headers: vec![String::from("content-type")],
        };
        // the body does not say what stands in these: whoever gets the event later needs them as well
        let named: Vec<_> = sources.all().filter_map(|source| source.header().map(str::to_owned)).collect();
        sources.keep(&named);
        Ok(sources)
    }

    /// Every place where a fact is read from.
    fn all(&self) -> impl Iterator<Item = &Source> {
        let keys = self.event_key.iter().filter_map(|piece| match piece {
            KeyPiece::Fact(source) => Some(source),
            KeyPiece::BodyHash | KeyPiece::Arrival => None,
        });
        let lists = [
            &self.event_id,
            &self.event_type,
            &self.object_id,
            &self.account,
            &self.livemode,
            &self.api_version,
            &self.fact,
            &self.told_apart_by,
        ];
        let single = self.event_action.iter().chain(&self.several_at);
        lists.into_iter().flatten().chain(single).chain(keys)
    }

    pub(super) fn names_account(&self) -> bool {
        !self.account.is_empty()
    }

    /// The JSON pointers of all facts that stand in the event itself.
    pub(super) fn pointers(&self) -> impl Iterator<Item = &str> {
        self.all().filter_map(Source::pointer)
    }

    /// Where a scheme of the user's own has these three facts.
    pub(super) fn said<'a>(
        &self,
        id: &'a str,
        event_type: &'a str,
        object: &'a str,
    ) -> [(&[Source], &'a str); 3] {
        [(&self.object_id, object), (&self.event_type, event_type), (&self.event_id, id)]
    }

    /// Adds headers that are stored with the event.
    pub(super) fn keep<T: AsRef<str>>(&mut self, names: &[T]) {
        for name in names {
            let name = name.as_ref().to_ascii_lowercase();
            if !self.kept_headers.contains(&name) {
                self.kept_headers.push(name);
            }
        }
    }

    /// Whether a header is stored with the event.
    pub(super) fn keeps(&self, header: &str) -> bool {
        self.kept_headers.iter().any(|kept| kept.eq_ignore_ascii_case(header))
    }

    /// The kept headers of a delivery as a JSON object with lower-case names: those of the scheme, also where
    /// the sender used the other family of names.
    pub(super) fn kept(&self, headers: &Headers, family: Option<(&str, &str)>) -> String {
        let value = |name: &str| headers.first(&rename(name, family)).or_else(|| headers.first(name));
        let kept: BTreeMap<&str, &str> =
            self.kept_headers.iter().filter_map(|name| Some((name.as_str(), value(name)?))).collect();
        // a map of texts can always be written
        serde_json::to_string(&kept).unwrap_or_default()
    }
}

/// How a form is read: the JSON in one field, or the fields themselves.
#[derive(Debug, Clone)]
pub(super) struct Form {
    /// The field with the JSON; empty: there is none.
    pub(super) field: String,
    /// A form without that field is an object of its fields.
    pub(super) params: bool,
}

impl Form {
    pub(super) fn build(recipe: &Recipe<'_>) -> Option<Self> {
        let (field, params) = (recipe.form_field.to_owned(), recipe.form_params);
        (params || !field.is_empty()).then_some(Self { field, params })
    }

    /// The field's decoded text, where the body is a form that has it exactly once.
    pub(super) fn json<'a>(&self, headers: &Headers, body: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        if self.field.is_empty() || !is_form(headers) {
            return None;
        }
        let mut values = form_fields(body).filter(|(name, _)| **name == *self.field.as_bytes());
        match (values.next(), values.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }

    /// The form as an object: a field's text, or the list of its texts where it comes several times.
    /// `None` where it has too many fields.
    fn object(body: &[u8]) -> Option<Value> {
        if form_fields(body).nth(FORM_FIELDS_MAX).is_some() {
            return None;
        }
        let mut fields = Map::new();
        for (name, value) in form_fields(body).filter(|(name, _)| !name.is_empty()) {
            let value = Value::from(String::from_utf8_lossy(&value).into_owned());
            match fields.entry(String::from_utf8_lossy(&name)) {
                serde_json::map::Entry::Vacant(entry) => drop(entry.insert(value)),
                serde_json::map::Entry::Occupied(mut entry) => match entry.get_mut() {
                    Value::Array(values) => values.push(value),
                    first => *first = Value::Array(vec![first.take(), value]),
                },
            }
        }
        Some(Value::Object(fields))
    }
}

/// The decoded fields of a form, in order.
pub(super) fn form_fields(body: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = match pair.iter().position(|byte| *byte == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        };
        (form_decoded(name), form_decoded(value))
    })
}

pub(super) fn is_form(headers: &Headers) -> bool {
    let content_type = headers.first("content-type").unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(FORM)
}

/// `+` and `%XX` decoded; a broken escape stands for itself (WHATWG URL, section 5.1).
pub(super) fn form_decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(text);
    }
    let digit = |at: usize| {
        text.get(at)
            .and_then(|byte| char::from(*byte).to_digit(16))
            .and_then(|value| u8::try_from(value).ok())
    };
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.get(at) {
        let escaped = (*byte == b'%').then(|| digit(at + 1).zip(digit(at + 2))).flatten();
        out.push(match (escaped, byte) {
            (Some((high, low)), _) => high << 4 | low,
            (None, b'+') => b' ',
            (None, byte) => *byte,
        });
        at += if escaped.is_some() { 3 } else { 1 };
    }
    Cow::Owned(out)
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The body as JSON, or why it is none.
#[derive(Debug)]
pub(super) struct Parsed {
    /// `Null` where there is a defect.
    pub(super) json: Value,
    pub(super) defect: Option<String>,
    /// An object has one name twice.
    pub(super) twice: Option<Twice>,
}

impl Parsed {
    fn json((json, twice): (Value, Option<Twice>)) -> Self {
        Self { json, defect: None, twice }
    }

    fn defect(defect: impl Into<String>) -> Self {
        Self { json: Value::Null, defect: Some(defect.into()), twice: None }
    }

    fn unread(what: &str, unread: &Unread) -> Self {
        Self::defect(match unread {
            Unread::NotJson(error) => format!("{what} is not JSON: {error}"),
            Unread::TooLarge => {
                format!("{what} has more values at the places that are read than fit into memory")
            }
        })
    }

    /// What is wrong with the body as a whole.
    fn defects(&self) -> Vec<String> {
        self.defect.iter().cloned().chain(self.twice.as_ref().map(Twice::reason)).collect()
    }

    /// Whether what stands at this pointer depends on who reads it.
    fn is_twice(&self, pointer: &str) -> bool {
        let names = self.twice.iter().flat_map(|twice| &twice.names);
        names.into_iter().any(|name| {
            pointer.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// Parses the body once. The defect's text never quotes the body.
pub(super) fn parse(form: Option<&Form>, wanted: &Wanted, headers: &Headers, body: &[u8]) -> Parsed {
    let text = match form {
        Some(form) if is_form(headers) => match form.json(headers, body) {
            Some(text) => text,
            None if form.params && !body.is_empty() => {
                return Form::object(body).map_or_else(
                    || Parsed::defect(format!("the form has more than {FORM_FIELDS_MAX} fields")),
                    |object| Parsed::json((object, None)),
                );
            }
            None => return Parsed::defect(format!("the form has not exactly one field {:?}", form.field)),
        },
        _ => Cow::Borrowed(body),
    };
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    // looked at as a whole it is UTF-8 at less cost than string by string
    let Ok(text) = std::str::from_utf8(text) else {
        return Parsed::defect("the body is not UTF-8");
    };
    match wanted.parse(text) {
        Ok(json) => Parsed::json(json),
        Err(_) if text.is_empty() => Parsed::defect("the body is empty"),
        Err(unread) => Parsed::unread("the body", &unread),
    }
}

/// The sender's own text of the JSON (of a form: the decoded field), without a byte order mark; `None` where the body
/// is a form of fields, or no text.
pub(super) fn json_text<'a>(form: Option<&Form>, headers: &Headers, body: &'a [u8]) -> Option<Cow<'a, str>> {
    let text = match form {
        Some(form) if is_form(headers) => form.json(headers, body)?,
        _ => Cow::Borrowed(body),
    };
    Some(match text {
        Cow::Borrowed(text) => {
            let text = std::str::from_utf8(text).ok()?;
            Cow::Borrowed(text.strip_prefix('\u{feff}').unwrap_or(text))
        }
        Cow::Owned(text) => {
            let text = String::from_utf8(text).ok()?;
            Cow::Owned(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
        }
    })
}

/// The events of a batch.
pub(super) struct Batch<'a> {
    /// The exact text of each.
    pub(super) elements: Vec<&'a str>,
    /// The fields around their list; `Null` where the body is the list.
    pub(super) fields: Value,
    /// The text around the events.
    pub(super) envelope: Envelope,
}

/// Splits a body into its events without changing a byte of them. One that cannot be read does not
/// spoil the others.
///
/// # Errors
/// Why this is no list of events; the text never quotes the body.
pub(super) fn split<'a>(body: &'a [u8], list: &str) -> Result<Batch<'a>, String> {
    let whole = std::str::from_utf8(body).map_err(|_| String::from("the body is not UTF-8"))?;
    let text = whole.strip_prefix('\u{feff}').unwrap_or(whole);
    let none = |_| match serde_json::from_str::<&RawValue>(text) {
        Ok(_) => {
            format!("the body has no list of events{}", if list.is_empty() { "" } else { " at " }) + list
        }
        Err(error) => format!("the body is not JSON: {error}"),
    };
    let (elements, fields) = match list.strip_prefix('/') {
        None => (serde_json::from_str::<Vec<&RawValue>>(text).map_err(none)?, Value::Null),
        Some(field) => {
            let Fields { mut fields, is_twice } = serde_json::from_str(text).map_err(none)?;
            if is_twice {
                return Err(String::from(
                    "the body has one name twice around its events: of two readers one takes the first, one the last",
                ));
            }
            let events = fields.remove(field).map_or("", RawValue::get);
            let events = serde_json::from_str::<Vec<&RawValue>>(events).map_err(none)?;
            let value =
                |(name, raw): (String, &RawValue)| Some((name, serde_json::from_str(raw.get()).ok()?));
            (events, Value::Object(fields.into_iter().filter_map(value).collect()))
        }
    };
    if elements.len() > BATCH_EVENTS_MAX {
        return Err(format!("the body holds more than {BATCH_EVENTS_MAX} events"));
    }
    let elements: Vec<_> = elements.into_iter().map(RawValue::get).collect();
    let envelope = envelope(whole, &elements)?;
    Ok(Batch { elements, fields, envelope })
}

/// The fields of an object, and whether one of them comes twice.
struct Fields<'a> {
    fields: BTreeMap<String, &'a RawValue>,
    is_twice: bool,
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut found = Fields { fields: BTreeMap::new(), is_twice: false };
                while let Some((name, value)) = map.next_entry()? {
                    found.is_twice |= found.fields.insert(name, value).is_some();
                }
                Ok(found)
            }
        }

        deserializer.deserialize_map(Object)
    }
}

/// What stands before the first of these pieces of a text and after the last.
fn envelope(whole: &str, elements: &[&str]) -> Result<Envelope, String> {
    let (Some(first), Some(last)) = (elements.first(), elements.last()) else {
        return Ok(Envelope::new("", ""));
    };
    let offset = |piece: &str| piece.as_ptr().addr() - whole.as_ptr().addr();
    let (before, after) = (&whole[..offset(first)], &whole[offset(last) + last.len()..]);
    if before.len() + after.len() > ENVELOPE_BYTES_MAX {
        return Err(format!("more than {ENVELOPE_BYTES_MAX} bytes of the body stand around its events"));
    }
    Ok(Envelope::new(before, after))
}

/// One event of a batch.
pub(super) fn parse_element(element: &str, wanted: &Wanted) -> Parsed {
    match wanted.parse(element) {
        Ok(json) => Parsed::json(json),
        Err(unread) => Parsed::unread("this event of the batch", &unread),
    }
}

/// What the event says about itself.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) id: EventId,
    pub(super) event_type: Option<String>,
    pub(super) object_id: Option<String>,
    pub(super) account: Option<String>,
    pub(super) livemode: Option<bool>,
    pub(super) api_version: Option<String>,
    /// What names the event where its id does not; see [`Recipe::fact`].
    pub(super) fact: Option<Vec<String>>,
    /// What names the hook, the app or the account; see [`Recipe::told_apart_by`].
    pub(super) told_apart_by: Vec<Option<String>>,
    pub(super) defect: Option<String>,
    pub(super) is_test_send: bool,
}

/// The event's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EventId {
    /// As the provider wrote it.
    Own(String),
    /// The provider gives none: what is known of it, to be completed by [`Sources::derived_key`].
    Derived(Vec<String>),
    /// There is none that could be used: the body's hash is the key.
    BodyHash,
    /// The header that must carry it is missing, empty or contradicts itself.
    HeaderMissing(String),
}

/// Reads every fact. Never fails: see the module's first lines for what becomes of unusable content.
pub(super) fn identify(scheme: &Scheme, headers: &Headers, parsed: &Parsed, envelope: &Value) -> Identity {
    let sources = &scheme.sources;
    let family = scheme.family(headers);
    let read = Reader { headers, family, parsed, envelope, integers: sources.integer_ids };
    let mut defects = parsed.defects();
    let id = event_id(sources, &read, &mut defects);
    let object_id = read.first(&sources.object_id).usable();
    let event_type = event_type(sources, &read, &mut defects);
    let account = defect_if_unusable("account", read.first(&sources.account), &mut defects);
    let own_id = match &id {
        EventId::Own(id) => Some(id.as_str()),
        EventId::Derived(_) | EventId::BodyHash | EventId::HeaderMissing(_) => None,
    };
    Identity {
        is_test_send: is_test_send(own_id.unwrap_or_default(), object_id.as_deref()),
        livemode: sources.livemode.iter().find_map(|source| as_flag(read.in_json(source)?)),
        api_version: read.first(&sources.api_version).usable(),
        fact: fact(sources, &read),
        told_apart_by: sources.told_apart_by.iter().map(|source| read.loose(source)).collect(),
        defect: defects.into_iter().next(),
        id,
        event_type,
        object_id,
        account,
    }
}

/// All that names the event, or nothing where a part is missing.
fn fact(sources: &Sources, read: &Reader<'_>) -> Option<Vec<String>> {
    let pieces = sources.fact.iter().map(|source| read.loose(source)).collect::<Option<Vec<_>>>()?;
    (!pieces.is_empty()).then_some(pieces)
}

/// As [`Identity::told_apart_by`], of a body that was verified and stored before.
pub(super) fn told_apart_by(scheme: &Scheme, headers: &Headers, parsed: &Parsed) -> Vec<Option<String>> {
    let (sources, family) = (&scheme.sources, scheme.family(headers));
    let read = Reader { headers, family, parsed, envelope: &Value::Null, integers: sources.integer_ids };
    sources.told_apart_by.iter().map(|source| read.loose(source)).collect()
}

/// What keeps an event that has a key already from being understood: an unreadable body, type or account.
pub(super) fn content_defect(scheme: &Scheme, headers: &Headers, parsed: &Parsed) -> Option<String> {
    let (sources, family) = (&scheme.sources, scheme.family(headers));
    let read = Reader { headers, family, parsed, envelope: &Value::Null, integers: sources.integer_ids };
    let mut defects = parsed.defects();
    event_type(sources, &read, &mut defects);
    defect_if_unusable("account", read.first(&sources.account), &mut defects);
    defects.into_iter().next()
}

/// `true` or `"live"`: live.
fn as_flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(word) if word == "live" => Some(true),
        Value::String(word) if word == "test" => Some(false),
        _ => None,
    }
}

/// Type and action, where the provider splits them, with a dot between.
fn event_type(sources: &Sources, read: &Reader<'_>, defects: &mut Vec<String>) -> Option<String> {
    let event_type = defect_if_unusable("type", read.first(&sources.event_type), defects)?;
    match sources.event_action.as_ref().and_then(|source| read.one(source).usable()) {
        Some(action) => defect_if_unusable("type", checked(format!("{event_type}.{action}")), defects),
        None => Some(event_type),
    }
}

fn event_id(sources: &Sources, read: &Reader<'_>, defects: &mut Vec<String>) -> EventId {
    let in_header = sources.event_id.iter().find_map(Source::header);
    if sources.several_at.as_ref().is_some_and(|place| read.in_json(place).is_some()) {
        return derived(sources, read, defects);
    }
    if sources.form_has_no_id && is_form(read.headers) && read.parsed.defect.is_none() {
        return derived(sources, read, defects);
    }
    match (read.first(&sources.event_id), in_header) {
        // only newer versions of some senders have the header
        (Field::Absent, Some(header)) if sources.event_key.is_empty() => {
            EventId::HeaderMissing(header.to_owned())
        }
        (Field::Text(id), _) if id.starts_with(BODY_KEY_PREFIX) => {
            defects.push("the event's id has the form that is kept for bodies without one".to_owned());
            EventId::BodyHash
        }
        // which of two ids it is depends on who reads it
        (Field::Text(_), _) if is_twice(sources, read) => EventId::BodyHash,
        (Field::Text(id), _) => EventId::Own(id),
        (Field::Absent, _) if !sources.event_key.is_empty() => derived(sources, read, defects),
        // why there is no id is said already where the body cannot be read
        (Field::Absent, _) if sources.event_id.is_empty() || read.parsed.defect.is_some() => {
            EventId::BodyHash
        }
        (Field::Absent, _) => {
            let named: Vec<_> = sources.event_id.iter().map(Source::shown).collect();
            defects.push(format!("the body has no id at {}", named.join(" or ")));
            EventId::BodyHash
        }
        (Field::Unusable(why), _) => {
            defects.push(format!("the event's id {why}"));
            EventId::BodyHash
        }
    }
}

/// Whether the id stands in the body under a name that comes twice.
fn is_twice(sources: &Sources, read: &Reader<'_>) -> bool {
    let named = sources.event_id.iter().find(|source| read.one(source) != Field::Absent);
    match named {
        Some(Source::Json(pointer)) => read.parsed.is_twice(pointer),
        Some(Source::Header(_) | Source::Batch(_)) | None => false,
    }
}

/// What the key of an event without an id is made of. Where not one piece is there, a person looks at it.
fn derived(sources: &Sources, read: &Reader<'_>, defects: &mut Vec<String>) -> EventId {
    // of a body that cannot be read only headers are known, which may be the same for many events
    let is_whole = |piece: &KeyPiece| matches!(piece, KeyPiece::BodyHash | KeyPiece::Arrival);
    if read.parsed.defect.is_some() && !sources.event_key.iter().any(is_whole) {
        return EventId::BodyHash;
    }
    let facts = sources.event_key.iter().filter_map(|piece| match piece {
        KeyPiece::Fact(source) => read.loose(source),
        KeyPiece::BodyHash | KeyPiece::Arrival => None,
    });
    let facts: Vec<_> = facts.collect();
    if facts.is_empty() && sources.event_key.iter().all(|piece| matches!(piece, KeyPiece::Fact(_))) {
        defects.push(String::from("nothing in the body tells this event from others"));
        return EventId::BodyHash;
    }
    EventId::Derived(facts)
}

impl Sources {
    /// The key of an event whose provider gives it no id. `query` is told apart as well: see [`query_mark`].
    pub(super) fn derived_key(
        &self,
        mut facts: Vec<String>,
        body_sha256: &[u8; 32],
        query: Option<&str>,
        now_ms: i64,
    ) -> String {
        if facts.is_empty() && !self.event_key.contains(&KeyPiece::Arrival) {
            return body_key(body_sha256, query);
        }
        for piece in &self.event_key {
            match piece {
                KeyPiece::Fact(_) => {}
                KeyPiece::BodyHash => facts.push(hex(&body_sha256[..16])),
                KeyPiece::Arrival => facts.push(now_ms.to_string()),
            }
        }
        facts.extend(query.map(str::to_owned));
        let key = facts.join(":");
        if key.len() <= TEXT_BYTES_MAX { key } else { body_key(body_sha256, query) }
    }
}

/// The key of a body without a usable id.
pub(super) fn body_key(body_sha256: &[u8; 32], query: Option<&str>) -> String {
    let hash = hex(body_sha256);
    match query {
        Some(query) => format!("{BODY_KEY_PREFIX}{hash}:{query}"),
        None => format!("{BODY_KEY_PREFIX}{hash}"),
    }
}

/// What tells two deliveries of one body apart whose signed URLs differ in the query: the beginning of its hash. Nothing
/// where the query says no more than the body (Twilio's hash of it).
pub(super) fn query_mark(query: &str) -> Option<String> {
    let says_more = |pair: &&str| !pair.is_empty() && !canonical::is_body_hash(pair);
    let said: Vec<_> = query.split('&').filter(says_more).collect();
    (!said.is_empty()).then(|| hex(&Sha256::digest(said.join("&"))[..8]))
}

fn defect_if_unusable(what: &str, field: Field, defects: &mut Vec<String>) -> Option<String> {
    if let Field::Unusable(why) = field {
        defects.push(format!("the event's {what} {why}"));
    }
    field.usable()
}

/// One fact as found.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Absent,
    Text(String),
    /// Why it cannot be used, as the end of a sentence.
    Unusable(&'static str),
}

impl Field {
    fn usable(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Absent | Self::Unusable(_) => None,
        }
    }
}

struct Reader<'a> {
    headers: &'a Headers,
    /// Headers of the first family are to be read under the names of the second.
    family: Option<(&'a str, &'a str)>,
    parsed: &'a Parsed,
    /// What stands around the event in a batch.
    envelope: &'a Value,
    integers: bool,
}

impl<'a> Reader<'a> {
    fn first(&self, sources: &[Source]) -> Field {
        sources
            .iter()
            .map(|source| self.one(source))
            .find(|field| *field != Field::Absent)
            .unwrap_or(Field::Absent)
    }

    fn one(&self, source: &Source) -> Field {
        match source {
            Source::Header(name) => {
                let name = rename(name, self.family);
                let mut values = self.headers.all(&name);
                let value = values.next().unwrap_or_default();
                // two lines that differ name no id at all
                if values.any(|other| other != value) { Field::Absent } else { checked(value.to_owned()) }
            }
            Source::Json(_) | Source::Batch(_) => match self.in_json(source) {
                None | Some(Value::Null) => Field::Absent,
                Some(Value::String(text)) => checked(text.clone()),
                Some(Value::Number(number)) if self.integers && !number.is_f64() => {
                    checked(number.to_string())
                }
                Some(_) => Field::Unusable("is not a string"),
            },
        }
    }

    /// What the source leads to, unless it is a header.
    fn in_json(&self, source: &Source) -> Option<&'a Value> {
        match source {
            Source::Header(_) => None,
            Source::Json(pointer) => at(&self.parsed.json, pointer),
            Source::Batch(pointer) => at(self.envelope, pointer),
        }
    }

    /// For keys that are made of what there is: texts and numbers alike, without control characters.
    fn loose(&self, source: &Source) -> Option<String> {
        match source {
            Source::Header(_) => self.one(source).usable(),
            Source::Json(_) | Source::Batch(_) => {
                let text = canonical::text(self.in_json(source))?;
                Some(text.chars().map(|c| if c.is_control() { '_' } else { c }).collect())
            }
        }
    }
}

/// What a JSON pointer leads to: [`Value::pointer`] without the two copies that it makes of every step.
pub(super) fn at<'a>(json: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.contains('~') {
        return json.pointer(pointer);
    }
    pointer.split('/').skip(1).try_fold(json, |json, step| match json {
        Value::Object(fields) => fields.get(step),
        Value::Array(_) => json.pointer(&format!("/{step}")),
        _ => None,
    })
}

fn checked(text: String) -> Field {
    if text.is_empty() {
        Field::Absent
    } else if text.len() > TEXT_BYTES_MAX {
        Field::Unusable("is longer than 255 bytes")
    } else if text.chars().any(char::is_control) {
        Field::Unusable("contains control characters")
    } else {
        Field::Text(text)
    }
}

/// Whether an event's key or object is a constant of a provider's test button: it ends in fourteen zeros. The
/// key may go on with the body's, which tells such events apart.
pub fn is_test_send(key: &str, object_id: Option<&str>) -> bool {
    let id = key.split(BODY_KEY_PREFIX).next().unwrap_or_default().trim_end_matches(':');
    id.ends_with(TEST_SEND_SUFFIX) || object_id.is_some_and(|id| id.ends_with(TEST_SEND_SUFFIX))
}

/// Whether the provider itself calls this delivery a test.
pub(super) fn is_test_button(
    scheme: &Scheme,
    headers: &Headers,
    json: &Value,
    event_type: Option<&str>,
) -> bool {
    scheme.behaviour().tests.iter().any(|sign| match sign {
        TestSign::Header(name, value) => headers
            .first(&rename(name, scheme.family(headers)))
            .is_some_and(|found| found.trim().eq_ignore_ascii_case(value)),
        TestSign::Type(name) => event_type == Some(name),
        TestSign::Equal(name, [one, other]) => {
            let text = |pointer: &str| at(json, pointer).and_then(Value::as_str);
            event_type == Some(name) && text(one).is_some() && text(one) == text(other)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(body: &str) -> Option<String> {
        let mut headers = Headers::default();
        headers.push("Content-Type", "Application/X-WWW-Form-Urlencoded; charset=utf-8");
        let form = Form { field: String::from("payload"), params: false };
        form.json(&headers, body.as_bytes()).map(|text| String::from_utf8_lossy(&text).into_owned())
    }

    #[test]
    fn a_form_field_is_decoded_once_and_must_be_the_only_one() {
        assert_eq!(form("payload=%7B%22a%22%3A%22b+c%26%2B%22%7D&x=1").as_deref(), Some(r#"{"a":"b c&+"}"#));
        assert_eq!(form("x=1&pay%6Coad=1").as_deref(), Some("1"));
        assert_eq!(form("payload=%zz%4").as_deref(), Some("%zz%4"));
        assert_eq!(form("payload").as_deref(), Some(""));
        assert_eq!(form("payload=1&payload=2"), None);
        assert_eq!(form(""), None);
    }

    #[test]
    fn a_pointer_leads_where_its_specification_says() {
        let json = serde_json::json!({"a": {"b": [1, {"c": 2}], "": 3}, "x/y": 4, "0": 5});
        let pointers = [
            "",
            "/a",
            "/a/b/1/c",
            "/a/b/01",
            "/a/b/+1",
            "/a/b/2",
            "/a/b/-",
            "/a/",
            "/x~1y",
            "/0",
            "/a/b/1/c/d",
        ];
        for pointer in pointers {
            assert_eq!(at(&json, pointer), json.pointer(pointer), "{pointer}");
        }
        assert_eq!(at(&json, "/a/b/1/c"), Some(&Value::from(2)));
    }

    #[test]
    fn unreadable_bodies_are_defects_that_do_not_quote_the_body() {
        let defect = |body: &[u8]| parse(None, &Wanted::All, &Headers::default(), body).defect;
        let nested = vec![b'['; 100_000];
        for (body, words) in [
            (&b""[..], "empty"),
            (b"\xff\xfe{}", "UTF-8"),
            (b"{\"raw\":\"\xff\"}", "UTF-8"),
            (b"hunter2", "not JSON"),
            (br#"{"hunter2":"\ud83d"}"#, "not JSON"),
            (b"{\"id\":\"hunter2\"}\0", "not JSON"),
            (b"{\"hunter2\":1e309}", "not JSON"),
            (&nested, "not JSON"),
        ] {
            let defect = defect(body).unwrap();
            assert!(defect.contains(words) && !defect.contains("hunter2"), "{defect}");
        }
        assert_eq!(defect(b"\xef\xbb\xbf{\"id\":\"evt_1\"}\r\n\n"), None);
    }
}
