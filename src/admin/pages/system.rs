//! *System*: versions, files, limits, and what this instance is made of.

use std::fs;

use maud::html;

use crate::admin::frame::{age, cell, facts, grouped, shown, size, state, table, time};
use crate::store::meta;
use crate::store::minutes::minute_of;
use crate::store::sqlite_version;

use super::{Asked, Shown, unread};

/// Backups that are listed.
const BACKUPS_MAX: usize = 50;

pub(super) fn show(asked: Asked<'_>) -> Shown {
    let read = |conn: &_| {
        let (purge, outages) = (meta::recall(conn, meta::LAST_PURGE)?, meta::outages(conn)?);
        Ok((purge, outages, meta::recall(conn, meta::ALIVE)?))
    };
    let (purge, outages, alive) = asked.running.read(read).map_err(unread)?;
    let running = asked.running;
    let known = running.known(asked.frame.now_ms);
    let bytes = |path: &std::path::Path| {
        fs::metadata(path).map_or(0, |file| i64::try_from(file.len()).unwrap_or(i64::MAX))
    };
    let reasons = running.app.condition().reasons();
    let outage =
        |(from_ms, to_ms): &(i64, i64)| vec![time(*from_ms), time(*to_ms), cell(age(to_ms - from_ms))];
    let outages: Vec<_> = outages.iter().rev().map(outage).collect();
    let backups = backups(&asked);
    let content = html! {
        h2 { "Process" }
        (facts(&[
            ("Ready", html! { @if reasons.is_empty() { (state("ready")) } @else { (state("not ready")) ": " (shown(&reasons.join("; "))) } }),
            ("inboxd", cell(env!("CARGO_PKG_VERSION"))),
            ("SQLite", cell(sqlite_version())),
            ("Process", cell(std::process::id().to_string())),
            ("Started", html! { (time(running.started_at_ms)) ", " (asked.frame.ago(running.started_at_ms)) }),
            ("Noted that it runs", html! { @match alive { Some((_, at_ms)) => (asked.frame.ago(at_ms)), None => "–" } }),
            ("Minute", cell(minute_of(asked.frame.now_ms).to_string())),
            ("Lines of the log that found no room", cell(crate::logging::lines_dropped().to_string())),
        ]))
        h2 { "Files" }
        (facts(&[
            ("Database", html! { code { (shown(&running.database.display().to_string())) } ", " (size(bytes(&running.database))) }),
            ("WAL", cell(size(i64::try_from(known.wal_bytes).unwrap_or(i64::MAX)))),
            ("Free on its disk", cell(size(i64::try_from(known.disk_free_bytes).unwrap_or(i64::MAX)))),
            ("Last purge", html! { @match &purge { Some((what, at_ms)) => { (asked.frame.ago(*at_ms)) ": " (shown(what)) } None => "none yet" } }),
        ]))
        @for (listener, open) in &known.connections { p { "Connections of the listener " (listener) ": " (grouped(i64::try_from(*open).unwrap_or(0))) } }
        h2 { "Copies beside the database" }
        @if backups.is_empty() { p .quiet { "There is none under backups/." } }
        @else { (table("Copies, by name", &["File", "Size"], &backups)) }
        h2 { "Times without a daemon" }
        @if outages.is_empty() { p .quiet { "None is known." } }
        @else { (table("The latest, newest first", &["From", "To", "For"], &outages)) }
        h2 { "Configuration in effect" }
        p { "Without secrets; the file is the only place to change it." }
        pre .wrap { @for line in running.effective.lines() { (shown(line)) "\n" } }
        h2 { "Figures for machines" }
        p { a href="/metrics" { "/metrics" } " in the text format of Prometheus, " a href="/readyz" { "/readyz" } ", " a href="/livez" { "/livez" } }
    };
    Ok(asked.frame.around(content))
}

fn backups(asked: &Asked<'_>) -> Vec<Vec<maud::Markup>> {
    let dir = asked.running.database.parent().map(|dir| dir.join("backups"));
    let mut files: Vec<(String, i64)> = dir
        .and_then(|dir| fs::read_dir(dir).ok())
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|entry| {
            let bytes = entry.metadata().map_or(0, |file| i64::try_from(file.len()).unwrap_or(i64::MAX));
            (entry.file_name().to_string_lossy().into_owned(), bytes)
        })
        .collect();
    files.sort_unstable();
    files.iter().rev().take(BACKUPS_MAX).map(|(name, bytes)| vec![cell(name), cell(size(*bytes))]).collect()
}
