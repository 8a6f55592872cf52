//! Waiting for the write lock: a batch waits while another process holds it, and the log names that process.

use std::time::{Duration, Instant};

use crate::store::open;

use super::Writer;
use super::holder::Holder;
use super::job::{Queued, refuse};

/// How long no other process may hold a lock that SQLite reports. Then this process holds it by mistake, for ever.
const OWN_LOCK_TIME_MAX: Duration = Duration::from_secs(5);

/// The pause between two lines that name the holder.
const BLOCKED_TOLD_EVERY: Duration = Duration::from_secs(60);

/// The write lock is held, but not by a transaction of the writer.
#[derive(Debug)]
pub(super) struct Blocked {
    since: Instant,
    /// Since when no other process has held it.
    own_since: Option<Instant>,
    told_at: Option<Instant>,
}

impl Blocked {
    fn now() -> Self {
        Self { since: Instant::now(), own_since: None, told_at: None }
    }
}

impl Writer {
    pub(super) fn holder(&self) -> String {
        match self.write_lock.holder() {
            Holder::Other(holder) => holder,
            Holder::NoOther | Holder::Unknown => "another process".to_owned(),
        }
    }

    /// Another process holds the write lock: the batch waits, and its late jobs are refused meanwhile.
    pub(super) fn wait_for_lock(&mut self, batch: Vec<Queued>) -> rusqlite::Result<()> {
        for queued in batch.into_iter().rev() {
            self.waiting.push_front(queued);
        }
        if self.health.is_hurried() {
            for queued in self.waiting.drain(..) {
                refuse(queued.job, "shutting down");
            }
        }
        match self.write_lock.holder() {
            Holder::NoOther => {
                let blocked = self.blocked.get_or_insert_with(Blocked::now);
                let own_since = *blocked.own_since.get_or_insert_with(Instant::now);
                if own_since.elapsed() >= OWN_LOCK_TIME_MAX {
                    let reason =
                        "the write lock of the database is held by this process itself: an unlock failed";
                    return Err(open::io_failure(reason.to_owned()));
                }
                self.health.set_blocked(Some((blocked.since, "this process".to_owned())));
            }
            Holder::Other(holder) => self.tell_blocked(holder),
            Holder::Unknown => self.tell_blocked("another process".to_owned()),
        }
        Ok(())
    }

    pub(super) fn tell_blocked(&mut self, holder: String) {
        let blocked = self.blocked.get_or_insert_with(Blocked::now);
        blocked.own_since = None;
        if blocked.since.elapsed() >= Duration::from_secs(2)
            && blocked.told_at.is_none_or(|at| at.elapsed() >= BLOCKED_TOLD_EVERY)
        {
            blocked.told_at = Some(Instant::now());
            log::warn!(
                "{holder} has held the database's write lock for {} s: deliveries are answered 503 until it is released",
                blocked.since.elapsed().as_secs()
            );
        }
        self.health.set_blocked(Some((blocked.since, holder)));
    }

    pub(super) fn unblocked(&mut self) {
        let Some(blocked) = self.blocked.take() else { return };
        self.health.set_blocked(None);
        if blocked.told_at.is_some() {
            log::info!(
                "the database's write lock is free again after {} s",
                blocked.since.elapsed().as_secs()
            );
        }
    }
}
