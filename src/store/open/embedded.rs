//! inboxd's tables inside the application's own file (`database = …`).
//!
//! Only the tables that an event needs are made there. Everything of the application's stays as it is: its tables,
//! `user_version`, `application_id`, the file's mode, and how its schema is read. The journal mode is changed only with
//! consent. The version of inboxd's tables is in `inboxd_meta`.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, Transaction};

use super::files::require_file;
use super::migrations::{Migration, upgrade_tables};
use super::{
    OpenError, SCHEMA, START_BUSY_TIMEOUT, Schema, begin_immediate, distrust, is_busy_error, leave_log,
    open_to_look, open_untouched, quick_check, settle_pragmas, wait_for_locks,
};
use crate::store::meta;

/// The part of `schema.sql` between these two lines is not made in an application's file.
const BOOKS: [&str; 2] = ["-- BOOKS:", "-- END OF BOOKS"];

/// How long the switch to write-ahead logging waits for the application to let go of the file.
const SWITCH_TIME_MAX: Duration = Duration::from_secs(30);

/// A table, index or trigger of inboxd's.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) sql: String,
}

/// The objects of `schema.sql`, in its order; for an application's file without the books.
pub(super) fn objects(is_embedded: bool) -> rusqlite::Result<Vec<Object>> {
    objects_of(&SCHEMA, is_embedded)
}

/// As [`objects`], of another version.
pub(super) fn objects_of(schema: &Schema, is_embedded: bool) -> rusqlite::Result<Vec<Object>> {
    let wanted = Connection::open_in_memory()?;
    if is_embedded {
        let (before, after) = around_the_books(schema.sql);
        wanted.execute_batch(before)?;
        wanted.execute_batch(after)?;
    } else {
        wanted.execute_batch(schema.sql)?;
    }
    let mut statement =
        wanted.prepare("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")?;
    let rows = statement
        .query_map([], |row| Ok(Object { kind: row.get(0)?, name: row.get(1)?, sql: row.get(2)? }))?;
    rows.collect()
}

fn around_the_books(schema: &str) -> (&str, &str) {
    let [begin, end] = BOOKS;
    let (before, rest) = schema.split_once(begin).unwrap_or((schema, ""));
    (before, rest.split_once(end).map_or("", |(_, after)| after))
}

/// Opens the writer's connection to an application's file, making inboxd's tables where they are missing.
pub(super) fn open(path: &Path, allow_wal: bool) -> Result<Connection, OpenError> {
    let sql = |source| OpenError::of_sqlite(path, source);
    let refused = |reason| OpenError::Refused { path: path.to_path_buf(), reason };
    require_file(path)?;
    let mut conn = open_untouched(path)?;
    // a short timeout: the start reports the wait and tries again
    conn.busy_timeout(START_BUSY_TIMEOUT).map_err(sql)?;
    let version = meta::schema_version(&conn).map_err(sql)?;
    if let Some(objection) = objection(&conn, version, allow_wal).map_err(sql)? {
        return Err(refused(objection));
    }
    leave_log(&conn, false).map_err(sql)?;
    switch_to_wal(&conn, path)?;
    if version.is_none() {
        let tx = begin_immediate(&conn).map_err(sql)?;
        create(&tx).map_err(sql)?;
        tx.commit().map_err(sql)?;
    }
    settle_pragmas(&conn).and_then(|()| distrust(&conn)).map_err(sql)?;
    quick_check(&mut conn, path)?;
    wait_for_locks(&mut conn).map_err(sql)?;
    Ok(conn)
}

/// Why inboxd would not start on this file, without changing anything.
///
/// # Errors
/// The file cannot be opened or read.
pub fn objection_to(path: &Path, allow_wal: bool) -> Result<Option<String>, OpenError> {
    let sql = |source| OpenError::of_sqlite(path, source);
    require_file(path)?;
    let conn = open_to_look(path)?;
    let version = meta::schema_version(&conn).map_err(sql)?;
    objection(&conn, version, allow_wal).map_err(sql)
}

fn objection(conn: &Connection, version: Option<i64>, allow_wal: bool) -> rusqlite::Result<Option<String>> {
    match version {
        None => {
            for Object { name, .. } in objects(true)? {
                let taken: Option<String> = conn.query_row(TAKEN, [&name], |row| row.get(0)).optional()?;
                if let Some(taken) = taken {
                    return Ok(Some(format!(
                        "the application's {taken} {name} has a name that inboxd needs for a table, index or trigger of its own; \
                         rename it, or give inboxd a file of its own with data_dir"
                    )));
                }
            }
        }
        Some(version) if version == SCHEMA.version => {}
        Some(other) => return Ok(Some(objection_to_version(other))),
    }
    let mode: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") && !allow_wal {
        return Ok(Some(format!(
            "the file's journal mode is {mode}; inboxd needs write-ahead logging, which stays on for the application as well \
             (readers and the writer no longer block each other, two more files appear beside it, network file systems do not work): \
             switch it on with `PRAGMA journal_mode = WAL`, or let inboxd do it: [database_options] allow_wal = true"
        )));
    }
    Ok(None)
}

/// The message about tables of another version.
pub(super) fn objection_to_version(version: i64) -> String {
    let known = SCHEMA.version;
    let other = format!("inboxd's tables in the file have version {version}, this inboxd knows {known}");
    if SCHEMA.way_from(version).is_some() {
        format!("{other}: copy the file, then run `inboxd upgrade`, which says what it does")
    } else {
        format!("{other}; start the inboxd that made them")
    }
}

/// The result of an upgrade of inboxd's tables in an application's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upgraded {
    /// There was nothing to do.
    Current,
    /// From this version to the one of this program.
    From(i64),
}

/// Upgrades inboxd's tables in an application's file, in one transaction; with `is_dry` nothing is changed. No copy is
/// made: the file is the application's.
///
/// # Errors
/// See [`OpenError`]; nothing was changed then.
pub fn upgrade_embedded(path: &Path, is_dry: bool) -> Result<Upgraded, OpenError> {
    let sql = |source| OpenError::of_sqlite(path, source);
    require_file(path)?;
    let mut conn = open_untouched(path)?;
    wait_for_locks(&mut conn).map_err(sql)?;
    let version = meta::schema_version(&conn).map_err(sql)?;
    let Some(version) = version.filter(|version| *version != SCHEMA.version) else {
        return Ok(Upgraded::Current);
    };
    let Some(way) = SCHEMA.way_from(version) else {
        let reason = objection_to_version(version);
        return Err(OpenError::Refused { path: path.to_path_buf(), reason });
    };
    if !is_dry {
        settle_pragmas(&conn).map_err(sql)?;
        upgrade_tables(&conn, path, || migrate(&conn, path, version, way))?;
    }
    Ok(Upgraded::From(version))
}

fn migrate(conn: &Connection, path: &Path, from: i64, way: &[Migration]) -> Result<(), OpenError> {
    let to = SCHEMA.version;
    let failed = |source| OpenError::Upgrade { path: path.to_owned(), from, to, source };
    let tx = begin_immediate(conn).map_err(failed)?;
    for migration in way {
        tx.execute_batch(migration.sql).map_err(failed)?;
        meta::note_schema_version(&tx, migration.to).map_err(failed)?;
    }
    super::compare_schema(&tx, path)?;
    tx.commit().map_err(failed)
}

/// The same upgrade as a script for the sqlite3 shell; `None`: no migration leads there.
pub fn upgrade_script(from: i64) -> Option<String> {
    let way = SCHEMA.way_from(from)?;
    let steps: String = way.iter().map(|migration| migration.sql).collect();
    let note = meta::schema_version_sql(SCHEMA.version);
    Some(format!(
        "PRAGMA foreign_keys = OFF;\nPRAGMA legacy_alter_table = ON;\nBEGIN IMMEDIATE;\n{steps}{note};\nCOMMIT;\n"
    ))
}

fn create(tx: &Transaction<'_>) -> rusqlite::Result<()> {
    if meta::schema_version(tx)?.is_some() {
        return Ok(());
    }
    for object in objects(true)? {
        tx.execute_batch(&object.sql)?;
    }
    meta::note_schema_version(tx, SCHEMA.version)?;
    Ok(())
}

/// The switch needs a moment without other users of the file.
fn switch_to_wal(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let end = Instant::now() + SWITCH_TIME_MAX;
    let mut was_told = false;
    loop {
        let switched =
            conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        let reason = match switched {
            Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
            Ok(mode) => format!("the file system does not allow write-ahead logging (it stays {mode})"),
            Err(error) if is_busy_error(&error) && Instant::now() < end => {
                if !std::mem::replace(&mut was_told, true) {
                    log::warn!(
                        "{}: the application uses the file; waiting for a moment in which it can be switched to write-ahead logging",
                        path.display()
                    );
                }
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            Err(error) if is_busy_error(&error) => {
                "the application keeps the file locked; switch to write-ahead logging while it is stopped"
                    .to_owned()
            }
            Err(source) => return Err(OpenError::of_sqlite(path, source)),
        };
        return Err(OpenError::Refused { path: path.to_path_buf(), reason });
    }
}

const TAKEN: &str = "
    SELECT type FROM main.sqlite_schema WHERE lower(name) = lower(?1)";
