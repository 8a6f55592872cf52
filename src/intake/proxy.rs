//! Mode `proxy`: the application answers for the event while its sender waits.
//!
//! The row is stored and claimed first, in a committed transaction: a second delivery gets 409, and an
//! application that had it already is not asked again. The call is made on the thread of the delivery's connection,
//! whose front gives out so many permits for it; no transaction is open during it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::intake::receive::{self, Claim, Outcome, Receipt};
use crate::outgoing::{Answer, NoAnswer};
use crate::store::inbox::queue::{self, Claimed, ErrorClass};
use crate::store::outbox;
use crate::store::writer::{Pending, WriteError, WriterHandle};
use crate::verify::VerifiedEvent;
use crate::work::Worked;
use crate::work::apply::{self, Row};
use crate::work::endpoint::Endpoint;
use crate::work::lease::{self, Held};
use crate::work::retry;
use crate::work::target::{Parcel, Target};

/// A claim is held for the application's time and this.
const LEASE_MORE: Duration = Duration::from_secs(2);

/// What came of asking.
#[derive(Debug)]
pub enum ProxyOutcome {
    /// It is processed, or was before.
    Settled(Receipt),
    /// Another delivery of it is with the application, for that long at most.
    InProgress(Duration),
    /// The application failed (502), cannot be reached (503) or was too slow (504).
    Failed(u16),
    /// Nothing could be stored.
    NotStored(WriteError),
}

/// The applications behind the endpoints of this mode.
#[derive(Debug)]
pub struct Proxy {
    writer: WriterHandle,
    targets: HashMap<String, Arc<Target>>,
    held: Arc<Held>,
}

/// What goes on where a sender cannot be kept waiting any longer.
pub type Later = Box<dyn FnOnce() -> ProxyOutcome + Send>;

impl Proxy {
    /// Asks these applications, by the destination's name.
    pub fn new(writer: WriterHandle, targets: &[Arc<Target>]) -> Self {
        let by_name = |target: &Arc<Target>| (target.config().name.clone(), Arc::clone(target));
        Self { writer, targets: targets.iter().map(by_name).collect(), held: Arc::default() }
    }

    /// Claims the event, asks the application, and settles the claim.
    ///
    /// # Errors
    /// If that takes longer: the rest of the work, which the caller must still run.
    pub fn ask(
        &self,
        endpoint: &Arc<Endpoint>,
        event: VerifiedEvent,
        now_ms: i64,
        answer_by: Instant,
    ) -> Result<ProxyOutcome, Later> {
        let Some(target) = endpoint.config.forward.first().and_then(|name| self.targets.get(name)) else {
            let reason = "the endpoint has no application".to_owned();
            return Ok(ProxyOutcome::NotStored(WriteError::Unavailable(reason)));
        };
        let call = Call {
            writer: self.writer.clone(),
            target: Arc::clone(target),
            endpoint: Arc::clone(endpoint),
            now_ms,
            start: Instant::now(),
            content_type: event.content_type().unwrap_or("application/octet-stream").to_owned(),
            held: Arc::clone(&self.held),
        };
        match self.claim(&call, event).wait_until(answer_by) {
            Ok(claim) => match call.ask(claim) {
                Step::Done(asked) => Ok(asked),
                Step::Settling(settling) => settling.wait_until(answer_by),
            },
            Err(claim) => Err(Box::new(move || match call.ask(claim.wait()) {
                Step::Done(asked) => asked,
                Step::Settling(settling) => settling.wait(),
            })),
        }
    }

    /// Nothing is claimed while the destination is paused.
    fn claim(&self, call: &Call, event: VerifiedEvent) -> Pending<Option<Claim>> {
        let (endpoint, destination) = (Arc::clone(&call.endpoint), call.target.config().name.clone());
        let (lease, held) = (endpoint.config.proxy_timeout + LEASE_MORE, Arc::clone(&self.held));
        let now_ms = call.now_ms;
        let lease_id = lease::new_id(now_ms);
        let (settle, claimed) = Pending::new();
        self.writer.submit(
            move |tx| {
                if outbox::is_paused(tx, &destination)? {
                    return Ok(None);
                }
                receive::claim(tx, &endpoint, &event, (&lease_id, lease, &held), now_ms).map(Some)
            },
            settle,
        );
        claimed
    }
}

/// One request to an application.
struct Call {
    writer: WriterHandle,
    target: Arc<Target>,
    endpoint: Arc<Endpoint>,
    now_ms: i64,
    start: Instant,
    content_type: String,
    held: Arc<Held>,
}

/// How far a call has come.
enum Step {
    Done(ProxyOutcome),
    Settling(Settling),
}

impl Call {
    /// Asks the application, where the claim is ours.
    fn ask(self, claim: Result<Option<Claim>, WriteError>) -> Step {
        match claim {
            Ok(Some(Claim::Ask(claimed))) => Step::Settling(self.run(*claimed)),
            Ok(Some(Claim::InProgress(left))) => Step::Done(ProxyOutcome::InProgress(left)),
            Ok(Some(Claim::Settled(receipt))) => Step::Done(ProxyOutcome::Settled(receipt)),
            Ok(None) => Step::Done(ProxyOutcome::Failed(503)),
            Err(error) => Step::Done(ProxyOutcome::NotStored(error)),
        }
    }

    fn run(self, claimed: Claimed) -> Settling {
        let config = &self.endpoint.config;
        let destination = &self.target.config().name;
        let parcel = Parcel {
            operation_key: &outbox::forward_key(&config.name, &claimed.event_id, destination),
            endpoint: &config.name,
            event_id: &claimed.event_id,
            topic: claimed.event_type.as_deref().unwrap_or_default(),
            attempt: claimed.attempt,
            payload: &claimed.payload,
            content_type: &self.content_type,
            headers: Some(&claimed.headers),
            event_type: claimed.event_type.as_deref(),
            query: claimed.query.as_deref(),
        };
        let answer = self.target.send(&parcel, config.proxy_timeout, self.now_ms);
        let failure = match answer {
            Ok(Answer { status: 200..=299, .. }) => None,
            Ok(Answer { status, .. }) => Some((502, format!("the application answered {status}"))),
            Err(NoAnswer { is_timeout: true, reason, .. }) => Some((504, reason)),
            Err(NoAnswer { is_unsent: true, reason, .. }) => Some((503, reason)),
            Err(NoAnswer { reason, .. }) => Some((502, reason)),
        };
        self.settle(claimed, failure)
    }

    fn settle(self, claimed: Claimed, failure: Option<(u16, String)>) -> Settling {
        let took_ms = retry::as_ms(self.start.elapsed());
        let now_ms = self.now_ms + took_ms;
        let (event_id, row, lease_id) = (claimed.event_id.clone(), claimed.id, claimed.lease_id.clone());
        let error = failure.as_ref().map(|(_, error)| error.clone());
        let (settle, settled) = Pending::new();
        self.writer.submit(
            move |tx| match &error {
                Some(error) => {
                    Ok(queue::give_back(tx, &claimed, ErrorClass::Handler, error, now_ms, now_ms)?)
                }
                None => {
                    let note = apply::attempt_note(&claimed);
                    Ok(apply::settle(tx, Row::Held(&claimed), &Worked::Done, Some(&note), now_ms)?)
                }
            },
            settle,
        );
        let ended = Ended { held: self.held, endpoint: self.endpoint, row, lease_id, event_id, failure };
        Settling { settled, ended }
    }
}

/// An application has answered, or has not; the end of its claim is being stored.
struct Settling {
    settled: Pending<bool>,
    ended: Ended,
}

impl Settling {
    fn wait_until(self, by: Instant) -> Result<ProxyOutcome, Later> {
        let Self { settled, ended } = self;
        match settled.wait_until(by) {
            Ok(settled) => Ok(ended.outcome(settled)),
            Err(settled) => Err(Box::new(move || ended.outcome(settled.wait()))),
        }
    }

    fn wait(self) -> ProxyOutcome {
        let settled = self.settled.wait();
        self.ended.outcome(settled)
    }
}

/// A call that has ended.
struct Ended {
    held: Arc<Held>,
    endpoint: Arc<Endpoint>,
    row: i64,
    lease_id: String,
    event_id: String,
    /// The status for the sender, and why.
    failure: Option<(u16, String)>,
}

impl Ended {
    fn outcome(self, settled: Result<bool, WriteError>) -> ProxyOutcome {
        self.held.release(self.row, &self.lease_id);
        let (name, event_id) = (&self.endpoint.config.name, &self.event_id);
        match (settled, self.failure) {
            (Err(error), _) => {
                log::warn!(
                    "failed endpoint={name} event_id={event_id}: the end of a request could not be stored: {error}"
                );
                ProxyOutcome::NotStored(WriteError::Unavailable(error.to_string()))
            }
            (Ok(_), Some((status, error))) => {
                log::warn!("failed endpoint={name} event_id={event_id} outcome=application_failed: {error}");
                ProxyOutcome::Failed(status)
            }
            (Ok(true), None) => ProxyOutcome::Settled(Receipt { outcome: Outcome::Processed, review: None }),
            (Ok(false), None) => {
                log::warn!(
                    "the lease on endpoint={name} event_id={event_id} was lost while the application worked"
                );
                ProxyOutcome::InProgress(LEASE_MORE)
            }
        }
    }
}
