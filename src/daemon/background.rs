//! The threads that work on stored rows: workers, dispatchers, retention, alerts.
//!
//! Each is a loop around a step function and a wait that a stop ends at once.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::upkeep::{StartNote, Upkeep, Watch};
use super::{StartError, spawn};
use crate::background::alerts::{self, Alerts, Seen};
use crate::background::dispatcher::{self, Dispatcher, Tick};
use crate::background::given_up;
use crate::background::worker::{Step, Worker};
use crate::clock;
use crate::config::{Alert, Retention};
use crate::intake::deliveries::Answers;
use crate::store::meta;
use crate::store::open;
use crate::store::writer::{WriteError, WriterHandle};
use crate::wake::Wake;
use crate::work::timeline;

/// The pause between two checks of the alert conditions.
const ALERT_EVERY: Duration = Duration::from_secs(5);

/// The pause between two checks for ended orphans, as process 1.
const REAP_EVERY: Duration = Duration::from_secs(2);

/// The pause between two notes of the answer counts.
const ANSWERS_EVERY: Duration = Duration::from_secs(5);

/// Rounds between two searches for failing events that their providers have stopped sending.
const GIVEN_UP_EVERY: u32 = 12;

/// The pause before the store is tried again.
const STORE_PAUSE: Duration = Duration::from_millis(100);

/// The most time for a reader: a longer one keeps the WAL from being cut.
const READ_TIME_MAX: Duration = Duration::from_secs(5);

/// Tells the threads to end, and wakes those that wait.
#[derive(Debug, Default)]
pub(super) struct Stop {
    is_set: AtomicBool,
    bell: Wake,
}

impl Stop {
    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Waits, unless a stop comes first; `false` after a stop.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let seen = self.bell.count();
        if !self.is_set() {
            self.bell.wait(seen, time);
        }
        !self.is_set()
    }
}

/// The running threads.
#[derive(Debug)]
pub(super) struct Background {
    stop: Arc<Stop>,
    watch: Arc<Watch>,
    worker: Arc<Worker>,
    wakes: [Arc<Wake>; 2],
    threads: Vec<JoinHandle<()>>,
}

/// What the threads need in addition to the worker.
pub(super) struct Settings {
    pub(super) worker_threads: usize,
    pub(super) retention: Retention,
    /// Endpoints in proxy mode, with the time after which an event is no longer expected to come again.
    pub(super) proxied: Vec<(String, Duration)>,
    pub(super) alert: Option<Alert>,
    pub(super) database: PathBuf,
    /// The clock before this start.
    pub(super) seen: timeline::Seen,
    pub(super) answers: Arc<Answers>,
    /// Every endpoint, with the time for which its provider repeats failed deliveries.
    pub(super) patience: Vec<(String, Duration)>,
    /// When a daemon last ran before this start.
    pub(super) last_sign_ms: Option<i64>,
}

impl Background {
    /// Starts every thread. The leases of the previous process are released before any thread works, so a lease seen
    /// later belongs to one of these threads.
    pub(super) fn start(
        (worker, dispatchers): (Worker, Vec<Dispatcher>),
        (wake, outbox_wake): (&Arc<Wake>, &Arc<Wake>),
        writer: &WriterHandle,
        settings: Settings,
    ) -> Result<Self, StartError> {
        let wakes = [Arc::clone(wake), Arc::clone(outbox_wake)];
        let (worker, taken_over) = (Arc::new(worker), Arc::new(Once::new()));
        let mut background = Self {
            stop: Arc::default(),
            watch: Arc::new(Watch::new(clock::now_ms(), clock::steady_ms())),
            worker: Arc::clone(&worker),
            wakes,
            threads: Vec::new(),
        };
        // no delivery has been accepted yet, so everything received later is newer than the start
        let now_ms = clock::now_ms();
        let start_note = Arc::new(StartNote::new(writer.clone(), settings.seen));
        for number in 0..settings.worker_threads {
            let (worker, wake, stop) = (Arc::clone(&worker), Arc::clone(wake), Arc::clone(&background.stop));
            let (outbox_wake, taken_over) = (Arc::clone(outbox_wake), Arc::clone(&taken_over));
            let (start_note, watch) = (Arc::clone(&start_note), Arc::clone(&background.watch));
            let work = move || {
                start_note.write(&stop);
                let take_over = || worker.take_over(now_ms);
                taken_over.call_once(|| until_ready("events", take_over, &stop));
                work(&worker, (&wake, &outbox_wake), &watch, &stop);
            };
            background.threads.push(spawn(&format!("worker-{number}"), work)?);
        }
        for dispatcher in dispatchers {
            background.dispatch(dispatcher, outbox_wake, &start_note, now_ms)?;
        }
        let upkeep = Upkeep {
            writer: writer.clone(),
            retention: settings.retention,
            proxied: settings.proxied,
            database: settings.database.clone(),
            stop: Arc::clone(&background.stop),
            start_note,
            watch: Arc::clone(&background.watch),
        };
        background.threads.push(spawn("retention", move || upkeep.run())?);
        let writer = writer.clone();
        let (noting, answers, stop) = (writer.clone(), settings.answers, Arc::clone(&background.stop));
        background.threads.push(spawn("answers", move || {
            note_outage(&noting, settings.last_sign_ms, now_ms);
            note_answers(&noting, &answers, &settings.patience, &stop);
        })?);
        if std::process::id() == 1 {
            let stop = Arc::clone(&background.stop);
            background.threads.push(spawn("reaper", move || {
                while stop.pause(REAP_EVERY) {
                    alerts::reap_orphans();
                }
            })?);
        }
        if let Some(alert) = settings.alert {
            let (stop, database) = (Arc::clone(&background.stop), settings.database);
            background.threads.push(spawn("alerts", move || watch(&writer, &alert, &database, &stop))?);
        }
        Ok(background)
    }

    /// The threads of one destination.
    fn dispatch(
        &mut self,
        dispatcher: Dispatcher,
        wake: &Arc<Wake>,
        start_note: &Arc<StartNote>,
        now_ms: i64,
    ) -> Result<(), StartError> {
        let (dispatcher, taken_over) = (Arc::new(dispatcher), Arc::new(Once::new()));
        let config = dispatcher.config();
        for number in 0..config.threads {
            let (dispatcher, wake) = (Arc::clone(&dispatcher), Arc::clone(wake));
            let (stop, taken_over) = (Arc::clone(&self.stop), Arc::clone(&taken_over));
            let (start_note, watch) = (Arc::clone(start_note), Arc::clone(&self.watch));
            let work = move || {
                start_note.write(&stop);
                let take_over = || dispatcher.take_over(now_ms);
                taken_over.call_once(|| until_ready("outbox rows", take_over, &stop));
                dispatch(&dispatcher, &wake, &watch, &stop);
            };
            self.threads.push(spawn(&format!("{}-{number}", config.name), work)?);
        }
        Ok(())
    }

    /// Ends every thread when its step is done.
    pub(super) fn stop(self) {
        self.stop.is_set.store(true, Ordering::Release);
        self.worker.stop();
        self.stop.bell.ring();
        self.wakes.iter().for_each(|wake| wake.ring());
        for thread in self.threads {
            if thread.join().is_err() {
                log::error!("a background thread panicked");
            }
        }
    }
}

/// Releases them as soon as the store is ready; no other thread works on these rows before their leases end.
pub(super) fn until_ready(what: &str, take_over: impl Fn() -> Result<usize, WriteError>, stop: &Stop) {
    loop {
        match take_over() {
            Ok(0) => return,
            Ok(count) => {
                return log::info!("{count} {what} were interrupted by the last stop and will be retried");
            }
            Err(error) if stop.pause(STORE_PAUSE) => log::debug!("the store is not ready yet: {error}"),
            Err(_) => return,
        }
    }
}

fn work(worker: &Worker, (wake, outbox_wake): (&Wake, &Wake), watch: &Watch, stop: &Stop) {
    step_on(wake, stop, || {
        if watch.has_jumped() {
            return Some(STORE_PAUSE);
        }
        let (lease_id, now_ms, random) = terms();
        match worker.step(&lease_id, now_ms, random) {
            Step::Worked => {
                // handlers may have queued something to send
                outbox_wake.ring();
                None
            }
            Step::Idle(time) => Some(time),
        }
    });
}

fn dispatch(dispatcher: &Dispatcher, wake: &Wake, watch: &Watch, stop: &Stop) {
    step_on(wake, stop, || {
        if watch.has_jumped() {
            return Some(STORE_PAUSE);
        }
        let step = dispatcher.steps(|| {
            let (lease_id, now_ms, random) = terms();
            (!stop.is_set() && !watch.has_jumped()).then_some(Tick {
                lease_id,
                now_ms,
                steady_ms: clock::steady_ms(),
                random,
            })
        });
        match step {
            dispatcher::Step::Worked => None,
            dispatcher::Step::Idle(time) => Some(time),
        }
    });
}

/// Steps until a stop comes; after a step that says how long, it waits so long or until `wake` rings.
fn step_on(wake: &Wake, stop: &Stop, mut step: impl FnMut() -> Option<Duration>) {
    while !stop.is_set() {
        // read before the step, so that a commit after the step's look is seen as a new ring
        let seen = wake.count();
        if let Some(time) = step()
            && !stop.is_set()
        {
            wake.wait(seen, time);
        }
    }
}

/// A lease's id, the time, and a random number.
fn terms() -> (String, i64, u64) {
    let now_ms = clock::now_ms();
    let random = getrandom::u64().unwrap_or(u64::MAX);
    (format!("{now_ms:012x}{random:016x}"), now_ms, random)
}

/// Notes the time before this start without a daemon.
fn note_outage(writer: &WriterHandle, last_sign_ms: Option<i64>, now_ms: i64) {
    let Some(from_ms) = last_sign_ms else { return };
    if let Err(error) = writer.run(move |tx| Ok(meta::note_outage(tx, from_ms, now_ms)?)) {
        log::warn!("could not note the outage before this start: {error}");
    }
}

/// Keeps what `status` shows: `2xx 4xx 5xx` since the start, also those of the last seconds before a stop; and once a
/// minute that the daemon runs.
fn note_answers(writer: &WriterHandle, answers: &Answers, patience: &[(String, Duration)], stop: &Stop) {
    let mut noted = None;
    let mut is_running = true;
    for round in (0..GIVEN_UP_EVERY).cycle() {
        if round == 0 || !is_running {
            note_alive(writer);
        }
        if round == 0 && is_running {
            ask_about_failures(writer, patience);
        }
        let counts = answers.counts();
        if noted != Some(counts) {
            let text = counts.map(|count| count.to_string()).join(" ");
            let now_ms = clock::now_ms();
            match writer.run(move |tx| Ok(meta::note(tx, meta::ANSWERS, &text, now_ms)?)) {
                Ok(()) => noted = Some(counts),
                Err(error) => log::debug!("could not note the answer counts yet: {error}"),
            }
        }
        if !is_running {
            return;
        }
        is_running = stop.pause(ANSWERS_EVERY);
    }
}

fn note_alive(writer: &WriterHandle) {
    let now_ms = clock::now_ms();
    if let Err(error) = writer.run(move |tx| Ok(meta::note(tx, meta::ALIVE, "", now_ms)?)) {
        log::debug!("could not note yet that the daemon runs: {error}");
    }
}

fn ask_about_failures(writer: &WriterHandle, patience: &[(String, Duration)]) {
    match given_up::ask_about_failures(writer, patience, clock::now_ms()) {
        Ok(0) => {}
        Ok(count) => log::error!(
            "{count} events failed until their providers stopped sending them, and are not stored: inboxd reviews list"
        ),
        Err(error) => log::debug!("could not look for failing events yet: {error}"),
    }
}

fn watch(writer: &WriterHandle, alert: &Alert, database: &std::path::Path, stop: &Stop) {
    let mut alerts = Alerts::new(alert);
    let mut last = Seen::default();
    let mut hindered_since = None;
    while stop.pause(ALERT_EVERY) {
        let now_ms = clock::now_ms();
        let health = writer.health();
        let hindered = health.obstacle().map(|_| *hindered_since.get_or_insert_with(Instant::now));
        hindered_since = hindered;
        let seen = with_reader(database, |reader| Seen::look(reader, now_ms).map_err(|e| e.to_string()));
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
            match alerts::send(&alert.via, &message) {
                Ok(_) => log::info!("alert sent: {message}"),
                Err(error) => log::warn!("alert not sent ({error}): {message}"),
            }
        }
    }
}

/// A reader for one step: no reader is open while a thread waits.
fn with_reader<T>(
    database: &std::path::Path,
    work: impl FnOnce(&Connection) -> Result<T, String>,
) -> Result<T, String> {
    work(&open::open_reader(database, READ_TIME_MAX).map_err(|error| error.to_string())?)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// The time limit for something that comes at once, in case it hangs.
    const HANG_TIME: Duration = Duration::from_secs(120);

    #[test]
    fn a_ring_ends_a_wait_of_any_length_and_one_during_the_look_is_not_missed() {
        let (wake, stop) = (Arc::new(Wake::default()), Arc::new(Stop::default()));
        let (looked, looks) = mpsc::channel();
        let (waking, stopping) = (Arc::clone(&wake), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let mut is_first = true;
            step_on(&waking, &stopping, || {
                if std::mem::take(&mut is_first) {
                    waking.ring();
                }
                looked.send(()).unwrap();
                Some(100 * HANG_TIME)
            });
        });
        let looks_again = || looks.recv_timeout(HANG_TIME).expect("another look");
        looks_again();
        looks_again();
        wake.ring();
        looks_again();
        stop.is_set.store(true, Ordering::Release);
        wake.ring();
        assert!(looks.recv_timeout(HANG_TIME).is_err(), "a stop is no reason to look");
        thread.join().unwrap();
    }
}
