//! Durations (`500ms`, `5m`, `1h30m`, `400d`) and sizes (`1048576`, `"64MiB"`).

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

/// Why a text is not a duration or not a size, with what to write instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitError {
    /// It cannot be read as a duration.
    NotADuration,
    /// It is zero or negative.
    NotPositive,
    /// It has a fraction of a millisecond.
    TooFine,
    /// It counts in months or years.
    NoFixedLength,
    /// It does not fit.
    TooLong,
    /// It cannot be read as a size.
    NotASize,
    /// It does not fit.
    TooLarge,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotADuration => {
                "is not a duration; write e.g. \"500ms\", \"2s\", \"5m\", \"1h30m\" or \"30d\""
            }
            Self::NotPositive => "must be longer than zero; write e.g. \"5m\"",
            Self::TooFine => "is finer than a millisecond; write e.g. \"500ms\"",
            Self::NoFixedLength => "months and years have no fixed length; count in days, e.g. \"400d\"",
            Self::TooLong => "is too long",
            Self::NotASize => "is not a size; write bytes, or e.g. \"512KiB\" or \"64MiB\"",
            Self::TooLarge => "is too large",
        })
    }
}

impl std::error::Error for UnitError {}

/// The length of a duration such as `"500ms"`, `"1h30m"` or `"400d"`; a day is 24 hours, whole milliseconds.
///
/// # Errors
/// The rule that the text breaks; zero and negative lengths are refused.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let length = parse_signed_duration(text)?;
    let length = Duration::try_from(length).map_err(|_| UnitError::NotPositive)?;
    if length < Duration::from_millis(1) {
        return Err(UnitError::NotPositive);
    }
    if length.subsec_nanos() % 1_000_000 != 0 {
        return Err(UnitError::TooFine);
    }
    Ok(length)
}

/// As [`parse_duration`], but also `"-10m"` and zero.
///
/// # Errors
/// The rule that the text breaks.
pub fn parse_signed_duration(text: &str) -> Result<SignedDuration, UnitError> {
    let span: Span = text.parse().map_err(|_| UnitError::NotADuration)?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err(UnitError::NoFixedLength);
    }
    span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| UnitError::TooLong)
}

/// The shortest way to write a duration of whole milliseconds in one unit.
pub fn duration_text(duration: Duration) -> String {
    let ms = duration.as_millis();
    for (unit, unit_ms) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if ms >= unit_ms && ms.is_multiple_of(unit_ms) {
            return format!("{}{unit}", ms / unit_ms);
        }
    }
    format!("{ms}ms")
}

/// Bytes, from `"1048576"`, `"512KiB"`, `"64MiB"`, `"2GiB"` or with the decimal `kB`, `MB`, `GB`.
///
/// # Errors
/// The rule that the text breaks.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = match number.parse() {
        Ok(number) => number,
        Err(_) if number.is_empty() => return Err(UnitError::NotASize),
        Err(_) => return Err(UnitError::TooLarge),
    };
    let factor = match unit.trim_start() {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(UnitError::NotASize),
    };
    number.checked_mul(factor).ok_or(UnitError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (typed, ms, written) in [
            ("500ms", 500, "500ms"),
            ("2s", 2_000, "2s"),
            ("1.5s", 1_500, "1500ms"),
            ("90s", 90_000, "90s"),
            ("5m", 300_000, "5m"),
            ("1h30m", 5_400_000, "90m"),
            ("24h", 86_400_000, "1d"),
            ("3d", 259_200_000, "3d"),
            ("400d", 34_560_000_000, "400d"),
            ("2w", 1_209_600_000, "14d"),
        ] {
            let duration = parse_duration(typed).expect(typed);
            assert_eq!(duration, Duration::from_millis(ms), "{typed}");
            assert_eq!(duration_text(duration), written);
            assert_eq!(parse_duration(written), Ok(duration));
        }
    }

    #[test]
    fn what_is_no_positive_duration_is_refused() {
        for (typed, rule) in [
            ("", "is not a duration"),
            ("5", "is not a duration"),
            ("m", "is not a duration"),
            ("5 parsecs", "is not a duration"),
            ("99999999999999999999d", "is not a duration"),
            ("1e3s", "is not a duration"),
            ("0s", "longer than zero"),
            ("-5m", "longer than zero"),
            ("1us", "longer than zero"),
            ("1500us", "finer than a millisecond"),
            ("1y", "count in days"),
            ("2mo", "count in days"),
        ] {
            let refusal = parse_duration(typed).expect_err(typed);
            assert!(refusal.to_string().contains(rule), "{typed}: {refusal}");
        }
    }

    #[test]
    fn a_skew_may_be_negative() {
        assert_eq!(parse_signed_duration("-10m"), Ok(SignedDuration::from_mins(-10)));
        assert_eq!(parse_signed_duration("0s"), Ok(SignedDuration::ZERO));
    }

    #[test]
    fn sizes_are_read() {
        for (typed, bytes) in [
            ("0", 0),
            ("1048576", 1_048_576),
            ("512KiB", 524_288),
            ("64MiB", 67_108_864),
            ("64 MiB", 67_108_864),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(parse_size(typed), Ok(bytes), "{typed}");
        }
        for typed in ["", "MiB", "-1", "1.5MiB", "64mib", "64M", "99999999999999999999", "17179869184GiB"] {
            assert!(parse_size(typed).is_err(), "{typed}");
        }
    }
}
