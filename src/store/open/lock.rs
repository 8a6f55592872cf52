//! Waiting for SQLite's lock, by time and not by tries; and the transactions that take it.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// How long a statement waits for another process's lock before it gives up, in milliseconds.
const LOCK_WAIT_MS: u64 = 5_000;

/// The same for a connection whose owner tries again by itself.
const BRIEF_LOCK_WAIT_MS: u64 = 100;

/// The pause between two tries. SQLite's own pauses grow to 100 ms, in which other processes take the lock again.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// Makes the connection's statements wait for another connection's lock.
///
/// # Errors
/// When SQLite refuses the handler.
pub fn wait_for_locks(conn: &mut Connection) -> rusqlite::Result<()> {
    conn.busy_handler(Some(look_again::<LOCK_WAIT_MS>))
}

/// As [`wait_for_locks`], for a tenth of a second.
///
/// # Errors
/// When SQLite refuses the handler.
pub fn wait_briefly_for_locks(conn: &mut Connection) -> rusqlite::Result<()> {
    conn.busy_handler(Some(look_again::<BRIEF_LOCK_WAIT_MS>))
}

/// SQLite counts the tries of one wait from 0. Time is measured instead, because a busy machine makes fewer tries.
fn look_again<const WAIT_MS: u64>(looks: i32) -> bool {
    thread_local! {
        static BEGUN: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    let begun = BEGUN.get().filter(|_| looks > 0).unwrap_or_else(Instant::now);
    BEGUN.set(Some(begun));
    std::thread::sleep(LOCK_PAUSE);
    begun.elapsed() < Duration::from_millis(WAIT_MS)
}

/// Begins a transaction that holds the write lock from its first statement.
///
/// # Errors
/// Busy, full or failing storage.
pub fn begin_immediate(conn: &Connection) -> rusqlite::Result<Transaction<'_>> {
    // `new_unchecked`: nesting cannot happen, as each connection has one owner that begins here only
    Transaction::new_unchecked(conn, TransactionBehavior::Immediate)
}
