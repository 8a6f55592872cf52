//! How a signed time is written.

use super::malformed::Malformed;

/// Below this a number is seconds: as seconds it is the year 5138, as milliseconds March 1973.
pub(crate) const SECONDS_BELOW: i64 = 100_000_000_000;

/// What jiff reads; further digits of a second are cut off.
const FRACTION_DIGITS_MAX: usize = 9;

/// How a signed time is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    /// Seconds since 1970.
    Seconds,
    /// Milliseconds since 1970.
    Milliseconds,
    /// `2026-11-30T10:00:00.123Z`, with any number of digits and any offset.
    Rfc3339,
    /// Whichever of them it is.
    Auto,
}

impl TimeUnit {
    /// As configured.
    pub(crate) const WORDS: [(&str, Self); 4] =
        [("s", Self::Seconds), ("ms", Self::Milliseconds), ("rfc3339", Self::Rfc3339), ("auto", Self::Auto)];

    /// For messages.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Seconds => "seconds since 1970",
            Self::Milliseconds => "milliseconds since 1970",
            Self::Rfc3339 => "a time as in RFC 3339, with Z or an offset",
            Self::Auto => "seconds or milliseconds since 1970, or a time as in RFC 3339",
        }
    }

    /// Milliseconds since 1970. `header` is where it stands.
    pub(crate) fn read(self, text: &str, place: &str) -> Result<i128, Malformed> {
        let unreadable = || Malformed::TimestampUnreadable(place.to_owned());
        let number = || plain_decimal(text).ok_or_else(unreadable);
        match self {
            Self::Seconds => Ok(i128::from(number()?) * 1000),
            Self::Milliseconds => Ok(i128::from(number()?)),
            Self::Rfc3339 => rfc3339(text).ok_or_else(unreadable),
            Self::Auto => match plain_decimal(text) {
                Some(seconds @ ..SECONDS_BELOW) => Ok(i128::from(seconds) * 1000),
                Some(milliseconds) => Ok(i128::from(milliseconds)),
                None => rfc3339(text).ok_or_else(unreadable),
            },
        }
    }

    /// A time as this sender would write it.
    pub(crate) fn write(self, signed_at_s: i64) -> String {
        match self {
            Self::Seconds | Self::Auto => signed_at_s.to_string(),
            Self::Milliseconds => (i128::from(signed_at_s) * 1000).to_string(),
            Self::Rfc3339 => jiff::Timestamp::from_second(signed_at_s).unwrap_or_default().to_string(),
        }
    }
}

/// Digits without sign, blank or leading zero, that fit an `i64`.
pub(crate) fn plain_decimal(text: &str) -> Option<i64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| plain)
}

fn rfc3339(text: &str) -> Option<i128> {
    let (whole, rest) = match text.split_once('.') {
        None => (text, ""),
        Some((whole, rest)) => (whole, rest),
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (fraction, offset) = rest.split_at(digits);
    let kept = fraction.get(..FRACTION_DIGITS_MAX).unwrap_or(fraction);
    let text = match kept {
        "" if rest.is_empty() => whole.to_owned(),
        "" => return None,
        kept => format!("{whole}.{kept}{offset}"),
    };
    // jiff also takes what RFC 3339 does not have
    let is_plain = |byte: u8| byte.is_ascii_digit() || b"-:+.TtZz ".contains(&byte);
    let time: jiff::Timestamp = text.bytes().all(is_plain).then(|| text.parse().ok())??;
    Some(i128::from(time.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_in_every_spelling_that_senders_use() {
        let read = |unit: TimeUnit, text: &str| unit.read(text, "X-Time").ok();
        let ms = Some(1_764_496_800_123);
        for text in [
            "2025-11-30T10:00:00.123Z",
            "2025-11-30T10:00:00.123456789Z",
            "2025-11-30T10:00:00.123456789012345Z",
            "2025-11-30T12:00:00.123+02:00",
            "2025-11-30t10:00:00.123z",
        ] {
            assert_eq!(read(TimeUnit::Rfc3339, text), ms, "{text}");
            assert_eq!(read(TimeUnit::Auto, text), ms, "{text}");
        }
        assert_eq!(read(TimeUnit::Rfc3339, "2025-11-30T10:00:00Z"), Some(1_764_496_800_000));
        assert_eq!(read(TimeUnit::Auto, "1764496800"), Some(1_764_496_800_000));
        assert_eq!(read(TimeUnit::Auto, "1764496800123"), ms);
        assert_eq!(read(TimeUnit::Seconds, "1764496800"), Some(1_764_496_800_000));
        assert_eq!(read(TimeUnit::Milliseconds, "1764496800123"), ms);
    }

    #[test]
    fn what_is_no_time_of_its_unit_is_refused() {
        for (unit, text) in [
            (TimeUnit::Rfc3339, "2025-11-30T10:00:00"),
            (TimeUnit::Rfc3339, "2025-11-30T10:00:00.Z"),
            (TimeUnit::Rfc3339, "2025-11-30"),
            (TimeUnit::Rfc3339, "1764496800"),
            (TimeUnit::Rfc3339, "2025-11-30T10:00:00Z[Europe/Berlin]"),
            (TimeUnit::Rfc3339, ""),
            (TimeUnit::Auto, "tomorrow"),
            (TimeUnit::Auto, "-1764496800"),
            (TimeUnit::Seconds, "01764496800"),
            (TimeUnit::Seconds, "2025-11-30T10:00:00Z"),
        ] {
            assert!(unit.read(text, "X-Time").is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (_, unit) in TimeUnit::WORDS {
            assert_eq!(unit.read(&unit.write(1_764_496_800), "").ok(), Some(1_764_496_800_000));
        }
    }
}
