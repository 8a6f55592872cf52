//! Providers of payments and subscriptions.
//!
//! Rows of the one table in `table.rs`, with the functions that they name below them.

use std::time::Duration;

use serde_json::{Value, json};

use super::handshake::{Handshake, Reply, is};
use super::preset::{Acceptance, BodyVaries, Preset};
use super::sample::{self, About, Sample};
use crate::signature::Recipe;

pub(super) const ROWS: &[Preset] = &[
    Preset {
        name: "stripe",
        title: "Stripe",
        docs: "https://docs.stripe.com/webhooks#verify-manually",
        setup: "Developers, Webhooks (Workbench): add a destination with the URL and the events you need; then reveal its signing secret.",
        secret: "the endpoint's own signing secret, the whole text with whsec_",
        notes: "Account, Connect and `stripe listen` secrets differ. For the books subscribe snapshot events, with invoice_payment.paid (else cash and payments elsewhere look alike), charge.captured and refund.* (docs/money.md).",
        confirmed: "2026-11: with the stripe libraries 23.1.0 (Node) and 16.1.0 (Python)",
        recipe: Recipe {
            signature_header: "Stripe-Signature",
            list_separator: ",",
            pair: "v1",
            signed: "{ts}.{body}",
            timestamp: "pair:t",
            event_id: &["json:/id"],
            event_type: &["json:/type"],
            // snapshot events first, then thin events (v2)
            object_id: &["json:/data/object/id", "json:/related_object/id"],
            account: &["json:/account", "json:/context"],
            livemode: &["json:/livemode"],
            api_version: &["json:/api_version"],
            ..Recipe::PLAIN
        },
        retries: "live: up to 3 days with growing pauses; sandbox: 3 times in a few hours",
        unconfirmed: "that every attempt is signed anew",
        body_varies: BodyVaries::Fields(&["/pending_webhooks"]),
        sample: Sample { id: sample::evt, is_whole: true, body: stripe, ..Sample::PLAIN },
        ..Preset::PLAIN
    },
    Preset {
        name: "square",
        title: "Square",
        docs: "https://developer.squareup.com/docs/webhooks/step3validate",
        setup: "Developer Console, your application, Webhooks, Subscriptions: add the URL exactly as inboxd knows it.",
        secret: "the subscription's signature key",
        notes: "The URL is signed: public_url must be the one given to Square, to the slash.",
        confirmed: "2026-11: with square 46.0.0",
        recipe: Recipe {
            signature_header: "x-square-hmacsha256-signature",
            encoding: "base64",
            signed: "{url}{body}",
            event_id: &["json:/event_id"],
            event_type: &["json:/type"],
            object_id: &["json:/data/id"],
            account: &["json:/merchant_id"],
            ..Recipe::PLAIN
        },
        kept_headers: &["square-environment", "square-initial-delivery-timestamp", "square-retry-number"],
        deadline_s: Some(10),
        retries: "after 1, 2, 4, 8, 16 and 32 minutes, then hourly to 72 hours; switched off after 3 weeks of failures",
        unconfirmed: "newer documentation may say 24 hours",
        sample: Sample {
            id: sample::uuid,
            body: |about| json!({"merchant_id": "ML_SAMPLE", "created_at": about.now(), "data": {"type": "payment", "id": about.seed, "object": {"payment": {"id": about.seed, "amount_money": {"amount": 2000, "currency": "USD"}, "status": "COMPLETED"}}}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "paddle",
        title: "Paddle Billing",
        docs: "https://developer.paddle.com/webhooks/signature-verification",
        setup: "Developer Tools, Notifications: New destination of type Webhook; edit it to copy its secret key.",
        secret: "the destination's secret key (pdl_ntfset_…)",
        notes: "Paddle's SDKs tolerate 5 s and so do we; raise `tolerance` where the machine's clock is off.",
        confirmed: "2026-11: with @paddle/paddle-node-sdk 3.10.0 and paddle-python-sdk 1.16.1",
        recipe: Recipe {
            signature_header: "Paddle-Signature",
            list_separator: ";",
            pair: "h1",
            signed: "{ts}:{body}",
            timestamp: "pair:ts",
            event_id: &["json:/event_id"],
            event_type: &["json:/event_type"],
            object_id: &["json:/data/id"],
            ..Recipe::PLAIN
        },
        // the same event through two destinations, or sent again by hand
        body_varies: BodyVaries::Fields(&["/notification_id"]),
        tolerance_s: 5,
        deadline_s: Some(5),
        retries: "live: 60 times over 3 days; sandbox: 3 times over 15 minutes",
        sample: Sample {
            id: sample::evt,
            body: |about| json!({"notification_id": format!("ntf_{}", about.seed), "occurred_at": about.now(), "data": {"id": format!("txn_{}", about.seed), "status": "completed", "currency_code": "USD"}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "lemonsqueezy",
        aliases: &["lemon_squeezy"],
        title: "Lemon Squeezy",
        docs: "https://docs.lemonsqueezy.com/help/webhooks/signing-requests",
        setup: "Settings, Webhooks, +: callback URL, a signing secret of 6 to 40 characters, the events.",
        secret: "the signing secret you chose",
        notes: "Events have no id: the key is the event's name, the object and a hash of the body. Only 200 counts as received.",
        confirmed: "2026-11: in Lemon Squeezy's documentation; by formula",
        recipe: Recipe {
            signature_header: "X-Signature",
            event_key: &["json:/meta/event_name", "json:/data/type", "json:/data/id", "body-sha256"],
            event_type: &["json:/meta/event_name", "header:X-Event-Name"],
            object_id: &["json:/data/id"],
            ..Recipe::PLAIN
        },
        retries_for: Duration::from_mins(10),
        retries: "3 times: after 5, 25 and 125 seconds",
        sample: Sample {
            body: |about| json!({"meta": {"test_mode": true}, "data": {"type": "orders", "id": about.seed, "attributes": {"store_id": 1, "status": "paid", "total": 2000, "currency": "USD", "created_at": about.now()}}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "razorpay",
        title: "Razorpay",
        docs: "https://razorpay.com/docs/webhooks/validate-test/",
        setup: "Account & Settings, Webhooks, Add New Webhook: URL, a secret, the events.",
        secret: "the webhook secret you chose",
        notes: "After a change of the secret, retries of older events are still signed with the old one: list both. Where the header with the id is missing, the key is event, time and a hash of the body.",
        confirmed: "2026-11: with the razorpay libraries 2.9.8 (Node) and 2.0.1 (Python)",
        recipe: Recipe {
            signature_header: "X-Razorpay-Signature",
            event_id: &["header:x-razorpay-event-id"],
            event_key: &["json:/event", "json:/created_at", "body-sha256"],
            event_type: &["json:/event"],
            object_id: &[
                "json:/payload/payment/entity/id",
                "json:/payload/subscription/entity/id",
                "json:/payload/order/entity/id",
            ],
            account: &["json:/account_id"],
            ..Recipe::PLAIN
        },
        deadline_s: Some(5),
        retries_for: Duration::from_hours(24),
        retries: "with growing pauses for 24 hours, then the webhook is disabled",
        sample: Sample {
            body: |about| json!({"entity": "event", "account_id": "acc_sample", "contains": ["payment"], "created_at": about.now_s, "payload": {"payment": {"entity": {"id": format!("pay_{}", about.seed), "amount": 2000, "currency": "INR", "status": "captured"}}}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "komoju",
        title: "KOMOJU",
        docs: "https://doc.komoju.com/docs/webhooks",
        setup: "Merchant settings, Webhooks, New Webhook: URL, a secret token, the events.",
        secret: "the secret token you chose",
        notes: "The `ping` on creation is answered and not stored.",
        confirmed: "2026-11: in KOMOJU's documentation and three public integrations; by formula",
        recipe: Recipe {
            signature_header: "X-Komoju-Signature",
            event_id: &["json:/id"],
            event_type: &["json:/type", "header:X-Komoju-Event"],
            object_id: &["json:/data/id"],
            ..Recipe::PLAIN
        },
        kept_headers: &["X-Komoju-ID"],
        handshake: Handshake {
            title: "ping, signed: answered 200, not stored",
            reads: &["/type"],
            signed: |_, json| is(json, "/type", "ping").then(Reply::ignored),
            sample: |about| (about.event_type == "ping").then(|| json!({"type": "ping", "data": {}})),
            ..Handshake::NONE
        },
        unconfirmed: "that /id stays the same when an event is delivered again; whether and how often it is",
        ..Preset::PLAIN
    },
    Preset {
        name: "gocardless",
        title: "GoCardless",
        docs: "https://developer.gocardless.com/getting-started/staying-up-to-date-with-webhooks",
        setup: "Developers, Create, Webhook endpoint: URL and a secret.",
        secret: "the endpoint's secret",
        notes: "Up to 250 events in one delivery; each becomes a row. A bad signature is answered 498, as they ask.",
        confirmed: "2026-11: with gocardless-nodejs 10.1.2 and gocardless_pro 3.22.0",
        recipe: Recipe {
            signature_header: "Webhook-Signature",
            batch: Some("/events"),
            event_id: &["json:/id"],
            event_type: &["json:/resource_type"],
            event_action: "json:/action",
            object_id: &[
                "json:/links/payment",
                "json:/links/mandate",
                "json:/links/subscription",
                "json:/links/payout",
                "json:/links/refund",
                "json:/links/billing_request",
            ],
            account: &["json:/links/organisation"],
            ..Recipe::PLAIN
        },
        bad_signature_status: 498,
        deadline_s: Some(10),
        retries: "up to 8 times with growing pauses",
        unconfirmed: "that /links/organisation names the merchant",
        sample: Sample {
            id: |digits| format!("EV{}", digits[..13].to_ascii_uppercase()),
            body: |about| json!({"created_at": about.now(), "links": {"payment": format!("PM{}", about.seed)}, "details": {"origin": "gocardless", "cause": "payment_confirmed"}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "coinbase_commerce",
        aliases: &["coinbase"],
        title: "Coinbase Commerce",
        docs: "https://docs.cdp.coinbase.com/commerce/docs/webhooks-security",
        setup: "Settings, Notifications, Webhook subscriptions: Add an endpoint; then Show shared secret.",
        secret: "the webhook shared secret",
        notes: "The event is in /event; the delivery around it changes with every attempt.",
        confirmed: "2026-11: with coinbase-commerce-node 1.0.4",
        recipe: Recipe {
            signature_header: "X-CC-Webhook-Signature",
            event_id: &["json:/event/id"],
            event_type: &["json:/event/type"],
            object_id: &["json:/event/data/id", "json:/event/data/code"],
            api_version: &["json:/event/api_version"],
            ..Recipe::PLAIN
        },
        body_varies: BodyVaries::Fields(&["/id", "/attempt_number", "/scheduled_for"]),
        retries: "for 3 days with growing pauses, at most an hour apart",
        sample: Sample {
            body: |about| json!({"id": 1, "scheduled_for": about.now(), "attempt_number": 1, "event": {"api_version": "2018-03-22", "created_at": about.now(), "data": {"id": about.seed, "code": "SAMPLE00"}}}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "mollie",
        title: "Mollie (next-gen webhooks)",
        docs: "https://docs.mollie.com/reference/webhooks-best-practices",
        setup: "Developers, Webhooks: Create webhook with the URL and the events; copy the signing secret.",
        secret: "the webhook's signing secret",
        notes: "Classic webhooks (`webhookUrl`, a form with only an id) are not signed and are refused.",
        confirmed: "2026-11: in Mollie's documentation (beta) and other people's guides; by formula",
        recipe: Recipe {
            signature_header: "X-Mollie-Signature",
            prefix: "sha256=",
            // the sample in their documentation compares the bare digits
            prefix_optional: true,
            form_params: true,
            // a form names the object and no event: the same one comes with every change
            form_has_no_id: true,
            event_id: &["json:/id"],
            event_key: &["json:/id", "arrival"],
            event_type: &["json:/type"],
            object_id: &["json:/entityId", "json:/id"],
            ..Recipe::PLAIN
        },
        deadline_s: Some(15),
        retries: "\"a retry schema\", without figures",
        unconfirmed: "that /id is the event's id",
        sample: Sample { id: |digits| format!("event_{}", &digits[..22]), ..Sample::PLAIN },
        ..Preset::PLAIN
    },
    Preset {
        name: "adyen_platform",
        title: "Adyen Platform, Management and Banking",
        docs: "https://docs.adyen.com/development-resources/webhooks/verify-hmac-signatures/",
        setup: "Customer Area, Developers, Webhooks: create the webhook and generate its HMAC key.",
        secret: "the webhook's HMAC key, in hex",
        notes: "Not for payment notifications, whose signature stands in the body. Keep the old key for a while after a change. No id: the key is type, object and a hash of the body.",
        confirmed: "2026-11: with @adyen/api-library 32.1.0",
        recipe: Recipe {
            signature_header: "HmacSignature",
            encoding: "base64",
            key: "hex",
            event_key: &["json:/type", "json:/data/id", "body-sha256"],
            event_type: &["json:/type"],
            object_id: &["json:/data/id"],
            account: &["json:/data/balancePlatform"],
            livemode: &["json:/environment"],
            ..Recipe::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "payjp_token",
        aliases: &["payjp"],
        title: "PAY.JP",
        docs: "https://docs.pay.jp/v1/webhook",
        setup: "Dashboard, API, Webhook: add the URL; the token is shown there.",
        secret: "the webhook token (whook_…)",
        notes: "A static token: the body is NOT authenticated. Treat the event as a hint and fetch the object; money handlers refuse it.",
        confirmed: "2026-11: in PAY.JP's documentation and ten public integrations",
        recipe: Recipe {
            signature_header: "X-Payjp-Webhook-Token",
            algorithm: "token",
            signed: "",
            event_id: &["json:/id"],
            event_type: &["json:/type"],
            object_id: &["json:/data/id"],
            livemode: &["json:/livemode"],
            ..Recipe::PLAIN
        },
        unconfirmed: "3 attempts, 3 minutes apart",
        sample: Sample { id: sample::evt, ..Sample::PLAIN },
        ..Preset::PLAIN
    },
    Preset {
        name: "xero",
        title: "Xero",
        docs: "https://developer.xero.com/documentation/guides/webhooks/overview/",
        setup: "My Apps, your app, Webhooks: choose the events, save the delivery URL, then \"Send intent to receive\".",
        secret: "the webhooks key",
        notes: "Answers have an empty body; a bad signature is answered 401, as the intent to receive demands. Events have no id: the key is tenant, resource, time and a hash of the event.",
        confirmed: "2026-11: in Xero's documentation; by formula",
        recipe: Recipe {
            signature_header: "x-xero-signature",
            encoding: "base64",
            batch: Some("/events"),
            event_key: &["json:/tenantId", "json:/resourceId", "json:/eventDateUtc", "body-sha256"],
            event_type: &["json:/eventCategory"],
            event_action: "json:/eventType",
            object_id: &["json:/resourceId"],
            account: &["json:/tenantId"],
            ..Recipe::PLAIN
        },
        bad_signature_status: 401,
        acceptance: Acceptance::Empty,
        deadline_s: Some(5),
        retries_for: Duration::from_hours(24),
        retries: "less and less often for up to 24 hours, then disabled",
        unconfirmed: "that tenant, resource and time identify an event; that the key is not decoded",
        sample: Sample {
            body: |about| json!({"resourceUrl": "https://api.xero.com/api.xro/2.0/Invoices/1", "eventDateUtc": about.now(), "tenantType": "ORGANISATION"}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
];

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
        "customer.subscription" => json!({
            "id": format!("sub_{seed}"), "object": "subscription", "created": about.now_s, "customer": format!("cus_{seed}"),
            "cancel_at_period_end": false, "items": {"object": "list", "data": [{
                "id": format!("si_{seed}"), "current_period_end": about.now_s + 2_592_000,
                "price": {"id": format!("price_{seed}"), "product": format!("prod_{seed}")},
            }]},
            "livemode": false, "metadata": {}, "status": if happened == "deleted" { "canceled" } else { "active" },
        }),
        "invoice_payment" => json!({
            "id": format!("inpay_{seed}"), "object": "invoice_payment", "amount_paid": 2000, "amount_requested": 2000,
            "created": about.now_s, "currency": "usd", "invoice": format!("in_{seed}"), "is_default": true, "livemode": false,
            "payment": {"type": "payment_intent", "payment_intent": format!("pi_{seed}")}, "status": "paid",
        }),
        "charge.dispute" => dispute(about, happened),
        "refund" | "charge.refund" | "credit_note" | "payout" | "topup" => returned(about, kind, happened),
        _ => {
            let object = kind.rsplit('.').next().unwrap_or(kind);
            json!({"id": format!("{object}_{seed}"), "object": object, "created": about.now_s, "livemode": false, "metadata": {}})
        }
    }
}

/// With the balance transactions that it has had by then.
fn dispute(about: &About<'_>, happened: &str) -> Value {
    let seed = about.seed;
    let moved = |name: &str, amount: i64, fee: i64| {
        json!({"id": format!("txn_{name}_{seed}"), "object": "balance_transaction", "amount": amount, "fee": fee,
               "net": amount - fee, "currency": "usd", "reporting_category": "dispute"})
    };
    let mut moves = vec![moved("taken", -2000, 1500)];
    if happened == "funds_reinstated" {
        moves.push(moved("returned", 2000, 0));
    }
    let status = match happened {
        "funds_reinstated" => "won",
        "closed" => "lost",
        _ => "needs_response",
    };
    json!({
        "id": format!("dp_{seed}"), "object": "dispute", "amount": 2000, "balance_transactions": moves,
        "charge": format!("ch_{seed}"), "created": about.now_s, "currency": "usd", "livemode": false, "metadata": {},
        "payment_intent": format!("pi_{seed}"), "reason": "general", "status": status,
    })
}

/// Money that leaves the balance, or comes to it, in one object.
fn returned(about: &About<'_>, kind: &str, happened: &str) -> Value {
    let seed = about.seed;
    let (prefix, object, amount) = match kind {
        "credit_note" => ("cn", "credit_note", 300),
        "payout" => ("po", "payout", 1500),
        "topup" => ("tu", "topup", 1500),
        _ => ("re", "refund", 500),
    };
    let status = match (object, happened) {
        ("credit_note", "voided") => "void",
        ("credit_note", _) => "issued",
        (_, "failed") => "failed",
        ("payout", "paid") => "paid",
        ("payout", _) => "pending",
        _ => "succeeded",
    };
    let mut json = json!({
        "id": format!("{prefix}_{seed}"), "object": object, "amount": amount, "created": about.now_s, "currency": "usd",
        "livemode": false, "metadata": {}, "status": status,
    });
    match object {
        "refund" => {
            json["charge"] = json!(format!("ch_{seed}"));
            json["payment_intent"] = json!(format!("pi_{seed}"));
        }
        "credit_note" => {
            json["invoice"] = json!(format!("in_{seed}"));
            json["type"] = json!("pre_payment");
            json["pre_payment_amount"] = json!(amount);
            json["post_payment_amount"] = json!(0);
            json["refunds"] = json!([]);
        }
        _ => {}
    }
    json
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
