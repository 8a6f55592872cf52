//! `/metrics`: the figures as Prometheus reads them.
//!
//! No personal data, and no label that a stranger could make grow: names of the configuration and words of ours. What is
//! read from the database is read at most every few seconds, however often somebody asks.

use std::collections::BTreeMap;

use crate::measure::{self, Distribution};
use crate::store::inbox::{browse, failures};
use crate::store::outbox::browse::{Load, Marks, loads, marks};
use crate::store::reviews;
use crate::store::sqlite_version;

use super::reading::{Connection, Reading};

/// Words of answers that a delivery may get; each endpoint has each of them from the start, so that a rate is right
/// from the first one on.
const OUTCOMES: [&str; 6] =
    ["processed", "duplicate", "ignored", "accepted", "quarantined", "handler_failed"];

/// Results that an attempt may have, for the same reason.
const RESULTS: [&str; 4] = ["2xx", "4xx", "5xx", "no_answer"];

/// What is read from the database.
#[derive(Debug, Clone)]
pub struct Stored {
    counts: Vec<browse::Count>,
    oldest_unprocessed_ms: Option<i64>,
    reviews: Vec<(String, i64)>,
    failing: Vec<(String, i64)>,
    loads: BTreeMap<String, Load>,
    marks: Vec<Marks>,
}

impl Stored {
    /// Reads it.
    ///
    /// # Errors
    /// Any SQLite error, also when the read takes too long.
    pub fn read(conn: &Connection) -> Reading<Self> {
        Ok(Self {
            counts: browse::counts(conn)?,
            oldest_unprocessed_ms: browse::oldest_unprocessed_ms(conn)?,
            reviews: reviews::open_by_kind(conn)?,
            failing: failures::by_endpoint(conn)?,
            loads: loads(conn)?,
            marks: marks(conn)?,
        })
    }
}

/// What is known without the database.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The endpoints' names.
    pub endpoints: Vec<String>,
    /// The destinations' names.
    pub destinations: Vec<String>,
    /// Of the -wal file.
    pub wal_bytes: u64,
    /// Of the file system of the database.
    pub disk_free_bytes: u64,
    /// Open now, by listener.
    pub connections: Vec<(&'static str, u64)>,
    /// Closed to make room, by listener.
    pub evicted: Vec<(&'static str, u64)>,
    /// Whether the next delivery would be stored.
    pub is_ready: bool,
    /// When the daemon started, in milliseconds since the epoch.
    pub started_at_ms: i64,
    /// Now.
    pub now_ms: i64,
}

/// The whole text. `None`: the database cannot be read now, and its figures are missing.
pub fn text(known: &Known, stored: Option<&Stored>) -> String {
    let mut out = Text::default();
    requests(&mut out, known);
    durations(&mut out);
    if let Some(stored) = stored {
        inbox(&mut out, known, stored);
        outbox_figures(&mut out, known, stored);
    }
    process(&mut out, known, stored);
    out.0
}

fn requests(out: &mut Text, known: &Known) {
    out.family(
        "inboxd_deliveries_total",
        "counter",
        "Deliveries by endpoint and the word of their answer, since the start.",
    );
    let mut all = BTreeMap::<(String, &str), u64>::new();
    for endpoint in &known.endpoints {
        all.extend(OUTCOMES.map(|outcome| ((endpoint.clone(), outcome), 0)));
    }
    for (endpoint, outcome, count) in measure::DELIVERIES.totals() {
        all.insert((endpoint, outcome), count);
    }
    for ((endpoint, outcome), count) in &all {
        out.sample("inboxd_deliveries_total", &[("endpoint", endpoint), ("outcome", outcome)], *count);
    }
    out.family(
        "inboxd_refused_total",
        "counter",
        "Requests that were refused, by the word of their answer, since the start.",
    );
    for (_, reason, count) in measure::REFUSED.totals() {
        out.sample("inboxd_refused_total", &[("reason", reason)], count);
    }
    out.family(
        "inboxd_outbox_attempts_total",
        "counter",
        "Attempts at deliveries by destination and result, since the start.",
    );
    let mut all = BTreeMap::<(String, &str), u64>::new();
    for destination in &known.destinations {
        all.extend(RESULTS.map(|result| ((destination.clone(), result), 0)));
    }
    for (destination, result, count) in measure::ATTEMPTS.totals() {
        all.insert((destination, result), count);
    }
    for ((destination, result), count) in &all {
        out.sample(
            "inboxd_outbox_attempts_total",
            &[("destination", destination), ("result", result)],
            *count,
        );
    }
}

fn durations(out: &mut Text) {
    let handlers = measure::HANDLERS.distribution();
    out.histogram("inboxd_handler_seconds", "How long the handlers of an event took.", &handlers, seconds);
    let commits = measure::COMMITS.distribution();
    out.histogram(
        "inboxd_commit_seconds",
        "How long a commit took, the wait for the disk included.",
        &commits,
        seconds,
    );
    let batches = measure::BATCHES.distribution();
    out.histogram("inboxd_batch_events", "How many jobs shared a commit.", &batches, |value| {
        value.to_string()
    });
}

fn inbox(out: &mut Text, known: &Known, stored: &Stored) {
    let age = stored.oldest_unprocessed_ms.map_or(0, |at_ms| (known.now_ms - at_ms).max(0));
    out.family(
        "inboxd_oldest_unprocessed_seconds",
        "gauge",
        "How long the oldest event has waited for work or a person; 0: none waits.",
    );
    out.sample("inboxd_oldest_unprocessed_seconds", &[], millis(age));
    out.family("inboxd_inbox_waiting", "gauge", "Events that wait, by endpoint and state.");
    for endpoint in names(&known.endpoints, stored.counts.iter().map(|count| &count.endpoint)) {
        for state in ["pending", "processing", "quarantined"] {
            let is_it = |count: &&browse::Count| count.endpoint == endpoint && count.state == state;
            let events = stored.counts.iter().find(is_it).map_or(0, |count| count.events);
            out.sample("inboxd_inbox_waiting", &[("endpoint", &endpoint), ("state", state)], events);
        }
    }
    out.family("inboxd_events_stored", "gauge", "Events in the inbox, by endpoint and state.");
    for count in &stored.counts {
        out.sample(
            "inboxd_events_stored",
            &[("endpoint", &count.endpoint), ("state", &count.state)],
            count.events,
        );
    }
    out.family(
        "inboxd_last_event_timestamp_seconds",
        "gauge",
        "When the latest event of an endpoint was received.",
    );
    let mut latest = BTreeMap::<&str, i64>::new();
    for count in &stored.counts {
        let at_ms = latest.entry(&count.endpoint).or_default();
        *at_ms = (*at_ms).max(count.last_received_at_ms);
    }
    for (endpoint, at_ms) in latest {
        out.sample("inboxd_last_event_timestamp_seconds", &[("endpoint", endpoint)], millis(at_ms));
    }
    out.family("inboxd_reviews_open", "gauge", "Questions to a person that are open, by kind.");
    for (kind, count) in &stored.reviews {
        out.sample("inboxd_reviews_open", &[("kind", kind)], *count);
    }
    out.family(
        "inboxd_handler_failing",
        "gauge",
        "Events whose handlers fail, so that they are not stored, by endpoint.",
    );
    for endpoint in names(&known.endpoints, stored.failing.iter().map(|(endpoint, _)| endpoint)) {
        let count = stored.failing.iter().find(|(name, _)| *name == endpoint).map_or(0, |(_, count)| *count);
        out.sample("inboxd_handler_failing", &[("endpoint", &endpoint)], count);
    }
}

fn outbox_figures(out: &mut Text, known: &Known, stored: &Stored) {
    let destinations = names(&known.destinations, stored.loads.keys());
    let load = |name: &String| stored.loads.get(name).cloned().unwrap_or_default();
    out.family(
        "inboxd_outbox_rows",
        "gauge",
        "Rows of the outbox that were not delivered, by destination and state.",
    );
    for name in &destinations {
        let Load { pending, sending, dead, .. } = load(name);
        for (state, count) in [("dead", dead), ("pending", pending), ("sending", sending)] {
            out.sample("inboxd_outbox_rows", &[("destination", name), ("state", state)], count);
        }
    }
    out.family(
        "inboxd_outbox_oldest_seconds",
        "gauge",
        "How long the oldest undelivered row has been queued; 0: none is.",
    );
    for name in &destinations {
        let age = load(name).oldest_ms.map_or(0, |at_ms| (known.now_ms - at_ms).max(0));
        out.sample("inboxd_outbox_oldest_seconds", &[("destination", name)], millis(age));
    }
    out.family(
        "inboxd_circuit_open",
        "gauge",
        "1: the destination fails, and one request at a time is tried.",
    );
    let marked = |name: &String| stored.marks.iter().find(|marks| marks.name == *name);
    for name in &destinations {
        let is_open = marked(name).is_some_and(|marks| marks.circuit_open_since_ms.is_some());
        out.sample("inboxd_circuit_open", &[("destination", name)], u8::from(is_open));
    }
    out.family("inboxd_outbox_paused", "gauge", "1: nothing is sent to the destination.");
    for name in &destinations {
        let is_paused = marked(name).is_some_and(|marks| marks.paused_at_ms.is_some());
        out.sample("inboxd_outbox_paused", &[("destination", name)], u8::from(is_paused));
    }
}

fn process(out: &mut Text, known: &Known, stored: Option<&Stored>) {
    out.family("inboxd_ready", "gauge", "1: the next delivery would be stored.");
    out.sample("inboxd_ready", &[], u8::from(known.is_ready));
    out.family("inboxd_database_readable", "gauge", "1: the figures of the database are in this answer.");
    out.sample("inboxd_database_readable", &[], u8::from(stored.is_some()));
    out.family("inboxd_wal_bytes", "gauge", "Size of the database's WAL.");
    out.sample("inboxd_wal_bytes", &[], known.wal_bytes);
    out.family("inboxd_disk_free_bytes", "gauge", "Free space where the database is.");
    out.sample("inboxd_disk_free_bytes", &[], known.disk_free_bytes);
    out.family("inboxd_connections", "gauge", "Open connections by listener.");
    for (listener, count) in &known.connections {
        out.sample("inboxd_connections", &[("listener", listener)], *count);
    }
    out.family(
        "inboxd_connections_evicted_total",
        "counter",
        "Waiting connections that were closed to make room, by listener.",
    );
    for (listener, count) in &known.evicted {
        out.sample("inboxd_connections_evicted_total", &[("listener", listener)], *count);
    }
    out.family("inboxd_log_lines_dropped_total", "counter", "Lines of the log that found no room.");
    out.sample("inboxd_log_lines_dropped_total", &[], crate::logging::lines_dropped());
    out.family("inboxd_backup_age_seconds", "gauge", "Age of the latest backup; no sample: there is none.");
    out.family(
        "inboxd_reconcile_missing",
        "gauge",
        "Events that the provider has and this inbox has not; no sample: nobody asked the provider.",
    );
    out.family("inboxd_start_timestamp_seconds", "gauge", "When the daemon started.");
    out.sample("inboxd_start_timestamp_seconds", &[], millis(known.started_at_ms));
    out.family("inboxd_build_info", "gauge", "1, with the versions.");
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("sqlite", sqlite_version())];
    out.sample("inboxd_build_info", &labels, 1);
}

/// The names of the configuration, and those that are known beside them.
fn names<'a>(configured: &[String], others: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut all = configured.to_vec();
    all.extend(others.cloned());
    all.sort_unstable();
    all.dedup();
    all
}

/// Milliseconds as seconds.
fn millis(ms: i64) -> String {
    format!("{}.{:03}", ms / 1_000, ms % 1_000)
}

/// Microseconds as seconds, without zeros at the end.
fn seconds(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The text format, version 0.0.4.
#[derive(Debug, Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        if labels.is_empty() {
            return self.line(format_args!("{name} {value}"));
        }
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        self.line(format_args!("{name}{{{}}} {value}", labels.join(",")));
    }

    fn histogram(&mut self, name: &str, help: &str, found: &Distribution, unit: impl Fn(u64) -> String) {
        self.family(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, count) in &found.buckets {
            self.sample(&bucket, &[("le", &unit(*bound))], count);
        }
        self.sample(&bucket, &[("le", "+Inf")], found.count);
        self.sample(&format!("{name}_sum"), &[], unit(found.sum));
        self.sample(&format!("{name}_count"), &[], found.count);
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.0.push_str(&format!("{line}\n"));
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_end_its_line() {
        let mut out = Text::default();
        out.sample("a", &[("b", "x\"\n\\")], 1);
        assert_eq!(out.0, "a{b=\"x\\\"\\n\\\\\"} 1\n");
    }

    #[test]
    fn durations_are_seconds() {
        assert_eq!([100, 2_500_000, 0].map(seconds), ["0.0001", "2.5", "0"]);
        assert_eq!(millis(1_764_000_000_123), "1764000000.123");
    }

    #[test]
    fn every_figure_is_named_where_nothing_happened_yet() {
        let known = Known { endpoints: vec!["a".to_owned()], ..Known::default() };
        let text = text(&known, None);
        assert!(text.contains("inboxd_deliveries_total{endpoint=\"a\",outcome=\"processed\"} 0\n"), "{text}");
        assert!(text.contains("# TYPE inboxd_handler_seconds histogram\n"), "{text}");
    }
}
