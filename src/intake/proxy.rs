//! Mode `proxy`: the application answers for the event while its sender waits.
//!
//! The row is stored and claimed first, in a committed transaction: a second delivery is told to wait, and an
//! application that had it already is not asked again. Every call has a thread of its own, so many at most; no
//! transaction is open during it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::intake::receive::{self, Claim, Outcome, Receipt};
use crate::outgoing::{Answer, NoAnswer};
use crate::store::inbox::queue::{self, Claimed, ErrorClass};
use crate::store::outbox;
use crate::store::writer::{WriteError, WriterHandle};
use crate::verify::VerifiedEvent;
use crate::wake::lock;
use crate::work::Worked;
use crate::work::apply::{self, Row};
use crate::work::endpoint::Endpoint;
use crate::work::held::Held;
use crate::work::retry;
use crate::work::target::{Parcel, Target};

/// Requests to applications at once; more deliveries are asked to come again.
const CALLS_MAX: usize = 64;

/// A claim is held for the application's time and this.
const LEASE_MORE: Duration = Duration::from_secs(2);

/// What came of asking.
#[derive(Debug)]
pub enum Asked {
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
    calls: Arc<AtomicUsize>,
    held: Arc<Held>,
}

impl Proxy {
    /// Asks these applications, by the destination's name.
    pub fn new(writer: WriterHandle, targets: &[Arc<Target>]) -> Self {
        let by_name = |target: &Arc<Target>| (target.config().name.clone(), Arc::clone(target));
        Self {
            writer,
            targets: targets.iter().map(by_name).collect(),
            calls: Arc::default(),
            held: Arc::default(),
        }
    }

    /// Claims the event, asks the application on another thread, and tells `answer` what came of it, once.
    pub fn ask(
        &self,
        endpoint: &Arc<Endpoint>,
        event: VerifiedEvent,
        now_ms: i64,
        answer: impl FnOnce(Asked) + Send + 'static,
    ) {
        let target = endpoint.config.forward.first().and_then(|name| self.targets.get(name));
        let (Some(target), Some(place)) = (target, Place::take(&self.calls)) else {
            let reason = "as many requests as can be are with the application".to_owned();
            return answer(Asked::NotStored(WriteError::Unavailable(reason)));
        };
        let call = Call {
            writer: self.writer.clone(),
            target: Arc::clone(target),
            endpoint: Arc::clone(endpoint),
            now_ms,
            start: Instant::now(),
            content_type: event.content_type().unwrap_or("application/octet-stream").to_owned(),
            held: Arc::clone(&self.held),
            _place: place,
        };
        let (endpoint, destination) = (Arc::clone(endpoint), target.config().name.clone());
        let (lease, held) = (endpoint.config.proxy_timeout + LEASE_MORE, Arc::clone(&self.held));
        let lease_id = format!("{now_ms:012x}{:016x}", getrandom::u64().unwrap_or(u64::MAX));
        self.writer.submit(
            move |tx| {
                if outbox::is_paused(tx, &destination)? {
                    return Ok(None);
                }
                receive::claim(tx, &endpoint, &event, (&lease_id, lease, &held), now_ms).map(Some)
            },
            move |claim| match claim {
                Ok(None) => answer(Asked::Failed(503)),
                Ok(Some(Claim::Ask(claimed))) => call.start(*claimed, answer),
                Ok(Some(Claim::InProgress(left))) => answer(Asked::InProgress(left)),
                Ok(Some(Claim::Settled(receipt))) => answer(Asked::Settled(receipt)),
                Err(error) => answer(Asked::NotStored(error)),
            },
        );
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
    _place: Place,
}

impl Call {
    /// The writer must not wait for an application: from here on another thread works.
    fn start(self, claimed: Claimed, answer: impl FnOnce(Asked) + Send + 'static) {
        let shared = Arc::new(Mutex::new(Some((self, claimed, answer))));
        let work = Arc::clone(&shared);
        let take = move || lock(&work).take();
        let spawned = std::thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            if let Some((call, claimed, answer)) = take() {
                answer(call.run(claimed));
            }
        });
        if let Err(error) = spawned {
            log::error!("no thread for a request to an application: {error}; look at TasksMax");
            let left = lock(&shared).take();
            if let Some((_, _, answer)) = left {
                answer(Asked::NotStored(WriteError::Unavailable(error.to_string())));
            }
        }
    }

    fn run(self, claimed: Claimed) -> Asked {
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

    fn settle(&self, claimed: Claimed, failure: Option<(u16, String)>) -> Asked {
        let took_ms = retry::as_ms(self.start.elapsed());
        let now_ms = self.now_ms + took_ms;
        let (name, event_id) = (self.endpoint.config.name.clone(), claimed.event_id.clone());
        let told = failure.clone();
        let (row, lease_id) = (claimed.id, claimed.lease_id.clone());
        let settled = self.writer.run(move |tx| match &told {
            Some((_, error)) => {
                Ok(queue::give_back(tx, &claimed, ErrorClass::Handler, error, now_ms, now_ms)?)
            }
            None => {
                let note = apply::attempt_note(&claimed);
                Ok(apply::settle(tx, Row::Held(&claimed), &Worked::Done, Some(&note), now_ms)?)
            }
        });
        self.held.release(row, &lease_id);
        match (settled, failure) {
            (Err(error), _) => {
                log::warn!(
                    "failed endpoint={name} event_id={event_id}: the end of a request could not be stored: {error}"
                );
                Asked::NotStored(WriteError::Unavailable(error.to_string()))
            }
            (Ok(_), Some((status, error))) => {
                log::warn!("failed endpoint={name} event_id={event_id} outcome=application_failed: {error}");
                Asked::Failed(status)
            }
            (Ok(true), None) => Asked::Settled(Receipt { outcome: Outcome::Processed, review: None }),
            (Ok(false), None) => {
                log::warn!(
                    "the lease on endpoint={name} event_id={event_id} was lost while the application worked"
                );
                Asked::InProgress(LEASE_MORE)
            }
        }
    }
}

/// One of the requests at once.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(calls: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(Arc::clone(calls));
        // dropping it gives the count back
        (calls.fetch_add(1, Ordering::AcqRel) < CALLS_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
