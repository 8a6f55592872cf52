//! Watches the disk and the database's files: below the floor of free space nothing is accepted, and nothing is
//! committed after one of the files is gone.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::store::open;

use super::Writer;
use super::files::Loss;

/// How long a reading of the free space is used.
const DISK_READING_AGE_MAX: Duration = Duration::from_millis(250);

impl Writer {
    /// Below the floor nothing is accepted: once the WAL has filled the disk, rows cannot be deleted either.
    pub(super) fn read_disk(&mut self) {
        let now = Instant::now();
        if self.disk_read_at.is_some_and(|at| now - at < DISK_READING_AGE_MAX) {
            return;
        }
        self.disk_read_at = Some(now);
        // a relative path of one part has the empty path as its parent
        let dir = self.files.wal().parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        // the WAL's content needs room in the database file as well
        let floor = match self.settings.disk_free_min {
            0 => 0,
            floor => floor.saturating_add(bytes_of(self.files.wal())),
        };
        let is_low = match rustix::fs::statvfs(dir) {
            Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize) < floor,
            Err(error) => {
                log::warn!("cannot read the free space of {}: {error}", dir.display());
                false
            }
        };
        if is_low != self.health.disk_low.swap(is_low, Ordering::AcqRel) {
            if is_low {
                log::error!(
                    "less than limits.disk_free_min ({} bytes) is free on {}: answering 503 until there is room",
                    self.settings.disk_free_min,
                    dir.display()
                );
            } else {
                log::info!("there is room on {} again: accepting", dir.display());
            }
        }
    }

    pub(super) fn look_for_files(&mut self) -> rusqlite::Result<()> {
        match self.files.look() {
            Ok(()) => Ok(()),
            Err(Loss::DatabaseCut) if self.is_whole() => Ok(()),
            Err(loss) => Err(self.lose(loss)),
        }
    }

    /// Whether a database file that became shorter still has all its pages: an application may vacuum its own file.
    fn is_whole(&mut self) -> bool {
        let page_bytes = self.files.page_bytes();
        let pages = self.conn.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0));
        let length = self.files.note_database();
        let is_there =
            |pages: i64| u64::try_from(pages).is_ok_and(|pages| pages.saturating_mul(page_bytes) <= length);
        length > 0 && pages.is_ok_and(is_there)
    }

    /// Refuses to commit once one of the files is gone.
    pub(super) fn lose(&mut self, loss: Loss) -> rusqlite::Error {
        self.health.failed.store(true, Ordering::Release);
        self.loss = Some(loss);
        open::io_failure(self.files.in_words(loss))
    }
}

pub(super) fn bytes_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}
