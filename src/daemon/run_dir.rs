//! The directory of the private sockets: between the private listener and its server, and for commands.
//!
//! A process that can reach the first socket can send requests around the front. So this process makes the directory
//! itself, or checks and corrects it before it trusts it. No other user can ever enter it.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::StartError;
use crate::store::open::OpenError;

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
    /// The service manager's directory, or `run` in the data directory; if that path is too long for a socket, a new
    /// directory with a name that cannot be guessed.
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
        Self::new_elsewhere()
    }

    /// A directory of this process alone, if none can be kept.
    fn new_elsewhere() -> Result<Self, StartError> {
        let random = getrandom::u64()
            .map_err(|error| StartError::Other(format!("the system provides no random numbers: {error}")))?;
        let name = format!("inboxd-{random:016x}");
        let mut path = std::env::temp_dir().join(&name);
        if path.as_os_str().len() > DIR_BYTES_MAX {
            path = Path::new("/tmp").join(name);
        }
        // not recursive: it fails where anything of that name exists
        DirBuilder::new().mode(0o700).create(&path).map_err(|source| unusable(&path, source))?;
        let made = Self { path, is_own: true };
        match made.look()? {
            State::Private => Ok(made),
            State::Open(mode) => {
                Err(made.refused(&format!("mode {mode:04o} lets others reach the private socket")))
            }
            State::Foreign(uid) => {
                Err(made.refused(&format!("belongs to user {uid} although it was just made")))
            }
        }
    }

    /// A directory that stays for the next start. Its mode is set again where others have changed it (a volume
    /// with an `fsGroup`, `chmod -R`, a restore), and one of another user is made anew where that is possible.
    fn kept(path: PathBuf) -> Result<Self, StartError> {
        let kept = Self { path, is_own: false };
        kept.create()?;
        if let State::Foreign(uid) = kept.look()? {
            kept.remove_stale_sockets();
            // another user's directory cannot be trusted, an empty one can be replaced
            if let Err(error) = fs::remove_dir(&kept.path) {
                return Err(kept.refused(&belongs_to(uid, &kept.path, &error)));
            }
            log::warn!("{}: belonged to user {uid}; it was made anew", kept.path.display());
            kept.create()?;
        }
        if let State::Open(mode) = kept.look()? {
            kept.make_private(mode);
        }
        match kept.look()? {
            State::Private => {
                kept.remove_stale_sockets();
                Ok(kept)
            }
            // a file system without owners or modes: FAT, some network shares
            State::Open(_) | State::Foreign(_) => {
                let elsewhere = Self::new_elsewhere()?;
                log::warn!(
                    "{}: this file system keeps no owners or modes; the private socket is in {}",
                    kept.path.display(),
                    elsewhere.path.display()
                );
                Ok(elsewhere)
            }
        }
    }

    fn create(&self) -> Result<(), StartError> {
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.map_err(|source| unusable(&self.path, source)),
        }
    }

    /// Checks what is at the path, without following links.
    fn look(&self) -> Result<State, StartError> {
        let found = fs::symlink_metadata(&self.path).map_err(|source| unusable(&self.path, source))?;
        let us = rustix::process::geteuid().as_raw();
        match found.mode() & 0o7777 {
            _ if !found.is_dir() => {
                Err(self.refused(&format!("is not a directory; run: rm {}", self.path.display())))
            }
            _ if found.uid() != us => Ok(State::Foreign(found.uid())),
            mode if mode & 0o077 != 0 || mode & 0o700 != 0o700 => Ok(State::Open(mode)),
            _ => Ok(State::Private),
        }
    }

    fn make_private(&self, mode: u32) {
        let path = self.path.display();
        match fs::set_permissions(&self.path, Permissions::from_mode(0o700)) {
            Ok(()) => log::warn!(
                "{path}: mode {mode:04o} would let others reach the private socket; it is 0700 now"
            ),
            Err(error) => log::warn!("{path}: mode {mode:04o} cannot be changed: {error}"),
        }
    }

    fn refused(&self, reason: &str) -> StartError {
        OpenError::Refused { path: self.path.clone(), reason: reason.to_owned() }.into()
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what a killed process has left.
    fn remove_stale_sockets(&self) {
        self.sockets().for_each(|socket| remove_stale_socket(&socket));
    }

    /// All of its files that are named as our sockets are.
    fn sockets(&self) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
    }

    /// The path of the health socket.
    pub(super) fn health_socket(&self) -> PathBuf {
        self.path.join("health.sock")
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        drop(fs::remove_file(self.health_socket()));
        for socket in self.sockets() {
            drop(fs::remove_file(socket));
        }
        if self.is_own {
            drop(fs::remove_dir(&self.path));
        }
    }
}

/// What stands where the directory should be.
enum State {
    Private,
    /// Ours, with this mode.
    Open(u32),
    /// This user's.
    Foreign(u32),
}

fn belongs_to(uid: u32, path: &Path, error: &io::Error) -> String {
    let us = rustix::process::geteuid().as_raw();
    let path = path.display();
    let cause = if uid == 0 { " (was inboxd started as root?)" } else { "" };
    format!(
        "belongs to user {uid}, inboxd runs as user {us}{cause}, and it cannot be removed ({error}); \
         run as root: rm -r {path}"
    )
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

/// A socket without a listener is left over from a process that was killed.
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
    fn a_run_directory_whose_mode_was_changed_is_made_private_again() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        drop(RunDir::claim(None, dir.path()).unwrap());
        assert!(run.is_dir(), "it stays for the next start");
        for mode in [0o2770, 0o750, 0o755, 0o1777, 0o500, 0o000] {
            fs::set_permissions(&run, fs::Permissions::from_mode(mode)).unwrap();
            drop(RunDir::claim(None, dir.path()).unwrap());
            assert_eq!(fs::metadata(&run).unwrap().mode() & 0o777, 0o700, "after {mode:04o}");
        }
    }

    #[test]
    fn a_link_in_place_of_the_run_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/tmp", dir.path().join("run")).unwrap();
        let refused = RunDir::claim(None, dir.path()).unwrap_err().to_string();
        assert!(refused.contains("is not a directory; run: rm "), "{refused}");
    }

    #[test]
    fn a_run_directory_of_another_user_is_made_anew_or_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        fs::create_dir(&run).unwrap();
        std::os::unix::fs::chown(&run, Some(65534), None).unwrap();
        drop(RunDir::claim(None, dir.path()).unwrap());
        assert!(fs::metadata(&run).unwrap().uid() == 0, "it was empty, and is ours now");

        std::os::unix::fs::chown(&run, Some(65534), None).unwrap();
        fs::write(run.join("theirs"), "").unwrap();
        let refused = RunDir::claim(None, dir.path()).unwrap_err().to_string();
        assert!(
            refused.contains("belongs to user 65534") && refused.contains("run as root: rm -r"),
            "{refused}"
        );
    }
}
