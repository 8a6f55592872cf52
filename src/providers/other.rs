//! Forms, calendars, files, documents, identity.
//!
//! Rows of the one table in `table.rs`, with the functions that they name below them.

use std::time::Duration;

use serde_json::json;

use super::handshake::{CHALLENGE_BYTES_MAX, Handshake, Reply};
use super::preset::{BodyVaries, Preset};
use super::sample::{self, Sample};
use crate::signature::{Delivery, Recipe, Scheme, form_decoded};

pub(super) const ROWS: &[Preset] = &[
    Preset {
        name: "typeform",
        title: "Typeform",
        docs: "https://www.typeform.com/developers/webhooks/secure-your-webhooks/",
        setup: "Your form, Connect, Webhooks, Add a webhook: URL; then Edit, and set a secret.",
        secret: "the secret you chose",
        notes: "",
        confirmed: "2026-11: in Typeform's documentation; by formula",
        recipe: Recipe {
            signature_header: "Typeform-Signature",
            prefix: "sha256=",
            encoding: "base64",
            event_id: &["json:/event_id"],
            event_type: &["json:/event_type"],
            object_id: &["json:/form_response/token"],
            account: &["json:/form_response/form_id"],
            ..Recipe::PLAIN
        },
        deadline_s: Some(30),
        retries_for: Duration::from_hours(10),
        retries: "every 2 to 3 minutes for up to 10 hours on 408, 423, 429 and 503",
        ..Preset::PLAIN
    },
    Preset {
        name: "calendly",
        title: "Calendly",
        docs: "https://developer.calendly.com/api-docs/4c305798a61d3-webhook-signatures",
        setup: "Webhooks are made by API (POST /webhook_subscriptions) with the URL, the events and a signing_key of yours.",
        secret: "the signing key",
        notes: "Signed like Stripe's. No id: the key is event, object and a hash of the body.",
        confirmed: "2026-11: in other people's guides only; by formula",
        recipe: Recipe {
            signature_header: "Calendly-Webhook-Signature",
            list_separator: ",",
            pair: "v1",
            signed: "{ts}.{body}",
            timestamp: "pair:t",
            event_key: &["json:/event", "json:/payload/uri", "body-sha256"],
            event_type: &["json:/event"],
            object_id: &["json:/payload/uri"],
            ..Recipe::PLAIN
        },
        tolerance_s: 180,
        unconfirmed: "3 minutes of tolerance; attempts for 24 hours",
        ..Preset::PLAIN
    },
    Preset {
        name: "calcom",
        aliases: &["cal.com"],
        title: "Cal.com",
        docs: "https://cal.com/docs/core-features/webhooks",
        setup: "Settings, Developer, Webhooks, New: subscriber URL, event triggers, a secret. Leave the payload template as it is.",
        secret: "the secret you chose",
        notes: "Without a secret it sends the words `no-secret-provided`, which are refused. No id: the key is the trigger and a hash of the body. Never retries. Redirects are not followed.",
        confirmed: "2026-11: in Cal.com's source (sendPayload.ts)",
        recipe: Recipe {
            signature_header: "X-Cal-Signature-256",
            form_params: true,
            event_key: &["json:/triggerEvent", "body-sha256"],
            event_type: &["json:/triggerEvent"],
            object_id: &["json:/payload/uid"],
            ..Recipe::PLAIN
        },
        retries_by_itself: false,
        retries: "never",
        ..Preset::PLAIN
    },
    Preset {
        name: "dropbox",
        title: "Dropbox",
        docs: "https://www.dropbox.com/developers/reference/webhooks",
        setup: "App Console, your app, Webhooks: add the URI; Dropbox asks it a challenge at once.",
        secret: "the app secret",
        notes: "The GET challenge is answered. A delivery only names accounts that changed, in the same words each time: every one is an event of its own, so make the work repeatable.",
        confirmed: "2026-11: in Dropbox's documentation; by formula",
        recipe: Recipe {
            signature_header: "X-Dropbox-Signature",
            event_key: &["json:/list_folder/accounts/0", "body-sha256", "arrival"],
            account: &["json:/list_folder/accounts/0"],
            ..Recipe::PLAIN
        },
        handshake: Handshake {
            title: "GET ?challenge=…: sent back as plain text",
            by_get: true,
            unsigned: dropbox_challenge,
            ..Handshake::NONE
        },
        deadline_s: Some(10),
        retries_for: Duration::from_mins(15),
        retries: "for about 10 minutes with growing pauses; the challenge is not repeated",
        sample: Sample {
            body: |_| json!({"list_folder": {"accounts": ["dbid:sample"]}, "delta": {"users": [1]}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "docusign",
        aliases: &["docusign_connect"],
        title: "Docusign Connect",
        docs: "https://developers.docusign.com/platform/webhooks/connect/hmac/",
        setup: "Settings, Connect: add a configuration with the URL and JSON data format, include HMAC; Connect Keys: add a secret key.",
        secret: "a Connect key; each active key has a header of its own and all are tried",
        notes: "No id: the key is event, envelope, recipient and time. XML bodies are handed on as they are where no handler reads them, else quarantined.",
        confirmed: "2026-11: in other people's guides only; by formula",
        recipe: Recipe {
            signature_header: "X-DocuSign-Signature-*",
            encoding: "base64",
            event_key: &[
                "json:/event",
                "json:/data/envelopeId",
                "json:/data/recipientId",
                "json:/generatedDateTime",
            ],
            event_type: &["json:/event"],
            object_id: &["json:/data/envelopeId"],
            account: &["json:/data/accountId"],
            ..Recipe::PLAIN
        },
        body_varies: BodyVaries::Fields(&["/retryCount"]),
        unconfirmed: "that /generatedDateTime stays the same when a delivery is repeated; 100 s to answer; attempts for days",
        sample: Sample {
            body: |about| json!({"apiVersion": "v2.1", "retryCount": 0, "generatedDateTime": about.now(), "data": {"accountId": "sample", "envelopeId": about.seed}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "workos",
        title: "WorkOS",
        docs: "https://workos.com/docs/events/data-syncing/webhooks",
        setup: "Dashboard, Webhooks, Create Webhook: endpoint URL and events; then its signing secret.",
        secret: "the endpoint's signing secret",
        notes: "Signed like Stripe's, with milliseconds.",
        confirmed: "2026-11: with workos 10.8.0",
        recipe: Recipe {
            signature_header: "WorkOS-Signature",
            list_separator: ",",

            pair: "v1",
            signed: "{ts}.{body}",
            timestamp: "pair:t",
            timestamp_unit: "ms",
            event_id: &["json:/id"],
            event_type: &["json:/event"],
            object_id: &["json:/data/id"],
            ..Recipe::PLAIN
        },
        tolerance_s: 180,
        unconfirmed: "that /id is the event's id and /event its type",
        sample: Sample { id: sample::evt, ..Sample::PLAIN },
        ..Preset::PLAIN
    },
];

fn dropbox_challenge(_: &Scheme, delivery: &Delivery<'_>) -> Option<Reply> {
    let (_, query) = delivery.url.split_once('?').filter(|_| delivery.method == "GET")?;
    let challenge = query.split('&').find_map(|pair| pair.strip_prefix("challenge="))?;
    let challenge = form_decoded(challenge.as_bytes());
    let challenge = std::str::from_utf8(&challenge).ok()?;
    (challenge.len() <= CHALLENGE_BYTES_MAX).then(|| Reply::text(challenge))
}
