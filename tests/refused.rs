//! Deliveries that the daemon has refused, as the command line shows them: kept in memory, private, without secrets.

#![allow(clippy::unwrap_used, reason = "the rig of these tests fails by panicking")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use support::{CONFIG, Daemon, GITHUB_SECRET, github_signature, inboxd};

fn keeping(count: usize) -> Daemon {
    Daemon::with_config(&format!("{CONFIG}\n[debug]\nkeep_refused = {count}\n"))
}

fn refused(daemon: &Daemon, args: &[&str]) -> support::Ran {
    let all: Vec<_> = ["--config", "inboxd.toml", "refused"].iter().chain(args).copied().collect();
    daemon.inboxd(&all)
}

fn lines(daemon: &Daemon) -> Vec<Value> {
    let listed = refused(daemon, &["list", "--json"]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    listed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A body that lost a newline on its way, with a token in its URL and a credential beside the signature.
fn send_wrong(daemon: &Daemon, body: &str) {
    let signed = github_signature(format!("{body}\n"));
    let headers =
        [&*signed, "Authorization: Bearer canary", "X-GitHub-Event: push", "X-GitHub-Delivery: d-1"];
    assert_eq!(daemon.client().post("/webhooks/github?token=canary", &headers, body).0, 400);
}

#[test]
fn what_was_refused_is_listed_and_shown_without_its_credentials_and_judged_with_them() {
    let daemon = keeping(20);
    send_wrong(&daemon, r#"{"a":1}"#);
    let listed = lines(&daemon);
    assert_eq!(listed.len(), 1);
    for (name, value) in [
        ("endpoint", "github"),
        ("reason", "signature_mismatch"),
        ("path", "/webhooks/github"),
        ("peer", "127.0.0.1"),
        ("method", "POST"),
    ] {
        assert_eq!(listed[0][name], value, "{name}");
    }
    assert_eq!((&listed[0]["number"], &listed[0]["body_bytes"]), (&1.into(), &7.into()));

    let shown = refused(&daemon, &["show", "1"]).stdout;
    assert!(shown.contains("X-GitHub-Delivery: d-1") && shown.contains("Authorization: ***"), "{shown}");
    let json: Value = serde_json::from_str(&refused(&daemon, &["show", "1", "--json"]).stdout).unwrap();
    assert_eq!(json["body"], r#"{"a":1}"#);
    assert_eq!(refused(&daemon, &["show", "1", "--body"]).stdout, r#"{"a":1}"#);
    let table = refused(&daemon, &["list"]).stdout;
    let digits = github_signature("{\"a\":1}\n");
    let digits = digits.rsplit('=').next().unwrap();
    for text in [&shown, &json.to_string(), &table, &listed[0].to_string()] {
        assert!(
            !text.contains("canary") && !text.contains(digits) && !text.contains(GITHUB_SECRET),
            "{text}"
        );
    }

    let judged = refused(&daemon, &["show", "1", "--verify"]);
    let report: Value = serde_json::from_str(&judged.stdout).unwrap();
    assert_eq!((judged.code, &report["reason"]), (7, &"signature_mismatch".into()));
    assert!(report["hint"].as_str().unwrap().contains("newline at its end"), "{report}");
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox"), 0, "nothing of it is stored");
}

#[test]
fn only_the_latest_are_kept() {
    let daemon = keeping(2);
    for n in 0..5 {
        send_wrong(&daemon, &format!(r#"{{"n":{n}}}"#));
    }
    let numbers: Vec<_> = lines(&daemon).iter().map(|line| line["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [4, 5]);
    let gone = refused(&daemon, &["show", "1"]);
    assert_eq!(gone.code, 4, "{}", gone.stderr);
    assert!(gone.stderr.contains("there is no refused delivery 1"), "{}", gone.stderr);
    // larger than what is kept of a body
    let large = "x".repeat((1 << 20) + 1);
    send_wrong(&daemon, &large);
    let judged = refused(&daemon, &["show", "6", "--verify"]);
    assert_eq!(judged.code, 4, "{}", judged.stderr);
    assert!(judged.stderr.contains("larger than 1 MiB"), "{}", judged.stderr);
}

#[test]
fn where_it_is_off_or_no_daemon_runs_the_command_says_what_to_do() {
    let daemon = Daemon::start();
    send_wrong(&daemon, "{}");
    let off = refused(&daemon, &["list"]);
    assert_eq!(off.code, 5, "{}", off.stderr);
    assert!(off.stderr.contains("keep_refused = 20 under [debug]"), "{}", off.stderr);
    for dir in [daemon.kill(), std::sync::Arc::new(Daemon::folder(CONFIG))] {
        let nobody = inboxd(dir.path(), &["--config", "inboxd.toml", "refused", "list"]);
        assert_eq!(nobody.code, 6, "{}", nobody.stderr);
        assert!(nobody.stderr.contains("no daemon runs"), "{}", nobody.stderr);
    }
}

#[test]
fn the_channel_is_private_and_goes_away_with_the_daemon() {
    let daemon = keeping(1);
    let dir = std::sync::Arc::clone(&daemon.dir);
    let socket = dir.path().join("data/run/control.sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(socket.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(daemon.client().get("/refused").0, 404);
    assert_eq!(daemon.stop(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn a_daemon_that_was_killed_leaves_nothing_that_keeps_the_next_from_answering() {
    let dir = keeping(3).kill();
    let daemon = Daemon::in_dir(dir);
    send_wrong(&daemon, "{}");
    assert_eq!(lines(&daemon).len(), 1);
}

#[test]
fn the_development_instance_keeps_twenty_and_others_say_how_many() {
    let dir = tempfile::tempdir().unwrap();
    let printed = inboxd(dir.path(), &["check", "--print"]);
    assert!(printed.stdout.contains("[debug]\nkeep_refused = 20"), "{}{}", printed.stdout, printed.stderr);
    let dir = Daemon::folder(&format!("{CONFIG}\n[debug]\nkeep_refused = 5000\n"));
    let refused = inboxd(dir.path(), &["--config", "inboxd.toml", "check"]);
    assert_eq!(refused.code, 3);
    assert!(refused.stderr.contains("debug.keep_refused"), "{}", refused.stderr);
}
