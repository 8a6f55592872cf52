//! `admin`: how a person gets to the pages of the private listener.

use crate::config::Instance;
use crate::daemon::control::{self, Ask, NoAnswer};
use clap::{Args, Subcommand};

use super::{Context, Exit, Failure, put, say};

/// Get to the pages of the private listener
#[derive(Debug, Subcommand)]
pub(crate) enum AdminVerb {
    /// Print a link that opens them once, within 30 minutes
    Link(AdminLinkArgs),
}

/// `admin link`
#[derive(Debug, Args)]
pub(crate) struct AdminLinkArgs {}

/// `link`
pub(crate) fn run(verb: &AdminVerb, context: &Context) -> Result<(), Failure> {
    let AdminVerb::Link(AdminLinkArgs {}) = verb;
    let instance = Instance::load(context.config_file())?;
    let uid = rustix::process::getuid().as_raw();
    let answer =
        control::ask(&instance.data_dir, Ask::AdminLink { uid }).map_err(|error| failed(error, &instance))?;
    let url = answer.first().and_then(|line| line["url"].as_str()).unwrap_or_default();
    if let Some(socket) = answer.first().and_then(|line| line["socket"].as_str()) {
        say(&format!(
            "the private listener is the socket {socket}: from another machine, `ssh -L 8788:{socket} HOST` brings it to \
             http://localhost:8788/, where no link is needed"
        ));
    }
    say("it opens the page once, within 30 minutes");
    put(&format!("{url}\n"))
}

fn failed(error: NoAnswer, instance: &Instance) -> Failure {
    match error {
        NoAnswer::NotRunning => Failure::new(
            Exit::Busy,
            format!("no daemon runs in {}; start `inboxd serve`", instance.data_dir.display()),
        ),
        NoAnswer::Off => Failure::new(
            Exit::Refused,
            "there is no private listener: listen.admin is \"off\"; write an address there and start the daemon again",
        ),
        NoAnswer::Missing(why) => Failure::new(Exit::Failed, why),
        NoAnswer::Io(error) => Failure::new(Exit::Busy, "cannot ask the daemon").because(error),
    }
}
