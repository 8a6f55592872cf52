//! `alert test`: tries out how people are told.

use inboxd::alerts;
use inboxd::config::MissingSecrets;

use super::args::AlertVerb;
use super::{Context, Exit, Failure, put};

/// Sends one message the way `[alert]` says.
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
    alerts::send(&alert.via, "this is a test; nothing is wrong")
        .map_err(|error| Failure::new(Exit::Failed, "the message could not be sent").because(error))?;
    put("sent; look whether it arrived\n")
}
