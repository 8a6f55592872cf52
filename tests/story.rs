//! `events show` puts together what belongs together, and `--follow` shows what comes as it comes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use rustix::process::Signal;
use serde_json::Value;
use support::app::App;
use support::{CONFIG, Daemon, HANG_TIME, event, invoice_event, wait_for};

fn show(daemon: &Daemon, id: &str) -> Value {
    let ran = daemon.inboxd(&["events", "show", id, "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn an_event_is_shown_with_its_deliveries_its_handlers_its_effects_and_what_was_decided() {
    let app = App::answering(200);
    let endpoint = "handlers = [\"billing\"]\nnotify = \"app\"\nforward = [\"app\"]";
    let destination = format!("[destination.app]\nurl = \"{}\"\nsign = \"none\"\n", app.url);
    let daemon = Daemon::with_config(&(CONFIG.replace("handlers = [\"billing\"]", endpoint) + &destination));
    let paid = invoice_event("evt_paid", "paid", "in_9", 1250);
    daemon.stripe(&paid);
    daemon.stripe(&paid);
    // another event of the same payment books nothing of its own
    daemon.stripe(&invoice_event("evt_told", "payment_succeeded", "in_9", 1250));
    daemon.stripe(&invoice_event("evt_void", "voided", "in_9", 1250));
    daemon.wait_for_count("SELECT count(*) FROM outbox WHERE state = 'delivered'", 5);
    let closed = daemon.inboxd(&["resolve", "1", "--note", "the customer was right"]);
    assert_eq!(closed.code, 0, "{closed:?}");

    let json = show(&daemon, "evt_paid");
    assert_eq!(json["duplicates"], 1);
    assert_eq!(json["configured"]["handlers"], serde_json::json!(["billing"]));
    assert_eq!(json["outbox"].as_array().unwrap().len(), 3, "{json}");
    assert_eq!(json["outbox"][0]["state"], "delivered");
    assert_eq!(json["ledger"][0]["entry_key"], "payment:in_9");
    assert_eq!(json["ledger"][0]["booked_by_this_event"], true);
    let text = daemon.inboxd(&["events", "show", "evt_paid"]).stdout;
    for words in [
        "delivered first 2",
        " and 1 more time since",
        "endpoint billing: handlers billing; forward app",
        "to app: InvoicePaymentBooked (payment:in_9) delivered 2",
        "ledger payment:in_9: payment 1250 eur, booked 2",
        " by this event",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let told = show(&daemon, "evt_told");
    assert_eq!(
        (&told["ledger"][0]["event_id"], &told["ledger"][0]["booked_by_this_event"]),
        (&"evt_paid".into(), &false.into())
    );
    let text = daemon.inboxd(&["events", "show", "evt_told"]).stdout;
    assert!(text.contains("by event evt_paid on billing, which reported it first"), "{text}");

    let void = daemon.inboxd(&["events", "show", "evt_void"]).stdout;
    assert!(
        void.contains("review 1 (contradiction, closed 2")
            && void.contains("; decided: the customer was right"),
        "{void}"
    );
    let all = daemon.inboxd(&["reviews", "list", "--all"]).stdout;
    assert!(all.contains("CLOSED") && all.contains("the customer was right"), "{all}");
    assert_eq!(daemon.inboxd(&["reviews", "list"]).stderr, "nothing waits for a person\n");
}

#[test]
fn the_order_that_a_payment_paid_is_shown_with_its_event() {
    let daemon = Daemon::with_config(&CONFIG.replace("\"billing\"", "\"orders\""));
    let order = "INSERT INTO orders (id, currency, total, payment_id) VALUES ('A-17', 'eur', 900, 'pi_17')";
    daemon.sql().execute(order, []).unwrap();
    let intent = r#"{"id":"pi_17","object":"payment_intent","amount":900,"amount_received":900,"currency":"eur","metadata":{"order_id":"A-17"}}"#;
    let answer = daemon.stripe(&event("evt_o", "payment_intent.succeeded", intent));
    assert_eq!(answer.0, 200, "{answer:?}");
    assert_eq!(show(&daemon, "evt_o")["orders"][0]["id"], "A-17");
    let text = daemon.inboxd(&["events", "show", "evt_o"]).stdout;
    assert!(text.contains("order A-17: paid, 900 eur by payment pi_17, paid 2"), "{text}");
}

#[test]
fn a_time_is_named_as_a_time() {
    let daemon = Daemon::start();
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 100));
    let text = daemon.inboxd(&["events", "show", "evt_1"]).stdout;
    let received = text.lines().find(|line| line.starts_with("received ")).unwrap();
    assert!(received.ends_with('Z') && !text.contains("_ms"), "{text}");
    // nothing waits, so nothing is due
    assert!(!text.contains("available"), "{text}");
}

/// A command whose lines come as it writes them.
struct Running {
    child: Child,
    lines: Option<Receiver<String>>,
}

impl Running {
    fn start(daemon: &Daemon, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_inboxd"))
            .args(args)
            .current_dir(daemon.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (line, lines) = mpsc::sync_channel(0);
        // a line that nobody takes ends the thread, and with it the reading end of the pipe
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|text| line.send(text)));
        Self { child, lines: Some(lines) }
    }

    fn line(&self) -> String {
        self.lines.as_ref().unwrap().recv_timeout(HANG_TIME).expect("another line")
    }

    fn wait_for_end(&mut self) -> std::process::ExitStatus {
        wait_for("the command has ended", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn what_is_followed_is_what_was_there_and_then_what_comes_in_the_order_in_which_it_comes() {
    let daemon = Daemon::start();
    for n in 1..=3 {
        daemon.stripe(&invoice_event(&format!("evt_{n}"), "paid", &format!("in_{n}"), 100));
    }
    let mut events = Running::start(&daemon, &["events", "list", "--follow", "--limit", "2", "--json"]);
    let id =
        |line: String| serde_json::from_str::<Value>(&line).unwrap()["event_id"].as_str().unwrap().to_owned();
    assert_eq!([id(events.line()), id(events.line())], ["evt_2", "evt_3"]);
    daemon.stripe(&invoice_event("evt_4", "paid", "in_4", 100));
    assert_eq!(id(events.line()), "evt_4");
    // whoever only looks does not keep the log from being cut
    wait_for("no look is under way", || {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        daemon.sql().query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() == 0
    });
    daemon.stripe(&invoice_event("evt_5", "paid", "in_5", 100));
    assert_eq!(id(events.line()), "evt_5");
    support::signal(events.child.id(), Signal::TERM);
    events.wait_for_end();
}

#[test]
fn only_what_the_filters_choose_is_followed() {
    let daemon = Daemon::start();
    let chosen = ["events", "list", "--follow", "--type", "invoice.voided"];
    let events = Running::start(&daemon, &chosen);
    assert!(events.line().starts_with("RECEIVED (UTC)"));
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 100));
    daemon.stripe(&invoice_event("evt_2", "voided", "in_2", 100));
    assert!(events.line().contains(" evt_2 "));
}

#[test]
fn following_ends_when_nobody_reads_any_more_though_nothing_comes() {
    let daemon = Daemon::start();
    for verb in ["events", "outbox"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_inboxd"))
            .args([verb, "list", "--follow"])
            .current_dir(daemon.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut head = String::new();
        stdout.read_line(&mut head).unwrap();
        assert!(head.contains("(UTC)"), "{head}");
        drop(stdout);
        wait_for("it has ended", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}
