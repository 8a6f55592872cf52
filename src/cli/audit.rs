//! `audit`: who did what by hand.

use crate::store::audit::{self, Entry};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args::Limit;
use super::store::{self, short_time};
use super::table::{Column, List, flexible, whole};
use super::{Context, Failure, put, put_lines, say};

/// Look at what people did by hand, and who it was
#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// List what people did, the latest first
    List(AuditListArgs),
}

/// `audit list`
#[derive(Debug, Args)]
pub(crate) struct AuditListArgs {
    /// On a terminal too, all columns in full
    #[arg(long)]
    wide: bool,
    #[command(flatten)]
    limit: Limit,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

const COLUMNS: [Column; 6] = [
    whole("AT (UTC)"),
    flexible("WHO", 8, 0),
    flexible("ACT", 8, 0),
    flexible("TO WHAT", 16, 0),
    whole("ROWS"),
    flexible("NOTE", 10, 0),
];

/// `list`
pub(crate) fn run(verb: &AuditVerb, context: &Context) -> Result<(), Failure> {
    let AuditVerb::List(args) = verb;
    let (_, conn) = store::open(context)?;
    let (found, goes_on) = store::bounded(args.limit, |limit| audit::list(&conn, None, limit))?;
    drop(conn);
    store::say_where_it_ends("latest", found.len(), goes_on);
    if args.json {
        return put_lines(found.iter().map(to_json));
    }
    if found.is_empty() {
        say("nothing was done by hand yet");
        return Ok(());
    }
    let row = |entry: &Entry| {
        vec![
            short_time(entry.at_ms),
            entry.actor.clone(),
            entry.act.clone(),
            entry.filter.clone(),
            entry.count.to_string(),
            entry.note.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    put(&List::new(&COLUMNS, args.wide).lay_out(&found.iter().map(row).collect::<Vec<_>>()))
}

/// One act as `--json` prints it. New fields may be added; ignore what you do not know.
fn to_json(entry: &Entry) -> Value {
    json!({
        "id": entry.id,
        "at_ms": entry.at_ms,
        "actor": entry.actor,
        "act": entry.act,
        "filter": serde_json::from_str::<Value>(&entry.filter).unwrap_or_default(),
        "count": entry.count,
        "note": entry.note,
    })
}
