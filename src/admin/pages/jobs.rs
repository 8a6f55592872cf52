//! *Jobs*: acts over many rows, how far they are, and what they came to.

use maud::{Markup, html};

use crate::admin::frame::{age, cell, facts, grouped, shown, state, table, time};
use crate::admin::jobs::Job;

use super::{Asked, Shown, gone};

pub(super) fn show(asked: Asked<'_>) -> Shown {
    let all = asked.running.jobs.all();
    let rows: Vec<_> = all.iter().map(|job| row(&asked, job)).collect();
    let content = html! {
        @if rows.is_empty() { p .quiet { "Nobody has begun an act over many rows since the start of the daemon." } }
        @else { (table("Jobs since the start, the latest first", &["Job", "Begun", "By", "What", "State", "Changed"], &rows)) }
        p { "What was done before stands in the " a href="/audit" { "audit trail" } "." }
    };
    Ok(asked.frame.around(content))
}

fn standing(job: &Job) -> Markup {
    match job.progress().end {
        None => state("running"),
        Some((_, None)) => state("done"),
        Some((_, Some(reason))) => html! { (state("failed")) ": " (shown(&reason)) },
    }
}

fn row(asked: &Asked<'_>, job: &Job) -> Vec<Markup> {
    vec![
        html! { a href=(format!("/jobs/{}", job.number)) { (job.number) } },
        asked.frame.ago(job.began_at_ms),
        cell(&job.actor),
        cell(&job.what),
        standing(job),
        cell(grouped(job.progress().changed)),
    ]
}

pub(super) fn show_one(mut asked: Asked<'_>, number: &str) -> Shown {
    let found = number.parse().ok().and_then(|number| asked.running.jobs.find(number));
    let Some(job) = found else {
        return Err(gone(
            "There is no such job; jobs are forgotten when the daemon ends, the audit trail is not.",
        ));
    };
    let progress = job.progress();
    asked.frame.is_live = progress.end.is_none();
    let content = html! {
        (facts(&[
            ("What", cell(&job.what)),
            ("State", standing(&job)),
            ("By", cell(&job.actor)),
            ("Begun", time(job.began_at_ms)),
            ("Took", cell(age(progress.end.as_ref().map_or(asked.frame.now_ms, |(at_ms, _)| *at_ms) - job.began_at_ms))),
            ("Looked at", cell(format!("{} of {}", grouped(progress.looked_at), grouped(job.rows)))),
            ("Changed", cell(grouped(progress.changed))),
        ]))
        label { "Progress" progress max=(job.rows.max(1)) value=(progress.looked_at.min(job.rows.max(1))) {} }
        ul { @for sentence in &progress.became { li { (shown(sentence)) } } }
        @if progress.end.is_none() { p { a href=(format!("/jobs/{}", job.number)) { "Look again" } } }
    };
    Ok(asked.frame.around(content))
}
