//! Sample events: plausible bodies for test deliveries. Invented data; ids come from a seed.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::presets::Preset;
use super::secret::hex;

/// What is in a sample.
struct About<'a> {
    event_type: &'a str,
    event_id: &'a str,
    seed: &'a str,
    now_s: i64,
}

impl Preset {
    /// An event id of the provider's shape. Different seeds give different ids.
    pub fn sample_id(&self, seed: &str) -> String {
        let digits = hex(&Sha256::digest(seed));
        match self.name {
            "stripe" => format!("evt_{}", &digits[..24]),
            "github" => format!(
                "{}-{}-{}-{}-{}",
                &digits[..8],
                &digits[8..12],
                &digits[12..16],
                &digits[16..20],
                &digits[20..32]
            ),
            _ => format!("msg_{}", &digits[..27]),
        }
    }

    /// A minimal, realistic JSON body. The business object's ids come from the seed (`in_<seed>`), so that
    /// several events can be about one object. The event's id is in the body only where the provider has it there.
    pub fn sample(&self, event_type: &str, event_id: &str, seed: &str, now_s: i64) -> String {
        let about = About { event_type, event_id, seed, now_s };
        match self.name {
            "stripe" => stripe(&about),
            "github" => github(&about),
            "resend" => json!({"type": event_type, "created_at": created_at(now_s), "data": {"email_id": seed, "to": ["someone@example.com"], "subject": "Hello"}}),
            "clerk" => json!({"type": event_type, "object": "event", "timestamp": now_s.saturating_mul(1000), "instance_id": "ins_sample", "data": {"id": format!("user_{seed}"), "object": "user"}}),
            "standardwebhooks" | "svix" => json!({"type": event_type, "timestamp": created_at(now_s), "data": {"id": seed}}),
            _ => json!({"id": event_id, "type": event_type, "data": {"id": seed}}),
        }
        .to_string()
    }
}

fn created_at(now_s: i64) -> String {
    jiff::Timestamp::from_second(now_s).unwrap_or_default().to_string()
}

fn stripe(about: &About<'_>) -> Value {
    json!({
        "id": about.event_id,
        "object": "event",
        "api_version": "2025-06-30.basil",
        "created": about.now_s,
        "data": {"object": stripe_object(about)},
        "livemode": false,
        "pending_webhooks": 1,
        "request": {"id": null, "idempotency_key": null},
        "type": about.event_type,
    })
}

fn stripe_object(about: &About<'_>) -> Value {
    let seed = about.seed;
    let (kind, happened) = about.event_type.rsplit_once('.').unwrap_or((about.event_type, ""));
    match kind {
        "invoice" => invoice(about, happened),
        "payment_intent" => {
            let paid = happened == "succeeded";
            json!({
                "id": format!("pi_{seed}"), "object": "payment_intent", "amount": 2000, "amount_received": if paid { 2000 } else { 0 },
                "created": about.now_s, "currency": "usd", "customer": format!("cus_{seed}"), "latest_charge": format!("ch_{seed}"),
                "livemode": false, "metadata": {}, "status": if paid { "succeeded" } else { "requires_payment_method" },
            })
        }
        "checkout.session" => json!({
            "id": format!("cs_{seed}"), "object": "checkout.session", "amount_subtotal": 2000, "amount_total": 2000,
            "client_reference_id": format!("order_{seed}"), "created": about.now_s, "currency": "usd", "customer": format!("cus_{seed}"),
            "livemode": false, "metadata": {}, "mode": "payment", "payment_intent": format!("pi_{seed}"),
            "payment_status": if happened == "expired" { "unpaid" } else { "paid" },
            "status": if happened == "expired" { "expired" } else { "complete" },
        }),
        "charge" => json!({
            "id": format!("ch_{seed}"), "object": "charge", "amount": 2000, "amount_captured": 2000,
            "amount_refunded": if happened == "refunded" { 2000 } else { 0 }, "created": about.now_s, "currency": "usd",
            "customer": format!("cus_{seed}"), "invoice": null, "livemode": false, "metadata": {}, "paid": happened != "failed",
            "payment_intent": format!("pi_{seed}"), "refunded": happened == "refunded", "status": if happened == "failed" { "failed" } else { "succeeded" },
        }),
        _ => {
            let object = kind.rsplit('.').next().unwrap_or(kind);
            json!({"id": format!("{object}_{seed}"), "object": object, "created": about.now_s, "livemode": false, "metadata": {}})
        }
    }
}

fn invoice(about: &About<'_>, happened: &str) -> Value {
    let status = match happened {
        "paid" | "payment_succeeded" => "paid",
        "voided" => "void",
        "marked_uncollectible" => "uncollectible",
        "created" | "deleted" | "upcoming" => "draft",
        _ => "open",
    };
    let paid = status == "paid";
    let at = |wanted: &[&str]| wanted.contains(&status).then_some(about.now_s);
    json!({
        "id": format!("in_{}", about.seed),
        "object": "invoice",
        "amount_due": 2000,
        "amount_overpaid": 0,
        "amount_paid": if paid { 2000 } else { 0 },
        "amount_remaining": if paid { 0 } else { 2000 },
        "attempt_count": u8::from(paid || happened == "payment_failed"),
        "attempted": paid || happened == "payment_failed",
        "billing_reason": "manual",
        "collection_method": "charge_automatically",
        "created": about.now_s,
        "currency": "usd",
        "customer": format!("cus_{}", about.seed),
        "ending_balance": if status == "draft" { None } else { Some(0) },
        "lines": {
            "object": "list",
            "data": [{
                "id": format!("il_{}", about.seed), "object": "line_item", "amount": 2000, "currency": "usd",
                "description": "Sample subscription", "livemode": false, "metadata": {}, "quantity": 1,
            }],
            "has_more": false,
            "url": format!("/v1/invoices/in_{}/lines", about.seed),
        },
        "livemode": false,
        "metadata": {},
        "number": if status == "draft" { None } else { Some(format!("SAMPLE-{}", about.seed)) },
        "starting_balance": 0,
        "status": status,
        "status_transitions": {
            "finalized_at": at(&["open", "paid", "void", "uncollectible"]),
            "marked_uncollectible_at": at(&["uncollectible"]),
            "paid_at": at(&["paid"]),
            "voided_at": at(&["void"]),
        },
        "subtotal": 2000,
        "total": 2000,
    })
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
