//! The table `orders`: the orders of a shop, and whether they are paid.
//!
//! The application inserts and updates rows as well. This module adds one transition, from `awaiting_payment` to
//! `paid`, by one conditional UPDATE that compares the payment with the order: account, id, payment, total, currency
//! and status. An order is paid as a whole or not at all.

use rusqlite::{Connection, OptionalExtension, Row, Transaction};

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The provider's account; `None` for the endpoint's own.
    pub account: Option<String>,
    /// The shop's own name for it.
    pub id: String,
    /// `awaiting_payment`, `paid`, or a status of the application's.
    pub status: String,
    /// Lower case.
    pub currency: String,
    /// In minor units.
    pub total: i64,
    /// The provider's payment, once it is known.
    pub payment_id: Option<String>,
    /// When it became paid here.
    pub paid_at_ms: Option<i64>,
}

/// An order to be opened.
#[derive(Debug, Clone, Copy)]
pub struct NewOrder<'a> {
    /// The provider's account; `None` for the endpoint's own.
    pub account: Option<&'a str>,
    /// The shop's own name for it.
    pub id: &'a str,
    /// Lower case.
    pub currency: &'a str,
    /// In minor units, never negative.
    pub total: i64,
}

/// A received payment.
#[derive(Debug, Clone, Copy)]
pub struct Payment<'a> {
    /// The provider's account; `None` for the endpoint's own.
    pub account: Option<&'a str>,
    /// The order it names; `None`: it names none, and only an order with this payment fits.
    pub order_id: Option<&'a str>,
    /// The provider's payment.
    pub payment_id: &'a str,
    /// In minor units.
    pub amount: i64,
    /// Lower case.
    pub currency: &'a str,
}

/// The result of a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Paid {
    /// The order with this id is paid now.
    Now(String),
    /// It was paid before, by this very payment.
    Already,
    /// There is no such order yet.
    NotYet,
    /// It cannot be the payment of this order. The sentence says why, without personal data.
    Conflicts(String),
}

/// Opens an order; an existing one stays as it is. Returns whether it is new.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn open(tx: &Transaction<'_>, order: &NewOrder<'_>, now_ms: i64) -> rusqlite::Result<bool> {
    let inserted =
        tx.prepare_cached(OPEN)?.execute((order.account, order.id, order.currency, order.total, now_ms))?;
    Ok(inserted == 1)
}

/// Applies a payment to its order.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn pay(tx: &Transaction<'_>, payment: &Payment<'_>, now_ms: i64) -> rusqlite::Result<Paid> {
    let by_payment = find_by_payment(tx, payment.account, payment.payment_id)?;
    let Some(order_id) = payment.order_id.map(str::to_owned).or(by_payment.as_ref().map(|o| o.id.clone()))
    else {
        return Ok(Paid::NotYet);
    };
    if let Some(other) = by_payment.filter(|order| order.id != order_id) {
        let (payment, other) = (payment.payment_id, other.id);
        return Ok(Paid::Conflicts(format!(
            "{payment} names order {order_id}, but belongs to order {other}"
        )));
    }
    let changed = tx.prepare_cached(PAY)?.execute((
        payment.account,
        &order_id,
        payment.payment_id,
        payment.amount,
        payment.currency,
        now_ms,
    ))?;
    if changed == 1 {
        return Ok(Paid::Now(order_id));
    }
    Ok(match find(tx, payment.account, &order_id)? {
        None => Paid::NotYet,
        Some(order) => explain(&order, payment),
    })
}

/// The order with this id.
///
/// # Errors
/// Any SQLite error.
pub fn find(conn: &Connection, account: Option<&str>, id: &str) -> rusqlite::Result<Option<Order>> {
    conn.prepare_cached(FIND)?.query_row((account, id), from_row).optional()
}

/// The order that a payment belongs to.
///
/// # Errors
/// Any SQLite error.
pub fn find_by_payment(
    conn: &Connection,
    account: Option<&str>,
    payment_id: &str,
) -> rusqlite::Result<Option<Order>> {
    conn.prepare_cached(FIND_BY_PAYMENT)?.query_row((account, payment_id), from_row).optional()
}

/// The orders of these payments (a JSON array of their ids), at most a hundred.
///
/// # Errors
/// Any SQLite error.
pub fn of_payments(conn: &Connection, payment_ids: &str) -> rusqlite::Result<Vec<Order>> {
    conn.prepare_cached(OF_PAYMENTS)?.query_map([payment_ids], from_row)?.collect()
}

/// Why the payment changed nothing.
fn explain(order: &Order, payment: &Payment<'_>) -> Paid {
    let Order { id, status, currency, total, .. } = order;
    if *total != payment.amount || *currency != payment.currency {
        return Paid::Conflicts(format!(
            "order {id} comes to {total} {currency}, the payment to {} {}",
            payment.amount, payment.currency
        ));
    }
    match &order.payment_id {
        Some(known) if known != payment.payment_id => {
            Paid::Conflicts(format!("order {id} belongs to payment {known}, not to {}", payment.payment_id))
        }
        Some(_) if order.paid_at_ms.is_some() => Paid::Already,
        _ => Paid::Conflicts(format!("a payment of order {id}, which is {status}")),
    }
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Order> {
    Ok(Order {
        account: row.get("account")?,
        id: row.get("id")?,
        status: row.get("status")?,
        currency: row.get("currency")?,
        total: row.get("total")?,
        payment_id: row.get("payment_id")?,
        paid_at_ms: row.get("paid_at_ms")?,
    })
}

const OPEN: &str = "
    INSERT INTO main.orders (account, id, status, currency, total, updated_at_ms)
    VALUES (?1, ?2, 'awaiting_payment', ?3, ?4, ?5)
    ON CONFLICT (coalesce(account, ''), id) DO NOTHING";

// An order is paid as a whole and by one payment, or not at all.
const PAY: &str = "
    UPDATE main.orders
       SET status = 'paid', payment_id = ?3, paid_at_ms = ?6, updated_at_ms = ?6
     WHERE coalesce(account, '') = coalesce(?1, '')
       AND id = ?2
       AND coalesce(payment_id, ?3) = ?3
       AND total = ?4
       AND currency = ?5
       AND status = 'awaiting_payment'";

const FIND: &str = "
    SELECT account, id, status, currency, total, payment_id, paid_at_ms
      FROM main.orders
     WHERE coalesce(account, '') = coalesce(?1, '') AND id = ?2";

const OF_PAYMENTS: &str = "
    SELECT account, id, status, currency, total, payment_id, paid_at_ms
      FROM main.orders
     WHERE payment_id IN (SELECT value FROM json_each(?1))
     ORDER BY id
     LIMIT 100";

const FIND_BY_PAYMENT: &str = "
    SELECT account, id, status, currency, total, payment_id, paid_at_ms
      FROM main.orders
     WHERE payment_id = ?2 AND coalesce(account, '') = coalesce(?1, '')
     ORDER BY id
     LIMIT 1";
