//! `alert`: tests the alert channel.

use crate::background::alerts::{self, Sent};
use crate::config::MissingSecrets;
use crate::terminal::printable;
use clap::Subcommand;

use super::{Context, Exit, Failure, put};

/// Test the alert channel
#[derive(Debug, Subcommand)]
pub(crate) enum AlertVerb {
    /// Send a test message as [alert] says
    Test,
}

/// Sends one message as `[alert]` says.
pub(crate) fn run(verb: &AlertVerb, context: &Context) -> Result<(), Failure> {
    match verb {
        AlertVerb::Test => {}
    }
    let Some(alert) = context.load(MissingSecrets::ReadNone)?.alert else {
        return Err(Failure::new(
            Exit::Config,
            "there is no [alert] in the configuration; write url or command there",
        ));
    };
    let sent = alerts::send(&alert.via, "this is a test; nothing is wrong")
        .map_err(|error| Failure::new(Exit::Failed, "the message could not be sent").because(error))?;
    let Sent { to, message, answer } = &sent;
    let [to, message, answer] = [to, message, answer].map(|text| printable(text));
    put(&format!("sent to  {to}\nmessage  {message}\nanswer   {answer}\ncheck that it arrived\n"))
}
