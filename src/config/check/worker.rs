//! `[worker]`: how stored events are worked on.

use std::time::Duration;

use super::{Checker, duration_text};
use crate::config::keys::{Default, Kind, Table, key};
use crate::config::values::Values;

pub(in crate::config) const TABLE: Table = Table {
    header: "worker",
    doc: "How stored events are worked on, where an endpoint has `mode = \"async\"`.",
    keys: &[
        key("threads", Kind::Count(1, 64), Default::Is("4"), "Threads that work on stored events."),
        key(
            "lease",
            Kind::Duration,
            Default::Is("2m"),
            "How long a claimed event is held; longer than `limits.handler_timeout`.",
        ),
        key(
            "max_attempts",
            Kind::Count(1, 1_000),
            Default::Is("10"),
            "Attempts an event has; then it is quarantined, with a review.",
        ),
        key("backoff_cap", Kind::Duration, Default::Is("5m"), "The longest wait between two attempts."),
    ],
};

/// `[worker]`
#[derive(Debug, Clone, Copy)]
pub struct Worker {
    /// Threads that work on stored events.
    pub threads: usize,
    /// How long a claimed event is held; longer than `limits.handler_timeout`.
    pub lease: Duration,
    /// Attempts an event has before it waits for a person.
    pub max_attempts: u32,
    /// The longest wait between two attempts.
    pub backoff_cap: Duration,
}

impl Checker {
    pub(super) fn worker(&mut self, table: &Values, handler_timeout: Duration) -> Worker {
        let lease = self.duration(table, "lease");
        if lease <= handler_timeout {
            let (lease, timeout) = (duration_text(lease), duration_text(handler_timeout));
            let rule = format!(
                "\"{lease}\": must be longer than limits.handler_timeout ({timeout}), or work is taken away while it runs"
            );
            self.problem("worker.lease", rule);
        }
        Worker {
            threads: self.count(table, "threads"),
            lease,
            max_attempts: u32::try_from(self.count(table, "max_attempts")).unwrap_or(u32::MAX),
            backoff_cap: self.duration(table, "backoff_cap"),
        }
    }
}
