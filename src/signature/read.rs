//! What a delivery presents: its signatures, the time and id they cover, and the string they are over.
//!
//! Read strictly, with a [`Flaw`] for all that is odd. Whether a signature holds is not decided here, and no body
//! is parsed before that, with one exception: Mailgun's signature stands inside it.

use std::borrow::Cow;

use super::{Part, Scheme, SignatureHeader, TimestampPlace};
use crate::verify::canonical;
use crate::verify::identity::{self, Parsed, Source, at};
use crate::verify::secret::{Algorithm, Encoding, Judge, Keyed, Malformed, Signature};
use crate::verify::wanted::Wanted;
use crate::verify::{Delivery, Headers, Rejection};

/// More signatures than any provider sends while it rotates keys; further ones are not tried.
pub(in crate::verify) const SIGNATURES_MAX: usize = 16;

/// What a delivery presents.
pub(in crate::verify) struct Presented<'a> {
    pub(in crate::verify) algorithm: Algorithm,
    pub(in crate::verify) candidates: Vec<Signature>,
    pub(in crate::verify) id: &'a str,
    /// As sent: the signature covers this text, not the number.
    pub(in crate::verify) ts: &'a str,
    /// Milliseconds since 1970. `None` where no time is signed, or where it is in the body.
    pub(in crate::verify) signed_at_ms: Option<i128>,
    pub(in crate::verify) body: Cow<'a, [u8]>,
    /// See [`Scheme::made`].
    pub(in crate::verify) made: Vec<Vec<u8>>,
    /// See [`Scheme::parsed_first`]; to be used again once the signature holds.
    pub(in crate::verify) parsed: Option<Parsed>,
}

impl Scheme {
    /// What a delivery presents, read strictly.
    pub(in crate::verify) fn present<'a>(&self, delivery: &Delivery<'a>) -> Result<Presented<'a>, Flaw> {
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
        let (ts, signed_at_ms) = self.signed_time(headers, &pair_times)?;
        Ok(Presented {
            algorithm,
            candidates,
            id,
            ts,
            signed_at_ms,
            body: self.signed_body(delivery),
            made: self.made(delivery, parsed.as_ref())?,
            parsed: parsed.filter(|_| self.wanted != Wanted::All),
        })
    }

    /// The time's text and what it says; nothing where no time is signed or where it is in the body.
    fn signed_time<'a>(
        &self,
        headers: &'a Headers,
        pair_times: &[&'a str],
    ) -> Result<(&'a str, Option<i128>), Flaw> {
        let Some(timestamp) = &self.timestamp else { return Ok(("", None)) };
        let (text, place) = match &timestamp.place {
            TimestampPlace::Header(header) => {
                let name = rename(header, self.family(headers));
                (single(headers, &name)?.map(str::trim), name)
            }
            TimestampPlace::Pair(key) => match pair_times {
                [] => (None, Cow::Owned(format!("{key}= of {}", self.header.name))),
                [one] => (Some(*one), Cow::Owned(format!("{key}= of {}", self.header.name))),
                _ => return Err(Flaw::TimestampRepeated),
            },
            TimestampPlace::Json(_) => return Ok(("", None)),
        };
        let text = text.ok_or_else(|| Flaw::TimestampMissing(place.to_string()))?;
        Ok((text, Some(timestamp.read(text, &place)?)))
    }

    /// The body as JSON (of a form: the JSON inside, or its fields), or why it is none.
    pub(in crate::verify) fn parse(&self, headers: &Headers, body: &[u8]) -> Parsed {
        identity::parse(self.form.as_ref(), &self.wanted, headers, body)
    }

    /// The same where it takes the JSON to find the signature or what it is over: before anything is verified.
    pub(in crate::verify) fn parsed_first(&self, delivery: &Delivery<'_>) -> Option<Parsed> {
        let signs_fields = self.signed.iter().any(|part| matches!(part, Part::Json(_)));
        (signs_fields || self.signature_field.is_some()).then(|| match self.wanted {
            // strangers have no more of it made into a tree than tells whether they are some
            Wanted::All => {
                let own = self.own_fields(&[]);
                identity::parse(self.form.as_ref(), &own, delivery.headers, delivery.body)
            }
            Wanted::Fields(_) => self.parse(delivery.headers, delivery.body),
        })
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

    /// Holds the signatures of a delivery against one key.
    pub(in crate::verify) fn judge<'k>(
        &self,
        keyed: &'k Keyed,
        delivery: &Delivery<'_>,
        presented: &Presented<'_>,
    ) -> Judge<'k> {
        keyed.judge(self.pieces(delivery, presented))
    }

    /// What is signed, piece by piece.
    pub(in crate::verify) fn pieces<'p>(
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
    pub(in crate::verify) fn made(
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
                    canonical::text(value).ok_or_else(|| Flaw::FieldMissing(pointer.clone()))?.into_bytes()
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

    pub(in crate::verify) fn signed_body<'a>(&self, delivery: &Delivery<'a>) -> Cow<'a, [u8]> {
        match &self.form {
            Some(form) if self.form_field_signed => {
                form.json(delivery.headers, delivery.body).unwrap_or(Cow::Borrowed(delivery.body))
            }
            _ => Cow::Borrowed(delivery.body),
        }
    }

    /// The names this delivery uses: the first family that is complete, else the one with a signature.
    pub(in crate::verify) fn family<'s>(&'s self, headers: &Headers) -> Option<(&'s str, &'s str)> {
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

    /// Where both families are present they must say the same, or which of them was signed is anybody's guess.
    fn check_families(&self, headers: &Headers) -> Result<(), Flaw> {
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
        let in_time = |byte: u8| byte.is_ascii_digit() || b"-:+TtZz".contains(&byte);
        let like_time = |piece: &str| {
            piece.len() >= 10 && piece.starts_with(|c: char| c.is_ascii_digit()) && piece.bytes().all(in_time)
        };
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
            (0, None) => Err(Flaw::NoneLabelled),
            (0, Some(malformed)) => Err(Flaw::NoneWellFormed(malformed)),
            (1..=SIGNATURES_MAX, _) => Ok((candidates, times)),
            _ => Err(Flaw::TooMany),
        }
    }
}

/// What is wrong with the headers of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::verify) enum Flaw {
    NoSignature,
    SeveralLines(String),
    NamesDisagree(String, String),
    NoneLabelled,
    NoneWellFormed(Malformed),
    TooMany,
    /// Where it should be.
    TimestampMissing(String),
    TimestampRepeated,
    /// Where it is.
    TimestampUnreadable(String),
    /// A field of the body that is signed by itself.
    FieldMissing(String),
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
    /// The word for it. `scheme` is whose rules are broken.
    pub(in crate::verify) fn rejection(&self, scheme: &Scheme) -> Rejection {
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
            | Self::NoneWellFormed(_)
            | Self::TooMany
            | Self::TimestampMissing(_)
            | Self::TimestampRepeated
            | Self::TimestampUnreadable(_)
            | Self::FieldMissing(_)
            | Self::IdAmbiguous => Rejection::SignatureMalformed { part: self.in_words(scheme) },
        }
    }

    /// Which part is wrong, without a byte of it.
    pub(in crate::verify) fn in_words(&self, scheme: &Scheme) -> String {
        let header = &scheme.header.name;
        match self {
            Self::NoSignature => format!("there is no signature in {header}"),
            Self::NoId(name) => format!("{name} is missing, and the signature covers it"),
            Self::SeveralLines(name) => format!("there is more than one {name} header"),
            Self::NamesDisagree(one, other) => format!("{one} and {other} say different things"),
            Self::NoneLabelled => format!(
                "{header} has no signature of the expected form, which is {:?} and the signature",
                scheme.header.element("")
            ),
            Self::NoneWellFormed(malformed) => {
                format!("the digest in {header} {}", scheme.wrong_digest(malformed))
            }
            Self::TooMany => format!("{header} holds more than {SIGNATURES_MAX} signatures"),
            Self::TimestampMissing(place) => format!("the signed time in {place} is missing"),
            Self::TimestampRepeated => format!("{header} holds the time more than once"),
            Self::TimestampUnreadable(place) => {
                let unit = scheme.timestamp.as_ref().map_or("a time", |timestamp| timestamp.unit.title());
                format!("{place} does not hold {unit}")
            }
            Self::FieldMissing(pointer) => format!("the body has nothing at {pointer}, which is signed"),
            Self::IdAmbiguous => {
                String::from("the signed id contains a separator and what looks like a time")
            }
            Self::AlgorithmUnknown(name) => format!("{name} names an unknown algorithm"),
            Self::SignedHeadersOdd(name) => {
                format!("{name} does not list itself and the time, or lists a header that is not there once")
            }
            Self::BodyUncovered => String::from("the body is no form and its hash is not in the URL"),
            Self::BodyHashDiffers => String::from("the hash in the URL is another body's"),
        }
    }
}

impl Scheme {
    /// The end of a sentence about a digest.
    fn wrong_digest(&self, malformed: &Malformed) -> String {
        let hex = self.encoding == Encoding::Hex;
        let wanted = match (self.algorithm.signature_bytes(), hex) {
            (Some(bytes), true) => format!("{} hex digits", 2 * bytes),
            (Some(bytes), false) => format!("{bytes} bytes in base64"),
            (None, true) => String::from("hex digits"),
            (None, false) => String::from("base64"),
        };
        let title = self.algorithm.title();
        match malformed {
            Malformed::Alphabet(_) => {
                format!("is not {wanted}, as a {title} is: it has other characters in it")
            }
            Malformed::Length(bytes) => {
                let has = if hex { format!("{} digits", 2 * bytes) } else { format!("{bytes} bytes") };
                let fits = [Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha384, Algorithm::Sha512]
                    .into_iter()
                    .find(|algorithm| algorithm.signature_bytes() == Some(*bytes));
                let fits = fits.map_or(String::new(), |one| format!(", as a {} has", one.title()));
                format!("is not {wanted}, as a {title} is: it has {has}{fits}")
            }
            Malformed::Shape => format!("is no {title}"),
        }
    }
}

impl SignatureHeader {
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

/// A header's only value. A second line, even an equal one, is refused.
pub(in crate::verify) fn single<'a>(headers: &'a Headers, name: &str) -> Result<Option<&'a str>, Flaw> {
    let mut values = headers.all(name);
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Flaw::SeveralLines(name.to_owned())),
        (value, None) => Ok(value),
    }
}

/// A header's name as this delivery writes it.
pub(in crate::verify) fn rename<'a>(name: &'a str, renamed: Option<(&str, &str)>) -> Cow<'a, str> {
    match renamed.and_then(|(from, to)| Some((after(name, from)?, to))) {
        Some((rest, to)) => Cow::Owned(format!("{to}{rest}")),
        None => Cow::Borrowed(name),
    }
}

/// The rest of a header's name after a beginning in any case.
fn after<'a>(name: &'a str, start: &str) -> Option<&'a str> {
    let (own, rest) = name.split_at_checked(start.len())?;
    own.eq_ignore_ascii_case(start).then_some(rest)
}
