//! Shops.
//!
//! Rows of the one table in `table.rs`, with the functions that they name below them.

use std::time::Duration;

use serde_json::{Value, json};

use super::handshake::{Handshake, Reply};
use super::preset::{Preset, TestSign};
use super::sample::{self, About, Sample};
use crate::signature::{Delivery, Recipe, Scheme, is_form};

pub(super) const ROWS: &[Preset] = &[
    Preset {
        name: "shopify",
        title: "Shopify",
        docs: "https://shopify.dev/docs/apps/build/webhooks/subscribe/https",
        setup: "Subscribe in the app's shopify.app.toml or by API. For a shop's own hooks: Settings, Notifications, Webhooks.",
        secret: "the app's client secret; hooks made in the shop's settings have another one, shown there",
        notes: "X-Shopify-Webhook-Id is the key. The same X-Shopify-Event-Id, topic and object under another Webhook-Id is the same event told by a second subscription: a duplicate, whatever API version its body has. Ids and topic are not signed. The newer names without X- are taken too. A bad signature is answered 401. The handler money needs order_transactions/create.",
        confirmed: "2026-11: with @shopify/shopify-api 13.1.0",
        recipe: Recipe {
            signature_header: "X-Shopify-Hmac-Sha256",
            event_id: &["header:X-Shopify-Webhook-Id"],
            event_type: &["header:X-Shopify-Topic"],
            account: &["header:X-Shopify-Shop-Domain"],
            api_version: &["header:X-Shopify-API-Version"],
            // as Shopify's own libraries do
            header_families: ["X-Shopify-", "shopify-"],
            fact: &["header:X-Shopify-Event-Id"],
            ..SHOPIFY
        },
        kept_headers: &["X-Shopify-Sub-Topic", "X-Shopify-Name", "X-Shopify-Test", "X-Shopify-Triggered-At"],
        bad_signature_status: 401,
        deadline_s: Some(5),
        tests: &[TestSign::Header("X-Shopify-Test", "true")],
        retries_for: Duration::from_hours(4),
        retries: "8 times over 4 hours, then the subscription is removed if it was made by API",
        sample: Sample {
            id: sample::uuid,
            headers: &[
                ("X-Shopify-Shop-Domain", "sample.myshopify.com"),
                ("X-Shopify-API-Version", "2026-07"),
            ],
            body: shopify_order,
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "shopify_events",
        title: "Shopify Events",
        docs: "https://shopify.dev/docs/apps/build/webhooks",
        setup: "As Shopify, for the newer \"Events\" subscriptions, whose headers have no X-.",
        secret: "the app's client secret",
        notes: "The same signature as Shopify under other header names, and the same rule for second subscriptions; Shopify's own names are taken too.",
        confirmed: "2026-11: with @shopify/shopify-api 13.1.0",
        recipe: Recipe {
            signature_header: "shopify-hmac-sha256",
            event_id: &["header:shopify-webhook-id"],
            event_type: &["header:shopify-topic"],
            account: &["header:shopify-shop-domain"],
            api_version: &["header:shopify-api-version"],
            header_families: ["shopify-", "X-Shopify-"],
            fact: &["header:shopify-event-id"],
            ..SHOPIFY
        },
        kept_headers: &["shopify-sub-topic", "shopify-name", "shopify-action", "shopify-triggered-at"],
        bad_signature_status: 401,
        deadline_s: Some(5),
        tests: &[TestSign::Header("shopify-test", "true")],
        retries_for: Duration::from_hours(4),
        retries: "8 times over 4 hours",
        sample: Sample {
            id: sample::uuid,
            headers: &[("shopify-shop-domain", "sample.myshopify.com"), ("shopify-api-version", "2026-07")],
            body: shopify_order,
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
    Preset {
        name: "woocommerce",
        title: "WooCommerce",
        docs: "https://woocommerce.com/document/webhooks/",
        setup: "WooCommerce, Settings, Advanced, Webhooks, Add webhook: topic, delivery URL, secret.",
        secret: "the webhook's secret as you typed it (without & < > and quotes, which WordPress may store escaped)",
        notes: "Never retries, and is switched off after 5 failures in a row. No id: the key is topic, object and a hash of the body. The unsigned ping on creation is answered and not stored.",
        confirmed: "2026-11: in WooCommerce's source (class-wc-webhook.php)",
        recipe: Recipe {
            signature_header: "X-WC-Webhook-Signature",
            encoding: "base64",
            event_key: &["header:X-WC-Webhook-Topic", "json:/id", "body-sha256"],
            event_type: &["header:X-WC-Webhook-Topic"],
            object_id: &["json:/id"],
            account: &["header:X-WC-Webhook-Source"],
            integer_ids: true,
            ..Recipe::PLAIN
        },
        kept_headers: &[
            "X-WC-Webhook-Resource",
            "X-WC-Webhook-Event",
            "X-WC-Webhook-ID",
            "X-WC-Webhook-Delivery-ID",
        ],
        handshake: Handshake {
            title: "the unsigned form webhook_id=N: answered 200, not stored",
            unsigned: woocommerce_ping,
            ..Handshake::NONE
        },
        retries_by_itself: false,
        deadline_s: Some(60),
        retries: "never",
        sample: Sample {
            headers: &[("X-WC-Webhook-Source", "https://shop.example/")],
            body: |about| json!({"id": 1, "status": "processing", "currency": "USD", "total": "20.00", "date_created": about.now(), "sample": about.seed}),
            ..Sample::PLAIN
        },
        ..Preset::PLAIN
    },
];

const SHOPIFY: Recipe<'static> = Recipe {
    encoding: "base64",
    object_id: &["json:/admin_graphql_api_id", "json:/id"],
    integer_ids: true,
    ..Recipe::PLAIN
};

fn shopify_order(about: &About<'_>) -> Value {
    json!({"id": 1, "admin_graphql_api_id": format!("gid://shopify/Order/{}", about.seed), "created_at": about.now(), "currency": "USD", "total_price": "20.00", "financial_status": "paid"})
}

fn woocommerce_ping(scheme: &Scheme, delivery: &Delivery<'_>) -> Option<Reply> {
    let number = delivery.body.strip_prefix(b"webhook_id=").filter(|_| delivery.method == "POST")?;
    let is_number = (1..=20).contains(&number.len()) && number.iter().all(u8::is_ascii_digit);
    let is_unsigned = delivery.headers.first(&scheme.header.name).is_none();
    (is_number && is_unsigned && is_form(delivery.headers)).then(Reply::ignored)
}
