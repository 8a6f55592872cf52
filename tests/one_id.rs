//! One event id, several facts: what makes two deliveries the same event, and what becomes of another body.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;
use support::app::{App, respond};
use support::{Daemon, GITHUB_SECRET, hmac_hex, now_s};

const OTHER_SECRET: &str = "the secret of the second app";
const OPEN_REVIEWS: &str = "SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL";
const UNPROCESSED: &str = "SELECT count(*) FROM webhook_inbox WHERE processed_at_ms IS NULL";

fn outcome(word: &str) -> (u16, String) {
    (200, format!(r#"{{"outcome":"{word}"}}"#))
}

/// A GitHub endpoint of two apps at `/webhooks/hub`, whose other settings are `more`.
fn hub(more: &str, files: &[(&str, &str)]) -> Daemon {
    let config = format!(
        "data_dir = \"data\"\n[listen]\nwebhooks = \"127.0.0.1:0\"\nadmin = \"off\"\n[limits]\ndisk_free_min = 0\n\
         [endpoint.hub]\nprovider = \"github\"\nsecrets = [\"file:github.secret\", \"file:other.secret\"]\n{more}"
    );
    let dir = support::folder(&config, files);
    support::write_secret(dir.path(), "other.secret", OTHER_SECRET);
    Daemon::in_dir(std::sync::Arc::new(dir))
}

fn installed(installation: u32) -> String {
    json!({"action": "labeled", "issue": {"node_id": "I_9"}, "installation": {"id": installation}})
        .to_string()
}

fn deliver(daemon: &Daemon, guid: &str, hook: Option<&str>, secret: &str, body: &str) -> (u16, String) {
    let signature =
        format!("X-Hub-Signature-256: sha256={}", hmac_hex(secret.as_bytes(), &[body.as_bytes()]));
    let guid = format!("X-GitHub-Delivery: {guid}");
    let hook = hook.map(|hook| format!("X-GitHub-Hook-ID: {hook}"));
    let mut lines =
        vec![signature.as_str(), guid.as_str(), "X-GitHub-Event: issues", "Content-Type: application/json"];
    lines.extend(hook.as_deref());
    daemon.client().post("/webhooks/hub", &lines, body)
}

const SQL: [(&str, &str); 2] = [
    ("h/schema.sql", "CREATE TABLE IF NOT EXISTS runs (event TEXT PRIMARY KEY, installation INTEGER) STRICT"),
    ("h/_default.sql", "INSERT INTO runs VALUES (:id, :event -> 'installation' ->> 'id')"),
];

fn destination(app: &App) -> String {
    format!("[destination.app]\nurl = \"{}\"\nsign = \"none\"\n", app.url)
}

#[test]
fn two_apps_that_tell_of_one_github_event_in_other_bodies_are_two_events() {
    for mode in ["sync", "async"] {
        let app = App::answering(200);
        let more =
            format!("mode = \"{mode}\"\nhandlers = [\"sql:h\"]\nforward = [\"app\"]\n{}", destination(&app));
        let daemon = hub(&more, &SQL);
        let first = deliver(&daemon, "g-1", Some("71"), GITHUB_SECRET, &installed(1));
        assert_eq!(first, outcome(if mode == "sync" { "processed" } else { "accepted" }));
        assert_eq!(deliver(&daemon, "g-1", Some("72"), OTHER_SECRET, &installed(2)), first, "{mode}");
        daemon.wait_for_count(UNPROCESSED, 0);
        assert_eq!(daemon.count("SELECT sum(installation) FROM runs"), 3, "{mode}");
        app.wait_for(2);
        let mut keys: Vec<_> = app.seen().iter().map(|seen| seen.key().to_owned()).collect();
        keys.sort();
        assert!(keys[0].starts_with("hub:g-1:body-sha256:") && keys[1] == "hub:g-1:forward:app", "{keys:?}");
        for (hook, secret, installation) in
            [("71", GITHUB_SECRET, 1), ("72", OTHER_SECRET, 2), ("73", OTHER_SECRET, 2)]
        {
            let again = deliver(&daemon, "g-1", Some(hook), secret, &installed(installation));
            assert_eq!(again, outcome("duplicate"), "{mode}: {hook}");
        }
        assert_eq!(daemon.count("SELECT count(*) FROM runs"), 2);
        assert_eq!(daemon.count(OPEN_REVIEWS), 0);
    }
}

#[test]
fn in_proxy_mode_the_application_is_asked_about_each_of_two_apps() {
    let app = App::start(|seen, back| respond(back, if seen.number == 1 { 500 } else { 200 }, "", ""));
    let daemon = hub(&format!("mode = \"proxy\"\nforward = [\"app\"]\n{}", destination(&app)), &[]);
    assert_eq!(deliver(&daemon, "g-2", Some("71"), GITHUB_SECRET, &installed(1)), outcome("processed"));
    assert_eq!(deliver(&daemon, "g-2", Some("72"), OTHER_SECRET, &installed(2)).0, 502);
    assert_eq!(deliver(&daemon, "g-2", Some("72"), OTHER_SECRET, &installed(2)), outcome("processed"));
    assert_eq!(deliver(&daemon, "g-2", Some("72"), OTHER_SECRET, &installed(2)), outcome("duplicate"));
    assert_eq!(app.bodies(), [installed(1), installed(2), installed(2)]);
    assert_eq!(daemon.count(OPEN_REVIEWS), 0);
}

#[test]
fn an_installation_tells_apart_where_an_older_server_names_no_hook() {
    let daemon = hub("handlers = [\"sql:h\"]\nmode = \"sync\"\n", &SQL);
    assert_eq!(deliver(&daemon, "g-3", None, GITHUB_SECRET, &installed(1)), outcome("processed"));
    assert_eq!(deliver(&daemon, "g-3", None, GITHUB_SECRET, &installed(2)), outcome("processed"));
    assert_eq!(deliver(&daemon, "g-3", None, GITHUB_SECRET, &installed(2)), outcome("duplicate"));
    assert_eq!(daemon.count("SELECT count(*) FROM runs"), 2);
}

#[test]
fn a_captured_body_under_a_known_id_and_another_hook_is_still_a_replay() {
    let daemon = hub("handlers = [\"sql:h\"]\nmode = \"sync\"\n", &SQL);
    assert_eq!(deliver(&daemon, "g-4", Some("71"), GITHUB_SECRET, &installed(1)), outcome("processed"));
    assert_eq!(deliver(&daemon, "g-5", Some("71"), GITHUB_SECRET, &installed(2)), outcome("processed"));
    assert_eq!(deliver(&daemon, "g-4", Some("99"), GITHUB_SECRET, &installed(2)), outcome("quarantined"));
    assert_eq!(daemon.text("SELECT kind FROM reviews"), "replay");
    assert_eq!(daemon.count("SELECT count(*) FROM runs"), 2);
}

fn base64_hmac(body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(GITHUB_SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

/// What is different between deliveries of one Shopify event.
#[derive(Clone, Copy)]
struct Told<'a> {
    webhook_id: &'a str,
    event_id: &'a str,
    topic: &'a str,
    version: &'a str,
}

fn shop(daemon: &Daemon, told: Told<'_>, body: &str) -> (u16, String) {
    let lines = [
        format!("X-Shopify-Hmac-Sha256: {}", base64_hmac(body)),
        format!("X-Shopify-Webhook-Id: {}", told.webhook_id),
        format!("X-Shopify-Event-Id: {}", told.event_id),
        format!("X-Shopify-Topic: {}", told.topic),
        format!("X-Shopify-API-Version: {}", told.version),
        "X-Shopify-Shop-Domain: a.myshopify.com".to_owned(),
    ];
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    daemon.client().post("/webhooks/hub", &lines, body)
}

#[test]
fn a_second_shopify_subscription_tells_of_the_same_event_whatever_its_api_version() {
    for mode in ["sync", "async"] {
        let more = format!("mode = \"{mode}\"\nhandlers = [\"sql:h\"]\n");
        let daemon = {
            let config = format!(
                "data_dir = \"data\"\n[listen]\nwebhooks = \"127.0.0.1:0\"\nadmin = \"off\"\n[limits]\ndisk_free_min = 0\n\
                 [endpoint.hub]\nprovider = \"shopify\"\nsecrets = [\"file:github.secret\"]\n{more}"
            );
            Daemon::with_files(
                &config,
                &[
                    ("h/schema.sql", "CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY) STRICT"),
                    ("h/_default.sql", "INSERT INTO runs VALUES (:id)"),
                ],
            )
        };
        let first = Told { webhook_id: "w1", event_id: "e1", topic: "orders/paid", version: "2026-04" };
        let body = r#"{"id":31,"total_price":"9.00"}"#;
        let newer = r#"{"id":31,"total_price":"9.00","total_tax_set":{}}"#;
        let taken = outcome(if mode == "sync" { "processed" } else { "accepted" });
        assert_eq!(shop(&daemon, first, body), taken);
        assert_eq!(shop(&daemon, Told { webhook_id: "w2", ..first }, body), outcome("duplicate"));
        let other_version = Told { webhook_id: "w3", version: "2026-07", ..first };
        assert_eq!(shop(&daemon, other_version, newer), outcome("duplicate"));
        assert_eq!(shop(&daemon, other_version, newer), outcome("duplicate"));
        daemon.wait_for_count(UNPROCESSED, 0);
        assert_eq!(daemon.count("SELECT count(*) FROM runs"), 1);
        // another topic, and another object of one bulk act, are other events
        assert_eq!(shop(&daemon, Told { webhook_id: "w4", topic: "orders/updated", ..first }, body), taken);
        assert_eq!(shop(&daemon, Told { webhook_id: "w5", ..first }, r#"{"id":32}"#), taken);
        daemon.wait_for_count(UNPROCESSED, 0);
        assert_eq!(daemon.count("SELECT count(*) FROM runs"), 3);
        assert_eq!(daemon.count(OPEN_REVIEWS), 0, "{mode}");
        // whoever has copied a body can make up ids, and is found out by the body
        let made_up = Told { webhook_id: "w6", event_id: "e6", ..first };
        assert_eq!(shop(&daemon, made_up, body), outcome("quarantined"));
    }
}

#[test]
fn one_stripe_event_in_the_shapes_of_two_api_versions_is_one_event_without_a_question() {
    let daemon = Daemon::start();
    let body = |version: &str| {
        support::invoice_event("evt_1", "paid", "in_1", 700).replace("2025-03-31.basil", version)
    };
    assert_eq!(daemon.stripe(&body("2024-06-20")), outcome("processed"));
    assert_eq!(daemon.stripe(&body("2025-03-31.basil")), outcome("duplicate"));
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries WHERE kind = 'payment'"), 1);
    assert_eq!(daemon.count(OPEN_REVIEWS), 0);
}

#[test]
fn paddles_second_destination_and_its_replays_are_the_same_event() {
    let config = support::CONFIG
        .replace("[endpoint.github]\nprovider = \"github\"", "[endpoint.github]\nprovider = \"paddle\"");
    let daemon = Daemon::with_config(&config);
    let send = |notification: &str| {
        let body = json!({"event_id": "evt_p", "event_type": "x", "notification_id": notification, "data": {"id": "t"}});
        let (body, ts) = (body.to_string(), now_s().to_string());
        let h1 = hmac_hex(GITHUB_SECRET.as_bytes(), &[ts.as_bytes(), b":", body.as_bytes()]);
        daemon.client().post("/webhooks/github", &[&format!("Paddle-Signature: ts={ts};h1={h1}")], body)
    };
    assert_eq!(send("ntf_1"), outcome("ignored"));
    assert_eq!(send("ntf_2"), outcome("duplicate"));
    assert_eq!(daemon.count("SELECT count(*) FROM reviews"), 0);
}

fn signed_stripe(daemon: &Daemon, path: &str, body: &str) -> (u16, String) {
    daemon.client().post(path, &[&support::stripe_signature(body, now_s(), support::STRIPE_SECRET)], body)
}

fn contradicting(amount: u32) -> String {
    support::event("evt_c", "thing.sold", &format!(r#"{{"id":"th_1","amount":{amount}}}"#))
}

/// A Stripe endpoint at `/webhooks/stripe` that forwards, with `more` among its settings.
fn forwarding(app: &App, more: &str, files: &[(&str, &str)]) -> Daemon {
    let endpoint = format!("{more}\nforward = [\"app\"]");
    let config = support::CONFIG.replace("handlers = [\"billing\"]", &endpoint) + &destination(app);
    Daemon::with_files(&config, files)
}

const SOLD: [(&str, &str); 2] = [
    ("h/schema.sql", "CREATE TABLE IF NOT EXISTS sold (event TEXT PRIMARY KEY, amount INTEGER) STRICT"),
    ("h/thing.sold.sql", "INSERT INTO sold VALUES (:id, :object ->> 'amount')"),
];

#[test]
fn the_other_body_of_one_id_is_kept_shown_and_put_to_work_in_every_mode() {
    for (more, by_review) in [
        ("handlers = [\"sql:h\"]", true),
        ("handlers = [\"sql:h\"]\nmode = \"async\"", false),
        ("", true),
        ("mode = \"proxy\"", false),
        ("mode = \"proxy\"", true),
    ] {
        let app = App::answering(200);
        let daemon = forwarding(&app, more, &SOLD);
        signed_stripe(&daemon, "/webhooks/stripe?shop=7", &contradicting(1));
        daemon.wait_for_count(UNPROCESSED, 0);
        for _ in 0..3 {
            let again = signed_stripe(&daemon, "/webhooks/stripe?shop=7", &contradicting(2));
            assert_eq!(again, outcome("duplicate"), "{more}");
        }
        assert_eq!(daemon.count(OPEN_REVIEWS), 1);
        assert_eq!(daemon.count("SELECT count(*) FROM webhook_conflicts WHERE query = 'shop=7'"), 1);

        let listed = daemon.inboxd(&["reviews", "list", "--json"]).stdout;
        let review: serde_json::Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(review["conflicts"][0]["payload_bytes"], contradicting(2).len(), "{listed}");
        let shown = daemon.inboxd(&["events", "show", "evt_c", "--json"]).stdout;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["conflicts"][0]["put_to_work_as"], serde_json::Value::Null);
        let text = daemon.inboxd(&["events", "show", "evt_c"]).stdout;
        assert!(text.contains("inboxd events body evt_c --conflict 1"), "{text}");
        assert_eq!(daemon.inboxd(&["events", "body", "evt_c"]).stdout, contradicting(1));
        assert_eq!(daemon.inboxd(&["events", "body", "evt_c", "--conflict"]).stdout, contradicting(2));
        assert_eq!(daemon.inboxd(&["events", "body", "evt_c", "--conflict", "2"]).code, 4);

        let id = review["id"].to_string();
        let args = if by_review { vec!["retry", "--conflict", &id] } else { vec!["retry", "evt_c"] };
        let retried = daemon.inboxd(&args);
        assert_eq!(retried.code, 0, "{retried:?}");
        let key = daemon.text("SELECT event_id FROM webhook_inbox WHERE event_id <> 'evt_c'");
        assert!(key.starts_with("evt_c:body-sha256:") && retried.stdout.contains(&key), "{retried:?}");
        daemon.wait_for_count(UNPROCESSED, 0);
        app.wait_for(2);
        assert_eq!(app.bodies()[1], contradicting(2), "{more}");
        assert_eq!(app.seen()[1].path, "/hooks?shop=7");
        assert_eq!(app.seen()[1].key(), format!("billing:{key}:forward:app"));
        if more.contains("sql") {
            assert_eq!(daemon.text("SELECT group_concat(amount) FROM sold"), "1,2");
        }
        assert_eq!(daemon.count(OPEN_REVIEWS), 0);
        // once, whoever asks again; and the sender's redelivery is known
        assert_eq!(daemon.inboxd(&["retry", "--conflict", &id]).code, 5);
        let again = daemon.inboxd(&["retry", "evt_c"]);
        assert!(again.stdout.contains("was processed before; nothing was changed"), "{again:?}");
        assert_eq!(signed_stripe(&daemon, "/webhooks/stripe", &contradicting(2)), outcome("duplicate"));
        assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox"), 2);
        assert_eq!(daemon.count(OPEN_REVIEWS), 0);
    }
}

#[test]
fn no_more_than_eight_other_bodies_of_one_event_are_kept() {
    let daemon = Daemon::start();
    for amount in 0..12 {
        signed_stripe(&daemon, "/webhooks/stripe", &contradicting(amount));
    }
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_conflicts"), 8);
    assert_eq!(daemon.count(OPEN_REVIEWS), 1);
}

#[test]
fn a_question_that_was_answered_is_not_asked_again_for_the_same_body() {
    let daemon = Daemon::start();
    signed_stripe(&daemon, "/webhooks/stripe", &contradicting(1));
    signed_stripe(&daemon, "/webhooks/stripe", &contradicting(2));
    assert_eq!(daemon.inboxd(&["resolve", "1", "--note", "the first is right"]).code, 0);
    signed_stripe(&daemon, "/webhooks/stripe", &contradicting(2));
    assert_eq!(daemon.count(OPEN_REVIEWS), 0);
    signed_stripe(&daemon, "/webhooks/stripe", &contradicting(3));
    assert_eq!(daemon.count(OPEN_REVIEWS), 1);
}

#[test]
fn the_other_body_and_the_query_are_purged_with_the_payload() {
    let daemon = Daemon::start();
    signed_stripe(&daemon, "/webhooks/stripe?mail=a%40b", &contradicting(1));
    signed_stripe(&daemon, "/webhooks/stripe?mail=a%40b", &contradicting(2));
    daemon.sql().execute_batch("UPDATE webhook_inbox SET received_at_ms = 1").unwrap();
    assert_eq!(daemon.inboxd(&["purge"]).code, 0);
    let left = "SELECT count(*) FROM webhook_conflicts WHERE payload IS NOT NULL OR query IS NOT NULL";
    assert_eq!(daemon.count(left), 0);
    assert_eq!(
        daemon.count("SELECT count(*) FROM webhook_inbox WHERE payload IS NOT NULL OR query IS NOT NULL"),
        0
    );
    let retried = daemon.inboxd(&["retry", "--conflict", "1"]);
    assert!(retried.code == 5 && retried.stderr.contains("purged"), "{retried:?}");
}
