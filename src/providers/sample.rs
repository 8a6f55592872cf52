//! Sample events: plausible bodies for test deliveries. Invented data; ids come from a seed.
//!
//! A few providers have a body of their own here; for all of them id, type, object and whatever else the
//! preset reads is then put where the preset reads it, so that a sample is always understood.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::preset::{Handshake, Preset};
use crate::encode::{hex, is_unreserved, percent_encoded};
use crate::signature::{FORM, put};

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
            "stripe" | "paddle" | "workos" | "payjp_token" | "mux" | "vercel" => {
                format!("evt_{}", &digits[..24])
            }
            "github" | "square" | "gitea" | "gitlab_signing" | "gitlab_token" | "linear" | "shopify"
            | "shopify_events" => uuid(&digits),
            "mollie" => format!("event_{}", &digits[..22]),
            "line" | "pagerduty" => digits[..26].to_ascii_uppercase(),
            "gocardless" => format!("EV{}", digits[..13].to_ascii_uppercase()),
            _ => format!("msg_{}", &digits[..27]),
        }
    }

    /// The content type of [`Preset::sample`].
    pub fn sample_content_type(&self) -> &'static str {
        match self.name {
            "twilio" => FORM,
            "contentful" => "application/vnd.contentful.management.v1+json",
            _ => "application/json",
        }
    }

    /// Headers that go with [`Preset::sample`] and that no signature needs; a provider's own library may.
    pub fn sample_headers(&self) -> &'static [(&'static str, &'static str)] {
        match self.name {
            "shopify" => {
                &[("X-Shopify-Shop-Domain", "sample.myshopify.com"), ("X-Shopify-API-Version", "2026-07")]
            }
            "shopify_events" => {
                &[("shopify-shop-domain", "sample.myshopify.com"), ("shopify-api-version", "2026-07")]
            }
            "woocommerce" => &[("X-WC-Webhook-Source", "https://shop.example/")],
            _ => &[],
        }
    }

    /// A minimal, realistic body. The business object's ids come from the seed (`in_<seed>`), so that
    /// several events can be about one object. The event's id is in the body only where the provider has it
    /// there; where it has none at all, `event_id` makes the body this event's own.
    pub fn sample(&self, event_type: &str, event_id: &str, seed: &str, now_s: i64) -> String {
        let about = About { event_type, event_id, seed, now_s };
        if let Some(handshake) = self.sample_handshake(&about) {
            return handshake.to_string();
        }
        let mut event = match self.name {
            "stripe" => return stripe(&about).to_string(),
            "github" => return github(&about).to_string(),
            name => body_of(name, &about),
        };
        self.fill(&mut event, &about);
        match self.recipe.batch {
            Some("") => json!([event]).to_string(),
            Some(list) => {
                let mut batch = json!({});
                put(&mut batch, list, json!([event]));
                if self.recipe.account.iter().any(|source| source.starts_with("batch:")) {
                    batch["destination"] = Value::from("U00000000000000000000000000000001");
                }
                batch.to_string()
            }
            None if self.name == "twilio" => form(&event),
            None => event.to_string(),
        }
    }

    /// Puts id, type, object, scope and the pieces of a key where this preset reads them.
    fn fill(&self, event: &mut Value, about: &About<'_>) {
        let recipe = &self.recipe;
        let pointer = |sources: &[&'static str]| sources.first()?.strip_prefix("json:");
        let (kind, action) = match recipe.event_action.strip_prefix("json:") {
            Some(action) => {
                let (kind, happened) = about.event_type.split_once('.').unwrap_or((about.event_type, ""));
                (kind, (!happened.is_empty()).then_some((action, happened)))
            }
            None => (about.event_type, None),
        };
        let id = self.own_id().and_then(|source| source.strip_prefix("json:"));
        let id = id.map(|pointer| (pointer, about.event_id));
        let kind = pointer(recipe.event_type).map(|pointer| (pointer, kind));
        for (pointer, value) in [id, kind, action].into_iter().flatten() {
            put(event, pointer, Value::from(value));
        }
        // what the body of this provider has already stays
        let account = pointer(recipe.account).map(|pointer| (pointer, "acct_sample"));
        let object = pointer(recipe.object_id).map(|pointer| (pointer, about.seed));
        let is_list = |pointer: &&str| pointer.starts_with("/0/");
        let key = recipe.event_key.iter().filter_map(|source| source.strip_prefix("json:"));
        // where only older versions go without an id, the key is of no account
        let key = key.filter(|pointer| !self.has_ids() && !is_list(pointer));
        let key = key.map(|pointer| (pointer, about.event_id));
        for (pointer, value) in [account, object].into_iter().flatten().chain(key) {
            if event.pointer(pointer).is_none() {
                put(event, pointer, Value::from(value));
            }
        }
        if !self.has_ids() {
            put(event, "/sample", Value::from(about.event_id));
        }
    }

    /// What the provider asks before it sends events, where the type names it.
    fn sample_handshake(&self, about: &About<'_>) -> Option<Value> {
        match (self.handshake, about.event_type) {
            (Handshake::SlackChallenge, "url_verification") => {
                Some(json!({"type": "url_verification", "challenge": about.seed, "token": "sample"}))
            }
            (Handshake::ZoomValidation, "endpoint.url_validation") => Some(json!({
                "event": "endpoint.url_validation", "event_ts": about.now_s.saturating_mul(1000),
                "payload": {"plainToken": about.seed},
            })),
            (Handshake::KomojuPing, "ping") => Some(json!({"type": "ping", "data": {}})),
            _ => None,
        }
    }
}

fn uuid(digits: &str) -> String {
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..32]];
    parts.join("-")
}

/// An object of texts as a form.
fn form(event: &Value) -> String {
    let fields = event.as_object().into_iter().flatten().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", percent_encoded(&value, is_unreserved))
    });
    fields.collect::<Vec<_>>().join("&")
}

/// What is in a body besides the facts that the preset reads.
fn body_of(name: &str, about: &About<'_>) -> Value {
    let created = || json!({"created_at": created_at(about.now_s), "data": {"object": "sample"}});
    money(name, about)
        .or_else(|| messages(name, about))
        .or_else(|| others(name, about))
        .unwrap_or_else(created)
}

fn money(name: &str, about: &About<'_>) -> Option<Value> {
    let (seed, now_s) = (about.seed, about.now_s);
    let now = created_at(now_s);
    Some(match name {
        "square" => {
            json!({"merchant_id": "ML_SAMPLE", "created_at": now, "data": {"type": "payment", "id": seed, "object": {"payment": {"id": seed, "amount_money": {"amount": 2000, "currency": "USD"}, "status": "COMPLETED"}}}})
        }
        "paddle" => {
            json!({"notification_id": format!("ntf_{seed}"), "occurred_at": now, "data": {"id": format!("txn_{seed}"), "status": "completed", "currency_code": "USD"}})
        }
        "lemonsqueezy" => {
            json!({"meta": {"test_mode": true}, "data": {"type": "orders", "id": seed, "attributes": {"store_id": 1, "status": "paid", "total": 2000, "currency": "USD", "created_at": now}}})
        }
        "razorpay" => {
            json!({"entity": "event", "account_id": "acc_sample", "contains": ["payment"], "created_at": now_s, "payload": {"payment": {"entity": {"id": format!("pay_{seed}"), "amount": 2000, "currency": "INR", "status": "captured"}}}})
        }
        "shopify" | "shopify_events" => {
            json!({"id": 1, "admin_graphql_api_id": format!("gid://shopify/Order/{seed}"), "created_at": now, "currency": "USD", "total_price": "20.00", "financial_status": "paid"})
        }
        "woocommerce" => {
            json!({"id": 1, "status": "processing", "currency": "USD", "total": "20.00", "date_created": now, "sample": seed})
        }
        "coinbase_commerce" => {
            json!({"id": 1, "scheduled_for": now, "attempt_number": 1, "event": {"api_version": "2018-03-22", "created_at": now, "data": {"id": seed, "code": "SAMPLE00"}}})
        }
        "gocardless" => {
            json!({"created_at": now, "links": {"payment": format!("PM{seed}")}, "details": {"origin": "gocardless", "cause": "payment_confirmed"}})
        }
        "xero" => {
            json!({"resourceUrl": "https://api.xero.com/api.xro/2.0/Invoices/1", "eventDateUtc": now, "tenantType": "ORGANISATION"})
        }
        _ => return None,
    })
}

fn messages(name: &str, about: &About<'_>) -> Option<Value> {
    let (seed, now_s) = (about.seed, about.now_s);
    let (now, now_ms) = (created_at(now_s), now_s.saturating_mul(1000));
    Some(match name {
        "slack" => {
            json!({"type": "event_callback", "token": "sample", "team_id": "T0SAMPLE", "api_app_id": "A0SAMPLE", "event_time": now_s, "event": {"user": "U0SAMPLE", "text": "Hello", "channel": "C0SAMPLE", "ts": format!("{now_s}.000100")}})
        }
        "line" => {
            json!({"mode": "active", "timestamp": now_ms, "source": {"type": "user", "userId": "U1"}, "deliveryContext": {"isRedelivery": false}, "replyToken": seed, "message": {"id": "1", "type": "text", "text": "Hello"}})
        }
        "zoom" => {
            json!({"event_ts": now_ms, "payload": {"account_id": "acc_sample", "object": {"id": "1234567890", "uuid": seed, "topic": "Sample meeting"}}})
        }
        "mailgun" => {
            json!({"signature": {"token": hex(&Sha256::digest(about.event_id)), "timestamp": "", "signature": ""}, "event-data": {"timestamp": now_s, "recipient": "someone@example.com"}})
        }
        "twilio" => {
            json!({"AccountSid": "AC00000000000000000000000000000001", "MessageSid": format!("SM{seed}"), "From": "+15005550006", "To": "+15005550001", "Body": "Hello, world & co."})
        }
        "hubspot_v3" => {
            json!({"eventId": 1, "subscriptionId": 12345, "portalId": 62515, "appId": 1, "objectId": 123, "occurredAt": now_ms, "attemptNumber": 0, "changeSource": "CRM", "sample": about.event_id})
        }
        "intercom" => {
            json!({"type": "notification_event", "delivery_attempts": 1, "created_at": now_s, "data": {"type": "notification_event_data", "item": {"type": "conversation", "id": seed}}})
        }
        "pagerduty" => {
            json!({"event": {"resource_type": "incident", "occurred_at": now, "data": {"id": seed, "type": "incident", "status": "triggered"}}})
        }
        "sentry" => {
            json!({"installation": {"uuid": "7a485448-a9e2-4c85-8a3c-4f44175783c9"}, "actor": {"type": "application", "id": "sentry", "name": "Sentry"}, "data": {"issue": {"id": seed, "title": "Sample error"}}})
        }
        _ => return None,
    })
}

fn others(name: &str, about: &About<'_>) -> Option<Value> {
    let (seed, now_s) = (about.seed, about.now_s);
    let (now, now_ms) = (created_at(now_s), now_s.saturating_mul(1000));
    Some(match name {
        "resend" => {
            json!({"created_at": now, "data": {"email_id": seed, "to": ["someone@example.com"], "subject": "Hello"}})
        }
        "clerk" => {
            json!({"object": "event", "timestamp": now_ms, "instance_id": "ins_sample", "data": {"id": format!("user_{seed}"), "object": "user"}})
        }
        "standardwebhooks" | "svix" | "polar" => json!({"timestamp": now, "data": {"id": seed}}),
        "gitlab_signing" | "gitlab_token" => {
            json!({"project": {"id": 1, "path_with_namespace": "example/sample"}, "user_username": "example", "object_attributes": {"id": 1}, "sample": seed})
        }
        "gitea" => {
            json!({"repository": {"id": 1, "full_name": "example/sample", "owner": {"login": "example"}}, "sender": {"login": "example"}, "sample": seed})
        }
        "bitbucket" => {
            json!({"repository": {"full_name": "example/sample", "workspace": {"slug": "example"}}, "actor": {"display_name": "Example"}, "sample": seed})
        }
        "linear" => {
            json!({"createdAt": now, "data": {"id": seed, "title": "Sample issue"}, "organizationId": "org_sample", "webhookTimestamp": now_ms, "webhookId": seed})
        }
        "mux" => {
            json!({"created_at": now, "object": {"type": "asset", "id": seed}, "attempts": [], "environment": {"name": "Sample", "id": "env_sample"}, "data": {"id": seed, "status": "ready"}})
        }
        "dropbox" => json!({"list_folder": {"accounts": ["dbid:sample"]}, "delta": {"users": [1]}}),
        "docusign" => {
            json!({"apiVersion": "v2.1", "retryCount": 0, "generatedDateTime": now, "data": {"accountId": "sample", "envelopeId": seed}})
        }
        _ => return None,
    })
}

pub(crate) fn created_at(now_s: i64) -> String {
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
