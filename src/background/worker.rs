//! The worker: claims stored events, runs their handlers through the writer, and settles them.
//!
//! A step function without threads or sleeps; see [`poller`] for what runs it.
//! One step claims several events, in one transaction that is committed before the work starts, and hands the work on
//! them to the writer together, one job each: they share a commit, and one that fails undoes itself alone. Effects and
//! the settling mark share one transaction, in which the lease is checked. An event whose earlier attempt never ended
//! runs alone, so that one which kills the process takes no other's attempts with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::poller::{self, Poller, Step, Tick, Unsettled};
use crate::clock::{self, SetBack};
use crate::config::Mode;
use crate::measure;
use crate::store::Transaction;
use crate::store::inbox::State;
use crate::store::inbox::queue::{self, ClaimTerms, Claimed, Claims, ErrorClass, Exhausted};
use crate::store::meta;
use crate::store::reviews::{self, Kind};
use crate::store::writer::{JobError, WriteError, WriterHandle};
use crate::work::apply::{self, Row};
use crate::work::content::Content;
use crate::work::endpoint::Endpoint;
use crate::work::retry;
use crate::work::screen::disposition_again;

/// Events of one step: as many share a commit, and as many are tried alone when the process dies meanwhile.
const CLAIM_ROWS_MAX: u32 = 16;

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
    names: Arc<Names>,
    settings: Settings,
    /// Shared by ordinary work; taken alone by an event that may kill the process.
    suspicion: RwLock<()>,
    /// Failures that could not be written: a full disk must not be charged to the event.
    unsettled: Unsettled<Failure>,
    set_back: SetBack,
    is_stopping: AtomicBool,
}

/// The endpoints worked for.
#[derive(Debug)]
struct Names {
    list: Vec<String>,
    /// The same as a JSON array.
    json: String,
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

/// What a claim attempt found, with what is known about the next.
enum Found {
    Work(Vec<Arc<Claimed>>),
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
        let mut list: Vec<_> = endpoints.keys().cloned().collect();
        list.sort_unstable();
        let json = serde_json::json!(list).to_string();
        Self {
            writer,
            endpoints,
            names: Arc::new(Names { list, json }),
            settings,
            suspicion: RwLock::new(()),
            unsettled: Unsettled::default(),
            set_back: SetBack::default(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// From now on what is claimed is given back instead of being worked on.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    fn wait_max_ms(&self) -> i64 {
        poller::wait_max_ms(self.settings.lease, self.settings.backoff_cap)
    }

    /// Claims events that are due and works on them.
    pub fn step(&self, tick: &Tick) -> Step {
        self.settle_failures(self.unsettled.take(), tick.now_ms);
        let among_others = self.suspicion.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = self.claim_and_work(tick, false);
        drop(among_others);
        if let Ok(Found::Suspect) = found {
            // claimed alone as well: no other attempt is under way that could be charged for its doing
            let _alone = self.suspicion.write().unwrap_or_else(PoisonError::into_inner);
            found = self.claim_and_work(tick, true);
        }
        match found {
            Ok(Found::Work(_) | Found::Suspect) => Step::Worked,
            Ok(Found::Nothing { next_due_ms }) => Step::idle_until(next_due_ms, tick.now_ms),
            Err(error) => {
                log::debug!("the worker could not look for work: {error}");
                Step::after_failure()
            }
        }
    }

    fn claim_and_work(&self, tick: &Tick, takeover: bool) -> Result<Found, WriteError> {
        let found = self.claim(tick, takeover)?;
        if let Found::Work(claimed) = &found {
            if self.is_stopping.load(Ordering::Acquire) {
                self.hand_back(claimed, tick.now_ms);
            } else {
                self.work(claimed, tick.now_ms, tick.random);
            }
        }
        Ok(found)
    }

    fn claim(&self, tick: &Tick, takeover: bool) -> Result<Found, WriteError> {
        let look = Look {
            names: Arc::clone(&self.names),
            lease_id: tick.lease_id.clone(),
            lease_ms: retry::as_ms(self.settings.lease),
            wait_max_ms: self.wait_max_ms(),
            attempts_max: i64::from(self.settings.attempts_max),
            takeover,
            was_set_back: self.set_back.notice(tick.now_ms),
            now_ms: tick.now_ms,
        };
        self.writer.run(move |tx| look.claim(tx))
    }

    /// Works on what was claimed. Each event has its own transaction's fate, and its own wait after a failure.
    fn work(&self, claimed: &[Arc<Claimed>], now_ms: i64, random: u64) {
        let jobs = claimed.iter().map(|claimed| self.job(claimed, now_ms)).collect();
        let results = self.writer.run_all(jobs);
        let failures = claimed.iter().zip(results).enumerate().filter_map(|(number, (claimed, result))| {
            let random = random.rotate_left(u32::try_from(number).unwrap_or(0) * 4);
            self.failure(claimed, result, now_ms, random)
        });
        self.settle_failures(failures.collect(), now_ms);
    }

    /// What follows from a failed attempt; `None` where there is nothing more to write.
    fn failure(
        &self,
        claimed: &Arc<Claimed>,
        result: Result<Option<State>, WriteError>,
        now_ms: i64,
        random: u64,
    ) -> Option<Failure> {
        let Claimed { endpoint, event_id, attempt, .. } = &**claimed;
        let (class, error) = match result {
            Ok(Some(state)) => {
                let took_ms = clock::now_ms().saturating_sub(claimed.received_at_ms).max(0);
                measure::WORKED.record(endpoint, "worked", Duration::from_millis(took_ms.unsigned_abs()));
                let state = state.as_str();
                log::debug!(
                    "worked endpoint={endpoint} event_id={event_id} attempt={attempt} outcome={state}"
                );
                return None;
            }
            Ok(None) => {
                log::warn!(
                    "the lease on endpoint={endpoint} event_id={event_id} was lost; nothing was changed"
                );
                return None;
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
        Some(Failure { claimed: Arc::clone(claimed), class, error, next_at_ms, is_last })
    }

    /// What a stop kept from being worked on is there for the next start.
    fn hand_back(&self, claimed: &[Arc<Claimed>], now_ms: i64) {
        let job = |claimed: &Arc<Claimed>| {
            let claimed = Arc::clone(claimed);
            move |tx: &Transaction<'_>| Ok(queue::hand_back(tx, &claimed, now_ms)?)
        };
        let results = self.writer.run_all(claimed.iter().map(job).collect());
        for (claimed, error) in claimed.iter().zip(results).filter_map(|(c, result)| Some((c, result.err()?)))
        {
            log::warn!("event_id={} stays claimed until the next start: {error}", claimed.event_id);
        }
    }

    /// The job that does the work and settles the row, in one transaction. It gives `None` where the lease was lost.
    fn job(
        &self,
        claimed: &Arc<Claimed>,
        now_ms: i64,
    ) -> impl FnMut(&Transaction<'_>) -> Result<Option<State>, JobError> + Send + use<> {
        let claimed = Arc::clone(claimed);
        let known = self.endpoints.get(&claimed.endpoint).map(|endpoint| {
            let reread = endpoint.config.verifier.reread(&claimed.headers, &claimed.payload);
            let (defect, account) = (reread.defect.as_deref(), claimed.account.as_deref());
            let disposition = disposition_again(endpoint, defect, account, claimed.livemode);
            (Arc::clone(endpoint), reread, disposition)
        });
        let note = apply::attempt_note(&claimed);
        move |tx| {
            let Some((endpoint, reread, disposition)) = &known else {
                return Ok(None);
            };
            if !queue::is_held(tx, claimed.id, &claimed.lease_id)? {
                return Ok(None);
            }
            let content = Content::of_row(&claimed, reread.content_type.as_deref());
            let (screened, body) = ((&**endpoint, disposition), (&content, &reread.json));
            let worked = apply::apply(tx, screened, claimed.id, body, now_ms)?;
            apply::settle(tx, Row::Held(&claimed), &worked, Some(&note), now_ms)?;
            Ok(Some(worked.state()))
        }
    }

    /// Failures that cannot be written now are written by a later step.
    fn settle_failures(&self, failures: Vec<Failure>, now_ms: i64) {
        let job = |failure: &Failure| {
            let failure = failure.clone();
            move |tx: &Transaction<'_>| failure.settle(tx, now_ms)
        };
        let results = self.writer.run_all(failures.iter().map(job).collect());
        for (failure, result) in failures.into_iter().zip(results) {
            if let Err(error) = result {
                log::debug!("event_id={} could not be given back yet: {error}", failure.claimed.event_id);
                self.unsettled.keep(failure);
            }
        }
    }
}

impl Poller for Worker {
    const ROWS: &'static str = "events";

    /// Notes the start as well.
    fn take_over(&self, now_ms: i64) -> Result<usize, WriteError> {
        let (names, ours, wait_max_ms) =
            (Arc::clone(&self.names), Arc::clone(&self.names), self.wait_max_ms());
        let release = move |tx: &Transaction<'_>| {
            meta::note(tx, meta::LAST_START, "", now_ms)?;
            Ok(queue::release_all(tx, &names.json, now_ms)?)
        };
        let clamp = move |tx: &Transaction<'_>| Ok(queue::clamp_due(tx, &ours.json, wait_max_ms, now_ms)?);
        poller::take_over(&self.writer, release, clamp)
    }

    fn steps(&self, tick: &mut dyn FnMut() -> Option<Tick>) -> Step {
        tick().map_or(Step::Worked, |tick| self.step(&tick))
    }
}

impl Failure {
    fn settle(&self, tx: &Transaction<'_>, now_ms: i64) -> Result<bool, JobError> {
        let Self { claimed, class, error, next_at_ms, is_last } = self;
        if !is_last {
            return Ok(queue::give_back(tx, claimed, *class, error, *next_at_ms, now_ms)?);
        }
        let reason =
            format!("{} attempts failed; the latest error is kept with the event", claimed.attempts_charged);
        let is_ours = queue::settle(tx, claimed, State::Quarantined, Some((*class, error)), now_ms)?;
        if is_ours {
            reviews::open(tx, Kind::Quarantined, &claimed.endpoint, &claimed.event_id, &reason, now_ms)?;
        }
        Ok(is_ours)
    }
}

/// What a look for work needs, apart from the worker.
struct Look {
    names: Arc<Names>,
    lease_id: String,
    lease_ms: i64,
    wait_max_ms: i64,
    attempts_max: i64,
    takeover: bool,
    was_set_back: bool,
    now_ms: i64,
}

impl Look {
    fn claim(&self, tx: &Transaction<'_>) -> Result<Found, JobError> {
        let (Names { list, json }, now_ms) = (&*self.names, self.now_ms);
        if self.was_set_back {
            queue::clamp_due(tx, json, self.wait_max_ms, now_ms)?;
        }
        if !self.takeover && queue::takeover_is_due(tx, json, now_ms)? {
            return Ok(Found::Suspect);
        }
        let terms = ClaimTerms {
            endpoints: list,
            lease_id: &self.lease_id,
            lease_ms: self.lease_ms,
            attempts_max: self.attempts_max,
            // what may have killed its process runs alone
            rows_max: if self.takeover { 1 } else { CLAIM_ROWS_MAX },
            takeover: self.takeover,
            now_ms,
        };
        let claims = queue::claim_due(tx, &terms)?;
        if claims.is_empty() {
            return self.next_due(tx);
        }
        let Claims { work, exhausted } = claims;
        for Exhausted { endpoint, event_id, reason } in exhausted {
            reviews::open(tx, Kind::Quarantined, &endpoint, &event_id, &reason, now_ms)?;
            log::error!("quarantined endpoint={endpoint} event_id={event_id}: {reason}");
        }
        Ok(Found::Work(work.into_iter().map(Arc::new).collect()))
    }

    fn next_due(&self, tx: &Transaction<'_>) -> Result<Found, JobError> {
        let (json, latest_ms) = (&self.names.json, self.now_ms + self.wait_max_ms);
        let next_due_ms = poller::next_due_ms(
            latest_ms,
            || queue::next_due_ms(tx, json),
            || queue::clamp_due(tx, json, self.wait_max_ms, self.now_ms),
        )?;
        Ok(Found::Nothing { next_due_ms })
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
