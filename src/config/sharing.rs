//! Who else may read a secret's file, and whether the mode can be changed.
//!
//! A file whose mode this user can set must be private. If the user cannot set it (a Docker or Kubernetes mount,
//! another owner), other readers are accepted and other writers are not.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, fstatvfs};

/// Where container engines mount secrets; a mode that is set there is gone with the container.
const MOUNTS_OF_ENGINES: [&str; 2] = ["/run/secrets", "/var/run/secrets"];

/// Of a file with any bit for group or others.
pub(super) enum Sharing {
    /// Others may write it.
    Written,
    /// Others may read it, and the user who runs inboxd cannot change that, for this reason.
    Given(String),
    /// Others may read it, and the owner could change that.
    Chosen,
}

/// Judges the open file and the path that led to it.
pub(super) fn of(file: &File, path: &Path, mode: u32) -> Sharing {
    let is_read_only = fstatvfs(file).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY));
    if is_read_only {
        return Sharing::Given("it is on a read-only mount".to_owned());
    }
    if mode & 0o022 != 0 {
        return Sharing::Written;
    }
    if is_projected(path) {
        return Sharing::Given("Kubernetes has mounted it".to_owned());
    }
    if fs::canonicalize(path).is_ok_and(|path| MOUNTS_OF_ENGINES.iter().any(|mount| path.starts_with(mount)))
    {
        return Sharing::Given("a container engine has mounted it".to_owned());
    }
    match file.metadata() {
        Ok(found) if !is_ours(file) => Sharing::Given(format!("user {} owns it", found.uid())),
        _ => Sharing::Chosen,
    }
}

/// Whether this process may set the file's mode.
pub(super) fn is_ours(file: &File) -> bool {
    let us = rustix::process::geteuid();
    us.is_root() || file.metadata().is_ok_and(|found| found.uid() == us.as_raw())
}

/// A projected volume: `NAME -> ..data/NAME`, `..data -> ..2026_01_31_09_00_00.1`, so that all files change at once.
/// The file named may lie in a folder of the volume.
fn is_projected(path: &Path) -> bool {
    let leads_through_data = |link: &Path| {
        fs::read_link(link).is_ok_and(|target| target.starts_with("..data"))
            && link.parent().is_some_and(|volume| volume.join("..data").is_symlink())
    };
    path.ancestors().any(leads_through_data) || path.ancestors().any(|part| part.ends_with("..data"))
}
