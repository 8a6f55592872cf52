//! Puts an event back to work for a person, and says in a sentence what became of it.

use crate::config::{Instance, Sketch};
use crate::store::inbox::{Event, queue};
use crate::store::outbox;
use crate::store::{SqlResult, Transaction};
use crate::work::hand_on::{self, HandedOn};

/// What became of one event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// A worker takes it.
    Queued,
    /// Queued, but what keeps it from being applied is known.
    Doubtful(&'static str),
    /// In proxy mode: the outbox has it now.
    HandedOn {
        /// Where to.
        destination: String,
        /// Whether it waits there.
        is_paused: bool,
    },
    /// Somebody works on it.
    Held,
    /// Its effects are committed.
    Done,
    /// They are, but this row of the outbox was given up.
    GivenUp(i64),
    /// Nobody would take it on this endpoint.
    Unwanted(String),
    /// Of another mode or account than the endpoint takes.
    Foreign,
    /// Its body is gone.
    Purged,
    /// Its endpoint is not in the configuration.
    NoEndpoint(String),
    /// Its endpoint has nobody to hand it to.
    NoDestination(String),
}

/// Puts one event back to work. The attempts so far are excused and stay in the history.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn requeue(tx: &Transaction<'_>, instance: &Instance, event: &Event, now_ms: i64) -> SqlResult<Fate> {
    let Some(sketch) = instance.sketch(&event.endpoint) else {
        return Ok(Fate::NoEndpoint(event.endpoint.clone()));
    };
    match event.state.as_str() {
        "done" => done(tx, event),
        _ if event.payload_bytes.is_none() => Ok(Fate::Purged),
        _ if sketch.is_proxy => hand_over(tx, instance, sketch, event, now_ms),
        "ignored" if sketch.handlers.is_empty() && sketch.forward.is_empty() => {
            Ok(Fate::Unwanted(sketch.name.clone()))
        }
        "ignored" if is_foreign(sketch, event) => Ok(Fate::Foreign),
        _ if !queue::requeue(tx, event.id, now_ms)? => Ok(Fate::Held),
        _ if is_foreign(sketch, event) => {
            Ok(Fate::Doubtful("of another mode or account than the endpoint takes"))
        }
        "quarantined" if event.error_class.as_deref() == Some("content") => {
            Ok(Fate::Doubtful("something in the event itself, see `inboxd events show`"))
        }
        _ => Ok(Fate::Queued),
    }
}

/// A row of the outbox that was given up is what can still be retried of an event that is done.
fn done(tx: &Transaction<'_>, event: &Event) -> SqlResult<Fate> {
    let rows = outbox::of_event(tx, &event.endpoint, &event.event_id)?;
    Ok(rows.iter().find(|row| row.state == "dead").map_or(Fate::Done, |row| Fate::GivenUp(row.id)))
}

fn hand_over(
    tx: &Transaction<'_>,
    instance: &Instance,
    sketch: &Sketch,
    event: &Event,
    now_ms: i64,
) -> SqlResult<Fate> {
    let Some(destination) = sketch.forward.first().filter(|name| instance.destinations.contains(name)) else {
        return Ok(Fate::NoDestination(sketch.name.clone()));
    };
    Ok(match hand_on::hand_on(tx, event.id, destination, now_ms)? {
        HandedOn::Queued => {
            let is_paused = outbox::is_paused(tx, destination)?;
            Fate::HandedOn { destination: destination.clone(), is_paused }
        }
        HandedOn::Held => Fate::Held,
        HandedOn::Settled => Fate::Done,
        HandedOn::Purged => Fate::Purged,
    })
}

/// As far as the row and the configuration tell.
fn is_foreign(sketch: &Sketch, event: &Event) -> bool {
    let other_account = match (sketch.account.as_deref(), event.account.as_deref()) {
        (Some("required") | None, _) | (_, None) => false,
        (Some(wanted), Some(account)) => wanted != account,
    };
    other_account || sketch.livemode.zip(event.livemode).is_some_and(|(wanted, livemode)| wanted != livemode)
}

impl Fate {
    /// Whether it was not done because it cannot be.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Queued
            | Self::Doubtful(_)
            | Self::HandedOn { .. }
            | Self::Held
            | Self::Done
            | Self::GivenUp(_) => false,
            Self::Unwanted(_)
            | Self::Foreign
            | Self::Purged
            | Self::NoEndpoint(_)
            | Self::NoDestination(_) => true,
        }
    }

    /// Whether the event was put back to work.
    pub fn is_change(&self) -> bool {
        match self {
            Self::Queued | Self::Doubtful(_) | Self::HandedOn { .. } => true,
            Self::Held
            | Self::Done
            | Self::GivenUp(_)
            | Self::Unwanted(_)
            | Self::Foreign
            | Self::Purged
            | Self::NoEndpoint(_)
            | Self::NoDestination(_) => false,
        }
    }

    /// What happened, said of one event or of several.
    pub fn sentence(&self, subject: &str, is_one: bool) -> String {
        let (is, was, it) = if is_one { ("is", "was", "it") } else { ("are", "were", "them") };
        let said = match self {
            Self::Queued => {
                format!(
                    "{is} tried again: a running daemon works on {it} now, a stopped one at its next start"
                )
            }
            Self::Doubtful(what) => format!(
                "{is} tried again; what kept {it} from being applied is {what}: where that has not changed, the \
                 review stays open, and `inboxd resolve` closes it"
            ),
            Self::HandedOn { destination, is_paused: false } => format!(
                "{is} handed to {destination}: a running daemon sends {it} now, a stopped one at its next start; \
                 `inboxd outbox list` shows how it goes"
            ),
            Self::HandedOn { destination, is_paused: true } => format!(
                "{is} queued for {destination}, which is paused: `inboxd outbox resume {destination}` sends {it}"
            ),
            Self::Held => format!("{is} being worked on; nothing was changed"),
            Self::Done => format!("{was} processed before; nothing was changed"),
            Self::GivenUp(row) => format!(
                "{was} processed before; nothing was changed. What it queued was given up: `inboxd outbox retry {row}` \
                 sends that again"
            ),
            Self::Unwanted(endpoint) => format!(
                "{was} not retried: endpoint {endpoint} has no handlers and no forward, so nothing would take {it}; \
                 configure one, restart the daemon, and retry"
            ),
            Self::Foreign => format!(
                "{was} not retried: {is} of another mode or account than the endpoint takes (livemode, account)"
            ),
            Self::Purged => format!(
                "{was} not retried: the body was purged ([retention] payload), so nothing is left to work on; \
                 have it sent again under a new id where it matters"
            ),
            Self::NoEndpoint(endpoint) => format!(
                "{was} not retried: the configuration has no endpoint {endpoint} any more; put it back first"
            ),
            Self::NoDestination(endpoint) => format!(
                "{was} not retried: endpoint {endpoint} has no destination in the configuration to hand {it} to; \
                 `inboxd check` says what is missing"
            ),
        };
        format!("{subject} {said}")
    }
}
