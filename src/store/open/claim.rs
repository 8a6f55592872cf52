//! One database file, one daemon: takes the locks before SQLite opens the file, and distinguishes a directory that lost
//! its database from a new one.
//!
//! The lock on the data directory is a file in it. Because two directories may lead to one database, the database file
//! itself is locked as well, whatever its names. This module never opens a database.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::files::require_file;
use super::{Home, OpenError, create_private_dir, create_private_file, io_error, look_at, sibling};

/// The most bytes of the lock file.
const NOTE_BYTES_MAX: u64 = 4096;

/// The text in the lock file of a directory in which a database was made.
const MADE: &str = "a database was made here";

/// Precedes the path of a running daemon's health socket.
const HEALTH: &str = "health ";

/// The data directory, held against a second daemon until dropped.
#[derive(Debug)]
pub struct DataDirLock {
    file: File,
    path: PathBuf,
    had_database: bool,
}

/// Creates the data directory where it is missing (0700) and takes its lock.
///
/// # Errors
/// [`OpenError::Locked`] when another daemon holds it; I/O errors.
pub fn lock_data_dir(data_dir: &Path) -> Result<DataDirLock, OpenError> {
    create_private_dir(data_dir)?;
    let path = data_dir.join("lock");
    let io = |source| io_error(format!("lock {}", path.display()), source, data_dir);
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true).mode(0o600);
    let file = options.open(&path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::Locked(data_dir.to_path_buf())),
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    let mut note = String::new();
    (&file).take(NOTE_BYTES_MAX).read_to_string(&mut note).map_err(io)?;
    let had_database = note.lines().any(|line| line == MADE);
    Ok(DataDirLock { file, path, had_database })
}

impl DataDirLock {
    /// Notes in the lock file whether the directory has a database, and the path of the health socket.
    ///
    /// # Errors
    /// I/O errors.
    pub fn note(&self, home: Home, health: Option<&Path>) -> Result<(), OpenError> {
        let made = if home == Home::Own { format!("{MADE}\n") } else { String::new() };
        let health = health.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let health = health.map(|path| format!("{HEALTH}{}\n", path.display())).unwrap_or_default();
        let note = made + &health;
        let written = self.file.write_all_at(note.as_bytes(), 0);
        let written = written.and_then(|()| self.file.set_len(note.len() as u64));
        written.map_err(|source| io_error(format!("write {}", self.path.display()), source, &self.path))
    }

    /// Traces of a database that was in the directory.
    fn traces_beside(&self, database: &Path) -> Vec<PathBuf> {
        let Some(dir) = self.path.parent() else { return Vec::new() };
        let beside = [sibling(database, "-wal"), sibling(database, "-shm"), dir.join("run")];
        let mut traces: Vec<_> = beside.into_iter().filter(|path| path.exists()).collect();
        let backups = dir.join("backups");
        if fs::read_dir(&backups).is_ok_and(|mut files| files.next().is_some()) {
            traces.push(backups);
        }
        if self.had_database {
            traces.push(self.path.clone());
        }
        traces
    }
}

/// The path of the health socket, if a daemon has run in this data directory.
///
/// # Errors
/// The lock file cannot be read.
pub fn health_socket(data_dir: &Path) -> io::Result<Option<PathBuf>> {
    let note = match fs::read_to_string(data_dir.join("lock")) {
        Ok(note) => note,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(note.lines().find_map(|line| line.strip_prefix(HEALTH)).map(PathBuf::from))
}

/// The database file, held against every other daemon until dropped.
#[derive(Debug)]
pub struct FileClaim {
    file: Option<File>,
}

impl Drop for FileClaim {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            drop(file.unlock());
            // never closed: when a process closes any descriptor of a file, SQLite loses its locks on the file (POSIX)
            let _left_open = file.into_raw_fd();
        }
    }
}

/// Claims the database file, before SQLite opens it. Makes an empty one (0600) if inboxd's own is missing and the
/// directory never had one.
///
/// # Errors
/// [`OpenError::InUse`] when another daemon has it under any name; [`OpenError::Refused`] for a file with several
/// names, and for a directory that was in use and lost its database; I/O errors.
pub fn claim_file(path: &Path, home: Home, dir: &DataDirLock) -> Result<FileClaim, OpenError> {
    if home == Home::Own {
        make_where_new(path, dir)?;
    } else {
        require_file(path)?;
    }
    let io = |source| io_error(format!("open {}", path.display()), source, path);
    // opened for writing: an overlay file system copies the file then, and SQLite must open that copy too
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
    let claim = FileClaim { file: Some(file) };
    if let Some(file) = &claim.file {
        refuse_several_names(path, file.metadata().map_err(io)?.nlink())?;
        lock(path, file)?;
    }
    Ok(claim)
}

fn lock(path: &Path, file: &File) -> Result<(), OpenError> {
    if is_remote(file) {
        log::warn!(
            "{}: is on a network file system, where a second daemon under another name is not noticed; put it on a local disk",
            path.display()
        );
        return Ok(());
    }
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(path.to_path_buf())),
        Err(TryLockError::Error(source)) => Err(io_error(format!("lock {}", path.display()), source, path)),
    }
}

/// File systems that emulate `flock` with the locks that SQLite uses: a lock of ours would block SQLite.
fn is_remote(file: &File) -> bool {
    const NFS: u32 = 0x6969;
    const SMB: [u32; 3] = [0x517b, 0xff53_4d42, 0xfe53_4d42];
    let kind = rustix::fs::fstatfs(file).map(|system| system.f_type);
    kind.is_ok_and(|kind| {
        u32::try_from(kind & 0xffff_ffff).is_ok_and(|kind| kind == NFS || SMB.contains(&kind))
    })
}

/// Two names of one file have two WALs: a commit under one name is lost under the other.
pub(super) fn refuse_several_names(path: &Path, names: u64) -> Result<(), OpenError> {
    if names <= 1 {
        return Ok(());
    }
    Err(OpenError::Refused {
        path: path.to_path_buf(),
        reason: format!(
            "the file has {names} names (hard links), and under each name SQLite keeps a WAL of its own, so that what is \
             stored under one is lost under the other; remove the other names (find / -xdev -samefile {} finds them)",
            path.display()
        ),
    })
}

/// Refuses a directory that lost its database: an empty one in its place would take every event for new, and SQLite
/// would delete the WAL, which may have the latest events.
fn make_where_new(path: &Path, dir: &DataDirLock) -> Result<(), OpenError> {
    let found = match look_at(path) {
        Ok(found) => found,
        // the message below names everything that is left
        Err(OpenError::Refused { .. }) if fs::metadata(path).is_ok_and(|file| file.len() == 0) => {
            fs::metadata(path).ok()
        }
        Err(error) => return Err(error),
    };
    if found.as_ref().is_some_and(|file| file.len() > 0) {
        return Ok(());
    }
    let traces = dir.traces_beside(path);
    if !traces.is_empty() {
        return Err(lost(path, found.is_some(), &traces));
    }
    if found.is_none() {
        return create_private_file(path);
    }
    log::warn!(
        "{}: was an empty file; a new database was made in its place, without any history",
        path.display()
    );
    Ok(())
}

fn lost(path: &Path, is_there: bool, traces: &[PathBuf]) -> OpenError {
    let what = if is_there { "is empty" } else { "is missing" };
    let names: Vec<_> = traces.iter().map(|trace| trace.display().to_string()).collect();
    let names = names.join(", ");
    OpenError::Refused {
        path: path.to_path_buf(),
        reason: format!(
            "the file {what}, and this data directory was in use (it has {names}); put the file back, or a copy of it. \
             To begin anew, without all that was received, remove {names}"
        ),
    }
}
