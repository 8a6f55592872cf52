//! The page between a filter and an act over all that it chooses: how many, of what, from when, a few of them.

use maud::html;

use crate::admin::bulk::Bulk;
use crate::admin::frame::{cell, facts, grouped, shown, table, time};
use crate::store::inbox::browse::COUNTED_MAX;

use super::{Asked, Shown, unread};

pub(super) fn show(asked: Asked<'_>) -> Shown {
    let now_ms = asked.frame.now_ms;
    let Some(bulk) = Bulk::parse(&asked.query, now_ms) else {
        return Err((400, "An act over all that a filter chooses needs a state in which rows wait: pending, quarantined, or dead.".to_owned()));
    };
    if !asked.frame.may_act() {
        return Err((403, "A viewer sees everything and changes nothing.".to_owned()));
    }
    let preview = asked.running.read(|conn| bulk.preview(conn)).map_err(unread)?;
    let count = preview.count.map_or_else(|| format!("more than {}", grouped(COUNTED_MAX)), grouped);
    let kinds: Vec<_> =
        preview.kinds.iter().map(|(kind, count)| vec![cell(kind), cell(grouped(*count))]).collect();
    let until_ms = asked.query.number("until_ms").unwrap_or(now_ms);
    let kept = asked.query.pairs().filter(|(name, _)| !matches!(*name, "act" | "until_ms" | "csrf" | "note"));
    let content = html! {
        @if kinds.is_empty() { p .note { "Nothing matches any more." } }
        @else {
            p { b { (bulk.sentence()) } ": " b { (count) } " rows that came until " (time(until_ms)) "." }
            (facts(&[
                ("Oldest", html! { @if let Some(at_ms) = preview.oldest_ms { (time(at_ms)) } }),
                ("Newest", html! { @if let Some(at_ms) = preview.newest_ms { (time(at_ms)) } }),
                ("Filter", html! { code { (shown(&bulk.filter().to_string())) } }),
                ("Rate", cell("a hundred in each transaction, as fast as deliveries leave room")),
            ]))
            (table("By kind", &["Kind", "Rows"], &kinds))
            h2 { "A few of them" }
            ul { @for sample in &preview.samples { li { (shown(sample)) } } }
            form method="post" action="/act/bulk" .filter {
                (asked.frame.csrf())
                input type="hidden" name="act" value=(bulk.name());
                input type="hidden" name="until_ms" value=(until_ms);
                @for (name, value) in kept { input type="hidden" name=(name) value=(value); }
                label { "Note: why (required)" input type="text" name="note" required autocomplete="off"; }
                button .main { "Do it" }
            }
        }
        p { a href="/" { "Leave it" } }
    };
    Ok(asked.frame.around(content))
}
