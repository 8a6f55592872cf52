//! *Event*: what happened to it, in order; what it led to; its body, as it came.

use maud::{Markup, html};

use crate::admin::frame::{age, cell, facts, grouped, or_dash, shown, size, state, table, time};
use crate::admin::http::{self, segment};
use crate::admin::json::laid_out;
use crate::admin::login::Visitor;
use crate::admin::reading::{Connection, Reading};
use crate::admin::running::Running;
use crate::encode::hex;
use crate::intake::exchange::Response;
use crate::store::inbox::conflicts::{self, Conflict};
use crate::store::inbox::queue::{self, Attempt};
use crate::store::inbox::{self, Event, browse};
use crate::store::outbox::{self, Operation};
use crate::store::reviews::{self, Review};

use super::events::path_of;
use super::{Asked, Shown, gone, unread};

/// Of a body, so much is shown; the download has all of it.
const BODY_BYTES_SHOWN: usize = 64 << 10;

/// As hex digits, so much.
const HEX_BYTES_SHOWN: usize = 4 << 10;

/// All that is known of one event.
struct Story {
    event: Event,
    body: Option<Vec<u8>>,
    attempts: Vec<Attempt>,
    outbox: Vec<(Operation, Vec<outbox::Attempt>)>,
    reviews: Vec<Review>,
    conflicts: Vec<Conflict>,
    same_object: Vec<Event>,
}

impl Story {
    fn of(conn: &Connection, endpoint: &str, event_id: &str) -> Reading<Option<Self>> {
        let Some(event) = inbox::find(conn, event_id, Some(endpoint))?.into_iter().next() else {
            return Ok(None);
        };
        let rows = outbox::of_event(conn, endpoint, event_id)?;
        let with_attempts = |row: Operation| {
            Ok((outbox::attempts(conn, row.id)?, row)).map(|(attempts, row)| (row, attempts))
        };
        let same_object = match &event.object_id {
            Some(object) => browse::of_object(conn, endpoint, object, event.id)?,
            None => Vec::new(),
        };
        Ok(Some(Self {
            body: inbox::payload_of(conn, event.id)?,
            attempts: queue::attempts(conn, event.id)?,
            outbox: rows.into_iter().take(20).map(with_attempts).collect::<Reading<_>>()?,
            reviews: reviews::about(conn, endpoint, event_id)?,
            conflicts: conflicts::of_event(conn, endpoint, event_id)?,
            same_object,
            event,
        }))
    }
}

pub(super) fn show(asked: Asked<'_>, endpoint: &str, event_id: &str) -> Shown {
    let story = asked.running.read(|conn| Story::of(conn, endpoint, event_id)).map_err(unread)?;
    let Some(story) = story else {
        return Err(gone(format!(
            "There is no event {event_id} on {endpoint}; one whose handler failed is not stored."
        )));
    };
    let title = format!("{} {}", story.event.event_type.as_deref().unwrap_or("Event"), story.event.event_id);
    let title = shown(&title).into_owned();
    let asked = Asked { frame: crate::admin::frame::Frame { title: &title, ..asked.frame }, ..asked };
    let content = html! {
        (acts(&asked, &story))
        (head(&asked, &story.event))
        h2 { "What happened" }
        (timeline(&asked, &story))
        (conflict_list(&story))
        h2 { "The same object" }
        (same_object(&asked, &story))
        h2 { "Body" }
        (body_of(&story))
    };
    Ok(asked.frame.around(content))
}

fn acts(asked: &Asked<'_>, story: &Story) -> Markup {
    let Event { endpoint, event_id, state, .. } = &story.event;
    html! {
        @if asked.frame.may_act() && state != "processing" {
            div .acts {
                form method="post" action="/act/retry" .filter {
                    (asked.frame.csrf())
                    input type="hidden" name="endpoint" value=(endpoint);
                    input type="hidden" name="event_id" value=(event_id);
                    (crate::admin::frame::field("Note", "note", None))
                    button .main { "Retry this event" }
                }
            }
        }
    }
}

fn head(asked: &Asked<'_>, event: &Event) -> Markup {
    let text = |text: &Option<String>| cell(or_dash(text.as_deref()));
    facts(&[
        ("State", state(&event.state)),
        ("Endpoint", html! { (shown(&event.endpoint)) " (" (event.provider) ")" }),
        ("Event id", html! { code { (shown(&event.event_id)) } }),
        ("Object", text(&event.object_id)),
        ("Account", text(&event.account)),
        (
            "Mode",
            cell(match event.livemode {
                Some(true) => "live",
                Some(false) => "test",
                None => "–",
            }),
        ),
        ("API version", text(&event.api_version)),
        ("Received", html! { (time(event.received_at_ms)) ", " (asked.frame.ago(event.received_at_ms)) }),
        ("Deliveries", cell((event.duplicates + 1).to_string())),
        ("Attempts", cell(format!("{}, of which {} are excused", event.attempts, event.attempts_excused))),
        ("Kept headers", html! { code { (shown(&event.headers)) } }),
        ("Query", text(&event.query)),
        ("Latest error", text(&event.last_error)),
        (
            "On the command line",
            html! { code { "inboxd events show " (shown(&event.event_id)) " --endpoint " (shown(&event.endpoint)) } },
        ),
    ])
}

/// One thing that happened.
struct Entry {
    at_ms: i64,
    what: Markup,
}

fn timeline(asked: &Asked<'_>, story: &Story) -> Markup {
    let event = &story.event;
    let mut all = vec![Entry { at_ms: event.received_at_ms, what: html! { "received and committed" } }];
    for attempt in &story.attempts {
        all.push(Entry {
            at_ms: attempt.started_at_ms,
            what: html! {
                "attempt " (attempt.number) ": "
                (or_dash(attempt.result.as_deref().or(Some("runs, or died with its process"))))
                @if let Some(end) = attempt.ended_at_ms { " after " (end - attempt.started_at_ms) " ms" }
                @if let Some(error) = &attempt.error { ": " (shown(error)) }
            },
        });
    }
    if let Some(at_ms) = event.processed_at_ms {
        all.push(Entry { at_ms, what: html! { (state(&event.state)) } });
    }
    for (row, attempts) in &story.outbox {
        let link = html! { a href=(format!("/outbox/{}", row.id)) { "row " (row.id) } };
        all.push(Entry { at_ms: row.created_at_ms, what: html! { (link) " queued for " (shown(&row.destination)) ": " (shown(&row.topic)) ", " (state(&row.state)) } });
        for attempt in attempts {
            all.push(Entry {
                at_ms: attempt.started_at_ms,
                what: html! { (link) ", attempt " (attempt.number) ": " (attempt_words(attempt)) },
            });
        }
    }
    for review in &story.reviews {
        all.push(Entry { at_ms: review.opened_at_ms, what: html! { a href=(format!("/reviews?review={}", review.id)) { "review " (review.id) } " opened (" (review.kind) "): " (shown(&review.reason)) } });
        if let Some(at_ms) = review.resolved_at_ms {
            all.push(Entry {
                at_ms,
                what: html! { "review " (review.id) " closed: " (or_dash(review.note.as_deref())) },
            });
        }
    }
    all.sort_by_key(|entry| entry.at_ms);
    let first = event.received_at_ms;
    html! {
        ol {
            @for Entry { at_ms, what } in &all {
                li { (time(*at_ms)) " (+" (age(at_ms - first)) ") " (what) }
            }
            @if event.state == "pending" {
                li { (time(event.available_at_ms)) " " @if event.available_at_ms > asked.frame.now_ms { "next attempt" } @else { "due now" } }
            }
        }
    }
}

/// What one attempt came to.
pub(super) fn attempt_words(attempt: &outbox::Attempt) -> Markup {
    html! {
        (or_dash(attempt.result.as_deref().or(Some("runs, or died with its process"))))
        @if let Some(status) = attempt.status { ", answer " (status) }
        @if let Some(ms) = attempt.duration_ms { " after " (ms) " ms" }
        @if let Some(error) = &attempt.error { ": " (shown(error)) }
        @if let Some(excerpt) = attempt.excerpt.as_deref().filter(|excerpt| !excerpt.is_empty()) {
            details { summary { "The answer's first KiB" } pre .wrap { (text(excerpt)) } }
        }
    }
}

fn conflict_list(story: &Story) -> Markup {
    html! {
        @if !story.conflicts.is_empty() {
            h2 { "Other bodies under the same id" }
            ol {
                @for conflict in &story.conflicts {
                    li {
                        (time(conflict.received_at_ms)) ": "
                        @match (&conflict.worked_as, conflict.payload_bytes) {
                            (Some(key), _) => { "put to work as " (shown(key)) }
                            (None, Some(bytes)) => { (size(bytes)) "; " code { "inboxd events body " (shown(&story.event.event_id)) " --conflict N" } " prints it" }
                            (None, None) => { "purged" }
                        }
                    }
                }
            }
        }
    }
}

fn same_object(asked: &Asked<'_>, story: &Story) -> Markup {
    let row = |event: &Event| {
        vec![
            asked.frame.ago(event.received_at_ms),
            html! { @if event.id == story.event.id { b { (shown(&event.event_id)) } } @else { a href=(path_of(&event.endpoint, &event.event_id)) { (shown(&event.event_id)) } } },
            cell(or_dash(event.event_type.as_deref())),
            state(&event.state),
        ]
    };
    let rows: Vec<_> = story.same_object.iter().map(row).collect();
    html! {
        @match &story.event.object_id {
            None => p .quiet { "The event names no object." },
            Some(object) => {
                (table(&format!("Events about {}, in the order of commits", shown(object)), &["Received", "Event", "Type", "State"], &rows))
                p .quiet { "Among the " (grouped(2 * browse::ROWS_LOOKED_AT)) " events around this one." }
            }
        }
    }
}

fn body_of(story: &Story) -> Markup {
    let Some(bytes) = &story.body else {
        return html! { p .quiet { "The body was purged ([retention] payload)." } };
    };
    let Event { endpoint, event_id, .. } = &story.event;
    let whole = std::str::from_utf8(bytes).ok();
    let start = &bytes[..bytes.len().min(BODY_BYTES_SHOWN)];
    html! {
        p {
            (size(i64::try_from(bytes.len()).unwrap_or(i64::MAX))) ". "
            a href=(format!("/events/{}/{}/body", segment(endpoint), segment(event_id))) download { "Download the exact bytes" }
        }
        @if let Some(laid) = whole.and_then(laid_out) {
            details open { summary { "Laid out, every token as it came" } pre { (text(&laid)) } }
        }
        details open[whole.and_then(laid_out).is_none()] {
            summary { "As it came" }
            pre .wrap { (text(&String::from_utf8_lossy(start))) }
            @if start.len() < bytes.len() { p .quiet { "Cut after " (size(i64::try_from(BODY_BYTES_SHOWN).unwrap_or(0))) "." } }
        }
        details {
            summary { "As hex digits" }
            pre { (hex_lines(&bytes[..bytes.len().min(HEX_BYTES_SHOWN)])) }
            @if bytes.len() > HEX_BYTES_SHOWN { p .quiet { "Cut after " (HEX_BYTES_SHOWN) " bytes." } }
        }
    }
}

/// A stranger's text of several lines.
fn text(text: &str) -> String {
    text.split('\n')
        .map(|line| line.split('\t').map(shown).collect::<Vec<_>>().join("\t"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn hex_lines(bytes: &[u8]) -> String {
    let line = |(at, part): (usize, &[u8])| {
        let digits: Vec<_> = part.iter().map(|byte| hex(&[*byte])).collect();
        let plain: String = part
            .iter()
            .map(|byte| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' })
            .collect();
        format!("{:06x}  {:<47}  {plain}", at * 16, digits.join(" "))
    };
    bytes.chunks(16).enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// The exact bytes, as a file that no browser opens.
pub(super) fn body(running: &Running, visitor: &Visitor, endpoint: &str, event_id: &str) -> Response {
    let read = running.read(|conn| match inbox::find(conn, event_id, Some(endpoint))?.first() {
        Some(event) => inbox::payload_of(conn, event.id),
        None => Ok(None),
    });
    match read {
        Ok(Some(bytes)) => http::answer(200, "application/octet-stream", bytes)
            .with("Content-Disposition", "attachment; filename=\"body\"")
            .with("Cache-Control", "no-store"),
        Ok(None) => {
            running.said(visitor, 404, "Not found", "There is no such event, or its body was purged.")
        }
        Err(error) => running.said(visitor, 503, "Not shown", &error),
    }
}
