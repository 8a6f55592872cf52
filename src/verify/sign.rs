//! Signing: the headers that make a delivery genuine for any scheme the engine can verify.
//!
//! For test deliveries and for handing events on. The body is never changed.

use std::fmt;

use super::identity::Source;
use super::scheme::{Presented, Scheme, TimestampPlace};
use super::secret::Keyed;
use super::{Delivery, Headers, Secret};

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
/// The caller adds the content type.
///
/// # Errors
/// The secret cannot be a key of this scheme; the text names it by its label.
pub fn sign(
    scheme: &Scheme,
    secret: &Secret,
    unsigned: &Unsigned<'_>,
) -> Result<Vec<(String, String)>, String> {
    let key = scheme
        .key
        .key_bytes(&scheme.key_prefix, secret.expose())
        .map_err(|problem| format!("secret {} {problem}", secret.label()))?;
    let keyed = Keyed::new(scheme.algorithm, &key)?;
    let headers = Headers::from_iter([("content-type", unsigned.content_type)]);
    let delivery =
        Delivery { method: unsigned.method, url: unsigned.url, headers: &headers, body: unsigned.body };
    let place = scheme.timestamp.as_ref().map(|timestamp| &timestamp.place);
    let ts = match scheme.timestamp.as_ref() {
        Some(timestamp) => {
            (i128::from(unsigned.signed_at_s) * 1000 / i128::from(timestamp.unit_ms)).to_string()
        }
        None => String::new(),
    };
    let tag = scheme.tag(
        &keyed,
        &delivery,
        &Presented {
            candidates: Vec::new(),
            id: unsigned.event_id,
            ts: &ts,
            signed_at: None,
            body: scheme.signed_body(&delivery),
        },
    );

    let mut signed = identity_headers(scheme, unsigned);
    let mut signature = scheme.header.element(&tag.encode(scheme.encoding, scheme.algorithm));
    match place {
        Some(TimestampPlace::Header(name)) => signed.push((name.clone(), ts)),
        Some(TimestampPlace::Pair(key)) => {
            let separator = scheme.header.list_separator.as_deref().unwrap_or_default();
            signature = format!("{key}={ts}{separator}{signature}");
        }
        Some(TimestampPlace::Json(_)) | None => {}
    }
    let number = if scheme.header.numbered { "1" } else { "" };
    signed.push((format!("{}{number}", scheme.header.name), signature));
    Ok(signed)
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
