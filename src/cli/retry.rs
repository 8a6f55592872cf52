//! `retry`: puts events back to work. The attempts so far are excused and stay in the history.

use std::collections::BTreeMap;

use crate::clock;
use crate::config::{Instance, Sketch};
use crate::store::inbox::{self, Event, Filter, Tally, queue};
use crate::store::outbox;
use crate::store::reviews;
use crate::terminal::printable;
use crate::work::hand_on::{self, HandedOn};
use clap::Args;
use rusqlite::{Connection, Transaction};

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
    /// Make events of their own of the other bodies that were kept with this review (kind body_conflict)
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
            "events whose work fails are not stored: their providers send them again, and can be asked to",
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

/// Each is told of in a line; where one cannot be retried, the others are all the same.
fn retry_named(conn: &Connection, instance: &Instance, args: &RetryArgs) -> Result<(), Failure> {
    let endpoint = args.filters.shared.endpoint.as_deref();
    let mut first_failure = None;
    for event_id in &args.event_ids {
        let retried = store::find_event(conn, event_id, endpoint).and_then(|event| {
            let fate = store::change(conn, |tx| retry(tx, instance, &event, clock::now_ms()))?;
            // what is left of an event that is done is what came under its id with another body
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
        say(&format!("the oldest {most}, and there are more: --limit takes them"));
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
    let (mut after_id, mut count) = (0, 0);
    loop {
        let events = inbox::list_after(conn, filter, after_id, STRETCH).map_err(read_failed)?;
        let Some(last) = events.last() else { return Ok(fates) };
        after_id = last.id;
        let mut chosen = Vec::new();
        for event in events.iter().filter(|event| is_chosen(&event.state, filter)) {
            if chosen.len() < usize::try_from(most - count).unwrap_or(usize::MAX) && !is_decided(conn, event)?
            {
                chosen.push(event);
            }
        }
        let retried = store::change(conn, |tx| {
            chosen
                .iter()
                .map(|event| retry(tx, instance, event, clock::now_ms()))
                .collect::<Result<Vec<_>, _>>()
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

/// What nobody took was no mistake: it is retried where it is asked for.
fn is_chosen(state: &str, filter: &Filter) -> bool {
    match state {
        "pending" | "quarantined" => true,
        "ignored" => filter.state.is_some(),
        _ => false,
    }
}

/// Whether a person has closed what was asked about it: a filter does not undo that, a name does.
fn is_decided(conn: &Connection, event: &Event) -> Result<bool, Failure> {
    if event.state != "quarantined" {
        return Ok(false);
    }
    let reviews = reviews::about(conn, &event.endpoint, &event.event_id).map_err(read_failed)?;
    Ok(!reviews.is_empty() && reviews.iter().all(|review| review.resolved_at_ms.is_some()))
}

fn decided_count(conn: &Connection, filter: &Filter) -> Result<i64, Failure> {
    let filter = Filter { state: Some("quarantined".to_owned()), ..filter.clone() };
    let (mut after_id, mut count) = (0, 0);
    loop {
        let events = inbox::list_after(conn, &filter, after_id, STRETCH).map_err(read_failed)?;
        let Some(last) = events.last() else { return Ok(count) };
        after_id = last.id;
        for event in &events {
            count += i64::from(is_decided(conn, event)?);
        }
    }
}

/// What a filter has chosen.
struct Choice {
    wanted: i64,
    /// Of the rest, those that a person has decided on.
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
            "people have decided on all that matches (`inboxd reviews list --all`); name events by their ids to retry them"
        } else if self.rest > 0 {
            "no event that matches needs work"
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

/// What became of one event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Queued,
    /// Queued, but what keeps it from being applied is known.
    Doubtful(&'static str),
    HandedOn {
        destination: String,
        is_paused: bool,
    },
    Held,
    Done,
    GivenUp(i64),
    Unwanted(String),
    Foreign,
    Purged,
    NoEndpoint(String),
    NoDestination(String),
}

fn retry(tx: &Transaction<'_>, instance: &Instance, event: &Event, now_ms: i64) -> rusqlite::Result<Fate> {
    let Some(sketch) = instance.sketch(&event.endpoint) else {
        return Ok(Fate::NoEndpoint(event.endpoint.clone()));
    };
    match event.state.as_str() {
        "done" => done(tx, event),
        _ if event.payload_bytes.is_none() => Ok(Fate::Purged),
        _ if sketch.is_proxy => hand_on(tx, instance, sketch, event, now_ms),
        "ignored" if sketch.handlers.is_empty() && sketch.forward.is_empty() => {
            Ok(Fate::Unwanted(sketch.name.clone()))
        }
        "ignored" if is_foreign(sketch, event) => Ok(Fate::Foreign),
        _ if !queue::requeue(tx, event.id, now_ms)? => Ok(Fate::Held),
        _ if is_foreign(sketch, event) => {
            Ok(Fate::Doubtful("of another mode or account than the endpoint takes"))
        }
        "quarantined" if event.error_class.as_deref() == Some("content") => {
            Ok(Fate::Doubtful("something in the event itself, see `inboxd events show`"))
        }
        _ => Ok(Fate::Queued),
    }
}

/// A row of the outbox that was given up is what can still be retried of an event that is done.
fn done(tx: &Transaction<'_>, event: &Event) -> rusqlite::Result<Fate> {
    let rows = outbox::of_event(tx, &event.endpoint, &event.event_id)?;
    Ok(rows.iter().find(|row| row.state == "dead").map_or(Fate::Done, |row| Fate::GivenUp(row.id)))
}

fn hand_on(
    tx: &Transaction<'_>,
    instance: &Instance,
    sketch: &Sketch,
    event: &Event,
    now_ms: i64,
) -> rusqlite::Result<Fate> {
    let Some(destination) = sketch.forward.first().filter(|name| instance.destinations.contains(name)) else {
        return Ok(Fate::NoDestination(sketch.name.clone()));
    };
    Ok(match hand_on::hand_on(tx, event.id, destination, now_ms)? {
        HandedOn::Queued => {
            let is_paused = outbox::is_paused(tx, destination)?;
            Fate::HandedOn { destination: destination.clone(), is_paused }
        }
        HandedOn::Held => Fate::Held,
        HandedOn::Settled => Fate::Done,
        HandedOn::Purged => Fate::Purged,
    })
}

/// As far as the row and the configuration tell.
fn is_foreign(sketch: &Sketch, event: &Event) -> bool {
    let other_account = match (sketch.account.as_deref(), event.account.as_deref()) {
        (Some("required") | None, _) | (_, None) => false,
        (Some(wanted), Some(account)) => wanted != account,
    };
    other_account || sketch.livemode.zip(event.livemode).is_some_and(|(wanted, livemode)| wanted != livemode)
}

impl Fate {
    /// Whether it was not done because it cannot be.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Queued
            | Self::Doubtful(_)
            | Self::HandedOn { .. }
            | Self::Held
            | Self::Done
            | Self::GivenUp(_) => false,
            Self::Unwanted(_)
            | Self::Foreign
            | Self::Purged
            | Self::NoEndpoint(_)
            | Self::NoDestination(_) => true,
        }
    }

    /// What happened, said of one event or of several.
    fn sentence(&self, subject: &str, is_one: bool) -> String {
        let (is, was, it) = if is_one { ("is", "was", "it") } else { ("are", "were", "them") };
        let said = match self {
            Self::Queued => {
                format!(
                    "{is} tried again: a running daemon works on {it} now, a stopped one at its next start"
                )
            }
            Self::Doubtful(what) => format!(
                "{is} tried again; what kept {it} from being applied is {what}: where that has not changed, the \
                 review stays open, and `inboxd resolve` closes it"
            ),
            Self::HandedOn { destination, is_paused: false } => format!(
                "{is} handed to {destination}: a running daemon sends {it} now, a stopped one at its next start; \
                 `inboxd outbox list` shows how it goes"
            ),
            Self::HandedOn { destination, is_paused: true } => format!(
                "{is} queued for {destination}, which is paused: `inboxd outbox resume {destination}` sends {it}"
            ),
            Self::Held => format!("{is} being worked on; nothing was changed"),
            Self::Done => format!("{was} processed before; nothing was changed"),
            Self::GivenUp(row) => format!(
                "{was} processed before; nothing was changed. What it queued was given up: `inboxd outbox retry {row}` \
                 sends that again"
            ),
            Self::Unwanted(endpoint) => format!(
                "{was} not retried: endpoint {endpoint} has no handlers and no forward, so nobody would take {it}; \
                 configure one, restart the daemon, and retry"
            ),
            Self::Foreign => format!(
                "{was} not retried: {is} of another mode or account than the endpoint takes (livemode, account)"
            ),
            Self::Purged => format!(
                "{was} not retried: the body was purged ([retention] payload), so nothing is left to work on; \
                 have it sent again under a new id where it matters"
            ),
            Self::NoEndpoint(endpoint) => format!(
                "{was} not retried: the configuration has no endpoint {endpoint} any more; put it back first"
            ),
            Self::NoDestination(endpoint) => format!(
                "{was} not retried: endpoint {endpoint} has no destination in the configuration to hand {it} to; \
                 `inboxd check` says what is missing"
            ),
        };
        format!("{subject} {said}")
    }
}
