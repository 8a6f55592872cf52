//! `retry`: puts events back to work. The attempts so far are excused and stay in the history.

use inboxd::clock;
use inboxd::config::Instance;
use inboxd::inbox::{self, Event, Filter, queue};
use rusqlite::Connection;

use super::args::RetryArgs;
use super::events::filter;
use super::store;
use super::{Context, Exit, Failure, put};

/// Events named by id are retried at once; those chosen by filters need `--yes`.
pub(crate) fn run(args: &RetryArgs, context: &Context) -> Result<(), Failure> {
    let filter = filter(&args.filters)?;
    let (instance, conn) = store::open_to_write(context)?;
    if args.event_ids.is_empty() {
        return retry_matching(&conn, &instance, args, filter);
    }
    for event_id in &args.event_ids {
        retry(
            &conn,
            &instance,
            &store::find_event(&conn, event_id, args.filters.shared.endpoint.as_deref())?,
        )?;
    }
    Ok(())
}

fn retry_matching(
    conn: &Connection,
    instance: &Instance,
    args: &RetryArgs,
    filter: Filter,
) -> Result<(), Failure> {
    if filter == Filter::default() {
        return Err(Failure::new(
            Exit::Usage,
            "name events by their ids, or choose them, e.g. --state quarantined",
        ));
    }
    let limit = args.filters.shared.limit;
    let (events, goes_on) = store::bounded(limit, |limit| inbox::list(conn, &filter, limit))?;
    let (waiting, settled): (Vec<_>, Vec<_>) =
        events.iter().partition(|event| matches!(event.state.as_str(), "pending" | "quarantined"));
    store::say_where_it_ends("latest", events.len(), goes_on);
    if !args.yes {
        let count = waiting.len();
        let rest = if settled.is_empty() {
            String::new()
        } else {
            format!(" ({} more need no work)", settled.len())
        };
        return Err(Failure::new(
            Exit::Refused,
            format!("would retry {count} events{rest}; add --yes to do it"),
        ));
    }
    waiting.into_iter().try_for_each(|event| retry(conn, instance, event))
}

fn retry(conn: &Connection, instance: &Instance, event: &Event) -> Result<(), Failure> {
    let is_requeued = store::change(conn, |tx| queue::requeue(tx, event.id, clock::now_ms()))?;
    let what = match (is_requeued, event.state.as_str()) {
        (true, _) if instance.proxies.contains(&event.endpoint) => {
            "waits for the provider: in proxy mode its next delivery asks the application; redeliver it from there"
        }
        (true, _) => "is tried again",
        (false, "processing") => "is being worked on; nothing was changed",
        (false, _) => "was processed before; nothing was changed",
    };
    put(&format!("{} on {} {what}\n", event.event_id, event.endpoint))
}
