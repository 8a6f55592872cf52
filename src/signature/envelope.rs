//! What stands around the events of a batch: each of them is handed on inside it, as its provider's SDK expects.

/// The delivery's own text before its first event and after its last, such as `{"events":[` and `]}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    before: String,
    after: String,
}

impl Envelope {
    pub(crate) fn new(before: &str, after: &str) -> Self {
        Self { before: before.to_owned(), after: after.to_owned() }
    }

    /// A delivery of this one event.
    pub fn around(&self, event: &[u8]) -> Vec<u8> {
        [self.before.as_bytes(), event, self.after.as_bytes()].concat()
    }

    /// As stored: a JSON array of the two texts.
    pub fn to_json(&self) -> String {
        serde_json::json!([self.before, self.after]).to_string()
    }

    /// What [`Envelope::to_json`] has written; `None` for anything else.
    pub fn from_json(text: &str) -> Option<Self> {
        let (before, after) = serde_json::from_str(text).ok()?;
        Some(Self { before, after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_read_as_it_was_written() {
        let envelope = Envelope::new("\u{feff}{ \"who\":\"ä\\n\",\n\"events\" : [ ", " ] }\n");
        assert_eq!(Envelope::from_json(&envelope.to_json()), Some(envelope.clone()));
        assert_eq!(envelope.around(b"{}"), "\u{feff}{ \"who\":\"ä\\n\",\n\"events\" : [ {} ] }\n".as_bytes());
        assert_eq!(Envelope::from_json("[\"{\"]"), None);
    }
}
