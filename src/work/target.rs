//! A destination at work: makes the request that its configuration asks for, signed, and sends it.
//!
//! The stored bytes are never changed, except that what a handler emitted becomes a form where `body_format`
//! says so. Nothing here touches the database.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::Utf8Error;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::config::{BodyFormat, Destination, Sign};
use crate::encode::{hex, is_unreserved, percent_encoded};
use crate::outgoing::{Answer, Client, NoAnswer};
use crate::providers::Provider;
use crate::signature::{Scheme, SchemeError, Secret, Unsigned, sign};
use crate::work::endpoint::Endpoint;
use crate::work::retry;

/// The request to send.
#[derive(Debug, Clone, Copy)]
pub struct Parcel<'a> {
    /// The effect's own key.
    pub operation_key: &'a str,
    /// The endpoint of the event it came from.
    pub endpoint: &'a str,
    /// That event.
    pub event_id: &'a str,
    /// What happened; of a forward: the event's type.
    pub topic: &'a str,
    /// 1 for the first.
    pub attempt: i64,
    /// The exact bytes.
    pub payload: &'a [u8],
    /// Their media type.
    pub content_type: &'a str,
    /// Of a forwarded delivery: JSON of the headers kept from it.
    pub headers: Option<&'a str>,
    /// The type of the event it came from.
    pub event_type: Option<&'a str>,
    /// Of a forwarded delivery: its query string without `?`, added to the destination's URL.
    pub query: Option<&'a str>,
}

/// A destination, with its HTTP client.
#[derive(Debug)]
pub struct Target {
    config: Destination,
    client: Client,
    standard: Option<Provider>,
    endpoints: HashMap<String, Arc<Endpoint>>,
}

type Lines = Vec<(String, String)>;

/// Why a request cannot be made: neither the row nor the configuration changes by itself.
#[derive(Debug)]
pub enum TargetError {
    /// The URL must not be used, or the certificates cannot be read.
    Client {
        /// The destination's name.
        destination: String,
        /// The rule, and what to do.
        reason: String,
    },
    /// The parcel cannot be signed by this scheme.
    Scheme(SchemeError),
    /// The endpoint, whose secret would sign, is gone from the configuration.
    UnknownEndpoint {
        /// The endpoint's name.
        endpoint: String,
        /// The destination's name.
        destination: String,
    },
    /// Neither the destination nor this endpoint has a secret.
    NoSecret(String),
    /// A configured header has a value that is not text.
    HeaderNotText {
        /// The header's name; its value may be secret.
        name: String,
        /// Where it stops being text.
        source: Utf8Error,
    },
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client { destination, reason } => write!(f, "destination {destination}: {reason}"),
            Self::Scheme(error) => write!(f, "{error}"),
            Self::UnknownEndpoint { endpoint, destination } => write!(
                f,
                "endpoint {endpoint} is not configured any more, so there is nothing to sign with; configure it again, \
                 or write sign = \"standard\" for destination {destination}, then `inboxd outbox retry`"
            ),
            Self::NoSecret(endpoint) => write!(f, "endpoint {endpoint} has no secret to sign with"),
            Self::HeaderNotText { name, .. } => write!(f, "the value of the header {name} is not text"),
        }
    }
}

impl std::error::Error for TargetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Scheme(error) => Some(error),
            Self::HeaderNotText { source, .. } => Some(source),
            Self::Client { .. } | Self::UnknownEndpoint { .. } | Self::NoSecret(_) => None,
        }
    }
}

impl From<SchemeError> for TargetError {
    fn from(error: SchemeError) -> Self {
        Self::Scheme(error)
    }
}

impl Target {
    /// The destination, for rows of these endpoints.
    ///
    /// # Errors
    /// One sentence: the URL must not be used, or the certificates cannot be read.
    pub fn new(config: Destination, endpoints: &[Arc<Endpoint>]) -> Result<Self, TargetError> {
        let client = Client::new(&config.url, &config.allow_networks, config.ca_file.as_deref())
            .map_err(|reason| TargetError::Client { destination: config.name.clone(), reason })?;
        Self::with_client(config, client, endpoints)
    }

    /// As [`Target::new`], with another client.
    ///
    /// # Errors
    /// As [`Target::new`].
    pub fn with_client(
        config: Destination,
        client: Client,
        endpoints: &[Arc<Endpoint>],
    ) -> Result<Self, TargetError> {
        let standard =
            (config.sign == Sign::Standard).then(|| Provider::named("standardwebhooks")).transpose()?;
        let by_name = |endpoint: &Arc<Endpoint>| (endpoint.config.name.clone(), Arc::clone(endpoint));
        Ok(Self { config, client, standard, endpoints: endpoints.iter().map(by_name).collect() })
    }

    /// As configured.
    pub fn config(&self) -> &Destination {
        &self.config
    }

    /// Signs and sends the parcel; the answer must come within `time_max`.
    ///
    /// # Errors
    /// See [`NoAnswer`]. An answer of any status is an answer.
    pub fn send(&self, parcel: &Parcel<'_>, time_max: Duration, now_ms: i64) -> Result<Answer, NoAnswer> {
        let (body, content_type) = self.body(parcel);
        let parcel = Parcel { payload: &body, content_type: &content_type, ..*parcel };
        match self.headers(&parcel, now_ms) {
            Ok(headers) => self.client.post_to(&self.url(&parcel), &headers, &body, time_max),
            // neither the row nor the configuration changes by itself
            Err(error) => Err(NoAnswer::impossible(error.to_string())),
        }
    }

    /// Where the parcel goes: with the query of its delivery, and with the hash of its body where the provider signs
    /// that in the URL.
    fn url(&self, parcel: &Parcel<'_>) -> Cow<'_, str> {
        let url = self.client.url_with(parcel.query);
        match self.endpoints.get(parcel.endpoint) {
            Some(endpoint) if self.config.sign == Sign::Provider => {
                let scheme = endpoint.config.verifier.scheme();
                Cow::Owned(scheme.url_to_sign(&url, parcel.content_type, parcel.payload).into_owned())
            }
            _ => url,
        }
    }

    /// Why the application's own check refuses a delivery from now on, whatever happens: the signed time stands
    /// inside the body, which is not changed, and is too old.
    pub fn has_expired(&self, parcel: &Parcel<'_>, now_ms: i64) -> Option<String> {
        // a row that a handler emitted is not a delivery of the provider's
        let endpoint = parcel.headers.and_then(|_| self.endpoints.get(parcel.endpoint))?;
        let provider = endpoint.config.verifier.provider();
        let signed_at_ms = provider.scheme().time_in_body_ms(parcel.payload)?;
        let tolerance = Duration::from_secs(provider.preset().tolerance_s.into());
        let age_ms = now_ms.saturating_sub(signed_at_ms);
        if self.config.sign != Sign::Provider || age_ms <= retry::as_ms(tolerance) {
            return None;
        }
        Some(format!(
            "{} signs a time inside the body, and what is older than {} s is refused by its SDK at every attempt; \
             write sign = \"standard\" for destination {}, then `inboxd outbox retry`",
            provider.name(),
            tolerance.as_secs(),
            self.config.name
        ))
    }

    fn body<'a>(&self, parcel: &Parcel<'a>) -> (Cow<'a, [u8]>, Cow<'a, str>) {
        let as_it_is = (Cow::Borrowed(parcel.payload), Cow::Borrowed(parcel.content_type));
        if self.config.body_format == BodyFormat::Json || parcel.headers.is_some() {
            return as_it_is;
        }
        match serde_json::from_slice(parcel.payload) {
            Ok(json @ Value::Object(_)) => {
                (Cow::Owned(form(&json).into_bytes()), Cow::Borrowed("application/x-www-form-urlencoded"))
            }
            _ => as_it_is,
        }
    }

    /// Every header of the request.
    ///
    /// # Errors
    /// One sentence: it cannot be signed as configured.
    pub fn headers(&self, parcel: &Parcel<'_>, now_ms: i64) -> Result<Lines, TargetError> {
        let signed = self.signature(parcel, now_ms)?;
        let mut lines = vec![("Content-Type".to_owned(), parcel.content_type.to_owned())];
        let mut ours = vec![
            ("Idempotency-Key", header_text(parcel.operation_key)),
            ("Inboxd-Event-Id", header_text(parcel.event_id)),
            ("Inboxd-Endpoint", header_text(parcel.endpoint)),
            ("Inboxd-Attempt", parcel.attempt.to_string()),
        ];
        ours.extend(parcel.event_type.map(|event_type| ("Inboxd-Type", header_text(event_type))));
        // GitLab's id is in a header of this name: signed as the provider signs, its own counts
        ours.retain(|(name, _)| !signed.iter().any(|(signed, _)| signed.eq_ignore_ascii_case(name)));
        let kept: BTreeMap<String, String> =
            parcel.headers.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let said: Vec<&str> = signed
            .iter()
            .map(|(name, _)| name.as_str())
            .chain(ours.iter().map(|(name, _)| *name))
            .chain(self.config.headers.keys().map(String::as_str))
            .chain(["content-type"])
            .collect();
        let is_taken = |name: &str| {
            said.iter().any(|said| said.eq_ignore_ascii_case(name))
                || self.config.sign == Sign::Standard && is_of_standard(name)
        };
        lines.extend(kept.into_iter().filter(|(name, _)| !is_taken(name)));
        lines.extend(signed);
        lines.extend(ours.into_iter().map(|(name, value)| (name.to_owned(), value)));
        for (name, value) in &self.config.headers {
            let value = std::str::from_utf8(value.expose())
                .map_err(|source| TargetError::HeaderNotText { name: name.clone(), source })?;
            lines.push((name.clone(), value.trim_ascii().to_owned()));
        }
        Ok(lines)
    }

    fn signature(&self, parcel: &Parcel<'_>, now_ms: i64) -> Result<Lines, TargetError> {
        match (self.config.sign, &self.standard) {
            (Sign::Standard, Some(standard)) => self.standard(standard.scheme(), parcel, now_ms),
            (Sign::Provider, _) => self.as_provider(parcel, now_ms),
            (Sign::None | Sign::Standard, _) => Ok(Vec::new()),
        }
    }

    /// Standard Webhooks: one signature for each secret, so that both sides can rotate.
    fn standard(&self, scheme: &Scheme, parcel: &Parcel<'_>, now_ms: i64) -> Result<Lines, TargetError> {
        let (id, url) = (message_id(parcel.operation_key), self.url(parcel));
        let unsigned = unsigned(parcel, (&url, &id, None), now_ms);
        let mut lines = Lines::new();
        for secret in &self.config.secrets {
            let of_this = sign(scheme, secret, &unsigned)?;
            if lines.is_empty() {
                lines = of_this;
            } else if let (Some((_, all)), Some((_, one))) = (lines.last_mut(), of_this.last()) {
                // sign() puts the signature last
                all.push(' ');
                all.push_str(one);
            }
        }
        Ok(lines)
    }

    /// As the sender signs: its scheme, a fresh time, the destination's secret or the endpoint's first.
    fn as_provider(&self, parcel: &Parcel<'_>, now_ms: i64) -> Result<Lines, TargetError> {
        let endpoint = self.endpoints.get(parcel.endpoint).ok_or_else(|| TargetError::UnknownEndpoint {
            endpoint: parcel.endpoint.to_owned(),
            destination: self.config.name.clone(),
        })?;
        let secret: &Secret = self
            .config
            .secrets
            .first()
            .or(endpoint.config.secrets.first())
            .ok_or_else(|| TargetError::NoSecret(parcel.endpoint.to_owned()))?;
        let event_type = (!parcel.topic.is_empty()).then_some(parcel.topic);
        let scheme = endpoint.config.verifier.scheme();
        let url = self.url(parcel);
        Ok(sign(scheme, secret, &unsigned(parcel, (&url, parcel.event_id, event_type), now_ms))?)
    }
}

fn unsigned<'a>(
    parcel: &Parcel<'a>,
    (url, event_id, event_type): (&'a str, &'a str, Option<&'a str>),
    now_ms: i64,
) -> Unsigned<'a> {
    Unsigned {
        method: "POST",
        url,
        content_type: parcel.content_type,
        event_id,
        event_type,
        signed_at_s: now_ms.div_euclid(1000),
        body: parcel.payload,
    }
}

/// Whether libraries for Standard Webhooks look at a header of this name: beside our own signature it must be ours.
fn is_of_standard(name: &str) -> bool {
    ["webhook-", "svix-"].iter().any(|family| name.to_ascii_lowercase().starts_with(family))
}

/// The `webhook-id` of an operation: the same for every attempt, and nothing else.
pub fn message_id(operation_key: &str) -> String {
    format!("msg_{}", hex(&Sha256::digest(operation_key)[..16]))
}

/// Ids are the sender's: what cannot stand in a header is percent-encoded.
fn header_text(text: &str) -> String {
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return text.to_owned();
    }
    percent_encoded(text, |byte| byte.is_ascii_graphic() && byte != b'%')
}

/// JSON as `application/x-www-form-urlencoded`, nested as `a[b]=c` and `a[0]=c`; null is left out.
fn form(json: &Value) -> String {
    let mut pairs = Vec::new();
    collect(json, String::new(), &mut pairs);
    let pairs = pairs.iter().map(|(name, value)| {
        format!(
            "{}={}",
            percent_encoded(name, |byte| is_unreserved(byte) || matches!(byte, b'[' | b']')),
            percent_encoded(value, is_unreserved)
        )
    });
    pairs.collect::<Vec<_>>().join("&")
}

fn collect(json: &Value, name: String, pairs: &mut Vec<(String, String)>) {
    let inner = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}[{key}]") };
    match json {
        Value::Null => {}
        Value::String(text) => pairs.push((name, text.clone())),
        Value::Bool(_) | Value::Number(_) => pairs.push((name, json.to_string())),
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| collect(value, inner(key), pairs));
        }
        Value::Array(values) => {
            let numbered = values.iter().enumerate();
            numbered.for_each(|(n, value)| collect(value, inner(&n.to_string()), pairs));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_json_becomes_a_form_with_brackets() {
        let json = serde_json::json!({"amount": 4200, "metadata": {"order id": "ä&b"}, "items": [{"n": 1}], "x": null});
        assert_eq!(form(&json), "amount=4200&items[0][n]=1&metadata[order%20id]=%C3%A4%26b");
    }

    #[test]
    fn an_id_that_cannot_stand_in_a_header_is_encoded() {
        assert_eq!(header_text("evt_1:forward:app%"), "evt_1:forward:app%");
        assert_eq!(header_text("a\r\nb: c%"), "a%0D%0Ab:%20c%25");
    }
}
