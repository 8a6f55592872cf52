//! What a delivery presents: its signatures, the time and id they cover, and the string they are over.
//!
//! Read strictly, with a [`Flaw`] for all that is odd. Whether a signature holds is not decided here, and no body
//! is parsed before that, with one exception: Mailgun's signature stands inside it.

use std::borrow::Cow;

use super::{Part, Scheme, SignatureHeader, TimestampPlace};
use crate::verify::canonical;
use crate::verify::identity::{self, Parsed, Source, at};
use crate::verify::secret::{Algorithm, Judge, Keyed, Signature};
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
    /// In the scheme's unit. `None` where no time is signed, or where it is in the body.
    pub(in crate::verify) signed_at: Option<i64>,
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
    pub(in crate::verify) fn parse(&self, headers: &Headers, body: &[u8]) -> Parsed {
        identity::parse(self.form.as_ref(), &self.wanted, headers, body)
    }

    /// The same where it takes the JSON to find the signature or what it is over: before anything is verified.
    pub(in crate::verify) fn parsed_first(&self, delivery: &Delivery<'_>) -> Option<Parsed> {
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

/// What is wrong with the headers of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::verify) enum Flaw {
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
    pub(in crate::verify) fn rejection(&self) -> Rejection {
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
}

/// Digits without sign, blank or leading zero, that fit an `i64`.
pub(in crate::verify) fn plain_decimal(text: &str) -> Result<i64, Flaw> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| plain).ok_or(Flaw::TimestampNotDecimal)
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
    match renamed.and_then(|(from, to)| Some((name.strip_prefix(from)?, to))) {
        Some((rest, to)) => Cow::Owned(format!("{to}{rest}")),
        None => Cow::Borrowed(name),
    }
}
