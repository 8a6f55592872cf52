//! Which parts of a body survive parsing.
//!
//! The bytes are stored as they came; of their JSON only a few fields are needed. Building a tree of the rest costs more
//! than all other verification, so the rest is validated and dropped. Parsing also finds names that an object repeats
//! (one reader takes the first value, another the last) and bounds the tree's memory: a few bytes of JSON can become a
//! hundred times as many in a tree.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};

/// The fields to be kept, as a tree of the steps of their pointers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Projection {
    #[default]
    All,
    /// By their names; of a list, by their numbers.
    Fields(BTreeMap<String, Projection>),
}

impl Projection {
    const NOTHING: Self = Self::Fields(BTreeMap::new());

    /// What JSON pointers (RFC 6901) lead to, with all that is inside it.
    pub(crate) fn only<'a>(pointers: impl IntoIterator<Item = &'a str>) -> Self {
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

    /// Takes and refuses exactly what `serde_json::from_str` of a [`Value`] does, within the bound, and says where a
    /// name comes twice.
    pub(crate) fn parse(&self, text: &str) -> Result<(Value, Option<Twice>), Unread> {
        let (found, room) = (RefCell::default(), Room::of(self));
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let seed = Seed { wanted: self, place: Place::ROOT, found: &found, room: &room };
        let read = seed.deserialize(&mut deserializer);
        match read.and_then(|value| deserializer.end().map(|()| value)) {
            Ok(value) => Ok((value, found.into_inner())),
            Err(_) if room.is_used_up.get() => Err(Unread::TooLarge),
            Err(error) => Err(Unread::NotJson(error)),
        }
    }
}

/// Why there is no tree.
#[derive(Debug)]
pub(crate) enum Unread {
    NotJson(serde_json::Error),
    /// It would need more memory than a tree may have.
    TooLarge,
}

/// Memory that the tree of a whole body may need: that of some 10 MB of usual JSON.
const WHOLE_BYTES_MAX: usize = 128 << 20;

/// Memory for all the fields that are kept of a body: ids, amounts, states.
const FIELDS_BYTES_MAX: usize = 4 << 20;

/// What a value takes in the list that holds it, which grows by doubling.
const VALUE_BYTES: usize = 2 * size_of::<Value>();

/// What the first field of an object takes: a whole node of its tree.
const OBJECT_BYTES: usize = 640;

/// What each further field takes beside its name.
const FIELD_BYTES: usize = 128;

/// What is left for a tree.
struct Room {
    bytes: Cell<usize>,
    is_used_up: Cell<bool>,
}

impl Room {
    fn of(wanted: &Projection) -> Self {
        let bytes = match wanted {
            Projection::All => WHOLE_BYTES_MAX,
            Projection::Fields(_) => FIELDS_BYTES_MAX,
        };
        Self { bytes: Cell::new(bytes), is_used_up: Cell::new(false) }
    }

    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        if let Some(left) = self.bytes.get().checked_sub(bytes) {
            self.bytes.set(left);
            return Ok(());
        }
        self.is_used_up.set(true);
        Err(E::custom("too large"))
    }
}

/// An object with one name twice: of two parsers one takes the first and one the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Twice {
    /// JSON pointers of the repeated names that are kept, at most [`TWICE_MAX`].
    pub(crate) names: Vec<String>,
    place: Option<&'static str>,
}

impl Twice {
    /// A sentence about the body, without the names: they are the sender's own text.
    pub(crate) fn reason(&self) -> String {
        let place = match self.place {
            Some("") => "at its top level",
            Some("/data") => "in data",
            Some(_) => "in data.object",
            None => "in one of its objects",
        };
        format!("the body has one name twice {place}: of two readers one takes the first, one the last")
    }
}

/// Names that are remembered of one body.
const TWICE_MAX: usize = 16;

/// Distinct names that are remembered of one object that handlers look into.
const NAMES_MAX: usize = 1 << 16;

/// An object on the way through a body.
#[derive(Clone, Copy)]
struct Place<'a> {
    outer: Option<&'a Place<'a>>,
    name: &'a str,
    /// The objects that handlers look into, whatever they read there.
    is_watched: Option<&'static str>,
}

impl<'a> Place<'a> {
    const ROOT: Self = Self { outer: None, name: "", is_watched: Some("") };

    fn inner(&'a self, name: &'a str) -> Self {
        Self { outer: Some(self), name, is_watched: self.watched(name) }
    }

    /// What the inner object of this name is called, where handlers look into it.
    fn watched(&self, name: &str) -> Option<&'static str> {
        match (self.is_watched, name) {
            (Some(""), "data") => Some("/data"),
            (Some("/data"), "object") => Some("/data/object"),
            _ => None,
        }
    }

    fn pointer(&self) -> String {
        match self.outer {
            None => String::new(),
            Some(outer) => format!("{}/{}", outer.pointer(), self.name.replace('~', "~0").replace('/', "~1")),
        }
    }
}

/// What is wanted at a place, and where it is noted that a name comes twice.
#[derive(Clone, Copy)]
struct Seed<'a> {
    wanted: &'a Projection,
    place: Place<'a>,
    found: &'a RefCell<Option<Twice>>,
    room: &'a Room,
}

impl Seed<'_> {
    fn note(&self, name: Option<&str>) {
        let mut found = self.found.borrow_mut();
        let twice = found.get_or_insert_with(|| Twice { names: Vec::new(), place: self.place.is_watched });
        if let Some(name) = name.filter(|_| twice.names.len() < TWICE_MAX) {
            twice.names.push(self.place.inner(name).pointer());
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Makes a tree of what is wanted alone.
impl<'de> Visitor<'de> for Seed<'_> {
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
        self.room.take(value.len())?;
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.room.take(value.len())?;
        Ok(Value::from(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    /// Elements before the last wanted one are kept, as null unless they are wanted themselves.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let places = match self.wanted {
            Projection::All => usize::MAX,
            Projection::Fields(fields) => {
                fields.keys().filter_map(|step| step.parse::<usize>().ok()).max().map_or(0, |last| last + 1)
            }
        };
        let mut values = Vec::new();
        for number in 0.. {
            let wanted = match self.wanted {
                Projection::All => Some(&Projection::All),
                Projection::Fields(fields) => {
                    (number < places).then(|| fields.get(&number.to_string())).flatten()
                }
            };
            let value = match wanted {
                // where an element stands in its list is nothing that an id is named by
                Some(wanted) => {
                    list.next_element_seed(Seed { wanted, place: self.place.inner("-"), ..self })?
                }
                None => list.next_element::<Checked>()?.map(|_| Value::Null),
            };
            match value {
                Some(value) if number < places => {
                    self.room.take(VALUE_BYTES)?;
                    values.push(value);
                }
                Some(_) => {}
                None => break,
            }
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Value, A::Error> {
        match self.wanted {
            Projection::All => self.whole(fields),
            Projection::Fields(wanted) => self.some(wanted, fields),
        }
    }
}

impl Seed<'_> {
    fn whole<'de, A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            self.room.take(name.len() + if values.is_empty() { OBJECT_BYTES } else { FIELD_BYTES })?;
            let seed = Seed { place: self.place.inner(&name), ..self };
            let value = fields.next_value_seed(seed)?;
            match values.entry(name) {
                Entry::Vacant(entry) => drop(entry.insert(value)),
                // of two with one name the last one counts
                Entry::Occupied(mut entry) => {
                    self.note(Some(entry.key()));
                    entry.insert(value);
                }
            }
        }
        Ok(Value::Object(values))
    }

    fn some<'de, A: MapAccess<'de>>(
        self,
        wanted: &BTreeMap<String, Projection>,
        mut fields: A,
    ) -> Result<Value, A::Error> {
        let (mut values, names) = (Map::new(), Names::of(&self.place));
        while let Some(known) = fields.next_key_seed(Name { wanted, names: &names, place: &self.place })? {
            match known {
                Known::Wanted(name, wanted) => {
                    let seed = Seed { wanted, place: self.place.inner(name), ..self };
                    let value = fields.next_value_seed(seed)?;
                    if values.insert(name.clone(), value).is_some() {
                        self.note(Some(name));
                    }
                }
                // nothing of it is kept, but handlers may look into it
                Known::Watched(name) => {
                    let seed = Seed { wanted: &Projection::NOTHING, place: self.place.inner(name), ..self };
                    fields.next_value_seed(seed)?;
                }
                Known::Other => {
                    fields.next_value::<Checked>()?;
                }
            }
        }
        if names.is_twice.get() {
            self.note(None);
        }
        Ok(Value::Object(values))
    }
}

/// The names of an object that handlers look into, by their hashes.
struct Names {
    seen: Option<RefCell<HashSet<u64>>>,
    hasher: RandomState,
    is_twice: Cell<bool>,
}

impl Names {
    fn of(place: &Place<'_>) -> Self {
        let seen = place.is_watched.map(|_| RefCell::default());
        Self { seen, hasher: RandomState::new(), is_twice: Cell::new(false) }
    }

    fn meet(&self, name: &str) {
        let Some(seen) = &self.seen else { return };
        let mut seen = seen.borrow_mut();
        if seen.len() < NAMES_MAX && !seen.insert(self.hasher.hash_one(name)) {
            self.is_twice.set(true);
        }
    }
}

/// A field by its name.
enum Known<'a> {
    Wanted(&'a String, &'a Projection),
    /// An object that handlers look into.
    Watched(&'static str),
    Other,
}

/// Finds a field's name among those that are wanted, without a copy of it.
struct Name<'a, 'p> {
    wanted: &'a BTreeMap<String, Projection>,
    names: &'p Names,
    place: &'p Place<'p>,
}

impl<'de, 'a> DeserializeSeed<'de> for Name<'a, '_> {
    type Value = Known<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Name<'a, '_> {
    type Value = Known<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string key")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        self.names.meet(name);
        Ok(match (self.wanted.get_key_value(name), self.place.watched(name)) {
            (Some((name, wanted)), _) => Known::Wanted(name, wanted),
            (None, Some("/data")) => Known::Watched("data"),
            (None, Some(_)) => Known::Watched("object"),
            (None, None) => Known::Other,
        })
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

    fn said(unread: Unread) -> String {
        match unread {
            Unread::NotJson(error) => error.to_string(),
            Unread::TooLarge => "too large".to_owned(),
        }
    }

    fn agree(text: &str) {
        let (whole, kept) = (serde_json::from_str::<Value>(text), Projection::only(POINTERS).parse(text));
        let kept = kept.map(|(kept, _)| kept);
        let all = Projection::All.parse(text).map(|(all, _)| all);
        assert_eq!(whole.as_ref().ok(), all.as_ref().ok(), "{text}");
        assert_eq!(whole.as_ref().err().map(ToString::to_string), all.err().map(said));
        match (whole, kept) {
            (Ok(whole), Ok(kept)) => {
                for pointer in POINTERS {
                    assert_eq!(whole.pointer(pointer), kept.pointer(pointer), "{pointer} in {text}");
                }
            }
            (Err(whole), Err(kept)) => assert_eq!(whole.to_string(), said(kept), "{text}"),
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
        let kept = Projection::only(["/b/c", "/l/1"]).parse(TEXTS[0]).unwrap().0;
        assert_eq!(kept.to_string(), r#"{"b":{"c":{"deeper":[1,2]}},"l":[null,{"x":2,"y":3}]}"#);
    }

    #[test]
    fn whoever_wants_the_whole_gets_it_whatever_others_want_of_it() {
        assert_eq!(Projection::only(["/a/b", "/a"]), Projection::only(["/a", "/a/b"]));
        assert_eq!(Projection::only(["/a", ""]), Projection::All);
    }

    #[test]
    fn a_name_that_comes_twice_is_seen_where_it_is_read_and_where_handlers_look() {
        let twice = |wanted: &Projection, text: &str| wanted.parse(text).unwrap().1.map(|twice| twice.names);
        let some = Projection::only(["/id", "/data/object/id", "/a/b"]);
        let named = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        for (text, of_some, of_all) in [
            (r#"{"id":1,"data":{"object":{"id":2,"x":[{"y":1}]}}}"#, None, None),
            (r#"{"id":1,"id":1}"#, named(&["/id"]), named(&["/id"])),
            (r#"{"id":1,"i\u0064":2}"#, named(&["/id"]), named(&["/id"])),
            (r#"{"other":1,"other":2}"#, named(&[]), named(&["/other"])),
            (r#"{"data":{"x":1,"x":2}}"#, named(&[]), named(&["/data/x"])),
            (r#"{"data":{"object":{"amount":1,"amount":2}}}"#, named(&[]), named(&["/data/object/amount"])),
            (r#"{"data":1,"data":{}}"#, named(&["/data"]), named(&["/data"])),
            (r#"{"a":{"b":1,"b":2}}"#, named(&["/a/b"]), named(&["/a/b"])),
            (r#"{"a":{"c":1,"c":2}}"#, None, named(&["/a/c"])),
            (r#"{"list":[{"c":1,"c":2}]}"#, None, named(&["/list/-/c"])),
        ] {
            assert_eq!(twice(&some, text), of_some, "{text}");
            assert_eq!(twice(&Projection::All, text), of_all, "{text}");
        }
        let nobody = Projection::only([]);
        assert_eq!(twice(&nobody, r#"{"data":{"object":{"amount":1,"amount":2}}}"#), named(&[]));
    }

    #[test]
    fn what_would_be_a_tree_of_any_size_is_not_read() {
        let many = format!(r#"{{"a":[{}1],"b":1}}"#, r#"{"x":1},"#.repeat(400_000));
        assert!(many.len() < 4 << 20);
        assert!(matches!(Projection::All.parse(&many), Err(Unread::TooLarge)));
        assert!(matches!(Projection::only(["/a"]).parse(&many), Err(Unread::TooLarge)));
        assert_eq!(Projection::only(["/b"]).parse(&many).unwrap().0.to_string(), r#"{"b":1}"#);
        let usual = many.replace(r#"{"x":1},"#, r#""a text as long as an object","#);
        assert!(Projection::All.parse(&usual).is_ok(), "as many bytes of texts are no such tree");
    }
}
