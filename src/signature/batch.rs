//! Several events in one body: split without changing a byte, each with the delivery's text around its list.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::envelope::Envelope;
use super::json::Parsed;
use super::projection::Projection;

/// More events than any provider puts into one body.
const BATCH_EVENTS_MAX: usize = 10_000;

/// More than any provider writes around the events of a body: it is kept with each of them.
const ENVELOPE_BYTES_MAX: usize = 16 << 10;

/// Why a body is no list of events: a defect of the one event that it then is. It never quotes the body.
#[derive(Debug)]
pub(crate) enum NoBatch {
    NotUtf8,
    NotJson(serde_json::Error),
    /// The pointer where the list should be; empty for the body itself.
    NoList(String),
    NameTwice,
    TooMany,
    EnvelopeTooLong,
}

impl fmt::Display for NoBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 => f.write_str("the body is not UTF-8"),
            Self::NotJson(error) => write!(f, "the body is not JSON: {error}"),
            Self::NoList(list) if list.is_empty() => f.write_str("the body has no list of events"),
            Self::NoList(list) => write!(f, "the body has no list of events at {list}"),
            Self::NameTwice => f.write_str(
                "the body has one name twice around its events: of two readers one takes the first, one the last",
            ),
            Self::TooMany => write!(f, "the body holds more than {BATCH_EVENTS_MAX} events"),
            Self::EnvelopeTooLong => {
                write!(f, "more than {ENVELOPE_BYTES_MAX} bytes of the body stand around its events")
            }
        }
    }
}

/// The events of a batch.
pub(crate) struct Batch<'a> {
    /// The exact text of each.
    pub(crate) elements: Vec<&'a str>,
    /// The fields around their list; `Null` where the body is the list.
    pub(crate) fields: Value,
    /// The text around the events.
    pub(crate) envelope: Envelope,
}

/// Splits a body into its events without changing a byte of them. One that cannot be read does not
/// spoil the others.
///
/// # Errors
/// See [`NoBatch`].
pub(crate) fn split<'a>(body: &'a [u8], list: &str) -> Result<Batch<'a>, NoBatch> {
    let whole = std::str::from_utf8(body).map_err(|_| NoBatch::NotUtf8)?;
    let text = whole.strip_prefix('\u{feff}').unwrap_or(whole);
    let none = |_| match serde_json::from_str::<&RawValue>(text) {
        Ok(_) => NoBatch::NoList(list.to_owned()),
        Err(error) => NoBatch::NotJson(error),
    };
    let (elements, fields) = match list.strip_prefix('/') {
        None => (serde_json::from_str::<Vec<&RawValue>>(text).map_err(none)?, Value::Null),
        Some(field) => {
            let Fields { mut fields, is_twice } = serde_json::from_str(text).map_err(none)?;
            if is_twice {
                return Err(NoBatch::NameTwice);
            }
            let events = fields.remove(field).map_or("", RawValue::get);
            let events = serde_json::from_str::<Vec<&RawValue>>(events).map_err(none)?;
            let value =
                |(name, raw): (String, &RawValue)| Some((name, serde_json::from_str(raw.get()).ok()?));
            (events, Value::Object(fields.into_iter().filter_map(value).collect()))
        }
    };
    if elements.len() > BATCH_EVENTS_MAX {
        return Err(NoBatch::TooMany);
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
fn envelope(whole: &str, elements: &[&str]) -> Result<Envelope, NoBatch> {
    let (Some(first), Some(last)) = (elements.first(), elements.last()) else {
        return Ok(Envelope::new("", ""));
    };
    let offset = |piece: &str| piece.as_ptr().addr() - whole.as_ptr().addr();
    let (before, after) = (&whole[..offset(first)], &whole[offset(last) + last.len()..]);
    if before.len() + after.len() > ENVELOPE_BYTES_MAX {
        return Err(NoBatch::EnvelopeTooLong);
    }
    Ok(Envelope::new(before, after))
}

/// One event of a batch.
pub(crate) fn parse_element(element: &str, wanted: &Projection) -> Parsed {
    match wanted.parse(element) {
        Ok(json) => Parsed::json(json),
        Err(unread) => Parsed::unread("this event of the batch", &unread),
    }
}
