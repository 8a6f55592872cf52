//! SQLite's hooks on the writer's connection: no COMMIT but the writer's own, no unnoticed roll-back, no job that
//! runs too long, and the length of the WAL after each commit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rusqlite::{Connection, Transaction};

use crate::wake::lock;

/// Virtual machine steps of SQLite between two checks of the time limit.
const PROGRESS_STEPS: i32 = 1_000;

/// State that SQLite's hooks and the writer share.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Only the writer's own COMMIT may commit; any other is turned into a roll-back.
    may_commit: AtomicBool,
    /// Transactions that ended in a roll-back, for any reason.
    pub(super) rollbacks: AtomicU64,
    /// Frames in the WAL after the latest commit.
    pub(super) wal_frames: AtomicU64,
    /// The same for the current commit; 0: it wrote none.
    pub(super) committed_frames: AtomicU64,
    /// When the running job must end.
    job_end: Mutex<Option<Instant>>,
}

impl Guard {
    pub(super) fn set_job_end(&self, end: Option<Instant>) {
        *lock(&self.job_end) = end;
    }

    /// The only COMMIT that the hook allows.
    pub(super) fn commit(&self, tx: Transaction<'_>) -> rusqlite::Result<()> {
        self.may_commit.store(true, Ordering::Release);
        let committed = tx.commit();
        self.may_commit.store(false, Ordering::Release);
        committed
    }

    fn job_is_late(&self) -> bool {
        lock(&self.job_end).is_some_and(|end| Instant::now() >= end)
    }
}

pub(super) fn install_hooks(conn: &mut Connection, guard: &Arc<Guard>) -> rusqlite::Result<()> {
    let shared = Arc::clone(guard);
    conn.progress_handler(PROGRESS_STEPS, Some(move || shared.job_is_late()))?;
    // a statement after an unnoticed roll-back would commit by itself; this makes that impossible
    let shared = Arc::clone(guard);
    conn.commit_hook(Some(move || !shared.may_commit.load(Ordering::Acquire)))?;
    let shared = Arc::clone(guard);
    conn.rollback_hook(Some(move || {
        shared.rollbacks.fetch_add(1, Ordering::AcqRel);
    }))?;
    let shared = Arc::clone(guard);
    conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, frames: std::ffi::c_int| {
        let frames = u64::try_from(frames).unwrap_or(0);
        shared.wal_frames.store(frames, Ordering::Relaxed);
        shared.committed_frames.store(frames, Ordering::Relaxed);
        Ok(())
    }))
}
