//! The writer: the one thread that owns the one write connection, and group commit.
//!
//! It takes what is queued (no artificial wait), runs each job in a savepoint of its own inside one
//! `BEGIN IMMEDIATE`, commits once, and only then releases the answers: one fsync serves many
//! requests, and a lone request waits for nobody. A second thread sends the answers of a large batch,
//! so that the next one runs meanwhile. It never answers before COMMIT returned, never goes on in a
//! transaction that SQLite has ended, and never writes again after an I/O error.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, Transaction};

use crate::failpoint;
use crate::store::open;
use crate::wake::lock;

mod files;
mod health;
mod holder;

pub use health::Health;

use files::{Files, Loss};
use holder::{Holder, WriteLock};

/// Jobs committed together at most.
const BATCH_JOBS_MAX: usize = 64;

/// Jobs waiting at most; more are refused at once.
const QUEUE_JOBS_MAX: usize = 1024;

/// A job that could not start for this long is refused: its sender has given up or soon will.
pub const START_WAIT_MAX: Duration = Duration::from_secs(5);

/// After so long a batch is committed as far as it got; what is left of it is the next.
const BATCH_TIME_MAX: Duration = Duration::from_millis(250);

/// Where this process holds the write lock by mistake, nobody will let go of it.
const OWN_LOCK_TIME_MAX: Duration = Duration::from_secs(5);

/// A fault of the storage that is neither a held lock nor a full disk is ours if it lasts: a start may cure it.
const FAULT_TIME_MAX: Duration = Duration::from_secs(60);

/// How often it is said who holds the lock.
const BLOCKED_TOLD_EVERY: Duration = Duration::from_secs(60);

/// Answers from which on they are worth waking another thread: the writer goes on with the next batch.
const HANDED_OVER_MIN: usize = 4;

/// How often an idle writer looks at the disk and the log.
const IDLE_TICK: Duration = Duration::from_millis(500);

/// How long one reading of the free space is believed.
const DISK_READING_AGE_MAX: Duration = Duration::from_millis(250);

/// Frames in the log from which they are moved into the database file, a little at a time.
const PASSIVE_CHECKPOINT_FRAMES: u64 = 1_000;

/// Size of the log from which it is cut, waiting shortly for readers.
const TRUNCATE_CHECKPOINT_BYTES: u64 = 32 << 20;

/// How long a truncating checkpoint waits for readers.
const TRUNCATE_WAIT_MAX: Duration = Duration::from_millis(50);

/// Between two truncating checkpoints: one that readers keep from finishing makes everybody wait.
const TRUNCATE_PAUSE: Duration = Duration::from_secs(1);

/// How often a start that is kept waiting says so.
const WAIT_TOLD_EVERY: Duration = Duration::from_secs(5);

/// Between two attempts to get ready.
const RECOVERY_PAUSE: Duration = Duration::from_millis(100);

/// Virtual machine steps of SQLite between two looks at the time limit.
const PROGRESS_STEPS: i32 = 1_000;

/// Why a job did not do its work. Its writes are undone; others in its batch are not touched.
#[derive(Debug)]
pub enum JobError {
    /// A statement failed.
    Sql(rusqlite::Error),
    /// Anything else, in one sentence.
    Failed(String),
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sql(error) if self.is_timeout() => {
                write!(f, "ran longer than limits.handler_timeout and was interrupted ({error})")
            }
            Self::Sql(error) => write!(f, "{error}"),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

impl JobError {
    /// Whether the job ran longer than it may.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Sql(error) if is_interrupted(error))
    }
}

impl std::error::Error for JobError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Sql(error) => Some(error),
            Self::Failed(_) => None,
        }
    }
}

impl From<rusqlite::Error> for JobError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Why nothing was committed for a job.
#[derive(Debug)]
pub enum WriteError {
    /// The job's own failure.
    Job(JobError),
    /// The store cannot take it now; the same job may succeed later.
    Unavailable(String),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(error) => write!(f, "{error}"),
            Self::Unavailable(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Job(error) => Some(error),
            Self::Unavailable(_) => None,
        }
    }
}

/// What is written where a job failed, in the commit that undid its work.
pub type Note = Box<dyn FnMut(&Transaction<'_>, &JobError) -> rusqlite::Result<()> + Send>;

/// What the writer needs to know beside its connection.
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

/// The queue's end that everybody else holds. Cloned freely; the writer ends when all are dropped.
#[derive(Debug, Clone)]
pub struct WriterHandle {
    queue: SyncSender<Queued>,
    health: Arc<Health>,
}

impl WriterHandle {
    /// Queues a job without waiting. `work` runs in the writer's transaction, possibly more than once,
    /// and must have no effect outside it; `settle` is told the result after COMMIT, exactly once.
    pub fn submit<T, W, S>(&self, work: W, settle: S)
    where
        T: Send + 'static,
        W: FnMut(&Transaction<'_>) -> Result<T, JobError> + Send + 'static,
        S: FnOnce(Result<T, WriteError>) + Send + 'static,
    {
        let job = TypedJob { work, note: None, settle: Some(settle), value: None };
        self.queue_job(Box::new(job), START_WAIT_MAX);
    }

    /// As [`WriterHandle::submit`]; where the job fails by its own fault, `note` writes that down in the commit that
    /// undoes its work (or in one of its own, where the whole transaction was lost). It may run more than once.
    ///
    /// Refused where it cannot start within `start_within`.
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

    /// Has the writer do nothing, in a transaction, even while it accepts no events: `came_round` is
    /// called when it has. Not called at all where the queue is full or the writer is gone.
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
        let (answer, wait) = mpsc::sync_channel(1);
        self.submit(work, move |result| {
            // the receiver waits below; it cannot be gone
            drop(answer.send(result));
        });
        wait.recv().unwrap_or_else(|_| Err(WriteError::Unavailable("the writer ended".to_owned())))
    }

    /// Queues jobs one behind the other and waits for all their results, in the order of the jobs. They may share
    /// a commit; each stands or falls by itself.
    pub fn run_all<T, W>(&self, jobs: Vec<W>) -> Vec<Result<T, WriteError>>
    where
        T: Send + 'static,
        W: FnMut(&Transaction<'_>) -> Result<T, JobError> + Send + 'static,
    {
        let wait_for = |job| {
            let (answer, wait) = mpsc::sync_channel(1);
            // the receiver waits below; it cannot be gone
            self.submit(job, move |result| drop(answer.send(result)));
            wait
        };
        let waits: Vec<_> = jobs.into_iter().map(wait_for).collect();
        let ended = |_| Err(WriteError::Unavailable("the writer ended".to_owned()));
        waits.into_iter().map(|wait| wait.recv().unwrap_or_else(ended)).collect()
    }

    /// The writer's state of health.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }
}

fn refuse(job: Box<dyn Job>, reason: &str) {
    job.settle(Err(WriteError::Unavailable(reason.to_owned())));
}

/// A job with its result type hidden, so that one queue carries all kinds.
trait Job: Send {
    /// Runs the work and keeps its value for `settle`.
    fn run(&mut self, tx: &Transaction<'_>) -> Result<(), JobError>;
    /// Whether [`Job::note`] writes anything.
    fn has_note(&self) -> bool;
    /// Writes down that the work failed.
    fn note(&mut self, tx: &Transaction<'_>, error: &JobError) -> rusqlite::Result<()>;
    /// Tells the result. Consumes the job: nobody is told twice.
    fn settle(self: Box<Self>, outcome: Result<(), WriteError>);
}

/// Settled exactly once: a job that is dropped on the way (the writer ended) is told so.
struct TypedJob<T, W, S>
where
    S: FnOnce(Result<T, WriteError>),
{
    work: W,
    note: Option<Note>,
    settle: Option<S>,
    value: Option<T>,
}

impl<T, W, S> Drop for TypedJob<T, W, S>
where
    S: FnOnce(Result<T, WriteError>),
{
    fn drop(&mut self) {
        if let Some(settle) = self.settle.take() {
            settle(Err(WriteError::Unavailable("the writer ended".to_owned())));
        }
    }
}

impl<T, W, S> Job for TypedJob<T, W, S>
where
    T: Send,
    W: FnMut(&Transaction<'_>) -> Result<T, JobError> + Send,
    S: FnOnce(Result<T, WriteError>) + Send,
{
    fn run(&mut self, tx: &Transaction<'_>) -> Result<(), JobError> {
        self.value = None;
        self.value = Some((self.work)(tx)?);
        Ok(())
    }

    fn has_note(&self) -> bool {
        self.note.is_some()
    }

    fn note(&mut self, tx: &Transaction<'_>, error: &JobError) -> rusqlite::Result<()> {
        self.note.as_mut().map_or(Ok(()), |note| note(tx, error))
    }

    fn settle(mut self: Box<Self>, outcome: Result<(), WriteError>) {
        let (Some(settle), value) = (self.settle.take(), self.value.take()) else {
            return;
        };
        settle(
            outcome.and_then(|()| {
                value.ok_or_else(|| WriteError::Unavailable("the job did not run".to_owned()))
            }),
        );
    }
}

/// Does nothing. Unlike the others it is not told when it is dropped on the way.
struct ProbeJob<F>(F);

impl<F: FnOnce() + Send> Job for ProbeJob<F> {
    fn run(&mut self, _tx: &Transaction<'_>) -> Result<(), JobError> {
        Ok(())
    }

    fn has_note(&self) -> bool {
        false
    }

    fn note(&mut self, _tx: &Transaction<'_>, _error: &JobError) -> rusqlite::Result<()> {
        Ok(())
    }

    fn settle(self: Box<Self>, _outcome: Result<(), WriteError>) {
        (self.0)();
    }
}

/// A job of which is known what became of it.
struct Settled {
    job: Box<dyn Job>,
    verdict: Result<(), WriteError>,
}

impl Settled {
    /// Telling one must not keep the others from being told.
    fn tell(self) {
        let Self { job, verdict } = self;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job.settle(verdict))) {
            log::error!("an answer panicked: {}", panic_text(&*panic));
        }
    }
}

/// Where the second thread takes the answers from.
type Answers = Sender<Vec<Settled>>;

struct Queued {
    job: Box<dyn Job>,
    start_by: Instant,
}

impl fmt::Debug for Queued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queued").finish_non_exhaustive()
    }
}

/// The writer thread's state. [`Writer::run`] is its life.
#[derive(Debug)]
pub struct Writer {
    conn: Connection,
    queue: Receiver<Queued>,
    /// Taken from the queue, in its order: before the store is ready, while another process holds the lock, and what
    /// is left of a batch.
    waiting: VecDeque<Queued>,
    write_lock: WriteLock,
    blocked: Option<Blocked>,
    /// Since when nothing could be stored for a reason that is neither a held lock nor a full disk.
    faulty_since: Option<Instant>,
    settings: Settings,
    health: Arc<Health>,
    guard: Arc<Guard>,
    disk_read_at: Option<Instant>,
    /// A part of the log is left over from a checkpoint that somebody, or a full disk, kept from finishing.
    checkpoint_is_due: bool,
    next_truncate: Instant,
    log_told_bytes: u64,
    files: Files,
    /// What became of a file, once that was noticed.
    loss: Option<Loss>,
}

/// What SQLite's hooks and the writer share.
#[derive(Debug, Default)]
struct Guard {
    /// Only the writer's own COMMIT may commit; any other is turned into a roll-back.
    may_commit: AtomicBool,
    /// Transactions ended by a roll-back, whoever asked for it.
    rollbacks: AtomicU64,
    /// Frames in the log after the latest commit.
    wal_frames: AtomicU64,
    /// The same of the commit that is being made; 0 where it wrote none.
    committed_frames: AtomicU64,
    /// When the running job must end.
    job_end: Mutex<Option<Instant>>,
}

impl Guard {
    fn set_job_end(&self, end: Option<Instant>) {
        *lock(&self.job_end) = end;
    }

    /// The only COMMIT that may.
    fn commit(&self, tx: Transaction<'_>) -> rusqlite::Result<()> {
        self.may_commit.store(true, Ordering::Release);
        let committed = tx.commit();
        self.may_commit.store(false, Ordering::Release);
        committed
    }

    fn job_is_late(&self) -> bool {
        lock(&self.job_end).is_some_and(|end| Instant::now() >= end)
    }
}

/// A transaction of which nothing was stored (after a failed COMMIT: perhaps something).
struct Lost {
    at: Stage,
    error: JobError,
}

impl Lost {
    /// Whether another process holds the lock.
    fn is_held_elsewhere(&self) -> bool {
        self.at == Stage::Begin && matches!(&self.error, JobError::Sql(error) if open::is_busy_error(error))
    }

    /// Whether the next job would fare no better: the lock is held, or the storage failed.
    fn hinders_all(&self) -> bool {
        self.at == Stage::Begin || is_fatal(&self.error)
    }
}

/// Where a transaction was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Job(usize),
    Commit,
}

/// The write lock is held, and not by a transaction of ours.
#[derive(Debug)]
struct Blocked {
    since: Instant,
    /// Since when no other process has held it.
    own_since: Option<Instant>,
    told_at: Option<Instant>,
}

impl Blocked {
    fn now() -> Self {
        Self { since: Instant::now(), own_since: None, told_at: None }
    }
}

impl Writer {
    /// Takes over an opened connection (see [`open::open_writer`]).
    ///
    /// # Errors
    /// When SQLite refuses a hook.
    pub fn new(mut conn: Connection, settings: Settings) -> rusqlite::Result<(Self, WriterHandle)> {
        let guard = Arc::new(Guard::default());
        install_hooks(&mut conn, &guard)?;
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
            health: Arc::clone(&health),
            guard,
            disk_read_at: None,
            checkpoint_is_due: false,
            next_truncate: Instant::now(),
            log_told_bytes: TRUNCATE_CHECKPOINT_BYTES,
        };
        Ok((writer, WriterHandle { queue: sender, health }))
    }

    /// Works until every handle is dropped, then checkpoints and returns `Ok`. An error means that the
    /// storage failed: what is on the disk is unknown, and the process must end and start again.
    ///
    /// # Errors
    /// The I/O error that ended it; whoever still waits is answered 'unavailable'.
    pub fn run(mut self) -> rusqlite::Result<()> {
        let (answers, settled) = mpsc::channel::<Vec<Settled>>();
        thread::scope(move |scope| {
            let second = thread::Builder::new().name("answers".to_owned());
            let tell_all = move || settled.into_iter().flatten().for_each(Settled::tell);
            if let Err(error) = second.spawn_scoped(scope, tell_all) {
                log::warn!("cannot start the thread answers: {error}; the writer answers by itself");
            }
            let ended =
                self.recover().and_then(|is_ready| if is_ready { self.work(&answers) } else { Ok(()) });
            if ended.is_err() {
                self.health.failed.store(true, Ordering::Release);
                self.leave_files();
            }
            drop(answers); // the second thread ends when it has told everybody
            ended
        })
    }

    /// After a failed fsync the log may hold frames that never reached the disk; moved into the database file
    /// and cut, they cannot hide what is appended behind them. Nothing is accepted before that. `false`: it was
    /// told to end before.
    fn recover(&mut self) -> rusqlite::Result<bool> {
        failpoint::reach("recovery_before");
        // a short look each time, so that what the start waits for is told at once and a stop is noticed
        self.conn.busy_timeout(open::START_BUSY_TIMEOUT)?;
        let mut told_at: Option<Instant> = None;
        loop {
            let obstacle = match open::checkpoint(&self.conn, "TRUNCATE") {
                Ok(done) if !done.busy => break,
                Ok(_) => "another process holds the database (a shell with an open transaction?)".to_owned(),
                Err(error) if open::is_fatal_error(&error) => return Err(error),
                Err(error) => error.to_string(),
            };
            if told_at.is_none_or(|at| at.elapsed() >= WAIT_TOLD_EVERY) {
                told_at = Some(Instant::now());
                log::warn!(
                    "{}: {obstacle}; answering 503 until that is over",
                    self.settings.database.display()
                );
            }
            match self.queue.recv_timeout(RECOVERY_PAUSE) {
                Ok(queued) => self.waiting.push_back(queued),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
            }
            self.refuse_late("the store is not ready yet");
        }
        failpoint::reach("recovery_after");
        self.files.note_wal();
        self.files.note_database();
        open::wait_briefly_for_locks(&mut self.conn)?;
        self.health.recovering.store(false, Ordering::Release);
        Ok(true)
    }

    fn work(&mut self, answers: &Answers) -> rusqlite::Result<()> {
        let mut is_open = true;
        while is_open || !self.waiting.is_empty() {
            self.read_disk();
            if self.waiting.is_empty() {
                match self.queue.recv_timeout(IDLE_TICK) {
                    Ok(first) => self.waiting.push_back(first),
                    Err(RecvTimeoutError::Timeout) => self.look_around()?,
                    Err(RecvTimeoutError::Disconnected) => is_open = false,
                }
            }
            self.take_turn(answers)?;
            self.checkpoint()?;
        }
        match open::checkpoint(&self.conn, "TRUNCATE") {
            Ok(done) if !done.busy => {}
            Ok(_) => log::info!("another process reads the database: its WAL is left for the next start"),
            Err(error) if open::is_fatal_error(&error) => return Err(error),
            Err(error) => log::warn!("the WAL is left for the next start: {error}"),
        }
        Ok(())
    }

    /// Commits what waits, as far as one batch goes.
    fn take_turn(&mut self, answers: &Answers) -> rusqlite::Result<()> {
        // while the lock is held all are looked at, to be refused in time
        let count = if self.blocked.is_some() { QUEUE_JOBS_MAX } else { self.settings.batch_jobs_max };
        while !self.waiting.is_empty()
            && self.waiting.len() < count
            && let Ok(queued) = self.queue.try_recv()
        {
            self.waiting.push_back(queued);
        }
        self.refuse_late("waited too long for the store");
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.look_for_files()?;
        let count = self.waiting.len().min(self.settings.batch_jobs_max);
        let batch = self.waiting.drain(..count).collect();
        self.process(batch, answers)
    }

    fn look_for_files(&mut self) -> rusqlite::Result<()> {
        match self.files.look() {
            Ok(()) => Ok(()),
            Err(Loss::DatabaseCut) if self.is_whole() => Ok(()),
            Err(loss) => Err(self.lose(loss)),
        }
    }

    /// Whether a database file that became shorter still has all its pages: an application may vacuum its own file.
    fn is_whole(&mut self) -> bool {
        let page_bytes = self.files.page_bytes();
        let pages = self.conn.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0));
        let length = self.files.note_database();
        let is_there =
            |pages: i64| u64::try_from(pages).is_ok_and(|pages| pages.saturating_mul(page_bytes) <= length);
        length > 0 && pages.is_ok_and(is_there)
    }

    /// With nothing to do: whether the next delivery would be stored.
    fn look_around(&mut self) -> rusqlite::Result<()> {
        self.look_for_files()?;
        if self.health.is_troubled() {
            return self.try_again();
        }
        match self.write_lock.holder() {
            Holder::Other(holder) => self.tell_blocked(holder),
            Holder::NoOther | Holder::Unknown => self.unblocked(),
        }
        Ok(())
    }

    /// Stores a trifle, so that trouble which is over is not believed in until the next delivery.
    fn try_again(&mut self) -> rusqlite::Result<()> {
        let tried = open::begin_immediate(&self.conn).and_then(|tx| {
            open::note_probe(&tx)?;
            self.guard.commit(tx)
        });
        match tried {
            Ok(()) => {
                self.unblocked();
                self.note_outcome(None)
            }
            Err(error) if open::is_busy_error(&error) => self.wait_for_lock(Vec::new()),
            Err(error) if open::is_fatal_error(&error) => Err(error),
            Err(error) => {
                let reason = self.classify(JobError::Sql(error)).to_string();
                self.note_outcome(Some(&reason))
            }
        }
    }

    /// Jobs whose senders have given up, or soon will.
    fn refuse_late(&mut self, reason: &str) {
        let now = Instant::now();
        if !self.waiting.iter().any(|queued| queued.start_by < now) {
            return;
        }
        let all = std::mem::take(&mut self.waiting);
        let (late, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|queued| queued.start_by < now);
        self.waiting = rest.into();
        let blocked =
            self.blocked.as_ref().map(|_| format!("{} holds the database's write lock", self.holder()));
        if let Some(reason) = &blocked {
            self.health.set_trouble(Some(reason));
        }
        for queued in late {
            refuse(queued.job, blocked.as_deref().unwrap_or(reason));
        }
    }

    fn holder(&self) -> String {
        match self.write_lock.holder() {
            Holder::Other(holder) => holder,
            Holder::NoOther | Holder::Unknown => "another process".to_owned(),
        }
    }

    /// Another process holds the write lock: the batch waits for its turn, and is looked at meanwhile.
    fn wait_for_lock(&mut self, batch: Vec<Queued>) -> rusqlite::Result<()> {
        for queued in batch.into_iter().rev() {
            self.waiting.push_front(queued);
        }
        if self.health.is_hurried() {
            for queued in self.waiting.drain(..) {
                refuse(queued.job, "shutting down");
            }
        }
        match self.write_lock.holder() {
            Holder::NoOther => {
                let blocked = self.blocked.get_or_insert_with(Blocked::now);
                let own_since = *blocked.own_since.get_or_insert_with(Instant::now);
                if own_since.elapsed() >= OWN_LOCK_TIME_MAX {
                    let reason =
                        "the write lock of the database is held by this process itself: an unlock failed";
                    return Err(open::io_failure(reason.to_owned()));
                }
                self.health.set_blocked(Some((blocked.since, "this process".to_owned())));
            }
            Holder::Other(holder) => self.tell_blocked(holder),
            Holder::Unknown => self.tell_blocked("another process".to_owned()),
        }
        Ok(())
    }

    fn tell_blocked(&mut self, holder: String) {
        let blocked = self.blocked.get_or_insert_with(Blocked::now);
        blocked.own_since = None;
        if blocked.since.elapsed() >= Duration::from_secs(2)
            && blocked.told_at.is_none_or(|at| at.elapsed() >= BLOCKED_TOLD_EVERY)
        {
            blocked.told_at = Some(Instant::now());
            log::warn!(
                "{holder} has held the database's write lock for {} s: deliveries are answered 503 until it lets go",
                blocked.since.elapsed().as_secs()
            );
        }
        self.health.set_blocked(Some((blocked.since, holder)));
    }

    fn unblocked(&mut self) {
        let Some(blocked) = self.blocked.take() else { return };
        self.health.set_blocked(None);
        if blocked.told_at.is_some() {
            log::info!(
                "the database's write lock is free again after {} s",
                blocked.since.elapsed().as_secs()
            );
        }
    }

    /// What the last thing that was to be stored came to. An error means that only a start may help.
    fn note_outcome(&mut self, refused: Option<&str>) -> rusqlite::Result<()> {
        self.health.set_trouble(refused);
        let Some(reason) = refused.filter(|_| !self.health.is_disk_low()) else {
            self.faulty_since = None;
            return Ok(());
        };
        if self.faulty_since.get_or_insert_with(Instant::now).elapsed() < FAULT_TIME_MAX {
            return Ok(());
        }
        Err(open::io_failure(format!("nothing could be stored for {} s: {reason}", FAULT_TIME_MAX.as_secs())))
    }

    /// Commits a batch, then has each job answered. An error is the storage's: nothing is written after it.
    fn process(&mut self, mut batch: Vec<Queued>, answers: &Answers) -> rusqlite::Result<()> {
        let mut fatal = None;
        let verdicts = match self.commit_together(&mut batch) {
            Ok(verdicts) => verdicts,
            Err(lost) if lost.is_held_elsewhere() => return self.wait_for_lock(batch),
            Err(lost) => self.commit_singly(&mut batch, lost, &mut fatal),
        };
        self.unblocked();
        for queued in batch.split_off(verdicts.len()).into_iter().rev() {
            self.waiting.push_front(queued);
        }
        let refused = verdicts.iter().find_map(|verdict| match verdict {
            Err(WriteError::Unavailable(reason)) => Some(reason.clone()),
            _ => None,
        });
        // a transaction that wrote nothing says nothing of the room there is
        let is_telling =
            !self.health.is_disk_low() || self.guard.committed_frames.load(Ordering::Relaxed) > 0;
        let noted =
            if refused.is_some() || is_telling { self.note_outcome(refused.as_deref()) } else { Ok(()) };
        if fatal.is_some() {
            self.health.failed.store(true, Ordering::Release);
        }
        let settled =
            batch.into_iter().zip(verdicts).map(|(queued, verdict)| Settled { job: queued.job, verdict });
        if settled.len() < HANDED_OVER_MIN {
            settled.for_each(Settled::tell);
        } else if let Err(mpsc::SendError(settled)) = answers.send(settled.collect()) {
            settled.into_iter().for_each(Settled::tell);
        }
        fatal.map_or(noted, Err)
    }

    /// One transaction over all jobs, each in a savepoint: a job's own failure undoes that job alone.
    ///
    /// After [`BATCH_TIME_MAX`] it commits what it has run: there are fewer verdicts than jobs then.
    fn commit_together(&mut self, jobs: &mut [Queued]) -> Result<Vec<Result<(), WriteError>>, Lost> {
        let lost = |at: Stage| move |error: rusqlite::Error| Lost { at, error: JobError::Sql(error) };
        let tx = open::begin_immediate(&self.conn).map_err(lost(Stage::Begin))?;
        let begun_after = self.guard.rollbacks.load(Ordering::Acquire);
        let begun = Instant::now();
        let mut verdicts = Vec::with_capacity(jobs.len());
        for (index, queued) in jobs.iter_mut().enumerate() {
            if index > 0 && begun.elapsed() >= BATCH_TIME_MAX {
                break;
            }
            let result = self.run_in_savepoint(&tx, queued.job.as_mut());
            let ended = tx.is_autocommit() || self.guard.rollbacks.load(Ordering::Acquire) != begun_after;
            match result {
                Ok(()) if !ended => verdicts.push(Ok(())),
                Err(error) if !ended && !is_fatal(&error) => verdicts.push(Err(self.classify(error))),
                result => {
                    let error = result.err().unwrap_or_else(|| {
                        JobError::Failed("the handler ended the transaction it was given".to_owned())
                    });
                    return Err(Lost { at: Stage::Job(index), error });
                }
            }
        }
        failpoint::reach("commit_before");
        self.guard.committed_frames.store(0, Ordering::Relaxed);
        self.guard.commit(tx).map_err(lost(Stage::Commit))?;
        failpoint::reach("commit_after");
        let frames = self.guard.committed_frames.load(Ordering::Relaxed);
        if frames > 0
            && let Err(loss) = self.files.look_after_commit(frames)
        {
            return Err(lost(Stage::Commit)(self.lose(loss)));
        }
        self.health.commits.fetch_add(1, Ordering::Relaxed);
        self.health.jobs.fetch_add(verdicts.len() as u64, Ordering::Relaxed);
        Ok(verdicts)
    }

    fn run_in_savepoint(&self, tx: &Transaction<'_>, job: &mut dyn Job) -> Result<(), JobError> {
        tx.prepare_cached("SAVEPOINT job")?.execute([])?;
        self.guard.set_job_end(Some(Instant::now() + self.settings.job_time_max));
        let result = catch_unwind(AssertUnwindSafe(|| job.run(tx)))
            .unwrap_or_else(|panic| Err(JobError::Failed(format!("panicked: {}", panic_text(&*panic)))));
        self.guard.set_job_end(None);
        if tx.is_autocommit() {
            return result;
        }
        if let Err(error) = &result {
            tx.prepare_cached("ROLLBACK TO job")?.execute([])?;
            self.note_in(tx, job, error)?;
        }
        tx.prepare_cached("RELEASE job")?.execute([])?;
        result
    }

    /// That the job failed, in the transaction that undoes its work. An error is the storage's.
    fn note_in(&self, tx: &Transaction<'_>, job: &mut dyn Job, error: &JobError) -> rusqlite::Result<()> {
        if !job.has_note() || is_storage(error) {
            return Ok(());
        }
        match job.note(tx, error) {
            Err(error) if open::is_storage_error(&error) || tx.is_autocommit() => Err(error),
            Err(error) => {
                log::warn!("that a delivery failed could not be noted: {error}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// After a lost transaction: that the job failed, in a transaction of its own. An error is the storage's.
    fn note_failure(&self, job: &mut dyn Job, error: &JobError) -> rusqlite::Result<()> {
        if !job.has_note() || is_storage(error) {
            return Ok(());
        }
        let noted = open::begin_immediate(&self.conn).and_then(|tx| {
            job.note(&tx, error)?;
            self.guard.commit(tx)
        });
        match noted {
            Err(error) if open::is_fatal_error(&error) => Err(error),
            Err(error) => {
                log::warn!("that a delivery failed could not be noted: {error}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// After a lost transaction: each job in one of its own, so that only the guilty one fails.
    fn commit_singly(
        &mut self,
        jobs: &mut [Queued],
        lost: Lost,
        fatal: &mut Option<rusqlite::Error>,
    ) -> Vec<Result<(), WriteError>> {
        let count = jobs.len();
        log::debug!("a batch of {count} was rolled back: {}", lost.error);
        if lost.hinders_all() {
            return self.refuse_all(count, lost.error, fatal);
        }
        if let [queued] = jobs {
            *fatal = self.note_failure(queued.job.as_mut(), &lost.error).err();
            return vec![Err(self.classify(lost.error))];
        }
        // a full disk may be the whole batch's doing: then the job at hand gets a try of its own as well
        let mut known = Some(lost).filter(|lost| !is_storage(&lost.error));
        let mut verdicts = Vec::with_capacity(count);
        for (index, queued) in jobs.iter_mut().enumerate() {
            let outcome = match known.take_if(|lost| lost.at == Stage::Job(index)) {
                Some(lost) => Err(lost),
                None => self.commit_together(std::slice::from_mut(queued)),
            };
            match outcome {
                Ok(verdict) => verdicts.extend(verdict),
                Err(lost) if lost.hinders_all() => {
                    verdicts.extend(self.refuse_all(count - index, lost.error, fatal));
                    break;
                }
                Err(lost) => {
                    let noted = self.note_failure(queued.job.as_mut(), &lost.error);
                    verdicts.push(Err(self.classify(lost.error)));
                    if let Err(error) = noted {
                        verdicts.extend(self.refuse_all(count - index - 1, JobError::Sql(error), fatal));
                        break;
                    }
                }
            }
        }
        verdicts
    }

    fn refuse_all(
        &self,
        count: usize,
        error: JobError,
        fatal: &mut Option<rusqlite::Error>,
    ) -> Vec<Result<(), WriteError>> {
        let reason = self.classify_storage(&error);
        if let JobError::Sql(error) = error
            && open::is_fatal_error(&error)
        {
            *fatal = Some(error);
        }
        let refusal = || Err(WriteError::Unavailable(reason.clone()));
        std::iter::repeat_with(refusal).take(count).collect()
    }

    fn classify(&self, error: JobError) -> WriteError {
        if is_storage(&error) {
            WriteError::Unavailable(self.classify_storage(&error))
        } else {
            WriteError::Job(error)
        }
    }

    fn classify_storage(&self, error: &JobError) -> String {
        let code = match error {
            JobError::Sql(error) => error.sqlite_error_code(),
            JobError::Failed(_) => None,
        };
        self.health.disk_full.store(code == Some(ErrorCode::DiskFull), Ordering::Release);
        error.to_string()
    }

    /// Moves the log into the database file between batches. On this connection alone, and looked at:
    /// SQLite's automatic checkpoint would swallow its errors, and a second thread's never resets the log.
    fn checkpoint(&mut self) -> rusqlite::Result<()> {
        let frames = self.guard.wal_frames.load(Ordering::Relaxed);
        if frames < PASSIVE_CHECKPOINT_FRAMES && !self.checkpoint_is_due {
            return Ok(());
        }
        failpoint::reach("checkpoint_before");
        let now = Instant::now();
        let log_bytes = bytes_of(self.files.wal());
        let done = if log_bytes >= TRUNCATE_CHECKPOINT_BYTES && now >= self.next_truncate {
            self.next_truncate = now + TRUNCATE_PAUSE;
            self.conn.busy_timeout(TRUNCATE_WAIT_MAX)?;
            let done = open::checkpoint(&self.conn, "TRUNCATE");
            open::wait_briefly_for_locks(&mut self.conn)?;
            done
        } else if frames >= PASSIVE_CHECKPOINT_FRAMES || log_bytes < TRUNCATE_CHECKPOINT_BYTES {
            open::checkpoint(&self.conn, "PASSIVE")
        } else {
            return Ok(());
        };
        failpoint::reach("checkpoint_after");
        self.files.note_database();
        match done {
            Ok(done) => {
                self.checkpoint_is_due = done.busy || done.moved_frames < done.log_frames;
            }
            Err(error) if open::is_fatal_error(&error) => return Err(error),
            Err(error) => {
                self.checkpoint_is_due = true;
                if !open::is_busy_error(&error) {
                    log::debug!("the log could not be moved into the database file: {error}");
                }
            }
        }
        // what readers hold is tried again when as much has been added, or when the writer has nothing to do
        self.guard.wal_frames.store(0, Ordering::Relaxed);
        self.tell_about_the_log(log_bytes);
        Ok(())
    }

    /// Once when the log is too long, and again whenever it has doubled.
    fn tell_about_the_log(&mut self, log_bytes: u64) {
        if !self.checkpoint_is_due {
            self.log_told_bytes = TRUNCATE_CHECKPOINT_BYTES;
        } else if log_bytes >= self.log_told_bytes {
            self.log_told_bytes = log_bytes.saturating_mul(2);
            log::warn!(
                "the database's log has grown to {} MiB (its -wal file) and cannot be cut: another process reads the \
                 database, or the disk is full; a replication tool such as Litestream reads on purpose and lets go \
                 again, any other long read must end, or the log fills the disk",
                log_bytes >> 20
            );
        }
    }

    /// Nothing is committed any more to files of which one is gone.
    fn lose(&mut self, loss: Loss) -> rusqlite::Error {
        self.health.failed.store(true, Ordering::Release);
        self.loss = Some(loss);
        open::io_failure(self.files.in_words(loss))
    }

    /// After a failure the files are left as they are for the next start, which looks at them first. All that was
    /// in a deleted WAL is still known here, and goes into the database file before this process ends.
    fn leave_files(&mut self) {
        if let Err(error) = open::leave_wal(&self.conn) {
            log::warn!("the WAL cannot be left as it is: {error}");
        }
        if self.loss != Some(Loss::Wal) {
            return;
        }
        match open::checkpoint(&self.conn, "FULL") {
            Ok(done) if !done.busy && done.moved_frames == done.log_frames => {
                log::warn!("all that the deleted WAL held was moved into the database file: nothing is lost");
            }
            Ok(_) => {
                log::error!("another process reads the database: a part of what the deleted WAL held is lost")
            }
            Err(error) => {
                log::error!("what the deleted WAL held could not be moved into the database file: {error}")
            }
        }
    }

    /// Below the floor nothing is accepted: once the log has eaten the disk, nothing can be deleted either.
    fn read_disk(&mut self) {
        let now = Instant::now();
        if self.disk_read_at.is_some_and(|at| now - at < DISK_READING_AGE_MAX) {
            return;
        }
        self.disk_read_at = Some(now);
        // a relative path of one part has the empty path as its parent
        let dir = self.files.wal().parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        // what is in the log needs room in the database file as well
        let floor = match self.settings.disk_free_min {
            0 => 0,
            floor => floor.saturating_add(bytes_of(self.files.wal())),
        };
        let is_low = match rustix::fs::statvfs(dir) {
            Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize) < floor,
            Err(error) => {
                log::warn!("cannot read the free space of {}: {error}", dir.display());
                false
            }
        };
        if is_low != self.health.disk_low.swap(is_low, Ordering::AcqRel) {
            if is_low {
                log::error!(
                    "less than limits.disk_free_min ({} bytes) is free on {}: answering 503 until there is room",
                    self.settings.disk_free_min,
                    dir.display()
                );
            } else {
                log::info!("there is room on {} again: accepting", dir.display());
            }
        }
    }
}

fn install_hooks(conn: &mut Connection, guard: &Arc<Guard>) -> rusqlite::Result<()> {
    let shared = Arc::clone(guard);
    conn.progress_handler(PROGRESS_STEPS, Some(move || shared.job_is_late()))?;
    // a statement after an unnoticed roll-back would commit by itself; this makes that impossible
    let shared = Arc::clone(guard);
    conn.commit_hook(Some(move || !shared.may_commit.load(Ordering::Acquire)))?;
    let shared = Arc::clone(guard);
    conn.rollback_hook(Some(move || {
        shared.rollbacks.fetch_add(1, Ordering::AcqRel);
    }))?;
    let shared = Arc::clone(guard);
    conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, frames: std::ffi::c_int| {
        let frames = u64::try_from(frames).unwrap_or(0);
        shared.wal_frames.store(frames, Ordering::Relaxed);
        shared.committed_frames.store(frames, Ordering::Relaxed);
        Ok(())
    }))
}

fn is_storage(error: &JobError) -> bool {
    matches!(error, JobError::Sql(error) if open::is_storage_error(error))
}

fn is_fatal(error: &JobError) -> bool {
    matches!(error, JobError::Sql(error) if open::is_fatal_error(error))
}

fn is_interrupted(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted)
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}

fn bytes_of(path: &std::path::Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}
