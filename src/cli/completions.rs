//! `completions`: a completion script on stdout.

use clap::CommandFactory;

use super::args::{Cli, CompletionsArgs};
use super::{Failure, put};

/// Exit 0.
pub(crate) fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    // into memory first: the generator panics where its output cannot be written
    clap_complete::generate(args.shell, &mut Cli::command(), "inboxd", &mut script);
    put(&String::from_utf8_lossy(&script))
}
