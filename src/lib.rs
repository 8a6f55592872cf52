//! inboxd: webhooks in, exactly one business effect out.
#![forbid(unsafe_code)]

pub mod config;
pub mod daemon;
pub mod front;
pub mod http;
pub mod verify;
pub mod receive;
pub mod writer;
pub mod handlers;
pub mod inbox;
pub mod ledger;
pub mod invoices;
pub mod outbox;
pub mod reviews;
pub mod db;
pub mod clock;
mod failpoint;
