//! The log of the real binary: nothing waits for whoever reads it, and strangers do not fill it.

#![allow(clippy::unwrap_used, reason = "the rig of these tests fails by panicking")]

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use support::{
    CONFIG, Client, Daemon, folder, github_signature, own_address, terminate, wait_for, wait_for_some,
};
use tempfile::TempDir;

/// A daemon whose stderr is whatever it is given.
struct Unheard {
    child: Child,
    address: String,
    _dir: TempDir,
}

impl Unheard {
    fn start(stderr: impl Into<Stdio>, level: &str) -> Self {
        let address = own_address();
        let config = CONFIG.replacen("127.0.0.1:0", &address, 1);
        let dir = folder(&config, &[]);
        let child = Command::new(env!("CARGO_BIN_EXE_inboxd"))
            .args(["--config", "inboxd.toml", "serve"])
            .current_dir(dir.path())
            .env("RUST_LOG", level)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let daemon = Self { child, address, _dir: dir };
        wait_for("it is ready", || {
            Client::try_connect(&daemon.address).is_ok_and(|mut client| client.get("/readyz").0 == 200)
        });
        daemon
    }

    fn push(&self, client: &mut Client, id: &str) -> (u16, String) {
        let (delivery, body) = (format!("X-GitHub-Delivery: {id}"), format!(r#"{{"n":"{id}"}}"#));
        let headers = [&*github_signature(&body), "X-GitHub-Event: push", &delivery];
        client.post("/webhooks/github", &headers, &body)
    }

    /// SIGTERM, and how it ended.
    fn stop(mut self) -> ExitStatus {
        terminate(self.child.id());
        wait_for_some("it has ended", || self.child.try_wait().unwrap())
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A pipe into which nothing more goes.
fn full_pipe() -> (File, OwnedFd) {
    let (read, write) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&write).unwrap();
    fcntl_setfl(&write, flags | OFlags::NONBLOCK).unwrap();
    let mut filling = File::from(OwnedFd::from(write));
    while filling.write(&[b'.'; 512]).is_ok() {}
    let write = OwnedFd::from(filling);
    fcntl_setfl(&write, flags).unwrap();
    (File::from(OwnedFd::from(read)), write)
}

#[test]
fn a_log_that_nobody_reads_keeps_no_start_no_answer_and_no_stop_waiting() {
    let (mut unread, full) = full_pipe();
    let daemon = Unheard::start(full, "debug");
    let mut client = Client::connect(&daemon.address);
    for n in 0..1000 {
        // each of these is a line, and a refusal in between is another
        let answer = daemon.push(&mut client, &format!("{n:0250}"));
        assert_eq!(answer, (200, r#"{"outcome":"ignored"}"#.to_owned()), "{n}");
    }
    assert_eq!(client.post("/webhooks/github", &[], "{}").0, 400);
    assert_eq!(client.get("/livez").0, 200);
    assert!(daemon.stop().success());
    // only what the pipe held has ever been written
    let mut held = String::new();
    unread.read_to_string(&mut held).unwrap();
    assert!(held.trim_matches('.').is_empty(), "{held}");
}

#[test]
fn lines_that_were_dropped_are_counted_in_the_log_once_it_is_read_again() {
    let (mut unread, full) = full_pipe();
    let daemon = Unheard::start(full, "debug");
    let mut client = Client::connect(&daemon.address);
    for n in 0..1000 {
        daemon.push(&mut client, &format!("{n:0250}"));
    }
    let log = Arc::new(Mutex::new(String::new()));
    let reading = Arc::clone(&log);
    thread::spawn(move || {
        let mut room = [0; 4096];
        while let Ok(read @ 1..) = unread.read(&mut room) {
            reading.lock().unwrap().push_str(&String::from_utf8_lossy(&room[..read]));
        }
    });
    wait_for("it is told", || log.lock().unwrap().contains(" lines dropped"));
    let log = log.lock().unwrap().clone();
    let before = log.split(" lines dropped").next().unwrap();
    let dropped: usize = before.rsplit(' ').next().unwrap().parse().unwrap();
    let stored = log.matches("stored endpoint=github").count();
    assert!(stored > 100 && stored + dropped >= 1000, "{stored} lines, {dropped} dropped");
    assert!(log.contains("ready    webhooks"), "what is said at the start comes first");
}

#[test]
fn a_reader_that_is_gone_and_a_full_disk_do_no_harm() {
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    for stderr in
        [Stdio::from(OwnedFd::from(write)), File::options().write(true).open("/dev/full").unwrap().into()]
    {
        let daemon = Unheard::start(stderr, "debug");
        let mut client = Client::connect(&daemon.address);
        assert_eq!(daemon.push(&mut client, "1").0, 200);
        assert_eq!(client.post("/webhooks/github", &[], "{}").0, 400);
        assert_eq!(daemon.push(&mut client, "2").0, 200);
        assert!(daemon.stop().success());
    }
}

/// How many refusals lines with these words tell of, the counted ones included.
fn told(log: &str, words: &str) -> usize {
    let lines = log.lines().filter(|line| line.contains(words));
    lines
        .map(|line| {
            let counted = line.split(" (and ").nth(1).and_then(|rest| rest.split(' ').next());
            // a line of its own says nothing but the count
            let is_own = usize::from(line.contains("peer="));
            counted.map_or(0, |count| count.parse::<usize>().unwrap()) + is_own
        })
        .sum()
}

#[test]
fn strangers_cause_few_and_short_lines_that_count_the_others() {
    let daemon = Daemon::start();
    let padding: Vec<_> = (0..50).map(|n| format!("X-Filler-{n}: {}", "y".repeat(200))).collect();
    let padding: Vec<_> = padding.iter().map(String::as_str).collect();
    let mut client = daemon.client();
    for _ in 0..400 {
        assert_eq!(client.post("/webhooks/github", &padding, "{}").0, 400);
    }
    let words = "refused endpoint=github reason=signature_missing";
    daemon.wait_for("all are told of", || told(&daemon.log(), words) == 400);
    let log = daemon.log();
    let refused: Vec<_> = log.lines().filter(|line| line.contains(words)).collect();
    assert!(refused.len() < 100, "{} lines for 400 refusals", refused.len());
    assert!(refused.iter().all(|line| line.len() < 700 && !line.contains("Filler")), "{refused:?}");
}

#[test]
fn a_wrong_path_and_a_wrong_method_are_a_line_of_the_log() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    assert_eq!(client.post("/webhook/stripe?token=hidden", &[], "{}").0, 404);
    daemon.wait_for_log(" method=POST path=/webhook/stripe peer=127.0.0.1");
    daemon.wait_for_log(": webhooks go to /webhooks/github /webhooks/stripe");
    assert_eq!(client.request("PUT", "/webhooks/github", &[], b"{}").0, 405);
    daemon.wait_for_log("reason=method_not_allowed method=PUT path=/webhooks/github peer=127.0.0.1");
    let long = format!("/{}", "z".repeat(5000));
    for _ in 0..200 {
        assert_eq!(client.get(&long).0, 404);
    }
    let words = "reason=not_found";
    daemon.wait_for("all are told of", || told(&daemon.log(), words) == 201);
    let log = daemon.log();
    assert!(!log.contains("hidden"), "a query is not logged: {log}");
    assert!(log.lines().all(|line| line.len() < 1000), "{log}");
    assert!(log.matches(words).count() < 100, "{log}");
}

#[test]
fn behind_a_trusted_proxy_the_client_is_the_one_that_the_proxy_names() {
    let config = CONFIG.replacen("[listen]", "[listen]\ntrusted_proxies = [\"127.0.0.1\"]", 1);
    let daemon = Daemon::with_config(&config);
    let mut client = daemon.client();
    let named = ["X-Forwarded-For: 192.0.2.66, 203.0.113.7"];
    assert_eq!(client.post("/webhooks/github", &named, "{}").0, 400);
    daemon.wait_for_log("refused endpoint=github reason=signature_missing peer=203.0.113.7");
    assert_eq!(client.post("/nowhere", &["Forwarded: for=192.0.2.66, for=203.0.113.8"], "{}").0, 404);
    daemon.wait_for_log("path=/nowhere peer=203.0.113.8");
    let large = vec![b' '; (1 << 20) + 1];
    assert_eq!(client.post("/webhooks/stripe", &["X-Forwarded-For: 203.0.113.9"], &large).0, 413);
    daemon.wait_for_log("beyond the body limit peer=203.0.113.9");
    assert!(!daemon.log().contains("192.0.2.66"), "what the client wrote itself is not believed");
}

#[test]
fn a_client_that_is_no_trusted_proxy_cannot_name_another() {
    let daemon = Daemon::start();
    let named = ["X-Forwarded-For: 203.0.113.7", "Forwarded: for=203.0.113.7"];
    assert_eq!(daemon.client().post("/webhooks/github", &named, "{}").0, 400);
    daemon.wait_for_log("reason=signature_missing peer=127.0.0.1");
}

#[test]
fn the_line_of_a_refused_delivery_says_what_to_look_at() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    // a newline that was cut off on the way
    let signed = github_signature("{\"a\":1}\n");
    assert_eq!(client.post("/webhooks/github", &[&signed], "{\"a\":1}").0, 400);
    daemon.wait_for_log(
        "reason=signature_mismatch peer=127.0.0.1: The signature matches the body with a newline at its end",
    );
    let of_another = ["Stripe-Signature: t=1,v1=0", "X-Filler: 1"];
    assert_eq!(client.post("/webhooks/github", &of_another, "{}").0, 400);
    daemon.wait_for_log("this looks like a delivery from Stripe");
    let old = support::stripe_signature("{}", support::now_s() - 3600, support::STRIPE_SECRET);
    assert_eq!(client.post("/webhooks/stripe", &[&old], "{}").0, 400);
    daemon.wait_for_log("is NTP running?");
    assert!(!daemon.log().contains("Filler"), "headers of strangers are not named: {}", daemon.log());
}

#[test]
fn little_is_tried_of_a_large_body_that_was_refused() {
    let daemon = Daemon::start();
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(2 << 20));
    let signed = github_signature(format!("{large}\n"));
    assert_eq!(daemon.client().post("/webhooks/github", &[&signed], &large).0, 400);
    daemon.wait_for_log("reason=signature_mismatch peer=127.0.0.1: Either the secret is another one");
}
