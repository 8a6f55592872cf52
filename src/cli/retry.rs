//! `retry`: puts events back to work. The attempts so far are excused and stay in the history.

use std::collections::BTreeMap;

use crate::admin::acts::{self, Trail};
use crate::admin::filter::events_json;
use crate::admin::retry::{Fate, requeue};
use crate::clock;
use crate::config::Instance;
use crate::store::Connection;
use crate::store::inbox::{self, Filter, Tally};
use crate::terminal::printable;
use clap::Args;

use super::conflicts;
use super::events::{FAILING, Filters, filter};
use super::store::{self, counted, read_failed, time};
use super::{Context, Exit, Failure, put, say};

/// Put events that wait for a person, or for their next attempt, back to work now
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    /// The providers' event ids; without any, the filters choose
    #[arg(value_name = "EVENT_ID")]
    pub(crate) event_ids: Vec<String>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// Make an event of each other body that was kept with this review (kind body_conflict)
    #[arg(long, value_name = "REVIEW", conflicts_with = "event_ids")]
    pub(crate) conflict: Option<i64>,
    /// Do it; without this, events chosen by filters are only counted
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Events of one transaction: deliveries come in between.
const STRETCH: u32 = 100;

/// Events named by id are retried at once; those chosen by filters need `--yes`.
pub(crate) fn run(args: &RetryArgs, context: &Context) -> Result<(), Failure> {
    let filter = filter(&args.filters)?;
    if filter.state.as_deref() == Some(FAILING) {
        return Err(Failure::new(
            Exit::Usage,
            "failing events are not stored, so they cannot be retried here: their providers send them again, or can be asked to",
        ));
    }
    let (instance, conn) = store::open_to_write(context)?;
    if let Some(review_id) = args.conflict {
        return conflicts::retry(&conn, &instance, review_id);
    }
    if args.event_ids.is_empty() {
        return retry_matching(&conn, &instance, args, &filter);
    }
    retry_named(&conn, &instance, args)
}

/// Prints a line for each. One that cannot be retried does not keep the others from it.
fn retry_named(conn: &Connection, instance: &Instance, args: &RetryArgs) -> Result<(), Failure> {
    let endpoint = args.filters.shared.endpoint.as_deref();
    let mut first_failure = None;
    for event_id in &args.event_ids {
        let retried = store::find_event(conn, event_id, endpoint).and_then(|event| {
            let (by, now_ms) = (store::by(), clock::now_ms());
            let fate = store::change(conn, |tx| acts::retry(tx, instance, &event, &by, now_ms))?;
            // of an event that is done, other bodies under its id can still be put to work
            if matches!(fate, Fate::Done) {
                let lines = conflicts::put_to_work(conn, instance, &event.endpoint, &event.event_id)?;
                if !lines.is_empty() {
                    return put(&lines.concat());
                }
            }
            let subject = format!("{} on {}", event.event_id, event.endpoint);
            let line = fate.sentence(&subject, true);
            if fate.is_refusal() { Err(Failure::new(Exit::Refused, line)) } else { put(&format!("{line}\n")) }
        });
        match retried {
            Err(failure) if matches!(failure.exit(), Exit::Refused | Exit::NotFound | Exit::Usage) => {
                if let Some(earlier) = first_failure.replace(failure) {
                    say_failure(&earlier);
                }
            }
            other => other?,
        }
    }
    first_failure.map_or(Ok(()), Err)
}

fn say_failure(failure: &Failure) {
    for line in failure.lines() {
        say(&format!("inboxd: {}", printable(&line)));
    }
}

fn retry_matching(
    conn: &Connection,
    instance: &Instance,
    args: &RetryArgs,
    filter: &Filter,
) -> Result<(), Failure> {
    if *filter == Filter::default() {
        return Err(Failure::new(
            Exit::Usage,
            "name events by their ids, or choose them, e.g. --state quarantined",
        ));
    }
    let limit = args.filters.shared.limit.limit;
    let tallies = inbox::tally(conn, filter).map_err(read_failed)?;
    let waits = |state: &str| tallies.iter().any(|(name, _)| name == state);
    let decided = if waits("quarantined") { decided_count(conn, filter)? } else { 0 };
    let found = Choice::of(&tallies, decided, filter);
    if !args.yes {
        return found.would_retry(limit);
    }
    let most = limit.map_or(i64::MAX, i64::from);
    let fates = retry_all(conn, instance, filter, most)?;
    if found.wanted > most {
        say(&format!("only the oldest {most}; a larger --limit takes more"));
    }
    if fates.is_empty() {
        say(found.nothing());
        return Ok(());
    }
    for (fate, (count, example)) in &fates {
        let subject = counted(*count, "event");
        let example = if fate.is_refusal() { format!(" (e.g. {example})") } else { String::new() };
        put(&format!("{}{example}\n", fate.sentence(&subject, *count == 1)))?;
    }
    Ok(())
}

/// In stretches, oldest first: where order counts, it is the order of commits.
fn retry_all(
    conn: &Connection,
    instance: &Instance,
    filter: &Filter,
    most: i64,
) -> Result<BTreeMap<Fate, (i64, String)>, Failure> {
    let mut fates = BTreeMap::new();
    let mut trail = Trail { by: store::by(), act: "retry", filter: events_json(filter), row: None };
    let (mut after_id, mut count) = (0, 0);
    loop {
        let events = inbox::list_after(conn, filter, after_id, STRETCH).map_err(read_failed)?;
        let Some(last) = events.last() else { return Ok(fates) };
        after_id = last.id;
        let mut chosen = Vec::new();
        for event in events.iter().filter(|event| is_chosen(&event.state, filter)) {
            let is_room = chosen.len() < usize::try_from(most - count).unwrap_or(usize::MAX);
            if is_room && !acts::is_decided(conn, event).map_err(read_failed)? {
                chosen.push(event);
            }
        }
        let retried = store::change(conn, |tx| {
            let now_ms = clock::now_ms();
            let fates = chosen.iter().map(|event| requeue(tx, instance, event, now_ms));
            let fates = fates.collect::<Result<Vec<_>, _>>()?;
            let changed = fates.iter().filter(|fate| fate.is_change()).count();
            trail.row = trail.count(tx, i64::try_from(changed).unwrap_or(i64::MAX), now_ms)?;
            Ok(fates)
        })?;
        for (fate, event) in retried.into_iter().zip(chosen) {
            count += 1;
            fates.entry(fate).or_insert_with(|| (0, event.event_id.clone())).0 += 1;
        }
        if count == most {
            return Ok(fates);
        }
    }
}

/// Ignored events are retried only if the filter asks for them: to ignore them was not a mistake.
fn is_chosen(state: &str, filter: &Filter) -> bool {
    match state {
        "pending" | "quarantined" => true,
        "ignored" => filter.state.is_some(),
        _ => false,
    }
}

fn decided_count(conn: &Connection, filter: &Filter) -> Result<i64, Failure> {
    let filter = Filter { state: Some("quarantined".to_owned()), ..filter.clone() };
    let (mut after_id, mut count) = (0, 0);
    loop {
        let events = inbox::list_after(conn, &filter, after_id, STRETCH).map_err(read_failed)?;
        let Some(last) = events.last() else { return Ok(count) };
        after_id = last.id;
        for event in &events {
            count += i64::from(acts::is_decided(conn, event).map_err(read_failed)?);
        }
    }
}

/// The events that a filter has chosen.
struct Choice {
    wanted: i64,
    /// Events among the rest that a person has decided on.
    decided: i64,
    rest: i64,
    ends: Option<(i64, i64)>,
}

impl Choice {
    fn of(tallies: &[(String, Tally)], decided: i64, filter: &Filter) -> Self {
        let mut choice = Self { wanted: -decided, decided, rest: 0, ends: None };
        for (state, tally) in tallies {
            if !is_chosen(state, filter) {
                choice.rest += tally.count;
                continue;
            }
            choice.wanted += tally.count;
            let (oldest_ms, newest_ms) = choice.ends.unwrap_or((tally.oldest_ms, tally.newest_ms));
            choice.ends = Some((oldest_ms.min(tally.oldest_ms), newest_ms.max(tally.newest_ms)));
        }
        choice
    }

    fn nothing(&self) -> &'static str {
        if self.decided > 0 {
            "people have decided on all matching events (`inboxd reviews list --all`); name events by their ids to retry them"
        } else if self.rest > 0 {
            "no matching event needs work"
        } else {
            "no event matches"
        }
    }

    fn would_retry(&self, limit: Option<u32>) -> Result<(), Failure> {
        let Some((oldest_ms, newest_ms)) = self.ends.filter(|_| self.wanted > 0) else {
            say(self.nothing());
            return Ok(());
        };
        let count = self.wanted.min(limit.map_or(i64::MAX, i64::from));
        let rest = match self.rest {
            0 => String::new(),
            1 => "; 1 more needs no work".to_owned(),
            rest => format!("; {rest} more need no work"),
        };
        let rest = match self.decided {
            0 => rest,
            1 => format!("{rest}; a person has decided on 1 more"),
            decided => format!("{rest}; people have decided on {decided} more"),
        };
        let cut = if count < self.wanted {
            format!("the oldest {count} of {}, and there are more: --limit takes them; ", self.wanted)
        } else {
            String::new()
        };
        let message = format!(
            "would retry {} ({cut}received from {} to {}{rest}); add --yes to do it",
            counted(count, "event"),
            time(oldest_ms),
            time(newest_ms)
        );
        Err(Failure::new(Exit::Refused, message))
    }
}
