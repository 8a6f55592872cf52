//! The files of the database, watched while they are in use: the database file, its WAL and the WAL's index.
//!
//! A commit to a file that was deleted, replaced or cut would be acknowledged and lost. This module opens a descriptor
//! of the WAL only: closing a descriptor of the other two files would release SQLite's locks on them.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::store::open;

/// The WAL's first bytes: a magic number, and salts that change whenever the WAL restarts.
const WAL_HEADER_BYTES: usize = 32;

/// The header before each page in the WAL.
const FRAME_HEADER_BYTES: u64 = 24;

/// Device and inode.
type Identity = (u64, u64);

/// What happened to a file that SQLite has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// The database file was deleted or replaced.
    Database,
    /// It is shorter than it was after the latest checkpoint.
    DatabaseCut,
    /// The WAL was deleted, or an empty file put in its place: SQLite still has all of it.
    Wal,
    /// Another WAL is in its place.
    WalReplaced,
    /// Some committed frames are no longer in it.
    WalCut,
    /// The WAL's index, with the locks of all processes, was deleted or replaced.
    Index,
}

/// The files as they were when the store got ready.
#[derive(Debug)]
pub(super) struct Files {
    database: PathBuf,
    wal: PathBuf,
    index: PathBuf,
    database_is: Option<Identity>,
    /// Its length after the latest checkpoint: between two checkpoints no process makes it shorter.
    database_bytes: u64,
    wal_is: Option<Identity>,
    index_is: Option<Identity>,
    /// The WAL by another descriptor, to read its header.
    open_wal: Option<File>,
    page_bytes: u64,
    /// After the latest commit: where the WAL ended, and its header.
    end: Option<(u64, [u8; WAL_HEADER_BYTES])>,
}

impl Files {
    /// Notes the database file. The WAL and its index are noted by [`Files::note_wal`].
    pub(super) fn of(database: &Path, page_bytes: u64) -> Self {
        Self {
            database_is: identity(database),
            database_bytes: 0,
            database: database.to_owned(),
            wal: open::sibling(database, "-wal"),
            index: open::sibling(database, "-shm"),
            wal_is: None,
            index_is: None,
            open_wal: None,
            page_bytes,
            end: None,
        }
    }

    /// Bytes of a page.
    pub(super) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// The WAL's path.
    pub(super) fn wal(&self) -> &Path {
        &self.wal
    }

    /// Notes the length of the database file, after a checkpoint. Returns it.
    pub(super) fn note_database(&mut self) -> u64 {
        self.database_bytes = fs::metadata(&self.database).map_or(0, |file| file.len());
        self.database_bytes
    }

    /// From now on the WAL and its index are watched. SQLite has made both and keeps them as long as a connection
    /// is open.
    pub(super) fn note_wal(&mut self) {
        self.wal_is = identity(&self.wal);
        self.index_is = identity(&self.index);
        self.open_wal = File::open(&self.wal).ok();
        self.end = None;
    }

    /// Whether a commit may be lost, or the next commit would be.
    pub(super) fn look(&self) -> Result<(), Loss> {
        if self.database_is.is_some() {
            match fs::metadata(&self.database) {
                Ok(file) if Some((file.dev(), file.ino())) != self.database_is => return Err(Loss::Database),
                Ok(file) if file.len() == 0 || file.len() < self.database_bytes => {
                    return Err(Loss::DatabaseCut);
                }
                Ok(_) => {}
                Err(_) => return Err(Loss::Database),
            }
        }
        if self.index_is.is_some() && identity(&self.index) != self.index_is {
            return Err(Loss::Index);
        }
        self.look_for_wal().map(drop)
    }

    /// Whether the latest commit is in a WAL that the next start will read. `frames`: its number of frames.
    pub(super) fn look_after_commit(&mut self, frames: u64) -> Result<(), Loss> {
        let Some(length) = self.look_for_wal()? else { return Ok(()) };
        let end = WAL_HEADER_BYTES as u64 + frames * (FRAME_HEADER_BYTES + self.page_bytes);
        let Some(header) = self.header() else { return Ok(()) };
        // 0x377f0682 or …83, by the byte order of the checksums; after a cut the header is a hole of zeros
        if length < end || header[..3] != [0x37, 0x7f, 0x06] {
            return Err(Loss::WalCut);
        }
        self.end = Some((end, header));
        Ok(())
    }

    /// The WAL's length, if it is watched.
    fn look_for_wal(&self) -> Result<Option<u64>, Loss> {
        let Some(was) = self.wal_is else { return Ok(None) };
        let Ok(now) = fs::metadata(&self.wal) else { return Err(Loss::Wal) };
        if (now.dev(), now.ino()) != was {
            return Err(if now.len() == 0 { Loss::Wal } else { Loss::WalReplaced });
        }
        // another process's checkpoint may have cut it rightly; the next commit decides
        if let Some((end, header)) = &self.end
            && (1..*end).contains(&now.len())
            && self.header().is_some_and(|now| now == *header)
        {
            return Err(Loss::WalCut);
        }
        Ok(Some(now.len()))
    }

    fn header(&self) -> Option<[u8; WAL_HEADER_BYTES]> {
        let mut header = [0; WAL_HEADER_BYTES];
        self.open_wal.as_ref()?.read_exact_at(&mut header, 0).ok()?;
        Some(header)
    }

    /// For the operator: what happened, and what to do.
    pub(super) fn in_words(&self, loss: Loss) -> String {
        let (database, wal, index) = (self.database.display(), self.wal.display(), self.index.display());
        match loss {
            Loss::Database => {
                format!(
                    "{database} was deleted or replaced while inboxd ran; put the file back, or a copy of it"
                )
            }
            Loss::DatabaseCut => {
                format!(
                    "{database} was cut while inboxd ran; keep the rest of it, and put a copy of the whole database in its place"
                )
            }
            Loss::Wal => format!(
                "{wal} was deleted while inboxd ran; never delete it: it is a part of the database. \
                 Start inboxd again"
            ),
            Loss::WalReplaced => format!(
                "{wal} was replaced while inboxd ran; it is a part of the database: put the file back before the next start, or restore a copy of the whole database"
            ),
            Loss::WalCut => format!(
                "{wal} was cut or overwritten while inboxd ran; what was stored since the latest checkpoint may be gone: \
                 after the next start compare `inboxd events list` with what the providers sent"
            ),
            Loss::Index => format!(
                "{index} was deleted or replaced while inboxd ran; never delete it: it holds the locks of all who use the database. \
                 Start inboxd again"
            ),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Database | Self::DatabaseCut => "the database file is gone",
            Self::Wal | Self::WalReplaced | Self::WalCut => "the database's WAL is gone",
            Self::Index => "the WAL's index is gone",
        })
    }
}

fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}
