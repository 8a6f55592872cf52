//! The pieces of a signed string that are not simply there: they are put together as two providers do it.
//!
//! Twilio signs the sorted fields of a form, or a hash of the body in the URL; Contentful signs chosen
//! headers and a path of its own spelling. Nothing here decides whether a signature holds.

use std::collections::BTreeSet;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::identity::{form_fields, is_form};
use super::scheme::{Flaw, single};
use super::{Delivery, Headers};
use crate::encode::{hex, percent_encoded};

/// The parameter of the URL with the hash of a body that is no form.
const BODY_HASH_PARAMETER: &str = "bodySHA256";

/// A string or a number as it stands in JSON; `None` for anything else, and for the empty text.
pub(super) fn text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Twilio: each field's name and value, sorted by name; repeated values once, sorted. A body that is no
/// form is covered by its hash in the URL, which is signed; then there are no fields.
pub(super) fn params(delivery: &Delivery<'_>) -> Result<Vec<u8>, Flaw> {
    if let Some(hash) = body_hash(delivery.url) {
        return match hash == hex(&Sha256::digest(delivery.body)) {
            true => Ok(Vec::new()),
            false => Err(Flaw::BodyHashDiffers),
        };
    }
    if delivery.body.is_empty() {
        return Ok(Vec::new());
    }
    if !is_form(delivery.headers) {
        return Err(Flaw::BodyUncovered);
    }
    let fields: BTreeSet<_> = form_fields(delivery.body).collect();
    let mut signed = Vec::with_capacity(delivery.body.len());
    for (name, value) in &fields {
        signed.extend_from_slice(name);
        signed.extend_from_slice(value);
    }
    Ok(signed)
}

fn body_hash(url: &str) -> Option<&str> {
    let (_, query) = url.split_once('?')?;
    let query = query.split('#').next().unwrap_or(query);
    query.split('&').find_map(|pair| pair.strip_prefix(BODY_HASH_PARAMETER)?.strip_prefix('='))
}

/// Adds the hash of a body to a URL, as Twilio does for a body that is no form; one that is there is replaced.
pub fn with_body_hash(url: &str, body: &[u8]) -> String {
    let hash = format!("{BODY_HASH_PARAMETER}={}", hex(&Sha256::digest(body)));
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let is_hash = |pair: &&str| pair.split('=').next() == Some(BODY_HASH_PARAMETER);
    let others = query.split('&').filter(|pair| !pair.is_empty() && !is_hash(pair));
    format!("{path}?{}", others.chain([hash.as_str()]).collect::<Vec<_>>().join("&"))
}

/// Contentful: path and query, the query percent-encoded as a whole, and both encoded once more.
pub(super) fn path(url: &str) -> Vec<u8> {
    let after_host = match url.split_once("://") {
        Some((_, rest)) => rest.find(['/', '?']).map_or("/", |at| &rest[at..]),
        None => url,
    };
    let mut pieces = after_host.split('?');
    let path = pieces.next().unwrap_or_default();
    let mut spelled = encode_uri(path);
    if let Some(query) = pieces.next().filter(|query| !query.is_empty()) {
        spelled.push('?');
        spelled.push_str(&encode_uri(&encode_uri_component(query)));
    }
    spelled.into_bytes()
}

/// As the function of that name in JavaScript.
fn encode_uri(text: &str) -> String {
    percent_encoded(text, |byte| byte.is_ascii_alphanumeric() || b";,/?:@&=+$-_.!~*'()#".contains(&byte))
}

/// As the function of that name in JavaScript.
fn encode_uri_component(text: &str) -> String {
    percent_encoded(text, |byte| byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte))
}

/// Contentful: `name:value` of each listed header, joined by `;`. The list is signed with them, and the
/// time must be in it.
pub(super) fn signed_headers(
    headers: &Headers,
    list_header: &str,
    timestamp_header: Option<&str>,
) -> Result<Vec<u8>, Flaw> {
    let odd = || Flaw::SignedHeadersOdd(list_header.to_owned());
    let list = single(headers, list_header)?.ok_or_else(odd)?;
    let is_listed = |name: &str| list.split(',').any(|listed| listed.eq_ignore_ascii_case(name));
    if !is_listed(list_header) || !timestamp_header.is_none_or(is_listed) {
        return Err(odd());
    }
    let mut pairs = Vec::new();
    for name in list.split(',') {
        let value = single(headers, name)?.ok_or_else(odd)?;
        pairs.push(format!("{name}:{}", value.trim()));
    }
    Ok(pairs.join(";").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_spelled_as_contentful_spells_it() {
        let spelled = |url: &str| String::from_utf8(path(url)).unwrap();
        assert_eq!(spelled("https://h.example/hooks/contentful"), "/hooks/contentful");
        assert_eq!(spelled("/hooks/c f?token=a%20b&x=1"), "/hooks/c%20f?token%253Da%252520b%2526x%253D1");
        assert_eq!(spelled("https://h.example"), "/");
        assert_eq!(spelled("https://h.example/a?"), "/a");
    }

    #[test]
    fn the_list_of_signed_headers_must_hold_itself_and_the_time_and_nothing_that_is_not_there() {
        let signed = |list: &str| {
            let lines =
                [("X-List", list), ("X-Time", " 17 "), ("X-Topic", "t"), ("X-Twice", "a"), ("X-Twice", "a")];
            signed_headers(&Headers::from_iter(lines), "X-List", Some("X-Time")).ok()
        };
        let good = b"x-list:x-list,x-time,x-topic;x-time:17;x-topic:t".to_vec();
        assert_eq!(signed("x-list,x-time,x-topic"), Some(good));
        for bad in
            ["x-list,x-topic", "x-time,x-topic", "x-list,x-time,x-absent", "x-list,x-time,x-twice", "", ","]
        {
            assert_eq!(signed(bad), None, "{bad}");
        }
    }

    #[test]
    fn fields_are_sorted_and_counted_once() {
        let headers = Headers::from_iter([("content-type", "application/x-www-form-urlencoded")]);
        let signed =
            |url: &str, body: &[u8]| params(&Delivery { method: "POST", url, headers: &headers, body });
        assert_eq!(signed("https://x/", b"b=2&a=1&b=1&b=2&c=").unwrap(), b"a1b1b2c");
        assert_eq!(signed("https://x/", b"").unwrap(), b"");
        let url = with_body_hash("https://x/?a=1", b"{}");
        assert_eq!(with_body_hash(&with_body_hash("https://x/?a=1", b"[]"), b"{}"), url);
        assert!(with_body_hash("https://x/", b"{}").starts_with("https://x/?bodySHA256="));
        assert_eq!(signed(&url, b"{}").unwrap(), b"");
        assert_eq!(signed(&url, b"{} ").unwrap_err(), Flaw::BodyHashDiffers);
    }
}
