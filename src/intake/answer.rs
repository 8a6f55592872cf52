//! The contract with senders: which status, word and time to wait belong to what became of a request, in one table.
//!
//! Both the answers to deliveries and the refusals of the front stand in it. [`Answer::response`] dresses an answer as
//! its provider wants it. Nothing here decides what becomes of a request.

use serde_json::json;

use crate::intake::exchange::Response;
use crate::intake::receive::Outcome;
use crate::providers::{Acceptance, Preset, Reply};
use crate::signature::Rejection;

/// Answer format where no provider's rules apply.
pub const NO_PROVIDER: &Preset = &Preset::PLAIN;

/// Names the outcome where the provider wants a body that does not.
const OUTCOME_HEADER: &str = "Inboxd-Outcome";

/// Seconds after which a sender is asked to try again.
const SOON: Option<u64> = Some(5);

/// A TwiML document that says nothing.
const TWIML: &str = r#"<?xml version="1.0" encoding="UTF-8"?><Response/>"#;

/// Everything that is answered.
#[derive(Debug)]
pub enum Answer {
    /// The delivery is stored, or was before.
    Stored(Outcome),
    /// The provider's own question is answered.
    Handshake(Reply),
    /// It does not verify.
    Rejected(Rejection),
    /// It is of another mode or account.
    ScopeMismatch,
    /// Nothing is stored; the provider will send it again.
    HandlerFailed,
    /// It cannot be stored now.
    Unavailable,
    /// Another delivery of it is with the application, for so many seconds at most.
    InProgress(u64),
    /// The application did not take it: 502, 503 or 504.
    ApplicationFailed(u16),
    /// No such path.
    NotFound,
    /// Instead of these.
    MethodNotAllowed(&'static str),
    /// The process serves.
    Alive,
    /// The next delivery would be stored.
    Ready,
    /// The next delivery would not be stored. On the private listener with the reasons, each in one sentence.
    NotReady(Vec<String>),
    /// The front did not hand the request on.
    Refused(Refused),
}

/// Why the front does not hand a request on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Malformed, or ambiguous.
    BadRequest,
    /// Not complete in time.
    Timeout,
    /// Larger than its path takes.
    BodyTooLarge,
    /// With a Content-Encoding.
    UnsupportedEncoding,
    /// With an expectation other than 100-continue.
    ExpectationFailed,
    /// A head that is too long, or has too many headers.
    HeadTooLarge,
    /// With a Transfer-Encoding other than chunked.
    NotImplemented,
    /// No room, no permit or no memory.
    Unavailable,
    /// Neither HTTP/1.0 nor HTTP/1.1.
    VersionNotSupported,
}

impl Refused {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::BadRequest,
        Self::Timeout,
        Self::BodyTooLarge,
        Self::UnsupportedEncoding,
        Self::ExpectationFailed,
        Self::HeadTooLarge,
        Self::NotImplemented,
        Self::Unavailable,
        Self::VersionNotSupported,
    ];
}

/// What the body says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// `{"outcome":"…"}`
    Outcome(&'static str),
    /// `{"error":"…"}`
    Error(&'static str),
    /// `{"status":"…"}`
    Status(&'static str),
    /// The reply's own.
    OfReply,
}

impl Word {
    fn text(self) -> &'static str {
        match self {
            Self::Outcome(word) | Self::Error(word) | Self::Status(word) => word,
            Self::OfReply => "",
        }
    }
}

/// The outcome's word.
pub fn word(outcome: Outcome) -> &'static str {
    Answer::Stored(outcome).row().1.text()
}

impl Answer {
    /// The table: status, word, seconds after which to try again.
    fn row(&self) -> (u16, Word, Option<u64>) {
        use Word::{Error, OfReply, Status};
        match self {
            Self::Stored(Outcome::Processed) => (200, Word::Outcome("processed"), None),
            Self::Stored(Outcome::Duplicate) => (200, Word::Outcome("duplicate"), None),
            Self::Stored(Outcome::Ignored) => (200, Word::Outcome("ignored"), None),
            Self::Stored(Outcome::Accepted) => (200, Word::Outcome("accepted"), None),
            Self::Stored(Outcome::Quarantined) => (200, Word::Outcome("quarantined"), None),
            Self::Stored(Outcome::Replayed) => (400, Error("replayed"), None),
            Self::Handshake(reply) => (reply.status, OfReply, None),
            Self::Rejected(rejection) => (400, Error(rejection.reason()), None),
            Self::ScopeMismatch => (400, Error("scope_mismatch"), None),
            Self::HandlerFailed => (500, Error("handler_failed"), None),
            Self::Unavailable => (503, Error("unavailable"), SOON),
            Self::InProgress(seconds) => (409, Error("in_progress"), Some(*seconds)),
            Self::ApplicationFailed(status) => (*status, Error("application_failed"), SOON),
            Self::NotFound => (404, Error("not_found"), None),
            Self::MethodNotAllowed(_) => (405, Error("method_not_allowed"), None),
            Self::Alive => (200, Status("alive"), None),
            Self::Ready => (200, Status("ready"), None),
            Self::NotReady(_) => (503, Error("unavailable"), SOON),
            Self::Refused(Refused::BadRequest) => (400, Error("bad_request"), None),
            Self::Refused(Refused::Timeout) => (408, Error("timeout"), None),
            Self::Refused(Refused::BodyTooLarge) => (413, Error("body_too_large"), None),
            Self::Refused(Refused::UnsupportedEncoding) => (415, Error("unsupported_encoding"), None),
            Self::Refused(Refused::ExpectationFailed) => (417, Error("bad_request"), None),
            Self::Refused(Refused::HeadTooLarge) => (431, Error("head_too_large"), None),
            Self::Refused(Refused::NotImplemented) => (501, Error("bad_request"), None),
            Self::Refused(Refused::Unavailable) => (503, Error("unavailable"), SOON),
            Self::Refused(Refused::VersionNotSupported) => (505, Error("bad_request"), None),
        }
    }

    /// The contract's status, before a provider has a say.
    pub fn status(&self) -> u16 {
        self.row().0
    }

    /// The contract's word.
    pub fn word(&self) -> &'static str {
        self.row().1.text()
    }

    /// Where no provider has a say.
    pub fn plain(&self) -> Response {
        self.response(NO_PROVIDER)
    }

    /// For this provider: where it demands another status or body than the table's, it gets it.
    pub fn response(&self, preset: &Preset) -> Response {
        let (_, word, retry_after_s) = self.row();
        let Dressed { status, content_type, body, in_header } = self.dressed(preset);
        let mut response = Response::new(status, body).with("Content-Type", content_type);
        if in_header {
            response = response.with(OUTCOME_HEADER, word.text());
        }
        if let Self::Handshake(_) = self {
            // a challenge is a stranger's text: no browser may take it for a page
            response = response.with("X-Content-Type-Options", "nosniff");
        }
        if let Some(seconds) = retry_after_s.or(SOON.filter(|_| status == 503)) {
            response = response.with("Retry-After", &seconds.to_string());
        }
        if let Self::MethodNotAllowed(allowed) = self {
            response = response.with("Allow", allowed);
        }
        response
    }

    fn dressed(&self, preset: &Preset) -> Dressed {
        let (status, word, _) = self.row();
        let as_it_is =
            Dressed { status, content_type: "application/json", body: self.body(word), in_header: false };
        let refused = |status| Dressed { status, ..as_it_is.clone() };
        match self {
            Self::Handshake(reply) => Dressed { content_type: reply.content_type, ..as_it_is },
            Self::Stored(Outcome::Replayed)
            | Self::ScopeMismatch
            | Self::Rejected(Rejection::EventIdMissing) => refused(preset.refusal_status.unwrap_or(status)),
            Self::Rejected(_) if preset.acceptance == Acceptance::Empty => {
                Dressed { body: String::new(), in_header: true, ..refused(preset.bad_signature_status) }
            }
            Self::Rejected(_) => refused(preset.bad_signature_status),
            Self::Stored(_) => accepted(preset.acceptance).unwrap_or(as_it_is),
            Self::HandlerFailed
            | Self::Unavailable
            | Self::InProgress(_)
            | Self::ApplicationFailed(_)
            | Self::NotFound
            | Self::MethodNotAllowed(_)
            | Self::Alive
            | Self::Ready
            | Self::NotReady(_)
            | Self::Refused(_) => as_it_is,
        }
    }

    fn body(&self, word: Word) -> String {
        match (word, self) {
            (Word::Outcome(word), _) => format!(r#"{{"outcome":"{word}"}}"#),
            (Word::Error(word), Self::NotReady(reasons)) if !reasons.is_empty() => {
                json!({ "error": word, "reasons": reasons }).to_string()
            }
            (Word::Error(word), _) => format!(r#"{{"error":"{word}"}}"#),
            (Word::Status(word), _) => format!(r#"{{"status":"{word}"}}"#),
            (Word::OfReply, Self::Handshake(reply)) => reply.body.clone(),
            (Word::OfReply, _) => String::new(),
        }
    }
}

/// An answer in the clothes that its provider wants.
#[derive(Clone)]
struct Dressed {
    status: u16,
    content_type: &'static str,
    body: String,
    /// The word stands in a header, because the body does not say it.
    in_header: bool,
}

/// What a provider wants to hear instead of the outcome.
fn accepted(acceptance: Acceptance) -> Option<Dressed> {
    let (status, content_type, body) = match acceptance {
        Acceptance::Outcome => return None,
        Acceptance::Empty => (200, "text/plain", ""),
        Acceptance::NoContent => (204, "application/json", ""),
        Acceptance::Twiml => (200, "text/xml", TWIML),
    };
    Some(Dressed { status, content_type, body: body.to_owned(), in_header: true })
}
