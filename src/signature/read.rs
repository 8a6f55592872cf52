//! Reading the signatures of a delivery, the time and id they cover, and the string they are over.
//!
//! Strict: whatever is odd is a [`Malformed`]. Whether a signature holds is not decided here, and no body
//! is parsed before that, with one exception: Mailgun's signature stands inside it.

use std::borrow::Cow;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::canonical;
use super::delivery::{Delivery, Headers, Rejection, after, rename, single};
use super::json::{self, Parsed, at};
use super::malformed::Malformed;
use super::projection::Projection;
use super::scheme::{Part, Scheme, SignatureHeader, Timestamp, TimestampPlace};
use super::secret::{Algorithm, BadDigest, Encoding, Judge, Keyed, Signature};
use super::sources::Source;

/// More signatures than any provider sends while it rotates keys; further ones are not tried.
pub(crate) const SIGNATURES_MAX: usize = 16;

/// What a delivery presents.
pub(crate) struct Presented<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) candidates: Vec<Signature>,
    pub(crate) id: &'a str,
    /// As sent: the signature covers this text, not the number.
    pub(crate) ts: &'a str,
    /// Milliseconds since 1970. `None` where no time is signed, or where it is in the body.
    pub(crate) signed_at_ms: Option<i128>,
    pub(crate) body: Cow<'a, [u8]>,
    /// See [`Scheme::composed`].
    pub(crate) composed: Vec<Vec<u8>>,
    /// See [`Scheme::parsed_first`]; to be used again once the signature holds.
    pub(crate) parsed: Option<Parsed>,
}

impl Scheme {
    /// What a delivery presents, read strictly.
    pub(crate) fn present<'a>(&self, delivery: &Delivery<'a>) -> Result<Presented<'a>, Malformed> {
        let headers = delivery.headers;
        let renamed = self.family(headers);
        let algorithm = self.algorithm_named(headers)?;
        let parsed = self.parsed_first(delivery);
        let (candidates, pair_times, id) = match &self.signature_field {
            Some(pointer) => {
                let text = parsed.as_ref().and_then(|parsed| at(&parsed.json, pointer)?.as_str());
                let text = text.filter(|text| !text.is_empty()).ok_or(Malformed::NoSignature)?;
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
        let (ts, signed_at_ms) = self.signed_time(headers, &pair_times)?;
        Ok(Presented {
            algorithm,
            candidates,
            id,
            ts,
            signed_at_ms,
            body: self.signed_body(delivery),
            composed: self.composed(delivery, parsed.as_ref())?,
            parsed: parsed.filter(|_| self.projection != Projection::All),
        })
    }

    /// The time's text and what it says; nothing where no time is signed or where it is in the body.
    fn signed_time<'a>(
        &self,
        headers: &'a Headers,
        pair_times: &[&'a str],
    ) -> Result<(&'a str, Option<i128>), Malformed> {
        let Some(timestamp) = &self.timestamp else { return Ok(("", None)) };
        let (text, place) = match &timestamp.place {
            TimestampPlace::Header(header) => {
                let name = rename(header, self.family(headers));
                (single(headers, &name)?.map(str::trim), name)
            }
            TimestampPlace::Pair(key) => match pair_times {
                [] => (None, Cow::Owned(format!("{key}= of {}", self.header.name))),
                [one] => (Some(*one), Cow::Owned(format!("{key}= of {}", self.header.name))),
                _ => return Err(Malformed::TimestampRepeated),
            },
            TimestampPlace::Json(_) => return Ok(("", None)),
        };
        let text = text.ok_or_else(|| Malformed::TimestampMissing(place.to_string()))?;
        Ok((text, Some(timestamp.read(text, &place)?)))
    }

    /// The body as JSON (of a form: the JSON inside, or its fields), or why it is not JSON.
    pub(crate) fn parse(&self, headers: &Headers, body: &[u8]) -> Parsed {
        json::parse(self.form.as_ref(), &self.projection, headers, body)
    }

    /// The same where it takes the JSON to find the signature or what it is over: before anything is verified.
    pub(crate) fn parsed_first(&self, delivery: &Delivery<'_>) -> Option<Parsed> {
        let signs_fields = self.signed.iter().any(|part| matches!(part, Part::Json(_)));
        (signs_fields || self.signature_field.is_some()).then(|| match self.projection {
            // before the signature holds, only the scheme's own fields are worth a tree
            Projection::All => {
                let own = self.own_fields(&[]);
                json::parse(self.form.as_ref(), &own, delivery.headers, delivery.body)
            }
            Projection::Fields(_) => self.parse(delivery.headers, delivery.body),
        })
    }

    /// The id, where it is part of what is signed; else nothing.
    fn signed_id<'a>(
        &self,
        headers: &'a Headers,
        renamed: Option<(&str, &str)>,
    ) -> Result<&'a str, Malformed> {
        match self.sources.event_id.first() {
            Some(Source::Header(id)) if self.signed.contains(&Part::Id) => {
                let id = rename(id, renamed);
                let value = single(headers, &id)?.filter(|value| !value.is_empty());
                let value = value.ok_or_else(|| Malformed::NoId(id.into_owned()))?;
                self.check_id(value)?;
                Ok(value)
            }
            _ => Ok(""),
        }
    }

    /// Twilio's shared keys: the header is not signed, but it only chooses between two sound MACs.
    fn algorithm_named(&self, headers: &Headers) -> Result<Algorithm, Malformed> {
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
            Some(_) => Err(Malformed::AlgorithmUnknown(name.clone())),
        }
    }

    /// Holds the signatures of a delivery against one key.
    pub(crate) fn judge<'k>(
        &self,
        keyed: &'k Keyed,
        delivery: &Delivery<'_>,
        presented: &Presented<'_>,
    ) -> Judge<'k> {
        keyed.judge(self.pieces(delivery, presented))
    }

    /// The hash of the text that the signature is over.
    pub(crate) fn signed_sha256(&self, delivery: &Delivery<'_>, presented: &Presented<'_>) -> [u8; 32] {
        let hash =
            self.pieces(delivery, presented).fold(Sha256::new(), |hash, piece| hash.chain_update(piece));
        hash.finalize().into()
    }

    /// The signed time inside a body, in milliseconds since the epoch, where this scheme has it there.
    pub fn time_in_body_ms(&self, body: &[u8]) -> Option<i64> {
        let timestamp = self.timestamp.as_ref().filter(|_| self.has_time_in_body())?;
        let parsed = self.parse(&Headers::default(), body);
        i64::try_from(time_in_body(timestamp, &parsed.json).ok()?).ok()
    }

    /// What is signed, piece by piece.
    pub(crate) fn pieces<'p>(
        &'p self,
        delivery: &'p Delivery<'_>,
        presented: &'p Presented<'_>,
    ) -> impl Iterator<Item = &'p [u8]> {
        let mut composed = presented.composed.iter();
        self.signed.iter().map(move |part| match part {
            Part::Text(text) => text.as_bytes(),
            Part::Ts => presented.ts.as_bytes(),
            Part::Id => presented.id.as_bytes(),
            Part::Body => &presented.body,
            Part::Url => delivery.url.as_bytes(),
            Part::Method => delivery.method.as_bytes(),
            Part::Json(_) | Part::Params | Part::Path | Part::SignedHeaders => {
                composed.next().map_or(&b""[..], Vec::as_slice)
            }
        })
    }

    /// The pieces that have to be put together first, in the order of the template. `parsed` is what
    /// [`Scheme::parsed_first`] says.
    pub(crate) fn composed(
        &self,
        delivery: &Delivery<'_>,
        parsed: Option<&Parsed>,
    ) -> Result<Vec<Vec<u8>>, Malformed> {
        let mut composed = Vec::new();
        for part in &self.signed {
            composed.push(match part {
                Part::Text(_) | Part::Ts | Part::Id | Part::Body | Part::Url | Part::Method => continue,
                Part::Json(pointer) => {
                    let value = parsed.and_then(|parsed| at(&parsed.json, pointer));
                    json::text(value).ok_or_else(|| Malformed::FieldMissing(pointer.clone()))?.into_bytes()
                }
                Part::Params => canonical::params(delivery)?,
                Part::Path => canonical::path(delivery.url),
                Part::SignedHeaders => {
                    let list = self.signed_headers_header.as_deref().unwrap_or_default();
                    canonical::signed_headers(delivery.headers, list, self.timestamp_header())?
                }
            });
        }
        Ok(composed)
    }

    pub(crate) fn signed_body<'a>(&self, delivery: &Delivery<'a>) -> Cow<'a, [u8]> {
        match &self.form {
            Some(form) if self.form_field_signed => {
                form.json(delivery.headers, delivery.body).unwrap_or(Cow::Borrowed(delivery.body))
            }
            _ => Cow::Borrowed(delivery.body),
        }
    }

    /// The names this delivery uses: the first family that is complete, else the one with a signature.
    pub(crate) fn family<'s>(&'s self, headers: &Headers) -> Option<(&'s str, &'s str)> {
        let [first, second] = self.families.as_ref()?;
        let own = if after(&self.header.name, first).is_some() { first } else { second };
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

    /// If both families are present they must agree: the signature does not say which of them it covers.
    fn check_families(&self, headers: &Headers) -> Result<(), Malformed> {
        let Some([first, second]) = &self.families else {
            return Ok(());
        };
        for name in self.family_headers() {
            let other = if after(name, first).is_some() {
                rename(name, Some((first, second)))
            } else {
                rename(name, Some((second, first)))
            };
            if let (Some(one), Some(two)) = (headers.first(name), headers.first(&other))
                && one != two
            {
                return Err(Malformed::NamesDisagree(name.to_owned(), other.into_owned()));
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
    fn check_id(&self, id: &str) -> Result<(), Malformed> {
        let separator = self.signed.windows(2).find_map(|pair| match pair {
            [Part::Id, Part::Text(text)] => Some(text.as_str()),
            _ => None,
        });
        let in_time = |byte: u8| byte.is_ascii_digit() || b"-:+TtZz".contains(&byte);
        let like_time = |piece: &str| {
            piece.len() >= 10 && piece.starts_with(|c: char| c.is_ascii_digit()) && piece.bytes().all(in_time)
        };
        match separator {
            Some(separator) if id.split(separator).skip(1).any(like_time) => Err(Malformed::IdAmbiguous),
            _ => Ok(()),
        }
    }

    /// The well-formed signatures, and the values of the timestamp's pair.
    fn elements<'a>(
        &self,
        values: &[&'a str],
        algorithm: Algorithm,
    ) -> Result<(Vec<Signature>, Vec<&'a str>), Malformed> {
        let ts_key = match self.timestamp.as_ref().map(|timestamp| &timestamp.place) {
            Some(TimestampPlace::Pair(key)) => Some(key.as_str()),
            _ => None,
        };
        let (mut candidates, mut times, mut odd) = (Vec::new(), Vec::new(), None);
        for element in values.iter().flat_map(|value| self.header.split(value)) {
            if let (Some((key, value)), Some(ts_key)) = (element.split_once('='), ts_key)
                && key.trim_end() == ts_key
            {
                times.push(value.trim_start());
            } else if let Some(text) = self.header.signature(element) {
                match Signature::decode(text, self.encoding, algorithm) {
                    Ok(signature) => candidates.push(signature),
                    Err(malformed) => odd = Some(malformed),
                }
            }
        }
        match (candidates.len(), odd) {
            (0, None) => Err(Malformed::NoneLabelled),
            (0, Some(malformed)) => Err(Malformed::NoneWellFormed(malformed)),
            (1..=SIGNATURES_MAX, _) => Ok((candidates, times)),
            _ => Err(Malformed::TooMany),
        }
    }
}

impl Scheme {
    /// The word for what is wrong with a delivery by the rules of this scheme.
    pub(crate) fn rejection(&self, malformed: &Malformed) -> Rejection {
        match malformed {
            Malformed::NoSignature => Rejection::SignatureMissing,
            Malformed::NoId(_) => Rejection::EventIdMissing,
            Malformed::BodyHashDiffers => Rejection::SignatureMismatch,
            Malformed::AlgorithmUnknown(_)
            | Malformed::SignedHeadersOdd(_)
            | Malformed::BodyUncovered
            | Malformed::SeveralLines(_)
            | Malformed::NamesDisagree(..)
            | Malformed::NoneLabelled
            | Malformed::NoneWellFormed(_)
            | Malformed::TooMany
            | Malformed::TimestampMissing(_)
            | Malformed::TimestampRepeated
            | Malformed::TimestampUnreadable(_)
            | Malformed::FieldMissing(_)
            | Malformed::IdAmbiguous => Rejection::SignatureMalformed { part: self.in_words(malformed) },
        }
    }

    /// Which part is wrong, without a byte of it.
    pub(crate) fn in_words(&self, malformed: &Malformed) -> String {
        let header = &self.header.name;
        match malformed {
            Malformed::NoSignature => format!("there is no signature in {header}"),
            Malformed::NoId(name) => format!("{name} is missing, and the signature covers it"),
            Malformed::SeveralLines(name) => format!("there is more than one {name} header"),
            Malformed::NamesDisagree(one, other) => format!("{one} and {other} say different things"),
            Malformed::NoneLabelled => format!(
                "{header} has no signature of the expected form, which is {:?} and the signature",
                self.header.element("")
            ),
            Malformed::NoneWellFormed(digest) => {
                format!("the digest in {header} {}", self.wrong_digest(digest))
            }
            Malformed::TooMany => format!("{header} holds more than {SIGNATURES_MAX} signatures"),
            Malformed::TimestampMissing(place) => format!("the signed time in {place} is missing"),
            Malformed::TimestampRepeated => format!("{header} holds the time more than once"),
            Malformed::TimestampUnreadable(place) => {
                let unit = self.timestamp.as_ref().map_or("a time", |timestamp| timestamp.unit.title());
                format!("{place} does not hold {unit}")
            }
            Malformed::FieldMissing(pointer) => format!("the body has nothing at {pointer}, which is signed"),
            Malformed::IdAmbiguous => {
                String::from("the signed id contains a separator and what looks like a time")
            }
            Malformed::AlgorithmUnknown(name) => format!("{name} names an unknown algorithm"),
            Malformed::SignedHeadersOdd(name) => {
                format!("{name} does not list itself and the time, or lists a header that is not there once")
            }
            Malformed::BodyUncovered => String::from("the body is no form and its hash is not in the URL"),
            Malformed::BodyHashDiffers => String::from("the hash in the URL is another body's"),
        }
    }
}

impl Scheme {
    /// The end of a sentence about a digest.
    fn wrong_digest(&self, digest: &BadDigest) -> String {
        let hex = self.encoding == Encoding::Hex;
        let wanted = match (self.algorithm.signature_bytes(), hex) {
            (Some(bytes), true) => format!("{} hex digits", 2 * bytes),
            (Some(bytes), false) => format!("{bytes} bytes in base64"),
            (None, true) => String::from("hex digits"),
            (None, false) => String::from("base64"),
        };
        let title = self.algorithm.title();
        match digest {
            BadDigest::Alphabet(_) => {
                format!("is not {wanted}, as a {title} is: it has other characters in it")
            }
            BadDigest::Length(bytes) => {
                let has = if hex { format!("{} digits", 2 * bytes) } else { format!("{bytes} bytes") };
                let fits = [Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha384, Algorithm::Sha512]
                    .into_iter()
                    .find(|algorithm| algorithm.signature_bytes() == Some(*bytes));
                let fits = fits.map_or(String::new(), |one| format!(", as a {} has", one.title()));
                format!("is not {wanted}, as a {title} is: it has {has}{fits}")
            }
            BadDigest::Shape => format!("is no {title}"),
        }
    }
}

impl SignatureHeader {
    /// The header's lines. `ours` is its name in this delivery.
    fn values<'a>(&self, headers: &'a Headers, ours: &str) -> Result<Vec<&'a str>, Malformed> {
        let ours_only = headers.iter().filter(|(name, _)| self.matches(ours, name));
        let lines: Vec<_> = ours_only.map(|(_, value)| value).collect();
        match lines.as_slice() {
            lines if lines.iter().all(|line| line.trim().is_empty()) => Err(Malformed::NoSignature),
            [_, _, ..] if !self.numbered => Err(Malformed::SeveralLines(ours.to_owned())),
            _ => Ok(lines),
        }
    }

    /// The elements of one line.
    fn split<'a>(&self, value: &'a str) -> impl Iterator<Item = &'a str> {
        let separator = self.list_separator.as_deref();
        let elements = separator.into_iter().flat_map(move |separator| value.split(separator));
        let whole = separator.is_none().then_some(value);
        elements.chain(whole).map(|one| one.trim_matches([' ', '\t']))
    }

    /// The signature's text, if the element is one of ours. Blanks around it are not part of it.
    fn signature<'a>(&self, element: &'a str) -> Option<&'a str> {
        match (&self.pair, self.after_prefix(element)) {
            (Some(pair), _) => element
                .split_once('=')
                .filter(|(key, _)| self.is_same(key.trim_end(), pair))
                .map(|(_, value)| value),
            (None, Some(rest)) => Some(rest),
            (None, None) => self.prefix_optional.then_some(element),
        }
        .map(|text| text.trim_matches([' ', '\t']))
        .filter(|text| !text.is_empty())
    }

    fn after_prefix<'a>(&self, element: &'a str) -> Option<&'a str> {
        let (start, rest) = element.split_at_checked(self.prefix.len())?;
        self.is_same(start, &self.prefix).then_some(rest)
    }

    fn is_same(&self, one: &str, ours: &str) -> bool {
        if self.any_case { one.eq_ignore_ascii_case(ours) } else { one == ours }
    }
}

/// The signed time, in milliseconds since 1970, where it stands in the body.
pub(crate) fn time_in_body(timestamp: &Timestamp, json: &Value) -> Result<i128, Malformed> {
    let TimestampPlace::Json(pointer) = &timestamp.place else {
        return Err(Malformed::TimestampMissing(String::from("the message")));
    };
    let place = format!("{pointer} in the body");
    match at(json, pointer) {
        Some(Value::Number(number)) => timestamp.read(&number.to_string(), &place),
        Some(Value::String(text)) => timestamp.read(text, &place),
        _ => Err(Malformed::TimestampMissing(place)),
    }
}
