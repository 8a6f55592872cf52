//! `health`: asks the running daemon whether it is ready, with an exit code for a container's health check.

use crate::config::Instance;
use crate::daemon;
use crate::store::overview::Liveness;
use clap::Args;

use super::{Context, Exit, Failure, put};

/// Ask the running daemon whether it is ready: exit 0 or 8
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Print one JSON object: running, ready, reasons, pid, started_at_ms
    #[arg(long)]
    pub(crate) json: bool,
}

/// Exit 0 if it is ready, else 8.
pub(crate) fn run(args: &HealthArgs, context: &Context) -> Result<(), Failure> {
    let instance = Instance::load(context.config_file())?;
    let asked = ask(&instance);
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

/// What the daemon of this instance says.
pub(crate) fn ask(instance: &Instance) -> Liveness {
    match daemon::ask(&instance.data_dir) {
        Ok(Some(report)) => Liveness::Runs(report),
        Ok(None) => Liveness::NotRunning,
        Err(error) => Liveness::Unknown(format!("the daemon cannot be asked: {error}")),
    }
}
