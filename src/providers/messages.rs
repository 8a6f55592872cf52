//! Chat, calls, mail and customers.
//!
//! Rows of the one table in `table.rs`, with the functions that they name below them.

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::handshake::{Handshake, Reply, has_once, is};
use super::preset::{Acceptance, BodyVaries, Preset};
use super::sample::Sample;
use crate::encode::hex;
use crate::signature::{Algorithm, Delivery, Encoding, FORM, Key, Recipe, Scheme, is_form};

pub(super) const ROWS: &[Preset] = &[
    Preset {
        name: "slack",
        title: "Slack",
        docs: "https://docs.slack.dev/authentication/verifying-requests-from-slack",
        setup: "api.slack.com/apps, your app: the signing secret is under Basic Information; the URL goes under Event Subscriptions (and Interactivity, Slash Commands).",
        secret: "the app's signing secret",
        notes: "The URL's verification is answered, and so is the unsigned ssl_check=1 when a command is saved. Interactions and slash commands come as forms and have no id: their key is a hash of the body.",
        confirmed: "2026-11: in Slack's documentation and with slack_sdk 3.48.0; ssl_check in Slack's documentation and its users' reports",
        recipe: Recipe {
            signature_header: "X-Slack-Signature",
            prefix: "v0=",
            signed: "v0:{ts}:{body}",
            timestamp: "header:X-Slack-Request-Timestamp",
            form_field: "payload",
            form_params: true,
            event_id: &["json:/event_id"],
            event_key: &["json:/type", "json:/command", "body-sha256"],
            event_type: &["json:/event/type", "json:/type", "json:/command"],
            object_id: &["json:/event/channel", "json:/channel/id", "json:/channel_id"],
            account: &["json:/team_id", "json:/team/id"],
            told_apart_by: &["json:/api_app_id"],
            ..Recipe::PLAIN
        },
        kept_headers: &["X-Slack-Retry-Num", "X-Slack-Retry-Reason"],
        handshake: Handshake {
            title: "url_verification, signed: the challenge is sent back; ssl_check=1 (a form, or GET), unsigned: answered 200, not stored",
            reads: &["/challenge", "/type"],
            signed: |_, json| {
                let challenge = json.get("challenge").and_then(Value::as_str)?;
                is(json, "/type", "url_verification").then(|| Reply::text(challenge))
            },
            unsigned: slack_certificate_test,
            sample: |about| {
                (about.event_type == "url_verification")
                    .then(|| json!({"type": "url_verification", "challenge": about.seed, "token": "sample"}))
            },
            ..Handshake::NONE
        },
        deadline_s: Some(3),
        retries_for: Duration::from_mins(15),
        retries: "3 times: at once, after 1 minute and after 5 minutes",
        sample: Sample {
            body: |about| json!({"type": "event_callback", "token": "sample", "team_id": "T0SAMPLE", "api_app_id": "A0SAMPLE", "event_time": about.now_s, "event": {"user": "U0SAMPLE", "text": "Hello", "channel": "C0SAMPLE", "ts": format!("{}.000100", about.now_s)}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "line",
        title: "LINE Messaging API",
        docs: "https://developers.line.biz/en/docs/messaging-api/verify-webhook-signature/",
        setup: "LINE Developers Console, your channel, Messaging API: Webhook URL, Verify, Use webhook; switch on Webhook redelivery.",
        secret: "the channel secret (Basic settings)",
        notes: "Several events in one delivery; each becomes a row. The console's Verify sends none and is answered 200. Redelivery is off unless switched on.",
        confirmed: "2026-11: with @line/bot-sdk 11.0.0",
        recipe: Recipe {
            signature_header: "x-line-signature",
            encoding: "base64",
            batch: Some("/events"),
            event_id: &["json:/webhookEventId"],
            event_type: &["json:/type"],
            object_id: &["json:/source/groupId", "json:/source/roomId", "json:/source/userId"],
            account: &["batch:/destination"],
            ..Recipe::PLAIN
        },
        body_varies: BodyVaries::Fields(&["/deliveryContext"]),
        retries: "only where redelivery is switched on; how often is not published",
        sample: Sample {
            id: |digits| digits[..26].to_ascii_uppercase(),
            around: &[("/destination", "U00000000000000000000000000000001")],
            body: |about| json!({"mode": "active", "timestamp": about.now_ms(), "source": {"type": "user", "userId": "U1"}, "deliveryContext": {"isRedelivery": false}, "replyToken": about.seed, "message": {"id": "1", "type": "text", "text": "Hello"}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "zoom",
        title: "Zoom",
        docs: "https://developers.zoom.us/docs/api/webhooks/",
        setup: "Zoom App Marketplace, your app, Feature, Event Subscriptions: the URL, then Validate; the secret token is shown there.",
        secret: "the app's secret token",
        notes: "The URL's validation, repeated every 72 hours, is answered. No id: the key is event, time, object and a hash of the body.",
        confirmed: "2026-11: in Zoom's documentation and with @zoom/rivet 0.4.0",
        recipe: Recipe {
            signature_header: "x-zm-signature",
            prefix: "v0=",
            signed: "v0:{ts}:{body}",
            timestamp: "header:x-zm-request-timestamp",
            event_key: &["json:/event", "json:/event_ts", "json:/payload/object/id", "body-sha256"],
            event_type: &["json:/event"],
            object_id: &["json:/payload/object/id"],
            account: &["json:/payload/account_id"],
            integer_ids: true,
            ..Recipe::PLAIN
        },
        handshake: Handshake {
            title: "endpoint.url_validation, signed: the token is sent back with its HMAC",
            reads: &["/payload/plainToken", "/event"],
            signed: zoom_validation,
            sample: |about| {
                let validation = json!({
                    "event": "endpoint.url_validation", "event_ts": about.now_ms(),
                    "payload": {"plainToken": about.seed},
                });
                (about.event_type == "endpoint.url_validation").then_some(validation)
            },
            ..Handshake::NONE
        },
        deadline_s: Some(3),
        retries_for: Duration::from_mins(90),
        retries: "3 times: after 5, 20 and 60 minutes",
        sample: Sample {
            body: |about| json!({"event_ts": about.now_ms(), "payload": {"account_id": "acc_sample", "object": {"id": "1234567890", "uuid": about.seed, "topic": "Sample meeting"}}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "discord",
        title: "Discord (webhook events)",
        docs: "https://docs.discord.com/developers/events/webhook-events",
        setup: "Developer Portal, your application, Webhooks: Endpoint URL, switch Events on. The public key is under General Information.",
        secret: "the application's public key (hex); it is no secret, and is configured in the same place",
        notes: "Ed25519. The ping is answered, events get 204 and bad signatures 401: Discord probes for that. No id: the key is type, time and a hash of the body, so an old delivery sent again changes nothing; 15 minutes are tolerated because it retries for 10. Commands of interactions want another answer than ours.",
        confirmed: "2026-11: with discord-interactions 4.4.0",
        recipe: Recipe {
            signature_header: "X-Signature-Ed25519",
            algorithm: "ed25519",
            key: "hex",
            signed: "{ts}{body}",
            timestamp: "header:X-Signature-Timestamp",
            event_key: &["json:/event/type", "json:/event/timestamp", "body-sha256"],
            event_type: &["json:/event/type"],
            object_id: &["json:/event/data/id", "json:/event/data/user/id"],
            account: &["json:/application_id"],
            ..Recipe::PLAIN
        },
        tolerance_s: 900,
        handshake: Handshake {
            title: "type 0: answered 204; type 1 of interactions: {\"type\":1}; both signed",
            reads: &["/type", "/event"],
            // webhook events say 0 for a ping and 1 for an event; interactions, which have no `event`, say 1
            signed: |_, json| match (json.get("type")?.as_i64()?, json.get("event")) {
                (0, None) => Some(Reply { status: 204, ..Reply::json("") }),
                (1, None) => Some(Reply::json(json!({"type": 1}))),
                _ => None,
            },
            ..Handshake::NONE
        },
        bad_signature_status: 401,
        acceptance: Acceptance::NoContent,
        deadline_s: Some(3),
        retries_for: Duration::from_mins(15),
        retries: "with growing pauses for up to 10 minutes",
        ..Preset::PLAIN
    },
    Preset {
        name: "twilio",
        title: "Twilio",
        docs: "https://www.twilio.com/docs/usage/webhooks/webhooks-security",
        setup: "Console, Phone Numbers (or the product's settings): the webhook URL with HTTP POST. The auth token is on the account's dashboard.",
        secret: "the account's auth token, or the shared key's secret",
        notes: "The URL is signed, with the sorted fields of the form; JSON bodies by bodySHA256 in the URL. The answer is an empty TwiML document. Forms have no id: the key is the sids, the status and a hash of the body; of Event Streams (a JSON array) it is the event's id. Twilio signs the query as you typed it and may send it sorted: a URL whose parameters are not in alphabetical order can be refused as a mismatch, so write them in that order.",
        confirmed: "2026-12: with twilio 6.3.1 (Node), forms and ports of the URL both ways; 2026-11: with 9.13.0 (Python). Event Streams by formula",
        recipe: Recipe {
            signature_header: "X-Twilio-Signature",
            encoding: "base64",
            algorithm: "sha1",
            algorithm_header: "X-Twilio-Webhooks-Signature-Settings",
            signed: "{url}{params}",
            form_params: true,
            // Event Streams: a JSON array of CloudEvents, usually one
            event_id: &["json:/0/id"],
            several_at: "json:/1",
            event_key: &[
                "json:/0/id",
                "json:/MessageSid",
                "json:/MessageStatus",
                "json:/CallSid",
                "json:/CallStatus",
                "body-sha256",
            ],
            event_type: &[
                "json:/EventType",
                "json:/MessageStatus",
                "json:/SmsStatus",
                "json:/CallStatus",
                "json:/0/type",
            ],
            object_id: &["json:/MessageSid", "json:/CallSid", "json:/Sid", "json:/0/data/messageSid"],
            account: &["json:/AccountSid", "json:/0/data/accountSid"],
            ..Recipe::PLAIN
        },
        acceptance: Acceptance::Twiml,
        retries_by_itself: false,
        retries: "none unless the URL asks for it (#rc=…)",
        unconfirmed: "none by default; 15 s to answer",
        sample: Sample {
            content_type: FORM,
            body: |about| json!({"AccountSid": "AC00000000000000000000000000000001", "MessageSid": format!("SM{}", about.seed), "From": "+15005550006", "To": "+15005550001", "Body": "Hello, world & co."}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "mailgun",
        title: "Mailgun",
        docs: "https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/securing-webhooks",
        setup: "Sending, Webhooks, Add webhook: event type and URL. The HTTP webhook signing key is under API security.",
        secret: "the HTTP webhook signing key",
        notes: "Only time and token are signed: the event data is NOT authenticated, and money handlers refuse it. A token that comes again with another event is a replay. Only 200 counts as received.",
        confirmed: "2026-11: in Mailgun's documentation and with mailgun 1.10.0",
        recipe: Recipe {
            signature_field: "json:/signature/signature",
            signed: "{json:/signature/timestamp}{json:/signature/token}",
            timestamp: "json:/signature/timestamp",
            nonce: "json:/signature/token",
            event_id: &["json:/event-data/id"],
            event_type: &["json:/event-data/event"],
            object_id: &["json:/event-data/message/headers/message-id"],
            ..Recipe::PLAIN
        },
        body_varies: BodyVaries::Fields(&["/signature"]),
        tolerance_s: 900,
        retries_for: Duration::from_hours(8),
        retries: "for 8 hours: after 5, 10 and 15 minutes, 1, 2 and 4 hours",
        sample: Sample {
            body: |about| json!({"signature": {"token": hex(&Sha256::digest(about.event_id)), "timestamp": "", "signature": ""}, "event-data": {"timestamp": about.now_s, "recipient": "someone@example.com"}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "sendgrid",
        title: "SendGrid (event webhook)",
        docs: "https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features",
        setup: "Settings, Mail Settings, Event Webhooks: post URL, enable Signed Event Webhook, save, copy the verification key.",
        secret: "the verification key, a public key in base64; it is no secret, and is configured in the same place",
        notes: "ECDSA P-256. Several events in one delivery; each becomes a row. Old deliveries are tolerated for 25 hours because it retries for 24; their ids make them harmless.",
        confirmed: "2026-11: with @sendgrid/eventwebhook 8.0.0",
        recipe: Recipe {
            signature_header: "X-Twilio-Email-Event-Webhook-Signature",
            encoding: "base64",
            algorithm: "ecdsa-p256",
            key: "base64",
            signed: "{ts}{body}",
            timestamp: "header:X-Twilio-Email-Event-Webhook-Timestamp",
            batch: Some(""),
            event_id: &["json:/sg_event_id"],
            event_type: &["json:/event"],
            object_id: &["json:/sg_message_id"],
            ..Recipe::PLAIN
        },
        tolerance_s: 90_000,
        retries_for: Duration::from_hours(24),
        retries: "for 24 hours",
        unconfirmed: "the 24 hours, and whether an attempt is signed anew",
        ..Preset::PLAIN
    },
    Preset {
        name: "intercom",
        title: "Intercom",
        docs: "https://developers.intercom.com/docs/webhooks/webhook-notifications",
        setup: "Developer Hub, your app, Webhooks: endpoint URL and topics. The client secret is under Basic information.",
        secret: "the app's client secret",
        notes: "HMAC-SHA1. A counter in the body changes with every attempt. The ping on saving, whose id is null, is answered and not stored.",
        confirmed: "2026-11: in Intercom's documentation and other people's guides; by formula",
        recipe: Recipe {
            signature_header: "X-Hub-Signature",
            prefix: "sha1=",
            algorithm: "sha1",
            event_id: &["json:/id"],
            event_type: &["json:/topic"],
            object_id: &["json:/data/item/id"],
            account: &["json:/app_id"],
            ..Recipe::PLAIN
        },
        body_varies: BodyVaries::Yes,
        handshake: Handshake {
            title: "ping without an id, signed: answered 200, not stored",
            reads: &["/topic", "/id"],
            signed: |_, json| {
                let has_id = json.get("id").is_some_and(|id| !id.is_null());
                (is(json, "/topic", "ping") && !has_id).then(Reply::ignored)
            },
            ..Handshake::NONE
        },
        deadline_s: Some(5),
        retries: "at least once; after 1000 errors it pauses for 15 minutes, after 7 days private apps' hooks are off",
        unconfirmed: "429 slows it down, 410 unsubscribes",
        sample: Sample {
            body: |about| json!({"type": "notification_event", "delivery_attempts": 1, "created_at": about.now_s, "data": {"type": "notification_event_data", "item": {"type": "conversation", "id": about.seed}}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "hubspot_v3",
        aliases: &["hubspot"],
        title: "HubSpot (signature v3)",
        docs: "https://developers.hubspot.com/docs/api/webhooks/validating-requests",
        setup: "Developer account, your app, Webhooks: Target URL and subscriptions. The client secret is under Auth.",
        secret: "the app's client secret",
        notes: "Method and URL are signed: public_url must be the one given to HubSpot. Several events in one delivery; each becomes a row. The key is event, subscription, object and time, since an eventId alone may repeat.",
        confirmed: "2026-11: with @hubspot/api-client 13.5.0, which does not decode the URL; the decoding is in HubSpot's documentation only",
        recipe: Recipe {
            signature_header: "X-HubSpot-Signature-v3",
            encoding: "base64",
            signed: "{method}{url}{body}{ts}",
            url_decoded: true,
            timestamp: "header:X-HubSpot-Request-Timestamp",
            timestamp_unit: "ms",
            batch: Some(""),
            event_key: &["json:/eventId", "json:/subscriptionId", "json:/objectId", "json:/occurredAt"],
            event_type: &["json:/subscriptionType"],
            object_id: &["json:/objectId"],
            account: &["json:/portalId"],
            integer_ids: true,
            ..Recipe::PLAIN
        },
        body_varies: BodyVaries::Fields(&["/attemptNumber"]),
        deadline_s: Some(5),
        unconfirmed: "10 attempts over 24 hours; that some percent-escapes in a URL are decoded before it is signed: both spellings are tried",
        sample: Sample {
            body: |about| json!({"eventId": 1, "subscriptionId": 12345, "portalId": 62515, "appId": 1, "objectId": 123, "occurredAt": about.now_ms(), "attemptNumber": 0, "changeSource": "CRM", "sample": about.event_id}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
];

/// Slack tries a command's URL when it is saved in the app's settings; the answer is of no use to an attacker.
fn slack_certificate_test(scheme: &Scheme, delivery: &Delivery<'_>) -> Option<Reply> {
    if delivery.headers.first(&scheme.header.name).is_some() {
        return None;
    }
    let form = match delivery.method {
        "GET" => delivery.url.split_once('?')?.1.as_bytes(),
        "POST" if is_form(delivery.headers) => delivery.body,
        _ => return None,
    };
    has_once(form, b"ssl_check", b"1").then(Reply::ignored)
}

fn zoom_validation(key: &Key, json: &Value) -> Option<Reply> {
    let plain = json.pointer("/payload/plainToken").and_then(Value::as_str)?;
    let tag = key.keyed(Algorithm::Sha256).next()?.tag(std::iter::once(plain.as_bytes()))?;
    let encrypted = tag.encode(Encoding::Hex, Algorithm::Sha256);
    let body = json!({"plainToken": plain, "encryptedToken": encrypted});
    is(json, "/event", "endpoint.url_validation").then(|| Reply::json(body))
}
