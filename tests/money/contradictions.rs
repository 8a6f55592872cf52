//! Histories that contradict themselves: in either order exactly one delivery asks a person, what came first stands, and
//! nothing is booked twice.

use inboxd::handlers::Handled;
use serde_json::{Value, json};

use crate::rig::{Books, database};
use crate::shop::Told;

fn told(number: usize, (event_type, livemode, object): &(&'static str, bool, Value)) -> Told {
    let id = format!("evt_{number}");
    let body = json!({
        "id": id, "object": "event", "created": 1_764_000_000, "livemode": livemode, "type": event_type,
        "data": {"object": object},
    });
    Told { endpoint: "billing".to_owned(), id, event_type, body }
}

/// The object with other fields.
fn with(object: &Value, fields: Value) -> Value {
    let mut object = object.clone();
    let Value::Object(fields) = fields else { panic!("fields of an object") };
    for (name, value) in fields {
        object[name] = value;
    }
    object
}

fn invoice() -> Value {
    json!({"id": "in_1", "status": "paid", "total": 1000, "amount_due": 1000, "amount_paid": 1000, "amount_remaining": 0, "currency": "usd"})
}

fn part() -> Value {
    json!({"id": "inpay_1", "invoice": "in_1", "amount_paid": 400, "currency": "usd", "payment": {"type": "payment_intent"}})
}

fn refund() -> Value {
    json!({"id": "re_1", "amount": 300, "currency": "usd", "charge": "ch_1", "status": "succeeded"})
}

fn note() -> Value {
    json!({
        "id": "cn_1", "invoice": "in_1", "currency": "usd", "amount": 300, "type": "post_payment", "status": "issued",
        "pre_payment_amount": 0, "post_payment_amount": 300, "refunds": [{"refund": "re_1", "amount_refunded": 300}],
    })
}

fn note_before_payment(id: &str, amount: i64) -> Value {
    json!({"id": id, "invoice": "in_1", "currency": "usd", "amount": amount, "type": "pre_payment", "status": "issued"})
}

fn dispute() -> Value {
    json!({"id": "dp_1", "amount": 1000, "currency": "usd", "status": "needs_response", "balance_transactions": []})
}

fn transaction() -> Value {
    json!({"id": "txn_1", "amount": -1000, "fee": 1500, "net": -2500, "currency": "usd"})
}

fn payout() -> Value {
    json!({"id": "po_1", "amount": 500, "currency": "usd", "status": "paid"})
}

type Case = (&'static str, Vec<(&'static str, bool, Value)>);

#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn cases() -> Vec<Case> {
    let live = |told: Vec<(&'static str, Value)>| {
        told.into_iter().map(|(kind, object)| (kind, true, object)).collect()
    };
    let (invoice, part, refund, note, dispute, payout) =
        (invoice(), part(), refund(), note(), dispute(), payout());
    let void = with(&invoice, json!({"status": "void", "amount_paid": 0, "amount_remaining": 1000}));
    let open = with(&invoice, json!({"status": "open", "amount_paid": 0, "amount_remaining": 1000}));
    let with_txn =
        |fields: Value| with(&dispute, json!({"balance_transactions": [with(&transaction(), fields)]}));
    vec![
        ("paid, then void", live(vec![("invoice.paid", invoice.clone()), ("invoice.voided", void.clone())])),
        (
            "another total after it was finalized",
            live(vec![
                ("invoice.finalized", open.clone()),
                ("invoice.updated", with(&open, json!({"total": 900}))),
            ]),
        ),
        (
            "another currency within one invoice",
            live(vec![
                ("invoice.paid", invoice.clone()),
                ("invoice_payment.paid", with(&part, json!({"currency": "eur"}))),
            ]),
        ),
        (
            "a part with another amount",
            live(vec![
                ("invoice_payment.paid", part.clone()),
                ("invoice_payment.paid", with(&part, json!({"amount_paid": 401}))),
            ]),
        ),
        (
            "a refund with another amount",
            live(vec![
                ("refund.created", refund.clone()),
                ("refund.updated", with(&refund, json!({"amount": 301}))),
            ]),
        ),
        (
            "a refund of another charge",
            live(vec![
                ("refund.created", refund.clone()),
                ("refund.updated", with(&refund, json!({"charge": "ch_2"}))),
            ]),
        ),
        (
            "a refund in another currency than the charge's",
            live(vec![
                ("refund.created", refund.clone()),
                ("refund.created", with(&refund, json!({"id": "re_2", "currency": "eur"}))),
            ]),
        ),
        ("a failed refund that succeeded", live(vec![("refund.failed", refund.clone())])),
        (
            "parts of a note that do not add up",
            live(vec![("credit_note.created", with(&note, json!({"post_payment_amount": 299})))]),
        ),
        (
            "a note's refund with another amount",
            live(vec![
                ("credit_note.created", note.clone()),
                (
                    "credit_note.updated",
                    with(&note, json!({"refunds": [{"refund": "re_1", "amount_refunded": 200}]})),
                ),
            ]),
        ),
        (
            "a void note of a paid invoice",
            live(vec![("credit_note.voided", with(&note, json!({"status": "void"})))]),
        ),
        (
            "money of an inquiry",
            live(vec![(
                "charge.dispute.funds_withdrawn",
                with(&dispute, json!({"status": "warning_needs_response"})),
            )]),
        ),
        (
            "net is not amount less fee",
            live(vec![("charge.dispute.created", with_txn(json!({"net": -1000})))]),
        ),
        (
            "a balance transaction with another amount",
            live(vec![
                ("charge.dispute.created", with_txn(json!({}))),
                ("charge.dispute.closed", with_txn(json!({"amount": -999, "net": -2499}))),
            ]),
        ),
        (
            "a payout with another amount",
            live(vec![
                ("payout.created", payout.clone()),
                ("payout.paid", with(&payout, json!({"amount": 501}))),
            ]),
        ),
        (
            "more given back than withdrawn",
            live(vec![
                ("charge.dispute.funds_withdrawn", dispute.clone()),
                ("charge.dispute.funds_reinstated", with(&dispute, json!({"amount": 1200}))),
            ]),
        ),
        (
            "money of a deleted draft",
            live(vec![
                ("invoice.deleted", with(&invoice, json!({"status": "draft"}))),
                ("invoice_payment.paid", part.clone()),
            ]),
        ),
        (
            "a credit note of a void invoice",
            live(vec![("invoice.voided", void), ("credit_note.created", note_before_payment("cn_9", 300))]),
        ),
        (
            "credit notes above what was due",
            live(vec![
                ("invoice.finalized", open.clone()),
                ("credit_note.created", note_before_payment("cn_9", 1200)),
            ]),
        ),
        (
            "the same object live and as a test",
            vec![("payout.paid", true, payout.clone()), ("payout.updated", false, payout.clone())],
        ),
        (
            "the same invoice live and as a test",
            vec![("invoice.paid", true, invoice.clone()), ("invoice.updated", false, invoice.clone())],
        ),
        ("an amount that is a fraction", live(vec![("payout.paid", with(&payout, json!({"amount": 10.5})))])),
        ("an amount that is text", live(vec![("refund.created", with(&refund, json!({"amount": "300"})))])),
        ("an amount below nothing", live(vec![("refund.created", with(&refund, json!({"amount": -300})))])),
        (
            "an amount of more than 64 bits",
            live(vec![(
                "invoice.paid",
                with(&invoice, json!({"amount_paid": 9_223_372_036_854_775_808_u64})),
            )]),
        ),
    ]
}

/// All orders of one or two deliveries, each with a copy at its end.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 1 { vec![vec![0]] } else { vec![vec![0, 1], vec![1, 0]] }
}

#[test]
fn a_contradiction_asks_a_person_once_in_either_order_and_books_nothing() {
    let conn = database();
    let mut wrong = Vec::new();
    for (name, history) in cases() {
        for order in orders(history.len()) {
            let mut books = Books::begin(&conn);
            let last = order.len() - 1;
            for (turn, number) in order.iter().enumerate() {
                let before = books.balances();
                let handled = books.deliver(&told(*number, &history[*number]));
                let is_asked = matches!(handled, Handled::Contradiction(_));
                if is_asked != (turn == last) {
                    wrong.push(format!("{name} {order:?}: delivery {turn} is {handled:?}"));
                }
                if is_asked && books.balances() != before {
                    wrong.push(format!("{name} {order:?}: it was booked"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn refunds_and_disputes_above_the_charge_are_booked_and_asked_about_until_they_no_longer_are() {
    let conn = database();
    let charge = json!({"id": "ch_1", "amount": 1000, "amount_captured": 1000, "amount_refunded": 0, "captured": true, "currency": "usd",
                        "payment_intent": "pi_1"});
    let disputed = with(&dispute(), json!({"charge": "ch_1", "balance_transactions": [transaction()]}));
    let won = with(
        &disputed,
        json!({"balance_transactions": [transaction(), {"id": "txn_2", "amount": 1000, "fee": 0, "net": 1000, "currency": "usd"}]}),
    );
    let history = [
        ("charge.succeeded", true, charge),
        ("refund.created", true, refund()),
        ("charge.dispute.created", true, disputed),
    ];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        let mut books = Books::begin(&conn);
        for number in order {
            assert_eq!(books.deliver(&told(number, &history[number])), Handled::Applied);
        }
        let open = "SELECT count(*) FROM reviews WHERE kind = 'over_reversed' AND subject = 'charge:ch_1' AND resolved_at_ms IS NULL";
        assert_eq!(books.number(open), 1, "{order:?}");
        assert_eq!(
            books.number("SELECT sum(amount) FROM ledger_entries WHERE kind IN ('refund', 'dispute')"),
            -1300
        );
        books.deliver(&told(9, &("charge.dispute.funds_reinstated", true, won.clone())));
        assert_eq!(books.number(open), 0, "{order:?}");
    }
}

#[test]
fn a_charge_that_fails_late_is_not_booked_and_asks_a_person_once() {
    let conn = database();
    let mut books = Books::begin(&conn);
    let charge = json!({"id": "ch_1", "amount": 1000, "currency": "usd", "failure_balance_transaction": "txn_9", "status": "failed"});
    for number in 0..2 {
        assert_eq!(books.deliver(&told(number, &("charge.failed", true, charge.clone()))), Handled::Applied);
    }
    assert_eq!(books.number("SELECT count(*) FROM reviews WHERE kind = 'late_failure'"), 1);
    assert_eq!(books.number("SELECT count(*) FROM ledger_entries"), 0);
    let ordinary = with(&charge, json!({"id": "ch_2", "failure_balance_transaction": null}));
    assert_eq!(books.deliver(&told(3, &("charge.failed", true, ordinary))), Handled::Ignored);
}

#[test]
fn a_thin_event_about_money_is_never_ignored() {
    let conn = database();
    let mut books = Books::begin(&conn);
    for event_type in ["v1.invoice.paid", "v1.refund.created", "v2.money_management.outbound_payment.posted"]
    {
        let body = json!({"id": "evt_thin", "object": "v2.core.event", "type": event_type, "created": "2026-10-28T00:00:00Z",
                          "related_object": {"id": "in_1", "type": "invoice"}, "snapshot_event": "evt_snapshot"});
        let thin = Told { endpoint: "billing".to_owned(), id: "evt_thin".to_owned(), event_type, body };
        assert!(matches!(books.deliver(&thin), Handled::Thin(_)), "{event_type}");
    }
}

#[test]
fn a_charge_with_ten_thousand_refunds_is_settled_by_its_sums() {
    let conn = database();
    let mut books = Books::begin(&conn);
    let charge = json!({"id": "ch_1", "amount": 10_000_000, "amount_refunded": 0, "captured": true, "currency": "usd", "payment_intent": "pi_1"});
    books.deliver(&told(0, &("charge.succeeded", true, charge)));
    // 9,999 of them, as their events have left them
    books.run(
        "INSERT INTO money_facts (object, field, value, event_id)
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
         SELECT 'charge:ch_1', 'refund:re_' || i, 7, 'evt_' || i FROM n",
    );
    books.run(
        "INSERT INTO ledger_entries (entry_key, kind, amount, currency, event_id, endpoint, booked_at_ms, object)
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
         SELECT 'refund:ch_1' || iif(i = 1, '', '#' || i), 'refund', -7, 'usd', 'evt_' || i, 'billing', 1, 'charge:ch_1' FROM n",
    );
    let last = with(&refund(), json!({"id": "re_10000", "amount": 7}));
    assert_eq!(books.deliver(&told(1, &("refund.created", true, last))), Handled::Applied);
    assert_eq!(
        books.number(
            "SELECT sum(amount) FROM ledger_entries WHERE object = 'charge:ch_1' AND kind = 'refund'"
        ),
        -70_000
    );
    assert_eq!(books.number("SELECT count(*) FROM ledger_entries WHERE entry_key = 'refund:ch_1#10000'"), 1);
}
