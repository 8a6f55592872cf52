//! Upgrades an older schema to this version's: a copy first, one transaction, and the way back in the log.
//!
//! Migrations go forward only and one version at a time. Nothing is lost on the way: a file is either as
//! it was, or upgraded as a whole, and beside it lies a copy of what it was. A file that is newer than this
//! program is never touched.
//!
//! **To change `schema.sql` after a release:** raise [`SCHEMA`]`.version`, append a [`Migration`] whose
//! result has the definitions that `schema.sql` has now (a start compares them, comments and layout aside),
//! keep the old text as `tests/fixtures/schema-N.sql`. `ALTER TABLE … ADD COLUMN` puts a column behind the
//! last one, before the table's CHECKs: so does `schema.sql`. For anything else make the table anew under another
//! name, `INSERT … SELECT`, drop the old one, rename, and create indexes and triggers last: views and foreign
//! keys of the user's tables go on naming the table.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rusqlite::Connection;

use super::{OpenError, begin_immediate, compare_schema_to, create_private_dir, create_private_file};
use crate::clock;
use crate::failpoint;

/// The schema of this program's database file, and the migrations from older ones.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// Kept in `user_version`.
    pub version: i64,
    /// The statements that make a new file.
    pub sql: &'static str,
    /// In the order of their versions, without gaps, up to `version`.
    pub migrations: &'static [Migration],
}

/// The migration from the previous version to `to`.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// The version that it results in.
    pub to: i64,
    /// Statements; they run in the transaction of the whole upgrade.
    pub sql: &'static str,
    /// Statements about the tables that an application's file does not have.
    pub books: &'static str,
}

/// This version's schema.
pub const SCHEMA: Schema = Schema {
    version: 3,
    sql: include_str!("../../../schema.sql"),
    migrations: &[
        Migration { to: 2, sql: include_str!("upgrades/2.sql"), books: include_str!("upgrades/2-books.sql") },
        Migration { to: 3, sql: include_str!("upgrades/3.sql"), books: include_str!("upgrades/3-books.sql") },
    ],
};

impl Schema {
    /// The migrations that an older file needs; `None`: none lead from its version.
    pub(super) fn way_from(&self, version: i64) -> Option<&'static [Migration]> {
        let first = self.migrations.iter().position(|migration| migration.to == version + 1)?;
        let way = &self.migrations[first..];
        let is_whole = way.iter().zip(version + 1..).all(|(migration, to)| migration.to == to)
            && way.last()?.to == self.version;
        is_whole.then_some(way)
    }
}

/// Upgrades the file in one transaction, after a copy of it was made.
///
/// # Errors
/// The file is as it was, also when the error is that there is no room for the copy.
pub(super) fn upgrade(
    conn: &mut Connection,
    path: &Path,
    schema: &Schema,
    from: i64,
    way: &[Migration],
) -> Result<(), OpenError> {
    let sql = |source| OpenError::of_sqlite(path, source);
    let to = schema.version;
    announce(conn, path, from, to).map_err(sql)?;
    report_progress(conn, Some(path)).map_err(sql)?;
    let copy = copy_before(conn, path, from)?;
    failpoint::reach("migration_copied");
    let migrated = upgrade_tables(conn, path, || migrate(conn, path, schema, way));
    report_progress(conn, None).map_err(sql)?;
    match migrated {
        Ok(()) => {
            log::warn!(
                "{}: upgraded from schema version {from} to {to}. The way back, at the loss of what arrives from \
                 now on: stop inboxd, remove {path}-wal and {path}-shm, move {copy} to {path}, start the older inboxd",
                path.display(),
                path = path.display(),
                copy = copy.display()
            );
            Ok(())
        }
        Err(error) => {
            // the file is unchanged, so the copy has no use, and repeated starts would fill the disk with copies
            drop(fs::remove_file(copy));
            Err(error)
        }
    }
}

/// Runs an upgrade in which tables may be made anew: rows that refer to such a table would go along with it, and
/// others' views would be renamed inside.
pub(super) fn upgrade_tables(
    conn: &Connection,
    path: &Path,
    upgrade: impl FnOnce() -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let sql = |source| OpenError::of_sqlite(path, source);
    remake_tables(conn, true).map_err(sql)?;
    let upgraded = upgrade();
    remake_tables(conn, false).map_err(sql)?;
    upgraded
}

/// Logs that the start may take minutes, and why.
fn announce(conn: &Connection, path: &Path, from: i64, to: i64) -> rusqlite::Result<()> {
    let bytes = file_bytes(conn)?;
    // the copy reads and writes the file, the upgrade reads it and writes its indexes anew
    let seconds = bytes * 4 / DISK_BYTES_PER_S;
    log::warn!(
        "{}: upgrading from schema version {from} to {to}: a copy is made, then indexes are built and events counted. The \
         file has {} MiB: on a disk of {} MB a second that takes about {}. Deliveries are not answered until then; \
         providers send them again",
        path.display(),
        bytes >> 20,
        DISK_BYTES_PER_S / 1_000_000,
        if seconds < 60 { format!("{} s", seconds + 1) } else { format!("{} minutes", seconds.div_ceil(60)) }
    );
    Ok(())
}

/// From now on logs every ten seconds that the upgrade goes on; `None` ends that.
fn report_progress(conn: &mut Connection, path: Option<&Path>) -> rusqlite::Result<()> {
    let Some(path) = path.map(Path::to_owned) else {
        return conn.progress_handler(0, None::<fn() -> bool>);
    };
    let (began, mut next) = (Instant::now(), PROGRESS_EVERY);
    conn.progress_handler(
        PROGRESS_STEPS,
        Some(move || {
            if began.elapsed() >= next {
                log::warn!("{}: the upgrade goes on, {} s so far", path.display(), began.elapsed().as_secs());
                next = began.elapsed() + PROGRESS_EVERY;
            }
            false
        }),
    )
}

fn file_bytes(conn: &Connection) -> rusqlite::Result<u64> {
    let number = |pragma: &str| conn.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    Ok(u64::try_from(number("page_count")? * number("page_size")?).unwrap_or(0))
}

/// SQLite's own advice for making a table anew (lang_altertable.html, section 7).
fn remake_tables(conn: &Connection, begins: bool) -> rusqlite::Result<()> {
    conn.pragma_update(None, "foreign_keys", !begins)?;
    conn.pragma_update(None, "legacy_alter_table", begins)
}

fn migrate(conn: &Connection, path: &Path, schema: &Schema, way: &[Migration]) -> Result<(), OpenError> {
    let from = way.first().map_or(schema.version, |migration| migration.to - 1);
    let failed = |source| OpenError::Upgrade { path: path.to_owned(), from, to: schema.version, source };
    let tx = begin_immediate(conn).map_err(failed)?;
    for migration in way {
        tx.execute_batch(migration.sql).map_err(failed)?;
        tx.execute_batch(migration.books).map_err(failed)?;
        tx.pragma_update(None, "user_version", migration.to).map_err(failed)?;
        failpoint::reach("migration_step");
    }
    let dangling = tx.prepare("PRAGMA foreign_key_check").and_then(|mut check| check.exists([]));
    if dangling.map_err(failed)? {
        return Err(OpenError::Refused {
            path: path.to_owned(),
            reason: "the upgrade would leave rows that refer to nothing; nothing was changed: \
                     start the older inboxd again and report this"
                .to_owned(),
        });
    }
    compare_schema_to(&tx, path, schema)?;
    failpoint::reach("migration_commit_before");
    tx.commit().map_err(failed)?;
    failpoint::reach("migration_commit_after");
    Ok(())
}

/// Makes a complete copy under `backups/`, which is checked and synced before it gets its name. Earlier copies of the
/// same version are from upgrades that failed, and are deleted.
fn copy_before(conn: &Connection, path: &Path, version: i64) -> Result<PathBuf, OpenError> {
    let dir = path.parent().unwrap_or(Path::new(".")).join("backups");
    create_private_dir(&dir)?;
    let temporary = dir.join("incomplete.db");
    drop(fs::remove_file(&temporary));
    require_room(conn, path, &dir)?;
    let copy = vacuum_into(conn, path, &temporary).and_then(|()| {
        let io = |source| OpenError::Io { action: format!("keep {}", temporary.display()), source };
        let prefix = format!("pre-migration-v{version}-");
        let copy = dir.join(format!("{prefix}{}.db", compact_time(clock::now_ms())));
        let earlier = copies(&dir, &prefix).map_err(io)?;
        File::open(&temporary).and_then(|file| file.sync_all()).map_err(io)?;
        fs::rename(&temporary, &copy).map_err(io)?;
        File::open(&dir).and_then(|dir| dir.sync_all()).map_err(io)?;
        for earlier in earlier.iter().filter(|earlier| **earlier != copy) {
            drop(fs::remove_file(earlier));
        }
        Ok(copy)
    });
    if copy.is_err() {
        drop(fs::remove_file(&temporary));
    }
    copy
}

/// The copy may be as large as the file, and so may the WAL of a migration that rewrites every row.
fn require_room(conn: &Connection, path: &Path, dir: &Path) -> Result<(), OpenError> {
    let sql = |source| OpenError::of_sqlite(path, source);
    let needed = file_bytes(conn).map_err(sql)? * 2 + ROOM_BESIDE_BYTES;
    let disk = rustix::fs::statvfs(dir).map_err(|error| OpenError::Io {
        action: format!("read the free space of {}", dir.display()),
        source: error.into(),
    })?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free >= needed {
        return Ok(());
    }
    Err(OpenError::Refused {
        path: path.to_owned(),
        reason: format!(
            "the upgrade of this file needs {} MiB of free space for a copy and for its WAL, and {} has {} MiB; \
             make room and start again, or start the older inboxd",
            needed.div_ceil(1 << 20),
            dir.display(),
            free >> 20
        ),
    })
}

fn vacuum_into(conn: &Connection, path: &Path, copy: &Path) -> Result<(), OpenError> {
    let sql = |source| OpenError::of_sqlite(path, source);
    // an empty file is allowed as the target: it has the right mode from the start
    create_private_file(copy)?;
    conn.execute("VACUUM main INTO ?1", [copy.to_string_lossy()]).map_err(sql)?;
    drop(fs::set_permissions(copy, fs::Permissions::from_mode(0o600)));
    let copied = Connection::open(copy).map_err(sql)?;
    let finding: String = copied.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(sql)?;
    if finding == "ok" {
        return Ok(());
    }
    Err(OpenError::Damaged { path: path.to_owned(), finding })
}

fn copies(dir: &Path, prefix: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)) {
            found.push(path);
        }
    }
    Ok(found)
}

/// e.g. `20260131T090000Z`
fn compact_time(now_ms: i64) -> String {
    Timestamp::from_millisecond(now_ms)
        .map_or_else(|_| now_ms.to_string(), |time| time.strftime("%Y%m%dT%H%M%SZ").to_string())
}

/// The throughput of a slow disk, for the estimate of an upgrade's time.
const DISK_BYTES_PER_S: u64 = 100_000_000;

/// The pause between two lines about an upgrade that goes on.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Virtual machine steps of SQLite between two checks of the time.
const PROGRESS_STEPS: i32 = 100_000;

/// Free space to leave beside the copy and the WAL.
const ROOM_BESIDE_BYTES: u64 = 16 << 20;
