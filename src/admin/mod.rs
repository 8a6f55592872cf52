//! Operating: what a person sees of a running instance, and what they do about it.
//!
//! Pages and figures only read, by readers whose time is limited and that hold no transaction while an answer is on its
//! way. Acts are the same functions for the page and the command line; each leaves a row in the audit trail.

pub mod acts;
pub mod retry;
pub mod people;
