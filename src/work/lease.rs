//! Leases: the id that proves who holds a row, and the rows that this very process holds, by a clock that cannot be
//! set.
//!
//! A lease in the database ends by the wall clock, so that other processes can judge it. When that clock is set while
//! an application works on a row, the lease looks ended, or far too long: this module knows how long it really lasts.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::wake::lock;

/// The id of a new lease: unique, and rising with the time.
pub fn new_id(now_ms: i64) -> String {
    format!("{now_ms:012x}{:016x}", getrandom::u64().unwrap_or(u64::MAX))
}

/// Rows by their ids. The times are milliseconds of the steady clock.
#[derive(Debug, Default)]
pub struct Held {
    rows: Mutex<HashMap<i64, Lease>>,
}

#[derive(Debug)]
struct Lease {
    id: String,
    ends_ms: i64,
}

impl Held {
    /// From now on the row is held under this lease, for `time`.
    pub fn hold(&self, row: i64, lease_id: &str, lease_ms: i64, steady_ms: i64) {
        let lease = Lease { id: lease_id.to_owned(), ends_ms: steady_ms.saturating_add(lease_ms) };
        lock(&self.rows).insert(row, lease);
    }

    /// The row is not held any longer, unless under another lease.
    pub fn release(&self, row: i64, lease_id: &str) {
        let mut rows = lock(&self.rows);
        if rows.get(&row).is_some_and(|lease| lease.id == lease_id) {
            rows.remove(&row);
        }
    }

    /// How much longer the row is held, in milliseconds; `None`: it is not.
    pub fn left_ms(&self, row: i64, steady_ms: i64) -> Option<i64> {
        let left_ms = lock(&self.rows).get(&row)?.ends_ms.saturating_sub(steady_ms);
        (left_ms > 0).then_some(left_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_held_until_its_lease_ends_or_is_given_up_by_the_one_who_has_it() {
        let held = Held::default();
        held.hold(7, "a", 100, 1_000);
        assert_eq!(held.left_ms(7, 1_040), Some(60));
        assert_eq!(held.left_ms(8, 1_040), None);
        assert_eq!(held.left_ms(7, 1_100), None);
        held.hold(7, "b", 100, 1_100);
        held.release(7, "a");
        assert_eq!(held.left_ms(7, 1_150), Some(50), "the late one does not give up another's lease");
        held.release(7, "b");
        assert_eq!(held.left_ms(7, 1_150), None);
    }
}
