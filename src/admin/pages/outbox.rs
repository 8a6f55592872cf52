//! *Outbox*: what is sent to destinations, how it goes, and what a person can do about it.

use maud::{Markup, html};

use crate::admin::filter;
use crate::admin::frame::{age, cell, choice, facts, field, grouped, or_dash, shown, state, table, time};
use crate::admin::http::link;
use crate::store::outbox::browse::{self, loads};
use crate::store::outbox::{self, Attempt, Filter, Operation};

use super::event::attempt_words;
use super::events::{confirm, path_of};
use super::now::{standing_of, steering};
use super::{Asked, ROWS, Shown, gone, next, unread};

const STATES: [&str; 4] = ["pending", "sending", "delivered", "dead"];

pub(super) fn show(asked: Asked<'_>) -> Shown {
    let wanted = filter::outbox(&asked.query, asked.frame.now_ms);
    let before = asked.query.number("before");
    let read = |conn: &_| {
        let rows = browse::page(conn, &wanted, before, ROWS, browse::ROWS_LOOKED_AT)?;
        Ok((rows, loads(conn)?, outbox::standings(conn)?))
    };
    let ((found, place), loads, standings) = asked.running.read(read).map_err(unread)?;
    let mut names: Vec<&String> = asked.running.instance.destinations.iter().chain(loads.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let of_destination = |name: &&String| {
        let standing = standings.iter().find(|standing| standing.name == **name);
        let load = loads.get(*name).cloned().unwrap_or_default();
        let filtered =
            |state| link("/outbox", &[("destination", Some(name.as_str())), ("state", Some(state))]);
        vec![
            cell(name),
            standing_of(standing, asked.frame.now_ms),
            html! { a href=(filtered("pending")) { (grouped(load.pending)) } },
            cell(grouped(load.sending)),
            html! { a href=(filtered("dead")) { (grouped(load.dead)) } },
            cell(load.oldest_ms.map_or_else(|| "–".to_owned(), |at_ms| age(asked.frame.now_ms - at_ms))),
            steering(&asked, name, standing.is_some_and(|standing| standing.paused.is_some())),
        ]
    };
    let destinations: Vec<_> = names.iter().map(of_destination).collect();
    let rows: Vec<_> = found.iter().map(|found| row(&asked, found)).collect();
    let columns = ["Row", "Queued", "Destination", "Type", "Event", "State", "Attempts", "Latest error"];
    let is_open = matches!(wanted.state.as_deref(), Some("pending" | "dead"));
    let content = html! {
        @if destinations.is_empty() { p .quiet { "No destination is configured." } }
        @else { (table("Destinations", &["Destination", "State", "Pending", "Sending", "Dead", "Oldest", "Act"], &destinations)) }
        (form(&asked, &wanted))
        @if is_open && asked.frame.may_act() && !rows.is_empty() {
            p { a href=(confirm("retry-outbox", &asked.query)) { "Send all that match again …" } }
        }
        @if rows.is_empty() { p .quiet { "No row matches." } } @else { (table("Rows, the latest first", &columns, &rows)) }
        @if let Some(place) = place { (next("/outbox", &asked.query, &[("before", place.to_string())], "Older rows")) }
    };
    Ok(asked.frame.around(content))
}

fn row(asked: &Asked<'_>, row: &Operation) -> Vec<Markup> {
    vec![
        html! { a href=(format!("/outbox/{}", row.id)) { (row.id) } },
        asked.frame.ago(row.created_at_ms),
        cell(&row.destination),
        cell(&row.topic),
        html! { a href=(path_of(&row.endpoint, &row.event_id)) { (shown(&row.event_id)) } },
        state(&row.state),
        cell(row.attempts.to_string()),
        cell(or_dash(row.last_error.as_deref())),
    ]
}

fn form(asked: &Asked<'_>, wanted: &Filter) -> Markup {
    let destinations: Vec<&str> = asked.running.instance.destinations.iter().map(String::as_str).collect();
    let endpoints: Vec<&str> = asked.running.instance.endpoints.iter().map(String::as_str).collect();
    html! {
        form .filter method="get" action="/outbox" role="search" aria-label="Filter rows" {
            (choice("Destination", "destination", &destinations, wanted.destination.as_deref()))
            (choice("State", "state", &STATES, wanted.state.as_deref()))
            (choice("Endpoint", "endpoint", &endpoints, wanted.endpoint.as_deref()))
            (field("Type", "type", wanted.topic.as_deref()))
            (field("Object", "object", wanted.object_id.as_deref()))
            (field("Event id", "event", wanted.event_id.as_deref()))
            (field("Error contains", "error", wanted.error.as_deref()))
            (field("Since (2h, or a time)", "since", asked.query.value("since")))
            button { "Filter" }
        }
    }
}

pub(super) fn show_row(asked: Asked<'_>, id: &str) -> Shown {
    let missing = || gone(format!("There is no outbox row {id}."));
    let id: i64 = id.parse().map_err(|_| missing())?;
    let read = |conn: &_| match outbox::find(conn, id)? {
        Some(row) => Ok(Some((outbox::attempts(conn, row.id)?, row))),
        None => Ok(None),
    };
    let (attempts, row) = asked.running.read(read).map_err(unread)?.ok_or_else(missing)?;
    let of_attempt = |attempt: &Attempt| {
        vec![cell(attempt.number.to_string()), time(attempt.started_at_ms), attempt_words(attempt)]
    };
    let rows: Vec<_> = attempts.iter().map(of_attempt).collect();
    let content = html! {
        @if asked.frame.may_act() && matches!(row.state.as_str(), "pending" | "dead") {
            form method="post" action="/act/outbox-retry" .filter {
                (asked.frame.csrf())
                input type="hidden" name="row" value=(row.id);
                (field("Note", "note", None))
                button .main { "Send this row again" }
            }
        }
        (facts(&[
            ("Row", cell(row.id.to_string())),
            ("State", state(&row.state)),
            ("Destination", cell(&row.destination)),
            ("Type", cell(&row.topic)),
            ("Operation key", html! { code { (shown(&row.operation_key)) } }),
            ("Event", html! { a href=(path_of(&row.endpoint, &row.event_id)) { (shown(&row.event_id)) } " on " (shown(&row.endpoint)) }),
            ("Object", cell(or_dash(row.object_id.as_deref()))),
            ("Queued", time(row.created_at_ms)),
            ("Failing since", html! { @match row.failing_since_ms { Some(at_ms) => (time(at_ms)), None => "–" } }),
            ("Delivered", html! { @match row.delivered_at_ms { Some(at_ms) => (time(at_ms)), None => "–" } }),
            ("Result", cell(or_dash(row.result.as_deref()))),
            ("Latest error", cell(or_dash(row.last_error.as_deref()))),
        ]))
        @if rows.is_empty() { p .quiet { "It was not tried yet." } } @else { (table("Attempts, the oldest first", &["Attempt", "Started", "What it came to"], &rows)) }
    };
    Ok(asked.frame.around(content))
}
