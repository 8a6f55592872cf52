//! The handler `money`: sales, refunds, fees and payouts at other providers, by the rows of one table.

use inboxd::handlers::{Event, Handled, Handler, Money};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde_json::{Value, json};

use crate::rig::database;

fn deliver(tx: &Transaction<'_>, provider: &str, event_type: &str, body: &Value) -> Handled {
    let event = Event {
        endpoint: "shop",
        provider,
        id: "evt_1",
        event_type,
        object_id: None,
        account: None,
        livemode: None,
        query: None,
        body,
        text: None,
        is_test_send: false,
        notify: None,
        now_ms: 1_000,
    };
    Money.handle(tx, &event).unwrap()
}

fn begin(conn: &Connection) -> Transaction<'_> {
    Transaction::new_unchecked(conn, TransactionBehavior::Immediate).unwrap()
}

fn lines(tx: &Transaction<'_>) -> String {
    let sql = "SELECT coalesce(group_concat(entry_key || ' ' || amount || ' ' || currency, ', ' ORDER BY id), '') FROM ledger_entries";
    tx.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn transaction(kind: &str, status: &str) -> Value {
    json!({"id": 179_259_969_u64, "order_id": 1, "parent_id": null, "kind": kind, "status": status, "test": false, "amount": "209.00",
           "currency": "USD", "processed_at": "2026-11-30T10:00:00+01:00"})
}

fn paddle_adjustment(action: &str, status: &str) -> Value {
    json!({"event_id": "evt_1", "data": {"id": "adj_1", "action": action, "status": status, "currency_code": "EUR",
                                         "totals": {"total": "1200"}}})
}

#[allow(clippy::too_many_lines, reason = "a table of cases")]
#[test]
fn each_provider_is_booked_by_its_rows() {
    let lemon = |status: &str, refunded: i64, reason: &str| {
        json!({"data": {"type": "orders", "id": "7", "attributes": {"status": status, "total": 5899, "currency": "USD",
               "refunded_amount": refunded, "billing_reason": reason}}})
    };
    let razorpay = json!({"created_at": 1_764_000_000, "payload": {"payment": {"entity": {"id": "pay_1", "amount": 50_000, "currency": "INR",
                          "status": "captured", "fee": 1180}}}});
    let square = |status: &str| json!({"data": {"object": {"payment": {"id": "sq_1", "status": status, "total_money": {"amount": 200, "currency": "USD"}}}}});
    let paypal = json!({"resource": {"id": "cap_1", "status": "COMPLETED", "amount": {"value": "10.50", "currency_code": "EUR"},
                        "seller_receivable_breakdown": {"paypal_fee": {"value": "0.61", "currency_code": "EUR"}}}});
    let paddle = json!({"data": {"id": "txn_1", "status": "completed", "currency_code": "EUR",
                        "details": {"totals": {"grand_total": "1200", "fee": "110"}}}});
    for (provider, event_type, body, booked) in [
        (
            "shopify",
            "order_transactions/create",
            transaction("sale", "success"),
            "sale:shopify/179259969 20900 usd",
        ),
        (
            "shopify_events",
            "order_transactions/create",
            transaction("capture", "success"),
            "sale:shopify/179259969 20900 usd",
        ),
        ("shopify", "order_transactions/create", transaction("authorization", "success"), ""),
        ("shopify", "order_transactions/create", transaction("sale", "failure"), ""),
        (
            "shopify",
            "refunds/create",
            json!({"transactions": [transaction("refund", "success")]}),
            "refund:shopify/179259969 -20900 usd",
        ),
        ("shopify", "refunds/create", json!({"transactions": []}), ""),
        ("paddle", "transaction.completed", paddle, "sale:paddle/txn_1 1200 eur, fee:paddle/txn_1 -110 eur"),
        (
            "paddle",
            "adjustment.updated",
            paddle_adjustment("refund", "approved"),
            "refund:paddle/adj_1 -1200 eur",
        ),
        ("paddle", "adjustment.created", paddle_adjustment("refund", "pending_approval"), ""),
        (
            "paddle",
            "adjustment.created",
            paddle_adjustment("chargeback_reverse", "approved"),
            "dispute:paddle/adj_1 1200 eur",
        ),
        ("lemonsqueezy", "order_created", lemon("paid", 0, ""), "sale:lemonsqueezy/7 5899 usd"),
        ("lemonsqueezy", "subscription_payment_success", lemon("paid", 0, "initial"), ""),
        (
            "lemonsqueezy",
            "subscription_payment_success",
            lemon("paid", 0, "renewal"),
            "sale:lemonsqueezy/7 5899 usd",
        ),
        ("lemonsqueezy", "order_refunded", lemon("refunded", 5899, ""), "refund:lemonsqueezy/7 -5899 usd"),
        (
            "razorpay",
            "payment.captured",
            razorpay,
            "sale:razorpay/pay_1 50000 inr, fee:razorpay/pay_1 -1180 inr",
        ),
        ("square", "payment.created", square("COMPLETED"), "sale:square/sq_1 200 usd"),
        ("square", "payment.updated", square("APPROVED"), ""),
        (
            "paypal",
            "PAYMENT.CAPTURE.COMPLETED",
            paypal,
            "sale:paypal/cap_1 1050 eur, fee:paypal/cap_1 -61 eur",
        ),
        // another provider's event of the same type is not meant
        ("stripe", "refund.created", json!({"id": "re_1"}), ""),
    ] {
        let conn = database();
        let tx = begin(&conn);
        let handled = deliver(&tx, provider, event_type, &body);
        assert!(
            matches!(handled, Handled::Applied | Handled::Ignored),
            "{provider} {event_type}: {handled:?}"
        );
        deliver(&tx, provider, event_type, &body);
        assert_eq!(lines(&tx), booked, "{provider} {event_type}");
    }
}

#[test]
fn what_counts_and_what_is_dead_may_come_in_either_order() {
    let told = [("pending_approval", "created"), ("approved", "updated"), ("reversed", "updated")];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let conn = database();
        let tx = begin(&conn);
        for turn in order {
            let (status, kind) = told[turn];
            let event_type = if kind == "created" { "adjustment.created" } else { "adjustment.updated" };
            assert_eq!(
                deliver(&tx, "paddle", event_type, &paddle_adjustment("refund", status)),
                Handled::Applied
            );
        }
        let sum: i64 = tx
            .query_row("SELECT coalesce(sum(amount), 0) FROM ledger_entries", [], |row| row.get(0))
            .unwrap();
        assert_eq!(sum, 0, "{order:?}");
    }
}

#[test]
fn a_cumulative_refund_is_booked_by_its_difference() {
    let conn = database();
    let tx = begin(&conn);
    let refunded = |amount: i64| json!({"data": {"id": "7", "attributes": {"status": "partial_refund", "currency": "USD", "refunded_amount": amount}}});
    for amount in [500, 1500, 500] {
        deliver(&tx, "lemonsqueezy", "order_refunded", &refunded(amount));
    }
    assert_eq!(lines(&tx), "refund:lemonsqueezy/7 -500 usd, refund:lemonsqueezy/7#2 -1000 usd");
}

#[test]
fn what_cannot_be_read_is_never_booked_and_another_amount_contradicts() {
    for fields in [
        json!({"amount": "209.005"}),
        json!({"amount": 209.0}),
        json!({"currency": "dollars"}),
        json!({"id": null}),
    ] {
        let conn = database();
        let tx = begin(&conn);
        let mut body = transaction("sale", "success");
        let Value::Object(fields) = fields else { panic!("fields of an object") };
        for (name, value) in fields {
            body[name] = value;
        }
        let handled = deliver(&tx, "shopify", "order_transactions/create", &body);
        assert!(matches!(handled, Handled::Quarantine(_)), "{body}: {handled:?}");
        assert_eq!(lines(&tx), "");
    }
    let conn = database();
    let tx = begin(&conn);
    let mut other = transaction("sale", "success");
    deliver(&tx, "shopify", "order_transactions/create", &other);
    other["amount"] = json!("210.00");
    let handled = deliver(&tx, "shopify", "order_transactions/create", &other);
    assert!(matches!(handled, Handled::Contradiction(_)), "{handled:?}");
}
