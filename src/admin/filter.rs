//! The filters of the lists, as links, forms and the audit trail name them: by the flags of the command line.

use serde_json::{Value, json};

use crate::config::parse_duration;
use crate::store::inbox;
use crate::store::outbox;
use crate::store::reviews;

use super::http::Form;

/// Of events.
pub fn events(form: &Form, now_ms: i64) -> inbox::Filter {
    let text = |name: &str| form.value(name).map(str::to_owned);
    inbox::Filter {
        endpoint: text("endpoint"),
        event_type: text("type"),
        object_id: text("object"),
        state: text("state"),
        since_ms: moment(form, "since", now_ms),
        until_ms: moment(form, "until", now_ms),
        error: text("error"),
    }
}

/// Of rows of the outbox.
pub fn outbox(form: &Form, now_ms: i64) -> outbox::Filter {
    let text = |name: &str| form.value(name).map(str::to_owned);
    outbox::Filter {
        destination: text("destination"),
        endpoint: text("endpoint"),
        topic: text("type"),
        object_id: text("object"),
        state: text("state"),
        since_ms: moment(form, "since", now_ms),
        until_ms: moment(form, "until", now_ms),
        error: text("error"),
        event_id: text("event"),
    }
}

/// Of open reviews.
pub fn reviews(form: &Form, until_ms: Option<i64>) -> reviews::Filter {
    let text = |name: &str| form.value(name).map(str::to_owned);
    reviews::Filter { endpoint: text("endpoint"), kind: text("kind"), reason: text("reason"), until_ms }
}

/// A time as typed: RFC 3339, a length of time before now, or (`since_ms`, `until_ms`) milliseconds since the epoch. What
/// is none of these does not matter.
fn moment(form: &Form, name: &str, now_ms: i64) -> Option<i64> {
    if let Some(at_ms) = form.number(&format!("{name}_ms")) {
        return Some(at_ms);
    }
    let typed = form.value(name)?;
    if let Ok(time) = typed.parse::<jiff::Timestamp>() {
        return Some(time.as_millisecond());
    }
    let before = parse_duration(typed).ok()?;
    Some(now_ms.saturating_sub(i64::try_from(before.as_millis()).unwrap_or(i64::MAX)))
}

/// For the audit trail.
pub fn events_json(filter: &inbox::Filter) -> Value {
    let inbox::Filter { endpoint, event_type, object_id, state, since_ms, until_ms, error } = filter;
    typed(json!({
        "endpoint": endpoint,
        "type": event_type,
        "object": object_id,
        "state": state,
        "since_ms": since_ms,
        "until_ms": until_ms,
        "error": error,
    }))
}

/// For the audit trail.
pub fn outbox_json(filter: &outbox::Filter) -> Value {
    let outbox::Filter {
        destination,
        endpoint,
        topic,
        object_id,
        state,
        since_ms,
        until_ms,
        error,
        event_id,
    } = filter;
    typed(json!({
        "destination": destination,
        "endpoint": endpoint,
        "type": topic,
        "object": object_id,
        "state": state,
        "since_ms": since_ms,
        "until_ms": until_ms,
        "error": error,
        "event": event_id,
    }))
}

/// For the audit trail.
pub fn reviews_json(filter: &reviews::Filter) -> Value {
    let reviews::Filter { endpoint, kind, reason, until_ms } = filter;
    typed(json!({
        "reviews": true,
        "endpoint": endpoint,
        "kind": kind,
        "reason": reason,
        "until_ms": until_ms,
    }))
}

/// What was asked for, without what does not matter.
fn typed(mut filter: Value) -> Value {
    if let Some(filter) = filter.as_object_mut() {
        filter.retain(|_, value| !value.is_null());
    }
    filter
}
