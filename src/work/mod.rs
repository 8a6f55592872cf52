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

/// What the work on one event came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Worked {
    /// Its effects stand.
    Done,
    /// Nobody's business here.
    Ignored,
    /// A person has to look at it, for this reason.
    Quarantined(Kind, String),
    /// Something it needs is not there yet.
    Parked {
        /// A thing with its name, such as `order o_1`.
        waits_for: String,
        /// When it is looked at again, in milliseconds since the epoch.
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

    /// Why a person has to look at it, where one has.
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
