//! Fingerprints: they distinguish secrets without showing them.
//!
//! A plain hash would let whoever reads a log try guesses against it. So the hash has a random key, which is kept
//! in the data directory and never leaves it. Before the first start, and for a user who may not read that key, a
//! temporary key is used, which lasts until the next boot.

use std::fs;
use std::io;
use std::path::Path;

use super::secrets;
use crate::signature::Secret;

/// The key's file in the data directory.
const KEY_FILE: &str = "fingerprint.key";

/// Makes the fingerprints of secrets.
#[derive(Debug)]
pub struct Fingerprints {
    key: Vec<u8>,
    is_kept: bool,
}

impl Fingerprints {
    /// With the key in this data directory, which the first start makes. Without it (no start yet, or another user's
    /// directory) fingerprints can be compared with each other, but not with those that `serve` shows.
    pub fn of(data_dir: &Path) -> Self {
        match fs::read(data_dir.join(KEY_FILE)) {
            Ok(key) if key.len() >= 32 => Self { key, is_kept: true },
            _ => Self { key: passing_key(), is_kept: false },
        }
    }

    /// As [`Fingerprints::of`]; the key is made where there is none. The directory must exist.
    pub fn kept(data_dir: &Path) -> Self {
        // without a kept key, fingerprints are still comparable within this run
        drop(keep(data_dir));
        Self::of(data_dir)
    }

    /// e.g. `sha256:ab12cd34`, or `sha256:ab12cd34/boot` without the kept key; `None` for a secret that was not read.
    pub fn find(&self, secret: &Secret) -> Option<String> {
        let until = if self.is_kept { "" } else { "/boot" };
        (!secret.is_unread()).then(|| format!("sha256:{}{until}", secret.fingerprint(&self.key)))
    }

    /// The same for people.
    pub fn text(&self, secret: &Secret) -> String {
        self.find(secret).unwrap_or_else(|| "not read".to_owned())
    }
}

fn keep(data_dir: &Path) -> io::Result<()> {
    secrets::keep(&data_dir.join(KEY_FILE), secrets::Style::Hex)
}

/// A key that stays the same until the next boot and appears in no log.
fn passing_key() -> Vec<u8> {
    fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| {
        // without random numbers all fingerprints are equal, and so reveal nothing
        let mut key = [0; 32];
        getrandom::fill(&mut key).unwrap_or_default();
        key.to_vec()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_stay_the_same_in_one_data_directory_and_differ_in_another() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, same, other) = (
            Secret::new("env:A", "a secret"),
            Secret::new("env:B", "a secret"),
            Secret::new("env:C", "another"),
        );
        let kept = Fingerprints::kept(here.path());
        assert_eq!(kept.find(&one), kept.find(&same));
        assert_ne!(kept.find(&one), kept.find(&other));
        assert_eq!(Fingerprints::of(here.path()).find(&one), kept.find(&one));
        assert_ne!(Fingerprints::kept(there.path()).find(&one), kept.find(&one));
        assert!(kept.text(&one).starts_with("sha256:"));
        assert_eq!(kept.text(&Secret::new("credential:a", "")), "not read");
    }

    #[test]
    fn without_the_kept_key_they_are_of_another_kind_and_nothing_is_written() {
        let nowhere = tempfile::tempdir().unwrap();
        let (one, other) = (Secret::new("env:A", "a secret"), Secret::new("env:B", "another"));
        let passing = Fingerprints::of(nowhere.path());
        assert_ne!(passing.find(&one), passing.find(&other));
        assert!(passing.text(&one).ends_with("/boot"));
        assert_eq!(fs::read_dir(nowhere.path()).unwrap().count(), 0);
    }
}
