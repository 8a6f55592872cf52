//! Header, body and scheme from random bytes: nothing verifies, nothing panics.
//!
//! The first byte picks the preset; then lines `Name: value` up to an empty line; the rest is the body.

#![no_main]
#![allow(missing_docs, reason = "the macro makes the entry point")]

use std::sync::LazyLock;
use std::time::Duration;

use inboxd::internals::providers::{self, Provider};
use inboxd::internals::signature::{Delivery, Headers, Secret};
use inboxd::internals::verify::{Verifier, explain, report};
use libfuzzer_sys::fuzz_target;

/// A key that fits: the presets with public keys take points that are on their curves.
fn secret(name: &str) -> &'static str {
    match name {
        "discord" => "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "sendgrid" => {
            "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
        }
        "adyen_platform" => "00112233445566778899aabbccddeeff",
        _ => "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    }
}

static VERIFIERS: LazyLock<Vec<Verifier>> = LazyLock::new(|| {
    let verifier = |name: &str| {
        let provider = Provider::named(name).expect("a preset");
        let secrets = vec![Secret::new("fuzz", secret(name))];
        Verifier::new(provider, secrets, Duration::from_secs(300)).expect("a fitting secret")
    };
    providers::all().iter().map(|preset| verifier(preset.name)).collect()
});

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let verifier = &VERIFIERS[usize::from(*first) % VERIFIERS.len()];
    let end = rest.windows(2).position(|two| two == b"\n\n").unwrap_or(rest.len());
    let (head, body) = rest.split_at(end);
    let mut headers = Headers::default();
    for line in String::from_utf8_lossy(head).lines() {
        if let Some((name, value)) = line.split_once(": ") {
            headers.push(name, value);
        }
    }
    let body = body.get(2..).unwrap_or_default();
    let delivery = Delivery { method: "POST", url: "/in?x=1", headers: &headers, body };
    match verifier.authenticate(&delivery, 1_700_000_000) {
        Ok(_) => assert!(verifier.provider().name().ends_with("_token"), "{verifier:?}"),
        Err(rejection) => drop(explain(verifier, &delivery, &rejection, 1_700_000_000)),
    }
    let provider = verifier.provider().clone();
    let secrets = vec![Secret::new("fuzz", secret(provider.name()))];
    drop(report(provider, secrets, Duration::from_secs(300), &delivery, 1_700_000_000));
});
