//! The private channel from the command line to the running daemon: a socket in the run directory, which only this
//! user can enter.
//!
//! One request per connection: a line of JSON, answered by lines of JSON. It changes nothing, and no listener leads
//! to it.

use std::fs::{self, Permissions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{StartError, spawn};
use crate::admin::login::Logins;
use crate::admin::people;
use crate::clock;
use crate::config::Address;
use crate::intake::deliveries::App;
use crate::store::open;

/// The socket's name in the run directory.
const NAME: &str = "control.sock";

/// The most bytes of a request.
const REQUEST_BYTES_MAX: u64 = 4 << 10;

/// The answer to one of them: bodies of 1 MiB, written as base64.
const ANSWER_BYTES_MAX: u64 = 32 << 20;

/// The time limit for either side to read or write.
const TIME_MAX: Duration = Duration::from_secs(10);

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
pub enum Ask {
    /// A link that opens the private listener's page once.
    AdminLink {
        /// The user who asks.
        uid: u32,
    },
    /// All kept refused deliveries, the oldest first.
    RefusedList,
    /// One of these deliveries.
    RefusedShow {
        /// Counted from 1 since the start.
        number: u64,
    },
    /// The verifier's judgement of one.
    RefusedVerify {
        /// Counted from 1 since the start.
        number: u64,
    },
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// No daemon listens.
    NotRunning,
    /// The daemon keeps no refused deliveries.
    Off,
    /// The daemon doesn't keep that delivery, or not all of it; a sentence.
    Missing(String),
    /// Anything else.
    Io(io::Error),
}

impl From<io::Error> for NoAnswer {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The private listener, and who is let in.
#[derive(Debug)]
pub(super) struct Door {
    /// Makes links.
    pub(super) logins: Arc<Logins>,
    /// Where the listener is; `None`: it is off.
    pub(super) address: Option<Address>,
}

/// The socket at work; dropping it removes the file.
#[derive(Debug)]
pub(super) struct Control {
    socket: PathBuf,
}

impl Control {
    pub(super) fn open(run_dir: &Path, app: &Arc<App>, door: Door) -> Result<Self, StartError> {
        let control = Self { socket: run_dir.join(NAME) };
        control.remove();
        let failed = |error: io::Error| {
            StartError::Other(format!("cannot listen on {}: {error}", control.socket.display()))
        };
        let listener = UnixListener::bind(&control.socket).map_err(failed)?;
        fs::set_permissions(&control.socket, Permissions::from_mode(0o600)).map_err(failed)?;
        let app = Arc::downgrade(app);
        spawn("control", move || serve(&listener, &app, &door))?;
        Ok(control)
    }

    fn remove(&self) {
        drop(fs::remove_file(&self.socket));
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Ends with the process. It holds only a weak reference to the app, because the writer waits for the app's end.
fn serve(listener: &UnixListener, app: &Weak<App>, door: &Door) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Err(error) = answer(&stream, app, door) {
                    log::debug!("the command line was not answered: {error}");
                }
            }
            Err(error) => {
                log::warn!("the command line cannot reach this process: {error}");
                thread::sleep(TIME_MAX);
            }
        }
    }
}

fn answer(stream: &UnixStream, app: &Weak<App>, door: &Door) -> io::Result<()> {
    stream.set_read_timeout(Some(TIME_MAX))?;
    stream.set_write_timeout(Some(TIME_MAX))?;
    let mut request = String::new();
    BufReader::new(stream).take(REQUEST_BYTES_MAX).read_line(&mut request)?;
    let lines = match (serde_json::from_str(&request), app.upgrade()) {
        (Ok(Ask::AdminLink { uid }), Some(_)) => vec![door.link(uid)],
        (Ok(ask), Some(app)) => respond(&app, ask),
        (Ok(_), None) => vec![json!({"error": "missing", "why": "the daemon is stopping"})],
        (Err(error), _) => {
            vec![json!({"error": "missing", "why": format!("the request is not understood: {error}")})]
        }
    };
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let mut out = stream;
    out.write_all(text.as_bytes())
}

impl Door {
    /// Whoever can reach this socket is this user or root, and says who asked.
    fn link(&self, uid: u32) -> Value {
        let Some(address) = &self.address else { return json!({ "error": "off" }) };
        let actor = format!("link:{}", people::name_of(uid));
        let token = match self.logins.make_link(&actor, clock::steady_ms()) {
            Ok(token) => token,
            Err(error) => {
                return json!({ "error": "missing", "why": format!("the system gives no random numbers: {error}") });
            }
        };
        match address {
            Address::Unix(path) => {
                json!({ "url": format!("http://localhost:8788/login?token={token}"), "socket": path.display().to_string() })
            }
            Address::Tcp(tcp) if tcp.ip().is_unspecified() => {
                json!({ "url": format!("http://localhost:{}/login?token={token}", tcp.port()) })
            }
            Address::Tcp(tcp) => json!({ "url": format!("http://{tcp}/login?token={token}") }),
            Address::Systemd => json!({ "error": "missing", "why": "the address is the service manager's" }),
        }
    }
}

fn respond(app: &App, ask: Ask) -> Vec<Value> {
    let kept = app.refused();
    let missing = |why: &str| vec![json!({"error": "missing", "why": why})];
    let number = match ask {
        _ if !kept.is_on() => return vec![json!({"error": "off"})],
        Ask::AdminLink { .. } => return Vec::new(),
        Ask::RefusedList => return kept.all().iter().map(|refused| refused.line()).collect(),
        Ask::RefusedShow { number } | Ask::RefusedVerify { number } => number,
    };
    let found = kept.all().into_iter().find(|refused| refused.number == number);
    let Some(refused) = found else {
        return missing(&format!("there is no refused delivery {number}, or it is no longer kept"));
    };
    let Some(verifier) = app.verifier_of(&refused.endpoint) else {
        return missing("its endpoint is gone");
    };
    match ask {
        Ask::RefusedVerify { .. } => match refused.report(verifier) {
            Some(report) => vec![serde_json::from_str(&report.to_json()).unwrap_or_default()],
            None => missing("its body was larger than 1 MiB and is not kept"),
        },
        Ask::RefusedShow { .. } | Ask::RefusedList | Ask::AdminLink { .. } => vec![refused.whole(verifier)],
    }
}

/// Asks the daemon that works in this data directory.
///
/// # Errors
/// See [`NoAnswer`].
pub fn ask(data_dir: &Path, ask: Ask) -> Result<Vec<Value>, NoAnswer> {
    // the lock file says where the other socket of the run directory is
    let health = open::health_socket(data_dir)?.ok_or(NoAnswer::NotRunning)?;
    let socket = health.with_file_name(NAME);
    let mut stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
            return Err(NoAnswer::NotRunning);
        }
        Err(error) => return Err(error.into()),
    };
    stream.set_read_timeout(Some(TIME_MAX))?;
    stream.set_write_timeout(Some(TIME_MAX))?;
    stream.write_all(format!("{}\n", serde_json::to_string(&ask).map_err(io::Error::other)?).as_bytes())?;
    let mut text = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut text)?;
    let lines: Vec<Value> =
        text.lines().map(serde_json::from_str).collect::<Result<_, _>>().map_err(io::Error::other)?;
    match lines.first().and_then(|line| line["error"].as_str()) {
        Some("off") => Err(NoAnswer::Off),
        Some(_) => Err(NoAnswer::Missing(lines[0]["why"].as_str().unwrap_or_default().to_owned())),
        None => Ok(lines),
    }
}
