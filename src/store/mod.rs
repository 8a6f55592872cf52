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
pub mod page;
pub mod overview;
