//! The thread of the alerts: looks at the database and at the writer's health, and sends what [`Alerts`] decides.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Alerts, Seen, send};
use crate::background::stop::Stop;
use crate::clock;
use crate::config::Alert;
use crate::store::open::{self, OpenError};
use crate::store::writer::WriterHandle;

/// The pause between two checks of the alert conditions.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The most time for a reader: a longer one keeps the WAL from being cut.
const READ_TIME_MAX: Duration = Duration::from_secs(5);

/// Checks the alert conditions until a stop, and sends the messages that are due.
pub(in super::super) fn watch(writer: &WriterHandle, alert: &Alert, database: &Path, stop: &Stop) {
    let mut alerts = Alerts::new(alert);
    let mut last = Seen::default();
    let mut hindered_since = None;
    while stop.pause(LOOK_EVERY) {
        let now_ms = clock::now_ms();
        let health = writer.health();
        let hindered = health.obstacle().map(|_| *hindered_since.get_or_insert_with(Instant::now));
        hindered_since = hindered;
        let seen = look(database, now_ms);
        // if the database cannot even be read, that is an alert condition as well
        last = Seen {
            disk_low: health.is_disk_low(),
            store_hindered: hindered.map(|since| since.elapsed()).unwrap_or_default(),
            ..seen.unwrap_or_else(|error| {
                log::warn!("cannot check the alert conditions: {error}");
                last
            })
        };
        for message in alerts.step(&last, now_ms) {
            match send(&alert.via, &message) {
                Ok(_) => log::info!("alert sent: {message}"),
                Err(error) => log::warn!("alert not sent ({error}): {message}"),
            }
        }
    }
}

/// Looks through a reader of its own: no reader is open while the thread waits.
fn look(database: &Path, now_ms: i64) -> Result<Seen, OpenError> {
    let reader = open::open_reader(database, READ_TIME_MAX)?;
    Seen::look(&reader, now_ms).map_err(|source| OpenError::of_sqlite(database, source))
}
