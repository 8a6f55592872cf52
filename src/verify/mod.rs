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

pub use event::{Authentic, VerifiedEvent};
pub use explain::{explain, hint};
pub use report::{Report, report, report_of};
pub use verifier::{Reread, Verified, Verifier};
