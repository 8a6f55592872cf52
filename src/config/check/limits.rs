//! `[limits]`: bounds on what is accepted.

use std::time::Duration;

use super::{Checker, duration_text};
use crate::config::keys::{Default, Kind, Table, key};
use crate::config::values::Values;

pub(in crate::config) const TABLE: Table = Table {
    header: "limits",
    doc: "Bounds on what is accepted.",
    keys: &[
        key(
            "body_bytes_max",
            Kind::Size,
            Default::Is("1MiB"),
            "The largest body of an endpoint that sets none, up to 64MiB.",
        ),
        key(
            "connections_max",
            Kind::Count(1, 65_536),
            Default::Is("512"),
            "Open connections; fewer where file descriptors are scarce.",
        ),
        key(
            "handler_timeout",
            Kind::Duration,
            Default::Is("2s"),
            "How long the handlers of one event may run; all writing waits for them.",
        ),
        key(
            "disk_free_min",
            Kind::Size,
            Default::Is("64MiB"),
            "With less free space than this nothing is accepted: 503.",
        ),
    ],
};

/// All unfinished bodies share a budget of this size, so one body cannot be larger.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// `[limits]`
#[derive(Debug)]
pub struct Limits {
    /// The largest body of an endpoint that sets none, in bytes.
    pub body_bytes_max: usize,
    /// Open connections, before file descriptor limits.
    pub connections_max: usize,
    /// How long the handlers of one event may hold the write lock.
    pub handler_timeout: Duration,
    /// Free space below which nothing is accepted, in bytes.
    pub disk_free_min: u64,
}

impl Checker {
    pub(super) fn limits(&mut self, table: &Values) -> Limits {
        let handler_timeout = self.duration(table, "handler_timeout");
        if handler_timeout > Duration::from_secs(10) {
            self.warn(format!(
                "limits.handler_timeout is {}; all writing waits for a handler, and senders give up after about 10s",
                duration_text(handler_timeout)
            ));
        }
        let bytes = self.size(table, "body_bytes_max");
        Limits {
            body_bytes_max: self.body_bytes(table, bytes).unwrap_or(1),
            connections_max: self.count(table, "connections_max"),
            handler_timeout,
            disk_free_min: self.size(table, "disk_free_min"),
        }
    }

    /// `body_bytes_max`, here or of an endpoint.
    pub(super) fn body_bytes(&mut self, table: &Values, bytes: u64) -> Option<usize> {
        if !(1..=BODY_BYTES_MAX).contains(&bytes) {
            let rule = format!("{bytes}: must be from 1 to 67108864 (64MiB)");
            self.problem(table.key("body_bytes_max"), rule);
            return None;
        }
        usize::try_from(bytes).ok()
    }
}
