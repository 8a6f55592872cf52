//! The answers that the front gives by itself: one line of JSON, and the connection closes.

/// Why a request is not handed on; each is one status of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    BadRequest,
    Timeout,
    BodyTooLarge,
    UnsupportedEncoding,
    ExpectationFailed,
    HeadTooLarge,
    NotImplemented,
    Unavailable,
    VersionNotSupported,
}

impl Reason {
    pub(super) const ALL: [Self; 9] = [
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

    pub(super) fn status(self) -> u16 {
        self.parts().0
    }

    pub(super) fn error(self) -> &'static str {
        self.parts().2
    }

    fn parts(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::BadRequest => (400, "Bad Request", "bad_request"),
            Self::Timeout => (408, "Request Timeout", "timeout"),
            Self::BodyTooLarge => (413, "Content Too Large", "body_too_large"),
            Self::UnsupportedEncoding => (415, "Unsupported Media Type", "unsupported_encoding"),
            Self::ExpectationFailed => (417, "Expectation Failed", "bad_request"),
            Self::HeadTooLarge => (431, "Request Header Fields Too Large", "head_too_large"),
            Self::NotImplemented => (501, "Not Implemented", "bad_request"),
            Self::Unavailable => (503, "Service Unavailable", "unavailable"),
            Self::VersionNotSupported => (505, "HTTP Version Not Supported", "bad_request"),
        }
    }
}

/// A reason, and what exactly was wrong: for the log, never for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: Reason,
    pub(super) why: &'static str,
}

impl Refusal {
    pub(super) const fn new(reason: Reason, why: &'static str) -> Self {
        Self { reason, why }
    }

    pub(super) const fn bad(why: &'static str) -> Self {
        Self::new(Reason::BadRequest, why)
    }

    /// The complete response.
    pub(super) fn answer(self) -> String {
        let (status, phrase, error) = self.reason.parts();
        let retry = if self.reason == Reason::Unavailable { RETRY_AFTER } else { "" };
        let body = format!("{{\"error\":\"{error}\"}}");
        format!(
            "HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{retry}Connection: close\r\n\r\n{body}",
            body.len(),
        )
    }
}

const RETRY_AFTER: &str = "Retry-After: 5\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_line_of_json_and_unavailable_says_when_to_retry() {
        let answer = Refusal::new(Reason::Unavailable, "").answer();
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
        assert!(answer.contains("\r\nRetry-After: 5\r\n") && answer.contains("\r\nContent-Length: 23\r\n"));
        assert!(answer.ends_with("\r\n\r\n{\"error\":\"unavailable\"}"));
        assert!(!Refusal::bad("").answer().contains("Retry-After"));
    }

    #[test]
    fn every_reason_is_counted_in_its_own_place() {
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
        }
    }
}
