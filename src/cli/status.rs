//! `status`: one screen of what is stored, what waits and what needs a person.

use inboxd::printable::printable;
use inboxd::{clock, inbox, outbox, reviews};
use serde_json::{Value, json};

use super::args::StatusArgs;
use super::store::{self, read_failed, table, time};
use super::{Context, Failure, put};

struct Status {
    database: String,
    inbox: inbox::Summary,
    reviews_open: i64,
    outbox: Vec<(String, i64)>,
    now_ms: i64,
}

/// Prints the state of the instance, running or not.
pub(crate) fn run(args: &StatusArgs, context: &Context) -> Result<(), Failure> {
    let (instance, conn) = store::open(context)?;
    let status = Status {
        database: instance.database.display().to_string(),
        inbox: inbox::summary(&conn).map_err(read_failed)?,
        reviews_open: reviews::open_count(&conn).map_err(read_failed)?,
        outbox: outbox::undelivered(&conn).map_err(read_failed)?,
        now_ms: clock::now_ms(),
    };
    if args.json { put(&format!("{}\n", status.to_json())) } else { put(&status.to_text()) }
}

impl Status {
    fn count(&self, state: &str) -> i64 {
        self.inbox.by_state.iter().find(|(name, _)| name == state).map_or(0, |(_, count)| *count)
    }

    fn oldest_unprocessed_age_s(&self) -> Option<i64> {
        self.inbox.oldest_unprocessed_ms.map(|at| (self.now_ms - at).max(0) / 1000)
    }

    fn to_json(&self) -> Value {
        let endpoint = |(name, events, duplicates, last_ms): &(String, i64, i64, i64)| json!({ "endpoint": name, "events": events, "duplicates": duplicates, "last_received_at_ms": last_ms });
        json!({
            "database": self.database,
            "done": self.count("done"),
            "ignored": self.count("ignored"),
            "quarantined": self.count("quarantined"),
            "pending": self.count("pending") + self.count("processing"),
            "oldest_unprocessed_age_s": self.oldest_unprocessed_age_s(),
            "reviews_open": self.reviews_open,
            "endpoints": self.inbox.endpoints.iter().map(endpoint).collect::<Value>(),
            "outbox_undelivered": self.outbox.iter().map(|(name, rows)| json!({ "destination": name, "rows": rows })).collect::<Value>(),
        })
    }

    fn to_text(&self) -> String {
        let mut text = format!(
            "database      {}\ndone          {}\nignored       {}\npending       {}\nquarantined   {}\nneed a person {}\n",
            printable(&self.database),
            self.count("done"),
            self.count("ignored"),
            self.count("pending") + self.count("processing"),
            self.count("quarantined"),
            self.reviews_open,
        );
        if let Some(age_s) = self.oldest_unprocessed_age_s() {
            text.push_str(&format!("oldest of those that wait: {age_s} s\n"));
        }
        if !self.inbox.endpoints.is_empty() {
            let row = |(name, events, duplicates, last_ms): &(String, i64, i64, i64)| {
                vec![name.clone(), events.to_string(), duplicates.to_string(), time(*last_ms)]
            };
            let rows: Vec<_> = self.inbox.endpoints.iter().map(row).collect();
            text.push('\n');
            text.push_str(&table(&["ENDPOINT", "EVENTS", "DUPLICATES", "LATEST"], &rows));
        }
        if !self.outbox.is_empty() {
            let rows: Vec<_> =
                self.outbox.iter().map(|(name, rows)| vec![name.clone(), rows.to_string()]).collect();
            text.push('\n');
            text.push_str(&table(&["DESTINATION", "UNDELIVERED"], &rows));
        }
        text
    }
}
