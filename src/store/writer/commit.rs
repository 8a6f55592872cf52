//! Group commit: `BEGIN IMMEDIATE`, the jobs, one COMMIT; and what is done when that fails.
//!
//! [`Writer::commit_together`] is the only place that commits events. It never goes on in a transaction that SQLite
//! has ended: after every job it asks whether the transaction still stands. Jobs run without savepoints until one of
//! them fails; that batch is rolled back and run again with a savepoint per job, and so are the next batches.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rusqlite::{ErrorCode, Transaction};

use crate::failpoint;
use crate::measure;
use crate::store::open;

use super::Writer;
use super::job::{Job, JobError, Queued, WriteError, is_fatal, is_storage, panic_text};

/// After so long a batch is committed as far as it got; what is left of it is the next.
const BATCH_TIME_MAX: Duration = Duration::from_millis(250);

/// Batches that run with savepoints after a job failed. Savepoints cost about a twentieth of an event's processor
/// time, so they are left out while all succeeds; but where an application fails for every tenth event, running most
/// batches twice would cost far more.
const SAVEPOINT_BATCHES: u32 = 64;

impl Writer {
    /// Commits the jobs as one batch. Where a job fails that has others beside it, all are run again with savepoints.
    pub(super) fn commit_batch(&mut self, jobs: &mut [Queued]) -> Result<Vec<Result<(), WriteError>>, Lost> {
        match self.commit_together(jobs) {
            Err(lost) if lost.at == Stage::Unsheltered && jobs.len() > 1 => {
                log::debug!("a batch of {} runs again with savepoints: {}", jobs.len(), lost.error);
                self.savepoint_batches = SAVEPOINT_BATCHES;
                self.commit_together(jobs)
            }
            outcome => outcome,
        }
    }

    /// One transaction over all jobs. With savepoints, a job's own failure undoes that job alone; without, it undoes
    /// the whole batch.
    ///
    /// After [`BATCH_TIME_MAX`] it commits what it has run: there are fewer verdicts than jobs then.
    fn commit_together(&mut self, jobs: &mut [Queued]) -> Result<Vec<Result<(), WriteError>>, Lost> {
        let lost = |at: Stage| move |error: rusqlite::Error| Lost { at, error: JobError::Sql(error) };
        let tx = open::begin_immediate(&self.conn).map_err(lost(Stage::Begin))?;
        let begun_after = self.guard.rollbacks.load(Ordering::Acquire);
        let begun = Instant::now();
        let with_savepoints = self.savepoint_batches > 0;
        let mut verdicts = Vec::with_capacity(jobs.len());
        for (index, queued) in jobs.iter_mut().enumerate() {
            if index > 0 && begun.elapsed() >= BATCH_TIME_MAX {
                break;
            }
            let job = queued.job.as_mut();
            let result =
                if with_savepoints { self.run_in_savepoint(&tx, job) } else { self.run_timed(&tx, job) };
            let ended = tx.is_autocommit() || self.guard.rollbacks.load(Ordering::Acquire) != begun_after;
            match result {
                Ok(()) if !ended => verdicts.push(Ok(())),
                Err(error) if !ended && !is_fatal(&error) => {
                    if !with_savepoints {
                        return Err(Lost { at: Stage::Unsheltered, error });
                    }
                    self.savepoint_batches = SAVEPOINT_BATCHES;
                    verdicts.push(Err(self.classify(error)));
                }
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
        let committing = Instant::now();
        self.guard.commit(tx).map_err(lost(Stage::Commit))?;
        measure::COMMITS.record_time(committing.elapsed());
        measure::BATCHES.record(verdicts.len() as u64);
        failpoint::reach("commit_after");
        self.savepoint_batches = self.savepoint_batches.saturating_sub(1);
        let frames = self.guard.committed_frames.load(Ordering::Relaxed);
        if frames > 0
            && let Err(loss) = self.files.look_after_commit(frames)
        {
            return Err(lost(Stage::Commit)(self.lose(loss)));
        }
        Ok(verdicts)
    }

    /// Runs a job within its time. A panic is its failure.
    fn run_timed(&self, tx: &Transaction<'_>, job: &mut dyn Job) -> Result<(), JobError> {
        self.guard.set_job_end(Some(Instant::now() + self.settings.job_time_max));
        let result = catch_unwind(AssertUnwindSafe(|| job.run(tx)))
            .unwrap_or_else(|panic| Err(JobError::Failed(format!("panicked: {}", panic_text(&*panic)))));
        self.guard.set_job_end(None);
        result
    }

    fn run_in_savepoint(&self, tx: &Transaction<'_>, job: &mut dyn Job) -> Result<(), JobError> {
        tx.prepare_cached("SAVEPOINT job")?.execute([])?;
        let result = self.run_timed(tx, job);
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
    pub(super) fn commit_singly(
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

    pub(super) fn classify(&self, error: JobError) -> WriteError {
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
}

/// A transaction of which nothing was stored (after a failed COMMIT: perhaps something).
pub(super) struct Lost {
    at: Stage,
    error: JobError,
}

impl Lost {
    /// Whether another process holds the lock.
    pub(super) fn is_held_elsewhere(&self) -> bool {
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
    /// SQLite ended it during the job of this index.
    Job(usize),
    /// A job failed, and the batch had no savepoints to undo that job alone.
    Unsheltered,
    Commit,
}
