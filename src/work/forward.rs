//! The event as it came, queued for the endpoint's destinations.

use crate::config::{self, Mode};
use crate::store::outbox::{self, NewOperation};
use crate::store::{SqlResult, Transaction};
use crate::work::content::Content;

/// Queues one outbox row for each destination that gets the endpoint's raw events, unless it is queued already.
///
/// # Errors
/// Any SQLite error.
pub fn forward(
    tx: &Transaction<'_>,
    config: &config::Endpoint,
    event: &Content<'_>,
    now_ms: i64,
) -> SqlResult<()> {
    if config.mode == Mode::Proxy {
        return Ok(());
    }
    forward_to(tx, &config.name, &config.forward, event, now_ms)
}

/// As [`forward`], to these destinations, whatever the endpoint's mode.
///
/// # Errors
/// Any SQLite error.
pub fn forward_to(
    tx: &Transaction<'_>,
    endpoint: &str,
    destinations: &[String],
    event: &Content<'_>,
    now_ms: i64,
) -> SqlResult<()> {
    if destinations.is_empty() {
        return Ok(());
    }
    let enveloped = event.envelope.map(|envelope| envelope.around(event.payload));
    for destination in destinations {
        let operation = NewOperation {
            destination,
            topic: event.event_type.unwrap_or_default(),
            operation_key: &outbox::forward_key(endpoint, event.event_id, destination),
            endpoint,
            event_id: event.event_id,
            object_id: event.object_id,
            payload: enveloped.as_deref().unwrap_or(event.payload),
            content_type: event.content_type.unwrap_or("application/octet-stream"),
            headers: Some(event.headers),
            event_type: event.event_type,
            query: event.query,
        };
        outbox::enqueue(tx, &operation, now_ms)?;
    }
    Ok(())
}
