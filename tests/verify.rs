//! What a sender and an operator can rely on: which deliveries are taken, which are refused and with which word.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use inboxd::internals::providers::{self, Preset, Provider};
use inboxd::internals::signature::{CustomScheme, Delivery, Headers, Rejection, Secret, Unsigned, sign};
use inboxd::internals::verify::{Report, Verified, VerifiedEvent, Verifier, explain, report};
use serde_json::{Value, json};
use support::noise::Noise;

const NOW_S: i64 = 1_700_000_000;
const TOLERANCE: Duration = Duration::from_secs(300);
const STRIPE_SECRET: &str = "whsec_sixteen_bytes_at_least";
/// The secret of the specification's examples (standard-webhooks/standard-webhooks, libraries' test_sign).
const STANDARD_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const STRIPE_BODY: &str = "{\n  \"id\": \"evt_1\",\n  \"object\": \"event\",\n  \"type\": \"invoice.paid\",\n  \"livemode\": true,\n  \"account\": \"acct_1\",\n  \"api_version\": \"2025-06-30.basil\",\n  \"data\": {\"object\": {\"id\": \"in_1\"}}\n}\n";

// ---- helpers

fn verifier_of(provider: Provider, secrets: &[&str]) -> Verifier {
    let secrets = secrets.iter().map(|secret| Secret::new("env:SECRET", *secret)).collect();
    Verifier::new(provider, secrets, TOLERANCE).unwrap()
}

fn verifier(provider: &str, secrets: &[&str]) -> Verifier {
    verifier_of(Provider::named(provider).unwrap(), secrets)
}

fn headers(lines: &[(&str, &str)]) -> Headers {
    lines.iter().copied().collect()
}

fn delivery<'a>(headers: &'a Headers, body: &'a [u8]) -> Delivery<'a> {
    Delivery { method: "POST", url: "https://hooks.example.com/in", headers, body }
}

fn verify(
    verifier: &Verifier,
    headers: &Headers,
    body: &[u8],
    now_s: i64,
) -> Result<VerifiedEvent, Rejection> {
    let delivery =
        Delivery { method: "POST", url: "https://hooks.example.com/in", headers, body: body.to_vec() };
    let verified = verifier.verify(delivery, now_s * 1000 + 999)?;
    let Verified::Events(mut events) = verified else { panic!("{verified:?}") };
    Ok(events.pop().unwrap())
}

fn reason(verifier: &Verifier, lines: &[(&str, &str)], body: &[u8], now_s: i64) -> &'static str {
    verify(verifier, &headers(lines), body, now_s).map_or_else(|rejection| rejection.reason(), |_| "ok")
}

fn signed(
    provider: &Provider,
    secret: &str,
    event_id: &str,
    event_type: Option<&str>,
    body: &[u8],
) -> Headers {
    let unsigned = Unsigned {
        method: "POST",
        url: "https://hooks.example.com/in",
        content_type: "application/json",
        event_id,
        event_type,
        signed_at_s: NOW_S,
        body,
    };
    let mut headers: Headers =
        sign(provider.scheme(), &Secret::new("env:SECRET", secret), &unsigned).unwrap().into_iter().collect();
    headers.push("Content-Type", "application/json");
    headers
}

/// A body signed for Stripe, verified now.
fn stripe_event(body: &[u8]) -> VerifiedEvent {
    let verifier = verifier("stripe", &[STRIPE_SECRET]);
    verify(&verifier, &signed(verifier.provider(), STRIPE_SECRET, "", None, body), body, NOW_S).unwrap()
}

fn stripe_signature(body: &[u8], secret: &str) -> String {
    let provider = Provider::named("stripe").unwrap();
    signed(&provider, secret, "", None, body).first("stripe-signature").unwrap().to_owned()
}

fn custom(toml: &str) -> Result<Provider, String> {
    let custom: CustomScheme = toml::from_str(toml).map_err(|error| error.to_string())?;
    Ok(Provider::custom(&custom)?)
}

/// One scheme of every shape the engine has, with a secret that fits.
fn all_shapes() -> Vec<(Provider, &'static str)> {
    let numbered = "signature_header = 'X-Sig-*'
        encoding = 'base64'
        key = 'hex'
        signed = 'v0:{method}:{url}:{ts}:{body}'
        timestamp = 'header:X-Time'
        timestamp_unit = 'ms'
        event_id = 'json:/id'";
    let pairs = "signature_header = 'X-Sig'
        list_separator = ';'
        pair = 'h1'
        signed = '{ts}:{id}:{body}'
        timestamp = 'pair:ts'
        event_id = 'header:X-Id'";
    // every preset has its own tests in presets.rs
    let presets = ["stripe", "github", "standardwebhooks", "svix"].map(|name| providers::find(name).unwrap());
    let presets =
        presets.into_iter().map(|preset| (Provider::named(preset.name).unwrap(), fitting_secret(preset)));
    let customs = [
        (custom(numbered).unwrap(), "00112233445566778899aabbccddeeff"),
        (custom(pairs).unwrap(), "sixteen bytes or more"),
    ];
    presets.chain(customs).collect()
}

fn fitting_secret(preset: &Preset) -> &'static str {
    match preset.recipe.key {
        "base64" => STANDARD_SECRET,
        _ => STRIPE_SECRET,
    }
}

// ---- published vectors

#[test]
fn the_published_vectors_verify() {
    // docs.github.com, "Validating webhook deliveries"
    let github = verifier("github", &["It's a Secret to Everybody"]);
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let lines =
        [("X-Hub-Signature-256", signature), ("X-GitHub-Delivery", "72d3162e"), ("X-GitHub-Event", "push")];
    assert_eq!(reason(&github, &lines, b"Hello, World!", NOW_S), "ok");

    // standard-webhooks/standard-webhooks, libraries' test_sign
    for (provider, prefix) in
        [("standardwebhooks", "webhook"), ("svix", "svix"), ("standardwebhooks", "svix"), ("svix", "webhook")]
    {
        let names = [format!("{prefix}-id"), format!("{prefix}-timestamp"), format!("{prefix}-signature")];
        let lines = [
            (names[0].as_str(), "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            (names[1].as_str(), "1614265330"),
            (names[2].as_str(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ];
        let verifier = verifier(provider, &[STANDARD_SECRET]);
        let event = verify(&verifier, &headers(&lines), br#"{"test": 2432232314}"#, 1_614_265_330).unwrap();
        assert_eq!(event.event_id(), "msg_p5jXN8AQM9LWM0D4loKWxJek");
    }
}

#[test]
fn a_stripe_event_is_read_whole() {
    let verifier = verifier("stripe", &["whsec_another_secret_of_ours", STRIPE_SECRET]);
    // computed with Python's hmac
    let signature = "t=1700000000,v1=434368d02b377449cbcaad24b29f4c82547585fe0e1b97d09006db2f056834e7";
    let headers = headers(&[
        ("Stripe-Signature", signature),
        ("Content-Type", "application/json"),
        ("Cookie", "session=1"),
    ]);
    let event = verify(&verifier, &headers, STRIPE_BODY.as_bytes(), NOW_S + 3).unwrap();
    assert_eq!(
        (event.provider(), event.event_id(), event.event_type()),
        ("stripe", "evt_1", Some("invoice.paid"))
    );
    assert_eq!(
        (event.object_id(), event.account(), event.livemode()),
        (Some("in_1"), Some("acct_1"), Some(true))
    );
    assert_eq!(event.api_version(), Some("2025-06-30.basil"));
    assert_eq!(event.kept_headers(), r#"{"content-type":"application/json"}"#);
    assert_eq!(event.body(), STRIPE_BODY.as_bytes());
    assert_eq!(event.json()["data"]["object"]["id"], "in_1");
    assert_eq!((event.defect(), event.is_test_send()), (None, false));
    assert_eq!((event.authentic().secret_index, event.authentic().signed_at_s), (1, Some(NOW_S)));
    let shown = format!("{event:?} {headers:?} {verifier:?}");
    assert!(!shown.contains("in_1") && !shown.contains("4343") && !shown.contains("whsec"), "{shown}");
}

#[test]
fn a_thin_stripe_event_is_about_its_related_object() {
    let event = stripe_event(
        br#"{"id":"evt_2","object":"v2.core.event","type":"v1.billing.meter.error_report_triggered","context":"acct_2","livemode":false,"related_object":{"id":"mtr_1"}}"#,
    );
    assert_eq!(
        (event.object_id(), event.account(), event.livemode()),
        (Some("mtr_1"), Some("acct_2"), Some(false))
    );
}

#[test]
fn a_github_form_is_signed_as_raw_bytes_and_read_as_json() {
    let verifier = verifier("github", &["It's a Secret to Everybody"]);
    let body = "payload=%7B%22action%22%3A%22opened%22%2C%22issue%22%3A%7B%22node_id%22%3A%22I_1%22%7D%7D";
    let headers = headers(&[
        // computed with Python's hmac
        ("x-hub-signature-256", "sha256=8d87e0345e845dd2f3bb9aa4fde1a1dfab3c18a7de0bcb243a3547440509cdaa"),
        ("x-hub-signature", "sha1=0000000000000000000000000000000000000000"),
        ("x-github-delivery", "72d3162e"),
        ("x-github-event", "issues"),
        ("content-type", "application/x-www-form-urlencoded"),
    ]);
    let event = verify(&verifier, &headers, body.as_bytes(), NOW_S).unwrap();
    assert_eq!(
        (event.event_id(), event.event_type(), event.object_id()),
        ("72d3162e", Some("issues.opened"), Some("I_1"))
    );
    assert_eq!(event.body(), body.as_bytes());
    let kept: Value = serde_json::from_str(event.kept_headers()).unwrap();
    assert_eq!(
        kept,
        json!({"content-type": "application/x-www-form-urlencoded", "x-github-delivery": "72d3162e", "x-github-event": "issues"})
    );
}

// ---- what is refused

#[test]
fn a_changed_bit_anywhere_is_never_accepted() {
    for (provider, secret) in all_shapes() {
        let body = br#"{"id":"evt_1","type":"a.b"}"#;
        let good = signed(&provider, secret, "evt_1", Some("a.b"), body);
        let verifier = verifier_of(provider, &[secret]);
        assert!(verify(&verifier, &good, body, NOW_S).is_ok(), "{verifier:?}");
        for bit in 0..body.len() * 8 {
            let mut changed = body.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                verify(&verifier, &good, &changed, NOW_S).unwrap_err(),
                Rejection::SignatureMismatch,
                "{verifier:?}"
            );
        }
        let unsigned = ["content-type", "x-github-delivery", "x-github-event"];
        for (name, value) in
            good.iter().filter(|(name, _)| !unsigned.contains(&name.to_ascii_lowercase().as_str()))
        {
            for bit in 0..value.len() * 8 {
                let mut changed = value.as_bytes().to_vec();
                changed[bit / 8] ^= 1 << (bit % 8);
                let changed: String = changed.iter().map(|byte| char::from(*byte)).collect();
                let tampered: Headers =
                    good.iter().map(|(n, v)| (n, if n == name { changed.as_str() } else { v })).collect();
                let refused = verify(&verifier, &tampered, body, NOW_S).is_err();
                let same = support::same_signature(verifier.provider(), value, &changed);
                assert!(refused || same, "{verifier:?} {name}: {changed}");
            }
        }
    }
}

#[test]
fn truncated_extended_and_empty_signatures_are_refused() {
    for (provider, secret) in all_shapes() {
        let body = br#"{"id":"evt_1"}"#;
        let good = signed(&provider, secret, "evt_1", Some("a"), body);
        let verifier = verifier_of(provider, &[secret]);
        let is_signature = |name: &str| name.to_ascii_lowercase().contains("sig");
        let (_, value) = good.iter().find(|(name, _)| is_signature(name)).unwrap();
        let tails = ["0", "==", "A=", ",", "=x", "\u{0}", "?"].map(|tail| format!("{value}{tail}"));
        for changed in (0..value.len()).map(|end| value[..end].to_owned()).chain(tails) {
            let tampered: Headers =
                good.iter().map(|(n, v)| (n, if is_signature(n) { changed.as_str() } else { v })).collect();
            let refused = verify(&verifier, &tampered, body, NOW_S);
            // a list may end in its separator; the signature before it is whole
            let separator = verifier.provider().preset().recipe.list_separator;
            let only_a_separator = changed == format!("{value}{separator}");
            let only_padding =
                changed.len() < value.len() && value[changed.len()..].bytes().all(|b| b == b'=');
            assert!(refused.is_err() || only_a_separator || only_padding, "{verifier:?} {changed}");
        }
    }
}

#[test]
fn noise_never_verifies_and_never_panics() {
    let verifiers: Vec<_> =
        all_shapes().into_iter().map(|(provider, secret)| verifier_of(provider, &[secret])).collect();
    let names = "Stripe-Signature X-Hub-Signature-256 X-GitHub-Delivery X-GitHub-Event webhook-id \
                 webhook-timestamp webhook-signature svix-id svix-timestamp svix-signature X-Sig-1 X-Sig- \
                 X-Sig X-Time X-Id Content-Type";
    let names: Vec<_> = names.split_whitespace().collect();
    let pieces = "t= v1= v1, sha256= ts= h1= , ; = 1700000000 -1 { \0 é ? application/x-www-form-urlencoded \
                  0000000000000000000000000000000000000000000000000000000000000000 \
                  AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let pieces: Vec<_> = pieces.split(' ').chain([" "]).collect();
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for _ in 0..4_000 {
        let mut headers = Headers::default();
        for _ in 0..noise.below(8) {
            let value = match noise.below(3) {
                0 => String::from_utf8_lossy(&noise.bytes(80)).into_owned(),
                _ => (0..noise.below(6)).map(|_| pieces[noise.below(pieces.len())]).collect(),
            };
            headers.push(names[noise.below(names.len())], value);
        }
        let body = noise.bytes(60);
        for verifier in &verifiers {
            let rejection = verify(verifier, &headers, &body, NOW_S).unwrap_err();
            assert!(!explain(verifier, &delivery(&headers, &body), &rejection, NOW_S).is_empty());
        }
    }
}

#[test]
fn each_refusal_of_a_stripe_signature_has_its_word() {
    let verifier = verifier("stripe", &[STRIPE_SECRET]);
    let body = STRIPE_BODY.as_bytes();
    let good = "434368d02b377449cbcaad24b29f4c82547585fe0e1b97d09006db2f056834e7";
    let other = "0".repeat(64);
    let ok = [
        "t=1700000000,v1=GOOD",
        "t=1700000000,v1=,v1=zz,v1=OTHER,v1=GOOD,v0=OTHER",
        "v1=GOOD,t=1700000000,scheme,=,==,v2=OTHER",
        "t=1700000000, v1=GOOD",
        "t= 1700000000 , V1 = UPPER",
    ];
    let mismatch = [
        "t=1700000000,v1=OTHER",
        "t=1700000001,v1=GOOD",
        "t=1600000000,v1=OTHER",
        "t=9223372036854775807,v1=GOOD",
    ];
    let malformed = [
        "abc",
        "????",
        "t=1700000000,v0=GOOD",
        "t=1700000000,v1=GOOD=x",
        "t=1700000000,v1=GOOD00",
        "v1=GOOD",
        "t=,v1=GOOD",
        "t=soon,v1=GOOD",
        "t=+1700000000,v1=GOOD",
        "t=-1700000000,v1=GOOD",
        "t=01700000000,v1=GOOD",
        "t=1700000000.0,v1=GOOD",
        "t=0,v1=GOOD",
        "t=99999999999999999999,v1=GOOD",
        "t=1700000000,t=1700000000,v1=GOOD",
        "t=1600000000,t=1700000000,v1=GOOD",
    ];
    let fill = |value: &str| {
        let value = value.replace("GOOD", good).replace("OTHER", &other);
        value.replace("UPPER", &good.to_uppercase())
    };
    let word = |value: &str| reason(&verifier, &[("stripe-signature", value)], body, NOW_S);
    for (values, expected) in [
        (&ok[..], "ok"),
        (&mismatch, "signature_mismatch"),
        (&malformed, "signature_malformed"),
        (&["", "  "], "signature_missing"),
    ] {
        for value in values {
            assert_eq!(word(&fill(value)), expected, "{value}");
        }
    }
    let many = |count: usize| format!("t=1700000000{}", format!(",v1={good}").repeat(count));
    assert_eq!((word(&many(16)), word(&many(17))), ("ok", "signature_malformed"));
}

#[test]
fn the_signature_header_is_one_line_under_a_name_in_any_case() {
    let verifier = verifier("stripe", &[STRIPE_SECRET]);
    let body = STRIPE_BODY.as_bytes();
    let line = stripe_signature(body, STRIPE_SECRET);
    for name in ["STRIPE-SIGNATURE", "stripe-signature", "Stripe-Signature"] {
        assert_eq!(reason(&verifier, &[(name, &line)], body, NOW_S), "ok");
    }
    assert_eq!(reason(&verifier, &[], body, NOW_S), "signature_missing");
    assert_eq!(
        reason(&verifier, &[("Stripe-Signature", &line), ("stripe-signature", &line)], body, NOW_S),
        "signature_malformed"
    );
    assert_eq!(
        reason(&verifier, &[("Stripe-Signature", &line), ("stripe-signature", "")], body, NOW_S),
        "signature_malformed"
    );
    assert_eq!(reason(&verifier, &[("Stripe-Signature", &line)], b"", NOW_S), "signature_mismatch");
}

#[test]
fn the_signed_time_may_be_off_by_exactly_the_tolerance_either_way() {
    let body = STRIPE_BODY.as_bytes();
    for (provider, secret) in all_shapes().into_iter().filter(|(provider, _)| provider.name() != "github") {
        let good = signed(&provider, secret, "evt_1", None, body);
        let verifier = verifier_of(provider, &[secret]);
        for (age_s, outcome) in [
            (-301, Some(-301)),
            (-300, None),
            (-299, None),
            (0, None),
            (299, None),
            (300, None),
            (301, Some(301)),
        ] {
            // exact seconds: a receiver's fraction of a second must not move the boundary
            let result = verifier.authenticate(&delivery(&good, body), NOW_S + age_s);
            assert_eq!(
                result.err(),
                outcome.map(|skew_s| Rejection::TimestampOutsideTolerance { skew_s }),
                "{verifier:?} {age_s}"
            );
        }
        // a wrong signature is never called stale, and a stale one never wrong
        assert_eq!(verify(&verifier, &good, b"{}", NOW_S + 9_000).unwrap_err(), Rejection::SignatureMismatch);
        assert_eq!(
            verify(&verifier, &good, body, NOW_S + 9_000).unwrap_err(),
            Rejection::TimestampOutsideTolerance { skew_s: 9_000 }
        );
        for now_s in [i64::MIN, i64::MAX] {
            assert!(verifier.authenticate(&delivery(&good, body), now_s).is_err());
        }
    }
}

#[test]
fn every_secret_is_tried_and_no_other() {
    let body = STRIPE_BODY.as_bytes();
    let verifier = verifier("stripe", &["whsec_new_secret_123", "whsec_old_secret_123"]);
    for (secret, index) in [
        ("whsec_new_secret_123", Some(0)),
        ("whsec_old_secret_123", Some(1)),
        ("whsec_third_secret_12", None),
    ] {
        let headers = headers(&[("Stripe-Signature", &stripe_signature(body, secret))]);
        let authentic = verifier.authenticate(&delivery(&headers, body), NOW_S);
        assert_eq!(authentic.map(|authentic| authentic.secret_index).ok(), index);
    }
}

#[test]
fn two_bodies_that_mean_the_same_need_two_signatures() {
    let verifier = verifier("stripe", &[STRIPE_SECRET]);
    let bodies = [
        r#"{"id":"evt_1","n":"a&b/é"}"#,
        r#"{"id":"evt_1","n":"a\u0026b\/\u00e9"}"#,
        "{\"id\":\"evt_1\",\"n\":\"a&b/é\"}\n",
    ];
    for one in bodies {
        let value = stripe_signature(one.as_bytes(), STRIPE_SECRET);
        for other in bodies {
            let word = if one == other { "ok" } else { "signature_mismatch" };
            assert_eq!(reason(&verifier, &[("Stripe-Signature", &value)], other.as_bytes(), NOW_S), word);
        }
    }
}

#[test]
fn both_families_of_header_names_must_agree() {
    let body = br#"{"type":"a"}"#;
    let verifier = verifier("standardwebhooks", &[STANDARD_SECRET]);
    let good = signed(verifier.provider(), STANDARD_SECRET, "msg_1", None, body);
    let value = |name: &str| good.first(name).unwrap().to_owned();
    let (ts, signature) = (value("webhook-timestamp"), value("webhook-signature"));
    let word = |extra: &[(&str, &str)]| {
        let webhook = [
            ("webhook-id", "msg_1"),
            ("webhook-timestamp", ts.as_str()),
            ("webhook-signature", signature.as_str()),
        ];
        reason(&verifier, &[webhook.as_slice(), extra].concat(), body, NOW_S)
    };
    assert_eq!(word(&[]), "ok");
    assert_eq!(word(&[("svix-id", "msg_1"), ("svix-timestamp", &ts), ("Svix-Signature", &signature)]), "ok");
    assert_eq!(
        word(&[("svix-id", "msg_2"), ("svix-timestamp", &ts), ("svix-signature", &signature)]),
        "signature_malformed"
    );
    assert_eq!(word(&[("svix-id", "msg_2")]), "signature_malformed");
    assert_eq!(word(&[("svix-signature", "v1,AAAA")]), "signature_malformed");
    assert_eq!(word(&[("webhook-id", "msg_1")]), "signature_malformed");
    assert_eq!(word(&[("webhook-timestamp", &ts)]), "signature_malformed");
    let mixed =
        [("webhook-id", "msg_1"), ("svix-timestamp", ts.as_str()), ("svix-signature", signature.as_str())];
    assert_eq!(reason(&verifier, &mixed, body, NOW_S), "event_id_missing");
    assert_eq!(reason(&verifier, &mixed[1..], body, NOW_S), "event_id_missing");
}

#[test]
fn a_signed_text_cannot_be_cut_into_another_id_and_time() {
    // `msg_1` at 1700000000 over `1700000001.{}` and `msg_1.1700000000` at 1700000001 over `{}` read the same
    let verifier = verifier("svix", &[STANDARD_SECRET]);
    let good = signed(verifier.provider(), STANDARD_SECRET, "msg_1", None, b"1700000001.{}");
    let signature = good.first("svix-signature").unwrap();
    let shifted =
        [("svix-id", "msg_1.1700000000"), ("svix-timestamp", "1700000001"), ("svix-signature", signature)];
    assert_eq!(reason(&verifier, &shifted, b"{}", NOW_S), "signature_malformed");
    let dotted = signed(verifier.provider(), STANDARD_SECRET, "evt.abc.1", None, b"{}");
    assert_eq!(verify(&verifier, &dotted, b"{}", NOW_S).unwrap().event_id(), "evt.abc.1");
}

// ---- what becomes of signed content

#[test]
fn a_signed_body_is_never_refused_for_its_content() {
    let nested = "[".repeat(100_000);
    let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(256));
    for (body, words) in [
        (&b""[..], "empty"),
        (b"\xff\xfe", "UTF-8"),
        (br#"{"id":"evt_1","type":"a","x":"\ud83d"}"#, "not JSON"),
        (b"{\"id\":\"evt_1\"}\0", "not JSON"),
        (nested.as_bytes(), "not JSON"),
        (b"[]", "no id"),
        (b"{}", "no id"),
        (br#"{"id":null}"#, "no id"),
        (br#"{"id":""}"#, "no id"),
        (br#"{"id":5}"#, "not a string"),
        (br#"{"id":["evt_1"]}"#, "not a string"),
        (br#"{"id":"a\u0000b"}"#, "control"),
        (br#"{"id":"a\nb"}"#, "control"),
        (long.as_bytes(), "255"),
    ] {
        let event = stripe_event(body);
        assert!(event.defect().unwrap().contains(words), "{:?}", event.defect());
        let key = event.event_id().strip_prefix("body-sha256:").unwrap();
        assert_eq!(key.len(), 64);
        assert_eq!(event.body(), body);
    }
    let longest = format!(r#"{{"id":"{}"}}"#, "x".repeat(255));
    assert_eq!(stripe_event(longest.as_bytes()).defect(), None);
    assert_eq!(stripe_event(b"\xef\xbb\xbf{\"id\":\"evt_1\"}\n\n").event_id(), "evt_1");
}

#[test]
fn an_unreadable_body_keeps_the_id_of_its_header() {
    let verifier = verifier("svix", &[STANDARD_SECRET]);
    for body in [&b""[..], b"hello"] {
        let headers = signed(verifier.provider(), STANDARD_SECRET, "msg_1", None, body);
        let event = verify(&verifier, &headers, body, NOW_S).unwrap();
        assert_eq!(event.event_id(), "msg_1");
        assert!(event.defect().is_some() && event.kept_headers().contains("msg_1"));
    }
}

#[test]
fn what_decides_routing_and_scope_must_be_usable_and_the_rest_may_be_absent() {
    let defect = |body: &str| stripe_event(body.as_bytes()).defect().map(str::to_owned);
    assert!(defect(r#"{"id":"evt_1","type":7}"#).unwrap().contains("type"));
    assert!(defect(&format!(r#"{{"id":"evt_1","type":"{}"}}"#, "x".repeat(300))).unwrap().contains("type"));
    assert!(defect(r#"{"id":"evt_1","account":{"id":"acct_1"}}"#).unwrap().contains("account"));
    assert_eq!(defect(r#"{"id":"evt_1"}"#), None);
    let event = stripe_event(
        br#"{"id":"evt_1","livemode":"yes","api_version":null,"account":null,"data":{"object":{"id":9}}}"#,
    );
    assert_eq!(
        (event.defect(), event.object_id(), event.livemode(), event.account()),
        (None, None, None, None)
    );
}

#[test]
fn an_event_with_a_constant_test_id_is_marked() {
    assert!(stripe_event(br#"{"id":"evt_00000000000000","type":"invoice.paid"}"#).is_test_send());
    assert!(stripe_event(br#"{"id":"evt_1","data":{"object":{"id":"in_00000000000000"}}}"#).is_test_send());
    assert!(!stripe_event(br#"{"id":"evt_0000000000000","data":{"object":{"id":"in_1"}}}"#).is_test_send());
}

#[test]
fn a_github_delivery_needs_its_id_header() {
    let verifier = verifier("github", &["It's a Secret to Everybody"]);
    let body = br#"{"zen":"x"}"#;
    let good = signed(verifier.provider(), "It's a Secret to Everybody", "d-1", Some("ping"), body);
    let without: Headers = good.iter().filter(|(name, _)| *name != "X-GitHub-Delivery").collect();
    assert_eq!(verify(&verifier, &good, body, NOW_S).unwrap().event_type(), Some("ping"));
    assert_eq!(verify(&verifier, &without, body, NOW_S).unwrap_err(), Rejection::EventIdMissing);
    let mut empty = without.clone();
    empty.push("x-github-delivery", "");
    assert_eq!(verify(&verifier, &empty, body, NOW_S).unwrap_err(), Rejection::EventIdMissing);
    let mut two = good.clone();
    two.push("x-github-delivery", "d-2");
    assert_eq!(verify(&verifier, &two, body, NOW_S).unwrap_err(), Rejection::EventIdMissing);
    // and a signature that is wrong is told first
    assert_eq!(verify(&verifier, &without, b"x", NOW_S).unwrap_err(), Rejection::SignatureMismatch);
}

#[test]
fn a_custom_scheme_takes_integers_as_ids_and_lives_without_one() {
    let scheme = |keys: &str| {
        custom(&format!(
            "signature_header = 'X-Signature'
object_id = 'json:/order'
{keys}"
        ))
        .unwrap()
    };
    let event = |scheme: Provider, body: &[u8]| {
        let headers = signed(&scheme, STRIPE_SECRET, "", None, body);
        verify(&verifier_of(scheme, &[STRIPE_SECRET]), &headers, body, NOW_S).unwrap()
    };
    let numbered = event(scheme("event_id = 'json:/id'"), br#"{"id":18446744073709551615,"order":42}"#);
    assert_eq!(
        (numbered.event_id(), numbered.object_id(), numbered.provider()),
        ("18446744073709551615", Some("42"), "custom")
    );
    assert!(event(scheme("event_id = 'json:/id'"), br#"{"id":1.5}"#).defect().is_some());
    let nameless = event(scheme(""), br#"{"id":1}"#);
    assert!(nameless.event_id().starts_with("body-sha256:"));
    assert_eq!(nameless.defect(), None);
}

#[test]
fn a_time_inside_the_body_is_checked() {
    let keys = "signature_header = 'X-Signature'
timestamp = 'json:/sentAt'
timestamp_unit = 'ms'";
    let scheme = custom(keys).unwrap();
    let verifier = verifier_of(scheme.clone(), &[STRIPE_SECRET]);
    for (sent_at, word) in [
        ("1700000000000", "ok"),
        ("\"1700000300000\"", "ok"),
        ("1700000300001", "timestamp_outside_tolerance"),
        ("1699999699999", "timestamp_outside_tolerance"),
        ("1700000000", "timestamp_outside_tolerance"),
        ("17e11", "signature_malformed"),
        ("null", "signature_malformed"),
    ] {
        let body = format!(r#"{{"sentAt":{sent_at}}}"#);
        let headers = signed(&scheme, STRIPE_SECRET, "", None, body.as_bytes());
        assert_eq!(
            verify(&verifier, &headers, body.as_bytes(), NOW_S).map_or_else(|r| r.reason(), |_| "ok"),
            word,
            "{sent_at}"
        );
    }
}

#[test]
fn numbered_signature_headers_are_all_tried() {
    let (provider, secret) =
        all_shapes().into_iter().find(|(provider, _)| provider.scheme().signs_url()).unwrap();
    let body = br#"{"id":"evt_1"}"#;
    let good = signed(&provider, secret, "", None, body);
    let signature = good.first("X-Sig-1").unwrap();
    let time = ("X-Time", good.first("X-Time").unwrap());
    let wrong = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let verifier = verifier_of(provider, &[secret]);
    assert_eq!(reason(&verifier, &[time, ("x-sig-1", wrong), ("x-sig-12", signature)], body, NOW_S), "ok");
    assert_eq!(reason(&verifier, &[time, ("x-sig-1", wrong)], body, NOW_S), "signature_mismatch");
    assert_eq!(
        reason(&verifier, &[time, ("x-sig-", signature), ("x-sig-a", signature)], body, NOW_S),
        "signature_missing"
    );
}

// ---- configuration

#[test]
fn a_custom_scheme_that_cannot_work_is_refused_with_key_value_and_advice() {
    for (keys, words) in [
        ("signed = '{ts}.{body'\ntimestamp = 'header:X-T'", "signed|{ts}.{body|not closed|{id}"),
        ("signed = '{body}}'", "signed|{body}}|not opened"),
        ("signed = '{boddy}'", "signed|{boddy}|{body}"),
        ("signed = '{ts}.{body}'", "signed|timestamp"),
        ("signed = ''", "signed|{body}"),
        ("signed = '{id}'\nevent_id = 'header:X-Id'", "signed|{body}"),
        ("signed = '{id}.{body}'", "signed|event_id"),
        ("signed = '{id}.{body}'\nevent_id = 'json:/id'", "signed|event_id|header:NAME"),
        ("timestamp = 'header:X-T'", "timestamp|header:X-T|{ts}"),
        ("signed = '{ts}{body}'\ntimestamp = 'pair:t'", "timestamp|pair:t|list_separator"),
        ("signed = '{ts}{body}'\ntimestamp = 'json:/t'", "timestamp|json:/t|{ts}"),
        ("signed = '{ts}{body}'\ntimestamp = 'X-T'", "timestamp|X-T|header:NAME"),
        ("timestamp_unit = 'ms'", "timestamp_unit|ms"),
        ("timestamp_unit = 'min'", "timestamp_unit|min|\"ms\""),
        ("timestamp_unit = 'rfc3339'", "timestamp_unit|rfc3339|no timestamp"),
        ("signed = '{ts}{body}'\ntimestamp = 'header:x-signature'", "timestamp|one header cannot be"),
        (
            "list_separator = ','\npair = 'v1'\nsigned = '{ts}{body}'\ntimestamp = 'pair:v1'",
            "timestamp|signature",
        ),
        ("list_separator = 'a'", "list_separator|inside signatures"),
        ("list_separator = '='\nencoding = 'base64'", "list_separator|inside signatures"),
        ("list_separator = ','\nprefix = 'v1,'", "list_separator|prefix"),
        ("list_separator = ' ='\npair = 'v1'", "list_separator|KEY=VALUE"),
        (
            "list_separator = ':'\npair = 'v1'\nsigned = '{ts}{body}'\ntimestamp = 'pair:t'\ntimestamp_unit = 'rfc3339'",
            "list_separator|time",
        ),
        ("prefix = ' sha256='", "prefix|blanks"),
        ("event_id = 'json:/a~b'", "json:/a~b|~0"),
        ("challenge = 'json:/challenge'", "challenge_when|header:NAME=VALUE"),
        ("challenge = '/challenge'\nchallenge_when = 'json:/type=test'", "challenge|json:/pointer"),
        ("challenge_when = 'json:/type=test'", "challenge_when|no challenge"),
        ("challenge = 'json:/c'\nchallenge_when = 'type=test'", "challenge_when|header:NAME=VALUE"),
        (
            "challenge = 'json:/c'\nchallenge_when = 'json:/type=test'\nchallenge_answer = 'xml'",
            "challenge_answer|xml",
        ),
        ("algorithm = 'token'\nsigned = '{body}'", "signed|nothing is signed"),
        ("algorithm = 'token'\nencoding = 'hex'", "encoding|nothing is signed"),
        ("algorithm = 'basic'\ntimestamp = 'json:/t'", "timestamp|nothing is signed"),
        ("encoding = 'HEX'", "encoding|HEX|\"hex\""),
        ("key = 'raw'", "key|raw|\"text\""),
        ("algorithm = 'ed25519'", "algorithm|ed25519|\"sha512\" or \"token\" or \"basic\""),
        ("signed = '{params}{body}'", "signed|params|unknown"),
        ("algorithm = 'md5'", "algorithm|md5|\"sha256\""),
        ("pair = 'v1'", "pair|v1|list_separator"),
        ("pair = 'v1'\nlist_separator = ','\nprefix = 'x'", "prefix|pair"),
        ("event_id = '/id'", "event_id|/id|json:/pointer"),
        ("event_type = 'json:type'", "event_type|json:type"),
        ("event_id = 'header:x-signature'", "event_id|credential"),
        ("object_id = 'header:Authorization'", "object_id|credential"),
    ] {
        let error = custom(&format!("signature_header = 'X-Signature'\n{keys}")).unwrap_err();
        assert!(words.split('|').all(|word| error.contains(word)), "{words} in {error}");
    }
    assert!(custom("algorithm = 'token'").unwrap_err().contains("signature_header"));
    for name in ["", "X Sig", "*"] {
        let error = custom(&format!("signature_header = '{name}'")).unwrap_err();
        assert!(error.contains("signature_header") && error.contains("X-Signature"), "{error}");
    }
}

#[test]
fn a_custom_scheme_has_exactly_the_documented_keys() {
    let full = "signature_header = 'X-Signature'
        prefix = 'sha256='
        list_separator = ','
        encoding = 'hex'
        algorithm = 'sha256'
        key = 'base64'
        key_prefix = 'whsec_'
        signed = '{ts}.{body}'
        timestamp = 'header:X-Timestamp'
        timestamp_unit = 's'
        event_id = 'json:/id'
        event_type = 'json:/type'
        object_id = 'json:/object'
        form_field = 'payload'
        challenge = 'json:/challenge'
        challenge_when = 'header:X-Type=verification'
        challenge_answer = 'text'";
    assert!(custom(full).is_ok());
    assert!(custom("signature_header = 'X-Signature'").is_ok());
    assert!(custom("signature_header = 'X'\nsigature = 'x'").is_err());
    assert!(custom("prefix = 'x'").is_err());
}

#[test]
fn secrets_that_would_leave_the_door_open_are_refused() {
    let check = |provider: &str, secret: &str| {
        Provider::named(provider).unwrap().check_secret(&Secret::new("env:KEY", secret))
    };
    for secret in ["v1,whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "whsec_", "whsec_!!!!", "", "whsec_c2hvcnQ="]
    {
        let error = check("standardwebhooks", secret).unwrap_err().to_string();
        assert!(error.contains("env:KEY") && !error.contains("AAAA") && !error.contains("!!!!"), "{error}");
    }
    assert_eq!(check("standardwebhooks", &format!("  {STANDARD_SECRET}\n")), Ok(None));
    assert!(check("standardwebhooks", "whsec_AAAAAAAAAAAAAAAAAAAAAAAA").unwrap().unwrap().contains("24"));
    for secret in ["", " \n", "short"] {
        assert!(check("stripe", secret).is_err());
        assert!(
            Verifier::new(
                Provider::named("stripe").unwrap(),
                vec![Secret::new("env:KEY", secret)],
                TOLERANCE
            )
            .is_err()
        );
    }
    assert!(check("stripe", "six_or").unwrap().unwrap().contains("16"));
    assert!(check("stripe", &format!("{STRIPE_SECRET}\n")).unwrap().unwrap().contains("white space"));
    assert_eq!(check("stripe", STRIPE_SECRET), Ok(None));
    assert!(Verifier::new(Provider::named("stripe").unwrap(), Vec::new(), TOLERANCE).is_err());
}

// ---- signing and samples

#[test]
fn a_sample_invoice_has_the_money_of_its_state() {
    let stripe = providers::find("stripe").unwrap();
    for (event_type, status, paid) in [
        ("invoice.created", "draft", 0),
        ("invoice.finalized", "open", 0),
        ("invoice.payment_failed", "open", 0),
        ("invoice.paid", "paid", 2000),
        ("invoice.payment_succeeded", "paid", 2000),
        ("invoice.voided", "void", 0),
        ("invoice.marked_uncollectible", "uncollectible", 0),
    ] {
        let body: Value = serde_json::from_str(&stripe.sample(event_type, "evt_1", "s1", NOW_S)).unwrap();
        let invoice = &body["data"]["object"];
        assert_eq!(
            (&invoice["status"], &invoice["amount_paid"]),
            (&json!(status), &json!(paid)),
            "{event_type}"
        );
        assert_eq!(
            invoice["amount_due"].as_i64().unwrap(),
            paid + invoice["amount_remaining"].as_i64().unwrap()
        );
        assert_eq!(
            (&invoice["id"], &body["livemode"], &body["object"]),
            (&json!("in_s1"), &json!(false), &json!("event"))
        );
    }
}

#[test]
fn numbers_in_names_and_forms_do_not_stop_a_delivery_from_being_signed() {
    for (provider, secret) in all_shapes() {
        let body = br#"{"id":"evt_1"}"#;
        let headers = signed(&provider, secret, "evt_1", Some("a"), body);
        let names: BTreeSet<_> = headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        assert_eq!(names.len(), headers.iter().count());
        assert!(verify(&verifier_of(provider, &[secret]), &headers, body, NOW_S).is_ok());
    }
}

// ---- what people are told

fn told(provider: &str, secret: &str, lines: &[(&str, &str)], body: &[u8], now_s: i64) -> Report {
    report(
        Provider::named(provider).unwrap(),
        vec![Secret::new("env:SECRET", secret)],
        TOLERANCE,
        &delivery(&headers(lines), body),
        now_s,
    )
}

#[test]
fn a_report_is_one_line_of_json_in_the_documented_shape() {
    let signature = stripe_signature(STRIPE_BODY.as_bytes(), "x");
    let json = |body: &[u8], now_s: i64| {
        told("stripe", "x", &[("Stripe-Signature", &signature)], body, now_s).to_json()
    };
    assert_eq!(
        json(STRIPE_BODY.as_bytes(), NOW_S),
        r#"{"ok":true,"event_id":"evt_1","event_type":"invoice.paid","secret":"env:SECRET","signed":{"header":"Stripe-Signature","algorithm":"HMAC-SHA256","bytes":196,"first":"1700000000.{\\n  \"","last":"id\": \"in_1\"}}\\n}\\n"}}"#
    );
    let refused: Value = serde_json::from_str(&json(b"{}", NOW_S)).unwrap();
    assert_eq!(
        (&refused["signed"]["bytes"], &refused["signed"]["last"]),
        (&json!(13), &json!("1700000000.{}"))
    );
    assert_eq!((&refused["ok"], &refused["reason"]), (&json!(false), &json!("signature_mismatch")));
    assert!(refused["hint"].as_str().is_some_and(|hint| !hint.is_empty()));

    let signature = stripe_signature(b"not json", "x");
    let genuine: Value = serde_json::from_str(
        &told("stripe", "x", &[("Stripe-Signature", &signature)], b"not json", NOW_S).to_json(),
    )
    .unwrap();
    assert_eq!(
        (&genuine["ok"], &genuine["event_id"], &genuine["event_type"]),
        (&json!(true), &Value::Null, &Value::Null)
    );
    assert!(genuine["hint"].as_str().unwrap().contains("quarantine"));
}

#[test]
fn a_report_judges_the_signature_so_a_missing_unsigned_id_is_a_hint() {
    let body = br#"{"zen":"x"}"#;
    let good = signed(&Provider::named("github").unwrap(), "k", "", Some("ping"), body);
    let lines =
        [("X-Hub-Signature-256", good.first("X-Hub-Signature-256").unwrap()), ("X-GitHub-Event", "ping")];
    let report = told("github", "k", &lines, body, NOW_S);
    let Report::Genuine { event_id, event_type, hint, .. } = report else { panic!("{report:?}") };
    assert_eq!((event_id, event_type.as_deref()), (None, Some("ping")));
    assert!(hint.unwrap().contains("X-GitHub-Delivery"));
}

#[test]
fn hints_name_the_cause_and_nothing_secret() {
    let body = STRIPE_BODY.as_bytes();
    let compact = r#"{"a":"x/é","b":[1,2]}"#.as_bytes().to_vec();
    let pretty = b"{\n  \"a\": \"x\\/\\u00e9\",\n  \"b\": [1, 2]\n}";
    let base64 = "eyJhIjoieC/DqSIsImIiOlsxLDJdfQ==";
    let hint = |signed_body: &[u8], signing_secret: &str, body: &[u8], secret: &str| {
        let value = stripe_signature(signed_body, signing_secret);
        match told("stripe", secret, &[("Stripe-Signature", &value)], body, NOW_S) {
            Report::Refused { rejection: Rejection::SignatureMismatch, hint, .. } => {
                assert!(
                    !hint.contains(secret.trim()) && !hint.contains(&value[20..40]) && !hint.contains("in_1"),
                    "{hint}"
                );
                hint
            }
            other => panic!("{other:?}"),
        }
    };
    let s = STRIPE_SECRET;
    for (found, words) in [
        (hint(&compact, s, pretty, s), "serialised again"),
        (hint(pretty, s, &compact, s), "Either the secret"),
        (hint(b"{\"a\": [1, 2]}", s, b"{\"a\":[1,2]}", s), "serialised again"),
        (hint(b"{\n  \"a\": [\n    1\n  ]\n}\n", s, b"{\"a\":[1]}", s), "serialised again"),
        (hint(body, s, body.trim_ascii(), s), "newline at its end"),
        (hint(body.trim_ascii(), s, body, s), "without the white space"),
        (hint(b"{\n}", s, b"{\r\n}", s), "LF line ends"),
        (hint(&compact, s, base64.as_bytes(), s), "base64-decoded body"),
        (hint(base64.as_bytes(), s, &compact, s), "base64 of the body"),
        (hint(body, s, b"", s), "body is empty"),
        (hint(body, s, body, "whsec_sixteen_bytes_at_least\n"), "newline or blank"),
        (hint(body, s, body, "\"whsec_sixteen_bytes_at_least\""), "quotes"),
        (hint(body, s, body, "sixteen_bytes_at_least"), "with whsec_"),
        (hint(body, "sixteen_bytes_at_least", body, s), "without whsec_"),
        (hint(body, s, body, "hunter2-is-not-it"), "Either the secret"),
    ] {
        assert!(found.contains(words), "{words} in {found}");
    }
}

#[test]
fn a_key_read_in_the_wrong_way_is_named() {
    let body = STRIPE_BODY.as_bytes();
    let standard = Provider::named("standardwebhooks").unwrap();
    let polar = "signature_header = 'webhook-signature'
        prefix = 'v1,'
        encoding = 'base64'
        signed = '{id}.{ts}.{body}'
        timestamp = 'header:webhook-timestamp'
        event_id = 'header:webhook-id'";
    let polar = custom(polar).unwrap();
    for (signing, verifying, words) in
        [(&polar, &standard, "as plain text"), (&standard, &polar, "base64-decoded")]
    {
        let headers = signed(signing, STANDARD_SECRET, "msg_1", None, body);
        let report = report(
            verifying.clone(),
            vec![Secret::new("env:S", STANDARD_SECRET)],
            TOLERANCE,
            &delivery(&headers, body),
            NOW_S,
        );
        assert!(report.to_json().contains(words), "{}", report.to_json());
    }
}

#[test]
fn a_secret_that_cannot_be_a_key_matches_nothing_and_is_named() {
    let body = br#"{"type":"a"}"#;
    let good = signed(&Provider::named("svix").unwrap(), STANDARD_SECRET, "msg_1", None, body);
    let lines: Vec<_> = good.iter().collect();
    for secret in ["whsec_!!!!", "v1,whsec_AAAA", ""] {
        let refused = told("svix", secret, &lines, body, NOW_S).to_json();
        assert!(refused.contains("signature_mismatch") && refused.contains("env:SECRET"), "{refused}");
        assert!(told("svix", secret, &[], body, NOW_S).to_json().contains("signature_missing"));
    }
    // any length will do by hand
    let short = signed(&Provider::named("svix").unwrap(), "whsec_AAAA", "msg_1", None, body);
    let lines: Vec<_> = short.iter().collect();
    assert!(told("svix", "whsec_AAAA", &lines, body, NOW_S).is_ok());
}

#[test]
fn hints_about_headers_and_clocks_need_no_body() {
    let verifier = verifier("stripe", &[STRIPE_SECRET]);
    let body = STRIPE_BODY.as_bytes();
    let hint = |headers: &Headers, now_s: i64| {
        let rejection = verifier.authenticate(&delivery(headers, body), now_s).unwrap_err();
        explain(&verifier, &delivery(headers, b""), &rejection, now_s)
    };
    let github = headers(&[("Host", "secret-host"), ("X-Hub-Signature-256", "sha256=00")]);
    let missing = hint(&github, NOW_S);
    assert!(
        missing.contains("Host, X-Hub-Signature-256")
            && missing.contains("GitHub")
            && !missing.contains("secret-host"),
        "{missing}"
    );
    let good = headers(&[("Stripe-Signature", &stripe_signature(body, STRIPE_SECRET))]);
    let stale = hint(&good, NOW_S + 3600);
    assert!(stale.contains("3600 s ago") && stale.contains("clock"), "{stale}");
    assert!(hint(&good, NOW_S - 3600).contains("in the future"));
    let millis = headers(&[(
        "Stripe-Signature",
        "t=1700000000000,v1=0000000000000000000000000000000000000000000000000000000000000000",
    )]);
    assert!(hint(&millis, NOW_S).contains("milliseconds"));
}
