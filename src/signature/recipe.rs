//! A scheme in the words of the configuration: what a user types, and what a preset's row says.
//!
//! Texts, not yet checked; `build.rs` makes a [`super::scheme::Scheme`] of them.

use serde::Deserialize;

/// `[endpoint.NAME.scheme]`: the user's own scheme, as typed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomScheme {
    /// The header that carries the signature; `X-Sig-*` for numbered headers. Default for `basic`:
    /// `Authorization`
    #[serde(default)]
    pub signature_header: String,
    /// What stands before the signature, or before each one of a list, such as `sha256=` or `Bearer `.
    pub prefix: Option<String>,
    /// Splits the header's value into elements.
    pub list_separator: Option<String>,
    /// Elements are KEY=VALUE; those with this key are signatures.
    pub pair: Option<String>,
    /// `hex` (default) or `base64`
    pub encoding: Option<String>,
    /// `sha256` (default), `sha1`, `sha384` or `sha512`; `token` where the header holds the secret itself,
    /// `basic` where it holds `user:password` as HTTP Basic does. The last two sign nothing.
    pub algorithm: Option<String>,
    /// `text` (default), `base64` or `hex`: how the secret becomes the key.
    pub key: Option<String>,
    /// Stripped from the secret first, where it is there.
    pub key_prefix: Option<String>,
    /// What is signed, with `{ts}` `{id}` `{body}` `{url}` `{method}`. Default: `{body}`
    pub signed: Option<String>,
    /// `header:NAME`, `pair:KEY` or `json:/pointer`
    pub timestamp: Option<String>,
    /// `s` (default), `ms`, `rfc3339`, or `auto` for whichever of them it is
    pub timestamp_unit: Option<String>,
    /// `header:NAME` or `json:/pointer`. Without it the body's hash is the event's key.
    pub event_id: Option<String>,
    /// `header:NAME` or `json:/pointer`
    pub event_type: Option<String>,
    /// `header:NAME` or `json:/pointer`
    pub object_id: Option<String>,
    /// The form field that holds the JSON, where the body is a form.
    pub form_field: Option<String>,
    /// `json:/pointer` of a text that is sent back instead of storing anything, where the delivery is the
    /// sender's challenge and its signature holds.
    pub challenge: Option<String>,
    /// What makes a delivery a challenge: `header:NAME=VALUE` or `json:/pointer=VALUE`.
    pub challenge_when: Option<String>,
    /// `text` (default): the challenge alone. `json`: an object with the field it came in.
    pub challenge_answer: Option<String>,
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
    /// Elements are KEY=VALUE; those with this key are signatures.
    pub pair: &'a str,
    /// `hex` or `base64`
    pub encoding: &'a str,
    /// `sha256`, `sha1`, `sha384`, `sha512`, `token` or `basic`; presets also `ed25519` and `ecdsa-p256`
    pub algorithm: &'a str,
    /// A header whose `algorithm=HMAC_SHA256` makes it SHA-256 instead (presets only).
    pub algorithm_header: &'a str,
    /// `text`, `base64` or `hex`
    pub key: &'a str,
    /// Stripped from the secret first, where it is there.
    pub key_prefix: &'a str,
    /// A secret that begins with `whsec_` stands for a second key, what follows in base64: the provider changed
    /// from one way to the other. Presets only.
    pub also_decoded: bool,
    /// Deliveries of ours carry a signature by each of the two keys, the decoded one's first.
    pub signs_both: bool,
    /// What is signed. Presets also use `{json:/pointer}`, `{params}` (the fields of a form, sorted),
    /// `{path}` and `{signed_headers}`.
    pub signed: &'a str,
    /// The signed URL may be written with its percent-escapes decoded (presets only).
    pub url_decoded: bool,
    /// The header that lists the signed headers, for `{signed_headers}`.
    pub signed_headers_header: &'a str,
    /// `header:NAME`, `pair:KEY` or `json:/pointer`
    pub timestamp: &'a str,
    /// `s`, `ms`, `rfc3339` or `auto`
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
    /// `json:/pointer`: where there is something, `event_id` names one of several events and `event_key` is
    /// used instead.
    pub several_at: &'a str,
    /// Several events in one body: the JSON pointer of their list (`""`: the body is the list). What is
    /// said below is then looked for in each element, and with `batch:/pointer` in the body around them.
    pub batch: Option<&'a str>,
    /// Where the event's id is; the first source present counts.
    pub event_id: &'a [&'a str],
    /// Where there is no id, or only newer versions of the sender give one: what the key is made of, joined by colons. `body-sha256` is the
    /// body's hash, `arrival` our time of receipt (every delivery is then an event of its own).
    pub event_key: &'a [&'a str],
    /// Where every subscription gets ids of its own: what names the event itself. The same value of all of these, with
    /// the same type and object, is the same event, whatever its id and its body.
    pub fact: &'a [&'a str],
    /// Where the id is the event's and not the delivery's: what names the hook, the app or the account. Another body
    /// under a known id is another event where one of these differs.
    pub told_apart_by: &'a [&'a str],
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
    /// `json:/pointer` of a challenge to be sent back, where the delivery is one.
    pub challenge: &'a str,
    /// `header:NAME=VALUE` or `json:/pointer=VALUE`
    pub challenge_when: &'a str,
    /// `text` or `json`
    pub challenge_answer: &'a str,
}

impl Recipe<'_> {
    /// HMAC-SHA256 of the body in hex, keyed with the secret's text.
    pub const PLAIN: Recipe<'static> = Recipe {
        signature_header: "",
        signature_field: "",
        prefix: "",
        prefix_optional: false,
        list_separator: "",
        pair: "",
        encoding: "hex",
        algorithm: "sha256",
        algorithm_header: "",
        key: "text",
        key_prefix: "",
        also_decoded: false,
        signs_both: false,
        signed: "{body}",
        url_decoded: false,
        signed_headers_header: "",
        timestamp: "",
        timestamp_unit: "s",
        header_families: ["", ""],
        form_field: "",
        form_field_signed: false,
        form_params: false,
        form_has_no_id: false,
        several_at: "",
        batch: None,
        event_id: &[],
        event_key: &[],
        fact: &[],
        told_apart_by: &[],
        nonce: "",
        event_type: &[],
        event_action: "",
        object_id: &[],
        account: &[],
        livemode: &[],
        api_version: &[],
        integer_ids: false,
        challenge: "",
        challenge_when: "",
        challenge_answer: "text",
    };
}
