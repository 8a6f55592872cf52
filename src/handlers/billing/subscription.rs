//! Subscriptions: the state that an application keys access off, as the view `subscription_access` shows it.

use serde_json::Value;

use super::journal::{Journal, Refusal, id_in};
use super::own_id;
use crate::books::subscriptions::{self, Snapshot};
use crate::handlers::Handled;
use crate::handlers::fields::time_ms;

pub(super) fn apply(journal: &Journal<'_>, subscription: &Value) -> Result<Handled, Refusal> {
    let event = journal.event;
    let id = own_id(subscription, "subscription")?;
    let status = subscription["status"].as_str().unwrap_or_default();
    if status.is_empty() {
        return Err(Refusal::Unreadable(format!("a subscription without a status ({id})")));
    }
    let is_deleted = event.event_type == "customer.subscription.deleted";
    let has_ended = is_deleted || matches!(status, "canceled" | "incomplete_expired");
    let products = serde_json::json!(products(subscription)).to_string();
    let snapshot = Snapshot {
        id,
        customer_id: id_in(subscription, "customer")?,
        status: if is_deleted { "canceled" } else { status },
        products: &products,
        current_period_end_ms: period_end_ms(subscription),
        cancel_at_ms: cancel_at_ms(subscription),
        is_paused: subscription["pause_collection"].is_object(),
        account: event.account,
        livemode: event.livemode,
        told_at_ms: time_ms(&event.body["created"]).unwrap_or(0),
        rank: match event.event_type {
            _ if has_ended => 3,
            "customer.subscription.created" => 1,
            _ => 2,
        },
        event_id: event.id,
    };
    subscriptions::note(journal.tx, &snapshot, event.now_ms)?;
    Ok(Handled::Applied)
}

fn items(subscription: &Value) -> impl Iterator<Item = &Value> {
    subscription["items"]["data"].as_array().into_iter().flatten()
}

/// Each item's product; of an item without one, its price or plan.
fn products(subscription: &Value) -> Vec<&str> {
    let of_item = |item| {
        let places = ["/price/product", "/plan/product", "/price/product/id", "/price/id", "/plan/id"];
        places.iter().find_map(|place| Value::pointer(item, place)?.as_str())
    };
    let mut products: Vec<_> = items(subscription).filter_map(of_item).collect();
    if products.is_empty() {
        products.extend(
            subscription
                .pointer("/plan/product")
                .or(subscription.pointer("/plan/id"))
                .and_then(Value::as_str),
        );
    }
    products.sort_unstable();
    products.dedup();
    products
}

/// Since API 2025-03-31 it stands at the items.
fn period_end_ms(subscription: &Value) -> Option<i64> {
    let of_items = items(subscription).filter_map(|item| item["current_period_end"].as_i64()).max();
    let end_s = subscription["current_period_end"].as_i64().max(of_items)?;
    end_s.checked_mul(1000)
}

fn cancel_at_ms(subscription: &Value) -> Option<i64> {
    if let Some(cancel_at_s) = subscription["cancel_at"].as_i64() {
        return cancel_at_s.checked_mul(1000);
    }
    let ends_with_period = subscription["cancel_at_period_end"] == Value::Bool(true);
    period_end_ms(subscription).filter(|_| ends_with_period)
}
