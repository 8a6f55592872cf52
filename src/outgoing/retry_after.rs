//! `Retry-After` (RFC 9110, section 10.2.3): seconds, or a date in one of its three spellings (section 5.6.7).

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// The wait that a destination asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAfter {
    /// This long after its answer.
    Wait(Duration),
    /// Until this time, in milliseconds since the epoch, by its clock.
    At(i64),
}

impl RetryAfter {
    /// Parses the header; `None`: neither form. Fractions of a second are understood, though the standard has none.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        seconds(text).map(Self::Wait).or_else(|| date(text).map(Self::At))
    }

    /// The wait from now on; zero for a date in the past.
    pub fn wait(self, now_ms: i64) -> Duration {
        match self {
            Self::Wait(time) => time,
            Self::At(at_ms) => Duration::from_millis(at_ms.saturating_sub(now_ms).max(0).unsigned_abs()),
        }
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    // a number that does not fit is longer than any wait
    let seconds = whole.parse().unwrap_or(u64::MAX);
    let has_part = fraction.bytes().any(|digit| digit != b'0');
    Some(Duration::from_secs(seconds.saturating_add(has_part.into())))
}

/// The day of the week is not compared: it is redundant.
fn date(text: &str) -> Option<i64> {
    let parse = |format: &str, text: &str| DateTime::strptime(format, text).ok();
    let found = match text.split_once(", ") {
        Some((_, rest)) => {
            parse("%d %b %Y %H:%M:%S GMT", rest).or_else(|| parse("%d-%b-%y %H:%M:%S GMT", rest))?
        }
        None => parse("%b %e %H:%M:%S %Y", text.split_once(' ')?.1.trim_start())?,
    };
    Some(TimeZone::UTC.to_timestamp(found).ok()?.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_and_anything_that_is_no_number_is_not() {
        let wait = |text: &str| RetryAfter::parse(text).map(|asked| asked.wait(0).as_secs());
        for (text, seconds) in [("20", 20), (" 0 ", 0), ("1.5", 2), ("1.0", 1), ("0.001", 1)] {
            assert_eq!(wait(text), Some(seconds), "{text}");
        }
        assert_eq!(wait("99999999999999999999999"), Some(u64::MAX));
        for text in ["", "-5", "+5", "5s", "1e3", "1.", ".5", "1.5.5", "soon", "0x10"] {
            assert_eq!(wait(text), None, "{text}");
        }
    }

    #[test]
    fn a_date_is_read_in_each_of_its_spellings() {
        let at = |text: &str| RetryAfter::parse(text).map(|asked| asked.wait(784_111_770_000).as_secs());
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Mon, 06 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(at(text), Some(7), "{text}");
        }
        assert_eq!(at("Wed Nov 16 08:49:37 1994"), Some(864_007));
        assert_eq!(at("Fri, 01 Jan 1971 00:00:00 GMT"), Some(0), "a date in the past is now");
        assert!(matches!(
            RetryAfter::parse("Thursday, 01-Jan-26 00:00:00 GMT"),
            Some(RetryAfter::At(1_767_225_600_000))
        ));
        for text in [
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994",
            "Sun, 06 Nov 1994 08:49:37 +0100",
            "1994-11-06",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }
}
