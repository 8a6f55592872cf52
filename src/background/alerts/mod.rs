//! Alerts: a message when a condition starts, reminders while it lasts, and a message when it ends.
//!
//! Messages contain counts, ages and names of settings: never a body, an id or personal data. The decision is pure; a
//! message goes out by a POST or a program, with no transaction open.

use std::time::Duration;

use crate::config::{Alert, AlertOn};
use crate::store::inbox::{self, failures};
use crate::store::minutes::{self, Counted};
use crate::store::outbox;
use crate::store::reviews;
use crate::store::{Connection, SqlResult};

mod channel;
mod report;
mod watch;

pub use channel::{Sent, reap_orphans, send};
pub(super) use watch::watch;

/// The shortest failure of the store that is reported: a shorter one is over before the message is read.
const STORE_HINDERED_MIN: Duration = Duration::from_secs(5);

/// The values of all conditions at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Reviews that are open.
    pub reviews_open: i64,
    /// How long the oldest event has waited for a worker.
    pub oldest_waiting: Option<Duration>,
    /// Outbox rows that were given up.
    pub outbox_dead: i64,
    /// Events whose handlers fail, so that they are not stored.
    pub failing: i64,
    /// How long ago the first of them failed for the first time.
    pub failing_for: Duration,
    /// Free space is below the floor, or the last write found none.
    pub disk_low: bool,
    /// For how long nothing could be stored, whatever the reason; zero: it can.
    pub store_hindered: Duration,
    /// Endpoints for which something came before, and how long ago the latest event came.
    pub latest: Vec<(String, Duration)>,
    /// Deliveries of the last quarter of an hour.
    pub quarter: Traffic,
    /// Deliveries of the last hour.
    pub hour: Traffic,
    /// When the disk is full, if it goes on as in the last hours; `None`: never, or nobody knows.
    pub disk_full_in: Option<Duration>,
}

impl Seen {
    /// Reads what changes slowly.
    ///
    /// # Errors
    /// Any SQLite error.
    pub fn look_at_traffic(&mut self, conn: &Connection, now_ms: i64) -> SqlResult<()> {
        let ago = |at_ms: i64| Duration::from_millis(now_ms.saturating_sub(at_ms).max(0).unsigned_abs());
        let endpoints = inbox::summary(conn)?.endpoints.into_iter();
        self.latest = endpoints.map(|(name, .., at_ms)| (name, ago(at_ms))).collect();
        self.quarter = Traffic::since(conn, minutes::minute_of(now_ms) - 15)?;
        self.hour = Traffic::since(conn, minutes::minute_of(now_ms) - 60)?;
        Ok(())
    }
}

/// Deliveries of some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// All of them.
    pub all: i64,
    /// Those whose events came before.
    pub duplicates: i64,
    /// Those that were refused for what they are.
    pub refused: i64,
    /// Of those, the ones whose time is wrong.
    pub untimely: i64,
}

impl Traffic {
    /// Counts what was written down, and what is still in memory.
    ///
    /// # Errors
    /// Any SQLite error.
    pub fn since(conn: &Connection, from_minute: i64) -> SqlResult<Self> {
        let mut traffic = Self::default();
        let written = minutes::since(conn, from_minute, 60)?;
        for counted in written.into_iter().map(|(_, counted)| counted).chain(minutes::unwritten()) {
            traffic.add(&counted);
        }
        Ok(traffic)
    }

    fn add(&mut self, counted: &Counted) {
        let word = counted.outcome.as_str();
        if word == "worked" || word.starts_with("outbox_") {
            return;
        }
        self.all += counted.count;
        match word {
            "duplicate" => self.duplicates += counted.count,
            "timestamp_outside_tolerance" => {
                self.refused += counted.count;
                self.untimely += counted.count;
            }
            "signature_missing"
            | "signature_malformed"
            | "signature_mismatch"
            | "event_id_missing"
            | "scope_mismatch"
            | "replayed" => self.refused += counted.count,
            _ => {}
        }
    }
}

/// Fewer deliveries say nothing of a share.
const DELIVERIES_MIN: i64 = 10;

impl Seen {
    /// Reads the database; the store's own state comes from the writer.
    ///
    /// # Errors
    /// Any SQLite error.
    pub fn look(conn: &Connection, now_ms: i64) -> SqlResult<Self> {
        let waiting = inbox::oldest_waiting_ms(conn)?;
        let (failing, failing_since_ms) = failures::standing(conn)?;
        let ago = |at_ms: i64| Duration::from_millis(now_ms.saturating_sub(at_ms).max(0).unsigned_abs());
        Ok(Self {
            failing,
            failing_for: failing_since_ms.map(ago).unwrap_or_default(),
            reviews_open: reviews::open_count(conn)?,
            oldest_waiting: waiting.map(ago),
            outbox_dead: outbox::dead_count(conn)?,
            ..Self::default()
        })
    }
}

/// One condition, and the last message about it.
#[derive(Debug)]
struct Watch {
    on: AlertOn,
    told_at_ms: Option<i64>,
    count: i64,
}

/// Decides which messages to send, and when.
#[derive(Debug)]
pub struct Alerts {
    watches: Vec<Watch>,
    remind_ms: i64,
}

impl Alerts {
    /// Watches what the configuration names.
    pub fn new(alert: &Alert) -> Self {
        let watch = |on: &AlertOn| Watch { on: *on, told_at_ms: None, count: 0 };
        Self {
            watches: alert.on.iter().map(watch).collect(),
            remind_ms: i64::try_from(alert.remind.as_millis()).unwrap_or(i64::MAX),
        }
    }

    /// The messages that are due now: once when something starts or grows, a reminder, once when it is over.
    pub fn step(&mut self, seen: &Seen, now_ms: i64) -> Vec<String> {
        self.watches.iter_mut().filter_map(|watch| watch.step(seen, self.remind_ms, now_ms)).collect()
    }
}

impl Watch {
    fn step(&mut self, seen: &Seen, remind_ms: i64, now_ms: i64) -> Option<String> {
        let (count, text) = self.condition(seen);
        if count == 0 {
            self.count = 0;
            return self.told_at_ms.take().map(|_| format!("over: {}", self.name()));
        }
        // a clock that was set back must not silence the reminder
        let is_due = self.told_at_ms.is_none_or(|at| now_ms < at || now_ms - at >= remind_ms);
        let is_more = count > self.count;
        self.count = count;
        if !is_due && !is_more {
            return None;
        }
        let is_reminder = self.told_at_ms.is_some() && !is_more;
        self.told_at_ms = Some(now_ms);
        Some(if is_reminder { format!("still: {text}") } else { text })
    }

    fn name(&self) -> &'static str {
        match self.on {
            AlertOn::Review => "no review is open",
            AlertOn::Oldest(_) => "no event has been waiting for long",
            AlertOn::Dead => "no outbox row is given up",
            AlertOn::Failing(_) => "no handler has been failing for long",
            AlertOn::Store => "deliveries can be stored again",
            AlertOn::Disk => "there is room on the disk, deliveries are accepted",
            AlertOn::Silent(_) => "no endpoint is silent",
            AlertOn::Refused(_) => "few deliveries are refused",
            AlertOn::Duplicates(_) => "few deliveries are redeliveries",
            AlertOn::Clock => "deliveries are in time",
            AlertOn::DiskWithin(_) => "the disk will not be full soon",
        }
    }

    /// As [`Watch::condition`], of what is watched only where it is named.
    fn further_condition(&self, seen: &Seen) -> (i64, String) {
        let share = |part: i64, of: &Traffic| if of.all < DELIVERIES_MIN { 0 } else { part * 100 / of.all };
        match self.on {
            AlertOn::Silent(age) => {
                let silent: Vec<_> = seen.latest.iter().filter(|(_, since)| *since > age).collect();
                let told =
                    |(name, since): &&(String, Duration)| format!("{name} for {} h", since.as_secs() / 3_600);
                let told: Vec<_> = silent.iter().map(told).collect();
                let text = format!(
                    "nothing has come for {}: look at the provider's dashboard whether the hook is on",
                    told.join(", ")
                );
                (i64::try_from(silent.len()).unwrap_or(i64::MAX), text)
            }
            AlertOn::Refused(most) => {
                let found = share(seen.quarter.refused, &seen.quarter);
                let text = format!(
                    "{found} % of the deliveries of the last 15 minutes were refused: the page Refused says why (inboxd admin link)"
                );
                (i64::from(found > most), text)
            }
            AlertOn::Duplicates(most) => {
                let found = share(seen.hour.duplicates, &seen.hour);
                let text = format!(
                    "{found} % of the deliveries of the last hour were redeliveries: do answers reach the providers in time?"
                );
                (i64::from(found > most), text)
            }
            AlertOn::Clock => {
                let found = share(seen.quarter.untimely, &seen.quarter);
                let text = format!(
                    "{found} % of the deliveries of the last 15 minutes were refused for their time: is this machine's clock right? timedatectl"
                );
                (i64::from(found > 50), text)
            }
            AlertOn::DiskWithin(time) => {
                let hours = seen.disk_full_in.unwrap_or_default().as_secs() / 3_600;
                let text =
                    format!("the disk is full in {hours} h if it goes on like this: inboxd purge --dry-run");
                (i64::from(seen.disk_full_in.is_some_and(|left| left < time)), text)
            }
            AlertOn::Review
            | AlertOn::Oldest(_)
            | AlertOn::Dead
            | AlertOn::Failing(_)
            | AlertOn::Store
            | AlertOn::Disk => (0, String::new()),
        }
    }

    /// How bad it is (0: not at all), with the words of the message.
    fn condition(&self, seen: &Seen) -> (i64, String) {
        match self.on {
            AlertOn::Review => (
                seen.reviews_open,
                match seen.reviews_open {
                    1 => "1 review waits for a person: inboxd reviews list".to_owned(),
                    count => format!("{count} reviews wait for a person: inboxd reviews list"),
                },
            ),
            AlertOn::Oldest(age) => {
                let waiting = seen.oldest_waiting.filter(|waiting| *waiting >= age);
                let minutes = waiting.unwrap_or_default().as_secs() / 60;
                (
                    i64::from(waiting.is_some()),
                    format!("an event has been waiting for {minutes} minutes: inboxd status"),
                )
            }
            AlertOn::Dead => (
                seen.outbox_dead,
                match seen.outbox_dead {
                    1 => "1 outbox row was given up: inboxd outbox list --state dead".to_owned(),
                    count => format!("{count} outbox rows were given up: inboxd outbox list --state dead"),
                },
            ),
            AlertOn::Failing(age) => (
                if seen.failing_for >= age { seen.failing } else { 0 },
                format!(
                    "the handlers of {} events fail, for {} minutes now, and the events are not stored: inboxd events list --state failing",
                    seen.failing,
                    seen.failing_for.as_secs() / 60
                ),
            ),
            AlertOn::Store => (
                i64::from(seen.store_hindered >= STORE_HINDERED_MIN),
                format!(
                    "nothing can be stored for {} s: deliveries are answered 503: inboxd health",
                    seen.store_hindered.as_secs()
                ),
            ),
            AlertOn::Disk => (
                i64::from(seen.disk_low),
                "free disk space is below limits.disk_free_min, or there is none: deliveries are answered 503"
                    .to_owned(),
            ),
            AlertOn::Silent(_)
            | AlertOn::Refused(_)
            | AlertOn::Duplicates(_)
            | AlertOn::Clock
            | AlertOn::DiskWithin(_) => self.further_condition(seen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AlertVia;

    fn alerts(on: &[AlertOn]) -> Alerts {
        Alerts::new(&Alert {
            via: AlertVia::Command(std::path::PathBuf::new()),
            on: on.to_vec(),
            remind: Duration::from_secs(100),
        })
    }

    fn reviews(reviews_open: i64) -> Seen {
        Seen { reviews_open, ..Seen::default() }
    }

    #[test]
    fn people_are_told_once_reminded_and_told_when_it_is_over() {
        let mut alerts = alerts(&[AlertOn::Review]);
        assert!(alerts.step(&reviews(0), 0).is_empty());
        assert_eq!(alerts.step(&reviews(1), 1_000).len(), 1);
        assert!(alerts.step(&reviews(1), 2_000).is_empty());
        assert!(alerts.step(&reviews(1), 101_000)[0].starts_with("still: "));
        assert!(alerts.step(&reviews(1), 102_000).is_empty());
        assert!(alerts.step(&reviews(0), 103_000)[0].starts_with("over: "));
        assert!(alerts.step(&reviews(0), 300_000).is_empty());
    }

    #[test]
    fn a_second_review_is_told_at_once_and_a_closed_one_is_not() {
        let mut alerts = alerts(&[AlertOn::Review]);
        alerts.step(&reviews(1), 0);
        assert!(alerts.step(&reviews(2), 1)[0].starts_with("2 reviews"));
        assert!(alerts.step(&reviews(1), 2).is_empty());
    }

    #[test]
    fn an_old_event_is_told_when_it_is_old_enough() {
        let mut alerts = alerts(&[AlertOn::Oldest(Duration::from_secs(600))]);
        let waiting = |s| Seen { oldest_waiting: Some(Duration::from_secs(s)), ..Seen::default() };
        assert!(alerts.step(&waiting(599), 0).is_empty());
        assert!(alerts.step(&waiting(600), 1)[0].contains("10 minutes"));
    }

    #[test]
    fn a_handler_that_fails_is_told_when_it_has_failed_for_long_enough() {
        let mut alerts = alerts(&[AlertOn::Failing(Duration::from_secs(600))]);
        let failing = |failing, s| Seen { failing, failing_for: Duration::from_secs(s), ..Seen::default() };
        assert!(alerts.step(&failing(3, 599), 0).is_empty());
        let told = alerts.step(&failing(3, 600), 1);
        assert!(told[0].contains("3 events") && told[0].contains("10 minutes"), "{told:?}");
        assert!(alerts.step(&failing(3, 601), 2).is_empty());
        assert!(alerts.step(&failing(0, 0), 3)[0].starts_with("over: "));
    }

    #[test]
    fn a_share_is_told_of_enough_deliveries_and_an_endpoint_by_its_name() {
        let mut shares = alerts(&[AlertOn::Refused(20), AlertOn::Clock, AlertOn::Duplicates(50)]);
        let traffic = |all, refused| Traffic { all, duplicates: refused, refused, untimely: refused };
        let seen = |all, refused| Seen {
            quarter: traffic(all, refused),
            hour: traffic(all, refused),
            ..Seen::default()
        };
        assert!(shares.step(&seen(9, 9), 0).is_empty(), "too few say nothing");
        assert!(shares.step(&seen(100, 20), 1).is_empty());
        let told = shares.step(&seen(100, 51), 2);
        assert!(told.len() == 3 && told[0].contains("51 %") && told[1].contains("clock"), "{told:?}");
        let mut silent = alerts(&[AlertOn::Silent(Duration::from_secs(86_400))]);
        let latest = |hours: u64| Seen {
            latest: vec![
                ("billing".to_owned(), Duration::from_secs(hours * 3_600)),
                ("hub".to_owned(), Duration::ZERO),
            ],
            ..Seen::default()
        };
        assert!(silent.step(&latest(24), 0).is_empty());
        let told = silent.step(&latest(30), 1);
        assert!(told[0].contains("billing for 30 h") && !told[0].contains("hub"), "{told:?}");
        assert!(silent.step(&latest(0), 2)[0].starts_with("over: "));
    }

    #[test]
    fn a_clock_set_back_does_not_silence_the_reminder() {
        let mut alerts = alerts(&[AlertOn::Disk]);
        let low = Seen { disk_low: true, ..Seen::default() };
        alerts.step(&low, 10_000_000);
        assert_eq!(alerts.step(&low, 1_000).len(), 1);
        assert!(alerts.step(&low, 2_000).is_empty());
    }
}
