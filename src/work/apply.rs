//! What is done with one event: screen → handlers → forward → state → review.
//!
//! The rule stands here once, for a delivery whose sender waits, for a stored event that a worker holds, and for what
//! an application took. All of it happens in the transaction that is passed in. Whether a lease still holds is the
//! caller's question, and so is what a failure leads to: here an error is handed up, and everything is rolled back.

use std::time::Instant;

use serde_json::Value;

use crate::handlers::{self, Event, Handled};
use crate::measure;
use crate::store::inbox;
use crate::store::inbox::queue::{self, Claimed, ErrorClass};
use crate::store::reviews::{self, Kind};
use crate::store::writer::JobError;
use crate::store::{SqlResult, Transaction};
use crate::work::content::Content;
use crate::work::endpoint::Endpoint;
use crate::work::forward::forward;
use crate::work::parking::wait_for;
use crate::work::screen::Disposition;
use crate::work::{Worked, failure};

/// Does the work on the event of this row as far as the screen lets it: runs the handlers and queues the forwards. The
/// row itself is not touched; see [`settle`].
///
/// # Errors
/// A handler's failure or SQLite's: the caller rolls everything back.
pub fn apply(
    tx: &Transaction<'_>,
    (endpoint, disposition): (&Endpoint, &Disposition),
    row: i64,
    (content, json): (&Content<'_>, &Value),
    now_ms: i64,
) -> Result<Worked, JobError> {
    match disposition {
        Disposition::Handle => {}
        Disposition::Ignore | Disposition::ScopeMismatch => return Ok(Worked::Ignored),
        Disposition::Quarantine(reason) => return Ok(Worked::Quarantined(Kind::Quarantined, reason.clone())),
    }
    let mut handled = run_handlers(tx, endpoint, (content, json), (true, now_ms))?;
    if let Handled::Park(park) = handled {
        let waited = wait_for(tx, row, park, now_ms)?;
        if waited != Worked::Ignored {
            forward(tx, &endpoint.config, content, now_ms)?;
            return Ok(waited);
        }
        // it waited in vain for one handler: the others have not done their part yet
        handled = run_handlers(tx, endpoint, (content, json), (false, now_ms))?;
    }
    // a quarantined event is forwarded all the same; a forward that is queued already stays unchanged
    forward(tx, &endpoint.config, content, now_ms)?;
    Ok(match handled {
        Handled::Applied => Worked::Done,
        // forwarding an event is work, too
        Handled::Ignored if !endpoint.config.forward.is_empty() => Worked::Done,
        Handled::Ignored => Worked::Ignored,
        Handled::Quarantine(reason) => Worked::Quarantined(Kind::Quarantined, reason),
        Handled::Contradiction(reason) => Worked::Quarantined(Kind::Contradiction, reason),
        Handled::Thin(reason) => Worked::Quarantined(Kind::ThinEvent, reason),
        // nothing is waited for any more
        Handled::Park(_) => Worked::Ignored,
    })
}

fn run_handlers(
    tx: &Transaction<'_>,
    endpoint: &Endpoint,
    (content, json): (&Content<'_>, &Value),
    (may_wait, now_ms): (bool, i64),
) -> Result<Handled, JobError> {
    let text = endpoint.config.verifier.json_text(content.content_type, content.payload);
    let event = Event {
        endpoint: &endpoint.config.name,
        provider: content.provider,
        id: content.event_id,
        event_type: content.event_type.unwrap_or_default(),
        object_id: content.object_id,
        account: content.account,
        livemode: content.livemode,
        query: content.query,
        body: json,
        text: text.as_deref(),
        is_test_send: content.is_test_send,
        notify: endpoint.config.notify.as_deref(),
        now_ms,
    };
    let began = Instant::now();
    let run = if may_wait { handlers::run } else { handlers::run_without_waiting };
    let handled = run(tx, &endpoint.handlers, &event);
    measure::HANDLERS.record_time(began.elapsed());
    handled.map_err(failure)
}

/// The inbox row of an event, and what protects it from other workers.
#[derive(Debug, Clone, Copy)]
pub enum Row<'a> {
    /// It has no lease: it was inserted, or found settled, in this transaction.
    Free {
        /// The row.
        id: i64,
        /// The endpoint's name.
        endpoint: &'a str,
        /// The key.
        event_id: &'a str,
    },
    /// Held under a lease.
    Held(&'a Claimed),
}

/// Writes the result of the work: the row's state, and a review or the end of one. `note` says how an open review was
/// settled; a row that was inserted in this transaction has none. `false`: the lease was lost, and
/// nothing was changed.
///
/// # Errors
/// Any SQLite error.
pub fn settle(
    tx: &Transaction<'_>,
    row: Row<'_>,
    worked: &Worked,
    note: Option<&str>,
    now_ms: i64,
) -> SqlResult<bool> {
    let is_ours = row.set(tx, worked, now_ms)?;
    if !is_ours {
        return Ok(false);
    }
    let (endpoint, event_id) = row.about();
    match (worked, note) {
        (Worked::Quarantined(kind, reason), _) => {
            reviews::open(tx, *kind, endpoint, event_id, reason, now_ms)?;
        }
        (Worked::Done | Worked::Ignored, Some(note)) => {
            reviews::close_on_event(tx, (endpoint, event_id), note, now_ms)?;
        }
        // the review stays open until the event succeeds
        (Worked::Parked { .. }, _) | (Worked::Done | Worked::Ignored, None) => {}
    }
    Ok(true)
}

/// The note on a review that an attempt has settled.
pub fn attempt_note(claimed: &Claimed) -> String {
    format!("went through on attempt {}", claimed.attempt)
}

impl<'a> Row<'a> {
    fn about(self) -> (&'a str, &'a str) {
        match self {
            Self::Free { endpoint, event_id, .. } => (endpoint, event_id),
            Self::Held(claimed) => (&claimed.endpoint, &claimed.event_id),
        }
    }

    fn set(self, tx: &Transaction<'_>, worked: &Worked, now_ms: i64) -> SqlResult<bool> {
        match (self, worked) {
            (Self::Free { id, .. }, Worked::Parked { waits_for, next_at_ms }) => {
                queue::park(tx, id, waits_for, *next_at_ms)?;
                Ok(true)
            }
            (Self::Free { id, .. }, worked) => {
                inbox::mark(tx, id, worked.state(), worked.reason(), now_ms)?;
                Ok(true)
            }
            (Self::Held(claimed), Worked::Parked { waits_for, next_at_ms }) => {
                let waits = queue::waiting_text(waits_for);
                queue::give_back(tx, claimed, ErrorClass::Parked, &waits, *next_at_ms, now_ms)
            }
            (Self::Held(claimed), worked) => {
                let error = worked.reason().map(|reason| (ErrorClass::Content, reason));
                queue::settle(tx, claimed, worked.state(), error, now_ms)
            }
        }
    }
}
