//! What is done with one event, the same for sync, async and proxy mode.

use crate::handlers::HandlerError;
use crate::store::writer::JobError;

pub mod endpoint;
pub mod screen;
pub mod forward;
pub mod parking;
pub mod target;
pub mod timeline;
pub mod held;
pub mod retry;

/// A handler's failure as the job's.
pub fn failure(error: HandlerError) -> JobError {
    match error {
        HandlerError::Sql(error) => JobError::Sql(error),
        HandlerError::Failed(reason) => JobError::Failed(reason),
    }
}
