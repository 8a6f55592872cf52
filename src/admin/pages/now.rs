//! *Now*: is all well; if not, what, since when, and what to press.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::admin::chart::{CLASSES, COLUMN_MINUTES, COLUMNS, Chart, Series};
use crate::admin::frame::{Frame, age, cell, grouped, percent, shown, state, table};
use crate::admin::http::{link, segment};
use crate::admin::reading::{Connection, Reading};
use crate::store::inbox::Event;
use crate::store::inbox::browse::{self, Count};
use crate::store::minutes::{self, Counted};
use crate::store::outbox::Standing;
use crate::store::outbox::browse::{Load, loads};
use crate::store::overview::Overview;

use super::{Asked, Shown, unread};

/// What the page reads.
struct Read {
    overview: Overview,
    counts: Vec<Count>,
    oldest: Option<Event>,
    loads: BTreeMap<String, Load>,
    minutes: Vec<(i64, Counted)>,
}

impl Read {
    fn of(conn: &Connection, now_ms: i64) -> Reading<Self> {
        Ok(Self {
            overview: Overview::without_activity(conn, now_ms)?,
            counts: browse::counts(conn)?,
            oldest: browse::oldest_unprocessed(conn)?,
            loads: loads(conn)?,
            minutes: minutes::since(conn, first_minute(now_ms), COLUMN_MINUTES)?,
        })
    }
}

/// What needs somebody, in one sentence, with where to go.
struct Need {
    sentence: String,
    href: String,
    press: &'static str,
}

pub(super) fn show(asked: Asked<'_>) -> Shown {
    let now_ms = asked.frame.now_ms;
    let mut read = asked.running.read(|conn| Read::of(conn, now_ms)).map_err(unread)?;
    let column = minutes::minute_of(now_ms).div_euclid(COLUMN_MINUTES) * COLUMN_MINUTES;
    read.minutes.extend(minutes::unwritten().into_iter().map(|counted| (column, counted)));
    let needs = needs(&asked, &read);
    let title = match needs.len() {
        0 => "All is well".to_owned(),
        1 => "1 thing needs you".to_owned(),
        count => format!("{count} things need you"),
    };
    let frame = Frame { title: &title, is_live: true, ..asked.frame };
    let content = html! {
        @if needs.is_empty() {
            p .note { "Deliveries are stored, nothing waits for a person, and nothing fails." }
        } @else {
            div .alarm role="status" {
                ul {
                    @for need in &needs {
                        li { (shown(&need.sentence)) " " a href=(need.href) { (need.press) } }
                    }
                }
            }
        }
        @for Need { sentence, href, press } in outages(&asked, &read.overview) {
            p .quiet { (shown(&sentence)) " " a href=(href) { (press) } }
        }
        (strip(&read))
        (oldest(&asked, &read))
        (endpoints(&asked, &read))
        (destinations(&asked, &read))
        h2 { "The last 24 hours" }
        (charts(&asked, &read))
    };
    Ok(frame.around(content))
}

fn needs(asked: &Asked<'_>, read: &Read) -> Vec<Need> {
    let mut all = Vec::new();
    let mut need = |sentence: String, href: String, press| all.push(Need { sentence, href, press });
    for reason in asked.running.app.condition().reasons() {
        need(format!("Deliveries are not stored: {reason}."), "/system".to_owned(), "System");
    }
    let overview = &read.overview;
    for failing in &overview.failing {
        let what = failing.event_type.as_deref().unwrap_or("events without a type");
        need(
            format!(
                "The handlers of {} fail for {what}: {} events since {} ago, not stored: {}",
                failing.endpoint,
                grouped(failing.events),
                age(asked.frame.now_ms - failing.first_at_ms),
                failing.error
            ),
            link("/events", &[("state", Some("failing")), ("endpoint", Some(&failing.endpoint))]),
            "Look at them",
        );
    }
    for retrying in &overview.retrying {
        need(
            format!(
                "{} events of {} failed and will be tried again; the latest error: {}",
                grouped(retrying.events),
                retrying.endpoint,
                retrying.last_error
            ),
            link("/events", &[("state", Some("pending")), ("endpoint", Some(&retrying.endpoint))]),
            "Look at them",
        );
    }
    if overview.reviews_open > 0 {
        let sentence = match overview.reviews_open {
            1 => "1 review waits for a decision.".to_owned(),
            count => format!("{} reviews wait for a decision.", grouped(count)),
        };
        need(sentence, "/reviews".to_owned(), "Decide");
    }
    for standing in overview.outbox.iter().filter(|standing| standing.paused.is_none()) {
        if let Some(since_ms) = standing.circuit_open_since_ms {
            need(
                format!(
                    "The destination {} fails since {} ago; {} rows wait.",
                    standing.name,
                    age(asked.frame.now_ms - since_ms),
                    grouped(standing.pending)
                ),
                link("/outbox", &[("destination", Some(&standing.name)), ("state", Some("pending"))]),
                "Look at them",
            );
        }
    }
    for (name, load) in read.loads.iter().filter(|(_, load)| load.dead > 0) {
        need(
            format!("{} rows for {name} were given up.", grouped(load.dead)),
            link("/outbox", &[("destination", Some(name)), ("state", Some("dead"))]),
            "Look at them",
        );
    }
    all
}

/// Times without a daemon that ended within a day: nobody can mend them, but the providers' logs can be looked at.
fn outages(asked: &Asked<'_>, overview: &Overview) -> Vec<Need> {
    let now_ms = asked.frame.now_ms;
    let is_recent =
        |(from_ms, to_ms): &&(i64, i64)| *to_ms > now_ms - 86_400_000 && to_ms - from_ms >= 60_000;
    let need = |(from_ms, to_ms): &(i64, i64)| Need {
        sentence: format!(
            "No daemon ran for {}, until {} ago: providers may have given up on what they sent.",
            age(to_ms - from_ms),
            age(now_ms - to_ms)
        ),
        href: "/system".to_owned(),
        press: "When exactly",
    };
    overview.outages.iter().filter(is_recent).map(need).collect()
}

fn strip(read: &Read) -> Markup {
    let of = |wanted: &str| {
        let counts = read.counts.iter().filter(|count| count.state == wanted);
        counts.map(|count| count.events).sum::<i64>()
    };
    let waits: i64 = read.loads.values().map(|load| load.pending + load.sending).sum();
    let dead: i64 = read.loads.values().map(|load| load.dead).sum();
    let failing: i64 = read.overview.failing.iter().map(|failing| failing.events).sum();
    let day: i64 = read.minutes.iter().filter(|(_, of)| is_new(&of.outcome)).map(|(_, of)| of.count).sum();
    let parts = [
        ("received, 24 h", day, "/events"),
        ("pending", of("pending"), "/events?state=pending"),
        ("processing", of("processing"), "/events?state=processing"),
        ("failing, not stored", failing, "/events?state=failing"),
        ("quarantined", of("quarantined"), "/events?state=quarantined"),
        ("open reviews", read.overview.reviews_open, "/reviews"),
        ("outbox pending", waits, "/outbox?state=pending"),
        ("outbox dead", dead, "/outbox?state=dead"),
    ];
    html! {
        ul .strip {
            @for (name, count, href) in parts {
                li { a href=(href) { b { (grouped(count)) } (name) } }
            }
        }
    }
}

fn oldest(asked: &Asked<'_>, read: &Read) -> Markup {
    html! {
        h2 { "Oldest that waits" }
        @match &read.oldest {
            None => { p .quiet { "Nothing waits for work or for a person." } }
            Some(event) => {
                p {
                    b { (age(asked.frame.now_ms - event.received_at_ms)) } ": "
                    a href=(format!("/events/{}/{}", segment(&event.endpoint), segment(&event.event_id))) {
                        (shown(&event.event_id))
                    }
                    " on " (shown(&event.endpoint)) ", "
                    @if let Some(object) = &event.object_id { "about " (shown(object)) ", " }
                    (state(&event.state))
                }
            }
        }
    }
}

fn endpoints(asked: &Asked<'_>, read: &Read) -> Markup {
    let hour_ago = minutes::minute_of(asked.frame.now_ms) - 60;
    let mut names: Vec<&str> = asked.running.instance.endpoints.iter().map(String::as_str).collect();
    for count in &read.counts {
        if !names.contains(&count.endpoint.as_str()) {
            names.push(&count.endpoint);
        }
    }
    let row = |name: &&str| {
        let name = *name;
        let mine =
            || read.minutes.iter().filter(move |(_, of)| of.endpoint == name && !is_outgoing(&of.outcome));
        let sum = |is_counted: fn(&str) -> bool, from: i64| {
            mine()
                .filter(|(minute, of)| *minute >= from && is_counted(&of.outcome))
                .map(|(_, of)| of.count)
                .sum::<i64>()
        };
        let last_ms = read
            .counts
            .iter()
            .filter(|count| count.endpoint == name)
            .map(|count| count.last_received_at_ms)
            .max();
        let accepted = |outcome: &str| is_new(outcome) || outcome == "duplicate";
        let (new, duplicates) = (sum(is_new, 0), sum(|outcome| outcome == "duplicate", 0));
        let mut reasons = BTreeMap::<&str, i64>::new();
        for (_, of) in mine().filter(|(_, of)| is_refused(&of.outcome)) {
            *reasons.entry(&of.outcome).or_default() += of.count;
        }
        let (count, sum_ms, max_ms) = mine().filter(|(_, of)| accepted(&of.outcome)).fold(
            (0, 0, 0),
            |(count, sum, max): (i64, i64, i64), (_, of)| {
                (count + of.count, sum + of.sum_ms, max.max(of.max_ms))
            },
        );
        let is_configured = asked.running.instance.endpoints.iter().any(|known| known == name);
        vec![
            html! { a href=(link("/events", &[("endpoint", Some(name))])) { (shown(name)) } @if !is_configured { " (not configured)" } },
            html! { @match last_ms { Some(at_ms) => (asked.frame.ago(at_ms)), None => "never" } },
            cell(grouped(sum(is_new, hour_ago))),
            cell(grouped(new)),
            cell(percent(duplicates, new + duplicates)),
            html! {
                @if reasons.is_empty() { "0" }
                @for (reason, count) in &reasons { div { (grouped(*count)) " " a href=(link("/refused", &[("endpoint", Some(name))])) { (reason) } } }
            },
            cell(if count == 0 { "–".to_owned() } else { format!("{} / {} ms", sum_ms / count, max_ms) }),
        ]
    };
    let rows: Vec<_> = names.iter().map(row).collect();
    let columns = [
        "Endpoint",
        "Last event",
        "New, 1 h",
        "New, 24 h",
        "Duplicates",
        "Refused, 24 h",
        "Answered in (mean / max)",
    ];
    html! {
        @if rows.is_empty() { p .quiet { "No endpoint is configured." } }
        @else { (table("Endpoints: what came in", &columns, &rows)) }
    }
}

fn destinations(asked: &Asked<'_>, read: &Read) -> Markup {
    let mut names: Vec<&String> =
        asked.running.instance.destinations.iter().chain(read.loads.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let row = |name: &&String| {
        let standing = read.overview.outbox.iter().find(|standing| standing.name == **name);
        let load = read.loads.get(*name).cloned().unwrap_or_default();
        let mine = read.minutes.iter().filter(|(_, of)| of.endpoint == **name && is_outgoing(&of.outcome));
        let (mut sent, mut failed, mut sum_ms) = (0_i64, 0_i64, 0_i64);
        for (_, of) in mine {
            sum_ms += of.sum_ms;
            if of.outcome == "outbox_2xx" { sent += of.count } else { failed += of.count }
        }
        vec![
            html! { a href=(link("/outbox", &[("destination", Some(name))])) { (shown(name)) } },
            standing_of(standing, asked.frame.now_ms),
            html! { a href=(link("/outbox", &[("destination", Some(name)), ("state", Some("pending"))])) { (grouped(load.pending + load.sending)) } },
            cell(load.oldest_ms.map_or_else(|| "–".to_owned(), |at_ms| age(asked.frame.now_ms - at_ms))),
            html! { a href=(link("/outbox", &[("destination", Some(name)), ("state", Some("dead"))])) { (grouped(load.dead)) } },
            cell(format!("{} / {}", grouped(sent), grouped(failed))),
            cell(if sent + failed == 0 {
                "–".to_owned()
            } else {
                format!("{} ms", sum_ms / (sent + failed))
            }),
            steering(asked, name, standing.is_some_and(|standing| standing.paused.is_some())),
        ]
    };
    let rows: Vec<_> = names.iter().map(row).collect();
    let columns = [
        "Destination",
        "State",
        "Pending",
        "Oldest",
        "Dead",
        "Delivered / failed, 24 h",
        "Answers in (mean)",
        "Act",
    ];
    html! {
        @if rows.is_empty() { p .quiet { "No destination is configured." } }
        @else { (table("Destinations: what goes out", &columns, &rows)) }
    }
}

/// Pause and resume.
pub(super) fn steering(asked: &Asked<'_>, name: &str, is_paused: bool) -> Markup {
    let (path, word) = if is_paused { ("/act/resume", "Resume") } else { ("/act/pause", "Pause") };
    html! {
        @if asked.frame.may_act() && asked.running.instance.destinations.iter().any(|known| known == name) {
            form method="post" action=(path) {
                (asked.frame.csrf())
                input type="hidden" name="destination" value=(name);
                button aria-label=(format!("{word} {name}")) { (word) }
            }
        }
    }
}

pub(super) fn standing_of(standing: Option<&Standing>, now_ms: i64) -> Markup {
    html! {
        @match standing {
            Some(Standing { paused: Some((at_ms, because)), .. }) => { (state("paused")) " since " (age(now_ms - at_ms)) ": " (shown(because)) }
            Some(Standing { circuit_open_since_ms: Some(at_ms), .. }) => { (state("failing")) " since " (age(now_ms - at_ms)) ", one request at a time" }
            Some(Standing { failing_since_ms: Some(at_ms), .. }) => { (state("ok")) ", rows fail since " (age(now_ms - at_ms)) }
            _ => { (state("ok")) }
        }
    }
}

fn charts(asked: &Asked<'_>, read: &Read) -> Markup {
    let now_ms = asked.frame.now_ms;
    let first = first_minute(now_ms);
    let begins_ms: Vec<i64> =
        (0..COLUMNS).map(|at| (first + i64::try_from(at).unwrap_or(0) * COLUMN_MINUTES) * 60_000).collect();
    let column =
        |minute: i64| usize::try_from((minute - first) / COLUMN_MINUTES).ok().filter(|_| minute >= first);
    let column_of = |at_ms: i64| column(minutes::minute_of(at_ms));
    let mut received: Vec<Series> = Vec::new();
    for (at, name) in asked.running.instance.endpoints.iter().enumerate() {
        received.push(Series::new(name, CLASSES[at % CLASSES.len()], false));
    }
    let mut refused = Series::new("refused", "sbad", true);
    let (mut mean, mut max) =
        (Series::new("mean", "s0", false), Series::new("slowest beyond the mean", "s3", false));
    let (mut sent, mut failed) =
        (Series::new("delivered", "sgood", false), Series::new("failed", "sbad", true));
    let mut times = vec![(0_i64, 0_i64); COLUMNS];
    for (minute, of) in &read.minutes {
        let at = column(*minute);
        match of.outcome.as_str() {
            "outbox_2xx" => sent.add(at, of.count),
            outcome if is_outgoing(outcome) => failed.add(at, of.count),
            outcome if is_refused(outcome) => refused.add(at, of.count),
            outcome if is_new(outcome) => {
                if let Some(series) = received.iter_mut().find(|series| series.name == of.endpoint) {
                    series.add(at, of.count);
                }
            }
            _ => {}
        }
        if matches!(of.outcome.as_str(), "processed" | "worked") {
            if let Some((count, sum)) = at.and_then(|at| times.get_mut(at)) {
                (*count, *sum) = (*count + of.count, *sum + of.sum_ms);
            }
            max.raise(at, of.max_ms);
        }
    }
    for (at, (count, sum)) in times.into_iter().enumerate().filter(|(_, (count, _))| *count > 0) {
        mean.values[at] = sum / count;
        max.values[at] -= mean.values[at].min(max.values[at]);
    }
    received.push(refused);
    let gap = |(from_ms, to_ms): &(i64, i64)| {
        let to = column_of(*to_ms)?;
        Some((column_of(*from_ms).unwrap_or(0), to + 1))
    };
    let gaps: Vec<_> = read.overview.outages.iter().filter_map(gap).collect();
    let starts: Vec<_> = column_of(asked.running.started_at_ms).into_iter().collect();
    let (times, going) = ([mean, max], [sent, failed]);
    let draw = |title, unit, series: &[Series]| {
        Chart { title, unit, series, begins_ms: &begins_ms, gaps: &gaps, starts: &starts }.draw()
    };
    html! {
        (draw("New events by endpoint, refused deliveries below", "deliveries", &received))
        (draw("From receipt to done", "ms", &times))
        @if !asked.running.instance.destinations.is_empty() {
            (draw("Delivered to destinations, failed attempts below", "attempts", &going))
        }
        p .quiet { "One bar is ten minutes. A dashed line is the start of the daemon." }
    }
}

/// The first minute of the charts' day, at the beginning of a column.
fn first_minute(now_ms: i64) -> i64 {
    let last = minutes::minute_of(now_ms).div_euclid(COLUMN_MINUTES) * COLUMN_MINUTES;
    last - (i64::try_from(COLUMNS).unwrap_or(0) - 1) * COLUMN_MINUTES
}

/// Whether a delivery was the first of its event.
fn is_new(outcome: &str) -> bool {
    matches!(outcome, "processed" | "accepted" | "ignored" | "quarantined")
}

fn is_outgoing(outcome: &str) -> bool {
    outcome.starts_with("outbox_")
}

/// Whether a delivery was turned away, for its own reasons or ours.
fn is_refused(outcome: &str) -> bool {
    !is_new(outcome)
        && !is_outgoing(outcome)
        && !matches!(outcome, "duplicate" | "handshake" | "worked" | "in_progress")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_whole_columns_and_ends_now() {
        for now_ms in [0, 599_999, 600_000, 1_764_000_000_123] {
            let first = first_minute(now_ms);
            let column = (minutes::minute_of(now_ms) - first) / COLUMN_MINUTES;
            assert_eq!((first.rem_euclid(COLUMN_MINUTES), column), (0, 143), "{now_ms}");
        }
    }
}
