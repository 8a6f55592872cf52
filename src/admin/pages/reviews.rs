//! *Reviews*: what waits for a person, in groups that ask the same.

use maud::{Markup, html};

use crate::admin::filter;
use crate::admin::frame::{cell, field, grouped, shown, table, time};
use crate::admin::http::link;
use crate::store::reviews::{self, Group, Review};

use super::events::path_of;
use super::{Asked, ROWS, Shown, gone, next, one_page, unread};

pub(super) fn show(asked: Asked<'_>) -> Shown {
    if let Some(id) = asked.query.number("review") {
        return show_one(&asked, id);
    }
    let wanted = filter::reviews(&asked.query, None);
    if wanted != reviews::Filter::default() {
        return show_group(&asked, &wanted);
    }
    let groups = asked.running.read(reviews::groups).map_err(unread)?;
    let rows: Vec<_> = groups.iter().map(|group| row(&asked, group)).collect();
    let columns = ["Reason", "Kind", "Endpoint", "Open", "First", "Latest", "Act"];
    let content = html! {
        @if rows.is_empty() { p .note { "Nothing waits for a person." } }
        @else {
            p { "Each row is one question. Retry puts back to work what its reviews are about; resolve closes them without the events." }
            (table("Open reviews that ask the same", &columns, &rows))
        }
    };
    Ok(asked.frame.around(content))
}

fn of_group<'a>(group: &'a Group, act: Option<&'a str>) -> [(&'a str, Option<&'a str>); 4] {
    [
        ("act", act),
        ("endpoint", Some(&group.endpoint)),
        ("kind", Some(&group.kind)),
        ("reason", Some(&group.reason)),
    ]
}

fn row(asked: &Asked<'_>, group: &Group) -> Vec<Markup> {
    vec![
        html! { a href=(link("/reviews", &of_group(group, None))) { (shown(&group.reason)) } },
        cell(&group.kind),
        cell(&group.endpoint),
        cell(grouped(group.count)),
        asked.frame.ago(group.first_ms),
        asked.frame.ago(group.last_ms),
        html! {
            a href=(path_of(&group.endpoint, &group.sample_event_id)) { "An event" }
            @if asked.frame.may_act() {
                " " a href=(link("/confirm", &of_group(group, Some("retry-reviews")))) { "Retry all …" }
                " " a href=(link("/confirm", &of_group(group, Some("resolve-reviews")))) { "Resolve all …" }
            }
        },
    ]
}

fn show_group(asked: &Asked<'_>, wanted: &reviews::Filter) -> Shown {
    let after = asked.query.number("after").unwrap_or(0);
    let found =
        asked.running.read(|conn| reviews::open_after(conn, wanted, after, ROWS + 1)).map_err(unread)?;
    let (page, last) = one_page(&found);
    let rows: Vec<_> = page
        .iter()
        .map(|review| {
            vec![
                html! { a href=(format!("/reviews?review={}", review.id)) { (review.id) } },
                html! { a href=(path_of(&review.endpoint, &review.event_id)) { (shown(&review.event_id)) } },
                cell(&review.endpoint),
                cell(&review.kind),
                cell(&review.reason),
                asked.frame.ago(review.opened_at_ms),
            ]
        })
        .collect();
    let columns = ["Review", "Event", "Endpoint", "Kind", "Reason", "Opened"];
    let content = html! {
        p { a href="/reviews" { "All groups" } }
        @if rows.is_empty() { p .quiet { "No open review matches." } } @else { (table("Open reviews, the oldest first", &columns, &rows)) }
        @if let Some(last) = last {
            (next("/reviews", &asked.query, &[("after", last.id.to_string())], "Later reviews"))
        }
    };
    Ok(asked.frame.around(content))
}

fn show_one(asked: &Asked<'_>, id: i64) -> Shown {
    let found = asked.running.read(|conn| reviews::find(conn, id)).map_err(unread)?;
    let Some(review) = found else { return Err(gone(format!("There is no review {id}."))) };
    let content = html! {
        (crate::admin::frame::facts(&[
            ("Review", cell(review.id.to_string())),
            ("Kind", cell(&review.kind)),
            ("About", html! { a href=(path_of(&review.endpoint, &review.event_id)) { (shown(&review.subject)) } }),
            ("Reason", cell(&review.reason)),
            ("Opened", time(review.opened_at_ms)),
            ("Closed", html! { @match review.resolved_at_ms { Some(at_ms) => (time(at_ms)), None => "open" } }),
            ("Decided", cell(review.note.as_deref().unwrap_or("–"))),
        ]))
        (resolving(asked, &review))
    };
    Ok(asked.frame.around(content))
}

fn resolving(asked: &Asked<'_>, review: &Review) -> Markup {
    html! {
        @if asked.frame.may_act() && review.resolved_at_ms.is_none() {
            form method="post" action="/act/resolve" .filter {
                (asked.frame.csrf())
                input type="hidden" name="review" value=(review.id);
                (field("What was decided", "note", None))
                button .main { "Resolve" }
            }
        }
    }
}
