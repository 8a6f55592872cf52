//! Schemes of the user's own: what senders without a preset write is understood, what nobody could write is
//! refused at the start, and what is wrong with a delivery is named.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha384, Sha512};
use support::{Daemon, now_s};

const BODY: &str = r#"{"id":"n-17","kind":"stock.low","item":{"sku":"A1"}}"#;
const IDS: &str = "event_id = \"json:/id\"\nevent_type = \"json:/kind\"\n";

/// A daemon with one endpoint of this scheme at `/webhooks/own`.
fn daemon(scheme: &str) -> Daemon {
    Daemon::with_config(&config(scheme, ""))
}

/// With `more` in the endpoint's table. The secret is the one that every folder of the tests has.
fn config(scheme: &str, more: &str) -> String {
    format!(
        "data_dir = \"data\"\n[listen]\nwebhooks = \"127.0.0.1:0\"\nadmin = \"off\"\n[limits]\ndisk_free_min = 0\n\
         [endpoint.own]\nprovider = \"custom\"\nsecrets = [\"file:github.secret\"]\n{more}[endpoint.own.scheme]\n{scheme}"
    )
}

fn mac<M: Mac + KeyInit>(message: &[u8]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(support::GITHUB_SECRET.as_bytes()).unwrap();
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

fn sha256(message: impl AsRef<[u8]>) -> Vec<u8> {
    mac::<Hmac<Sha256>>(message.as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn post(daemon: &Daemon, headers: &[&str]) -> (u16, String) {
    daemon.client().post("/webhooks/own", headers, BODY)
}

fn outcome(word: &str) -> (u16, String) {
    (200, format!(r#"{{"outcome":"{word}"}}"#))
}

/// Taken once as new, and known when it comes again.
fn is_taken(scheme: &str, headers: &[&str]) {
    let daemon = daemon(&format!("{scheme}\n{IDS}"));
    assert_eq!(post(&daemon, headers), outcome("ignored"), "{scheme}: {headers:?}\n{}", daemon.log());
    assert_eq!(post(&daemon, headers), outcome("duplicate"), "{scheme}: {headers:?}");
    assert_eq!(daemon.text("SELECT event_id || ' ' || event_type FROM webhook_inbox"), "n-17 stock.low");
}

// ---- digests

#[test]
fn a_digest_is_taken_in_hex_of_either_case() {
    let digest = hex(&sha256(BODY)).to_uppercase();
    is_taken("signature_header = \"X-Own\"", &[&format!("X-Own: {digest}")]);
    let scheme = "signature_header = \"X-Own\"\nprefix = \"sha256=\"";
    is_taken(scheme, &[&format!("X-Own: SHA256={digest}")]);
}

#[test]
fn a_digest_is_taken_in_base64_padded_or_not_and_url_safe() {
    let scheme = "signature_header = \"X-Own\"\nencoding = \"base64\"";
    for text in [STANDARD.encode(sha256(BODY)), URL_SAFE_NO_PAD.encode(sha256(BODY))] {
        is_taken(scheme, &[&format!("X-Own: {text}")]);
    }
    let scheme = format!("{scheme}\nlist_separator = \",\"\npair = \"v1\"");
    let padded = STANDARD.encode(sha256(BODY));
    is_taken(&scheme, &[&format!("X-Own: v0=AAAA , v1 = {padded}")]);
}

#[test]
fn a_longer_hash_is_an_algorithm_like_the_others() {
    let sha384 = hex(&mac::<Hmac<Sha384>>(BODY.as_bytes()));
    is_taken("signature_header = \"X-Own\"\nalgorithm = \"sha384\"", &[&format!("X-Own: {sha384}")]);
    let sha512 = hex(&mac::<Hmac<Sha512>>(BODY.as_bytes()));
    let scheme = "signature_header = \"X-Own\"\nalgorithm = \"sha512\"";
    is_taken(scheme, &[&format!("X-Own: {sha512}")]);

    let daemon = daemon(scheme);
    let line = |digest: &str| format!("X-Own: {digest}");
    let tampered = sha512.replace(|c: char| c.is_ascii_digit(), "7");
    for (digest, word) in [
        (tampered.as_str(), "signature_mismatch"),
        (&sha512[..64], "signature_malformed"),
        (&hex(&sha256(BODY)), "signature_malformed"),
    ] {
        assert_eq!(post(&daemon, &[&line(digest)]), (400, format!(r#"{{"error":"{word}"}}"#)));
    }
}

// ---- times

fn rfc3339(at_s: i64, fraction: &str) -> String {
    let whole = jiff::Timestamp::from_second(at_s).unwrap().to_string();
    whole.replace('Z', &format!("{fraction}Z"))
}

/// The lines of a sender that signs id, time and body, and writes the time as it is given.
fn dated(time: &str) -> Vec<String> {
    let digest = hex(&sha256(format!("n-17{time}{BODY}")));
    vec![format!("Own-Id: n-17"), format!("Own-Time: {time}"), format!("Own-Signature: sha256={digest}")]
}

const DATED: &str = "signature_header = \"Own-Signature\"\nprefix = \"sha256=\"\nsigned = \"{id}{ts}{body}\"\n\
    timestamp = \"header:Own-Time\"\nevent_id = \"header:Own-Id\"\n";

#[test]
fn a_signed_time_may_be_written_as_rfc_3339() {
    let daemon = daemon(&format!("{DATED}timestamp_unit = \"rfc3339\""));
    let sent = |time: &str| {
        let lines = dated(time);
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        post(&daemon, &lines)
    };
    let now = now_s();
    assert_eq!(sent(&rfc3339(now, ".637747359")), outcome("ignored"), "{}", daemon.log());
    assert_eq!(sent(&rfc3339(now, "")), outcome("duplicate"));
    assert_eq!(sent(&rfc3339(now, ".1234567890123")), outcome("duplicate"));
    let half_past_five = rfc3339(now + 19_800, "").replace('Z', "+05:30");
    assert_eq!(sent(&half_past_five), outcome("duplicate"));
    let stale = (400, String::from(r#"{"error":"timestamp_outside_tolerance"}"#));
    assert_eq!(sent(&rfc3339(now - 600, ".5")), stale);
    assert_eq!(sent(&rfc3339(now + 600, ".5")), stale);
    assert_eq!(sent(&now.to_string()), (400, String::from(r#"{"error":"signature_malformed"}"#)));
    daemon.wait_for_log("Own-Time does not hold a time as in RFC 3339");
}

#[test]
fn a_time_may_be_recognised_by_itself() {
    for time in [now_s().to_string(), format!("{}000", now_s()), rfc3339(now_s(), ".1")] {
        let daemon = daemon(&format!("{DATED}timestamp_unit = \"auto\""));
        let lines = dated(&time);
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        assert_eq!(post(&daemon, &lines), outcome("ignored"), "{time}");
    }
}

#[test]
fn a_time_that_tells_itself_is_read_whatever_the_unit_and_a_number_is_not_guessed() {
    for (unit, time, word) in [
        ("", rfc3339(now_s(), ".637747359"), "ignored"),
        ("timestamp_unit = \"ms\"", rfc3339(now_s(), ""), "ignored"),
        ("", format!("{}000", now_s()), "timestamp_outside_tolerance"),
        ("timestamp_unit = \"ms\"", now_s().to_string(), "timestamp_outside_tolerance"),
    ] {
        let daemon = daemon(&format!("{DATED}{unit}"));
        let lines = dated(&time);
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        assert!(post(&daemon, &lines).1.contains(word), "{unit} {time}: {}", daemon.log());
    }
}

// ---- senders that sign nothing

#[test]
fn a_static_token_is_compared_whole_and_books_no_money() {
    let scheme = "signature_header = \"X-Token\"\nalgorithm = \"token\"";
    is_taken(scheme, &[&format!("X-Token: {}", support::GITHUB_SECRET)]);
    let bearer = "signature_header = \"Authorization\"\nalgorithm = \"token\"\nprefix = \"Bearer \"";
    is_taken(bearer, &[&format!("Authorization: bearer {}", support::GITHUB_SECRET)]);

    let daemon = daemon(scheme);
    let cut = &support::GITHUB_SECRET[1..];
    let more = format!("{}x", support::GITHUB_SECRET);
    for wrong in [cut, &more, "x"] {
        let refused = (400, String::from(r#"{"error":"signature_mismatch"}"#));
        assert_eq!(post(&daemon, &[&format!("X-Token: {wrong}")]), refused);
    }
    assert_eq!(post(&daemon, &[]), (400, String::from(r#"{"error":"signature_missing"}"#)));
    assert!(!daemon.log().contains(cut));

    let dir = Daemon::folder(&config(scheme, "handlers = [\"billing\"]\n"));
    let ran = support::inboxd(dir.path(), &["check"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains("does not sign the body"), "{ran:?}");
}

#[test]
fn http_basic_is_user_and_password() {
    let config = config("algorithm = \"basic\"\nevent_id = \"json:/id\"", "");
    let dir = Daemon::folder(&config);
    support::write_secret(dir.path(), "github.secret", "no colon in here");
    let ran = support::inboxd(dir.path(), &["check"]);
    assert!(ran.code == 3 && ran.stderr.contains("colon"), "{ran:?}");
    support::write_secret(dir.path(), "github.secret", "shop:open:sesame");
    let daemon = Daemon::in_dir(std::sync::Arc::new(dir));
    let line = |pair: &str| format!("Authorization: Basic {}", STANDARD.encode(pair));
    assert_eq!(post(&daemon, &[&line("shop:open:sesame")]), outcome("ignored"), "{}", daemon.log());
    for (line, word) in [
        (line("shop:open"), "signature_mismatch"),
        (line("Shop:open:sesame"), "signature_mismatch"),
        (String::from("Authorization: Basic ???"), "signature_malformed"),
        (String::from("Authorization: Bearer shop"), "signature_malformed"),
        (String::from("X: y"), "signature_missing"),
    ] {
        assert_eq!(post(&daemon, &[&line]), (400, format!(r#"{{"error":"{word}"}}"#)), "{line}");
    }
    let stored = daemon.text("SELECT headers FROM webhook_inbox");
    assert!(!stored.to_lowercase().contains("basic"), "{stored}");
    let printed = daemon.inboxd(&["check", "--print"]);
    assert!(printed.stdout.contains("signature_header = \"Authorization\""), "{printed:?}");
    let again = Daemon::folder(&printed.stdout);
    support::write_secret(again.path(), "github.secret", "shop:open:sesame");
    let printed = support::inboxd(again.path(), &["check"]);
    assert_eq!(printed.code, 0, "{printed:?}");
}

// ---- challenges

#[test]
fn a_challenge_is_sent_back_only_where_it_is_one_and_signed() {
    let scheme = "signature_header = \"X-Own\"\nchallenge = \"json:/secret_word\"\n\
        challenge_when = \"header:X-Own-Type=callback_verification\"";
    let daemon = daemon(&format!("{scheme}\nevent_id = \"json:/id\""));
    let body = r#"{"id":"c1","secret_word":"open <sesame>"}"#;
    let signature = format!("X-Own: {}", hex(&sha256(body)));
    let asked = "X-Own-Type: callback_verification";
    let mut client = daemon.client();
    client.send("POST", "/webhooks/own", &[&signature, asked], body.as_bytes());
    let (status, head, answer) = client.try_answer_with_head().unwrap();
    assert_eq!((status, answer.as_str()), (200, "open <sesame>"));
    let head = head.to_ascii_lowercase();
    assert!(head.contains("text/plain") && head.contains("nosniff"), "{head}");
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox"), 0);

    let bad = format!("X-Own: {}", hex(&sha256("another body")));
    let post = |headers: &[&str]| daemon.client().post("/webhooks/own", headers, body);
    assert_eq!(post(&[&bad, asked]), (400, String::from(r#"{"error":"signature_mismatch"}"#)));
    assert_eq!(post(&[asked]).0, 400);
    assert_eq!(post(&[&signature, "X-Own-Type: notification"]), outcome("ignored"));
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox"), 1);
}

#[test]
fn a_challenge_may_be_told_by_the_body_and_answered_as_json() {
    let scheme = "signature_header = \"X-Own\"\nchallenge = \"json:/challenge\"\nchallenge_answer = \"json\"\n\
        challenge_when = \"json:/type=verify\"";
    let daemon = daemon(scheme);
    let body = r#"{"type":"verify","challenge":"abc"}"#;
    let signature = format!("X-Own: {}", hex(&sha256(body)));
    let answer = daemon.client().post("/webhooks/own", &[&signature], body);
    assert_eq!(answer, (200, String::from(r#"{"challenge":"abc"}"#)));
}

// ---- what is wrong

#[test]
fn the_log_names_the_part_that_is_malformed_and_nothing_of_it() {
    let digest = hex(&sha256(BODY));
    for (line, words) in [
        (format!("X-Own: t=1,v1={}", &digest[..63]), "the digest in X-Own is not 64 hex digits"),
        (format!("X-Own: t=1,v1={}", &digest[..40]), "it has 40 digits, as a HMAC-SHA1 has"),
        (format!("X-Own: t=1,v1={}", "é".repeat(32)), "other characters"),
        (format!("X-Own: t=soon,v1={digest}"), "t= of X-Own does not hold seconds since 1970"),
        (format!("X-Own: v1={digest}"), "the signed time in t= of X-Own is missing"),
        (format!("X-Own: t=1,t=1,v1={digest}"), "X-Own holds the time more than once"),
        (format!("X-Own: t=1,v2={digest}"), "no signature of the expected form, which is \"v1=\""),
    ] {
        // of one endpoint's refusals for one reason a line a second is written
        let daemon = daemon(
            "signature_header = \"X-Own\"\nlist_separator = \",\"\npair = \"v1\"\nsigned = \"{ts}.{body}\"\ntimestamp = \"pair:t\"",
        );
        let refused = (400, String::from(r#"{"error":"signature_malformed"}"#));
        assert_eq!(post(&daemon, &[&line]), refused, "{line}");
        // the line has the words as a sentence of its own
        daemon.wait_for(words, || daemon.log().to_lowercase().contains(&words.to_lowercase()));
        assert!(!daemon.log().contains(&digest[..40]));
    }
}
