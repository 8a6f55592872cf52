//! The loop of workers and dispatchers: release the leases of the previous process, then step after step, with a wait
//! when nothing is due.
//!
//! What a step does, and the SQL of its queue, is the [`Poller`]'s own; here stands what is the same for both. A step
//! is given its time, so that tests drive it without threads or sleeps.

use std::sync::Mutex;
use std::time::Duration;

use super::stop::Stop;
use super::upkeep::Watch;
use crate::clock;
use crate::store::Transaction;
use crate::store::writer::{JobError, WriteError, WriterHandle};
use crate::wake::{Wake, lock};
use crate::work::lease;
use crate::work::retry;

/// The longest wait between two looks at the queue: a due time may have been changed by another process.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(1);

/// How long to wait when the store takes nothing.
const STORE_PAUSE: Duration = Duration::from_millis(500);

/// How long to wait while a jump of the clock is not noted: nothing may be judged by its age.
const JUMP_PAUSE: Duration = Duration::from_millis(100);

/// What one step is taken with.
#[derive(Debug, Clone)]
pub struct Tick {
    /// Unique for this step.
    pub lease_id: String,
    /// The time, in milliseconds since the epoch.
    pub now_ms: i64,
    /// The time of a clock that nobody sets, in milliseconds; see [`crate::clock::steady_ms`].
    pub steady_ms: i64,
    /// Spreads the waits; see [`retry::backoff`].
    pub random: u64,
}

impl Tick {
    fn now() -> Self {
        let now_ms = clock::now_ms();
        Self {
            lease_id: lease::new_id(now_ms),
            now_ms,
            steady_ms: clock::steady_ms(),
            random: getrandom::u64().unwrap_or(u64::MAX),
        }
    }
}

/// What a step did, and when to take the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It found work: look again at once.
    Worked,
    /// Nothing is due: look again after this time, or when woken.
    Idle(Duration),
}

impl Step {
    /// Nothing is due before this time, which may be unknown.
    pub(super) fn idle_until(due_ms: Option<i64>, now_ms: i64) -> Self {
        let wait_ms = due_ms.map_or(i64::MAX, |due| due.saturating_sub(now_ms)).max(0);
        Self::Idle(Duration::from_millis(wait_ms.unsigned_abs()).min(WAIT_MAX))
    }

    /// The store could not be asked.
    pub(super) fn after_failure() -> Self {
        Self::Idle(STORE_PAUSE)
    }
}

/// Someone who claims rows of a queue and works on them.
pub trait Poller: Send + Sync {
    /// What the queue holds, for the log.
    const ROWS: &'static str;

    /// At a start: releases the leases of the previous process, whose rows are due at once. Returns their number.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn take_over(&self, now_ms: i64) -> Result<usize, WriteError>;

    /// Takes a step, and further ones for as long as `tick` says with what, where they can share a commit.
    fn steps(&self, tick: &mut dyn FnMut() -> Option<Tick>) -> Step;
}

/// Steps until a stop comes. `after_work` is called after each step that found work.
pub(super) fn run(poller: &impl Poller, wake: &Wake, (watch, stop): (&Watch, &Stop), after_work: impl Fn()) {
    step_on(wake, stop, || {
        if watch.has_jumped() {
            return Step::Idle(JUMP_PAUSE);
        }
        let step = poller.steps(&mut || (!stop.is_set() && !watch.has_jumped()).then(Tick::now));
        if step == Step::Worked {
            after_work();
        }
        step
    });
}

/// Steps until a stop comes; after an idle step it waits as long as that says, or until `wake` rings.
fn step_on(wake: &Wake, stop: &Stop, mut step: impl FnMut() -> Step) {
    while !stop.is_set() {
        // read before the step, so that a commit after the step's look is seen as a new ring
        let seen = wake.count();
        if let Step::Idle(time) = step()
            && !stop.is_set()
        {
            wake.wait(seen, time);
        }
    }
}

/// No wait of ours is longer: a due time beyond it is the work of a clock that was set back.
pub(super) fn wait_max_ms(lease: Duration, backoff_cap: Duration) -> i64 {
    retry::as_ms(lease).max(retry::as_ms(backoff_cap))
}

/// Releases the leases of the previous process, then cuts the waits that another clock made too long.
pub(super) fn take_over(
    writer: &WriterHandle,
    release: impl FnMut(&Transaction<'_>) -> Result<usize, JobError> + Send + 'static,
    clamp: impl FnMut(&Transaction<'_>) -> Result<usize, JobError> + Send + 'static,
) -> Result<usize, WriteError> {
    let released = writer.run(release)?;
    // a wait that comes out too long is no reason not to start
    if let Err(error) = writer.run(clamp) {
        log::warn!("waits that another clock made too long stay as they are: {error}");
    }
    Ok(released)
}

/// When the next row is due; a time that is too far ahead is cut first.
pub(super) fn next_due_ms<E>(
    latest_ms: i64,
    next: impl Fn() -> Result<Option<i64>, E>,
    clamp: impl FnOnce() -> Result<usize, E>,
) -> Result<Option<i64>, E> {
    let due_ms = next()?;
    if due_ms.is_some_and(|due_ms| due_ms > latest_ms) {
        clamp()?;
        return next();
    }
    Ok(due_ms)
}

/// Results that could not be written yet: a later step writes them.
#[derive(Debug)]
pub(super) struct Unsettled<T>(Mutex<Vec<T>>);

impl<T> Default for Unsettled<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Unsettled<T> {
    pub(super) fn keep(&self, result: T) {
        lock(&self.0).push(result);
    }

    pub(super) fn take(&self) -> Vec<T> {
        std::mem::take(&mut *lock(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;

    /// The time limit for something that comes at once, in case it hangs.
    const HANG_TIME: Duration = Duration::from_secs(120);

    #[test]
    fn a_ring_ends_a_wait_of_any_length_and_one_during_the_look_is_not_missed() {
        let (wake, stop) = (Arc::new(Wake::default()), Arc::new(Stop::default()));
        let (looked, looks) = mpsc::channel();
        let (waking, stopping) = (Arc::clone(&wake), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let mut is_first = true;
            step_on(&waking, &stopping, || {
                if std::mem::take(&mut is_first) {
                    waking.ring();
                }
                looked.send(()).unwrap();
                Step::Idle(100 * HANG_TIME)
            });
        });
        let looks_again = || looks.recv_timeout(HANG_TIME).expect("another look");
        looks_again();
        looks_again();
        wake.ring();
        looks_again();
        stop.set();
        wake.ring();
        assert!(looks.recv_timeout(HANG_TIME).is_err(), "a stop is no reason to look");
        thread.join().unwrap();
    }

    #[test]
    fn a_wait_ends_when_a_row_is_due_and_is_never_longer_than_a_second() {
        assert_eq!(Step::idle_until(Some(1_250), 1_000), Step::Idle(Duration::from_millis(250)));
        assert_eq!(Step::idle_until(Some(900), 1_000), Step::Idle(Duration::ZERO));
        assert_eq!(Step::idle_until(Some(i64::MAX), 1_000), Step::Idle(WAIT_MAX));
        assert_eq!(Step::idle_until(None, 1_000), Step::Idle(WAIT_MAX));
    }

    #[test]
    fn a_due_time_too_far_ahead_is_cut_and_asked_for_again() {
        let due_ms = std::cell::Cell::new(9_000);
        let next = || Ok::<_, ()>(Some(due_ms.get()));
        assert_eq!(next_due_ms(10_000, next, || panic!("it is near")), Ok(Some(9_000)));
        let clamp = || {
            due_ms.set(5_000);
            Ok(1)
        };
        assert_eq!(next_due_ms(8_000, next, clamp), Ok(Some(5_000)));
    }
}
