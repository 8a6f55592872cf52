//! What a sender signed is kept and handed on whole: the query of its URL, what stands in headers, and bodies that inboxd
//! cannot read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha1::Sha1;
use support::app::App;
use support::{Daemon, GITHUB_SECRET, hmac_hex};

const PUBLIC: &str = "https://hooks.example.com";
const OPEN_REVIEWS: &str = "SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL";
const HEAD: &str = "data_dir = \"data\"\npublic_url = \"https://hooks.example.com\"\n[listen]\nwebhooks = \"127.0.0.1:0\"\nadmin = \"off\"\n[limits]\ndisk_free_min = 0\n";

fn outcome(word: &str) -> (u16, String) {
    (200, format!(r#"{{"outcome":"{word}"}}"#))
}

fn endpoint(name: &str, provider: &str, more: &str) -> String {
    format!("[endpoint.{name}]\nprovider = \"{provider}\"\nsecrets = [\"file:github.secret\"]\n{more}\n")
}

fn destination(url: &str, sign: &str) -> String {
    format!("[destination.app]\nurl = \"{url}\"\nsign = \"{sign}\"\n")
}

fn sha1_base64(signed: &str) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(GITHUB_SECRET.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

/// A Twilio form to a path with a query, signed with its public URL.
fn twilio(daemon: &Daemon, target: &str, fields: &[(&str, &str)]) -> u16 {
    let mut sorted = fields.to_vec();
    sorted.sort_unstable();
    let signed: String = sorted.iter().map(|(name, value)| format!("{name}{value}")).collect();
    let body: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let signature = format!("X-Twilio-Signature: {}", sha1_base64(&format!("{PUBLIC}{target}{signed}")));
    let lines = [signature.as_str(), "Content-Type: application/x-www-form-urlencoded"];
    daemon.client().post(target, &lines, body.join("&")).0
}

const STEP: [(&str, &str); 4] =
    [("AccountSid", "AC7"), ("CallSid", "CA7"), ("CallStatus", "in-progress"), ("Digits", "4")];

#[test]
fn a_signed_query_is_part_of_the_event_and_goes_on_to_the_application() {
    for (mode, own) in [("sync", ""), ("proxy", "?from=inboxd")] {
        let app = App::answering(200);
        let more = format!("mode = \"{mode}\"\nforward = [\"app\"]");
        let url = format!("{}{own}", app.url);
        let daemon = Daemon::with_config(&format!(
            "{HEAD}{}{}",
            endpoint("t", "twilio", &more),
            destination(&url, "provider")
        ));
        for target in
            ["/webhooks/t?step=1", "/webhooks/t?step=2", "/webhooks/t", "/webhooks/t/?step=1&lang=de%20AT"]
        {
            assert_eq!(twilio(&daemon, target, &STEP), 200);
            assert_eq!(twilio(&daemon, target, &STEP), 200);
        }
        app.wait_for(4);
        let mut paths: Vec<_> = app.seen().into_iter().map(|seen| seen.path).collect();
        paths.sort();
        let wanted = if mode == "sync" {
            ["/hooks", "/hooks?step=1", "/hooks?step=1&lang=de%20AT", "/hooks?step=2"]
        } else {
            [
                "/hooks?from=inboxd",
                "/hooks?from=inboxd&step=1",
                "/hooks?from=inboxd&step=1&lang=de%20AT",
                "/hooks?from=inboxd&step=2",
            ]
        };
        assert_eq!(paths, wanted, "{mode}");
        // signed anew for the URL that the application sees
        for seen in app.seen() {
            let signed = "AccountSidAC7CallSidCA7CallStatusin-progressDigits4";
            let host = app.url.trim_end_matches("/hooks");
            let wanted = sha1_base64(&format!("{host}{}{signed}", seen.path));
            assert_eq!(seen.header("x-twilio-signature"), Some(wanted.as_str()), "{}", seen.path);
        }
        assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox"), 4);
        assert_eq!(daemon.count("SELECT sum(duplicates) FROM webhook_inbox"), 4);
        let listed = daemon.inboxd(&["events", "list", "--json"]).stdout;
        let queries: Vec<Value> = listed
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["query"].clone())
            .collect();
        assert!(queries.contains(&Value::from("step=2")) && queries.contains(&Value::Null), "{listed}");
        let key = daemon.text("SELECT event_id FROM webhook_inbox WHERE query = 'step=2'");
        let shown = daemon.inboxd(&["events", "show", &key]);
        assert!(shown.stdout.contains("step=2"), "{shown:?}");
    }
}

#[test]
fn a_query_that_nobody_signed_is_handed_on_and_makes_no_new_event() {
    let app = App::answering(200);
    let files = [
        ("h/schema.sql", "CREATE TABLE IF NOT EXISTS seen (query TEXT) STRICT"),
        ("h/_default.sql", "INSERT INTO seen VALUES (:query)"),
    ];
    let endpoints = ["sync", "async"].map(|mode| {
        endpoint(
            mode,
            "bitbucket",
            &format!("mode = \"{mode}\"\nforward = [\"app\"]\nhandlers = [\"sql:h\"]"),
        )
    });
    let daemon =
        Daemon::with_files(&format!("{HEAD}{}{}", endpoints.concat(), destination(&app.url, "none")), &files);
    let body = r#"{"repository":{"full_name":"o/r"}}"#;
    let signature =
        format!("X-Hub-Signature: sha256={}", hmac_hex(GITHUB_SECRET.as_bytes(), &[body.as_bytes()]));
    for mode in ["sync", "async"] {
        let send = |query: &str| {
            let lines = [signature.as_str(), "X-Event-Key: repo:push"];
            daemon.client().post(&format!("/webhooks/{mode}{query}"), &lines, body)
        };
        assert_eq!(send("?tenant=7"), outcome(if mode == "sync" { "processed" } else { "accepted" }));
        assert_eq!(send("?tenant=8"), outcome("duplicate"));
        assert_eq!(send(""), outcome("duplicate"));
    }
    daemon.wait_for_count("SELECT count(*) FROM seen WHERE query = 'tenant=7'", 2);
    app.wait_for(2);
    assert!(app.seen().iter().all(|seen| seen.path == "/hooks?tenant=7"), "{:?}", app.seen());
}

#[test]
fn a_typo_in_the_parameter_of_the_query_is_found_by_check() {
    let files = [("h/x.sql", "SELECT :query, :querry")];
    let config = format!("{HEAD}{}", endpoint("t", "twilio", "handlers = [\"sql:h\"]"));
    let dir = support::folder(&config, &files);
    let checked = support::inboxd(dir.path(), &["--config", "inboxd.toml", "check"]);
    assert!(
        checked.stderr.contains("no parameter :querry; known: ") && checked.stderr.contains(" :query "),
        "{checked:?}"
    );
}

/// A provider, header lines of its delivery, and names of those that go on.
const IN_HEADERS: [(&str, &[&str], &[&str]); 7] = [
    (
        "github",
        &["X-GitHub-Event: fork", "X-GitHub-Delivery: d1", "X-GitHub-Hook-ID: 5"],
        &["x-github-event", "x-github-delivery", "x-github-hook-id"],
    ),
    (
        "shopify",
        &[
            "X-Shopify-Topic: a/b",
            "X-Shopify-Webhook-Id: w",
            "X-Shopify-Shop-Domain: s",
            "X-Shopify-API-Version: 2026-01",
            "X-Shopify-Sub-Topic: type:x",
            "X-Shopify-Event-Id: e",
        ],
        &[
            "x-shopify-topic",
            "x-shopify-shop-domain",
            "x-shopify-api-version",
            "x-shopify-sub-topic",
            "x-shopify-event-id",
        ],
    ),
    (
        "woocommerce",
        &[
            "X-WC-Webhook-Topic: order.created",
            "X-WC-Webhook-Source: https://s",
            "X-WC-Webhook-Resource: order",
        ],
        &["x-wc-webhook-topic", "x-wc-webhook-source", "x-wc-webhook-resource"],
    ),
    ("bitbucket", &["X-Event-Key: repo:push", "X-Hook-UUID: u"], &["x-event-key", "x-hook-uuid"]),
    (
        "gitea",
        &["X-Gitea-Event: push", "X-Gitea-Event-Type: push", "X-Gitea-Delivery: g"],
        &["x-gitea-event", "x-gitea-event-type"],
    ),
    (
        "sentry",
        &["Sentry-Hook-Resource: issue", "Request-ID: r", "Sentry-Hook-Timestamp: 1"],
        &["sentry-hook-resource", "sentry-hook-timestamp"],
    ),
    (
        "gitlab_token",
        &["X-Gitlab-Event: Push Hook", "X-Gitlab-Instance: https://g", "Idempotency-Key: k"],
        &["x-gitlab-event", "x-gitlab-instance"],
    ),
];

/// The line with which a provider signs a body.
fn signature(provider: &str, body: &str) -> String {
    let hex = hmac_hex(GITHUB_SECRET.as_bytes(), &[body.as_bytes()]);
    match provider {
        "shopify" => format!("X-Shopify-Hmac-Sha256: {}", sha256_base64(body)),
        "woocommerce" => format!("X-WC-Webhook-Signature: {}", sha256_base64(body)),
        "gitea" => format!("X-Gitea-Signature: {hex}"),
        "sentry" => format!("Sentry-Hook-Signature: {hex}"),
        "gitlab_token" => format!("X-Gitlab-Token: {GITHUB_SECRET}"),
        "github" => format!("X-Hub-Signature-256: sha256={hex}"),
        _ => format!("X-Hub-Signature: sha256={hex}"),
    }
}

fn sha256_base64(body: &str) -> String {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(GITHUB_SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

#[test]
fn what_stands_in_headers_only_goes_on_however_the_destination_is_signed() {
    for sign in ["none", "standard", "provider"] {
        let app = App::answering(200);
        let endpoints: Vec<_> =
            IN_HEADERS.iter().map(|(name, ..)| endpoint(name, name, "forward = [\"app\"]")).collect();
        let secrets = if sign == "standard" { "secrets = [\"file:sw\"]\n" } else { "" };
        let config = format!("{HEAD}{}{}{secrets}", endpoints.concat(), destination(&app.url, sign));
        let dir = support::folder(&config, &[]);
        support::write_secret(dir.path(), "sw", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=");
        let daemon = Daemon::in_dir(std::sync::Arc::new(dir));
        for (number, (name, lines, kept)) in (1..).zip(&IN_HEADERS) {
            let body = format!(r#"{{"object_kind":"push","n":{number}}}"#);
            let signature = signature(name, &body);
            let mut all = vec![signature.as_str(), "Content-Type: application/json"];
            all.extend(*lines);
            assert_eq!(daemon.client().post(&format!("/webhooks/{name}"), &all, &body).0, 200, "{name}");
            app.wait_for(number);
            let seen = app.seen().into_iter().find(|seen| seen.text() == body).unwrap();
            for header in *kept {
                assert!(seen.header(header).is_some(), "{sign} {name}: {header} in {:?}", seen.headers);
            }
            let event_type =
                daemon.text(&format!("SELECT event_type FROM webhook_inbox WHERE endpoint = '{name}'"));
            let encoded = event_type.replace(' ', "%20");
            assert_eq!(seen.header("inboxd-type"), Some(encoded.as_str()), "{name}");
            let names: Vec<_> = seen.headers.iter().map(|(name, _)| name).collect();
            let once: std::collections::BTreeSet<_> = names.iter().collect();
            assert_eq!(once.len(), names.len(), "{sign} {name}: each header once in {names:?}");
            let (signature, _) = signature.split_once(':').unwrap();
            let is_signed = seen.header(&signature.to_ascii_lowercase()).is_some();
            assert_eq!(is_signed, sign == "provider", "{sign} {name}: a signature or token");
        }
    }
}

#[test]
fn what_a_handler_emits_names_the_type_of_the_event_it_came_from() {
    let app = App::answering(200);
    let files = [("h/push.sql", "SELECT inboxd_emit('app', 'Pushed', 'push:' || :id, '{}')")];
    let config = format!(
        "{HEAD}{}{}",
        endpoint("hub", "github", "mode = \"sync\"\nhandlers = [\"sql:h\"]"),
        destination(&app.url, "none")
    );
    let daemon = Daemon::with_files(&config, &files);
    let lines = [
        support::github_signature("{}"),
        "X-GitHub-Event: push".to_owned(),
        "X-GitHub-Delivery: p1".to_owned(),
    ];
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    assert_eq!(daemon.client().post("/webhooks/hub?a=1", &lines, "{}"), outcome("processed"));
    app.wait_for(1);
    assert_eq!(app.seen()[0].header("inboxd-type"), Some("push"));
    assert_eq!(app.seen()[0].path, "/hooks", "a message of one's own has nothing of the delivery's URL");
}

/// Content types and bodies that are no JSON, or no JSON in UTF-8.
fn unreadable() -> Vec<(&'static str, Vec<u8>)> {
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    vec![
        ("text/xml; charset=utf-8", b"<?xml version=\"1.0\"?>\r\n<o><id>5</id></o>\n".to_vec()),
        ("application/x-www-form-urlencoded", b"order=5&state=paid&order=6".to_vec()),
        (
            "multipart/form-data; boundary=x",
            b"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\x00\xff\r\n--x--\r\n".to_vec(),
        ),
        ("text/csv", b"id,state\n5,paid\n".to_vec()),
        ("application/x-protobuf", vec![0x0a, 0x03, 0xff, 0x00, 0xfe]),
        ("application/json; charset=utf-16", [vec![0xff, 0xfe], utf16("{\"id\":5}")].concat()),
        ("application/json", b"{\"id\":\"\\ud83d\"}".to_vec()),
        ("text/plain", Vec::new()),
    ]
}

const SCHEME: &str = "[endpoint.e.scheme]\nsignature_header = \"X-Signature\"\nevent_id = \"header:X-Id\"\nevent_type = \"header:X-Type\"\n";

fn send(daemon: &Daemon, id: &str, content_type: &str, body: &[u8]) -> (u16, String) {
    let lines = [
        format!("X-Signature: {}", hmac_hex(GITHUB_SECRET.as_bytes(), &[body])),
        format!("X-Id: {id}"),
        "X-Type: order.paid".to_owned(),
        format!("Content-Type: {content_type}"),
    ];
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    daemon.client().post("/webhooks/e", &lines, body)
}

#[test]
fn where_nobody_here_reads_a_body_it_is_handed_on_byte_for_byte_whatever_it_is() {
    for mode in ["sync", "async", "proxy"] {
        let app = App::answering(200);
        let more = format!("mode = \"{mode}\"\nforward = [\"app\"]\n{SCHEME}");
        let daemon = Daemon::with_config(&format!(
            "{HEAD}{}{}",
            endpoint("e", "custom", &more),
            destination(&app.url, "none")
        ));
        for (number, (content_type, body)) in (0..).zip(unreadable()) {
            let id = format!("{mode}-{number}");
            assert_eq!(
                send(&daemon, &id, content_type, &body),
                outcome("processed"),
                "{mode} {content_type}"
            );
            app.wait_for(number + 1);
            let seen =
                app.seen().into_iter().find(|seen| seen.header("inboxd-event-id") == Some(&id)).unwrap();
            assert_eq!((seen.header("content-type"), &seen.body), (Some(content_type), &body));
            assert_eq!(seen.header("inboxd-type"), Some("order.paid"));
            assert_eq!(send(&daemon, &id, content_type, &body), outcome("duplicate"));
        }
        assert_eq!(daemon.count("SELECT count(*) FROM reviews"), 0, "{mode}");
        assert_eq!(
            daemon.count("SELECT count(*) FROM webhook_inbox WHERE state <> 'done' OR event_type IS NULL"),
            0
        );
    }
}

#[test]
fn a_body_that_a_handler_or_a_scope_check_would_have_to_read_waits_for_a_person_under_its_headers_id() {
    let app = App::answering(200);
    let files = [("h/order.paid.sql", "SELECT 1")];
    for more in [
        "handlers = [\"sql:h\"]\nmode = \"sync\"\n",
        "handlers = [\"sql:h\"]\nmode = \"async\"\n",
        "account = \"acct_1\"\n",
    ] {
        let more = format!("forward = [\"app\"]\n{more}{SCHEME}");
        let config = format!("{HEAD}{}{}", endpoint("e", "custom", &more), destination(&app.url, "none"));
        let daemon = Daemon::with_files(&config, &files);
        for (number, (content_type, body)) in (0..).zip(unreadable()) {
            let answer = send(&daemon, &format!("q-{number}"), content_type, &body);
            assert_eq!(answer, outcome("quarantined"), "{more}: {content_type}");
        }
        let count = i64::try_from(unreadable().len()).unwrap();
        assert_eq!(
            daemon.count(
                "SELECT count(*) FROM webhook_inbox WHERE state = 'quarantined' AND event_id LIKE 'q-%'"
            ),
            count
        );
        assert_eq!(daemon.count(OPEN_REVIEWS), count);
    }
    assert!(app.seen().is_empty());
}

#[test]
fn xml_without_an_id_anywhere_is_handed_on_under_the_hash_of_its_body() {
    let app = App::answering(200);
    let more = "forward = [\"app\"]";
    let daemon = Daemon::with_config(&format!(
        "{HEAD}{}{}",
        endpoint("doc", "docusign", more),
        destination(&app.url, "provider")
    ));
    let body = "<DocuSignEnvelopeInformation><EnvelopeID>1</EnvelopeID></DocuSignEnvelopeInformation>";
    let signature = format!("X-DocuSign-Signature-1: {}", sha256_base64(body));
    let send = || daemon.client().post("/webhooks/doc", &[&signature, "Content-Type: text/xml"], body);
    assert_eq!(send(), outcome("processed"));
    assert_eq!(send(), outcome("duplicate"));
    app.wait_for(1);
    let seen = &app.seen()[0];
    assert_eq!((seen.text(), seen.header("content-type")), (body, Some("text/xml")));
    assert_eq!(seen.header("x-docusign-signature-1"), signature.split_once(": ").map(|(_, value)| value));
    assert!(daemon.text("SELECT event_id FROM webhook_inbox").starts_with("body-sha256:"));
}
