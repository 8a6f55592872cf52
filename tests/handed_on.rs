//! What an application is handed on of each provider: it must be what the provider's own SDK expects.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use inboxd::internals::providers::Provider;
use inboxd::internals::signature::{Delivery, Headers, Secret, Unsigned, sign};
use inboxd::internals::verify::{Verified, Verifier};
use p256::ecdsa::signature::Signer as _;
use support::app::{App, Seen, respond};
use support::{Daemon, now_s};

const SECRET: &str = "a secret of the tests, long enough";
const STANDARD_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A delivery of three events: what stands before them, the events, what stands between and after them.
struct Batch {
    provider: &'static str,
    before: &'static str,
    events: [&'static str; 3],
    after: &'static str,
}

const BATCHES: [Batch; 4] = [
    Batch {
        provider: "gocardless",
        before: "{ \"events\": [\n  ",
        events: [
            r#"{"id":"EV1","resource_type":"payments","action":"paid_out","links":{"payment":"PM1"}}"#,
            r#"{"id":"EV2","resource_type":"mandates","action":"active","links":{"mandate":"MD1"}}"#,
            r#"{"id":"EV3","resource_type":"payouts","action":"paid","links":{"payout":"PO1"}, "note": "]}"}"#,
        ],
        after: "\n], \"meta\": {\"webhook_id\": \"WB1\"} }\n",
    },
    Batch {
        provider: "line",
        before: "{\"destination\":\"Uä\",\"events\":[",
        events: [
            r#"{"webhookEventId":"W1","type":"message","source":{"userId":"U1"}}"#,
            r#"{"webhookEventId":"W2","type":"follow","source":{"userId":"U2"}}"#,
            r#"{"webhookEventId":"W3","type":"message","source":{"userId":"U1"}}"#,
        ],
        after: "]}",
    },
    Batch {
        provider: "xero",
        before: "{\"events\":[",
        events: [
            r#"{"tenantId":"t","resourceId":"r1","eventDateUtc":"2026-01-01T00:00:00","eventCategory":"INVOICE","eventType":"UPDATE"}"#,
            r#"{"tenantId":"t","resourceId":"r2","eventDateUtc":"2026-01-01T00:00:00","eventCategory":"INVOICE","eventType":"CREATE"}"#,
            r#"{"tenantId":"t","resourceId":"r3","eventDateUtc":"2026-01-01T00:00:00","eventCategory":"CONTACT","eventType":"UPDATE"}"#,
        ],
        after: "],\"firstEventSequence\": 7,\"lastEventSequence\": 9, \"entropy\": \"XYZ\"}",
    },
    Batch {
        provider: "hubspot_v3",
        before: " [",
        events: [
            r#"{"eventId":1,"subscriptionId":9,"portalId":62,"objectId":11,"occurredAt":1,"subscriptionType":"contact.creation"}"#,
            r#"{"eventId":2,"subscriptionId":9,"portalId":62,"objectId":12,"occurredAt":2,"subscriptionType":"contact.deletion"}"#,
            r#"{"eventId":3,"subscriptionId":9,"portalId":62,"objectId":13,"occurredAt":3,"subscriptionType":"contact.creation"}"#,
        ],
        after: "] ",
    },
];

impl Batch {
    fn body(&self) -> String {
        format!("{}{}{}", self.before, self.events.join(" ,\n"), self.after)
    }

    /// What the application is to get: each event as if it had been the only one.
    fn single(&self) -> Vec<String> {
        self.events.iter().map(|event| format!("{}{event}{}", self.before, self.after)).collect()
    }
}

fn config(provider: &str, url: &str, endpoint: &str, destination: &str) -> String {
    format!(
        "data_dir = \"data\"\npublic_url = \"https://hooks.example.com\"\n[listen]\nwebhooks = \"127.0.0.1:0\"\nadmin = \"off\"\n[limits]\ndisk_free_min = 0\n\
         [endpoint.e]\nprovider = \"{provider}\"\nsecrets = [\"file:secret\"]\nforward = [\"app\"]\n{endpoint}\n\
         [destination.app]\nurl = \"{url}\"\n{destination}\n"
    )
}

fn start(config: &str, secret: &str) -> Daemon {
    let dir = Daemon::folder(config);
    support::write_secret(dir.path(), "secret", secret);
    support::write_secret(dir.path(), "standard.secret", STANDARD_SECRET);
    Daemon::in_dir(Arc::new(dir))
}

/// The headers with which the provider would send it to this URL now.
fn signed(provider: &str, secret: &str, url: &str, body: &str) -> Vec<String> {
    let unsigned = Unsigned {
        method: "POST",
        url,
        content_type: "application/json",
        event_id: "an-id",
        event_type: None,
        signed_at_s: now_s(),
        body: body.as_bytes(),
    };
    let lines =
        sign(Provider::named(provider).unwrap().scheme(), &Secret::new("file:secret", secret), &unsigned);
    let lines = lines.unwrap().into_iter().map(|(name, value)| format!("{name}: {value}"));
    lines.chain(["Content-Type: application/json".to_owned()]).collect()
}

fn deliver(daemon: &Daemon, path: &str, lines: &[String], body: &str) -> u16 {
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    daemon.client().post(path, &lines, body).0
}

/// What the provider's verifier makes of a request that the application got.
fn verified(provider: &str, secret: &str, url: &str, seen: &Seen) -> usize {
    let secrets = vec![Secret::new("file:secret", secret)];
    let provider = Provider::named(provider).unwrap();
    let verifier = Verifier::new(provider, secrets, Duration::from_secs(300)).unwrap();
    let headers: Headers = seen.headers.iter().cloned().collect();
    let delivery = Delivery { method: "POST", url, headers: &headers, body: seen.body.clone() };
    match verifier.verify(delivery, now_s() * 1000).unwrap() {
        Verified::Events(events) => events.len(),
        Verified::Handshake(reply) => panic!("{reply:?}"),
    }
}

#[test]
fn each_event_of_a_batch_is_handed_on_inside_its_providers_envelope_and_signed_as_a_delivery_of_one() {
    for batch in BATCHES {
        let provider = batch.provider;
        let app = App::answering(200);
        let daemon = start(&config(provider, &app.url, "", ""), SECRET);
        let lines = signed(provider, SECRET, "https://hooks.example.com/webhooks/e", &batch.body());
        assert_eq!(deliver(&daemon, "/webhooks/e", &lines, &batch.body()), 200, "{provider}");
        app.wait_for(3);
        let (mut got, mut wanted) = (app.bodies(), batch.single());
        got.sort();
        wanted.sort();
        assert_eq!(got, wanted, "{provider}");
        for seen in app.seen() {
            assert_eq!(verified(provider, SECRET, &app.url, &seen), 1, "{provider}");
        }
        // the inbox keeps each event's own text
        let mut stored: Vec<String> = batch.events.map(str::to_owned).to_vec();
        stored.sort();
        let sql =
            "SELECT group_concat(payload, '|') FROM (SELECT payload FROM webhook_inbox ORDER BY payload)";
        assert_eq!(daemon.text(sql), stored.join("|"), "{provider}");
    }
}

#[test]
fn an_event_that_is_handed_on_later_has_its_envelope_as_well() {
    let app = App::answering(200);
    let [batch, ..] = BATCHES;
    let files = [
        (
            "sql/payments.paid_out.sql",
            "SELECT inboxd_quarantine('look at it') WHERE NOT EXISTS (SELECT 1 FROM go)",
        ),
        ("sql/schema.sql", "CREATE TABLE IF NOT EXISTS go (n INTEGER)"),
    ];
    let config =
        config(batch.provider, &app.url, "handlers = [\"sql:sql\"]\nmode = \"async\"\n", "sign = \"none\"");
    let dir = support::folder(&config, &files);
    support::write_secret(dir.path(), "secret", SECRET);
    let daemon = Daemon::in_dir(Arc::new(dir));
    // nobody forwards it before a person has put it to work: the row of the outbox is taken away
    let lines = signed(batch.provider, SECRET, "", &batch.body());
    assert_eq!(deliver(&daemon, "/webhooks/e", &lines, &batch.body()), 200);
    app.wait_for(3);
    daemon.wait_for_count("SELECT count(*) FROM webhook_inbox WHERE state = 'quarantined'", 1);
    daemon.wait_for_count("SELECT count(*) FROM outbox WHERE state = 'delivered'", 3);
    daemon.sql().execute_batch("INSERT INTO go VALUES (1); DELETE FROM outbox").unwrap();
    assert_eq!(daemon.inboxd(&["retry", "EV1"]).code, 0);
    app.wait_for(4);
    assert_eq!(app.bodies()[3], batch.single()[0]);
}

#[test]
fn where_only_the_provider_can_sign_the_envelope_goes_out_under_standard_webhooks() {
    let key = p256::ecdsa::SigningKey::from_slice(&[9; 32]).unwrap();
    let point = key.verifying_key().to_sec1_point(false);
    let public = format!("MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE{}", STANDARD.encode(&point.as_bytes()[1..]));
    let app = App::answering(200);
    let more = "sign = \"standard\"\nsecrets = [\"file:standard.secret\"]";
    let daemon = start(&config("sendgrid", &app.url, "", more), &public);
    let events = ["a", "b", "c"].map(|id| format!(r#"{{"sg_event_id":"{id}","event":"open"}}"#));
    let (body, now) = (format!("[{}]", events.join(",")), now_s());
    let signature: p256::ecdsa::Signature = key.sign(format!("{now}{body}").as_bytes());
    let lines = [
        format!("X-Twilio-Email-Event-Webhook-Signature: {}", STANDARD.encode(signature.to_der())),
        format!("X-Twilio-Email-Event-Webhook-Timestamp: {now}"),
        "Content-Type: application/json".to_owned(),
    ];
    assert_eq!(deliver(&daemon, "/webhooks/e", &lines, &body), 200);
    app.wait_for(3);
    let mut got = app.bodies();
    got.sort();
    assert_eq!(got, events.map(|event| format!("[{event}]")));
    for seen in app.seen() {
        assert_eq!(verified("standardwebhooks", STANDARD_SECRET, "", &seen), 1);
    }
}

#[test]
fn a_body_that_is_mostly_around_its_events_waits_for_a_person_or_is_handed_on_whole() {
    let app = App::answering(200);
    let body = format!(r#"{{"events":[{{"id":"EV1"}}],"more":"{}"}}"#, "x".repeat(20_000));
    let lines = signed("gocardless", SECRET, "", &body);
    let daemon = start(&config("gocardless", &app.url, "livemode = true", ""), SECRET);
    assert_eq!(deliver(&daemon, "/webhooks/e", &lines, &body), 200);
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox WHERE state = 'quarantined'"), 1);
    assert!(daemon.text("SELECT reason FROM reviews").contains("stand around its events"));
    let daemon = start(&config("gocardless", &app.url, "", ""), SECRET);
    assert_eq!(deliver(&daemon, "/webhooks/e", &lines, &body), 200);
    app.wait_for(1);
    assert_eq!(app.bodies(), [body]);
}

const REVIEW: &str = "SELECT kind || ': ' || reason FROM reviews WHERE resolved_at_ms IS NULL";

#[test]
fn a_body_that_twilio_covers_by_its_hash_in_the_url_is_handed_on_in_the_same_way() {
    let app = App::answering(200);
    let daemon = start(&config("twilio", &app.url, "", ""), SECRET);
    let bodies = [
        (
            "application/json",
            r#"[{"specversion":"1.0","type":"com.twilio.messaging.message.sent","id":"EZ9"}]"#,
        ),
        ("application/json; charset=utf-8", r#"{"EventType":"onMessageAdded","MessageSid":"IM9"}"#),
    ];
    for (number, (content_type, body)) in bodies.into_iter().enumerate() {
        let path = inboxd::internals::signature::with_body_hash("/webhooks/e", body.as_bytes());
        let mut lines = signed("twilio", SECRET, &format!("https://hooks.example.com{path}"), body);
        lines.pop();
        lines.push(format!("Content-Type: {content_type}"));
        assert_eq!(deliver(&daemon, &path, &lines, body), 200);
        app.wait_for(number + 1);
        let seen = &app.seen()[number];
        assert_eq!((seen.text(), seen.header("content-type")), (body, Some(content_type)));
        let host = app.url.trim_end_matches("/hooks");
        assert!(seen.path.starts_with("/hooks?bodySHA256="), "{}", seen.path);
        assert_eq!(verified("twilio", SECRET, &format!("{host}{}", seen.path), seen), 1);
    }
    let form = "MessageSid=SM9&MessageStatus=sent";
    let mut lines = signed("twilio", SECRET, "https://hooks.example.com/webhooks/e", "");
    lines.clear();
    let unsigned = Unsigned {
        method: "POST",
        url: "https://hooks.example.com/webhooks/e",
        content_type: "application/x-www-form-urlencoded",
        event_id: "",
        event_type: None,
        signed_at_s: 0,
        body: form.as_bytes(),
    };
    let secret = Secret::new("file:secret", SECRET);
    for (name, value) in sign(Provider::named("twilio").unwrap().scheme(), &secret, &unsigned).unwrap() {
        lines.push(format!("{name}: {value}"));
    }
    lines.push("Content-Type: application/x-www-form-urlencoded".to_owned());
    assert_eq!(deliver(&daemon, "/webhooks/e", &lines, form), 200);
    app.wait_for(3);
    assert_eq!(app.seen()[2].path, "/hooks", "the fields of a form are signed themselves");
    assert_eq!(verified("twilio", SECRET, &app.url, &app.seen()[2]), 1);
}

/// A Linear delivery whose signed time is so old.
fn linear(daemon: &Daemon, id: &str, age_s: i64) {
    let body = format!(
        r#"{{"type":"Issue","action":"create","data":{{"id":"{id}"}},"webhookTimestamp":{}}}"#,
        (now_s() - age_s) * 1000
    );
    let mut lines = signed("linear", SECRET, "", &body);
    lines.retain(|line| !line.starts_with("Linear-Delivery"));
    lines.push(format!("Linear-Delivery: {id}"));
    assert_eq!(deliver(daemon, "/webhooks/e", &lines, &body), 200, "{}", daemon.log());
}

#[test]
fn what_the_application_refuses_after_a_signed_time_inside_the_body_has_passed_is_given_up_at_once() {
    let app = App::answering(401);
    let daemon = start(&config("linear", &app.url, "tolerance = \"1h\"", ""), SECRET);
    linear(&daemon, "old", 900);
    daemon.wait_for_count("SELECT count(*) FROM outbox WHERE state = 'dead' AND attempts = 1", 1);
    let review = daemon.text(REVIEW);
    assert!(review.starts_with("undelivered: linear signs a time inside the body"), "{review}");
    assert!(review.contains("write sign = \"standard\" for destination app"), "{review}");
    // a fresh one is refused for another reason, which a person may cure
    linear(&daemon, "new", 0);
    daemon.wait_for_count("SELECT count(*) FROM outbox WHERE state = 'pending' AND attempts = 1", 1);
    let checked = daemon.inboxd(&["check"]);
    let warning = "destination.app.sign: \"provider\": linear signs a time inside the body";
    assert!(checked.stdout.contains(warning), "{checked:?}");
}

#[test]
fn while_the_application_is_away_nothing_is_given_up_whatever_was_signed() {
    let app = App::answering(503);
    let daemon = start(&config("linear", &app.url, "tolerance = \"1h\"", ""), SECRET);
    linear(&daemon, "old", 900);
    daemon.wait_for_count("SELECT count(*) FROM outbox WHERE state = 'pending' AND attempts > 1", 1);
    assert_eq!(daemon.count("SELECT count(*) FROM reviews"), 0);
}

#[test]
fn in_proxy_mode_the_application_is_asked_with_the_time_that_was_signed_last() {
    let app = App::start(|seen, back| respond(back, if seen.number == 0 { 500 } else { 200 }, "", ""));
    let daemon = start(&config("linear", &app.url, "tolerance = \"1h\"\nmode = \"proxy\"", ""), SECRET);
    let body = |age_s: i64| {
        format!(r#"{{"type":"Issue","data":{{"id":"x"}},"webhookTimestamp":{}}}"#, (now_s() - age_s) * 1000)
    };
    let (first, second) = (body(900), body(0));
    for (body, status) in [(&first, 502), (&second, 200)] {
        let lines = signed("linear", SECRET, "", body);
        assert_eq!(deliver(&daemon, "/webhooks/e", &lines, body), status);
    }
    assert_eq!(app.bodies(), [first, second]);
}

#[test]
fn what_cannot_be_signed_is_given_up_at_once_and_says_what_to_do() {
    let app = App::answering(200);
    let daemon = start(&config("gocardless", &app.url, "", ""), SECRET);
    let row = "INSERT INTO outbox (destination, topic, operation_key, endpoint, event_id, payload, content_type, \
               available_at_ms, created_at_ms) VALUES ('app', 't', 'k', 'removed', 'e', '{}', 'application/json', 1, 1)";
    daemon.sql().execute_batch(row).unwrap();
    daemon.wait_for_count("SELECT count(*) FROM outbox WHERE state = 'dead' AND attempts = 1", 1);
    let review = daemon.text(REVIEW);
    assert!(review.contains("endpoint removed is not configured any more"), "{review}");
    assert!(review.contains("write sign = \"standard\" for destination app"), "{review}");
    assert!(app.seen().is_empty());
    assert_eq!(
        daemon.count("SELECT count(*) FROM outbox_destinations WHERE circuit_open_since_ms IS NOT NULL"),
        0
    );
}

#[test]
fn a_kept_header_that_is_not_ascii_is_handed_on_as_it_came() {
    let app = App::answering(200);
    let daemon = start(&config("gitea", &app.url, "", ""), SECRET);
    let mut lines = signed("gitea", SECRET, "", "{}");
    lines.retain(|line| !line.starts_with("X-Gitea-Delivery"));
    lines.extend(["X-Gitea-Delivery: g-1".to_owned(), "X-Gitea-Event: überfällig".to_owned()]);
    assert_eq!(deliver(&daemon, "/webhooks/e", &lines, "{}"), 200);
    app.wait_for(1);
    assert_eq!(app.seen()[0].header("x-gitea-event"), Some("überfällig"));
}
