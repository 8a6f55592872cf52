//! The table `inboxd_meta`: what inboxd remembers about itself.

use rusqlite::{Connection, OptionalExtension, Transaction};

/// When the daemon started.
pub const LAST_START: &str = "last_start";

/// When the latest report was sent.
pub const LAST_REPORT: &str = "last_report";

/// When the latest purge ended, and what it did.
pub const LAST_PURGE: &str = "last_purge";

/// The last reading of the wall clock.
pub const CLOCK: &str = "clock";

/// By how much the wall clock jumped, and when; see `timeline`.
pub const CLOCK_JUMPS: &str = "clock_jumps";

/// How far the latest purge got.
pub const PURGE_PLACE: &str = "purge_place";

/// When a daemon was last known to run; noted once a minute and at a stop.
pub const ALIVE: &str = "alive";

/// The latest stretches of time without a daemon: a JSON array of pairs, oldest first.
pub const OUTAGES: &str = "outages";

/// The number of outages that are remembered.
const OUTAGES_MAX: usize = 5;

/// The longest restart that is not an outage.
const OUTAGE_MIN_MS: i64 = 1_000;

/// The counts of answers since that start.
pub const ANSWERS: &str = "answers";

/// A remembered value, and when it was noted in milliseconds since the epoch.
///
/// # Errors
/// Any SQLite error.
pub fn recall(conn: &Connection, name: &str) -> rusqlite::Result<Option<(String, i64)>> {
    conn.prepare_cached(RECALL)?.query_row([name], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// Remembers a value, replacing the previous one.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn note(tx: &Transaction<'_>, name: &str, value: &str, now_ms: i64) -> rusqlite::Result<()> {
    tx.prepare_cached(NOTE)?.execute((name, value, now_ms))?;
    Ok(())
}

/// The latest time at which a daemon is known to have run.
///
/// # Errors
/// Any SQLite error.
pub fn last_sign_ms(conn: &Connection) -> rusqlite::Result<Option<i64>> {
    let mut last = None;
    for name in [ALIVE, ANSWERS, LAST_START, LAST_PURGE] {
        last = last.max(recall(conn, name)?.map(|(_, at_ms)| at_ms));
    }
    Ok(last)
}

/// The latest stretches of time without a daemon, oldest first: from when to when, in milliseconds since the epoch.
///
/// # Errors
/// Any SQLite error.
pub fn outages(conn: &Connection) -> rusqlite::Result<Vec<(i64, i64)>> {
    let text = recall(conn, OUTAGES)?.map_or_else(String::new, |(text, _)| text);
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

/// Remembers that no daemon ran between these times.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn note_outage(tx: &Transaction<'_>, from_ms: i64, to_ms: i64) -> rusqlite::Result<()> {
    let mut outages = outages(tx)?;
    if to_ms - from_ms < OUTAGE_MIN_MS || outages.last().is_some_and(|(_, end_ms)| *end_ms >= to_ms) {
        return Ok(());
    }
    outages.push((from_ms, to_ms));
    let newest = &outages[outages.len().saturating_sub(OUTAGES_MAX)..];
    note(tx, OUTAGES, &serde_json::json!(newest).to_string(), to_ms)
}

/// Writes a value without a meaning, to find out whether writing works.
///
/// # Errors
/// Any SQLite error.
pub fn note_probe(tx: &Transaction<'_>) -> rusqlite::Result<()> {
    tx.execute(NOTE_PROBE, [])?;
    Ok(())
}

/// The version of inboxd's tables in an application's file; `None`: it has none of them.
///
/// # Errors
/// Any SQLite error.
pub fn schema_version(conn: &Connection) -> rusqlite::Result<Option<i64>> {
    if conn.prepare(HAS_TABLE)?.exists([])? {
        conn.query_row(SCHEMA_VERSION, [], |row| row.get(0)).optional()
    } else {
        Ok(None)
    }
}

/// Notes the version of inboxd's tables.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn note_schema_version(tx: &Transaction<'_>, version: i64) -> rusqlite::Result<()> {
    tx.execute(NOTE_SCHEMA_VERSION, [version])?;
    Ok(())
}

/// The statement that notes the version of inboxd's tables, for people.
pub fn schema_version_sql(version: i64) -> String {
    format!("UPDATE main.inboxd_meta SET value = {version} WHERE key = 'schema_version'")
}

const RECALL: &str = "
    SELECT value, updated_at_ms FROM main.inboxd_meta WHERE key = ?1 AND updated_at_ms IS NOT NULL";

const NOTE: &str = "
    INSERT INTO main.inboxd_meta (key, value, updated_at_ms) VALUES (?1, ?2, ?3)
    ON CONFLICT (key) DO UPDATE SET value = ?2, updated_at_ms = ?3";

const NOTE_PROBE: &str = "
    INSERT INTO main.inboxd_meta (key, value) VALUES ('probe', 1)
    ON CONFLICT (key) DO UPDATE SET value = value + 1";

const HAS_TABLE: &str = "
    SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = 'inboxd_meta'";

const SCHEMA_VERSION: &str = "
    SELECT value FROM main.inboxd_meta WHERE key = 'schema_version'";

const NOTE_SCHEMA_VERSION: &str = "
    INSERT INTO main.inboxd_meta (key, value) VALUES ('schema_version', ?1)
    ON CONFLICT (key) DO UPDATE SET value = ?1";
