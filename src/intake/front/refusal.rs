//! The answers that the front gives by itself: one line of JSON, and the connection closes.

use crate::intake::answer::{Answer, Refused};

/// A reason, and what exactly was wrong: for the log, never for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: Refused,
    pub(super) why: &'static str,
}

impl Refusal {
    pub(super) const fn new(reason: Refused, why: &'static str) -> Self {
        Self { reason, why }
    }

    pub(super) const fn bad(why: &'static str) -> Self {
        Self::new(Refused::BadRequest, why)
    }

    /// The contract's status and word.
    pub(super) fn status_and_word(self) -> (u16, &'static str) {
        let answer = Answer::Refused(self.reason);
        (answer.status(), answer.word())
    }

    /// The complete response.
    pub(super) fn answer(self) -> Vec<u8> {
        Answer::Refused(self.reason).plain().print(false, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_line_of_json_and_unavailable_says_when_to_retry() {
        let text = |refusal: Refusal| String::from_utf8(refusal.answer()).unwrap();
        let answer = text(Refusal::new(Refused::Unavailable, ""));
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"));
        assert!(answer.contains("\r\nRetry-After: 5\r\n") && answer.contains("\r\nContent-Length: 23\r\n"));
        assert!(answer.ends_with("\r\n\r\n{\"error\":\"unavailable\"}"));
        assert!(!text(Refusal::bad("")).contains("Retry-After"));
    }

    #[test]
    fn every_reason_is_counted_in_its_own_place() {
        for (place, reason) in Refused::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
        }
    }
}
