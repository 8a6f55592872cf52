//! *Audit*: who did what by hand.

use maud::html;

use crate::admin::frame::{cell, grouped, or_dash, shown, table, time};
use crate::store::audit::{self, Entry};

use super::{Asked, ROWS, Shown, next, one_page, unread};

pub(super) fn show(asked: Asked<'_>) -> Shown {
    let before = asked.query.number("before");
    let found = asked.running.read(|conn| audit::list(conn, before, ROWS + 1)).map_err(unread)?;
    let row = |entry: &Entry| {
        vec![
            time(entry.at_ms),
            cell(&entry.actor),
            cell(&entry.act),
            html! { code { (shown(&entry.filter)) } },
            cell(grouped(entry.count)),
            cell(or_dash(entry.note.as_deref())),
        ]
    };
    let (page, last) = one_page(&found);
    let rows: Vec<_> = page.iter().map(row).collect();
    let content = html! {
        @if rows.is_empty() { p .quiet { "Nobody has done anything by hand." } }
        @else { (table("What people did, the latest first", &["When", "Who", "Act", "To what", "Rows", "Note"], &rows)) }
        @if let Some(last) = last { (next("/audit", &asked.query, &[("before", last.id.to_string())], "Earlier acts")) }
    };
    Ok(asked.frame.around(content))
}
