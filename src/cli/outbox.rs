//! `outbox`: what is sent to destinations, how it goes, and what a person can do about it.

use inboxd::config::Instance;
use inboxd::outbox::{self, Attempt, Filter, Operation, queue};
use inboxd::{clock, db, reviews};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::args::{
    OutboxFilters, OutboxListArgs, OutboxPauseArgs, OutboxRetryArgs, OutboxRowArgs, OutboxVerb,
};
use super::store::{self, parse_time, read_failed, table, time, write_failed};
use super::{Context, Exit, Failure, put, say};

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
    let (_, conn) = store::open(context)?;
    let found = outbox::list(&conn, &filter, args.filters.limit).map_err(read_failed)?;
    if args.json {
        return put(&found.iter().map(|row| format!("{}\n", to_json(row))).collect::<String>());
    }
    if found.is_empty() {
        say("no row matches");
        return Ok(());
    }
    let row = |row: &Operation| {
        vec![
            row.id.to_string(),
            time(row.created_at_ms),
            row.destination.clone(),
            row.topic.clone(),
            row.event_id.clone(),
            row.state.clone(),
            row.attempts.to_string(),
            row.last_error.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let head = ["ROW", "QUEUED", "DESTINATION", "TYPE", "EVENT", "STATE", "ATTEMPTS", "LAST ERROR"];
    put(&table(&head, &found.iter().map(row).collect::<Vec<_>>()))?;
    if u32::try_from(found.len()).is_ok_and(|count| count == args.filters.limit) {
        say(&format!("the latest {}; --limit shows more", found.len()));
    }
    Ok(())
}

fn filter(filters: &OutboxFilters) -> Result<Filter, Failure> {
    let now_ms = clock::now_ms();
    let moment = |text: &Option<String>| text.as_deref().map(|text| parse_time(text, now_ms)).transpose();
    Ok(Filter {
        destination: filters.destination.clone(),
        endpoint: filters.endpoint.clone(),
        topic: filters.topic.clone(),
        object_id: filters.object.clone(),
        state: filters.state.clone(),
        since_ms: moment(&filters.since)?,
        until_ms: moment(&filters.until)?,
        error: filters.error.clone(),
    })
}

fn show(args: &OutboxRowArgs, context: &Context) -> Result<(), Failure> {
    let (_, conn) = store::open(context)?;
    let row = find(&conn, args.row)?;
    let attempts = outbox::attempts(&conn, row.id).map_err(read_failed)?;
    let mut json = to_json(&row);
    if args.json {
        json["history"] = attempts.iter().map(attempt_json).collect();
        return put(&format!("{json}\n"));
    }
    let Value::Object(fields) = json else { return Ok(()) };
    let in_words = |name: &str, value: &Value| match value {
        Value::Number(number) if name.ends_with("_ms") => time(number.as_i64().unwrap_or_default()),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let rows: Vec<_> = fields
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| vec![name.clone(), in_words(name, value)])
        .collect();
    let attempt = |attempt: &Attempt| {
        let cell = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        vec![
            attempt.number.to_string(),
            time(attempt.started_at_ms),
            attempt.result.clone().unwrap_or_else(|| "runs, or died with its process".to_owned()),
            cell(attempt.status),
            cell(attempt.duration_ms),
            attempt.error.clone().or_else(|| attempt.excerpt.clone()).unwrap_or_default(),
        ]
    };
    let attempts: Vec<_> = attempts.iter().map(attempt).collect();
    let history = table(&["ATTEMPT", "STARTED", "RESULT", "STATUS", "MS", "ANSWER"], &attempts);
    put(&format!("{}\n{history}", table(&["FIELD", "VALUE"], &rows)))
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
    if is_empty(&filter) {
        let advice = "name rows by their numbers, or choose them, e.g. --state dead";
        return Err(Failure::new(Exit::Usage, advice));
    }
    let found = outbox::list(&conn, &filter, args.filters.limit).map_err(read_failed)?;
    let waiting: Vec<_> =
        found.iter().filter(|row| matches!(row.state.as_str(), "pending" | "dead")).collect();
    if !args.yes {
        let count = waiting.len();
        return Err(Failure::new(Exit::Refused, format!("would retry {count} rows; add --yes to do it")));
    }
    // the oldest first: where order counts, it is the order of commits
    waiting.into_iter().rev().try_for_each(|row| retry_one(&conn, &instance, row))
}

fn is_empty(filter: &Filter) -> bool {
    let Filter { destination, endpoint, topic, object_id, state, since_ms, until_ms, error } = filter;
    [destination, endpoint, topic, object_id, state, error].into_iter().all(Option::is_none)
        && since_ms.is_none()
        && until_ms.is_none()
}

fn retry_one(conn: &Connection, instance: &Instance, row: &Operation) -> Result<(), Failure> {
    let now_ms = clock::now_ms();
    let tx = db::begin_immediate(conn).map_err(write_failed)?;
    let is_requeued = queue::requeue(&tx, row.id, now_ms).map_err(write_failed)?;
    if is_requeued {
        let note = "tried again by hand";
        reviews::close_on_operation(&tx, &row.operation_key, note, now_ms).map_err(write_failed)?;
    }
    let is_paused = outbox::is_paused(&tx, &row.destination).map_err(write_failed)?;
    tx.commit().map_err(write_failed)?;
    let what = match (is_requeued, row.state.as_str()) {
        (true, _) if !instance.destinations.contains(&row.destination) => {
            "waits: its destination is not in the configuration any more"
        }
        (true, _) if is_paused => "waits: its destination is paused; `inboxd outbox resume` sends again",
        (true, _) => "is tried again",
        (false, "sending") => "is being sent; nothing was changed",
        (false, _) => "was delivered before; nothing was changed",
    };
    put(&format!("{} {what}\n", row.id))
}

fn pause(args: &OutboxPauseArgs, context: &Context) -> Result<(), Failure> {
    let conn = for_destination(args, context)?;
    let tx = db::begin_immediate(&conn).map_err(write_failed)?;
    let is_new = outbox::pause(&tx, &args.destination, "by hand", clock::now_ms()).map_err(write_failed)?;
    tx.commit().map_err(write_failed)?;
    let what = if is_new { "is paused; what is queued waits" } else { "was paused before" };
    put(&format!("{} {what}\n", args.destination))
}

fn resume(args: &OutboxPauseArgs, context: &Context) -> Result<(), Failure> {
    let conn = for_destination(args, context)?;
    let tx = db::begin_immediate(&conn).map_err(write_failed)?;
    let was_paused = outbox::resume(&tx, &args.destination).map_err(write_failed)?;
    tx.commit().map_err(write_failed)?;
    let what = if was_paused { "is sent to again" } else { "was not paused" };
    put(&format!("{} {what}\n", args.destination))
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
fn to_json(row: &Operation) -> Value {
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
