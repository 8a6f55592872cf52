//! Why the database cannot be used, with what to do about it; and what an error of SQLite's tells of the storage.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rustix::fs::Access;

/// Why the database cannot be used, and what to do.
#[derive(Debug)]
pub enum OpenError {
    /// Another daemon holds the data directory.
    Locked(PathBuf),
    /// Another daemon uses the database file, perhaps under another name.
    InUse(PathBuf),
    /// The file is damaged.
    Damaged {
        /// The database file.
        path: PathBuf,
        /// What was found.
        finding: String,
    },
    /// There is no database yet.
    Missing(PathBuf),
    /// The file belongs to another user.
    Denied(PathBuf),
    /// A file of this user's cannot be created or written.
    Unusable {
        /// What was attempted, and on which file.
        action: String,
        /// What the system said.
        source: io::Error,
        /// What to do.
        advice: String,
    },
    /// The file is not inboxd's, is newer than this program, was changed by hand, or is not an ordinary file.
    Refused {
        /// The database file.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The upgrade of an older file failed; the file is as it was.
    Upgrade {
        /// The database file.
        path: PathBuf,
        /// Its schema version.
        from: i64,
        /// The version of this program.
        to: i64,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A file could not be created or read.
    Io {
        /// What was attempted, and on which file.
        action: String,
        /// What the system said.
        source: io::Error,
    },
    /// SQLite refused.
    Sql {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

impl OpenError {
    /// SQLite's error about a file. An I/O error may pass; only content that was read and is invalid is damage.
    pub(crate) fn of_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        if is_damage_error(&source) {
            return Self::Damaged { path: path.to_path_buf(), finding: source.to_string() };
        }
        Self::Sql { path: path.to_path_buf(), source }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked(path) => write!(
                f,
                "{}: another inboxd serves this data directory; stop it first, or give this one data of its own",
                path.display()
            ),
            Self::InUse(path) => write!(
                f,
                "{}: another inboxd uses this database file, under this or another name; stop it first, or give this one data of its own",
                path.display()
            ),
            Self::Damaged { path, finding } => write!(
                f,
                "{}: the file is damaged or not a database ({finding}); keep it, and restore a copy",
                path.display()
            ),
            Self::Missing(path) => {
                write!(
                    f,
                    "there is no database at {}; `inboxd serve` makes it, or where `database` names it, the application",
                    path.display()
                )
            }
            Self::Denied(path) => {
                write!(f, "{}: permission denied; run this as the user that owns it", path.display())
            }
            Self::Unusable { action, source, advice } => write!(f, "cannot {action}: {source}; {advice}"),
            Self::Refused { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::Upgrade { path, from, to, source } => write!(
                f,
                "{}: the upgrade from schema version {from} to {to} failed ({source}); nothing was changed: \
                 remove the cause and start again, or start the older inboxd",
                path.display()
            ),
            Self::Io { action, source } => write!(f, "cannot {action}: {source}"),
            Self::Sql { path, source } if is_busy_error(source) => {
                write!(
                    f,
                    "{}: another process holds the database; try again when it has ended",
                    path.display()
                )
            }
            Self::Sql { path, source } => write!(f, "{}: {}", path.display(), without_sql(source)),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Unusable { source, .. } => Some(source),
            Self::Sql { source, .. } | Self::Upgrade { source, .. } => Some(source),
            Self::Locked(_)
            | Self::InUse(_)
            | Self::Missing(_)
            | Self::Denied(_)
            | Self::Damaged { .. }
            | Self::Refused { .. } => None,
        }
    }
}

/// SQLite's message without the statement, which may have many lines.
pub fn without_sql(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

/// Separates permanent errors (path, permission) from a full or failing disk.
pub(super) fn io_error(action: String, source: io::Error, path: &Path) -> OpenError {
    use io::ErrorKind::{
        AlreadyExists, InvalidFilename, IsADirectory, NotADirectory, NotFound, PermissionDenied,
        ReadOnlyFilesystem,
    };
    let advice = match source.kind() {
        PermissionDenied => who_may(path),
        ReadOnlyFilesystem => {
            "the disk may be mounted read-only after a fault: look at dmesg, and mount it again".to_owned()
        }
        AlreadyExists | InvalidFilename | IsADirectory | NotADirectory | NotFound => {
            "choose another data_dir".to_owned()
        }
        _ => return OpenError::Io { action, source },
    };
    OpenError::Unusable { action, source, advice }
}

/// Advice after a refused permission. A file of another user in this user's directory: perhaps after one start as root.
fn who_may(path: &Path) -> String {
    let us = rustix::process::geteuid().as_raw();
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() && found.uid() == us && found.mode() & 0o700 == 0o700 => format!(
            "another user owns files in {shown} (was inboxd started as root?); run as root: chown -R {us} {shown}"
        ),
        Ok(found) if found.is_dir() && found.uid() == us => {
            format!("mode {:04o} keeps out its own user; run: chmod 700 {shown}", found.mode() & 0o7777)
        }
        _ => format!("run inboxd as the user that owns {shown}, or give it that user: chown USER {shown}"),
    }
}

/// Why this user may not write the file, or the files beside it: usually another user owns it.
pub(super) fn denied(path: &Path) -> OpenError {
    match rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) | Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
            OpenError::Denied(path.to_path_buf())
        }
        Err(error) => io_error(format!("write {}", path.display()), error.into(), path),
    }
}

/// An I/O error of ours: the process must not go on writing, see [`is_fatal_error`].
pub fn io_failure(reason: String) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR), Some(reason))
}

/// Whether the error is the storage's and not the statement's: the same statement may succeed later.
pub fn is_storage_error(error: &rusqlite::Error) -> bool {
    is_fatal_error(error)
        || matches!(
            error.sqlite_error_code(),
            Some(
                ErrorCode::SystemIoFailure
                    | ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
                    | ErrorCode::DiskFull
                    | ErrorCode::OutOfMemory
                    | ErrorCode::CannotOpen
                    | ErrorCode::ReadOnly
                    | ErrorCode::PermissionDenied
                    | ErrorCode::FileLockingProtocolFailed
            )
        )
}

/// Whether another connection holds the lock.
pub fn is_busy_error(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether the error means that this process must not go on writing, because the disk's content is unknown.
pub fn is_fatal_error(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => true,
        Some(ErrorCode::SystemIoFailure) => !is_index_error(error),
        _ => false,
    }
}

/// Whether only the WAL's shared-memory index failed, as on a full disk: it holds nothing permanent.
fn is_index_error(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi;
    error.sqlite_error().is_some_and(|error| {
        matches!(
            error.extended_code,
            ffi::SQLITE_IOERR_SHMOPEN
                | ffi::SQLITE_IOERR_SHMSIZE
                | ffi::SQLITE_IOERR_SHMLOCK
                | ffi::SQLITE_IOERR_SHMMAP
        )
    })
}

/// Whether the statement ran longer than it may.
pub fn is_interrupted_error(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted)
}

/// Whether the file is damaged.
pub fn is_damage_error(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}
