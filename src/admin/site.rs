//! The private listener's pages: who asks, whether they may, and which page or act it is.
//!
//! Nothing but the metrics, the stylesheet and the login is answered without a session, a token or a Unix socket. An act
//! is a POST with a form token, from a page of this listener, by an operator. A page is read by a connection of its own,
//! which is closed before the answer is written.

use std::sync::{Arc, Mutex};

use maud::{Markup, html};

use crate::clock;
use crate::config::{Instance, Role};
use crate::intake::deliveries::App;
use crate::intake::exchange::{Request, Response};
use crate::intake::front::Gauge;
use crate::store::inbox;
use crate::store::outbox;
use crate::store::writer::{JobError, WriterHandle};
use crate::wake::lock;

use super::acts::{self, By};
use super::bulk::{Bench, Bulk};
use super::frame::{self, outside};
use super::http::{self, Form};
use super::jobs::Jobs;
use super::login::{Logins, Refusal, SESSION_LIFE_MS, Visitor, is_same_text};
use super::metrics::{self, Stored};
use super::pages;
use super::people;
use super::reading::{self, Reading, Transaction};
use super::running::Running;

/// The session's cookie.
const COOKIE: &str = "inboxd_session";

/// How long the figures of the database in `/metrics` are believed.
const STORED_MS: i64 = 2_000;

/// The pages, and who may see them.
#[derive(Debug)]
pub struct Site {
    running: Running,
    logins: Arc<Logins>,
    hosts: Vec<String>,
    writer: WriterHandle,
    stored: Mutex<Option<(i64, Stored)>>,
}

/// What the site needs to know of the configuration.
#[derive(Debug)]
pub struct Configured {
    /// Endpoints, destinations, and where the data is.
    pub instance: Instance,
    /// The configuration in effect as it may be shown.
    pub effective: String,
    /// Names that a request may have as its host, beside addresses and `localhost`.
    pub hosts: Vec<String>,
}

impl Site {
    /// Begins now.
    pub fn new(configured: Configured, app: Arc<App>, writer: WriterHandle, logins: Arc<Logins>) -> Self {
        let Configured { instance, effective, hosts } = configured;
        let running = Running {
            database: instance.database.clone(),
            instance: Arc::new(instance),
            app,
            started_at_ms: clock::now_ms(),
            effective,
            jobs: Jobs::default(),
            gauges: Mutex::default(),
        };
        Self { running, logins, hosts, writer, stored: Mutex::default() }
    }

    /// Counts the connections of one more listener.
    pub fn count(&self, listener: &'static str, gauge: Gauge) {
        lock(&self.running.gauges).push((listener, gauge));
    }

    /// Answers a request of the private listener.
    pub fn respond(&self, request: &Request) -> Response {
        if let Some(answer) = self.running.app.probe(request) {
            return answer.plain();
        }
        if !http::is_known_host(request.header("host"), &self.hosts) {
            return http::text(
                403,
                "this host name is not known here: a page of another site may have sent this request. Use an address, \
                 or name the host in the configuration: [admin] hosts = [\"…\"]",
            );
        }
        let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
        match (request.path(), is_read) {
            ("/metrics", true) => self.metrics(),
            ("/style.css", true) => asset("text/css; charset=utf-8", frame::STYLE),
            ("/script.js", true) => asset("text/javascript; charset=utf-8", frame::SCRIPT),
            ("/login", _) => self.log_in(request),
            _ => match self.visitor(request) {
                Ok(Some(visitor)) => self.respond_to(request, &visitor, is_read),
                Ok(None) => login_page(401, "Log in", None).with("WWW-Authenticate", "Bearer"),
                Err(refusal) => refused(refusal),
            },
        }
    }

    fn respond_to(&self, request: &Request, visitor: &Visitor, is_read: bool) -> Response {
        if is_read {
            return pages::respond(&self.running, request, visitor);
        }
        if request.method != "POST" {
            return http::text(405, "pages are read with GET, and acts are sent with POST")
                .with("Allow", "GET, HEAD, POST");
        }
        let form = http::form(request);
        if let Some(csrf) = &visitor.csrf {
            let is_ours = form.value("csrf").is_some_and(|given| is_same_text(given, csrf));
            if !is_ours || !http::is_same_origin(request) {
                return self.running.said(visitor, 403, "Not done", "The form did not come from a page of this session. Open the page again, and send it from there.");
            }
        }
        if request.path() == "/logout" {
            if let Some(cookie) = http::cookie(request, COOKIE) {
                self.logins.log_out(cookie);
            }
            return login_page(200, "Logged out", None).with("Set-Cookie", &cookie_line("", 0));
        }
        if visitor.role != Role::Operator {
            return self.running.said(
                visitor,
                403,
                "Not done",
                "A viewer sees everything and changes nothing. An operator's token is needed for this.",
            );
        }
        self.act(request.path(), &form, visitor)
    }

    /// Whose request this is; `None`: nobody's who is known.
    fn visitor(&self, request: &Request) -> Result<Option<Visitor>, Refusal> {
        let now_ms = clock::steady_ms();
        if let Some(line) = request.header("authorization") {
            let Some(token) = line.split_once(' ').filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"))
            else {
                return Ok(None);
            };
            return self.logins.visitor_of_bearer(token.1.trim(), now_ms).map(Some);
        }
        if let Some(cookie) = http::cookie(request, COOKIE)
            && let Some(visitor) = self.logins.visitor_of_cookie(cookie, now_ms)
        {
            return Ok(Some(visitor));
        }
        Ok(request.peer_uid.map(|uid| self.logins.visitor_of_socket(&people::name_of(uid))))
    }

    /// A link is a GET, a token in the form is a POST from the page itself.
    fn log_in(&self, request: &Request) -> Response {
        let presented = match request.method.as_str() {
            "GET" => http::query(request).value("token").map(str::to_owned),
            "POST" if !http::is_same_origin(request) => {
                return login_page(403, "Log in", Some("The form did not come from this page."));
            }
            "POST" => http::form(request).value("token").map(str::to_owned),
            _ => return http::text(405, "use GET or POST").with("Allow", "GET, POST"),
        };
        let Some(presented) = presented else { return login_page(401, "Log in", None) };
        match self.logins.log_in(&presented, clock::steady_ms()) {
            Ok(Ok(cookie)) => {
                let seconds = SESSION_LIFE_MS / 1_000;
                http::see_other("/").with("Set-Cookie", &cookie_line(&cookie, seconds))
            }
            Ok(Err(refusal)) => refused(refusal),
            Err(error) => http::text(503, &format!("the system gives no random numbers: {error}")),
        }
    }

    fn metrics(&self) -> Response {
        let now_ms = clock::now_ms();
        let mut stored = lock(&self.stored);
        let is_fresh = stored.as_ref().is_some_and(|(at_ms, _)| (0..STORED_MS).contains(&(now_ms - at_ms)));
        if !is_fresh {
            *stored = match self.running.read(Stored::read) {
                Ok(read) => Some((now_ms, read)),
                Err(error) => {
                    log::warn!("the figures of the database are missing in /metrics: {error}");
                    None
                }
            };
        }
        let text = metrics::text(&self.running.known(now_ms), stored.as_ref().map(|(_, stored)| stored));
        http::answer(200, "text/plain; version=0.0.4; charset=utf-8", text).with("Cache-Control", "no-store")
    }

    /// Commits an act. An error is said on a page.
    fn commit<T: Send + 'static>(
        &self,
        work: impl FnMut(&Transaction<'_>) -> Reading<T> + Send + 'static,
    ) -> Result<T, String> {
        let mut work = work;
        self.writer.run(move |tx| work(tx).map_err(JobError::Sql)).map_err(|error| error.to_string())
    }

    fn act(&self, path: &str, form: &Form, visitor: &Visitor) -> Response {
        let note = form.value("note").map(str::to_owned);
        let by = By { actor: visitor.actor.clone(), note };
        let done = match path {
            "/act/retry" => self.retry(form, by),
            "/act/resolve" => self.resolve(form, by),
            "/act/outbox-retry" => self.retry_row(form, by),
            "/act/pause" | "/act/resume" => self.steer(path == "/act/pause", form, by),
            "/act/bulk" => return self.begin_bulk(form, by, visitor),
            _ => return self.running.said(visitor, 404, "Not found", "There is no such act."),
        };
        match done {
            Ok(sentence) => self.running.said(visitor, 200, "Done", &sentence),
            Err(Refused::Form(sentence)) => self.running.said(visitor, 400, "Not done", &sentence),
            Err(Refused::Gone(sentence)) => self.running.said(visitor, 404, "Not done", &sentence),
            Err(Refused::Store(sentence)) => {
                self.running.said(visitor, 503, "Not done", &format!("Nothing was changed: {sentence}"))
            }
        }
    }

    fn retry(&self, form: &Form, by: By) -> Result<String, Refused> {
        let (Some(endpoint), Some(event_id)) = (form.value("endpoint"), form.value("event_id")) else {
            return Err(Refused::form("The form names no event."));
        };
        let found =
            self.running.read(|conn| inbox::find(conn, event_id, Some(endpoint))).map_err(Refused::Store)?;
        let Some(event) = found.into_iter().next() else {
            return Err(Refused::Gone(format!("There is no event {event_id} on {endpoint}.")));
        };
        let (instance, subject) = (Arc::clone(&self.running.instance), format!("{event_id} on {endpoint}"));
        let fate = self.commit(move |tx| acts::retry(tx, &instance, &event, &by, clock::now_ms()));
        let fate = fate.map_err(Refused::Store)?;
        self.running.app.wake();
        Ok(fate.sentence(&subject, true))
    }

    fn resolve(&self, form: &Form, by: By) -> Result<String, Refused> {
        let Some(id) = form.number("review") else { return Err(Refused::form("The form names no review.")) };
        let Some(note) = by.note.clone() else {
            return Err(Refused::form("Say in the note what was decided; those who come after will ask."));
        };
        let closed = self.commit(move |tx| acts::resolve(tx, id, &note, &by, clock::now_ms()));
        if closed.map_err(Refused::Store)? {
            return Ok(format!("review {id} is closed"));
        }
        Err(Refused::Gone(format!("There is no open review {id}.")))
    }

    fn retry_row(&self, form: &Form, by: By) -> Result<String, Refused> {
        let Some(id) = form.number("row") else { return Err(Refused::form("The form names no row.")) };
        let found = self.running.read(|conn| outbox::find(conn, id)).map_err(Refused::Store)?;
        let Some(row) = found else { return Err(Refused::Gone(format!("There is no outbox row {id}."))) };
        let instance = Arc::clone(&self.running.instance);
        let became = self.commit(move |tx| acts::retry_operation(tx, &instance, &row, &by, clock::now_ms()));
        let became = became.map_err(Refused::Store)?;
        self.running.app.wake();
        Ok(became.sentence(&format!("row {id}"), true))
    }

    fn steer(&self, pauses: bool, form: &Form, by: By) -> Result<String, Refused> {
        let name = form.value("destination").unwrap_or_default().to_owned();
        if !self.running.instance.destinations.contains(&name) {
            return Err(Refused::Gone(format!("There is no destination {name}.")));
        }
        let destination = name.clone();
        let changed = self.commit(move |tx| {
            let now_ms = clock::now_ms();
            if pauses {
                acts::pause(tx, &destination, &by, now_ms)
            } else {
                acts::resume(tx, &destination, &by, now_ms)
            }
        });
        let changed = changed.map_err(Refused::Store)?;
        self.running.app.wake();
        let word = match (pauses, changed) {
            (true, true) => "is paused; what is queued waits",
            (true, false) => "was paused before",
            (false, true) => "is sent to again",
            (false, false) => "was not paused",
        };
        Ok(format!("{name} {word}"))
    }

    fn begin_bulk(&self, form: &Form, by: By, visitor: &Visitor) -> Response {
        let not_done = |status, sentence: &str| self.running.said(visitor, status, "Not done", sentence);
        let Some(bulk) = Bulk::parse(form, clock::now_ms()) else {
            return not_done(400, "The form names no act that goes with this filter.");
        };
        if by.note.is_none() {
            return not_done(400, "Say in the note why; an act over many rows is never without one.");
        }
        let preview = match self.running.read(|conn| bulk.preview(conn)) {
            Ok(preview) => preview,
            Err(error) => return not_done(503, &error),
        };
        let (database, condition, app) =
            (self.running.database.clone(), self.running.app.condition(), Arc::clone(&self.running.app));
        let bench = Bench {
            writer: self.writer.clone(),
            instance: Arc::clone(&self.running.instance),
            reader: Box::new(move || reading::reader(&database)),
            is_stopping: Box::new(move || condition.is_draining()),
        };
        let what = format!("{}: {}", bulk.sentence(), bulk.filter());
        let rows = preview.count.unwrap_or(inbox::browse::COUNTED_MAX);
        let begun = self.running.jobs.begin(what, &visitor.actor, rows, move |job| {
            let ended = bench.run(&bulk, by, job);
            app.wake();
            ended
        });
        match begun {
            Ok(job) => http::see_other(&format!("/jobs/{}", job.number)),
            Err(reason) => not_done(409, &reason),
        }
    }
}

/// Why an act was not done.
enum Refused {
    /// The form is incomplete.
    Form(String),
    /// What it is about is not there.
    Gone(String),
    /// The store could not take it.
    Store(String),
}

impl Refused {
    fn form(sentence: &str) -> Self {
        Self::Form(sentence.to_owned())
    }
}

fn cookie_line(value: &str, seconds: i64) -> String {
    format!("{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict")
}

fn asset(content_type: &str, text: &'static str) -> Response {
    http::answer(200, content_type, text).with("Cache-Control", "private, max-age=300")
}

fn refused(refusal: Refusal) -> Response {
    match refusal {
        Refusal::Wrong => login_page(
            401,
            "Log in",
            Some(
                "This link or token does not open the page: a link works once and for 30 minutes. Make a new one with inboxd admin link.",
            ),
        ),
        Refusal::Wait(seconds) => {
            let sentence = format!(
                "Too many tokens were wrong. Try again in {seconds} s, or make a link with inboxd admin link, which ends the wait."
            );
            login_page(429, "Log in", Some(&sentence)).with("Retry-After", &seconds.to_string())
        }
    }
}

fn login_page(status: u16, title: &str, said: Option<&str>) -> Response {
    let content: Markup = html! {
        @if let Some(said) = said { p .alarm role="alert" { (said) } }
        p { "On the machine itself, " code { "inboxd admin link" } " prints a link that opens this page once." }
        form method="post" action="/login" .filter {
            label { "Or an access token" input type="password" name="token" autocomplete="off" required; }
            button .main { "Log in" }
        }
        p { a href="/" { "I am logged in: open the page" } }
    };
    http::page(status, outside(title, content))
}
