//! inboxd: webhooks in, exactly one business effect out.
#![forbid(unsafe_code)]

pub mod db;
pub mod clock;
