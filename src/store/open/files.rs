//! The database's file and those beside it: what stands there, who may read it, and that its name lasts.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::error::{OpenError, io_error};

/// Creates a directory that only its owner can enter, and its parents.
///
/// # Errors
/// I/O errors; an existing directory is left as it is.
pub fn create_private_dir(path: &Path) -> Result<(), OpenError> {
    if path.is_dir() {
        return Ok(());
    }
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|source| {
        let parent = path.ancestors().skip(1).find(|parent| parent.exists()).unwrap_or(path);
        io_error(format!("create {}", path.display()), source, parent)
    })
}

/// The database is created 0600 before SQLite opens it: `-wal` and `-shm` inherit that mode.
pub(super) fn create_private_file(path: &Path) -> Result<(), OpenError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => {
            Err(io_error(format!("create {}", path.display()), source, path.parent().unwrap_or(path)))
        }
    }
}

/// Syncs the directories, so that the names of new files last: SQLite ignores a failure to sync them.
pub(super) fn sync_dir(path: &Path) -> Result<(), OpenError> {
    let Some(dir) = path.parent() else { return Ok(()) };
    // a relative path of one part has the empty path as its parent
    let named = |dir| if dir == Path::new("") { Path::new(".") } else { dir };
    for dir in [Some(dir), dir.parent()].into_iter().flatten().map(named) {
        match File::open(dir).and_then(|dir| dir.sync_all()) {
            // a directory that this user may only traverse cannot be synced
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced
                .map_err(|source| OpenError::Io { action: format!("sync {}", dir.display()), source })?,
        }
    }
    Ok(())
}

/// Checks what is at the database's path, without opening it. `None`: nothing is there.
pub(super) fn look_at(path: &Path) -> Result<Option<Metadata>, OpenError> {
    let refused = |reason: &str| {
        Err(OpenError::Refused {
            path: path.to_path_buf(),
            reason: format!("{reason}; choose another data_dir, or move it away"),
        })
    };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => refused("is a directory, not a database"),
        Ok(found) if !found.is_file() => refused("is not an ordinary file"),
        Ok(found) if found.len() == 0 => refuse_orphaned_wal(path).map(|()| Some(found)),
        Ok(found) => Ok(Some(found)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound if path.is_symlink() => {
                refused("is a symbolic link to a file that does not exist (is a disk not mounted?)")
            }
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            io::ErrorKind::PermissionDenied => Err(OpenError::Denied(path.to_path_buf())),
            _ => Err(OpenError::Io { action: format!("look at {}", path.display()), source: error }),
        },
    }
}

/// The path of the WAL or its index. SQLite keeps them beside the real file, and the path may be a symbolic link: with
/// the link's own folder the WAL was never cut.
pub fn sibling(database: &Path, suffix: &str) -> PathBuf {
    let target = database.is_symlink().then(|| fs::canonicalize(database).ok()).flatten();
    let mut sibling = target.unwrap_or_else(|| database.to_owned()).into_os_string();
    sibling.push(suffix);
    sibling.into()
}

/// Makes the database and its WAL private (0600), because they hold customers' data.
pub(super) fn make_private(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let file = sibling(path, suffix);
        let Ok(found) = fs::metadata(&file) else { continue };
        let mode = found.permissions().mode() & 0o777;
        if mode & 0o077 == 0 {
            continue;
        }
        match fs::set_permissions(&file, Permissions::from_mode(0o600)) {
            Ok(()) => log::warn!("{}: mode {mode:04o} let others in; it is 0600 now", file.display()),
            Err(error) => log::warn!(
                "{}: mode {mode:04o} lets others in and cannot be changed: {error}",
                file.display()
            ),
        }
    }
}

/// Refuses a file that isn't there: the application makes it. An empty one is new, unless a WAL is left of it.
pub(super) fn require_file(path: &Path) -> Result<(), OpenError> {
    if let Ok(found) = fs::metadata(path)
        && found.is_file()
    {
        return if found.len() == 0 { refuse_orphaned_wal(path) } else { Ok(()) };
    }
    Err(OpenError::Io {
        action: format!("open {} (the application makes it, inboxd does not)", path.display()),
        source: io::ErrorKind::NotFound.into(),
    })
}

/// Refuses an empty file with a WAL beside it: the file lost its content, and SQLite would delete the WAL.
pub(super) fn refuse_orphaned_wal(path: &Path) -> Result<(), OpenError> {
    let wal = sibling(path, "-wal");
    if !fs::metadata(&wal).is_ok_and(|wal| wal.len() > 0) {
        return Ok(());
    }
    Err(OpenError::Refused {
        path: path.to_path_buf(),
        reason: format!(
            "the file is empty or missing, and {} beside it holds what was stored last; put the file back, or a copy of it; \
             to begin anew, remove {}",
            wal.display(),
            wal.display()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_synced_is_no_place_for_new_files() {
        // no directory there can be synced, whoever asks
        let proc = Path::new("/proc/self");
        let refused = sync_dir(&proc.join("inboxd.db"));
        assert!(matches!(refused, Err(OpenError::Io { .. })), "{refused:?}");
        let dir = tempfile::tempdir().unwrap();
        sync_dir(&dir.path().join("inboxd.db")).unwrap();
        sync_dir(Path::new("inboxd.db")).unwrap();
    }
}
