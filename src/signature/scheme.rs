//! The engine: a signature scheme as data.
//!
//! A [`Recipe`] is a scheme in the words of `[endpoint.NAME.scheme]`; a [`Scheme`] is the same, checked
//! and split into parts. The presets and the user's own schemes go through the same door, so there is
//! one reader of headers and one place where a signed string is put together (`read`).

use std::borrow::Cow;

use super::canonical::{query_mark, with_body_hash};
use super::delivery::Headers;
use super::form::{Form, is_form};
use super::malformed::Malformed;
use super::possible;
use super::projection::Projection;
use super::recipe::{CustomScheme, Recipe};
use super::secret::{Algorithm, Encoding, Key, KeyForm, Keyed, Secret};
use super::sources::{Source, Sources};
use super::time::TimeUnit;
use super::words::{is_header_name, json_pointer, non_empty, one_of, rule};

/// Keys below this are refused where the key is decoded from the secret.
const DECODED_KEY_BYTES_MIN: usize = 16;

/// The least that Standard Webhooks 1.0.0 asks for.
const DECODED_KEY_BYTES_ADVISED: usize = 24;

/// Secrets below this are refused.
const SECRET_BYTES_MIN: usize = 6;

/// What the secrets of Standard Webhooks begin with.
const WHSEC: &str = "whsec_";

/// Who wrote a recipe: some words are for presets only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Preset,
    User,
}

/// A checked scheme: how a provider signs, and where it says what about an event.
#[derive(Debug, Clone)]
pub struct Scheme {
    pub(crate) header: SignatureHeader,
    pub(crate) signature_field: Option<String>,
    pub(crate) encoding: Encoding,
    pub(crate) algorithm: Algorithm,
    pub(crate) algorithm_header: Option<String>,
    pub(crate) key: KeyForm,
    pub(crate) key_prefix: String,
    also_decoded: bool,
    pub(crate) signs_both: bool,
    pub(crate) signed: Vec<Part>,
    pub(crate) url_decoded: bool,
    pub(crate) signed_headers_header: Option<String>,
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) families: Option<[String; 2]>,
    pub(crate) form: Option<Form>,
    pub(crate) form_field_signed: bool,
    pub(crate) batch: Option<String>,
    pub(crate) nonce: Option<String>,
    pub(crate) sources: Sources,
    pub(crate) challenge: Option<Challenge>,
    /// JSON pointers of what its provider reads besides, such as a handshake.
    also_read: Vec<String>,
    /// Of the body's JSON.
    pub(crate) projection: Projection,
}

/// A text that the sender wants back, and what tells such a delivery from an event.
#[derive(Debug, Clone)]
pub(crate) struct Challenge {
    pub(crate) pointer: String,
    pub(crate) when: Source,
    pub(crate) is: String,
    /// The answer is an object with the text in it.
    pub(crate) as_json: bool,
}

/// Where signatures stand.
#[derive(Debug, Clone)]
pub(crate) struct SignatureHeader {
    /// Without the `*` of numbered headers.
    pub(crate) name: String,
    pub(crate) numbered: bool,
    pub(crate) prefix: String,
    pub(crate) prefix_optional: bool,
    pub(crate) list_separator: Option<String>,
    pub(crate) pair: Option<String>,
    /// Hex has no case, and so what stands before it has none.
    pub(crate) any_case: bool,
}

/// Where the signed time stands.
#[derive(Debug, Clone)]
pub(crate) struct Timestamp {
    pub(crate) place: TimestampPlace,
    pub(crate) unit: TimeUnit,
    /// A time as in RFC 3339 tells itself: it is read whatever the unit says.
    or_rfc3339: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum TimestampPlace {
    Header(String),
    Pair(String),
    Json(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Ts,
    Id,
    Body,
    Url,
    Method,
    // the rest is put together while a delivery is read, and only presets use it
    Json(String),
    Params,
    Path,
    SignedHeaders,
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
    ) -> Result<Self, String> {
        let mut scheme = Self::build(Origin::Preset, recipe)?;
        scheme.sources.keep(kept_headers);
        scheme.also_read = also_read.iter().map(|&pointer| pointer.to_owned()).collect();
        Ok(scheme)
    }

    /// The user's own scheme.
    ///
    /// # Errors
    /// One sentence: the key, the value, the rule and what to do.
    pub fn custom(custom: &CustomScheme) -> Result<Self, String> {
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
            "" => {
                return Err(String::from(
                    "lacks \"signature_header\"; write e.g. signature_header = \"X-Signature\"",
                ));
            }
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

    fn build(origin: Origin, recipe: &Recipe<'_>) -> Result<Self, String> {
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

    /// Keeps of a body's JSON what the scheme itself reads and what these pointers lead to.
    pub(crate) fn read_only(&mut self, pointers: &[&str]) {
        self.projection = self.own_fields(pointers);
    }

    /// What the scheme itself reads, and what these pointers lead to.
    pub(crate) fn own_fields(&self, pointers: &[&str]) -> Projection {
        let signed = self.signed.iter().filter_map(|part| match part {
            Part::Json(pointer) => Some(pointer.as_str()),
            _ => None,
        });
        let time = self.timestamp.iter().filter_map(|timestamp| match &timestamp.place {
            TimestampPlace::Json(pointer) => Some(pointer.as_str()),
            _ => None,
        });
        let own = self.sources.pointers().chain(self.signature_field.as_deref()).chain(self.nonce.as_deref());
        let own = own.chain(self.also_read.iter().map(String::as_str));
        let challenge = self.challenge.iter().flat_map(|challenge| {
            [Some(challenge.pointer.as_str()), challenge.when.pointer()].into_iter().flatten()
        });
        let own = own.chain(challenge);
        Projection::only(own.chain(signed).chain(time).chain(pointers.iter().copied()))
    }

    /// The rules that concern two keys at once.
    fn check(&self, origin: Origin, recipe: &Recipe<'_>) -> Result<(), String> {
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
    fn check_kept_headers(&self, recipe: &Recipe<'_>) -> Result<(), String> {
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

    /// Whether the signature covers the body. Money handlers refuse schemes where it does not.
    pub fn body_signed(&self) -> bool {
        !self.algorithm.is_token()
            && (self.signed.contains(&Part::Body) || self.signed.contains(&Part::Params))
    }

    /// Whether several events may come in one body.
    pub fn is_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Whether inboxd can sign for this provider: not where that takes a private key.
    pub fn can_sign(&self) -> bool {
        self.algorithm.can_sign()
    }

    /// Whether the signature covers the event's id. Where not, a captured delivery can be sent again
    /// under a new id, and only the body's hash tells.
    pub fn id_is_signed(&self) -> bool {
        self.sources.event_id.iter().all(|source| match source {
            Source::Header(_) => self.signed.contains(&Part::Id),
            Source::Json(_) | Source::Batch(_) => self.body_signed(),
        })
    }

    /// Whether the value of a header may be shown to people: that it is no signature and no credential is known.
    pub fn is_shown(&self, header: &str) -> bool {
        const HARMLESS: [&str; 6] =
            ["content-type", "content-length", "forwarded", "host", "user-agent", "x-forwarded-for"];
        HARMLESS.iter().any(|harmless| harmless.eq_ignore_ascii_case(header)) || self.sources.keeps(header)
    }

    /// Whether the signature stands in the body, where [`super::sign::with_time_and_signature`] writes it.
    pub fn signature_in_body(&self) -> bool {
        self.signature_field.is_some()
    }

    /// Whether a body that is no form is covered by its hash in the URL; see [`with_body_hash`].
    pub fn signs_form_fields(&self) -> bool {
        self.signed.contains(&Part::Params)
    }

    /// The URL under which a delivery is signed and sent: with the hash of the body in it, where the signature covers
    /// such a body in no other way.
    pub fn url_to_sign<'a>(&self, url: &'a str, content_type: &str, body: &[u8]) -> Cow<'a, str> {
        let headers = Headers::from_iter([("content-type", content_type)]);
        if !self.signs_form_fields() || body.is_empty() || is_form(&headers) {
            return Cow::Borrowed(url);
        }
        Cow::Owned(with_body_hash(url, body))
    }

    /// Whether the signed time stands inside the body, where signing anew does not change it.
    pub fn has_time_in_body(&self) -> bool {
        matches!(&self.timestamp, Some(Timestamp { place: TimestampPlace::Json(_), .. }))
    }

    /// Whether a time is signed.
    pub fn signs_time(&self) -> bool {
        self.timestamp.is_some()
    }

    /// Whether its events may name an account.
    pub fn names_account(&self) -> bool {
        self.sources.names_account()
    }

    /// Whether the public URL is part of what is signed, so that it must be configured.
    pub fn signs_url(&self) -> bool {
        self.signed.contains(&Part::Url)
    }

    /// What tells deliveries of one body apart by their queries, where the signature covers the URL: an unsigned
    /// query would make new events of one that somebody has copied.
    pub(crate) fn query_mark(&self, query: Option<&str>) -> Option<String> {
        query.filter(|_| self.signs_url()).and_then(query_mark)
    }

    /// Whether the secret can be a key of this scheme; `Ok(Some(warning))` when it is weak or odd. `elsewhere` says where
    /// it would fit if it does not here, as the end of a sentence.
    ///
    /// # Errors
    /// One sentence that names the secret by its label and never quotes it.
    pub(crate) fn check_secret(&self, secret: &Secret, elsewhere: &str) -> Result<Option<String>, String> {
        let (label, bytes) = (secret.label(), secret.expose());
        if bytes.trim_ascii().is_empty() {
            return Err(format!(
                "secret {label} is empty: anybody could sign with it; set it to what the provider shows"
            ));
        }
        let text = bytes.trim_ascii();
        if text == b"whsec_" || text.starts_with(b"v1,whsec_") || text.starts_with(b"v1a,whsk_") {
            return Err(format!(
                "secret {label} is not the whole secret, or has more around it: copy what begins with whsec_, all of it and nothing else"
            ));
        }
        let key = self
            .key
            .key_bytes(&self.key_prefix, bytes)
            .map_err(|problem| format!("secret {label} {problem}{elsewhere}"))?;
        Keyed::new(self.algorithm, &key).map_err(|problem| format!("secret {label} {problem}"))?;
        if self.key != KeyForm::Text && key.len() < DECODED_KEY_BYTES_MIN {
            return Err(format!(
                "secret {label} decodes to {} bytes, below {DECODED_KEY_BYTES_MIN}: it was cut off or is too weak; copy the whole secret",
                key.len()
            ));
        }
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(format!(
                "secret {label} is under {SECRET_BYTES_MIN} bytes and can be guessed; use a longer one"
            ));
        }
        let advised =
            if self.key == KeyForm::Text { DECODED_KEY_BYTES_MIN } else { DECODED_KEY_BYTES_ADVISED };
        let warning = if key.len() < advised {
            format!("secret {label} is a key of {} bytes; {advised} or more are advised", key.len())
        } else if self.key == KeyForm::Text && bytes.trim_ascii() != bytes {
            format!(
                "secret {label} begins or ends in white space, which is part of it; if deliveries do not verify, remove it"
            )
        } else if self.algorithm == Algorithm::Token && !elsewhere.is_empty() {
            format!("secret {label} looks like a signing secret{elsewhere}")
        } else {
            return Ok(None);
        };
        Ok(Some(warning))
    }

    /// The algorithms that a key of this scheme may be used with.
    fn algorithms(&self) -> Vec<Algorithm> {
        match self.algorithm_header {
            Some(_) => vec![Algorithm::Sha1, Algorithm::Sha256],
            None => vec![self.algorithm],
        }
    }

    /// The keys that one secret stands for, each with which one it is: the first as the scheme has it; then the
    /// other way to make one, where the provider changed from one to the other and this secret can be read so.
    ///
    /// # Errors
    /// The secret cannot be a key; the end of a sentence that names it.
    pub(crate) fn keys_of(&self, secret: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut keys = vec![self.key.key_bytes(&self.key_prefix, secret)?];
        if self.also_decoded && secret.trim_ascii().starts_with(WHSEC.as_bytes()) {
            let decoded = KeyForm::Base64.key_bytes(WHSEC, secret).ok();
            // a short key could be guessed from one delivery
            keys.extend(decoded.filter(|key| key.len() >= DECODED_KEY_BYTES_MIN));
        }
        Ok(keys)
    }

    /// A secret, ready for use with every algorithm of this scheme.
    ///
    /// # Errors
    /// As [`Scheme::keys_of`].
    pub(crate) fn key(&self, secret: Secret) -> Result<Key, String> {
        let mut keyed = Vec::new();
        for bytes in self.keys_of(secret.expose())? {
            for algorithm in self.algorithms() {
                keyed.push((algorithm, Keyed::new(algorithm, &bytes)?));
            }
        }
        Ok(Key::new(secret, keyed))
    }

    /// The header that carries the signed time, where one does.
    pub(crate) fn timestamp_header(&self) -> Option<&str> {
        match &self.timestamp.as_ref()?.place {
            TimestampPlace::Header(name) => Some(name),
            TimestampPlace::Pair(_) | TimestampPlace::Json(_) => None,
        }
    }
}

impl SignatureHeader {
    fn build(recipe: &Recipe<'_>) -> Result<Self, String> {
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

    /// Whether a header's name is the given one of ours, or one of the numbered ones.
    pub(crate) fn matches(&self, ours: &str, name: &str) -> bool {
        if !self.numbered {
            return name.eq_ignore_ascii_case(ours);
        }
        let (start, number) = name.split_at_checked(ours.len()).unwrap_or(("", ""));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        start.eq_ignore_ascii_case(ours) && digits(number)
    }

    /// One signature as the provider writes it.
    pub(crate) fn element(&self, signature: &str) -> String {
        match &self.pair {
            Some(pair) => format!("{pair}={signature}"),
            None => format!("{}{signature}", self.prefix),
        }
    }
}

impl Challenge {
    fn build(recipe: &Recipe<'_>) -> Result<Option<Self>, String> {
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
    /// Milliseconds since 1970. `place` is where the text stands.
    pub(crate) fn read(&self, text: &str, place: &str) -> Result<i128, Malformed> {
        let read = self.unit.read(text, place);
        if self.or_rfc3339 {
            read.or_else(|malformed| TimeUnit::Rfc3339.read(text, place).map_err(|_| malformed))
        } else {
            read
        }
    }

    fn build(recipe: &Recipe<'_>, or_rfc3339: bool) -> Result<Option<Self>, String> {
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

fn template(origin: Origin, text: &str) -> Result<Vec<Part>, String> {
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

fn algorithm(origin: Origin, text: &str) -> Result<Algorithm, String> {
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
