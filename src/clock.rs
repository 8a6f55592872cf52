//! The only reader of the wall clock.
//!
//! Everything else is handed `now_ms`: one reading per request or step, so that all rows of one
//! transaction carry one time and tests choose theirs. Durations are measured with
//! [`std::time::Instant`], never with this.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the epoch. A clock set before 1970 reads as 0.
#[allow(clippy::disallowed_methods, reason = "this is the clock's one home")]
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// As HTTP writes it (RFC 9110, section 5.6.7).
pub fn http_date(time_ms: i64) -> String {
    let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
    let time = jiff::Timestamp::from_millisecond(time_ms).unwrap_or_default();
    printer.timestamp_to_rfc9110_string(&time).unwrap_or_default()
}
