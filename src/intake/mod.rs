//! What came in: bytes from the network become one committed job and one answer.
//!
//! A delivery is bounded by [`front`], routed and answered by [`deliveries`] on the same thread, and stored by
//! [`receive`]; [`proxy`] asks the application before it answers. [`exchange`] is what passes between a front and its
//! service, [`answer`] the table of what is answered. Nothing of an unverified request reaches a transaction.

pub mod front;
pub mod deliveries;
pub mod exchange;
pub mod answer;
pub mod permit;
pub mod receive;
pub mod refused;
pub mod proxy;
