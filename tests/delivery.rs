//! One delivery from outside: the real binary, real connections, and what the database says afterwards.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::sync::{Arc, Barrier};
use std::thread;

use support::{Client, Daemon, STRIPE_SECRET, invoice_event, now_s, stripe_signature};

const PROCESSED: &str = r#"{"outcome":"processed"}"#;
const DUPLICATE: &str = r#"{"outcome":"duplicate"}"#;
const IGNORED: &str = r#"{"outcome":"ignored"}"#;
const QUARANTINED: &str = r#"{"outcome":"quarantined"}"#;

const ENTRIES: &str = "SELECT count(*) FROM ledger_entries WHERE kind = 'payment'";
const ROWS: &str = "SELECT count(*) FROM webhook_inbox";
const REVIEWS: &str = "SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL";

fn ok(word: &str) -> (u16, String) {
    (200, word.to_owned())
}

fn refused(status: u16, word: &str) -> (u16, String) {
    (status, format!(r#"{{"error":"{word}"}}"#))
}

/// Makes the billing handler fail until it is removed.
const FAIL: &str = "CREATE TRIGGER a_broken_books BEFORE INSERT ON ledger_entries
    BEGIN SELECT RAISE(ABORT, 'the books are broken'); END";
const MEND: &str = "DROP TRIGGER a_broken_books";

#[test]
fn the_same_event_twice_is_processed_once() {
    let daemon = Daemon::start();
    let body = invoice_event("evt_1", "paid", "in_1", 4200);
    assert_eq!(daemon.stripe(&body), ok(PROCESSED));
    assert_eq!(daemon.stripe(&body), ok(DUPLICATE));
    assert_eq!(daemon.count(ROWS), 1);
    assert_eq!(daemon.count(ENTRIES), 1);
    let row = "SELECT state || ' ' || attempts || ' ' || duplicates FROM webhook_inbox";
    assert_eq!(daemon.text(row), "done 1 1");
    assert_eq!(daemon.text("SELECT payload FROM webhook_inbox"), body);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn of_8_simultaneous_copies_1_is_processed_and_7_are_duplicates() {
    let daemon = Daemon::start();
    let body = Arc::new(invoice_event("evt_1", "paid", "in_1", 4200));
    let barrier = Arc::new(Barrier::new(8));
    let senders: Vec<_> = (0..8)
        .map(|_| {
            let (body, barrier, mut client) = (Arc::clone(&body), Arc::clone(&barrier), daemon.client());
            thread::spawn(move || {
                let signature = stripe_signature(&*body, now_s(), STRIPE_SECRET);
                barrier.wait();
                client.post("/webhooks/stripe", &[&signature], &*body)
            })
        })
        .collect();
    let mut answers: Vec<_> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
    answers.sort();
    let mut expected = vec![ok(DUPLICATE); 7];
    expected.push(ok(PROCESSED));
    assert_eq!(answers, expected);
    assert_eq!(daemon.count(ENTRIES), 1);
    assert_eq!(daemon.count("SELECT duplicates FROM webhook_inbox"), 7);
}

#[test]
fn a_failed_handler_leaves_nothing_and_the_redelivery_is_processed() {
    let daemon = Daemon::start();
    let body = invoice_event("evt_1", "paid", "in_1", 4200);
    daemon.sql().execute_batch(FAIL).unwrap();
    assert_eq!(daemon.stripe(&body), refused(500, "handler_failed"));
    assert_eq!(daemon.count(ROWS), 0);
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), 0);
    daemon.wait_for_log("the books are broken");
    daemon.sql().execute_batch(MEND).unwrap();
    assert_eq!(daemon.stripe(&body), ok(PROCESSED));
    assert_eq!(daemon.count(ENTRIES), 1);
}

#[test]
fn every_order_of_created_finalized_and_paid_ends_alike() {
    let daemon = Daemon::start();
    let kinds = ["created", "finalized", "paid"];
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (n, order) in orders.iter().enumerate() {
        for &k in order {
            let body = invoice_event(&format!("evt_{n}_{k}"), kinds[k], &format!("in_{n}"), 4200);
            assert_eq!(daemon.stripe(&body), ok(PROCESSED), "order {order:?}");
        }
    }
    let states =
        "SELECT count(*) FROM invoices WHERE status = 'paid' AND amount_paid = 4200 AND currency = 'eur'";
    assert_eq!(daemon.count(states), 6);
    assert_eq!(daemon.count(ENTRIES), 6);
}

#[test]
fn two_events_for_one_payment_make_one_entry() {
    let daemon = Daemon::start();
    assert_eq!(daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200)), ok(PROCESSED));
    assert_eq!(daemon.stripe(&invoice_event("evt_2", "payment_succeeded", "in_1", 4200)), ok(PROCESSED));
    assert_eq!(daemon.stripe(&invoice_event("evt_3", "paid", "in_1", 4200)), ok(PROCESSED));
    assert_eq!(daemon.count(ENTRIES), 1);
    assert_eq!(daemon.count(ROWS), 3);
}

#[test]
fn payment_of_a_void_invoice_is_quarantined_and_not_booked() {
    let daemon = Daemon::start();
    assert_eq!(daemon.stripe(&invoice_event("evt_1", "voided", "in_1", 0)), ok(PROCESSED));
    let paid = invoice_event("evt_2", "paid", "in_1", 4200);
    assert_eq!(daemon.stripe(&paid), ok(QUARANTINED));
    assert_eq!(daemon.stripe(&paid), ok(DUPLICATE));
    assert_eq!(daemon.count(ENTRIES), 0);
    assert_eq!(daemon.text("SELECT status FROM invoices"), "void");
    assert_eq!(daemon.count(REVIEWS), 1);
}

#[test]
fn a_review_closes_when_a_redelivery_of_its_event_goes_through() {
    let daemon = Daemon::start();
    daemon.stripe(&invoice_event("evt_1", "voided", "in_1", 0));
    let paid = invoice_event("evt_2", "paid", "in_1", 4200);
    assert_eq!(daemon.stripe(&paid), ok(QUARANTINED));
    let open = "SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL";
    assert_eq!(daemon.count(open), 1);
    daemon.sql().execute_batch("DELETE FROM invoices").unwrap();
    assert_eq!(daemon.stripe(&paid), ok(PROCESSED));
    assert_eq!(daemon.count(open), 0);
    assert_eq!(daemon.text("SELECT note FROM reviews"), "went through when it was sent again");
}

#[test]
fn voiding_a_paid_invoice_leaves_it_paid_and_booked_and_asks_a_person() {
    let daemon = Daemon::start();
    assert_eq!(daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200)), ok(PROCESSED));
    assert_eq!(daemon.stripe(&invoice_event("evt_2", "voided", "in_1", 4200)), ok(QUARANTINED));
    assert_eq!(daemon.count(ENTRIES), 1);
    assert_eq!(daemon.text("SELECT status FROM invoices"), "paid");
    assert_eq!(daemon.count(REVIEWS), 1);
}

#[test]
fn with_the_inbox_row_deleted_a_redelivery_changes_no_books() {
    let daemon = Daemon::start();
    let body = invoice_event("evt_1", "paid", "in_1", 4200);
    assert_eq!(daemon.stripe(&body), ok(PROCESSED));
    daemon.sql().execute_batch("DELETE FROM webhook_inbox").unwrap();
    let books = "SELECT group_concat(id || entry_key || amount || booked_at_ms) FROM ledger_entries";
    let before = daemon.text(books);
    assert_eq!(daemon.stripe(&body), ok(PROCESSED));
    assert_eq!(daemon.text(books), before);
}

#[test]
fn one_event_to_two_endpoints_is_processed_on_both() {
    let second = r#"
[endpoint.second]
provider = "stripe"
secrets = ["file:stripe.secret"]
handlers = ["billing"]
"#;
    let daemon = Daemon::with_config(&format!("{}{second}", support::CONFIG));
    let body = invoice_event("evt_1", "finalized", "in_1", 4200);
    assert_eq!(daemon.stripe(&body), ok(PROCESSED));
    let signature = stripe_signature(&body, now_s(), STRIPE_SECRET);
    assert_eq!(daemon.client().post("/webhooks/second", &[&signature], &body), ok(PROCESSED));
    assert_eq!(daemon.count(ROWS), 2);
}

#[test]
fn a_body_that_was_serialised_again_is_refused_and_not_stored() {
    let daemon = Daemon::start();
    let body = invoice_event("evt_1", "paid", "in_1", 4200);
    let signature = stripe_signature(&body, now_s(), STRIPE_SECRET);
    let again = body.replace("\":", "\": ");
    let answer = daemon.client().post("/webhooks/stripe", &[&signature], &again);
    assert_eq!(answer, refused(400, "signature_mismatch"));
    assert_eq!(daemon.count(ROWS), 0);
}

#[test]
fn what_is_not_signed_is_refused_with_its_reason_and_not_stored() {
    let daemon = Daemon::start();
    let body = invoice_event("evt_1", "paid", "in_1", 4200);
    let now = now_s();
    let sign = |t: i64, secret: &str| stripe_signature(&body, t, secret);
    let cases = [
        (vec![], "signature_missing"),
        (vec!["Stripe-Signature: nonsense".to_owned()], "signature_malformed"),
        (vec![sign(now, "whsec_of_somebody_else")], "signature_mismatch"),
        (vec![sign(now - 900, STRIPE_SECRET)], "timestamp_outside_tolerance"),
        (vec![sign(now + 900, STRIPE_SECRET)], "timestamp_outside_tolerance"),
        (vec![sign(now, STRIPE_SECRET), sign(now, STRIPE_SECRET)], "signature_malformed"),
    ];
    for (headers, reason) in cases {
        let headers: Vec<_> = headers.iter().map(String::as_str).collect();
        assert_eq!(daemon.client().post("/webhooks/stripe", &headers, &body), refused(400, reason));
    }
    assert_eq!(daemon.client().post("/webhooks/stripe", &[], ""), refused(400, "signature_missing"));
    assert_eq!(daemon.count(ROWS), 0);
}

#[test]
fn a_forged_delivery_does_not_block_the_genuine_one() {
    let daemon = Daemon::start();
    let body = invoice_event("evt_1", "paid", "in_1", 4200);
    let forged = stripe_signature(&body, now_s(), "whsec_of_somebody_else");
    assert_eq!(daemon.client().post("/webhooks/stripe", &[&forged], &body).0, 400);
    assert_eq!(daemon.stripe(&body), ok(PROCESSED));
}

#[test]
fn a_signed_event_of_an_unknown_type_is_stored_and_ignored() {
    let daemon = Daemon::start();
    let body = r#"{"id":"evt_1","type":"foo.bar.baz","data":{"object":{}}}"#;
    assert_eq!(daemon.stripe(body), ok(IGNORED));
    assert_eq!(daemon.stripe(body), ok(DUPLICATE));
    assert_eq!(daemon.text("SELECT state FROM webhook_inbox"), "ignored");
}

#[test]
fn a_signed_body_that_cannot_be_read_is_stored_for_a_person() {
    let daemon = Daemon::start();
    let deep = "[".repeat(100_000);
    let bodies: Vec<Vec<u8>> = vec![
        br#"{"id":"evt_1","type":"invoice.paid","data":{"object":{"description":"\ud83d"}}}"#.to_vec(),
        b"{\"id\":\"evt_2\",\"note\":\"\xff\xfe\"}".to_vec(),
        b"not json".to_vec(),
        b"".to_vec(),
        deep.into_bytes(),
        br#"{"type":"invoice.paid"}"#.to_vec(),
        br#"{"id":7,"type":"invoice.paid"}"#.to_vec(),
        b"{\"id\":\"evt_3\",\"type\":\"invoice.paid\"}\0".to_vec(),
    ];
    for body in &bodies {
        let signature = stripe_signature(body, now_s(), STRIPE_SECRET);
        let answer = daemon.client().post("/webhooks/stripe", &[&signature], body);
        assert_eq!(answer, ok(QUARANTINED), "{:?}", String::from_utf8_lossy(&body[..body.len().min(40)]));
        let again = daemon.client().post("/webhooks/stripe", &[&signature], body);
        assert_eq!(again, ok(DUPLICATE));
    }
    let keyed =
        "SELECT count(*) FROM webhook_inbox WHERE event_id LIKE 'body-sha256:%' AND length(event_id) = 76";
    assert_eq!(daemon.count(keyed), i64::try_from(bodies.len()).unwrap());
    assert_eq!(daemon.count(REVIEWS), i64::try_from(bodies.len()).unwrap());
    let kept: Vec<u8> = daemon
        .sql()
        .query_row("SELECT payload FROM webhook_inbox WHERE typeof(payload) = 'blob'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(kept, bodies[1]);
}

#[test]
fn the_same_id_with_another_body_is_a_duplicate_that_a_person_hears_of() {
    let daemon = Daemon::start();
    let first = invoice_event("evt_1", "paid", "in_1", 4200);
    assert_eq!(daemon.stripe(&first), ok(PROCESSED));
    assert_eq!(daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 9900)), ok(DUPLICATE));
    assert_eq!(daemon.text("SELECT payload FROM webhook_inbox"), first);
    assert_eq!(daemon.count("SELECT sum(amount) FROM ledger_entries WHERE kind = 'payment'"), 4200);
    assert_eq!(daemon.text("SELECT kind FROM reviews"), "body_conflict");
}

#[test]
fn test_sends_of_the_dashboard_are_stored_apart_and_never_booked() {
    let daemon = Daemon::start();
    let id = "evt_00000000000000";
    assert_eq!(daemon.stripe(&invoice_event(id, "paid", "in_00000000000000", 2000)), ok(IGNORED));
    assert_eq!(daemon.stripe(&invoice_event(id, "voided", "in_00000000000000", 2000)), ok(IGNORED));
    assert_eq!(daemon.stripe(&invoice_event(id, "voided", "in_00000000000000", 2000)), ok(DUPLICATE));
    assert_eq!(daemon.stripe(&invoice_event("evt_1", "paid", "in_00000000000000", 2000)), ok(IGNORED));
    assert_eq!(daemon.count(ROWS), 3);
    assert_eq!(daemon.count(ENTRIES), 0);
    assert_eq!(daemon.count(REVIEWS), 0);
}

#[test]
fn events_of_another_mode_or_account_are_refused() {
    let scoped = support::CONFIG.replace(
        "handlers = [\"billing\"]",
        "handlers = [\"billing\"]\nlivemode = true\naccount = \"acct_1\"",
    );
    let daemon = Daemon::with_config(&scoped);
    let event = |id: &str, scope: &str| {
        invoice_event(id, "paid", &format!("in_{id}"), 4200).replace("\"livemode\":false,", scope)
    };
    assert_eq!(daemon.stripe(&event("evt_1", "\"livemode\":false,")), refused(400, "scope_mismatch"));
    let other = event("evt_2", "\"livemode\":true,\"account\":\"acct_2\",");
    assert_eq!(daemon.stripe(&other), refused(400, "scope_mismatch"));
    assert_eq!(daemon.count(ROWS), 0);
    assert_eq!(daemon.stripe(&event("evt_3", "\"livemode\":true,")), ok(PROCESSED));
    assert_eq!(daemon.stripe(&event("evt_4", "\"livemode\":true,\"account\":\"acct_1\",")), ok(PROCESSED));
    assert_eq!(daemon.stripe(&event("evt_5", "")), ok(QUARANTINED));
    assert_eq!(daemon.count(ENTRIES), 2);
}

#[test]
fn a_platform_may_take_events_of_another_mode_and_ignore_them() {
    let scoped = support::CONFIG.replace(
        "handlers = [\"billing\"]",
        "handlers = [\"billing\"]\nlivemode = true\non_scope_mismatch = \"ignore\"",
    );
    let daemon = Daemon::with_config(&scoped);
    assert_eq!(daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200)), ok(IGNORED));
    assert_eq!(daemon.count(ENTRIES), 0);
    assert_eq!(daemon.count(ROWS), 1);
}

#[test]
fn a_booked_payment_is_announced_once_where_a_destination_is_named() {
    let notified = support::CONFIG
        .replace("handlers = [\"billing\"]", "handlers = [\"billing\"]\nnotify = \"app\"")
        + "[destination.app]\nurl = \"http://127.0.0.1:3000/hooks\"\nsign = \"none\"\n";
    let daemon = Daemon::with_config(&notified);
    // what is announced stays where it is
    assert_eq!(daemon.inboxd(&["outbox", "pause", "app"]).code, 0);
    for (event, kind) in [("evt_1", "paid"), ("evt_2", "payment_succeeded"), ("evt_1", "paid")] {
        assert_eq!(daemon.stripe(&invoice_event(event, kind, "in_1", 4200)).0, 200);
    }
    let row = "SELECT destination || ' ' || topic || ' ' || operation_key || ' ' || state FROM outbox";
    assert_eq!(daemon.text(row), "app InvoicePaymentBooked payment:in_1 pending");
    let topics = "SELECT group_concat(topic || ' ' || operation_key, ', ' ORDER BY id) FROM outbox";
    assert_eq!(daemon.text(topics), "InvoicePaymentBooked payment:in_1, InvoicePaid invoice-paid:in_1");
}

#[test]
fn paths_and_methods_are_answered_without_a_redirect() {
    let daemon = Daemon::start();
    let body = invoice_event("evt_1", "paid", "in_1", 4200);
    let signature = stripe_signature(&body, now_s(), STRIPE_SECRET);
    let mut client = daemon.client();
    assert_eq!(client.post("/webhooks/stripe/?x=1", &[&signature], &body), ok(PROCESSED));
    assert_eq!(client.post("/webhooks/stripe?x=1", &[&signature], &body), ok(DUPLICATE));
    assert_eq!(client.post("/nowhere", &[], "{}"), refused(404, "not_found"));
    assert_eq!(client.post("//webhooks//stripe", &[&signature], &body), refused(404, "not_found"));
    client.send("GET", "/webhooks/stripe", &[], b"");
    let (status, head, body) = client.try_answer_with_head().unwrap();
    assert_eq!((status, body.as_str()), (405, r#"{"error":"method_not_allowed"}"#));
    assert!(head.to_ascii_lowercase().contains("allow: post"), "{head}");
    assert_eq!(client.get("/livez").0, 200);
    assert_eq!(client.get("/readyz").0, 200);
    let mut admin = Client::connect(&daemon.admin);
    assert_eq!(admin.get("/readyz").0, 200);
    // nothing is delivered there: all but the probes asks for a login
    assert_eq!(admin.post("/webhooks/stripe", &[], "{}").0, 401);
}

#[test]
fn header_names_are_found_in_any_case() {
    let daemon = Daemon::start();
    for (n, name) in ["STRIPE-SIGNATURE", "stripe-signature", "Stripe-Signature"].iter().enumerate() {
        let body = invoice_event(&format!("evt_{n}"), "paid", &format!("in_{n}"), 4200);
        let signature = stripe_signature(&body, now_s(), STRIPE_SECRET).replace("Stripe-Signature", name);
        assert_eq!(daemon.client().post("/webhooks/stripe", &[&signature], &body), ok(PROCESSED));
    }
}

#[test]
fn a_killed_daemon_remembers_what_it_acknowledged() {
    let daemon = Daemon::start();
    let body = invoice_event("evt_1", "paid", "in_1", 4200);
    assert_eq!(daemon.stripe(&body), ok(PROCESSED));
    let daemon = Daemon::in_dir(daemon.kill());
    assert_eq!(daemon.stripe(&body), ok(DUPLICATE));
    assert_eq!(daemon.count(ENTRIES), 1);
}

#[test]
fn a_second_daemon_on_the_same_data_is_refused() {
    let daemon = Daemon::start();
    let second = daemon.inboxd(&["serve"]);
    assert_eq!(second.code, 6, "{second:?}");
    assert!(second.stderr.contains("another inboxd"), "{second:?}");
}

#[test]
fn a_github_delivery_needs_its_id_header_and_a_ping_is_ignored() {
    let daemon = Daemon::start();
    let body = r#"{"zen":"Keep it logically awesome.","hook_id":1}"#;
    let signature = support::github_signature(body);
    let mut client = daemon.client();
    let event = "X-GitHub-Event: ping";
    assert_eq!(client.post("/webhooks/github", &[&signature, event], body), refused(400, "event_id_missing"));
    assert_eq!(
        client.post("/webhooks/github", &[&signature, event, "X-GitHub-Delivery: d-1"], body),
        ok(IGNORED)
    );
    assert_eq!(daemon.text("SELECT event_id || ' ' || event_type FROM webhook_inbox"), "d-1 ping");
}

#[test]
fn secrets_and_bodies_do_not_reach_the_log() {
    let daemon = Daemon::start();
    let body = invoice_event("evt_1", "paid", "in_1", 4200).replace("cus_1", "cus_canary");
    daemon.stripe(&body);
    let wrong = stripe_signature(&body, now_s(), "whsec_of_somebody_else");
    daemon.client().post("/webhooks/stripe", &[&wrong], &body);
    daemon.client().post("/webhooks/stripe", &[], &body);
    daemon.wait_for_log("signature_mismatch");
    daemon.wait_for_log("signature_missing");
    let log = daemon.log();
    let signature = wrong.rsplit("v1=").next().unwrap();
    for secret in ["cus_canary", STRIPE_SECRET, signature] {
        assert!(!log.contains(secret), "{secret} stands in the log: {log}");
    }
}

#[test]
fn a_quarantined_event_that_is_nobodys_business_is_ignored_when_it_comes_again() {
    let daemon = Daemon::start();
    let body = r#"{"id":"evt_1","type":"foo.bar","data":{"object":{}}}"#;
    assert_eq!(daemon.stripe(body), ok(IGNORED));
    let quarantine = "UPDATE webhook_inbox SET state = 'quarantined', processed_at_ms = NULL";
    daemon.sql().execute_batch(quarantine).unwrap();
    assert_eq!(daemon.stripe(body), ok(IGNORED));
    assert_eq!(daemon.text("SELECT state || ' ' || attempts FROM webhook_inbox"), "ignored 2");
}

#[test]
fn a_quarantined_event_is_tried_again_when_it_comes_again() {
    let daemon = Daemon::start();
    let body = invoice_event("evt_1", "paid", "in_1", 4200);
    daemon.stripe(&invoice_event("evt_0", "voided", "in_1", 4200));
    assert_eq!(daemon.stripe(&body), ok(QUARANTINED));
    // somebody has put the books right
    daemon.sql().execute_batch("DELETE FROM invoices").unwrap();
    assert_eq!(daemon.stripe(&body), ok(PROCESSED));
    assert_eq!(
        daemon.text("SELECT state || ' ' || attempts FROM webhook_inbox WHERE event_id = 'evt_1'"),
        "done 2"
    );
    assert_eq!(daemon.count(ENTRIES), 1);
}

#[test]
fn an_id_in_the_form_of_a_body_key_does_not_stand_in_the_way_of_a_body_without_one() {
    let daemon = Daemon::start();
    let broken = "not json";
    let signature = stripe_signature(broken, now_s(), STRIPE_SECRET);
    assert_eq!(daemon.client().post("/webhooks/stripe", &[&signature], broken), ok(QUARANTINED));
    let key = daemon.text("SELECT event_id FROM webhook_inbox");
    let daemon = Daemon::start();
    assert_eq!(daemon.stripe(&invoice_event(&key, "paid", "in_1", 4200)), ok(QUARANTINED));
    assert_eq!(daemon.client().post("/webhooks/stripe", &[&signature], broken), ok(QUARANTINED));
    assert_eq!(daemon.count(ROWS), 2);
}

#[test]
fn a_retry_lets_nothing_through_that_cannot_be_read_or_is_of_another_scope() {
    let handlers = "handlers = [\"billing\"]";
    let scoped =
        support::CONFIG.replace(handlers, &format!("{handlers}\nlivemode = true\naccount = \"acct_1\""));
    let daemon = Daemon::with_config(&scoped);
    let paid = |id: &str, more: &str| {
        format!(
            r#"{{"id":"{id}","type":"invoice.paid",{more}"data":{{"object":{{"id":"in_{id}","object":"invoice","status":"paid","currency":"eur","amount_paid":4200}}}}}}"#
        )
    };
    let bodies = [
        paid("evt_1", r#""livemode":true,"note":"half an emoji \ud83d","#),
        paid("evt_2", r#""livemode":true,"account":["acct_1"],"#),
        paid("evt_3", r#""livemode":"true","#),
        paid("evt_4", ""),
        paid("evt_5", r#""livemode":true,"#).replace(r#""invoice.paid""#, "5"),
    ];
    for body in &bodies {
        assert_eq!(daemon.stripe(body), ok(QUARANTINED), "{body}");
    }
    let waiting = "SELECT count(*) FROM webhook_inbox WHERE state = 'quarantined'
        AND attempts > 1 AND last_error IS NOT NULL";
    assert_eq!(daemon.inboxd(&["retry", "--state", "quarantined", "--yes"]).code, 0);
    daemon.wait_for_count(waiting, 5);
    assert_eq!(daemon.count(REVIEWS), 5);
    assert_eq!(daemon.count(ENTRIES), 0);

    // whoever does not care about the mode any more says so in the configuration
    let dir = daemon.kill();
    let config = dir.path().join("inboxd.toml");
    let text = std::fs::read_to_string(&config).unwrap().replace("livemode = true\n", "");
    std::fs::write(&config, text).unwrap();
    let daemon = Daemon::in_dir(dir);
    assert_eq!(daemon.inboxd(&["retry", "--state", "quarantined", "--yes"]).code, 0);
    daemon.wait_for_count("SELECT count(*) FROM webhook_inbox WHERE state = 'done'", 2);
    daemon.wait_for_count("SELECT count(*) FROM webhook_inbox WHERE state = 'quarantined'", 3);
    assert_eq!(daemon.count(ENTRIES), 2);
}
