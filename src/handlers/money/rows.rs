//! What the events of providers other than Stripe say of money: a table, and no code per provider.
//!
//! A row names the types of events that tell of one kind of object, and where id, amount and currency stand. Only fields
//! that a provider documents, or its own libraries read, are named. What needs more than pointers has no row: classic Mollie
//! and GoCardless send no amounts at all.

use crate::books::kinds::Kind;

/// How an amount is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// A whole number of minor units.
    Minor,
    /// The same as text.
    MinorText,
    /// Decimal text in major units.
    Decimal,
}

/// A field and the values that are meant.
pub(super) type Condition = (&'static str, &'static [&'static str]);

/// What events of some types say of one object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// The presets that send them.
    pub(super) providers: &'static [&'static str],
    /// As the provider is named in the books.
    pub(super) provider: &'static str,
    pub(super) types: &'static [&'static str],
    /// The events hold a list of such objects here; the pointers below begin at each of them.
    pub(super) each: Option<&'static str>,
    /// The kind of object, as in `refund:paddle/adj_1`.
    pub(super) object: &'static str,
    pub(super) id: &'static str,
    pub(super) kind: Kind,
    pub(super) is_negative: bool,
    pub(super) amount: &'static str,
    pub(super) written: Written,
    pub(super) currency: &'static str,
    /// All must hold, else the row is not meant.
    pub(super) only: &'static [Condition],
    /// None may hold.
    pub(super) never: &'static [Condition],
    /// It counts from when this holds; `None`: at once.
    pub(super) counts: Option<Condition>,
    /// It is dead for ever once this holds.
    pub(super) dead: Option<Condition>,
    /// The amount only grows; else it is told once.
    pub(super) is_cumulative: bool,
    /// When it happened: RFC 3339, or seconds.
    pub(super) at: &'static str,
}

impl Row {
    const PLAIN: Self = Self {
        providers: &[],
        provider: "",
        types: &[],
        each: None,
        object: "sale",
        id: "",
        kind: Kind::Sale,
        is_negative: false,
        amount: "",
        written: Written::Minor,
        currency: "",
        only: &[],
        never: &[],
        counts: None,
        dead: None,
        is_cumulative: false,
        at: "",
    };
}

const SHOPIFY: Row = Row {
    providers: &["shopify", "shopify_events"],
    provider: "shopify",
    id: "/id",
    amount: "/amount",
    written: Written::Decimal,
    currency: "/currency",
    at: "/processed_at",
    ..Row::PLAIN
};

const PADDLE: Row = Row {
    providers: &["paddle"],
    provider: "paddle",
    id: "/data/id",
    written: Written::MinorText,
    currency: "/data/currency_code",
    at: "/occurred_at",
    ..Row::PLAIN
};

const PADDLE_ADJUSTMENT: Row = Row {
    types: &["adjustment.created", "adjustment.updated"],
    amount: "/data/totals/total",
    is_negative: true,
    counts: Some(("/data/status", &["approved"])),
    dead: Some(("/data/status", &["rejected", "reversed"])),
    ..PADDLE
};

const LEMON: Row = Row {
    providers: &["lemonsqueezy"],
    provider: "lemonsqueezy",
    id: "/data/id",
    amount: "/data/attributes/total",
    currency: "/data/attributes/currency",
    at: "/data/attributes/created_at",
    ..Row::PLAIN
};

const RAZORPAY: Row = Row {
    providers: &["razorpay"],
    provider: "razorpay",
    id: "/payload/payment/entity/id",
    amount: "/payload/payment/entity/amount",
    currency: "/payload/payment/entity/currency",
    at: "/created_at",
    ..Row::PLAIN
};

const SQUARE: Row = Row { providers: &["square"], provider: "square", at: "/created_at", ..Row::PLAIN };

const PAYPAL: Row = Row {
    providers: &["paypal"],
    provider: "paypal",
    id: "/resource/id",
    amount: "/resource/amount/value",
    written: Written::Decimal,
    currency: "/resource/amount/currency_code",
    at: "/create_time",
    ..Row::PLAIN
};

const TRANSACTION: Condition = ("/status", &["success"]);
const NO_TEST: Condition = ("/test", &["true"]);

/// All of them.
pub(super) const ROWS: &[Row] = &[
    // Shopify: money is the transaction; an order that says "paid" may only be authorized
    Row {
        types: &["order_transactions/create"],
        only: &[TRANSACTION, ("/kind", &["sale", "capture"])],
        never: &[NO_TEST],
        ..SHOPIFY
    },
    Row {
        types: &["order_transactions/create"],
        object: "refund",
        kind: Kind::Refund,
        is_negative: true,
        only: &[TRANSACTION, ("/kind", &["refund"])],
        never: &[NO_TEST],
        ..SHOPIFY
    },
    Row {
        types: &["refunds/create"],
        each: Some("/transactions"),
        object: "refund",
        kind: Kind::Refund,
        is_negative: true,
        only: &[TRANSACTION, ("/kind", &["refund"])],
        never: &[NO_TEST],
        ..SHOPIFY
    },
    // Paddle Billing: gross, before their fees and tax
    Row {
        types: &["transaction.completed", "transaction.paid"],
        amount: "/data/details/totals/grand_total",
        counts: Some(("/data/status", &["completed", "paid"])),
        ..PADDLE
    },
    Row {
        types: &["transaction.completed"],
        object: "fee",
        kind: Kind::Fee,
        is_negative: true,
        amount: "/data/details/totals/fee",
        counts: Some(("/data/status", &["completed"])),
        ..PADDLE
    },
    Row { object: "refund", kind: Kind::Refund, only: &[("/data/action", &["refund"])], ..PADDLE_ADJUSTMENT },
    Row {
        object: "dispute",
        kind: Kind::Dispute,
        only: &[("/data/action", &["chargeback"])],
        ..PADDLE_ADJUSTMENT
    },
    Row {
        object: "dispute",
        kind: Kind::Dispute,
        is_negative: false,
        only: &[("/data/action", &["chargeback_reverse"])],
        ..PADDLE_ADJUSTMENT
    },
    Row {
        types: &["payout.paid"],
        object: "payout",
        kind: Kind::Payout,
        is_negative: true,
        amount: "/data/amount",
        ..PADDLE
    },
    // Lemon Squeezy: the first payment of a subscription is told by its order
    Row {
        types: &["order_created"],
        only: &[("/data/type", &["orders"])],
        counts: Some(("/data/attributes/status", &["paid"])),
        ..LEMON
    },
    Row {
        types: &["subscription_payment_success", "subscription_payment_recovered"],
        never: &[("/data/attributes/billing_reason", &["initial"])],
        ..LEMON
    },
    Row {
        types: &["order_refunded", "subscription_payment_refunded"],
        object: "refund",
        kind: Kind::Refund,
        is_negative: true,
        amount: "/data/attributes/refunded_amount",
        counts: Some(("/data/attributes/status", &["refunded", "partial_refund"])),
        is_cumulative: true,
        ..LEMON
    },
    // Razorpay
    Row {
        types: &["payment.captured"],
        counts: Some(("/payload/payment/entity/status", &["captured", "refunded"])),
        ..RAZORPAY
    },
    Row {
        types: &["payment.captured"],
        object: "fee",
        kind: Kind::Fee,
        is_negative: true,
        amount: "/payload/payment/entity/fee",
        counts: Some(("/payload/payment/entity/status", &["captured", "refunded"])),
        ..RAZORPAY
    },
    Row {
        types: &["refund.created", "refund.processed", "refund.failed"],
        object: "refund",
        id: "/payload/refund/entity/id",
        kind: Kind::Refund,
        is_negative: true,
        amount: "/payload/refund/entity/amount",
        currency: "/payload/refund/entity/currency",
        counts: Some(("/payload/refund/entity/status", &["processed"])),
        dead: Some(("/payload/refund/entity/status", &["failed"])),
        ..RAZORPAY
    },
    // Square
    Row {
        types: &["payment.created", "payment.updated"],
        id: "/data/object/payment/id",
        amount: "/data/object/payment/total_money/amount",
        currency: "/data/object/payment/total_money/currency",
        counts: Some(("/data/object/payment/status", &["COMPLETED"])),
        dead: Some(("/data/object/payment/status", &["CANCELED", "FAILED"])),
        ..SQUARE
    },
    Row {
        types: &["refund.created", "refund.updated"],
        object: "refund",
        id: "/data/object/refund/id",
        kind: Kind::Refund,
        is_negative: true,
        amount: "/data/object/refund/amount_money/amount",
        currency: "/data/object/refund/amount_money/currency",
        counts: Some(("/data/object/refund/status", &["COMPLETED"])),
        dead: Some(("/data/object/refund/status", &["REJECTED", "FAILED"])),
        ..SQUARE
    },
    // PayPal
    Row {
        types: &["PAYMENT.CAPTURE.COMPLETED"],
        counts: Some(("/resource/status", &["COMPLETED", "PARTIALLY_REFUNDED", "REFUNDED"])),
        ..PAYPAL
    },
    Row {
        types: &["PAYMENT.CAPTURE.COMPLETED"],
        object: "fee",
        kind: Kind::Fee,
        is_negative: true,
        amount: "/resource/seller_receivable_breakdown/paypal_fee/value",
        currency: "/resource/seller_receivable_breakdown/paypal_fee/currency_code",
        counts: Some(("/resource/status", &["COMPLETED", "PARTIALLY_REFUNDED", "REFUNDED"])),
        ..PAYPAL
    },
    Row {
        types: &["PAYMENT.CAPTURE.REFUNDED"],
        object: "refund",
        kind: Kind::Refund,
        is_negative: true,
        counts: Some(("/resource/status", &["COMPLETED"])),
        ..PAYPAL
    },
];
