//! The Standard Webhooks family: `{id}.{ts}.{body}`, all of it signed.
//!
//! Rows of the one table in `table.rs`, with the functions that they name below them.

use std::time::Duration;

use serde_json::{Value, json};

use super::preset::Preset;
use super::sample::{About, Sample};
use crate::signature::Recipe;

pub(super) const ROWS: &[Preset] = &[
    Preset {
        name: "standardwebhooks",
        aliases: &["standard_webhooks"],
        title: "Standard Webhooks",
        docs: "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md",
        setup: "Wherever the sender has its webhook settings: the URL, and its whsec_ secret for you.",
        secret: "the whsec_ secret",
        notes: "For every sender that follows the specification with a whsec_ secret. Asymmetric v1a signatures are skipped.",
        confirmed: "2026-12: with the specification 1.0.0, and standardwebhooks 1.1.0 (Python) and 1.1.1 (Node), both ways",
        recipe: Recipe {
            signature_header: "webhook-signature",
            event_id: &["header:webhook-id"],
            timestamp: "header:webhook-timestamp",
            ..STANDARD_WEBHOOKS
        },
        kept_headers: &["svix-id"],
        deadline_s: Some(15),
        retries_for: Duration::from_hours(75),
        retries: "up to the sender; the specification's sample makes 10 attempts over 75 hours",
        sample: Sample { body: standard_event, ..Sample::PLAIN },
        ..Preset::PLAIN
    },
    Preset {
        name: "svix",
        title: "Svix",
        docs: "https://docs.svix.com/receiving/verifying-payloads/how-manual",
        setup: "In the sender's webhook portal: Endpoints, Add Endpoint; then Signing Secret.",
        secret: "the endpoint's signing secret (whsec_…)",
        notes: "Standard Webhooks under svix-* names; webhook-* names are taken too.",
        confirmed: "2026-11: with svix 2.9.1",
        recipe: SVIX,
        kept_headers: &["webhook-id"],
        retries_for: Duration::from_hours(28),
        retries: SVIX_RETRIES,
        sample: Sample { body: standard_event, ..Sample::PLAIN },
        ..Preset::PLAIN
    },
    Preset {
        name: "clerk",
        title: "Clerk",
        docs: "https://clerk.com/docs/guides/development/webhooks/overview",
        setup: "Dashboard, Webhooks, Add Endpoint; then its Signing Secret.",
        secret: "the endpoint's signing secret (whsec_…)",
        notes: "Delivered by Svix.",
        confirmed: "2026-11: with @clerk/backend 3.25.0",
        recipe: Recipe { account: &["json:/instance_id"], ..SVIX },
        kept_headers: &["webhook-id"],
        retries_for: Duration::from_hours(28),
        retries: SVIX_RETRIES,
        sample: Sample {
            body: |about| json!({"object": "event", "timestamp": about.now_ms(), "instance_id": "ins_sample", "data": {"id": format!("user_{}", about.seed), "object": "user"}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "resend",
        title: "Resend",
        docs: "https://resend.com/docs/webhooks/verify-webhooks-requests",
        setup: "Webhooks, Add Webhook: URL and events; then its Signing Secret.",
        secret: "the webhook's signing secret (whsec_…)",
        notes: "Delivered by Svix.",
        confirmed: "2026-11: with resend 6.38.0",
        recipe: Recipe { object_id: &["json:/data/email_id", "json:/data/id"], ..SVIX },
        kept_headers: &["webhook-id"],
        retries_for: Duration::from_hours(28),
        retries: SVIX_RETRIES,
        sample: Sample {
            body: |about| json!({"created_at": about.now(), "data": {"email_id": about.seed, "to": ["someone@example.com"], "subject": "Hello"}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "polar",
        title: "Polar",
        docs: "https://polar.sh/docs/integrate/webhooks/delivery",
        setup: "Settings, Webhooks, Add Endpoint: URL, format Raw, a secret, the events.",
        secret: "the endpoint's secret, the whole text, whatever its prefix",
        notes: "Standard Webhooks headers. The key is what stands in base64 after whsec_ for secrets made since 2026-09-08, and the whole text for older ones and those you chose: both are tried, and forwards are signed with both. Redirects fail.",
        confirmed: "2026-12: with @polar-sh/sdk 0.49.0 (whole secret) and standardwebhooks 1.1.1 (decoded), both ways; the date of the change in Polar's pull requests 14102 and 14117",
        recipe: Recipe {
            signature_header: "webhook-signature",
            event_id: &["header:webhook-id"],
            timestamp: "header:webhook-timestamp",
            key: "text",
            key_prefix: "",
            also_decoded: true,
            signs_both: true,
            header_families: ["", ""],
            ..STANDARD_WEBHOOKS
        },
        deadline_s: Some(10),
        retries_for: Duration::from_hours(3),
        retries: "10 attempts, at most 20 minutes apart; switched off after 10 failed deliveries in a row",
        sample: Sample { body: standard_event, ..Sample::PLAIN },
        ..Preset::PLAIN
    },
];

/// What the Standard Webhooks family has in common.
pub(super) const STANDARD_WEBHOOKS: Recipe<'static> = Recipe {
    list_separator: " ",
    prefix: "v1,",
    encoding: "base64",
    key: "base64",
    key_prefix: "whsec_",
    signed: "{id}.{ts}.{body}",
    header_families: ["webhook-", "svix-"],
    event_type: &["json:/type"],
    object_id: &["json:/data/id"],
    ..Recipe::PLAIN
};

const SVIX: Recipe<'static> = Recipe {
    signature_header: "svix-signature",
    event_id: &["header:svix-id"],
    timestamp: "header:svix-timestamp",
    ..STANDARD_WEBHOOKS
};

const SVIX_RETRIES: &str =
    "after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h and 10 h; switched off after 120 h of failures";

fn standard_event(about: &About<'_>) -> Value {
    json!({"timestamp": about.now(), "data": {"id": about.seed}})
}
