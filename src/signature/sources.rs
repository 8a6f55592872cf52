//! Where a scheme finds its facts: in a header, at a pointer into the event, or into the body around a batch.
//!
//! Also the keys derived from such facts if a provider gives its events no id.

use std::collections::BTreeMap;

use super::delivery::{Headers, rename};
use super::recipe::Recipe;
use super::words::{SchemeError, is_header_name, rule};
use crate::encode::hex;

/// Keys are at most this long, in bytes.
const KEY_BYTES_MAX: usize = 255;

/// What the keys of bodies without a usable id begin with.
pub(crate) const BODY_KEY_PREFIX: &str = "body-sha256:";

/// Where one fact is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Header(String),
    Json(String),
    /// In the body around a list of events.
    Batch(String),
}

impl Source {
    pub(crate) fn parse(key: &str, text: &str) -> Result<Self, SchemeError> {
        match text.split_once(':') {
            Some(("header", name)) if is_header_name(name) => Ok(Self::Header(name.to_owned())),
            Some(("json", pointer)) if pointer.starts_with('/') => Ok(Self::Json(pointer.to_owned())),
            Some(("batch", pointer)) if pointer.starts_with('/') => Ok(Self::Batch(pointer.to_owned())),
            _ => Err(rule(key, text, "write header:NAME or json:/pointer")),
        }
    }

    pub(crate) fn header(&self) -> Option<&str> {
        match self {
            Self::Header(name) => Some(name),
            Self::Json(_) | Self::Batch(_) => None,
        }
    }

    /// The JSON pointer into the event itself, where it is one.
    pub(crate) fn pointer(&self) -> Option<&str> {
        match self {
            Self::Json(pointer) => Some(pointer),
            Self::Header(_) | Self::Batch(_) => None,
        }
    }

    pub(crate) fn shown(&self) -> &str {
        match self {
            Self::Header(name) => name,
            Self::Json(pointer) | Self::Batch(pointer) => pointer,
        }
    }
}

/// A piece of the key of an event whose provider gives it no id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyPiece {
    Fact(Source),
    /// The body's hash.
    BodyHash,
    /// Our time of receipt: every delivery is an event of its own.
    Arrival,
}

impl KeyPiece {
    fn parse(text: &str) -> Result<Self, SchemeError> {
        match text {
            "body-sha256" => Ok(Self::BodyHash),
            "arrival" => Ok(Self::Arrival),
            text => Source::parse("event_key", text).map(Self::Fact),
        }
    }
}

/// Where everything is written; of several sources the first one present counts.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub(crate) event_id: Vec<Source>,
    pub(crate) event_key: Vec<KeyPiece>,
    pub(crate) fact: Vec<Source>,
    pub(crate) told_apart_by: Vec<Source>,
    pub(crate) event_type: Vec<Source>,
    pub(crate) event_action: Option<Source>,
    pub(crate) object_id: Vec<Source>,
    pub(crate) account: Vec<Source>,
    pub(crate) livemode: Vec<Source>,
    pub(crate) api_version: Vec<Source>,
    pub(crate) integer_ids: bool,
    pub(crate) form_has_no_id: bool,
    pub(crate) several_at: Option<Source>,
    kept_headers: Vec<String>,
}

impl Sources {
    pub(crate) fn build(recipe: &Recipe<'_>) -> Result<Self, SchemeError> {
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
        // destinations and later reads need these headers too: the body does not repeat them
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

    pub(crate) fn names_account(&self) -> bool {
        !self.account.is_empty()
    }

    /// The JSON pointers of all facts that stand in the event itself.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = &str> {
        self.all().filter_map(Source::pointer)
    }

    /// Where a scheme of the user's own has these three facts.
    pub(crate) fn said<'a>(
        &self,
        id: &'a str,
        event_type: &'a str,
        object: &'a str,
    ) -> [(&[Source], &'a str); 3] {
        [(&self.object_id, object), (&self.event_type, event_type), (&self.event_id, id)]
    }

    /// Adds headers that are stored with the event.
    pub(crate) fn keep<T: AsRef<str>>(&mut self, names: &[T]) {
        for name in names {
            let name = name.as_ref().to_ascii_lowercase();
            if !self.kept_headers.contains(&name) {
                self.kept_headers.push(name);
            }
        }
    }

    /// Whether a header is stored with the event.
    pub(crate) fn keeps(&self, header: &str) -> bool {
        self.kept_headers.iter().any(|kept| kept.eq_ignore_ascii_case(header))
    }

    /// The kept headers of a delivery as a JSON object with lower-case names: those of the scheme, also where
    /// the sender used the other family of names.
    pub(crate) fn kept(&self, headers: &Headers, family: Option<(&str, &str)>) -> String {
        let value = |name: &str| headers.first(&rename(name, family)).or_else(|| headers.first(name));
        let kept: BTreeMap<&str, &str> =
            self.kept_headers.iter().filter_map(|name| Some((name.as_str(), value(name)?))).collect();
        // a map of texts can always be written
        serde_json::to_string(&kept).unwrap_or_default()
    }
}

impl Sources {
    /// The key of an event whose provider gives it no id. `query` is the mark of a signed query.
    pub(crate) fn derived_key(
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
        if key.len() <= KEY_BYTES_MAX { key } else { body_key(body_sha256, query) }
    }
}

/// The key of a body without a usable id.
pub(crate) fn body_key(body_sha256: &[u8; 32], query: Option<&str>) -> String {
    let hash = hex(body_sha256);
    match query {
        Some(query) => format!("{BODY_KEY_PREFIX}{hash}:{query}"),
        None => format!("{BODY_KEY_PREFIX}{hash}"),
    }
}
