//! Alerts: a message when a condition starts, reminders while it lasts, and a message when it ends.
//!
//! Messages contain counts, ages and names of settings: never a body, an id or personal data. The decision is pure; a
//! message goes out by a POST or a program, with no transaction open.

use std::time::Duration;

use crate::config::{Alert, AlertOn};
use crate::store::inbox::{self, failures};
use crate::store::outbox;
use crate::store::reviews;
use crate::store::{Connection, SqlResult};

mod channel;
mod watch;

pub use channel::{Sent, reap_orphans, send};
pub(super) use watch::watch;

/// The shortest failure of the store that is reported: a shorter one is over before the message is read.
const STORE_HINDERED_MIN: Duration = Duration::from_secs(5);

/// The values of all conditions at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
}

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
    fn a_clock_set_back_does_not_silence_the_reminder() {
        let mut alerts = alerts(&[AlertOn::Disk]);
        let low = Seen { disk_low: true, ..Seen::default() };
        alerts.step(&low, 10_000_000);
        assert_eq!(alerts.step(&low, 1_000).len(), 1);
        assert!(alerts.step(&low, 2_000).is_empty());
    }
}
