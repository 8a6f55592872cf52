//! *Events*: the filters of `events list`, in the URL.

use maud::{Markup, html};

use crate::admin::filter;
use crate::admin::frame::{cell, choice, field, grouped, or_dash, shown, size, state, table};
use crate::admin::http;
use crate::admin::http::{link, segment};
use crate::store::inbox::browse::{self, Count, Page};
use crate::store::inbox::failures::{self, FailingEvent};
use crate::store::inbox::{self, Event, Filter};

use super::{Asked, ROWS, Shown, next, unread};

const STATES: [&str; 6] = ["pending", "processing", "done", "ignored", "quarantined", "failing"];

/// How many rows one look reads at most, if somebody asks for more than usual.
const LOOK_MAX: i64 = 80_000;

pub(super) fn show(asked: Asked<'_>) -> Shown {
    let wanted = filter::events(&asked.query, asked.frame.now_ms);
    if wanted.state.as_deref() == Some("failing") {
        return show_failing(&asked, &wanted);
    }
    if let Some(id) = asked.query.value("id") {
        let found =
            asked.running.read(|conn| inbox::find(conn, id, wanted.endpoint.as_deref())).map_err(unread)?;
        let rows: Vec<_> = found.iter().map(|event| row(&asked, event)).collect();
        return Ok(asked.frame.around(html! { (form(&asked, &wanted)) (list("Events of this id", &rows)) }));
    }
    let before = asked.query.number("before");
    let look = asked.query.number("look").unwrap_or(browse::ROWS_LOOKED_AT).clamp(ROWS.into(), LOOK_MAX);
    let read = |conn: &_| Ok((browse::page(conn, &wanted, before, ROWS, look)?, browse::counts(conn)?));
    let (page, counts) = asked.running.read(read).map_err(unread)?;
    let rows: Vec<_> = page.rows.iter().map(|event| row(&asked, event)).collect();
    let content = html! {
        (form(&asked, &wanted))
        (bulk(&asked, &wanted, &page))
        p { (told(&wanted, &counts, rows.len())) }
        (list("Events, the latest first", &rows))
        @if let Some(place) = page.next {
            @let further = if page.is_cut { (look * 4).min(LOOK_MAX) } else { look };
            @let words = if page.is_cut { "Nothing more in these rows: look further back" } else { "Older events" };
            (next("/events", &asked.query, &[("before", place.to_string()), ("look", further.to_string())], words))
        }
    };
    Ok(asked.frame.around(content))
}

/// How many there are, as far as it costs nothing to know.
fn told(wanted: &Filter, counts: &[Count], shown: usize) -> String {
    let is_counted = wanted.event_type.is_none()
        && wanted.object_id.is_none()
        && wanted.error.is_none()
        && wanted.since_ms.is_none()
        && wanted.until_ms.is_none();
    if !is_counted {
        return format!("{shown} events on this page");
    }
    let of = counts.iter().filter(|count| {
        wanted.endpoint.as_ref().is_none_or(|name| count.endpoint == *name)
            && wanted.state.as_ref().is_none_or(|state| count.state == *state)
    });
    format!("{shown} of {} events", grouped(of.map(|count| count.events).sum()))
}

fn row(asked: &Asked<'_>, event: &Event) -> Vec<Markup> {
    vec![
        asked.frame.ago(event.received_at_ms),
        html! { a href=(path_of(&event.endpoint, &event.event_id)) { (shown(&event.event_id)) } },
        cell(&event.endpoint),
        cell(or_dash(event.event_type.as_deref())),
        html! {
            @match &event.object_id {
                Some(object) => a href=(link("/events", &[("object", Some(object)), ("endpoint", Some(&event.endpoint))])) { (shown(object)) },
                None => "–",
            }
        },
        html! { (state(&event.state)) @if let Some(error) = &event.last_error { div .quiet { (shown(error)) } } },
        cell(event.attempts.to_string()),
        cell(event.duplicates.to_string()),
        cell(event.payload_bytes.map_or_else(|| "purged".to_owned(), size)),
    ]
}

fn list(caption: &str, rows: &[Vec<Markup>]) -> Markup {
    let columns =
        ["Received", "Event", "Endpoint", "Type", "Object", "State", "Attempts", "Duplicates", "Size"];
    html! { @if rows.is_empty() { p .quiet { "No event matches." } } @else { (table(caption, &columns, rows)) } }
}

/// The page of an event.
pub(super) fn path_of(endpoint: &str, event_id: &str) -> String {
    format!("/events/{}/{}", segment(endpoint), segment(event_id))
}

fn form(asked: &Asked<'_>, wanted: &Filter) -> Markup {
    let endpoints: Vec<&str> = asked.running.instance.endpoints.iter().map(String::as_str).collect();
    html! {
        form .filter method="get" action="/events" role="search" aria-label="Filter events" {
            (field("Event id", "id", asked.query.value("id")))
            (choice("Endpoint", "endpoint", &endpoints, wanted.endpoint.as_deref()))
            (choice("State", "state", &STATES, wanted.state.as_deref()))
            (field("Type", "type", wanted.event_type.as_deref()))
            (field("Object", "object", wanted.object_id.as_deref()))
            (field("Error contains", "error", wanted.error.as_deref()))
            (field("Since (2h, or a time)", "since", asked.query.value("since")))
            (field("Until", "until", asked.query.value("until")))
            button { "Filter" }
        }
    }
}

/// Offers to act on all that matches.
fn bulk(asked: &Asked<'_>, wanted: &Filter, page: &Page<Event>) -> Markup {
    let is_open = matches!(wanted.state.as_deref(), Some("quarantined" | "pending"));
    html! {
        @if is_open && asked.frame.may_act() && !page.rows.is_empty() {
            p { a href=(confirm("retry-events", &asked.query)) { "Retry all that match …" } }
        }
    }
}

/// The page that asks for confirmation, with the same filter.
pub(super) fn confirm(act: &str, query: &http::Form) -> String {
    let kept = query.pairs().filter(|(name, _)| !matches!(*name, "before" | "look" | "act" | "paused"));
    let mut pairs: Vec<(&str, Option<&str>)> = kept.map(|(name, value)| (name, Some(value))).collect();
    pairs.push(("act", Some(act)));
    link("/confirm", &pairs)
}

/// Of what fails nothing is stored but that it fails.
fn show_failing(asked: &Asked<'_>, wanted: &Filter) -> Shown {
    let found = asked.running.read(|conn| failures::list(conn, wanted, ROWS)).map_err(unread)?;
    let row = |event: &FailingEvent| {
        vec![
            asked.frame.ago(event.last_at_ms),
            cell(&event.event_id),
            cell(&event.endpoint),
            cell(or_dash(event.event_type.as_deref())),
            cell(event.count.to_string()),
            asked.frame.ago(event.first_at_ms),
            html! { (state("failing")) " " (shown(&event.error)) },
        ]
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    let columns = ["Latest delivery", "Event", "Endpoint", "Type", "Deliveries", "First", "Error"];
    let content = html! {
        (form(asked, wanted))
        p { "These deliveries are genuine, but their handlers failed: nothing of them is stored, and their providers send them again. Mend the handler; then wait, or have them sent again from the provider's page." }
        @if rows.is_empty() { p .quiet { "No event fails." } } @else { (table("Events that fail, the latest first", &columns, &rows)) }
    };
    Ok(asked.frame.around(content))
}
