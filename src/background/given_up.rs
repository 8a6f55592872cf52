//! Opens reviews about events that their providers have stopped sending, because nothing else would look at them again.
//!
//! Two kinds: events whose every delivery failed, which are not stored, and events that the application of a proxied
//! endpoint never accepted.

use std::time::Duration;

use crate::store::inbox::failures;
use crate::store::inbox::queue;
use crate::store::reviews::{self, Kind};
use crate::store::writer::{WriteError, WriterHandle};
use crate::work::retry;
use crate::work::timeline::Timeline;

/// How long the provider of an endpoint that is no longer configured may send again.
const UNKNOWN_PATIENCE: Duration = Duration::from_hours(72);

/// Opens reviews about events whose every delivery failed, once their provider has stopped sending them: `patience` has
/// that time per endpoint. Returns how many.
///
/// # Errors
/// See [`WriteError`].
pub fn ask_about_failures(
    writer: &WriterHandle,
    patience: &[(String, Duration)],
    now_ms: i64,
) -> Result<usize, WriteError> {
    let patience = patience.to_vec();
    writer.run(move |tx| {
        let mut count = 0;
        for endpoint in failures::endpoints(tx)? {
            let known = patience.iter().find(|(name, _)| *name == endpoint);
            let patience = known.map_or(UNKNOWN_PATIENCE, |(_, patience)| *patience);
            let before_ms = now_ms.saturating_sub(retry::as_ms(patience));
            for failing in failures::take_given_up(tx, &endpoint, before_ms)? {
                count += 1;
                let event_type = failing.event_type.as_deref().unwrap_or("without a type");
                let reason = format!(
                    "{} deliveries of this event ({event_type}) failed and the provider sends it no more, so it is not stored: \
                     mend the handler and have it sent again from there; the latest error was: {}",
                    failing.count, failing.error
                );
                reviews::open(tx, Kind::Undelivered, &endpoint, &failing.event_id, &reason, now_ms)?;
            }
        }
        Ok(count)
    })
}

/// Opens reviews about events that the application never accepted and that their sender has stopped sending, each
/// endpoint with the time after which that is so.
///
/// # Errors
/// See [`WriteError`].
pub fn ask_about_untaken(
    writer: &WriterHandle,
    endpoints: &[(String, Duration)],
    now_ms: i64,
) -> Result<(), WriteError> {
    for (endpoint, silence) in endpoints {
        let before_ms = now_ms.saturating_sub(retry::as_ms(*silence));
        let reason = "the application did not take it and the sender has stopped sending it; `inboxd retry` hands it to the application";
        loop {
            let name = endpoint.clone();
            let given_up = writer.run(move |tx| {
                let jumps = Timeline::recall(tx)?.of_events();
                let given_up = queue::give_up(tx, &name, before_ms, &jumps, now_ms)?;
                for event_id in &given_up {
                    reviews::open(tx, Kind::Quarantined, &name, event_id, reason, now_ms)?;
                }
                Ok(given_up)
            })?;
            if given_up.is_empty() {
                break;
            }
            for event_id in given_up {
                log::error!("quarantined endpoint={endpoint} event_id={event_id}: {reason}");
            }
        }
    }
    Ok(())
}
