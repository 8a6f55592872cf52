//! Primitives that threads share: a lock that survives a panic, and a wake-up counter. This module doesn't know their
//! purpose.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks in spite of a panic in another thread: the protected values are consistent after every statement.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes threads when there may be work.
#[derive(Debug, Default)]
pub struct Wake {
    state: Mutex<Bell>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Bell {
    rung: u64,
    waiting: usize,
}

impl Wake {
    /// Wakes all waiting threads: something was committed.
    pub fn ring(&self) {
        let mut state = lock(&self.state);
        state.rung += 1;
        // every commit calls this, and usually no thread waits
        if state.waiting > 0 {
            self.bell.notify_all();
        }
    }

    /// How often it was rung. Read this before looking for work, so that no ring in between is missed.
    pub fn count(&self) -> u64 {
        lock(&self.state).rung
    }

    /// Waits until it has rung more often than `seen`, at most for `time_max`.
    pub fn wait(&self, seen: u64, time_max: Duration) {
        let mut state = lock(&self.state);
        state.waiting += 1;
        let waited = self.bell.wait_timeout_while(state, time_max, |state| state.rung == seen);
        waited.unwrap_or_else(PoisonError::into_inner).0.waiting -= 1;
    }
}
