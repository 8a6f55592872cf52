//! Several events in one body: split without changing a byte of them, each with what stands around them all.

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
/// Why this is no list of events; the text never quotes the body.
pub(crate) fn split<'a>(body: &'a [u8], list: &str) -> Result<Batch<'a>, String> {
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
pub(crate) fn parse_element(element: &str, wanted: &Projection) -> Parsed {
    match wanted.parse(element) {
        Ok(json) => Parsed::json(json),
        Err(unread) => Parsed::unread("this event of the batch", &unread),
    }
}
