//! inboxd: webhooks in, exactly one business effect out.
#![forbid(unsafe_code)]

pub mod verify;
pub mod writer;
pub mod db;
pub mod clock;
