//! Acts by filter: what they would do, for the page that asks for confirmation, and the work of their jobs.
//!
//! The filters are those of the lists. A job takes what was there when it was asked for (`until_ms`), oldest first, a
//! hundred rows in each transaction, and writes one row of the audit trail.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::clock;
use crate::config::Instance;
use crate::store::inbox::browse::{self, COUNTED_MAX, Chosen};
use crate::store::inbox::{self, Event, Filter};
use crate::store::outbox;
use crate::store::reviews::{self, Kind, Review};
use crate::store::writer::{JobError, WriterHandle};
use crate::terminal::counted;

use super::acts::{self, By, Trail};
use super::filter;
use super::http::Form;
use super::jobs::Job;
use super::reading::{Connection, Reading, Transaction};
use super::retry::requeue;

/// Rows of one transaction: deliveries come in between.
const PAGE: u32 = 100;

/// Rows of the outbox that one job takes.
const OUTBOX_ROWS_MAX: u32 = 10_000;

/// An act over all that a filter chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bulk {
    /// Puts events back to work.
    RetryEvents(Filter),
    /// Has rows of the outbox sent again.
    RetryOutbox(outbox::Filter),
    /// Puts back to work what open reviews are about.
    RetryReviews(reviews::Filter),
    /// Closes open reviews with a note.
    ResolveReviews(reviews::Filter),
}

/// What an act would do.
#[derive(Debug, Default)]
pub struct Preview {
    /// How many rows; `None`: more than are counted.
    pub count: Option<i64>,
    /// The same, by what they are.
    pub kinds: Vec<(String, i64)>,
    /// When the oldest of them came, in milliseconds since the epoch.
    pub oldest_ms: Option<i64>,
    /// When the newest of them came.
    pub newest_ms: Option<i64>,
    /// A few of them, in words.
    pub samples: Vec<String>,
}

impl Bulk {
    /// As a form or a link names it. `None`: there is no such act, or it does not go with this filter.
    pub fn parse(form: &Form, now_ms: i64) -> Option<Self> {
        let until_ms = form.number("until_ms").or(Some(now_ms));
        match form.value("act")? {
            "retry-events" => {
                let filter = filter::events(form, now_ms);
                let is_waiting = matches!(filter.state.as_deref(), Some("pending" | "quarantined"));
                is_waiting
                    .then_some(Self::RetryEvents(Filter { until_ms: filter.until_ms.or(until_ms), ..filter }))
            }
            "retry-outbox" => {
                let filter = filter::outbox(form, now_ms);
                let is_waiting = matches!(filter.state.as_deref(), Some("pending" | "dead"));
                is_waiting.then_some(Self::RetryOutbox(outbox::Filter {
                    until_ms: filter.until_ms.or(until_ms),
                    ..filter
                }))
            }
            "retry-reviews" => Some(Self::RetryReviews(filter::reviews(form, until_ms))),
            "resolve-reviews" => Some(Self::ResolveReviews(filter::reviews(form, until_ms))),
            _ => None,
        }
    }

    /// The act's name in a form.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RetryEvents(_) => "retry-events",
            Self::RetryOutbox(_) => "retry-outbox",
            Self::RetryReviews(_) => "retry-reviews",
            Self::ResolveReviews(_) => "resolve-reviews",
        }
    }

    /// What it does, in words.
    pub fn sentence(&self) -> &'static str {
        match self {
            Self::RetryEvents(_) => "Put these events back to work",
            Self::RetryOutbox(_) => "Send these rows again",
            Self::RetryReviews(_) => "Put back to work what these reviews are about",
            Self::ResolveReviews(_) => "Close these reviews",
        }
    }

    /// The verb of the command line.
    fn verb(&self) -> &'static str {
        match self {
            Self::RetryEvents(_) | Self::RetryReviews(_) => "retry",
            Self::RetryOutbox(_) => "outbox retry",
            Self::ResolveReviews(_) => "resolve",
        }
    }

    /// The filter by the names of the flags.
    pub fn filter(&self) -> Value {
        match self {
            Self::RetryEvents(filter) => filter::events_json(filter),
            Self::RetryOutbox(filter) => filter::outbox_json(filter),
            Self::RetryReviews(filter) | Self::ResolveReviews(filter) => filter::reviews_json(filter),
        }
    }

    /// What it would do now.
    ///
    /// # Errors
    /// Any SQLite error, also when the read takes too long.
    pub fn preview(&self, conn: &Connection) -> Reading<Preview> {
        match self {
            Self::RetryEvents(filter) => preview_of_events(conn, filter),
            Self::RetryOutbox(filter) => {
                let (rows, _) = outbox::browse::page(conn, filter, None, OUTBOX_ROWS_MAX, 0)?;
                let of = |row: &outbox::Operation| {
                    (
                        row.destination.clone(),
                        row.created_at_ms,
                        format!("row {} to {}: {}", row.id, row.destination, row.topic),
                    )
                };
                Ok(preview_of(rows.iter().map(of)))
            }
            Self::RetryReviews(filter) | Self::ResolveReviews(filter) => {
                let rows =
                    reviews::open_after(conn, filter, 0, u32::try_from(COUNTED_MAX + 1).unwrap_or(u32::MAX))?;
                let of = |review: &Review| {
                    (
                        review.kind.clone(),
                        review.opened_at_ms,
                        format!("review {}: {} {}", review.id, review.subject, review.reason),
                    )
                };
                Ok(preview_of(rows.iter().map(of)))
            }
        }
    }
}

fn preview_of(rows: impl ExactSizeIterator<Item = (String, i64, String)>) -> Preview {
    let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    let mut preview = Preview { count: (count <= COUNTED_MAX).then_some(count), ..Preview::default() };
    let mut kinds = BTreeMap::<String, i64>::new();
    for (kind, at_ms, sample) in rows {
        *kinds.entry(kind).or_default() += 1;
        preview.oldest_ms = Some(preview.oldest_ms.map_or(at_ms, |oldest| oldest.min(at_ms)));
        preview.newest_ms = preview.newest_ms.max(Some(at_ms));
        if preview.samples.len() < 5 {
            preview.samples.push(sample);
        }
    }
    preview.kinds = kinds.into_iter().collect();
    preview
}

fn preview_of_events(conn: &Connection, filter: &Filter) -> Reading<Preview> {
    let chosen = browse::chosen(conn, filter)?;
    let count: i64 = chosen.iter().map(|chosen| chosen.count).sum();
    let samples = browse::waiting_after(conn, filter, (i64::MIN, 0), 5)?;
    let kind = |chosen: &Chosen| {
        let name = if chosen.event_type.is_empty() { "(without a type)" } else { &chosen.event_type };
        (name.to_owned(), chosen.count)
    };
    Ok(Preview {
        count: (count <= COUNTED_MAX).then_some(count),
        kinds: chosen.iter().map(kind).collect(),
        oldest_ms: chosen.iter().map(|chosen| chosen.oldest_ms).min(),
        newest_ms: chosen.iter().map(|chosen| chosen.newest_ms).max(),
        samples: samples.iter().map(|event| format!("{} on {}", event.event_id, event.endpoint)).collect(),
    })
}

/// What a job works with.
pub struct Bench {
    /// Commits.
    pub writer: WriterHandle,
    /// As configured.
    pub instance: Arc<Instance>,
    /// Opens a reader for one look.
    pub reader: Box<dyn Fn() -> Result<Connection, String> + Send>,
    /// Whether the daemon is stopping.
    pub is_stopping: Box<dyn Fn() -> bool + Send>,
}

/// What became of the rows, so far.
#[derive(Default)]
struct Tally {
    looked_at: i64,
    changed: i64,
    became: BTreeMap<String, i64>,
}

/// What became of one row: a sentence of which all like it are counted, and whether it was changed.
type Became = (String, bool);

impl Bench {
    /// Does the work of a job.
    ///
    /// # Errors
    /// In one sentence, why it ended early.
    pub fn run(&self, bulk: &Bulk, by: By, job: &Job) -> Result<(), String> {
        let mut trail = Trail { by, act: bulk.verb(), filter: bulk.filter(), row: None };
        let mut tally = Tally::default();
        match bulk {
            Bulk::RetryEvents(filter) => self.retry_events(filter, &mut trail, &mut tally, job),
            Bulk::RetryOutbox(filter) => self.retry_outbox(filter, &mut trail, &mut tally, job),
            Bulk::RetryReviews(filter) => self.over_reviews(filter, false, &mut trail, &mut tally, job),
            Bulk::ResolveReviews(filter) => self.over_reviews(filter, true, &mut trail, &mut tally, job),
        }
    }

    fn retry_events(
        &self,
        filter: &Filter,
        trail: &mut Trail,
        tally: &mut Tally,
        job: &Job,
    ) -> Result<(), String> {
        let mut place = (i64::MIN, 0);
        loop {
            let conn = (self.reader)()?;
            let events = browse::waiting_after(&conn, filter, place, PAGE).map_err(|e| e.to_string())?;
            let Some(last) = events.last() else { return Ok(()) };
            place = (last.received_at_ms, last.id);
            let mut chosen: Vec<Event> = Vec::new();
            for event in events {
                tally.looked_at += 1;
                if acts::is_decided(&conn, &event).map_err(|error| error.to_string())? {
                    *tally.became.entry("left alone: a person has decided on it".to_owned()).or_default() +=
                        1;
                } else {
                    chosen.push(event);
                }
            }
            drop(conn);
            let instance = Arc::clone(&self.instance);
            self.commit(trail, tally, job, move |tx, now_ms| {
                let fate = |event: &Event| {
                    let fate = requeue(tx, &instance, event, now_ms)?;
                    Ok((fate.sentence("each", true), fate.is_change()))
                };
                chosen.iter().map(fate).collect()
            })?;
        }
    }

    fn retry_outbox(
        &self,
        filter: &outbox::Filter,
        trail: &mut Trail,
        tally: &mut Tally,
        job: &Job,
    ) -> Result<(), String> {
        let conn = (self.reader)()?;
        let (mut rows, _) = outbox::browse::page(&conn, filter, None, OUTBOX_ROWS_MAX, 0)
            .map_err(|error| error.to_string())?;
        drop(conn);
        rows.reverse();
        for part in rows.chunks(PAGE as usize) {
            tally.looked_at += i64::try_from(part.len()).unwrap_or(0);
            let (part, instance) = (part.to_vec(), Arc::clone(&self.instance));
            self.commit(trail, tally, job, move |tx, now_ms| {
                let became = |row: &outbox::Operation| {
                    let became = acts::requeue_operation(tx, &instance, row, now_ms)?;
                    Ok((became.sentence("each", true), became.is_change()))
                };
                part.iter().map(became).collect()
            })?;
        }
        Ok(())
    }

    fn over_reviews(
        &self,
        filter: &reviews::Filter,
        closes: bool,
        trail: &mut Trail,
        tally: &mut Tally,
        job: &Job,
    ) -> Result<(), String> {
        let mut after_id = 0;
        loop {
            let conn = (self.reader)()?;
            let found =
                reviews::open_after(&conn, filter, after_id, PAGE).map_err(|error| error.to_string())?;
            drop(conn);
            let Some(last) = found.last() else { return Ok(()) };
            after_id = last.id;
            tally.looked_at += i64::try_from(found.len()).unwrap_or(0);
            let instance = Arc::clone(&self.instance);
            let by = trail.by.clone();
            self.commit(trail, tally, job, move |tx, now_ms| {
                let became = |review: &Review| {
                    if closes {
                        let note = by.note.as_deref().unwrap_or_default();
                        let is_closed = reviews::resolve(tx, review.id, note, now_ms)?;
                        let word = if is_closed { "each is closed" } else { "each was closed before" };
                        Ok((word.to_owned(), is_closed))
                    } else {
                        retry_of(tx, &instance, review, &by, now_ms)
                    }
                };
                found.iter().map(became).collect()
            })?;
        }
    }

    /// Commits one page, with the audit trail, and tells how far the job is.
    fn commit(
        &self,
        trail: &mut Trail,
        tally: &mut Tally,
        job: &Job,
        mut work: impl FnMut(&Transaction<'_>, i64) -> Reading<Vec<Became>> + Send + 'static,
    ) -> Result<(), String> {
        if (self.is_stopping)() {
            return Err("the daemon was stopped; what was done until then stays".to_owned());
        }
        let writing = trail.clone();
        let committed = self.writer.run(move |tx| {
            let now_ms = clock::now_ms();
            let became = work(tx, now_ms)?;
            let changed = became.iter().filter(|(_, is_change)| *is_change).count();
            let row = writing.count(tx, i64::try_from(changed).unwrap_or(i64::MAX), now_ms)?;
            Ok::<_, JobError>((became, row))
        });
        let (became, row) = committed.map_err(|error| error.to_string())?;
        trail.row = row;
        for (sentence, is_change) in became {
            tally.changed += i64::from(is_change);
            *tally.became.entry(sentence).or_default() += 1;
        }
        let in_words =
            tally.became.iter().map(|(sentence, count)| format!("{}: {sentence}", counted(*count, "row")));
        job.tell(tally.looked_at, tally.changed, in_words.collect());
        Ok(())
    }
}

/// Puts back to work what a review is about.
fn retry_of(
    tx: &Transaction<'_>,
    instance: &Instance,
    review: &Review,
    by: &By,
    now_ms: i64,
) -> Reading<Became> {
    let (endpoint, event_id) = (review.endpoint.as_str(), review.event_id.as_str());
    if review.kind == Kind::BodyConflict.as_str() {
        let lines = acts::put_conflicts_to_work(tx, instance, (endpoint, event_id), by, now_ms)?;
        let word = if lines.is_empty() {
            "of each, no other body is left"
        } else {
            "of each, the other bodies are events now"
        };
        return Ok((word.to_owned(), !lines.is_empty()));
    }
    let rows = outbox::of_event(tx, endpoint, event_id)?;
    if let Some(row) = rows.iter().find(|row| row.operation_key == review.subject) {
        let became = acts::requeue_operation(tx, instance, row, now_ms)?;
        return Ok((became.sentence("each", true), became.is_change()));
    }
    match inbox::find(tx, event_id, Some(endpoint))?.first() {
        Some(event) => {
            let fate = requeue(tx, instance, event, now_ms)?;
            Ok((fate.sentence("each", true), fate.is_change()))
        }
        None => Ok((
            "each is about an event that is not stored: have its provider send it again".to_owned(),
            false,
        )),
    }
}
