//! inboxd: webhooks in, exactly one business effect out.
#![forbid(unsafe_code)]

pub mod config;
pub mod daemon;
pub mod front;
pub mod http;
pub mod verify;
pub mod refused;
pub mod receive;
pub mod proxy;
pub mod writer;
pub mod handlers;
pub mod worker;
pub mod dispatcher;
pub mod retention;
pub mod timeline;
pub mod inbox;
pub mod ledger;
pub mod invoices;
pub mod orders;
pub mod outbox;
pub mod reviews;
pub mod bookkeeping;
pub mod alerts;
pub mod outgoing;
pub mod db;
mod encode;
pub mod stretch;
pub mod logging;
pub mod printable;
pub mod clock;
pub mod held;
pub mod sync;
pub mod retry;
mod failpoint;

/// For programs with handlers of their own: their transaction is of this version's type.
pub use rusqlite;
/// As above, for the body of an event.
pub use serde_json;
