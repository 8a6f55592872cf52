//! Header values with bytes over 0x7F, through the real binary: what is verified and stored is exactly
//! what was sent.

#![allow(clippy::unwrap_used, reason = "the rig of these tests fails by panicking")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use support::{Daemon, GITHUB_SECRET, github_signature, hmac_hex, now_s, write_secret};

const STANDARD_KEY: &[u8] = b"a key of 24 bytes or more";

const CONFIG: &str = r#"
data_dir = "data"
[listen]
webhooks = "127.0.0.1:0"
[limits]
disk_free_min = 0
[endpoint.github]
provider = "github"
secrets = ["file:github.secret"]
[endpoint.standard]
provider = "standardwebhooks"
secrets = ["file:standard.secret"]
"#;

#[test]
fn two_ids_that_differ_in_a_byte_outside_ascii_are_two_events() {
    let daemon = Daemon::start();
    for (id, outcome) in [
        (b"a\xff1".as_slice(), "ignored"),
        (b"a\xfe1", "ignored"),
        (b"a\xff1", "duplicate"),
        ("a\u{e9}%C3%A91".as_bytes(), "ignored"),
        ("a\u{e9}\u{e9}1".as_bytes(), "ignored"),
        (b"a%C3%A91", "ignored"),
    ] {
        let expected = format!(r#"{{"outcome":"{outcome}"}}"#);
        assert_eq!(github(&daemon, id), (200, expected), "{}", id.escape_ascii());
    }
    let ids = "SELECT group_concat(event_id, ' ') FROM (SELECT event_id FROM webhook_inbox ORDER BY id)";
    assert_eq!(daemon.text(ids), "a\u{ff}1 a\u{fe}1 a\u{e9}%C3%A91 a\u{e9}\u{e9}1 a%C3%A91");
}

#[test]
fn a_signed_id_outside_ascii_is_verified_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("inboxd.toml"), CONFIG).unwrap();
    write_secret(dir.path(), "github.secret", GITHUB_SECRET);
    write_secret(dir.path(), "standard.secret", &format!("whsec_{}", STANDARD.encode(STANDARD_KEY)));
    let daemon = Daemon::in_dir(Arc::new(dir));
    let (body, at) = (r#"{"type":"note.made","data":{}}"#, now_s().to_string());
    for id in ["msg_\u{e9}t\u{e9}", "msg_100%_\u{2603}", "msg_%C3%A9"] {
        let mac = hmac_hex(STANDARD_KEY, &[id.as_bytes(), b".", at.as_bytes(), b".", body.as_bytes()]);
        let mac: Vec<u8> =
            (0..mac.len()).step_by(2).map(|at| u8::from_str_radix(&mac[at..at + 2], 16).unwrap()).collect();
        let headers = format!(
            "webhook-id: {id}\r\nwebhook-timestamp: {at}\r\nwebhook-signature: v1,{}\r\n",
            STANDARD.encode(mac)
        );
        let answer = post(&daemon, "/webhooks/standard", headers.as_bytes(), body);
        assert_eq!(answer, (200, r#"{"outcome":"ignored"}"#.to_owned()), "{id}");
        assert_eq!(daemon.text("SELECT event_id FROM webhook_inbox ORDER BY id DESC LIMIT 1"), id);
    }
}

#[test]
fn a_client_cannot_have_its_headers_unescaped() {
    let daemon = Daemon::start();
    let signature = github_signature("{}");
    let headers =
        format!("{signature}\r\nX-GitHub-Event: push\r\nX-GitHub-Delivery: a%41\r\nX-Inboxd-Escaped: 1\r\n");
    assert_eq!(post(&daemon, "/webhooks/github", headers.as_bytes(), "{}").0, 200);
    assert_eq!(daemon.text("SELECT event_id FROM webhook_inbox"), "a%41");
}

#[test]
fn a_request_line_with_the_whole_url_is_taken_as_its_path() {
    let daemon = Daemon::start();
    let headers = format!(
        "Host: another.example.com\r\n{}\r\nX-GitHub-Event: push\r\nX-GitHub-Delivery: whole\r\n",
        github_signature("{}")
    );
    for (target, status) in [
        ("http://hooks.example.com/webhooks/github?from=a", 200),
        ("HTTPS://hooks.example.com:8443/webhooks/github/", 200),
        ("http://hooks.example.com/webhooks/unknown", 404),
        ("http://hooks.example.com", 404),
        ("ftp://hooks.example.com/webhooks/github", 400),
        ("hooks.example.com:443", 400),
        ("*", 400),
    ] {
        assert_eq!(post(&daemon, target, headers.as_bytes(), "{}").0, status, "{target}");
    }
    assert_eq!(daemon.text("SELECT duplicates || '' FROM webhook_inbox"), "1");
}

fn github(daemon: &Daemon, id: &[u8]) -> (u16, String) {
    // a body of its own, or it would be the same event sent again
    let body = format!(r#"{{"n":"{}"}}"#, hmac_hex(b"any", &[id]));
    let signature = github_signature(&body);
    let before = format!("{signature}\r\nX-GitHub-Event: push\r\nX-GitHub-Delivery: ");
    post(daemon, "/webhooks/github", &[before.as_bytes(), id, b"\r\n"].concat(), &body)
}

/// With header lines of any bytes.
fn post(daemon: &Daemon, path: &str, headers: &[u8], body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(&daemon.webhooks).unwrap();
    let first = format!("POST {path} HTTP/1.1\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    stream.write_all(&[first.as_bytes(), headers, b"\r\n", body.as_bytes()].concat()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
