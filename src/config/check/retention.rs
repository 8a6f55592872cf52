//! `[retention]`: how long rows are kept.

use std::time::Duration;

use super::{Checker, duration_text};
use crate::config::keys::{Default, Kind, Table, key};
use crate::config::values::Values;

pub(in crate::config) const TABLE: Table = Table {
    header: "retention",
    doc: "How long rows are kept.",
    keys: &[
        key(
            "payload",
            Kind::Duration,
            Default::Is("30d"),
            "Bodies; those of quarantined and unprocessed events are kept longer.",
        ),
        key(
            "key",
            Kind::Duration,
            Default::Is("400d"),
            "Event ids: how long a redelivery is recognised by its id; at least 31d.",
        ),
    ],
};

/// Stripe lets an event be sent again for 30 days.
const KEY_RETENTION_MIN: Duration = Duration::from_secs(31 * 86_400);

/// `[retention]`
#[derive(Debug)]
pub struct Retention {
    /// How long the payload is kept.
    pub payload: Duration,
    /// How long the event's key is remembered; at least 31 days.
    pub key: Duration,
}

impl Checker {
    pub(super) fn retention(&mut self, table: &Values) -> Retention {
        let payload = self.duration(table, "payload");
        let key = self.duration(table, "key");
        let typed = duration_text(key);
        if key < KEY_RETENTION_MIN {
            let rule = "must be at least \"31d\", or an event sent again after it is taken for a new one; write e.g. \"400d\"";
            self.problem("retention.key", format!("\"{typed}\": {rule}"));
        } else if key < payload {
            self.problem(
                "retention.key",
                format!(
                    "\"{typed}\": must not be shorter than retention.payload ({})",
                    duration_text(payload)
                ),
            );
        }
        Retention { payload, key }
    }
}
