//! `status`: one screen of what is stored, what waits and what needs a person.

use crate::clock;
use crate::config::Instance;
use crate::store::inbox::failures::{self, FailingType};
use crate::store::inbox::recent::{self, OfType, Took};
use crate::store::inbox::{self, Retrying};
use crate::store::meta;
use crate::store::outbox::{self, Standing};
use crate::store::reviews;
use crate::terminal::{counted, printable};
use clap::Args;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::health::Asked;
use super::store::{self, read_failed, table, time};
use super::{Context, Exit, Failure, put};

/// Show what is stored, what waits and what needs a person
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

struct Status {
    database: String,
    destinations: Vec<String>,
    inbox: inbox::Summary,
    reviews_open: i64,
    failing: Vec<FailingType>,
    retrying: Vec<Retrying>,
    outbox: Vec<Standing>,
    last_purge: Option<(String, i64)>,
    last_hour: Vec<OfType>,
    last_hour_is_cut: bool,
    took: Option<Took>,
    answers: Option<[i64; 3]>,
    outages: Vec<(i64, i64)>,
    daemon: Asked,
    now_ms: i64,
}

/// Prints the state of the instance, running or not.
pub(crate) fn run(args: &StatusArgs, context: &Context) -> Result<(), Failure> {
    let (instance, conn) = store::open(context)?;
    let status = Status::read(instance, &conn).map_err(read_failed)?;
    if args.json { put(&format!("{}\n", status.to_json())) } else { put(&status.to_text()) }?;
    // it has been said above, on stdout
    if status.complaints().is_empty() { Ok(()) } else { Err(Failure::new(Exit::Unhealthy, "")) }
}

impl Status {
    fn read(instance: Instance, conn: &Connection) -> rusqlite::Result<Self> {
        let now_ms = clock::now_ms();
        let hour_ago_ms = now_ms - 3_600_000;
        let daemon = Asked::of(&instance);
        Ok(Self {
            database: instance.database.display().to_string(),
            destinations: instance.destinations,
            inbox: inbox::summary(conn)?,
            reviews_open: reviews::open_count(conn)?,
            failing: failures::by_type(conn)?,
            retrying: inbox::retrying(conn)?,
            outbox: outbox::standings(conn)?,
            last_purge: meta::recall(conn, meta::LAST_PURGE)?,
            last_hour: recent::by_type(conn, hour_ago_ms)?,
            last_hour_is_cut: recent::is_cut(conn, hour_ago_ms)?,
            took: recent::took(conn, hour_ago_ms)?,
            answers: meta::recall(conn, meta::ANSWERS)?.and_then(|(text, _)| answers(&text)),
            outages: meta::outages(conn)?,
            daemon,
            now_ms,
        })
    }

    /// What is not well, each thing in one sentence.
    fn complaints(&self) -> Vec<String> {
        let mut all = if self.daemon.is_ready() { Vec::new() } else { self.daemon.reasons() };
        let failing: i64 = self.failing.iter().map(|failing| failing.events).sum();
        if failing > 0 {
            let events = counted(failing, "event");
            all.push(format!("the handlers of {events} fail: inboxd events list --state failing"));
        }
        for Retrying { endpoint, events, last_error, .. } in &self.retrying {
            let events = counted(*events, "event");
            all.push(format!(
                "{events} of {endpoint} failed and will be tried again: inboxd events list --endpoint {endpoint} \
                 --state pending; the latest error: {last_error}"
            ));
        }
        for standing in self.outbox.iter().filter(|standing| standing.paused.is_none()) {
            if let Some(since_ms) = standing.circuit_open_since_ms {
                all.push(format!("the destination {} fails since {}", standing.name, time(since_ms)));
            }
        }
        all
    }

    /// Deliveries answered since the start: as the daemon says now, else as it noted last.
    fn answers(&self) -> Option<[i64; 3]> {
        match &self.daemon {
            Asked::Runs(report) => Some(report.answers.map(|count| i64::try_from(count).unwrap_or(i64::MAX))),
            Asked::NoDaemon | Asked::Unknown(_) => self.answers,
        }
    }

    /// Of those, such that could not be stored; known of a running daemon alone.
    fn unavailable(&self) -> Option<u64> {
        match &self.daemon {
            Asked::Runs(report) => Some(report.unavailable),
            Asked::NoDaemon | Asked::Unknown(_) => None,
        }
    }

    fn gaps(&self) -> Value {
        let names = self.inbox.endpoints.iter().map(|(name, ..)| name);
        let of = |name| move |(from_ms, to_ms): &(i64, i64)| json!({ "endpoint": name, "from_ms": from_ms, "to_ms": to_ms });
        names.flat_map(|name| self.outages.iter().map(of(name))).collect()
    }

    fn count(&self, state: &str) -> i64 {
        self.inbox.by_state.iter().find(|(name, _)| name == state).map_or(0, |(_, count)| *count)
    }

    fn oldest_unprocessed_age_s(&self) -> Option<i64> {
        self.inbox.oldest_unprocessed_ms.map(|at| (self.now_ms - at).max(0) / 1000)
    }

    fn oldest_age_s(&self, standing: &Standing) -> Option<i64> {
        standing.oldest_pending_ms.map(|at| (self.now_ms - at).max(0) / 1000)
    }

    fn standing_json(&self, standing: &Standing) -> Value {
        json!({
            "destination": standing.name,
            "configured": self.destinations.contains(&standing.name),
            "pending": standing.pending,
            "oldest_pending_age_s": self.oldest_age_s(standing),
            "dead": standing.dead,
            "paused_at_ms": standing.paused.as_ref().map(|(at_ms, _)| at_ms),
            "paused_because": standing.paused.as_ref().map(|(_, because)| because),
            "failing_since_ms": standing.failing_since_ms,
            "circuit_open_since_ms": standing.circuit_open_since_ms,
            "stale_results": standing.stale_results,
        })
    }

    fn to_json(&self) -> Value {
        let endpoint = |(name, events, duplicates, last_ms): &(String, i64, i64, i64)| json!({ "endpoint": name, "events": events, "duplicates": duplicates, "last_received_at_ms": last_ms });
        json!({
            "database": self.database,
            "healthy": self.complaints().is_empty(),
            "complaints": self.complaints(),
            "daemon": self.daemon.to_json(),
            "done": self.count("done"),
            "ignored": self.count("ignored"),
            "quarantined": self.count("quarantined"),
            "pending": self.count("pending") + self.count("processing"),
            "oldest_unprocessed_age_s": self.oldest_unprocessed_age_s(),
            "reviews_open": self.reviews_open,
            "failing": self.failing.iter().map(failing_json).collect::<Value>(),
            "last_purge": self.last_purge.as_ref().map(|(what, at_ms)| json!({ "purged": what, "at_ms": at_ms })),
            "last_hour_is_cut": self.last_hour_is_cut,
            "last_hour": self.last_hour.iter().map(type_json).collect::<Value>(),
            "receipt_to_done_ms": self.took.map(|took| json!({ "p50": took.p50_ms, "p95": took.p95_ms, "max": took.max_ms })),
            "unavailable_since_start": self.unavailable(),
            "answers_since_start": self.answers().map(|[accepted, refused, failed]| json!({ "2xx": accepted, "4xx": refused, "5xx": failed })),
            "retrying": self.retrying.iter().map(retrying_json).collect::<Value>(),
            "gaps": self.gaps(),
            "endpoints": self.inbox.endpoints.iter().map(endpoint).collect::<Value>(),
            "destinations": self.outbox.iter().map(|standing| self.standing_json(standing)).collect::<Value>(),
        })
    }

    /// The daemon, the counts, and what is not well.
    fn head(&self) -> String {
        let daemon = match &self.daemon {
            Asked::Runs(report) if report.ready => format!("process {}, ready", report.pid),
            Asked::Runs(report) => format!("process {}, NOT READY", report.pid),
            Asked::NoDaemon => "NOT RUNNING".to_owned(),
            Asked::Unknown(reason) => reason.clone(),
        };
        let mut text = format!(
            "daemon        {}\ndatabase      {}\ndone          {}\nignored       {}\npending       {}\nquarantined   {}\nneed a person {}\n",
            printable(&daemon),
            printable(&self.database),
            self.count("done"),
            self.count("ignored"),
            self.count("pending") + self.count("processing"),
            self.count("quarantined"),
            self.reviews_open,
        );
        if let Some(age_s) = self.oldest_unprocessed_age_s() {
            text.push_str(&format!("oldest of those that wait: {age_s} s\n"));
        }
        for complaint in self.complaints() {
            text.push_str(&format!("UNHEALTHY     {}\n", printable(&complaint)));
        }
        for failing in &self.failing {
            text.push_str(&in_words(failing));
        }
        text
    }

    fn to_text(&self) -> String {
        let mut text = self.head();
        if let Some((what, at_ms)) = &self.last_purge {
            text.push_str(&format!("last purge    {} ({what})\n", time(*at_ms)));
        }
        if !self.inbox.endpoints.is_empty() {
            let row = |(name, events, duplicates, last_ms): &(String, i64, i64, i64)| {
                vec![name.clone(), events.to_string(), duplicates.to_string(), time(*last_ms)]
            };
            let rows: Vec<_> = self.inbox.endpoints.iter().map(row).collect();
            text.push('\n');
            text.push_str(&table(&["ENDPOINT", "EVENTS", "DUPLICATES", "LATEST"], &rows));
        }
        for (from_ms, to_ms) in &self.outages {
            text.push_str(&format!(
                "no daemon ran from {} to {}: ask the providers what they sent\n",
                time(*from_ms),
                time(*to_ms)
            ));
        }
        if !self.last_hour.is_empty() {
            let row = |of: &OfType| {
                vec![of.event_type.clone(), of.events.to_string(), of.duplicates.to_string(), of.rate()]
            };
            let rows: Vec<_> = self.last_hour.iter().map(row).collect();
            text.push('\n');
            text.push_str(&table(&["LAST HOUR", "EVENTS", "DUPLICATES", "RATE"], &rows));
            if self.last_hour_is_cut {
                text.push_str(&format!("more came: the latest {} events are counted\n", recent::ROWS_MAX));
            }
        }
        if let Some([accepted, refused, failed]) = self.answers() {
            text.push_str(&format!(
                "answers since the latest start: {accepted} accepted (2xx), {refused} refused (4xx), {failed} to be sent again (5xx)\n"
            ));
        }
        if let Some(count) = self.unavailable().filter(|count| *count > 0) {
            text.push_str(&format!("of those {count} could not be stored\n"));
        }
        // what is done in the commit that stores it takes no time
        if let Some(took) = self.took.filter(|took| took.max_ms > 0) {
            text.push_str(&format!(
                "from receipt to done: half within {} ms, 95 of 100 within {} ms, all within {} ms\n",
                took.p50_ms, took.p95_ms, took.max_ms
            ));
        }
        if !self.outbox.is_empty() {
            let row = |standing: &Standing| {
                let age =
                    self.oldest_age_s(standing).map_or_else(|| "-".to_owned(), |age| format!("{age} s"));
                let (pending, dead) = (standing.pending.to_string(), standing.dead.to_string());
                let state = state(standing, self.destinations.contains(&standing.name));
                vec![standing.name.clone(), pending, age, dead, state]
            };
            let rows: Vec<_> = self.outbox.iter().map(row).collect();
            text.push('\n');
            text.push_str(&table(&["DESTINATION", "PENDING", "OLDEST", "DEAD", "STATE"], &rows));
        }
        text
    }
}

/// As the daemon notes them: `2xx 4xx 5xx`.
fn answers(text: &str) -> Option<[i64; 3]> {
    let counts: Vec<_> = text.split(' ').map_while(|count| count.parse().ok()).collect();
    counts.try_into().ok()
}

fn type_json(of: &OfType) -> Value {
    json!({ "event_type": of.event_type, "events": of.events, "duplicates": of.duplicates })
}

fn retrying_json(of: &Retrying) -> Value {
    json!({
        "endpoint": of.endpoint,
        "events": of.events,
        "latest_received_at_ms": of.received_at_ms,
        "last_error": of.last_error,
    })
}

fn failing_json(failing: &FailingType) -> Value {
    json!({
        "endpoint": failing.endpoint,
        "event_type": failing.event_type,
        "events": failing.events,
        "deliveries": failing.deliveries,
        "last_error": failing.error,
        "first_at_ms": failing.first_at_ms,
        "last_at_ms": failing.last_at_ms,
    })
}

fn in_words(failing: &FailingType) -> String {
    let FailingType { events, deliveries, .. } = failing;
    let delivered =
        if *deliveries == 1 { "1 delivery".to_owned() } else { format!("{deliveries} deliveries") };
    format!(
        "FAILING       {} {}: {} in {delivered} from {} to {}, and nothing of them is stored: {}\n",
        printable(&failing.endpoint),
        printable(failing.event_type.as_deref().unwrap_or("(without a type)")),
        counted(*events, "event"),
        time(failing.first_at_ms),
        time(failing.last_at_ms),
        printable(&failing.error),
    )
}

/// What keeps rows from being sent, in words.
fn state(standing: &Standing, is_configured: bool) -> String {
    if !is_configured {
        return "not in the configuration: its rows wait".to_owned();
    }
    match (&standing.paused, standing.circuit_open_since_ms, standing.failing_since_ms) {
        (Some((at_ms, because)), ..) => format!("paused since {}: {because}", time(*at_ms)),
        (None, Some(at_ms), _) => format!("failing since {}: one request at a time", time(at_ms)),
        (None, None, Some(at_ms)) => format!("rows fail since {}: inboxd outbox list", time(at_ms)),
        (None, None, None) => "ok".to_owned(),
    }
}
