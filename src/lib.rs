//! inboxd receives webhooks and turns each business fact into exactly one business effect: it verifies the signature,
//! commits the inbox record **and** the business update in one SQLite transaction, and only then answers 2xx.
//!
//! As a program, `inboxd` needs no Rust: its handlers are the built-in ones and plain SQL files. As a library it takes
//! handlers written in Rust. A [`Handler`](handlers::Handler) sees one verified event and the open transaction of that
//! event; what it writes is committed together with the inbox record, or not at all:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use inboxd::handlers::{Event, Handled, Handler, HandlerError, Registry};
//! use inboxd::rusqlite::Transaction;
//!
//! /// Grants each credit once, however often and in whatever order the events about it arrive.
//! struct Credits;
//!
//! impl Handler for Credits {
//!     fn name(&self) -> &str {
//!         "credits" // handlers = ["credits"] in the configuration
//!     }
//!
//!     fn takes(&self, event_type: &str) -> bool {
//!         event_type == "credit.granted"
//!     }
//!
//!     fn start(&self, tx: &Transaction<'_>) -> Result<(), HandlerError> {
//!         let table = "CREATE TABLE IF NOT EXISTS credits (id TEXT PRIMARY KEY, cents INTEGER NOT NULL) STRICT";
//!         Ok(tx.execute_batch(table)?)
//!     }
//!
//!     fn handle(&self, tx: &Transaction<'_>, event: &Event<'_>) -> Result<Handled, HandlerError> {
//!         let (Some(id), Some(cents)) = (event.object_id, event.body["data"]["object"]["cents"].as_i64()) else {
//!             return Ok(Handled::Quarantine("a credit without id or cents".to_owned()));
//!         };
//!         // the credit's own key: two events about one credit are one credit
//!         let grant = "INSERT INTO credits (id, cents) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING";
//!         tx.execute(grant, (id, cents))?;
//!         Ok(Handled::Applied)
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     inboxd::cli::main(Registry::new().with(Credits)) // serve, check, status, retry …: every verb
//! }
//! ```
//!
//! A program that wants to run the daemon beside its own work starts a [`Daemon`](daemon::Daemon) from a
//! [`Config`](config::Config). Everything else of this crate is internal and changes without notice.
#![forbid(unsafe_code)]
// The rooms below are private; `pub` says what a room shows its neighbours.

pub mod cli;
pub mod daemon;
mod background;
mod admin;
mod intake;
mod work;
pub mod handlers;
mod books;
pub mod config;
mod store;
mod verify;
mod providers;
mod signature;
mod outgoing;
mod logging;
mod measure;
mod clock;
mod encode;
mod wake;
mod terminal;
mod failpoint;

/// For handlers: the transaction that they are given is of this version's type.
pub use rusqlite;
/// For handlers: the body that they are given is of this version's type.
pub use serde_json;

/// The rooms, for this package's own tests, benches and fuzz targets.
#[cfg(feature = "internals")]
#[doc(hidden)]
#[allow(missing_docs, reason = "no part of the API")]
pub mod internals {
    pub mod background {
        pub use crate::background::*;
    }
    pub mod books {
        pub use crate::books::*;
    }
    pub mod clock {
        pub use crate::clock::*;
    }
    pub mod config {
        pub use crate::config::check::*;
    }
    pub mod intake {
        pub use crate::intake::*;
    }
    pub mod logging {
        pub use crate::logging::*;
    }
    pub mod outgoing {
        pub use crate::outgoing::*;
    }
    pub mod store {
        pub use crate::store::*;
    }
    pub mod providers {
        pub use crate::providers::*;
    }
    pub mod signature {
        pub use crate::signature::*;
    }
    pub mod verify {
        pub use crate::verify::*;
    }
    pub mod wake {
        pub use crate::wake::*;
    }
    pub mod work {
        pub use crate::work::*;
    }
}
