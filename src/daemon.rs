//! The daemon: starts and joins every thread, and decides when the process ends and with what code.
//!
//! The order of a start is the order of trust: the lock on the data directory, the database, a full
//! checkpoint, the writer, the HTTP workers, and the network last. A stop goes the other way round.

use std::fmt;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config::{self, Address, Config};
use crate::db::{self, DataDirLock, OpenError};
use crate::failpoint;
use crate::front;
use crate::handlers;
use crate::http::App;
use crate::inbox;
use crate::receive::Endpoint;
use crate::writer::{self, Writer};

mod systemd;

use systemd::Probe;

/// How long a stop waits for what is in flight.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(20);

/// How long open connections may still send what they are about to, before the idle ones are closed.
const LAST_CALL_TIME: Duration = Duration::from_millis(500);

/// How often a start that is kept waiting says so.
const WAIT_TOLD_EVERY: Duration = Duration::from_secs(5);

/// The private listener serves a person or a monitor, not the world.
const ADMIN_CONNECTIONS_MAX: usize = 16;

/// Descriptors left to the private listener and tiny_http's side of its requests.
const ADMIN_DESCRIPTORS: usize = 64;

/// Descriptors for the database, the listeners, signals and logs.
const DESCRIPTORS_KEPT: usize = 32;

/// Room for the file name in the 108 bytes that a Unix socket's path may have.
const SOCKET_DIR_BYTES_MAX: usize = 90;

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
    /// Anything else, in one sentence.
    Other(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(error) => write!(f, "{error}"),
            Self::Listen { address, source } => write!(
                f,
                "cannot listen on {address}: {source}; is another inboxd running? Choose another address under [listen]"
            ),
            Self::NoSocket(reason) => {
                write!(f, "listen.webhooks is \"systemd\": {reason}; or write host:port or unix:PATH")
            }
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Storage(error) => Some(error),
            Self::Listen { source, .. } => Some(source),
            Self::NoSocket(_) | Self::Other(_) => None,
        }
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
    /// The storage failed: what is on the disk is unknown until the next start has looked.
    StorageFailed(String),
    /// The HTTP server behind the front accepts no more.
    HttpFailed(String),
}

enum Event {
    Signal,
    WriterEnded(rusqlite::Result<()>),
    HttpFailed(String),
}

/// A running daemon. Dropping it does not stop it; [`Daemon::wait`] does, when it is time.
pub struct Daemon {
    app: Arc<App>,
    server: Arc<tiny_http::Server>,
    fronts: Vec<front::Handle>,
    front_threads: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    events: Receiver<Event>,
    webhooks: Address,
    admin: Option<Address>,
    events_stored: i64,
    socket: PathBuf,
    watchdog: Option<Watchdog>,
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
    /// Starts everything. When this returns, deliveries are accepted.
    ///
    /// # Errors
    /// See [`StartError`]; nothing runs then.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let lock = db::lock_data_dir(&config.data_dir)?;
        let conn = db::open_writer(&config.database)?;
        recover(&conn, &config.database)?;
        let storage = |source| OpenError::Sql { path: config.database.clone(), source };
        let events_stored = inbox::last_id(&conn).map_err(storage)?;
        // bound before any thread runs: a port that is taken ends the start, not the daemon
        let (webhooks_listener, webhooks) = bind(&config.listen.webhooks)?;
        let (admin_listener, admin) = config.listen.admin.as_ref().map(bind).transpose()?.unzip();

        let (sender, events) = mpsc::channel();
        let settings = writer::Settings::new(
            config.database.clone(),
            config.limits.handler_timeout,
            config.limits.disk_free_min,
        );
        let (writer, handle) = Writer::new(conn, settings).map_err(storage)?;
        let ended = sender.clone();
        spawn("writer", move || tell(&ended, Event::WriterEnded(writer.run())))?;

        let endpoints = config.endpoints.into_iter().map(with_handlers).collect::<Result<_, _>>()?;
        let probe_path = systemd::new_probe_path()
            .map_err(|error| StartError::Other(format!("the system gives no random numbers: {error}")))?;
        let app = App::new(endpoints, config.public_url.clone(), handle).with_probe(probe_path.clone());
        let app = Arc::new(app);
        let socket = socket_path(config.runtime_dir.as_deref(), &config.data_dir)?;
        let server = tiny_http::Server::http_unix(&socket)
            .map_err(|error| StartError::Other(format!("cannot listen on {}: {error}", socket.display())))?;
        let server = Arc::new(server);
        let workers = spawn_workers(&app, &server, &sender)?;
        watch_signals(&sender)?;

        let descriptors = front::raise_descriptor_limit();
        let listeners = [(front::WEBHOOKS, Some(webhooks_listener)), (front::ADMIN, admin_listener)];
        let mut daemon = Self {
            app,
            server,
            fronts: Vec::new(),
            front_threads: Vec::new(),
            workers,
            events,
            webhooks,
            admin,
            events_stored,
            socket,
            watchdog: None,
            _lock: lock,
        };
        for (name, listener) in listeners {
            if let Some(listener) = listener {
                daemon.open_front(name, listener, &config.listen, &config.limits, descriptors, &sender)?;
            }
        }
        systemd::tell_ready();
        daemon.watchdog =
            watch(Probe { address: daemon.webhooks.clone(), path: probe_path, database: config.database })?;
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

    /// Waits for a signal or a failure, then stops: no new connections, what is in flight is finished,
    /// committed and checkpointed.
    pub fn wait(mut self) -> Ended {
        match self.events.recv() {
            Ok(Event::Signal) | Err(_) => {
                self.watchdog = None;
                systemd::tell_stopping();
                log::info!("stopping: finishing what is in flight");
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
            Ok(Event::HttpFailed(reason)) => {
                log::error!("the HTTP server behind the front failed: {reason}; ending to start again");
                self.close_fronts(Duration::from_secs(1));
                Ended::HttpFailed(reason)
            }
        }
    }

    fn close_fronts(&mut self, time_max: Duration) {
        self.app.drain();
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
            let cut = front.drain(end.saturating_duration_since(Instant::now()));
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
        let Self { app, server, fronts, workers, events, socket, .. } = self;
        for _ in &workers {
            server.unblock();
        }
        for worker in workers {
            if worker.join().is_err() {
                log::error!("an HTTP worker panicked");
            }
        }
        // the fronts ask the app for size limits, so they hold it as well
        drop((fronts, app));
        let ended = events.iter().find_map(|event| match event {
            Event::WriterEnded(result) => Some(result),
            Event::Signal | Event::HttpFailed(_) => None,
        });
        drop(std::fs::remove_file(socket));
        match ended {
            Some(Err(error)) => Ended::StorageFailed(error.to_string()),
            Some(Ok(())) | None => Ended::Stopped,
        }
    }

    fn open_front(
        &mut self,
        name: &'static str,
        listener: front::Listener,
        listen: &config::Listen,
        limits: &config::Limits,
        descriptors: usize,
        events: &Sender<Event>,
    ) -> Result<(), StartError> {
        let app = Arc::clone(&self.app);
        let body_bytes_max = limits.body_bytes_max;
        let failed = events.clone();
        let is_public = name == front::WEBHOOKS;
        let settings = front::Settings {
            listener: name,
            upstream_socket: self.socket.clone(),
            connections_max: if is_public { limits.connections_max } else { ADMIN_CONNECTIONS_MAX },
            descriptors_max: if is_public {
                descriptors.saturating_sub(DESCRIPTORS_KEPT + ADMIN_DESCRIPTORS)
            } else {
                ADMIN_DESCRIPTORS
            },
            body_bytes_max: Box::new(move |path| app.body_bytes_max(path).unwrap_or(body_bytes_max)),
            trusted_proxies: listen.trusted_proxies.clone(),
            bounds: front::Bounds::default(),
            on_dead: Box::new(move |error| tell(&failed, Event::HttpFailed(error.to_string()))),
        };
        let front = front::Front::new(listener, settings)
            .map_err(|error| StartError::Other(format!("cannot serve the {name} listener: {error}")))?;
        self.fronts.push(front.handle());
        self.front_threads.push(spawn(name, move || front.run())?);
        Ok(())
    }
}

/// After a failed fsync the log may hold frames that never reached the disk; moved into the database
/// file and cut, they cannot hide what is appended behind them. Not ready before that.
fn recover(conn: &rusqlite::Connection, database: &Path) -> Result<(), StartError> {
    let mut told_at: Option<Instant> = None;
    failpoint::reach("recovery_before");
    loop {
        match db::checkpoint(conn, "TRUNCATE") {
            Ok(done) if !done.busy => {
                failpoint::reach("recovery_after");
                return Ok(());
            }
            Ok(_) => {}
            Err(error) if db::is_busy_error(&error) => {}
            Err(source) => return Err(OpenError::Sql { path: database.to_path_buf(), source }.into()),
        }
        if told_at.is_none_or(|at| at.elapsed() >= WAIT_TOLD_EVERY) {
            told_at = Some(Instant::now());
            systemd::tell_waiting("waiting for another process to let go of the database");
            log::warn!(
                "{}: another process holds the database; waiting until it lets go (a shell with an open transaction?)",
                database.display()
            );
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The listener, and its address as others reach it: port 0 has become a real one.
fn bind(address: &Address) -> Result<(front::Listener, Address), StartError> {
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
            Ok((front::Listener::Unix(listener), address.clone()))
        }
        Address::Systemd => systemd::passed_listener().map_err(StartError::NoSocket),
    }
}

/// A socket that nobody listens on is left over from a process that was killed.
fn remove_stale_socket(path: &Path) {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        drop(std::fs::remove_file(path));
    }
}

/// The socket between front and tiny_http, in a directory that nobody else can enter.
fn socket_path(runtime_dir: Option<&Path>, data_dir: &Path) -> Result<PathBuf, StartError> {
    let mut dir = runtime_dir.map_or_else(|| data_dir.join("run"), Path::to_owned);
    if dir.as_os_str().len() > SOCKET_DIR_BYTES_MAX {
        dir = std::env::temp_dir().join(format!("inboxd-{}", std::process::id()));
    }
    db::create_private_dir(&dir)?;
    let socket = dir.join("http.sock");
    remove_stale_socket(&socket);
    Ok(socket)
}

fn with_handlers(config: config::Endpoint) -> Result<Endpoint, StartError> {
    let handler = |name: &String| {
        handlers::built_in(name).ok_or_else(|| StartError::Other(format!("there is no handler {name}")))
    };
    let handlers = config.handlers.iter().map(handler).collect::<Result<_, _>>()?;
    Ok(Endpoint { config, handlers })
}

fn spawn_workers(
    app: &Arc<App>,
    server: &Arc<tiny_http::Server>,
    events: &Sender<Event>,
) -> Result<Vec<JoinHandle<()>>, StartError> {
    let count = thread::available_parallelism().map_or(2, |n| n.get().max(2));
    let worker = |index: usize| {
        let (app, server, events) = (Arc::clone(app), Arc::clone(server), events.clone());
        spawn(&format!("http-{index}"), move || {
            if let Err(error) = app.serve(&server) {
                tell(&events, Event::HttpFailed(error.to_string()));
            }
        })
    };
    (0..count).map(worker).collect()
}

fn watch_signals(events: &Sender<Event>) -> Result<(), StartError> {
    let mut signals = Signals::new([SIGTERM, SIGINT])
        .map_err(|error| StartError::Other(format!("cannot watch for signals: {error}")))?;
    let events = events.clone();
    spawn("signals", move || {
        for _ in signals.forever() {
            tell(&events, Event::Signal);
        }
    })?;
    Ok(())
}

/// Feeds the service manager's watchdog, where there is one.
fn watch(probe: Probe) -> Result<Option<Watchdog>, StartError> {
    let Some(every) = systemd::watchdog_interval() else {
        return Ok(None);
    };
    let (stop, stopped) = mpsc::channel();
    spawn("watchdog", move || probe.feed_watchdog(every, &stopped))?;
    Ok(Some(Watchdog { _stop: stop }))
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StartError> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|error| {
        StartError::Other(format!("cannot start the thread {name}: {error}; look at TasksMax"))
    })
}

/// Nobody listens any more once the daemon is ending: then there is nobody to tell.
fn tell(events: &Sender<Event>, event: Event) {
    drop(events.send(event));
}
