//! Opening the database: one documented sequence, the same for every file and every start.
//!
//! The writer's connection is the only one that writes and the only one that checkpoints. Readers are
//! read-only, short, and interrupted when they take too long. This module knows the file and its
//! settings; each table's module knows what its rows mean.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use rustix::fs::Access;

use crate::store::meta;

mod claim;
mod embedded;
mod migrations;

pub use claim::{DataDirLock, FileClaim, claim_file, health_socket, lock_data_dir};
pub use embedded::{Upgraded, objection_to, upgrade_embedded, upgrade_script};
pub use migrations::{Migration, SCHEMA, Schema};

/// "inbx", kept in `application_id`.
const APPLICATION_ID: i64 = 0x696e_6278;

/// How long a statement waits for another process's lock before it gives up, in milliseconds.
const LOCK_WAIT_MS: u64 = 5_000;

/// The same for a connection whose owner tries again by itself.
const BRIEF_LOCK_WAIT_MS: u64 = 100;

/// The pause between two tries. SQLite's own pauses grow to 100 ms, in which other processes take the lock again.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

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

/// Why the database cannot be used, and what to do.
#[derive(Debug)]
pub enum OpenError {
    /// Another daemon holds the data directory.
    Locked(PathBuf),
    /// Another daemon uses the database file, perhaps under another name.
    InUse(PathBuf),
    /// The file is damaged.
    Damaged {
        /// The database file.
        path: PathBuf,
        /// What was found.
        finding: String,
    },
    /// There is no database yet.
    Missing(PathBuf),
    /// The file belongs to another user.
    Denied(PathBuf),
    /// A file of this user's cannot be created or written.
    Unusable {
        /// What was attempted, and on which file.
        action: String,
        /// What the system said.
        source: io::Error,
        /// What to do.
        advice: String,
    },
    /// The file is not inboxd's, is newer than this program, was changed by hand, or is not an ordinary file.
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

impl OpenError {
    /// SQLite's error about a file. An I/O error may pass; only content that was read and is invalid is damage.
    pub(crate) fn of_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        if is_damage_error(&source) {
            return Self::Damaged { path: path.to_path_buf(), finding: source.to_string() };
        }
        Self::Sql { path: path.to_path_buf(), source }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked(path) => write!(
                f,
                "{}: another inboxd serves this data directory; stop it first, or give this one data of its own",
                path.display()
            ),
            Self::InUse(path) => write!(
                f,
                "{}: another inboxd uses this database file, under this or another name; stop it first, or give this one data of its own",
                path.display()
            ),
            Self::Damaged { path, finding } => write!(
                f,
                "{}: the file is damaged or not a database ({finding}); keep it, and restore a copy",
                path.display()
            ),
            Self::Missing(path) => {
                write!(
                    f,
                    "there is no database at {}; `inboxd serve` makes it, or where `database` names it, the application",
                    path.display()
                )
            }
            Self::Denied(path) => {
                write!(f, "{}: permission denied; run this as the user that owns it", path.display())
            }
            Self::Unusable { action, source, advice } => write!(f, "cannot {action}: {source}; {advice}"),
            Self::Refused { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::Upgrade { path, from, to, source } => write!(
                f,
                "{}: the upgrade from schema version {from} to {to} failed ({source}); nothing was changed: \
                 remove the cause and start again, or start the older inboxd",
                path.display()
            ),
            Self::Io { action, source } => write!(f, "cannot {action}: {source}"),
            Self::Sql { path, source } if is_busy_error(source) => {
                write!(
                    f,
                    "{}: another process holds the database; try again when it has ended",
                    path.display()
                )
            }
            Self::Sql { path, source } => write!(f, "{}: {}", path.display(), without_sql(source)),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Unusable { source, .. } => Some(source),
            Self::Sql { source, .. } | Self::Upgrade { source, .. } => Some(source),
            Self::Locked(_)
            | Self::InUse(_)
            | Self::Missing(_)
            | Self::Denied(_)
            | Self::Damaged { .. }
            | Self::Refused { .. } => None,
        }
    }
}

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

/// SQLite's message without the statement, which may have many lines.
pub fn without_sql(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
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
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|source| {
        let parent = path.ancestors().skip(1).find(|parent| parent.exists()).unwrap_or(path);
        io_error(format!("create {}", path.display()), source, parent)
    })
}

/// Separates permanent errors (path, permission) from a full or failing disk.
fn io_error(action: String, source: io::Error, path: &Path) -> OpenError {
    use io::ErrorKind::{
        AlreadyExists, InvalidFilename, IsADirectory, NotADirectory, NotFound, PermissionDenied,
        ReadOnlyFilesystem,
    };
    let advice = match source.kind() {
        PermissionDenied => who_may(path),
        ReadOnlyFilesystem => {
            "the disk may be mounted read-only after a fault: look at dmesg, and mount it again".to_owned()
        }
        AlreadyExists | InvalidFilename | IsADirectory | NotADirectory | NotFound => {
            "choose another data_dir".to_owned()
        }
        _ => return OpenError::Io { action, source },
    };
    OpenError::Unusable { action, source, advice }
}

/// Advice after a refused permission. A file of another user in this user's directory: perhaps after one start as root.
fn who_may(path: &Path) -> String {
    let us = rustix::process::geteuid().as_raw();
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() && found.uid() == us && found.mode() & 0o700 == 0o700 => format!(
            "another user owns files in {shown} (was inboxd started as root?); run as root: chown -R {us} {shown}"
        ),
        Ok(found) if found.is_dir() && found.uid() == us => {
            format!("mode {:04o} keeps out its own user; run: chmod 700 {shown}", found.mode() & 0o7777)
        }
        _ => format!("run inboxd as the user that owns {shown}, or give it that user: chown USER {shown}"),
    }
}

/// Checks what is at the database's path, without opening it. `None`: nothing is there.
fn look_at(path: &Path) -> Result<Option<Metadata>, OpenError> {
    let refused = |reason: &str| {
        Err(OpenError::Refused {
            path: path.to_path_buf(),
            reason: format!("{reason}; choose another data_dir, or move it away"),
        })
    };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => refused("is a directory, not a database"),
        Ok(found) if !found.is_file() => refused("is not an ordinary file"),
        Ok(found) if found.len() == 0 => claim::refuse_orphaned_wal(path).map(|()| Some(found)),
        Ok(found) => Ok(Some(found)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound if path.is_symlink() => {
                refused("is a symbolic link to a file that does not exist (is a disk not mounted?)")
            }
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            io::ErrorKind::PermissionDenied => Err(OpenError::Denied(path.to_path_buf())),
            _ => Err(OpenError::Io { action: format!("look at {}", path.display()), source: error }),
        },
    }
}

/// The path of the WAL or its index. SQLite keeps them beside the real file, and the path may be a symbolic link: with
/// the link's own folder the WAL was never cut.
pub fn sibling(database: &Path, suffix: &str) -> PathBuf {
    let target = database.is_symlink().then(|| fs::canonicalize(database).ok()).flatten();
    let mut sibling = target.unwrap_or_else(|| database.to_owned()).into_os_string();
    sibling.push(suffix);
    sibling.into()
}

/// Makes the database and its WAL private (0600), because they hold customers' data.
fn make_private(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let file = sibling(path, suffix);
        let Ok(found) = fs::metadata(&file) else { continue };
        let mode = found.permissions().mode() & 0o777;
        if mode & 0o077 == 0 {
            continue;
        }
        match fs::set_permissions(&file, Permissions::from_mode(0o600)) {
            Ok(()) => log::warn!("{}: mode {mode:04o} let others in; it is 0600 now", file.display()),
            Err(error) => log::warn!(
                "{}: mode {mode:04o} lets others in and cannot be changed: {error}",
                file.display()
            ),
        }
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
        claim::refuse_orphaned_wal(path)?;
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

/// An I/O error of ours: the process must not go on writing, see [`is_fatal_error`].
pub fn io_failure(reason: String) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR), Some(reason))
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

/// Why this user may not write the file, or the files beside it: usually another user owns it.
fn denied(path: &Path) -> OpenError {
    match rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) | Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
            OpenError::Denied(path.to_path_buf())
        }
        Err(error) => io_error(format!("write {}", path.display()), error.into(), path),
    }
}

/// Makes the connection's statements wait for another connection's lock.
///
/// # Errors
/// When SQLite refuses the handler.
pub fn wait_for_locks(conn: &mut Connection) -> rusqlite::Result<()> {
    conn.busy_handler(Some(look_again::<LOCK_WAIT_MS>))
}

/// As [`wait_for_locks`], for a tenth of a second.
///
/// # Errors
/// When SQLite refuses the handler.
pub fn wait_briefly_for_locks(conn: &mut Connection) -> rusqlite::Result<()> {
    conn.busy_handler(Some(look_again::<BRIEF_LOCK_WAIT_MS>))
}

/// SQLite counts the tries of one wait from 0. Time is measured instead, because a busy machine makes fewer tries.
fn look_again<const WAIT_MS: u64>(looks: i32) -> bool {
    thread_local! {
        static BEGUN: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    let begun = BEGUN.get().filter(|_| looks > 0).unwrap_or_else(Instant::now);
    BEGUN.set(Some(begun));
    std::thread::sleep(LOCK_PAUSE);
    begun.elapsed() < Duration::from_millis(WAIT_MS)
}

/// Begins a transaction that holds the write lock from its first statement.
///
/// # Errors
/// Busy, full or failing storage.
pub fn begin_immediate(conn: &Connection) -> rusqlite::Result<Transaction<'_>> {
    // `new_unchecked`: nesting cannot happen, as each connection has one owner that begins here only
    Transaction::new_unchecked(conn, TransactionBehavior::Immediate)
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

/// Whether the error is the storage's and not the statement's: the same statement may succeed later.
pub fn is_storage_error(error: &rusqlite::Error) -> bool {
    is_fatal_error(error)
        || matches!(
            error.sqlite_error_code(),
            Some(
                ErrorCode::SystemIoFailure
                    | ErrorCode::DatabaseBusy
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

/// Whether another connection holds the lock.
pub fn is_busy_error(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether the error means that this process must not go on writing, because the disk's content is unknown.
pub fn is_fatal_error(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => true,
        Some(ErrorCode::SystemIoFailure) => !is_index_error(error),
        _ => false,
    }
}

/// Whether only the WAL's shared-memory index failed, as on a full disk: it holds nothing permanent.
fn is_index_error(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi;
    error.sqlite_error().is_some_and(|error| {
        matches!(
            error.extended_code,
            ffi::SQLITE_IOERR_SHMOPEN
                | ffi::SQLITE_IOERR_SHMSIZE
                | ffi::SQLITE_IOERR_SHMLOCK
                | ffi::SQLITE_IOERR_SHMMAP
        )
    })
}

/// Whether the statement ran longer than it may.
pub fn is_interrupted_error(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted)
}

/// Whether the file is damaged.
pub fn is_damage_error(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// The database is created 0600 before SQLite opens it: `-wal` and `-shm` inherit that mode.
fn create_private_file(path: &Path) -> Result<(), OpenError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => {
            Err(io_error(format!("create {}", path.display()), source, path.parent().unwrap_or(path)))
        }
    }
}

/// Syncs the directories, so that the names of new files last: SQLite ignores a failure to sync them.
fn sync_dir(path: &Path) -> Result<(), OpenError> {
    let Some(dir) = path.parent() else { return Ok(()) };
    // a relative path of one part has the empty path as its parent
    let named = |dir| if dir == Path::new("") { Path::new(".") } else { dir };
    for dir in [Some(dir), dir.parent()].into_iter().flatten().map(named) {
        match File::open(dir).and_then(|dir| dir.sync_all()) {
            // a directory that this user may only traverse cannot be synced
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced
                .map_err(|source| OpenError::Io { action: format!("sync {}", dir.display()), source })?,
        }
    }
    Ok(())
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

/// Refuses to write to an older file before a start of the daemon has upgraded it.
fn require_current(conn: &Connection, path: &Path) -> Result<(), OpenError> {
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
fn version_of(conn: &Connection, path: &Path, schema: &Schema) -> Result<i64, OpenError> {
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

/// Refuses a table that was altered by hand, which would otherwise fail in the middle of an event. Comments and layout
/// do not count, because `ALTER TABLE` has a layout of its own.
///
/// # Errors
/// [`OpenError::Refused`] names the first object that is missing or different.
pub fn compare_schema(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    compare_schema_to(conn, path, &SCHEMA)
}

fn compare_schema_to(conn: &Connection, path: &Path, schema: &Schema) -> Result<(), OpenError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_synced_is_no_place_for_new_files() {
        // no directory there can be synced, whoever asks
        let proc = Path::new("/proc/self");
        let refused = sync_dir(&proc.join("inboxd.db"));
        assert!(matches!(refused, Err(OpenError::Io { .. })), "{refused:?}");
        let dir = tempfile::tempdir().unwrap();
        sync_dir(&dir.path().join("inboxd.db")).unwrap();
        sync_dir(Path::new("inboxd.db")).unwrap();
    }
}
