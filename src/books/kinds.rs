//! The kinds of lines in the books: which two accounts each of them moves.
//!
//! A line has one signed amount. It belongs to the kind's account, and its opposite to the contra account, so that each
//! line balances by itself: there is nothing to check and no half of a booking. The same table stands in the database
//! (`ledger_kinds`), where the view `postings` reads it.

use std::fmt;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

/// What a line of the books records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// What an invoice asks for, once it is final.
    Invoiced,
    /// The part of an invoice's total that the customer's credit balance paid; negative where the balance was owed.
    CreditApplied,
    /// Money for an invoice that came in through the provider.
    Payment,
    /// Money for an invoice that came in elsewhere.
    PaidOutside,
    /// What was paid above what was due: it belongs to the customer.
    Overpaid,
    /// What is not expected to be paid any more.
    WrittenOff,
    /// What a credit note takes off an invoice that is not paid yet.
    CreditNote,
    /// What a credit note of a paid invoice gives to the customer's credit balance.
    CreditToBalance,
    /// What a credit note of a paid invoice gives back outside the provider.
    CreditOutside,
    /// Money that came in without an invoice.
    Sale,
    /// Money of a charge that went back.
    Refund,
    /// Money that a dispute took, or gave back.
    Dispute,
    /// What the provider takes for a dispute.
    DisputeFee,
    /// Any other fee of the provider.
    Fee,
    /// Money that went from the provider to the bank.
    Payout,
    /// Money that went from the bank to the provider.
    Topup,
    /// One side of a conversion between two currencies.
    Converted,
}

use Kind::{
    Converted, CreditApplied, CreditNote, CreditOutside, CreditToBalance, Dispute, DisputeFee, Fee, Invoiced,
    Overpaid, PaidOutside, Payment, Payout, Refund, Sale, Topup, WrittenOff,
};

/// Each kind with its name, its account and its contra account.
pub const KINDS: [(Kind, &str, &str, &str); 17] = [
    (Invoiced, "invoiced", "receivable", "sales"),
    (CreditApplied, "credit_applied", "customer_credit", "sales"),
    (Payment, "payment", "provider", "receivable"),
    (PaidOutside, "paid_outside", "outside", "receivable"),
    (Overpaid, "overpaid", "receivable", "customer_credit"),
    (WrittenOff, "written_off", "receivable", "bad_debt"),
    (CreditNote, "credit_note", "receivable", "refunds"),
    (CreditToBalance, "credit_to_balance", "customer_credit", "refunds"),
    (CreditOutside, "credit_outside", "outside", "refunds"),
    (Sale, "sale", "provider", "sales"),
    (Refund, "refund", "provider", "refunds"),
    (Dispute, "dispute", "provider", "disputes"),
    (DisputeFee, "dispute_fee", "provider", "fees"),
    (Fee, "fee", "provider", "fees"),
    (Payout, "payout", "provider", "bank"),
    (Topup, "topup", "provider", "bank"),
    (Converted, "converted", "provider", "conversion"),
];

impl Kind {
    /// As stored.
    pub fn as_str(self) -> &'static str {
        self.row().1
    }

    /// The account that the signed amount belongs to.
    pub fn book(self) -> &'static str {
        self.row().2
    }

    /// The account that gets the opposite.
    pub fn contra(self) -> &'static str {
        self.row().3
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<Self> {
        KINDS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    fn row(self) -> &'static (Self, &'static str, &'static str, &'static str) {
        // the kinds stand in the table in the order of their declaration; a test holds the two together
        &KINDS[self as usize]
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ToSql for Kind {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.as_str().into())
    }
}

impl FromSql for Kind {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::parse(value.as_str()?).ok_or(FromSqlError::InvalidType)
    }
}
