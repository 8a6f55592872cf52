//! Why the inbox record and the business update share one transaction.
//!
//! Two receivers as they are usually written, small and test-only: one marks the event before the work
//! and loses it, one marks it afterwards and does it twice. The real one, put through the same, does neither.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use rusqlite::Connection;
use support::{Daemon, invoice_event};

/// Where the process dies, or the work fails.
#[derive(PartialEq)]
enum Fault {
    None,
    BetweenTheTwoSteps,
}

/// The process is gone; what was committed stays.
struct Died;

fn books() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch("CREATE TABLE seen (id TEXT PRIMARY KEY); CREATE TABLE entry (id TEXT)").unwrap();
    conn
}

fn is_new(conn: &Connection, id: &str) -> bool {
    conn.query_row("SELECT count(*) = 0 FROM seen WHERE id = ?1", [id], |row| row.get(0)).unwrap()
}

fn mark(conn: &Connection, id: &str) {
    conn.execute("INSERT INTO seen (id) VALUES (?1)", [id]).unwrap();
}

fn book(conn: &Connection, id: &str) {
    conn.execute("INSERT INTO entry (id) VALUES (?1)", [id]).unwrap();
}

fn entries(conn: &Connection) -> i64 {
    conn.query_row("SELECT count(*) FROM entry", [], |row| row.get(0)).unwrap()
}

fn marks_first(conn: &Connection, id: &str, fault: &Fault) -> Result<&'static str, Died> {
    if !is_new(conn, id) {
        return Ok("duplicate");
    }
    mark(conn, id);
    if *fault == Fault::BetweenTheTwoSteps {
        return Err(Died);
    }
    book(conn, id);
    Ok("processed")
}

fn marks_afterwards(conn: &Connection, id: &str, fault: &Fault) -> Result<&'static str, Died> {
    if !is_new(conn, id) {
        return Ok("duplicate");
    }
    book(conn, id);
    if *fault == Fault::BetweenTheTwoSteps {
        return Err(Died);
    }
    mark(conn, id);
    Ok("processed")
}

#[test]
fn a_receiver_that_marks_first_loses_the_event_when_the_work_fails() {
    let conn = books();
    assert!(marks_first(&conn, "evt_1", &Fault::BetweenTheTwoSteps).is_err());
    let redelivery = marks_first(&conn, "evt_1", &Fault::None);
    assert!(matches!(redelivery, Ok("duplicate")));
    assert_eq!(entries(&conn), 0, "the money is lost for ever");
}

#[test]
fn a_receiver_that_marks_afterwards_books_twice_when_it_dies_in_between() {
    let conn = books();
    assert!(marks_afterwards(&conn, "evt_1", &Fault::BetweenTheTwoSteps).is_err());
    let redelivery = marks_afterwards(&conn, "evt_1", &Fault::None);
    assert!(matches!(redelivery, Ok("processed")));
    assert_eq!(entries(&conn), 2, "the money is booked twice");
}

#[test]
fn inboxd_neither_loses_nor_doubles_when_the_work_fails_or_the_process_dies() {
    let daemon = Daemon::start();
    let body = invoice_event("evt_1", "paid", "in_1", 4200);
    let count = "SELECT count(*) FROM ledger_entries WHERE kind = 'payment'";

    // the work fails after the inbox row and the invoice were written
    daemon
        .sql()
        .execute_batch(
            "CREATE TRIGGER fault BEFORE INSERT ON ledger_entries BEGIN SELECT RAISE(ABORT, 'fault'); END",
        )
        .unwrap();
    assert_eq!(daemon.stripe(&body).0, 500);
    daemon.sql().execute_batch("DROP TRIGGER fault").unwrap();
    assert_eq!(daemon.stripe(&body), (200, r#"{"outcome":"processed"}"#.to_owned()));
    assert_eq!(daemon.count(count), 1);

    // the process dies after the commit, whether or not the provider has seen the answer
    let daemon = Daemon::in_dir(daemon.kill());
    assert_eq!(daemon.stripe(&body), (200, r#"{"outcome":"duplicate"}"#.to_owned()));
    assert_eq!(daemon.count(count), 1);
}
