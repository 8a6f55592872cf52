//! The thread that watches the clock and purges.
//!
//! Both belong together: rows are purged by their age, and a jump of the clock makes false ages. The clock is checked
//! between any two steps of a purge.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use super::given_up;
use super::retention::Purge;
use super::stop::Stop;
use crate::clock;
use crate::config::Retention;
use crate::store::open;
use crate::store::writer::{WriteError, WriterHandle};
use crate::work::timeline::{self, JUMP_MIN_MS, Jump, Seen};

/// The pause between two checks of the clock.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The time from the start to the first purge, because a start is busy.
const PURGE_AFTER_MS: i64 = 60_000;

/// The pause between two purges, and between two notes of the clock.
const PURGE_EVERY_MS: i64 = 3_600_000;

/// The most time between the reading of the clock for a delivery and its commit.
const READINGS_APART_MS: i64 = 5_000;

/// The pause between two steps of a purge, in which waiting events are stored.
const PURGE_PAUSE: Duration = Duration::from_millis(5);

/// The most time for a reader: a longer one keeps the WAL from being cut.
const READ_TIME_MAX: Duration = Duration::from_secs(5);

/// The clock when the previous daemon ended, noted once before anything is judged by its age.
#[derive(Debug)]
pub(super) struct StartNote {
    writer: WriterHandle,
    seen: Seen,
    once: Once,
}

impl StartNote {
    pub(super) fn new(writer: WriterHandle, seen: Seen) -> Self {
        Self { writer, seen, once: Once::new() }
    }

    /// Waits until the store is ready and the note is written; a second caller waits for the first.
    pub(super) fn write(&self, stop: &Stop) {
        self.once.call_once(|| {
            let now_ms = clock::now_ms();
            let jump = self.seen.jump(now_ms);
            if let Some(jump) = jump {
                log::warn!(
                    "the clock is {} when inboxd last saw it, before this start: that time does not count towards the age of \
                     rows; if the clock is right now and was before, `inboxd purge --accept-clock` counts it",
                    difference(jump.shift_ms, "ahead of", "behind")
                );
            }
            stop.until_ready(|| self.writer.run(move |tx| Ok(timeline::note(tx, jump, now_ms)?)));
        });
    }
}

/// e.g. `30 days ahead of`
fn difference(shift_ms: i64, ahead: &str, behind: &str) -> String {
    let days = shift_ms.unsigned_abs() / 86_400_000;
    format!("{days} {} {}", if days == 1 { "day" } else { "days" }, if shift_ms > 0 { ahead } else { behind })
}

/// The thread's state.
pub(super) struct Upkeep {
    pub(super) writer: WriterHandle,
    pub(super) retention: Retention,
    /// Endpoints in proxy mode, with the time after which an event is no longer expected to come again.
    pub(super) proxied: Vec<(String, Duration)>,
    pub(super) database: PathBuf,
    pub(super) stop: Arc<Stop>,
    pub(super) start_note: Arc<StartNote>,
    pub(super) watch: Arc<Watch>,
}

impl Upkeep {
    pub(super) fn run(self) {
        self.start_note.write(&self.stop);
        let mut purge_at_ms = clock::steady_ms().saturating_add(PURGE_AFTER_MS);
        while self.stop.pause(LOOK_EVERY) {
            self.look_at_the_clock();
            if clock::steady_ms() >= purge_at_ms {
                purge_at_ms = clock::steady_ms().saturating_add(PURGE_EVERY_MS);
                self.tidy_up();
                self.note(None);
            }
        }
        self.look_at_the_clock();
        self.note(None);
    }

    fn tidy_up(&self) {
        if let Err(error) = given_up::ask_about_untaken(&self.writer, &self.proxied, clock::now_ms()) {
            log::warn!("could not look for events that no provider repeats yet: {error}");
        }
        let mut purge = Purge::new(self.retention.payload, self.retention.key, clock::now_ms(), false);
        loop {
            if self.look_at_the_clock() {
                return log::warn!("the purge stopped because the clock jumped; it goes on later");
            }
            let open = || open::open_reader(&self.database, READ_TIME_MAX);
            match purge.step(open, &self.writer, clock::now_ms()) {
                Ok(true) if self.stop.pause(PURGE_PAUSE) => {}
                Ok(true) => return,
                Ok(false) if purge.payloads + purge.keys == 0 => {
                    return log::debug!("nothing was old enough to be purged");
                }
                Ok(false) => return log::info!("purged {}", purge.summary()),
                Err(error) => return log::warn!("the purge stopped and goes on later: {error}"),
            }
        }
    }

    /// Notes a jump of the wall clock. Returns whether a jump is not noted yet, so that nothing may be judged by age.
    fn look_at_the_clock(&self) -> bool {
        let (now_ms, steady_ms) = (clock::now_ms(), clock::steady_ms());
        let watch = &self.watch;
        let Some(shift_ms) = watch.shift_ms(now_ms, steady_ms) else {
            watch.looked_ms.store(steady_ms, Ordering::Release);
            return false;
        };
        let window_ms = steady_ms
            .saturating_sub(watch.looked_ms.load(Ordering::Acquire))
            .saturating_add(READINGS_APART_MS);
        log::warn!(
            "the clock was set {} where it was: that time does not count towards the age of rows",
            difference(shift_ms, "ahead of", "behind")
        );
        let reader = open::open_reader(&self.database, READ_TIME_MAX).map_err(|error| error.to_string());
        let jump = reader.and_then(|reader| {
            timeline::noticed(&reader, shift_ms, window_ms, now_ms).map_err(|error| error.to_string())
        });
        match jump {
            Ok(jump) if self.note(Some(jump)) => watch.accept(now_ms, steady_ms),
            Ok(_) => {}
            Err(error) => log::warn!("could not note the jump of the clock yet: {error}"),
        }
        true
    }

    fn note(&self, jump: Option<Jump>) -> bool {
        let now_ms = clock::now_ms();
        let noted: Result<(), WriteError> = self.writer.run(move |tx| Ok(timeline::note(tx, jump, now_ms)?));
        noted.inspect_err(|error| log::debug!("could not note the time yet: {error}")).is_ok()
    }
}

/// The wall clock, compared with the clock that cannot be set. While a jump is not noted yet, nothing may be judged
/// by its age.
#[derive(Debug)]
pub(super) struct Watch {
    offset_ms: AtomicI64,
    /// The last time without an unnoted jump, by the clock that cannot be set.
    looked_ms: AtomicI64,
}

impl Watch {
    pub(super) fn new(now_ms: i64, steady_ms: i64) -> Self {
        let offset_ms = AtomicI64::new(now_ms.saturating_sub(steady_ms));
        Self { offset_ms, looked_ms: AtomicI64::new(steady_ms) }
    }

    /// Whether the clock has jumped and that is not noted yet.
    pub(super) fn has_jumped(&self) -> bool {
        self.shift_ms(clock::now_ms(), clock::steady_ms()).is_some()
    }

    /// How far the wall clock is from where it should be, if that is a jump.
    fn shift_ms(&self, now_ms: i64, steady_ms: i64) -> Option<i64> {
        let offset_ms = self.offset_ms.load(Ordering::Acquire);
        let shift_ms = now_ms.saturating_sub(steady_ms).saturating_sub(offset_ms);
        (shift_ms.abs() >= JUMP_MIN_MS).then_some(shift_ms)
    }

    fn accept(&self, now_ms: i64, steady_ms: i64) {
        self.offset_ms.store(now_ms.saturating_sub(steady_ms), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_runs_a_little_wrong_has_not_jumped() {
        let watch = Watch::new(1_000_000, 0);
        assert_eq!(watch.shift_ms(1_500_000, 500_000), None);
        assert_eq!(watch.shift_ms(1_500_000 + JUMP_MIN_MS - 1, 500_000), None);
        assert_eq!(watch.shift_ms(1_500_000 - JUMP_MIN_MS, 500_000), Some(-JUMP_MIN_MS));
        watch.accept(1_500_000 - JUMP_MIN_MS, 500_000);
        assert_eq!(watch.shift_ms(1_600_000 - JUMP_MIN_MS, 600_000), None);
        assert_eq!(difference(30 * JUMP_MIN_MS, "ahead of", "behind"), "30 days ahead of");
    }
}
