//! A shop and its provider: a random business that knows the truth, told in the words of several API generations.
//!
//! What happened is decided first and once; each generation then tells it in its own shape, to an endpoint of its own. The
//! truth is kept by the business and never computed by the rules under test.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// A fixed sequence of numbers, so that a failure can be repeated.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from((self.next() >> 11) % bound as u64).unwrap()
    }

    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + i64::try_from((self.next() >> 11) % u64::try_from(high - low + 1).unwrap()).unwrap()
    }

    pub fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for turn in (1..items.len()).rev() {
            items.swap(turn, self.below(turn + 1));
        }
    }
}

/// API generations, by the version that a webhook endpoint has.
pub const GENERATIONS: [&str; 8] = [
    "2017-12-14",
    "2019-12-03",
    "2020-08-27",
    "2023-10-16",
    "2024-10-28.acacia",
    "2025-06-30.basil",
    "2025-10-29.clover",
    "2026-10-28.endive",
];

/// What a generation can say.
#[derive(Debug, Clone, Copy)]
struct Generation {
    version: &'static str,
    /// An invoice has a status.
    has_status: bool,
    /// A charge says what was captured of it.
    has_captured: bool,
    /// A charge lists its refunds.
    lists_refunds: bool,
    /// Every refund has events of its own.
    has_refund_events: bool,
    /// Invoices have payments of their own; charges and payment intents do not name invoices.
    is_basil: bool,
    /// A payment intent names its order.
    has_reference: bool,
}

impl Generation {
    fn of(version: &'static str) -> Self {
        Self {
            version,
            has_status: version >= "2018-11-08",
            has_captured: version >= "2020-08",
            lists_refunds: version < "2022-11-15",
            has_refund_events: version >= "2024-10-28",
            is_basil: version >= "2025-03-31",
            has_reference: version >= "2025-10-29",
        }
    }
}

/// An event as it is delivered.
#[derive(Debug, Clone)]
pub struct Told {
    pub endpoint: String,
    pub id: String,
    pub event_type: &'static str,
    pub body: Value,
}

#[derive(Debug, Clone, Default)]
struct Invoice {
    id: String,
    currency: &'static str,
    status: &'static str,
    total: i64,
    due: i64,
    paid: i64,
    remaining: i64,
    notes: i64,
    overpaid: Option<i64>,
    /// Whether `amount_paid` counts what was overpaid: it is not documented.
    counts_overpaid: bool,
    /// All of it was paid outside, where the generation has a flag for it.
    is_outside: bool,
}

#[derive(Debug, Clone, Default)]
struct Charge {
    id: String,
    currency: &'static str,
    amount: i64,
    captured: i64,
    is_captured: bool,
    /// What went back to the customer.
    refunded: i64,
    /// What a capture or a cancellation released.
    released: i64,
    refunds: Vec<Refund>,
    payment_intent: Option<String>,
    invoice: Option<String>,
}

#[derive(Debug, Clone, Default)]
struct Refund {
    id: String,
    amount: i64,
    status: &'static str,
    is_release: bool,
}

/// One history: the events that the provider sends, and the truth.
#[derive(Debug)]
pub struct Shop {
    pub random: Random,
    generations: Vec<Generation>,
    pub events: Vec<Told>,
    /// (kind, currency) -> sum of the lines.
    pub truth: BTreeMap<(&'static str, &'static str), i64>,
    /// Charges of which more went back than was taken.
    pub over_reversed: BTreeSet<String>,
    /// Invoices that are not settled.
    pub open: BTreeSet<String>,
    number: u32,
}

const CURRENCIES: [&str; 6] = ["usd", "eur", "jpy", "kwd", "isk", "ugx"];

impl Shop {
    pub fn new(seed: u64, versions: &[&'static str]) -> Self {
        Self {
            random: Random::new(seed),
            generations: versions.iter().map(|version| Generation::of(version)).collect(),
            events: Vec::new(),
            truth: BTreeMap::new(),
            over_reversed: BTreeSet::new(),
            open: BTreeSet::new(),
            number: 0,
        }
    }

    /// One or two things that a shop lives through.
    pub fn history(seed: u64, versions: &[&'static str]) -> Self {
        let mut shop = Self::new(seed, versions);
        for _ in 0..=shop.random.below(2) {
            match shop.random.below(9) {
                0..=3 => shop.invoice(),
                4 | 5 => shop.checkout(),
                6 => shop.authorisation(),
                7 => shop.payout(),
                _ => shop.direct_charge(),
            }
        }
        shop.truth.retain(|_, amount| *amount != 0);
        shop
    }

    fn new_id(&mut self, prefix: &str) -> String {
        self.number += 1;
        format!("{prefix}_{:03}", self.number)
    }

    fn book(&mut self, kind: &'static str, currency: &'static str, amount: i64) {
        *self.truth.entry((kind, currency)).or_default() += amount;
    }

    /// Each generation tells it in its own words, if it has any.
    fn tell(&mut self, event_type: &'static str, words: impl Fn(Generation) -> Option<Value>) {
        for (number, generation) in self.generations.clone().into_iter().enumerate() {
            if let Some(object) = words(generation) {
                self.number += 1;
                let id = format!("evt_{number}_{:03}", self.number);
                let body = json!({
                    "id": id, "object": "event", "api_version": generation.version, "created": 1_764_000_000 + i64::from(self.number),
                    "livemode": true, "pending_webhooks": 1, "type": event_type, "data": {"object": object},
                });
                self.events.push(Told { endpoint: format!("stripe{number}"), id, event_type, body });
            }
        }
    }

    fn all(&self, can: impl Fn(&Generation) -> bool) -> bool {
        self.generations.iter().all(can)
    }

    fn any(&self, can: impl Fn(&Generation) -> bool) -> bool {
        self.generations.iter().any(can)
    }

    // -- invoices --------------------------------------------------------------------------------------------------

    pub fn invoice(&mut self) {
        let currency = self.random.pick(&CURRENCIES);
        let total = self.random.pick(&[0, 1, 500, 1000, 92_000]);
        let credit = self.random.pick(&[0, 0, 300, total]);
        let due = (total - credit).max(0);
        let mut invoice = Invoice {
            id: self.new_id("in"),
            currency,
            status: "draft",
            total,
            due,
            remaining: due,
            ..Invoice::default()
        };
        self.tell_invoice("invoice.created", &invoice);
        invoice.status = "open";
        self.tell_invoice("invoice.finalized", &invoice);
        self.book("invoiced", currency, due);
        self.book("credit_applied", currency, total - due);
        let ways =
            ["paid", "paid", "parts", "over", "outside", "void", "uncollectible", "late", "note", "open"];
        let way = self.random.pick(&ways);
        if way == "void" || (due == 0 && matches!(way, "uncollectible" | "late")) {
            invoice.status = "void";
            self.tell_invoice("invoice.voided", &invoice);
            self.book("invoiced", currency, -due);
            self.book("credit_applied", currency, due - total);
            return;
        }
        if self.random.one_in(3) {
            self.tell_invoice("invoice.payment_failed", &invoice);
        }
        if way == "open" {
            self.open.insert(invoice.id);
            return;
        }
        if way == "note" && due > 0 {
            let amount = self.random.between(1, due);
            let is_voided = amount < due && self.random.one_in(3);
            self.note_before_payment(&mut invoice, amount, is_voided);
        }
        if matches!(way, "uncollectible" | "late") {
            self.give_up(&mut invoice);
            if way == "uncollectible" {
                return;
            }
            self.book("written_off", currency, invoice.remaining);
        }
        self.settle(&mut invoice, way);
    }

    fn give_up(&mut self, invoice: &mut Invoice) {
        if invoice.due > 2 && self.random.one_in(2) {
            let amount = self.random.between(1, invoice.due / 3);
            let is_voided = self.random.one_in(3);
            self.note_before_payment(invoice, amount, is_voided);
        }
        if self.all(|generation| generation.is_basil) && invoice.due > 2 && self.random.one_in(2) {
            let amount = self.random.between(1, invoice.due / 3);
            let is_outside = self.random.one_in(3);
            self.pay(invoice, amount, is_outside);
        }
        invoice.status = "uncollectible";
        self.tell_invoice("invoice.marked_uncollectible", invoice);
        self.book("written_off", invoice.currency, -invoice.remaining);
    }

    fn settle(&mut self, invoice: &mut Invoice, way: &str) {
        let left = invoice.remaining;
        let has_parts = self.all(|generation| generation.is_basil);
        let is_outside = way == "outside";
        let mut intent = None;
        if way == "parts" && has_parts && left > 1 {
            let first = self.random.between(1, left - 1);
            let is_outside = self.random.one_in(3);
            self.pay(invoice, first, is_outside);
            self.tell_invoice("invoice.updated", invoice);
            self.pay(invoice, left - first, false);
        } else if way == "over" && has_parts && left > 0 {
            let over = self.random.pick(&[1, 50]);
            self.pay(invoice, left + over, is_outside);
            invoice.remaining = 0;
            invoice.overpaid = Some(over);
            invoice.counts_overpaid = self.random.one_in(2);
            self.book("overpaid", invoice.currency, over);
        } else {
            intent = self.pay(invoice, left, is_outside).filter(|_| !is_outside);
        }
        invoice.status = "paid";
        if invoice.overpaid.is_some() {
            self.tell_invoice("invoice.overpaid", invoice);
        }
        let mut types = ["invoice.paid", "invoice.payment_succeeded", "invoice.updated"];
        self.random.shuffle(&mut types);
        for event_type in &types[..=self.random.below(3)] {
            self.tell_invoice(event_type, invoice);
        }
        if self.any(|generation| !generation.has_status) {
            // an update without a status proves nothing but that the invoice exists
            self.tell_invoice("invoice.paid", invoice);
        }
        if let Some(intent) = intent
            && self.random.below(10) < 6
        {
            let of = invoice.id.clone();
            self.after(left, invoice.currency, Some(of), intent);
        }
    }

    fn tell_invoice(&mut self, event_type: &'static str, invoice: &Invoice) {
        self.tell(event_type, |generation| {
            let overpaid = invoice.overpaid.unwrap_or(0);
            let is_flagged = invoice.is_outside && !generation.is_basil && invoice.status == "paid";
            let counted = invoice.paid - if invoice.counts_overpaid { 0 } else { overpaid };
            let mut object = json!({
                "id": invoice.id, "object": "invoice", "customer": "cus_1", "currency": invoice.currency, "total": invoice.total,
                "amount_due": invoice.due - invoice.notes, "pre_payment_credit_notes_amount": invoice.notes,
                "amount_paid": if is_flagged { 0 } else { counted },
                "amount_remaining": if is_flagged { invoice.paid } else { invoice.remaining },
                "starting_balance": 0, "ending_balance": null, "attempt_count": 1, "number": "A-1", "lines": {"data": []},
            });
            let fields = object.as_object_mut()?;
            if generation.has_status {
                fields.insert("status".to_owned(), json!(invoice.status));
            } else {
                fields.insert("paid".to_owned(), json!(invoice.status == "paid"));
                fields.insert("closed".to_owned(), json!(matches!(invoice.status, "paid" | "void")));
            }
            if generation.is_basil {
                fields.insert("amount_overpaid".to_owned(), json!(overpaid));
            } else {
                fields.insert("paid_out_of_band".to_owned(), json!(is_flagged));
            }
            Some(object)
        });
    }

    /// The payment intent, if any.
    fn pay(&mut self, invoice: &mut Invoice, amount: i64, is_outside: bool) -> Option<String> {
        if amount == 0 {
            return None;
        }
        let currency = invoice.currency;
        invoice.paid += amount;
        invoice.remaining -= amount;
        invoice.is_outside = is_outside;
        self.book(if is_outside { "paid_outside" } else { "payment" }, currency, amount);
        let (id, means) = (self.new_id("inpay"), self.new_id("pi"));
        let kind = if is_outside { "payment_record" } else { "payment_intent" };
        let invoice_id = invoice.id.clone();
        self.tell("invoice_payment.paid", |generation| {
            generation.is_basil.then(|| {
                json!({
                    "id": id, "object": "invoice_payment", "invoice": invoice_id, "amount_paid": amount, "amount_requested": amount,
                    "currency": currency, "is_default": true, "status": "paid", "payment": {"type": kind, kind: means},
                })
            })
        });
        if !is_outside && self.random.one_in(2) {
            self.intent(&means, currency, amount, &invoice_id);
        }
        Some(means)
    }

    /// Until API 2025-03-31 a payment intent names its invoice, since 2025-10-29 its order, in between nothing.
    fn intent(&mut self, id: &str, currency: &'static str, amount: i64, of: &str) {
        self.tell("payment_intent.succeeded", |generation| {
            let mut object = json!({
                "id": id, "object": "payment_intent", "currency": currency, "amount": amount, "amount_received": amount,
                "status": "succeeded", "metadata": {},
            });
            if !generation.is_basil {
                object["invoice"] = if of.starts_with("in_") { json!(of) } else { Value::Null };
            } else if generation.has_reference {
                object["payment_details"] = json!({"order_reference": of, "customer_reference": null});
            }
            Some(object)
        });
    }

    fn note_before_payment(&mut self, invoice: &mut Invoice, amount: i64, is_voided: bool) {
        let (id, currency) = (self.new_id("cn"), invoice.currency);
        let note = Note { id, currency, pre: amount, invoice: invoice.id.clone(), ..Note::default() };
        invoice.notes += amount;
        invoice.remaining -= amount;
        self.tell_note("credit_note.created", &note, false);
        self.book("credit_note", currency, -amount);
        if is_voided {
            invoice.notes -= amount;
            invoice.remaining += amount;
            self.tell_note("credit_note.voided", &note, true);
            self.book("credit_note", currency, amount);
        }
    }

    fn tell_note(&mut self, event_type: &'static str, note: &Note, is_void: bool) {
        self.tell(event_type, |generation| {
            let kind = if note.pre > 0 { "pre_payment" } else { "post_payment" };
            let mut object = json!({
                "id": note.id, "object": "credit_note", "invoice": note.invoice, "currency": note.currency, "type": kind,
                "amount": note.pre + note.post, "status": if is_void { "void" } else { "issued" },
                "out_of_band_amount": note.outside,
            });
            let refund = note.refund.as_ref();
            if generation.is_basil {
                object["pre_payment_amount"] = json!(note.pre);
                object["post_payment_amount"] = json!(note.post);
                let refunds = refund.map(|(id, amount)| json!({"refund": id, "amount_refunded": amount}));
                object["refunds"] = Value::Array(refunds.into_iter().collect());
            } else {
                object["refund"] = json!(refund.map(|(id, _)| id));
            }
            Some(object)
        });
    }

    // -- sales -----------------------------------------------------------------------------------------------------

    pub fn checkout(&mut self) {
        let (currency, amount) = (self.random.pick(&CURRENCIES), self.random.between(1, 9_999));
        let (session, intent, makes_invoice) = (self.new_id("cs"), self.new_id("pi"), self.random.one_in(3));
        let way = self.random.pick(&["both", "session", "intent"]);
        if way != "intent" || makes_invoice {
            self.tell("checkout.session.completed", |_| {
                Some(json!({
                    "id": session, "object": "checkout.session", "mode": "payment", "payment_status": "paid", "currency": currency,
                    "amount_total": amount, "payment_intent": intent, "invoice": null, "client_reference_id": null,
                    "invoice_creation": {"enabled": makes_invoice}, "metadata": {},
                }))
            });
        }
        if way != "session" {
            self.intent(&intent, currency, amount, &session);
        }
        let mut of = None;
        if makes_invoice {
            let id = self.new_id("in");
            of = Some(id.clone());
            let (total, due, paid) = (amount, amount, amount);
            let invoice = Invoice { id, currency, status: "paid", total, due, paid, ..Invoice::default() };
            self.tell_invoice("invoice.paid", &invoice);
            self.book("invoiced", currency, amount);
            self.book("payment", currency, amount);
        } else {
            self.book("sale", currency, amount);
        }
        if self.random.one_in(2) {
            self.after(amount, currency, of, intent);
        }
    }

    /// A charge of the time before payment intents: it is the sale.
    pub fn direct_charge(&mut self) {
        let (currency, amount) = (self.random.pick(&CURRENCIES), self.random.between(10, 9_999));
        let id = self.new_id("ch");
        let charge =
            Charge { id, currency, amount, captured: amount, is_captured: true, ..Charge::default() };
        self.book("sale", currency, amount);
        self.reverse(charge);
    }

    /// A charge that was authorised first: captured in part, in two parts, or cancelled.
    pub fn authorisation(&mut self) {
        let currency = self.random.pick(&CURRENCIES);
        let (id, intent) = (self.new_id("ch"), self.new_id("pi"));
        let mut charge =
            Charge { id, currency, amount: 1000, payment_intent: Some(intent.clone()), ..Charge::default() };
        self.tell_charge("charge.succeeded", &charge);
        let release = |shop: &mut Self, charge: &mut Charge, amount: i64| {
            charge.released = amount;
            let id = shop.new_id("re");
            charge.refunds.push(Refund { id, amount, status: "succeeded", is_release: true });
            shop.tell("charge.refunded", |generation| {
                (!generation.is_basil).then(|| charge_object(charge, generation))
            });
            let refund = charge.refunds[charge.refunds.len() - 1].clone();
            shop.tell_refund("refund.created", &refund, charge);
        };
        if self.random.below(10) < 4 {
            release(self, &mut charge, 1000);
            self.tell_charge("charge.expired", &charge);
            return;
        }
        charge.is_captured = true;
        if self.random.one_in(3) && self.all(|generation| generation.is_basil) {
            charge.captured = 300;
            self.tell_charge("charge.updated", &charge);
        }
        charge.captured = 700;
        release(self, &mut charge, 300);
        self.tell_charge("charge.captured", &charge);
        self.book("sale", currency, 700);
        self.intent(&intent, currency, 700, "cs_1");
        if self.random.below(10) < 7 {
            self.refund(&mut charge, 200);
        }
    }

    /// What happens to a charge after it was captured.
    fn after(&mut self, amount: i64, currency: &'static str, invoice: Option<String>, intent: String) {
        let id = self.new_id("ch");
        self.reverse(Charge {
            id,
            currency,
            amount,
            captured: amount,
            is_captured: true,
            payment_intent: Some(intent),
            invoice,
            ..Charge::default()
        });
    }

    fn reverse(&mut self, mut charge: Charge) {
        let (amount, currency) = (charge.amount, charge.currency);
        self.tell_charge("charge.succeeded", &charge);
        for _ in 0..self.random.below(4) {
            let left = charge.captured - charge.refunded;
            if left <= 0 {
                break;
            }
            let part = self.random.between(1, left);
            let refund = self.refund(&mut charge, part);
            let tells_amount =
                self.any(|generation| generation.has_refund_events || generation.lists_refunds);
            let invoice = charge.invoice.clone().filter(|_| tells_amount && self.random.one_in(3));
            if let Some(invoice) = invoice {
                let (extra, outside) = (self.random.pick(&[0, 7]), self.random.pick(&[0, 0, 3]));
                let note = Note {
                    id: self.new_id("cn"),
                    currency,
                    post: part + extra + outside,
                    outside,
                    invoice,
                    refund: Some((refund.clone(), part)),
                    ..Note::default()
                };
                self.tell_note("credit_note.created", &note, false);
                self.book("credit_to_balance", currency, -extra);
                self.book("credit_outside", currency, -outside);
            }
            if self.random.one_in(4) {
                self.fail_refund(&mut charge);
                // what comes after it would not be determined where refunds have no names
                break;
            }
        }
        if self.random.below(10) < 4 {
            self.dispute(&charge, amount);
        }
    }

    fn refund(&mut self, charge: &mut Charge, amount: i64) -> String {
        let id = self.new_id("re");
        let first = self.random.pick(&["pending", "succeeded", "requires_action"]);
        charge.refunded += amount;
        charge.refunds.push(Refund { id: id.clone(), amount, status: first, is_release: false });
        self.tell_charge("charge.refunded", charge);
        self.book("refund", charge.currency, -amount);
        let mut refund = charge.refunds[charge.refunds.len() - 1].clone();
        self.tell_refund("refund.created", &refund, charge);
        refund.status = "succeeded";
        charge.refunds.last_mut().unwrap().status = "succeeded";
        self.tell_refund("refund.updated", &refund, charge);
        id
    }

    fn fail_refund(&mut self, charge: &mut Charge) {
        let refund = charge.refunds.last_mut().unwrap();
        refund.status = if refund.amount % 2 == 0 { "failed" } else { "canceled" };
        let refund = refund.clone();
        let (charge_id, currency) = (charge.id.clone(), charge.currency);
        self.tell("charge.refund.updated", |_| Some(refund_object(&refund, &charge_id, currency)));
        self.tell_refund("refund.failed", &refund, charge);
        charge.refunded -= refund.amount;
        self.book("refund", currency, refund.amount);
    }

    fn tell_refund(&mut self, event_type: &'static str, refund: &Refund, charge: &Charge) {
        let (charge_id, currency) = (charge.id.clone(), charge.currency);
        self.tell(event_type, |generation| {
            let is_told = generation.has_refund_events && !(refund.is_release && generation.is_basil);
            is_told.then(|| refund_object(refund, &charge_id, currency))
        });
    }

    fn tell_charge(&mut self, event_type: &'static str, charge: &Charge) {
        self.tell(event_type, |generation| Some(charge_object(charge, generation)));
    }

    // -- disputes and payouts --------------------------------------------------------------------------------------

    fn dispute(&mut self, charge: &Charge, amount: i64) {
        let mut dispute = Dispute {
            id: self.new_id("dp"),
            charge: charge.id.clone(),
            currency: charge.currency,
            amount,
            status: "needs_response",
            moves: Vec::new(),
        };
        if self.random.one_in(3) {
            dispute.status = "warning_needs_response";
            self.tell_dispute("charge.dispute.created", &dispute);
            if self.random.below(10) < 6 {
                dispute.status = "warning_closed";
                return self.tell_dispute("charge.dispute.closed", &dispute);
            }
            dispute.status = "needs_response";
        }
        let settled = self.random.pick(&[charge.currency, "gbp"]);
        self.move_funds(&mut dispute, -1, 1500, settled);
        self.tell_dispute("charge.dispute.created", &dispute);
        self.tell_dispute("charge.dispute.funds_withdrawn", &dispute);
        dispute.status = "under_review";
        self.tell_dispute("charge.dispute.updated", &dispute);
        dispute.status = self.random.pick(&["won", "lost"]);
        let is_late_win = dispute.status == "lost" && self.random.one_in(5);
        if dispute.status == "won" {
            let fee = self.random.pick(&[0, -1500]);
            self.move_funds(&mut dispute, 1, fee, settled);
            self.tell_dispute("charge.dispute.funds_reinstated", &dispute);
        }
        self.tell_dispute("charge.dispute.closed", &dispute);
        if is_late_win {
            dispute.status = "won";
            self.move_funds(&mut dispute, 1, 0, settled);
            self.tell_dispute("charge.dispute.funds_reinstated", &dispute);
        }
        let is_lost = dispute.status == "lost" && settled == charge.currency;
        if is_lost && charge.refunded + amount > charge.captured {
            self.over_reversed.insert(format!("charge:{}", charge.id));
        }
    }

    fn move_funds(&mut self, dispute: &mut Dispute, sign: i64, fee: i64, currency: &'static str) {
        let id = self.new_id("txn");
        dispute.moves.push((id, sign * dispute.amount, fee, currency));
        self.book("dispute", currency, sign * dispute.amount);
        self.book("dispute_fee", currency, -fee);
    }

    fn tell_dispute(&mut self, event_type: &'static str, dispute: &Dispute) {
        self.tell(event_type, |_| {
            let moves = dispute.moves.iter().map(|(id, amount, fee, currency)| {
                json!({"id": id, "object": "balance_transaction", "amount": amount, "fee": fee, "net": amount - fee, "currency": currency,
                       "reporting_category": "dispute"})
            });
            Some(json!({
                "id": dispute.id, "object": "dispute", "charge": dispute.charge, "amount": dispute.amount,
                "currency": dispute.currency, "status": dispute.status, "reason": "general",
                "balance_transactions": moves.collect::<Vec<_>>(),
            }))
        });
    }

    pub fn payout(&mut self) {
        let (id, amount, currency) =
            (self.new_id("po"), self.random.between(1, 9_999), self.random.pick(&CURRENCIES));
        let object = |status: &str| json!({"id": id, "object": "payout", "amount": amount, "currency": currency, "status": status, "arrival_date": 1});
        self.tell("payout.created", |_| Some(object("pending")));
        let status = self.random.pick(&["in_transit", "paid"]);
        self.tell("payout.paid", |_| Some(object(status)));
        self.book("payout", currency, -amount);
        if self.random.one_in(3) {
            self.tell("payout.failed", |_| Some(object("failed")));
            self.book("payout", currency, amount);
        }
        if self.random.one_in(3) {
            let id = self.new_id("tu");
            let object = |status: &str| json!({"id": id, "object": "topup", "amount": amount, "currency": currency, "status": status});
            self.tell("topup.created", |_| Some(object("pending")));
            self.tell("topup.succeeded", |_| Some(object("succeeded")));
            self.book("topup", currency, amount);
            if self.random.one_in(3) {
                self.tell("topup.reversed", |_| Some(object("reversed")));
                self.book("topup", currency, -amount);
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Note {
    id: String,
    currency: &'static str,
    pre: i64,
    post: i64,
    outside: i64,
    invoice: String,
    refund: Option<(String, i64)>,
}

#[derive(Debug, Clone)]
struct Dispute {
    id: String,
    charge: String,
    currency: &'static str,
    amount: i64,
    status: &'static str,
    moves: Vec<(String, i64, i64, &'static str)>,
}

fn charge_object(charge: &Charge, generation: Generation) -> Value {
    // since API 2025-03-31 what is released is no refund
    let released = if generation.is_basil { 0 } else { charge.released };
    let mut object = json!({
        "id": charge.id, "object": "charge", "amount": charge.amount, "amount_refunded": charge_refunded(charge) + released,
        "captured": charge.is_captured, "currency": charge.currency, "status": "succeeded", "paid": true,
    });
    let fields = object.as_object_mut().unwrap();
    name_payment(charge, generation, fields);
    if generation.has_captured {
        fields.insert("amount_captured".to_owned(), json!(charge.captured));
    }
    if generation.lists_refunds {
        let newest: Vec<_> = charge
            .refunds
            .iter()
            .rev()
            .take(10)
            .map(|refund| refund_object(refund, &charge.id, charge.currency))
            .collect();
        fields.insert("refunds".to_owned(), json!({"object": "list", "data": newest, "has_more": false}));
    }
    object
}

/// The cumulative amount does not fall when a refund fails.
fn charge_refunded(charge: &Charge) -> i64 {
    charge.refunds.iter().filter(|refund| !refund.is_release).map(|refund| refund.amount).sum()
}

fn name_payment(charge: &Charge, generation: Generation, fields: &mut Map<String, Value>) {
    if !generation.is_basil {
        fields.insert("invoice".to_owned(), json!(charge.invoice));
    }
    if generation.version >= "2019" || charge.payment_intent.is_some() {
        fields.insert("payment_intent".to_owned(), json!(charge.payment_intent));
    }
}

fn refund_object(refund: &Refund, charge: &str, currency: &str) -> Value {
    json!({
        "id": refund.id, "object": "refund", "amount": refund.amount, "currency": currency, "charge": charge,
        "status": refund.status, "reason": null, "balance_transaction": null,
    })
}
