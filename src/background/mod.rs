//! What runs after the answer: workers, dispatchers, retention, alerts.
//!
//! [`Background`] owns the threads; what they do are steps in the files beside, which are given the time. How a thread
//! is started, and what it means when one cannot be, is the caller's.

use std::path::PathBuf;
use std::sync::{Arc, Once};
use std::thread::JoinHandle;
use std::time::Duration;

use self::dispatcher::Dispatcher;
use self::poller::Poller;
use self::stop::Stop;
use self::upkeep::{StartNote, Upkeep, Watch};
use self::worker::Worker;
use crate::clock;
use crate::config::{Alert, Report, Retention};
use crate::intake::deliveries::Answers;
use crate::store::writer::WriterHandle;
use crate::wake::Wake;
use crate::work::timeline;

pub mod poller;
pub mod worker;
pub mod dispatcher;
mod circuit;
mod upkeep;
pub mod retention;
pub mod given_up;
mod noting;
pub mod alerts;
mod stop;

/// The pause between two checks for ended orphans, as process 1.
const REAP_EVERY: Duration = Duration::from_secs(2);

/// Starts a thread with this name, or says why it cannot be.
pub type Spawn<'a, E> = &'a dyn Fn(&str, Box<dyn FnOnce() + Send>) -> Result<JoinHandle<()>, E>;

/// The running threads.
#[derive(Debug)]
pub struct Background {
    stop: Arc<Stop>,
    watch: Arc<Watch>,
    start_note: Arc<StartNote>,
    /// Leases that were taken before this time are those of the previous process.
    started_at_ms: i64,
    worker: Arc<Worker>,
    wakes: [Arc<Wake>; 2],
    threads: Vec<JoinHandle<()>>,
}

/// What the threads need in addition to the pollers.
#[derive(Debug)]
pub struct Settings {
    /// Threads that work on events.
    pub worker_threads: usize,
    /// `[retention]`
    pub retention: Retention,
    /// Endpoints in proxy mode, with the time after which an event is no longer expected to come again.
    pub proxied: Vec<(String, Duration)>,
    /// `[alert]`
    pub alert: Option<Alert>,
    /// `[report]`
    pub report: Report,
    /// The database file.
    pub database: PathBuf,
    /// The clock before this start.
    pub seen: timeline::Seen,
    /// How deliveries were answered.
    pub answers: Arc<Answers>,
    /// Every endpoint, with the time for which its provider repeats failed deliveries.
    pub patience: Vec<(String, Duration)>,
    /// When a daemon last ran before this start.
    pub last_sign_ms: Option<i64>,
}

impl Background {
    /// Starts every thread. The leases of the previous process are released before any thread works, so a lease seen
    /// later belongs to one of these threads.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start<E>(
        (worker, dispatchers): (Worker, Vec<Dispatcher>),
        (wake, outbox_wake): (&Arc<Wake>, &Arc<Wake>),
        writer: &WriterHandle,
        settings: Settings,
        spawn: Spawn<'_, E>,
    ) -> Result<Self, E> {
        let worker = Arc::new(worker);
        let mut background = Self {
            stop: Arc::default(),
            watch: Arc::new(Watch::new(clock::now_ms(), clock::steady_ms())),
            start_note: Arc::new(StartNote::new(writer.clone(), settings.seen)),
            // no delivery has been accepted yet, so everything received later is newer than the start
            started_at_ms: clock::now_ms(),
            worker: Arc::clone(&worker),
            wakes: [Arc::clone(wake), Arc::clone(outbox_wake)],
            threads: Vec::new(),
        };
        let names = (0..settings.worker_threads).map(|number| format!("worker-{number}"));
        // handlers may have queued something to send
        let ringing = Arc::clone(outbox_wake);
        let after_work: AfterWork = Arc::new(move || ringing.ring());
        background.poll(&worker, names, (wake, &after_work), spawn)?;
        for dispatcher in dispatchers.into_iter().map(Arc::new) {
            let config = dispatcher.config();
            let names = (0..config.threads).map(|number| format!("{}-{number}", config.name));
            let after_work: AfterWork = Arc::new(|| {});
            background.poll(&dispatcher, names, (outbox_wake, &after_work), spawn)?;
        }
        background.keep_house(writer, settings, spawn)?;
        Ok(background)
    }

    /// A thread for each name, all at work on one queue.
    fn poll<E, P: Poller + 'static>(
        &mut self,
        poller: &Arc<P>,
        names: impl Iterator<Item = String>,
        (wake, after_work): (&Arc<Wake>, &AfterWork),
        spawn: Spawn<'_, E>,
    ) -> Result<(), E> {
        let taken_over = Arc::new(Once::new());
        let started_at_ms = self.started_at_ms;
        for name in names {
            let (poller, taken_over) = (Arc::clone(poller), Arc::clone(&taken_over));
            let (wake, after_work) = (Arc::clone(wake), Arc::clone(after_work));
            let (start_note, watch, stop) =
                (Arc::clone(&self.start_note), Arc::clone(&self.watch), Arc::clone(&self.stop));
            let work = move || {
                start_note.write(&stop);
                taken_over.call_once(|| take_over(&*poller, started_at_ms, &stop));
                poller::run(&*poller, &wake, (&watch, &stop), &*after_work);
            };
            self.threads.push(spawn(&name, Box::new(work))?);
        }
        Ok(())
    }

    /// The threads that work on no queue: retention, notes, alerts.
    fn keep_house<E>(
        &mut self,
        writer: &WriterHandle,
        settings: Settings,
        spawn: Spawn<'_, E>,
    ) -> Result<(), E> {
        let upkeep = Upkeep {
            writer: writer.clone(),
            retention: settings.retention,
            proxied: settings.proxied,
            database: settings.database.clone(),
            stop: Arc::clone(&self.stop),
            start_note: Arc::clone(&self.start_note),
            watch: Arc::clone(&self.watch),
        };
        self.threads.push(spawn("retention", Box::new(move || upkeep.run()))?);
        let (noting, stop, started_at_ms) = (writer.clone(), Arc::clone(&self.stop), self.started_at_ms);
        let Settings { answers, patience, last_sign_ms, alert, report, database, .. } = settings;
        let note = move || {
            noting::note_outage(&noting, last_sign_ms, started_at_ms);
            noting::note_answers(&noting, &answers, &patience, &stop);
        };
        self.threads.push(spawn("answers", Box::new(note))?);
        if std::process::id() == 1 {
            let stop = Arc::clone(&self.stop);
            let reap = move || {
                while stop.pause(REAP_EVERY) {
                    alerts::reap_orphans();
                }
            };
            self.threads.push(spawn("reaper", Box::new(reap))?);
        }
        if let Some(alert) = alert {
            let (writer, stop) = (writer.clone(), Arc::clone(&self.stop));
            let watch = move || alerts::watch(&writer, (&alert, report), &database, &stop);
            self.threads.push(spawn("alerts", Box::new(watch))?);
        }
        Ok(())
    }

    /// Ends every thread when its step is done.
    pub fn stop(self) {
        self.stop.set();
        self.worker.stop();
        self.wakes.iter().for_each(|wake| wake.ring());
        for thread in self.threads {
            if thread.join().is_err() {
                log::error!("a background thread panicked");
            }
        }
    }
}

/// What is done after a step that found work.
type AfterWork = Arc<dyn Fn() + Send + Sync>;

/// Releases the leases of the previous process as soon as the store is ready; no other thread works on these rows
/// before their leases end.
fn take_over<P: Poller>(poller: &P, now_ms: i64, stop: &Stop) {
    match stop.until_ready(|| poller.take_over(now_ms)) {
        None | Some(0) => {}
        Some(count) => {
            log::info!("{count} {} were interrupted by the last stop and will be retried", P::ROWS);
        }
    }
}
