//! `data_dir`, `database` and `[database_options]`: where the data is.

use std::path::PathBuf;

use super::Checker;
use crate::config::keys::{Default, Kind, Table, key};
use crate::config::values::{Shown, Values};

pub(in crate::config) const TABLE: Table = Table {
    header: "database_options",
    doc: "With `database` only: what inboxd may do to the application's file.",
    keys: &[key(
        "allow_wal",
        Kind::Flag,
        Default::Is("false"),
        "Let inboxd switch write-ahead logging on, which stays on for the application as well.",
    )],
};

/// Where the data is when neither `data_dir` nor `database` is written.
pub(in crate::config) const DATA_DIR: &str = "./inboxd-data";

/// The database's name in `data_dir`.
pub(in crate::config) const DATABASE: &str = "inboxd.db";

/// `database = …` with `[database_options]`: inboxd lives in the application's own file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Embedded {
    /// Whether inboxd may switch write-ahead logging on.
    pub allow_wal: bool,
}

/// Where the data is.
pub(super) struct Location {
    pub(super) data_dir: PathBuf,
    pub(super) database: PathBuf,
    pub(super) embedded: Option<Embedded>,
}

impl Checker {
    pub(super) fn location(&mut self, values: &Values) -> Location {
        let Some(typed) = values.text("database") else {
            if values.is_set("database_options") {
                let rule = "is about an application's own file; write database = \"…\" as well, or remove it";
                self.problem("database_options", rule);
            }
            let data_dir = self.data_dir(values);
            return Location { database: data_dir.join(DATABASE), data_dir, embedded: None };
        };
        if values.is_set("data_dir") {
            let rule = format!("\"{typed}\": stands instead of data_dir; remove one of them");
            self.problem("database", rule);
        }
        let database = self.base.join(typed);
        if !database.is_file() {
            let rule = "is not a file; name the application's SQLite file, which the application makes";
            self.problem("database", format!("\"{typed}\": {rule}"));
        }
        // the lock is beside the file, so that every configuration that names the file finds it held
        let mut beside = database.clone().into_os_string();
        beside.push("-inboxd");
        values.show("database", Shown::text(database.display()));
        let options = Values::empty(&TABLE, TABLE.header.to_owned());
        let allow_wal = self.flag(values.table("database_options").unwrap_or(&options), "allow_wal");
        Location { data_dir: beside.into(), database, embedded: Some(Embedded { allow_wal }) }
    }

    fn data_dir(&mut self, values: &Values) -> PathBuf {
        let typed = values.text("data_dir").unwrap_or(DATA_DIR);
        if typed.is_empty() {
            self.problem("data_dir", "\"\": names no directory; write e.g. \"/var/lib/inboxd\"");
        }
        let path = self.base.join(typed);
        if path.exists() && !path.is_dir() {
            self.problem(
                "data_dir",
                format!("\"{typed}\": is not a directory; name one, or a path that does not exist yet"),
            );
        }
        values.show("data_dir", Shown::text(path.display()));
        path
    }
}
