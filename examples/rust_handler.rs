//! A handler of your own: it books credits for customers, in the event's transaction.
//!
//!     cargo run --example rust_handler -- inboxd.toml      # with handlers = ["credits"]

use std::error::Error;
use std::path::PathBuf;

use inboxd::config::{Config, MissingSecrets};
use inboxd::daemon::{Daemon, Ended};
use inboxd::handlers::{Event, Handled, Handler, HandlerError, Registry};
use inboxd::rusqlite::Transaction;

struct Credits;

impl Handler for Credits {
    fn name(&self) -> &str {
        "credits"
    }

    fn takes(&self, event_type: &str) -> bool {
        event_type == "credit.granted"
    }

    fn start(&self, tx: &Transaction<'_>) -> Result<(), HandlerError> {
        Ok(tx.execute_batch(
            "CREATE TABLE IF NOT EXISTS credits (fact TEXT PRIMARY KEY, cents INTEGER NOT NULL) STRICT",
        )?)
    }

    fn handle(&self, tx: &Transaction<'_>, event: &Event<'_>) -> Result<Handled, HandlerError> {
        let (Some(id), Some(cents)) = (event.object_id, event.body["data"]["object"]["cents"].as_i64())
        else {
            return Ok(Handled::Quarantine("a credit without id or cents".to_owned()));
        };
        // the fact's own key: two events about one credit are one credit
        let grant = "INSERT INTO credits (fact, cents) VALUES (?1, ?2) ON CONFLICT (fact) DO NOTHING";
        tx.execute(grant, (id, cents))?;
        Ok(Handled::Applied)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let file = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: rust_handler CONFIG")?);
    let registry = Registry::new().with(Credits);
    let config = Config::load(Some(&file), MissingSecrets::Report, registry.facts())?;
    let mut daemon = Daemon::start_with(config, &registry)?;
    daemon.wait_until_ready();
    std::fs::write(file.with_extension("ready"), daemon.webhooks().to_string())?;
    match daemon.wait() {
        Ended::Stopped => Ok(()),
        Ended::StorageFailed(reason) | Ended::WriterPanicked(reason) => Err(reason.into()),
    }
}
