//! Checkpoints: the WAL is moved into the database file between batches, by the writer's own connection.
//!
//! SQLite's automatic checkpoint would swallow its errors, and a second thread's never resets the WAL.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::failpoint;
use crate::store::open;

use super::Writer;
use super::disk::bytes_of;
use super::files::Loss;

/// From this many frames in the WAL on, they are moved into the database file, some at a time.
const PASSIVE_CHECKPOINT_FRAMES: u64 = 1_000;

/// From this size on the WAL is cut, with a short wait for readers.
pub(super) const TRUNCATE_CHECKPOINT_BYTES: u64 = 32 << 20;

/// How long a truncating checkpoint waits for readers.
const TRUNCATE_WAIT_MAX: Duration = Duration::from_millis(50);

/// The pause between two truncating checkpoints: if readers keep one from finishing, all deliveries wait for it.
const TRUNCATE_PAUSE: Duration = Duration::from_secs(1);

impl Writer {
    /// Moves the WAL into the database file between batches, and looks at the result.
    pub(super) fn checkpoint(&mut self) -> rusqlite::Result<()> {
        let frames = self.guard.wal_frames.load(Ordering::Relaxed);
        if frames < PASSIVE_CHECKPOINT_FRAMES && !self.checkpoint_is_due {
            return Ok(());
        }
        failpoint::reach("checkpoint_before");
        let now = Instant::now();
        let log_bytes = bytes_of(self.files.wal());
        let done = if log_bytes >= TRUNCATE_CHECKPOINT_BYTES && now >= self.next_truncate {
            self.next_truncate = now + TRUNCATE_PAUSE;
            self.conn.busy_timeout(TRUNCATE_WAIT_MAX)?;
            let done = open::checkpoint(&self.conn, "TRUNCATE");
            open::wait_briefly_for_locks(&mut self.conn)?;
            done
        } else if frames >= PASSIVE_CHECKPOINT_FRAMES || log_bytes < TRUNCATE_CHECKPOINT_BYTES {
            open::checkpoint(&self.conn, "PASSIVE")
        } else {
            return Ok(());
        };
        failpoint::reach("checkpoint_after");
        self.files.note_database();
        match done {
            Ok(done) => {
                self.checkpoint_is_due = done.busy || done.moved_frames < done.log_frames;
            }
            Err(error) if open::is_fatal_error(&error) => return Err(error),
            Err(error) => {
                self.checkpoint_is_due = true;
                if !open::is_busy_error(&error) {
                    log::debug!("the WAL could not be moved into the database file: {error}");
                }
            }
        }
        // frames that readers need are tried again when as many have been added, or when the writer is idle
        self.guard.wal_frames.store(0, Ordering::Relaxed);
        self.tell_about_the_log(log_bytes);
        Ok(())
    }

    /// Warns once when the WAL is too long, and again whenever it has doubled.
    fn tell_about_the_log(&mut self, log_bytes: u64) {
        if !self.checkpoint_is_due {
            self.log_told_bytes = TRUNCATE_CHECKPOINT_BYTES;
        } else if log_bytes >= self.log_told_bytes {
            self.log_told_bytes = log_bytes.saturating_mul(2);
            log::warn!(
                "the database's WAL has grown to {} MiB and cannot be cut: another process reads the \
                 database, or the disk is full; a replication tool such as Litestream reads on purpose and lets go \
                 again, any other long read must end, or the log fills the disk",
                log_bytes >> 20
            );
        }
    }

    /// After a failure, leaves the files unchanged for the next start, which checks them first. Only the content of a
    /// deleted WAL, which is still readable here, goes into the database file before this process ends.
    pub(super) fn leave_files(&mut self) {
        if let Err(error) = open::leave_wal(&self.conn) {
            log::warn!("the WAL cannot be left unchanged: {error}");
        }
        if self.loss != Some(Loss::Wal) {
            return;
        }
        match open::checkpoint(&self.conn, "FULL") {
            Ok(done) if !done.busy && done.moved_frames == done.log_frames => {
                log::warn!(
                    "the content of the deleted WAL was moved into the database file: nothing is lost"
                );
            }
            Ok(_) => {
                log::error!("another process reads the database: a part of the deleted WAL's content is lost")
            }
            Err(error) => {
                log::error!(
                    "the content of the deleted WAL could not be moved into the database file: {error}"
                )
            }
        }
    }
}
