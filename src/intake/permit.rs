//! A counting permit: so many at a time; whoever finds none free waits for a while, or is refused.
//!
//! It knows nothing of what it is for, and holds nothing but a count.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::wake::lock;

/// The permits of one kind.
#[derive(Debug)]
pub struct Permits {
    count: Mutex<Count>,
    freed: Condvar,
    waiting_max: usize,
}

#[derive(Debug)]
struct Count {
    free: usize,
    waiting: usize,
}

impl Permits {
    /// So many, and at most `waiting_max` that wait for one.
    pub fn new(permits_max: usize, waiting_max: usize) -> Self {
        let count = Mutex::new(Count { free: permits_max, waiting: 0 });
        Self { count, freed: Condvar::new(), waiting_max }
    }

    /// One of them. `None` where none becomes free within `at_most`, or too many wait already.
    pub fn take(&self, at_most: Duration) -> Option<Permit<'_>> {
        let mut count = lock(&self.count);
        if count.free == 0 {
            if count.waiting >= self.waiting_max {
                return None;
            }
            count.waiting += 1;
            let waited = self.freed.wait_timeout_while(count, at_most, |count| count.free == 0);
            (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
            count.waiting -= 1;
        }
        count.free = count.free.checked_sub(1)?;
        Some(Permit(self))
    }
}

/// Given back when it is dropped.
#[derive(Debug)]
pub struct Permit<'a>(&'a Permits);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut count = lock(&self.0.count);
        count.free += 1;
        if count.waiting > 0 {
            self.0.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn no_more_are_given_out_than_there_are() {
        let permits = Permits::new(2, usize::MAX);
        let (first, _second) = (permits.take(AT_ONCE).unwrap(), permits.take(AT_ONCE).unwrap());
        assert!(permits.take(AT_ONCE).is_none());
        drop(first);
        assert!(permits.take(AT_ONCE).is_some());
    }

    #[test]
    fn one_who_waits_gets_what_is_given_back_and_one_too_many_is_refused_at_once() {
        let permits = Permits::new(1, 1);
        let held = permits.take(AT_ONCE).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| permits.take(LONG).is_some());
            while lock(&permits.count).waiting == 0 {
                std::thread::yield_now();
            }
            assert!(permits.take(LONG).is_none(), "only one may wait");
            drop(held);
            assert!(waits.join().unwrap());
        });
    }
}
