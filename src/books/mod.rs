//! The books and what they are about: the ledger, and the states of invoices and orders.
//!
//! A state moves by the transitions that its module declares, and by nothing else; a booked line is never edited.

pub mod ledger;
pub mod invoices;
pub mod orders;
