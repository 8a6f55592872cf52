//! The end of the threads in the background: each looks here between two steps, and a stop ends every wait at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::store::writer::WriteError;
use crate::wake::Wake;

/// The pause before the store is tried again.
const STORE_PAUSE: Duration = Duration::from_millis(100);

/// Tells the threads to end, and wakes those that wait.
#[derive(Debug, Default)]
pub(super) struct Stop {
    is_set: AtomicBool,
    bell: Wake,
}

impl Stop {
    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    pub(super) fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Waits, unless a stop comes first; `false` after a stop.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let seen = self.bell.count();
        if !self.is_set() {
            self.bell.wait(seen, time);
        }
        !self.is_set()
    }

    /// Writes something as soon as the store is ready; `None`: a stop came first.
    pub(super) fn until_ready<T>(&self, write: impl Fn() -> Result<T, WriteError>) -> Option<T> {
        loop {
            match write() {
                Ok(written) => return Some(written),
                Err(error) if self.pause(STORE_PAUSE) => log::debug!("the store is not ready yet: {error}"),
                Err(_) => return None,
            }
        }
    }
}
