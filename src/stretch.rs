//! Rows of a table, found by a reader a stretch of ids at a time, for the writer to change.

use rusqlite::Connection;

/// Rows of a stretch that are to be changed, and where the next stretch begins.
#[derive(Debug, Default)]
pub struct Stretch {
    /// As a JSON array of row ids; empty text for none.
    pub ids: String,
    /// How many those are.
    pub count: i64,
    /// The last row looked at; `None` when there are no more.
    pub last_id: Option<i64>,
}

impl Stretch {
    /// What a statement finds that is given `after_id`, the number of rows to look at, and the age, and tells
    /// ids, count and last id.
    ///
    /// # Errors
    /// Any SQLite error.
    pub fn find(
        conn: &Connection,
        sql: &str,
        after_id: i64,
        rows_max: u32,
        before_ms: i64,
    ) -> rusqlite::Result<Self> {
        conn.prepare_cached(sql)?.query_row((after_id, rows_max, before_ms), |row| {
            Ok(Self {
                ids: row.get::<_, Option<String>>(0)?.unwrap_or_default(),
                count: row.get(1)?,
                last_id: row.get(2)?,
            })
        })
    }
}
