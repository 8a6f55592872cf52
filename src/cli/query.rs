//! `query`: one read-only statement on the database, through the SQLite that the daemon uses.
//!
//! Distributions ship older shells; opening a live file with one of them is a second, different writer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::types::ValueRef;
use serde_json::{Map, Value, json};

use super::args::QueryArgs;
use super::store::{self, read_failed, table};
use super::{Context, Exit, Failure, put};

/// Prints a table, NDJSON or CSV.
pub(crate) fn run(args: &QueryArgs, context: &Context) -> Result<(), Failure> {
    let (_, conn) = store::open(context)?;
    let mut statement =
        conn.prepare(&args.sql).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    if !statement.readonly() || statement.column_count() == 0 {
        return Err(Failure::new(
            Exit::Refused,
            "only statements that read are run here; inboxd's tables are its own",
        ));
    }
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.query([]).map_err(read_failed)?;
    let mut lines = Vec::new();
    while let Some(row) = rows.next().map_err(read_failed)? {
        let cells = (0..names.len()).map(|column| row.get_ref(column).map(to_json));
        let cells = cells.collect::<rusqlite::Result<Vec<Value>>>().map_err(read_failed)?;
        if args.json {
            let object: Map<String, Value> = names.iter().cloned().zip(cells).collect();
            put(&format!("{}\n", Value::Object(object)))?;
        } else {
            lines.push(cells.iter().map(to_text).collect::<Vec<_>>());
        }
    }
    if args.json {
        return Ok(());
    }
    let head: Vec<_> = names.iter().map(String::as_str).collect();
    if args.csv { put(&csv(&head, &lines)) } else { put(&table(&head, &lines)) }
}

/// Bytes that are no text become base64.
fn to_json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => json!(number),
        ValueRef::Real(number) => json!(number),
        ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
        ValueRef::Blob(bytes) => json!(STANDARD.encode(bytes)),
    }
}

fn to_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// RFC 4180.
fn csv(head: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |text: &str| {
        if text.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.to_owned()
        }
    };
    let mut text = head.iter().map(|name| cell(name)).collect::<Vec<_>>().join(",") + "\r\n";
    for row in rows {
        text.push_str(&row.iter().map(|value| cell(value)).collect::<Vec<_>>().join(","));
        text.push_str("\r\n");
    }
    text
}
