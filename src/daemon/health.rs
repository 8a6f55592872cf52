//! Answers commands on this machine whether the daemon runs and is ready, and why not.
//!
//! It uses a Unix socket in the private directory, whose path is in the lock file: it works without the listeners,
//! without a client program in a container, and whatever the addresses are. A stop does not wait for it.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{StartError, spawn};
use crate::store::open;
use crate::store::overview::Report;

/// How long either side waits for the other.
const TIME_MAX: Duration = Duration::from_secs(5);

/// The most bytes of an answer.
const BYTES_MAX: u64 = 64 << 10;

/// The socket, removed when this is dropped.
#[derive(Debug)]
pub(super) struct HealthSocket {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
}

impl HealthSocket {
    /// Answers all processes that can reach `path`, one after the other.
    pub(super) fn serve(
        path: PathBuf,
        report: impl Fn() -> Report + Send + 'static,
    ) -> Result<Self, StartError> {
        let listens = |error| StartError::Other(format!("cannot listen on {}: {error}", path.display()));
        let listener = UnixListener::bind(&path).map_err(listens)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(listens)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        spawn("health", move || {
            while !stop.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok((stream, _)) if !stop.load(Ordering::Acquire) => answer(stream, &report()),
                    Ok(_) => {}
                    // out of descriptors: clients that ask now get no answer
                    Err(_) => std::thread::sleep(Duration::from_millis(100)),
                }
            }
        })?;
        Ok(Self { path, is_over })
    }
}

impl Drop for HealthSocket {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // wakes the thread from its wait
        drop(UnixStream::connect(&self.path));
        drop(fs::remove_file(&self.path));
    }
}

fn answer(mut stream: UnixStream, report: &Report) {
    let written = stream
        .set_write_timeout(Some(TIME_MAX))
        .and_then(|()| stream.write_all(serde_json::json!(report).to_string().as_bytes()));
    if let Err(error) = written {
        log::debug!("the client that asked for the health has gone: {error}");
    }
}

/// Asks the daemon that serves this data directory. `None`: there is none.
///
/// # Errors
/// Where it cannot be asked: it belongs to another user, or does not answer.
pub fn ask(data_dir: &Path) -> io::Result<Option<Report>> {
    let Some(socket) = open::health_socket(data_dir)? else { return Ok(None) };
    let stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(TIME_MAX))?;
    let mut text = String::new();
    (&stream).take(BYTES_MAX).read_to_string(&mut text)?;
    serde_json::from_str(&text).map(Some).map_err(io::Error::other)
}
