//! What inboxd reads and what a handler reads of one body is the same, and what is read is what the sender wrote.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use serde_json::Value;
use support::app::App;
use support::{Daemon, GITHUB_SECRET, hmac_hex};

fn outcome(word: &str) -> (u16, String) {
    (200, format!(r#"{{"outcome":"{word}"}}"#))
}

const HEAD: &str = "data_dir = \"data\"\n[listen]\nwebhooks = \"127.0.0.1:0\"\nadmin = \"off\"\n[limits]\ndisk_free_min = 0\n";

fn stripe_endpoint(more: &str) -> String {
    support::CONFIG.replace("handlers = [\"billing\"]", more)
}

const SQL: [(&str, &str); 2] = [
    ("h/schema.sql", "CREATE TABLE IF NOT EXISTS got (id TEXT, amount ANY) STRICT"),
    ("h/_default.sql", "INSERT INTO got VALUES (:event ->> 'id', :object ->> 'amount')"),
];

/// Bodies in which one name comes twice, and of which the id is nevertheless clear.
const TWICE: [&str; 6] = [
    r#"{"id":"evt_t","type":"t.x","type":"t.y","data":{"object":{"amount":1}}}"#,
    r#"{"id":"evt_t","type":"t.x","data":{"object":{"amount":1}},"data":{"object":{"amount":2}}}"#,
    r#"{"id":"evt_t","type":"t.x","data":{"object":{"amount":1},"object":{"amount":2}}}"#,
    r#"{"id":"evt_t","type":"t.x","data":{"object":{"amount":1,"amount":2}}}"#,
    r#"{"id":"evt_t","type":"t.x","data":{"object":{"amount":1,"am\u006funt":2}}}"#,
    r#"{"id":"evt_t","type":"t.x","note":1,"note":1,"data":{"object":{"amount":1}}}"#,
];

const ID_TWICE: &str = r#"{"id":"evt_a","id":"evt_b","type":"t.x","data":{"object":{"amount":1}}}"#;

#[test]
fn a_body_with_one_name_twice_waits_for_a_person_whoever_would_read_it() {
    for handlers in ["[\"sql:h\"]", "[\"billing\"]", "[\"billing\", \"sql:h\"]"] {
        for mode in ["sync", "async"] {
            for body in TWICE.iter().chain([&ID_TWICE]) {
                let body = body.replace("t.x", "invoice.paid").replace("t.y", "invoice.voided");
                let config = stripe_endpoint(&format!("handlers = {handlers}\nmode = \"{mode}\""));
                let daemon = Daemon::with_files(&config, &SQL);
                assert_eq!(daemon.stripe(&body), outcome("quarantined"), "{handlers} {mode} {body}");
                let reason = daemon.text("SELECT reason FROM reviews");
                assert!(reason.contains("one name twice") && !reason.contains("note"), "{reason}");
                assert_eq!(daemon.stripe(&body), outcome("duplicate"));
                assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox"), 1);
                assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries WHERE kind = 'payment'"), 0);
            }
        }
    }
}

#[test]
fn of_two_ids_neither_is_taken() {
    let daemon = Daemon::with_files(&stripe_endpoint("handlers = [\"sql:h\"]"), &SQL);
    daemon.stripe(ID_TWICE);
    assert!(daemon.text("SELECT event_id FROM webhook_inbox").starts_with("body-sha256:"));
    assert_eq!(daemon.stripe(&ID_TWICE.replacen(r#""id":"evt_a","#, "", 1)), outcome("processed"));
}

#[test]
fn a_name_twice_is_the_applications_to_judge_where_it_is_only_handed_on_and_a_question_where_scope_is_checked()
 {
    for (more, word) in [
        ("forward = [\"app\"]", "processed"),
        ("forward = [\"app\"]\nmode = \"proxy\"", "processed"),
        ("forward = [\"app\"]\naccount = \"acct_1\"", "quarantined"),
        ("forward = [\"app\"]\nmode = \"proxy\"\nlivemode = true", "quarantined"),
    ] {
        let app = App::answering(200);
        let daemon = Daemon::with_config(&format!(
            "{}[destination.app]\nurl = \"{}\"\nsign = \"none\"\n",
            stripe_endpoint(more),
            app.url
        ));
        let body = r#"{"id":"evt_t","account":"acct_2","account":"acct_1","livemode":false,"livemode":true,"type":"t.x","data":{}}"#;
        assert_eq!(daemon.stripe(body), outcome(word), "{more}");
        if word == "processed" {
            app.wait_for(1);
            assert_eq!(app.bodies(), [body]);
        }
    }
}

#[test]
fn events_that_stand_in_two_lists_of_one_name_are_not_lost() {
    let config = format!(
        "{HEAD}[endpoint.gc]\nprovider = \"gocardless\"\nsecrets = [\"file:github.secret\"]\nhandlers = [\"sql:h\"]\n"
    );
    let daemon = Daemon::with_files(&config, &SQL);
    let body = r#"{"events":[{"id":"EV1","resource_type":"a","action":"b"}],"events":[{"id":"EV2","resource_type":"a","action":"b"}]}"#;
    let signature = format!("Webhook-Signature: {}", hmac_hex(GITHUB_SECRET.as_bytes(), &[body.as_bytes()]));
    assert_eq!(daemon.client().post("/webhooks/gc", &[&signature], body), outcome("quarantined"));
    assert_eq!(daemon.text("SELECT payload FROM webhook_inbox"), body);
}

#[test]
fn where_an_account_is_required_an_event_without_one_waits_and_one_of_any_account_passes() {
    for (more, passes) in
        [("handlers = [\"sql:h\"]", "processed"), ("handlers = [\"sql:h\"]\nmode = \"async\"", "accepted")]
    {
        let daemon = Daemon::with_files(&stripe_endpoint(&format!("{more}\naccount = \"required\"")), &SQL);
        let body = |id: &str, account: &str| {
            format!(r#"{{"id":"{id}","type":"t.x",{account}"data":{{"object":{{"amount":1}}}}}}"#)
        };
        assert_eq!(daemon.stripe(&body("evt_1", "\"account\":\"acct_7\",")), outcome(passes));
        assert_eq!(daemon.stripe(&body("evt_2", "\"account\":\"acct_8\",")), outcome(passes));
        assert_eq!(daemon.stripe(&body("evt_3", "")), outcome("quarantined"));
        assert_eq!(daemon.stripe(&body("evt_4", "\"account\":null,")), outcome("quarantined"));
        assert!(daemon.text("SELECT reason FROM reviews").contains("names no account"));
    }
    let config = stripe_endpoint("").replace("provider = \"stripe\"", "provider = \"mux\"");
    let dir = Daemon::folder(
        &config.replace("provider = \"mux\"", "provider = \"paddle\"\naccount = \"required\""),
    );
    let checked = support::inboxd(dir.path(), &["--config", "inboxd.toml", "check"]);
    assert!(checked.code == 3 && checked.stderr.contains("paddle names no account"), "{checked:?}");
}

/// A form with JSON in a field, escaped as browsers do.
fn form(json: &str) -> String {
    let escaped: String =
        json.bytes()
            .map(|byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            })
            .collect();
    format!("payload={escaped}")
}

#[test]
fn an_object_is_the_senders_own_text_in_a_form_as_well() {
    let json =
        r#"{"z":1.10,"a":12345678901234567890123,"repository":{"full_name":"o/r"},"e":1E2,"s":"\u00e9"}"#;
    let files = [
        ("h/schema.sql", "CREATE TABLE IF NOT EXISTS got (event TEXT, object TEXT) STRICT"),
        ("h/_default.sql", "INSERT INTO got VALUES (:event, :object)"),
    ];
    for mode in ["sync", "async"] {
        let config = format!(
            "{HEAD}[endpoint.hub]\nprovider = \"github\"\nsecrets = [\"file:github.secret\"]\nmode = \"{mode}\"\nhandlers = [\"sql:h\"]\n"
        );
        let daemon = Daemon::with_files(&config, &files);
        let bom = format!("\u{feff}{json}");
        for (id, content_type, body) in [
            ("plain", "application/json", json),
            ("form", "application/x-www-form-urlencoded", &form(json)),
            ("marked", "application/json", &bom),
        ] {
            let lines = [
                support::github_signature(body),
                format!("X-GitHub-Delivery: {id}"),
                format!("X-GitHub-Event: {id}"),
                format!("Content-Type: {content_type}"),
            ];
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            assert_eq!(daemon.client().post("/webhooks/hub", &lines, body).0, 200);
            daemon.wait_for_count("SELECT count(*) FROM got", 1);
            assert_eq!(daemon.text("SELECT event FROM got"), json, "{mode} {id}");
            assert_eq!(daemon.text("SELECT object FROM got"), json, "{mode} {id}");
            daemon.sql().execute_batch("DELETE FROM got").unwrap();
        }
    }
}

#[test]
fn stripes_object_is_cut_out_of_the_senders_text() {
    let files = [
        ("h/schema.sql", "CREATE TABLE IF NOT EXISTS got (object TEXT) STRICT"),
        ("h/_default.sql", "INSERT INTO got VALUES (:object)"),
    ];
    let daemon = Daemon::with_files(&stripe_endpoint("handlers = [\"sql:h\"]"), &files);
    let object = r#"{ "rate" : 1.10, "n":12345678901234567890123,  "a":[1.0,-0] }"#;
    daemon.stripe(&support::event("evt_o", "t.x", object));
    assert_eq!(daemon.text("SELECT object FROM got"), object);
}

#[test]
fn the_fields_of_a_form_are_texts_as_they_were_typed() {
    let files = [
        ("h/schema.sql", "CREATE TABLE IF NOT EXISTS got (object TEXT) STRICT"),
        ("h/_default.sql", "INSERT INTO got VALUES (:object)"),
    ];
    let config = format!(
        "{HEAD}[endpoint.cal]\nprovider = \"calcom\"\nsecrets = [\"file:github.secret\"]\nmode = \"sync\"\nhandlers = [\"sql:h\"]\n"
    );
    let daemon = Daemon::with_files(&config, &files);
    let body = "triggerEvent=X&price=1.10&number=12345678901234567890123";
    let signature =
        format!("X-Cal-Signature-256: {}", hmac_hex(GITHUB_SECRET.as_bytes(), &[body.as_bytes()]));
    let lines = [signature.as_str(), "Content-Type: application/x-www-form-urlencoded"];
    assert_eq!(daemon.client().post("/webhooks/cal", &lines, body), outcome("processed"));
    let object: Value = serde_json::from_str(&daemon.text("SELECT object FROM got")).unwrap();
    assert_eq!(
        object,
        serde_json::json!({"triggerEvent": "X", "price": "1.10", "number": "12345678901234567890123"})
    );
}
