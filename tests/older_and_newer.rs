//! Providers that do one thing in two ways: keys made from a secret, names of headers, spellings of the URL that
//! was signed, and ids that only newer versions send.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use inboxd::internals::providers::Provider;
use inboxd::internals::signature::{Delivery, Headers, Rejection, Secret, Unsigned, sign, with_body_hash};
use inboxd::internals::verify::{Verified, VerifiedEvent, Verifier};
use sha1::Sha1;
use sha2::Sha256;
use support::hmac_hex;

const NOW_S: i64 = 1_760_000_000;
const SECRET: &str = "the text that both sides know";

fn verifier(provider: &str, secret: &str) -> Verifier {
    let provider = Provider::named(provider).unwrap();
    let tolerance = Duration::from_secs(provider.preset().tolerance_s.into());
    Verifier::new(provider, vec![Secret::new("env:SECRET", secret)], tolerance).unwrap()
}

fn verify_at(
    verifier: &Verifier,
    url: &str,
    lines: &[(&str, &str)],
    body: &str,
) -> Result<VerifiedEvent, Rejection> {
    let headers = Headers::from_iter(lines.iter().copied());
    let delivery = Delivery { method: "POST", url, headers: &headers, body: body.as_bytes().to_vec() };
    match verifier.verify(delivery, NOW_S * 1000)? {
        Verified::Events(mut events) if events.len() == 1 => Ok(events.remove(0)),
        other => panic!("{other:?}"),
    }
}

fn verify(provider: &str, lines: &[(&str, &str)], body: &str) -> Result<VerifiedEvent, Rejection> {
    verify_at(&verifier(provider, SECRET), "https://hooks.example.com/in", lines, body)
}

fn base64_hmac(key: &[u8], message: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(message.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

fn base64_sha1(message: &str) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(message.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

// ---- keys

const POLAR_BODY: &str = r#"{"type":"subscription.active","data":{"id":"4c1d"}}"#;

fn polar_lines(keys: &[&[u8]]) -> Vec<(String, String)> {
    let signed = format!("msg_9.{NOW_S}.{POLAR_BODY}");
    let signatures: Vec<_> = keys.iter().map(|key| format!("v1,{}", base64_hmac(key, &signed))).collect();
    [("webhook-id", "msg_9".to_owned()), ("webhook-timestamp", NOW_S.to_string())]
        .into_iter()
        .chain([("webhook-signature", signatures.join(" "))])
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn polar(secret: &str, lines: &[(String, String)]) -> Result<VerifiedEvent, Rejection> {
    let lines: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    verify_at(&verifier("polar", secret), "", &lines, POLAR_BODY)
}

#[test]
fn polar_may_use_the_whole_secret_or_what_it_encodes_as_the_key() {
    let raw = b"thirty-two bytes that polar made";
    let secret = format!("whsec_{}", STANDARD.encode(raw));
    assert!(polar(&secret, &polar_lines(&[secret.as_bytes()])).is_ok());
    assert!(polar(&secret, &polar_lines(&[raw])).is_ok());
    let chosen = "the merchant's own words";
    assert!(polar(chosen, &polar_lines(&[chosen.as_bytes()])).is_ok());
    for other in [&raw[1..], &secret.as_bytes()[6..]] {
        assert_eq!(polar(&secret, &polar_lines(&[other])).unwrap_err(), Rejection::SignatureMismatch);
    }
}

#[test]
fn a_short_text_after_the_prefix_is_no_key_that_could_be_guessed() {
    let secret = "whsec_c2hvcnQ=";
    assert!(polar(secret, &polar_lines(&[secret.as_bytes()])).is_ok());
    assert!(polar(secret, &polar_lines(&[b"short"])).is_err());
    // without the prefix it is the merchant's own text, whatever it would decode to
    let text = STANDARD.encode(b"thirty-two bytes that polar made");
    assert!(polar(&text, &polar_lines(&[b"thirty-two bytes that polar made"])).is_err());
}

#[test]
fn what_is_handed_on_for_polar_satisfies_receivers_of_both_ages() {
    let raw = b"thirty-two bytes that polar made";
    let secret = format!("whsec_{}", STANDARD.encode(raw));
    let unsigned = Unsigned {
        method: "POST",
        url: "",
        content_type: "application/json",
        event_id: "msg_9",
        event_type: None,
        signed_at_s: NOW_S,
        body: POLAR_BODY.as_bytes(),
    };
    let lines = sign(
        Provider::named("polar").unwrap().scheme(),
        &Secret::new("env:SECRET", secret.as_str()),
        &unsigned,
    );
    assert_eq!(lines.unwrap(), polar_lines(&[raw, secret.as_bytes()]));
}

#[test]
fn a_gitlab_secret_of_the_other_kind_is_sent_to_its_own_preset() {
    let check = |provider: &str, secret: &str| {
        Provider::named(provider).unwrap().check_secret(&Secret::new("env:TOKEN", secret))
    };
    let signing = format!("whsec_{}", STANDARD.encode([7; 32]));
    assert!(check("gitlab", "my own token!").unwrap_err().to_string().contains("gitlab_token"));
    assert!(check("gitlab_token", &signing).unwrap().unwrap().contains("gitlab_signing"));
    assert_eq!(check("gitlab", &signing), Ok(None));
    assert_eq!(check("gitlab_token", "my own token, long enough"), Ok(None));
}

// ---- names

#[test]
fn shopify_is_read_under_its_older_and_its_newer_names() {
    let body = r#"{"id":820982911946154508,"email":"jon@example.com"}"#;
    let signature = base64_hmac(SECRET.as_bytes(), body);
    let lines = |prefix: &str| -> Vec<(String, String)> {
        [("hmac-sha256", signature.as_str()), ("webhook-id", "w-1"), ("topic", "orders/create")]
            .into_iter()
            .chain([("shop-domain", "one.myshopify.com"), ("api-version", "2026-07")])
            .map(|(name, value)| (format!("{prefix}{name}"), value.to_owned()))
            .collect()
    };
    for provider in ["shopify", "shopify_events"] {
        for prefix in ["X-Shopify-", "shopify-", "x-shopify-", "Shopify-"] {
            let lines = lines(prefix);
            let lines: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let event = verify(provider, &lines, body).unwrap();
            assert_eq!(event.event_type(), Some("orders/create"), "{prefix}");
            assert_eq!(event.account(), Some("one.myshopify.com"));
            let own = if provider == "shopify" { "x-shopify-" } else { "shopify-" };
            let kept = event.kept_headers();
            assert!(kept.contains(&format!("\"{own}shop-domain\":\"one.myshopify.com\"")), "{kept}");
        }
    }
    let mixed = [("X-Shopify-Hmac-Sha256", signature.as_str()), ("shopify-hmac-sha256", "AAAA")];
    assert!(verify("shopify", &mixed, body).is_err());
}

#[test]
fn gogs_is_gitea_under_older_names() {
    let body = r#"{"ref":"refs/heads/main","repository":{"full_name":"o/r"}}"#;
    let signature = hmac_hex(SECRET.as_bytes(), &[body.as_bytes()]);
    let lines = |name: &str| {
        [
            (format!("X-{name}-Signature"), signature.clone()),
            (format!("X-{name}-Delivery"), String::from("d-1")),
            (format!("X-{name}-Event"), String::from("push")),
        ]
    };
    let sent = |lines: &[(String, String)]| {
        let lines: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        verify("gogs", &lines, body)
            .map(|event| (event.event_id().to_owned(), event.event_type().map(str::to_owned)))
    };
    let expected = Ok((String::from("d-1"), Some(String::from("push"))));
    assert_eq!(sent(&lines("Gogs")), expected);
    assert_eq!(sent(&lines("Gitea")), expected);
    // Gitea itself sends both
    assert_eq!(sent(&[lines("Gitea"), lines("Gogs")].concat()), expected);
}

// ---- ids

#[test]
fn an_older_gitlab_has_a_key_although_it_sends_no_idempotency_key() {
    let push = |after: &str| {
        format!(
            r#"{{"object_kind":"push","after":"{after}","project":{{"id":15,"path_with_namespace":"g/p"}}}}"#
        )
    };
    let old = [("X-Gitlab-Token", SECRET), ("X-Gitlab-Event", "Push Hook"), ("X-Gitlab-Event-UUID", "u-1")];
    let first = verify("gitlab_token", &old, &push("a1")).unwrap();
    assert!(first.event_id().starts_with("push:15:"), "{}", first.event_id());
    assert_eq!(first.defect(), None);
    // the UUID is shared by hooks that call each other, and tells nothing
    assert_ne!(verify("gitlab_token", &old, &push("b2")).unwrap().event_id(), first.event_id());
    assert_eq!(verify("gitlab_token", &old, &push("a1")).unwrap().event_id(), first.event_id());
    let new = [old.as_slice(), &[("Idempotency-Key", "k-1")]].concat();
    assert_eq!(verify("gitlab_token", &new, &push("a1")).unwrap().event_id(), "k-1");
    // whoever takes the unsigned header off a captured delivery does not make it another event
    assert_eq!(verify("gitlab_token", &new, &push("a1")).unwrap().replay_key(), first.replay_key());
}

#[test]
fn a_razorpay_event_without_the_header_of_its_id_has_a_key() {
    let body = r#"{"event":"payment.captured","created_at":1760000000,"payload":{}}"#;
    let signature = hmac_hex(SECRET.as_bytes(), &[body.as_bytes()]);
    let lines = [("X-Razorpay-Signature", signature.as_str())];
    let event = verify("razorpay", &lines, body).unwrap();
    assert!(event.event_id().starts_with("payment.captured:1760000000:"), "{}", event.event_id());
    let lines = [lines[0], ("x-razorpay-event-id", "ev_1")];
    assert_eq!(verify("razorpay", &lines, body).unwrap().event_id(), "ev_1");
}

#[test]
fn an_event_stream_of_twilio_has_its_own_id_and_type() {
    let one = r#"{"specversion":"1.0","type":"com.twilio.studio.flow.execution.started","id":"EZ9","data":{"accountSid":"AC1"}}"#;
    let two = r#"{"specversion":"1.0","type":"com.twilio.other","id":"EZ8","data":{}}"#;
    let sent = |body: &str| {
        let url = with_body_hash("https://hooks.example.com/in", body.as_bytes());
        let lines =
            [("X-Twilio-Signature", base64_sha1(&url)), ("Content-Type", "application/json".to_owned())];
        let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
        verify_at(&verifier("twilio", SECRET), &url, &lines, body).unwrap()
    };
    let event = sent(&format!("[{one}]"));
    assert_eq!(event.event_id(), "EZ9");
    assert_eq!(event.event_type(), Some("com.twilio.studio.flow.execution.started"));
    assert_eq!((event.account(), event.defect()), (Some("AC1"), None));
    let both = sent(&format!("[{one},{two}]"));
    assert!(both.event_id().starts_with("EZ9:") && both.event_id() != "EZ9", "{}", both.event_id());
}

// ---- URLs

/// A Square delivery that was signed with one URL and arrives at another.
fn square(verifier: &Verifier, signed: &str, arrives: &str) -> bool {
    let body = r#"{"event_id":"e1","type":"payment.created"}"#;
    let signature = base64_hmac(SECRET.as_bytes(), &format!("{signed}{body}"));
    verify_at(verifier, arrives, &[("x-square-hmacsha256-signature", &signature)], body).is_ok()
}

#[test]
fn a_signed_url_may_be_spelled_in_a_few_other_ways() {
    let mut daemons = verifier("square", SECRET);
    daemons.known_at(&["https://hooks.example.com".to_owned(), "https://old.example.com/base".to_owned()]);
    let ours = "https://hooks.example.com/in?a=1";
    for signed in [
        ours,
        "https://hooks.example.com:443/in?a=1",
        "https://hooks.example.com/in/?a=1",
        "https://old.example.com/base/in?a=1",
        "https://old.example.com:443/base/in?a=1",
    ] {
        assert!(square(&daemons, signed, ours), "{signed}");
    }
    for signed in [
        "https://evil.example.com/in?a=1",
        "https://hooks.example.com/in?a=2",
        "https://hooks.example.com/in",
        "https://hooks.example.com/other?a=1",
        "http://hooks.example.com/in?a=1",
        "https://hooks.example.com:8443/in?a=1",
    ] {
        assert!(!square(&daemons, signed, ours), "{signed}");
    }
    let with_port = "https://user:pw@hooks.example.com:8443/in";
    for signed in ["https://hooks.example.com:8443/in", "https://hooks.example.com/in"] {
        assert!(square(&verifier("square", SECRET), signed, with_port), "{signed}");
    }
    // a URL that a person typed in is meant to the slash
    let exact = verifier("square", SECRET);
    assert!(!square(&exact, "https://hooks.example.com/in/?a=1", ours));
}

#[test]
fn twilio_may_sign_the_url_with_or_without_its_port() {
    let form = "AccountSid=AC1&MessageSid=SM1&MessageStatus=sent";
    for (signed, ours) in [
        ("https://hooks.example.com:443/in", "https://hooks.example.com/in"),
        ("https://hooks.example.com/in", "https://hooks.example.com:443/in"),
        ("http://hooks.example.com:80/in", "http://hooks.example.com/in"),
        ("https://hooks.example.com/in", "https://u:p@hooks.example.com:8443/in"),
    ] {
        let signature = base64_sha1(&format!("{signed}AccountSidAC1MessageSidSM1MessageStatussent"));
        let lines = [
            ("X-Twilio-Signature", signature.as_str()),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ];
        assert!(verify_at(&verifier("twilio", SECRET), ours, &lines, form).is_ok(), "{signed}");
    }
}

#[test]
fn hubspot_may_sign_a_url_with_some_escapes_decoded() {
    let body = r#"[{"eventId":1,"subscriptionId":2,"objectId":3,"occurredAt":4,"subscriptionType":"contact.creation"}]"#;
    let ours = "https://hooks.example.com/in?back=a%3Ab%2Fc%20d";
    let time = format!("{NOW_S}000");
    let sent = |signed: &str, provider: &str| {
        let signature = base64_hmac(SECRET.as_bytes(), &format!("POST{signed}{body}{time}"));
        let lines =
            [("X-HubSpot-Signature-v3", signature.as_str()), ("X-HubSpot-Request-Timestamp", time.as_str())];
        verify_at(&verifier(provider, SECRET), ours, &lines, body).is_ok()
    };
    assert!(sent(ours, "hubspot"));
    assert!(sent("https://hooks.example.com/in?back=a:b/c%20d", "hubspot"));
    assert!(!sent("https://hooks.example.com/in?back=a:b/c d", "hubspot"));
    assert!(!square(&verifier("square", SECRET), "https://hooks.example.com/in?back=a:b/c%20d", ours));
}
