//! The modes of inboxd's own files in its data directory, checked at every start.
//!
//! Others change them between two starts: a volume with an `fsGroup`, `chmod -R g+rwX`, a restore that keeps no
//! modes. inboxd makes its own files private again and says so; files that a person may have shared on purpose are
//! left as they are. Nothing here keeps a daemon from starting.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// The names that inboxd makes in its data directory, also as the part of a name before a dot or a hyphen.
const OWN_NAMES: [&str; 6] = ["inboxd.db", "lock", "run", "backups", "secrets", "fingerprint.key"];

/// Folders whose content is inboxd's.
const OWN_FOLDERS: [&str; 2] = ["backups", "secrets"];

/// Makes own files and folders private. `has_sockets`: a listener's socket is in the data directory, whose mode must
/// let its clients in.
pub(super) fn make_private(data_dir: &Path, has_sockets: bool) {
    for name in ["lock", "fingerprint.key"] {
        close(&data_dir.join(name), 0o600);
    }
    for folder in OWN_FOLDERS.map(|name| data_dir.join(name)) {
        close(&folder, 0o700);
        for file in fs::read_dir(&folder).into_iter().flatten().flatten() {
            close(&file.path(), 0o600);
        }
    }
    look_at_data_dir(data_dir, has_sockets);
}

/// A directory that others may read is harmless, and may be shared on purpose; one that others may write lets
/// them replace the database.
fn look_at_data_dir(data_dir: &Path, has_sockets: bool) {
    let Ok(found) = fs::metadata(data_dir) else { return };
    let mode = found.mode() & 0o7777;
    if mode & 0o077 == 0 {
        return;
    }
    if mode & 0o022 != 0 && !has_sockets && holds_only_own_files(data_dir) {
        return close(data_dir, 0o700);
    }
    let path = data_dir.display();
    log::warn!("{path}: mode {mode:04o} lets others in; unless that is meant, run: chmod 700 {path}");
}

fn holds_only_own_files(data_dir: &Path) -> bool {
    let is_own = |name: &str| {
        OWN_NAMES.iter().any(|own| {
            name.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
        })
    };
    let mut names = fs::read_dir(data_dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.all(|name| name.to_str().is_some_and(is_own))
}

/// Removes others' access to files that this user owns. Links are left alone.
fn close(path: &Path, wanted: u32) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    let mode = found.mode() & 0o7777;
    let is_expected = if wanted == 0o700 { found.is_dir() } else { found.is_file() };
    if mode & 0o077 == 0 || !is_expected {
        return;
    }
    let path_shown = path.display();
    if found.uid() != rustix::process::geteuid().as_raw() {
        log::warn!("{path_shown}: mode {mode:04o} lets others in, and user {} owns it", found.uid());
        return;
    }
    match fs::set_permissions(path, Permissions::from_mode(wanted)) {
        Ok(()) => log::warn!("{path_shown}: mode {mode:04o} let others in; it is {wanted:04o} now"),
        Err(error) => {
            log::warn!("{path_shown}: mode {mode:04o} lets others in and cannot be changed: {error}");
        }
    }
}
