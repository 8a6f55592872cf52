//! From a verified event to its place in the inbox: builds and runs the job that the writer commits.
//!
//! Everything one delivery changes is written by [`store`], in one savepoint of one transaction: the
//! inbox row, what the handlers do, what waits for a person. It never answers anybody.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rusqlite::Transaction;

use crate::clock;
use crate::config::{Mode, OnRedelivery, Replay};
use crate::failpoint;
use crate::handlers::{self, Event, Handled, Park};
use crate::providers::BodyVaries;
use crate::store::inbox::conflicts::{self, Kept};
use crate::store::inbox::failures::{self, Failed};
use crate::store::inbox::queue::{self, Claimed, OneClaim};
use crate::store::inbox::{self, Known, State};
use crate::store::reviews::{self, Kind};
use crate::store::writer::{JobError, WriteError, WriterHandle};
use crate::verify::VerifiedEvent;
use crate::work::endpoint::Endpoint;
use crate::work::failure;
use crate::work::forward::{Forwarded, forward};
use crate::work::held::Held;
use crate::work::parking::wait_for;
use crate::work::retry;
use crate::work::screen::{Disposition, has_handler_for};

/// What became of a delivery that was stored, or had been before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// New, and its effects are committed.
    Processed,
    /// Known: nothing changed but a counter.
    Duplicate,
    /// Nobody's business here; stored.
    Ignored,
    /// Stored for the worker.
    Accepted,
    /// Permanently inconsistent; stored for a person.
    Quarantined,
    /// A known body under a new, unsigned id, where the endpoint refuses that: not stored.
    Replayed,
}

impl Outcome {
    /// What a batch is answered: that something new was done weighs more than that something waits for a
    /// person (who is told anyway), and either more than that there was nothing to do.
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

/// What to answer, and what to tell once it is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// What became of the delivery.
    pub outcome: Outcome,
    /// Why a person has to look at it, where this delivery found that out.
    pub review: Option<String>,
}

/// The events of one delivery on their way into the inbox.
#[derive(Debug)]
pub struct Incoming {
    endpoint: Arc<Endpoint>,
    events: Vec<(VerifiedEvent, Disposition)>,
    now_ms: i64,
    /// The event that is being worked on.
    at: AtomicUsize,
}

impl Incoming {
    /// What an endpoint was sent, with what it does with each event.
    pub fn new(endpoint: Arc<Endpoint>, events: Vec<(VerifiedEvent, Disposition)>, now_ms: i64) -> Self {
        Self { endpoint, events, now_ms, at: AtomicUsize::new(0) }
    }

    /// Stores all events and does their work, see [`store_all`].
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

    /// Leaves word of the event whose work failed: nothing else of this delivery is stored.
    ///
    /// # Errors
    /// Any SQLite error.
    pub fn note_failure(&self, tx: &Transaction<'_>, error: &JobError) -> rusqlite::Result<()> {
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

/// Stores all events of one delivery and does their work, in order. One that fails takes the others along:
/// the provider sends the whole delivery again.
///
/// # Errors
/// As [`store`].
pub fn store_all(
    tx: &Transaction<'_>,
    endpoint: &Endpoint,
    events: &[(VerifiedEvent, Disposition)],
    now_ms: i64,
) -> Result<Receipt, JobError> {
    let receipts = events.iter().map(|(event, disposition)| store(tx, endpoint, event, disposition, now_ms));
    Ok(of_all(receipts.collect::<Result<_, _>>()?))
}

fn of_all(receipts: Vec<Receipt>) -> Receipt {
    Receipt {
        outcome: Outcome::of_batch(receipts.iter().map(|receipt| receipt.outcome)),
        review: receipts.into_iter().find_map(|receipt| receipt.review),
    }
}

/// Asks a person about events whose every delivery failed and that their provider sends no more: each endpoint with the
/// time for which it does. Returns how many those were.
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

/// Of an endpoint that is no longer configured.
const UNKNOWN_PATIENCE: Duration = Duration::from_hours(72);

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
    let outcome = settle(&delivery)?;
    delivery.forget_failures(outcome)?;
    Ok(delivery.receipt(outcome))
}

fn settle(delivery: &Stored<'_>) -> Result<Outcome, JobError> {
    match delivery.file(|key| delivery.insert(key))? {
        Filed::New(outcome) => Ok(outcome),
        Filed::Again(known) => delivery.redeliver(&known),
        Filed::Told(_) => Ok(Outcome::Duplicate),
    }
}

/// Under which key a delivery counts.
enum Filed<T> {
    /// Under a new one, and this came of storing it.
    New(T),
    /// Under a known one: the same event with the same body, as far as the provider is concerned.
    Again(Known),
    /// Under a known one, whose body is another: the event is told in another way, or the bodies contradict and a
    /// review was opened.
    Told(Known),
}

/// What came of asking for an event that the application is to answer for.
#[derive(Debug)]
pub enum Claim {
    /// It is ours: the application has to be asked, and [`queue::settle`] or [`queue::give_back`] told.
    Ask(Box<Claimed>),
    /// Another delivery of it is with the application, for that long at most.
    InProgress(Duration),
    /// Nothing has to be asked.
    Settled(Receipt),
}

/// Stores the event where it is new, and claims it for one request to the application. Runs in the writer's
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
        let worked = self.work(key)?.settled(self.tx, row, self.now_ms)?;
        failpoint::reach("handler_after");
        if worked != Worked::Done || expected != State::Done {
            self.mark(row, key, &worked)?;
        }
        Ok(Some(worked.outcome()))
    }

    fn is_async(&self) -> bool {
        // what is only forwarded needs no worker
        self.endpoint.config.mode == Mode::Async
            && has_handler_for(self.endpoint, self.event.event_type().unwrap_or_default())
    }

    fn forward(&self, key: &str) -> Result<(), JobError> {
        let event = Forwarded {
            event_id: key,
            event_type: self.event.event_type(),
            object_id: self.event.object_id(),
            payload: self.event.body(),
            envelope: self.event.envelope(),
            content_type: self.event.content_type(),
            headers: self.event.kept_headers(),
            query: self.event.query(),
        };
        Ok(forward(self.tx, &self.endpoint.config, &event, self.now_ms)?)
    }

    /// The event that this one repeats under another id, where the id is not signed and it matters.
    fn first_of_replay(&self, row: i64) -> Result<Option<String>, JobError> {
        let replay = self.endpoint.config.replay_of(self.event.event_type().unwrap_or_default());
        match (self.event.replay_key(), replay) {
            (None, _) | (_, Replay::Allow) => Ok(None),
            (Some(key), Replay::Flag | Replay::Refuse) => {
                Ok(inbox::first_with_replay_key(self.tx, &self.endpoint.config.name, &key, row)?)
            }
        }
    }

    /// A known body under a new id: nobody can tell a captured delivery from a second event that says the
    /// same, so a person is asked, and until then nothing is done.
    fn replayed(&self, row: i64, key: &str, first: &str) -> Result<Outcome, JobError> {
        if self.endpoint.config.replay == Replay::Refuse {
            inbox::take_back(self.tx, row)?;
            return Ok(Outcome::Replayed);
        }
        if self.event.is_test_button() {
            // the provider's own button sends the same bytes each time: nobody has to be asked
            inbox::take_back(self.tx, row)?;
            inbox::count_duplicate(self.tx, self.known(first)?.id)?;
            return Ok(Outcome::Duplicate);
        }
        if inbox::count_kept_replay(self.tx, row)? {
            // somebody who captured one delivery can send it without end, and would fill the disk
            inbox::take_back(self.tx, row)?;
            return Ok(match self.disposition {
                Disposition::Ignore | Disposition::ScopeMismatch => Outcome::Ignored,
                Disposition::Handle | Disposition::Quarantine(_) => Outcome::Quarantined,
            });
        }
        let reason = format!(
            "the same body came before as event {first}; the id is not signed, so this may be a captured delivery sent again"
        );
        self.open_review(Kind::Replay, key, &reason)?;
        match self.disposition {
            Disposition::Ignore | Disposition::ScopeMismatch => Ok(Outcome::Ignored),
            Disposition::Handle | Disposition::Quarantine(_) => {
                inbox::mark(self.tx, row, State::Quarantined, Some(&reason), self.now_ms)?;
                Ok(Outcome::Quarantined)
            }
        }
    }

    /// Finds out under which key this delivery counts, and stores it with `insert` where that key is new.
    fn file<T>(&self, insert: impl Fn(&str) -> Result<Option<T>, JobError>) -> Result<Filed<T>, JobError> {
        if let Some(known) = self.told_by_another_subscription()? {
            inbox::count_duplicate(self.tx, known.id)?;
            let is_same = known.body_sha256 == self.event.body_sha256();
            return Ok(if is_same { Filed::Again(known) } else { Filed::Told(known) });
        }
        let key = self.event.event_id();
        if let Some(new) = insert(key)? {
            return Ok(Filed::New(new));
        }
        let known = self.known(key)?;
        if self.is_same_fact(&known)? {
            inbox::count_duplicate(self.tx, known.id)?;
            return Ok(Filed::Again(known));
        }
        let (provider, name) = (self.event.provider(), &self.endpoint.config.name);
        let mut beside = inbox::known_beside(self.tx, provider, name, key)?;
        if let Some(at) = beside.iter().position(|other| other.body_sha256 == self.event.body_sha256()) {
            let same = beside.swap_remove(at);
            inbox::count_duplicate(self.tx, same.id)?;
            return Ok(Filed::Again(same));
        }
        if self.is_another_event(&known, &beside)? {
            let key = format!("{key}:{}", self.event.body_key());
            return match insert(&key)? {
                Some(new) => Ok(Filed::New(new)),
                None => {
                    Err(JobError::Failed(format!("the inbox row {key} can neither be inserted nor found")))
                }
            };
        }
        inbox::count_duplicate(self.tx, known.id)?;
        if !self.is_another_version(&known) {
            self.keep_conflict(&known)?;
        }
        Ok(Filed::Told(known))
    }

    /// The event that another subscription has told of under an id of its own.
    fn told_by_another_subscription(&self) -> Result<Option<Known>, JobError> {
        let Some(fact_key) = self.event.fact_key() else { return Ok(None) };
        let (provider, name) = (self.event.provider(), &self.endpoint.config.name);
        let known = inbox::known_by_fact(self.tx, provider, name, &fact_key)?;
        Ok(known.filter(|known| known.key != self.event.event_id()))
    }

    fn known(&self, key: &str) -> Result<Known, JobError> {
        let (provider, name) = (self.event.provider(), &self.endpoint.config.name);
        inbox::known(self.tx, provider, name, key)?
            .ok_or_else(|| JobError::Failed(format!("the inbox row {key} can neither be inserted nor found")))
    }

    /// Whether another body under a known id is another event: a provider's test button sends one constant id for
    /// every type, and some ids are those of what happened, told through several hooks or apps in other words.
    fn is_another_event(&self, known: &Known, beside: &[Known]) -> Result<bool, JobError> {
        if self.event.is_test_send() {
            return Ok(true);
        }
        let ours = self.event.told_apart_by();
        if ours.is_empty() {
            return Ok(false);
        }
        for known in std::iter::once(known).chain(beside) {
            let body = inbox::payload_of(self.tx, known.id)?;
            let theirs = self.endpoint.config.verifier.told_apart_by(&known.headers, body.as_deref());
            let differs = |(ours, theirs): (&Option<String>, &Option<String>)| {
                // what stood in a body that was purged is not known
                ours != theirs && (body.is_some() || theirs.is_some())
            };
            if !ours.iter().zip(&theirs).any(differs) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same event in the shape of another API version, as a second subscription gets it, is no contradiction.
    fn is_another_version(&self, known: &Known) -> bool {
        let versions = (known.api_version.as_deref(), self.event.api_version());
        matches!(versions, (Some(theirs), Some(ours)) if theirs != ours)
    }

    /// Keeps the other body and asks a person, once for each body.
    fn keep_conflict(&self, known: &Known) -> Result<(), JobError> {
        let reason = match conflicts::keep(self.tx, known.id, self.event, self.now_ms)? {
            Kept::Before => return Ok(()),
            Kept::New => {
                "the same event id came again with another body; the first body counts, and the other is kept with this \
                 review: `inboxd retry --conflict REVIEW` makes it an event of its own"
                    .to_owned()
            }
            Kept::Full => format!(
                "the same event id came again with another body, which was not kept: {} others are",
                conflicts::KEPT_MAX
            ),
        };
        self.open_review(Kind::BodyConflict, &known.key, &reason)
    }

    fn is_same_fact(&self, known: &Known) -> Result<bool, JobError> {
        if known.body_sha256 == self.event.body_sha256() {
            return Ok(true);
        }
        let varies = self.endpoint.config.verifier.provider().preset().body_varies;
        Ok(match inbox::payload_of(self.tx, known.id)? {
            Some(first) => varies.same_event(&first, self.event.body()),
            // purged: only its hash is left, which tells nothing where attempts differ
            None => varies != BodyVaries::No,
        })
    }

    /// A known event. A quarantined one is tried again: what it was missing may be there by now.
    fn redeliver(&self, known: &Known) -> Result<Outcome, JobError> {
        if !known.is_quarantined {
            // what it waits for may be there by now
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
        let worked = self.work(&known.key)?.settled(self.tx, known.id, self.now_ms)?;
        inbox::count_attempt(self.tx, known.id)?;
        match &worked {
            Worked::Quarantined(_) => return Ok(Outcome::Duplicate),
            // the question to a person stays until it goes through
            Worked::Parked(..) => {
                self.mark(known.id, &known.key, &worked)?;
                return Ok(Outcome::Accepted);
            }
            Worked::Done | Worked::Ignored => {}
        }
        self.mark(known.id, &known.key, &worked)?;
        let about = (self.endpoint.config.name.as_str(), known.key.as_str());
        reviews::close_on_event(self.tx, about, "went through when it was sent again", self.now_ms)?;
        Ok(worked.outcome())
    }

    /// Only a person lets a replay through, not the one who sends it once more.
    fn may_try_again(&self, known: &Known) -> Result<bool, JobError> {
        Ok(self.endpoint.config.on_redelivery == OnRedelivery::Requeue
            && self.first_of_replay(known.id)?.is_none())
    }

    fn work(&self, key: &str) -> Result<Worked, JobError> {
        match self.disposition {
            Disposition::Handle => {}
            Disposition::Ignore | Disposition::ScopeMismatch => return Ok(Worked::Ignored),
            Disposition::Quarantine(reason) => return Ok(Worked::Quarantined(reason.clone())),
        }
        let verifier = &self.endpoint.config.verifier;
        let text = verifier.json_text(self.event.content_type(), self.event.body());
        let event = self.for_handlers(key, text.as_deref());
        let handled = handlers::run(self.tx, &self.endpoint.handlers, &event).map_err(failure)?;
        // what a handler quarantines is forwarded all the same
        self.forward(key)?;
        Ok(match handled {
            Handled::Applied => Worked::Done,
            Handled::Ignored if !self.endpoint.config.forward.is_empty() => Worked::Done,
            Handled::Ignored => Worked::Ignored,
            Handled::Quarantine(reason) => Worked::Quarantined(reason),
            Handled::Park(park) => Worked::Parked(park, 0),
        })
    }

    fn for_handlers<'k>(&'k self, key: &'k str, text: Option<&'k str>) -> Event<'k> {
        Event {
            endpoint: &self.endpoint.config.name,
            provider: self.event.provider(),
            id: key,
            event_type: self.event.event_type().unwrap_or_default(),
            object_id: self.event.object_id(),
            account: self.event.account(),
            livemode: self.event.livemode(),
            query: self.event.query(),
            body: self.event.json(),
            text,
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
            Worked::Parked(park, next_at_ms) => queue::park(self.tx, row, &park.waits_for, *next_at_ms)?,
        }
        Ok(())
    }

    fn open_review(&self, kind: Kind, key: &str, reason: &str) -> Result<(), JobError> {
        let name = &self.endpoint.config.name;
        *self.review.borrow_mut() = Some(reason.to_owned());
        Ok(reviews::open(self.tx, kind, name, key, reason, self.now_ms)?)
    }
}

/// How the work on one event ended.
#[derive(Debug, PartialEq, Eq)]
enum Worked {
    Done,
    Ignored,
    Quarantined(String),
    /// It waits for something, and is looked at again at this time.
    Parked(Park, i64),
}

impl Worked {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Done => Outcome::Processed,
            Self::Ignored => Outcome::Ignored,
            Self::Quarantined(_) => Outcome::Quarantined,
            Self::Parked(..) => Outcome::Accepted,
        }
    }

    /// What waits has a time at which it is looked at again, or has waited long enough.
    fn settled(self, tx: &Transaction<'_>, row: i64, now_ms: i64) -> rusqlite::Result<Self> {
        let Self::Parked(park, _) = self else { return Ok(self) };
        Ok(match wait_for(tx, row, &park, now_ms)? {
            Ok(next_at_ms) => Self::Parked(park, next_at_ms),
            Err(Handled::Quarantine(reason)) => Self::Quarantined(reason),
            Err(_) => Self::Ignored,
        })
    }
}
