//! Opening the database: one documented sequence, the same for every file and every start.
//!
//! The writer's connection is the only one that writes and the only one that checkpoints. Readers are
//! read-only, short, and interrupted when they take too long. This module knows the file and its
//! settings; what the tables mean is told in the module of each table.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

mod migrations;

pub use migrations::{Migration, SCHEMA, Schema};

/// "inbx", kept in `application_id`.
const APPLICATION_ID: i64 = 0x696e_6278;

/// How long a statement waits for another process's write lock.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pages of the indexes that the writer keeps in memory.
const CACHE_KIB: i64 = 16 << 10;

/// How much of a start may go into looking for damage.
const QUICK_CHECK_TIME_MAX: Duration = Duration::from_millis(100);

/// Why the database cannot be used, with what to do about it.
#[derive(Debug)]
pub enum OpenError {
    /// Another daemon holds the data directory.
    Locked(PathBuf),
    /// The file is damaged.
    Damaged {
        /// The database file.
        path: PathBuf,
        /// What was found.
        finding: String,
    },
    /// The file is not ours, newer than this program, or was changed by hand.
    Refused {
        /// The database file.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The upgrade of an older file failed; the file is as it was.
    Upgrade {
        /// The database file.
        path: PathBuf,
        /// Its schema version.
        from: i64,
        /// The version of this program.
        to: i64,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A file could not be created or read.
    Io {
        /// What was attempted, and on which file.
        action: String,
        /// What the system said.
        source: io::Error,
    },
    /// SQLite refused.
    Sql {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked(path) => write!(
                f,
                "{}: another inboxd serves this data directory; stop it first, or give this one its own data_dir",
                path.display()
            ),
            Self::Damaged { path, finding } => write!(
                f,
                "{}: the file is damaged or not a database ({finding}); restore the latest backup",
                path.display()
            ),
            Self::Refused { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::Upgrade { path, from, to, source } => write!(
                f,
                "{}: the upgrade from schema version {from} to {to} failed ({source}); nothing was changed: \
                 remove the cause and start again, or start the older inboxd",
                path.display()
            ),
            Self::Io { action, source } => write!(f, "cannot {action}: {source}"),
            Self::Sql { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Sql { source, .. } | Self::Upgrade { source, .. } => Some(source),
            Self::Locked(_) | Self::Damaged { .. } | Self::Refused { .. } => None,
        }
    }
}

/// The data directory, held against a second daemon until dropped.
#[derive(Debug)]
pub struct DataDirLock {
    _file: File,
}

/// Creates the data directory where it is missing (0700) and takes its lock.
///
/// # Errors
/// [`OpenError::Locked`] when another daemon holds it; I/O errors.
pub fn lock_data_dir(data_dir: &Path) -> Result<DataDirLock, OpenError> {
    create_private_dir(data_dir)?;
    let path = data_dir.join("lock");
    let io = |source| OpenError::Io { action: format!("lock {}", path.display()), source };
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(DataDirLock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked(data_dir.to_path_buf())),
        Err(TryLockError::Error(source)) => Err(io(source)),
    }
}

/// Creates a directory that only its owner can enter, and its parents.
///
/// # Errors
/// I/O errors; an existing directory is left as it is.
pub fn create_private_dir(path: &Path) -> Result<(), OpenError> {
    if path.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| OpenError::Io { action: format!("create {}", path.display()), source })
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
    create_private_file(path)?;
    let sql = |source| OpenError::Sql { path: path.to_path_buf(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags).map_err(sql)?;
    conn.busy_timeout(BUSY_TIMEOUT).map_err(sql)?;
    if is_empty(&conn).map_err(|source| damaged(path, source))? {
        create(&mut conn, schema).map_err(sql)?;
    }
    let version = version_of(&conn, path, schema)?;
    settle(&conn, path)?;
    quick_check(&mut conn, path)?;
    if let Some(way) = schema.way_from(version) {
        migrations::upgrade(&conn, path, schema, version, way)?;
    }
    compare_schema(&conn, path, schema)?;
    Ok(conn)
}

/// Opens a read-only connection whose every statement ends within `read_time_max`.
///
/// # Errors
/// See [`OpenError`]; a missing file is an I/O error that says so.
pub fn open_reader(path: &Path, read_time_max: Duration) -> Result<Connection, OpenError> {
    if !path.exists() {
        return Err(OpenError::Io {
            action: format!("open {}", path.display()),
            source: io::ErrorKind::NotFound.into(),
        });
    }
    let sql = |source| OpenError::Sql { path: path.to_path_buf(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags).map_err(sql)?;
    conn.busy_timeout(BUSY_TIMEOUT).map_err(sql)?;
    harden(&conn).map_err(sql)?;
    conn.pragma_update(None, "query_only", true).map_err(sql)?;
    version_of(&conn, path, &SCHEMA)?;
    let end = Instant::now() + read_time_max;
    conn.progress_handler(10_000, Some(move || Instant::now() >= end)).map_err(sql)?;
    Ok(conn)
}

/// Begins a transaction that holds the write lock from its first statement.
///
/// # Errors
/// Busy, full or failing storage.
pub fn begin_immediate(conn: &Connection) -> rusqlite::Result<Transaction<'_>> {
    // `new_unchecked`: nesting cannot happen, as each connection has one owner that begins here only
    Transaction::new_unchecked(conn, TransactionBehavior::Immediate)
}

/// What `wal_checkpoint` reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// Whether a reader or another writer kept it from finishing.
    pub busy: bool,
    /// Frames in the log.
    pub log_frames: i64,
    /// Frames of those now in the database file.
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

/// Whether the error tells of the storage, not of the statement: what was asked may work later.
pub fn is_storage_error(error: &rusqlite::Error) -> bool {
    is_fatal_error(error)
        || matches!(
            error.sqlite_error_code(),
            Some(
                ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
                    | ErrorCode::DiskFull
                    | ErrorCode::OutOfMemory
                    | ErrorCode::CannotOpen
                    | ErrorCode::ReadOnly
                    | ErrorCode::PermissionDenied
                    | ErrorCode::FileLockingProtocolFailed
            )
        )
}

/// Whether somebody else holds the lock.
pub fn is_busy_error(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether the error means that this process must not go on writing: what is on the disk is unknown.
pub fn is_fatal_error(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// The database is created 0600 before SQLite opens it: `-wal` and `-shm` inherit that mode.
fn create_private_file(path: &Path) -> Result<(), OpenError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(OpenError::Io { action: format!("create {}", path.display()), source }),
    }
}

fn is_empty(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
}

/// `auto_vacuum` comes first: after WAL or `application_id` it silently stays 0.
fn create(conn: &mut Connection, schema: &Schema) -> rusqlite::Result<()> {
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

/// The schema version of a file of ours that this program can open, perhaps after an upgrade.
fn version_of(conn: &Connection, path: &Path, schema: &Schema) -> Result<i64, OpenError> {
    let number = |pragma: &str| {
        conn.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0))
            .map_err(|source| damaged(path, source))
    };
    let known = schema.version;
    let reason = if number("application_id")? != APPLICATION_ID {
        "this SQLite file was not made by inboxd; choose another data_dir".to_owned()
    } else {
        match number("user_version")? {
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

/// The settings of the writer's connection. `synchronous=FULL` is what makes a 2xx true after a power
/// loss; `wal_autocheckpoint=0` because SQLite swallows the I/O errors of automatic checkpoints.
fn settle(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let sql = |source| OpenError::Sql { path: path.to_path_buf(), source };
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
    conn.pragma_update(None, "synchronous", "FULL").map_err(sql)?;
    conn.pragma_update(None, "wal_autocheckpoint", 0).map_err(sql)?;
    conn.pragma_update(None, "journal_size_limit", 16 << 20).map_err(sql)?;
    // each job's savepoint keeps the pages it changes: in memory, not in a temporary file
    conn.pragma_update(None, "temp_store", "MEMORY").map_err(sql)?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB).map_err(sql)?;
    conn.pragma_update(None, "foreign_keys", true).map_err(sql)?;
    conn.pragma_update(None, "cell_size_check", true).map_err(sql)?;
    conn.set_prepared_statement_cache_capacity(128);
    harden(conn).map_err(sql)
}

/// No trust in what the file's schema says, and no misspelt column that turns into a string.
fn harden(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    Ok(())
}

/// Looks for damage, for as long as a start may take; a large file is only looked at in part.
fn quick_check(conn: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let sql = |source| OpenError::Sql { path: path.to_path_buf(), source };
    let end = Instant::now() + QUICK_CHECK_TIME_MAX;
    conn.progress_handler(10_000, Some(move || Instant::now() >= end)).map_err(sql)?;
    let finding = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    conn.progress_handler(0, None::<fn() -> bool>).map_err(sql)?;
    match finding {
        Ok(text) if text == "ok" => Ok(()),
        Ok(finding) => Err(OpenError::Damaged { path: path.to_path_buf(), finding }),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => Ok(()),
        Err(source) => Err(damaged(path, source)),
    }
}

fn damaged(path: &Path, source: rusqlite::Error) -> OpenError {
    if is_fatal_error(&source) {
        return OpenError::Damaged { path: path.to_path_buf(), finding: source.to_string() };
    }
    OpenError::Sql { path: path.to_path_buf(), source }
}

/// A table of ours that was altered by hand would fail in the middle of an event; it fails here instead.
/// Comments and layout do not count: what `ALTER TABLE` writes is laid out in its own way.
fn compare_schema(conn: &Connection, path: &Path, schema: &Schema) -> Result<(), OpenError> {
    let sql = |source| OpenError::Sql { path: path.to_path_buf(), source };
    let wanted = Connection::open_in_memory().map_err(sql)?;
    wanted.execute_batch(schema.sql).map_err(sql)?;
    let found = definitions(conn).map_err(sql)?;
    for ((kind, name), wanted) in definitions(&wanted).map_err(sql)? {
        if found.get(&(kind.clone(), name.clone())) != Some(&wanted) {
            return Err(OpenError::Refused {
                path: path.to_path_buf(),
                reason: format!(
                    "the {kind} {name} is missing or was altered; \
                     restore a backup, or undo the change with the sqlite3 shell while inboxd is stopped"
                ),
            });
        }
    }
    Ok(())
}

/// What each table, index and trigger is defined as, by kind and name.
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
