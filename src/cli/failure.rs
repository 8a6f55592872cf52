//! Exit codes and the error that carries one.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use crate::config::ConfigError;
use crate::store::open::{self, OpenError};

/// How the command ended; the numbers are a contract with scripts and service managers. [`Exit::ALL`] says what
/// each means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok = 0,
    Failed = 1,
    Usage = 2,
    Config = 3,
    NotFound = 4,
    Refused = 5,
    Busy = 6,
    Unverified = 7,
    Unhealthy = 8,
    Internal = 70,
    Temporary = 75,
}

impl Exit {
    /// All of them with their meaning, for the manual.
    pub(crate) const ALL: [(Self, &'static str); 11] = [
        (Self::Ok, "done; also if nothing matched"),
        (Self::Failed, "failed, for a reason without a code of its own"),
        (Self::Usage, "usage: the command line is wrong"),
        (Self::Config, "the configuration cannot be used; a restart does not help"),
        (Self::NotFound, "not found: the event, endpoint or file that was named does not exist"),
        (
            Self::Refused,
            "refused: it needs a flag such as --force or --yes, or the database is not inboxd's, newer or altered",
        ),
        (Self::Busy, "the database or an address is in use, or the daemon cannot be reached"),
        (Self::Unverified, "a signature did not hold, or the data is damaged"),
        (Self::Unhealthy, "unhealthy: it runs, but something is not well"),
        (Self::Internal, "internal error: a bug"),
        (Self::Temporary, "temporary: the storage failed (disk full, I/O error); start it again"),
    ];

    /// The number.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a verb failed.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    /// What failed, on what, and the next step. Empty: end quietly.
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure without a cause below it.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), source: None }
    }

    /// Adds the cause.
    pub(crate) fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// stdout cannot be written. A reader that closes the pipe early (`| head`) is not a failure.
    pub(crate) fn of_stdout(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Exit::Ok, "");
        }
        Self::new(Exit::Failed, "cannot write to stdout").because(error)
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// What to say, one line each: the message with the chain of its causes.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut text = self.message.clone();
        let mut cause = self.source.as_ref().map(|source| source.as_ref() as &dyn Error);
        while let Some(error) = cause {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text.lines().map(str::to_owned).collect()
    }
}

/// The one mapping from storage errors to exit codes, for `serve` and for all reading verbs.
impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let exit = match &error {
            OpenError::Locked(_) | OpenError::InUse(_) => Exit::Busy,
            OpenError::Missing(_) => Exit::NotFound,
            OpenError::Refused { .. } => Exit::Refused,
            OpenError::Damaged { .. } => Exit::Unverified,
            OpenError::Denied(_) => Exit::Failed,
            // a path that cannot exist is a mistake in the configuration; a disk or an owner may be corrected in an
            // hour
            OpenError::Unusable { source, .. } if is_of_the_path(source) => Exit::Config,
            OpenError::Unusable { .. } => Exit::Temporary,
            OpenError::Sql { source, .. } if open::is_busy_error(source) => Exit::Busy,
            OpenError::Io { .. } | OpenError::Sql { .. } | OpenError::Upgrade { .. } => Exit::Temporary,
        };
        Self::new(exit, error.to_string())
    }
}

fn is_of_the_path(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, InvalidFilename, IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), AlreadyExists | InvalidFilename | IsADirectory | NotADirectory | NotFound)
}

/// The error's lines are complete sentences with file and key, so no message precedes them.
impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::Config, "").because(error)
    }
}
