//! The dispatcher: claims outbox rows, sends them, and settles them.
//!
//! A step function without threads or sleeps; see [`poller`] for what runs it. The claim is committed before the
//! request is made, and no transaction is open during it. The result is written only where the lease still
//! holds: a result that comes too late is discarded and counted.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use serde_json::Value;

use crate::clock::SetBack;
use crate::config::{Destination, Order};
use crate::measure;
use crate::outgoing::{Answer, NoAnswer};
use crate::store::Transaction;
use crate::store::outbox;
use crate::store::outbox::queue::{self, Claim, ClaimTerms, Claimed, Ending, Next};
use crate::store::reviews::{self, Kind};
use crate::store::writer::{JobError, WriteError, WriterHandle};
use crate::wake::lock;
use crate::work::lease::Held;
use crate::work::retry;
use crate::work::target::{Parcel, Target};

use super::circuit::{Circuit, Open, Permit, Sign};
use super::poller::{self, Poller, Step, Tick, Unsettled, WAIT_MAX};

/// Of an answer's body, this much is kept.
const EXCERPT_BYTES_MAX: usize = 1024;

/// Attempts after which a 5xx is no reason to go on with a delivery whose signed time has passed.
const EXPIRED_ATTEMPTS_MAX: i64 = 10;

/// What all threads of one destination share.
#[derive(Debug)]
pub struct Dispatcher {
    writer: WriterHandle,
    target: Arc<Target>,
    circuit: Mutex<Circuit>,
    /// Results that could not be written yet: sending again would be worse than writing late.
    unsettled: Unsettled<Arc<Settlement>>,
    held: Arc<Held>,
    set_back: SetBack,
    /// The first tick: what failed before it failed in another process.
    began: OnceLock<Began>,
}

/// One moment by both clocks.
#[derive(Debug, Clone, Copy)]
struct Began {
    now_ms: i64,
    steady_ms: i64,
}

impl Began {
    /// How long ago a time of the wall clock is at most, whatever was done to that clock since the start.
    fn age_ms(self, since_ms: i64, now_ms: i64, steady_ms: i64) -> i64 {
        let before_the_start = self.now_ms.saturating_sub(since_ms).max(0);
        let since_the_start = steady_ms.saturating_sub(self.steady_ms).max(0);
        now_ms.saturating_sub(since_ms).min(before_the_start.saturating_add(since_the_start))
    }
}

/// A finished attempt and what follows from it.
#[derive(Debug)]
struct Settlement {
    claimed: Claimed,
    ending: Ending,
    verdict: Verdict,
    circuit: Option<Option<Open>>,
    settled_at_ms: i64,
}

/// What follows from an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Delivered { result: Option<String> },
    Retry { at_ms: i64, may_have_had_effect: bool },
    Dead { kind: Kind, reason: String, pauses: bool, may_have_had_effect: bool },
}

enum Found {
    Work(Box<Claimed>),
    PassedOver,
    Nothing { next_due_ms: Option<i64> },
}

impl Dispatcher {
    /// Sends the rows of one destination.
    pub fn new(writer: WriterHandle, target: Arc<Target>) -> Self {
        let Destination { threads, backoff_cap, .. } = *target.config();
        let circuit = Mutex::new(Circuit::new(threads, backoff_cap));
        Self {
            writer,
            target,
            circuit,
            unsettled: Unsettled::default(),
            held: Arc::default(),
            set_back: SetBack::default(),
            began: OnceLock::new(),
        }
    }

    /// As configured.
    pub fn config(&self) -> &Destination {
        self.target.config()
    }

    /// Writes what became of one attempt, and claims the next row where a tick is given. Where the store takes
    /// nothing, the next step writes it.
    fn write(&self, settlement: Option<Arc<Settlement>>, tick: Option<Tick>) -> Result<Found, WriteError> {
        let (job, look) = (settlement.clone(), tick.map(|tick| self.look(tick)));
        let written = self.writer.run(move |tx| {
            let is_ours = job.as_ref().map(|job| settle(tx, job)).transpose()?;
            let found = look.as_ref().map(|look| look.claim(tx)).transpose()?;
            Ok((is_ours, found.unwrap_or(Found::PassedOver)))
        });
        if let (Ok(_), Some(settlement)) = (&written, &settlement) {
            self.held.release(settlement.claimed.id, &settlement.claimed.lease_id);
        }
        match (written, settlement) {
            (Ok((Some(true), found)), Some(settlement)) => {
                settlement.log();
                Ok(found)
            }
            (Ok((_, found)), Some(settlement)) => {
                let Claimed { id, attempt, .. } = settlement.claimed;
                log::warn!(
                    "the lease on outbox row {id} was lost; the result of attempt {attempt} was discarded"
                );
                Ok(found)
            }
            (Ok((_, found)), None) => Ok(found),
            (Err(error), settlement) => {
                if let Some(settlement) = settlement {
                    log::debug!("outbox row {} could not be settled yet: {error}", settlement.claimed.id);
                    self.unsettled.keep(settlement);
                }
                Err(error)
            }
        }
    }

    fn wait_max_ms(&self) -> i64 {
        poller::wait_max_ms(self.config().lease, self.config().backoff_cap)
    }

    fn look(&self, tick: Tick) -> Look {
        let config = self.config();
        Look {
            name: config.name.clone(),
            in_order: config.order == Order::Object,
            lease_ms: retry::as_ms(config.lease),
            pass_over_ms: retry::as_ms(config.backoff_cap),
            wait_max_ms: self.wait_max_ms(),
            was_set_back: self.set_back.notice(tick.now_ms),
            held: Arc::clone(&self.held),
            tick,
        }
    }

    /// Sends a claimed row, with no transaction open.
    fn work(&self, claimed: Claimed, tick: &Tick) -> Arc<Settlement> {
        let Tick { now_ms, random, .. } = *tick;
        if let Some(reason) = self.key_has_expired(&claimed, now_ms) {
            lock(&self.circuit).tell(Sign::Silent, now_ms, random);
            let ending = Ending { error: Some(reason.clone()), ..Ending::default() };
            let kind = Kind::OutcomeUnknown;
            let verdict = Verdict::Dead { kind, reason, pauses: false, may_have_had_effect: true };
            return Arc::new(Settlement { claimed, ending, verdict, circuit: None, settled_at_ms: now_ms });
        }
        let start = Instant::now();
        let answer = self.target.send(&parcel(&claimed), self.config().timeout, now_ms);
        let settled_at_ms = now_ms + retry::as_ms(start.elapsed());
        let failing_for_ms = claimed.failing_since_ms.map_or(0, |since_ms| {
            let began = self.began.get().copied().unwrap_or(Began { now_ms, steady_ms: tick.steady_ms });
            let steady_ms = tick.steady_ms + (settled_at_ms - now_ms);
            began.age_ms(since_ms, settled_at_ms, steady_ms)
        });
        measure::ATTEMPTS.record(&claimed.destination, result_word(&answer), start.elapsed());
        let (sign, verdict) = self.judge(&claimed, &answer, (settled_at_ms, failing_for_ms), random);
        let circuit = lock(&self.circuit).tell(sign, settled_at_ms, random);
        Arc::new(Settlement { claimed, ending: ending(&answer), verdict, circuit, settled_at_ms })
    }

    /// After the destination has forgotten the key, asking again could have the effect a second time.
    fn key_has_expired(&self, claimed: &Claimed, now_ms: i64) -> Option<String> {
        let config = self.config();
        let (life, first_sent_at_ms) = (config.key_lifetime?, claimed.first_sent_at_ms?);
        let end_ms =
            first_sent_at_ms.saturating_add(retry::as_ms(life)).saturating_sub(retry::as_ms(config.timeout));
        (now_ms >= end_ms).then(|| {
            "it was sent and no answer told whether it had its effect; the destination's memory of its key is over: \
             look there, then `inboxd outbox retry` or `inboxd resolve`"
                .to_owned()
        })
    }

    /// What the answer says about the destination, and what becomes of the row.
    fn judge(
        &self,
        claimed: &Claimed,
        answer: &Result<Answer, NoAnswer>,
        (at_ms, failing_for_ms): (i64, i64),
        random: u64,
    ) -> (Sign, Verdict) {
        let config = self.config();
        let cap = config.backoff_cap;
        let attempts = u32::try_from(claimed.attempt).unwrap_or(u32::MAX);
        let backoff = retry::as_ms(retry::backoff(attempts, cap, random));
        let may_have_had_effect = match answer {
            Ok(answer) => answer.status >= 500,
            Err(error) => !error.is_unsent,
        };
        let (sign, wait_ms) = match answer {
            Ok(Answer { status: 200..=299, body, .. }) => {
                let result = config.result.as_deref().and_then(|pointer| result(body, pointer));
                return (Sign::Up, Verdict::Delivered { result });
            }
            Ok(Answer { status: 410, .. }) => {
                let reason = "the destination answered 410: it is gone; its deliveries are paused".to_owned();
                let kind = Kind::Undelivered;
                return (Sign::Up, Verdict::Dead { kind, reason, pauses: true, may_have_had_effect });
            }
            Ok(Answer { status: 408 | 425 | 429 | 500.., retry_after, .. }) => {
                let asked = retry_after.map_or(0, |asked| retry::as_ms(asked.wait(at_ms).min(cap)));
                (Sign::Down { wait_ms: asked }, backoff.max(asked))
            }
            // it answers, but it does not want this one: a person has to change something
            Ok(_) => (Sign::Up, retry::as_ms(cap)),
            Err(error) if error.is_final => (Sign::Silent, backoff),
            Err(_) => (Sign::Down { wait_ms: 0 }, backoff),
        };
        if let Some(reason) = self.is_hopeless(claimed, answer, at_ms) {
            let kind = Kind::Undelivered;
            return (sign, Verdict::Dead { kind, reason, pauses: false, may_have_had_effect });
        }
        if failing_for_ms >= retry::as_ms(config.give_up_after) {
            let reason = format!(
                "{} attempts failed, the first of them longer ago than give_up_after; the history is in `inboxd outbox show {}`",
                claimed.attempt, claimed.id
            );
            let kind = Kind::Undelivered;
            return (sign, Verdict::Dead { kind, reason, pauses: false, may_have_had_effect });
        }
        (sign, Verdict::Retry { at_ms: at_ms.saturating_add(wait_ms), may_have_had_effect })
    }

    /// Why no further attempt can end otherwise: then three days of them help nobody.
    fn is_hopeless(
        &self,
        claimed: &Claimed,
        answer: &Result<Answer, NoAnswer>,
        at_ms: i64,
    ) -> Option<String> {
        match answer {
            Err(error) if error.is_final => {
                Some(format!("it cannot be sent, however often that is tried: {}", error.reason))
            }
            Ok(Answer { status: 408 | 425 | 429 | 502..=504, .. }) | Err(_) => None,
            // an SDK's refusal; where nobody catches it, it looks like any failure of the application's
            Ok(Answer { status, .. }) if *status < 500 || claimed.attempt >= EXPIRED_ATTEMPTS_MAX => {
                self.target.has_expired(&parcel(claimed), at_ms)
            }
            Ok(_) => None,
        }
    }
}

impl Poller for Dispatcher {
    const ROWS: &'static str = "outbox rows";

    fn take_over(&self, now_ms: i64) -> Result<usize, WriteError> {
        let (name, ours) = (self.config().name.clone(), self.config().name.clone());
        let wait_max_ms = self.wait_max_ms();
        let release = move |tx: &Transaction<'_>| {
            outbox::note_circuit(tx, &name, None)?;
            Ok(queue::release_all(tx, &name, now_ms)?)
        };
        let clamp = move |tx: &Transaction<'_>| Ok(queue::clamp_due(tx, &ours, wait_max_ms, now_ms)?);
        poller::take_over(&self.writer, release, clamp)
    }

    /// Claims and sends row after row, for as long as `tick` says with what and something is due. A row's settlement
    /// and the claim of the next are one transaction: half the waits for the disk.
    fn steps(&self, tick: &mut dyn FnMut() -> Option<Tick>) -> Step {
        for settlement in self.unsettled.take() {
            drop(self.write(Some(settlement), None));
        }
        let Some(first) = tick() else { return Step::Worked };
        self.began.get_or_init(|| Began { now_ms: first.now_ms, steady_ms: first.steady_ms });
        if let Permit::Wait(time) = lock(&self.circuit).permit(first.now_ms) {
            return Step::Idle(time.min(WAIT_MAX));
        }
        let mut now = first.clone();
        let mut found = self.write(None, Some(first));
        while let Ok(Found::Work(claimed)) = found {
            let settlement = self.work(*claimed, &now);
            let next = tick().filter(|next| lock(&self.circuit).permit(next.now_ms) == Permit::Go);
            let Some(next) = next else {
                drop(self.write(Some(settlement), None));
                return Step::Worked;
            };
            now = next.clone();
            found = self.write(Some(settlement), Some(next));
        }
        lock(&self.circuit).tell(Sign::Silent, now.now_ms, now.random);
        match found {
            Ok(Found::Work(_) | Found::PassedOver) => Step::Worked,
            Ok(Found::Nothing { next_due_ms }) => Step::idle_until(next_due_ms, now.now_ms),
            Err(error) => {
                log::debug!("the dispatcher could not look for rows: {error}");
                Step::after_failure()
            }
        }
    }
}

/// The class of an answer, for the counts.
fn result_word(answer: &Result<Answer, NoAnswer>) -> &'static str {
    match answer {
        Ok(Answer { status: 200..=299, .. }) => "2xx",
        Ok(Answer { status: 300..=399, .. }) => "3xx",
        Ok(Answer { status: 400..=499, .. }) => "4xx",
        Ok(Answer { status: 500..=599, .. }) => "5xx",
        Ok(_) => "other",
        Err(error) if error.is_final => "blocked",
        Err(_) => "no_answer",
    }
}

fn parcel(claimed: &Claimed) -> Parcel<'_> {
    Parcel {
        operation_key: &claimed.operation_key,
        endpoint: &claimed.endpoint,
        event_id: &claimed.event_id,
        topic: &claimed.topic,
        attempt: claimed.attempt,
        payload: &claimed.payload,
        content_type: &claimed.content_type,
        headers: claimed.headers.as_deref(),
        event_type: claimed.event_type.as_deref(),
        query: claimed.query.as_deref(),
    }
}

/// What a look for work needs, apart from the dispatcher.
struct Look {
    name: String,
    in_order: bool,
    lease_ms: i64,
    pass_over_ms: i64,
    wait_max_ms: i64,
    was_set_back: bool,
    held: Arc<Held>,
    tick: Tick,
}

impl Look {
    fn claim(&self, tx: &Transaction<'_>) -> Result<Found, JobError> {
        let (name, now_ms) = (&self.name, self.tick.now_ms);
        if self.was_set_back {
            queue::clamp_due(tx, name, self.wait_max_ms, now_ms)?;
        }
        if outbox::is_paused(tx, name)? {
            return Ok(Found::Nothing { next_due_ms: None });
        }
        let terms = ClaimTerms {
            destination: name,
            in_order: self.in_order,
            lease_id: &self.tick.lease_id,
            lease_ms: self.lease_ms,
            pass_over_ms: self.pass_over_ms,
            held_ms: &|row| self.held.left_ms(row, self.tick.steady_ms),
            now_ms,
        };
        match queue::claim_next(tx, &terms)? {
            Claim::Work(claimed) => {
                // before anybody else looks; where this transaction is lost the row is not being sent, which counts
                // more
                self.held.hold(claimed.id, &claimed.lease_id, self.lease_ms, self.tick.steady_ms);
                Ok(Found::Work(claimed))
            }
            Claim::PassedOver => Ok(Found::PassedOver),
            Claim::Nothing => {
                let next_due_ms = poller::next_due_ms(
                    now_ms + self.wait_max_ms,
                    || queue::next_due_ms(tx, name),
                    || queue::clamp_due(tx, name, self.wait_max_ms, now_ms),
                )?;
                Ok(Found::Nothing { next_due_ms })
            }
        }
    }
}

impl Settlement {
    fn log(&self) {
        let Claimed { id, destination, attempt, .. } = &self.claimed;
        let error = self.ending.error.as_deref().unwrap_or_default();
        let ms = self.ending.duration_ms;
        match &self.verdict {
            Verdict::Delivered { .. } => {
                log::debug!("delivered destination={destination} row={id} attempt={attempt} ms={ms}");
            }
            Verdict::Retry { .. } => {
                log::info!("failed destination={destination} row={id} attempt={attempt} ms={ms}: {error}");
            }
            Verdict::Dead { reason, pauses, .. } => {
                let error = if reason.contains(error) { String::new() } else { format!("{error}; ") };
                log::error!("gave up destination={destination} row={id} attempt={attempt}: {error}{reason}");
                if *pauses {
                    log::error!(
                        "paused destination={destination}: `inboxd outbox resume {destination}` goes on"
                    );
                }
            }
        }
        match self.circuit {
            Some(Some(open)) if open.since_ms == self.settled_at_ms => log::warn!(
                "destination={destination} fails again and again: from now on one request at a time is tried"
            ),
            Some(None) => log::info!("destination={destination} works again"),
            Some(Some(_)) | None => {}
        }
    }
}

fn settle(tx: &Transaction<'_>, settlement: &Settlement) -> Result<bool, JobError> {
    let Settlement { claimed, ending, verdict, circuit, settled_at_ms } = settlement;
    let now_ms = *settled_at_ms;
    if let Some(open) = circuit {
        let times = open.map(|open| (open.since_ms, open.probe_at_ms));
        outbox::note_circuit(tx, &claimed.destination, times)?;
    }
    let is_ours = match verdict {
        Verdict::Delivered { result } => {
            let is_ours = queue::deliver(tx, claimed, ending, result.as_deref(), now_ms)?;
            if is_ours && claimed.attempt > 1 {
                let note = format!("delivered on attempt {}", claimed.attempt);
                reviews::close_on_operation(tx, &claimed.operation_key, &note, now_ms)?;
            }
            is_ours
        }
        Verdict::Retry { at_ms, may_have_had_effect } => {
            queue::fail(tx, claimed, ending, Next::RetryAt(*at_ms), *may_have_had_effect, now_ms)?
        }
        Verdict::Dead { kind, reason, pauses, may_have_had_effect } => {
            let is_ours = queue::fail(tx, claimed, ending, Next::Dead, *may_have_had_effect, now_ms)?;
            if is_ours {
                let about = (claimed.endpoint.as_str(), claimed.event_id.as_str());
                reviews::open_on_operation(tx, *kind, &claimed.operation_key, about, reason, now_ms)?;
            }
            if is_ours && *pauses {
                outbox::pause(tx, &claimed.destination, "it answered 410 Gone", now_ms)?;
            }
            is_ours
        }
    };
    if !is_ours {
        outbox::count_stale_result(tx, &claimed.destination)?;
    }
    Ok(is_ours)
}

fn ending(answer: &Result<Answer, NoAnswer>) -> Ending {
    match answer {
        Ok(Answer { status, body, took, .. }) => {
            let shown = &body[..body.len().min(EXCERPT_BYTES_MAX)];
            Ending {
                duration_ms: retry::as_ms(*took),
                status: Some(*status),
                excerpt: Some(String::from_utf8_lossy(shown).into_owned()),
                error: (!(200..300).contains(status)).then(|| format!("the answer was {status}")),
            }
        }
        Err(error) => Ending {
            duration_ms: retry::as_ms(error.took),
            status: None,
            excerpt: None,
            error: Some(error.reason.clone()),
        },
    }
}

/// The part of a JSON answer that is kept.
fn result(body: &[u8], pointer: &str) -> Option<String> {
    let json: Value = serde_json::from_slice(body).ok()?;
    match json.pointer(pointer)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}
