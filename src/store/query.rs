//! A statement that a person typed: run, never changed, and never one that writes.
//!
//! Rows come as JSON values, so that who shows them knows nothing of SQLite.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde_json::{Value, json};

/// Tables and views with their columns, without SQLite's own.
pub const TABLES: &str = "
    SELECT tables.name, group_concat(columns.name, ', ' ORDER BY columns.cid) AS columns
      FROM pragma_table_list AS tables
      JOIN pragma_table_info(tables.name) AS columns
     WHERE tables.schema = 'main' AND substr(tables.name, 1, 7) <> 'sqlite_'
     GROUP BY tables.name
     ORDER BY tables.name";

/// A statement that is ready to run.
#[derive(Debug)]
pub struct Query<'c>(rusqlite::Statement<'c>);

impl<'c> Query<'c> {
    /// Compiles a statement.
    ///
    /// # Errors
    /// The statement is wrong, or the storage failed; see [`position`].
    pub fn prepare(conn: &'c Connection, sql: &str) -> rusqlite::Result<Self> {
        conn.prepare(sql).map(Self)
    }

    /// Whether it only reads, and gives rows.
    pub fn is_reading(&self) -> bool {
        self.0.readonly() && self.0.column_count() > 0
    }

    /// The columns' names.
    pub fn names(&self) -> Vec<String> {
        self.0.column_names().map(str::to_owned).collect()
    }

    /// Runs it. The read ends when the rows are dropped.
    ///
    /// # Errors
    /// Any SQLite error.
    pub fn rows(&mut self) -> rusqlite::Result<Rows<'_>> {
        let columns = self.0.column_count();
        Ok(Rows { rows: self.0.query([])?, columns })
    }
}

/// The rows of a running statement.
pub struct Rows<'s> {
    rows: rusqlite::Rows<'s>,
    columns: usize,
}

impl std::fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rows").field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl Rows<'_> {
    /// The values of the next row, one for each column; `None` after the last.
    ///
    /// # Errors
    /// Any SQLite error, also when the read takes too long.
    pub fn next_row(&mut self) -> rusqlite::Result<Option<Vec<Value>>> {
        let columns = self.columns;
        let Some(row) = self.rows.next()? else { return Ok(None) };
        (0..columns).map(|column| row.get_ref(column).map(to_json)).collect::<rusqlite::Result<_>>().map(Some)
    }
}

/// Bytes that are not text become base64; infinite numbers become texts, because JSON has none.
fn to_json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => json!(number),
        ValueRef::Real(number) if number == f64::INFINITY => json!("Infinity"),
        ValueRef::Real(number) if number == f64::NEG_INFINITY => json!("-Infinity"),
        ValueRef::Real(number) => json!(number),
        ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
        ValueRef::Blob(bytes) => json!(STANDARD.encode(bytes)),
    }
}

/// Where a wrong statement is wrong: its text and the byte at which SQLite stopped.
pub fn position(error: &rusqlite::Error) -> Option<(&str, usize)> {
    match error {
        rusqlite::Error::SqlInputError { sql, offset, .. } => {
            usize::try_from(*offset).ok().map(|offset| (sql.as_str(), offset))
        }
        _ => None,
    }
}

/// The names of tables and views; empty if they cannot be read, because they only serve a suggestion.
pub fn table_names(conn: &Connection) -> Vec<String> {
    let names = conn.prepare(TABLE_NAMES);
    names.and_then(|mut names| names.query_map([], |row| row.get(0))?.collect()).unwrap_or_default()
}

const TABLE_NAMES: &str = "
    SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')";
