//! The HTTP side of a delivery: routes by path, verifies, hands the job to the writer, and maps what
//! became of it to an answer in one exhaustive `match`.
//!
//! Requests come from the front alone, complete and well-formed, over a private Unix socket. A worker
//! never waits for the store: the request goes along with its job and is answered after COMMIT.

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tiny_http::{Header, Method, Request, Response, StatusCode};

use crate::clock;
use crate::front;
use crate::receive::{self, Disposition, Endpoint, Outcome};
use crate::verify::{Delivery, Headers, Rejection, VerifiedEvent};
use crate::writer::{WriteError, WriterHandle};

/// Seconds after which a sender is asked to try again.
const RETRY_AFTER_S: u32 = 5;

/// What all workers share.
#[derive(Debug)]
pub struct App {
    endpoints: HashMap<String, Arc<Endpoint>>,
    public_url: Option<String>,
    writer: WriterHandle,
    is_draining: AtomicBool,
    probe_path: Option<String>,
}

/// Everything the daemon answers with.
#[derive(Debug)]
enum Answer {
    Stored(Outcome),
    Rejected(Rejection),
    ScopeMismatch,
    HandlerFailed,
    Unavailable,
    NotFound,
    MethodNotAllowed,
    Alive,
    Ready,
    NotReady,
}

impl App {
    /// Endpoints by their paths, and where their jobs go.
    pub fn new(endpoints: Vec<Endpoint>, public_url: Option<String>, writer: WriterHandle) -> Self {
        let by_path = |endpoint: Endpoint| (endpoint.config.path.clone(), Arc::new(endpoint));
        Self {
            endpoints: endpoints.into_iter().map(by_path).collect(),
            public_url,
            writer,
            is_draining: AtomicBool::new(false),
            probe_path: None,
        }
    }

    /// Answers GET on `path`, which nobody else can know, once the writer has come round.
    #[must_use]
    pub fn with_probe(self, path: String) -> Self {
        Self { probe_path: Some(path), ..self }
    }

    /// From now on `/readyz` says no; deliveries in flight are still answered.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// The largest body that may be sent to a path, in bytes; `None` for a path that takes none.
    pub fn body_bytes_max(&self, path: &str) -> Option<usize> {
        self.endpoints.get(route(path)).map(|endpoint| endpoint.config.body_bytes_max)
    }

    /// Serves requests until the server is unblocked or its listener is gone.
    ///
    /// # Errors
    /// When tiny_http can accept no more connections; the process has to start again.
    pub fn serve(&self, server: &tiny_http::Server) -> io::Result<()> {
        loop {
            let request = server.recv()?;
            if catch_unwind(AssertUnwindSafe(|| self.handle(request))).is_err() {
                log::error!("a request handler panicked; its sender got a 500 and will try again");
            }
        }
    }

    fn handle(&self, mut request: Request) {
        let path = request.url().split('?').next().unwrap_or_default().to_owned();
        let listener = header(&request, front::LISTENER_HEADER).unwrap_or_default();
        match path.as_str() {
            "/livez" => self.probe(request, Answer::Alive),
            "/readyz" => {
                let is_ready =
                    self.writer.health().obstacle().is_none() && !self.is_draining.load(Ordering::Acquire);
                self.probe(request, if is_ready { Answer::Ready } else { Answer::NotReady });
            }
            path if self.probe_path.as_deref() == Some(path) => {
                self.writer.probe(move || answer(request, &Answer::Alive));
            }
            path => match self.endpoints.get(route(path)).filter(|_| listener == front::WEBHOOKS) {
                None => answer(request, &Answer::NotFound),
                Some(_) if *request.method() != Method::Post => answer(request, &Answer::MethodNotAllowed),
                Some(endpoint) => match read_body(&mut request) {
                    Ok(body) => self.receive(request, endpoint, body),
                    // the front sends complete requests only: it has gone away
                    Err(error) => log::debug!("a request ended early: {error}"),
                },
            },
        }
    }

    fn probe(&self, request: Request, result: Answer) {
        match request.method() {
            Method::Get | Method::Head => answer(request, &result),
            _ => answer(request, &Answer::MethodNotAllowed),
        }
    }

    /// Verifies one delivery and hands it to the writer, the request with it.
    fn receive(&self, request: Request, endpoint: &Arc<Endpoint>, body: Vec<u8>) {
        let now_ms = clock::now_ms();
        let event = match self.verify(&request, endpoint, body, now_ms) {
            Ok(event) => event,
            Err(rejection) => {
                log_rejection(&request, endpoint, &rejection);
                return answer(request, &Answer::Rejected(rejection));
            }
        };
        let disposition = receive::disposition(endpoint, &event);
        if disposition == Disposition::ScopeMismatch {
            log::info!(
                "refused endpoint={} event_id={} reason=scope_mismatch: the event is of another mode or account",
                endpoint.config.name,
                event.event_id()
            );
            return answer(request, &Answer::ScopeMismatch);
        }
        let endpoint = Arc::clone(endpoint);
        let told = Told { endpoint: endpoint.config.name.clone(), event_id: event.event_id().to_owned() };
        self.writer.submit(
            move |tx| receive::store(tx, &endpoint, &event, &disposition, now_ms),
            move |result| answer(request, &told.answer_to(result)),
        );
    }

    fn verify(
        &self,
        request: &Request,
        endpoint: &Endpoint,
        body: Vec<u8>,
        now_ms: i64,
    ) -> Result<VerifiedEvent, Rejection> {
        let headers = headers(request);
        let url = match &self.public_url {
            Some(base) => format!("{base}{}", request.url()),
            None => request.url().to_owned(),
        };
        let delivery = Delivery { method: request.method().as_str(), url: &url, headers: &headers, body };
        endpoint.config.verifier.verify(delivery, now_ms)
    }
}

/// Who is told what became of a job: the log, and through it the operator.
struct Told {
    endpoint: String,
    event_id: String,
}

impl Told {
    fn answer_to(&self, result: Result<Outcome, WriteError>) -> Answer {
        let Self { endpoint, event_id } = self;
        match result {
            Ok(outcome) => {
                log::debug!("stored endpoint={endpoint} event_id={event_id} outcome={}", word(outcome));
                Answer::Stored(outcome)
            }
            Err(WriteError::Job(error)) => {
                log::warn!(
                    "failed endpoint={endpoint} event_id={event_id} outcome=handler_failed: {error}; nothing was stored, the provider will send it again"
                );
                Answer::HandlerFailed
            }
            Err(WriteError::Unavailable(reason)) => {
                log::warn!("refused endpoint={endpoint} event_id={event_id} outcome=unavailable: {reason}");
                Answer::Unavailable
            }
        }
    }
}

/// A trailing slash is fine; a redirect would lose the event.
fn route(path: &str) -> &str {
    match path.strip_suffix('/') {
        Some("") | None => path,
        Some(stripped) => stripped,
    }
}

fn read_body(request: &mut Request) -> io::Result<Vec<u8>> {
    let mut body = Vec::with_capacity(request.body_length().unwrap_or(0));
    request.as_reader().read_to_end(&mut body)?;
    Ok(body)
}

fn headers(request: &Request) -> Headers {
    let mut headers = Headers::default();
    for header in request.headers() {
        headers.push(header.field.as_str().as_str(), header.value.as_str());
    }
    headers
}

fn header<'a>(request: &'a Request, name: &'static str) -> Option<&'a str> {
    request.headers().iter().find(|header| header.field.equiv(name)).map(|header| header.value.as_str())
}

fn log_rejection(request: &Request, endpoint: &Endpoint, rejection: &Rejection) {
    let name = &endpoint.config.name;
    let peer = header(request, front::PEER_HEADER).unwrap_or("-");
    let reason = rejection.reason();
    match rejection {
        Rejection::TimestampOutsideTolerance { skew_s } => {
            log::info!("refused endpoint={name} peer={peer} reason={reason} skew_s={skew_s}");
        }
        Rejection::SignatureMissing | Rejection::EventIdMissing => {
            let names: Vec<_> =
                request.headers().iter().map(|header| header.field.as_str().as_str()).collect();
            log::info!("refused endpoint={name} peer={peer} reason={reason} headers={}", names.join(","));
        }
        Rejection::SignatureMalformed | Rejection::SignatureMismatch => {
            log::info!("refused endpoint={name} peer={peer} reason={reason}");
        }
    }
}

/// The contract with senders: one status and one line for each answer.
fn status_and_body(answer: &Answer) -> (u16, String) {
    let outcome = |outcome| format!(r#"{{"outcome":"{}"}}"#, word(outcome));
    let error = |word: &str| format!(r#"{{"error":"{word}"}}"#);
    match answer {
        Answer::Stored(stored) => (200, outcome(*stored)),
        Answer::Rejected(rejection) => (400, error(rejection.reason())),
        Answer::ScopeMismatch => (400, error("scope_mismatch")),
        Answer::HandlerFailed => (500, error("handler_failed")),
        Answer::Unavailable | Answer::NotReady => (503, error("unavailable")),
        Answer::NotFound => (404, error("not_found")),
        Answer::MethodNotAllowed => (405, error("method_not_allowed")),
        Answer::Alive => (200, r#"{"status":"alive"}"#.to_owned()),
        Answer::Ready => (200, r#"{"status":"ready"}"#.to_owned()),
    }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Processed => "processed",
        Outcome::Duplicate => "duplicate",
        Outcome::Ignored => "ignored",
        Outcome::Quarantined => "quarantined",
    }
}

fn answer(request: Request, answer: &Answer) {
    let (status, body) = status_and_body(answer);
    let mut response = Response::from_string(body)
        .with_status_code(StatusCode(status))
        .with_header(constant_header("Content-Type", "application/json"));
    match answer {
        Answer::Unavailable | Answer::NotReady => {
            response.add_header(constant_header("Retry-After", &RETRY_AFTER_S.to_string()));
        }
        Answer::MethodNotAllowed => {
            let allowed = match request.url().split('?').next() {
                Some("/livez" | "/readyz") => "GET, HEAD",
                _ => "POST",
            };
            response.add_header(constant_header("Allow", allowed));
        }
        Answer::Stored(_)
        | Answer::Rejected(_)
        | Answer::ScopeMismatch
        | Answer::HandlerFailed
        | Answer::NotFound
        | Answer::Alive
        | Answer::Ready => {}
    }
    if let Err(error) = request.respond(response) {
        log::debug!("an answer could not be sent: {error}");
    }
}

#[allow(clippy::expect_used, reason = "names and values are constants of this module")]
fn constant_header(name: &str, value: &str) -> Header {
    Header::from_bytes(name, value).expect("a valid header")
}
