//! How long an event waits for something that does not exist yet.

use std::time::Duration;

use crate::handlers::Park;
use crate::store::inbox;
use crate::store::reviews::Kind;
use crate::store::{SqlResult, Transaction};
use crate::work::Worked;
use crate::work::retry;
use crate::work::timeline::Timeline;

/// The shortest wait between two tries of a parked event.
const PARK_WAIT_MIN: Duration = Duration::from_secs(1);

/// The longest.
const PARK_WAIT_MAX: Duration = Duration::from_secs(300);

/// When a parked event is tried again: after a part of the time it has waited so far. After the longest time it
/// becomes a question to a person, or is ignored.
///
/// # Errors
/// Any SQLite error.
pub(super) fn wait_for(tx: &Transaction<'_>, row: i64, park: Park, now_ms: i64) -> SqlResult<Worked> {
    // time that a jump of the clock added is not waiting
    let jumped_ms = Timeline::recall(tx)?.of_event(row);
    let waited_ms = now_ms.saturating_sub(inbox::received_at_ms(tx, row)?).saturating_sub(jumped_ms).max(0);
    let Park { waits_for, time_max, asks } = park;
    if waited_ms < retry::as_ms(time_max) {
        let wait_ms = (waited_ms / 4).clamp(retry::as_ms(PARK_WAIT_MIN), retry::as_ms(PARK_WAIT_MAX));
        return Ok(Worked::Parked { waits_for, next_at_ms: now_ms.saturating_add(wait_ms) });
    }
    Ok(if asks {
        Worked::Quarantined(
            Kind::Quarantined,
            format!(
                "{waits_for} did not come within {} hours; when it is there: inboxd retry",
                time_max.as_secs() / 3600
            ),
        )
    } else {
        Worked::Ignored
    })
}
