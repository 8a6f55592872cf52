//! The HTTP side of a delivery: routes by path, verifies, hands the job to the writer, and maps what
//! became of it to an answer in one exhaustive `match`, then dresses it as the provider wants it.
//!
//! Requests come from the front alone, complete and well-formed. A worker never waits for the store: the
//! way back to the sender goes along with the job, and is used after COMMIT.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use log::Level;
use tiny_http::StatusCode;

use crate::clock;
use crate::config::Mode;
use crate::intake::front::{self, Peer, Relay, Request, WayBack};
use crate::intake::proxy::{Asked, Proxy};
use crate::intake::receive::{Incoming, Outcome, Receipt};
use crate::intake::refused;
use crate::logging;
use crate::providers::{Acceptance, Handshake, Preset, Reply};
use crate::signature::{Delivery, Headers, Rejection};
use crate::store::writer::{Health, START_WAIT_MAX, WriteError, WriterHandle};
use crate::verify::{self, Verified, VerifiedEvent, Verifier};
use crate::wake::Wake;
use crate::work::endpoint::Endpoint;
use crate::work::screen::{self, Disposition};

/// Names the outcome where the provider wants a body that does not.
const OUTCOME_HEADER: &str = "Inboxd-Outcome";

/// What is answered where no provider has a say.
const NOBODY: &Preset = &Preset::PLAIN;

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

/// Seconds after which a sender is asked to try again.
const RETRY_AFTER_S: u64 = 5;

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

    fn count(&self, status: u16) {
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
}

/// What all workers share.
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
    probe_path: Option<String>,
}

/// Everything the daemon answers with.
#[derive(Debug)]
enum Answer {
    Stored(Outcome),
    Handshake(Reply),
    Rejected(Rejection),
    ScopeMismatch,
    HandlerFailed,
    Unavailable,
    /// Another delivery of it is with the application, for so many seconds at most.
    InProgress(u64),
    /// The application did not take it: 502, 503 or 504.
    ApplicationFailed(u16),
    NotFound,
    /// Instead of these.
    MethodNotAllowed(&'static str),
    Alive,
    Ready,
    NotReady,
}

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
            probe_path: None,
        }
    }

    /// Answers GET on `path`, which nobody else can know, once the writer has come round.
    #[must_use]
    pub fn with_probe(self, path: String) -> Self {
        Self { probe_path: Some(path), ..self }
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

    /// From now on `/readyz` says no; deliveries in flight are still answered.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// From now on the store waits for nobody: the process is ending.
    pub fn hurry(&self) {
        self.writer.health().hurry();
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

    /// Serves requests until the relay is unblocked or its listener is gone.
    ///
    /// # Errors
    /// When tiny_http can accept no more connections; the process has to start again.
    pub fn serve(&self, relay: &Relay) -> io::Result<()> {
        loop {
            let (request, way_back) = relay.receive()?;
            if catch_unwind(AssertUnwindSafe(|| self.handle(request, way_back))).is_err() {
                log::error!("a request handler panicked; its sender is told to try again");
            }
        }
    }

    fn handle(&self, request: Request, way_back: WayBack) {
        let path = request.target.split('?').next().unwrap_or_default();
        match path {
            "/livez" => probe(&request, way_back, &Answer::Alive),
            "/readyz" => {
                let is_ready = self.condition().reasons().is_empty();
                probe(&request, way_back, if is_ready { &Answer::Ready } else { &Answer::NotReady });
            }
            path if self.probe_path.as_deref() == Some(path) => self.writer.probe(move || {
                answer(way_back, &Answer::Alive, NOBODY);
            }),
            path => match self.endpoints.get(route(path)).filter(|_| request.listener == front::WEBHOOKS) {
                None => {
                    self.log_unknown_path(&request);
                    answer(way_back, &Answer::NotFound, NOBODY);
                }
                Some(endpoint) => {
                    let (endpoint, answers) = (Arc::clone(endpoint), Arc::clone(&self.answers));
                    let sender = Sender { way_back, endpoint, answers };
                    if request.method == "POST" {
                        self.receive(request, sender);
                    } else {
                        self.challenge(&request, sender);
                    }
                }
            },
        }
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
    fn challenge(&self, request: &Request, sender: Sender) {
        let (headers, url) = (Headers::default(), self.public_url(&request.target));
        let delivery = Delivery { method: &request.method, url: &url, headers: &headers, body: &[][..] };
        let config = &sender.endpoint.config;
        let result = match config.verifier.unsigned_handshake(&delivery) {
            Some(reply) => {
                log_handshake(&config.name, &reply);
                Answer::Handshake(reply)
            }
            None => {
                let kind = format!("refused endpoint={} reason=method_not_allowed", config.name);
                logging::limited(Level::Info, REFUSALS_PER_SECOND, &kind, || asked(request));
                Answer::MethodNotAllowed(match config.verifier.provider().preset().handshake {
                    Handshake::DropboxChallenge => "GET, POST",
                    _ => "POST",
                })
            }
        };
        sender.answer(&result);
    }

    /// Verifies one delivery and hands it to the writer, together with whoever waits for the answer.
    fn receive(&self, request: Request, sender: Sender) {
        let now_ms = clock::now_ms();
        let endpoint = Arc::clone(&sender.endpoint);
        let events = match self.verify(request, &endpoint, now_ms) {
            Ok(Verified::Events(events)) => events,
            Ok(Verified::Handshake(reply)) => {
                log_handshake(&endpoint.config.name, &reply);
                return sender.answer(&Answer::Handshake(reply));
            }
            Err(rejection) => return sender.answer(&Answer::Rejected(rejection)),
        };
        let told = Told {
            endpoint: endpoint.config.name.clone(),
            event_id: ids(&events),
            event_type: events.first().and_then(VerifiedEvent::event_type).unwrap_or_default().to_owned(),
        };
        let Some(events) = screen::dispositions(&endpoint, events) else {
            let kind = format!("refused endpoint={} reason=scope_mismatch", told.endpoint);
            logging::limited(Level::Info, EVENTS_PER_SECOND, &kind, || {
                format!(" event_id={}: the event is of another mode or account", told.event_id)
            });
            return sender.answer(&Answer::ScopeMismatch);
        };
        if events.is_empty() {
            // nothing to commit: some providers test a URL with an empty batch
            let receipt = Receipt { outcome: Outcome::Ignored, review: None };
            return sender.answer(&told.answer_to(Ok(receipt)));
        }
        let events = match one_for_application(&endpoint, events) {
            Ok(event) => return self.ask_application(sender, event, told, now_ms),
            Err(events) => events,
        };
        let (wake, outbox_wake) = (Arc::clone(&self.wake), Arc::clone(&self.outbox_wake));
        let start_within = start_within(&endpoint);
        let incoming = Arc::new(Incoming::new(endpoint, events, now_ms));
        let failing = Arc::clone(&incoming);
        self.writer.submit_noting(
            start_within,
            move |tx| incoming.store(tx),
            Box::new(move |tx, error| failing.note_failure(tx, error)),
            move |result| {
                match result {
                    Ok(Receipt { outcome: Outcome::Accepted, .. }) => {
                        wake.ring();
                        outbox_wake.ring();
                    }
                    Ok(Receipt { outcome: Outcome::Duplicate, .. }) | Err(_) => {}
                    Ok(_) => outbox_wake.ring(),
                }
                sender.answer(&told.answer_to(result));
            },
        );
    }

    /// The application answers for the event, on a thread of its own: a worker never waits for it.
    fn ask_application(&self, sender: Sender, event: VerifiedEvent, told: Told, now_ms: i64) {
        let endpoint = Arc::clone(&sender.endpoint);
        self.proxy.ask(&endpoint, event, now_ms, move |asked| {
            sender.answer(&match asked {
                Asked::Settled(receipt) => told.answer_to(Ok(receipt)),
                Asked::InProgress(left) => Answer::InProgress(left.as_secs() + 1),
                Asked::Failed(status) => Answer::ApplicationFailed(status),
                Asked::NotStored(error) => told.answer_to(Err(error)),
            });
        });
    }

    fn verify(&self, request: Request, endpoint: &Endpoint, now_ms: i64) -> Result<Verified, Rejection> {
        let Request { peer, method, target, headers, body, .. } = request;
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
            rejection
        })
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

/// Who waits for the answer to a delivery.
struct Sender {
    way_back: WayBack,
    endpoint: Arc<Endpoint>,
    answers: Arc<Answers>,
}

impl Sender {
    fn answer(self, result: &Answer) {
        let preset = self.endpoint.config.verifier.provider().preset();
        if matches!(result, Answer::Unavailable) {
            self.answers.unavailable.fetch_add(1, Ordering::Relaxed);
        }
        self.answers.count(answer(self.way_back, result, preset));
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

/// Who is told what became of a job: the log, and through it the operator.
struct Told {
    endpoint: String,
    event_id: String,
    /// Of the first event; empty where it has none.
    event_type: String,
}

impl Told {
    fn answer_to(&self, result: Result<Receipt, WriteError>) -> Answer {
        match result {
            Ok(Receipt { outcome: Outcome::Replayed, .. }) => {
                self.tell(Level::Info, "refused", "reason=replayed", || {
                    "the same body came before under another id".to_owned()
                });
                Answer::Stored(Outcome::Replayed)
            }
            Ok(Receipt { outcome, review: Some(reason), .. }) => {
                let outcome_word = format!("outcome={}", word(outcome));
                self.tell(Level::Warn, "review", &outcome_word, || reason);
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
                self.tell(Level::Warn, "failed", "outcome=handler_failed", || {
                    format!("{error}; nothing was stored, the provider will send it again")
                });
                Answer::HandlerFailed
            }
            Err(WriteError::Unavailable(reason)) => {
                self.tell(Level::Warn, "refused", "outcome=unavailable", || reason);
                Answer::Unavailable
            }
        }
    }

    fn tell(&self, level: Level, what: &str, became: &str, why: impl FnOnce() -> String) {
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

fn log_handshake(name: &str, reply: &Reply) {
    let kind = format!("handshake endpoint={name} status={}", reply.status);
    logging::limited(Level::Info, REFUSALS_PER_SECOND, &kind, String::new);
}

/// Method, path and client of a request, as the end of a line.
fn asked(request: &Request) -> String {
    let path = request.target.split('?').next().unwrap_or_default();
    let path = logging::short(path, PATH_CHARS_SHOWN);
    format!(" method={} path={path} peer={}", request.method, Peer(request.peer))
}

fn probe(request: &Request, way_back: WayBack, result: &Answer) {
    let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
    answer(way_back, if is_read { result } else { &Answer::MethodNotAllowed("GET, HEAD") }, NOBODY);
}

/// The contract with senders: one status and one line for each answer.
fn status_and_body(answer: &Answer) -> (u16, String) {
    let outcome = |outcome| format!(r#"{{"outcome":"{}"}}"#, word(outcome));
    let error = |word: &str| format!(r#"{{"error":"{word}"}}"#);
    match answer {
        Answer::Stored(Outcome::Replayed) => (400, error(word(Outcome::Replayed))),
        Answer::Stored(stored) => (200, outcome(*stored)),
        Answer::Handshake(reply) => (reply.status, reply.body.clone()),
        Answer::Rejected(rejection) => (400, error(rejection.reason())),
        Answer::ScopeMismatch => (400, error("scope_mismatch")),
        Answer::HandlerFailed => (500, error("handler_failed")),
        Answer::Unavailable | Answer::NotReady => (503, error("unavailable")),
        Answer::InProgress(_) => (409, error("in_progress")),
        Answer::ApplicationFailed(status) => (*status, error("application_failed")),
        Answer::NotFound => (404, error("not_found")),
        Answer::MethodNotAllowed(_) => (405, error("method_not_allowed")),
        Answer::Alive => (200, r#"{"status":"alive"}"#.to_owned()),
        Answer::Ready => (200, r#"{"status":"ready"}"#.to_owned()),
    }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Processed => "processed",
        Outcome::Duplicate => "duplicate",
        Outcome::Ignored => "ignored",
        Outcome::Accepted => "accepted",
        Outcome::Quarantined => "quarantined",
        Outcome::Replayed => "replayed",
    }
}

/// An answer on its way out.
struct Wire {
    status: u16,
    content_type: &'static str,
    body: String,
    /// The outcome or error, where the body does not say it.
    untold: Option<&'static str>,
}

/// Where a provider demands another status or body than ours, it gets it.
fn wire(answer: &Answer, preset: &Preset) -> Wire {
    let (status, body) = status_and_body(answer);
    let mut wire = Wire { status, content_type: "application/json", body, untold: None };
    match answer {
        Answer::Handshake(reply) => wire.content_type = reply.content_type,
        Answer::Stored(Outcome::Replayed) | Answer::ScopeMismatch => {
            wire.status = preset.refusal_status.unwrap_or(status);
        }
        Answer::Rejected(Rejection::EventIdMissing) => wire.status = preset.refusal_status.unwrap_or(status),
        Answer::Rejected(rejection) => {
            wire.status = preset.bad_signature_status;
            if preset.acceptance == Acceptance::Empty {
                wire.body.clear();
                wire.untold = Some(rejection.reason());
            }
        }
        Answer::Stored(outcome) => {
            let (status, content_type, body) = match preset.acceptance {
                Acceptance::Outcome => return wire,
                Acceptance::Empty => (200, "text/plain", ""),
                Acceptance::NoContent => (204, "application/json", ""),
                Acceptance::Twiml => (200, "text/xml", TWIML),
            };
            wire = Wire { status, content_type, body: body.to_owned(), untold: Some(word(*outcome)) };
        }
        Answer::HandlerFailed
        | Answer::Unavailable
        | Answer::InProgress(_)
        | Answer::ApplicationFailed(_)
        | Answer::NotFound
        | Answer::MethodNotAllowed(_)
        | Answer::Alive
        | Answer::Ready
        | Answer::NotReady => {}
    }
    wire
}

/// A TwiML document that says nothing.
const TWIML: &str = r#"<?xml version="1.0" encoding="UTF-8"?><Response/>"#;

/// Sends an answer. Returns its status.
fn answer(way_back: WayBack, answer: &Answer, preset: &Preset) -> u16 {
    let Wire { status, content_type, body, untold } = wire(answer, preset);
    let mut lines = vec![
        ("Date", clock::http_date(clock::now_ms())),
        ("Content-Type", content_type.to_owned()),
        ("Content-Length", body.len().to_string()),
    ];
    if let Some(word) = untold {
        lines.push((OUTCOME_HEADER, word.to_owned()));
    }
    if let Answer::Handshake(_) = answer {
        // a challenge is a stranger's text: no browser may take it for a page
        lines.push(("X-Content-Type-Options", "nosniff".to_owned()));
    }
    let retry_after_s = match answer {
        Answer::InProgress(seconds) => Some(*seconds),
        Answer::ApplicationFailed(_) => Some(RETRY_AFTER_S),
        _ => (status == 503).then_some(RETRY_AFTER_S),
    };
    if let Some(seconds) = retry_after_s {
        lines.push(("Retry-After", seconds.to_string()));
    }
    if let Answer::MethodNotAllowed(allowed) = answer {
        lines.push(("Allow", (*allowed).to_owned()));
    }
    let mut text = format!("HTTP/1.0 {status} {}\r\n", StatusCode(status).default_reason_phrase());
    for (name, value) in lines {
        text.extend([name, ": ", &value, "\r\n"]);
    }
    text.push_str("\r\n");
    text.push_str(&body);
    if let Err(error) = way_back.send(text.as_bytes()) {
        log::debug!("an answer could not be sent: {error}");
    }
    status
}
