//! The directory of the socket between front and tiny_http.
//!
//! Whoever can reach that socket can send requests that the front never saw, so the directory is made
//! by this process alone, or looked at before it is trusted. It is never one that others can enter.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::StartError;
use crate::db::OpenError;

/// Room for the file name in the 108 bytes that a Unix socket's path may have.
const DIR_BYTES_MAX: usize = 90;

/// Held as long as the socket is used; dropping it removes the socket, and the directory where it is
/// this process's own.
#[derive(Debug)]
pub(super) struct RunDir {
    path: PathBuf,
    is_own: bool,
}

impl RunDir {
    /// What the service manager has made, or `run` in the data directory; where that path is too long for a socket, a new directory with a name
    /// that nobody can guess.
    pub(super) fn claim(runtime_dir: Option<&Path>, data_dir: &Path) -> Result<Self, StartError> {
        let path = match runtime_dir {
            // the mode that systemd gives it where the unit does not say RuntimeDirectoryMode=0700
            Some(dir) if fs::metadata(dir).is_ok_and(|dir| dir.mode() & 0o077 != 0) => dir.join("private"),
            Some(dir) => dir.to_owned(),
            None => data_dir.join("run"),
        };
        if path.as_os_str().len() <= DIR_BYTES_MAX {
            return Self::kept(path);
        }
        let random = getrandom::u64()
            .map_err(|error| StartError::Other(format!("the system gives no random numbers: {error}")))?;
        let name = format!("inboxd-{random:016x}");
        let mut path = std::env::temp_dir().join(&name);
        if path.as_os_str().len() > DIR_BYTES_MAX {
            path = Path::new("/tmp").join(name);
        }
        // not recursive: it fails where anything of that name exists
        DirBuilder::new().mode(0o700).create(&path).map_err(|source| unusable(&path, source))?;
        Ok(Self { path, is_own: true })
    }

    fn kept(path: PathBuf) -> Result<Self, StartError> {
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(|source| unusable(&path, source))?,
        }
        let found = fs::symlink_metadata(&path).map_err(|source| unusable(&path, source))?;
        let us = rustix::process::geteuid().as_raw();
        let reason = if !found.is_dir() {
            "is no directory; remove it".to_owned()
        } else if found.uid() != us {
            format!("belongs to user {}, and inboxd runs as user {us}; remove it", found.uid())
        } else if found.mode() & 0o077 != 0 {
            let mode = found.mode() & 0o7777;
            format!("mode {mode:04o} lets others reach the private socket; run: chmod 700 {}", path.display())
        } else {
            let kept = Self { path, is_own: false };
            remove_stale_socket(&kept.socket());
            return Ok(kept);
        };
        Err(OpenError::Refused { path, reason }.into())
    }

    /// The socket's path.
    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("http.sock")
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        drop(fs::remove_file(self.socket()));
        if self.is_own {
            drop(fs::remove_dir(&self.path));
        }
    }
}

fn unusable(path: &Path, source: io::Error) -> StartError {
    let action = format!("create {}", path.display());
    OpenError::Unusable {
        action,
        source,
        advice: "choose a shorter data_dir, or one that is writable".to_owned(),
    }
    .into()
}

/// A socket that nobody listens on is left over from a process that was killed.
pub(super) fn remove_stale_socket(path: &Path) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        drop(fs::remove_file(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_data_dir_with_a_long_path_gets_a_new_private_directory_that_goes_away() {
        let long = PathBuf::from(format!("/{}", "x".repeat(100)));
        let (first, second) = (RunDir::claim(None, &long).unwrap(), RunDir::claim(None, &long).unwrap());
        assert_ne!(first.path, second.path, "nobody can guess the name");
        let made = fs::metadata(&first.path).unwrap();
        assert_eq!(made.permissions().mode() & 0o777, 0o700);
        let path = first.path.clone();
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn a_runtime_directory_that_others_can_enter_holds_a_private_one() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, place) in [(0o700, ""), (0o755, "private")] {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
            let claimed = RunDir::claim(Some(dir.path()), Path::new("/nowhere")).unwrap();
            assert_eq!(claimed.path, dir.path().join(place));
            assert_eq!(fs::metadata(&claimed.path).unwrap().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn a_run_directory_that_others_can_enter_or_replace_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        drop(RunDir::claim(None, dir.path()).unwrap());
        assert!(run.is_dir(), "it stays for the next start");
        fs::set_permissions(&run, fs::Permissions::from_mode(0o750)).unwrap();
        let refused = RunDir::claim(None, dir.path()).unwrap_err().to_string();
        assert!(refused.contains("0750") && refused.contains("chmod 700"), "{refused}");
        fs::remove_dir(&run).unwrap();
        std::os::unix::fs::symlink("/tmp", &run).unwrap();
        let refused = RunDir::claim(None, dir.path()).unwrap_err().to_string();
        assert!(refused.contains("is no directory"), "{refused}");
        if rustix::process::geteuid().is_root() {
            fs::remove_file(&run).unwrap();
            fs::create_dir(&run).unwrap();
            fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
            std::os::unix::fs::chown(&run, Some(65534), None).unwrap();
            let refused = RunDir::claim(None, dir.path()).unwrap_err().to_string();
            assert!(refused.contains("belongs to user 65534"), "{refused}");
        }
    }
}
