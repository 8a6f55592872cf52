//! How people are told: the shape of a message, and the program that gets it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use inboxd::config::{Config, MissingSecrets};
use inboxd::handlers::Registry;
use inboxd::internals::config::{AlertFormat, AlertVia};
use serde_json::Value;
use support::app::{App, respond};
use support::{Daemon, Ran, invoice_event};

fn config(alert: &str) -> String {
    format!("{}[alert]\n{alert}\n", support::CONFIG)
}

/// Runs `alert test` with this `[alert]`.
fn alert_test(alert: &str) -> Ran {
    let dir = support::folder(&config(alert), &[]);
    support::inboxd(dir.path(), &["alert", "test"])
}

fn program(dir: &Path, script: &str) -> PathBuf {
    let path = dir.join("tell");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_chat_gets_its_own_json_and_anything_else_plain_text() {
    let app = App::answering(200);
    let url = &app.url;
    let shapes = [
        ("", "text/plain; charset=utf-8", ""),
        ("format = \"text\"", "text/plain; charset=utf-8", ""),
        ("format = \"slack\"", "application/json; charset=utf-8", "/text"),
        ("format = \"discord\"", "application/json; charset=utf-8", "/content"),
        ("format = \"teams\"", "application/json; charset=utf-8", "/attachments/0/content/body/0/text"),
    ];
    for (number, (format, content_type, pointer)) in shapes.into_iter().enumerate() {
        let ran = alert_test(&format!("url = \"{url}\"\n{format}"));
        assert_eq!(ran.code, 0, "{ran:?}");
        let seen = &app.seen()[number];
        assert_eq!(seen.header("content-type"), Some(content_type), "{format}");
        let text = match pointer {
            "" => seen.text().to_owned(),
            pointer => {
                let json: Value = serde_json::from_str(seen.text()).unwrap();
                json.pointer(pointer).unwrap().as_str().unwrap().to_owned()
            }
        };
        assert!(
            text.starts_with("inboxd on ") && text.ends_with(": this is a test; nothing is wrong"),
            "{text}"
        );
        // it says exactly what was sent and answered
        assert!(ran.stdout.contains(seen.text()) && ran.stdout.contains("200 ok"), "{ran:?}");
    }
}

#[test]
fn the_shape_is_known_by_the_receivers_host() {
    let hosts = [
        ("https://hooks.slack.com/services/T/B/x", AlertFormat::Slack),
        ("https://chat.googleapis.com/v1/spaces/A/messages?key=k", AlertFormat::Slack),
        ("https://discord.com/api/webhooks/1/x", AlertFormat::Discord),
        ("https://ptb.discord.com/api/webhooks/1/x", AlertFormat::Discord),
        ("https://discord.com/api/webhooks/1/x/slack", AlertFormat::Slack),
        ("https://contoso.webhook.office.com/webhookb2/a/b", AlertFormat::Teams),
        (
            "https://prod-1.westeurope.logic.azure.com:443/workflows/a/triggers/manual/paths/invoke",
            AlertFormat::Teams,
        ),
        ("https://ntfy.sh/topic", AlertFormat::Text),
        ("https://notslack.com.example.com/hooks.slack.com", AlertFormat::Text),
        ("https://nothooks.slack.com.evil.example/", AlertFormat::Text),
    ];
    for (url, wanted) in hosts {
        let dir = support::folder(&config(&format!("url = \"{url}\"")), &[]);
        let loaded = Config::load(
            Some(&dir.path().join("inboxd.toml")),
            MissingSecrets::ReadNone,
            Registry::new().facts(),
        )
        .unwrap();
        let via = loaded.into_alert().unwrap().via;
        assert_eq!(via, AlertVia::Url { url: url.to_owned(), format: wanted }, "{url}");
    }
    let dir = support::folder(&config("url = \"https://ntfy.sh/t\"\nformat = \"slak\""), &[]);
    let ran = support::inboxd(dir.path(), &["check"]);
    assert!(
        ran.code == 3 && ran.stderr.contains("alert.format: \"slak\": is unknown; did you mean \"slack\"?"),
        "{ran:?}"
    );
    let ran = alert_test("command = \"/bin/true\"\nformat = \"slack\"");
    assert!(ran.code == 3 && ran.stderr.contains("alert.format: is for a url"), "{ran:?}");
}

#[test]
fn a_test_that_is_refused_says_what_was_answered_and_shows_no_path_of_the_url() {
    let app = App::start(|_, back| respond(back, 400, "", "invalid_payload\n"));
    let ran = alert_test(&format!("url = \"{}/a-secret-path\"", app.url));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("answered 400 invalid_payload"), "{ran:?}");
    assert!(!ran.stderr.contains("a-secret-path"), "{ran:?}");
}

#[test]
fn the_program_sees_none_of_the_daemons_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let seen = dir.path().join("seen");
    let tell = program(dir.path(), &format!("env > {0}.tmp && mv {0}.tmp {0}", seen.display()));
    let folder = support::folder(&config(&format!("command = \"{}\"", tell.display())), &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_inboxd"));
    command.env("A_SECRET", "hunter2").env("LANG", "C.UTF-8").env("HOME", "/home/of/somebody");
    let daemon = Daemon::spawn(Arc::new(folder), command);
    daemon.stripe(&invoice_event("evt_1", "voided", "in_1", 4200));
    daemon.stripe(&invoice_event("evt_2", "paid", "in_1", 4200));
    daemon.wait_for("the program has run", || seen.exists());
    let environment = std::fs::read_to_string(&seen).unwrap();
    assert!(!environment.contains("hunter2") && !environment.contains("RUST_LOG"), "{environment}");
    for kept in ["PATH=", "LANG=C.UTF-8", "HOME=/home/of/somebody"] {
        assert!(environment.lines().any(|line| line.starts_with(kept)), "{kept}: {environment}");
    }
}

/// The children of a process, and whether each has ended without anybody taking note.
fn children(of: u32) -> Vec<(u32, bool)> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let children = processes.filter_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(process.path().join("stat")).ok()?;
        let mut rest = stat.rsplit(") ").next()?.split(' ');
        let (state, parent) = (rest.next()?, rest.next()?.parse::<u32>().ok()?);
        (parent == of).then_some((pid, state == "Z"))
    });
    children.collect()
}

#[test]
fn as_process_1_it_leaves_no_zombie_of_what_an_alert_program_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let ended = dir.path().join("ended");
    let orphan = format!("(sleep 0.1; echo > {}) > /dev/null 2>&1 &", ended.display());
    let tell = program(dir.path(), &orphan);
    let folder = support::folder(&config(&format!("command = \"{}\"", tell.display())), &[]);
    let mut command = Command::new("unshare");
    let namespace = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];
    command.args(namespace).arg(env!("CARGO_BIN_EXE_inboxd"));
    let Ok(daemon) = Daemon::try_spawn(Arc::new(folder), command) else {
        return support::skipped("there is no namespace of processes to be had");
    };
    let (inboxd, _) = children(daemon.pid())[0];
    daemon.stripe(&invoice_event("evt_1", "voided", "in_1", 4200));
    daemon.stripe(&invoice_event("evt_2", "paid", "in_1", 4200));
    daemon.wait_for("the orphan has ended", || ended.exists());
    daemon.wait_for("nothing is left of it", || children(inboxd).is_empty());
    assert_eq!(daemon.inboxd(&["alert", "test"]).code, 0);
}

#[test]
fn people_are_told_when_much_is_refused_and_get_the_report_that_is_due() {
    let app = App::answering(200);
    let url = &app.url;
    let config = config(&format!(
        "url = \"{url}\"\non = [\"refused>20%\", \"silent>1d\", \"duplicates>99%\", \"clock\", \"disk<1h\"]\n[report]\nevery = \"week\""
    ));
    // the first start begins the time, a later one finds that it is over
    let daemon = Daemon::with_config(&config);
    daemon.wait_for_count("SELECT count(*) FROM inboxd_meta WHERE key = 'last_report'", 1);
    assert!(app.seen().is_empty(), "{:?}", app.seen());
    let dir = Arc::clone(&daemon.dir);
    assert_eq!(daemon.stop(), Some(0));
    let conn = support::open(&dir.path().join("data/inboxd.db"));
    conn.execute(
        "UPDATE inboxd_meta SET updated_at_ms = updated_at_ms - 8 * 86400000 WHERE key = 'last_report'",
        [],
    )
    .unwrap();
    conn.execute(
        "INSERT INTO inboxd_minutes VALUES (?1 / 60, 'billing', 'processed', 30, 0, 0), (?1 / 60, 'billing', 'signature_mismatch', 70, 0, 0)",
        [support::now_s()],
    )
    .unwrap();
    drop(conn);
    let daemon = Daemon::in_dir(dir);
    daemon.wait_for("both have come", || app.seen().len() >= 2);
    let texts: Vec<_> = app.seen().iter().map(|seen| seen.text().to_owned()).collect();
    assert!(texts[0].contains("report of 7 days: all is well\ndeliveries 100, of which 0"), "{texts:?}");
    assert!(texts[1].contains("70 % of the deliveries of the last 15 minutes were refused"), "{texts:?}");
    assert_eq!(texts.len(), 2, "{texts:?}");
}

#[test]
fn a_report_needs_a_receiver_and_a_share_is_a_percentage() {
    let without = support::folder(&format!("{}[report]\nevery = \"day\"\n", support::CONFIG), &[]);
    let ran = support::inboxd(without.path(), &["check"]);
    assert!(ran.code == 3 && ran.stderr.contains("report.every: needs a receiver"), "{ran:?}");
    for (on, said) in [("refused>0%", "write a share"), ("refused", "known: "), ("silent<1h", "silent>24h")] {
        let dir = support::folder(&config(&format!("url = \"http://127.0.0.1:9\"\non = [\"{on}\"]")), &[]);
        let ran = support::inboxd(dir.path(), &["check"]);
        assert!(ran.code == 3 && ran.stderr.contains(said), "{on} {ran:?}");
    }
}
