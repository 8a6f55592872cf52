//! The command `inboxd`: the library's command line with the built-in handlers.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use inboxd::handlers::Registry;

fn main() -> ExitCode {
    inboxd::cli::main(Registry::new())
}
