//! The worker: claims stored events, runs their handlers through the writer, and settles them.
//!
//! A step function without threads or sleeps; `daemon` runs it in threads and waits in between.
//! The claim is committed before the work starts. Effects and the settling mark share one transaction, in
//! which the lease is checked. An event whose earlier attempt never ended runs alone, so that one which kills
//! the process takes no other's attempts with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rusqlite::Transaction;

use crate::bookkeeping;
use crate::config::{Mode, OnScopeMismatch};
use crate::handlers::{self, Event, Handled};
use crate::inbox::State;
use crate::inbox::queue::{self, Claim, ClaimTerms, Claimed, ErrorClass};
use crate::receive::{self, Endpoint, Forwarded, Hindrance};
use crate::retry;
use crate::reviews::{self, Kind};
use crate::sync::lock;
use crate::verify::{self, Reread};
use crate::writer::{JobError, WriteError, WriterHandle};

/// The longest wait between two looks at the queue: a due time may have been changed by another process.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// How long to wait when the store takes nothing.
const STORE_PAUSE: Duration = Duration::from_millis(500);

/// `[worker]`
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long a claimed event is held.
    pub lease: Duration,
    /// Attempts an event has before it waits for a person.
    pub attempts_max: u32,
    /// The longest wait between two attempts.
    pub backoff_cap: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { lease: Duration::from_secs(120), attempts_max: 10, backoff_cap: Duration::from_secs(300) }
    }
}

/// What all worker threads of one daemon share.
#[derive(Debug)]
pub struct Worker {
    writer: WriterHandle,
    endpoints: HashMap<String, Arc<Endpoint>>,
    endpoint_names: String,
    settings: Settings,
    /// Shared by ordinary work; taken alone by an event that may kill the process.
    suspicion: RwLock<()>,
    /// Failures that could not be written: a full disk must not be charged to the event.
    unsettled: Mutex<Vec<Failure>>,
}

/// A failed attempt and what follows from it.
#[derive(Debug, Clone)]
struct Failure {
    claimed: Arc<Claimed>,
    class: ErrorClass,
    error: String,
    next_at_ms: i64,
    is_last: bool,
}

/// What a step did, and when to take the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It worked on an event: look again at once.
    Worked,
    /// Nothing was due: look again after this time, or when woken.
    Idle(Duration),
}

/// What a claim attempt found, with what is known about the next.
enum Found {
    Work(Arc<Claimed>),
    Exhausted,
    /// An event is due that may have killed its process: it has to be claimed and worked on alone.
    Suspect,
    Nothing {
        next_due_ms: Option<i64>,
    },
}

impl Worker {
    /// Works for those of these endpoints whose events are not the application's to answer for.
    pub fn new(writer: WriterHandle, endpoints: &[Arc<Endpoint>], settings: Settings) -> Self {
        // also those without handlers: a person may put back to work what was kept from being forwarded
        let ours = endpoints.iter().filter(|endpoint| endpoint.config.mode != Mode::Proxy);
        let endpoints: HashMap<_, _> =
            ours.map(|endpoint| (endpoint.config.name.clone(), Arc::clone(endpoint))).collect();
        let names: Vec<_> = endpoints.keys().collect();
        let endpoint_names = serde_json::json!(names).to_string();
        Self {
            writer,
            endpoints,
            endpoint_names,
            settings,
            suspicion: RwLock::new(()),
            unsettled: Mutex::default(),
        }
    }

    /// Notes the start, and what the process before held is due at once. Returns how many events that were.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn take_over(&self, now_ms: i64) -> Result<usize, WriteError> {
        let endpoints = self.endpoint_names.clone();
        self.writer.run(move |tx| {
            bookkeeping::note(tx, bookkeeping::LAST_START, "", now_ms)?;
            Ok(queue::release_all(tx, &endpoints, now_ms)?)
        })
    }

    /// Claims one event that is due and works on it. `random` spreads the waits; see [`retry::backoff`].
    pub fn step(&self, lease_id: &str, now_ms: i64, random: u64) -> Step {
        let unsettled = std::mem::take(&mut *lock(&self.unsettled));
        for failure in unsettled {
            self.settle_failure(failure, now_ms);
        }
        let among_others = self.suspicion.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = self.claim_and_work(lease_id, false, now_ms, random);
        drop(among_others);
        if let Ok(Found::Suspect) = found {
            // claimed alone as well: no other attempt is under way that could be charged for its doing
            let _alone = self.suspicion.write().unwrap_or_else(PoisonError::into_inner);
            found = self.claim_and_work(lease_id, true, now_ms, random);
        }
        match found {
            Ok(Found::Work(_) | Found::Exhausted | Found::Suspect) => Step::Worked,
            Ok(Found::Nothing { next_due_ms }) => {
                let wait_ms = next_due_ms.map_or(i64::MAX, |due| due.saturating_sub(now_ms)).max(0);
                Step::Idle(Duration::from_millis(wait_ms.unsigned_abs()).min(WAIT_MAX))
            }
            Err(error) => {
                log::debug!("the worker could not look for work: {error}");
                Step::Idle(STORE_PAUSE)
            }
        }
    }

    fn claim_and_work(
        &self,
        lease_id: &str,
        takeover: bool,
        now_ms: i64,
        random: u64,
    ) -> Result<Found, WriteError> {
        let found = self.claim(lease_id, takeover, now_ms)?;
        if let Found::Work(claimed) = &found {
            self.work(Arc::clone(claimed), now_ms, random);
        }
        Ok(found)
    }

    fn claim(&self, lease_id: &str, takeover: bool, now_ms: i64) -> Result<Found, WriteError> {
        let lease_id = lease_id.to_owned();
        let endpoints = self.endpoint_names.clone();
        let attempts_max = i64::from(self.settings.attempts_max);
        let lease_ms = retry::as_ms(self.settings.lease);
        // no wait of ours is longer than this: a due time beyond it is the work of a clock that was set back
        let horizon_ms = lease_ms.max(retry::as_ms(self.settings.backoff_cap));
        self.writer.run(move |tx| {
            if !takeover && queue::takeover_is_due(tx, &endpoints, now_ms)? {
                return Ok(Found::Suspect);
            }
            let terms = ClaimTerms {
                endpoints: &endpoints,
                lease_id: &lease_id,
                lease_ms,
                attempts_max,
                takeover,
                now_ms,
            };
            match queue::claim_next(tx, &terms)? {
                Claim::Work(claimed) => Ok(Found::Work(Arc::from(claimed))),
                Claim::Exhausted { endpoint, event_id, reason } => {
                    reviews::open(tx, Kind::Quarantined, &endpoint, &event_id, &reason, now_ms)?;
                    log::error!("quarantined endpoint={endpoint} event_id={event_id}: {reason}");
                    Ok(Found::Exhausted)
                }
                Claim::Nothing => {
                    let mut next_due_ms = queue::next_due_ms(tx, &endpoints)?;
                    if next_due_ms.is_some_and(|due| due > now_ms + horizon_ms) {
                        queue::clamp_due(tx, now_ms + horizon_ms)?;
                        next_due_ms = Some(now_ms + horizon_ms);
                    }
                    Ok(Found::Nothing { next_due_ms })
                }
            }
        })
    }

    fn work(&self, claimed: Arc<Claimed>, now_ms: i64, random: u64) {
        let result = self.process(&claimed, now_ms);
        let Claimed { endpoint, event_id, attempt, .. } = &*claimed;
        let (class, error) = match result {
            Ok(Some(state)) => {
                let state = state.as_str();
                log::debug!(
                    "worked endpoint={endpoint} event_id={event_id} attempt={attempt} outcome={state}"
                );
                return;
            }
            Ok(None) => {
                log::warn!(
                    "the lease on endpoint={endpoint} event_id={event_id} was lost; nothing was changed"
                );
                return;
            }
            Err(error) => classify(&error),
        };
        log::warn!(
            "failed endpoint={endpoint} event_id={event_id} attempt={attempt} class={}: {error}",
            class.as_str()
        );
        let failures = u32::try_from(claimed.attempts_charged).unwrap_or(u32::MAX);
        let wait = retry::backoff(failures, self.settings.backoff_cap, random);
        let is_last = class != ErrorClass::Storage && failures >= self.settings.attempts_max;
        let next_at_ms = now_ms.saturating_add(retry::as_ms(wait));
        self.settle_failure(Failure { claimed, class, error, next_at_ms, is_last }, now_ms);
    }

    /// Runs the handlers and marks the row, in one transaction. `None`: the lease was lost.
    fn process(&self, claimed: &Arc<Claimed>, now_ms: i64) -> Result<Option<State>, WriteError> {
        let Some(endpoint) = self.endpoints.get(&claimed.endpoint).map(Arc::clone) else {
            return Ok(None);
        };
        let Reread { json: body, defect, content_type } =
            endpoint.config.verifier.reread(&claimed.headers, &claimed.payload);
        let account = claimed.account.as_deref();
        let hindrance = receive::hindrance(&endpoint.config, defect.as_deref(), account, claimed.livemode);
        let hindered = hindrance.map(without_work);
        let claimed = Arc::clone(claimed);
        self.writer.run(move |tx| {
            if !queue::is_held(tx, claimed.id, &claimed.lease_id)? {
                return Ok(None);
            }
            if let Some(handled) = hindered.clone() {
                return settle(tx, &claimed, handled, now_ms).map(Some);
            }
            let event = Event {
                endpoint: &claimed.endpoint,
                provider: &claimed.provider,
                id: &claimed.event_id,
                event_type: claimed.event_type.as_deref().unwrap_or_default(),
                object_id: claimed.object_id.as_deref(),
                account: claimed.account.as_deref(),
                livemode: claimed.livemode,
                body: &body,
                text: std::str::from_utf8(&claimed.payload).ok(),
                is_test_send: verify::is_test_send(&claimed.event_id, claimed.object_id.as_deref()),
                notify: endpoint.config.notify.as_deref(),
                now_ms,
            };
            let mut handled = handlers::run(tx, &endpoint.handlers, &event).map_err(receive::failure)?;
            // queued when it was stored, unless it was kept for a person then
            receive::forward(tx, &endpoint.config, &forwarded(&claimed, content_type.as_deref()), now_ms)?;
            if handled == Handled::Ignored && !endpoint.config.forward.is_empty() {
                handled = Handled::Applied;
            }
            settle(tx, &claimed, handled, now_ms).map(Some)
        })
    }

    fn settle_failure(&self, failure: Failure, now_ms: i64) {
        let job = failure.clone();
        let settled = self.writer.run(move |tx| {
            let Failure { claimed, class, error, next_at_ms, is_last } = &job;
            if !is_last {
                return Ok(queue::give_back(tx, claimed, *class, error, *next_at_ms, now_ms)?);
            }
            let reason = format!(
                "{} attempts failed; the latest error is kept with the event",
                claimed.attempts_charged
            );
            let is_ours = queue::settle(tx, claimed, State::Quarantined, Some((*class, error)), now_ms)?;
            if is_ours {
                reviews::open(tx, Kind::Quarantined, &claimed.endpoint, &claimed.event_id, &reason, now_ms)?;
            }
            Ok(is_ours)
        });
        if let Err(error) = settled {
            log::debug!("event_id={} could not be given back yet: {error}", failure.claimed.event_id);
            lock(&self.unsettled).push(failure);
        }
    }
}

/// Marks the row with what the handlers made of it. The lease was checked in this transaction.
fn settle(tx: &Transaction<'_>, claimed: &Claimed, handled: Handled, now_ms: i64) -> Result<State, JobError> {
    let Claimed { endpoint, event_id, .. } = claimed;
    let state = match handled {
        Handled::Applied => State::Done,
        Handled::Ignored => State::Ignored,
        Handled::Quarantine(reason) => {
            queue::settle(tx, claimed, State::Quarantined, Some((ErrorClass::Content, &reason)), now_ms)?;
            reviews::open(tx, Kind::Quarantined, endpoint, event_id, &reason, now_ms)?;
            return Ok(State::Quarantined);
        }
    };
    queue::settle(tx, claimed, state, None, now_ms)?;
    let note = format!("went through on attempt {}", claimed.attempt);
    reviews::close_on_event(tx, (endpoint, event_id), &note, now_ms)?;
    Ok(state)
}

fn forwarded<'a>(claimed: &'a Claimed, content_type: Option<&'a str>) -> Forwarded<'a> {
    Forwarded {
        event_id: &claimed.event_id,
        event_type: claimed.event_type.as_deref(),
        object_id: claimed.object_id.as_deref(),
        payload: &claimed.payload,
        envelope: claimed.envelope.as_ref(),
        content_type,
        headers: &claimed.headers,
    }
}

/// What becomes of a stored event that is not for the handlers: the configuration may be another than when it
/// came, and a person who puts an event back to work does not see into it.
fn without_work(hindrance: Hindrance) -> Handled {
    match hindrance {
        Hindrance::Question(reason) => Handled::Quarantine(reason),
        Hindrance::Foreign(OnScopeMismatch::Refuse) => {
            Handled::Quarantine("the event is of another mode or account than the endpoint".to_owned())
        }
        Hindrance::Foreign(OnScopeMismatch::Ignore) => Handled::Ignored,
    }
}

fn classify(error: &WriteError) -> (ErrorClass, String) {
    let class = match error {
        WriteError::Unavailable(_) => ErrorClass::Storage,
        WriteError::Job(error) if error.is_timeout() => ErrorClass::Timeout,
        WriteError::Job(_) => ErrorClass::Handler,
    };
    (class, error.to_string())
}
