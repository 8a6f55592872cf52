//! Where the subscription cannot tell the books the truth: seen from the types of the events that have come.
//!
//! Only the newest events are looked at. A file that is not there yet, or cannot be read, gives no warning.

use std::time::Duration;

use crate::config::{Config, Endpoint};
use crate::store::inbox::recent;
use crate::store::open;

const READ_TIME_MAX: Duration = Duration::from_secs(2);

/// From this API version on an invoice does not say how it was paid.
const BASIL: &str = "2025-03-31";

/// From this one on every refund has events of its own.
const ACACIA: &str = "2024-10-28";

pub(super) fn warnings(config: &Config) -> Vec<String> {
    let keeps_books = |endpoint: &&Endpoint| {
        endpoint.handlers.iter().any(|handler| matches!(handler.to_string().as_str(), "billing" | "money"))
    };
    let endpoints: Vec<_> = config.endpoints.iter().filter(keeps_books).collect();
    if endpoints.is_empty() {
        return Vec::new();
    }
    let Ok(conn) = open::open_reader(&config.database, READ_TIME_MAX) else { return Vec::new() };
    let of = |endpoint: &Endpoint| {
        let seen = recent::types_of(&conn, &endpoint.name).unwrap_or_default();
        missing(&seen)
            .into_iter()
            .map(|sentence| format!("endpoint.{}: {sentence}", endpoint.name))
            .collect::<Vec<_>>()
    };
    endpoints.into_iter().flat_map(of).collect()
}

/// What the events that came say of those that do not.
fn missing(seen: &[(String, Option<String>)]) -> Vec<&'static str> {
    let version_of = |name: &str| {
        seen.iter().find(|(seen, _)| seen == name).map(|(_, version)| version.as_deref().unwrap_or_default())
    };
    let came = |name: &str| version_of(name).is_some();
    let came_since = |name: &str, version: &str| version_of(name).is_some_and(|seen| seen >= version);
    let mut missing = Vec::new();
    if (came_since("invoice.paid", BASIL) || came_since("invoice.payment_succeeded", BASIL))
        && !came("invoice_payment.paid")
    {
        missing.push(
            "no invoice_payment.paid has come: without it an invoice that was paid outside Stripe is booked as Stripe's cash, and a \
             payment intent of an invoice as a sale; subscribe it",
        );
    }
    if came_since("charge.refunded", ACACIA) && !came("refund.created") && !came("refund.updated") {
        missing.push(
            "no refund.created or refund.updated has come: without them a refund that fails stays booked; subscribe \
             refund.created, refund.updated and refund.failed",
        );
    }
    if came("charge.expired") && !came("charge.captured") {
        missing.push(
            "no charge.captured has come, though charges are authorised first: without it the part of an authorisation that a \
             capture releases may be booked as a refund; subscribe it",
        );
    }
    if (came("orders/paid") || came("refunds/create")) && !came("order_transactions/create") {
        missing.push(
            "no order_transactions/create has come: without it no sale of this shop is booked (orders/paid names no payment); \
             subscribe it",
        );
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn what_is_not_subscribed_is_seen_from_what_comes() {
        for (seen, wanted) in [
            (&[("invoice.paid", "2025-03-31.basil")][..], &["invoice_payment.paid"][..]),
            (&[("invoice.paid", "2024-06-20")], &[]),
            (&[("invoice.paid", "2026-10-28.endive"), ("invoice_payment.paid", "2026-10-28.endive")], &[]),
            (&[("charge.refunded", "2024-10-28.acacia")], &["refund.created"]),
            (&[("charge.refunded", "2023-10-16")], &[]),
            (&[("charge.expired", "2023-10-16")], &["charge.captured"]),
            (&[("orders/paid", "")], &["order_transactions/create"]),
            (&[], &[]),
        ] {
            let seen: Vec<_> = seen
                .iter()
                .map(|(name, version)| ((*name).to_owned(), Some((*version).to_owned())))
                .collect();
            let found = missing(&seen);
            assert_eq!(found.len(), wanted.len(), "{seen:?}: {found:?}");
            for (found, wanted) in found.iter().zip(wanted) {
                assert!(found.contains(wanted), "{found}");
            }
        }
    }
}
