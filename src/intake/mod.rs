//! What came in: bytes from the network become one committed job and one answer.
//!
//! A delivery is bounded by [`front`], routed and answered by [`deliveries`], and stored by [`receive`]; [`proxy`] asks
//! the application before it answers. Nothing of an unverified request reaches a transaction.

pub mod front;
pub mod deliveries;
pub mod receive;
pub mod refused;
pub mod proxy;
