//! `completions`: a completion script on stdout.

use crate::config::Instance;
use clap::{Args, Command, CommandFactory};

use super::args::{Cli, Names};
use super::{Context, Failure, put};

/// Print shell completions
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Exit 0. The script knows the providers, and the endpoints and destinations of the current configuration.
pub(crate) fn run(args: &CompletionsArgs, context: &Context) -> Result<(), Failure> {
    let mut script = Vec::new();
    let mut command = Cli::command();
    // without a readable configuration there are no names to offer
    if let Ok(instance) = Instance::load(context.config_file()) {
        command = with_names(command, &instance);
    }
    // into memory first, because the generator panics if its output cannot be written
    clap_complete::generate(args.shell, &mut command, "inboxd", &mut script);
    put(&String::from_utf8_lossy(&script))
}

/// Leaks the names: they last as long as the process, which ends at once.
fn names(names: &[String]) -> Names {
    Names(names.iter().map(|name| &*name.clone().leak()).collect())
}

fn with_names(command: Command, instance: &Instance) -> Command {
    // `init --endpoint` names one that does not exist yet
    let is_init = command.get_name() == "init";
    let command = command.mut_args(|arg| match arg.get_id().as_str() {
        "endpoint" if !is_init => arg.value_parser(names(&instance.endpoints)).hide_possible_values(true),
        "destination" => arg.value_parser(names(&instance.destinations)).hide_possible_values(true),
        _ => arg,
    });
    command.mut_subcommands(|command| with_names(command, instance))
}
