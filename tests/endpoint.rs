//! `send --endpoint` and `verify --endpoint`: a configured endpoint is tried with its own scheme, secrets and path.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::Value;
use support::{Daemon, Ran, hmac_hex, now_s};

const SECRET: &str = "the sender's secret, in a file";

const CONFIG: &str = r#"
data_dir = "data"
public_url = ["https://hooks.example.com", "https://old.example.com"]
[listen]
webhooks = "ADDRESS"
admin = "off"
[limits]
disk_free_min = 0
[endpoint.stock]
provider = "custom"
path = "/in/stock"
tolerance = "90s"
secrets = ["file:stock.secret"]
[endpoint.stock.scheme]
signature_header = "X-Stock-Signature"
algorithm = "sha512"
signed = "{id}|{ts}|{body}"
timestamp = "header:X-Stock-Time"
timestamp_unit = "rfc3339"
event_id = "header:X-Stock-Id"
event_type = "json:/what/happened"
[endpoint.door]
provider = "custom"
secrets = ["file:stock.secret"]
[endpoint.door.scheme]
signature_header = "X-Door"
signed = "{method} {url} {body}"
event_id = "json:/id"
timestamp = "json:/meta/at"
timestamp_unit = "ms"
[endpoint.hub]
provider = "github"
secrets = ["file:stock.secret"]
[endpoint.bot]
provider = "discord"
secrets = ["file:public.key"]
"#;

/// A daemon on an address that the configuration names, as `send` needs it.
fn daemon() -> Daemon {
    let dir = Daemon::folder(&CONFIG.replace("ADDRESS", &support::own_address()));
    support::write_secret(dir.path(), "stock.secret", SECRET);
    support::write_secret(
        dir.path(),
        "public.key",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    );
    Daemon::in_dir(Arc::new(dir))
}

fn verify(daemon: &Daemon, endpoint: &str, headers: &[&str], body: &str, more: &[&str]) -> (i32, Value) {
    let lines = headers.iter().flat_map(|line| ["--header", line]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_inboxd"))
        .args(["verify", "--endpoint", endpoint])
        .args(lines)
        .args(more)
        .current_dir(daemon.dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), body.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    (output.status.code().unwrap(), serde_json::from_str(&text).unwrap())
}

#[test]
fn a_scheme_of_ones_own_is_sent_as_its_sender_would() {
    let daemon = daemon();
    for (args, line) in [
        (&["send", "--endpoint", "stock", "stock.low"][..], "200 {\"outcome\":\"ignored\"}  stock.low"),
        (
            &["send", "custom", "stock.high", "--endpoint", "stock", "--id", "n1"],
            "200 {\"outcome\":\"ignored\"}  stock.high n1",
        ),
        (&["send", "--endpoint", "stock", "stock.high", "--id", "n1"], "200 {\"outcome\":\"duplicate\"}"),
        (&["send", "--endpoint", "door", "opened", "--id", "d1"], "200 {\"outcome\":\"ignored\"}  opened d1"),
        (&["send", "--endpoint", "hub", "issues.opened"], "200 {\"outcome\":\"ignored\"}"),
        (&["send", "--endpoint", "stock", "x", "--bad-signature"], "400 {\"error\":\"signature_mismatch\"}"),
        (
            &["send", "--endpoint", "stock", "x", "--skew=-5m"],
            "400 {\"error\":\"timestamp_outside_tolerance\"}",
        ),
    ] {
        let ran = daemon.inboxd(args);
        assert!(ran.stdout.starts_with(line), "{args:?}: {ran:?}\n{}", daemon.log());
    }
    let stored = |id: &str| {
        daemon.text(&format!(
            "SELECT endpoint || ' ' || coalesce(event_type, '-') FROM webhook_inbox WHERE event_id = '{id}'"
        ))
    };
    assert_eq!((stored("n1"), stored("d1")), ("stock stock.high".to_owned(), "door -".to_owned()));
}

#[test]
fn send_says_what_to_write_where_it_cannot() {
    let daemon = daemon();
    let says = |args: &[&str], code: i32, words: &[&str]| {
        let ran: Ran = daemon.inboxd(args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        for word in words {
            assert!(ran.stderr.contains(word), "{word} in {ran:?}");
        }
    };
    says(&["send", "custom", "a.b"], 2, &["--endpoint NAME", "stock, door"]);
    says(&["send", "--endpoint", "nobody", "a.b"], 4, &["no endpoint nobody", "stock (custom)"]);
    says(&["send", "stripe", "a.b", "--endpoint", "stock"], 2, &["stock is for custom", "--endpoint stock"]);
    says(&["send", "--endpoint", "bot", "a"], 2, &["private key"]);
    says(&["send", "stripe"], 2, &["TYPE"]);
    says(&["send", "stripe", "a", "--to", "http://127.0.0.1:1/"], 2, &["--secret-env", "--endpoint"]);
    says(&["verify", "--provider", "custom", "--secret-env", "X"], 2, &["--endpoint NAME"]);
    says(&["verify", "--endpoint", "nobody"], 4, &["no endpoint nobody", "stock"]);
    says(&["verify", "--endpoint", "stock", "--secret-env", "X"], 2, &["cannot be used with"]);
    says(&["verify", "--provider", "stripe"], 2, &["--secret-env"]);
}

#[test]
fn an_endpoint_can_be_imitated_towards_another_url() {
    let daemon = daemon();
    let url = format!("http://{}/in/stock", daemon.webhooks);
    let ran = daemon.inboxd(&["send", "--endpoint", "stock", "a.b", "--to", &url]);
    assert!(ran.code == 0 && ran.stdout.starts_with("200 "), "{ran:?}");
}

#[test]
fn verify_judges_an_endpoint_as_the_daemon_does() {
    let daemon = daemon();
    let body = r#"{"id":"x","what":{"happened":"stock.low"}}"#;
    let now = jiff::Timestamp::from_second(now_s()).unwrap().to_string();
    let mut mac = <hmac::Hmac<sha2::Sha512> as hmac::KeyInit>::new_from_slice(SECRET.as_bytes()).unwrap();
    hmac::Mac::update(&mut mac, format!("i-1|{now}|{body}").as_bytes());
    let digest: String =
        hmac::Mac::finalize(mac).into_bytes().iter().map(|byte| format!("{byte:02X}")).collect();
    let (time, id) = (format!("X-Stock-Time: {now}"), "X-Stock-Id: i-1");
    let signature = format!("X-Stock-Signature: {digest}");
    let (code, told) = verify(&daemon, "stock", &[&time, id, &signature], body, &[]);
    assert_eq!(
        (code, &told["ok"], &told["event_id"]),
        (0, &Value::Bool(true), &Value::from("i-1")),
        "{told}"
    );
    assert_eq!(told["event_type"], "stock.low");

    let cut = format!("X-Stock-Signature: {}", &digest[..64]);
    let soon = "X-Stock-Time: tomorrow";
    let refused = [
        (vec![time.as_str(), id, &cut], body, "signature_malformed", "128 hex digits, as a HMAC-SHA512 is"),
        (
            vec![soon, id, &signature],
            body,
            "signature_malformed",
            "X-Stock-Time does not hold a time as in RFC 3339",
        ),
        (vec![time.as_str(), &signature], body, "event_id_missing", "X-Stock-Id"),
        (vec![time.as_str(), id], body, "signature_missing", "no signature in X-Stock-Signature"),
        (vec![time.as_str(), id, &signature], "{}", "signature_mismatch", "the body was changed"),
    ];
    for (headers, body, reason, words) in refused {
        let (code, told) = verify(&daemon, "stock", &headers, body, &[]);
        assert_eq!((code, told["reason"].as_str()), (7, Some(reason)), "{told}");
        assert!(told["hint"].as_str().unwrap().contains(words), "{told}");
    }
    let later = (now_s() + 100).to_string();
    let (code, told) = verify(&daemon, "stock", &[&time, id, &signature], body, &["--now", &later]);
    assert_eq!((code, told["reason"].as_str()), (7, Some("timestamp_outside_tolerance")), "{told}");
}

#[test]
fn verify_knows_the_url_and_the_secrets_of_an_endpoint() {
    let daemon = daemon();
    let body = format!(r#"{{"id":"k1","meta":{{"at":{}000}}}}"#, now_s());
    for url in ["https://hooks.example.com/webhooks/door", "https://old.example.com/webhooks/door"] {
        let digest = hmac_hex(SECRET.as_bytes(), &[format!("POST {url} {body}").as_bytes()]);
        let (code, told) = verify(&daemon, "door", &[&format!("X-Door: {digest}")], &body, &[]);
        assert_eq!((code, &told["event_id"]), (0, &Value::from("k1")), "{told}");
    }
    let push = r#"{"ref":"refs/heads/main"}"#;
    let line = format!("X-Hub-Signature-256: sha256={}", hmac_hex(SECRET.as_bytes(), &[push.as_bytes()]));
    assert_eq!(verify(&daemon, "hub", &[&line], push, &[]).0, 0);
}
