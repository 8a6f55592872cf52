//! The rules of `data_dir`, `database` and `[database_options]`.

use std::path::PathBuf;

use super::{Checker, DATABASE, Embedded};
use crate::config::raw::RawConfig;

/// Where the data is.
pub(super) struct Place {
    pub(super) data_dir: PathBuf,
    pub(super) database: PathBuf,
    pub(super) embedded: Option<Embedded>,
}

impl Checker {
    pub(super) fn place(&mut self, raw: &RawConfig) -> Place {
        let Some(typed) = raw.database.as_deref() else {
            if raw.database_options.is_some() {
                let rule = "is about an application's own file; write database = \"…\" as well, or remove it";
                self.problem("database_options", rule);
            }
            let data_dir = self.data_dir(raw.data_dir.as_deref());
            return Place { database: data_dir.join(DATABASE), data_dir, embedded: None };
        };
        if raw.data_dir.is_some() {
            let rule = format!("\"{typed}\": stands instead of data_dir; remove one of them");
            self.problem("database", rule);
        }
        let database = self.base.join(typed);
        if !database.is_file() {
            let rule = "is not a file; name the application's SQLite file, which the application makes";
            self.problem("database", format!("\"{typed}\": {rule}"));
        }
        // the lock stands beside the file: whoever names the file finds it held
        let mut beside = database.clone().into_os_string();
        beside.push("-inboxd");
        let allow_wal = raw.database_options.as_ref().and_then(|options| options.allow_wal).unwrap_or(false);
        Place { data_dir: beside.into(), database, embedded: Some(Embedded { allow_wal }) }
    }
}
