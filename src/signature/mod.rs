//! The engine: how a signature is read, what it is over, what it is held against, and what a signed body says.
//!
//! A scheme is data: a checked [`Recipe`], from a preset or from the user. This room knows no provider by name, keeps no
//! state and never decides what becomes of an event; [`crate::providers`] has the rows and [`crate::verify`] puts both to work.

mod sign;
mod identity;
mod read;
mod keys;
mod build;
mod possible;
mod scheme;
mod sources;
mod canonical;
mod batch;
mod envelope;
mod json;
mod projection;
mod form;
mod recipe;
mod time;
mod words;
mod delivery;
mod malformed;
mod secret;

pub use canonical::with_body_hash;
pub use delivery::{Delivery, Headers, Rejection};
pub use envelope::Envelope;
pub use identity::is_test_send;
pub use recipe::{CustomScheme, Recipe};
pub use scheme::Scheme;
pub use secret::Secret;
pub use sign::{Unsigned, sign, with_time_and_signature};
pub use words::SchemeError;

pub(crate) use batch::{Batch, parse_element, split};
pub(crate) use canonical::spellings;
pub(crate) use delivery::rename;
pub(crate) use form::{FORM, form_decoded, form_fields, is_form};
pub(crate) use identity::{EventId, content_defect, identify, told_apart_by};
pub(crate) use json::{Parsed, at, json_text, put};
pub(crate) use malformed::Malformed;
pub(crate) use read::{Presented, time_in_body};
pub(crate) use scheme::{Challenge, Timestamp, TimestampPlace};
pub(crate) use secret::{Algorithm, BadDigest, Encoding, Judge, Key, KeyForm, Keyed, joined};
pub(crate) use sources::{Source, body_key};
pub(crate) use time::{SECONDS_BELOW, TimeUnit};
