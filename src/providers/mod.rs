//! The providers inboxd knows, one row each.
//!
//! A row says how the provider signs (in the words of `[endpoint.NAME.scheme]`), where it writes the
//! id, type and scope of an event, how it delivers and what it wants of us. No code is needed to read or
//! add one. `inboxd providers` and the manual print these rows; there is no second copy.

mod provider;
mod table;
mod payments;
mod shops;
mod code;
mod messages;
mod other;
mod standard;
mod preset;
mod handshake;
mod sample;

#[cfg(feature = "internals")]
pub use handshake::Handshake;
pub use handshake::Reply;
pub use preset::{Acceptance, BodyVaries, Preset};
pub use provider::Provider;
pub use table::{all, find};
