//! `inboxd money`: what the owner of a shop gets out of the books, from outside.

#![allow(clippy::unwrap_used, reason = "in a test, a failed unwrap is the failure")]

mod support;

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use support::Daemon;

const NOVEMBER: i64 = 1_763_000_000;
const DECEMBER: i64 = 1_765_000_000;

fn event(id: &str, event_type: &str, created: i64, object: &Value) -> String {
    json!({
        "id": id, "object": "event", "api_version": "2026-10-28.endive", "created": created, "livemode": true,
        "type": event_type, "data": {"object": object},
    })
    .to_string()
}

fn invoice(id: &str, currency: &str, status: &str, paid: i64) -> Value {
    json!({
        "id": id, "object": "invoice", "customer": "cus_1", "currency": currency, "status": status, "total": 1200,
        "amount_due": 1000, "amount_paid": paid, "amount_remaining": 1000 - paid,
    })
}

fn payment(id: &str, invoice: &str, currency: &str, amount: i64, kind: &str) -> Value {
    json!({
        "id": id, "object": "invoice_payment", "invoice": invoice, "currency": currency, "amount_paid": amount,
        "status": "paid", "payment": {"type": kind, kind: format!("{id}_by")},
    })
}

/// A month of a shop in three currencies of different digits, and one refund that came late.
fn shop() -> Daemon {
    let daemon = Daemon::start();
    let charge = json!({
        "id": "ch_1", "object": "charge", "amount": 1000, "amount_captured": 1000, "amount_refunded": 300, "captured": true,
        "currency": "eur", "status": "succeeded", "payment_intent": "inpay_1_by",
    });
    let dispute = json!({
        "id": "dp_1", "object": "dispute", "charge": "ch_9", "amount": 700, "currency": "kwd", "status": "needs_response",
        "balance_transactions": [{"id": "txn_1", "amount": -700, "fee": 15, "net": -715, "currency": "kwd"}],
    });
    let intent =
        json!({"id": "pi_9", "object": "payment_intent", "amount_received": 5000, "currency": "kwd"});
    let payout =
        json!({"id": "po_1", "object": "payout", "amount": 400, "currency": "eur", "status": "paid"});
    for (number, (event_type, created, object)) in [
        ("invoice.finalized", NOVEMBER, invoice("in_1", "eur", "open", 0)),
        ("invoice_payment.paid", NOVEMBER, payment("inpay_1", "in_1", "eur", 1000, "payment_intent")),
        ("invoice.paid", NOVEMBER, invoice("in_1", "eur", "paid", 1000)),
        ("invoice.paid", NOVEMBER, invoice("in_2", "jpy", "paid", 1000)),
        ("invoice_payment.paid", NOVEMBER, payment("inpay_2", "in_2", "jpy", 1000, "payment_record")),
        ("invoice.finalized", NOVEMBER, invoice("in_3", "eur", "open", 0)),
        ("charge.refunded", DECEMBER, charge),
        ("charge.dispute.created", NOVEMBER, dispute),
        ("payment_intent.succeeded", NOVEMBER, intent),
        ("payout.paid", NOVEMBER, payout),
    ]
    .into_iter()
    .enumerate()
    {
        let body = event(&format!("evt_{number}"), event_type, created, &object);
        assert_eq!(daemon.stripe(&body), (200, r#"{"outcome":"processed"}"#.to_owned()), "{event_type}");
    }
    daemon
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_statement_has_a_line_for_each_account_mode_and_currency() {
    let daemon = shop();
    let ran = daemon.inboxd(&["money", "statement", "2025-11", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let line = |currency: &str, figures: [i64; 11]| {
        let [
            invoiced,
            credited,
            cash_in,
            outside,
            refunds,
            disputes,
            fees,
            payouts,
            receivable,
            provider,
            credit,
        ] = figures;
        json!({
            "month": "2025-11", "account": null, "livemode": true, "currency": currency, "invoiced": invoiced,
            "credited": credited, "cash_in": cash_in, "outside": outside, "refunds": refunds, "disputes": disputes,
            "fees": fees, "payouts": payouts, "receivable": receivable, "provider": provider, "customer_credit": credit,
        })
    };
    let november = [
        line("eur", [2000, 0, 1000, 0, 0, 0, 0, -400, 1000, 600, 400]),
        line("jpy", [1000, 0, 0, 1000, 0, 0, 0, 0, 0, 0, 200]),
        line("kwd", [0, 0, 5000, 0, 0, -700, -15, 0, 0, 4285, 0]),
    ];
    assert_eq!(lines(&ran.stdout), november);
    let december = lines(&daemon.inboxd(&["money", "statement", "2025-12", "--json"]).stdout);
    assert_eq!((&december[0]["refunds"], &december[0]["provider"]), (&json!(-300), &json!(300)));
    assert_eq!(december[0]["cash_in"], 0);
    let text = daemon.inboxd(&["money", "statement", "2025-11"]).stdout;
    assert!(text.contains("EUR, live") && text.contains("20.00") && text.contains("5.000"), "{text}");
    let csv = daemon.inboxd(&["money", "statement", "2025-11", "--csv"]).stdout;
    assert!(csv.contains("2025-11,,live,jpy,1000,0,0,1000,0,0,0,0,0,0,200\r\n"), "{csv}");
}

#[test]
fn a_month_is_that_of_its_zone_and_a_wrong_one_is_refused() {
    let daemon = Daemon::start();
    // half past eleven in the evening of 31 October in UTC: November in Berlin
    let late = event("evt_1", "invoice.finalized", 1_761_953_400, &invoice("in_1", "eur", "open", 0));
    assert_eq!(daemon.stripe(&late).0, 200);
    let invoiced = |args: &[&str]| {
        let ran = daemon.inboxd(&[&["money", "statement", "2025-11", "--json"], args].concat());
        lines(&ran.stdout)[0]["invoiced"].clone()
    };
    assert_eq!(invoiced(&[]), 0);
    assert_eq!(invoiced(&["--zone", "Europe/Berlin"]), 1000);
    for args in [["2025-13", "UTC"], ["november", "UTC"], ["2025-11", "Europe/Berlim"]] {
        let ran = daemon.inboxd(&["money", "statement", args[0], "--zone", args[1]]);
        assert_eq!(ran.code, 2, "{ran:?}");
    }
}

#[test]
fn a_printed_statement_stays_and_what_came_later_is_named() {
    let daemon = shop();
    let ran = daemon.inboxd(&["money", "statement", "2025-11", "--json", "--as-of", "2025-12-01T00:00:00Z"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "all of it was booked later");
    assert!(
        ran.stderr.contains("changed since 2025-12-01") && ran.stderr.contains("payment:in_1"),
        "{ran:?}"
    );
    let ran = daemon.inboxd(&["money", "statement", "2025-11", "--json", "--as-of", "2099-01-01T00:00:00Z"]);
    assert!(lines(&ran.stdout).len() == 3 && ran.stderr.contains("nothing has changed"), "{ran:?}");
}

#[test]
fn test_money_is_never_in_a_live_line() {
    let daemon = shop();
    let body = event("evt_test", "invoice.paid", NOVEMBER, &invoice("in_test", "eur", "paid", 1000));
    assert_eq!(daemon.stripe(&body.replace("\"livemode\":true", "\"livemode\":false")).0, 200);
    let found = lines(&daemon.inboxd(&["money", "statement", "2025-11", "--json"]).stdout);
    let eur: Vec<_> = found.iter().filter(|line| line["currency"] == "eur").collect();
    assert_eq!((&eur[0]["livemode"], &eur[0]["cash_in"]), (&json!(false), &json!(1000)));
    assert_eq!((&eur[1]["livemode"], &eur[1]["cash_in"]), (&json!(true), &json!(1000)));
    for (args, has) in
        [(&["money", "export", "--csv"][..], false), (&["money", "export", "--csv", "--test"], true)]
    {
        assert_eq!(daemon.inboxd(args).stdout.contains("in_test"), has, "{args:?}");
        assert_eq!(daemon.inboxd(args).stdout.contains("in_1"), !has, "{args:?}");
    }
    // the same object in both modes contradicts itself
    let twice = body
        .replace("evt_test", "evt_again")
        .replace("in_test", "in_1")
        .replace("\"livemode\":true", "\"livemode\":false");
    assert_eq!(daemon.stripe(&twice).1, r#"{"outcome":"quarantined"}"#);
    assert_eq!(daemon.text("SELECT kind FROM reviews WHERE event_id = 'evt_again'"), "contradiction");
}

#[test]
fn open_invoices_and_waiting_facts_are_listed() {
    let daemon = shop();
    let found = lines(&daemon.inboxd(&["money", "open", "--json"]).stdout);
    let what: Vec<_> = found
        .iter()
        .map(|line| format!("{} {}", line["what"].as_str().unwrap(), line["object"].as_str().unwrap()))
        .collect();
    assert_eq!(
        what,
        ["open_invoice invoice:in_3", "unnamed_refund charge:ch_1", "unknown_charge charge:ch_9"]
    );
    assert_eq!(found[0]["receivable"], 1000);
    let text = daemon.inboxd(&["money", "open"]).stdout;
    assert!(text.contains("in_3") && text.contains("10.00 EUR"), "{text}");
}

#[test]
fn an_object_is_shown_with_its_evidence_entries_and_events() {
    let daemon = shop();
    let ran = daemon.inboxd(&["money", "object", "in_1", "--json"]);
    let found = &lines(&ran.stdout)[0];
    assert_eq!(found["object"], "invoice:in_1");
    assert_eq!(found["entries"][0]["entry_key"], "invoiced:in_1");
    assert!(found["events"].as_array().unwrap().contains(&json!("evt_1")), "{found}");
    assert!(daemon.inboxd(&["money", "object", "charge:ch_1"]).stdout.contains("refund:ch_1 -3.00 EUR"));
    assert_eq!(daemon.inboxd(&["money", "object", "in_none"]).code, 4);
}

/// Whether another program says yes to a file; `None` where it is not installed.
fn accepted_by(program: &str, args: &[&str]) -> Option<(bool, String)> {
    let output = Command::new(program).args(args).output().ok()?;
    Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn bookkeeping_programs_read_the_export_and_come_to_the_same_balances() {
    let daemon = shop();
    let dir = daemon.dir.path();
    for (flag, file, program, args) in [
        ("--hledger", "books.journal", "hledger", &["check", "-f"][..]),
        ("--beancount", "books.beancount", "bean-check", &[]),
    ] {
        let ran = daemon.inboxd(&["money", "export", flag]);
        assert_eq!(ran.code, 0, "{ran:?}");
        // the balances at the end are checked by the program
        assert!(ran.stdout.contains("4.285 KWD") && ran.stdout.contains("3.00 EUR"), "{}", ran.stdout);
        let path = dir.join(file);
        fs::write(&path, &ran.stdout).unwrap();
        let args = [args, &[path.to_str().unwrap()]].concat();
        match accepted_by(program, &args) {
            Some((is_accepted, said)) => assert!(is_accepted, "{said}\n{}", ran.stdout),
            None => support::skipped(&format!("{program} is not installed")),
        }
    }
    assert_eq!(daemon.inboxd(&["money", "export"]).code, 2, "a format has to be chosen");
}

const REPORT: &str = "\
balance_transaction_id,created_utc,currency,gross,fee,net,reporting_category,source_id,description,invoice_id,payment_intent_id,customer_facing_amount,customer_facing_currency\r
txn_a,2025-11-13 02:13:20,eur,10.00,0.59,9.41,charge,ch_1,\"Invoice, of November\",in_1,pi_1,,\r
txn_b,2025-11-13 02:13:20,kwd,5.000,0.100,4.900,charge,ch_9,,,pi_9,,\r
txn_c,2025-12-06 05:46:40,eur,-2.00,0.00,-2.00,refund,ch_1,,,,,\r
txn_1,2025-11-13 02:13:20,kwd,-0.700,0.015,-0.715,dispute,dp_1,,,,,\r
txn_d,2025-11-13 02:13:20,eur,-0.25,0.00,-0.25,fee,,Radar,,,,\r
txn_e,2025-11-13 02:13:20,eur,-9.00,0.00,-9.00,payout,po_2,,,,,\r
";

#[test]
fn the_books_tie_out_with_the_providers_report_and_its_fees_are_booked_once() {
    let daemon = shop();
    fs::write(daemon.dir.path().join("report.csv"), REPORT).unwrap();
    let found = lines(&daemon.inboxd(&["money", "tie-out", "report.csv", "--json"]).stdout);
    let verdicts: Vec<_> = found
        .iter()
        .map(|line| format!("{} {}", line["object"].as_str().unwrap(), line["what"].as_str().unwrap()))
        .collect();
    assert_eq!(
        verdicts,
        [
            "charge:ch_1 refunds different",
            "dispute:dp_1 matched",
            "invoice:in_1 matched",
            "payment_intent:pi_9 matched",
            "payout:po_1 missing_there",
            "payout:po_2 missing_here",
        ]
    );
    for _ in 0..2 {
        assert_eq!(daemon.inboxd(&["money", "tie-out", "report.csv", "--book-fees"]).code, 0);
        let fees = "SELECT group_concat(entry_key || ' ' || amount || ' ' || currency, ', ' ORDER BY id) FROM ledger_entries WHERE kind = 'fee'";
        assert_eq!(daemon.text(fees), "fee:txn_a -59 eur, fee:txn_b -100 kwd, fee:txn_d -25 eur");
    }
    let wrong = daemon.inboxd(&["money", "tie-out", "inboxd.toml"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("no itemized balance report"), "{wrong:?}");
}

#[test]
fn one_event_is_tried_without_touching_the_books() {
    let daemon = Daemon::start();
    let body = event("evt_1", "invoice.paid", NOVEMBER, &invoice("in_1", "eur", "paid", 1000));
    fs::write(daemon.dir.path().join("event.json"), body).unwrap();
    let found = lines(&daemon.inboxd(&["money", "try", "event.json", "--json"]).stdout);
    assert_eq!(found[0], json!({"outcome": "booked", "reason": null}));
    let keys: Vec<_> = found[1..].iter().map(|line| line["entry_key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["invoiced:in_1", "credit_applied:in_1", "payment:in_1"]);
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries"), 0);
    assert_eq!(daemon.inboxd(&["money", "try", "event.json", "--provider", "github"]).code, 2);
}

#[test]
fn replayed_events_book_what_is_missing_and_nothing_twice() {
    let daemon = shop();
    let sums = "SELECT group_concat(kind || ' ' || currency || ' ' || total, ', ') FROM
                (SELECT kind, currency, sum(amount) AS total FROM ledger_entries GROUP BY kind, currency ORDER BY 1, 2)";
    let before = daemon.text(sums);
    assert_eq!(daemon.inboxd(&["money", "replay"]).code, 5, "only counted without --yes");
    let ran = daemon.inboxd(&["money", "replay", "--yes"]);
    assert!(ran.stdout.starts_with("10 events replayed, 0 lines booked, 0 question"), "{ran:?}");
    assert_eq!(daemon.text(sums), before);
    // as after an upgrade from a version that kept payments alone
    daemon
        .sql()
        .execute_batch(
            "DROP TRIGGER ledger_entries_are_not_deleted; DELETE FROM ledger_entries WHERE kind <> 'payment'; DELETE FROM money_facts;
             CREATE TRIGGER ledger_entries_are_not_deleted BEFORE DELETE ON ledger_entries
             BEGIN SELECT RAISE(ABORT, 'ledger_entries is append-only: book a correcting entry instead'); END",
        )
        .unwrap();
    assert_eq!(daemon.inboxd(&["money", "replay", "--yes"]).code, 0);
    assert_eq!(daemon.text(sums), before);
    assert_eq!(daemon.count("SELECT count(*) FROM inboxd_audit WHERE act = 'money replay'"), 2);
}

#[test]
fn an_invoice_that_was_voided_is_void_though_the_void_of_its_credit_note_comes_later() {
    let daemon = Daemon::start();
    let note = json!({"id": "cn_1", "object": "credit_note", "invoice": "in_1", "currency": "eur", "amount": 300, "type": "pre_payment", "status": "issued"});
    let send = |id: &str, event_type: &str, object: &Value| {
        daemon.stripe(&event(id, event_type, NOVEMBER, object)).1
    };
    assert_eq!(
        send("evt_1", "invoice.finalized", &invoice("in_1", "eur", "open", 0)),
        r#"{"outcome":"processed"}"#
    );
    assert_eq!(send("evt_2", "credit_note.created", &note), r#"{"outcome":"processed"}"#);
    assert_eq!(
        send("evt_3", "invoice.voided", &invoice("in_1", "eur", "void", 0)),
        r#"{"outcome":"quarantined"}"#
    );
    assert_eq!(daemon.text("SELECT kind FROM reviews WHERE resolved_at_ms IS NULL"), "contradiction");
    assert_eq!(send("evt_4", "credit_note.voided", &note), r#"{"outcome":"processed"}"#);
    daemon.wait_for_count("SELECT count(*) FROM invoices WHERE status = 'void'", 1);
    daemon.wait_for_count("SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL", 0);
    assert_eq!(daemon.count("SELECT sum(amount) FROM postings WHERE book = 'receivable'"), 0);
}

#[test]
fn the_books_are_the_same_after_kills_and_a_purge_between_the_events() {
    let daemon = shop();
    let sums = "SELECT group_concat(kind || ' ' || currency || ' ' || total, ', ') FROM
                (SELECT kind, currency, sum(amount) AS total FROM ledger_entries GROUP BY kind, currency HAVING total <> 0 ORDER BY 1, 2)";
    let (expected, bodies) = (daemon.text(sums), {
        let conn = daemon.sql();
        let mut bodies = conn.prepare("SELECT payload FROM webhook_inbox ORDER BY event_id DESC").unwrap();
        let bodies = bodies.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
        bodies.collect::<Vec<_>>()
    });
    let mut daemon = Daemon::start();
    for (number, body) in bodies.iter().enumerate() {
        assert_eq!(daemon.stripe(body).0, 200);
        if number % 3 == 2 {
            daemon = Daemon::in_dir(daemon.kill());
            daemon.sql().execute_batch("UPDATE webhook_inbox SET payload = NULL").unwrap();
        }
        // told by a second endpoint's event of its own
        let again = body
            .replacen("\"id\":\"evt_", "\"id\":\"evt_again_", 1)
            .replace("2026-10-28.endive", "2025-06-30.basil");
        assert_eq!(daemon.stripe(&again).0, 200);
    }
    assert_eq!(daemon.text(sums), expected);
    assert_eq!(daemon.count("SELECT count(*) FROM reviews"), 0);
}

#[test]
fn check_says_what_is_not_subscribed_from_what_has_come() {
    let daemon = Daemon::start();
    daemon.stripe(&event("evt_1", "invoice.paid", NOVEMBER, &invoice("in_1", "eur", "paid", 1000)));
    let ran = daemon.inboxd(&["check"]);
    assert!(format!("{}{}", ran.stdout, ran.stderr).contains("no invoice_payment.paid has come"), "{ran:?}");
    assert!(shop().inboxd(&["check", "--json"]).stdout.contains("no refund.created"));
}

#[test]
fn a_test_delivery_of_each_money_event_is_understood() {
    let daemon = Daemon::start();
    for event_type in [
        "invoice.finalized",
        "invoice.paid",
        "invoice_payment.paid",
        "charge.succeeded",
        "charge.refunded",
        "refund.created",
        "charge.refund.updated",
        "charge.dispute.created",
        "charge.dispute.funds_reinstated",
        "credit_note.created",
        "credit_note.voided",
        "payment_intent.succeeded",
        "checkout.session.completed",
        "payout.paid",
        "topup.succeeded",
        "customer.subscription.created",
    ] {
        let to = format!("http://{}/webhooks/stripe", daemon.webhooks);
        let ran =
            daemon.inboxd(&["send", "stripe", event_type, "--to", &to, "--secret-file", "stripe.secret"]);
        assert!(ran.stdout.contains("processed"), "{event_type}: {ran:?}");
    }
    assert_eq!(daemon.count("SELECT count(*) FROM reviews"), 0);
}
