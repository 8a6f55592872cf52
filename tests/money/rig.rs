//! The books in memory: the handler `billing` on a database of its own, one savepoint per delivery as the writer has it.

use std::collections::BTreeMap;

use inboxd::handlers::{Billing, Event, Handled, Handler};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::shop::Told;

/// A database with nothing in it.
pub fn database() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(include_str!("../../schema.sql")).unwrap();
    conn.pragma_update(None, "foreign_keys", true).unwrap();
    conn.set_prepared_statement_cache_capacity(256);
    conn
}

/// The books inside one transaction, which is undone at its end.
pub struct Books<'c> {
    tx: Transaction<'c>,
    /// The questions to a person: event and reason.
    pub questions: Vec<(String, String)>,
    now_ms: i64,
}

/// (object, account, currency) -> balance.
pub type Balances = BTreeMap<(String, String, String), i64>;

impl<'c> Books<'c> {
    pub fn begin(conn: &'c Connection) -> Self {
        let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate).unwrap();
        Self { tx, questions: Vec::new(), now_ms: 1_000 }
    }

    pub fn run(&self, sql: &str) {
        self.tx.prepare_cached(sql).unwrap().execute([]).unwrap();
    }

    /// A point to come back to.
    pub fn mark(&self) {
        self.run("SAVEPOINT here");
    }

    /// Forgets what came since the latest mark.
    pub fn back(&mut self) {
        self.run("ROLLBACK TO here");
        self.run("RELEASE here");
        self.questions.clear();
    }

    pub fn deliver(&mut self, told: &Told) -> Handled {
        self.now_ms += 1;
        let event = Event {
            endpoint: &told.endpoint,
            provider: "stripe",
            id: &told.id,
            event_type: told.event_type,
            object_id: None,
            account: told.body["account"].as_str(),
            livemode: told.body["livemode"].as_bool(),
            query: None,
            body: &told.body,
            text: None,
            is_test_send: false,
            notify: Some("app"),
            now_ms: self.now_ms,
        };
        if !Billing.takes(told.event_type) {
            return Handled::Ignored;
        }
        self.run("SAVEPOINT delivery");
        let handled = Billing.handle(&self.tx, &event).unwrap();
        if let Handled::Quarantine(reason) | Handled::Contradiction(reason) | Handled::Thin(reason) = &handled
        {
            self.run("ROLLBACK TO delivery");
            self.questions.push((told.id.clone(), reason.clone()));
        }
        self.run("RELEASE delivery");
        handled
    }

    pub fn column(&self, sql: &str) -> Vec<String> {
        let mut statement = self.tx.prepare_cached(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// The objects of the lines that were booked since that one.
    pub fn booked_after(&self, id: i64) -> Vec<String> {
        let mut statement =
            self.tx.prepare_cached("SELECT object FROM ledger_entries WHERE id > ?1").unwrap();
        let rows = statement.query_map([id], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    pub fn number(&self, sql: &str) -> i64 {
        self.tx.prepare_cached(sql).unwrap().query_row([], |row| row.get(0)).unwrap()
    }

    /// The sums of the lines, by kind and currency.
    pub fn sums(&self) -> BTreeMap<(String, String), i64> {
        let sql = "SELECT kind, currency, sum(amount) FROM ledger_entries GROUP BY kind, currency HAVING sum(amount) <> 0";
        let mut statement = self.tx.prepare_cached(sql).unwrap();
        let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }

    pub fn balances(&self) -> Balances {
        let sql = "SELECT object, book, currency, sum(amount) FROM postings
                    GROUP BY object, book, currency HAVING sum(amount) <> 0";
        let mut statement = self.tx.prepare_cached(sql).unwrap();
        let rows = statement
            .query_map([], |row| Ok(((row.get(0)?, row.get(1)?, row.get(2)?), row.get(3)?)))
            .unwrap();
        rows.map(Result::unwrap).collect()
    }
}
