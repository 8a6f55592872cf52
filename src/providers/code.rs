//! Code hosting, issues, monitoring, deployment.
//!
//! Rows of the one table in `table.rs`, with the functions that they name below them.

use std::time::Duration;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::preset::{BodyVaries, OtherKind, Preset, TestSign};
use super::sample::{self, About, Sample};
use super::standard::STANDARD_WEBHOOKS;
use crate::encode::hex;
use crate::signature::Recipe;

pub(super) const ROWS: &[Preset] = &[
    Preset {
        name: "github",
        title: "GitHub",
        docs: "https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries",
        setup: "The repository's or organisation's Settings, Webhooks, Add webhook: Payload URL, content type application/json (a form is up to twice as long), a secret.",
        secret: "the secret you chose",
        notes: "Never retries by itself. The delivery id is not signed, and it is the event's: several hooks and apps get the same one. Another body under it through another hook or installation is an event of its own, with the key ID:body-sha256:HASH; the same body is one event. The object is the issue or pull request, else the repository.",
        confirmed: "2026-11: with GitHub's published vector and the libraries @octokit/webhooks-methods 6.0.0 and gidgethub 6.0.0",
        recipe: Recipe {
            signature_header: "X-Hub-Signature-256",
            prefix: "sha256=",
            // the signature covers the raw form, not the JSON inside
            form_field: "payload",
            event_id: &["header:X-GitHub-Delivery"],
            event_type: &["header:X-GitHub-Event"],
            event_action: "json:/action",
            object_id: &["json:/issue/node_id", "json:/pull_request/node_id", "json:/repository/full_name"],
            account: &[
                "json:/organization/login",
                "json:/repository/owner/login",
                "json:/installation/account/login",
            ],
            told_apart_by: &[
                "header:X-GitHub-Hook-ID",
                "header:X-GitHub-Hook-Installation-Target-ID",
                "json:/installation/id",
            ],
            ..Recipe::PLAIN
        },
        kept_headers: &[
            "X-GitHub-Hook-Installation-Target-Type",
            "X-GitHub-Enterprise-Host",
            "X-GitHub-Enterprise-Version",
        ],
        retries_by_itself: false,
        deadline_s: Some(10),
        retries: "never by itself; by hand or by API for 3 days",
        tests: &[TestSign::Type("ping")],
        // of the JSON 25 MB; as a form it is up to about twice as long
        body_bytes_max: Some(50 * 1024 * 1024),
        sample: Sample { id: sample::uuid, is_whole: true, body: github, ..Sample::PLAIN },
        ..Preset::PLAIN
    },
    Preset {
        name: "gitlab_signing",
        aliases: &["gitlab"],
        title: "GitLab (signing token)",
        docs: "https://docs.gitlab.com/user/project/integrations/webhooks/",
        setup: "Settings, Webhooks, Add new webhook: URL, generate a signing token, the events.",
        secret: "the signing token (whsec_…)",
        notes: "Standard Webhooks. Older GitLab has only the plain secret token: gitlab_token.",
        other_kind: Some(OtherKind { provider: "gitlab_token", fits: |secret| !secret.starts_with(WHSEC) }),
        confirmed: "2026-11: in GitLab's merge requests 230944 and 231325; by formula, no library to check with",
        recipe: Recipe {
            signature_header: "webhook-signature",
            event_id: &["header:webhook-id"],
            timestamp: "header:webhook-timestamp",
            header_families: ["", ""],
            event_type: GITLAB.event_type,
            event_action: GITLAB.event_action,
            object_id: GITLAB.object_id,
            account: GITLAB.account,
            told_apart_by: GITLAB.told_apart_by,
            integer_ids: GITLAB.integer_ids,
            ..STANDARD_WEBHOOKS
        },
        kept_headers: &["X-Gitlab-Instance", "X-Gitlab-Event", "X-Gitlab-Event-UUID", "Idempotency-Key"],
        body_bytes_max: Some(25 * 1024 * 1024),
        retries: "may send again after a timeout; a resend keeps the id; failing webhooks are switched off",
        unconfirmed: "10 s to answer on gitlab.com",
        sample: Sample { id: sample::uuid, body: gitlab_note, ..Sample::PLAIN },
        ..Preset::PLAIN
    },
    Preset {
        name: "gitlab_token",
        title: "GitLab (secret token)",
        docs: "https://docs.gitlab.com/user/project/integrations/webhooks/",
        setup: "Settings, Webhooks, Add new webhook: URL, a secret token, the events.",
        secret: "the secret token you chose",
        notes: "A static token: the body is NOT authenticated. Prefer gitlab_signing. Sends Idempotency-Key since 17.4; before that the key is the kind of event, the project and a hash of the body. (X-Gitlab-Event-UUID is no key: hooks that call each other share one.)",
        other_kind: Some(OtherKind { provider: "gitlab_signing", fits: |secret| secret.starts_with(WHSEC) }),
        confirmed: "2026-11: in GitLab's documentation; that X-Gitlab-Event-UUID is no key: 2026-12, in its merge request 75821",
        recipe: Recipe {
            signature_header: "X-Gitlab-Token",
            algorithm: "token",
            signed: "",
            event_id: &["header:Idempotency-Key"],
            event_key: &["json:/object_kind", "json:/project/id", "body-sha256"],
            ..GITLAB
        },
        kept_headers: &["X-Gitlab-Instance", "X-Gitlab-Event", "X-Gitlab-Event-UUID"],
        body_bytes_max: Some(25 * 1024 * 1024),
        retries: "may send again after a timeout; a resend keeps the id; failing webhooks are switched off",
        unconfirmed: "10 s to answer on gitlab.com",
        sample: Sample { id: sample::uuid, body: gitlab_note, ..Sample::PLAIN },
        ..Preset::PLAIN
    },
    Preset {
        name: "bitbucket",
        title: "Bitbucket Cloud",
        docs: "https://support.atlassian.com/bitbucket-cloud/docs/manage-webhooks/",
        setup: "Repository settings, Webhooks, Add webhook: URL, a secret, the triggers.",
        secret: "the secret you chose",
        notes: "X-Request-UUID is new for every attempt, so the key is the event's name and a hash of the body.",
        confirmed: "2026-11: in Bitbucket Data Center's documentation and other people's guides; by formula",
        recipe: Recipe {
            signature_header: "X-Hub-Signature",
            prefix: "sha256=",
            event_key: &["header:X-Event-Key", "body-sha256"],
            event_type: &["header:X-Event-Key"],
            object_id: &["json:/repository/full_name"],
            account: &["json:/repository/workspace/slug"],
            ..Recipe::PLAIN
        },
        kept_headers: &["X-Hook-UUID", "X-Request-UUID", "X-Attempt-Number", "X-Event-Time"],
        tests: &[TestSign::Type("diagnostics:ping")],
        retries: "twice",
        unconfirmed: "10 s to answer",
        sample: Sample {
            body: |about| json!({"repository": {"full_name": "example/sample", "workspace": {"slug": "example"}}, "actor": {"display_name": "Example"}, "sample": about.seed}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "gitea",
        aliases: &["forgejo", "gogs"],
        title: "Gitea, Forgejo and Gogs",
        docs: "https://docs.gitea.com/usage/webhooks",
        setup: "Settings, Webhooks, Add Webhook, Gitea: target URL, method POST, a secret.",
        secret: "the secret you chose",
        notes: "Form hooks sign the JSON inside the form, unlike GitHub's. GET hooks are not supported. Never retries by itself. Gogs has the same under X-Gogs-* names. The test button sends the newest commit as a push, the same bytes each time.",
        confirmed: "2026-11: in Gitea's source (deliver.go, an older commit); Forgejo and Gogs by their likeness only",
        recipe: Recipe {
            signature_header: "X-Gitea-Signature",
            header_families: ["X-Gitea-", "X-Gogs-"],
            form_field: "payload",
            form_field_signed: true,
            event_id: &["header:X-Gitea-Delivery"],
            event_type: &["header:X-Gitea-Event-Type", "header:X-Gitea-Event"],
            event_action: "json:/action",
            object_id: &["json:/repository/full_name"],
            account: &["json:/repository/owner/login"],
            ..Recipe::PLAIN
        },
        retries_by_itself: false,
        kept_headers: &["X-Gitea-Event", "X-Forgejo-Event", "X-Forgejo-Event-Type", "X-Forgejo-Delivery"],
        retries: "never by itself",
        tests: &[TestSign::Equal("push", ["/before", "/after"])],
        unconfirmed: "that Forgejo signs alike",
        sample: Sample {
            id: sample::uuid,
            body: |about| json!({"repository": {"id": 1, "full_name": "example/sample", "owner": {"login": "example"}}, "sender": {"login": "example"}, "sample": about.seed}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "linear",
        title: "Linear",
        docs: "https://linear.app/developers/webhooks",
        setup: "Settings, API, Webhooks, New webhook: URL and resource types; then its signing secret.",
        secret: "the webhook's signing secret (lin_wh_…)",
        notes: "The time is /webhookTimestamp inside the signed body, 60 s either way; the header Linear-Timestamp is not signed and not read. The delivery id is not signed.",
        confirmed: "2026-11: with @linear/sdk 98.0.0",
        recipe: Recipe {
            signature_header: "Linear-Signature",
            timestamp: "json:/webhookTimestamp",
            timestamp_unit: "ms",
            event_id: &["header:Linear-Delivery"],
            event_type: &["json:/type", "header:Linear-Event"],
            event_action: "json:/action",
            object_id: &["json:/data/id"],
            account: &["json:/organizationId"],
            ..Recipe::PLAIN
        },
        tolerance_s: 60,
        // an attempt an hour later could not be within the minute otherwise
        body_varies: BodyVaries::Fields(&["/webhookTimestamp"]),
        deadline_s: Some(5),
        unconfirmed: "3 attempts, after 1 minute, 1 hour and 6 hours",
        sample: Sample {
            id: sample::uuid,
            body: |about| json!({"createdAt": about.now(), "data": {"id": about.seed, "title": "Sample issue"}, "organizationId": "org_sample", "webhookTimestamp": about.now_ms(), "webhookId": about.seed}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "sentry",
        title: "Sentry",
        docs: "https://docs.sentry.io/organization/integrations/integration-platform/webhooks/",
        setup: "Settings, Custom Integrations, Create New Integration: webhook URL and events; the client secret is shown there.",
        secret: "the integration's client secret",
        notes: "Waits 1 second only. Request-ID and Sentry-Hook-Timestamp are not signed.",
        confirmed: "2026-11: in Sentry's documentation; by formula",
        recipe: Recipe {
            signature_header: "Sentry-Hook-Signature",
            event_id: &["header:Request-ID"],
            event_type: &["header:Sentry-Hook-Resource"],
            event_action: "json:/action",
            object_id: &["json:/data/issue/id", "json:/data/error/issue_id", "json:/data/event/issue_id"],
            account: &["json:/installation/uuid"],
            integer_ids: true,
            ..Recipe::PLAIN
        },
        kept_headers: &["Sentry-Hook-Timestamp"],
        retries_by_itself: false,
        deadline_s: Some(1),
        retries: "none stated; 1000 timeouts in 24 hours end the subscription",
        unconfirmed: "that Request-ID is the same when an event is delivered again",
        sample: Sample {
            body: |about| json!({"installation": {"uuid": "7a485448-a9e2-4c85-8a3c-4f44175783c9"}, "actor": {"type": "application", "id": "sentry", "name": "Sentry"}, "data": {"issue": {"id": about.seed, "title": "Sample error"}}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "pagerduty",
        title: "PagerDuty (webhooks v3)",
        docs: "https://developer.pagerduty.com/docs/verifying-signatures",
        setup: "Integrations, Generic Webhooks (v3), New Webhook: URL, scope, events; the secret is shown once.",
        secret: "the subscription's secret",
        notes: "Any 4xx makes PagerDuty drop the event, so every refusal is answered 503 instead and the event comes again.",
        confirmed: "2026-11: in PagerDuty's documentation; by formula",
        recipe: Recipe {
            signature_header: "X-PagerDuty-Signature",
            list_separator: ",",
            pair: "v1",
            event_id: &["json:/event/id"],
            event_type: &["json:/event/event_type"],
            object_id: &["json:/event/data/id"],
            ..Recipe::PLAIN
        },
        kept_headers: &["X-Webhook-Id", "X-Webhook-Subscription"],
        bad_signature_status: 503,
        refusal_status: Some(503),
        deadline_s: Some(5),
        retries_for: Duration::from_hours(48),
        retries: "for 48 hours on timeouts, 5xx and 429; after 3 drops in a row it is off for 24 hours and what waits is lost",
        sample: Sample {
            id: |digits| digits[..26].to_ascii_uppercase(),
            body: |about| json!({"event": {"resource_type": "incident", "occurred_at": about.now(), "data": {"id": about.seed, "type": "incident", "status": "triggered"}}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "vercel",
        title: "Vercel",
        docs: "https://vercel.com/docs/webhooks/webhooks-api",
        setup: "Team Settings, Webhooks: events, projects, the URL; the secret is shown once.",
        secret: "the webhook's secret; for integrations the client secret",
        notes: "HMAC-SHA1.",
        confirmed: "2026-11: in other people's integrations only; by formula",
        recipe: Recipe {
            signature_header: "x-vercel-signature",
            algorithm: "sha1",
            event_id: &["json:/id"],
            event_type: &["json:/type"],
            object_id: &["json:/payload/deployment/id", "json:/payload/project/id"],
            account: &["json:/payload/team/id"],
            ..Recipe::PLAIN
        },
        unconfirmed: "that /id is the event's id and /payload/team/id the account; attempts for 24 hours",
        sample: Sample { id: sample::evt, ..Sample::PLAIN },
        ..Preset::PLAIN
    },
    Preset {
        name: "contentful",
        title: "Contentful",
        docs: "https://www.contentful.com/developers/docs/webhooks/request-verification/",
        setup: "Settings, Webhooks: add the URL; enable request verification under the Settings tab and create a signing secret.",
        secret: "the signing secret, 64 characters",
        notes: "Method, path, the listed headers and the body are signed; the topic only where it is listed. 30 s tolerance. No id: the key is topic, object and a hash of the body.",
        confirmed: "2026-11: with @contentful/node-apps-toolkit 3.16.1",
        recipe: Recipe {
            signature_header: "X-Contentful-Signature",
            signed: "{method}\n{path}\n{signed_headers}\n{body}",
            signed_headers_header: "X-Contentful-Signed-Headers",
            timestamp: "header:X-Contentful-Timestamp",
            timestamp_unit: "ms",
            event_key: &["header:X-Contentful-Topic", "json:/sys/id", "body-sha256"],
            event_type: &["header:X-Contentful-Topic"],
            object_id: &["json:/sys/id"],
            account: &["json:/sys/space/sys/id"],
            ..Recipe::PLAIN
        },
        kept_headers: &["X-Contentful-Webhook-Name", "X-Contentful-CRN"],
        tolerance_s: 30,
        unconfirmed: "few attempts within a short time",
        sample: Sample { content_type: "application/vnd.contentful.management.v1+json", ..Sample::PLAIN },
        ..Preset::PLAIN
    },
    Preset {
        name: "mux",
        title: "Mux",
        docs: "https://www.mux.com/docs/core/verify-webhook-signatures",
        setup: "Settings, Webhooks, Create new webhook: environment and URL; then Show signing secret.",
        secret: "the webhook's signing secret",
        notes: "Signed like Stripe's.",
        confirmed: "2026-11: with @mux/mux-node 15.3.0",
        recipe: Recipe {
            signature_header: "Mux-Signature",
            list_separator: ",",
            pair: "v1",
            signed: "{ts}.{body}",
            timestamp: "pair:t",
            event_id: &["json:/id"],
            event_type: &["json:/type"],
            object_id: &["json:/object/id", "json:/data/id"],
            account: &["json:/environment/id"],
            ..Recipe::PLAIN
        },
        body_varies: BodyVaries::Fields(&["/attempts"]),
        unconfirmed: "attempts for 24 hours",
        sample: Sample {
            id: sample::evt,
            body: |about| json!({"created_at": about.now(), "object": {"type": "asset", "id": about.seed}, "attempts": [], "environment": {"name": "Sample", "id": "env_sample"}, "data": {"id": about.seed, "status": "ready"}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
];

/// What GitLab's signing tokens begin with.
const WHSEC: &[u8] = b"whsec_";

/// Where GitLab writes what, however it signs.
const GITLAB: Recipe<'static> = Recipe {
    event_type: &["json:/object_kind", "json:/event_name", "header:X-Gitlab-Event"],
    event_action: "json:/object_attributes/action",
    object_id: &["json:/object_attributes/id", "json:/project/path_with_namespace"],
    account: &["json:/project/path_with_namespace"],
    told_apart_by: &["header:X-Gitlab-Webhook-UUID"],
    integer_ids: true,
    ..Recipe::PLAIN
};

fn gitlab_note(about: &About<'_>) -> Value {
    json!({"project": {"id": 1, "path_with_namespace": "example/sample"}, "user_username": "example", "object_attributes": {"id": 1}, "sample": about.seed})
}

fn github(about: &About<'_>) -> Value {
    let (event, action) = match about.event_type.split_once('.') {
        Some((event, action)) => (event, Some(action)),
        None => (about.event_type, None),
    };
    let mut body = Map::new();
    if let Some(action) = action {
        body.insert(String::from("action"), Value::from(action));
    }
    let repository = json!({
        "id": 1, "node_id": "R_sample", "name": "sample", "full_name": "example/sample", "private": true,
        "owner": {"login": "example", "id": 1, "type": "Organization"}, "default_branch": "main",
    });
    let hash = hex(&Sha256::digest(about.seed));
    let specific = match event {
        "ping" => {
            json!({"zen": "Keep it logically awesome.", "hook_id": 1, "hook": {"type": "Repository", "id": 1, "active": true, "events": ["push"]}})
        }
        "push" => json!({
            "ref": "refs/heads/main", "before": "0".repeat(40), "after": &hash[..40], "created": false, "deleted": false, "forced": false,
            "commits": [{"id": &hash[..40], "message": "Sample commit", "author": {"name": "Example"}, "added": [], "removed": [], "modified": ["README.md"]}],
            "pusher": {"name": "example"},
        }),
        "issues" | "issue_comment" => json!({"issue": {
            "id": 1, "node_id": format!("I_{}", about.seed), "number": 1, "title": "Sample issue",
            "state": if action == Some("closed") { "closed" } else { "open" }, "user": {"login": "example", "id": 1},
        }}),
        "pull_request" => json!({"number": 1, "pull_request": {
            "id": 1, "node_id": format!("PR_{}", about.seed), "number": 1, "title": "Sample pull request",
            "state": if action == Some("closed") { "closed" } else { "open" }, "merged": false, "user": {"login": "example", "id": 1},
        }}),
        _ => json!({}),
    };
    body.extend(specific.as_object().cloned().unwrap_or_default());
    body.insert(String::from("repository"), repository);
    body.insert(String::from("organization"), json!({"login": "example", "id": 1}));
    body.insert(String::from("sender"), json!({"login": "example", "id": 1, "type": "User"}));
    Value::Object(body)
}
