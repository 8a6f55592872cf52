//! The books and what they are about: the ledger, the evidence it is made from, and the states of invoices, orders and
//! subscriptions.
//!
//! Evidence is joined ([`facts`]), a pure function per object kind says what the books should hold, and the difference
//! is appended ([`ledger`]). A state moves by the transitions that its module declares, and by nothing else; a booked
//! line is never edited.

pub mod kinds;
pub mod facts;
pub mod ledger;
pub mod invoices;
pub mod receivables;
pub mod charges;
pub mod sales;
pub mod disputes;
pub mod credit_notes;
pub mod payouts;
pub mod described;
pub mod currencies;
pub mod subscriptions;
pub mod orders;
