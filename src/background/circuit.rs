//! The circuit breaker of one destination: how many requests may be made at once, and when.
//!
//! Pure state over times that are passed in. After [`FAILURES_MAX`] failures in a row it is open: one request
//! at a time is tried, with growing waits. The first success closes it, and the number of requests at once
//! doubles with each further success: a recovering destination isn't flooded.

use std::time::Duration;

use crate::work::retry;

/// Failures in a row that open the circuit.
const FAILURES_MAX: u32 = 5;

/// How long to wait when all requests at once are taken.
const PLACE_WAIT: Duration = Duration::from_millis(20);

/// The least time between two probes.
const PROBE_WAIT_MIN_MS: i64 = 500;

/// The answer to a request for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permit {
    /// It may be made now; its end must be reported.
    Go,
    /// Not before this time has passed.
    Wait(Duration),
}

/// What a request showed about the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// It works.
    Up,
    /// It fails; with the wait that it asked for, if any.
    Down {
        /// At least this long, in milliseconds.
        wait_ms: i64,
    },
    /// Nothing, because no request was made.
    Silent,
}

/// The state of one destination.
#[derive(Debug)]
pub(super) struct Circuit {
    at_once_max: usize,
    /// Requests that may be made at once now; at most `at_once_max`.
    allowance: usize,
    in_flight: usize,
    failures: u32,
    open: Option<Open>,
    cap: Duration,
}

/// An open circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Open {
    /// In milliseconds since the epoch.
    pub(super) since_ms: i64,
    /// When the next request is tried.
    pub(super) probe_at_ms: i64,
}

impl Circuit {
    /// A closed circuit for `at_once_max` requests at once, whose waits are at most `cap`.
    pub(super) fn new(at_once_max: usize, cap: Duration) -> Self {
        Self { at_once_max, allowance: at_once_max, in_flight: 0, failures: 0, open: None, cap }
    }

    /// Asks for permission to make a request.
    pub(super) fn permit(&mut self, now_ms: i64) -> Permit {
        let allowance = match &mut self.open {
            None => self.allowance,
            Some(open) => {
                // the clock was set back
                open.probe_at_ms = open.probe_at_ms.min(now_ms.saturating_add(retry::as_ms(self.cap)));
                if now_ms < open.probe_at_ms {
                    return Permit::Wait(Duration::from_millis((open.probe_at_ms - now_ms).unsigned_abs()));
                }
                1
            }
        };
        if self.in_flight >= allowance {
            return Permit::Wait(PLACE_WAIT);
        }
        self.in_flight += 1;
        Permit::Go
    }

    /// Reports how a permitted request ended. `Some`: the circuit opened or closed by it.
    pub(super) fn tell(&mut self, sign: Sign, now_ms: i64, random: u64) -> Option<Option<Open>> {
        self.in_flight = self.in_flight.saturating_sub(1);
        match sign {
            Sign::Silent => None,
            Sign::Up => {
                self.failures = 0;
                if self.open.take().is_some() {
                    self.allowance = 1;
                    return Some(None);
                }
                self.allowance = self.allowance.saturating_mul(2).min(self.at_once_max);
                None
            }
            Sign::Down { wait_ms } => {
                self.failures = self.failures.saturating_add(1);
                if self.failures < FAILURES_MAX {
                    return None;
                }
                let wait = retry::backoff(self.failures - FAILURES_MAX + 1, self.cap, random);
                let probe_at_ms = now_ms + retry::as_ms(wait).max(wait_ms).max(PROBE_WAIT_MIN_MS);
                let since_ms = self.open.map_or(now_ms, |open| open.since_ms);
                self.open = Some(Open { since_ms, probe_at_ms });
                Some(self.open)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOWN: Sign = Sign::Down { wait_ms: 0 };

    fn opened() -> Circuit {
        let mut circuit = Circuit::new(4, Duration::from_secs(900));
        for _ in 0..FAILURES_MAX {
            assert_eq!(circuit.permit(0), Permit::Go);
            circuit.tell(DOWN, 0, u64::MAX);
        }
        circuit
    }

    #[test]
    fn after_five_failures_in_a_row_one_request_at_a_time_is_tried() {
        let mut circuit = opened();
        assert_eq!(circuit.permit(0), Permit::Wait(Duration::from_secs(1)));
        assert_eq!(circuit.permit(1_000), Permit::Go);
        assert_eq!(circuit.permit(1_000), Permit::Wait(PLACE_WAIT), "a second one beside the probe");
        assert!(circuit.tell(DOWN, 1_000, u64::MAX).is_some());
        assert_eq!(circuit.permit(2_000), Permit::Wait(Duration::from_secs(1)), "the wait has doubled");
    }

    #[test]
    fn what_comes_back_is_not_run_over() {
        let mut circuit = opened();
        assert_eq!(circuit.permit(1_000), Permit::Go);
        assert_eq!(circuit.tell(Sign::Up, 1_000, 0), Some(None));
        let mut at_once = Vec::new();
        for _ in 0..4 {
            let granted = (0..10).take_while(|_| circuit.permit(1_000) == Permit::Go).count();
            at_once.push(granted);
            for _ in 0..granted {
                assert_eq!(circuit.tell(Sign::Up, 1_000, 0), None);
            }
        }
        assert_eq!(at_once, [1, 2, 4, 4]);
    }

    #[test]
    fn a_success_in_between_keeps_it_closed() {
        let mut circuit = Circuit::new(4, Duration::from_secs(900));
        for n in 0..100 {
            assert_eq!(circuit.permit(0), Permit::Go);
            let sign = if n % 5 == 4 { Sign::Up } else { DOWN };
            assert_eq!(circuit.tell(sign, 0, u64::MAX), None);
        }
    }

    #[test]
    fn a_clock_set_back_does_not_keep_it_open() {
        let mut circuit = opened();
        assert_eq!(circuit.permit(-10_000_000), Permit::Wait(Duration::from_secs(900)));
        assert_eq!(circuit.permit(-10_000_000 + 900_000), Permit::Go);
    }
}
