//! The thread of the alerts: looks at the database and at the writer's health, and sends what [`Alerts`] decides, and the
//! report when it is due.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use super::report::{self, Due};
use super::{Alerts, Seen, send};
use crate::background::stop::Stop;
use crate::clock;
use crate::config::{Alert, Report};
use crate::store::meta;
use crate::store::open::{self, OpenError};
use crate::store::writer::WriterHandle;

/// The pause between two checks of the alert conditions.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Rounds between two looks at what changes slowly.
const MINUTE_ROUNDS: u32 = 12;

/// The most time for a reader: a longer one keeps the WAL from being cut.
const READ_TIME_MAX: Duration = Duration::from_secs(5);

/// Readings of the free space, one a minute: six hours of them.
const READINGS_MAX: usize = 360;

/// A shorter time says nothing of the next hours.
const READINGS_TIME_MIN: Duration = Duration::from_secs(3_600);

/// Checks the alert conditions until a stop, and sends the messages that are due.
pub(in super::super) fn watch(
    writer: &WriterHandle,
    (alert, report): (&Alert, Report),
    database: &Path,
    stop: &Stop,
) {
    let mut alerts = Alerts::new(alert);
    let mut last = Seen::default();
    let mut disk = FreeSpace::default();
    let mut hindered_since = None;
    for round in (0..MINUTE_ROUNDS).cycle() {
        if !stop.pause(LOOK_EVERY) {
            return;
        }
        let now_ms = clock::now_ms();
        let health = writer.health();
        let hindered = health.obstacle().map(|_| *hindered_since.get_or_insert_with(Instant::now));
        hindered_since = hindered;
        if round == 0 {
            disk.read(database);
            if let Err(error) = send_report(writer, (alert, report), database, now_ms) {
                log::warn!("the report is sent later: {error}");
            }
        }
        // if the database cannot even be read, that is an alert condition as well
        match look(database, &last, round == 0, now_ms) {
            Ok(seen) => last = seen,
            Err(error) => log::warn!("cannot check the alert conditions: {error}"),
        }
        last.disk_low = health.is_disk_low();
        last.disk_full_in = disk.full_in();
        last.store_hindered = hindered.map(|since| since.elapsed()).unwrap_or_default();
        for message in alerts.step(&last, now_ms) {
            match send(&alert.via, &message) {
                Ok(_) => log::info!("alert sent: {message}"),
                Err(error) => log::warn!("alert not sent ({error}): {message}"),
            }
        }
    }
}

/// Looks through a reader of its own: no reader is open while the thread waits.
fn look(database: &Path, last: &Seen, is_minute: bool, now_ms: i64) -> Result<Seen, OpenError> {
    let of_sqlite = |source| OpenError::of_sqlite(database, source);
    let reader = open::open_reader(database, READ_TIME_MAX)?;
    let seen = Seen::look(&reader, now_ms).map_err(of_sqlite)?;
    let mut seen = Seen { latest: last.latest.clone(), quarter: last.quarter, hour: last.hour, ..seen };
    if is_minute {
        seen.look_at_traffic(&reader, now_ms).map_err(of_sqlite)?;
    }
    Ok(seen)
}

/// Sends the report where it is due. It is noted only once it was sent.
fn send_report(
    writer: &WriterHandle,
    (alert, report): (&Alert, Report),
    database: &Path,
    now_ms: i64,
) -> Result<(), String> {
    if report == Report::Never {
        return Ok(());
    }
    let reader = open::open_reader(database, READ_TIME_MAX).map_err(|error| error.to_string())?;
    let due = report::due(&reader, report, now_ms).map_err(|error| error.to_string())?;
    drop(reader);
    match due {
        Due::No => return Ok(()),
        Due::Begins => {}
        Due::Send(text) => {
            send(&alert.via, &text).map_err(|error| error.to_string())?;
            log::info!("report sent");
        }
    }
    let noted = writer.run(move |tx| Ok(meta::note(tx, meta::LAST_REPORT, "", now_ms)?));
    noted.map_err(|error| error.to_string())
}

/// The free space of the last hours, for when there will be none.
#[derive(Debug, Default)]
struct FreeSpace(VecDeque<(Instant, u64)>);

impl FreeSpace {
    fn read(&mut self, database: &Path) {
        let dir = database.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Ok(disk) = rustix::fs::statvfs(dir) else { return };
        self.0.push_back((Instant::now(), disk.f_bavail.saturating_mul(disk.f_frsize)));
        while self.0.len() > READINGS_MAX {
            self.0.pop_front();
        }
    }

    fn full_in(&self) -> Option<Duration> {
        let ((from, before), (to, left)) = (self.0.front()?, self.0.back()?);
        let (time, used) = (to.duration_since(*from), before.saturating_sub(*left));
        if time < READINGS_TIME_MIN || used == 0 {
            return None;
        }
        Some(Duration::from_secs(left.saturating_mul(time.as_secs()) / used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_space_is_told_from_how_it_went() {
        let now = Instant::now();
        let disk = |hours: u64, before: u64, left: u64| {
            FreeSpace([(now, before), (now + Duration::from_secs(hours * 3_600), left)].into()).full_in()
        };
        assert_eq!(disk(6, 130, 70), Some(Duration::from_secs(7 * 3_600)));
        assert_eq!(disk(6, 70, 130), None, "it grows");
        assert_eq!(disk(0, 130, 70), None, "too short a time");
        assert_eq!(FreeSpace::default().full_in(), None);
    }
}
