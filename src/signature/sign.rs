//! Signing: the headers that make a delivery genuine for any scheme the engine can verify.
//!
//! For test deliveries and for handing events on. [`sign`] never changes the body; where a time or the
//! signature stands inside it, [`with_time_and_signature`] writes them there first.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::delivery::{Delivery, Headers};
use super::read::Presented;
use super::scheme::{Scheme, TimestampPlace};
use super::secret::{Algorithm, Keyed, Secret, Tag};
use super::sources::Source;
use super::words::SchemeError;

/// A delivery to be signed.
#[derive(Clone, Copy)]
pub struct Unsigned<'a> {
    /// e.g. `POST`
    pub method: &'a str,
    /// The receiver's public URL, for the schemes that sign it.
    pub url: &'a str,
    /// Decides, for some schemes, which part of a form is signed.
    pub content_type: &'a str,
    /// Used by the schemes that have the id in a header.
    pub event_id: &'a str,
    /// Used by the schemes that have the type in a header.
    pub event_type: Option<&'a str>,
    /// The signed time, in seconds since the epoch.
    pub signed_at_s: i64,
    /// The exact bytes that will be sent.
    pub body: &'a [u8],
}

impl fmt::Debug for Unsigned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unsigned({} {:?}, {} bytes)", self.event_id, self.event_type, self.body.len())
    }
}

/// The scheme's own headers for a delivery: id and type where they are headers, time and signature.
/// The caller adds the content type. If the signature stands in the body, no header carries one.
///
/// # Errors
/// The secret cannot be a key of this scheme, or signing takes a private key that only the provider
/// has; the text names the secret by its label.
pub fn sign(
    scheme: &Scheme,
    secret: &Secret,
    unsigned: &Unsigned<'_>,
) -> Result<Vec<(String, String)>, SchemeError> {
    let mut signed = identity_headers(scheme, unsigned);
    let ts = match scheme.timestamp.as_ref() {
        Some(timestamp) => timestamp.unit.write(unsigned.signed_at_s),
        None => String::new(),
    };
    if let Some(name) = scheme.timestamp_header() {
        signed.push((name.to_owned(), ts.clone()));
    }
    if scheme.signature_field.is_some() {
        return Ok(signed);
    }
    if let Some(list) = &scheme.signed_headers_header {
        let mut names: Vec<_> = signed.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        names.extend([String::from("content-type"), list.to_ascii_lowercase()]);
        names.sort_unstable();
        signed.push((list.clone(), names.join(",")));
    }
    let mut signature = match scheme.algorithm {
        Algorithm::Token => scheme.header.element(&String::from_utf8_lossy(secret.expose())),
        Algorithm::Basic => scheme.header.element(&STANDARD.encode(secret.expose())),
        _ => {
            let content_type = [(String::from("content-type"), unsigned.content_type.to_owned())];
            let headers = Headers::from_iter(signed.iter().cloned().chain(content_type));
            let Unsigned { method, url, body, .. } = *unsigned;
            let delivery = Delivery { method, url, headers: &headers, body };
            let tags = tags(scheme, secret, &delivery, unsigned.event_id, &ts)?;
            let element = |tag: &Tag| scheme.header.element(&tag.encode(scheme.encoding, scheme.algorithm));
            let separator = scheme.header.list_separator.as_deref().unwrap_or_default();
            tags.iter().map(element).collect::<Vec<_>>().join(separator)
        }
    };
    if let Some(TimestampPlace::Pair(key)) = scheme.timestamp.as_ref().map(|timestamp| &timestamp.place) {
        let separator = scheme.header.list_separator.as_deref().unwrap_or_default();
        signature = format!("{key}={ts}{separator}{signature}");
    }
    let number = if scheme.header.numbered { "1" } else { "" };
    signed.push((format!("{}{number}", scheme.header.name), signature));
    Ok(signed)
}

/// The body with time and signature written where this scheme has them; unchanged where it has neither
/// inside the body, and where the body is no JSON object.
///
/// # Errors
/// As [`sign`].
pub fn with_time_and_signature(
    scheme: &Scheme,
    secret: &Secret,
    body: Vec<u8>,
    signed_at_s: i64,
) -> Result<Vec<u8>, SchemeError> {
    let time = scheme.timestamp.as_ref().and_then(|timestamp| match &timestamp.place {
        TimestampPlace::Json(pointer) => Some((pointer, timestamp.unit)),
        TimestampPlace::Header(_) | TimestampPlace::Pair(_) => None,
    });
    let (Some((pointer, unit)), Ok(mut json)) = (time, serde_json::from_slice::<Value>(&body)) else {
        return Ok(body);
    };
    let text = unit.write(signed_at_s);
    // a time beside a signature is a text (Mailgun), one inside the event a number (Linear)
    let value = match (&scheme.signature_field, text.parse::<i64>()) {
        (None, Ok(number)) => Value::from(number),
        (Some(_), _) | (None, Err(_)) => Value::from(text),
    };
    set(&mut json, pointer, value);
    if let Some(field) = &scheme.signature_field {
        let (headers, body) = (Headers::default(), json.to_string().into_bytes());
        let delivery = Delivery { method: "POST", url: "", headers: &headers, body: &body[..] };
        for tag in tags(scheme, secret, &delivery, "", "")? {
            set(&mut json, field, Value::from(tag.encode(scheme.encoding, scheme.algorithm)));
        }
    }
    Ok(json.to_string().into_bytes())
}

fn set(json: &mut Value, pointer: &str, value: Value) {
    let Some((parent, key)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(fields)) = json.pointer_mut(parent) {
        fields.insert(key.to_owned(), value);
    }
}

/// One tag; where a provider changed the way to make a key, that of the new way before it.
fn tags(
    scheme: &Scheme,
    secret: &Secret,
    delivery: &Delivery<'_>,
    id: &str,
    ts: &str,
) -> Result<Vec<Tag>, SchemeError> {
    if !scheme.can_sign() {
        return Err(SchemeError::PrivateKey);
    }
    let refused = |why| SchemeError::Secret { label: secret.label().to_owned(), why, elsewhere: None };
    let mut keys = scheme.keys_of(secret.expose()).map_err(refused)?;
    if scheme.signs_both {
        keys.reverse();
    } else {
        keys.truncate(1);
    }
    let parsed = scheme.parsed_first(delivery);
    let composed = scheme.composed(delivery, parsed.as_ref()).map_err(|_| SchemeError::Unsignable)?;
    let presented = Presented {
        algorithm: scheme.algorithm,
        candidates: Vec::new(),
        id,
        ts,
        signed_at_ms: None,
        body: scheme.signed_body(delivery),
        composed,
        parsed,
    };
    let tag = |key: &Vec<u8>| {
        Keyed::new(scheme.algorithm, key)
            .map_err(refused)?
            .tag(scheme.pieces(delivery, &presented))
            .ok_or(SchemeError::PrivateKey)
    };
    keys.iter().map(tag).collect()
}

fn identity_headers(scheme: &Scheme, unsigned: &Unsigned<'_>) -> Vec<(String, String)> {
    let first_header =
        |sources: &[Source]| sources.iter().find_map(|source| source.header().map(str::to_owned));
    let id = first_header(&scheme.sources.event_id).map(|name| (name, unsigned.event_id.to_owned()));
    let event_type = unsigned.event_type.and_then(|event_type| {
        // `issues.opened`: the action stands in the body
        let event = match scheme.sources.event_action {
            Some(_) => event_type.split('.').next().unwrap_or(event_type),
            None => event_type,
        };
        Some((first_header(&scheme.sources.event_type)?, event.to_owned()))
    });
    id.into_iter().chain(event_type).collect()
}

#[cfg(test)]
mod tests {
    use super::super::recipe::Recipe;
    use super::*;

    const SECRET: &str = "sixteen bytes or more";

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
        let key = scheme.key(Secret::new("env:SECRET", SECRET)).unwrap();
        scheme.present(&delivery).is_ok_and(|presented| {
            key.keyed(presented.algorithm).any(|keyed| {
                let judge = scheme.judge(keyed, &delivery, &presented);
                presented.candidates.iter().any(|candidate| judge.accepts(candidate).into())
            })
        })
    }

    #[test]
    fn a_form_may_be_signed_by_its_inner_json() {
        let recipe = Recipe {
            signature_header: "X-Sig",
            form_field: "payload",
            form_field_signed: true,
            ..Recipe::PLAIN
        };
        let scheme = Scheme::of_preset(&recipe, &[], &[]).unwrap();
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
    fn a_prefix_may_be_optional_and_elements_have_blanks_around_them() {
        let recipe = Recipe {
            signature_header: "X-Sig",
            prefix: "sha256=",
            prefix_optional: true,
            list_separator: ",",
            ..Recipe::PLAIN
        };
        let loose = Scheme::of_preset(&recipe, &[], &[]).unwrap();
        let recipe = Recipe { prefix_optional: false, ..recipe };
        let strict = Scheme::of_preset(&recipe, &[], &[]).unwrap();
        let (_, with) = signature(&loose, "", b"{}");
        let without = with.trim_start_matches("sha256=");
        let spaced = format!("sha256=00, SHA256= {}", without.to_uppercase());
        for (value, in_strict) in [(with.as_str(), true), (without, false), (&spaced, true)] {
            assert!(verifies(&loose, &[("x-sig", value)], b"{}"), "{value}");
            assert_eq!(verifies(&strict, &[("x-sig", value)], b"{}"), in_strict, "{value}");
        }
    }
}
