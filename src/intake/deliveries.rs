//! One delivery, from the request to its answer: routes by path, verifies, hands the job to the writer, waits for the
//! commit, and answers.
//!
//! All of it happens on the thread of the delivery's own connection, which does nothing else meanwhile. Requests come
//! from the front alone, complete and well-formed. Nothing is acknowledged before COMMIT returned.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use log::Level;

use crate::clock;
use crate::config::Mode;
use crate::intake::answer::{Answer, word};
use crate::intake::exchange::{Request, Response, Rest};
use crate::intake::front::{self, Peer};
use crate::intake::permit::Permits;
use crate::intake::proxy::{Proxy, ProxyOutcome};
use crate::intake::receive::{Incoming, Outcome, Receipt};
use crate::intake::refused;
use crate::logging;
use crate::measure;
use crate::providers::Reply;
use crate::signature::{Delivery, Headers, Rejection};
use crate::store::writer::{Health, Pending, START_WAIT_MAX, WriteError, WriterHandle};
use crate::verify::{self, Verified, VerifiedEvent, Verifier};
use crate::wake::Wake;
use crate::work::endpoint::Endpoint;
use crate::work::screen::{self, Disposition};

/// Lines of the log for each reason that strangers can give as often as they like.
const REFUSALS_PER_SECOND: u32 = 1;

/// The same for what only a genuine event, or one that was captured, can cause.
const EVENTS_PER_SECOND: u32 = 20;

/// How much is logged of what to look at where a delivery was refused.
const HINT_CHARS_SHOWN: usize = 500;

/// How much of a path that a stranger asked for is logged.
const PATH_CHARS_SHOWN: usize = 200;

/// How much is logged of the list of paths that there are.
const KNOWN_CHARS_SHOWN: usize = 500;

/// A larger body is verified when one of few permits is free: what reading it takes is a multiple of it.
const LARGE_BODY_BYTES: usize = 64 << 10;

/// How often deliveries were answered with which class of status, since the start.
#[derive(Debug, Default)]
pub struct Answers {
    classes: [AtomicU64; 3],
    unavailable: AtomicU64,
}

impl Answers {
    /// 2xx, 4xx and 5xx, in this order.
    pub fn counts(&self) -> [u64; 3] {
        self.classes.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Of the 5xx, those that could not be stored.
    pub fn unavailable(&self) -> u64 {
        self.unavailable.load(Ordering::Relaxed)
    }

    fn count(&self, answer: &Answer, status: u16) {
        if matches!(answer, Answer::Unavailable) {
            self.unavailable.fetch_add(1, Ordering::Relaxed);
        }
        let [accepted, refused, failed] = &self.classes;
        let class = match status {
            ..400 => accepted,
            400..500 => refused,
            500.. => failed,
        };
        class.fetch_add(1, Ordering::Relaxed);
    }
}

/// How the daemon is. Unlike the [`App`] it keeps the writer from nothing.
#[derive(Debug, Clone)]
pub struct Condition {
    health: Arc<Health>,
    is_draining: Arc<AtomicBool>,
    /// What deliveries were answered.
    pub answers: Arc<Answers>,
}

impl Condition {
    /// Why a delivery would not be stored now, each reason in one sentence.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = self.health.obstacles();
        if self.is_draining.load(Ordering::Acquire) {
            reasons.push("it is stopping".to_owned());
        }
        reasons
    }

    /// Whether the process is ending.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }
}

/// What answers the requests of both listeners.
#[derive(Debug)]
pub struct App {
    endpoints: HashMap<String, Arc<Endpoint>>,
    public_url: Option<String>,
    writer: WriterHandle,
    wake: Arc<Wake>,
    outbox_wake: Arc<Wake>,
    proxy: Arc<Proxy>,
    answers: Arc<Answers>,
    is_draining: Arc<AtomicBool>,
    refused: refused::Kept,
    large_bodies: Permits,
}

/// What becomes of a delivery whose sender cannot be kept waiting any longer: it is answered 503, and this goes on.
type Answered = Result<Answer, Rest>;

impl App {
    /// Endpoints by their paths, and where their jobs go.
    pub fn new(
        endpoints: &[Arc<Endpoint>],
        public_url: Option<String>,
        writer: WriterHandle,
        (wake, outbox_wake): (Arc<Wake>, Arc<Wake>),
        proxy: Arc<Proxy>,
    ) -> Self {
        let by_path = |endpoint: &Arc<Endpoint>| (endpoint.config.path.clone(), Arc::clone(endpoint));
        Self {
            endpoints: endpoints.iter().map(by_path).collect(),
            public_url,
            writer,
            wake,
            outbox_wake,
            proxy,
            answers: Arc::default(),
            is_draining: Arc::default(),
            refused: refused::Kept::new(0),
            large_bodies: Permits::new(cores(), usize::MAX),
        }
    }

    /// Keeps so many of the latest refused deliveries.
    #[must_use]
    pub fn keeping_refused(self, deliveries_max: usize) -> Self {
        Self { refused: refused::Kept::new(deliveries_max), ..self }
    }

    /// The refused deliveries that are kept.
    pub fn refused(&self) -> &refused::Kept {
        &self.refused
    }

    /// What judges the deliveries of an endpoint, by its name.
    pub fn verifier_of(&self, endpoint: &str) -> Option<&Verifier> {
        let mut endpoints = self.endpoints.values();
        endpoints.find(|known| known.config.name == endpoint).map(|known| &known.config.verifier)
    }

    /// What deliveries were answered.
    pub fn answers(&self) -> Arc<Answers> {
        Arc::clone(&self.answers)
    }

    /// How the daemon is.
    pub fn condition(&self) -> Condition {
        let health = Arc::clone(self.writer.health());
        Condition { health, is_draining: Arc::clone(&self.is_draining), answers: self.answers() }
    }

    /// Has workers and dispatchers look for work: a person has put something back to work.
    pub fn wake(&self) {
        self.wake.ring();
        self.outbox_wake.ring();
    }

    /// From now on `/readyz` says no; deliveries in flight are still answered.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// From now on the store does not wait for locks: the process is ending.
    pub fn hurry(&self) {
        self.writer.health().hurry();
    }

    /// Has the writer do nothing, even while it takes no deliveries: `came_round` is called when it has.
    pub fn probe_writer(&self, came_round: impl FnOnce() + Send + 'static) {
        self.writer.probe(came_round);
    }

    /// Whether the store is not ready yet.
    pub fn is_recovering(&self) -> bool {
        self.writer.health().is_recovering()
    }

    /// The largest body that may be sent to a path, in bytes; `None` for a path that takes none.
    pub fn body_bytes_max(&self, path: &str) -> Option<usize> {
        self.endpoints.get(route(path)).map(|endpoint| endpoint.config.body_bytes_max)
    }

    /// Whether any endpoint's application answers its deliveries.
    pub fn asks_applications(&self) -> bool {
        self.endpoints.values().any(|endpoint| endpoint.config.mode == Mode::Proxy)
    }

    /// Whether a delivery to this path is answered by an application, in its own time.
    pub fn asks_application(&self, path: &str) -> bool {
        self.endpoints.get(route(path)).is_some_and(|endpoint| endpoint.config.mode == Mode::Proxy)
    }

    /// Answers a request of the public listener.
    pub fn respond(&self, request: Request) -> Response {
        let began = Instant::now();
        if let Some(answer) = self.probe(&request) {
            return answer.plain();
        }
        let Some(endpoint) = self.endpoints.get(route(request.path())) else {
            return self.not_found(&request);
        };
        let endpoint = Arc::clone(endpoint);
        let (peer, body_bytes) = (request.peer, request.body.len());
        let is_delivery = request.method == "POST";
        let answered = if is_delivery {
            self.deliver(request, &endpoint)
        } else {
            Ok(self.challenge(&request, &endpoint))
        };
        let (answer, rest) = match answered {
            Ok(answer) => (answer, None),
            Err(rest) => (Answer::Unavailable, Some(rest)),
        };
        let response = answer.response(endpoint.config.verifier.provider().preset());
        self.answers.count(&answer, response.status());
        let word = if answer.word().is_empty() { "handshake" } else { answer.word() };
        measure::DELIVERIES.record(&endpoint.config.name, word, began.elapsed());
        if response.status() >= 400 {
            measure::REFUSED.record("", word, Duration::ZERO);
            refused::note(refused::Line {
                at_ms: clock::now_ms(),
                endpoint: Some(endpoint.config.name.clone()),
                status: response.status(),
                reason: word,
                method: if is_delivery { "POST" } else { "other" }.to_owned(),
                path: endpoint.config.path.clone(),
                peer,
                body_bytes,
            });
        }
        match rest {
            Some(rest) => response.with_rest(rest),
            None => response,
        }
    }

    /// What `/livez` and `/readyz` are answered, on either listener; `None` for any other path.
    pub fn probe(&self, request: &Request) -> Option<Answer> {
        let answer = match request.path() {
            "/livez" => Answer::Alive,
            "/readyz" => match self.condition().reasons() {
                none if none.is_empty() => Answer::Ready,
                // the reasons are not for strangers
                _ if request.listener == front::WEBHOOKS => Answer::NotReady(Vec::new()),
                reasons => Answer::NotReady(reasons),
            },
            _ => return None,
        };
        let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
        Some(if is_read { answer } else { Answer::MethodNotAllowed("GET, HEAD") })
    }

    /// Answers a request whose path leads nowhere.
    pub fn not_found(&self, request: &Request) -> Response {
        self.log_unknown_path(request);
        if request.listener == front::WEBHOOKS {
            measure::REFUSED.record("", Answer::NotFound.word(), Duration::ZERO);
            refused::note(refused::Line {
                at_ms: clock::now_ms(),
                endpoint: None,
                status: Answer::NotFound.status(),
                reason: Answer::NotFound.word(),
                method: request.method.clone(),
                path: request.path().to_owned(),
                peer: request.peer,
                body_bytes: request.body.len(),
            });
        }
        Answer::NotFound.plain()
    }

    /// "Nothing arrives" is mostly a path that was mistyped at the provider.
    fn log_unknown_path(&self, request: &Request) {
        let kind = format!("refused listener={} reason=not_found", request.listener);
        logging::limited(Level::Info, REFUSALS_PER_SECOND, &kind, || {
            if request.listener != front::WEBHOOKS {
                return asked(request);
            }
            let mut known: Vec<_> = self.endpoints.keys().map(String::as_str).collect();
            known.sort_unstable();
            format!(
                "{}: webhooks go to {}",
                asked(request),
                logging::short(&known.join(" "), KNOWN_CHARS_SHOWN)
            )
        });
    }

    /// A handshake without a body, where the provider has one; else the wrong method.
    fn challenge(&self, request: &Request, endpoint: &Endpoint) -> Answer {
        let (headers, url) = (Headers::default(), self.public_url(&request.target));
        let delivery = Delivery { method: &request.method, url: &url, headers: &headers, body: &[][..] };
        let config = &endpoint.config;
        if let Some(reply) = config.verifier.unsigned_handshake(&delivery) {
            return handshake(&config.name, reply);
        }
        let kind = format!("refused endpoint={} reason=method_not_allowed", config.name);
        logging::limited(Level::Info, REFUSALS_PER_SECOND, &kind, || asked(request));
        let by_get = config.verifier.provider().preset().handshake.by_get;
        Answer::MethodNotAllowed(if by_get { "GET, POST" } else { "POST" })
    }

    /// Verifies one delivery, and has the writer store it or the application answer for it.
    fn deliver(&self, request: Request, endpoint: &Arc<Endpoint>) -> Answered {
        let (now_ms, answer_by) = (clock::now_ms(), request.answer_by);
        let verified = self.verify(request, endpoint, now_ms);
        let events = match verified {
            Ok(Verified::Events(events)) => events,
            Ok(Verified::Handshake(reply)) => return Ok(handshake(&endpoint.config.name, reply)),
            Err(answer) => return Ok(answer),
        };
        let log = DeliveryLog::of(&endpoint.config.name, &events);
        let Some(events) = screen::dispositions(endpoint, events) else {
            log.scope_mismatch();
            return Ok(Answer::ScopeMismatch);
        };
        if events.is_empty() {
            // nothing to commit: some providers test a URL with an empty batch
            let receipt = Receipt { outcome: Outcome::Ignored, review: None };
            return Ok(log.answer_to(Ok(receipt)));
        }
        match one_for_application(endpoint, events) {
            Ok(event) => self.ask_application(endpoint, event, log, (now_ms, answer_by)),
            Err(events) => self.store(endpoint, events, log, (now_ms, answer_by)),
        }
    }

    fn verify(&self, request: Request, endpoint: &Endpoint, now_ms: i64) -> Result<Verified, Answer> {
        let Request { peer, method, target, headers, body, answer_by, .. } = request;
        let at_most = answer_by.saturating_duration_since(Instant::now());
        let permit = (body.len() > LARGE_BODY_BYTES).then(|| self.large_bodies.take(at_most));
        if let Some(None) = permit {
            let kind = format!("refused endpoint={} outcome=unavailable", endpoint.config.name);
            let why = || ": too many large bodies wait to be verified".to_owned();
            logging::limited(Level::Warn, REFUSALS_PER_SECOND, &kind, why);
            return Err(Answer::Unavailable);
        }
        let (headers, url) = (Headers::from_iter(headers), self.public_url(&target));
        let delivery = Delivery { method: &method, url: &url, headers: &headers, body };
        let verifier = &endpoint.config.verifier;
        if let Some(reply) = verifier.unsigned_handshake(&delivery.borrowed()) {
            return Ok(Verified::Handshake(reply));
        }
        verifier.verify_or_return(delivery, now_ms).map_err(|(rejection, body)| {
            let delivery = Delivery { method: &method, url: &url, headers: &headers, body };
            log_rejection(endpoint, peer, &delivery.borrowed(), &rejection, now_ms);
            let endpoint = &endpoint.config.name;
            let delivered = refused::Delivered { endpoint, peer, delivery, received_at_ms: now_ms };
            self.refused.keep(delivered, &rejection);
            Answer::Rejected(rejection)
        })
    }

    /// Submits the job and waits for its commit.
    fn store(
        &self,
        endpoint: &Arc<Endpoint>,
        events: Vec<(VerifiedEvent, Disposition)>,
        log: DeliveryLog,
        (now_ms, answer_by): (i64, Instant),
    ) -> Answered {
        let incoming = Arc::new(Incoming::new(Arc::clone(endpoint), events, now_ms));
        let failing = Arc::clone(&incoming);
        let (settle, pending) = Pending::new();
        self.writer.submit_noting(
            start_within(endpoint),
            move |tx| incoming.store(tx),
            Box::new(move |tx, error| failing.note_failure(tx, error)),
            settle,
        );
        let bells = Bells { worker: Arc::clone(&self.wake), outbox: Arc::clone(&self.outbox_wake) };
        match pending.wait_until(answer_by) {
            Ok(result) => {
                bells.ring(&result);
                Ok(log.answer_to(result))
            }
            Err(pending) => {
                log.late();
                Err(Box::new(move || {
                    let result = pending.wait();
                    bells.ring(&result);
                    log.answer_to(result);
                }))
            }
        }
    }

    /// The application answers for the event.
    fn ask_application(
        &self,
        endpoint: &Arc<Endpoint>,
        event: VerifiedEvent,
        log: DeliveryLog,
        (now_ms, answer_by): (i64, Instant),
    ) -> Answered {
        match self.proxy.ask(endpoint, event, now_ms, answer_by) {
            Ok(asked) => Ok(log.answer_to_proxied(asked)),
            Err(rest) => {
                log.late();
                Err(Box::new(move || {
                    log.answer_to_proxied(rest());
                }))
            }
        }
    }

    /// The URL as the sender knows it: host and scheme from the configuration, the rest from the request.
    fn public_url(&self, target: &str) -> String {
        match &self.public_url {
            Some(base) => format!("{base}{target}"),
            None => target.to_owned(),
        }
    }
}

/// How long a delivery may wait for its turn in the store, so that its provider is answered before it hangs up.
fn start_within(endpoint: &Endpoint) -> Duration {
    let deadline_s = endpoint.config.verifier.provider().preset().deadline_s;
    let deadline = deadline_s.map(|seconds| Duration::from_secs(seconds.into()));
    // the rest is for the handlers, the commit and the way back
    deadline.map_or(START_WAIT_MAX, |deadline| (deadline * 3 / 5).min(START_WAIT_MAX))
}

/// The event that the application answers for, or all of them back.
fn one_for_application(
    endpoint: &Endpoint,
    mut events: Vec<(VerifiedEvent, Disposition)>,
) -> Result<VerifiedEvent, Vec<(VerifiedEvent, Disposition)>> {
    match events.pop() {
        Some((event, Disposition::Handle)) if endpoint.config.mode == Mode::Proxy && events.is_empty() => {
            Ok(event)
        }
        last => {
            events.extend(last);
            Err(events)
        }
    }
}

/// How many work at a time where memory is dear.
fn cores() -> usize {
    thread::available_parallelism().map_or(2, |cores| cores.get().max(2))
}

/// Those who work on what was stored.
struct Bells {
    worker: Arc<Wake>,
    outbox: Arc<Wake>,
}

impl Bells {
    fn ring(&self, result: &Result<Receipt, WriteError>) {
        match result {
            Ok(Receipt { outcome: Outcome::Accepted, .. }) => {
                self.worker.ring();
                self.outbox.ring();
            }
            Ok(Receipt { outcome: Outcome::Duplicate, .. }) | Err(_) => {}
            Ok(_) => self.outbox.ring(),
        }
    }
}

/// For the log: the first event's id, and how many follow.
fn ids(events: &[VerifiedEvent]) -> String {
    match events {
        [] => String::from("-"),
        [one] => one.event_id().to_owned(),
        [first, rest @ ..] => format!("{}(+{})", first.event_id(), rest.len()),
    }
}

/// What the log says of one delivery, and through it the operator.
struct DeliveryLog {
    endpoint: String,
    event_id: String,
    /// Of the first event; empty where it has none.
    event_type: String,
}

impl DeliveryLog {
    fn of(endpoint: &str, events: &[VerifiedEvent]) -> Self {
        let event_type = events.first().and_then(VerifiedEvent::event_type).unwrap_or_default().to_owned();
        Self { endpoint: endpoint.to_owned(), event_id: ids(events), event_type }
    }

    fn scope_mismatch(&self) {
        let kind = format!("refused endpoint={} reason=scope_mismatch", self.endpoint);
        logging::limited(Level::Info, EVENTS_PER_SECOND, &kind, || {
            format!(" event_id={}: the event is of another mode or account", self.event_id)
        });
    }

    fn late(&self) {
        self.log(Level::Warn, "refused", "outcome=unavailable", || {
            "its commit takes too long; the provider is asked to send it again".to_owned()
        });
    }

    fn answer_to_proxied(&self, asked: ProxyOutcome) -> Answer {
        match asked {
            ProxyOutcome::Settled(receipt) => self.answer_to(Ok(receipt)),
            ProxyOutcome::InProgress(left) => Answer::InProgress(left.as_secs() + 1),
            ProxyOutcome::Failed(status) => Answer::ApplicationFailed(status),
            ProxyOutcome::NotStored(error) => self.answer_to(Err(error)),
        }
    }

    fn answer_to(&self, result: Result<Receipt, WriteError>) -> Answer {
        match result {
            Ok(Receipt { outcome: Outcome::Replayed, .. }) => {
                self.log(Level::Info, "refused", "reason=replayed", || {
                    "the same body came before under another id".to_owned()
                });
                Answer::Stored(Outcome::Replayed)
            }
            Ok(Receipt { outcome, review: Some(reason), .. }) => {
                let outcome_word = format!("outcome={}", word(outcome));
                self.log(Level::Warn, "review", &outcome_word, || reason);
                Answer::Stored(outcome)
            }
            Ok(Receipt { outcome: stored, review: None, .. }) => {
                let Self { endpoint, event_id, event_type } = self;
                let outcome = word(stored);
                log::log!(
                    logging::delivery_level(),
                    "stored endpoint={endpoint} event_id={event_id} type={event_type} outcome={outcome}"
                );
                Answer::Stored(stored)
            }
            Err(WriteError::Job(error)) => {
                self.log(Level::Warn, "failed", "outcome=handler_failed", || {
                    format!("{error}; nothing was stored, the provider will send it again")
                });
                Answer::HandlerFailed
            }
            Err(WriteError::Unavailable(reason)) => {
                self.log(Level::Warn, "refused", "outcome=unavailable", || reason);
                Answer::Unavailable
            }
        }
    }

    fn log(&self, level: Level, what: &str, became: &str, why: impl FnOnce() -> String) {
        let kind = format!("{what} endpoint={}", self.endpoint);
        let detail = || format!(" event_id={} {became}: {}", self.event_id, why());
        logging::limited(level, EVENTS_PER_SECOND, &kind, detail);
    }
}

/// A trailing slash is fine; a redirect would lose the event.
fn route(path: &str) -> &str {
    match path.strip_suffix('/') {
        Some("") | None => path,
        Some(stripped) => stripped,
    }
}

/// One line a second for each endpoint and reason: strangers cause it. What to look at is found out for those alone.
fn log_rejection(
    endpoint: &Endpoint,
    peer: Option<IpAddr>,
    delivery: &Delivery<'_>,
    rejection: &Rejection,
    now_ms: i64,
) {
    let kind = format!("refused endpoint={} reason={}", endpoint.config.name, rejection.reason());
    logging::limited(Level::Info, REFUSALS_PER_SECOND, &kind, || {
        let skew = match rejection {
            Rejection::TimestampOutsideTolerance { skew_s } => format!(" skew_s={skew_s}"),
            Rejection::SignatureMissing
            | Rejection::EventIdMissing
            | Rejection::SignatureMalformed { .. }
            | Rejection::SignatureMismatch => String::new(),
        };
        let hint = verify::hint(&endpoint.config.verifier, delivery, rejection, now_ms.div_euclid(1000));
        format!(" peer={}{skew}: {}", Peer(peer), logging::short(&hint, HINT_CHARS_SHOWN))
    });
}

fn handshake(name: &str, reply: Reply) -> Answer {
    let kind = format!("handshake endpoint={name} status={}", reply.status);
    logging::limited(Level::Info, REFUSALS_PER_SECOND, &kind, String::new);
    Answer::Handshake(reply)
}

/// Method, path and client of a request, as the end of a line.
fn asked(request: &Request) -> String {
    let path = logging::short(request.path(), PATH_CHARS_SHOWN);
    format!(" method={} path={path} peer={}", request.method, Peer(request.peer))
}
