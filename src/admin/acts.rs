//! What a person does to what is stored, from the page or the command line: each act in the caller's transaction,
//! together with its row in the audit trail.
//!
//! Nothing here begins a transaction, prints or knows a page. An act that changes nothing leaves no row.

use serde_json::{Value, json};

use crate::config::Instance;
use crate::store::audit::{self, Act};
use crate::store::inbox::conflicts::{self, Conflict};
use crate::store::outbox::{self, Operation, queue};
use crate::store::reviews::{self, Kind, Review};
use crate::store::{Connection, SqlResult, Transaction};
use crate::work::hand_on::{HandedOn, hand_on};

use super::retry::{self, Fate};
use crate::store::inbox::Event;

/// Who acts, and why.
#[derive(Debug, Clone)]
pub struct By {
    /// As the audit trail names them.
    pub actor: String,
    /// Why, in their own words.
    pub note: Option<String>,
}

impl By {
    /// Somebody who gave no reason.
    pub fn of(actor: String) -> Self {
        Self { actor, note: None }
    }

    /// Writes down one act on `count` rows.
    pub(super) fn note(
        &self,
        tx: &Transaction<'_>,
        act: &str,
        filter: &Value,
        count: i64,
        now_ms: i64,
    ) -> SqlResult<i64> {
        let (actor, note) = (self.actor.as_str(), self.note.as_deref());
        audit::note(tx, &Act { actor, act, filter: &filter.to_string(), count, note }, now_ms)
    }
}

/// An act over many rows, in several transactions: one row of the audit trail, which is begun by the first of them and
/// counts on with each.
#[derive(Debug, Clone)]
pub struct Trail {
    /// Who.
    pub by: By,
    /// The verb.
    pub act: &'static str,
    /// What it is done to.
    pub filter: Value,
    /// The row, once there is one. Known after the first COMMIT only: a transaction may be run again.
    pub row: Option<i64>,
}

impl Trail {
    /// Writes down, in their transaction, that so many rows more were changed. Returns the row, which is to be kept once
    /// it is committed.
    ///
    /// # Errors
    /// Any SQLite error; nothing was written then.
    pub fn count(&self, tx: &Transaction<'_>, count: i64, now_ms: i64) -> SqlResult<Option<i64>> {
        match self.row {
            row if count == 0 => Ok(row),
            Some(row) => audit::add(tx, row, count).map(|()| Some(row)),
            None => self.by.note(tx, self.act, &self.filter, count, now_ms).map(Some),
        }
    }
}

/// Puts one event back to work.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn retry(
    tx: &Transaction<'_>,
    instance: &Instance,
    event: &Event,
    by: &By,
    now_ms: i64,
) -> SqlResult<Fate> {
    let fate = retry::requeue(tx, instance, event, now_ms)?;
    if fate.is_change() {
        let subject = json!({ "endpoint": event.endpoint, "event_id": event.event_id });
        by.note(tx, "retry", &subject, 1, now_ms)?;
    }
    Ok(fate)
}

/// Closes a review with what was decided. `false`: there is no open review of that number.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn resolve(tx: &Transaction<'_>, id: i64, decision: &str, by: &By, now_ms: i64) -> SqlResult<bool> {
    let is_closed = reviews::resolve(tx, id, decision, now_ms)?;
    if is_closed {
        let by = By { actor: by.actor.clone(), note: Some(decision.to_owned()) };
        by.note(tx, "resolve", &json!({ "review": id }), 1, now_ms)?;
    }
    Ok(is_closed)
}

/// What became of a row of the outbox that was to be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requeued {
    /// It is due now.
    Queued,
    /// It waits: nothing is sent to its destination.
    Paused,
    /// It waits: nobody sends to its destination.
    NoDestination,
    /// It is being sent: nothing was changed.
    Sending,
    /// It was delivered: nothing was changed.
    Delivered,
}

impl Requeued {
    /// What happened, said of one row or of several.
    pub fn sentence(self, subject: &str, is_one: bool) -> String {
        let (waits, is, was, its) =
            if is_one { ("waits", "is", "was", "its") } else { ("wait", "are", "were", "their") };
        match self {
            Self::Queued => format!("{subject} {is} tried again"),
            Self::Paused => {
                format!("{subject} {waits}: {its} destination is paused; `inboxd outbox resume` sends again")
            }
            Self::NoDestination => {
                format!("{subject} {waits}: {its} destination is not in the configuration any more")
            }
            Self::Sending => format!("{subject} {is} being sent; nothing was changed"),
            Self::Delivered => format!("{subject} {was} delivered before; nothing was changed"),
        }
    }

    /// Whether the row was put back to work.
    pub fn is_change(self) -> bool {
        match self {
            Self::Queued | Self::Paused | Self::NoDestination => true,
            Self::Sending | Self::Delivered => false,
        }
    }
}

/// Has one row of the outbox sent again, without a row of its own in the audit trail: for [`Trail`].
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn requeue_operation(
    tx: &Transaction<'_>,
    instance: &Instance,
    row: &Operation,
    now_ms: i64,
) -> SqlResult<Requeued> {
    if !queue::requeue(tx, row.id, now_ms)? {
        return Ok(if row.state == "sending" { Requeued::Sending } else { Requeued::Delivered });
    }
    reviews::close_on_operation(tx, &row.operation_key, "tried again by hand", now_ms)?;
    Ok(if !instance.destinations.contains(&row.destination) {
        Requeued::NoDestination
    } else if outbox::is_paused(tx, &row.destination)? {
        Requeued::Paused
    } else {
        Requeued::Queued
    })
}

/// Has one row of the outbox sent again.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn retry_operation(
    tx: &Transaction<'_>,
    instance: &Instance,
    row: &Operation,
    by: &By,
    now_ms: i64,
) -> SqlResult<Requeued> {
    let requeued = requeue_operation(tx, instance, row, now_ms)?;
    if requeued.is_change() {
        by.note(tx, "outbox retry", &json!({ "row": row.id }), 1, now_ms)?;
    }
    Ok(requeued)
}

/// Stops sending to a destination. `false`: it was paused before.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn pause(tx: &Transaction<'_>, destination: &str, by: &By, now_ms: i64) -> SqlResult<bool> {
    let because = by.note.as_deref().unwrap_or("by hand");
    let is_new = outbox::pause(tx, destination, because, now_ms)?;
    if is_new {
        by.note(tx, "outbox pause", &json!({ "destination": destination }), 1, now_ms)?;
    }
    Ok(is_new)
}

/// Sends to a destination again. `false`: it was not paused.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn resume(tx: &Transaction<'_>, destination: &str, by: &By, now_ms: i64) -> SqlResult<bool> {
    let was_paused = outbox::resume(tx, destination)?;
    if was_paused {
        by.note(tx, "outbox resume", &json!({ "destination": destination }), 1, now_ms)?;
    }
    Ok(was_paused)
}

/// Makes events of the other bodies that came under an event's id, and closes the open review about them. Returns a line
/// for each.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn put_conflicts_to_work(
    tx: &Transaction<'_>,
    instance: &Instance,
    (endpoint, event_id): (&str, &str),
    by: &By,
    now_ms: i64,
) -> SqlResult<Vec<String>> {
    let mut lines = Vec::new();
    let waiting = conflicts::of_event(tx, endpoint, event_id)?;
    for Conflict { id, .. } in waiting.iter().filter(|conflict| conflict.worked_as.is_none()) {
        if let Some((row, key)) = conflicts::put_to_work(tx, *id, now_ms)? {
            let how = work_on(tx, instance, endpoint, row, now_ms)?;
            lines.push(format!(
                "the other body of {event_id} on {endpoint} is the event {key} now, which {how}\n"
            ));
        }
    }
    if lines.is_empty() {
        return Ok(lines);
    }
    let open = reviews::about(tx, endpoint, event_id)?;
    let is_open =
        |review: &&Review| review.resolved_at_ms.is_none() && review.kind == Kind::BodyConflict.as_str();
    for review in open.iter().filter(is_open) {
        reviews::resolve(tx, review.id, "the other body was put to work as an event of its own", now_ms)?;
    }
    let count = i64::try_from(lines.len()).unwrap_or(i64::MAX);
    by.note(tx, "retry --conflict", &json!({ "endpoint": endpoint, "event_id": event_id }), count, now_ms)?;
    Ok(lines)
}

/// A worker takes it, or in proxy mode the outbox.
fn work_on(
    tx: &Transaction<'_>,
    instance: &Instance,
    endpoint: &str,
    row: i64,
    now_ms: i64,
) -> SqlResult<String> {
    let sketch = instance.sketch(endpoint).filter(|sketch| sketch.is_proxy);
    let Some(destination) = sketch.and_then(|sketch| sketch.forward.first()) else {
        return Ok("is worked on by a running daemon now, by a stopped one at its next start".to_owned());
    };
    Ok(match hand_on(tx, row, destination, now_ms)? {
        HandedOn::Queued if outbox::is_paused(tx, destination)? => {
            format!("waits for {destination}, which is paused: `inboxd outbox resume {destination}` sends it")
        }
        HandedOn::Queued => format!("is handed to {destination}; `inboxd outbox list` shows how it goes"),
        HandedOn::Held | HandedOn::Settled | HandedOn::Purged => "needs no work".to_owned(),
    })
}

/// Whether a person has closed what was asked about an event: a filter does not undo that, a name does.
///
/// # Errors
/// Any SQLite error.
pub fn is_decided(conn: &Connection, event: &Event) -> SqlResult<bool> {
    if event.state != "quarantined" {
        return Ok(false);
    }
    let reviews = reviews::about(conn, &event.endpoint, &event.event_id)?;
    Ok(!reviews.is_empty() && reviews.iter().all(|review| review.resolved_at_ms.is_some()))
}
