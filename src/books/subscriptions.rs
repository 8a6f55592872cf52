//! The table `subscription_states`: where each subscription stands, for who keys access off it.
//!
//! It is state and no money, so that joins do not apply: the newest snapshot counts. Of two snapshots of one second the one
//! of the later kind counts (created, updated, ended), then the one whose event has the greater id: always the same one,
//! whatever the order of arrival. An end is an end. Nothing here depends on when an invoice is paid.

use rusqlite::Transaction;

/// What a snapshot says.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    /// The provider's id.
    pub id: &'a str,
    /// The customer's id.
    pub customer_id: Option<&'a str>,
    /// The provider's word.
    pub status: &'a str,
    /// A JSON array of products.
    pub products: &'a str,
    /// The end of the period that is paid or tried.
    pub current_period_end_ms: Option<i64>,
    /// When it ends, where that is planned.
    pub cancel_at_ms: Option<i64>,
    /// Whether collection is paused.
    pub is_paused: bool,
    /// The provider's account.
    pub account: Option<&'a str>,
    /// Live or test.
    pub livemode: Option<bool>,
    /// The sender's time of the snapshot.
    pub told_at_ms: i64,
    /// 1 created, 2 updated, 3 ended.
    pub rank: u8,
    /// The event it came with.
    pub event_id: &'a str,
}

/// Keeps the snapshot if it is the newest.
///
/// # Errors
/// Any SQLite error.
pub fn note(tx: &Transaction<'_>, snapshot: &Snapshot<'_>, now_ms: i64) -> rusqlite::Result<()> {
    let Snapshot {
        id, customer_id, status, products, current_period_end_ms, cancel_at_ms, is_paused, ..
    } = *snapshot;
    let Snapshot { account, livemode, told_at_ms, rank, event_id, .. } = *snapshot;
    tx.prepare_cached(NOTE)?.execute((
        id,
        customer_id,
        status,
        products,
        current_period_end_ms,
        cancel_at_ms,
        is_paused,
        account,
        livemode,
        told_at_ms,
        rank,
        event_id,
        now_ms,
    ))?;
    Ok(())
}

// What has ended stays ended; else the later of both, in one order for all.
const NOTE: &str = "
    INSERT INTO main.subscription_states AS known
           (id, customer_id, status, products, current_period_end_ms, cancel_at_ms, is_paused, account, livemode,
            told_at_ms, told_rank, event_id, updated_at_ms)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
    ON CONFLICT (id) DO UPDATE
       SET customer_id = excluded.customer_id, status = excluded.status, products = excluded.products,
           current_period_end_ms = excluded.current_period_end_ms, cancel_at_ms = excluded.cancel_at_ms,
           is_paused = excluded.is_paused, account = excluded.account, livemode = excluded.livemode,
           told_at_ms = excluded.told_at_ms, told_rank = excluded.told_rank, event_id = excluded.event_id,
           updated_at_ms = excluded.updated_at_ms
     WHERE (excluded.told_rank = 3, excluded.told_at_ms, excluded.told_rank, excluded.event_id)
         > (known.told_rank = 3, known.told_at_ms, known.told_rank, known.event_id)";
