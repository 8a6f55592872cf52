//! Every preset: against computations that are not ours, against tampering, and through the real binary.
//!
//! `fixtures/presets.json` was made with Python's hmac, hashlib and cryptography, one or more deliveries per
//! preset, each with what has to be read from it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use inboxd::internals::providers::{self, Preset, Provider};
use inboxd::internals::signature::{
    Delivery, Headers, Rejection, Secret, Unsigned, sign, with_time_and_signature,
};
use inboxd::internals::verify::{Verified, VerifiedEvent, Verifier, explain, report};
use serde::Deserialize;
use serde_json::{Value, json};
use support::noise::Noise;

const NOW_S: i64 = 1_700_000_000;

#[derive(Deserialize)]
struct Case {
    provider: String,
    secret: String,
    url: String,
    method: String,
    headers: serde_json::Map<String, Value>,
    body: String,
    now: i64,
    events: Vec<Facts>,
    #[serde(default)]
    payloads: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Facts {
    event_id: Option<String>,
    event_type: Option<String>,
    object_id: Option<String>,
    account: Option<String>,
}

impl Case {
    fn verifier(&self) -> Verifier {
        verifier(&self.provider, &self.secret)
    }

    fn headers(&self) -> Headers {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect()
    }

    fn verify(&self, verifier: &Verifier, headers: &Headers, body: &[u8]) -> Result<Verified, Rejection> {
        let delivery = Delivery { method: &self.method, url: &self.url, headers, body: body.to_vec() };
        verifier.verify(delivery, self.now * 1000)
    }
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("fixtures/presets.json")).unwrap()
}

fn verifier(provider: &str, secret: &str) -> Verifier {
    let provider = Provider::named(provider).unwrap();
    let tolerance = Duration::from_secs(provider.preset().tolerance_s.into());
    Verifier::new(provider, vec![Secret::new("env:SECRET", secret)], tolerance).unwrap()
}

fn events(verified: Verified) -> Vec<VerifiedEvent> {
    match verified {
        Verified::Events(events) => events,
        Verified::Handshake(reply) => panic!("{reply:?}"),
    }
}

/// A secret in the form the preset wants; the presets with public keys take those of the fixture.
fn fitting_secret(preset: &Preset) -> String {
    cases().into_iter().find(|case| case.provider == preset.name).unwrap().secret
}

// ---- what is read

#[test]
fn every_preset_agrees_with_an_independent_computation() {
    let mut seen = BTreeSet::new();
    for case in cases() {
        let verifier = case.verifier();
        let verified = case.verify(&verifier, &case.headers(), case.body.as_bytes());
        let events = events(verified.unwrap_or_else(|why| panic!("{}: {why}", case.provider)));
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let facts: Vec<_> = events
            .iter()
            .map(|event| Facts {
                event_id: Some(event.event_id().to_owned()),
                event_type: owned(event.event_type()),
                object_id: owned(event.object_id()),
                account: owned(event.account()),
            })
            .collect();
        assert_eq!(facts, case.events, "{}", case.provider);
        assert!(events.iter().all(|event| event.defect().is_none()), "{}", case.provider);
        if case.payloads.is_empty() {
            assert_eq!(events[0].body(), case.body.as_bytes(), "{}", case.provider);
        } else {
            let bodies: Vec<_> = events.iter().map(|event| String::from_utf8_lossy(event.body())).collect();
            assert_eq!(bodies, case.payloads, "{}", case.provider);
        }
        seen.insert(case.provider);
    }
    let all: BTreeSet<_> = providers::all().iter().map(|preset| preset.name.to_owned()).collect();
    assert_eq!(seen, all);
}

#[test]
fn another_secret_another_url_another_method_and_an_old_time_are_refused() {
    for case in cases() {
        let (headers, provider) = (case.headers(), Provider::named(&case.provider).unwrap());
        let name = &case.provider;
        if provider.scheme().can_sign() {
            let other: String = case.secret.chars().rev().map(|c| if c == 'a' { 'b' } else { 'a' }).collect();
            let other = if name == "adyen_platform" { "00".repeat(32) } else { other };
            let verifier = Verifier::any_length(
                provider.clone(),
                vec![Secret::new("env:OTHER", other)],
                Duration::from_secs(300),
            )
            .0;
            let refused = case.verify(&verifier, &headers, case.body.as_bytes());
            assert!(refused.is_err(), "{name}");
        }
        let verifier = case.verifier();
        let judge = |url: &str, method: &str, now_s: i64| {
            let delivery = Delivery { method, url, headers: &headers, body: case.body.as_bytes() };
            verifier.authenticate(&delivery, now_s)
        };
        let signed = providers::find(name).unwrap().recipe.signed;
        let url = format!("{}&y=2", case.url);
        let signs_url = signed.contains("{url}") || signed.contains("{path}");
        assert_eq!(judge(&url, "POST", NOW_S).is_err(), signs_url, "{name}");
        assert_eq!(judge(&case.url, "PUT", NOW_S).is_err(), signed.contains("{method}"), "{name}");
        let tolerance_s = i64::from(provider.preset().tolerance_s);
        let is_timed = !providers::find(name).unwrap().recipe.timestamp.is_empty();
        for (skew_s, refused) in [
            (tolerance_s, false),
            (-tolerance_s, false),
            (tolerance_s + 1, is_timed),
            (-tolerance_s - 1, is_timed),
        ] {
            assert_eq!(judge(&case.url, "POST", NOW_S + skew_s).is_err(), refused, "{name} {skew_s}");
        }
    }
}

/// Headers that no signature covers: documented by `providers show`.
const UNSIGNED: &str = "content-type x-event-name x-razorpay-event-id x-komoju-id x-komoju-event x-github-delivery \
    x-github-event idempotency-key x-gitlab-event x-request-uuid x-event-key x-gitea-delivery x-gitea-event-type \
    linear-delivery linear-event linear-timestamp sentry-hook-resource request-id x-webhook-id \
    x-shopify-webhook-id x-shopify-topic x-shopify-shop-domain shopify-webhook-id shopify-topic \
    shopify-shop-domain x-wc-webhook-topic x-wc-webhook-source x-wc-webhook-delivery-id \
    x-twilio-webhooks-signature-settings";

#[test]
fn a_changed_bit_is_never_accepted_where_it_is_signed() {
    for case in cases() {
        let (verifier, headers) = (case.verifier(), case.headers());
        let (name, body) = (case.provider.as_str(), case.body.as_bytes());
        let original = events(case.verify(&verifier, &headers, body).unwrap());
        let body_signed = verifier.scheme().body_signed();
        for bit in 0..body.len() * 8 {
            let mut changed = body.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            let Ok(verified) = case.verify(&verifier, &headers, &changed) else { continue };
            // of a form the fields are signed, not their spelling: %2b is %2B
            let same = |one: &VerifiedEvent, two: &VerifiedEvent| one.json() == two.json();
            let accepted = events(verified);
            let means_the_same = accepted.len() == 1 && same(&accepted[0], &original[0]);
            assert!(!body_signed || means_the_same, "{name} bit {bit}: {changed:?}");
        }
        let signature_only = |header: &str, at: usize| match name {
            // one of several signatures, which the others make up for
            "docusign" => !header.ends_with("-1"),
            "pagerduty" => at > 66,
            _ => true,
        };
        for (header, value) in headers.iter() {
            if UNSIGNED.split_whitespace().any(|unsigned| unsigned == header.to_ascii_lowercase()) {
                continue;
            }
            for bit in (0..value.len() * 8).filter(|bit| signature_only(header, bit / 8)) {
                let mut changed = value.as_bytes().to_vec();
                changed[bit / 8] ^= 1 << (bit % 8);
                let changed: String = changed.iter().map(|byte| char::from(*byte)).collect();
                let tampered: Headers = headers
                    .iter()
                    .map(|(n, v)| (n, if n == header { changed.as_str() } else { v }))
                    .collect();
                let refused = case.verify(&verifier, &tampered, body).is_err();
                let same = support::same_signature(verifier.provider(), value, &changed);
                assert!(refused || same, "{name} {header}: {changed}");
            }
        }
    }
}

#[test]
fn a_cut_signature_is_never_accepted() {
    for case in cases() {
        let (verifier, headers) = (case.verifier(), case.headers());
        let recipe = providers::find(&case.provider).unwrap().recipe;
        let ours = recipe.signature_header.trim_end_matches('*').to_ascii_lowercase();
        for (header, value) in headers.iter().filter(|(name, _)| name.to_ascii_lowercase().starts_with(&ours))
        {
            if ours.is_empty() || header.ends_with("-Settings") || header.ends_with("-1") {
                continue;
            }
            for end in 0..value.len() {
                let cut: Headers =
                    headers.iter().map(|(n, v)| (n, if n == header { &value[..end] } else { v })).collect();
                let verified = case.verify(&verifier, &cut, case.body.as_bytes());
                let only_padding = value[end..].bytes().all(|byte| byte == b'=');
                assert!(verified.is_err() || only_padding, "{} {header}: {}", case.provider, &value[..end]);
            }
        }
        let none = Headers::default();
        let verified = case.verify(&verifier, &none, case.body.as_bytes());
        assert!(verified.is_err() || case.provider == "mailgun", "{}", case.provider);
    }
}

#[test]
fn noise_never_verifies_and_never_panics() {
    let cases = cases();
    let names: Vec<_> = cases.iter().flat_map(|case| case.headers.keys().cloned()).collect();
    let values: Vec<_> =
        cases.iter().flat_map(|case| case.headers.values().map(|v| v.as_str().unwrap().to_owned())).collect();
    let verifiers: Vec<_> = providers::all()
        .iter()
        .map(|preset| verifier(preset.name, &fitting_secret(preset)))
        .filter(|verifier| verifier.scheme().body_signed())
        .collect();
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for round in 0..600 {
        let mut headers = Headers::default();
        for _ in 0..noise.below(10) {
            let mut value = values[noise.below(values.len())].clone().into_bytes();
            if let Some(length) = value.len().checked_sub(1).filter(|length| *length > 0) {
                let at = noise.below(length);
                value[at] = noise.next().to_le_bytes()[0];
                value.truncate(noise.below(length) + 1);
            }
            headers.push(names[noise.below(names.len())].clone(), String::from_utf8_lossy(&value));
        }
        let body: Vec<u8> = match round % 3 {
            0 => (0..noise.below(80)).map(|_| noise.next().to_le_bytes()[0]).collect(),
            _ => {
                let mut body = cases[noise.below(cases.len())].body.clone().into_bytes();
                let at = noise.below(body.len());
                body[at] = noise.next().to_le_bytes()[0] | 1;
                body.truncate(noise.below(body.len()) + 1);
                body
            }
        };
        for verifier in &verifiers {
            let delivery = Delivery { method: "POST", url: "/in?x=1", headers: &headers, body: &body[..] };
            if let Err(rejection) = verifier.authenticate(&delivery, NOW_S) {
                let told = explain(verifier, &delivery, &rejection, NOW_S);
                assert!(!told.is_empty());
            } else {
                panic!("{:?} accepted {:?}", verifier, String::from_utf8_lossy(&body));
            }
        }
    }
}

#[test]
fn what_is_read_before_a_signature_holds_takes_time_in_proportion() {
    let bodies =
        [b"&".repeat(1 << 20), b"a=&".repeat(1 << 18), b"[".repeat(1 << 20), b"{\"a\":".repeat(1 << 17)];
    for preset in providers::all() {
        let verifier = verifier(preset.name, &fitting_secret(preset));
        let case = cases().into_iter().find(|case| case.provider == preset.name).unwrap();
        let mut headers = case.headers();
        headers.push("Content-Type", "application/x-www-form-urlencoded");
        for body in &bodies {
            let start = Instant::now();
            assert!(case.verify(&verifier, &headers, body).is_err() || !verifier.scheme().body_signed());
            // with the square of the length it would be hours
            assert!(start.elapsed() < support::HANG_TIME, "{}: {:?}", preset.name, start.elapsed());
        }
    }
}

// ---- signing and samples

#[test]
fn samples_signed_by_us_verify_as_what_they_say() {
    for preset in providers::all() {
        let secret = fitting_secret(preset);
        let verifier = verifier(preset.name, &secret);
        let scheme = verifier.scheme();
        let secret = Secret::new("env:SECRET", secret);
        for event_type in ["invoice.paid", "issues.opened", "ping", "push", "a"] {
            if preset.name == "komoju" && event_type == "ping" {
                continue;
            }
            let (one, two) = (preset.sample_id("seed-1"), preset.sample_id("seed-2"));
            assert_ne!(one, two);
            let body = preset.sample(event_type, &one, "s1", NOW_S).into_bytes();
            let body = match with_time_and_signature(scheme, &secret, body, NOW_S) {
                Ok(body) => body,
                Err(_) => continue,
            };
            let unsigned = Unsigned {
                method: "POST",
                url: "https://hooks.example.com/in",
                content_type: preset.sample_content_type(),
                event_id: &one,
                event_type: Some(event_type),
                signed_at_s: NOW_S,
                body: &body,
            };
            let lines = match sign(scheme, &secret, &unsigned) {
                Ok(lines) => lines,
                Err(why) => {
                    assert!(!scheme.can_sign() && why.to_string().contains("private key"), "{why}");
                    continue;
                }
            };
            let mut headers: Headers = lines.into_iter().collect();
            headers.push("Content-Type", preset.sample_content_type());
            let delivery =
                Delivery { method: "POST", url: "https://hooks.example.com/in", headers: &headers, body };
            let verified = verifier
                .verify(delivery, NOW_S * 1000)
                .unwrap_or_else(|why| panic!("{} {event_type}: {why}", preset.name));
            let event = events(verified).pop().unwrap();
            if preset.has_ids() {
                assert_eq!(event.event_id(), one, "{}", preset.name);
            }
            if preset.name != "dropbox" {
                assert_eq!(event.event_type(), Some(event_type), "{}", preset.name);
                assert!(event.object_id().is_some(), "{} {event_type}", preset.name);
            }
            assert_eq!((event.defect(), event.is_test_send()), (None, false), "{}", preset.name);
        }
    }
}

// ---- identity, batches, forms

#[test]
fn one_unreadable_element_does_not_spoil_its_batch() {
    let verifier = verifier("line", "a secret of the tests");
    let body = r#"{"destination":"U1","events":[{"webhookEventId":"01A","type":"message"},{"webhookEventId":"01B","text":"\ud83d"},{"type":"message"}]}"#;
    let events = events(signed_by_us(&verifier, "a secret of the tests", body));
    let defects: Vec<_> = events.iter().map(|event| event.defect().is_some()).collect();
    assert_eq!(defects, [false, true, true]);
    assert_eq!(events[0].event_id(), "01A");
    assert!(events[1].event_id().starts_with("body-sha256:") && events[2].event_id() != events[1].event_id());
}

#[test]
fn a_body_that_is_no_batch_where_one_is_expected_is_one_event_for_a_person() {
    let verifier = verifier("gocardless", "a secret of the tests");
    for (body, words) in [
        ("{}", "no list of events at /events"),
        (r#"{"events":{}}"#, "no list of events"),
        ("nonsense", "not JSON"),
        ("", "empty"),
    ] {
        let events = events(signed_by_us(&verifier, "a secret of the tests", body));
        assert_eq!(events.len(), 1);
        assert!(events[0].defect().unwrap().contains(words), "{:?}", events[0].defect());
        assert_eq!(events[0].body(), body.as_bytes());
    }
    assert!(events(signed_by_us(&verifier, "a secret of the tests", r#"{"events":[]}"#)).is_empty());
}

fn signed_by_us(verifier: &Verifier, secret: &str, body: &str) -> Verified {
    let unsigned = Unsigned {
        method: "POST",
        url: "",
        content_type: "application/json",
        event_id: "",
        event_type: None,
        signed_at_s: NOW_S,
        body: body.as_bytes(),
    };
    let secret = Secret::new("env:SECRET", secret);
    let headers: Headers = sign(verifier.scheme(), &secret, &unsigned).unwrap().into_iter().collect();
    let delivery = Delivery { method: "POST", url: "", headers: &headers, body: body.as_bytes().to_vec() };
    verifier.verify(delivery, NOW_S * 1000).unwrap()
}

#[test]
fn a_form_is_stored_raw_and_read_as_an_object() {
    let case = cases().into_iter().find(|case| case.provider == "twilio").unwrap();
    let event =
        events(case.verify(&case.verifier(), &case.headers(), case.body.as_bytes()).unwrap()).remove(0);
    assert_eq!(event.body(), case.body.as_bytes());
    assert_eq!(
        event.json(),
        &json!({"AccountSid": "AC1", "MessageSid": "SM1", "MessageStatus": "delivered", "To": "+15005550001", "Tag": ["b", "a", "b"], "Empty": ""})
    );
}

#[test]
fn a_report_says_which_header_and_secret_and_shows_the_ends_of_the_signed_string() {
    let case = cases().into_iter().find(|case| case.provider == "line").unwrap();
    let headers = case.headers();
    let delivery = Delivery { method: "POST", url: "", headers: &headers, body: case.body.as_bytes() };
    let secrets = vec![Secret::new("env:OLD", "another secret of ours"), Secret::new("env:NEW", case.secret)];
    let provider = Provider::named("line").unwrap();
    let told = report(provider, secrets, Duration::from_secs(300), &delivery, NOW_S).to_json();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["secret"], "env:NEW");
    assert_eq!(told["signed"]["header"], "x-line-signature");
    assert_eq!(told["signed"]["bytes"], json!(case.body.len()));
    assert_eq!(told["signed"]["first"], "{\"destination\":\"");
    assert_eq!(
        told["events"],
        json!([{"event_id": "01A", "event_type": "message"}, {"event_id": "01B", "event_type": "follow"}])
    );
    assert_eq!((&told["event_id"], &told["ok"]), (&Value::Null, &json!(true)));
}

#[test]
fn a_report_knows_a_handshake() {
    let told = |provider: &str, headers: &Headers, body: &str, url: &str, method: &str| {
        let secrets = vec![Secret::new("env:SECRET", "a secret of the tests")];
        let delivery = Delivery { method, url, headers, body: body.as_bytes() };
        let provider = Provider::named(provider).unwrap();
        let told = report(provider, secrets, Duration::from_secs(300), &delivery, NOW_S).to_json();
        serde_json::from_str::<Value>(&told).unwrap()
    };
    let body = r#"{"type":"ping","data":{}}"#;
    let signature = support::hmac_hex(b"a secret of the tests", &[body.as_bytes()]);
    let headers = Headers::from_iter([("X-Komoju-Signature", signature)]);
    let ping = told("komoju", &headers, body, "", "POST");
    assert_eq!((&ping["ok"], &ping["event_id"]), (&json!(true), &Value::Null));
    assert!(ping["hint"].as_str().unwrap().contains("handshake"), "{ping}");
    let challenge = told("dropbox", &Headers::default(), "", "https://x.example/d?challenge=a", "GET");
    assert_eq!((&challenge["ok"], &challenge["reason"]), (&json!(false), &json!("signature_missing")));
    assert!(challenge["hint"].as_str().unwrap().contains("which nobody signs"), "{challenge}");
}
