//! *Books*: the lines of the ledger, and the events that told of them.

use maud::html;

use crate::admin::frame::{cell, field, shown, table, time};
use crate::books::ledger::{self, Line};
use crate::store::meta;

use super::events::path_of;
use super::{Asked, ROWS, Shown, next, one_page, unread};

pub(super) fn show(asked: Asked<'_>) -> Shown {
    let (before, about) = (asked.query.number("before"), asked.query.value("about"));
    let read = |conn: &_| {
        // an application's own file has no books
        if meta::schema_version(conn)?.is_some() {
            return Ok(None);
        }
        ledger::page(conn, about, before, ROWS + 1).map(Some)
    };
    let Some(found) = asked.running.read(read).map_err(unread)? else {
        return Ok(asked.frame.around(html! { p .quiet { "inboxd's tables are in an application's file: the books are the application's." } }));
    };
    let row = |line: &Line| {
        vec![
            time(line.booked_at_ms),
            html! { code { (shown(&line.entry_key)) } },
            cell(&line.kind),
            cell(amount(line.amount, &line.currency)),
            cell(&line.object),
            html! { a href=(path_of(&line.endpoint, &line.event_id)) { (shown(&line.event_id)) } },
        ]
    };
    let (page, last) = one_page(&found);
    let rows: Vec<_> = page.iter().map(row).collect();
    let content = html! {
        p { "A line is booked once and never changed; a correction is a new line. Amounts are in the provider's smallest unit." }
        form .filter method="get" action="/books" role="search" aria-label="Find lines" {
            (field("Invoice, or an object such as charge:ch_1", "about", about))
            button { "Find" }
        }
        @if rows.is_empty() { p .quiet { "No line is booked that matches." } }
        @else { (table("Lines, the latest first", &["Booked", "Line", "Kind", "Amount", "About", "Told by"], &rows)) }
        @if let Some(last) = last { (next("/books", &asked.query, &[("before", last.id.to_string())], "Earlier lines")) }
    };
    Ok(asked.frame.around(content))
}

fn amount(amount: i64, currency: &str) -> String {
    format!("{amount} {currency}")
}
