//! The handler `orders` and its table: payments in any order, any number and any shape against what a
//! shop has sold.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use inboxd::handlers::{Event, Handled, Handler, Orders};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde_json::{Value, json};
use support::Daemon;

/// What became of one event, as `receive` would have it.
#[derive(Debug, PartialEq)]
enum Ended {
    Applied,
    Ignored,
    Quarantined(String),
    /// What it waits for, and whether a person is asked in the end.
    Parked(String, bool),
}

struct Shop {
    conn: Connection,
}

impl Shop {
    fn new() -> Self {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../schema.sql")).unwrap();
        Self { conn }
    }

    /// As an application would.
    fn insert(&self, id: &str, total: i64, payment_id: Option<&str>) {
        let insert = "INSERT INTO orders (id, currency, total, payment_id) VALUES (?1, 'eur', ?2, ?3)";
        self.conn.execute(insert, (id, total, payment_id)).unwrap();
    }

    fn deliver(&self, event: &Value) -> Ended {
        self.deliver_from(event, None)
    }

    fn deliver_from(&self, event: &Value, account: Option<&str>) -> Ended {
        let tx = Transaction::new_unchecked(&self.conn, TransactionBehavior::Immediate).unwrap();
        let told = Event {
            endpoint: "shop",
            provider: "stripe",
            id: event["id"].as_str().unwrap(),
            event_type: event["type"].as_str().unwrap(),
            object_id: None,
            account,
            livemode: Some(false),
            query: None,
            body: event,
            text: None,
            is_test_send: false,
            notify: Some("app"),
            now_ms: 1_000,
        };
        if !Orders.takes(told.event_type) {
            return Ended::Ignored;
        }
        let (ended, is_kept) = match Orders.handle(&tx, &told) {
            Ok(Handled::Applied) => (Ended::Applied, true),
            Ok(Handled::Ignored) => (Ended::Ignored, true),
            Ok(Handled::Quarantine(reason) | Handled::Contradiction(reason) | Handled::Thin(reason)) => {
                (Ended::Quarantined(reason), false)
            }
            Ok(Handled::Park(park)) => (Ended::Parked(park.waits_for, park.asks), false),
            // a state of the shop is no failure of a delivery
            Err(error) => panic!("{error}"),
        };
        if is_kept {
            tx.commit().unwrap()
        } else {
            tx.rollback().unwrap()
        }
        ended
    }

    /// Delivers all, and again what waits, as the worker does; returns what still waits.
    fn deliver_all(&self, events: &[&Value]) -> usize {
        let mut rest: Vec<&Value> = events.to_vec();
        loop {
            let before = rest.len();
            rest.retain(|event| matches!(self.deliver(event), Ended::Parked(..)));
            if rest.is_empty() || rest.len() == before {
                return rest.len();
            }
        }
    }

    fn text(&self, sql: &str) -> String {
        self.conn.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Every order and every outbox row.
    fn summary(&self) -> String {
        self.text(
            "SELECT (SELECT group_concat(id || ' ' || status || ' ' || total || ' ' || currency || ' '
                                         || coalesce(payment_id, '-'), ', ' ORDER BY id) FROM orders)
                    || ' | ' ||
                    (SELECT coalesce(group_concat(operation_key || ' ' || object_id, ', '), '') FROM outbox)",
        )
    }
}

fn event(id: &str, event_type: &str, object: &Value) -> Value {
    json!({ "id": id, "type": event_type, "data": { "object": object } })
}

/// A payment intent that names its order.
fn intent(id: &str, order: Option<&str>, payment: &str, amount: i64) -> Value {
    let metadata = order.map_or(json!({}), |order| json!({ "order_id": order }));
    let object = json!({ "object": "payment_intent", "id": payment, "amount": amount, "amount_received": amount,
                         "currency": "eur", "metadata": metadata });
    event(id, "payment_intent.succeeded", &object)
}

fn session(id: &str, kind: &str, order: &str, payment: Option<&str>, status: &str, amount: i64) -> Value {
    let object = json!({ "object": "checkout.session", "id": "cs_1", "mode": "payment", "client_reference_id": order,
                         "payment_intent": payment, "payment_status": status, "amount_total": amount, "currency": "eur" });
    event(id, &format!("checkout.session.{kind}"), &object)
}

#[test]
fn an_order_that_waits_is_paid_by_each_event_that_tells_of_its_payment() {
    for event in [
        intent("evt_1", Some("o_1"), "pi_1", 4200),
        session("evt_1", "completed", "o_1", Some("pi_1"), "paid", 4200),
        session("evt_1", "async_payment_succeeded", "o_1", Some("pi_1"), "paid", 4200),
    ] {
        let shop = Shop::new();
        shop.insert("o_1", 4200, None);
        assert_eq!(shop.deliver(&event), Ended::Applied);
        assert_eq!(shop.summary(), "o_1 paid 4200 eur pi_1 | order-paid:pi_1 o_1", "{event}");
        let paid_at = "SELECT paid_at_ms || ' ' || updated_at_ms FROM orders";
        assert_eq!(shop.text(paid_at), "1000 1000");
    }
}

#[test]
fn a_payment_without_an_order_id_finds_the_order_that_names_it() {
    let shop = Shop::new();
    shop.insert("o_1", 4200, Some("pi_1"));
    shop.insert("o_2", 4200, Some("pi_2"));
    assert_eq!(shop.deliver(&intent("evt_1", None, "pi_2", 4200)), Ended::Applied);
    assert!(shop.summary().starts_with("o_1 awaiting_payment 4200 eur pi_1, o_2 paid 4200 eur pi_2 |"));
}

#[test]
fn a_completed_session_opens_an_order_that_is_not_there() {
    let shop = Shop::new();
    let paid = session("evt_1", "completed", "o_1", Some("pi_1"), "paid", 4200);
    assert_eq!(shop.deliver(&paid), Ended::Applied);
    assert_eq!(shop.summary(), "o_1 paid 4200 eur pi_1 | order-paid:pi_1 o_1");
    // nothing to pay: there is no payment intent
    let free = session("evt_2", "completed", "o_2", None, "no_payment_required", 0);
    assert_eq!(shop.deliver(&free), Ended::Applied);
    assert!(shop.summary().contains("o_2 paid 0 eur cs_1"), "{}", shop.summary());
}

#[test]
fn an_unpaid_session_leaves_the_order_open_until_its_payment_succeeds() {
    let unpaid = session("evt_1", "completed", "o_1", Some("pi_1"), "unpaid", 4200);
    let succeeded = session("evt_2", "async_payment_succeeded", "o_1", Some("pi_1"), "paid", 4200);
    let failed = session("evt_2", "async_payment_failed", "o_1", Some("pi_1"), "unpaid", 4200);

    let shop = Shop::new();
    assert_eq!(shop.deliver(&unpaid), Ended::Applied);
    assert_eq!(shop.summary(), "o_1 awaiting_payment 4200 eur - | ");
    assert_eq!(shop.deliver(&succeeded), Ended::Applied);
    assert_eq!(shop.summary(), "o_1 paid 4200 eur pi_1 | order-paid:pi_1 o_1");
    // late and again: never backwards
    assert_eq!(shop.deliver(&unpaid), Ended::Applied);
    assert_eq!(shop.summary(), "o_1 paid 4200 eur pi_1 | order-paid:pi_1 o_1");

    let shop = Shop::new();
    assert_eq!(shop.deliver(&unpaid), Ended::Applied);
    assert_eq!(shop.deliver(&failed), Ended::Ignored);
    assert_eq!(shop.summary(), "o_1 awaiting_payment 4200 eur - | ");
    // the customer pays in another session
    let other = session("evt_3", "completed", "o_1", Some("pi_2"), "paid", 4200);
    assert_eq!(shop.deliver(&other), Ended::Applied);
    assert_eq!(shop.summary(), "o_1 paid 4200 eur pi_2 | order-paid:pi_2 o_1");
}

/// Every order of every history, each event twice, ends alike.
#[test]
fn every_order_of_the_events_ends_alike_with_one_effect() {
    let histories = [
        vec![
            session("evt_1", "completed", "o_1", Some("pi_1"), "paid", 4200),
            intent("evt_2", Some("o_1"), "pi_1", 4200),
            intent("evt_3", None, "pi_1", 4200),
        ],
        vec![
            session("evt_1", "completed", "o_1", Some("pi_1"), "unpaid", 4200),
            session("evt_2", "async_payment_succeeded", "o_1", Some("pi_1"), "paid", 4200),
            intent("evt_3", None, "pi_1", 4200),
            intent("evt_4", Some("o_1"), "pi_1", 4200),
        ],
        // without the session that is not paid yet
        vec![
            session("evt_1", "async_payment_succeeded", "o_1", Some("pi_1"), "paid", 4200),
            intent("evt_2", None, "pi_1", 4200),
        ],
    ];
    for history in histories {
        for order in permutations(&history.iter().collect::<Vec<_>>()) {
            let twice: Vec<&Value> = order.iter().flat_map(|event| [*event, *event]).collect();
            let shop = Shop::new();
            assert_eq!(shop.deliver_all(&twice), 0, "{order:?}");
            assert_eq!(shop.summary(), "o_1 paid 4200 eur pi_1 | order-paid:pi_1 o_1", "{order:?}");
        }
    }
}

#[test]
fn a_payment_that_differs_goes_to_a_person_and_changes_nothing() {
    let intent_in = |currency: &str| {
        let object =
            json!({ "id": "pi_1", "amount": 4200, "currency": currency, "metadata": { "order_id": "o_1" } });
        event("evt_1", "payment_intent.succeeded", &object)
    };
    let cases = [
        // raw integers with raw integers; a factor of a hundred is a difference
        (intent("evt_1", Some("o_1"), "pi_1", 42), "order o_1 comes to 4200 eur, the payment to 42 eur"),
        (intent("evt_1", Some("o_1"), "pi_1", 420_000), "the payment to 420000 eur"),
        (intent_in("usd"), "order o_1 comes to 4200 eur, the payment to 4200 usd"),
        (intent("evt_1", Some("o_1"), "pi_9", 4200), "order o_1 belongs to payment pi_1, not to pi_9"),
        (intent("evt_1", Some("o_1"), "pi_2", 4200), "pi_2 names order o_1, but belongs to order o_2"),
        (session("evt_1", "completed", "o_1", Some("pi_1"), "paid", 4300), "the payment to 4300 eur"),
        (intent("evt_1", Some("o_3"), "pi_3", 4200), "a payment of order o_3, which is cancelled"),
    ];
    for (event, said) in cases {
        let shop = Shop::new();
        shop.insert("o_1", 4200, Some("pi_1"));
        shop.insert("o_2", 4200, Some("pi_2"));
        shop.insert("o_3", 4200, None);
        shop.conn.execute("UPDATE orders SET status = 'cancelled' WHERE id = 'o_3'", []).unwrap();
        let before = shop.summary();
        let Ended::Quarantined(reason) = shop.deliver(&event) else { panic!("{event}") };
        assert!(reason.contains(said), "{reason}");
        assert_eq!(shop.summary(), before);
    }
    assert_eq!(Shop::new().deliver(&intent_in("EUR")), Ended::Parked("order o_1".to_owned(), true));
}

#[test]
fn an_order_paid_twice_is_paid_once_and_the_second_payment_goes_to_a_person() {
    let shop = Shop::new();
    shop.insert("o_1", 4200, None);
    assert_eq!(shop.deliver(&intent("evt_1", Some("o_1"), "pi_1", 4200)), Ended::Applied);
    let second = shop.deliver(&intent("evt_2", Some("o_1"), "pi_2", 4200));
    assert_eq!(second, Ended::Quarantined("order o_1 belongs to payment pi_1, not to pi_2".to_owned()));
    // what the application made of it since does not change that it was paid by pi_1
    shop.conn.execute("UPDATE orders SET status = 'shipped'", []).unwrap();
    assert_eq!(shop.deliver(&intent("evt_3", Some("o_1"), "pi_1", 4200)), Ended::Applied);
    assert_eq!(shop.summary(), "o_1 shipped 4200 eur pi_1 | order-paid:pi_1 o_1");
}

#[test]
fn a_paid_order_is_not_unpaid_by_anybody() {
    let shop = Shop::new();
    shop.insert("o_1", 4200, None);
    assert_eq!(shop.deliver(&intent("evt_1", Some("o_1"), "pi_1", 4200)), Ended::Applied);
    for update in [
        "UPDATE orders SET status = 'awaiting_payment'",
        "UPDATE orders SET paid_at_ms = NULL",
        "UPDATE orders SET status = 'awaiting_payment', paid_at_ms = NULL, payment_id = NULL",
    ] {
        let error = shop.conn.execute(update, []).unwrap_err();
        assert!(error.to_string().contains("a paid order stays paid"), "{error}");
    }
}

#[test]
fn two_accounts_may_use_the_same_order_numbers() {
    let shop = Shop::new();
    let add = "INSERT INTO orders (account, id, currency, total) VALUES (?1, 'o_1', 'eur', 4200)";
    for account in [None, Some("acct_1"), Some("acct_2")] {
        shop.conn.execute(add, [account]).unwrap();
    }
    assert!(shop.conn.execute(add, [None::<&str>]).is_err(), "one order of a number and account");
    let paid = intent("evt_1", Some("o_1"), "pi_1", 4200);
    assert_eq!(shop.deliver_from(&paid, Some("acct_1")), Ended::Applied);
    let who =
        "SELECT group_concat(coalesce(account, 'own') || ' ' || status, ', ' ORDER BY account) FROM orders";
    assert_eq!(shop.text(who), "own awaiting_payment, acct_1 paid, acct_2 awaiting_payment");
    let waits = Ended::Parked("order o_1 of account acct_3".to_owned(), true);
    assert_eq!(shop.deliver_from(&paid, Some("acct_3")), waits);
}

#[test]
fn payments_of_invoices_and_sessions_that_sell_nothing_are_no_orders() {
    let mut of_invoice = intent("evt_1", None, "pi_1", 4200);
    of_invoice["data"]["object"]["invoice"] = json!("in_1");
    let mut of_invoice_since_2025 = intent("evt_2", None, "pi_1", 4200);
    of_invoice_since_2025["data"]["object"]["payment_details"] = json!({ "order_reference": "in_1" });
    let mut setup = session("evt_3", "completed", "o_1", None, "no_payment_required", 0);
    setup["data"]["object"]["mode"] = json!("setup");
    let mut subscription = session("evt_4", "completed", "o_1", None, "paid", 4200);
    subscription["data"]["object"]["mode"] = json!("subscription");
    let shop = Shop::new();
    for event in [of_invoice, of_invoice_since_2025, setup, subscription] {
        assert_eq!(shop.deliver(&event), Ended::Ignored, "{event}");
    }
}

#[test]
fn content_that_cannot_be_sure_is_quarantined() {
    let cases = [
        ("/data/object/amount_received", json!(-1), "amount_received is negative"),
        ("/data/object/amount_received", json!(42.5), "amount_received is not a whole number"),
        ("/data/object/amount_received", json!("4200"), "amount_received is not a number"),
        ("/data/object/currency", Value::Null, "a payment without a currency"),
        ("/data/object/currency", json!("€"), "the currency is not a code"),
        ("/data/object/id", Value::Null, "the payment intent has no id"),
        ("/data/object/metadata/order_id", json!(7), "metadata.order_id is not text"),
        ("/data/object/object", json!("charge"), "data.object is not a payment_intent"),
        ("/data/object", json!([]), "data.object is missing"),
    ];
    for (pointer, value, said) in cases {
        let shop = Shop::new();
        shop.insert("o_1", 4200, None);
        let mut event = intent("evt_1", Some("o_1"), "pi_1", 4200);
        *event.pointer_mut(pointer).unwrap() = value;
        let Ended::Quarantined(reason) = shop.deliver(&event) else { panic!("{pointer}: {event}") };
        assert!(reason.contains(said), "{reason}");
    }
    let shop = Shop::new();
    let odd = session("evt_1", "completed", "o_1", Some("pi_1"), "perhaps", 4200);
    assert!(matches!(shop.deliver(&odd), Ended::Quarantined(reason) if reason.contains("payment_status")));
    assert!(matches!(
        shop.deliver(&json!({"id": "e", "type": "payment_intent.succeeded"})),
        Ended::Quarantined(_)
    ));
}

const CONFIG: &str = r#"
data_dir = "data"
[listen]
webhooks = "127.0.0.1:0"
admin = "off"
[limits]
disk_free_min = 0
[endpoint.shop]
provider = "stripe"
path = "/webhooks/stripe"
secrets = ["file:stripe.secret"]
handlers = ["sql:shop", "orders"]
notify = "app"
[destination.app]
url = "http://127.0.0.1:9/hooks"
sign = "none"
"#;

const ACCEPTED: &str = r#"{"outcome":"accepted"}"#;

/// The webhook is faster than the checkout. An application writes the order meanwhile.
#[test]
fn a_payment_before_its_order_is_kept_and_applied_once_the_order_is_there() {
    for named in [None, Some("o_1")] {
        let daemon = Daemon::with_files(CONFIG, &[("shop/order.placed.sql", "SELECT 1")]);
        let body = intent("evt_1", named, "pi_1", 4200).to_string();
        assert_eq!(daemon.stripe(&body), (200, ACCEPTED.to_owned()));
        let waits =
            if named.is_some() { "waits for order o_1" } else { "waits for the order of payment pi_1" };
        let row = "SELECT state || ' ' || error_class || ' ' || last_error FROM webhook_inbox";
        assert_eq!(daemon.text(row), format!("pending parked {waits}"));
        let insert =
            "INSERT INTO orders (id, currency, total, payment_id) VALUES ('o_1', 'eur', 4200, 'pi_1')";
        daemon.sql().execute(insert, []).unwrap();
        // sent again or not: nobody has to
        if named.is_some() {
            assert_eq!(daemon.stripe(&body), (200, r#"{"outcome":"duplicate"}"#.to_owned()));
        }
        daemon.wait_for_count("SELECT count(*) FROM webhook_inbox WHERE state = 'done'", 1);
        assert_eq!(daemon.text("SELECT status FROM orders"), "paid");
        assert_eq!(daemon.count("SELECT count(*) FROM outbox WHERE topic = 'OrderPaid'"), 1);
        assert_eq!(daemon.count("SELECT count(*) FROM reviews"), 0);
        assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox WHERE last_error IS NOT NULL"), 0);
        assert_eq!(daemon.inboxd(&["events", "list", "--state", "failing"]).stdout, "");
    }
}

/// Every order in which the events of a checkout can come, over HTTP: no answer is a failure, and all end alike.
#[test]
fn no_order_of_a_checkouts_events_is_answered_with_a_failure() {
    let daemon = Daemon::with_files(CONFIG, &[("shop/order.placed.sql", "SELECT 1")]);
    let mut shops = 0;
    // an ordinary checkout, one that is paid later, and one whose payment names its order; each with a subscription's payment
    for history in 0..3 {
        for order in permutations(&[0, 1, 2]) {
            shops += 1;
            let (id, pi) = (format!("o_{shops}"), format!("pi_{shops}"));
            let named = (history == 2).then_some(id.as_str());
            let mut events = vec![
                intent(&format!("evt_{shops}_1"), named, &pi, 4200),
                intent(&format!("evt_{shops}_2"), None, &format!("pi_of_invoice_{shops}"), 900),
            ];
            let kind = if history == 1 { "async_payment_succeeded" } else { "completed" };
            let mut session = session(&format!("evt_{shops}_3"), kind, &id, Some(&pi), "paid", 4200);
            session["data"]["object"]["id"] = json!(format!("cs_{shops}"));
            events.push(session);
            for index in order {
                let (status, answer) = daemon.stripe(&events[index].to_string());
                assert_eq!(status, 200, "{answer}: {}", events[index]);
            }
        }
    }
    daemon.wait_for_count("SELECT count(*) FROM orders WHERE status = 'paid' AND total = 4200", shops);
    // all but the subscriptions' payments, which wait for an order a while
    daemon.wait_for_count("SELECT count(*) FROM webhook_inbox WHERE state = 'done'", 2 * shops);
    assert_eq!(daemon.count("SELECT count(*) FROM orders"), shops);
    assert_eq!(daemon.count("SELECT count(*) FROM outbox WHERE topic = 'OrderPaid'"), shops);
    assert_eq!(daemon.count("SELECT count(*) FROM reviews"), 0);
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_failures"), 0);
}

#[test]
fn a_payment_that_no_order_knows_is_ignored_in_the_end_and_one_that_names_a_missing_order_goes_to_a_person() {
    let daemon = Daemon::with_files(CONFIG, &[("shop/order.placed.sql", "SELECT 1")]);
    assert_eq!(daemon.stripe(&intent("evt_1", None, "pi_1", 500).to_string()), (200, ACCEPTED.to_owned()));
    assert_eq!(
        daemon.stripe(&intent("evt_2", Some("o_2"), "pi_2", 500).to_string()),
        (200, ACCEPTED.to_owned())
    );
    let age = |id: &str, minutes: i64| {
        let sql = "UPDATE webhook_inbox SET received_at_ms = received_at_ms - ?1, available_at_ms = 1 WHERE event_id = ?2";
        daemon.sql().execute(sql, (minutes * 60_000, id)).unwrap();
    };
    age("evt_1", 12);
    daemon.wait_for_count(
        "SELECT count(*) FROM webhook_inbox WHERE event_id = 'evt_1' AND state = 'ignored'",
        1,
    );
    assert_eq!(daemon.count("SELECT count(*) FROM reviews"), 0);
    // a day is not enough to give up an order that is named
    age("evt_2", 24 * 60);
    daemon.wait_for_count(
        "SELECT count(*) FROM webhook_inbox WHERE event_id = 'evt_2' AND state = 'pending' AND attempts >= 2 AND available_at_ms > 1",
        1,
    );
    age("evt_2", 50 * 60);
    daemon
        .wait_for_count("SELECT count(*) FROM reviews WHERE kind = 'quarantined' AND event_id = 'evt_2'", 1);
    let reason = daemon.text("SELECT reason FROM reviews");
    assert_eq!(reason, "order o_2 did not come within 72 hours; when it is there: inboxd retry");
    assert_eq!(daemon.text("SELECT last_error FROM webhook_inbox WHERE event_id = 'evt_2'"), reason);
    // a person puts the order there
    daemon.sql().execute("INSERT INTO orders (id, currency, total) VALUES ('o_2', 'eur', 500)", []).unwrap();
    assert_eq!(daemon.inboxd(&["retry", "evt_2"]).code, 0);
    daemon.wait_for_count("SELECT count(*) FROM orders WHERE status = 'paid'", 1);
    daemon.wait_for_count("SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL", 0);
}

#[test]
fn a_payment_that_is_no_orders_is_in_the_books_when_it_is_no_longer_waited_for() {
    let config = CONFIG.replace("\"sql:shop\", \"orders\"", "\"billing\", \"orders\"");
    let daemon = Daemon::with_config(&config);
    assert_eq!(daemon.stripe(&intent("evt_1", None, "pi_1", 500).to_string()), (200, ACCEPTED.to_owned()));
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries"), 0);
    let age = "UPDATE webhook_inbox SET received_at_ms = received_at_ms - 720000, available_at_ms = 1";
    daemon.sql().execute(age, []).unwrap();
    daemon.wait_for_count("SELECT count(*) FROM webhook_inbox WHERE state = 'done'", 1);
    assert_eq!(daemon.text("SELECT entry_key || ' ' || amount FROM ledger_entries"), "sale:pi_1 500");
}

#[test]
fn what_waits_for_an_order_is_no_backlog_that_anybody_is_told_of() {
    let shop = Shop::new();
    let insert = "INSERT INTO webhook_inbox (provider, endpoint, event_id, headers, body_sha256, state, available_at_ms,
                                             received_at_ms, error_class, last_error)
                  VALUES ('stripe', 'shop', ?1, '{}', zeroblob(32), 'pending', 9, ?2, ?3, 'x')";
    shop.conn.execute(insert, ("evt_1", 1, Some("parked"))).unwrap();
    assert_eq!(inboxd::internals::store::inbox::oldest_waiting_ms(&shop.conn).unwrap(), None);
    shop.conn.execute(insert, ("evt_2", 2, Some("handler"))).unwrap();
    assert_eq!(inboxd::internals::store::inbox::oldest_waiting_ms(&shop.conn).unwrap(), Some(2));
}

#[test]
fn orders_may_be_written_by_the_users_sql_and_paid_by_the_handler() {
    let daemon = Daemon::with_files(
        CONFIG,
        &[(
            "shop/order.placed.sql",
            "INSERT INTO orders (id, currency, total) VALUES (:object ->> 'id', 'eur', :object ->> 'total')
         ON CONFLICT DO NOTHING;",
        )],
    );
    let placed = event("evt_1", "order.placed", &json!({ "id": "o_1", "total": 4200 })).to_string();
    assert_eq!(daemon.stripe(&placed).0, 200);
    assert_eq!(
        daemon.stripe(&intent("evt_2", Some("o_1"), "pi_1", 42).to_string()).1,
        r#"{"outcome":"quarantined"}"#
    );
    assert_eq!(
        daemon.stripe(&intent("evt_3", Some("o_1"), "pi_1", 4200).to_string()).1,
        r#"{"outcome":"processed"}"#
    );
    assert_eq!(daemon.text("SELECT status || ' ' || payment_id FROM orders"), "paid pi_1");
    assert_eq!(daemon.count("SELECT count(*) FROM reviews"), 1);
}

fn permutations<T: Copy>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for index in 0..items.len() {
        let mut rest = items.to_vec();
        let first = rest.remove(index);
        for mut tail in permutations(&rest) {
            tail.insert(0, first);
            all.push(tail);
        }
    }
    all
}
