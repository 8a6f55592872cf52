//! The JSON of a body (of a form: the JSON inside, or its fields), and what its pointers lead to.
//!
//! Nothing here refuses a body: what cannot be read is a *defect*, so that the event is stored and a person looks at it.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::delivery::Headers;
use super::form::{FORM_FIELDS_MAX, Form, is_form};
use super::projection::{Projection, Twice, Unread};

/// U+FEFF, which some senders write before the text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The body as JSON, or why it is not JSON.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// `Null` where there is a defect.
    pub(crate) json: Value,
    pub(crate) defect: Option<String>,
    /// An object has one name twice.
    pub(crate) twice: Option<Twice>,
}

impl Parsed {
    pub(crate) fn json((json, twice): (Value, Option<Twice>)) -> Self {
        Self { json, defect: None, twice }
    }

    pub(crate) fn defect(defect: impl Into<String>) -> Self {
        Self { json: Value::Null, defect: Some(defect.into()), twice: None }
    }

    pub(crate) fn unread(what: &str, unread: &Unread) -> Self {
        Self::defect(match unread {
            Unread::NotJson(error) => format!("{what} is not JSON: {error}"),
            Unread::TooLarge => {
                format!("{what} has more values at the places that are read than fit into memory")
            }
        })
    }

    /// What is wrong with the body as a whole.
    pub(crate) fn defects(&self) -> Vec<String> {
        self.defect.iter().cloned().chain(self.twice.as_ref().map(Twice::reason)).collect()
    }

    /// Whether the value at this pointer depends on the parser: a name comes twice there.
    pub(crate) fn is_twice(&self, pointer: &str) -> bool {
        let names = self.twice.iter().flat_map(|twice| &twice.names);
        names.into_iter().any(|name| {
            pointer.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// Parses the body once. The defect's text never quotes the body.
pub(crate) fn parse(form: Option<&Form>, wanted: &Projection, headers: &Headers, body: &[u8]) -> Parsed {
    let text = match form {
        Some(form) if is_form(headers) => match form.json(headers, body) {
            Some(text) => text,
            None if form.params && !body.is_empty() => {
                return Form::object(body).map_or_else(
                    || Parsed::defect(format!("the form has more than {FORM_FIELDS_MAX} fields")),
                    |object| Parsed::json((object, None)),
                );
            }
            None => return Parsed::defect(format!("the form has not exactly one field {:?}", form.field)),
        },
        _ => Cow::Borrowed(body),
    };
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    // looked at as a whole it is UTF-8 at less cost than string by string
    let Ok(text) = std::str::from_utf8(text) else {
        return Parsed::defect("the body is not UTF-8");
    };
    match wanted.parse(text) {
        Ok(json) => Parsed::json(json),
        Err(_) if text.is_empty() => Parsed::defect("the body is empty"),
        Err(unread) => Parsed::unread("the body", &unread),
    }
}

/// The sender's own text of the JSON (of a form: the decoded field), without a byte order mark; `None` where the body
/// is a form of fields, or no text.
pub(crate) fn json_text<'a>(form: Option<&Form>, headers: &Headers, body: &'a [u8]) -> Option<Cow<'a, str>> {
    let text = match form {
        Some(form) if is_form(headers) => form.json(headers, body)?,
        _ => Cow::Borrowed(body),
    };
    Some(match text {
        Cow::Borrowed(text) => {
            let text = std::str::from_utf8(text).ok()?;
            Cow::Borrowed(text.strip_prefix('\u{feff}').unwrap_or(text))
        }
        Cow::Owned(text) => {
            let text = String::from_utf8(text).ok()?;
            Cow::Owned(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
        }
    })
}

/// A string or a number as it stands in JSON; `None` for anything else, and for the empty text.
pub(crate) fn text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// What a JSON pointer leads to: [`Value::pointer`] without the two copies that it makes of every step.
pub(crate) fn at<'a>(json: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.contains('~') {
        return json.pointer(pointer);
    }
    pointer.split('/').skip(1).try_fold(json, |json, step| match json {
        Value::Object(fields) => fields.get(step),
        Value::Array(_) => json.pointer(&format!("/{step}")),
        _ => None,
    })
}

/// Writes a value at a JSON pointer, making the objects (and the first element of lists) on the way.
pub(crate) fn put(json: &mut Value, pointer: &str, value: Value) {
    let mut place = json;
    for key in pointer.split('/').skip(1) {
        place = match key {
            "0" => {
                if !place.is_array() {
                    *place = json!([null]);
                }
                &mut place[0]
            }
            key => {
                if !place.is_object() {
                    *place = json!({});
                }
                &mut place[key]
            }
        };
    }
    *place = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_leads_where_its_specification_says() {
        let json = serde_json::json!({"a": {"b": [1, {"c": 2}], "": 3}, "x/y": 4, "0": 5});
        let pointers = [
            "",
            "/a",
            "/a/b/1/c",
            "/a/b/01",
            "/a/b/+1",
            "/a/b/2",
            "/a/b/-",
            "/a/",
            "/x~1y",
            "/0",
            "/a/b/1/c/d",
        ];
        for pointer in pointers {
            assert_eq!(at(&json, pointer), json.pointer(pointer), "{pointer}");
        }
        assert_eq!(at(&json, "/a/b/1/c"), Some(&Value::from(2)));
    }

    #[test]
    fn unreadable_bodies_are_defects_that_do_not_quote_the_body() {
        let defect = |body: &[u8]| parse(None, &Projection::All, &Headers::default(), body).defect;
        let nested = vec![b'['; 100_000];
        for (body, words) in [
            (&b""[..], "empty"),
            (b"\xff\xfe{}", "UTF-8"),
            (b"{\"raw\":\"\xff\"}", "UTF-8"),
            (b"hunter2", "not JSON"),
            (br#"{"hunter2":"\ud83d"}"#, "not JSON"),
            (b"{\"id\":\"hunter2\"}\0", "not JSON"),
            (b"{\"hunter2\":1e309}", "not JSON"),
            (&nested, "not JSON"),
        ] {
            let defect = defect(body).unwrap();
            assert!(defect.contains(words) && !defect.contains("hunter2"), "{defect}");
        }
        assert_eq!(defect(b"\xef\xbb\xbf{\"id\":\"evt_1\"}\r\n\n"), None);
    }
}
