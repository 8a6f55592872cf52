//! One event at work on the books: its facts are joined, and the objects that they touch are settled.
//!
//! Everything happens in the event's transaction; a [`Refusal`] undoes all of it.

use rusqlite::Transaction;
use serde_json::{Map, Value};

use crate::books::facts::{self, BooksError, Evidence, Told};
use crate::books::invoices::{self, Invoice};
use crate::books::kinds::Kind;
use crate::books::ledger::{self, Cause, Entry, Object, Target};
use crate::books::{charges, credit_notes, disputes, payouts, receivables, sales};
use crate::handlers::fields::{amount, currency, reference, signed_amount, time_ms};
use crate::handlers::{Event, Message, notify};
use crate::store::inbox::queue;
use crate::store::reviews;

/// Why an event is not applied.
#[derive(Debug)]
pub(super) enum Refusal {
    /// SQLite refused a statement: the event is tried again.
    Sql(rusqlite::Error),
    /// The event cannot be read. The sentence says why, without personal data.
    Unreadable(String),
    /// It cannot be true together with what is known, or with itself.
    Contradiction(String),
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<BooksError> for Refusal {
    fn from(error: BooksError) -> Self {
        match error {
            BooksError::Sql(error) => Self::Sql(error),
            BooksError::Contradiction(reason) => Self::Contradiction(reason),
        }
    }
}

/// An event and the transaction it is applied in.
#[derive(Clone, Copy)]
pub(super) struct Journal<'a> {
    pub(super) tx: &'a Transaction<'a>,
    pub(super) event: &'a Event<'a>,
}

impl Journal<'_> {
    /// Sets a field of an object once. Whether it is told for the first time.
    pub(super) fn once<'v>(
        &self,
        object: &str,
        field: &str,
        value: impl Into<Told<'v>>,
    ) -> Result<bool, Refusal> {
        Ok(facts::once(self.tx, (object, field), value, self.event.id)?)
    }

    /// Raises a maximum.
    pub(super) fn most(&self, object: &str, field: &str, value: i64) -> Result<(), Refusal> {
        facts::most(self.tx, (object, field), value, self.event.id)?;
        Ok(())
    }

    /// From now on this is so. Whether it was not before.
    pub(super) fn mark(&self, object: &str, field: &str) -> Result<bool, Refusal> {
        Ok(facts::mark(self.tx, (object, field), self.event.id)?)
    }

    /// Whether a field of an object is known.
    pub(super) fn is_known(&self, object: &str, field: &str) -> Result<bool, Refusal> {
        Ok(facts::number(self.tx, object, field)?.is_some())
    }

    /// All that is known of an object.
    pub(super) fn evidence(&self, object: &str) -> Result<Evidence, Refusal> {
        Ok(Evidence::of(self.tx, object)?)
    }

    /// Notes whose object it is: one account, and live or a test.
    pub(super) fn whose(&self, object: &str) -> Result<(), Refusal> {
        if let Some(livemode) = self.event.livemode {
            self.once(object, "livemode", i64::from(livemode))?;
        }
        if let Some(account) = self.event.account {
            self.once(object, "account", account)?;
        }
        Ok(())
    }

    /// Settles a charge.
    pub(super) fn settle_charge(&self, id: &str) -> Result<(), Refusal> {
        let object = format!("charge:{id}");
        let charge = self.evidence(&object)?;
        let entries = self.settle(&object, None, &charges::target(&charge))?;
        self.tell_refunds(id, &entries)?;
        self.ask_whether_over_reversed(&object, &charge)
    }

    /// Settles a refund that may have no charge.
    pub(super) fn settle_refund(&self, id: &str) -> Result<(), Refusal> {
        let object = format!("refund:{id}");
        let refund = self.evidence(&object)?;
        let entries = self.settle(&object, None, &charges::target_of_refund(&refund))?;
        self.tell_refunds(id, &entries)
    }

    /// Settles a payment intent.
    pub(super) fn settle_payment(&self, id: &str) -> Result<(), Refusal> {
        let object = format!("payment_intent:{id}");
        let target = sales::target(&self.evidence(&object)?);
        self.settle(&object, None, &target)?;
        Ok(())
    }

    /// Settles a dispute, and returns what is known of it.
    pub(super) fn settle_dispute(&self, id: &str) -> Result<Evidence, Refusal> {
        let object = format!("dispute:{id}");
        let dispute = self.evidence(&object)?;
        self.settle(&object, None, &disputes::target(id, &dispute)?)?;
        Ok(dispute)
    }

    /// Settles a credit note.
    pub(super) fn settle_credit_note(&self, id: &str) -> Result<(), Refusal> {
        let object = format!("credit_note:{id}");
        let note = self.evidence(&object)?;
        self.settle(&object, note.text("invoice"), &credit_notes::target(id, &note)?)?;
        Ok(())
    }

    /// Settles a payout or a top-up.
    pub(super) fn settle_transfer(&self, object: &str) -> Result<(), Refusal> {
        let evidence = self.evidence(object)?;
        let target = if object.starts_with("topup:") {
            payouts::target_of_topup(&evidence)
        } else {
            payouts::target(&evidence)
        };
        self.settle(object, None, &target)?;
        Ok(())
    }

    /// Settles an invoice of which a payment or a credit note was told.
    pub(super) fn settle_invoice(&self, id: &str) -> Result<(), Refusal> {
        let row = invoices::find(self.tx, id)?;
        self.settle_known_invoice(id, row.as_ref())
    }

    /// As [`Journal::settle_invoice`], where its row was just read.
    pub(super) fn settle_known_invoice(&self, id: &str, row: Option<&Invoice>) -> Result<(), Refusal> {
        let object = format!("invoice:{id}");
        let evidence = self.evidence(&object)?;
        let known = receivables::Invoice {
            id,
            status: row.map(|row| row.status),
            currency: row.and_then(|row| row.currency.as_deref()),
            amount_paid: row.map_or(0, |row| row.amount_paid),
            asked: row.and_then(|row| row.amount_due.zip(row.total)),
        };
        let target = receivables::target(&known, &evidence)?;
        let entries = self.settle(&object, Some(id), &target)?;
        // only the booking itself tells others: entries stay for ever, delivered outbox rows do not
        for entry in entries.iter().filter(|entry| entry.kind == Kind::Payment) {
            let customer = row.and_then(|row| row.customer_id.as_deref());
            let facts = [
                ("invoice", id.into()),
                ("customer", customer.into()),
                ("amount", entry.amount.into()),
                ("currency", entry.currency.as_str().into()),
            ];
            self.tell("InvoicePaymentBooked", entry.entry_key.clone(), id, facts)?;
        }
        Ok(())
    }

    fn settle(&self, object: &str, invoice_id: Option<&str>, target: &Target) -> Result<Vec<Entry>, Refusal> {
        let event = self.event;
        let cause = Cause {
            event_id: event.id,
            endpoint: event.endpoint,
            account: event.account,
            livemode: event.livemode,
            occurred_at_ms: time_ms(&event.body["created"]),
            now_ms: event.now_ms,
        };
        Ok(ledger::settle(self.tx, Object { name: object, invoice_id }, target, &cause)?)
    }

    fn tell_refunds(&self, id: &str, entries: &[Entry]) -> Result<(), Refusal> {
        for entry in entries.iter().filter(|entry| entry.kind == Kind::Refund && entry.amount < 0) {
            let facts = [
                ("of", id.into()),
                ("amount", entry.amount.saturating_neg().into()),
                ("currency", entry.currency.as_str().into()),
            ];
            self.tell("PaymentRefunded", entry.entry_key.clone(), id, facts)?;
        }
        Ok(())
    }

    /// Tells others of a fact, where the endpoint names a destination for it.
    pub(super) fn tell<const N: usize>(
        &self,
        topic: &'static str,
        operation_key: String,
        object_id: &str,
        facts: [(&str, Value); N],
    ) -> Result<(), Refusal> {
        if self.event.notify.is_none() {
            return Ok(());
        }
        let facts: Map<_, _> = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let message =
            Message { topic, operation_key, object_id: object_id.to_owned(), facts: Value::Object(facts) };
        Ok(notify(self.tx, self.event, message)?)
    }

    /// Events that contradicted what was known of the invoice and of its credit notes are tried again: what is known has
    /// changed.
    pub(super) fn try_again(&self, invoice: &str) -> Result<(), Refusal> {
        let notes = facts::members(self.tx, &format!("invoice:{invoice}"), "note")?;
        let objects: Vec<_> = std::iter::once(invoice.to_owned()).chain(notes).collect();
        let objects = serde_json::json!(objects).to_string();
        Ok(queue::requeue_about(self.tx, self.event.endpoint, &objects, self.event.now_ms)?)
    }

    /// A refund and a dispute of one charge are both real, and together they can be more than was taken: it is booked,
    /// and a person is asked for as long as it is so.
    pub(super) fn ask_whether_over_reversed(&self, object: &str, charge: &Evidence) -> Result<(), Refusal> {
        let refunded = charges::returned(charge);
        let is_disputed = charge.members("dispute").next().is_some();
        let (Some(captured), Some(currency)) = (charges::captured(charge), charge.text("currency")) else {
            return Ok(());
        };
        if refunded == 0 && !is_disputed {
            return Ok(());
        }
        let mut disputed = 0;
        for (id, _) in charge.members("dispute") {
            let dispute = self.evidence(&format!("dispute:{id}"))?;
            disputed -= disputes::target(id, &dispute)?.amount(Kind::Dispute, currency);
        }
        let (kind, now_ms) = (reviews::Kind::OverReversed, self.event.now_ms);
        if refunded + disputed <= captured {
            let note = "refunds and disputes are no longer above what was captured";
            reviews::close_on_object(self.tx, kind, object, note, now_ms)?;
            return Ok(());
        }
        let reason = format!(
            "{} has gone back {}, and {captured} was captured (minor units of {currency}): {refunded} by refunds, \
             {disputed} by disputes; it is booked",
            refunded + disputed,
            format_args!("of {}", facts::id_of(object))
        );
        let about = (self.event.endpoint, self.event.id);
        reviews::open_on_object(self.tx, kind, object, about, &reason, now_ms)?;
        Ok(())
    }
}

/// An amount that the books are made from.
pub(super) fn money(object: &Value, field: &str, id: &str) -> Result<i64, Refusal> {
    amount(object.get(field)).map_err(|problem| Refusal::Contradiction(format!("{field} {problem} ({id})")))
}

/// As [`money`]; `None` where the field is missing.
pub(super) fn known_money(object: &Value, field: &str, id: &str) -> Result<Option<i64>, Refusal> {
    if object[field].is_null() { Ok(None) } else { money(object, field, id).map(Some) }
}

/// As [`money`], of an amount that may be negative.
pub(super) fn signed_money(object: &Value, field: &str, id: &str) -> Result<i64, Refusal> {
    signed_amount(object.get(field))
        .map_err(|problem| Refusal::Contradiction(format!("{field} {problem} ({id})")))
}

/// The currency of an object, which it must name.
pub(super) fn currency_of(object: &Value, what: &str, id: &str) -> Result<String, Refusal> {
    currency(&object["currency"])
        .map_err(Refusal::Unreadable)?
        .ok_or_else(|| Refusal::Unreadable(format!("{what} without a currency ({id})")))
}

/// The id in a field that may be missing.
pub(super) fn id_in<'a>(object: &'a Value, field: &str) -> Result<Option<&'a str>, Refusal> {
    reference(&object[field], field).map_err(Refusal::Unreadable)
}
