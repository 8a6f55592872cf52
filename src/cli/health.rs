//! `health`: asks the running daemon whether it is ready, with an exit code for a container's health check.

use crate::config::Instance;
use crate::daemon::{self, Report};
use clap::Args;
use serde_json::{Value, json};

use super::{Context, Exit, Failure, put};

/// Ask the running daemon whether it is ready: exit 0 or 8
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Print one JSON object: running, ready, reasons, pid, started_at_ms
    #[arg(long)]
    pub(crate) json: bool,
}

/// Exit 0 for ready, 8 for everything else.
pub(crate) fn run(args: &HealthArgs, context: &Context) -> Result<(), Failure> {
    let instance = Instance::load(context.config_file())?;
    let asked = Asked::of(&instance);
    if args.json {
        put(&format!("{}\n", asked.to_json()))?;
    } else if asked.is_ready() {
        put("ready\n")?;
    }
    if asked.is_ready() {
        return Ok(());
    }
    let message = if args.json { String::new() } else { asked.reasons().join("; ") };
    Err(Failure::new(Exit::Unhealthy, message))
}

/// What came of asking the daemon.
#[derive(Debug)]
pub(crate) enum Asked {
    /// It answered.
    Runs(Report),
    /// There is none.
    NoDaemon,
    /// There may be one, which says nothing to this user.
    Unknown(String),
}

impl Asked {
    pub(crate) fn of(instance: &Instance) -> Self {
        match daemon::ask(&instance.data_dir) {
            Ok(Some(report)) => Self::Runs(report),
            Ok(None) => Self::NoDaemon,
            Err(error) => Self::Unknown(format!("the daemon cannot be asked: {error}")),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self, Self::Runs(Report { ready: true, .. }))
    }

    /// Why it is not ready, each reason in one sentence.
    pub(crate) fn reasons(&self) -> Vec<String> {
        match self {
            Self::Runs(report) => {
                report.reasons.iter().map(|reason| format!("not ready: {reason}")).collect()
            }
            Self::NoDaemon => vec!["no daemon is running: inboxd serve".to_owned()],
            Self::Unknown(reason) => vec![reason.clone()],
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let report = match self {
            Self::Runs(report) => Some(report),
            Self::NoDaemon | Self::Unknown(_) => None,
        };
        json!({
            "running": match self { Self::Runs(_) => Some(true), Self::NoDaemon => Some(false), Self::Unknown(_) => None },
            "ready": self.is_ready(),
            "reasons": match self { Self::Runs(report) => report.reasons.clone(), _ => self.reasons() },
            "pid": report.map(|report| report.pid),
            "started_at_ms": report.map(|report| report.started_at_ms),
        })
    }
}
