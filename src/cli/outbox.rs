//! `outbox`: shows what is sent to destinations, and lets a person retry, pause and resume it.

use crate::admin::acts::{self, Requeued, Trail};
use crate::admin::filter::outbox_json;
use crate::clock;
use crate::config::Instance;
use crate::store::outbox::{self, Attempt, Filter, Operation};
use crate::store::{Connection, SqlResult};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args::{ListArgs, SharedFilters};
use super::store::{self, counted, fields, read_failed, short_time, since_and_until, table, time};
use super::table::{Column, List, flexible, whole};
use super::{Context, Exit, Failure, put, put_lines, say};

/// Look at what is sent to destinations; retry, pause and resume it
#[derive(Debug, Subcommand)]
pub(crate) enum OutboxVerb {
    /// List rows, newest first
    List(OutboxListArgs),
    /// Show one row with all attempts
    Show(OutboxRowArgs),
    /// Put rows that wait, or were given up, back to work now
    Retry(OutboxRetryArgs),
    /// Stop sending to a destination; its rows wait
    Pause(OutboxPauseArgs),
    /// Send to a destination again
    Resume(OutboxPauseArgs),
}

/// `outbox list`
#[derive(Debug, Args)]
pub(crate) struct OutboxListArgs {
    #[command(flatten)]
    pub(crate) filters: OutboxFilters,
    #[command(flatten)]
    pub(crate) show: ListArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// `outbox show`
#[derive(Debug, Args)]
pub(crate) struct OutboxRowArgs {
    /// The number that `outbox list` shows
    pub(crate) row: i64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `outbox retry`
#[derive(Debug, Args)]
pub(crate) struct OutboxRetryArgs {
    /// The numbers that `outbox list` shows; without any, the filters choose
    #[arg(value_name = "ROW")]
    pub(crate) rows: Vec<i64>,
    #[command(flatten)]
    pub(crate) filters: OutboxFilters,
    /// Do it; without this, rows chosen by filters are only counted
    #[arg(long)]
    pub(crate) yes: bool,
}

/// `outbox pause`, `outbox resume`
#[derive(Debug, Args)]
pub(crate) struct OutboxPauseArgs {
    /// The destination's name in the configuration
    pub(crate) destination: String,
}

/// The filters of outbox rows; a row must match all of them.
#[derive(Debug, Args)]
pub(crate) struct OutboxFilters {
    #[command(flatten)]
    pub(crate) shared: SharedFilters,
    /// Only rows of this event
    #[arg(long, value_name = "EVENT_ID")]
    pub(crate) event: Option<String>,
    /// Only for this destination
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    /// Only in this state
    #[arg(long, value_parser = ["pending", "sending", "delivered", "dead"])]
    pub(crate) state: Option<String>,
}

const COLUMNS: [Column; 8] = [
    whole("ROW"),
    whole("QUEUED (UTC)"),
    flexible("DESTINATION", 6, 0),
    flexible("TYPE", 8, 2),
    flexible("EVENT", 10, 1),
    whole("STATE"),
    flexible("ATTEMPTS", 8, 3),
    flexible("LAST ERROR", 12, 0),
];

/// Rows read at once when all are looked at.
const STRETCH: u32 = 500;

/// `list`, `show`, `retry`, `pause` and `resume`.
pub(crate) fn run(verb: &OutboxVerb, context: &Context) -> Result<(), Failure> {
    match verb {
        OutboxVerb::List(args) => list(args, context),
        OutboxVerb::Show(args) => show(args, context),
        OutboxVerb::Retry(args) => retry(args, context),
        OutboxVerb::Pause(args) => pause(args, context),
        OutboxVerb::Resume(args) => resume(args, context),
    }
}

fn list(args: &OutboxListArgs, context: &Context) -> Result<(), Failure> {
    let filter = filter(&args.filters)?;
    let (instance, conn) = store::open(context)?;
    let limit = args.filters.shared.limit;
    let last_id = outbox::last_id(&conn).map_err(read_failed)?;
    let (mut found, goes_on) = store::bounded(limit, |limit| outbox::list(&conn, &filter, limit))?;
    drop(conn);
    store::say_where_it_ends("latest", found.len(), goes_on && !args.show.follow);
    let mut list = List::new(&COLUMNS, args.show.wide);
    let mut show = |rows: &[Operation]| {
        if args.json {
            return put_lines(rows.iter().map(to_json));
        }
        put(&list.lay_out(&rows.iter().map(row).collect::<Vec<_>>()))
    };
    if args.show.follow {
        found.retain(|row| row.id <= last_id);
        found.reverse();
        show(&found)?;
        return store::follow(&instance, last_id, |conn, after| news(conn, &filter, after), show);
    }
    if found.is_empty() && !args.json {
        say("no row matches");
        return Ok(());
    }
    show(&found)
}

/// New rows that match, and the latest row of all.
fn news(conn: &Connection, filter: &Filter, after_id: i64) -> SqlResult<(Vec<Operation>, i64)> {
    let last_id = outbox::last_id(conn)?;
    let rows = outbox::list_after(conn, filter, after_id, STRETCH)?;
    let is_cut = rows.len() == STRETCH as usize;
    let seen_to = rows.last().map_or(last_id, |row| if is_cut { row.id } else { row.id.max(last_id) });
    Ok((rows, seen_to))
}

fn row(row: &Operation) -> Vec<String> {
    vec![
        row.id.to_string(),
        short_time(row.created_at_ms),
        row.destination.clone(),
        row.topic.clone(),
        row.event_id.clone(),
        row.state.clone(),
        row.attempts.to_string(),
        row.last_error.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}

fn filter(filters: &OutboxFilters) -> Result<Filter, Failure> {
    let (since_ms, until_ms) = since_and_until(&filters.shared)?;
    Ok(Filter {
        destination: filters.destination.clone(),
        endpoint: filters.shared.endpoint.clone(),
        topic: filters.shared.event_type.clone(),
        object_id: filters.shared.object.clone(),
        state: filters.state.clone(),
        since_ms,
        until_ms,
        error: filters.shared.error.clone(),
        event_id: filters.event.clone(),
    })
}

fn show(args: &OutboxRowArgs, context: &Context) -> Result<(), Failure> {
    let (_, conn) = store::open(context)?;
    let row = find(&conn, args.row)?;
    let attempts = outbox::attempts(&conn, row.id).map_err(read_failed)?;
    let is_open = matches!(row.state.as_str(), "pending" | "sending");
    let mut json = to_json(&row);
    if args.json {
        json["history"] = attempts.iter().map(attempt_json).collect();
        return put(&format!("{json}\n"));
    }
    let attempt = |attempt: &Attempt| {
        let cell = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        vec![
            attempt.number.to_string(),
            time(attempt.started_at_ms),
            attempt.result.clone().unwrap_or_else(|| "is running, or ended with its process".to_owned()),
            cell(attempt.status),
            cell(attempt.duration_ms),
            attempt.error.clone().or_else(|| attempt.excerpt.clone()).unwrap_or_default(),
        ]
    };
    let attempts: Vec<_> = attempts.iter().map(attempt).collect();
    let history = table(&["ATTEMPT", "STARTED", "RESULT", "STATUS", "MS", "ANSWER"], &attempts);
    // it says nothing about rows that were delivered or given up
    let left_out: &[&str] = if is_open { &[] } else { &["available_at_ms"] };
    put(&format!("{}\n{history}", fields(&json, left_out)))
}

fn find(conn: &Connection, id: i64) -> Result<Operation, Failure> {
    outbox::find(conn, id).map_err(read_failed)?.ok_or_else(|| {
        let advice = "`inboxd outbox list` shows what there is";
        Failure::new(Exit::NotFound, format!("there is no outbox row {id}; {advice}"))
    })
}

/// Rows named by number are retried at once; those chosen by filters need `--yes`.
fn retry(args: &OutboxRetryArgs, context: &Context) -> Result<(), Failure> {
    let filter = filter(&args.filters)?;
    let (instance, conn) = store::open_to_write(context)?;
    if !args.rows.is_empty() {
        let named: Result<Vec<_>, _> = args.rows.iter().map(|id| find(&conn, *id)).collect();
        return named?.iter().try_for_each(|row| retry_one(&conn, &instance, row));
    }
    if filter == Filter::default() {
        let advice = "name rows by their numbers, or choose them, e.g. --state dead";
        return Err(Failure::new(Exit::Usage, advice));
    }
    let most = args.filters.shared.limit.limit.map_or(usize::MAX, |limit| limit as usize);
    let chosen = choose(&conn, &filter, most)?;
    if chosen.is_empty() {
        say("no matching row is pending or dead");
        return Ok(());
    }
    if !args.yes {
        let count = counted(i64::try_from(chosen.len()).unwrap_or(i64::MAX), "row");
        let ends = chosen.first().zip(chosen.last());
        let ends = ends.map_or_else(String::new, |((_, from_ms), (_, to_ms))| {
            format!(" (queued from {} to {})", time(*from_ms), time(*to_ms))
        });
        return Err(Failure::new(Exit::Refused, format!("would retry {count}{ends}; add --yes to do it")));
    }
    retry_all(&conn, &instance, &chosen, outbox_json(&filter))
}

/// In stretches: deliveries come in between.
fn retry_all(
    conn: &Connection,
    instance: &Instance,
    chosen: &[(i64, i64)],
    filter: Value,
) -> Result<(), Failure> {
    let mut trail = Trail { by: store::by(), act: "outbox retry", filter, row: None };
    for stretch in chosen.chunks(STRETCH as usize) {
        let rows = stretch.iter().map(|(id, _)| find(conn, *id)).collect::<Result<Vec<_>, _>>()?;
        let became = store::change(conn, |tx| {
            let now_ms = clock::now_ms();
            let became = rows.iter().map(|row| acts::requeue_operation(tx, instance, row, now_ms));
            let became = became.collect::<SqlResult<Vec<Requeued>>>()?;
            let changed = became.iter().filter(|became| became.is_change()).count();
            trail.row = trail.count(tx, i64::try_from(changed).unwrap_or(i64::MAX), now_ms)?;
            Ok(became)
        })?;
        for (row, became) in rows.iter().zip(became) {
            put(&format!("{}\n", became.sentence(&row.id.to_string(), true)))?;
        }
    }
    Ok(())
}

/// The rows that wait or were given up, with the time they were queued. The oldest first: where order counts, it is the
/// order of commits.
fn choose(conn: &Connection, filter: &Filter, most: usize) -> Result<Vec<(i64, i64)>, Failure> {
    let mut chosen = Vec::new();
    let mut after_id = 0;
    loop {
        let rows = outbox::list_after(conn, filter, after_id, STRETCH).map_err(read_failed)?;
        let Some(last) = rows.last() else { return Ok(chosen) };
        after_id = last.id;
        let waiting = rows.iter().filter(|row| matches!(row.state.as_str(), "pending" | "dead"));
        for row in waiting {
            if chosen.len() == most {
                say(&format!("only the oldest {most}; a larger --limit takes more"));
                return Ok(chosen);
            }
            chosen.push((row.id, row.created_at_ms));
        }
    }
}

fn retry_one(conn: &Connection, instance: &Instance, row: &Operation) -> Result<(), Failure> {
    let (by, now_ms) = (store::by(), clock::now_ms());
    let became = store::change(conn, |tx| acts::retry_operation(tx, instance, row, &by, now_ms))?;
    put(&format!("{}\n", became.sentence(&row.id.to_string(), true)))
}

fn pause(args: &OutboxPauseArgs, context: &Context) -> Result<(), Failure> {
    let (conn, name) = (for_destination(args, context)?, &args.destination);
    let (by, now_ms) = (store::by(), clock::now_ms());
    let is_new = store::change(&conn, |tx| acts::pause(tx, name, &by, now_ms))?;
    put(&format!("{name} {}\n", if is_new { "is paused; its rows wait" } else { "was paused before" }))
}

fn resume(args: &OutboxPauseArgs, context: &Context) -> Result<(), Failure> {
    let (conn, name) = (for_destination(args, context)?, &args.destination);
    let (by, now_ms) = (store::by(), clock::now_ms());
    let was_paused = store::change(&conn, |tx| acts::resume(tx, name, &by, now_ms))?;
    put(&format!("{name} {}\n", if was_paused { "is resumed" } else { "was not paused" }))
}

/// The database, if the destination exists.
fn for_destination(args: &OutboxPauseArgs, context: &Context) -> Result<Connection, Failure> {
    let (instance, conn) = store::open_to_write(context)?;
    if instance.destinations.contains(&args.destination) {
        return Ok(conn);
    }
    let known = instance.destinations.join(", ");
    let known = if known.is_empty() { "none is configured".to_owned() } else { format!("known: {known}") };
    Err(Failure::new(Exit::NotFound, format!("there is no destination {}; {known}", args.destination)))
}

/// One row as `--json` prints it. New fields may be added; ignore what you do not know.
pub(crate) fn to_json(row: &Operation) -> Value {
    json!({
        "id": row.id,
        "destination": row.destination,
        "topic": row.topic,
        "operation_key": row.operation_key,
        "endpoint": row.endpoint,
        "event_id": row.event_id,
        "object_id": row.object_id,
        "state": row.state,
        "attempts": row.attempts,
        "available_at_ms": row.available_at_ms,
        "failing_since_ms": row.failing_since_ms,
        "last_error": row.last_error,
        "response_status": row.response_status,
        "response_excerpt": row.response_excerpt,
        "result": row.result,
        "created_at_ms": row.created_at_ms,
        "delivered_at_ms": row.delivered_at_ms,
    })
}

fn attempt_json(attempt: &Attempt) -> Value {
    json!({
        "number": attempt.number,
        "started_at_ms": attempt.started_at_ms,
        "duration_ms": attempt.duration_ms,
        "result": attempt.result,
        "status": attempt.status,
        "excerpt": attempt.excerpt,
        "error": attempt.error,
    })
}
