//! The pages: each reads a few bounded lists, and shows them.
//!
//! What a page can do, the command line can do as well, with the same words.

use maud::{Markup, html};

use crate::intake::exchange::{Request, Response};

use super::frame::Frame;
use super::http::{self, Form};
use super::login::Visitor;
use super::running::Running;

mod now;
mod events;
mod event;
mod reviews;
mod outbox;
mod refused;
mod books;
mod jobs;
mod confirm;
mod audit;
mod system;

/// Rows of a list.
const ROWS: u32 = 50;

/// A page, or why there is none: in one sentence, with the status that says so.
type Shown = Result<Markup, (u16, String)>;

/// What a page is asked for.
struct Asked<'a> {
    running: &'a Running,
    frame: Frame<'a>,
    query: Form,
}

/// Answers a request for a page.
pub fn respond(running: &Running, request: &Request, visitor: &Visitor) -> Response {
    let path = request.path();
    let path = path.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(path);
    let ask = |title, here| Asked {
        running,
        frame: running.frame(visitor, title, here),
        query: http::query(request),
    };
    let parts: Vec<String> = path.split('/').skip(1).map(http::from_segment).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let shown = match parts.as_slice() {
        [""] => now::show(ask("Now", "/")),
        ["events"] => events::show(ask("Events", "/events")),
        ["events", endpoint, event_id] => event::show(ask("Event", "/events"), endpoint, event_id),
        ["events", endpoint, event_id, "body"] => return event::body(running, visitor, endpoint, event_id),
        ["reviews"] => reviews::show(ask("Reviews", "/reviews")),
        ["outbox"] => outbox::show(ask("Outbox", "/outbox")),
        ["outbox", row] => outbox::show_row(ask("Outbox row", "/outbox"), row),
        ["refused"] => refused::show(ask("Refused", "/refused")),
        ["refused", number] => refused::show_one(ask("Refused request", "/refused"), number),
        ["books"] => books::show(ask("Books", "/books")),
        ["jobs"] => jobs::show(ask("Jobs", "/jobs")),
        ["jobs", number] => jobs::show_one(ask("Job", "/jobs"), number),
        ["confirm"] => confirm::show(ask("Confirm", "")),
        ["audit"] => audit::show(ask("Audit", "/audit")),
        ["system"] => system::show(ask("System", "/system")),
        _ => Err((404, "There is no such page.".to_owned())),
    };
    match shown {
        Ok(page) => http::page(200, page),
        Err((status, sentence)) => {
            let title = if status == 404 { "Not found" } else { "Not shown" };
            running.said(visitor, status, title, &sentence)
        }
    }
}

/// What could not be read now.
fn unread(error: String) -> (u16, String) {
    (503, error)
}

fn gone(sentence: impl Into<String>) -> (u16, String) {
    (404, sentence.into())
}

/// The rows of one page, and the last of them where more were found.
fn one_page<T>(found: &[T]) -> (&[T], Option<&T>) {
    let page = &found[..found.len().min(ROWS as usize)];
    (page, page.last().filter(|_| found.len() > page.len()))
}

/// A link to the rows that follow.
fn next(path: &str, query: &Form, changed: &[(&str, String)], words: &str) -> Markup {
    let kept = query.pairs().filter(|(name, _)| !changed.iter().any(|(known, _)| known == name));
    let pairs: Vec<(&str, Option<&str>)> = kept
        .map(|(name, value)| (name, Some(value)))
        .chain(changed.iter().map(|(name, value)| (*name, Some(value.as_str()))))
        .collect();
    html! { p { a href=(http::link(path, &pairs)) rel="next" { (words) } } }
}
