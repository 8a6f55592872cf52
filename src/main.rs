//! The command `inboxd`: arguments in, an exit code out. All else is in [`cli`] and the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

mod cli;

fn main() -> ExitCode {
    // The panic hook has said what happened; a bug gets its own exit code.
    let exit = std::panic::catch_unwind(cli::main).unwrap_or(cli::Exit::Internal);
    inboxd::logging::flush(inboxd::logging::FLUSH_TIME_MAX);
    exit.into()
}
