//! What is done with one event, the same for sync, async and proxy mode.

use crate::handlers::HandlerError;
use crate::store::inbox::State;
use crate::store::reviews::Kind;
use crate::store::writer::JobError;

pub mod endpoint;
pub mod content;
pub mod screen;
pub mod apply;
pub mod forward;
pub mod hand_on;
pub mod parking;
pub mod target;
pub mod timeline;
pub mod lease;
pub mod retry;

/// The result of the work on one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Worked {
    /// It was applied.
    Done,
    /// Nothing here handles it.
    Ignored,
    /// A person has to decide, for this reason.
    Quarantined(Kind, String),
    /// Something it needs does not exist yet.
    Parked {
        /// A thing with its name, such as `order o_1`.
        waits_for: String,
        /// When it is tried again, in milliseconds since the epoch.
        next_at_ms: i64,
    },
}

impl Worked {
    /// The state of its row.
    pub fn state(&self) -> State {
        match self {
            Self::Done => State::Done,
            Self::Ignored => State::Ignored,
            Self::Quarantined(..) => State::Quarantined,
            Self::Parked { .. } => State::Pending,
        }
    }

    /// The kind and reason of its review, if any.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Quarantined(_, reason) => Some(reason),
            Self::Done | Self::Ignored | Self::Parked { .. } => None,
        }
    }
}

/// A handler's failure as the job's.
pub fn failure(error: HandlerError) -> JobError {
    match error {
        HandlerError::Sql(error) => JobError::Sql(error),
        HandlerError::Failed(reason) => JobError::Failed(reason),
    }
}
