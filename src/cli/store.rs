//! Shared by the reading verbs: opening the database, times, and texts for a terminal.

use std::time::Duration;

use crate::admin::acts::By;
use crate::admin::people;
use crate::clock;
use crate::config::{Instance, parse_duration};
use crate::store::inbox::failures::{self, FailingEvent};
use crate::store::inbox::{self, Event};
use crate::store::open::{self, OpenError};
use crate::store::{Connection, SqlError, SqlResult, Transaction};
use jiff::Timestamp;
use serde_json::Value;

use super::args::{Limit, SharedFilters};
use super::{Context, Exit, Failure, say};

pub(crate) use super::table::table;
pub(crate) use crate::clock::rfc3339 as time;
pub(crate) use crate::terminal::counted;

/// The most time for a reader: a longer one keeps the WAL from being cut.
const READ_TIME_MAX: Duration = Duration::from_secs(30);

/// Rows of a list without --limit.
const LIST_ROWS: u32 = 50;

/// Opens the instance's database for reading.
pub(crate) fn open(context: &Context) -> Result<(Instance, Connection), Failure> {
    let (instance, conn) = open_as_it_is(context)?;
    open::compare_schema(&conn, &instance.database)?;
    Ok((instance, conn))
}

/// As [`open()`], also for a file whose tables were altered.
pub(crate) fn open_as_it_is(context: &Context) -> Result<(Instance, Connection), Failure> {
    let instance = Instance::load(context.config_file())?;
    let conn = reader(&instance)?;
    Ok((instance, conn))
}

/// A reader whose time limit begins now.
pub(crate) fn reader(instance: &Instance) -> Result<Connection, OpenError> {
    open::open_reader(&instance.database, READ_TIME_MAX)
}

/// Opens the instance's database for an act that changes it.
pub(crate) fn open_to_write(context: &Context) -> Result<(Instance, Connection), Failure> {
    let (instance, _) = open(context)?;
    let conn = open::open_operator(&instance.database)?;
    Ok((instance, conn))
}

/// The one event with this id; `endpoint` chooses among several endpoints.
pub(crate) fn find_event(
    conn: &Connection,
    event_id: &str,
    endpoint: Option<&str>,
) -> Result<Event, Failure> {
    let mut found = inbox::find(conn, event_id, endpoint).map_err(read_failed)?;
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(not_stored(conn, event_id)),
        _ => {
            let names: Vec<_> = found.iter().map(|event| event.endpoint.as_str()).collect();
            Err(Failure::new(
                Exit::Usage,
                format!("{event_id} was received by {}; say which with --endpoint", names.join(" and ")),
            ))
        }
    }
}

/// Why an event is not stored: perhaps its handler failed, of which a note is stored.
fn not_stored(conn: &Connection, event_id: &str) -> Failure {
    let failing = failures::find(conn, event_id).ok().flatten();
    let message = match failing {
        Some(FailingEvent { endpoint, error, count, .. }) => {
            let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
            format!(
                "{event_id} is not stored: its handler failed {times} on {endpoint} ({error}), and the provider sends it \
                 again; mend the handler, then wait for that or have it sent again from the provider's page"
            )
        }
        None => format!("there is no event {event_id}; `inboxd events list` shows what there is"),
    };
    Failure::new(Exit::NotFound, message)
}

/// Whoever runs this command, for the audit trail.
pub(crate) fn by() -> By {
    By::of(people::at_the_shell())
}

/// Makes one change in a transaction of its own.
pub(crate) fn change<T>(
    conn: &Connection,
    make: impl FnOnce(&Transaction<'_>) -> SqlResult<T>,
) -> Result<T, Failure> {
    let made = || {
        let tx = open::begin_immediate(conn)?;
        let made = make(&tx)?;
        tx.commit()?;
        Ok(made)
    };
    made().map_err(|error| write_failed(&error))
}

/// Cuts a list at its limit, and returns whether there is more.
pub(crate) fn bounded<T>(
    limit: Limit,
    list: impl FnOnce(u32) -> SqlResult<Vec<T>>,
) -> Result<(Vec<T>, bool), Failure> {
    let limit = limit.limit.unwrap_or(LIST_ROWS);
    let mut found = list(limit + 1).map_err(read_failed)?;
    let count = usize::try_from(limit).unwrap_or(usize::MAX);
    let goes_on = found.len() > count;
    found.truncate(count);
    Ok((found, goes_on))
}

/// Says on stderr that the list goes on.
pub(crate) fn say_where_it_ends(which: &str, count: usize, goes_on: bool) {
    if goes_on {
        say(&format!("only the {which} {count}; a larger --limit shows more"));
    }
}

/// The pause between two polls for new rows.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Passes on rows after `after_id` as they come, until stdout has no reader any more. `look` returns at most `limit`
/// rows and the number of the last row it looked at; no transaction is open between two calls.
pub(crate) fn follow<T>(
    instance: &Instance,
    mut after_id: i64,
    look: impl Fn(&Connection, i64) -> SqlResult<(Vec<T>, i64)>,
    mut show: impl FnMut(&[T]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    while has_reader(LOOK_EVERY) {
        loop {
            // a new connection per poll, because a reader's time is limited and the file may have been replaced
            let (rows, last_id) = look(&reader(instance)?, after_id).map_err(read_failed)?;
            after_id = last_id.max(after_id);
            if rows.is_empty() {
                break;
            }
            show(&rows)?;
        }
    }
    Ok(())
}

/// Waits for `time`, or until the other end of stdout is closed; then `false`.
fn has_reader(time: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let out = std::io::stdout();
    let mut polled = [PollFd::new(&out, PollFlags::empty())];
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    match poll(&mut polled, Some(&time)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => true,
        Ok(_) => !polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL),
        Err(_) => false,
    }
}

/// The failure for a change that was not made. SQLite's message is said once: error and cause are the same sentence.
pub(crate) fn write_failed(error: &SqlError) -> Failure {
    let word = open::without_sql(error);
    if open::is_busy_error(error) {
        return Failure::new(
            Exit::Busy,
            format!("nothing was changed: another process writes ({word}); try again"),
        );
    }
    if open::is_damage_error(error) {
        let message = format!("nothing was changed: {word}; keep the file, and restore a copy");
        return Failure::new(Exit::Unverified, message);
    }
    if open::is_storage_error(error) {
        let message = format!("nothing was changed: {word}; see to the disk and try again");
        return Failure::new(Exit::Temporary, message);
    }
    Failure::new(Exit::Failed, format!("nothing was changed: {word}"))
}

/// The failure for a read that failed.
pub(crate) fn read_failed(error: SqlError) -> Failure {
    if open::is_damage_error(&error) {
        let finding = open::without_sql(&error);
        let message = format!("the database is damaged ({finding}); keep the file, and restore a copy");
        return Failure::new(Exit::Unverified, message);
    }
    if open::is_busy_error(&error) {
        let word = open::without_sql(&error);
        return Failure::new(Exit::Busy, format!("the database is busy ({word}); try again"));
    }
    if open::is_interrupted_error(&error) {
        let limit = READ_TIME_MAX.as_secs();
        return Failure::new(
            Exit::Failed,
            format!("the query ran longer than {limit} s and was stopped; narrow it down"),
        );
    }
    let exit = if open::is_storage_error(&error) { Exit::Temporary } else { Exit::Failed };
    Failure::new(exit, open::without_sql(&error))
}

/// A point in time as typed: RFC 3339, or a duration before now such as `2h`.
fn parse_time(text: &str, now_ms: i64) -> Result<i64, Failure> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.as_millisecond());
    }
    let before = parse_duration(text).map_err(|_| {
        Failure::new(
            Exit::Usage,
            format!("{text:?} is not a time; write RFC 3339 such as 2026-01-31T09:00:00Z, or a duration before now such as 2h"),
        )
    })?;
    Ok(now_ms.saturating_sub(i64::try_from(before.as_millis()).unwrap_or(i64::MAX)))
}

/// --since and --until as typed, in milliseconds since the epoch.
pub(crate) fn since_and_until(filters: &SharedFilters) -> Result<(Option<i64>, Option<i64>), Failure> {
    let now_ms = clock::now_ms();
    let moment = |text: &Option<String>| text.as_deref().map(|text| parse_time(text, now_ms)).transpose();
    Ok((moment(&filters.since)?, moment(&filters.until)?))
}

/// As [`time`], to the second, for a column.
pub(crate) fn short_time(ms: i64) -> String {
    Timestamp::from_millisecond(ms)
        .map_or_else(|_| format!("{ms} ms"), |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// The fields of a JSON object that have a value, one per line, without `left_out`, which the caller prints in another
/// way. A time is named without the `_at_ms` of its number.
pub(crate) fn fields(object: &Value, left_out: &[&str]) -> String {
    let in_words = |name: &str, value: &Value| match (name.strip_suffix("_ms"), value) {
        (Some(name), Value::Number(number)) if name.ends_with("_at") || name.ends_with("_since") => {
            (name.trim_end_matches("_at").to_owned(), time(number.as_i64().unwrap_or_default()))
        }
        (_, Value::String(text)) => (name.to_owned(), text.clone()),
        (_, value) => (name.to_owned(), value.to_string()),
    };
    let fields = object.as_object().into_iter().flatten();
    let rows: Vec<_> = fields
        .filter(|(name, value)| !value.is_null() && !left_out.contains(&name.as_str()))
        .map(|(name, value)| in_words(name, value))
        .map(|(name, value)| vec![name, value])
        .collect();
    table(&["FIELD", "VALUE"], &rows)
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn each_fault_of_the_storage_has_one_number_and_is_said_once() {
        let failed = |code: i32, word: &str| {
            write_failed(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(word.to_owned())))
        };
        let full = failed(ffi::SQLITE_FULL, "database or disk is full");
        assert_eq!(full.exit(), Exit::Temporary);
        assert_eq!(
            full.lines(),
            ["nothing was changed: database or disk is full; see to the disk and try again"]
        );
        assert_eq!(failed(ffi::SQLITE_IOERR_WRITE, "disk I/O error").exit(), Exit::Temporary);
        assert_eq!(failed(ffi::SQLITE_BUSY, "database is locked").exit(), Exit::Busy);
        assert_eq!(failed(ffi::SQLITE_CORRUPT, "malformed").exit(), Exit::Unverified);
        assert_eq!(failed(ffi::SQLITE_CONSTRAINT, "constraint failed").exit(), Exit::Failed);
    }
}
