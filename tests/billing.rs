//! The handler `billing` and its two tables: events in any order, any number and any shape against the books.
#![allow(clippy::unwrap_used, reason = "in a test, a failed unwrap is the failure")]

use std::collections::BTreeSet;

use inboxd::handlers::{Billing, Event, Handled, Handler};
use inboxd::internals::books::invoices::{self, Invoice, Status, Step, step};
use inboxd::internals::store::reviews;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde_json::{Value, json};

use Status::{Deleted, Draft, Open, Paid, Uncollectible, Void};

// ---------------------------------------------------------------------------------------------------------
// The state table
// ---------------------------------------------------------------------------------------------------------

#[test]
fn the_state_table_is_this_one() {
    // Rows: from. Columns: draft open uncollectible paid void deleted. M move, s stay, X contradiction.
    let expected = [
        (None, "MMMMMM"),
        (Some(Draft), "sMMMMM"),
        (Some(Open), "ssMMMX"),
        (Some(Uncollectible), "sssMMX"),
        (Some(Paid), "ssssXX"),
        (Some(Void), "sssXsX"),
        (Some(Deleted), "sXXXXs"),
    ];
    for (from, row) in expected {
        let actual: String = Status::ALL.map(|proved| letter(step(from, proved))).iter().collect();
        assert_eq!(actual, row, "from {from:?}");
    }
}

#[test]
fn no_step_goes_backwards_or_leaves_an_end() {
    for from in Status::ALL {
        for proved in Status::ALL {
            if step(Some(from), proved) == Step::Move {
                assert!(rank(proved) > rank(from), "{from:?} -> {proved:?}");
                assert!(!is_end(from), "{from:?} -> {proved:?}");
            }
        }
        assert_eq!(step(Some(from), from), Step::Stay, "a repetition of {from:?} changes nothing");
        assert_eq!(step(None, from), Step::Move, "{from:?} can be the first that is heard");
    }
}

#[test]
fn what_contradicts_does_so_in_both_orders() {
    for a in Status::ALL {
        for b in Status::ALL {
            let forth = matches!(step(Some(a), b), Step::Contradiction(_));
            let back = matches!(step(Some(b), a), Step::Contradiction(_));
            assert_eq!(forth, back, "{a:?} and {b:?}");
        }
    }
}

#[test]
fn every_history_the_provider_can_produce_ends_alike_in_every_order() {
    let mut orders = 0;
    for history in possible_histories(5) {
        let end = *history.last().unwrap();
        for order in permutations(&history) {
            let mut state = None;
            for proved in order {
                match step(state, proved) {
                    Step::Move => state = Some(proved),
                    Step::Stay => {}
                    Step::Contradiction(what) => panic!("{history:?}: {what}"),
                }
            }
            assert_eq!(state, Some(end), "{history:?}");
            orders += 1;
        }
    }
    assert!(orders > 5_000, "only {orders} orders were tried");
}

// ---------------------------------------------------------------------------------------------------------
// Order and repetition
// ---------------------------------------------------------------------------------------------------------

#[test]
fn created_finalized_and_paid_end_alike_in_all_six_orders() {
    assert_ends_alike(&[created(), finalized(), paid(1000)], &paid_row(1000));
}

#[test]
fn a_full_history_with_repetitions_ends_alike_in_every_order() {
    let history =
        [created(), updated("draft", 0), finalized(), failed(), updated("open", 0), paid(1000), paid(1000)];
    assert_ends_alike(&history, &paid_row(1000));
}

#[test]
fn an_early_paid_snapshot_and_both_paid_events_are_one_payment() {
    let history = [
        created(),
        updated("open", 0),
        updated("paid", 1000),
        succeeded(1000),
        paid(1000),
        updated("paid", 1000),
    ];
    assert_ends_alike(&history, &paid_row(1000));
}

#[test]
fn a_snapshot_that_says_paid_books_even_where_no_paid_event_follows() {
    assert_ends_alike(&[created(), updated("paid", 1000)], &paid_row(1000));
}

#[test]
fn an_uncollectible_invoice_that_is_paid_later_is_paid_in_every_order() {
    let history = [created(), finalized(), failed(), uncollectible(), failed(), paid(1000)];
    assert_ends_alike(&history, &paid_row(1000));
}

#[test]
fn an_uncollectible_invoice_that_is_voided_is_void_in_every_order() {
    let history = [created(), finalized(), uncollectible(), voided(), updated("void", 0)];
    assert_ends_alike(&history, &unpaid_row("void"));
}

#[test]
fn a_failed_attempt_leaves_an_uncollectible_invoice_uncollectible_in_every_order() {
    let history = [created(), finalized(), failed(), uncollectible(), failed()];
    assert_ends_alike(&history, &unpaid_row("uncollectible"));
}

#[test]
fn a_deleted_draft_stays_deleted_in_every_order() {
    let history = [created(), updated("draft", 0), deleted(), deleted()];
    assert_ends_alike(&history, &unpaid_row("deleted"));
}

#[test]
fn part_payments_leave_the_invoice_open_and_are_booked_as_they_come() {
    let part = with(succeeded(400), &[("status", json!("open")), ("amount_remaining", json!(600))]);
    let snapshot = updated("open", 400);
    let booked = "open cus_1 eur 0 | payment:in_1 400 eur | payment:in_1";
    assert_ends_alike(&[finalized(), part.clone(), snapshot.clone()], booked);
    for order in permutations(&[finalized(), part, snapshot, succeeded(1000), paid(1000)]) {
        let mut books = Books::new();
        for event in &order {
            assert_eq!(books.deliver(event), Handled::Applied, "{order:?}");
        }
        let sums = books.column("SELECT sum(amount) || '' FROM ledger_entries WHERE kind = 'payment'");
        assert_eq!((sums, books.row("in_1").status), (vec!["1000".to_owned()], Paid), "{order:?}");
    }
}

#[test]
fn a_payment_that_leaves_nothing_to_pay_is_the_whole_even_if_the_snapshot_is_stale() {
    let stale = with(succeeded(1000), &[("status", json!("open"))]);
    let nothing_left = with(stale.clone(), &[("amount_remaining", json!(0))]);
    assert_ends_alike(&[finalized(), stale, nothing_left], &paid_row(1000));
}

#[test]
fn times_of_the_provider_decide_nothing() {
    let mut late = created();
    late["created"] = json!(1_900_000_000);
    let mut early = paid(1000);
    early["created"] = json!(1_000_000_000);
    assert_ends_alike(&[late, early], &paid_row(1000));
}

#[test]
fn a_state_this_program_does_not_know_moves_nothing() {
    assert_ends_alike(&[finalized(), updated("settling", 1000)], &unpaid_row("open"));
    let without = with(updated("", 0), &[("status", Value::Null)]);
    assert_ends_alike(&[finalized(), without], &unpaid_row("open"));
}

#[test]
fn the_customer_and_the_currency_are_kept_whichever_event_names_them() {
    let bare = with(finalized(), &[("customer", Value::Null), ("currency", Value::Null)]);
    let no_customer = with(paid(1000), &[("customer", Value::Null)]);
    assert_ends_alike(&[created(), bare.clone(), no_customer], &paid_row(1000));
    assert_ends_alike(&[bare, created()], &unpaid_row("open"));
}

// ---------------------------------------------------------------------------------------------------------
// One fact, one entry, one message
// ---------------------------------------------------------------------------------------------------------

#[test]
fn two_events_for_one_payment_make_one_entry_and_one_message() {
    let mut books = Books::new();
    assert_eq!(books.deliver(&paid(1000)), Handled::Applied);
    assert_eq!(books.deliver(&paid(1000)), Handled::Applied);
    assert_eq!(books.entries(), ["payment:in_1 1000 eur"]);
    assert_eq!(books.messages(), ["payment:in_1"]);
}

#[test]
fn paid_and_the_older_payment_succeeded_are_one_payment() {
    assert_ends_alike(&[paid(1000), succeeded(1000)], &paid_row(1000));
}

#[test]
fn the_message_says_what_was_booked_and_nothing_personal() {
    let mut books = Books::new();
    let customer = json!({"id": "cus_1", "email": "person@example.com", "name": "A Person"});
    books.deliver_as("evt_first", &with(paid(1000), &[("customer", customer)]), Some("app"));
    books.deliver(&paid(1000));

    let (destination, topic, payload): (String, String, String) = books
        .conn
        .query_row(
            "SELECT destination, topic, payload FROM outbox WHERE topic = 'InvoicePaymentBooked'",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!((destination.as_str(), topic.as_str()), ("app", "InvoicePaymentBooked"));
    assert_eq!(
        serde_json::from_str::<Value>(&payload).unwrap(),
        json!({
            "type": "InvoicePaymentBooked", "invoice": "in_1", "customer": "cus_1", "amount": 1000,
            "currency": "eur", "endpoint": "billing", "event_id": "evt_first",
        })
    );
}

#[test]
fn without_a_destination_to_notify_the_payment_is_booked_and_no_message_written() {
    let mut books = Books::new();
    assert_eq!(books.deliver_as("evt_1", &paid(1000), None), Handled::Applied);
    assert_eq!(books.entries(), ["payment:in_1 1000 eur"]);
    assert!(books.messages().is_empty());
}

#[test]
fn a_message_that_was_delivered_and_purged_is_not_written_again() {
    let mut books = Books::new();
    books.deliver(&paid(1000));
    books.conn.execute("DELETE FROM outbox", []).unwrap();
    assert_eq!(books.deliver(&succeeded(1000)), Handled::Applied);
    assert!(books.messages().is_empty());
}

#[test]
fn the_entry_names_the_event_that_was_first_to_tell() {
    let mut books = Books::new();
    books.deliver_as("evt_first", &paid(1000), None);
    books.deliver_as("evt_second", &succeeded(1000), None);
    let told = "SELECT event_id || ' ' || kind || ' ' || endpoint FROM ledger_entries WHERE entry_key = 'payment:in_1'";
    assert_eq!(books.column(told), ["evt_first payment billing"]);
}

#[test]
fn invoices_do_not_touch_each_other() {
    let mut books = Books::new();
    books.deliver(&paid(1000));
    books.deliver(&about("in_2", created()));
    books.deliver(&about("in_3", voided()));
    assert_eq!(books.row("in_2").status, Draft);
    assert_eq!(books.row("in_3").status, Void);
    assert_eq!(books.entries(), ["payment:in_1 1000 eur"]);
}

// ---------------------------------------------------------------------------------------------------------
// What cannot be true together
// ---------------------------------------------------------------------------------------------------------

#[test]
fn payment_of_a_void_invoice_is_not_booked_and_asks_a_person() {
    let mut books = Books::new();
    books.deliver(&voided());
    assert_eq!(books.deliver(&paid(1000)), contradiction("payment of a void invoice (in_1)"));
    assert_eq!(books.row("in_1").status, Void);
    assert!(books.entries().is_empty() && books.messages().is_empty());
    assert_eq!(books.reviews(), 1);
}

#[test]
fn void_of_a_paid_invoice_leaves_it_paid_and_booked_and_asks_a_person() {
    let mut books = Books::new();
    books.deliver(&paid(1000));
    assert_eq!(books.deliver(&voided()), contradiction("void of a paid invoice (in_1)"));
    assert_eq!(books.row("in_1").status, Paid);
    assert_eq!(books.entries(), ["payment:in_1 1000 eur"]);
    assert_eq!(books.reviews(), 1);
}

#[test]
fn every_contradictory_set_asks_a_person_in_every_order_and_books_at_most_once() {
    let sets: [&[Value]; 9] = [
        &[paid(1000), voided()],
        &[created(), paid(1000), voided(), paid(1000)],
        &[updated("paid", 1000), updated("void", 0)],
        &[paid(1000), deleted()],
        &[finalized(), deleted()],
        &[uncollectible(), deleted()],
        &[failed(), deleted()],
        &[voided(), deleted(), paid(1000)],
        &[paid(1000), with(succeeded(1000), &[("currency", json!("usd"))])],
    ];
    for set in sets {
        for order in permutations(set) {
            let mut books = Books::new();
            let mut booked = 0;
            for event in &order {
                books.deliver(event);
                assert!(books.entries().len() >= booked, "unbooked: {order:?}");
                booked = books.entries().len();
            }
            assert!(books.reviews() >= 1, "nobody is asked: {order:?}");
            assert!(booked <= 1, "booked twice: {order:?}");
            books.assert_consistent();
        }
    }
}

#[test]
fn a_payment_told_again_with_another_amount_currency_or_customer_asks_a_person() {
    let cases = [
        ("amount_paid", json!(2000), "paid before, with another amount (in_1)"),
        ("amount_paid", json!(0), "paid before, with another amount (in_1)"),
        ("currency", json!("usd"), "another currency than before (in_1)"),
        ("customer", json!("cus_2"), "another customer than before (in_1)"),
    ];
    for (field, value, reason) in cases {
        let other = with(succeeded(1000), &[(field, value)]);

        let mut books = Books::new();
        books.deliver(&paid(1000));
        assert_eq!(books.deliver(&other), contradiction(reason));
        assert_eq!(books.entries(), ["payment:in_1 1000 eur"], "{field}");

        let mut books = Books::new();
        assert_eq!(books.deliver(&other), Handled::Applied);
        assert_eq!(books.deliver(&paid(1000)), contradiction(reason));
        assert!(books.entries().len() <= 1, "{field}");
    }
}

#[test]
fn an_event_that_contradicts_itself_asks_a_person_and_leaves_no_trace() {
    for (event, status) in [(paid(1000), "void"), (voided(), "paid"), (paid(1000), "deleted")] {
        let mut books = Books::new();
        let verdict = books.deliver(&with(event, &[("status", json!(status))]));
        assert!(is_quarantine(&verdict), "{status}: {verdict:?}");
        assert!(invoices::find(&books.conn, "in_1").unwrap().is_none());
        assert!(books.entries().is_empty());
    }
}

#[test]
fn a_payment_that_leaves_something_to_pay_is_not_the_whole() {
    let left = |event: Value, status: Value, remaining: Value| {
        with(event, &[("status", status), ("amount_remaining", remaining)])
    };
    let cases = [
        left(paid(0), json!("open"), json!(1000)),
        left(paid(0), json!("draft"), json!(1000)),
        left(paid(400), json!("open"), json!(600)),
        left(paid(400), json!("open"), json!("600")),
        left(succeeded(400), json!("open"), json!("600")),
        left(succeeded(400), json!("open"), json!(600.0)),
        left(succeeded(400), json!("open"), json!(-600)),
    ];
    for event in cases {
        let mut books = Books::new();
        let verdict = books.deliver(&event);
        assert!(is_quarantine(&verdict), "{verdict:?}: {event}");
        assert!(books.entries().is_empty(), "{event}");
    }
    let mut books = Books::new();
    assert_eq!(books.deliver(&left(succeeded(400), Value::Null, json!(600))), Handled::Applied);
    assert_eq!(books.entries(), ["payment:in_1 400 eur"], "a part payment without a status");
    assert_eq!(books.deliver(&left(paid(1000), json!("paid"), json!(0))), Handled::Applied);
    assert_eq!(books.entries(), ["payment:in_1 400 eur", "payment:in_1#2 600 eur"]);
}

#[test]
fn what_the_books_hold_already_is_completed_by_the_difference() {
    let mut books = Books::new();
    books
        .conn
        .execute_batch(
            "INSERT INTO ledger_entries (entry_key, invoice_id, kind, amount, currency, event_id, endpoint, booked_at_ms, object)
             VALUES ('payment:in_1', 'in_1', 'payment', 999, 'eur', 'evt_0', 'billing', 1, 'invoice:in_1')",
        )
        .unwrap();
    assert_eq!(books.deliver(&paid(1000)), Handled::Applied);
    assert_eq!(books.entries(), ["payment:in_1 999 eur", "payment:in_1#2 1 eur"]);
    assert_eq!(books.deliver(&succeeded(1000)), Handled::Applied);
    assert_eq!(books.entries().len(), 2);
}

// ---------------------------------------------------------------------------------------------------------
// Amounts and currencies
// ---------------------------------------------------------------------------------------------------------

#[test]
fn an_invoice_of_zero_is_paid_without_an_entry_or_a_message() {
    let free = [("charge", Value::Null), ("payment_intent", Value::Null), ("total", json!(0))];
    let mut books = Books::new();
    assert_eq!(books.deliver(&with(paid(0), &free)), Handled::Applied);
    assert_eq!(books.deliver(&with(updated("paid", 0), &free)), Handled::Applied);
    let row = books.row("in_1");
    assert_eq!((row.status, row.amount_paid), (Paid, 0));
    assert!(row.paid_at_ms.is_some());
    assert!(books.entries().is_empty() && books.messages().is_empty());
}

#[test]
fn a_negative_total_is_paid_with_nothing_booked() {
    let mut books = Books::new();
    let credit = with(paid(0), &[("total", json!(-500)), ("amount_due", json!(0))]);
    assert_eq!(books.deliver(&credit), Handled::Applied);
    assert!(books.entries().is_empty());
}

#[test]
fn what_was_paid_is_booked_and_not_what_was_due() {
    let mut books = Books::new();
    let credited = with(paid(700), &[("amount_due", json!(1000)), ("total", json!(1000))]);
    books.deliver(&credited);
    assert_eq!(books.entries(), ["payment:in_1 700 eur"]);
}

#[test]
fn an_invoice_that_was_paid_outside_the_provider_is_never_its_cash() {
    let outside = ("paid_out_of_band", json!(true));
    let left = ("amount_remaining", json!(1000));
    for shape in [
        with(paid(0), std::slice::from_ref(&outside)),
        with(paid(0), &[outside.clone(), left]),
        with(paid(1000), std::slice::from_ref(&outside)),
        with(paid(1000), &[outside, ("amount_remaining", json!(0))]),
    ] {
        let mut books = Books::new();
        assert_eq!(books.deliver(&shape), Handled::Applied);
        assert_eq!(books.row("in_1").status, Paid);
        assert!(books.entries().is_empty(), "{shape}");
        assert_eq!(
            books.column("SELECT amount || '' FROM ledger_entries WHERE kind = 'paid_outside'"),
            ["1000"]
        );
    }
}

#[test]
fn amounts_are_stored_as_sent_in_every_currency_and_up_to_64_bits() {
    for (amount, currency, entry) in [
        (500, "jpy", "payment:in_1 500 jpy"),
        (92_000, "KWD", "payment:in_1 92000 kwd"),
        (7, "zzz", "payment:in_1 7 zzz"),
        (i64::MAX, "eur", "payment:in_1 9223372036854775807 eur"),
    ] {
        let mut books = Books::new();
        let verdict = books.deliver(&with(paid(amount), &[("currency", json!(currency))]));
        assert_eq!(verdict, Handled::Applied);
        assert_eq!(books.entries(), [entry]);
    }
}

#[test]
fn an_amount_that_is_not_a_whole_number_of_minor_units_is_never_booked() {
    for (literal, problem) in [
        ("null", "is missing"),
        ("-1", "is negative"),
        ("-9223372036854775808", "is negative"),
        ("10.5", "is not a whole number of 64 bits"),
        ("1000.0", "is not a whole number of 64 bits"),
        ("1e3", "is not a whole number of 64 bits"),
        ("9223372036854775808", "is not a whole number of 64 bits"),
        ("123456789012345678901234567890", "is not a whole number of 64 bits"),
        ("\"1000\"", "is not a number"),
        ("true", "is not a number"),
        ("[1000]", "is not a number"),
        ("{\"value\": 1000}", "is not a number"),
    ] {
        for event in [paid(1000), succeeded(1000), updated("paid", 1000)] {
            let amount: Value = serde_json::from_str(literal).unwrap();
            let mut books = Books::new();
            let verdict = books.deliver(&with(event, &[("amount_paid", amount)]));
            assert_eq!(verdict, contradiction(&format!("amount_paid {problem} (in_1)")), "{literal}");
            books.assert_untouched();
        }
    }
}

#[test]
fn a_payment_without_its_amount_is_never_booked() {
    let mut event = paid(1000);
    event["data"]["object"].as_object_mut().unwrap().remove("amount_paid");
    let mut books = Books::new();
    assert_eq!(books.deliver(&event), contradiction("amount_paid is missing (in_1)"));
    books.assert_untouched();
}

#[test]
fn amounts_are_not_looked_at_where_nothing_is_booked() {
    for event in [created(), deleted(), updated("draft", 0)] {
        let mut books = Books::new();
        let verdict = books.deliver(&with(event, &[("amount_paid", json!("much")), ("total", json!(1.5))]));
        assert_eq!(verdict, Handled::Applied);
    }
    for event in [finalized(), failed(), uncollectible(), updated("open", 0)] {
        let mut books = Books::new();
        let verdict = books.deliver(&with(event, &[("total", json!(1.5))]));
        assert_eq!(verdict, contradiction("total is not a whole number of 64 bits (in_1)"));
        books.assert_untouched();
    }
}

#[test]
fn a_payment_without_a_usable_currency_is_never_booked() {
    for currency in [
        json!(null),
        json!(""),
        json!("e"),
        json!("eu"),
        json!("e u"),
        json!("€€€"),
        json!("usdc"),
        json!("currency"),
        json!(978),
        json!(["eur"]),
    ] {
        let mut books = Books::new();
        let verdict = books.deliver(&with(paid(1000), &[("currency", currency.clone())]));
        assert!(is_quarantine(&verdict), "{currency}: {verdict:?}");
        books.assert_untouched();
    }
}

#[test]
fn a_payment_takes_no_currency_from_earlier_events() {
    let without = with(paid(1000), &[("currency", Value::Null)]);
    let mut books = Books::new();
    books.deliver(&created());
    assert_eq!(books.deliver(&without), quarantine("a payment without a currency (in_1)"));
    assert_eq!(books.row("in_1").status, Draft);
}

#[test]
fn the_case_of_a_currency_makes_no_difference() {
    let loud = with(succeeded(1000), &[("currency", json!("EUR"))]);
    assert_ends_alike(&[paid(1000), loud], &paid_row(1000));
}

// ---------------------------------------------------------------------------------------------------------
// Shapes
// ---------------------------------------------------------------------------------------------------------

#[test]
fn three_api_versions_of_one_payment_give_the_same_row() {
    let shapes = [
        include_str!("fixtures/billing/paid-2017-08-15.json"),
        include_str!("fixtures/billing/paid-2020-08-27.json"),
        include_str!("fixtures/billing/paid-2025-03-31.json"),
    ]
    .map(|text| serde_json::from_str::<Value>(text).unwrap());

    for shape in &shapes {
        let mut books = Books::new();
        assert_eq!(books.deliver(shape), Handled::Applied);
        assert_eq!(
            books.summary("in_shape"),
            "paid cus_shape eur 4200 | payment:in_shape 4200 eur | payment:in_shape"
        );
    }
    for order in permutations(&shapes) {
        let mut books = Books::new();
        for shape in &order {
            assert_eq!(books.deliver(shape), Handled::Applied);
        }
        assert_eq!(books.entries(), ["payment:in_shape 4200 eur"]);
    }
}

#[test]
fn a_customer_may_be_text_an_object_a_deleted_object_or_nobody() {
    for (customer, id) in [
        (json!("cus_1"), Some("cus_1")),
        (json!({"id": "cus_1", "object": "customer", "address": null}), Some("cus_1")),
        (json!({"id": "cus_1", "deleted": true}), Some("cus_1")),
        (json!(null), None),
        (json!(""), None),
    ] {
        let mut books = Books::new();
        assert_eq!(books.deliver(&with(paid(1000), &[("customer", customer)])), Handled::Applied);
        assert_eq!(books.row("in_1").customer_id.as_deref(), id);
    }
    let mut absent = paid(1000);
    absent["data"]["object"].as_object_mut().unwrap().remove("customer");
    let mut books = Books::new();
    assert_eq!(books.deliver(&absent), Handled::Applied);
    assert_eq!(books.row("in_1").customer_id, None);
}

#[test]
fn a_customer_of_any_other_shape_is_quarantined_with_a_reason() {
    for (customer, reason) in [
        (json!(5), "the customer is not text"),
        (json!([]), "the customer is not text"),
        (json!(true), "the customer is not text"),
        (json!({}), "the customer has no id"),
        (json!({"id": null}), "the customer has no id"),
        (json!({"id": 5}), "the customer's id is not text"),
        (json!("c".repeat(256)), "the customer is longer than 255 bytes"),
        (json!("cus_\u{0}1"), "the customer contains control characters"),
    ] {
        for event in [created(), paid(1000)] {
            let mut books = Books::new();
            let verdict = books.deliver(&with(event, &[("customer", customer.clone())]));
            assert_eq!(verdict, quarantine(reason));
            books.assert_untouched();
        }
    }
}

#[test]
fn an_invoice_id_is_text_of_up_to_255_bytes() {
    let longest = format!("in_{}", "x".repeat(252));
    let mut books = Books::new();
    assert_eq!(books.deliver(&about(&longest, paid(1000))), Handled::Applied);
    assert_eq!(books.row(&longest).status, Paid);

    for (id, reason) in [
        (json!(null), "the invoice has no id"),
        (json!(""), "the invoice has no id"),
        (json!(7), "the invoice's id is not text"),
        (json!({"id": "in_1"}), "the invoice's id is not text"),
        (json!("x".repeat(256)), "the invoice's id is longer than 255 bytes"),
        (json!("x".repeat(10_240)), "the invoice's id is longer than 255 bytes"),
        (json!("in_1\n"), "the invoice's id contains control characters"),
    ] {
        let mut books = Books::new();
        assert_eq!(books.deliver(&with(paid(1000), &[("id", id)])), quarantine(reason));
        books.assert_untouched();
    }
}

#[test]
fn a_body_without_an_invoice_in_it_is_quarantined() {
    let no_object = "data.object is missing or not an object";
    let not_an_invoice = "data.object is not an invoice";
    let paid_object = |fields: Value| json!({"data": {"object": fields}});
    let bodies = [
        (json!(null), no_object),
        (json!([]), no_object),
        (json!("invoice.paid"), no_object),
        (json!({"type": "invoice.paid"}), no_object),
        (json!({"data": null}), no_object),
        (json!({"data": {"object": null}}), no_object),
        (json!({"data": {"object": ["in_1"]}}), no_object),
        (
            paid_object(json!({"id": "ch_1", "object": "charge", "amount_paid": 5, "currency": "eur"})),
            not_an_invoice,
        ),
        (
            paid_object(json!({"id": "in_1", "object": 5, "amount_paid": 5, "currency": "eur"})),
            not_an_invoice,
        ),
        (
            paid_object(json!({"id": "in_1", "status": 5, "amount_paid": 5, "currency": "eur"})),
            "the invoice's status is not text",
        ),
    ];
    for (body, reason) in bodies {
        let mut books = Books::new();
        let verdict = books.deliver_type("invoice.paid", "evt_1", &body, Some("app"));
        assert_eq!(verdict, quarantine(reason), "{body}");
        books.assert_untouched();
    }
}

#[test]
fn the_least_a_paid_event_can_say_is_enough() {
    let body = json!({"data": {"object": {"id": "in_1", "amount_paid": 5, "currency": "eur"}}});
    let mut books = Books::new();
    let verdict = books.deliver_type("invoice.paid", "evt_1", &body, None);
    assert_eq!(verdict, Handled::Applied);
    assert_eq!(books.summary("in_1"), "paid - eur 5 | payment:in_1 5 eur | ");
}

// ---------------------------------------------------------------------------------------------------------
// What is no business
// ---------------------------------------------------------------------------------------------------------

#[test]
fn only_events_that_tell_an_invoices_state_are_taken() {
    for taken in [
        "invoice.created",
        "invoice.finalized",
        "invoice.paid",
        "invoice.payment_succeeded",
        "invoice.voided",
        "invoice.marked_uncollectible",
        "invoice.payment_failed",
        "invoice.updated",
        "invoice.deleted",
    ] {
        assert!(Billing.takes(taken), "{taken}");
    }
    for other in [
        "",
        "invoice",
        "invoice.",
        "invoice.upcoming",
        "invoice.sent",
        "invoice.finalization_failed",
        "invoice.payment_action_required",
        "invoice.overdue",
        "invoice_payment.created",
        "invoiceitem.created",
        "charge.pending",
        "INVOICE.PAID",
    ] {
        assert!(!Billing.takes(other), "{other}");
        let mut books = Books::new();
        let verdict = books.deliver_type(other, "evt_1", &paid(1000), Some("app"));
        assert_eq!(verdict, Handled::Ignored, "{other}");
        books.assert_untouched();
    }
}

#[test]
fn test_sends_are_never_booked() {
    let mut books = Books::new();
    let body = paid(1000);
    let event =
        Event { is_test_send: true, ..event("invoice.paid", "evt_00000000000000", &body, Some("app")) };
    assert_eq!(books.handle(&event), Handled::Ignored);
    assert_eq!(books.deliver(&about("in_00000000000000", paid(1000))), Handled::Ignored);
    books.assert_untouched();
}

// ---------------------------------------------------------------------------------------------------------
// The database is the last line
// ---------------------------------------------------------------------------------------------------------

#[test]
fn the_books_refuse_to_be_edited_emptied_replaced_or_doubled() {
    let mut books = Books::new();
    books.deliver(&paid(1000));
    let columns =
        "(id, entry_key, invoice_id, kind, amount, currency, event_id, endpoint, booked_at_ms, object)";
    for (statement, why) in [
        ("UPDATE ledger_entries SET amount = 1".to_owned(), "append-only"),
        ("DELETE FROM ledger_entries".to_owned(), "append-only"),
        (
            format!(
                "INSERT OR REPLACE INTO ledger_entries {columns} VALUES (NULL, 'payment:in_1', 'in_1', 'payment', 1, 'eur', 'e', 'e', 1, 'invoice:in_1')"
            ),
            "append-only",
        ),
        (
            format!(
                "INSERT OR REPLACE INTO ledger_entries {columns} VALUES (1, 'payment:in_9', 'in_9', 'payment', 1, 'eur', 'e', 'e', 1, 'invoice:in_1')"
            ),
            "append-only",
        ),
        (
            format!(
                "INSERT INTO ledger_entries {columns} VALUES (NULL, 'payment:in_1', 'in_1', 'payment', 1000, 'eur', 'e', 'e', 1, 'invoice:in_1')"
            ),
            "append-only",
        ),
        (
            format!(
                "INSERT INTO ledger_entries {columns} VALUES (NULL, 'payment:in_2', 'in_2', 'payment', 0, 'eur', 'e', 'e', 1, 'invoice:in_1')"
            ),
            "amount <> 0",
        ),
        (
            format!(
                "INSERT INTO ledger_entries {columns} VALUES (NULL, 'payment:in_2', 'in_2', 'payment', 1, 'EUR', 'e', 'e', 1, 'invoice:in_1')"
            ),
            "lower(currency)",
        ),
        (
            format!(
                "INSERT INTO ledger_entries {columns} VALUES (NULL, 'payment:in_2', 'in_2', 'gift', 1, 'eur', 'e', 'e', 1, 'invoice:in_1')"
            ),
            "FOREIGN KEY",
        ),
    ] {
        let error = books.conn.execute(&statement, []).unwrap_err().to_string();
        assert!(error.contains(why), "{statement}: {error}");
    }
    assert_eq!(books.entries(), ["payment:in_1 1000 eur"]);
}

#[test]
fn an_ended_invoice_keeps_its_status_whoever_writes() {
    let mut books = Books::new();
    books.deliver(&paid(1000));
    for statement in [
        "UPDATE invoices SET status = 'open', paid_at_ms = NULL",
        "UPDATE invoices SET status = 'void', paid_at_ms = NULL",
    ] {
        let error = books.conn.execute(statement, []).unwrap_err().to_string();
        assert!(error.contains("keeps its status"), "{error}");
    }
    for statement in ["UPDATE invoices SET paid_at_ms = NULL", "UPDATE invoices SET amount_paid = -1"] {
        let error = books.conn.execute(statement, []).unwrap_err().to_string();
        assert!(error.contains("CHECK"), "{error}");
    }
}

#[test]
fn a_failure_while_queueing_takes_the_state_and_the_entry_with_it() {
    let mut books = Books::new();
    books
        .conn
        .execute_batch(
            "CREATE TRIGGER broken BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'broken'); END",
        )
        .unwrap();
    let body = paid(1000);
    {
        let tx = books.begin();
        let error = Billing.handle(&tx, &event("invoice.paid", "evt_1", &body, Some("app"))).unwrap_err();
        assert_eq!(error.to_string(), "SQL: broken");
        // Dropping the transaction rolls it back, as the writer does after an error.
    }
    books.assert_untouched();
    books.conn.execute_batch("DROP TRIGGER broken").unwrap();
    assert_eq!(books.deliver(&body), Handled::Applied);
    assert_eq!(books.messages(), ["payment:in_1"]);
}

// ---------------------------------------------------------------------------------------------------------
// Anything at all
// ---------------------------------------------------------------------------------------------------------

#[test]
fn the_books_stay_consistent_under_thousands_of_arbitrary_sequences() {
    let mut random = XorShift(0x9E37_79B9_7F4A_7C15);
    let mut books = Books::new();
    for round in 0..3_000 {
        let id = format!("in_{round}");
        for _ in 0..=random.below(8) {
            let event = about(&id, arbitrary_event(&mut random));
            let before = (books.find(&id), books.summary(&id));
            let verdict = books.deliver(&event);
            let after = books.find(&id);
            if is_quarantine(&verdict) {
                assert_eq!(books.summary(&id), before.1, "a quarantined event left a trace: {event}");
            }
            assert_never_backwards(before.0.as_ref(), after.as_ref(), &event);
            books.assert_consistent_for(&id);
        }
    }
    books.assert_consistent();
    let ends: BTreeSet<String> = books.column("SELECT DISTINCT status FROM invoices").into_iter().collect();
    assert_eq!(ends.len(), 6, "the generator reaches every state: {ends:?}");
    assert!(books.reviews() > 100 && books.entries().len() > 500);
}

#[test]
fn shuffled_and_repeated_histories_of_one_payment_end_alike() {
    let mut random = XorShift(0xD1B5_4A32_D192_ED03);
    let mut books = Books::new();
    let facts = [
        created(),
        updated("draft", 0),
        finalized(),
        updated("open", 0),
        failed(),
        uncollectible(),
        updated("uncollectible", 0),
        paid(1000),
        succeeded(1000),
        updated("paid", 1000),
        updated("a_state_of_the_future", 1000),
    ];
    for round in 0..2_000 {
        let id = format!("in_{round}");
        let mut deliveries = vec![paid(1000)];
        for _ in 0..random.below(12) {
            deliveries.push(facts[random.below(facts.len())].clone());
        }
        for turn in (1..deliveries.len()).rev() {
            deliveries.swap(turn, random.below(turn + 1));
        }
        for event in &deliveries {
            assert_eq!(books.deliver(&about(&id, event.clone())), Handled::Applied, "{deliveries:?}");
        }
        let expected = format!("paid cus_1 eur 1000 | payment:{id} 1000 eur | payment:{id}");
        assert_eq!(books.summary(&id), expected, "{deliveries:?}");
    }
    assert_eq!(books.reviews(), 0);
}

// ---------------------------------------------------------------------------------------------------------
// Events
// ---------------------------------------------------------------------------------------------------------

fn created() -> Value {
    invoice_event("invoice.created", "draft", 0)
}

fn finalized() -> Value {
    invoice_event("invoice.finalized", "open", 0)
}

fn failed() -> Value {
    invoice_event("invoice.payment_failed", "open", 0)
}

fn uncollectible() -> Value {
    invoice_event("invoice.marked_uncollectible", "uncollectible", 0)
}

fn paid(amount: i64) -> Value {
    invoice_event("invoice.paid", "paid", amount)
}

fn succeeded(amount: i64) -> Value {
    invoice_event("invoice.payment_succeeded", "paid", amount)
}

fn voided() -> Value {
    invoice_event("invoice.voided", "void", 0)
}

fn deleted() -> Value {
    invoice_event("invoice.deleted", "draft", 0)
}

fn updated(status: &str, amount: i64) -> Value {
    invoice_event("invoice.updated", status, amount)
}

fn invoice_event(event_type: &str, status: &str, amount_paid: i64) -> Value {
    json!({
        "object": "event", "type": event_type, "created": 1_700_000_000, "api_version": "2024-06-20",
        "data": {"object": {
            "id": "in_1", "object": "invoice", "status": status, "customer": "cus_1", "currency": "eur",
            "amount_due": 1000, "amount_paid": amount_paid, "total": 1000,
        }},
    })
}

fn about(invoice_id: &str, event: Value) -> Value {
    with(event, &[("id", json!(invoice_id))])
}

fn with(mut event: Value, fields: &[(&str, Value)]) -> Value {
    for (name, value) in fields {
        event["data"]["object"][*name] = value.clone();
    }
    event
}

fn arbitrary_event(random: &mut XorShift) -> Value {
    let types = [
        "invoice.created",
        "invoice.finalized",
        "invoice.payment_failed",
        "invoice.marked_uncollectible",
        "invoice.paid",
        "invoice.payment_succeeded",
        "invoice.voided",
        "invoice.deleted",
        "invoice.updated",
    ];
    let statuses = ["draft", "open", "uncollectible", "paid", "void", "deleted", "unheard_of"];
    let amounts =
        [json!(1000), json!(1000), json!(1000), json!(0), json!(2000), json!(-1), json!(1.5), json!("1")];
    let mut event = invoice_event(types[random.below(types.len())], "", 0);
    // Half of the events carry no status, so that their type alone speaks.
    let status = match random.below(2) {
        0 => json!(statuses[random.below(statuses.len())]),
        _ => Value::Null,
    };
    event = with(event, &[("status", status), ("amount_paid", amounts[random.below(amounts.len())].clone())]);
    match random.below(12) {
        0 => with(event, &[("currency", json!("usd"))]),
        1 => with(event, &[("currency", Value::Null)]),
        2 => with(event, &[("customer", Value::Null)]),
        3 => with(event, &[("customer", json!([]))]),
        _ => event,
    }
}

// ---------------------------------------------------------------------------------------------------------
// The books under test
// ---------------------------------------------------------------------------------------------------------

/// A fresh database and a small stand-in for the writer: one immediate transaction per delivery, and
/// whatever is quarantined is undone before its review is opened.
struct Books {
    conn: Connection,
    deliveries: u32,
}

impl Books {
    fn new() -> Self {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../schema.sql")).unwrap();
        conn.set_prepared_statement_cache_capacity(128);
        Self { conn, deliveries: 0 }
    }

    fn begin(&mut self) -> Transaction<'_> {
        Transaction::new(&mut self.conn, TransactionBehavior::Immediate).unwrap()
    }

    /// Each delivery is an Event object of its own.
    fn deliver(&mut self, body: &Value) -> Handled {
        self.deliveries += 1;
        let id = format!("evt_{}", self.deliveries);
        self.deliver_as(&id, body, Some("app"))
    }

    fn deliver_as(&mut self, event_id: &str, body: &Value, notify: Option<&str>) -> Handled {
        let event_type = body["type"].as_str().unwrap();
        self.deliver_type(event_type, event_id, body, notify)
    }

    fn deliver_type(
        &mut self,
        event_type: &str,
        event_id: &str,
        body: &Value,
        notify: Option<&str>,
    ) -> Handled {
        let event = event(event_type, event_id, body, notify);
        self.handle(&Event { now_ms: 1_000 + i64::from(self.deliveries), ..event })
    }

    fn handle(&mut self, event: &Event<'_>) -> Handled {
        let tx = self.begin();
        tx.execute_batch("SAVEPOINT handler").unwrap();
        let verdict = Billing.handle(&tx, event).unwrap();
        let question = match &verdict {
            Handled::Quarantine(reason) => Some((reviews::Kind::Quarantined, reason)),
            Handled::Contradiction(reason) => Some((reviews::Kind::Contradiction, reason)),
            _ => None,
        };
        if let Some((kind, reason)) = question {
            tx.execute_batch("ROLLBACK TO handler").unwrap();
            reviews::open(&tx, kind, event.endpoint, event.id, reason, event.now_ms).unwrap();
        }
        tx.execute_batch("RELEASE handler").unwrap();
        tx.commit().unwrap();
        verdict
    }

    fn find(&self, invoice_id: &str) -> Option<Invoice> {
        invoices::find(&self.conn, invoice_id).unwrap()
    }

    fn row(&self, invoice_id: &str) -> Invoice {
        self.find(invoice_id).unwrap()
    }

    fn entries(&self) -> Vec<String> {
        self.column("SELECT entry_key || ' ' || amount || ' ' || currency FROM ledger_entries WHERE kind = 'payment' ORDER BY id")
    }

    fn messages(&self) -> Vec<String> {
        self.column("SELECT operation_key FROM outbox WHERE topic = 'InvoicePaymentBooked' ORDER BY id")
    }

    fn reviews(&self) -> usize {
        self.column("SELECT reason FROM reviews").len()
    }

    /// All that must not depend on the order: the invoice, its entries and its messages, without times.
    fn summary(&self, invoice_id: &str) -> String {
        let sql = "
            SELECT coalesce((SELECT status || ' ' || coalesce(customer_id, '-') || ' ' || coalesce(currency, '-') || ' ' || amount_paid
                               FROM invoices WHERE id = ?1), '')
                   || ' | ' ||
                   coalesce((SELECT group_concat(entry_key || ' ' || amount || ' ' || currency) FROM ledger_entries WHERE invoice_id = ?1 AND kind = 'payment'), '')
                   || ' | ' ||
                   coalesce((SELECT group_concat(operation_key) FROM outbox WHERE object_id = ?1 AND topic = 'InvoicePaymentBooked'), '')";
        self.conn.prepare_cached(sql).unwrap().query_row([invoice_id], |row| row.get(0)).unwrap()
    }

    fn column(&self, sql: &str) -> Vec<String> {
        let mut statement = self.conn.prepare_cached(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    fn assert_untouched(&self) {
        for table in ["invoices", "ledger_entries", "money_facts", "outbox"] {
            let rows = self.column(&format!("SELECT count(*) || '' FROM {table}"));
            assert_eq!(rows, ["0"], "{table}");
        }
    }

    fn assert_consistent(&self) {
        let ids: BTreeSet<String> = self
            .column("SELECT id FROM invoices UNION SELECT invoice_id FROM ledger_entries UNION SELECT object_id FROM outbox")
            .into_iter()
            .collect();
        for id in ids {
            self.assert_consistent_for(&id);
        }
    }

    /// One entry and one message exactly where the invoice is paid and money came in; their amounts agree.
    fn assert_consistent_for(&self, invoice_id: &str) {
        let expected = match self.find(invoice_id) {
            Some(Invoice { status: Paid, amount_paid, currency: Some(currency), .. }) if amount_paid > 0 => {
                format!("payment:{invoice_id} {amount_paid} {currency} | payment:{invoice_id}")
            }
            _ => " | ".to_owned(),
        };
        let summary = self.summary(invoice_id);
        let (_, booked) = summary.split_once(" | ").unwrap();
        assert_eq!(booked, expected, "{summary}");
    }
}

fn event<'a>(event_type: &'a str, event_id: &'a str, body: &'a Value, notify: Option<&'a str>) -> Event<'a> {
    Event {
        endpoint: "billing",
        provider: "stripe",
        id: event_id,
        event_type,
        object_id: None,
        account: None,
        livemode: Some(true),
        query: None,
        body,
        text: None,
        is_test_send: false,
        notify,
        now_ms: 1_000,
    }
}

/// Delivers the history in every order, each order to an invoice of its own; none may ask a person.
fn assert_ends_alike(history: &[Value], expected: &str) {
    let mut books = Books::new();
    for (number, order) in permutations(history).into_iter().enumerate() {
        let id = format!("in_{number}");
        for event in &order {
            let verdict = books.deliver(&about(&id, event.clone()));
            assert_eq!(verdict, Handled::Applied, "{order:?}");
        }
        assert_eq!(books.summary(&id), expected.replace("in_1", &id), "{order:?}");
    }
    assert_eq!(books.reviews(), 0);
}

fn paid_row(amount: i64) -> String {
    format!("paid cus_1 eur {amount} | payment:in_1 {amount} eur | payment:in_1")
}

fn unpaid_row(status: &str) -> String {
    format!("{status} cus_1 eur 0 |  | ")
}

fn quarantine(reason: &str) -> Handled {
    Handled::Quarantine(reason.to_owned())
}

fn contradiction(reason: &str) -> Handled {
    Handled::Contradiction(reason.to_owned())
}

fn is_quarantine(verdict: &Handled) -> bool {
    matches!(verdict, Handled::Quarantine(_) | Handled::Contradiction(_))
}

fn assert_never_backwards(before: Option<&Invoice>, after: Option<&Invoice>, event: &Value) {
    let Some(before) = before else { return };
    let after = after.expect("an invoice never vanishes");
    if before.status != after.status {
        assert!(rank(after.status) > rank(before.status), "{before:?} -> {after:?} by {event}");
        assert!(!is_end(before.status), "{before:?} -> {after:?} by {event}");
    }
    assert_eq!(before.created_at_ms, after.created_at_ms);
    assert!(before.currency.is_none() || before.currency == after.currency);
    assert!(before.customer_id.is_none() || before.customer_id == after.customer_id);
}

fn letter(step: Step) -> char {
    match step {
        Step::Move => 'M',
        Step::Stay => 's',
        Step::Contradiction(_) => 'X',
    }
}

fn rank(status: Status) -> u8 {
    match status {
        Draft => 0,
        Open => 1,
        Uncollectible => 2,
        Paid | Void | Deleted => 3,
    }
}

fn is_end(status: Status) -> bool {
    rank(status) == 3
}

/// What a provider can prove of one invoice, in the provider's own order: it may report a state more than
/// once, and skip telling of one.
fn possible_histories(length_max: usize) -> Vec<Vec<Status>> {
    fn extend(history: &mut Vec<Status>, length_max: usize, found: &mut Vec<Vec<Status>>) {
        if history.len() == length_max {
            return;
        }
        for next in reachable_from(history.last().copied()) {
            history.push(next);
            found.push(history.clone());
            extend(history, length_max, found);
            history.pop();
        }
    }
    let mut found = Vec::new();
    extend(&mut Vec::new(), length_max, &mut found);
    found
}

/// The provider's rules, written down apart from the table under test.
fn reachable_from(state: Option<Status>) -> Vec<Status> {
    match state {
        None => Status::ALL.to_vec(),
        Some(Draft) => vec![Draft, Open, Uncollectible, Paid, Void, Deleted],
        Some(Open) => vec![Open, Uncollectible, Paid, Void],
        Some(Uncollectible) => vec![Uncollectible, Paid, Void],
        Some(end) => vec![end],
    }
}

fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
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

/// A fixed sequence of numbers, so that a failure can be repeated.
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}
