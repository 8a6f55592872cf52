//! Acts over many rows, on a thread of their own: in small transactions, with a progress that can be looked at.
//!
//! One runs at a time. It ends early where the daemon stops; what was committed until then stays, and the audit trail
//! counts exactly that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::clock;
use crate::wake::lock;

/// Jobs that are remembered.
const KEPT: usize = 20;

/// One act over many rows.
#[derive(Debug)]
pub struct Job {
    /// Counted from 1 since the start.
    pub number: u64,
    /// What it does, in words.
    pub what: String,
    /// Who began it.
    pub actor: String,
    /// When, in milliseconds since the epoch.
    pub began_at_ms: i64,
    /// Rows that it was to look at, as they were counted; that may have stopped at a limit.
    pub rows: i64,
    progress: Mutex<Progress>,
}

/// How far a job is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows that were looked at.
    pub looked_at: i64,
    /// Rows that were changed.
    pub changed: i64,
    /// What became of them, in sentences.
    pub became: Vec<String>,
    /// When it ended, and why it ended early if it did.
    pub end: Option<(i64, Option<String>)>,
}

impl Job {
    /// How far it is.
    pub fn progress(&self) -> Progress {
        lock(&self.progress).clone()
    }

    /// Tells how far it is.
    pub fn tell(&self, looked_at: i64, changed: i64, became: Vec<String>) {
        let mut progress = lock(&self.progress);
        progress.looked_at = looked_at;
        progress.changed = changed;
        progress.became = became;
    }
}

/// The latest jobs.
#[derive(Debug, Default)]
pub struct Jobs {
    all: Mutex<VecDeque<Arc<Job>>>,
}

impl Jobs {
    /// The latest first.
    pub fn all(&self) -> Vec<Arc<Job>> {
        lock(&self.all).iter().rev().map(Arc::clone).collect()
    }

    /// One of them.
    pub fn find(&self, number: i64) -> Option<Arc<Job>> {
        self.all().into_iter().find(|job| i64::try_from(job.number) == Ok(number))
    }

    /// Begins a job. `work` says why it ended early, if it did.
    ///
    /// # Errors
    /// In one sentence: another one runs, or no thread can be started.
    pub fn begin(
        &self,
        what: String,
        actor: &str,
        rows: i64,
        work: impl FnOnce(&Job) -> Result<(), String> + Send + 'static,
    ) -> Result<Arc<Job>, String> {
        let mut all = lock(&self.all);
        if let Some(running) = all.iter().find(|job| job.progress().end.is_none()) {
            return Err(format!("job {} is still running; wait for its end", running.number));
        }
        let job = Arc::new(Job {
            number: all.back().map_or(1, |job| job.number + 1),
            what,
            actor: actor.to_owned(),
            began_at_ms: clock::now_ms(),
            rows,
            progress: Mutex::default(),
        });
        let running = Arc::clone(&job);
        let run = move || {
            // a panic must not leave a job that runs for ever
            let work = std::panic::AssertUnwindSafe(|| work(&running));
            let ended =
                std::panic::catch_unwind(work).unwrap_or_else(|_| Err("it panicked: a bug".to_owned()));
            lock(&running.progress).end = Some((clock::now_ms(), ended.err()));
        };
        thread::Builder::new()
            .name("job".to_owned())
            .spawn(run)
            .map_err(|error| format!("no thread can be started for it: {error}"))?;
        all.push_back(Arc::clone(&job));
        while all.len() > KEPT {
            all.pop_front();
        }
        Ok(job)
    }
}
