//! The only reader of the wall clock.
//!
//! Everything else is handed `now_ms`: one reading per request or step, so that all rows of one
//! transaction carry one time and tests choose theirs. Durations are measured with
//! [`std::time::Instant`], or where the sleep of the machine counts, with [`steady_ms`].

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the epoch. A clock set before 1970 reads as 0.
#[allow(clippy::disallowed_methods, reason = "this is the clock's one home")]
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Milliseconds since the machine started, including sleep. This clock cannot be set.
pub fn steady_ms() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.saturating_mul(1_000).saturating_add(time.tv_nsec / 1_000_000)
}

/// Detects from its readings that the wall clock was set back.
#[derive(Debug)]
pub struct SetBack {
    latest_ms: AtomicI64,
}

/// Two threads may use their readings in another order than they took them; a larger step back is a clock set back.
const READINGS_APART_MS: i64 = 1_000;

impl Default for SetBack {
    fn default() -> Self {
        Self { latest_ms: AtomicI64::new(i64::MIN) }
    }
}

impl SetBack {
    /// Whether the clock was set back since the latest reading: true once.
    pub fn notice(&self, now_ms: i64) -> bool {
        let latest_ms = self.latest_ms.fetch_max(now_ms, Ordering::AcqRel);
        let is_back = now_ms < latest_ms.saturating_sub(READINGS_APART_MS);
        if is_back {
            self.latest_ms.store(now_ms, Ordering::Release);
        }
        is_back
    }
}

/// RFC 3339 in UTC, to the millisecond.
pub fn rfc3339(time_ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(time_ms);
    time.map_or_else(|_| format!("{time_ms} ms"), |time| format!("{time:.3}"))
}

/// A date in HTTP's format (RFC 9110, section 5.6.7).
pub fn http_date(time_ms: i64) -> String {
    let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
    let time = jiff::Timestamp::from_millisecond(time_ms).unwrap_or_default();
    printer.timestamp_to_rfc9110_string(&time).unwrap_or_default()
}
