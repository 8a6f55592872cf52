//! When to try again: full jitter under an exponential ceiling.
//!
//! Pure. Equal waits would end at the same moment; a random part of the ceiling spreads them.

use std::time::Duration;

/// The ceiling of the first wait.
const BASE: Duration = Duration::from_secs(1);

/// The wait before the next attempt, after `failures` of them (1 or more): a part of the ceiling, which
/// doubles with each failure up to `cap`. `random` chooses the part, 0 for none, `u64::MAX` for all of it.
pub fn backoff(failures: u32, cap: Duration, random: u64) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    let ceiling = BASE.saturating_mul(1 << doublings).min(cap);
    let ceiling_ms = u64::try_from(ceiling.as_millis()).unwrap_or(u64::MAX);
    let part = u128::from(ceiling_ms) * u128::from(random) / u128::from(u64::MAX);
    Duration::from_millis(u64::try_from(part).unwrap_or(ceiling_ms))
}

/// A duration in milliseconds; one that is too large becomes a value far ahead that cannot overflow.
pub fn as_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Duration = Duration::from_secs(300);

    #[test]
    fn the_ceiling_doubles_up_to_the_cap() {
        let ceilings = [1, 2, 3, 4, 9, 10, 40, u32::MAX].map(|n| backoff(n, CAP, u64::MAX).as_secs());
        assert_eq!(ceilings, [1, 2, 4, 8, 256, 300, 300, 300]);
    }

    #[test]
    fn the_wait_is_any_part_of_the_ceiling() {
        assert_eq!(backoff(5, CAP, 0), Duration::ZERO);
        assert_eq!(backoff(5, CAP, u64::MAX / 2).as_millis(), 7_999);
    }
}
