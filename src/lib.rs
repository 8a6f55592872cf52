//! inboxd: webhooks in, exactly one business effect out.
#![forbid(unsafe_code)]

pub mod cli;
pub mod daemon;
pub mod background;
pub mod intake;
pub mod work;
pub mod handlers;
pub mod books;
pub mod config;
pub mod store;
pub mod verify;
pub mod outgoing;
pub mod logging;
pub mod clock;
mod encode;
pub mod wake;
pub mod terminal;
mod failpoint;

/// For programs with handlers of their own: their transaction is of this version's type.
pub use rusqlite;
/// As above, for the body of an event.
pub use serde_json;
