//! Operating: what a person sees of a running instance, and what they do about it.
//!
//! Pages and figures only read, by readers whose time is limited and that are closed before an answer is written. Acts
//! are the same functions for the page and the command line; each leaves a row in the audit trail. Nothing here is ever
//! reached through the public listener.

pub mod site;
mod pages;
mod running;
mod bulk;
pub mod acts;
pub mod retry;
pub mod filter;
mod jobs;
mod metrics;
mod chart;
mod json;
mod frame;
pub mod login;
mod http;
mod reading;
pub mod people;
