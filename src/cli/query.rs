//! `query`: one read-only statement on the database, through the SQLite that the daemon uses.
//!
//! Distributions ship older shells; a live file that is opened with one of them has a second, different writer.
//! The whole result is read before the first byte is written, so that a stalled reader of stdout cannot keep the
//! database's WAL from being cut.

use crate::config::closest;
use crate::store::query::{self, Query, Rows};
use crate::store::{Connection, SqlError, open};
use clap::Args;
use serde_json::{Map, Value};

use super::spool::Spool;
use super::store::{self, read_failed, table};
use super::{Context, Exit, Failure, put, say};

/// Run a read-only SQL query on the database
#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    /// One SELECT
    #[arg(required_unless_present = "tables")]
    pub(crate) sql: Option<String>,
    /// List the tables with their columns
    #[arg(long, conflicts_with = "sql")]
    pub(crate) tables: bool,
    /// Print one JSON object per row
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print CSV with a header line
    #[arg(long)]
    pub(crate) csv: bool,
}

/// The most rows of a table, which is laid out in memory.
const TABLE_ROWS_MAX: usize = 10_000;
const TABLE_BYTES_MAX: usize = 32 << 20;

/// The most characters shown of a wrong statement.
const PLACE_CHARS: usize = 24;

/// Prints a table, NDJSON or CSV.
pub(crate) fn run(args: &QueryArgs, context: &Context) -> Result<(), Failure> {
    let (_, conn) = store::open_as_it_is(context)?;
    let sql = match &args.sql {
        Some(sql) if !args.tables => sql.as_str(),
        _ => query::TABLES,
    };
    let mut query = Query::prepare(&conn, sql).map_err(|error| wrong_statement(error, &conn))?;
    if !query.is_reading() {
        return Err(Failure::new(
            Exit::Refused,
            "only statements that read are run here; inboxd's tables are its own",
        ));
    }
    let names = query.names();
    let rows = query.rows().map_err(read_failed)?;
    if args.json {
        put_json(&distinct(names), rows)
    } else if args.csv {
        put_csv(&names, rows)
    } else {
        put_table(&names, rows)
    }
}

/// A busy or damaged file is not a mistake in the statement. For a mistake the message has more than SQLite's: its
/// position, a suggestion, and how to list the tables.
fn wrong_statement(error: SqlError, conn: &Connection) -> Failure {
    if open::is_storage_error(&error) {
        return read_failed(error);
    }
    let mut message = open::without_sql(&error);
    if let Some(place) = query::position(&error).and_then(|(sql, offset)| place(sql, offset)) {
        message.push_str(&format!(", {place}"));
    }
    let meant = message.strip_prefix("no such table: ").and_then(|rest| {
        let typed = rest.split(',').next().unwrap_or_default().trim_start_matches("main.");
        closest(typed, query::table_names(conn).iter().map(String::as_str)).map(str::to_owned)
    });
    if let Some(meant) = meant {
        message.push_str(&format!("; did you mean {meant}?"));
    }
    Failure::new(Exit::Usage, format!("{message}; `inboxd query --tables` lists tables and columns"))
}

/// The position in the statement, with the words that follow it.
fn place(sql: &str, offset: usize) -> Option<String> {
    let rest: String = sql.get(offset..)?.chars().take(PLACE_CHARS).collect();
    let rest = rest.split_whitespace().collect::<Vec<_>>().join(" ");
    (!rest.is_empty()).then(|| format!("at character {}: {rest:?}", sql[..offset].chars().count() + 1))
}

/// The keys of an object: a repeated name gets a number.
fn distinct(names: Vec<String>) -> Vec<String> {
    let mut keys: Vec<String> = Vec::with_capacity(names.len());
    for (index, name) in names.iter().enumerate() {
        let mut key = name.clone();
        let mut number = 1;
        while keys.contains(&key) || (number > 1 && names[index..].contains(&key)) {
            number += 1;
            key = format!("{name}_{number}");
        }
        keys.push(key);
    }
    keys
}

fn put_json(keys: &[String], mut rows: Rows<'_>) -> Result<(), Failure> {
    let mut data = Spool::default();
    while let Some(row) = rows.next_row().map_err(read_failed)? {
        let object: Map<String, Value> = keys.iter().cloned().zip(row).collect();
        data.put(&format!("{}\n", Value::Object(object)))?;
    }
    drop(rows);
    data.pour()
}

/// RFC 4180.
fn put_csv(names: &[String], mut rows: Rows<'_>) -> Result<(), Failure> {
    let mut data = Spool::default();
    data.put(&csv_line(names.iter().map(String::as_str)))?;
    while let Some(row) = rows.next_row().map_err(read_failed)? {
        let cells: Vec<_> = row.iter().map(to_text).collect();
        data.put(&csv_line(cells.iter().map(String::as_str)))?;
    }
    drop(rows);
    data.pour()
}

fn put_table(names: &[String], mut rows: Rows<'_>) -> Result<(), Failure> {
    let head: Vec<_> = names.iter().map(String::as_str).collect();
    let mut lines = Vec::new();
    let mut bytes = 0;
    let mut is_cut = false;
    while let Some(row) = rows.next_row().map_err(read_failed)? {
        if lines.len() == TABLE_ROWS_MAX || bytes > TABLE_BYTES_MAX {
            is_cut = true;
            break;
        }
        let line: Vec<_> = row.iter().map(to_text).collect();
        bytes += line.iter().map(String::len).sum::<usize>();
        lines.push(line);
    }
    drop(rows);
    put(&table(&head, &lines))?;
    if is_cut {
        say(&format!(
            "only the first {} rows are shown; --json and --csv give all, LIMIT fewer",
            lines.len()
        ));
    }
    Ok(())
}

fn to_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn csv_line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cell = |text: &str| {
        if text.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.to_owned()
        }
    };
    cells.map(cell).collect::<Vec<_>>().join(",") + "\r\n"
}
