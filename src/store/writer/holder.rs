//! Who holds the database's write lock, asked of the kernel and never by taking the lock.
//!
//! SQLite says only that somebody does. Where the kernel knows of no other process it is this one: an unlock
//! failed, and SQLite goes on believing in a lock that nobody will give back.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::path::Path;

use rustix::process::{Flock, FlockType, fcntl_getlk};

/// Where SQLite has the lock of writers in the WAL's index (`UNIX_SHM_BASE`, walformat.html).
const WRITE_LOCK_BYTE: u64 = 120;

/// What the kernel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// Another process, in words.
    Other(String),
    /// No other process.
    NoOther,
    /// It cannot be asked.
    Unknown,
}

/// The WAL's index, open for questions.
#[derive(Debug)]
pub(super) struct WriteLock {
    /// Never closed: a process that closes any descriptor of a file loses the locks SQLite has on it.
    index: Option<ManuallyDrop<File>>,
}

impl WriteLock {
    /// Of the WAL's index at this path, which SQLite keeps while a connection is open.
    pub(super) fn of(index: &Path) -> Self {
        Self { index: File::open(index).ok().map(ManuallyDrop::new) }
    }

    pub(super) fn holder(&self) -> Holder {
        let Some(index) = &self.index else { return Holder::Unknown };
        let question = Flock { start: WRITE_LOCK_BYTE, length: 1, ..Flock::from(FlockType::WriteLock) };
        match fcntl_getlk(&**index, &question) {
            Ok(None) => Holder::NoOther,
            Ok(Some(held)) => Holder::Other(in_words(held.pid.map(|pid| pid.as_raw_nonzero().get()))),
            Err(_) => Holder::Unknown,
        }
    }
}

/// A process of another container has no number here.
fn in_words(pid: Option<i32>) -> String {
    let Some(pid) = pid.filter(|pid| *pid > 0) else { return "another process".to_owned() };
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim_end() {
        "" => format!("process {pid}"),
        name => format!("process {pid} ({name})"),
    }
}
