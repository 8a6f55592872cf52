//! The result of a job that was handed to the writer: a thread waits for it up to a deadline, or to the end.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Instant;

use super::job::WriteError;

/// The result of a job that may not be settled yet.
#[derive(Debug)]
pub struct Pending<T>(Receiver<Result<T, WriteError>>);

impl<T: Send + 'static> Pending<T> {
    /// The function that takes the writer's result, and the end that waits for it.
    pub fn new() -> (impl FnOnce(Result<T, WriteError>) + Send + 'static, Self) {
        let (sender, receiver) = sync_channel(1);
        // the waiting thread may have given up
        let settle = move |result| drop(sender.send(result));
        (settle, Self(receiver))
    }

    /// The result, once the job is settled; itself back where it is not by then.
    pub fn wait_until(self, by: Instant) -> Result<Result<T, WriteError>, Self> {
        match self.0.recv_timeout(by.saturating_duration_since(Instant::now())) {
            Ok(result) => Ok(result),
            Err(RecvTimeoutError::Timeout) => Err(self),
            Err(RecvTimeoutError::Disconnected) => Ok(Err(ended())),
        }
    }

    /// The result, however long it takes: the writer settles every job.
    ///
    /// # Errors
    /// As the job's.
    pub fn wait(self) -> Result<T, WriteError> {
        self.0.recv().unwrap_or_else(|_| Err(ended()))
    }
}

fn ended() -> WriteError {
    WriteError::Unavailable("the writer ended".to_owned())
}
