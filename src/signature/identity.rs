//! Who and what: the event's id, type, object, account and mode, read from a delivery whose signature held.
//!
//! Nothing here refuses a signed delivery for its content. What cannot be used is either treated as
//! absent (object, version) or named as a *defect*, so that the event is stored and a person looks at
//! it: an unreadable body, an unusable id, and what decides routing and scope (type, account).

use serde_json::Value;

use super::delivery::{Headers, rename};
use super::form::is_form;
use super::json::{Parsed, at, text};
use super::scheme::Scheme;
use super::sources::{BODY_KEY_PREFIX, KeyPiece, Source, Sources};

/// Ids, types and the like are at most this long, in bytes.
const TEXT_BYTES_MAX: usize = 255;

/// Test sends of dashboards carry constant ids that end like this (`evt_00000000000000`).
const TEST_SEND_SUFFIX: &str = "00000000000000";

/// What the event says about itself.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) id: EventId,
    pub(crate) event_type: Option<String>,
    /// The type that the replay key contains; see [`replay_type`].
    pub(crate) replay_type: Option<String>,
    pub(crate) object_id: Option<String>,
    pub(crate) account: Option<String>,
    pub(crate) livemode: Option<bool>,
    pub(crate) api_version: Option<String>,
    /// What names the event where its id does not; see [`super::recipe::Recipe::fact`].
    pub(crate) fact: Option<Vec<String>>,
    /// What names the hook, the app or the account; see [`super::recipe::Recipe::told_apart_by`].
    pub(crate) told_apart_by: Vec<Option<String>>,
    pub(crate) defect: Option<String>,
    pub(crate) is_test_send: bool,
}

/// The event's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EventId {
    /// As the provider wrote it.
    Own(String),
    /// The provider gives none: what is known of it, to be completed by [`Sources::derived_key`].
    Derived(Vec<String>),
    /// The body has no usable id: its hash is the key.
    BodyHash,
    /// The header that must carry it is missing, empty or contradicts itself.
    HeaderMissing(String),
}

/// Reads every fact. Never fails: see the module's first lines for what becomes of unusable content.
pub(crate) fn identify(scheme: &Scheme, headers: &Headers, parsed: &Parsed, envelope: &Value) -> Identity {
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
        replay_type: replay_type(sources, &read, event_type.as_deref()),
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
pub(crate) fn told_apart_by(scheme: &Scheme, headers: &Headers, parsed: &Parsed) -> Vec<Option<String>> {
    let (sources, family) = (&scheme.sources, scheme.family(headers));
    let read = Reader { headers, family, parsed, envelope: &Value::Null, integers: sources.integer_ids };
    sources.told_apart_by.iter().map(|source| read.loose(source)).collect()
}

/// What keeps an event that has a key already from being understood: an unreadable body, type or account.
pub(crate) fn content_defect(scheme: &Scheme, headers: &Headers, parsed: &Parsed) -> Option<String> {
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

/// The type for the replay key. The header is not signed: with a captured body an attacker can send the same type in
/// other letters, or with `.` for `/`, which SQL handlers read alike. So case and separator are made one. Real types of
/// providers come out unchanged, because the replay keys of stored rows contain them.
fn replay_type(sources: &Sources, read: &Reader<'_>, event_type: Option<&str>) -> Option<String> {
    let event_type = event_type?;
    let source = sources.event_type.iter().find(|source| read.one(source) != Field::Absent)?;
    let in_header = source.header().and_then(|_| read.one(source).usable()).unwrap_or_default();
    // the action stands in the body
    let action = event_type.get(in_header.len()..).unwrap_or_default();
    Some(format!("{}{action}", in_header.to_ascii_lowercase().replace('.', "/")))
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

/// The facts for the key of an event without an id. If none is present, the event is a defect.
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

    /// For derived keys: a text or a number, control characters replaced.
    fn loose(&self, source: &Source) -> Option<String> {
        match source {
            Source::Header(_) => self.one(source).usable(),
            Source::Json(_) | Source::Batch(_) => {
                let text = text(self.in_json(source))?;
                Some(text.chars().map(|c| if c.is_control() { '_' } else { c }).collect())
            }
        }
    }
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
/// key may be followed by the body's key, which keeps such events distinct.
pub fn is_test_send(key: &str, object_id: Option<&str>) -> bool {
    let id = key.split(BODY_KEY_PREFIX).next().unwrap_or_default().trim_end_matches(':');
    id.ends_with(TEST_SEND_SUFFIX) || object_id.is_some_and(|id| id.ends_with(TEST_SEND_SUFFIX))
}
