//! The database, and the one connection that writes it. With `handlers` and `books` the only room that names SQLite.
//!
//! Writes take the `&Transaction` of the writer and the time of the step; `begin` and `commit` stand in one function
//! body of [`writer`]. Table modules own their tables' SQL and never use each other: `intake`, `work` and
//! `background` join them. Every function may fail with any SQLite error; then nothing was written.

pub mod open;
pub mod writer;
pub mod inbox;
pub mod outbox;
pub mod reviews;
pub mod meta;
pub mod audit;
pub mod minutes;
pub mod page;
pub mod overview;
pub mod query;

/// The version of the SQLite that is built in.
pub use rusqlite::version as sqlite_version;
/// What the other rooms pass on: a connection to read with, a transaction to write in.
pub use rusqlite::{Connection, Transaction};
/// What SQLite says when it cannot.
pub use rusqlite::{Error as SqlError, Result as SqlResult};
