//! From a verified event to its place in the inbox: builds and runs the job that the writer commits.
//!
//! Everything one delivery changes is written by [`store`], in one savepoint of one transaction: the
//! inbox row, what the handlers do, what waits for a person. It never answers anybody.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::clock;
use crate::config::{Mode, OnRedelivery};
use crate::failpoint;
use crate::store::inbox::failures::{self, Failed};
use crate::store::inbox::queue::{self, Claimed, OneClaim};
use crate::store::inbox::{self, Known, State};
use crate::store::reviews::{self, Kind};
use crate::store::writer::JobError;
use crate::store::{SqlResult, Transaction};
use crate::verify::VerifiedEvent;
use crate::work::Worked;
use crate::work::apply::{self, Row};
use crate::work::content::Content;
use crate::work::endpoint::Endpoint;
use crate::work::forward::forward;
use crate::work::lease::Held;
use crate::work::retry;
use crate::work::screen::{Disposition, has_handler_for};

mod filing;
mod replay;

use filing::Filed;

/// The outcome of a delivery that was stored, now or earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// New, and its effects are committed.
    Processed,
    /// Known: nothing changed but a counter.
    Duplicate,
    /// Nothing here handles or forwards it; stored.
    Ignored,
    /// Stored for the worker.
    Accepted,
    /// Permanently inconsistent; stored for a person.
    Quarantined,
    /// A known body under a new, unsigned id, which the endpoint refuses: not stored.
    Replayed,
}

impl Outcome {
    /// The outcome of a batch. New work outweighs a question to a person, who has a review anyway, and both outweigh an
    /// event without work.
    pub fn of_batch(outcomes: impl IntoIterator<Item = Self>) -> Self {
        let weight = |outcome: &Self| match outcome {
            Self::Accepted => 5,
            Self::Processed => 4,
            Self::Quarantined => 3,
            Self::Ignored => 2,
            Self::Duplicate => 1,
            Self::Replayed => 0,
        };
        outcomes.into_iter().max_by_key(weight).unwrap_or(Self::Ignored)
    }
}

/// The answer, and the review to report once it is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The delivery's outcome.
    pub outcome: Outcome,
    /// The reason for a review, if this delivery opened one.
    pub review: Option<String>,
}

/// The events of one delivery on their way into the inbox.
#[derive(Debug)]
pub struct Incoming {
    endpoint: Arc<Endpoint>,
    events: Vec<(VerifiedEvent, Disposition)>,
    now_ms: i64,
    /// The event in work.
    at: AtomicUsize,
}

impl Incoming {
    /// The events that an endpoint received, each with what the screen decided.
    pub fn new(endpoint: Arc<Endpoint>, events: Vec<(VerifiedEvent, Disposition)>, now_ms: i64) -> Self {
        Self { endpoint, events, now_ms, at: AtomicUsize::new(0) }
    }

    /// Stores all events of the delivery and does their work, in order. One that fails takes the others along: the
    /// provider sends the whole delivery again.
    ///
    /// # Errors
    /// As [`store`].
    pub fn store(&self, tx: &Transaction<'_>) -> Result<Receipt, JobError> {
        let stored = self.events.iter().enumerate().map(|(index, (event, disposition))| {
            self.at.store(index, Ordering::Relaxed);
            store(tx, &self.endpoint, event, disposition, self.now_ms)
        });
        Ok(of_all(stored.collect::<Result<_, _>>()?))
    }

    /// Notes the event whose work failed: nothing else of this delivery is stored.
    ///
    /// # Errors
    /// Any SQLite error.
    pub fn note_failure(&self, tx: &Transaction<'_>, error: &JobError) -> SqlResult<()> {
        let Some((event, _)) = self.events.get(self.at.load(Ordering::Relaxed)) else { return Ok(()) };
        let failed = Failed {
            endpoint: &self.endpoint.config.name,
            event_type: event.event_type(),
            event_id: event.event_id(),
            error: &error.to_string(),
        };
        failures::note(tx, &failed, self.now_ms)
    }
}

fn of_all(receipts: Vec<Receipt>) -> Receipt {
    Receipt {
        outcome: Outcome::of_batch(receipts.iter().map(|receipt| receipt.outcome)),
        review: receipts.into_iter().find_map(|receipt| receipt.review),
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
) -> Result<Receipt, JobError> {
    let delivery = Stored { tx, endpoint, event, disposition, now_ms, review: RefCell::default() };
    let outcome = match delivery.file(|key| delivery.insert(key))? {
        Filed::New(outcome) => outcome,
        Filed::Again(known) => delivery.redeliver(&known)?,
        Filed::Told(_) => Outcome::Duplicate,
    };
    delivery.forget_failures(outcome)?;
    Ok(delivery.receipt(outcome))
}

/// The result of claiming an event for which the application answers.
#[derive(Debug)]
pub enum Claim {
    /// The event is claimed: ask the application, then [`queue::settle`] or [`queue::give_back`].
    Ask(Box<Claimed>),
    /// Another delivery of it is with the application, for that long at most.
    InProgress(Duration),
    /// The application need not be asked.
    Settled(Receipt),
}

/// Stores the event if it is new, and claims it for one request to the application. Runs in the writer's
/// transaction, possibly more than once.
///
/// # Errors
/// Any error: the caller rolls back everything this delivery wrote.
pub fn claim(
    tx: &Transaction<'_>,
    endpoint: &Endpoint,
    event: &VerifiedEvent,
    (lease_id, lease, held): (&str, Duration, &Held),
    now_ms: i64,
) -> Result<Claim, JobError> {
    let disposition = &Disposition::Handle;
    let delivery = Stored { tx, endpoint, event, disposition, now_ms, review: RefCell::default() };
    let settled = |outcome| Ok(Claim::Settled(delivery.receipt(outcome)));
    let name = &endpoint.config.name;
    let insert = |key: &str| {
        let id = inbox::insert(tx, name, key, event, State::Pending, now_ms)?;
        Ok(id.map(|id| (id, key.to_owned())))
    };
    let filed = delivery.file(insert)?;
    let newer_body = matches!(filed, Filed::Again(_)).then(|| event.body());
    let id = match filed {
        Filed::New((id, key)) => match delivery.first_of_replay(id)? {
            Some(first) => return settled(delivery.replayed(id, &key, &first)?),
            None => id,
        },
        // where the bodies differ the application is asked with the first: a 2xx now would end the provider's retries
        Filed::Again(known) | Filed::Told(known) => {
            if known.is_quarantined && delivery.may_try_again(&known)? {
                queue::requeue(tx, known.id, now_ms)?;
            }
            known.id
        }
    };
    let lease_ms = retry::as_ms(lease);
    let steady_ms = clock::steady_ms();
    Ok(match queue::claim_one(tx, id, (lease_id, lease_ms), held.left_ms(id, steady_ms), now_ms)? {
        OneClaim::Work(mut claimed) => {
            held.hold(id, lease_id, lease_ms, steady_ms);
            // where attempts differ in a signed time, the application could not take the first one any more
            if let Some(body) = newer_body {
                claimed.payload = body.to_vec();
            }
            Claim::Ask(claimed)
        }
        OneClaim::HeldUntil(until_ms) => {
            Claim::InProgress(Duration::from_millis(until_ms.saturating_sub(now_ms).max(0).unsigned_abs()))
        }
        OneClaim::Settled => Claim::Settled(delivery.receipt(Outcome::Duplicate)),
    })
}

/// One delivery inside its transaction.
struct Stored<'a> {
    tx: &'a Transaction<'a>,
    endpoint: &'a Endpoint,
    event: &'a VerifiedEvent,
    disposition: &'a Disposition,
    now_ms: i64,
    review: RefCell<Option<String>>,
}

impl Stored<'_> {
    /// Stored, by whatever delivery: nothing fails any more.
    fn forget_failures(&self, outcome: Outcome) -> Result<(), JobError> {
        if outcome == Outcome::Replayed {
            return Ok(());
        }
        let about = (self.endpoint.config.name.as_str(), self.event.event_id());
        failures::forget(self.tx, about.0, about.1)?;
        reviews::close_undelivered_event(self.tx, about, "a later delivery of it was stored", self.now_ms)?;
        Ok(())
    }

    fn receipt(&self, outcome: Outcome) -> Receipt {
        Receipt { outcome, review: self.review.take() }
    }

    /// Inserts the row and does its work; `None` when the key is known.
    fn insert(&self, key: &str) -> Result<Option<Outcome>, JobError> {
        let expected = match self.disposition {
            Disposition::Handle if self.is_async() => State::Pending,
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
        if let Some(first) = self.first_of_replay(row)? {
            return self.replayed(row, key, &first).map(Some);
        }
        if expected == State::Pending {
            self.forward(key)?;
            return Ok(Some(Outcome::Accepted));
        }
        let worked = self.work(row, key)?;
        failpoint::reach("handler_after");
        if worked.state() != expected || worked.reason().is_some() {
            self.settle(row, key, &worked, None)?;
        }
        Ok(Some(outcome_of(&worked)))
    }

    fn is_async(&self) -> bool {
        // an event that is only forwarded needs no worker
        self.endpoint.config.mode == Mode::Async
            && has_handler_for(self.endpoint, self.event.event_type().unwrap_or_default())
    }

    /// Queued when it is stored: it does not wait for the worker.
    fn forward(&self, key: &str) -> Result<(), JobError> {
        let content = Content::of_verified(self.event, key);
        Ok(forward(self.tx, &self.endpoint.config, &content, self.now_ms)?)
    }

    /// A known event. A quarantined one is tried again, because what it was missing may exist by now.
    fn redeliver(&self, known: &Known) -> Result<Outcome, JobError> {
        if !known.is_quarantined {
            // what it waits for may exist by now
            queue::wake(self.tx, known.id, self.now_ms)?;
            return Ok(Outcome::Duplicate);
        }
        if !self.may_try_again(known)? {
            return Ok(Outcome::Duplicate);
        }
        if self.is_async() && *self.disposition == Disposition::Handle {
            queue::requeue(self.tx, known.id, self.now_ms)?;
            self.forward(&known.key)?;
            return Ok(Outcome::Accepted);
        }
        let worked = self.work(known.id, &known.key)?;
        inbox::count_attempt(self.tx, known.id)?;
        if worked.reason().is_some() {
            return Ok(Outcome::Duplicate);
        }
        self.settle(known.id, &known.key, &worked, Some("went through when it was sent again"))?;
        Ok(outcome_of(&worked))
    }

    /// A replay stays quarantined when it is sent again: only a person lets it through.
    fn may_try_again(&self, known: &Known) -> Result<bool, JobError> {
        Ok(self.endpoint.config.on_redelivery == OnRedelivery::Requeue
            && self.first_of_replay(known.id)?.is_none())
    }

    fn work(&self, row: i64, key: &str) -> Result<Worked, JobError> {
        let content = Content::of_verified(self.event, key);
        let screened = (self.endpoint, self.disposition);
        apply::apply(self.tx, screened, row, (&content, self.event.json()), self.now_ms)
    }

    fn settle(&self, id: i64, event_id: &str, worked: &Worked, note: Option<&str>) -> Result<(), JobError> {
        if let Some(reason) = worked.reason() {
            *self.review.borrow_mut() = Some(reason.to_owned());
        }
        let row = Row::Free { id, endpoint: &self.endpoint.config.name, event_id };
        apply::settle(self.tx, row, worked, note, self.now_ms)?;
        Ok(())
    }

    fn open_review(&self, kind: Kind, key: &str, reason: &str) -> Result<(), JobError> {
        let name = &self.endpoint.config.name;
        *self.review.borrow_mut() = Some(reason.to_owned());
        Ok(reviews::open(self.tx, kind, name, key, reason, self.now_ms)?)
    }
}

/// The outcome of a delivery whose event was worked on.
fn outcome_of(worked: &Worked) -> Outcome {
    match worked {
        Worked::Done => Outcome::Processed,
        Worked::Ignored => Outcome::Ignored,
        Worked::Quarantined(..) => Outcome::Quarantined,
        Worked::Parked { .. } => Outcome::Accepted,
    }
}
