//! The schema of the file: made where there is none, of a version that this program knows, and as it was made.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;

use super::embedded;
use super::error::OpenError;
use super::lock::begin_immediate;
use super::migrations::{SCHEMA, Schema};
use super::{Home, distrust, harden, open_to_look};
use crate::store::meta;

/// "inbx", kept in `application_id`.
const APPLICATION_ID: i64 = 0x696e_6278;

pub(super) fn is_empty(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
}

/// `auto_vacuum` comes first: after WAL or `application_id` it silently stays 0.
pub(super) fn create(conn: &mut Connection, schema: &Schema) -> rusqlite::Result<()> {
    conn.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    let _mode: String = conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    let tx = begin_immediate(conn)?;
    if is_empty(&tx)? {
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.execute_batch(schema.sql)?;
        tx.pragma_update(None, "user_version", schema.version)?;
    }
    tx.commit()
}

/// Refuses to write to an older file before a start of the daemon has upgraded it.
pub(super) fn require_current(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let version = version_of(conn, path, &SCHEMA)?;
    if version == SCHEMA.version {
        return Ok(());
    }
    Err(OpenError::Refused {
        path: path.to_path_buf(),
        reason: format!("the file has schema version {version}; `inboxd serve` upgrades it"),
    })
}

/// The schema version of an inboxd file that this program can open, perhaps after an upgrade. In an
/// application's file inboxd's tables have a version of their own, and are not upgraded.
pub(super) fn version_of(conn: &Connection, path: &Path, schema: &Schema) -> Result<i64, OpenError> {
    let number = |pragma: &str| {
        conn.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0))
            .map_err(|source| OpenError::of_sqlite(path, source))
    };
    let known = schema.version;
    let embedded = meta::schema_version(conn).map_err(|source| OpenError::of_sqlite(path, source))?;
    let reason = if embedded == Some(known) {
        return Ok(known);
    } else if let Some(other) = embedded {
        embedded::objection_to_version(other)
    } else if number("application_id")? != APPLICATION_ID {
        unmarked(conn, path, schema, number("application_id")?)
    } else {
        match number("user_version")? {
            0 if compare_schema_to(conn, path, schema).is_ok() => marks_lost(path, schema),
            version if version == known || schema.way_from(version).is_some() => return Ok(version),
            newer if newer > known => format!(
                "the file has schema version {newer}, this inboxd knows up to {known}; start the newer inboxd again, \
                 or restore a copy made by this version (backups/pre-migration-v{known}-*.db in the data directory)"
            ),
            other => {
                format!("the file has the unknown schema version {other}; restore a copy of it")
            }
        }
    };
    Err(OpenError::Refused { path: path.to_path_buf(), reason })
}

/// The refusal of a file without inboxd's mark: another program's, or a copy that lost the mark.
fn unmarked(conn: &Connection, path: &Path, schema: &Schema, application_id: i64) -> String {
    let has_tables = definitions(conn)
        .is_ok_and(|found| found.contains_key(&("table".to_owned(), "webhook_inbox".to_owned())));
    if !has_tables {
        return "this SQLite file was not made by inboxd and has none of its tables; choose another data_dir, or where \
                `database` names it, let `inboxd serve` make them"
            .to_owned();
    }
    if application_id != 0 {
        return format!(
            "this SQLite file was not made by inboxd: it is marked as another program's (application_id {application_id}), \
             though it has a table of inboxd's; choose another data_dir, or restore a copy"
        );
    }
    if compare_schema_to(conn, path, schema).is_ok() {
        return marks_lost(path, schema);
    }
    format!(
        "this file is not marked as inboxd's (application_id), and its tables are not those of schema version {}; \
         if it was restored from a `.dump`, which loses that mark and the version, make the copy again with \
         `VACUUM INTO` or `.backup`; it was not made by inboxd as it is",
        schema.version
    )
}

/// The two numbers that a `.dump` loses, and the statements that restore them.
fn marks_lost(path: &Path, schema: &Schema) -> String {
    format!(
        "the file has all of inboxd's tables, but not the two numbers in its header that mark it as inboxd's: a restore from `.dump` \
         loses them. If that is what it is, put them back while inboxd is stopped: \
         sqlite3 {} \"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {};\"",
        path.display(),
        schema.version
    )
}

/// Refuses a table that was altered by hand, which would otherwise fail in the middle of an event. Comments and layout
/// do not count, because `ALTER TABLE` has a layout of its own.
///
/// # Errors
/// [`OpenError::Refused`] names the first object that is missing or different.
pub fn compare_schema(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    compare_schema_to(conn, path, &SCHEMA)
}

pub(super) fn compare_schema_to(conn: &Connection, path: &Path, schema: &Schema) -> Result<(), OpenError> {
    let sql = |source| OpenError::of_sqlite(path, source);
    let is_embedded = meta::schema_version(conn).map_err(sql)?.is_some();
    let found = definitions(conn).map_err(sql)?;
    for embedded::Object { kind, name, sql: text } in
        embedded::objects_of(schema, is_embedded).map_err(sql)?
    {
        let key = (kind, name);
        if found.get(&key) != Some(&essence(&text)) {
            let (kind, name) = key;
            return Err(OpenError::Refused {
                path: path.to_path_buf(),
                reason: format!(
                    "the {kind} {name} is missing or was altered; \
                     restore a copy, or undo the change with the sqlite3 shell while inboxd is stopped"
                ),
            });
        }
    }
    Ok(())
}

/// The definition of each table, index and trigger, by kind and name.
fn definitions(conn: &Connection) -> rusqlite::Result<BTreeMap<(String, String), String>> {
    conn.prepare("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL")?
        .query_map([], |row| Ok(((row.get(0)?, row.get(1)?), essence(&row.get::<_, String>(2)?))))?
        .collect()
}

/// A definition without comments, white space and the quotes that renaming puts around a name.
fn essence(sql: &str) -> String {
    let uncommented = sql.lines().filter_map(|line| line.split("--").next());
    uncommented.flat_map(str::chars).filter(|c| !c.is_whitespace() && *c != '"').collect()
}

/// The names of inboxd's tables, all lower-case.
///
/// # Errors
/// Any SQLite error.
pub fn own_tables(home: Home) -> rusqlite::Result<Vec<String>> {
    let objects = embedded::objects(home.is_embedded())?;
    Ok(objects.into_iter().filter(|object| object.kind == "table").map(|object| object.name).collect())
}

/// A throw-away copy of the database's schema in memory: what the file has, and inboxd's tables where
/// it has none.
///
/// # Errors
/// The file cannot be read.
pub fn scratch(path: &Path, home: Home) -> Result<Connection, OpenError> {
    let sql = |source| OpenError::of_sqlite(path, source);
    let scratch = Connection::open_in_memory().map_err(sql)?;
    if path.exists() {
        let conn = open_to_look(path)?;
        copy_schema(&conn, &scratch).map_err(sql)?;
    }
    for object in embedded::objects(home.is_embedded()).map_err(sql)? {
        // objects that came from the file exist already
        drop(scratch.execute_batch(&object.sql));
    }
    match home {
        Home::Own => harden(&scratch),
        Home::Application { .. } => distrust(&scratch),
    }
    .map_err(sql)?;
    Ok(scratch)
}

/// The objects of one database in another. The hidden tables of a virtual table come with it.
fn copy_schema(from: &Connection, to: &Connection) -> rusqlite::Result<()> {
    let mut statement = from.prepare(
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY rowid",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let text: String = row.get(0)?;
        drop(to.execute_batch(&text));
    }
    Ok(())
}
