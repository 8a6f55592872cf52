//! From the words of a recipe to a scheme, or to what is wrong with them.
//!
//! A scheme that could be built can be fulfilled: what contradicts itself is refused here, with the key and the advice.

use super::form::Form;
use super::possible;
use super::projection::Projection;
use super::recipe::{CustomScheme, Recipe};
use super::scheme::{Challenge, Part, Scheme, SignatureHeader, Timestamp, TimestampPlace};
use super::secret::{Algorithm, Encoding, KeyForm};
use super::sources::{Source, Sources};
use super::time::TimeUnit;
use super::words::{SchemeError, is_header_name, json_pointer, non_empty, one_of, rule};

/// Who wrote a recipe: some words are for presets only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Preset,
    User,
}

impl Scheme {
    /// A preset's scheme: it keeps these headers with an event, and its provider reads what these pointers lead to.
    ///
    /// # Errors
    /// As [`Scheme::custom`]; every row is held against this in a test.
    pub(crate) fn of_preset(
        recipe: &Recipe<'_>,
        kept_headers: &[&str],
        also_read: &[&str],
    ) -> Result<Self, SchemeError> {
        let mut scheme = Self::build(Origin::Preset, recipe)?;
        scheme.sources.keep(kept_headers);
        scheme.also_read = also_read.iter().map(|&pointer| pointer.to_owned()).collect();
        Ok(scheme)
    }

    /// The user's own scheme.
    ///
    /// # Errors
    /// One sentence: the key, the value, the rule and what to do.
    pub fn custom(custom: &CustomScheme) -> Result<Self, SchemeError> {
        fn or<'a>(value: Option<&'a String>, default: &'a str) -> &'a str {
            value.map_or(default, String::as_str)
        }
        fn list(value: Option<&String>) -> Vec<&str> {
            value.map(String::as_str).into_iter().collect()
        }
        let plain = Recipe::PLAIN;
        let typed = or(custom.algorithm.as_ref(), plain.algorithm);
        let is_basic = typed == "basic";
        let signs_nothing = is_basic || typed == "token";
        possible::check_token(custom, signs_nothing)?;
        let header = match custom.signature_header.as_str() {
            "" if is_basic => "Authorization",
            "" => return Err(SchemeError::NoSignatureHeader),
            typed => typed,
        };
        let recipe = Recipe {
            signature_header: header,
            prefix: or(custom.prefix.as_ref(), if is_basic { "Basic " } else { "" }),
            list_separator: or(custom.list_separator.as_ref(), ""),
            pair: or(custom.pair.as_ref(), ""),
            encoding: or(custom.encoding.as_ref(), if is_basic { "base64" } else { plain.encoding }),
            algorithm: typed,
            key: or(custom.key.as_ref(), plain.key),
            key_prefix: or(custom.key_prefix.as_ref(), ""),
            signed: or(custom.signed.as_ref(), if signs_nothing { "" } else { plain.signed }),
            timestamp: or(custom.timestamp.as_ref(), ""),
            timestamp_unit: or(custom.timestamp_unit.as_ref(), plain.timestamp_unit),
            form_field: or(custom.form_field.as_ref(), ""),
            event_id: &list(custom.event_id.as_ref()),
            event_type: &list(custom.event_type.as_ref()),
            object_id: &list(custom.object_id.as_ref()),
            integer_ids: true,
            challenge: or(custom.challenge.as_ref(), ""),
            challenge_when: or(custom.challenge_when.as_ref(), ""),
            challenge_answer: or(custom.challenge_answer.as_ref(), plain.challenge_answer),
            ..plain
        };
        let scheme = Self::build(Origin::User, &recipe)?;
        possible::check(&recipe, custom)?;
        Ok(scheme)
    }

    fn build(origin: Origin, recipe: &Recipe<'_>) -> Result<Self, SchemeError> {
        let header = SignatureHeader::build(recipe)?;
        let scheme = Self {
            encoding: one_of(
                "encoding",
                recipe.encoding,
                &[("hex", Encoding::Hex), ("base64", Encoding::Base64)],
            )?,
            algorithm: algorithm(origin, recipe.algorithm)?,
            algorithm_header: non_empty(recipe.algorithm_header),
            signature_field: json_pointer("signature_field", recipe.signature_field)?,
            key: one_of(
                "key",
                recipe.key,
                &[("text", KeyForm::Text), ("base64", KeyForm::Base64), ("hex", KeyForm::Hex)],
            )?,
            key_prefix: recipe.key_prefix.to_owned(),
            also_decoded: recipe.also_decoded,
            signs_both: recipe.signs_both,
            url_decoded: recipe.url_decoded,
            signed: template(origin, recipe.signed)?,
            signed_headers_header: non_empty(recipe.signed_headers_header),
            timestamp: Timestamp::build(recipe, origin == Origin::User)?,
            families: (recipe.header_families != ["", ""]).then(|| recipe.header_families.map(str::to_owned)),
            form: Form::build(recipe),
            form_field_signed: recipe.form_field_signed,
            batch: recipe.batch.map(str::to_owned),
            nonce: json_pointer("nonce", recipe.nonce)?,
            sources: Sources::build(recipe)?,
            challenge: Challenge::build(recipe)?,
            also_read: Vec::new(),
            projection: Projection::All,
            header,
        };
        scheme.check(origin, recipe)?;
        Ok(scheme)
    }

    /// The rules that concern two keys at once.
    fn check(&self, origin: Origin, recipe: &Recipe<'_>) -> Result<(), SchemeError> {
        let uses = |part: &Part| self.signed.contains(part);
        if origin == Origin::User && !self.algorithm.is_token() && !uses(&Part::Body) {
            return Err(rule("signed", recipe.signed, "the body would not be protected; put {body} into it"));
        }
        if uses(&Part::Id) && !matches!(self.sources.event_id.as_slice(), [Source::Header(_)]) {
            return Err(rule(
                "signed",
                recipe.signed,
                "{id} is the value of a header; set event_id = \"header:NAME\"",
            ));
        }
        match self.timestamp.as_ref().map(|timestamp| &timestamp.place) {
            None if uses(&Part::Ts) => Err(rule(
                "signed",
                recipe.signed,
                "{ts} needs to be read from somewhere; set timestamp = \"header:NAME\" or \"pair:KEY\"",
            )),
            Some(TimestampPlace::Json(_)) if uses(&Part::Ts) => Err(rule(
                "timestamp",
                recipe.timestamp,
                "a time inside the body is signed with the body; take {ts} out of `signed`",
            )),
            Some(TimestampPlace::Header(_) | TimestampPlace::Pair(_))
                if !uses(&Part::Ts) && !uses(&Part::SignedHeaders) =>
            {
                Err(rule(
                    "timestamp",
                    recipe.timestamp,
                    "an unsigned time proves nothing; put {ts} into `signed` or remove `timestamp`",
                ))
            }
            Some(TimestampPlace::Pair(_)) if self.header.list_separator.is_none() || self.header.numbered => {
                Err(rule(
                    "timestamp",
                    recipe.timestamp,
                    "a pair stands in a list in one header; set list_separator, and no * in signature_header",
                ))
            }
            _ => self.check_kept_headers(recipe),
        }
    }

    /// Headers named as sources are stored, so none may carry a credential.
    fn check_kept_headers(&self, recipe: &Recipe<'_>) -> Result<(), SchemeError> {
        let secret = |name: &str| {
            self.header.matches(&self.header.name, name)
                || ["authorization", "proxy-authorization", "cookie"]
                    .iter()
                    .any(|word| name.eq_ignore_ascii_case(word))
        };
        let sources = [
            ("event_id", recipe.event_id),
            ("event_type", recipe.event_type),
            ("object_id", recipe.object_id),
        ];
        for (key, source) in
            sources.iter().flat_map(|(key, list)| list.iter().map(move |source| (key, source)))
        {
            if source.strip_prefix("header:").is_some_and(secret) {
                return Err(rule(
                    key,
                    source,
                    "this header carries a credential and is never stored; name another",
                ));
            }
        }
        Ok(())
    }
}

impl SignatureHeader {
    fn build(recipe: &Recipe<'_>) -> Result<Self, SchemeError> {
        let (name, numbered) = match recipe.signature_header.strip_suffix('*') {
            Some(name) => (name, true),
            None => (recipe.signature_header, false),
        };
        if !is_header_name(name) && recipe.signature_field.is_empty() {
            return Err(rule(
                "signature_header",
                recipe.signature_header,
                "it must be a header's name, such as X-Signature, or X-Sig-* for numbered headers",
            ));
        }
        if !recipe.pair.is_empty() && recipe.list_separator.is_empty() {
            return Err(rule(
                "pair",
                recipe.pair,
                "it picks elements of a list; set list_separator, or use prefix = \"KEY=\"",
            ));
        }
        if !recipe.pair.is_empty() && !recipe.prefix.is_empty() {
            return Err(rule(
                "prefix",
                recipe.prefix,
                "pair already says which elements are signatures; remove one of the two",
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            numbered,
            prefix: recipe.prefix.to_owned(),
            prefix_optional: recipe.prefix_optional,
            list_separator: non_empty(recipe.list_separator),
            pair: non_empty(recipe.pair),
            any_case: recipe.encoding == "hex" || matches!(recipe.algorithm, "token" | "basic"),
        })
    }
}

impl Challenge {
    fn build(recipe: &Recipe<'_>) -> Result<Option<Self>, SchemeError> {
        let as_json =
            one_of("challenge_answer", recipe.challenge_answer, &[("text", false), ("json", true)])?;
        let Some(pointer) = json_pointer("challenge", recipe.challenge)? else {
            return Ok(None);
        };
        let when = recipe.challenge_when;
        let advice =
            "write header:NAME=VALUE or json:/pointer=VALUE, so that no event is taken for a challenge";
        let (source, is) = when.split_once('=').ok_or_else(|| rule("challenge_when", when, advice))?;
        let when =
            Source::parse("challenge_when", source).map_err(|_| rule("challenge_when", when, advice))?;
        Ok(Some(Self { pointer, when, is: is.to_owned(), as_json }))
    }
}

impl Timestamp {
    fn build(recipe: &Recipe<'_>, or_rfc3339: bool) -> Result<Option<Self>, SchemeError> {
        let unit = one_of("timestamp_unit", recipe.timestamp_unit, &TimeUnit::WORDS)?;
        let text = recipe.timestamp;
        let place = match text.split_once(':') {
            None if text.is_empty() => return Ok(None),
            Some(("header", name)) if is_header_name(name) => TimestampPlace::Header(name.to_owned()),
            Some(("pair", key)) if !key.is_empty() => TimestampPlace::Pair(key.to_owned()),
            Some(("json", pointer)) if pointer.starts_with('/') => TimestampPlace::Json(pointer.to_owned()),
            _ => {
                return Err(rule("timestamp", text, "write header:NAME, pair:KEY or json:/pointer"));
            }
        };
        Ok(Some(Self { place, unit, or_rfc3339 }))
    }
}

fn template(origin: Origin, text: &str) -> Result<Vec<Part>, SchemeError> {
    const PLACEHOLDERS: &str = "the placeholders are {ts} {id} {body} {url} {method}";
    let bad = |what: &str| Err(rule("signed", text, &format!("{what}; {PLACEHOLDERS}")));
    let (mut parts, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let literal = rest.find(['{', '}']).unwrap_or(rest.len());
        if literal > 0 {
            parts.push(Part::Text(rest[..literal].to_owned()));
            rest = &rest[literal..];
            continue;
        }
        let Some(inner) = rest.strip_prefix('{') else {
            return bad("a brace is closed that was not opened");
        };
        let Some((word, after)) = inner.split_once('}') else {
            return bad("a brace is not closed");
        };
        parts.push(match placeholder(origin, word) {
            Some(part) => part,
            None => return bad(&format!("{{{word}}} is unknown")),
        });
        rest = after;
    }
    Ok(parts)
}

fn placeholder(origin: Origin, word: &str) -> Option<Part> {
    Some(match word {
        "ts" => Part::Ts,
        "id" => Part::Id,
        "body" => Part::Body,
        "url" => Part::Url,
        "method" => Part::Method,
        _ if origin == Origin::User => return None,
        "params" => Part::Params,
        "path" => Part::Path,
        "signed_headers" => Part::SignedHeaders,
        word => Part::Json(word.strip_prefix("json:")?.to_owned()),
    })
}

fn algorithm(origin: Origin, text: &str) -> Result<Algorithm, SchemeError> {
    const ALGORITHMS: [(&str, Algorithm); 6] = [
        ("sha256", Algorithm::Sha256),
        ("sha1", Algorithm::Sha1),
        ("sha384", Algorithm::Sha384),
        ("sha512", Algorithm::Sha512),
        ("token", Algorithm::Token),
        ("basic", Algorithm::Basic),
    ];
    match text {
        "ed25519" if origin == Origin::Preset => Ok(Algorithm::Ed25519),
        "ecdsa-p256" if origin == Origin::Preset => Ok(Algorithm::EcdsaP256),
        text => one_of("algorithm", text, &ALGORITHMS),
    }
}
