//! What the instance holds, in figures: read once here, so that the command line, the page and the metrics say the
//! same.
//!
//! Every figure is of one table module and is only asked for here. Nothing is written, and what the daemon says of
//! itself ([`Liveness`]) is handed in.

use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clock::rfc3339;
use crate::store::inbox::failures::{self, FailingType};
use crate::store::inbox::recent::{self, OfType, Took};
use crate::store::inbox::{self, Retrying};
use crate::store::meta;
use crate::store::outbox::{self, Standing};
use crate::store::reviews;
use crate::terminal::counted;

/// How far back the figures of activity go.
const ACTIVITY_MS: i64 = 3_600_000;

/// The figures of one database at one time.
#[derive(Debug)]
pub struct Overview {
    /// Events by state and by endpoint.
    pub inbox: inbox::Summary,
    /// Open reviews.
    pub reviews_open: i64,
    /// Events whose work fails, so that they are not stored, by endpoint and type.
    pub failing: Vec<FailingType>,
    /// Events that failed and will be tried again, by endpoint.
    pub retrying: Vec<Retrying>,
    /// Every destination of which something is known.
    pub outbox: Vec<Standing>,
    /// What the latest purge did, and when.
    pub last_purge: Option<(String, i64)>,
    /// Events of the last hour by type.
    pub last_hour: Vec<OfType>,
    /// Whether more came than [`recent::ROWS_MAX`], the newest of which are counted.
    pub last_hour_is_cut: bool,
    /// How long they took from receipt to done.
    pub took: Option<Took>,
    /// `2xx 4xx 5xx` as the daemon noted them last.
    pub answers: Option<[i64; 3]>,
    /// The latest stretches of time without a daemon: from when to when.
    pub outages: Vec<(i64, i64)>,
    /// When this was read, in milliseconds since the epoch.
    pub now_ms: i64,
}

impl Overview {
    /// Reads all figures.
    ///
    /// # Errors
    /// Any SQLite error, also when the read takes too long.
    pub fn read(conn: &Connection, now_ms: i64) -> rusqlite::Result<Self> {
        let since_ms = now_ms - ACTIVITY_MS;
        Ok(Self {
            last_hour: recent::by_type(conn, since_ms)?,
            last_hour_is_cut: recent::is_cut(conn, since_ms)?,
            took: recent::took(conn, since_ms)?,
            ..Self::without_activity(conn, now_ms)?
        })
    }

    /// The same without the figures of the last hour, for which thousands of rows are read.
    ///
    /// # Errors
    /// Any SQLite error, also when the read takes too long.
    pub fn without_activity(conn: &Connection, now_ms: i64) -> rusqlite::Result<Self> {
        Ok(Self {
            inbox: inbox::summary(conn)?,
            reviews_open: reviews::open_count(conn)?,
            failing: failures::by_type(conn)?,
            retrying: inbox::retrying(conn)?,
            outbox: outbox::standings(conn)?,
            last_purge: meta::recall(conn, meta::LAST_PURGE)?,
            last_hour: Vec::new(),
            last_hour_is_cut: false,
            took: None,
            answers: meta::recall(conn, meta::ANSWERS)?.and_then(|(text, _)| answers(&text)),
            outages: meta::outages(conn)?,
            now_ms,
        })
    }

    /// Events in this state.
    pub fn count(&self, state: &str) -> i64 {
        self.inbox.by_state.iter().find(|(name, _)| name == state).map_or(0, |(_, count)| *count)
    }

    /// Events that wait for a worker, or that one works on.
    pub fn pending(&self) -> i64 {
        self.count("pending") + self.count("processing")
    }

    /// The age of the oldest event that waits for work or for a person, in seconds.
    pub fn oldest_unprocessed_age_s(&self) -> Option<i64> {
        self.inbox.oldest_unprocessed_ms.map(|at_ms| self.age_s(at_ms))
    }

    /// How long the oldest row has waited for this destination, in seconds.
    pub fn oldest_pending_age_s(&self, standing: &Standing) -> Option<i64> {
        standing.oldest_pending_ms.map(|at_ms| self.age_s(at_ms))
    }

    fn age_s(&self, at_ms: i64) -> i64 {
        (self.now_ms - at_ms).max(0) / 1000
    }

    /// What is not well, each thing in one sentence.
    pub fn complaints(&self) -> Vec<String> {
        let mut all = Vec::new();
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
                all.push(format!("the destination {} fails since {}", standing.name, rfc3339(since_ms)));
            }
        }
        all
    }
}

/// What a running daemon says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The process.
    pub pid: u32,
    /// Whether the next delivery would be stored.
    pub ready: bool,
    /// Why not, each reason in one sentence.
    pub reasons: Vec<String>,
    /// When it started, in milliseconds since the epoch.
    pub started_at_ms: i64,
    /// Deliveries answered since then: 2xx, 4xx and 5xx.
    pub answers: [u64; 3],
    /// Of the 5xx, those that could not be stored.
    pub unavailable: u64,
}

/// Whether a daemon runs, and what it says.
#[derive(Debug)]
pub enum Liveness {
    /// It answered.
    Runs(Report),
    /// There is none.
    NotRunning,
    /// There may be one, but it cannot be asked, for this reason.
    Unknown(String),
}

impl Liveness {
    /// Whether the next delivery would be stored.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Runs(Report { ready: true, .. }))
    }

    /// Why the daemon is not ready, each reason in one sentence.
    pub fn reasons(&self) -> Vec<String> {
        match self {
            Self::Runs(report) => {
                report.reasons.iter().map(|reason| format!("not ready: {reason}")).collect()
            }
            Self::NotRunning => vec!["no daemon is running: inboxd serve".to_owned()],
            Self::Unknown(reason) => vec![reason.clone()],
        }
    }

    /// `running` is null where it is not known.
    pub fn to_json(&self) -> Value {
        let (running, report) = match self {
            Self::Runs(report) => (Some(true), Some(report)),
            Self::NotRunning => (Some(false), None),
            Self::Unknown(_) => (None, None),
        };
        json!({
            "running": running,
            "ready": self.is_ready(),
            "reasons": report.map_or_else(|| self.reasons(), |report| report.reasons.clone()),
            "pid": report.map(|report| report.pid),
            "started_at_ms": report.map(|report| report.started_at_ms),
        })
    }
}

/// An instance with its figures and its daemon: what `status` shows.
#[derive(Debug)]
pub struct Status {
    /// The path of the database file.
    pub database: String,
    /// The destinations in the configuration.
    pub destinations: Vec<String>,
    /// What is stored.
    pub overview: Overview,
    /// What the daemon says.
    pub daemon: Liveness,
}

impl Status {
    /// What is not well, each thing in one sentence; empty: the instance is healthy.
    pub fn complaints(&self) -> Vec<String> {
        let mut all = if self.daemon.is_ready() { Vec::new() } else { self.daemon.reasons() };
        all.extend(self.overview.complaints());
        all
    }

    /// Deliveries answered since the start: as the daemon says now, else as it noted them last.
    pub fn answers(&self) -> Option<[i64; 3]> {
        match &self.daemon {
            Liveness::Runs(report) => {
                Some(report.answers.map(|count| i64::try_from(count).unwrap_or(i64::MAX)))
            }
            Liveness::NotRunning | Liveness::Unknown(_) => self.overview.answers,
        }
    }

    /// Of those, the ones that could not be stored; only a running daemon knows.
    pub fn unavailable(&self) -> Option<u64> {
        match &self.daemon {
            Liveness::Runs(report) => Some(report.unavailable),
            Liveness::NotRunning | Liveness::Unknown(_) => None,
        }
    }

    /// All figures as one object. New fields may be added; ignore what you do not know.
    pub fn to_json(&self) -> Value {
        let Overview { inbox, last_purge, took, .. } = &self.overview;
        let overview = &self.overview;
        json!({
            "database": self.database,
            "healthy": self.complaints().is_empty(),
            "complaints": self.complaints(),
            "daemon": self.daemon.to_json(),
            "done": overview.count("done"),
            "ignored": overview.count("ignored"),
            "quarantined": overview.count("quarantined"),
            "pending": overview.pending(),
            "oldest_unprocessed_age_s": overview.oldest_unprocessed_age_s(),
            "reviews_open": overview.reviews_open,
            "failing": overview.failing.iter().map(failing_json).collect::<Value>(),
            "last_purge": last_purge.as_ref().map(|(what, at_ms)| json!({ "purged": what, "at_ms": at_ms })),
            "last_hour_is_cut": overview.last_hour_is_cut,
            "last_hour": overview.last_hour.iter().map(type_json).collect::<Value>(),
            "receipt_to_done_ms": took.map(|took| json!({ "p50": took.p50_ms, "p95": took.p95_ms, "max": took.max_ms })),
            "unavailable_since_start": self.unavailable(),
            "answers_since_start": self.answers().map(|[accepted, refused, failed]| json!({ "2xx": accepted, "4xx": refused, "5xx": failed })),
            "retrying": overview.retrying.iter().map(retrying_json).collect::<Value>(),
            "gaps": self.gaps(),
            "endpoints": inbox.endpoints.iter().map(endpoint_json).collect::<Value>(),
            "destinations": overview.outbox.iter().map(|standing| self.standing_json(standing)).collect::<Value>(),
        })
    }

    fn gaps(&self) -> Value {
        let names = self.overview.inbox.endpoints.iter().map(|(name, ..)| name);
        let of = |name| move |(from_ms, to_ms): &(i64, i64)| json!({ "endpoint": name, "from_ms": from_ms, "to_ms": to_ms });
        names.flat_map(|name| self.overview.outages.iter().map(of(name))).collect()
    }

    fn standing_json(&self, standing: &Standing) -> Value {
        json!({
            "destination": standing.name,
            "configured": self.destinations.contains(&standing.name),
            "pending": standing.pending,
            "oldest_pending_age_s": self.overview.oldest_pending_age_s(standing),
            "dead": standing.dead,
            "paused_at_ms": standing.paused.as_ref().map(|(at_ms, _)| at_ms),
            "paused_because": standing.paused.as_ref().map(|(_, because)| because),
            "failing_since_ms": standing.failing_since_ms,
            "circuit_open_since_ms": standing.circuit_open_since_ms,
            "stale_results": standing.stale_results,
        })
    }
}

/// As the daemon notes them: `2xx 4xx 5xx`.
fn answers(text: &str) -> Option<[i64; 3]> {
    let counts: Vec<_> = text.split(' ').map_while(|count| count.parse().ok()).collect();
    counts.try_into().ok()
}

fn endpoint_json((name, events, duplicates, last_ms): &(String, i64, i64, i64)) -> Value {
    json!({ "endpoint": name, "events": events, "duplicates": duplicates, "last_received_at_ms": last_ms })
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
