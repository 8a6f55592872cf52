//! The engine: a signature scheme as data.
//!
//! A [`Recipe`] is a scheme in the words of `[endpoint.NAME.scheme]`; a [`Scheme`] is the same, checked
//! and split into parts. The presets and the user's own schemes go through the same door, so there is
//! one reader of headers and one place where a signed string is put together. Nothing here parses a body
//! before its signature holds, with one exception: Mailgun's signature stands inside it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::canonical;
use super::identity::{self, Form, Parsed, Source, Sources, at};
use super::presets::{self, BodyVaries, Preset};
use super::secret::{Algorithm, Encoding, Judge, KeyForm, Keyed, Signature};
use super::{Delivery, Headers, Rejection, Secret};

/// More signatures than any provider sends while it rotates keys; further ones are not tried.
pub(super) const SIGNATURES_MAX: usize = 16;

/// Keys below this are refused where the key is decoded from the secret.
const DECODED_KEY_BYTES_MIN: usize = 16;

/// The least that Standard Webhooks 1.0.0 asks for.
const DECODED_KEY_BYTES_ADVISED: usize = 24;

/// Secrets below this are refused.
const SECRET_BYTES_MIN: usize = 6;

/// The provider's name where the scheme is the user's own.
const CUSTOM: &str = "custom";

/// `[endpoint.NAME.scheme]`: the user's own scheme, as typed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CustomScheme {
    /// The header that carries the signature; `X-Sig-*` for numbered headers.
    pub signature_header: String,
    /// What stands before the signature, or before each one of a list, such as `sha256=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Splits the header's value into elements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_separator: Option<String>,
    /// Elements are KEY=VALUE; those with this key are signatures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<String>,
    /// `hex` (default) or `base64`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// `sha256` (default) or `sha1`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// `text` (default), `base64` or `hex`: how the secret becomes the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Stripped from the secret first, where it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_prefix: Option<String>,
    /// What is signed, with `{ts}` `{id}` `{body}` `{url}` `{method}`. Default: `{body}`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed: Option<String>,
    /// `header:NAME`, `pair:KEY` or `json:/pointer`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// `s` (default) or `ms`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp_unit: Option<String>,
    /// `header:NAME` or `json:/pointer`. Without it the body's hash is the event's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// `header:NAME` or `json:/pointer`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// `header:NAME` or `json:/pointer`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_id: Option<String>,
    /// The form field that holds the JSON, where the body is a form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form_field: Option<String>,
}

/// A scheme in the words of the configuration; an empty text means "not used".
#[derive(Debug, Clone, Copy)]
pub struct Recipe<'a> {
    /// The header that carries the signature; `X-Sig-*` for numbered headers.
    pub signature_header: &'a str,
    /// `json:/pointer`: the signature stands inside the body instead (presets only).
    pub signature_field: &'a str,
    /// What stands before each signature.
    pub prefix: &'a str,
    /// A signature without the prefix is a signature too.
    pub prefix_optional: bool,
    /// Splits the header's value into elements.
    pub list_separator: &'a str,
    /// White space around an element is not part of it.
    pub list_trimmed: bool,
    /// Elements are KEY=VALUE; those with this key are signatures.
    pub pair: &'a str,
    /// `hex` or `base64`
    pub encoding: &'a str,
    /// `sha256` or `sha1`; presets also `token`, `ed25519` and `ecdsa-p256`
    pub algorithm: &'a str,
    /// A header whose `algorithm=HMAC_SHA256` makes it SHA-256 instead (presets only).
    pub algorithm_header: &'a str,
    /// `text`, `base64` or `hex`
    pub key: &'a str,
    /// Stripped from the secret first, where it is there.
    pub key_prefix: &'a str,
    /// What is signed. Presets also use `{json:/pointer}`, `{params}` (the fields of a form, sorted),
    /// `{path}` and `{signed_headers}`.
    pub signed: &'a str,
    /// The header that lists the signed headers, for `{signed_headers}`.
    pub signed_headers_header: &'a str,
    /// `header:NAME`, `pair:KEY` or `json:/pointer`
    pub timestamp: &'a str,
    /// `s` or `ms`
    pub timestamp_unit: &'a str,
    /// `["webhook-", "svix-"]`: every header of the scheme that begins with one may begin with the other.
    pub header_families: [&'a str; 2],
    /// The form field that holds the JSON, where the body is a form.
    pub form_field: &'a str,
    /// In a form, `{body}` is that field's decoded text instead of the raw bytes.
    pub form_field_signed: bool,
    /// A form without that field is read as an object of its fields.
    pub form_params: bool,
    /// What `event_id` names is in a form no event's id; `event_key` is used instead.
    pub form_has_no_id: bool,
    /// Several events in one body: the JSON pointer of their list (`""`: the body is the list). What is
    /// said below is then looked for in each element, and with `batch:/pointer` in the body around them.
    pub batch: Option<&'a str>,
    /// Where the event's id is; the first source present counts.
    pub event_id: &'a [&'a str],
    /// Where the provider gives no id: what the key is made of, joined by colons. `body-sha256` is the
    /// body's hash, `arrival` our time of receipt (every delivery is then an event of its own).
    pub event_key: &'a [&'a str],
    /// `json:/pointer` of a value that is used once, for signatures that do not cover the body.
    pub nonce: &'a str,
    /// Where its type is.
    pub event_type: &'a [&'a str],
    /// Where the second half of its type is, joined with a dot.
    pub event_action: &'a str,
    /// Where the id of the business object is.
    pub object_id: &'a [&'a str],
    /// Where the provider's account is named.
    pub account: &'a [&'a str],
    /// Where `true` means live and `false` means test.
    pub livemode: &'a [&'a str],
    /// Where the version of the body's shape is.
    pub api_version: &'a [&'a str],
    /// Ids may be JSON integers; their decimal text counts.
    pub integer_ids: bool,
}

impl Recipe<'_> {
    /// HMAC-SHA256 of the body in lower-case hex, keyed with the secret's text.
    pub const PLAIN: Recipe<'static> = Recipe {
        signature_header: "",
        signature_field: "",
        prefix: "",
        prefix_optional: false,
        list_separator: "",
        list_trimmed: false,
        pair: "",
        encoding: "hex",
        algorithm: "sha256",
        algorithm_header: "",
        key: "text",
        key_prefix: "",
        signed: "{body}",
        signed_headers_header: "",
        timestamp: "",
        timestamp_unit: "s",
        header_families: ["", ""],
        form_field: "",
        form_field_signed: false,
        form_params: false,
        form_has_no_id: false,
        batch: None,
        event_id: &[],
        event_key: &[],
        nonce: "",
        event_type: &[],
        event_action: "",
        object_id: &[],
        account: &[],
        livemode: &[],
        api_version: &[],
        integer_ids: false,
    };
}

/// A checked scheme: how a provider signs, and where it says what about an event.
#[derive(Debug, Clone)]
pub struct Scheme {
    name: String,
    preset: Option<&'static Preset>,
    pub(super) header: SignatureHeader,
    pub(super) signature_field: Option<String>,
    pub(super) encoding: Encoding,
    pub(super) algorithm: Algorithm,
    algorithm_header: Option<String>,
    pub(super) key: KeyForm,
    pub(super) key_prefix: String,
    signed: Vec<Part>,
    pub(super) signed_headers_header: Option<String>,
    pub(super) timestamp: Option<Timestamp>,
    families: Option<[String; 2]>,
    pub(super) form: Option<Form>,
    form_field_signed: bool,
    pub(super) batch: Option<String>,
    pub(super) nonce: Option<String>,
    pub(super) sources: Sources,
}

/// Where signatures stand.
#[derive(Debug, Clone)]
pub(super) struct SignatureHeader {
    /// Without the `*` of numbered headers.
    pub(super) name: String,
    pub(super) numbered: bool,
    pub(super) prefix: String,
    prefix_optional: bool,
    pub(super) list_separator: Option<String>,
    list_trimmed: bool,
    pub(super) pair: Option<String>,
}

/// Where the signed time stands.
#[derive(Debug, Clone)]
pub(super) struct Timestamp {
    pub(super) place: TimestampPlace,
    /// 1000 for seconds, 1 for milliseconds.
    pub(super) unit_ms: i64,
}

#[derive(Debug, Clone)]
pub(super) enum TimestampPlace {
    Header(String),
    Pair(String),
    Json(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
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
    /// A preset's scheme.
    ///
    /// # Errors
    /// There is no preset of that name; the text lists those that exist.
    pub fn named(provider: &str) -> Result<Self, String> {
        let preset = presets::find(provider).ok_or_else(|| {
            let known: Vec<_> = presets::all().iter().map(|preset| preset.name).collect();
            format!(
                "provider = {provider:?}: there is no such preset; use one of {}, or \"custom\" with a [scheme] table",
                known.join(", ")
            )
        })?;
        let mut scheme = Self::build(preset.name, &preset.recipe)?;
        scheme.sources.keep(preset.kept_headers);
        scheme.preset = Some(preset);
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
        let scheme = Self::build(
            CUSTOM,
            &Recipe {
                signature_header: &custom.signature_header,
                prefix: or(custom.prefix.as_ref(), ""),
                list_separator: or(custom.list_separator.as_ref(), ""),
                pair: or(custom.pair.as_ref(), ""),
                encoding: or(custom.encoding.as_ref(), plain.encoding),
                algorithm: or(custom.algorithm.as_ref(), plain.algorithm),
                key: or(custom.key.as_ref(), plain.key),
                key_prefix: or(custom.key_prefix.as_ref(), ""),
                signed: or(custom.signed.as_ref(), plain.signed),
                timestamp: or(custom.timestamp.as_ref(), ""),
                timestamp_unit: or(custom.timestamp_unit.as_ref(), plain.timestamp_unit),
                form_field: or(custom.form_field.as_ref(), ""),
                event_id: &list(custom.event_id.as_ref()),
                event_type: &list(custom.event_type.as_ref()),
                object_id: &list(custom.object_id.as_ref()),
                integer_ids: true,
                ..plain
            },
        )?;
        if custom.timestamp_unit.is_some() && scheme.timestamp.is_none() {
            return Err(rule(
                "timestamp_unit",
                or(custom.timestamp_unit.as_ref(), ""),
                "there is no timestamp it could be the unit of; set `timestamp` or remove it",
            ));
        }
        Ok(scheme)
    }

    fn build(name: &str, recipe: &Recipe<'_>) -> Result<Self, String> {
        let header = SignatureHeader::build(recipe)?;
        let scheme = Self {
            name: name.to_owned(),
            preset: None,
            encoding: one_of(
                "encoding",
                recipe.encoding,
                &[("hex", Encoding::Hex), ("base64", Encoding::Base64)],
            )?,
            algorithm: algorithm(name, recipe.algorithm)?,
            algorithm_header: non_empty(recipe.algorithm_header),
            signature_field: json_pointer("signature_field", recipe.signature_field)?,
            key: one_of(
                "key",
                recipe.key,
                &[("text", KeyForm::Text), ("base64", KeyForm::Base64), ("hex", KeyForm::Hex)],
            )?,
            key_prefix: recipe.key_prefix.to_owned(),
            signed: template(name, recipe.signed)?,
            signed_headers_header: non_empty(recipe.signed_headers_header),
            timestamp: Timestamp::build(recipe)?,
            families: (recipe.header_families != ["", ""]).then(|| recipe.header_families.map(str::to_owned)),
            form: Form::build(recipe),
            form_field_signed: recipe.form_field_signed,
            batch: recipe.batch.map(str::to_owned),
            nonce: json_pointer("nonce", recipe.nonce)?,
            sources: Sources::build(recipe)?,
            header,
        };
        scheme.check(recipe)?;
        Ok(scheme)
    }

    /// The rules that concern two keys at once.
    fn check(&self, recipe: &Recipe<'_>) -> Result<(), String> {
        let uses = |part: &Part| self.signed.contains(part);
        if self.name == CUSTOM && !uses(&Part::Body) {
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

    /// The preset's name, or `custom`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The preset this scheme was built from.
    pub fn preset(&self) -> Option<&'static Preset> {
        self.preset
    }

    /// How the provider behaves and what it wants of us, for what is not about the signature; as usual where
    /// the scheme is the user's own.
    pub fn behaviour(&self) -> &'static Preset {
        self.preset.unwrap_or(&Preset::PLAIN)
    }

    /// Whether two attempts of one event may have different bodies.
    pub fn body_varies(&self) -> BodyVaries {
        self.behaviour().body_varies
    }

    /// The provider's own limit on bodies, in bytes, where it is above the usual default.
    pub fn body_bytes_max(&self) -> Option<usize> {
        self.behaviour().body_bytes_max
    }

    /// How far a signed time may be from now, in seconds, unless the endpoint says otherwise.
    pub fn tolerance_s(&self) -> u32 {
        self.behaviour().tolerance_s
    }

    /// Whether the signature covers the body. Money handlers refuse schemes where it does not.
    pub fn body_signed(&self) -> bool {
        self.algorithm != Algorithm::Token
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

    /// Whether a delivery can come again under another id without anybody noticing but by its body. Of no
    /// use where every attempt has another body.
    pub fn has_replay_key(&self) -> bool {
        self.nonce.is_some() || !self.id_is_signed() && self.body_varies() != BodyVaries::Yes
    }

    /// Whether the signature covers the event's id. Where not, a captured delivery can be sent again
    /// under a new id, and only the body's hash tells.
    pub fn id_is_signed(&self) -> bool {
        self.sources.event_id.iter().all(|source| match source {
            Source::Header(_) => self.signed.contains(&Part::Id),
            Source::Json(_) | Source::Batch(_) => self.body_signed(),
        })
    }

    /// Whether the signature stands in the body, where [`super::with_time_and_signature`] writes it.
    pub fn signature_in_body(&self) -> bool {
        self.signature_field.is_some()
    }

    /// Whether a body that is no form is covered by its hash in the URL; see [`super::with_body_hash`].
    pub fn signs_form_fields(&self) -> bool {
        self.signed.contains(&Part::Params)
    }

    /// Whether the public URL is part of what is signed, so that it must be configured.
    pub fn signs_url(&self) -> bool {
        self.signed.contains(&Part::Url)
    }

    /// Whether the secret can be a key of this scheme; `Ok(Some(warning))` when it is weak or odd.
    ///
    /// # Errors
    /// One sentence that names the secret by its label and never quotes it.
    pub fn check_secret(&self, secret: &Secret) -> Result<Option<String>, String> {
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
            .map_err(|problem| format!("secret {label} {problem}"))?;
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
        } else {
            return Ok(None);
        };
        Ok(Some(warning))
    }

    /// What a delivery presents, read strictly.
    pub(super) fn present<'a>(&self, delivery: &Delivery<'a>) -> Result<Presented<'a>, Flaw> {
        let headers = delivery.headers;
        let renamed = self.family(headers);
        let algorithm = self.algorithm_named(headers)?;
        let parsed = self.parsed_first(delivery);
        let (candidates, pair_times, id) = match &self.signature_field {
            Some(pointer) => {
                let text = parsed.as_ref().and_then(|parsed| at(&parsed.json, pointer)?.as_str());
                let text = text.filter(|text| !text.is_empty()).ok_or(Flaw::NoSignature)?;
                (self.elements(&[text], algorithm)?.0, Vec::new(), "")
            }
            None => {
                let values = self.header.values(headers, &rename(&self.header.name, renamed))?;
                self.check_families(headers)?;
                let id = self.signed_id(headers, renamed)?;
                let (candidates, times) = self.elements(&values, algorithm)?;
                (candidates, times, id)
            }
        };
        let place = self.timestamp.as_ref().map(|timestamp| &timestamp.place);
        let ts = match place {
            Some(TimestampPlace::Header(header)) => single(headers, &rename(header, renamed))?,
            Some(TimestampPlace::Pair(_)) => match pair_times.as_slice() {
                [] => None,
                [one] => Some(*one),
                _ => return Err(Flaw::TimestampRepeated),
            },
            Some(TimestampPlace::Json(_)) | None => Some(""),
        }
        .ok_or(Flaw::TimestampMissing)?;
        let in_message = matches!(place, Some(TimestampPlace::Header(_) | TimestampPlace::Pair(_)));
        Ok(Presented {
            algorithm,
            candidates,
            id,
            ts,
            signed_at: if in_message { Some(plain_decimal(ts)?) } else { None },
            body: self.signed_body(delivery),
            made: self.made(delivery, parsed.as_ref())?,
            parsed,
        })
    }

    /// The body as JSON (of a form: the JSON inside, or its fields), or why it is none.
    pub(super) fn parse(&self, headers: &Headers, body: &[u8]) -> Parsed {
        identity::parse(self.form.as_ref(), headers, body)
    }

    /// The same where it takes the JSON to find the signature or what it is over: before anything is verified.
    pub(super) fn parsed_first(&self, delivery: &Delivery<'_>) -> Option<Parsed> {
        let signs_fields = self.signed.iter().any(|part| matches!(part, Part::Json(_)));
        (signs_fields || self.signature_field.is_some()).then(|| self.parse(delivery.headers, delivery.body))
    }

    /// The id, where it is part of what is signed; else nothing.
    fn signed_id<'a>(&self, headers: &'a Headers, renamed: Option<(&str, &str)>) -> Result<&'a str, Flaw> {
        match self.sources.event_id.first() {
            Some(Source::Header(id)) if self.signed.contains(&Part::Id) => {
                let id = rename(id, renamed);
                let value = single(headers, &id)?.filter(|value| !value.is_empty());
                let value = value.ok_or_else(|| Flaw::NoId(id.into_owned()))?;
                self.check_id(value)?;
                Ok(value)
            }
            _ => Ok(""),
        }
    }

    /// Twilio's shared keys: the header is not signed, but it only chooses between two sound MACs.
    fn algorithm_named(&self, headers: &Headers) -> Result<Algorithm, Flaw> {
        let Some(name) = &self.algorithm_header else {
            return Ok(self.algorithm);
        };
        let settings = single(headers, name)?.unwrap_or_default().split(',');
        let named =
            settings.filter_map(|pair| pair.split_once('=')).find(|(key, _)| key.trim() == "algorithm");
        match named.map(|(_, value)| value.trim()) {
            None | Some("") => Ok(self.algorithm),
            Some(word) if word.eq_ignore_ascii_case("HMAC_SHA1") => Ok(Algorithm::Sha1),
            Some(word) if word.eq_ignore_ascii_case("HMAC_SHA256") => Ok(Algorithm::Sha256),
            Some(_) => Err(Flaw::AlgorithmUnknown(name.clone())),
        }
    }

    /// The algorithms that a key of this scheme may be used with.
    pub(super) fn algorithms(&self) -> Vec<Algorithm> {
        match self.algorithm_header {
            Some(_) => vec![Algorithm::Sha1, Algorithm::Sha256],
            None => vec![self.algorithm],
        }
    }

    /// Holds the signatures of a delivery against one key.
    pub(super) fn judge<'k>(
        &self,
        keyed: &'k Keyed,
        delivery: &Delivery<'_>,
        presented: &Presented<'_>,
    ) -> Judge<'k> {
        keyed.judge(self.pieces(delivery, presented))
    }

    /// What is signed, piece by piece.
    pub(super) fn pieces<'p>(
        &'p self,
        delivery: &'p Delivery<'_>,
        presented: &'p Presented<'_>,
    ) -> impl Iterator<Item = &'p [u8]> {
        let mut made = presented.made.iter();
        self.signed.iter().map(move |part| match part {
            Part::Text(text) => text.as_bytes(),
            Part::Ts => presented.ts.as_bytes(),
            Part::Id => presented.id.as_bytes(),
            Part::Body => &presented.body,
            Part::Url => delivery.url.as_bytes(),
            Part::Method => delivery.method.as_bytes(),
            Part::Json(_) | Part::Params | Part::Path | Part::SignedHeaders => {
                made.next().map_or(&b""[..], Vec::as_slice)
            }
        })
    }

    /// The pieces that have to be put together first, in the order of the template. `parsed` is what
    /// [`Scheme::parsed_first`] says.
    pub(super) fn made(
        &self,
        delivery: &Delivery<'_>,
        parsed: Option<&Parsed>,
    ) -> Result<Vec<Vec<u8>>, Flaw> {
        let mut made = Vec::new();
        for part in &self.signed {
            made.push(match part {
                Part::Text(_) | Part::Ts | Part::Id | Part::Body | Part::Url | Part::Method => continue,
                Part::Json(pointer) => {
                    let value = parsed.and_then(|parsed| at(&parsed.json, pointer));
                    canonical::text(value).ok_or(Flaw::TimestampMissing)?.into_bytes()
                }
                Part::Params => canonical::params(delivery)?,
                Part::Path => canonical::path(delivery.url),
                Part::SignedHeaders => {
                    let list = self.signed_headers_header.as_deref().unwrap_or_default();
                    canonical::signed_headers(delivery.headers, list, self.timestamp_header())?
                }
            });
        }
        Ok(made)
    }

    /// The header that carries the signed time, where one does.
    pub(super) fn timestamp_header(&self) -> Option<&str> {
        match &self.timestamp.as_ref()?.place {
            TimestampPlace::Header(name) => Some(name),
            TimestampPlace::Pair(_) | TimestampPlace::Json(_) => None,
        }
    }

    pub(super) fn signed_body<'a>(&self, delivery: &Delivery<'a>) -> Cow<'a, [u8]> {
        match &self.form {
            Some(form) if self.form_field_signed => {
                form.json(delivery.headers, delivery.body).unwrap_or(Cow::Borrowed(delivery.body))
            }
            _ => Cow::Borrowed(delivery.body),
        }
    }

    /// The names this delivery uses: the first family that is complete, else the one with a signature.
    pub(super) fn family<'s>(&'s self, headers: &Headers) -> Option<(&'s str, &'s str)> {
        let [first, second] = self.families.as_ref()?;
        let own = if self.header.name.starts_with(first.as_str()) { first } else { second };
        let other = if own == first { second } else { first };
        let has = |name: &str, to: &str| headers.first(&rename(name, Some((own, to)))).is_some();
        let complete = |to: &str| self.family_headers().all(|name| has(name, to));
        let signed = |to: &str| has(&self.header.name, to);
        [own, other]
            .into_iter()
            .find(|to| complete(to))
            .or_else(|| [own, other].into_iter().find(|to| signed(to)))
            .map(|to| (own.as_str(), to.as_str()))
    }

    /// Where both families are present they must say the same, or which of them was signed is anybody's guess.
    fn check_families(&self, headers: &Headers) -> Result<(), Flaw> {
        let Some([first, second]) = &self.families else {
            return Ok(());
        };
        for name in self.family_headers() {
            let other = if name.starts_with(first.as_str()) {
                rename(name, Some((first, second)))
            } else {
                rename(name, Some((second, first)))
            };
            if let (Some(one), Some(two)) = (headers.first(name), headers.first(&other))
                && one != two
            {
                return Err(Flaw::NamesDisagree(name.to_owned(), other.into_owned()));
            }
        }
        Ok(())
    }

    fn family_headers(&self) -> impl Iterator<Item = &str> {
        let id = self.sources.event_id.iter().filter_map(Source::header);
        std::iter::once(self.header.name.as_str()).chain(id).chain(self.timestamp_header())
    }

    /// `{id}.{ts}.{body}` with the id `a.1700000000` reads like the id `a` signed at that time: an id
    /// that holds what could be the time is refused (Standard Webhooks: ids must not contain a dot).
    fn check_id(&self, id: &str) -> Result<(), Flaw> {
        let separator = self.signed.windows(2).find_map(|pair| match pair {
            [Part::Id, Part::Text(text)] => Some(text.as_str()),
            _ => None,
        });
        let like_time = |piece: &str| piece.len() >= 10 && piece.bytes().all(|byte| byte.is_ascii_digit());
        match separator {
            Some(separator) if id.split(separator).skip(1).any(like_time) => Err(Flaw::IdAmbiguous),
            _ => Ok(()),
        }
    }

    /// The well-formed signatures, and the values of the timestamp's pair.
    fn elements<'a>(
        &self,
        values: &[&'a str],
        algorithm: Algorithm,
    ) -> Result<(Vec<Signature>, Vec<&'a str>), Flaw> {
        let ts_key = match self.timestamp.as_ref().map(|timestamp| &timestamp.place) {
            Some(TimestampPlace::Pair(key)) => Some(key.as_str()),
            _ => None,
        };
        let (mut candidates, mut times, mut labelled) = (Vec::new(), Vec::new(), 0);
        for element in values.iter().flat_map(|value| self.header.split(value)) {
            if let (Some((key, value)), Some(ts_key)) = (element.split_once('='), ts_key)
                && key == ts_key
            {
                times.push(value);
            } else if let Some(text) = self.header.signature(element) {
                labelled += 1;
                candidates.extend(Signature::decode(text, self.encoding, algorithm));
            }
        }
        match candidates.len() {
            0 if labelled == 0 => Err(Flaw::NoneLabelled),
            0 => Err(Flaw::NoneWellFormed),
            1..=SIGNATURES_MAX => Ok((candidates, times)),
            _ => Err(Flaw::TooMany),
        }
    }
}

/// What a delivery presents.
pub(super) struct Presented<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) candidates: Vec<Signature>,
    pub(super) id: &'a str,
    /// As sent: the signature covers this text, not the number.
    pub(super) ts: &'a str,
    /// In the scheme's unit. `None` where no time is signed, or where it is in the body.
    pub(super) signed_at: Option<i64>,
    pub(super) body: Cow<'a, [u8]>,
    /// See [`Scheme::made`].
    pub(super) made: Vec<Vec<u8>>,
    /// See [`Scheme::parsed_first`]; to be used again once the signature holds.
    pub(super) parsed: Option<Parsed>,
}

/// What is wrong with the headers of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Flaw {
    NoSignature,
    SeveralLines(String),
    NamesDisagree(String, String),
    NoneLabelled,
    NoneWellFormed,
    TooMany,
    TimestampMissing,
    TimestampRepeated,
    TimestampNotDecimal,
    NoId(String),
    IdAmbiguous,
    AlgorithmUnknown(String),
    /// A listed header is missing, or the time is not among them.
    SignedHeadersOdd(String),
    /// Neither a form nor a hash in the URL: the signature says nothing about this body.
    BodyUncovered,
    /// The hash in the signed URL is another body's.
    BodyHashDiffers,
}

impl Flaw {
    pub(super) fn rejection(&self) -> Rejection {
        match self {
            Self::NoSignature => Rejection::SignatureMissing,
            Self::NoId(_) => Rejection::EventIdMissing,
            Self::BodyHashDiffers => Rejection::SignatureMismatch,
            Self::AlgorithmUnknown(_)
            | Self::SignedHeadersOdd(_)
            | Self::BodyUncovered
            | Self::SeveralLines(_)
            | Self::NamesDisagree(..)
            | Self::NoneLabelled
            | Self::NoneWellFormed
            | Self::TooMany
            | Self::TimestampMissing
            | Self::TimestampRepeated
            | Self::TimestampNotDecimal
            | Self::IdAmbiguous => Rejection::SignatureMalformed,
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
            list_trimmed: recipe.list_trimmed,
            pair: non_empty(recipe.pair),
        })
    }

    /// Whether a header's name is the given one of ours, or one of the numbered ones.
    fn matches(&self, ours: &str, name: &str) -> bool {
        if !self.numbered {
            return name.eq_ignore_ascii_case(ours);
        }
        let (start, number) = name.split_at_checked(ours.len()).unwrap_or(("", ""));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        start.eq_ignore_ascii_case(ours) && digits(number)
    }

    /// The header's lines. `ours` is its name in this delivery.
    fn values<'a>(&self, headers: &'a Headers, ours: &str) -> Result<Vec<&'a str>, Flaw> {
        let ours_only = headers.iter().filter(|(name, _)| self.matches(ours, name));
        let lines: Vec<_> = ours_only.map(|(_, value)| value).collect();
        match lines.as_slice() {
            lines if lines.iter().all(|line| line.trim().is_empty()) => Err(Flaw::NoSignature),
            [_, _, ..] if !self.numbered => Err(Flaw::SeveralLines(ours.to_owned())),
            _ => Ok(lines),
        }
    }

    /// The elements of one line.
    fn split<'a>(&self, value: &'a str) -> impl Iterator<Item = &'a str> {
        let separator = self.list_separator.as_deref();
        let elements = separator.into_iter().flat_map(move |separator| value.split(separator));
        let whole = separator.is_none().then_some(value);
        let trimmed = self.list_trimmed;
        elements.chain(whole).map(move |one| if trimmed { one.trim_matches([' ', '\t']) } else { one })
    }

    /// The signature's text, if the element is one of ours.
    fn signature<'a>(&self, element: &'a str) -> Option<&'a str> {
        match (&self.pair, element.strip_prefix(self.prefix.as_str())) {
            (Some(pair), _) => element.split_once('=').filter(|(key, _)| key == pair).map(|(_, value)| value),
            (None, Some(rest)) => Some(rest),
            (None, None) => self.prefix_optional.then_some(element),
        }
        .filter(|text| !text.is_empty())
    }

    /// One signature as the provider writes it.
    pub(super) fn element(&self, signature: &str) -> String {
        match &self.pair {
            Some(pair) => format!("{pair}={signature}"),
            None => format!("{}{signature}", self.prefix),
        }
    }
}

impl Timestamp {
    fn build(recipe: &Recipe<'_>) -> Result<Option<Self>, String> {
        let unit_ms = one_of("timestamp_unit", recipe.timestamp_unit, &[("s", 1000), ("ms", 1)])?;
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
        Ok(Some(Self { place, unit_ms }))
    }
}

/// Digits without sign, blank or leading zero, that fit an `i64`.
pub(super) fn plain_decimal(text: &str) -> Result<i64, Flaw> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| plain).ok_or(Flaw::TimestampNotDecimal)
}

/// `scheme.KEY = "VALUE": RULE`
pub(super) fn rule(key: &str, value: &str, rule: &str) -> String {
    format!("scheme.{key} = {value:?}: {rule}")
}

pub(super) fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&byte))
}

/// A header's only value. A second line, even an equal one, is refused.
pub(super) fn single<'a>(headers: &'a Headers, name: &str) -> Result<Option<&'a str>, Flaw> {
    let mut values = headers.all(name);
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Flaw::SeveralLines(name.to_owned())),
        (value, None) => Ok(value),
    }
}

/// A header's name as this delivery writes it.
pub(super) fn rename<'a>(name: &'a str, renamed: Option<(&str, &str)>) -> Cow<'a, str> {
    match renamed.and_then(|(from, to)| Some((name.strip_prefix(from)?, to))) {
        Some((rest, to)) => Cow::Owned(format!("{to}{rest}")),
        None => Cow::Borrowed(name),
    }
}

fn template(name: &str, text: &str) -> Result<Vec<Part>, String> {
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
        parts.push(match placeholder(name, word) {
            Some(part) => part,
            None => return bad(&format!("{{{word}}} is unknown")),
        });
        rest = after;
    }
    Ok(parts)
}

fn placeholder(name: &str, word: &str) -> Option<Part> {
    Some(match word {
        "ts" => Part::Ts,
        "id" => Part::Id,
        "body" => Part::Body,
        "url" => Part::Url,
        "method" => Part::Method,
        _ if name == CUSTOM => return None,
        "params" => Part::Params,
        "path" => Part::Path,
        "signed_headers" => Part::SignedHeaders,
        word => Part::Json(word.strip_prefix("json:")?.to_owned()),
    })
}

fn algorithm(name: &str, text: &str) -> Result<Algorithm, String> {
    const MACS: [(&str, Algorithm); 2] = [("sha256", Algorithm::Sha256), ("sha1", Algorithm::Sha1)];
    match text {
        "token" if name != CUSTOM => Ok(Algorithm::Token),
        "ed25519" if name != CUSTOM => Ok(Algorithm::Ed25519),
        "ecdsa-p256" if name != CUSTOM => Ok(Algorithm::EcdsaP256),
        text => one_of("algorithm", text, &MACS),
    }
}

/// The pointer of a `json:/pointer`; `None` where nothing is named.
fn json_pointer(key: &str, text: &str) -> Result<Option<String>, String> {
    match text.strip_prefix("json:") {
        None if text.is_empty() => Ok(None),
        Some(pointer) if pointer.starts_with('/') => Ok(Some(pointer.to_owned())),
        _ => Err(rule(key, text, "write json:/pointer")),
    }
}

fn one_of<T: Copy>(key: &str, value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    choices.iter().find(|(word, _)| *word == value).map(|(_, choice)| *choice).ok_or_else(|| {
        let words: Vec<_> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
        rule(key, value, &format!("use {}", words.join(" or ")))
    })
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Unsigned, Verifier, sign};
    use super::*;

    const SECRET: &str = "sixteen bytes or more";

    fn verifier(scheme: &Scheme) -> Verifier {
        let secrets = vec![Secret::new("env:SECRET", SECRET)];
        Verifier::new(scheme.clone(), secrets, Duration::from_secs(300)).unwrap()
    }

    fn signature(scheme: &Scheme, content_type: &str, body: &[u8]) -> (String, String) {
        let unsigned = Unsigned {
            method: "POST",
            url: "",
            content_type,
            event_id: "",
            event_type: None,
            signed_at_s: 1_700_000_000,
            body,
        };
        let mut headers = sign(scheme, &Secret::new("env:SECRET", SECRET), &unsigned).unwrap();
        headers.pop().unwrap()
    }

    fn verifies(scheme: &Scheme, lines: &[(&str, &str)], body: &[u8]) -> bool {
        let headers: Headers = lines.iter().copied().collect();
        let delivery = Delivery { method: "POST", url: "", headers: &headers, body };
        verifier(scheme).authenticate(&delivery, 1_700_000_000).is_ok()
    }

    #[test]
    fn a_form_may_be_signed_by_its_inner_json() {
        let recipe = Recipe {
            signature_header: "X-Sig",
            form_field: "payload",
            form_field_signed: true,
            ..Recipe::PLAIN
        };
        let scheme = Scheme::build("inner", &recipe).unwrap();
        let form = ("Content-Type", "application/x-www-form-urlencoded");
        let (_, inner) = signature(&scheme, "application/json", b"{\"a\":\" \"}");
        let body = b"payload=%7B%22a%22%3A%22+%22%7D";
        assert_eq!(signature(&scheme, form.1, body).1, inner);
        assert!(verifies(&scheme, &[("X-Sig", &inner), form], body));
        assert!(!verifies(&scheme, &[("X-Sig", &inner)], body));
        assert!(!verifies(&scheme, &[("X-Sig", &inner), form], b"payload=%7B%7D"));
        let twice = b"payload=%7B%22a%22%3A%22+%22%7D&payload=1";
        assert!(!verifies(&scheme, &[("X-Sig", &inner), form], twice));
    }

    #[test]
    fn a_prefix_may_be_optional_and_elements_trimmed() {
        let recipe = Recipe {
            signature_header: "X-Sig",
            prefix: "sha256=",
            prefix_optional: true,
            list_separator: ",",
            list_trimmed: true,
            ..Recipe::PLAIN
        };
        let loose = Scheme::build("loose", &recipe).unwrap();
        let recipe = Recipe { prefix_optional: false, list_trimmed: false, ..recipe };
        let strict = Scheme::build("strict", &recipe).unwrap();
        let (_, with) = signature(&loose, "", b"{}");
        let without = with.trim_start_matches("sha256=");
        let spaced = format!("sha256=00, {with}");
        for (value, in_strict) in [(with.as_str(), true), (without, false), (&spaced, false)] {
            assert!(verifies(&loose, &[("x-sig", value)], b"{}"), "{value}");
            assert_eq!(verifies(&strict, &[("x-sig", value)], b"{}"), in_strict, "{value}");
        }
    }
}
