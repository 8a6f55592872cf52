//! How the pages read: a reader of their own for each answer, whose time is limited.

use std::path::Path;
use std::time::Duration;

use crate::store::open;

pub use crate::store::{Connection, SqlResult as Reading, Transaction};

/// A reader that takes longer keeps the WAL from being cut.
const READ_TIME_MAX: Duration = Duration::from_secs(2);

/// Reads by a connection that is closed before the answer is written. An error says what to do.
///
/// # Errors
/// In one sentence.
pub fn read<T>(database: &Path, work: impl FnOnce(&Connection) -> Reading<T>) -> Result<T, String> {
    let conn = reader(database)?;
    work(&conn).map_err(|error| {
        if open::is_interrupted_error(&error) {
            return format!(
                "reading took longer than {} s and was ended, so that no delivery waits; narrow the filter down, or use \
                 the command line, which may read for longer",
                READ_TIME_MAX.as_secs()
            );
        }
        open::without_sql(&error)
    })
}

/// A reader whose time begins now.
///
/// # Errors
/// In one sentence.
pub fn reader(database: &Path) -> Result<Connection, String> {
    open::open_reader(database, READ_TIME_MAX).map_err(|error| error.to_string())
}
