//! Opening the database: one documented sequence, the same for every file and every start.
//!
//! The writer's connection is the only one that writes and the only one that checkpoints. Readers are
//! read-only, short, and interrupted when they take too long. This module knows the file and its
//! settings; each table's module knows what its rows mean.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction};
use rustix::fs::Access;

use crate::store::meta;

mod claim;
mod embedded;
mod migrations;
mod schema;
mod files;
mod lock;
mod error;

pub use claim::{DataDirLock, FileClaim, claim_file, health_socket, lock_data_dir};
pub use embedded::{Upgraded, objection_to, upgrade_embedded, upgrade_script};
pub use error::{
    OpenError, io_failure, is_busy_error, is_damage_error, is_fatal_error, is_interrupted_error,
    is_storage_error, without_sql,
};
pub use files::{create_private_dir, sibling};
pub use lock::{begin_immediate, wait_briefly_for_locks, wait_for_locks};
#[cfg(feature = "internals")]
pub use migrations::Migration;
pub use migrations::{SCHEMA, Schema};
pub use schema::{compare_schema, own_tables, scratch};

use error::{denied, io_error};
use files::{create_private_file, look_at, make_private, sync_dir};
use schema::{compare_schema_to, create, is_empty, require_current, version_of};

/// The busy timeout of a start: short, so that the wait can be reported and retried.
pub(crate) const START_BUSY_TIMEOUT: Duration = Duration::from_millis(200);

/// Pages of the indexes that the writer keeps in memory.
const CACHE_KIB: i64 = 16 << 10;

/// How often damage must be found before it is believed, and the pause in between: SQLite takes a page that cannot be
/// read for a damaged one.
const DAMAGE_LOOKS: u32 = 3;
const DAMAGE_PAUSE: Duration = Duration::from_millis(50);

/// The most time of a start for the search for damage.
const QUICK_CHECK_TIME_MAX: Duration = Duration::from_millis(100);

/// Whose file the database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// inboxd's own, in its data directory.
    Own,
    /// The application's: it gets only the tables that an event needs.
    Application {
        /// Whether write-ahead logging may be switched on.
        allow_wal: bool,
    },
}

impl Home {
    fn is_embedded(self) -> bool {
        self != Self::Own
    }
}

/// Opens the writer's connection where the database lives; see [`open_writer`].
///
/// # Errors
/// See [`OpenError`]; a file that is refused is not changed.
pub fn open_writer_in(path: &Path, home: Home) -> Result<Connection, OpenError> {
    let conn = match home {
        Home::Own => return open_writer(path),
        Home::Application { allow_wal } => unless_damaged(|| embedded::open(path, allow_wal))?,
    };
    compare_schema(&conn, path)?;
    Ok(conn)
}

/// Opens the writer's connection, creating the file (0600) and its schema where there is none, and
/// upgrading an older file (a copy of it is made first, see [`Schema`]).
///
/// # Errors
/// See [`OpenError`]; a file that is refused is not changed.
pub fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    open_writer_as(path, &SCHEMA)
}

/// [`open_writer`] with another schema than this version's: for tests of the way from one to the next.
///
/// # Errors
/// As [`open_writer`].
pub fn open_writer_as(path: &Path, schema: &Schema) -> Result<Connection, OpenError> {
    unless_damaged(|| open_once(path, schema))
}

/// SQLite takes a read that fails once for damage, so damage is believed only when it is found repeatedly.
fn unless_damaged<T>(mut open: impl FnMut() -> Result<T, OpenError>) -> Result<T, OpenError> {
    for _ in 1..DAMAGE_LOOKS {
        match open() {
            Err(OpenError::Damaged { path, finding }) => {
                log::warn!("{}: looks damaged ({finding}); looking again", path.display());
                std::thread::sleep(DAMAGE_PAUSE);
            }
            opened => return opened,
        }
    }
    open()
}

fn open_once(path: &Path, schema: &Schema) -> Result<Connection, OpenError> {
    if look_at(path)?.is_none() {
        files::refuse_orphaned_wal(path)?;
        create_private_file(path)?;
    }
    // SQLite would silently open a file read-only that it may not write
    rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK)
        .map_err(|source| io_error(format!("write {}", path.display()), source.into(), path))?;
    let sql = |source| OpenError::of_sqlite(path, source);
    let mut conn = open_untouched(path)?;
    conn.busy_timeout(START_BUSY_TIMEOUT).map_err(sql)?;
    if is_empty(&conn).map_err(sql)? {
        create(&mut conn, schema).map_err(sql)?;
        sync_dir(path)?;
    }
    let version = version_of(&conn, path, schema)?;
    leave_log(&conn, false).map_err(sql)?;
    settle(&conn, path)?;
    quick_check(&mut conn, path)?;
    if let Some(way) = schema.way_from(version) {
        wait_for_locks(&mut conn).map_err(sql)?;
        migrations::upgrade(&mut conn, path, schema, version, way)?;
    }
    compare_schema_to(&conn, path, schema)?;
    make_private(path);
    wait_for_locks(&mut conn).map_err(sql)?;
    Ok(conn)
}

/// Opens a connection for one operator's act, beside a daemon that may be running. It waits for the write
/// lock, and leaves checkpoints and the journal mode to the daemon: the file may be an application's.
///
/// # Errors
/// See [`OpenError`]; a file that is refused is not changed.
pub fn open_operator(path: &Path) -> Result<Connection, OpenError> {
    let Some(found) = look_at(path)? else {
        return Err(OpenError::Missing(path.to_path_buf()));
    };
    claim::refuse_several_names(path, found.nlink())?;
    rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).map_err(|_| denied(path))?;
    let sql = |source| OpenError::of_sqlite(path, source);
    let mut conn = open_untouched(path)?;
    wait_for_locks(&mut conn).map_err(sql)?;
    require_current(&conn, path)?;
    settle_pragmas(&conn).and_then(|()| harden(&conn)).map_err(sql)?;
    Ok(conn)
}

/// A connection that may write, and leaves another process's WAL alone when it is closed.
fn open_untouched(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags);
    conn.and_then(|conn| leave_log(&conn, true).map(|()| conn))
        .map_err(|source| OpenError::of_sqlite(path, source))
}

/// A connection that only reads, whether the file is inboxd's or an application's.
fn open_to_look(path: &Path) -> Result<Connection, OpenError> {
    let sql = |source| OpenError::of_sqlite(path, source);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags).map_err(sql)?;
    wait_for_locks(&mut conn).map_err(sql)?;
    Ok(conn)
}

/// Makes the connection leave WAL and database file unchanged when it is closed.
///
/// # Errors
/// When SQLite refuses.
pub fn leave_wal(conn: &Connection) -> rusqlite::Result<()> {
    leave_log(conn, true)
}

/// Writes a value without a meaning, to find out whether writing works.
///
/// # Errors
/// Busy, full or failing storage.
pub fn note_probe(tx: &Transaction<'_>) -> rusqlite::Result<()> {
    meta::note_probe(tx)
}

/// Whether the last connection leaves the WAL beside the file when it is closed.
fn leave_log(conn: &Connection, is_left: bool) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, is_left).map(drop)
}

/// Opens a read-only connection whose every statement ends within `read_time_max`.
///
/// # Errors
/// See [`OpenError`]; a missing file is [`OpenError::Missing`].
pub fn open_reader(path: &Path, read_time_max: Duration) -> Result<Connection, OpenError> {
    if look_at(path)?.is_none() {
        return Err(OpenError::Missing(path.to_path_buf()));
    }
    // SQLite's error for a file, or a WAL beside it, that this user may not use
    let sql = |source: rusqlite::Error| match source.sqlite_error_code() {
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => denied(path),
        _ => OpenError::of_sqlite(path, source),
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags).map_err(sql)?;
    wait_for_locks(&mut conn).map_err(sql)?;
    harden(&conn).map_err(sql)?;
    conn.pragma_update(None, "query_only", true).map_err(sql)?;
    conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(sql)?;
    version_of(&conn, path, &SCHEMA)?;
    let end = Instant::now() + read_time_max;
    conn.progress_handler(10_000, Some(move || Instant::now() >= end)).map_err(sql)?;
    Ok(conn)
}

/// A database with this version's tables and nothing in them, in memory: for a trial.
///
/// # Errors
/// Any SQLite error.
pub fn in_memory() -> rusqlite::Result<Connection> {
    let conn = Connection::open_in_memory()?;
    conn.execute_batch(SCHEMA.sql)?;
    conn.pragma_update(None, "foreign_keys", true)?;
    Ok(conn)
}

/// The result of `wal_checkpoint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// Whether a reader or another writer kept it from finishing.
    pub busy: bool,
    /// Frames in the WAL.
    pub log_frames: i64,
    /// How many of these frames are in the database file now.
    pub moved_frames: i64,
}

/// Runs `PRAGMA wal_checkpoint(mode)`; `mode` is `PASSIVE` or `TRUNCATE`.
///
/// # Errors
/// I/O errors: unlike SQLite's automatic checkpoint, none is swallowed.
pub fn checkpoint(conn: &Connection, mode: &str) -> rusqlite::Result<Checkpoint> {
    conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        Ok(Checkpoint {
            busy: row.get::<_, i64>(0)? != 0,
            log_frames: row.get(1)?,
            moved_frames: row.get(2)?,
        })
    })
}

/// The settings of the writer's connection. `synchronous=FULL` is what makes a 2xx true after a power
/// loss; `wal_autocheckpoint=0` because SQLite swallows the I/O errors of automatic checkpoints.
fn settle(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let sql = |source| OpenError::of_sqlite(path, source);
    let mode: String =
        conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).map_err(sql)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(OpenError::Refused {
            path: path.to_path_buf(),
            reason: format!(
                "the file system does not allow write-ahead logging (journal mode stays {mode}); \
                 put data_dir on a local disk"
            ),
        });
    }
    settle_pragmas(conn).and_then(|()| harden(conn)).map_err(sql)
}

/// Settings of the connection; none is stored in the file.
fn settle_pragmas(conn: &Connection) -> rusqlite::Result<()> {
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update(None, "journal_size_limit", 16 << 20)?;
    // savepoints keep changed pages in memory, not in a temporary file
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.pragma_update(None, "cell_size_check", true)?;
    // QPSG: without it SQLite plans a statement again at every use if its plan could depend on bound values; every
    // claim was
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.set_prepared_statement_cache_capacity(128);
    Ok(())
}

/// Distrusts the file's schema, and makes a misspelt column an error instead of a string.
fn harden(conn: &Connection) -> rusqlite::Result<()> {
    distrust(conn)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    Ok(())
}

/// The settings that an application's schema does not notice.
fn distrust(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    Ok(())
}

/// Searches for damage within the time limit of a start; a large file is checked only in part.
fn quick_check(conn: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let sql = |source| OpenError::of_sqlite(path, source);
    let end = Instant::now() + QUICK_CHECK_TIME_MAX;
    conn.progress_handler(10_000, Some(move || Instant::now() >= end)).map_err(sql)?;
    let finding = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    conn.progress_handler(0, None::<fn() -> bool>).map_err(sql)?;
    match finding {
        Ok(text) if text == "ok" => Ok(()),
        Ok(finding) => Err(OpenError::Damaged { path: path.to_path_buf(), finding }),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => Ok(()),
        Err(source) => Err(OpenError::of_sqlite(path, source)),
    }
}
