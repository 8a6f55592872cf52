//! The writer's thread: ready after one checkpoint, then turn by turn, and a last checkpoint at the end.
//!
//! Each turn takes the waiting jobs, commits them and sends their answers. An idle writer checks the disk, the files
//! and the lock, so that readiness is true without a delivery.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::failpoint;
use crate::store::open;

use super::holder::Holder;
use super::job::{JobError, Queued, Settled, WriteError, refuse};
use super::{QUEUE_JOBS_MAX, Writer};

/// How long a storage error may last that is neither a held lock nor a full disk. Then the process ends, because a
/// start may cure it.
const FAULT_TIME_MAX: Duration = Duration::from_secs(60);

/// From this many answers on, another thread sends them so that the writer can start the next batch.
const HANDED_OVER_MIN: usize = 4;

/// The pause between two checks of the disk and the WAL by an idle writer.
const IDLE_TICK: Duration = Duration::from_millis(500);

/// How often a blocked start logs that it waits.
const WAIT_TOLD_EVERY: Duration = Duration::from_secs(5);

/// The pause between two attempts to get ready.
const RECOVERY_PAUSE: Duration = Duration::from_millis(100);

/// The queue of the thread that sends answers.
type Answers = Sender<Vec<Settled>>;

impl Writer {
    /// Works until every handle is dropped, then checkpoints and returns `Ok`. An error means that the
    /// storage failed: the disk's content is unknown, and the process must end and start again.
    ///
    /// # Errors
    /// The I/O error that ended it; all waiting jobs are settled as unavailable.
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

    /// After a failed fsync the WAL may have frames that never reached the disk. Once the WAL is moved into the
    /// database file and cut, such frames cannot hide later ones. Nothing is accepted before that. `false`: the
    /// process was told to end first.
    fn recover(&mut self) -> rusqlite::Result<bool> {
        failpoint::reach("recovery_before");
        // a short timeout each time, so that the wait is logged at once and a stop is noticed
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
            // a stop waits for its notes one after the other: at 5 s each it took longer than service managers wait
            if self.health.is_hurried() {
                let waiting = std::mem::take(&mut self.waiting);
                waiting.into_iter().for_each(|queued| refuse(queued.job, "the process is ending"));
            }
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

    /// Commits the waiting jobs, up to one batch.
    fn take_turn(&mut self, answers: &Answers) -> rusqlite::Result<()> {
        // while the lock is held, all waiting jobs are checked, so that late ones are refused in time
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

    /// An idle turn: finds out whether the next delivery would be stored.
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

    /// Stores a value without a meaning, so that readiness returns without a delivery once the trouble is over.
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

    /// Refuses jobs whose senders have given up, or soon will.
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

    /// Notes the result of the last write. An error means that only a start may help.
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

    /// Commits a batch, then settles each job. An error is the storage's: nothing is written after it.
    fn process(&mut self, mut batch: Vec<Queued>, answers: &Answers) -> rusqlite::Result<()> {
        let mut fatal = None;
        let verdicts = match self.commit_batch(&mut batch) {
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
        // a transaction that wrote nothing proves nothing about free space
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
}
