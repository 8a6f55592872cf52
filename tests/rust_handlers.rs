//! inboxd as a library: the example, compiled and run, and a handler's start.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use inboxd::config::{Config, MissingSecrets};
use inboxd::daemon::Daemon;
use inboxd::handlers::{Event, Handled, Handler, HandlerError, Registry};
use rusqlite::Transaction;
use support::{Client, event, folder, now_s, stripe_signature, wait_for_some};

const CONFIG: &str = r#"
data_dir = "data"
[listen]
webhooks = "127.0.0.1:0"
admin = "off"
[limits]
disk_free_min = 0
[endpoint.shop]
provider = "stripe"
path = "/webhooks/stripe"
secrets = ["file:stripe.secret"]
handlers = ["credits"]
"#;

/// The example's binary, built where `cargo test` was asked for this file alone.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--offline", "--example", "rust_handler", "--target-dir"]);
    cargo.arg(profile.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
    // what cargo tells this test about its package would have dependencies built anew
    for (name, _) in std::env::vars_os() {
        let told = name.to_string_lossy();
        if told.starts_with("CARGO_PKG") || told.starts_with("CARGO_MANIFEST") {
            cargo.env_remove(&name);
        }
    }
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success());
    profile.join("examples/rust_handler")
}

/// A process that does not outlive its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn the_example_books_a_credit_once_in_the_events_transaction() {
    let dir = folder(CONFIG, &[]);
    let file = dir.path().join("inboxd.toml");
    let child = Command::new(example()).arg(&file).stdin(Stdio::null()).spawn().unwrap();
    let mut process = Process(child);
    let ready = file.with_extension("ready");
    let address = wait_for_some("the example gets ready", || {
        std::fs::read_to_string(&ready).ok().filter(|address| !address.is_empty())
    });
    let mut client = Client::connect(&address);
    let mut send = |id: &str, object: &str| {
        let body = event(id, "credit.granted", object);
        client.post("/webhooks/stripe", &[&stripe_signature(&body, now_s(), support::STRIPE_SECRET)], body).1
    };
    assert_eq!(send("evt_1", r#"{"id":"cr_1","cents":500}"#), r#"{"outcome":"processed"}"#);
    assert_eq!(send("evt_1", r#"{"id":"cr_1","cents":500}"#), r#"{"outcome":"duplicate"}"#);
    assert_eq!(send("evt_2", r#"{"id":"cr_1","cents":500}"#), r#"{"outcome":"processed"}"#);
    assert_eq!(send("evt_3", r#"{"id":"cr_2"}"#), r#"{"outcome":"quarantined"}"#);
    support::terminate(process.0.id());
    assert!(support::ended(&mut process.0).success());
    let conn = support::open(&dir.path().join("data/inboxd.db"));
    let booked = "SELECT group_concat(fact || ' ' || cents) FROM credits";
    assert_eq!(conn.query_row(booked, [], |row| row.get::<_, String>(0)).unwrap(), "cr_1 500");
}

#[test]
fn the_plain_daemon_refuses_a_handler_that_only_another_program_has() {
    let dir = folder(CONFIG, &[]);
    let ran = support::inboxd(dir.path(), &["check"]);
    assert_eq!(ran.code, 3);
    assert!(
        ran.stderr.contains(r#""credits": is unknown; known: "billing", "money", "orders", "sql:DIR""#),
        "{}",
        ran.stderr
    );
}

/// Makes a table and then cannot start.
struct NeverStarts;

impl Handler for NeverStarts {
    fn name(&self) -> &str {
        "credits"
    }

    fn takes(&self, _event_type: &str) -> bool {
        true
    }

    fn start(&self, tx: &Transaction<'_>) -> Result<(), HandlerError> {
        tx.execute_batch("CREATE TABLE half (a)")?;
        Err(HandlerError::Failed("no licence".to_owned()))
    }

    fn handle(&self, _tx: &Transaction<'_>, _event: &Event<'_>) -> Result<Handled, HandlerError> {
        Ok(Handled::Applied)
    }
}

#[test]
fn a_handler_that_cannot_start_ends_the_start_and_leaves_nothing() {
    let dir = folder(CONFIG, &[]);
    let registry = Registry::new().with(NeverStarts);
    let file = dir.path().join("inboxd.toml");
    let config = Config::load(Some(&file), MissingSecrets::Report, registry.facts()).unwrap();
    let error = Daemon::start_with(config, &registry).unwrap_err();
    assert_eq!(error.to_string(), "handler credits: no licence");
    let conn = support::open(&dir.path().join("data/inboxd.db"));
    let half = "SELECT count(*) FROM sqlite_schema WHERE name = 'half'";
    assert_eq!(conn.query_row(half, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}
