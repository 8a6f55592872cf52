//! From a verified event to its place in the inbox: builds and runs the job that the writer commits.
//!
//! Everything one delivery changes is written by [`store`], in one savepoint of one transaction: the
//! inbox row, what the handlers do, what waits for a person. It never answers anybody.

use std::sync::Arc;

use rusqlite::Transaction;

use crate::config::{self, OnRedelivery, OnScopeMismatch};
use crate::failpoint;
use crate::handlers::{Event, Handled, Handler, HandlerError};
use crate::inbox::{self, Known, State};
use crate::reviews::{self, Kind};
use crate::verify::VerifiedEvent;
use crate::writer::JobError;

/// An endpoint at work: its configuration and the handlers it names, in order.
pub struct Endpoint {
    /// As configured.
    pub config: config::Endpoint,
    /// In the order in which they run.
    pub handlers: Vec<Arc<dyn Handler>>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What became of a delivery that was stored, or had been before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// New, and its effects are committed.
    Processed,
    /// Known: nothing changed but a counter.
    Duplicate,
    /// Nobody's business here; stored.
    Ignored,
    /// Permanently inconsistent; stored for a person.
    Quarantined,
}

/// What an endpoint does with an event, decided before the database is touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// The handlers run.
    Handle,
    /// Stored, and nobody works on it.
    Ignore,
    /// Stored for a person, with the reason.
    Quarantine(String),
    /// Refused: of another mode or account than the endpoint's.
    ScopeMismatch,
}

/// Decides what the endpoint does with the event.
pub fn disposition(endpoint: &Endpoint, event: &VerifiedEvent) -> Disposition {
    if let Some(defect) = event.defect() {
        return Disposition::Quarantine(defect.to_owned());
    }
    match scope(&endpoint.config, event) {
        Scope::Matches => {}
        Scope::Unknown(reason) => return Disposition::Quarantine(reason),
        Scope::Mismatch => {
            return match endpoint.config.on_scope_mismatch {
                OnScopeMismatch::Refuse => Disposition::ScopeMismatch,
                OnScopeMismatch::Ignore => Disposition::Ignore,
            };
        }
    }
    let event_type = event.event_type().unwrap_or_default();
    if endpoint.handlers.iter().any(|handler| handler.takes(event_type)) {
        Disposition::Handle
    } else {
        Disposition::Ignore
    }
}

enum Scope {
    Matches,
    Mismatch,
    Unknown(String),
}

/// An event without an account is the own account's; an event without a mode is nobody's guess.
fn scope(endpoint: &config::Endpoint, event: &VerifiedEvent) -> Scope {
    if let (Some(wanted), Some(account)) = (&endpoint.account, event.account())
        && wanted != account
    {
        return Scope::Mismatch;
    }
    match (endpoint.livemode, event.livemode()) {
        (Some(wanted), Some(livemode)) if wanted != livemode => Scope::Mismatch,
        (Some(_), None) => Scope::Unknown("the event does not say whether it is live or a test".to_owned()),
        _ => Scope::Matches,
    }
}

/// Stores the event and does its work. Runs in the writer's transaction, possibly more than once.
///
/// # Errors
/// Any error: the caller rolls back everything this delivery wrote.
pub fn store(
    tx: &Transaction<'_>,
    endpoint: &Endpoint,
    event: &VerifiedEvent,
    disposition: &Disposition,
    now_ms: i64,
) -> Result<Outcome, JobError> {
    let delivery = Stored { tx, endpoint, event, disposition, now_ms };
    if let Some(outcome) = delivery.insert(event.event_id())? {
        return Ok(outcome);
    }
    let known = delivery.count_duplicate(event.event_id())?;
    if delivery.is_same_fact(&known)? {
        return delivery.redeliver(&known);
    }
    if event.is_test_send() {
        // a provider's test button sends one constant id for every type: the body tells them apart
        let key = format!("{}:{}", event.event_id(), event.body_key());
        return match delivery.insert(&key)? {
            Some(outcome) => Ok(outcome),
            None => delivery.count_duplicate(&key).map(|_| Outcome::Duplicate),
        };
    }
    let reason = "the same event id came again with another body; the first body was kept";
    delivery.open_review(Kind::BodyConflict, event.event_id(), reason)?;
    Ok(Outcome::Duplicate)
}

/// One delivery inside its transaction.
struct Stored<'a> {
    tx: &'a Transaction<'a>,
    endpoint: &'a Endpoint,
    event: &'a VerifiedEvent,
    disposition: &'a Disposition,
    now_ms: i64,
}

impl Stored<'_> {
    /// Inserts the row and does its work; `None` when the key is known.
    fn insert(&self, key: &str) -> Result<Option<Outcome>, JobError> {
        let expected = match self.disposition {
            Disposition::Handle => State::Done,
            Disposition::Ignore | Disposition::ScopeMismatch => State::Ignored,
            Disposition::Quarantine(_) => State::Quarantined,
        };
        let name = &self.endpoint.config.name;
        failpoint::reach("inbox_insert_before");
        let Some(row) = inbox::insert(self.tx, name, key, self.event, expected, self.now_ms)? else {
            return Ok(None);
        };
        failpoint::reach("inbox_insert_after");
        let worked = self.work()?;
        failpoint::reach("handler_after");
        if worked != Worked::Done || expected != State::Done {
            self.mark(row, key, &worked)?;
        }
        Ok(Some(worked.outcome()))
    }

    fn count_duplicate(&self, key: &str) -> Result<Known, JobError> {
        let (provider, name) = (self.event.provider(), &self.endpoint.config.name);
        inbox::count_duplicate(self.tx, provider, name, key)?
            .ok_or_else(|| JobError::Failed(format!("the inbox row {key} can neither be inserted nor found")))
    }

    fn is_same_fact(&self, known: &Known) -> Result<bool, JobError> {
        if known.body_sha256 == self.event.body_sha256() {
            return Ok(true);
        }
        // once purged, the first body can no longer be compared
        let varies = self.endpoint.config.verifier.scheme().body_varies();
        let first = inbox::payload_of(self.tx, known.id)?;
        Ok(first.is_none_or(|first| varies.same_event(&first, self.event.body())))
    }

    /// A known event. A quarantined one is tried again: what it was missing may be there by now.
    fn redeliver(&self, known: &Known) -> Result<Outcome, JobError> {
        let requeue = self.endpoint.config.on_redelivery == OnRedelivery::Requeue;
        if !known.is_quarantined || !requeue || *self.disposition != Disposition::Handle {
            return Ok(Outcome::Duplicate);
        }
        inbox::count_attempt(self.tx, known.id)?;
        let worked = self.work()?;
        if let Worked::Quarantined(_) = worked {
            return Ok(Outcome::Duplicate);
        }
        self.mark(known.id, self.event.event_id(), &worked)?;
        Ok(worked.outcome())
    }

    /// Runs the handlers in a savepoint of their own: what one quarantines, none of them has written.
    fn work(&self) -> Result<Worked, JobError> {
        match self.disposition {
            Disposition::Handle => {}
            Disposition::Ignore | Disposition::ScopeMismatch => return Ok(Worked::Ignored),
            Disposition::Quarantine(reason) => return Ok(Worked::Quarantined(reason.clone())),
        }
        self.tx.prepare_cached("SAVEPOINT handlers")?.execute([])?;
        let worked = self.run_handlers()?;
        if let Worked::Quarantined(_) = worked {
            self.tx.prepare_cached("ROLLBACK TO handlers")?.execute([])?;
        }
        self.tx.prepare_cached("RELEASE handlers")?.execute([])?;
        Ok(worked)
    }

    fn run_handlers(&self) -> Result<Worked, JobError> {
        let event = self.for_handlers();
        let mut worked = Worked::Ignored;
        for handler in self.endpoint.handlers.iter().filter(|handler| handler.takes(event.event_type)) {
            match handler.handle(self.tx, &event).map_err(|error| failure(handler.name(), error))? {
                Handled::Applied => worked = Worked::Done,
                Handled::Ignored => {}
                Handled::Quarantine(reason) => return Ok(Worked::Quarantined(reason)),
            }
        }
        Ok(worked)
    }

    fn for_handlers(&self) -> Event<'_> {
        Event {
            endpoint: &self.endpoint.config.name,
            provider: self.event.provider(),
            id: self.event.event_id(),
            event_type: self.event.event_type().unwrap_or_default(),
            object_id: self.event.object_id(),
            account: self.event.account(),
            livemode: self.event.livemode(),
            body: self.event.json(),
            is_test_send: self.event.is_test_send(),
            notify: self.endpoint.config.notify.as_deref(),
            now_ms: self.now_ms,
        }
    }

    fn mark(&self, row: i64, key: &str, worked: &Worked) -> Result<(), JobError> {
        match worked {
            Worked::Done => inbox::mark(self.tx, row, State::Done, None, self.now_ms)?,
            Worked::Ignored => inbox::mark(self.tx, row, State::Ignored, None, self.now_ms)?,
            Worked::Quarantined(reason) => {
                inbox::mark(self.tx, row, State::Quarantined, Some(reason), self.now_ms)?;
                self.open_review(Kind::Quarantined, key, reason)?;
            }
        }
        Ok(())
    }

    fn open_review(&self, kind: Kind, key: &str, reason: &str) -> Result<(), JobError> {
        let name = &self.endpoint.config.name;
        Ok(reviews::open(self.tx, kind, name, key, reason, self.now_ms)?)
    }
}

/// How the work on one event ended.
#[derive(Debug, PartialEq, Eq)]
enum Worked {
    Done,
    Ignored,
    Quarantined(String),
}

impl Worked {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Done => Outcome::Processed,
            Self::Ignored => Outcome::Ignored,
            Self::Quarantined(_) => Outcome::Quarantined,
        }
    }
}

fn failure(handler: &str, error: HandlerError) -> JobError {
    match error {
        HandlerError::Sql(error) => JobError::Sql(error),
        HandlerError::Failed(reason) => JobError::Failed(format!("handler {handler}: {reason}")),
    }
}
