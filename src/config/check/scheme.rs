//! `[endpoint.NAME.scheme]`: how a sender without a preset signs.
//!
//! The words themselves are judged where a scheme is made of them; here stands which keys there are.

use super::Checker;
use crate::config::keys::{Default, Kind, Table, key};
use crate::config::values::{Shown, Values};
use crate::signature::{CustomScheme, Recipe};

pub(in crate::config) const TABLE: Table = Table {
    header: "endpoint.NAME.scheme",
    doc: "With `provider = \"custom\"`: how the sender signs.",
    keys: &[
        key(
            "signature_header",
            Kind::Text,
            Default::Follows("required; `Authorization` with `algorithm = \"basic\"`"),
            "The header that carries the signature; `X-Sig-*` for numbered headers.",
        ),
        key(
            "prefix",
            Kind::Text,
            Default::Unset,
            "What stands before each signature, such as `sha256=` or `Bearer `.",
        ),
        key("list_separator", Kind::Text, Default::Unset, "Splits the header's value into elements."),
        key(
            "pair",
            Kind::Text,
            Default::Unset,
            "Elements are KEY=VALUE; those with this key are signatures.",
        ),
        key("encoding", Kind::Text, Default::Is(Recipe::PLAIN.encoding), "`hex` or `base64`."),
        key(
            "algorithm",
            Kind::Text,
            Default::Is(Recipe::PLAIN.algorithm),
            "`sha256`, `sha1`, `sha384` or `sha512`; `token`: the header holds the secret itself; `basic`: it holds `user:password` as HTTP Basic does.",
        ),
        key(
            "key",
            Kind::Text,
            Default::Is(Recipe::PLAIN.key),
            "How the secret becomes the key: `text`, `base64` or `hex`.",
        ),
        key("key_prefix", Kind::Text, Default::Unset, "Stripped from the secret first, where it is there."),
        key(
            "signed",
            Kind::Text,
            Default::Is(Recipe::PLAIN.signed),
            "What is signed, made of `{ts}` `{id}` `{body}` `{url}` `{method}`.",
        ),
        key("timestamp", Kind::Text, Default::Unset, "`header:NAME`, `pair:KEY` or `json:/pointer`."),
        key(
            "timestamp_unit",
            Kind::Text,
            Default::Is(Recipe::PLAIN.timestamp_unit),
            "`s`, `ms`, `rfc3339`, or `auto` for whichever of them it is.",
        ),
        key(
            "event_id",
            Kind::Text,
            Default::Unset,
            "`header:NAME` or `json:/pointer`; without it the body's hash is the event's key.",
        ),
        key("event_type", Kind::Text, Default::Unset, "`header:NAME` or `json:/pointer`."),
        key("object_id", Kind::Text, Default::Unset, "`header:NAME` or `json:/pointer`."),
        key(
            "form_field",
            Kind::Text,
            Default::Unset,
            "The form field that holds the JSON, where the body is a form.",
        ),
        key(
            "challenge",
            Kind::Text,
            Default::Unset,
            "`json:/pointer` of a text that is sent back where the delivery is the sender's challenge and its signature holds.",
        ),
        key(
            "challenge_when",
            Kind::Text,
            Default::Unset,
            "What makes a delivery a challenge: `header:NAME=VALUE` or `json:/pointer=VALUE`.",
        ),
        key(
            "challenge_answer",
            Kind::Text,
            Default::Unset,
            "`text`: the challenge alone; `json`: an object with the field it came in. `text` where not set.",
        ),
    ],
};

/// The header of HTTP Basic: the default where the algorithm is `basic`.
const BASIC_HEADER: &str = "Authorization";

impl Checker {
    /// The scheme as typed. Its defaults are applied where a scheme is made of it.
    pub(super) fn custom_scheme(&mut self, table: &Values) -> CustomScheme {
        self.show_scheme(table);
        let typed = |name| table.text(name).map(str::to_owned);
        CustomScheme {
            signature_header: typed("signature_header").unwrap_or_default(),
            prefix: typed("prefix"),
            list_separator: typed("list_separator"),
            pair: typed("pair"),
            encoding: typed("encoding"),
            algorithm: typed("algorithm"),
            key: typed("key"),
            key_prefix: typed("key_prefix"),
            signed: typed("signed"),
            timestamp: typed("timestamp"),
            timestamp_unit: typed("timestamp_unit"),
            event_id: typed("event_id"),
            event_type: typed("event_type"),
            object_id: typed("object_id"),
            form_field: typed("form_field"),
            challenge: typed("challenge"),
            challenge_when: typed("challenge_when"),
            challenge_answer: typed("challenge_answer"),
        }
    }

    /// A default that has nothing to apply to is not in effect.
    fn show_scheme(&mut self, table: &Values) {
        let algorithm = table.text("algorithm").unwrap_or_default();
        // where the header holds the secret itself, nothing is signed
        let signs = !matches!(algorithm, "basic" | "token");
        for name in TABLE.names() {
            let is_used = match name {
                "encoding" | "key" | "signed" => signs,
                "timestamp_unit" => table.is_set("timestamp"),
                _ => true,
            };
            let text = self.text(table, name).filter(|_| is_used || table.is_set(name));
            table.show(name, Shown::optional(text));
        }
        if table.text("signature_header").is_none_or(str::is_empty) && algorithm == "basic" {
            table.show("signature_header", Shown::text(BASIC_HEADER));
        }
    }
}
