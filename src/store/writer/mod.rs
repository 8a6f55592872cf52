//! The writer: the one thread that owns the one write connection, and group commit.
//!
//! It takes the queued jobs (no artificial wait), runs them inside one `BEGIN IMMEDIATE`, commits once, and only then
//! sends the answers: one fsync serves many requests, and a lone request waits for no other. A second thread sends the
//! answers of a large batch, so that the next one runs meanwhile. The writer never answers before COMMIT returned,
//! never goes on in a transaction that SQLite has ended, and never writes again after an I/O error.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction};

use crate::store::open;

mod job;
mod pending;
mod thread;
mod commit;
mod guard;
mod checkpoint;
mod disk;
mod files;
mod blocked;
mod holder;
mod health;

pub use health::Health;
pub(crate) use job::panic_text;
pub use job::{JobError, Note, WriteError};
pub use pending::Pending;

use blocked::Blocked;
use checkpoint::TRUNCATE_CHECKPOINT_BYTES;
use files::{Files, Loss};
use guard::Guard;
use holder::WriteLock;
use job::{Job, ProbeJob, Queued, TypedJob, refuse};

/// The most jobs of one commit.
const BATCH_JOBS_MAX: usize = 64;

/// The most waiting jobs; more are refused at once.
const QUEUE_JOBS_MAX: usize = 1024;

/// A job that could not start for this long is refused: its sender has given up or soon will.
pub const START_WAIT_MAX: Duration = Duration::from_secs(5);

/// The writer's settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long one job may run statements.
    pub job_time_max: Duration,
    /// Free space below which nothing is accepted, in bytes.
    pub disk_free_min: u64,
    /// The database file.
    pub database: PathBuf,
    /// How many jobs share one commit; 1 switches group commit off (for comparison).
    pub batch_jobs_max: usize,
}

impl Settings {
    /// The usual settings for a database file.
    pub fn new(database: PathBuf, job_time_max: Duration, disk_free_min: u64) -> Self {
        Self { job_time_max, disk_free_min, database, batch_jobs_max: BATCH_JOBS_MAX }
    }
}

/// The sending end of the queue. Cloned freely; the writer ends when all are dropped.
#[derive(Debug, Clone)]
pub struct WriterHandle {
    queue: SyncSender<Queued>,
    health: Arc<Health>,
}

impl WriterHandle {
    /// Queues a job without waiting. `work` runs in the writer's transaction, possibly more than once,
    /// and must have no effect outside it; `settle` gets the result after COMMIT, exactly once.
    pub fn submit<T, W, S>(&self, work: W, settle: S)
    where
        T: Send + 'static,
        W: FnMut(&Transaction<'_>) -> Result<T, JobError> + Send + 'static,
        S: FnOnce(Result<T, WriteError>) + Send + 'static,
    {
        let job = TypedJob { work, note: None, settle: Some(settle), value: None };
        self.queue_job(Box::new(job), START_WAIT_MAX);
    }

    /// As [`WriterHandle::submit`]; if the job fails by its own fault, `note` records the failure in the commit that
    /// undoes the work (or in a commit of its own, if the whole transaction was lost). It may run more than once.
    ///
    /// Refused if it cannot start within `start_within`.
    pub fn submit_noting<T, W, S>(&self, start_within: Duration, work: W, note: Note, settle: S)
    where
        T: Send + 'static,
        W: FnMut(&Transaction<'_>) -> Result<T, JobError> + Send + 'static,
        S: FnOnce(Result<T, WriteError>) + Send + 'static,
    {
        let job = TypedJob { work, note: Some(note), settle: Some(settle), value: None };
        self.queue_job(Box::new(job), start_within);
    }

    fn queue_job(&self, job: Box<dyn Job>, start_within: Duration) {
        if let Some(reason) = self.health.refusal() {
            return refuse(job, reason);
        }
        let queued = Queued { job, start_by: Instant::now() + start_within };
        match self.queue.try_send(queued) {
            Ok(()) => {}
            Err(TrySendError::Full(queued)) => refuse(queued.job, "too many events wait for the store"),
            Err(TrySendError::Disconnected(queued)) => refuse(queued.job, "shutting down"),
        }
    }

    /// Runs an empty job through queue and transaction, even while storage is refused, then calls `came_round`. It is
    /// not called if the queue is full or the writer is gone.
    pub fn probe(&self, came_round: impl FnOnce() + Send + 'static) {
        let job = Box::new(ProbeJob(came_round));
        drop(self.queue.try_send(Queued { job, start_by: Instant::now() + START_WAIT_MAX }));
    }

    /// Queues a job and waits for its result. For threads that serve no request.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn run<T, W>(&self, work: W) -> Result<T, WriteError>
    where
        T: Send + 'static,
        W: FnMut(&Transaction<'_>) -> Result<T, JobError> + Send + 'static,
    {
        let (settle, pending) = Pending::new();
        self.submit(work, settle);
        pending.wait()
    }

    /// Queues jobs one after the other and waits for all results, in the order of the jobs. They may share a commit;
    /// each succeeds or fails by itself.
    pub fn run_all<T, W>(&self, jobs: Vec<W>) -> Vec<Result<T, WriteError>>
    where
        T: Send + 'static,
        W: FnMut(&Transaction<'_>) -> Result<T, JobError> + Send + 'static,
    {
        let queue = |job| {
            let (settle, pending) = Pending::new();
            self.submit(job, settle);
            pending
        };
        let all: Vec<_> = jobs.into_iter().map(queue).collect();
        all.into_iter().map(Pending::wait).collect()
    }

    /// The writer's state of health.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }
}

/// The writer thread's state. [`Writer::run`] is its life.
#[derive(Debug)]
pub struct Writer {
    conn: Connection,
    queue: Receiver<Queued>,
    /// Jobs taken from the queue, in its order: before the store is ready, while another process holds the lock, and
    /// the rest of a batch.
    waiting: VecDeque<Queued>,
    write_lock: WriteLock,
    blocked: Option<Blocked>,
    /// Since when nothing could be stored for a reason that is neither a held lock nor a full disk.
    faulty_since: Option<Instant>,
    settings: Settings,
    /// How many of the next batches run with savepoints.
    savepoint_batches: u32,
    health: Arc<Health>,
    guard: Arc<Guard>,
    disk_read_at: Option<Instant>,
    /// A part of the WAL is left over from a checkpoint that a reader, or a full disk, kept from finishing.
    checkpoint_is_due: bool,
    next_truncate: Instant,
    log_told_bytes: u64,
    files: Files,
    /// What happened to a file, once it was noticed.
    loss: Option<Loss>,
}

impl Writer {
    /// Takes over an opened connection (see [`open::open_writer`]).
    ///
    /// # Errors
    /// When SQLite refuses a hook.
    pub fn new(mut conn: Connection, settings: Settings) -> rusqlite::Result<(Self, WriterHandle)> {
        let guard = Arc::new(Guard::default());
        guard::install_hooks(&mut conn, &guard)?;
        let page_bytes = conn.pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0))?.into();
        let (sender, queue) = mpsc::sync_channel(QUEUE_JOBS_MAX);
        let health = Arc::new(Health::new());
        let writer = Self {
            conn,
            queue,
            waiting: VecDeque::new(),
            write_lock: WriteLock::of(&open::sibling(&settings.database, "-shm")),
            blocked: None,
            faulty_since: None,
            files: Files::of(&settings.database, page_bytes),
            loss: None,
            settings,
            savepoint_batches: 0,
            health: Arc::clone(&health),
            guard,
            disk_read_at: None,
            checkpoint_is_due: false,
            next_truncate: Instant::now(),
            log_told_bytes: TRUNCATE_CHECKPOINT_BYTES,
        };
        Ok((writer, WriterHandle { queue: sender, health }))
    }
}
