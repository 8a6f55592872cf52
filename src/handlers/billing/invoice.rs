//! Invoices: the state of each, what it asks for, and what came in for it.
//!
//! **What an event proves.** Its type names the state the invoice has been in. `invoice.updated` names none: it proves
//! what its snapshot's `status` says, by the same table, however stale or early it is. So a snapshot that says `paid`
//! counts like `invoice.paid` does: an endpoint that is sent only one of the two misses nothing.
//!
//! **What it tells of money.** A final invoice: total and amount due. A paid one: the amount paid. An open one: a part,
//! where the snapshot says what remains. Since API 2025-03-31 the amount paid includes what was paid outside Stripe, and
//! only the event `invoice_payment.paid` tells the two apart; before, the invoice has a flag, and the amount excludes it.
//! A payment of zero (trial, full discount, credit balance) moves the state and books nothing.

use serde_json::{Value, json};

use super::journal::{Journal, Refusal, currency_of, id_in, known_money, money, signed_money};
use super::own_id;
use crate::books::invoices::{self, Report, Status, Step};
use crate::handlers::Handled;
use crate::handlers::fields::{amount, currency, id_text};

/// What an event of some type proves by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// The invoice has been in this state.
    Of(Status),
    /// A payment came in: of the whole invoice, unless the snapshot says that some is left to pay.
    OfPayment,
    /// Only what the snapshot says.
    OfSnapshot,
}

/// Every event type that is read here. Other `invoice.*` types tell nothing that is kept here, and
/// `invoice.upcoming` is about an invoice that does not exist.
const PROOFS: [(&str, Proof); 10] = [
    ("invoice.created", Proof::Of(Status::Draft)),
    ("invoice.finalized", Proof::Of(Status::Open)),
    ("invoice.payment_failed", Proof::Of(Status::Open)),
    ("invoice.marked_uncollectible", Proof::Of(Status::Uncollectible)),
    ("invoice.paid", Proof::Of(Status::Paid)),
    ("invoice.payment_succeeded", Proof::OfPayment),
    ("invoice.voided", Proof::Of(Status::Void)),
    ("invoice.deleted", Proof::Of(Status::Deleted)),
    ("invoice.updated", Proof::OfSnapshot),
    ("invoice.overpaid", Proof::OfSnapshot),
];

pub(super) fn proof_of(event_type: &str) -> Option<Proof> {
    PROOFS.iter().find(|(name, _)| *name == event_type).map(|(_, proof)| *proof)
}

pub(super) fn apply(journal: &Journal<'_>, invoice: &Value, proof: Proof) -> Result<Handled, Refusal> {
    let told = Told::read(invoice, proof)?;
    let noted = invoices::note(journal.tx, &told.report(journal), journal.event.now_ms)?;
    let object = format!("invoice:{}", told.id);
    if let Some(paid) = told.part.filter(|paid| *paid > 0) {
        journal.most(&object, "paid", paid)?;
    }
    if let Some(outside) = told.outside.filter(|outside| *outside > 0) {
        journal.once(&object, "outside", outside)?;
    }
    if told.is_overpaid && told.proved == Status::Paid {
        journal.mark(&object, "overpaid")?;
    }
    journal.settle_known_invoice(told.id, Some(&noted.invoice))?;
    if noted.has_moved && noted.invoice.status == Status::Paid {
        let facts = [
            ("invoice", told.id.into()),
            ("customer", json!(noted.invoice.customer_id)),
            ("amount_paid", noted.invoice.amount_paid.into()),
            ("currency", json!(noted.invoice.currency)),
        ];
        journal.tell("InvoicePaid", format!("invoice-paid:{}", told.id), told.id, facts)?;
    }
    Ok(Handled::Applied)
}

/// One payment of an invoice: the only event that says whether money came through Stripe.
pub(super) fn apply_payment(journal: &Journal<'_>, payment: &Value) -> Result<Handled, Refusal> {
    let id = own_id(payment, "invoice payment")?;
    let invoice = id_in(payment, "invoice")?
        .ok_or_else(|| Refusal::Unreadable(format!("an invoice payment without an invoice ({id})")))?;
    let paid = money(payment, "amount_paid", id)?;
    let currency = currency_of(payment, "a payment", id)?;
    let means = &payment["payment"];
    let (field, other) = match means["type"].as_str() {
        Some("payment_intent" | "charge") => ("part", "outside_part"),
        Some("payment_record") => ("outside_part", "part"),
        _ => return Err(Refusal::Unreadable(format!("the kind of an invoice payment is not known ({id})"))),
    };
    let object = format!("invoice:{invoice}");
    journal.once(&object, "currency", currency.as_str())?;
    journal.once(&object, &format!("{field}:{id}"), paid)?;
    if journal.is_known(&object, &format!("{other}:{id}"))? {
        return Err(Refusal::Contradiction(format!(
            "an invoice payment both inside and outside Stripe ({id})"
        )));
    }
    journal.settle_invoice(invoice)?;
    if let Some(intent) = id_in(means, "payment_intent")? {
        journal.mark(&format!("payment_intent:{intent}"), "of_invoice")?;
        journal.settle_payment(intent)?;
    }
    if let Some(charge) = id_in(means, "charge")? {
        journal.mark(&format!("charge:{charge}"), "of_invoice")?;
        journal.settle_charge(charge)?;
    }
    Ok(Handled::Applied)
}

/// What an event says, read and checked.
#[derive(Debug)]
struct Told<'a> {
    id: &'a str,
    customer_id: Option<&'a str>,
    currency: Option<String>,
    proved: Status,
    /// What was paid as a whole, inside and outside the provider; 0 unless `proved` is paid.
    amount_paid: i64,
    /// Of a final invoice: the amount due before any credit note, and the total.
    asked: Option<(i64, i64)>,
    /// The cumulative amount paid of one that is still open.
    part: Option<i64>,
    /// What was paid outside the provider, where the invoice has a flag for it.
    outside: Option<i64>,
    is_overpaid: bool,
}

impl<'a> Told<'a> {
    fn read(invoice: &'a Value, proof: Proof) -> Result<Self, Refusal> {
        let id = own_id(invoice, "invoice")?;
        let snapshot = snapshot_status(&invoice["status"]).map_err(Refusal::Unreadable)?;
        let proved = proved(invoice, proof, snapshot).map_err(Refusal::Contradiction)?;
        let amount_paid = if proved == Status::Paid { money(invoice, "amount_paid", id)? } else { 0 };
        let customer_id = customer_id(&invoice["customer"]).map_err(Refusal::Unreadable)?;
        let currency = currency(&invoice["currency"]).map_err(Refusal::Unreadable)?;
        if amount_paid > 0 && currency.is_none() {
            return Err(Refusal::Unreadable(format!("a payment without a currency ({id})")));
        }
        let outside = paid_outside(invoice, id)?;
        let remaining = outside.and(known_money(invoice, "amount_remaining", id)?).unwrap_or(0);
        let amount_paid = match outside {
            Some(outside) if proved == Status::Paid => outside.max(amount_paid.saturating_add(remaining)),
            _ => amount_paid,
        };
        Ok(Self {
            id,
            customer_id,
            proved,
            amount_paid,
            asked: asked(invoice, snapshot.unwrap_or(proved), id)?.filter(|_| currency.is_some()),
            part: if proved == Status::Paid { None } else { part(invoice, snapshot, id)? },
            outside,
            is_overpaid: known_money(invoice, "amount_overpaid", id)?.is_some_and(|overpaid| overpaid > 0),
            currency,
        })
    }

    fn report<'b>(&'b self, journal: &'b Journal<'_>) -> Report<'b> {
        Report {
            id: self.id,
            customer_id: self.customer_id,
            currency: self.currency.as_deref(),
            proved: self.proved,
            amount_paid: self.amount_paid,
            is_overpaid: self.is_overpaid,
            account: journal.event.account,
            livemode: journal.event.livemode,
            asked: self.asked,
        }
    }
}

/// What a final invoice asks for: before any credit note, and in total, which may be negative. A void one asks for nothing.
fn asked(invoice: &Value, status: Status, id: &str) -> Result<Option<(i64, i64)>, Refusal> {
    let is_final = matches!(status, Status::Open | Status::Uncollectible | Status::Paid);
    if !is_final || invoice["total"].is_null() || invoice["amount_due"].is_null() {
        return Ok(None);
    }
    let notes = known_money(invoice, "pre_payment_credit_notes_amount", id)?.unwrap_or(0);
    let due = money(invoice, "amount_due", id)?
        .checked_add(notes)
        .ok_or_else(|| Refusal::Contradiction(format!("an amount of more than 64 bits ({id})")))?;
    Ok(Some((due, signed_money(invoice, "total", id)?)))
}

/// What was paid of an invoice that is not paid as a whole: told where the snapshot also says what remains.
fn part(invoice: &Value, snapshot: Option<Status>, id: &str) -> Result<Option<i64>, Refusal> {
    let may_be_partial = !matches!(snapshot, Some(Status::Draft | Status::Deleted));
    if !may_be_partial || invoice["amount_remaining"].is_null() {
        return Ok(None);
    }
    known_money(invoice, "amount_paid", id)
}

/// What was paid outside the provider, by the flag that invoices have until API 2025-03-31: what the provider still
/// counts as remaining or, where it counts nothing so, all that it counts as paid.
fn paid_outside(invoice: &Value, id: &str) -> Result<Option<i64>, Refusal> {
    if invoice["paid_out_of_band"] != Value::Bool(true) {
        return Ok(None);
    }
    for field in ["amount_remaining", "amount_paid", "amount_due"] {
        if let Some(amount) = known_money(invoice, field, id)?.filter(|amount| *amount > 0) {
            return Ok(Some(amount));
        }
    }
    Ok(None)
}

/// The state that the event proves.
fn proved(invoice: &Value, proof: Proof, snapshot: Option<Status>) -> Result<Status, String> {
    let proved = match (proof, snapshot) {
        (Proof::OfPayment, _) if is_unpaid(invoice, snapshot)? => snapshot.unwrap_or(Status::Open),
        (Proof::OfPayment, _) => Status::Paid,
        (Proof::Of(Status::Paid), _) if is_unpaid(invoice, snapshot)? => {
            return Err("the event says paid, its invoice says that some is left to pay".to_owned());
        }
        (Proof::Of(status), _) => status,
        (Proof::OfSnapshot, Some(snapshot)) => snapshot,
        // Without a state that is known here, an update proves no more than that the invoice exists.
        (Proof::OfSnapshot, None) => Status::Draft,
    };
    match invoices::step(snapshot, proved) {
        Step::Move | Step::Stay => Ok(proved),
        Step::Contradiction(what) => Err(format!("the event contradicts itself: {what}")),
    }
}

/// Whether the snapshot says that some is left to pay. Since API 2025-03-31 an invoice can take several
/// payments, each of which succeeds; it stays open until the last. One that says paid or void is believed, by its status or,
/// before 2018-11, by its flag.
fn is_unpaid(invoice: &Value, snapshot: Option<Status>) -> Result<bool, String> {
    let is_settled = matches!(snapshot, Some(Status::Paid | Status::Void | Status::Deleted))
        // what was paid outside Stripe stays in `amount_remaining` before that date
        || invoice["paid"] == Value::Bool(true)
        || invoice["paid_out_of_band"] == Value::Bool(true);
    match &invoice["amount_remaining"] {
        _ if is_settled => Ok(false),
        Value::Null => Ok(false),
        left => {
            amount(Some(left)).map(|left| left > 0).map_err(|problem| format!("amount_remaining {problem}"))
        }
    }
}

/// Stripe's states, an unknown one (they may add some) and none at all (before 2018-11) read alike.
fn snapshot_status(status: &Value) -> Result<Option<Status>, String> {
    match status {
        Value::Null => Ok(None),
        Value::String(name) => Ok(Status::parse(name)),
        _ => Err("the invoice's status is not text".to_owned()),
    }
}

/// A string, an expanded or deleted object, or nobody.
fn customer_id(customer: &Value) -> Result<Option<&str>, String> {
    let (id, problem_with) = match customer {
        Value::Object(expanded) => (expanded.get("id").unwrap_or(&Value::Null), "the customer's id"),
        other => (other, "the customer"),
    };
    let id = id_text(id).map_err(|problem| format!("{problem_with} {problem}"))?;
    if id.is_none() && customer.is_object() {
        return Err("the customer has no id".to_owned());
    }
    Ok(id)
}
