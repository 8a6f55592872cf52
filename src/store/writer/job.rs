//! Jobs: the work that the writer runs, and the way of the result to the sender.
//!
//! A job runs in the writer's transaction, perhaps more than once; it has no effect outside of it.
//! It is settled exactly once, after COMMIT, even if the writer ends before it ran.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use rusqlite::Transaction;

use crate::store::open;

/// Why a job failed. Its writes are undone; others in its batch are not touched.
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
        matches!(self, Self::Sql(error) if open::is_interrupted_error(error))
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

/// The note about a failed job, written in the commit that undid its work.
pub type Note = Box<dyn FnMut(&Transaction<'_>, &JobError) -> rusqlite::Result<()> + Send>;

pub(super) fn refuse(job: Box<dyn Job>, reason: &str) {
    job.settle(Err(WriteError::Unavailable(reason.to_owned())));
}

/// A job with its result type hidden, so that one queue carries all kinds.
pub(super) trait Job: Send {
    /// Runs the work and keeps its value for `settle`.
    fn run(&mut self, tx: &Transaction<'_>) -> Result<(), JobError>;
    /// Whether [`Job::note`] writes anything.
    fn has_note(&self) -> bool;
    /// Writes the note about the failure.
    fn note(&mut self, tx: &Transaction<'_>, error: &JobError) -> rusqlite::Result<()>;
    /// Passes on the result. Consumes the job, so that it happens once.
    fn settle(self: Box<Self>, outcome: Result<(), WriteError>);
}

/// Settled exactly once: a job that is dropped (the writer ended) is settled as unavailable.
pub(super) struct TypedJob<T, W, S>
where
    S: FnOnce(Result<T, WriteError>),
{
    pub(super) work: W,
    pub(super) note: Option<Note>,
    pub(super) settle: Option<S>,
    pub(super) value: Option<T>,
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

/// An empty job. Unlike the others it is not settled when it is dropped.
pub(super) struct ProbeJob<F>(pub(super) F);

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

/// A job and its result.
pub(super) struct Settled {
    pub(super) job: Box<dyn Job>,
    pub(super) verdict: Result<(), WriteError>,
}

impl Settled {
    /// Catches a panic, so that the other jobs are settled as well.
    pub(super) fn tell(self) {
        let Self { job, verdict } = self;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job.settle(verdict))) {
            log::error!("an answer panicked: {}", panic_text(&*panic));
        }
    }
}

/// A job in the queue, and the time by which it must start.
pub(super) struct Queued {
    pub(super) job: Box<dyn Job>,
    pub(super) start_by: Instant,
}

impl fmt::Debug for Queued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queued").finish_non_exhaustive()
    }
}

pub(super) fn is_storage(error: &JobError) -> bool {
    matches!(error, JobError::Sql(error) if open::is_storage_error(error))
}

pub(super) fn is_fatal(error: &JobError) -> bool {
    matches!(error, JobError::Sql(error) if open::is_fatal_error(error))
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}
