//! Which parts of a body are kept when it is parsed.
//!
//! The bytes are stored as they came; of their JSON a few fields are looked at. A tree of all the others
//! costs more than all else that is done to verify a delivery, so they are checked and not kept.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The fields to be kept, as a tree of the steps of their pointers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Wanted {
    #[default]
    All,
    /// By their names; of a list, by their numbers.
    Fields(BTreeMap<String, Wanted>),
}

impl Wanted {
    /// What JSON pointers (RFC 6901) lead to, with all that is inside it.
    pub(super) fn only<'a>(pointers: impl IntoIterator<Item = &'a str>) -> Self {
        let mut wanted = Self::Fields(BTreeMap::new());
        for pointer in pointers {
            let mut at = &mut wanted;
            for step in pointer.split('/').skip(1) {
                let Self::Fields(fields) = at else { break };
                let step = step.replace("~1", "/").replace("~0", "~");
                at = fields.entry(step).or_insert_with(|| Self::Fields(BTreeMap::new()));
            }
            *at = Self::All;
        }
        wanted
    }

    /// Takes and refuses exactly what `serde_json::from_str` of a [`Value`] does.
    pub(super) fn parse(&self, text: &str) -> serde_json::Result<Value> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = self.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    }
}

impl<'de> DeserializeSeed<'de> for &Wanted {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Wanted::All => Value::deserialize(deserializer),
            Wanted::Fields(fields) => deserializer.deserialize_any(Kept(fields)),
        }
    }
}

/// Makes a tree of the wanted fields alone.
struct Kept<'a>(&'a BTreeMap<String, Wanted>);

impl<'de> Visitor<'de> for Kept<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    /// The places before the last wanted one are kept, empty where nobody asks for them.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let places =
            self.0.keys().filter_map(|step| step.parse::<usize>().ok()).max().map_or(0, |last| last + 1);
        let mut values = Vec::new();
        for place in 0.. {
            let wanted = (place < places).then(|| self.0.get(&place.to_string())).flatten();
            let value = match wanted {
                Some(wanted) => list.next_element_seed(wanted)?,
                None => list.next_element::<Checked>()?.map(|_| Value::Null),
            };
            match value {
                Some(value) if place < places => values.push(value),
                Some(_) => {}
                None => break,
            }
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(known) = fields.next_key_seed(Name(self.0))? {
            match known {
                // of two with one name the last one counts
                Some((name, wanted)) => drop(values.insert(name.clone(), fields.next_value_seed(wanted)?)),
                None => {
                    fields.next_value::<Checked>()?;
                }
            }
        }
        Ok(Value::Object(values))
    }
}

/// Finds a field's name among those that are wanted, without a copy of it.
struct Name<'a>(&'a BTreeMap<String, Wanted>);

impl<'de, 'a> DeserializeSeed<'de> for Name<'a> {
    type Value = Option<(&'a String, &'a Wanted)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Name<'a> {
    type Value = Option<(&'a String, &'a Wanted)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string key")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.get_key_value(name))
    }
}

/// A value that is looked through to its end as if it were kept: serde's `IgnoredAny` lets pass what a
/// [`Value`] cannot be (half a surrogate pair, a number beyond all bounds).
struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Checked {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        while fields.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTERS: [&str; 7] = ["/a", "/b/c", "/b/d/e", "/l/1/x", "/l/0", "/m~1n", "/b/c/deeper"];

    /// All that a parser may be asked to read, and where it may end too early.
    const TEXTS: [&str; 14] = [
        r#"{"a":1,"b":{"c":{"deeper":[1,2]},"d":{"e":null,"f":2}},"l":[{"x":1},{"x":2,"y":3},4],"m/n":"o"}"#,
        r#"{"b":[],"l":{"0":1,"1":{"x":true}},"a":-1.5e3}"#,
        r#"{"a":1,"a":{"z":2},"b":7,"b":{"c":3}}"#,
        r#"{"other":"\ud83d\ude00","a":"\u00e9\n"}"#,
        r#"{"other":"\ud83d","a":1}"#,
        r#"{"other":1e999,"a":1}"#,
        r#"{"other":18446744073709551616,"a":9223372036854775808}"#,
        r#"{"other":[1,{"x":[]},],"a":1}"#,
        "{\"other\":\"\u{1}\",\"a\":1}",
        r#"{"a":01}"#,
        r#"{"a":1} x"#,
        r#"[{"a":1}]"#,
        "7",
        "",
    ];

    fn agree(text: &str) {
        let (whole, kept) = (serde_json::from_str::<Value>(text), Wanted::only(POINTERS).parse(text));
        match (whole, kept) {
            (Ok(whole), Ok(kept)) => {
                for pointer in POINTERS {
                    assert_eq!(whole.pointer(pointer), kept.pointer(pointer), "{pointer} in {text}");
                }
            }
            (Err(whole), Err(kept)) => assert_eq!(whole.to_string(), kept.to_string(), "{text}"),
            (whole, kept) => panic!("{text}: {whole:?} but {kept:?}"),
        }
    }

    #[test]
    fn what_is_wanted_is_read_as_if_all_were_and_the_rest_is_checked_alike() {
        for text in TEXTS {
            (0..=text.len()).filter_map(|end| text.get(..end)).for_each(agree);
        }
        for depth in [127, 128, 129] {
            agree(&format!(r#"{{"other":{}{}}}"#, "[".repeat(depth), "]".repeat(depth)));
        }
    }

    #[test]
    fn what_is_not_wanted_is_not_kept() {
        let kept = Wanted::only(["/b/c", "/l/1"]).parse(TEXTS[0]).unwrap();
        assert_eq!(kept.to_string(), r#"{"b":{"c":{"deeper":[1,2]}},"l":[null,{"x":2,"y":3}]}"#);
    }

    #[test]
    fn whoever_wants_the_whole_gets_it_whatever_others_want_of_it() {
        assert_eq!(Wanted::only(["/a/b", "/a"]), Wanted::only(["/a", "/a/b"]));
        assert_eq!(Wanted::only(["/a", ""]), Wanted::All);
    }
}
