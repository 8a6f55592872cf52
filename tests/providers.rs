//! Providers from outside: the real binary with an endpoint for each, and what each of them demands.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::Signer as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use inboxd::internals::providers;
use serde_json::{Value, json};
use sha2::Sha256;
use support::app::App;
use support::{Client, Daemon, hmac_hex, now_s};

const SECRET: &str = "a secret of the tests";
const ROWS: &str = "SELECT count(*) FROM webhook_inbox";
const REVIEWS: &str = "SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL";

/// The key that signs for Discord here; the configuration holds its public half.
fn discord_key() -> ed25519_dalek::SigningKey {
    ed25519_dalek::SigningKey::from_bytes(&std::array::from_fn(|n| u8::try_from(n).unwrap()))
}

fn sendgrid_key() -> p256::ecdsa::SigningKey {
    p256::ecdsa::SigningKey::from_slice(&[7; 32]).unwrap()
}

fn secret_of(provider: &str) -> String {
    match provider {
        "standardwebhooks" | "svix" | "clerk" | "resend" | "gitlab_signing" => {
            format!("whsec_{}", STANDARD.encode([7; 32]))
        }
        "adyen_platform" => "0A".repeat(32),
        "discord" => {
            discord_key().verifying_key().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
        }
        "sendgrid" => {
            let prefix = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE";
            let point = sendgrid_key().verifying_key().to_sec1_point(false);
            // the prefix ends in the point's first byte
            format!("{prefix}{}", STANDARD.encode(&point.as_bytes()[1..]))
        }
        _ => SECRET.to_owned(),
    }
}

/// A daemon with an endpoint of each provider's name, at `/webhooks/<name>`, and `more` in its file.
fn all_providers(more: &str) -> Daemon {
    let dir = tempfile::tempdir().unwrap();
    let mut config = format!(
        "data_dir = \"data\"\npublic_url = \"https://hooks.example.com\"\n[listen]\nwebhooks = \"127.0.0.1:0\"\nadmin = \"off\"\n[limits]\ndisk_free_min = 0\n{more}"
    );
    for preset in providers::all() {
        let name = preset.name;
        support::write_secret(dir.path(), name, &secret_of(name));
        config += &format!("[endpoint.{name}]\nprovider = \"{name}\"\nsecrets = [\"file:{name}\"]\n");
    }
    support::write_secret(dir.path(), "custom", SECRET);
    std::fs::write(dir.path().join("inboxd.toml"), config).unwrap();
    Daemon::in_dir(Arc::new(dir))
}

/// Fixes the port, so that `send` knows where to go, and starts again.
fn with_a_known_port(daemon: Daemon) -> Daemon {
    let address = daemon.webhooks.clone();
    let dir = daemon.kill();
    let file = dir.path().join("inboxd.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config.replace("webhooks = \"127.0.0.1:0\"", &format!("webhooks = \"{address}\"")))
        .unwrap();
    Daemon::in_dir(dir)
}

fn base64_hmac(body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

fn line(body: &str) -> String {
    format!("X-Line-Signature: {}", base64_hmac(body))
}

/// Status, head in lower case, and body.
fn post(daemon: &Daemon, provider: &str, headers: &[&str], body: &str) -> (u16, String, String) {
    let mut client = daemon.client();
    client.send("POST", &format!("/webhooks/{provider}"), headers, body.as_bytes());
    let (status, head, body) = client.try_answer_with_head().unwrap();
    (status, head.to_ascii_lowercase(), body)
}

fn slack(body: &str) -> Vec<String> {
    let ts = now_s().to_string();
    let signature = hmac_hex(SECRET.as_bytes(), &[b"v0:", ts.as_bytes(), b":", body.as_bytes()]);
    vec![format!("X-Slack-Signature: v0={signature}"), format!("X-Slack-Request-Timestamp: {ts}")]
}

fn zoom(body: &str) -> Vec<String> {
    let line = |header: &String| header.replace("X-Slack-Signature", "x-zm-signature");
    let line = |header: &String| line(header).replace("X-Slack-Request-Timestamp", "x-zm-request-timestamp");
    slack(body).iter().map(line).collect()
}

fn discord(body: &str) -> Vec<String> {
    let ts = now_s().to_string();
    let signature = discord_key().sign(format!("{ts}{body}").as_bytes()).to_bytes();
    let hex: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
    vec![format!("X-Signature-Ed25519: {hex}"), format!("X-Signature-Timestamp: {ts}")]
}

fn lines(headers: &[String]) -> Vec<&str> {
    headers.iter().map(String::as_str).collect()
}

// ---- all of them

#[test]
fn a_test_delivery_of_every_provider_is_accepted_once_and_a_spoiled_one_is_not() {
    let daemon = with_a_known_port(all_providers(""));
    let mut rows = 0;
    for preset in providers::all() {
        let ran = daemon.inboxd(&["send", preset.name, "thing.happened", "--times", "2"]);
        if matches!(preset.name, "discord" | "sendgrid") {
            assert_eq!(ran.code, 2, "{ran:?}");
            assert!(ran.stderr.contains("private key"), "{ran:?}");
            continue;
        }
        assert_eq!(ran.code, 0, "{}: {ran:?}", preset.name);
        // Dropbox only says that something changed, in the same words each time
        rows += if preset.name == "dropbox" { 2 } else { 1 };
        assert_eq!(daemon.count(ROWS), rows, "{}: {ran:?}", preset.name);
        let spoiled = daemon.inboxd(&["send", preset.name, "thing.happened", "--bad-signature"]);
        assert_eq!(spoiled.code, 0, "{}: {spoiled:?}", preset.name);
    }
    assert_eq!(daemon.count(ROWS), rows);
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox WHERE state = 'ignored'"), rows);
    assert_eq!(daemon.count(REVIEWS), 0);
    let typed = "SELECT count(*) FROM webhook_inbox WHERE event_type = 'thing.happened'";
    assert_eq!(daemon.count(typed), rows - 2);
}

#[test]
fn init_writes_a_file_that_checks_for_every_provider() {
    for preset in providers::all() {
        let dir = tempfile::tempdir().unwrap();
        let ran = support::inboxd(dir.path(), &["init", "--provider", preset.name]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let file = dir.path().join("inboxd.toml");
        let config = std::fs::read_to_string(&file).unwrap();
        let variable = format!("env:{}_WEBHOOK_SECRET", preset.name.to_uppercase());
        assert!(config.contains(&variable), "{config}");
        support::write_secret(dir.path(), "secret", &secret_of(preset.name));
        std::fs::write(&file, config.replace(&variable, "file:secret")).unwrap();
        let ran = support::inboxd(dir.path(), &["check"]);
        assert_eq!(ran.code, 0, "{}: {ran:?}", preset.name);
    }
}

#[test]
fn every_provider_can_be_shown_and_the_manual_has_them_all() {
    let dir = tempfile::tempdir().unwrap();
    let list = support::inboxd(dir.path(), &["providers", "list", "--json"]);
    assert_eq!(list.code, 0);
    let rows: Vec<Value> = list.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), providers::all().len());
    let marked: Vec<_> =
        rows.iter().filter(|row| row["body_signed"] == false).map(|row| &row["name"]).collect();
    assert_eq!(marked, ["payjp_token", "gitlab_token", "mailgun"]);
    let manual = support::inboxd(dir.path(), &["man"]).stdout;
    for row in &rows {
        let name = row["name"].as_str().unwrap();
        let shown = support::inboxd(dir.path(), &["providers", "show", name]);
        assert_eq!(shown.code, 0);
        for text in
            [format!("[endpoint.{name}]"), "Set up:".to_owned(), row["docs"].as_str().unwrap().to_owned()]
        {
            assert!(shown.stdout.contains(&text), "{name} lacks {text}: {}", shown.stdout);
        }
        assert!(manual.contains(name), "{name}");
    }
    let alias = support::inboxd(dir.path(), &["providers", "show", "gitlab"]);
    assert!(alias.stdout.contains("gitlab_signing"), "{alias:?}");
    let unknown = support::inboxd(dir.path(), &["providers", "show", "shopfy"]);
    assert_eq!(unknown.code, 4);
    assert!(unknown.stderr.contains("did you mean shopify?"), "{unknown:?}");
}

// ---- handshakes

#[test]
fn signed_handshakes_are_answered_as_the_provider_wants_and_not_stored() {
    let daemon = all_providers("");
    let body = r#"{"type":"url_verification","challenge":"3eZbrw1a"}"#;
    let (status, head, answer) = post(&daemon, "slack", &lines(&slack(body)), body);
    assert_eq!((status, answer.as_str()), (200, "3eZbrw1a"));
    assert!(head.contains("content-type: text/plain") && !head.contains("x-slack-no-retry"), "{head}");
    assert_eq!(post(&daemon, "slack", &[], body).0, 400);

    let body = r#"{"event":"endpoint.url_validation","event_ts":1,"payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}"#;
    let (status, _, answer) = post(&daemon, "zoom", &lines(&zoom(body)), body);
    let encrypted = hmac_hex(SECRET.as_bytes(), &[b"qgg8vlvZRS6UYooatFL8Aw"]);
    let expected = json!({"plainToken": "qgg8vlvZRS6UYooatFL8Aw", "encryptedToken": encrypted});
    assert_eq!((status, serde_json::from_str::<Value>(&answer).unwrap()), (200, expected));
    assert_eq!(post(&daemon, "zoom", &[], body).0, 400);

    let body = r#"{"version":1,"application_id":"1","type":0}"#;
    let (status, head, answer) = post(&daemon, "discord", &lines(&discord(body)), body);
    assert_eq!((status, answer.as_str()), (204, ""));
    assert!(head.contains("content-type:"), "{head}");
    let body = r#"{"id":"1","application_id":"1","type":1,"token":"x"}"#;
    assert_eq!(post(&daemon, "discord", &lines(&discord(body)), body).2, r#"{"type":1}"#);
    let mut bad = discord(body);
    bad[1] = format!("X-Signature-Timestamp: {}", now_s() - 1);
    assert_eq!(post(&daemon, "discord", &lines(&bad), body).0, 401);

    let body = r#"{"destination":"U8e742f61d673b39c7fff3cecb7536ef0","events":[]}"#;
    assert_eq!(post(&daemon, "line", &[&line(body)], body).0, 200);

    let body = r#"{"events":[],"lastEventSequence":0,"firstEventSequence":0,"entropy":"X"}"#;
    let good = format!("x-xero-signature: {}", base64_hmac(body));
    let bad = format!("x-xero-signature: {}", base64_hmac("another body"));
    for (headers, status) in [(vec![good.as_str()], 200), (vec![bad.as_str()], 401), (vec![], 401)] {
        let (answered, head, answer) = post(&daemon, "xero", &headers, body);
        assert_eq!((answered, answer.as_str()), (status, ""));
        assert!(!head.contains("set-cookie"), "{head}");
    }

    let body = r#"{"type":"ping","data":{}}"#;
    let signature = format!("X-Komoju-Signature: {}", hmac_hex(SECRET.as_bytes(), &[body.as_bytes()]));
    assert_eq!(post(&daemon, "komoju", &[&signature], body).0, 200);
    assert_eq!(post(&daemon, "komoju", &["X-Komoju-Event: ping"], body).0, 400);
    assert_eq!(daemon.count(ROWS) + daemon.count(REVIEWS), 0);
}

#[test]
fn unsigned_handshakes_are_answered_and_open_no_door() {
    let daemon = all_providers("");
    let mut client = daemon.client();
    client.send("GET", "/webhooks/dropbox?x=1&challenge=a%3Cb%3E+c", &[], b"");
    let (status, head, body) = client.try_answer_with_head().unwrap();
    let head = head.to_ascii_lowercase();
    assert_eq!((status, body.as_str()), (200, "a<b> c"));
    assert!(head.contains("text/plain") && head.contains("x-content-type-options: nosniff"), "{head}");
    assert_eq!(client.get("/webhooks/dropbox").0, 405);
    assert_eq!(client.get(&format!("/webhooks/dropbox?challenge={}", "a".repeat(2000))).0, 405);
    assert_eq!(client.get("/webhooks/stripe?challenge=x").0, 405);
    assert_eq!(post(&daemon, "dropbox", &[], "challenge=x").0, 400);

    let form = "Content-Type: application/x-www-form-urlencoded";
    assert_eq!(post(&daemon, "woocommerce", &[form], "webhook_id=12").0, 200);
    for (headers, body) in [
        (vec![form], "webhook_id=12&status=paid"),
        (vec![form], "webhook_id=1a"),
        (vec![form], "webhook_id="),
        (vec![form, "X-WC-Webhook-Signature: x"], "webhook_id=12"),
        (vec!["Content-Type: application/json"], "webhook_id=12"),
    ] {
        assert_eq!(post(&daemon, "woocommerce", &headers, body).0, 400, "{body}");
    }
    assert_eq!(post(&daemon, "shopify", &[form], "webhook_id=12").0, 401);
    assert_eq!(daemon.count(ROWS), 0);
}

#[test]
fn what_nobody_signs_when_a_slack_command_is_saved_is_answered_and_nothing_else_is() {
    let daemon = all_providers("");
    let form = "Content-Type: application/x-www-form-urlencoded";
    for body in ["ssl_check=1", "token=gIkuvaNzQIHg97ATvDxqgjtO&ssl_check=1"] {
        assert_eq!(post(&daemon, "slack", &[form], body).0, 200, "{body}");
    }
    let mut client = daemon.client();
    assert_eq!(client.get("/webhooks/slack?ssl_check=1").0, 200);
    assert_eq!(client.get("/webhooks/slack").0, 405);
    assert_eq!(client.get("/webhooks/slack?ssl_check=0").0, 405);
    for (headers, body) in [
        (vec![form], "ssl_check=0&token=x"),
        (vec![form], "ssl_check=1&ssl_check=1"),
        (vec![form], "ssl_check=10"),
        (vec![form], "command=%2Fdeploy"),
        (vec!["Content-Type: application/json"], "ssl_check=1"),
        (vec![form, "X-Slack-Signature: v0=00"], "ssl_check=1"),
    ] {
        assert_eq!(post(&daemon, "slack", &headers, body).0, 400, "{headers:?} {body}");
    }
    assert_eq!(post(&daemon, "zoom", &[form], "ssl_check=1").0, 400);
    assert_eq!(daemon.count(ROWS) + daemon.count(REVIEWS), 0);
}

#[test]
fn a_push_that_is_longer_as_a_form_than_github_allows_json_to_be_is_taken() {
    let daemon = all_providers("");
    // 9 MB of JSON, and more than 25 MiB on the wire
    let body = format!("payload=%7B%22a%22%3A%22{}%22%7D", "%41".repeat(9_000_000));
    assert!(body.len() > 25 << 20);
    let signature =
        format!("X-Hub-Signature-256: sha256={}", hmac_hex(SECRET.as_bytes(), &[body.as_bytes()]));
    let form = "Content-Type: application/x-www-form-urlencoded";
    let lines = [form, &signature, "X-GitHub-Event: push", "X-GitHub-Delivery: f1"];
    let (status, _, answer) = post(&daemon, "github", &lines, &body);
    assert_eq!((status, answer.as_str()), (200, r#"{"outcome":"ignored"}"#), "{}", daemon.log());
    assert_eq!(daemon.count(REVIEWS), 0);
}

#[test]
fn the_ping_of_intercom_is_nobodys_work() {
    let daemon = all_providers("");
    let sent = |body: &str| {
        let mut mac = Hmac::<sha1::Sha1>::new_from_slice(SECRET.as_bytes()).unwrap();
        mac.update(body.as_bytes());
        let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        post(&daemon, "intercom", &[&format!("X-Hub-Signature: sha1={hex}")], body).0
    };
    for attempt in 1..4 {
        let ping = format!(
            r#"{{"type":"notification_event","app_id":"a","id":null,"topic":"ping","delivery_attempts":{attempt}}}"#
        );
        assert_eq!(sent(&ping), 200);
    }
    assert_eq!(sent(r#"{"type":"notification_event","app_id":"a","topic":"ping"}"#), 200);
    assert_eq!(daemon.count(ROWS) + daemon.count(REVIEWS), 0);
    let unsigned = r#"{"id":null,"topic":"ping"}"#;
    assert_eq!(post(&daemon, "intercom", &[], unsigned).0, 400);
    // any other topic without an id is a question as before
    assert_eq!(
        sent(r#"{"type":"notification_event","app_id":"a","id":null,"topic":"contact.created"}"#),
        200
    );
    assert_eq!(daemon.count(REVIEWS), 1);
}

// ---- what providers demand of answers

#[test]
fn a_bad_signature_has_the_status_that_the_provider_demands() {
    let daemon = all_providers("");
    for preset in providers::all() {
        let status = match preset.name {
            "shopify" | "shopify_events" | "xero" | "discord" => 401,
            "gocardless" => 498,
            "pagerduty" => 503,
            _ => 400,
        };
        let (answered, head, body) = post(&daemon, preset.name, &[], "{}");
        assert_eq!(answered, status, "{} {body}", preset.name);
        assert_eq!(head.contains("retry-after"), status == 503, "{head}");
        if preset.name != "xero" {
            assert_eq!(body, r#"{"error":"signature_missing"}"#, "{}", preset.name);
        }
    }
    assert_eq!(daemon.count(ROWS), 0);
}

#[test]
fn an_event_is_answered_with_the_body_that_the_provider_can_read() {
    let daemon = with_a_known_port(all_providers(""));
    let body = r#"{"version":1,"application_id":"1","type":1,"event":{"type":"ENTITLEMENT_CREATE","timestamp":"2026-01-02T03:04:05"}}"#;
    let (status, head, answer) = post(&daemon, "discord", &lines(&discord(body)), body);
    assert_eq!((status, answer.as_str()), (204, ""));
    assert!(head.contains("inboxd-outcome: ignored"), "{head}");
    assert_eq!(daemon.text("SELECT event_type FROM webhook_inbox"), "ENTITLEMENT_CREATE");
    let ran = daemon.inboxd(&["send", "twilio", "delivered"]);
    assert!(ran.stdout.starts_with("200 (ignored)"), "{ran:?}");

    let body = r#"[{"sg_event_id":"a","event":"open"},{"sg_event_id":"b","event":"click"}]"#;
    let ts = now_s().to_string();
    let signature: p256::ecdsa::Signature =
        p256::ecdsa::signature::Signer::sign(&sendgrid_key(), format!("{ts}{body}").as_bytes());
    let headers = [
        format!("X-Twilio-Email-Event-Webhook-Signature: {}", STANDARD.encode(signature.to_der().as_bytes())),
        format!("X-Twilio-Email-Event-Webhook-Timestamp: {ts}"),
    ];
    assert_eq!(post(&daemon, "sendgrid", &lines(&headers), body).0, 200);
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox WHERE provider = 'sendgrid'"), 2);
}

// ---- batches

#[test]
fn a_batch_becomes_a_row_each_and_one_answer_says_whether_something_was_new() {
    let daemon = all_providers("");
    let element = |id: &str, redelivered: bool| {
        format!(
            r#"{{ "type":"message","webhookEventId":"{id}","deliveryContext":{{"isRedelivery":{redelivered}}},"text":"\u3042" }}"#
        )
    };
    let batch =
        |elements: &[String]| format!(r#"{{"destination":"Ubot","events":[{}]}}"#, elements.join(" ,"));
    let one = batch(&[element("01A", false), element("01B", false)]);
    let (status, _, answer) = post(&daemon, "line", &[&line(&one)], &one);
    assert_eq!((status, answer.as_str()), (200, r#"{"outcome":"ignored"}"#));
    assert_eq!(daemon.count(ROWS), 2);
    assert_eq!(
        daemon.text("SELECT payload FROM webhook_inbox WHERE event_id = '01B'"),
        element("01B", false)
    );
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox WHERE account = 'Ubot'"), 2);

    assert_eq!(post(&daemon, "line", &[&line(&one)], &one).2, r#"{"outcome":"duplicate"}"#);
    let two = batch(&[element("01B", true), element("01C", false)]);
    assert_eq!(post(&daemon, "line", &[&line(&two)], &two).2, r#"{"outcome":"ignored"}"#);
    assert_eq!(daemon.count(ROWS), 3);
    assert_eq!(daemon.count("SELECT duplicates FROM webhook_inbox WHERE event_id = '01B'"), 2);
    assert_eq!(daemon.count(REVIEWS), 0);

    let broken = batch(&[element("01D", false), r#"{"webhookEventId":"01E","text":"\ud83d"}"#.to_owned()]);
    assert_eq!(post(&daemon, "line", &[&line(&broken)], &broken).2, r#"{"outcome":"quarantined"}"#);
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox WHERE state = 'quarantined'"), 1);
    assert_eq!(daemon.count(REVIEWS), 1);
}

// ---- replays

const REPLAYED: &str = r#"
[endpoint.money]
provider = "custom"
secrets = ["file:custom"]
handlers = ["billing"]
[endpoint.money.scheme]
signature_header = "X-Signature"
event_id = "header:X-Id"
event_type = "json:/type"
"#;

/// A payment whose id stands in an unsigned header.
fn payment(daemon: &Daemon, id: &str) -> (u16, String) {
    let body = support::invoice_event("evt", "paid", "in_1", 4200);
    let signature = format!("X-Signature: {}", hmac_hex(SECRET.as_bytes(), &[body.as_bytes()]));
    let mut client = Client::connect(&daemon.webhooks);
    client.post("/webhooks/money", &[&signature, &format!("X-Id: {id}")], &body)
}

#[test]
fn a_known_body_under_a_new_unsigned_id_is_kept_for_a_person_and_does_nothing() {
    let daemon = all_providers(REPLAYED);
    let ok = |word: &str| (200, format!(r#"{{"outcome":"{word}"}}"#));
    assert_eq!(payment(&daemon, "a"), ok("processed"));
    assert_eq!(payment(&daemon, "a"), ok("duplicate"));
    // without the books' own memory only the replay check stands between a captured delivery and its effect
    daemon.sql().execute_batch("DELETE FROM invoices").unwrap();
    let invoices = "SELECT count(*) FROM invoices";
    assert_eq!(payment(&daemon, "b"), ok("quarantined"));
    assert_eq!(payment(&daemon, "b"), ok("duplicate"));
    // a captured delivery sent without end fills neither the disk nor the list of questions
    for id in ["c", "d", "c"] {
        assert_eq!(payment(&daemon, id), ok("quarantined"));
    }
    assert_eq!(daemon.count(invoices), 0);
    assert_eq!(daemon.count("SELECT count(*) FROM reviews WHERE kind = 'replay'"), 1);
    assert_eq!(daemon.count(ROWS), 2);
    assert_eq!(daemon.count("SELECT duplicates FROM webhook_inbox WHERE event_id = 'b'"), 4);
    assert!(daemon.text("SELECT last_error FROM webhook_inbox WHERE event_id = 'b'").contains("event a"));
    assert_eq!(payment(&daemon, "a"), ok("duplicate"));
}

#[test]
fn a_replay_may_be_refused_or_allowed() {
    let replay = |word: &str| REPLAYED.replace("handlers", &format!("replay = \"{word}\"\nhandlers"));
    let daemon = all_providers(&replay("refuse"));
    assert_eq!(payment(&daemon, "a").0, 200);
    assert_eq!(payment(&daemon, "b"), (400, r#"{"error":"replayed"}"#.to_owned()));
    assert_eq!(payment(&daemon, "a"), (200, r#"{"outcome":"duplicate"}"#.to_owned()));
    assert_eq!(daemon.count(ROWS), 1);
    assert_eq!(daemon.count(REVIEWS), 0);
    drop(daemon);

    let daemon = all_providers(&replay("allow"));
    assert_eq!(payment(&daemon, "a").0, 200);
    assert_eq!(payment(&daemon, "b"), (200, r#"{"outcome":"processed"}"#.to_owned()));
    assert_eq!(daemon.count(ROWS), 2);
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries WHERE kind = 'payment'"), 1);
}

/// A signed GitHub delivery of this type under this id.
fn github(daemon: &Daemon, endpoint: &str, kind: &str, id: &str, body: &str) -> (u16, String) {
    let signature =
        format!("X-Hub-Signature-256: sha256={}", hmac_hex(SECRET.as_bytes(), &[body.as_bytes()]));
    let (kind, id) = (format!("X-GitHub-Event: {kind}"), format!("X-GitHub-Delivery: {id}"));
    daemon.client().post(&format!("/webhooks/{endpoint}"), &[&signature, &kind, &id], body)
}

#[test]
fn a_type_may_be_meant_twice_where_the_endpoint_says_so() {
    let daemon = all_providers(
        "[endpoint.hub]\nprovider = \"github\"\nsecrets = [\"file:github\"]\nmode = \"sync\"\nhandlers = [\"billing\"]\nreplay_allow = [\"repository_dispatch\"]\n",
    );
    let body = r#"{"action":"deploy","client_payload":{"env":"test"},"repository":{"full_name":"o/r"}}"#;
    for id in ["a", "b", "c"] {
        let (status, answer) = github(&daemon, "hub", "repository_dispatch", id, body);
        assert_eq!((status, answer.contains("quarantined")), (200, false), "{answer}");
    }
    assert_eq!(
        daemon.count("SELECT count(*) FROM webhook_inbox WHERE event_type = 'repository_dispatch.deploy'"),
        3
    );
    assert_eq!(daemon.count(REVIEWS), 0);
    let other = r#"{"action":"opened","repository":{"full_name":"o/r"}}"#;
    for (id, reviews) in [("d", 0), ("e", 1), ("f", 1)] {
        github(&daemon, "hub", "issues", id, other);
        assert_eq!(daemon.count(REVIEWS), reviews);
    }
    // a longer name that begins alike is another type
    github(&daemon, "hub", "repository_dispatched", "g", other);
    github(&daemon, "hub", "repository_dispatched", "h", other);
    assert_eq!(daemon.count(REVIEWS), 2);
    let printed = daemon.inboxd(&["check", "--print"]);
    assert!(printed.stdout.contains("replay_allow = [\"repository_dispatch\"]"), "{printed:?}");
}

#[test]
fn what_a_provider_itself_calls_a_test_asks_nobody() {
    let daemon = all_providers("");
    let gitea = |id: &str, body: &str| {
        let signature = format!("X-Gitea-Signature: {}", hmac_hex(SECRET.as_bytes(), &[body.as_bytes()]));
        let id = format!("X-Gitea-Delivery: {id}");
        daemon.client().post("/webhooks/gitea", &[&signature, &id, "X-Gitea-Event: push"], body)
    };
    let shopify = |id: &str, test: &str, body: &str| {
        let (signature, id) =
            (format!("X-Shopify-Hmac-Sha256: {}", base64_hmac(body)), format!("X-Shopify-Webhook-Id: {id}"));
        let (topic, test) = ("X-Shopify-Topic: orders/create", format!("X-Shopify-Test: {test}"));
        daemon.client().post("/webhooks/shopify", &[&signature, &id, topic, &test], body)
    };
    let duplicate = (200, String::from(r#"{"outcome":"duplicate"}"#));
    let button =
        r#"{"ref":"refs/heads/main","before":"f00d","after":"f00d","repository":{"full_name":"o/r"}}"#;
    assert_eq!(gitea("t1", button).0, 200);
    assert_eq!((gitea("t2", button), gitea("t3", button)), (duplicate.clone(), duplicate.clone()));
    assert_eq!(shopify("w1", "true", r#"{"id":1}"#).0, 200);
    assert_eq!(shopify("w2", "true", r#"{"id":1}"#), duplicate);
    let zen = r#"{"zen":"Keep it logically awesome.","hook_id":1}"#;
    assert_eq!(github(&daemon, "github", "ping", "p1", zen).0, 200);
    assert_eq!(github(&daemon, "github", "ping", "p2", zen), duplicate);
    assert_eq!((daemon.count(REVIEWS), daemon.count(ROWS)), (0, 3));
    assert_eq!(daemon.count("SELECT duplicates FROM webhook_inbox WHERE event_id = 't1'"), 2);
    // a real push, and a real order, are asked about as before
    let push = r#"{"ref":"refs/heads/main","before":"f00d","after":"beef","repository":{"full_name":"o/r"}}"#;
    gitea("r1", push);
    gitea("r2", push);
    assert_eq!(daemon.count(REVIEWS), 1);
}

#[test]
fn the_worker_does_not_touch_a_replay_until_a_person_puts_it_to_work() {
    let daemon = all_providers(&REPLAYED.replace("handlers", "mode = \"async\"\nhandlers"));
    let ok = |word: &str| (200, format!(r#"{{"outcome":"{word}"}}"#));
    assert_eq!(payment(&daemon, "a"), ok("accepted"));
    daemon.wait_for_count("SELECT count(*) FROM webhook_inbox WHERE event_id = 'a' AND state = 'done'", 1);
    assert_eq!(payment(&daemon, "b"), ok("quarantined"));
    assert_eq!(payment(&daemon, "b"), ok("duplicate"));
    assert_eq!(daemon.count("SELECT attempts FROM webhook_inbox WHERE event_id = 'b'"), 0);
    assert_eq!(daemon.count(REVIEWS), 1);
    let ran = daemon.inboxd(&["retry", "b", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    daemon.wait_for_count("SELECT count(*) FROM webhook_inbox WHERE event_id = 'b' AND state = 'done'", 1);
    assert_eq!(daemon.count(REVIEWS), 0);
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries WHERE kind = 'payment'"), 1);
}

#[test]
fn a_replay_that_a_person_puts_to_work_is_forwarded_where_there_is_no_handler_too() {
    let app = App::answering(200);
    let config = REPLAYED.replace("handlers = [\"billing\"]", "forward = [\"app\"]");
    let daemon =
        all_providers(&format!("{config}[destination.app]\nurl = \"{}\"\nsign = \"none\"\n", app.url));
    payment(&daemon, "a");
    assert_eq!(payment(&daemon, "b").1, r#"{"outcome":"quarantined"}"#);
    assert_eq!(daemon.count("SELECT count(*) FROM outbox WHERE event_id = 'b'"), 0);
    assert_eq!(daemon.inboxd(&["retry", "b"]).code, 0);
    for _ in 0..500 {
        if app.seen().len() == 2 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(app.seen().last().unwrap().key(), "money:b:forward:app", "{}", daemon.log());
    assert_eq!(daemon.text("SELECT state FROM webhook_inbox WHERE event_id = 'b'"), "done");
    assert_eq!(daemon.count(REVIEWS), 0);
}

#[test]
fn a_form_means_the_same_to_the_worker_as_it_came() {
    let dir = all_providers("").kill();
    let later = dir.path().join("later");
    std::fs::create_dir(&later).unwrap();
    std::fs::write(later.join("schema.sql"), "CREATE TABLE IF NOT EXISTS seen (team TEXT NOT NULL) STRICT;")
        .unwrap();
    let insert = "INSERT INTO seen (team) VALUES (json_extract(:event, '$.team.id'));";
    std::fs::write(later.join("_default.sql"), insert).unwrap();
    let file = dir.path().join("inboxd.toml");
    let config = std::fs::read_to_string(&file).unwrap()
        + "[endpoint.later]\nprovider = \"slack\"\nsecrets = [\"file:custom\"]\nmode = \"async\"\nhandlers = [\"sql:later\"]\n";
    std::fs::write(&file, config).unwrap();
    let daemon = Daemon::in_dir(dir);
    let body = "payload=%7B%22type%22%3A%22block_actions%22%2C%22team%22%3A%7B%22id%22%3A%22T1%22%7D%7D";
    let mut headers = slack(body);
    headers.push("Content-Type: application/x-www-form-urlencoded".to_owned());
    assert_eq!(post(&daemon, "later", &lines(&headers), body).2, r#"{"outcome":"accepted"}"#);
    daemon.wait_for_count("SELECT count(*) FROM seen", 1);
    assert_eq!(daemon.text("SELECT team FROM seen"), "T1", "{}", daemon.log());
    assert_eq!(daemon.text("SELECT payload FROM webhook_inbox"), body);
}

#[test]
fn a_replay_that_nobody_works_on_is_only_pointed_out() {
    let daemon = all_providers("");
    let body = r#"{"id":1,"total":"10.00"}"#;
    let signature = format!("X-Shopify-Hmac-Sha256: {}", base64_hmac(body));
    let deliver = |id: &str, topic: &str| {
        let (id, topic) = (format!("X-Shopify-Webhook-Id: {id}"), format!("X-Shopify-Topic: {topic}"));
        post(&daemon, "shopify", &[&signature, &id, &topic], body).2
    };
    let ignored = r#"{"outcome":"ignored"}"#;
    assert_eq!(deliver("w1", "orders/create"), ignored);
    // an order is created and paid with one body: two events, not a replay
    assert_eq!(deliver("w2", "orders/paid"), ignored);
    assert_eq!(daemon.count(REVIEWS), 0);
    assert_eq!(deliver("w3", "orders/paid"), ignored);
    assert_eq!(daemon.text("SELECT kind || ' ' || subject FROM reviews"), "replay shopify/w3");
}

#[test]
fn a_linear_attempt_with_a_new_time_is_the_same_event_and_one_under_a_new_id_a_replay() {
    let daemon = all_providers("");
    let deliver = |id: &str, ts_ms: i64| {
        let body =
            json!({"action": "create", "type": "Issue", "data": {"id": "x"}, "webhookTimestamp": ts_ms})
                .to_string();
        let signature = format!("Linear-Signature: {}", hmac_hex(SECRET.as_bytes(), &[body.as_bytes()]));
        post(&daemon, "linear", &[&signature, &format!("Linear-Delivery: {id}")], &body).2
    };
    let now_ms = now_s() * 1000;
    assert_eq!(deliver("a", now_ms), r#"{"outcome":"ignored"}"#);
    assert_eq!(deliver("a", now_ms + 1), r#"{"outcome":"duplicate"}"#);
    assert_eq!(daemon.count(REVIEWS), 0);
    assert_eq!(deliver("b", now_ms), r#"{"outcome":"ignored"}"#);
    assert_eq!(daemon.text("SELECT kind || ' ' || subject FROM reviews"), "replay linear/b");
}

#[test]
fn a_mailgun_token_counts_for_one_event_only() {
    let daemon = all_providers("");
    let ts = now_s().to_string();
    let signature = hmac_hex(SECRET.as_bytes(), &[ts.as_bytes(), b"tok1"]);
    let body = |id: &str| {
        json!({"signature": {"timestamp": ts, "token": "tok1", "signature": signature}, "event-data": {"id": id, "event": "failed"}})
            .to_string()
    };
    assert_eq!(post(&daemon, "mailgun", &[], &body("one")).0, 200);
    assert_eq!(post(&daemon, "mailgun", &[], &body("one")).2, r#"{"outcome":"duplicate"}"#);
    assert_eq!(post(&daemon, "mailgun", &[], &body("two")).0, 200);
    assert_eq!(daemon.text("SELECT kind || ' ' || subject FROM reviews"), "replay mailgun/two");
}

/// Delivers this body for Twilio at this path, with the signature of what the public URL and the fields say together.
fn twilio(daemon: &Daemon, signed: &str, path: &str, body: &str) {
    let mut mac = Hmac::<sha1::Sha1>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    let signature = format!("X-Twilio-Signature: {}", STANDARD.encode(mac.finalize().into_bytes()));
    let form = "Content-Type: application/x-www-form-urlencoded";
    assert_eq!(post(daemon, path, &[&signature, form], body).0, 200, "{path} {body}");
}

#[test]
fn a_twilio_text_cut_into_other_fields_or_another_query_is_a_replay_and_does_nothing() {
    let daemon = all_providers("");
    let signed = "https://hooks.example.com/webhooks/twilio?a=1BodyHiMessageSidSM1";
    for (path, body) in [
        ("?a=1", "MessageSid=SM1&Body=Hi"),
        // sent again by Twilio itself, and in another order
        ("?a=1", "MessageSid=SM1&Body=Hi"),
        ("?a=1", "Body=Hi&MessageSid=SM1"),
        // names and values cut elsewhere
        ("?a=1", "MessageSi=dSM1&Body=Hi"),
        ("?a=1", "BodyHiMessageSid=SM1"),
        // fields moved into the query, and the query into the fields
        ("?a=1BodyHi", "MessageSid=SM1"),
        ("?a=", "1BodyHi=&MessageSid=SM1"),
    ] {
        twilio(&daemon, signed, &format!("twilio{path}"), body);
    }
    assert_eq!(daemon.count("SELECT count(*) FROM reviews WHERE kind = 'replay'"), 1);
    assert_eq!(daemon.count("SELECT count(DISTINCT replay_key) FROM webhook_inbox"), 1);
    assert_eq!(daemon.count("SELECT duplicates FROM webhook_inbox WHERE id = 1"), 1);
    // another text is another event
    let other = "https://hooks.example.com/webhooks/twilio?a=1BodyHiMessageSidSM2";
    twilio(&daemon, other, "twilio?a=1", "MessageSid=SM2&Body=Hi");
    assert_eq!(daemon.count("SELECT count(DISTINCT replay_key) FROM webhook_inbox"), 2);
    assert_eq!(daemon.count("SELECT count(*) FROM reviews WHERE kind = 'replay'"), 1);
}

#[test]
fn a_captured_body_under_its_type_in_other_letters_is_a_replay_and_under_another_type_an_event() {
    let daemon = all_providers("");
    let hub =
        |id: &str, kind: &str| github(&daemon, "github", kind, id, r#"{"action":"opened","issue":{"id":1}}"#);
    let shop = |id: &str, topic: &str| {
        let body = r#"{"id":1,"total":"10.00"}"#;
        let signature = format!("X-Shopify-Hmac-Sha256: {}", base64_hmac(body));
        let (id, topic) = (format!("X-Shopify-Webhook-Id: {id}"), format!("X-Shopify-Topic: {topic}"));
        post(&daemon, "shopify", &[&signature, &id, &topic], body)
    };
    // no id at all: the topic is a piece of the key
    let woo = |topic: &str| {
        let body = r#"{"id":7,"total":"10.00"}"#;
        let signature = format!("X-WC-Webhook-Signature: {}", base64_hmac(body));
        post(&daemon, "woocommerce", &[&signature, &format!("X-WC-Webhook-Topic: {topic}")], body)
    };
    hub("g1", "issues");
    shop("s1", "orders/create");
    woo("order.created");
    assert_eq!(daemon.count(REVIEWS), 0);
    for (number, (kind, topic, woo_topic)) in
        [("Issues", "orders.create", "Order.Created"), ("ISSUES", "Orders/Create", "order/created")]
            .into_iter()
            .enumerate()
    {
        hub(&format!("g-{number}"), kind);
        shop(&format!("s-{number}"), topic);
        woo(woo_topic);
    }
    let of = |endpoint: &str| {
        daemon.count(&format!(
            "SELECT count(*) FROM reviews WHERE kind = 'replay' AND subject LIKE '{endpoint}/%'"
        ))
    };
    assert_eq!((of("github"), of("shopify"), of("woocommerce")), (1, 1, 1));
    assert_eq!(daemon.count(ROWS), 6, "the first of each, and one replay of each for a person");
    hub("g9", "pull_request");
    shop("s9", "orders/paid");
    woo("order.updated");
    assert_eq!(daemon.count("SELECT count(*) FROM reviews WHERE kind = 'replay'"), 3);
    assert_eq!(daemon.count(ROWS), 9);
}
