//! What threads share: a lock that outlives a panic, and a bell. Nothing here knows what they are for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A panic elsewhere must not become one here: what these locks protect is whole after every statement.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes threads when there may be work.
#[derive(Debug, Default)]
pub struct Wake {
    rung: Mutex<u64>,
    bell: Condvar,
}

impl Wake {
    /// Something was committed.
    pub fn ring(&self) {
        *lock(&self.rung) += 1;
        self.bell.notify_all();
    }

    /// How often it has rung. Taken before looking for work, so that no ring is missed in between.
    pub fn count(&self) -> u64 {
        *lock(&self.rung)
    }

    /// Waits until it has rung more often than `seen`, at most for `time_max`.
    pub fn wait(&self, seen: u64, time_max: Duration) {
        let rung = lock(&self.rung);
        drop(self.bell.wait_timeout_while(rung, time_max, |rung| *rung == seen));
    }
}
