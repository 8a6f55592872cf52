//! Verification: `(raw bytes, headers, secrets, now) → VerifiedEvent | Rejection`, and nothing else.
//!
//! Pure: no clock, no database, no configuration file. [`VerifiedEvent`] has private fields and one constructor, which
//! only this room can call, so that unverified data cannot reach a transaction.

mod report;
mod explain;
mod cause;
mod rewritten;
mod verifier;
mod event;

pub use event::VerifiedEvent;
#[cfg(feature = "internals")]
pub use explain::explain;
pub use explain::hint;
#[cfg(feature = "internals")]
pub use report::report;
pub use report::{Report, report_of};
pub use verifier::{Verified, Verifier};
