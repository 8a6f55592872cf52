//! The writer's report about itself: whether the next delivery would be stored, judged by the last one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::wake::lock;

/// How long another process may hold the write lock before it counts as an obstacle.
const LOCK_TIME_MAX: Duration = Duration::from_secs(2);

/// The writer's report about itself.
#[derive(Debug)]
pub struct Health {
    pub(super) recovering: AtomicBool,
    pub(super) failed: AtomicBool,
    pub(super) disk_low: AtomicBool,
    pub(super) disk_full: AtomicBool,
    stopping: AtomicBool,
    /// Since when another process has held the write lock, and which process.
    blocked: Mutex<Option<(Instant, String)>>,
    /// Why the last write failed; `None`: it succeeded.
    trouble: Mutex<Option<String>>,
}

impl Health {
    pub(super) fn new() -> Self {
        Self {
            recovering: AtomicBool::new(true),
            failed: AtomicBool::new(false),
            disk_low: AtomicBool::new(false),
            disk_full: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            blocked: Mutex::new(None),
            trouble: Mutex::new(None),
        }
    }

    /// Why a delivery would not be stored now, each reason in one sentence; empty: it would.
    pub fn obstacles(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.is_recovering() {
            all.push("the store is not ready yet".to_owned());
        }
        all.extend(self.refusal().map(str::to_owned));
        if let Some((since, holder)) = &*lock(&self.blocked)
            && since.elapsed() >= LOCK_TIME_MAX
        {
            all.push(format!(
                "{holder} has held the database's write lock for {} s",
                since.elapsed().as_secs()
            ));
        }
        all.extend(lock(&self.trouble).iter().map(|reason| format!("the latest write failed: {reason}")));
        all
    }

    /// The first of the [`Health::obstacles`].
    pub fn obstacle(&self) -> Option<String> {
        self.obstacles().into_iter().next()
    }

    /// Why a job is refused before it is queued. At a start it is queued, because getting ready takes milliseconds.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        if self.failed.load(Ordering::Acquire) {
            Some("the store failed; restarting")
        } else if self.disk_low.load(Ordering::Acquire) {
            Some("free disk space is below limits.disk_free_min")
        } else {
            None
        }
    }

    /// Whether there is no room: free space is below the floor, or the last write found none.
    pub fn is_disk_low(&self) -> bool {
        self.disk_low.load(Ordering::Acquire) || self.disk_full.load(Ordering::Acquire)
    }

    /// Whether the WAL of the process before is still being moved into the database file.
    pub fn is_recovering(&self) -> bool {
        self.recovering.load(Ordering::Acquire)
    }

    /// From now on the writer doesn't wait for another process's lock, because the process is ending.
    pub fn hurry(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(super) fn is_hurried(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(super) fn set_blocked(&self, blocked: Option<(Instant, String)>) {
        *lock(&self.blocked) = blocked;
    }

    /// Logs when a failure to store begins and when it is over.
    pub(super) fn set_trouble(&self, reason: Option<&str>) {
        let mut trouble = lock(&self.trouble);
        match (trouble.as_deref(), reason) {
            (None, Some(reason)) => {
                log::error!("nothing can be stored: {reason}; not ready until something can")
            }
            (Some(_), None) => log::info!("deliveries can be stored again"),
            _ => {}
        }
        if trouble.as_deref() != reason {
            *trouble = reason.map(str::to_owned);
        }
        if reason.is_none() {
            self.disk_full.store(false, Ordering::Release);
        }
    }

    pub(super) fn is_troubled(&self) -> bool {
        lock(&self.trouble).is_some()
    }
}
