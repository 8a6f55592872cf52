//! Parts of a signed string that must be computed: Twilio's and Contentful's, and the spellings of a signed URL.
//!
//! Twilio signs the sorted fields of a form, or a hash of the body in the URL; Contentful signs chosen
//! headers and a path of its own spelling. A signed URL may be one of several spellings of what was typed into
//! the provider's form. Nothing here decides whether a signature holds.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};

use super::delivery::{Delivery, Headers, single};
use super::form::{form_fields, is_form};
use super::malformed::Malformed;
use crate::encode::{hex, percent_encoded};

/// The parameter of the URL with the hash of a body that is no form.
const BODY_HASH_PARAMETER: &str = "bodySHA256";

/// Twilio: each field's name and value, sorted by name; repeated values once, sorted. A body that is no
/// form is covered by its hash in the URL, which is signed; then there are no fields.
pub(crate) fn params(delivery: &Delivery<'_>) -> Result<Vec<u8>, Malformed> {
    if let Some(hash) = body_hash(delivery.url) {
        return match hash == hex(&Sha256::digest(delivery.body)) {
            true => Ok(Vec::new()),
            false => Err(Malformed::BodyHashDiffers),
        };
    }
    if delivery.body.is_empty() {
        return Ok(Vec::new());
    }
    if !is_form(delivery.headers) {
        return Err(Malformed::BodyUncovered);
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

/// Whether this part of a query is nothing but the hash of the body.
fn is_body_hash(pair: &str) -> bool {
    pair.strip_prefix(BODY_HASH_PARAMETER).is_some_and(|rest| rest.starts_with('='))
}

/// The beginning of the query's hash, for the key of an event whose URL is signed: two deliveries of one body that differ
/// in the query are two events. `None` if the query holds only Twilio's hash of the body.
pub(crate) fn query_mark(query: &str) -> Option<String> {
    let says_more = |pair: &&str| !pair.is_empty() && !is_body_hash(pair);
    let said: Vec<_> = query.split('&').filter(says_more).collect();
    (!said.is_empty()).then(|| hex(&Sha256::digest(said.join("&"))[..8]))
}

/// Adds the hash of a body to a URL, as Twilio does for a body that is no form; one that is there is replaced.
pub fn with_body_hash(url: &str, body: &[u8]) -> String {
    let hash = format!("{BODY_HASH_PARAMETER}={}", hex(&Sha256::digest(body)));
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let is_hash = |pair: &&str| pair.split('=').next() == Some(BODY_HASH_PARAMETER);
    let others = query.split('&').filter(|pair| !pair.is_empty() && !is_hash(pair));
    format!("{path}?{}", others.chain([hash.as_str()]).collect::<Vec<_>>().join("&"))
}

/// More spellings of one URL are not tried: each costs a MAC of the whole body.
const SPELLINGS_MAX: usize = 32;

/// Another spelling of a URL, where this way of spelling makes a difference.
type Way<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What a provider may have signed instead of these URLs, which come first: without user and password, without
/// the port or with the usual one written out; `slash`: with or without a slash at the end of the path;
/// `decoded` (HubSpot): with some percent-escapes decoded.
pub(crate) fn spellings(urls: Vec<String>, slash: bool, decoded: bool) -> Vec<String> {
    let slashed = |url: &str| slash.then(|| other_slash(url)).flatten();
    let decode = |url: &str| decoded.then(|| unescaped(url)).flatten();
    let mut spelled = urls;
    for way in [&without_user as Way<'_>, &other_port, &slashed, &decode] {
        let other: Vec<_> = spelled.iter().filter_map(|url| way(url)).collect();
        for url in other {
            if !spelled.contains(&url) {
                spelled.push(url);
            }
        }
    }
    spelled.truncate(SPELLINGS_MAX);
    spelled
}

/// `https://`, `user@host:443`, `/path?query`
fn parts(url: &str) -> Option<(&str, &str, &str)> {
    let host = url.find("://")? + 3;
    let (scheme, rest) = url.split_at(host);
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    Some((scheme, authority, path))
}

fn without_user(url: &str) -> Option<String> {
    let (scheme, authority, path) = parts(url)?;
    let (_, host) = authority.rsplit_once('@')?;
    Some(format!("{scheme}{host}{path}"))
}

/// Twilio's libraries try a URL both with and without its port.
fn other_port(url: &str) -> Option<String> {
    let (scheme, authority, path) = parts(url)?;
    let digits = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match authority.rsplit_once(':').filter(|(_, port)| digits(port)) {
        Some((host, _)) => Some(format!("{scheme}{host}{path}")),
        None => {
            let port = if scheme.eq_ignore_ascii_case("http://") { 80 } else { 443 };
            Some(format!("{scheme}{authority}:{port}{path}"))
        }
    }
}

fn other_slash(url: &str) -> Option<String> {
    let (scheme, authority, path) = parts(url)?;
    let (path, query) = path.split_at(path.find(['?', '#']).unwrap_or(path.len()));
    Some(match path.strip_suffix('/') {
        Some(path) => format!("{scheme}{authority}{path}{query}"),
        None => format!("{scheme}{authority}{path}/{query}"),
    })
}

/// The escapes that HubSpot's documentation lists, and no others: decoding all of them would let somebody else's
/// URL pass for the signed one.
fn unescaped(url: &str) -> Option<String> {
    let mut out = String::with_capacity(url.len());
    let mut rest = url;
    while let Some(at) = rest.find('%') {
        let escape = rest.get(at..at + 3).unwrap_or_default().to_ascii_uppercase();
        let decoded = match escape.as_str() {
            "%3A" => ":",
            "%2F" => "/",
            "%3F" => "?",
            "%40" => "@",
            "%21" => "!",
            "%24" => "$",
            "%27" => "'",
            "%28" => "(",
            "%29" => ")",
            "%2A" => "*",
            "%2C" => ",",
            "%3B" => ";",
            _ => {
                out.push_str(&rest[..=at]);
                rest = &rest[at + 1..];
                continue;
            }
        };
        out.push_str(&rest[..at]);
        out.push_str(decoded);
        rest = &rest[at + 3..];
    }
    out.push_str(rest);
    (out != url).then_some(out)
}

/// Contentful: path and query, the query percent-encoded as a whole, and both encoded once more.
pub(crate) fn path(url: &str) -> Vec<u8> {
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
pub(crate) fn signed_headers(
    headers: &Headers,
    list_header: &str,
    timestamp_header: Option<&str>,
) -> Result<Vec<u8>, Malformed> {
    let odd = || Malformed::SignedHeadersOdd(list_header.to_owned());
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
    fn a_url_is_spelled_in_a_few_ways_and_never_in_many() {
        let spelled = |url: &str, decoded| spellings(vec![url.to_owned()], true, decoded);
        let all = spelled("https://u:p@h.example/in?a=b%3Ac", false);
        for url in [
            "https://h.example/in?a=b%3Ac",
            "https://h.example:443/in?a=b%3Ac",
            "https://h.example/in/?a=b%3Ac",
            "https://u:p@h.example:443/in/?a=b%3Ac",
        ] {
            assert!(all.iter().any(|one| one == url), "{url} in {all:?}");
        }
        assert_eq!(all.first().map(String::as_str), Some("https://u:p@h.example/in?a=b%3Ac"));
        assert!(!all.iter().any(|url| url.contains("b:c")));
        assert!(
            spelled("https://h.example/in?a=b%3ac%20d", true)
                .contains(&"https://h.example/in?a=b:c%20d".to_owned())
        );
        assert!(spelled("http://[::1]:8080/in", false).contains(&"http://[::1]/in".to_owned()));
        assert!(spelled("http://h.example", false).contains(&"http://h.example:80/".to_owned()));
        let many: Vec<_> = (0..100).map(|n| format!("https://h{n}.example/in")).collect();
        assert_eq!(spellings(many, true, true).len(), SPELLINGS_MAX);
        assert_eq!(spelled("", true), [""]);
        let exact = spellings(vec![String::from("https://h.example/in")], false, false);
        assert_eq!(exact, ["https://h.example/in", "https://h.example:443/in"]);
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
        assert_eq!(signed(&url, b"{} ").unwrap_err(), Malformed::BodyHashDiffers);
    }
}
