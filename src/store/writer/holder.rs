//! Who holds the database's write lock, asked of the kernel and never by taking the lock.
//!
//! SQLite only reports that the lock is held. If the kernel knows no other holder, it is this process: an unlock
//! failed, and SQLite goes on believing in a lock that will never be released.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::path::Path;

use rustix::process::{Flock, FlockType, fcntl_getlk};

/// The byte of SQLite's write lock in the WAL's index (`UNIX_SHM_BASE`, walformat.html).
const WRITE_LOCK_BYTE: u64 = 120;

/// The kernel's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// Another process, in words.
    Other(String),
    /// No other process.
    NoOther,
    /// The kernel cannot be asked.
    Unknown,
}

/// The WAL's index, open for asking about its locks.
#[derive(Debug)]
pub(super) struct WriteLock {
    /// Never closed: when a process closes any descriptor of a file, SQLite loses its locks on the file (POSIX).
    index: Option<ManuallyDrop<File>>,
}

impl WriteLock {
    /// Opens the WAL's index at this path, which SQLite keeps while a connection is open.
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
