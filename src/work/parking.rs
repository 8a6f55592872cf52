//! An event that waits for something that is not there yet, and for how long.

use std::time::Duration;

use crate::handlers::Park;
use crate::store::inbox;
use crate::store::reviews::Kind;
use crate::store::{SqlResult, Transaction};
use crate::work::Worked;
use crate::work::retry;
use crate::work::timeline::Timeline;

/// The shortest wait between two looks for what an event waits for.
const PARK_WAIT_MIN: Duration = Duration::from_secs(1);

/// The longest.
const PARK_WAIT_MAX: Duration = Duration::from_secs(300);

/// When an event that waits for something is looked at again: after a part of the time it has waited so far. What has
/// waited long enough is a question to a person, or was nobody's business.
///
/// # Errors
/// Any SQLite error.
pub(super) fn wait_for(tx: &Transaction<'_>, row: i64, park: Park, now_ms: i64) -> SqlResult<Worked> {
    // what a jump of the clock added is no time of waiting
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
