//! What an application keys access off: the newest snapshot of a subscription, in every order of arrival.

use inboxd::handlers::Handled;
use serde_json::{Value, json};

use crate::rig::{Books, database};
use crate::shop::Told;

fn told(id: &str, event_type: &'static str, created: i64, status: &str, is_on_items: bool) -> Told {
    let mut object = json!({
        "id": "sub_1", "object": "subscription", "customer": "cus_1", "status": status, "cancel_at_period_end": false,
        "items": {"data": [{"price": {"id": "price_1", "product": "prod_1"}}]},
    });
    if is_on_items {
        object["items"]["data"][0]["current_period_end"] = json!(1_800_000_000);
    } else {
        object["current_period_end"] = json!(1_800_000_000);
    }
    let body = json!({"id": id, "object": "event", "created": created, "livemode": true, "type": event_type, "data": {"object": object}});
    Told { endpoint: "billing".to_owned(), id: id.to_owned(), event_type, body }
}

fn permutations(items: &[Told]) -> Vec<Vec<Told>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for first in 0..items.len() {
        let mut rest = items.to_vec();
        let item = rest.remove(first);
        for mut order in permutations(&rest) {
            order.insert(0, item.clone());
            all.push(order);
        }
    }
    all
}

#[test]
fn access_is_that_of_the_newest_snapshot_in_every_order() {
    let history = [
        told("evt_1", "customer.subscription.created", 100, "incomplete", false),
        told("evt_2", "customer.subscription.updated", 100, "active", true),
        told("evt_3", "customer.subscription.updated", 200, "past_due", true),
        told("evt_4", "customer.subscription.updated", 300, "active", false),
    ];
    let ended = told("evt_5", "customer.subscription.deleted", 250, "canceled", true);
    let conn = database();
    let access = "SELECT customer || ' ' || product || ' ' || until || ' ' || why FROM subscription_access";
    for order in permutations(&history) {
        let mut books = Books::begin(&conn);
        for told in &order {
            assert_eq!(books.deliver(told), Handled::Applied);
        }
        assert_eq!(books.column(access), ["cus_1 prod_1 1800000000000 active"]);
        books.deliver(&ended);
        books.deliver(&history[3]);
        assert_eq!(books.column(access), [""; 0], "an end is an end");
    }
    let without: Value = json!({"id": "sub_2", "customer": "cus_1"});
    let mut bare = told("evt_9", "customer.subscription.updated", 1, "active", true);
    bare.body["data"]["object"] = without;
    assert!(matches!(Books::begin(&conn).deliver(&bare), Handled::Quarantine(_)));
}
