//! Bodies that are forms (`application/x-www-form-urlencoded`): their fields, and the JSON inside one of them.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::delivery::Headers;
use super::recipe::Recipe;

/// More fields than any provider sends in a form.
pub(crate) const FORM_FIELDS_MAX: usize = 10_000;

/// The media type of form bodies.
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

/// How a form is read: the JSON in one field, or the fields themselves.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    /// The field with the JSON; empty: there is none.
    pub(crate) field: String,
    /// A form without that field is an object of its fields.
    pub(crate) params: bool,
}

impl Form {
    pub(crate) fn build(recipe: &Recipe<'_>) -> Option<Self> {
        let (field, params) = (recipe.form_field.to_owned(), recipe.form_params);
        (params || !field.is_empty()).then_some(Self { field, params })
    }

    /// The field's decoded text, where the body is a form that has it exactly once.
    pub(crate) fn json<'a>(&self, headers: &Headers, body: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        if self.field.is_empty() || !is_form(headers) {
            return None;
        }
        let mut values = form_fields(body).filter(|(name, _)| **name == *self.field.as_bytes());
        match (values.next(), values.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }

    /// The form as an object: a field's text, or the list of its texts where it comes several times.
    /// `None` where it has too many fields.
    pub(crate) fn object(body: &[u8]) -> Option<Value> {
        if form_fields(body).nth(FORM_FIELDS_MAX).is_some() {
            return None;
        }
        let mut fields = Map::new();
        for (name, value) in form_fields(body).filter(|(name, _)| !name.is_empty()) {
            let value = Value::from(String::from_utf8_lossy(&value).into_owned());
            match fields.entry(String::from_utf8_lossy(&name)) {
                serde_json::map::Entry::Vacant(entry) => drop(entry.insert(value)),
                serde_json::map::Entry::Occupied(mut entry) => match entry.get_mut() {
                    Value::Array(values) => values.push(value),
                    first => *first = Value::Array(vec![first.take(), value]),
                },
            }
        }
        Some(Value::Object(fields))
    }
}

/// The decoded fields of a form, in order.
pub(crate) fn form_fields(body: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = match pair.iter().position(|byte| *byte == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        };
        (form_decoded(name), form_decoded(value))
    })
}

pub(crate) fn is_form(headers: &Headers) -> bool {
    let content_type = headers.first("content-type").unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(FORM)
}

/// `+` and `%XX` decoded; a broken escape stands for itself (WHATWG URL, section 5.1).
pub(crate) fn form_decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(text);
    }
    let digit = |at: usize| {
        text.get(at)
            .and_then(|byte| char::from(*byte).to_digit(16))
            .and_then(|value| u8::try_from(value).ok())
    };
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.get(at) {
        let escaped = (*byte == b'%').then(|| digit(at + 1).zip(digit(at + 2))).flatten();
        out.push(match (escaped, byte) {
            (Some((high, low)), _) => high << 4 | low,
            (None, b'+') => b' ',
            (None, byte) => *byte,
        });
        at += if escaped.is_some() { 3 } else { 1 };
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(body: &str) -> Option<String> {
        let mut headers = Headers::default();
        headers.push("Content-Type", "Application/X-WWW-Form-Urlencoded; charset=utf-8");
        let form = Form { field: String::from("payload"), params: false };
        form.json(&headers, body.as_bytes()).map(|text| String::from_utf8_lossy(&text).into_owned())
    }

    #[test]
    fn a_form_field_is_decoded_once_and_must_be_the_only_one() {
        assert_eq!(form("payload=%7B%22a%22%3A%22b+c%26%2B%22%7D&x=1").as_deref(), Some(r#"{"a":"b c&+"}"#));
        assert_eq!(form("x=1&pay%6Coad=1").as_deref(), Some("1"));
        assert_eq!(form("payload=%zz%4").as_deref(), Some("%zz%4"));
        assert_eq!(form("payload").as_deref(), Some(""));
        assert_eq!(form("payload=1&payload=2"), None);
        assert_eq!(form(""), None);
    }
}
