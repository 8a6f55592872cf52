//! The daemon: starts and joins every thread, and decides when the process ends and with what code.
//!
//! The order of a start is the order of trust: signals, the lock on the data directory, the addresses
//! (bound, not accepting), the database, the writer (which accepts nothing before a full checkpoint), and the fronts
//! last. A stop goes the other way round.

use std::fmt;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::admin::login::Logins;
use crate::admin::site::Site;
use crate::background::dispatcher::Dispatcher;
use crate::background::worker::{self, Worker};
use crate::background::{self, Background};
use crate::clock;
use crate::config::{self, Address, AdminToken, Config};
use crate::handlers::Registry;
use crate::intake::answer::Answer;
use crate::intake::deliveries::App;
use crate::intake::exchange::{Request, Service};
use crate::intake::front::{self, Relay};
use crate::intake::proxy::Proxy;
use crate::store::inbox;
use crate::store::meta;
use crate::store::open::{self, DataDirLock, FileClaim, OpenError};
use crate::store::writer::{self, Writer, WriterHandle};
use crate::store::{Connection, SqlResult};
use crate::wake::Wake;
use crate::work::endpoint::Endpoint;
use crate::work::target::{Target, TargetError};
use crate::work::timeline;

mod assembly;
mod health;
pub(crate) mod control;
mod own_files;
mod run_dir;
mod systemd;

pub(crate) use crate::store::overview::Report;
pub(crate) use assembly::check;
pub(crate) use health::ask;

use assembly::{Assembly, Folders};
use control::{Control, Door};
use health::HealthSocket;
use run_dir::{RunDir, remove_stale_socket};
use systemd::Probe;

/// How long a stop waits for requests in flight.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(20);

/// The same for the private listener, when the deliveries are done: a page can be asked for again.
const PRIVATE_DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// How long open connections may still send what they are about to, before the idle ones are closed.
const LAST_CALL_TIME: Duration = Duration::from_millis(500);

/// How often a blocked start logs that it waits.
const WAIT_TOLD_EVERY: Duration = Duration::from_secs(5);

/// How often a start looks whether the store is ready.
const READY_TICK: Duration = Duration::from_millis(5);

/// The private listener serves a person or a monitor, not the world.
const ADMIN_CONNECTIONS_MAX: usize = 16;

/// Descriptors left to the private listener and to the connections of its relay.
const ADMIN_DESCRIPTORS: usize = 64;

/// Descriptors for the database, the listeners, signals and logs.
const DESCRIPTORS_KEPT: usize = 32;

/// Why the daemon did not start.
#[derive(Debug)]
pub enum StartError {
    /// The data directory or the database.
    Storage(OpenError),
    /// An address that cannot be listened on.
    Listen {
        /// As configured.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The socket that the service manager was to pass.
    NoSocket(String),
    /// A handler could not start: in a folder of SQL, say, one line for each mistake.
    Handlers(String),
    /// A signal came while the start was waiting for another process.
    Stopped,
    /// Anything else, in one sentence.
    Other(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(error) => write!(f, "{error}"),
            Self::Listen { address, source } => {
                write!(f, "cannot listen on {address}: {source}; {}", advice(address, source))
            }
            Self::NoSocket(reason) => {
                write!(f, "listen.webhooks is \"systemd\": {reason}; or write host:port or unix:PATH")
            }
            Self::Stopped => f.write_str("stopped before it was ready"),
            Self::Handlers(reason) | Self::Other(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(error) => Some(error),
            Self::Listen { source, .. } => Some(source),
            Self::NoSocket(_) | Self::Stopped | Self::Handlers(_) | Self::Other(_) => None,
        }
    }
}

fn advice(address: &str, source: &std::io::Error) -> &'static str {
    let is_unix = address.starts_with("unix:");
    match source.kind() {
        ErrorKind::AddrInUse if is_unix => "is another inboxd running? Choose another address under [listen]",
        ErrorKind::AddrInUse => {
            "is another inboxd running? `ss -ltnp` shows whose the port is (wrangler dev takes 8787 as well); \
             choose another under [listen], or start with `inboxd serve --port N`"
        }
        ErrorKind::AddrNotAvailable => "this machine has no such address; `ip address` shows those it has",
        ErrorKind::PermissionDenied if is_unix => "inboxd's user must be able to write to that directory",
        ErrorKind::PermissionDenied => {
            "ports below 1024 need a privilege: choose a higher one behind the proxy, or grant CAP_NET_BIND_SERVICE"
        }
        ErrorKind::NotFound => "make that directory first",
        _ => "choose another address under [listen]",
    }
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        Self::Storage(error)
    }
}

/// How the daemon ended.
#[derive(Debug)]
pub enum Ended {
    /// It was asked to, and everything in flight was finished or refused.
    Stopped,
    /// The storage failed: the disk's content is unknown until the next start has checked it.
    StorageFailed(String),
    /// The writer panicked: a bug.
    WriterPanicked(String),
}

enum Event {
    Signal,
    Reload,
    WriterEnded(SqlResult<()>),
    WriterPanicked(String),
}

/// A running daemon. Dropping it does not stop it; [`Daemon::wait`] does, when it is time.
pub struct Daemon {
    app: Arc<App>,
    site: Arc<Site>,
    fronts: Vec<front::Handle>,
    front_threads: Vec<JoinHandle<()>>,
    events: Receiver<Event>,
    /// An event that came while waiting to be ready.
    ending: Option<Event>,
    webhooks: Address,
    admin: Option<Address>,
    events_stored: i64,
    background: Background,
    folders: Folders,
    socket_files: Vec<SocketFile>,
    _asked: (HealthSocket, Control),
    run_dir: RunDir,
    /// What feeds the watchdog, until it is set to work.
    probe: Option<Probe>,
    watchdog: Option<Watchdog>,
    _claim: FileClaim,
    _lock: DataDirLock,
}

/// The thread that feeds the service manager's watchdog; dropping the sender ends it.
struct Watchdog {
    _stop: Sender<()>,
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon")
            .field("webhooks", &self.webhooks)
            .field("admin", &self.admin)
            .finish_non_exhaustive()
    }
}

impl Daemon {
    /// Starts everything. When this returns, deliveries are answered; see [`Daemon::wait_until_ready`].
    ///
    /// # Errors
    /// See [`StartError`]; nothing runs then.
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, &Registry::new())
    }

    /// As [`Daemon::start`], for a program with handlers of its own.
    ///
    /// # Errors
    /// See [`StartError`]; nothing runs then.
    pub fn start_with(config: Config, registry: &Registry) -> Result<Self, StartError> {
        let (sender, events) = mpsc::channel();
        watch_signals(&sender)?;
        let lock = open::lock_data_dir(&config.data_dir)?;
        own_files::make_private(&config.data_dir, has_sockets(&config));
        // bound before a database is made, accepting when all else runs: a port that is taken costs nothing
        let mut socket_files = Vec::new();
        let (webhooks_listener, webhooks) = bind(&config.listen.webhooks, &mut socket_files)?;
        let admin = config.listen.admin.as_ref().map(|address| bind(address, &mut socket_files));
        let (admin_listener, admin) = admin.transpose()?.unzip();
        let (home, claim, mut conn) = claim_and_open(&config, &lock, &events)?;
        let Assembly { of_endpoints, folders } = assembly::assemble(&mut conn, &config, registry)?;
        let storage = |source| OpenError::of_sqlite(&config.database, source);
        let (seen, last_sign_ms) = look_back(&conn, &config).map_err(storage)?;
        let handle = start_writer(conn, &config, &sender)?;

        let (proxied, patience) = (proxied(&config), patience(&config));
        let shown = assembly::shown(&config);
        let with_handlers = |(config, handlers)| Arc::new(Endpoint::new(config, handlers));
        let endpoints: Vec<_> = config.endpoints.into_iter().zip(of_endpoints).map(with_handlers).collect();
        let targets = targets(config.destinations, &endpoints)?;
        let (wake, outbox_wake) = (Arc::new(Wake::default()), Arc::new(Wake::default()));
        let proxy = Arc::new(Proxy::new(handle.clone(), &targets));
        let dispatchers = targets.into_iter().map(|target| Dispatcher::new(handle.clone(), target)).collect();
        let pollers = (Worker::new(handle.clone(), &endpoints, worker_settings(&config.worker)), dispatchers);
        let wakes = (Arc::clone(&wake), Arc::clone(&outbox_wake));
        let app = App::new(&endpoints, config.public_url.clone(), handle.clone(), wakes, proxy);
        let app = Arc::new(app.keeping_refused(config.keep_refused));
        let logins = logins(config.admin.tokens)?;
        let site = Site::new(shown, Arc::clone(&app), handle.clone(), Arc::clone(&logins));
        let settings = background::Settings {
            worker_threads: config.worker.threads,
            retention: config.retention,
            proxied,
            alert: config.alert,
            report: config.report,
            database: config.database.clone(),
            seen,
            answers: app.answers(),
            patience,
            last_sign_ms,
        };
        let background = Background::start(pollers, (&wake, &outbox_wake), &handle, settings, &spawn)?;
        let run_dir = RunDir::claim(config.runtime_dir.as_deref(), &config.data_dir)?;
        let control = Control::open(run_dir.path(), &app, Door { logins, address: admin.clone() })?;
        let health = tell_health(&run_dir, &app, &lock, home)?;

        let listeners = [(front::WEBHOOKS, Some(webhooks_listener)), (front::ADMIN, admin_listener)];
        let mut daemon = Self {
            app,
            site: Arc::new(site),
            fronts: Vec::new(),
            front_threads: Vec::new(),
            events,
            ending: None,
            probe: None,
            webhooks,
            admin,
            events_stored: seen.inbox_id,
            background,
            folders,
            socket_files,
            _asked: (health, control),
            run_dir,
            watchdog: None,
            _claim: claim,
            _lock: lock,
        };
        daemon.open_fronts(listeners, &config.listen, &config.limits)?;
        daemon.probe = daemon.look_after(config.database);
        Ok(daemon)
    }

    /// Where webhooks are accepted.
    pub fn webhooks(&self) -> &Address {
        &self.webhooks
    }

    /// Where the private listener is, if it is on.
    pub fn admin(&self) -> Option<&Address> {
        self.admin.as_ref()
    }

    /// Events that the database held at the start, ever.
    pub fn events_stored(&self) -> i64 {
        self.events_stored
    }

    /// Waits until deliveries are accepted. `false`: a signal or a failure came first.
    pub fn wait_until_ready(&mut self) -> bool {
        let mut told_at: Option<Instant> = None;
        while self.app.is_recovering() {
            if told_at.is_none_or(|at| at.elapsed() >= WAIT_TOLD_EVERY) {
                told_at = Some(Instant::now());
                systemd::tell_waiting("moving the WAL into the database file");
            }
            match self.events.recv_timeout(READY_TICK) {
                Ok(Event::Reload) => self.folders.reload(),
                Ok(event) => {
                    self.ending = Some(event);
                    return false;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        if let Some(probe) = self.probe.take() {
            systemd::tell_ready();
            self.watchdog = watch(probe);
        }
        true
    }

    /// Waits for a signal or a failure, then stops: no new connections, what is in flight is finished,
    /// committed and checkpointed. SIGHUP reads the folders of SQL again.
    pub fn wait(mut self) -> Ended {
        if self.ending.is_none() {
            self.wait_until_ready();
        }
        let mut event = self.ending.take().map_or_else(|| self.events.recv(), Ok);
        while let Ok(Event::Reload) = event {
            self.folders.reload();
            event = self.events.recv();
        }
        match event {
            Ok(Event::Signal | Event::Reload) | Err(_) => {
                self.watchdog = None;
                systemd::tell_stopping();
                log::info!("stopping: finishing requests in flight");
                self.close_fronts(DRAIN_TIME_MAX);
                self.stop_writer()
            }
            Ok(Event::WriterEnded(result)) => {
                let reason =
                    result.err().map_or_else(|| "the writer ended".to_owned(), |error| error.to_string());
                log::error!(
                    "the storage failed ({reason}): nothing is accepted any more; \
                     ending so that the next start can look at what is on the disk"
                );
                self.close_fronts(Duration::from_secs(1));
                Ended::StorageFailed(reason)
            }
            Ok(Event::WriterPanicked(reason)) => {
                log::error!(
                    "the writer panicked ({reason}): nothing is accepted any more; ending to start again"
                );
                self.close_fronts(Duration::from_secs(1));
                Ended::WriterPanicked(reason)
            }
        }
    }

    fn close_fronts(&mut self, time_max: Duration) {
        self.app.drain();
        // while it is still ours: the next daemon may bind the path as soon as nobody listens
        self.socket_files.clear();
        let end = Instant::now() + time_max;
        thread::scope(|scope| {
            for front in &self.fronts {
                scope.spawn(|| front.last_call(LAST_CALL_TIME));
            }
        });
        for front in &self.fronts {
            front.stop_accepting();
        }
        for front in &self.fronts {
            let left = end.saturating_duration_since(Instant::now());
            let is_public = front.listener() == front::WEBHOOKS;
            let cut = front.drain(if is_public { left } else { left.min(PRIVATE_DRAIN_TIME_MAX) });
            if cut > 0 {
                log::warn!("{cut} connections were cut: they did not finish their request in time");
            }
        }
        for thread in self.front_threads.drain(..) {
            if thread.join().is_err() {
                log::error!("the front panicked");
            }
        }
    }

    /// With the last handle gone the writer works off its queue, checkpoints and ends.
    fn stop_writer(self) -> Ended {
        // the run directory and the lock go last, with what is left of self
        let Self { app, site, fronts, background, events, .. } = self;
        // whoever waited for another process's lock was answered when the fronts were closed
        app.hurry();
        background.stop();
        // their services hold the app and the site as well
        drop((fronts, site, app));
        let ended = events.iter().find_map(|event| match event {
            Event::WriterEnded(Ok(())) => Some(Ended::Stopped),
            Event::WriterEnded(Err(error)) => Some(Ended::StorageFailed(error.to_string())),
            Event::WriterPanicked(reason) => Some(Ended::WriterPanicked(reason)),
            Event::Signal | Event::Reload => None,
        });
        ended.unwrap_or(Ended::Stopped)
    }

    fn open_fronts(
        &mut self,
        listeners: [(&'static str, Option<front::Listener>); 2],
        listen: &config::Listen,
        limits: &config::Limits,
    ) -> Result<(), StartError> {
        let descriptors = front::raise_descriptor_limit();
        for (name, listener) in listeners {
            if let Some(listener) = listener {
                self.open_front(name, listener, listen, limits, descriptors)?;
            }
        }
        Ok(())
    }

    /// What the watchdog looks at. It holds nothing that a stop waits for.
    fn look_after(&self, database: PathBuf) -> Option<Probe> {
        let counters = Arc::clone(self.fronts.first()?.counters());
        Some(Probe { address: self.webhooks.clone(), counters, app: Arc::downgrade(&self.app), database })
    }

    fn open_front(
        &mut self,
        name: &'static str,
        listener: front::Listener,
        listen: &config::Listen,
        limits: &config::Limits,
        descriptors: usize,
    ) -> Result<(), StartError> {
        let (app, body_bytes_max) = (Arc::downgrade(&self.app), limits.body_bytes_max);
        let of_endpoint = move |path: &str| app.upgrade()?.body_bytes_max(path);
        let is_public = name == front::WEBHOOKS;
        let asking = Arc::clone(&self.app);
        let waits_for_application = (is_public && asking.asks_applications())
            .then(|| -> front::PerPath<bool> { Box::new(move |path| asking.asks_application(path)) });
        let bounds = front::Bounds::default();
        let settings = front::Settings {
            listener: name,
            respond: if is_public { deliveries(&self.app) } else { self.private_service()? },
            connections_max: if is_public { limits.connections_max } else { ADMIN_CONNECTIONS_MAX },
            descriptors_max: if is_public {
                descriptors.saturating_sub(DESCRIPTORS_KEPT + ADMIN_DESCRIPTORS)
            } else {
                ADMIN_DESCRIPTORS - Relay::DESCRIPTORS_MAX
            },
            body_bytes_max: Box::new(move |path| of_endpoint(path).unwrap_or(body_bytes_max)),
            waits_for_application,
            trusted_proxies: listen.trusted_proxies.clone(),
            bounds: front::Bounds {
                requests_max: if is_public { bounds.requests_max } else { Relay::REQUESTS_MAX },
                ..bounds
            },
        };
        let front = front::Front::new(listener, settings)
            .map_err(|error| StartError::Other(format!("cannot serve the {name} listener: {error}")))?;
        let handle = front.handle();
        self.site.count(name, handle.gauge());
        self.fronts.push(handle);
        self.front_threads.push(spawn(name, move || front.run())?);
        Ok(())
    }

    /// Behind tiny_http's server: the probes, and whatever else only this machine and its monitor may ask for. Between
    /// two requests it holds nothing: a stop waits for the end of the writer, and that for all who hold it.
    fn private_service(&self) -> Result<Service, StartError> {
        let site = Arc::downgrade(&self.site);
        let answer = move |request: Request| match site.upgrade() {
            Some(site) => site.respond(&request),
            None => Answer::Unavailable.plain(),
        };
        let relay = Relay::new(self.run_dir.path().to_owned(), Box::new(answer));
        relay.start().map_err(|error| {
            let dir = self.run_dir.path().display();
            StartError::Other(format!("cannot serve the private listener through a socket in {dir}: {error}"))
        })?;
        Ok(Box::new(move |request| relay.respond(request)))
    }
}

/// Who may come in through the private listener.
fn logins(tokens: Vec<AdminToken>) -> Result<Arc<Logins>, StartError> {
    let made = Logins::new(tokens);
    made.map(Arc::new)
        .map_err(|error| StartError::Other(format!("the system gives no random numbers: {error}")))
}

fn deliveries(app: &Arc<App>) -> Service {
    let app = Arc::clone(app);
    Box::new(move |request| app.respond(request))
}

fn start_writer(
    conn: Connection,
    config: &Config,
    events: &Sender<Event>,
) -> Result<WriterHandle, StartError> {
    let limits = &config.limits;
    let settings =
        writer::Settings::new(config.database.clone(), limits.handler_timeout, limits.disk_free_min);
    let (writer, handle) =
        Writer::new(conn, settings).map_err(|source| OpenError::of_sqlite(&config.database, source))?;
    let ended = events.clone();
    spawn("writer", move || tell(&ended, end_of(|| writer.run())))?;
    Ok(handle)
}

/// What the writer's thread ended with. It catches the panics of jobs; this is for those of its own.
fn end_of(run: impl FnOnce() -> SqlResult<()>) -> Event {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => Event::WriterEnded(result),
        Err(panic) => Event::WriterPanicked(writer::panic_text(&*panic).to_owned()),
    }
}

/// What the daemon before has left: how the clock stood, and when it last ran: it has noted so, or has taken an event.
fn look_back(conn: &Connection, config: &Config) -> SqlResult<(timeline::Seen, Option<i64>)> {
    assembly::undeliverable(conn, config)?.iter().for_each(|warning| log::warn!("{warning}"));
    let seen = timeline::Seen::look(conn)?;
    let received = if seen.inbox_id > 0 { inbox::received_at_ms(conn, seen.inbox_id).ok() } else { None };
    Ok((seen, meta::last_sign_ms(conn)?.max(received)))
}

/// The socket for commands on this machine, and its path where they find it.
fn tell_health(
    run_dir: &RunDir,
    app: &App,
    lock: &DataDirLock,
    home: open::Home,
) -> Result<HealthSocket, StartError> {
    let (condition, started_at_ms) = (app.condition(), clock::now_ms());
    let report = move || {
        let reasons = condition.reasons();
        Report {
            pid: std::process::id(),
            ready: reasons.is_empty(),
            reasons,
            started_at_ms,
            answers: condition.answers.counts(),
            unavailable: condition.answers.unavailable(),
        }
    };
    let socket = HealthSocket::serve(run_dir.health_socket(), report)?;
    lock.note(home, Some(&run_dir.health_socket()))?;
    Ok(socket)
}

/// The database file is claimed before SQLite opens it, and given up after SQLite has closed it.
fn claim_and_open(
    config: &Config,
    lock: &DataDirLock,
    events: &Receiver<Event>,
) -> Result<(open::Home, FileClaim, Connection), StartError> {
    let home = assembly::home(config);
    let claim = open::claim_file(&config.database, home, lock)?;
    // an upgrade may take longer than the service manager waits
    let (opened, opening) = mpsc::channel::<()>();
    spawn("opening", move || {
        while opening.recv_timeout(WAIT_TOLD_EVERY) == Err(RecvTimeoutError::Timeout) {
            systemd::tell_waiting("opening the database, or upgrading it");
        }
    })?;
    let conn = open_patiently(&config.database, home, events)?;
    drop(opened);
    lock.note(home, None)?;
    Ok((home, claim, conn))
}

/// Waits for another process that holds the whole file.
fn open_patiently(
    database: &Path,
    home: open::Home,
    events: &Receiver<Event>,
) -> Result<Connection, StartError> {
    patiently(database, events, || match open::open_writer_in(database, home) {
        Err(OpenError::Sql { source, .. }) if open::is_busy_error(&source) => Ok(None),
        opened => opened.map(Some),
    })
}

/// Tries until no other process holds the file, and logs the wait; a signal ends it.
fn patiently<T>(
    database: &Path,
    events: &Receiver<Event>,
    mut attempt: impl FnMut() -> Result<Option<T>, OpenError>,
) -> Result<T, StartError> {
    let mut told_at: Option<Instant> = None;
    loop {
        if let Some(done) = attempt()? {
            return Ok(done);
        }
        if told_at.is_none_or(|at| at.elapsed() >= WAIT_TOLD_EVERY) {
            told_at = Some(Instant::now());
            systemd::tell_waiting("waiting for another process to release the database");
            log::warn!(
                "{}: another process holds the database; waiting until it is released (a shell with an open transaction?)",
                database.display()
            );
        }
        // nothing but signals is sent before the writer runs
        if events.recv_timeout(Duration::from_millis(100)).is_ok() {
            return Err(StartError::Stopped);
        }
    }
}

/// Whether a listener's socket is to lie in the data directory, whose mode then lets its clients in.
fn has_sockets(config: &Config) -> bool {
    let is_inside = |address: &Address| match address {
        Address::Unix(path) => path.starts_with(&config.data_dir),
        Address::Tcp(_) | Address::Systemd => false,
    };
    is_inside(&config.listen.webhooks) || config.listen.admin.as_ref().is_some_and(is_inside)
}

/// The listener's own file; removed when the daemon stops, or does not start.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// The listener, and its address as others reach it: port 0 has become a real one. A Unix socket is for
/// its owner and its group, which is the proxy's.
fn bind(address: &Address, files: &mut Vec<SocketFile>) -> Result<(front::Listener, Address), StartError> {
    let failed = |source| StartError::Listen { address: address.to_string(), source };
    match address {
        Address::Tcp(tcp) => {
            let listener = TcpListener::bind(tcp).map_err(failed)?;
            let bound = listener.local_addr().map_err(failed)?;
            Ok((front::Listener::Tcp(listener), Address::Tcp(bound)))
        }
        Address::Unix(path) => {
            remove_stale_socket(path);
            let listener = UnixListener::bind(path).map_err(failed)?;
            files.push(SocketFile(path.clone()));
            std::fs::set_permissions(path, Permissions::from_mode(0o660)).map_err(failed)?;
            Ok((front::Listener::Unix(listener), address.clone()))
        }
        Address::Systemd => systemd::passed_listener().map_err(StartError::NoSocket),
    }
}

/// Who stops sending an event is given as long as the application's destination would be.
fn proxied(config: &Config) -> Vec<(String, Duration)> {
    let patience = |endpoint: &config::Endpoint| {
        let name = endpoint.forward.first().filter(|_| endpoint.mode == config::Mode::Proxy)?;
        let destination = config.destinations.iter().find(|destination| destination.name == *name)?;
        Some((endpoint.name.clone(), destination.give_up_after))
    };
    config.endpoints.iter().filter_map(patience).collect()
}

/// For how long each endpoint's provider sends again what failed.
fn patience(config: &Config) -> Vec<(String, Duration)> {
    let of = |endpoint: &config::Endpoint| {
        (endpoint.name.clone(), endpoint.verifier.provider().preset().gives_up_after())
    };
    config.endpoints.iter().map(of).collect()
}

fn worker_settings(worker: &config::Worker) -> worker::Settings {
    worker::Settings {
        lease: worker.lease,
        attempts_max: worker.max_attempts,
        backoff_cap: worker.backoff_cap,
    }
}

fn targets(
    destinations: Vec<config::Destination>,
    endpoints: &[Arc<Endpoint>],
) -> Result<Vec<Arc<Target>>, StartError> {
    let failed = |error: TargetError| StartError::Other(error.to_string());
    let target = |destination| Target::new(destination, endpoints).map(Arc::new).map_err(failed);
    destinations.into_iter().map(target).collect()
}

fn watch_signals(events: &Sender<Event>) -> Result<(), StartError> {
    let failed = |error| StartError::Other(format!("cannot watch for signals: {error}"));
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    // with any handler a write beyond `ulimit -f` is an error like that of a full disk, not the end of the process
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(failed)?;
    let events = events.clone();
    spawn("signals", move || {
        for signal in signals.forever() {
            tell(&events, if signal == SIGHUP { Event::Reload } else { Event::Signal });
        }
    })?;
    Ok(())
}

/// Feeds the service manager's watchdog, if there is one. Without food it restarts this process.
fn watch(probe: Probe) -> Option<Watchdog> {
    let every = systemd::watchdog_interval()?;
    let (stop, stopped) = mpsc::channel();
    match spawn("watchdog", move || probe.feed_watchdog(every, &stopped)) {
        Ok(_) => Some(Watchdog { _stop: stop }),
        Err(error) => {
            log::error!("{error}");
            None
        }
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StartError> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|error| {
        StartError::Other(format!("cannot start the thread {name}: {error}; look at TasksMax"))
    })
}

/// Sends an event to the daemon's main loop, which no longer listens once the daemon is ending.
fn tell(events: &Sender<Event>, event: Event) {
    drop(events.send(event));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_panics_is_noticed() {
        let ended = end_of(|| panic!("a bug of the writer"));
        assert!(matches!(ended, Event::WriterPanicked(reason) if reason == "a bug of the writer"));
        assert!(matches!(end_of(|| Ok(())), Event::WriterEnded(Ok(()))));
    }
}
