//! `reviews` and `resolve`: the questions for a person, and the person's decisions.

use crate::admin::acts;
use crate::clock;
use crate::store::Connection;
use crate::store::reviews::{self, Kind, Review};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args::Limit;
use super::conflicts;
use super::store::{self, short_time};
use super::table::{Column, List, flexible, whole};
use super::{Context, Exit, Failure, put, put_lines, say};

/// Look at what waits for a person
#[derive(Debug, Subcommand)]
pub(crate) enum ReviewsVerb {
    /// List open reviews, oldest first
    List(ReviewsListArgs),
}

/// `reviews list`
#[derive(Debug, Args)]
pub(crate) struct ReviewsListArgs {
    /// Closed reviews too, with what was decided
    #[arg(long)]
    pub(crate) all: bool,
    /// On a terminal too, all columns in full
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) limit: Limit,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Close a review with a note of what was decided
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The number that `reviews list` shows
    pub(crate) review_id: i64,
    /// What was decided, for later readers
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: String,
}

/// `reviews list`
pub(crate) fn run(verb: &ReviewsVerb, context: &Context) -> Result<(), Failure> {
    match verb {
        ReviewsVerb::List(args) => list(args, context),
    }
}

fn list(args: &ReviewsListArgs, context: &Context) -> Result<(), Failure> {
    let (_, conn) = store::open(context)?;
    let (found, goes_on) = store::bounded(args.limit, |limit| reviews::list(&conn, args.all, limit))?;
    store::say_where_it_ends("oldest", found.len(), goes_on);
    if args.json {
        let lines =
            found.iter().map(|review| with_other_bodies(&conn, review)).collect::<Result<Vec<_>, _>>()?;
        return put_lines(lines);
    }
    if found.is_empty() {
        say("nothing waits for a person");
        return Ok(());
    }
    let row = |review: &Review| {
        let mut cells = vec![
            review.id.to_string(),
            short_time(review.opened_at_ms),
            review.kind.clone(),
            review.subject.clone(),
            review.reason.clone(),
        ];
        if args.all {
            cells.push(review.resolved_at_ms.map_or_else(|| "open".to_owned(), short_time));
            cells.push(review.note.clone().unwrap_or_else(|| "-".to_owned()));
        }
        cells
    };
    let columns = if args.all { &COLUMNS[..] } else { &COLUMNS[..OPEN_COLUMNS] };
    put(&List::new(columns, args.wide).lay_out(&found.iter().map(row).collect::<Vec<_>>()))
}

const COLUMNS: [Column; 7] = [
    whole("REVIEW"),
    flexible("OPENED (UTC)", 10, 0),
    flexible("KIND", 8, 0),
    flexible("ABOUT", 20, 0),
    flexible("REASON", 15, 0),
    flexible("CLOSED (UTC)", 10, 1),
    flexible("NOTE", 10, 0),
];

/// The columns of an open review.
const OPEN_COLUMNS: usize = 5;

/// One review, with the other bodies that were kept for it.
fn with_other_bodies(conn: &Connection, review: &Review) -> Result<Value, Failure> {
    let mut json = to_json(review);
    if review.kind == Kind::BodyConflict.as_str() {
        json["conflicts"] = conflicts::to_json(&conflicts::of(conn, &review.endpoint, &review.event_id)?);
    }
    Ok(json)
}

/// One review as `--json` prints it.
pub(crate) fn to_json(review: &Review) -> Value {
    json!({
        "id": review.id,
        "kind": review.kind,
        "subject": review.subject,
        "reason": review.reason,
        "endpoint": review.endpoint,
        "event_id": review.event_id,
        "opened_at_ms": review.opened_at_ms,
        "resolved_at_ms": review.resolved_at_ms,
        "note": review.note,
    })
}

/// `resolve`: closes one review. It changes neither the event nor the books.
pub(crate) fn resolve(args: &ResolveArgs, context: &Context) -> Result<(), Failure> {
    let note = args.note.trim();
    if note.is_empty() {
        return Err(Failure::new(Exit::Usage, "--note is empty; say what was decided"));
    }
    let (_, conn) = store::open_to_write(context)?;
    let (by, now_ms) = (store::by(), clock::now_ms());
    let closed = store::change(&conn, |tx| acts::resolve(tx, args.review_id, note, &by, now_ms))?;
    if closed {
        return put(&format!("review {} is closed\n", args.review_id));
    }
    Err(Failure::new(
        Exit::NotFound,
        format!("there is no open review {}; `inboxd reviews list` shows what there is", args.review_id),
    ))
}
