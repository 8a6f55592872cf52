//! Counts and durations since the start, in memory: what the metrics and the minute counters are made of.
//!
//! One set for the process, as there is one daemon in it. Recording costs a lock that is held for a few instructions
//! and never waits for a reader, a disk or the network. Names are the configuration's and outcomes are words of ours,
//! so that no stranger can make the set grow.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::wake::lock;

/// Deliveries by endpoint and outcome (the words of the answers), timed from the request to the answer.
pub static DELIVERIES: Counts = Counts::new();

/// Requests that were refused, by the answer's word; the name is empty.
pub static REFUSED: Counts = Counts::new();

/// Attempts at a delivery by destination and result, timed as the destination answers.
pub static ATTEMPTS: Counts = Counts::new();

/// Events that a worker finished, by endpoint, timed from receipt to done.
pub static WORKED: Counts = Counts::new();

/// The handlers of one event, in microseconds.
pub static HANDLERS: Histogram<14> = Histogram::new([
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000,
]);

/// One COMMIT, in microseconds: mostly the wait for the disk.
pub static COMMITS: Histogram<14> = Histogram::new([
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000,
]);

/// Jobs that shared one commit.
pub static BATCHES: Histogram<7> = Histogram::new([1, 2, 4, 8, 16, 32, 64]);

/// Counts by a name and an outcome.
#[derive(Debug)]
pub struct Counts {
    cells: Mutex<BTreeMap<String, BTreeMap<&'static str, Cell>>>,
}

#[derive(Debug, Default)]
struct Cell {
    total: u64,
    /// What was recorded since the last [`Counts::take`].
    fresh: Fresh,
}

/// What was recorded of one name and outcome since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fresh {
    /// How often.
    pub count: u64,
    /// How long all of them took together, in milliseconds.
    pub sum_ms: u64,
    /// The slowest.
    pub max_ms: u64,
}

impl Counts {
    const fn new() -> Self {
        Self { cells: Mutex::new(BTreeMap::new()) }
    }

    /// Counts one, and how long it took.
    pub fn record(&self, name: &str, outcome: &'static str, took: Duration) {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let mut cells = lock(&self.cells);
        // the name is copied the first time only
        if !cells.contains_key(name) {
            cells.insert(name.to_owned(), BTreeMap::new());
        }
        let Some(cell) = cells.get_mut(name).map(|outcomes| outcomes.entry(outcome).or_default()) else {
            return;
        };
        cell.total += 1;
        cell.fresh.count += 1;
        cell.fresh.sum_ms = cell.fresh.sum_ms.saturating_add(took_ms);
        cell.fresh.max_ms = cell.fresh.max_ms.max(took_ms);
    }

    /// All since the start, in order: name, outcome, count.
    pub fn totals(&self) -> Vec<(String, &'static str, u64)> {
        let cells = lock(&self.cells);
        let all = cells.iter().flat_map(|(name, outcomes)| {
            outcomes.iter().map(move |(outcome, cell)| (name.clone(), *outcome, cell.total))
        });
        all.collect()
    }

    /// What was recorded since the last [`Counts::take`], which it is left for.
    pub fn fresh(&self) -> Vec<(String, &'static str, Fresh)> {
        let cells = lock(&self.cells);
        let all = cells.iter().flat_map(|(name, outcomes)| {
            let fresh = outcomes.iter().filter(|(_, cell)| cell.fresh.count > 0);
            fresh.map(move |(outcome, cell)| (name.clone(), *outcome, cell.fresh))
        });
        all.collect()
    }

    /// What was recorded since this was last asked.
    pub fn take(&self) -> Vec<(String, &'static str, Fresh)> {
        let mut cells = lock(&self.cells);
        let all = cells.iter_mut().flat_map(|(name, outcomes)| {
            let fresh = outcomes.iter_mut().filter(|(_, cell)| cell.fresh.count > 0);
            fresh.map(move |(outcome, cell)| (name.clone(), *outcome, std::mem::take(&mut cell.fresh)))
        });
        all.collect()
    }
}

/// How often a value came to lie below each of a few bounds.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    bounds: [u64; N],
    buckets: [AtomicU64; N],
    count: AtomicU64,
    sum: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    /// Each bound, and how many values were no larger.
    pub buckets: Vec<(u64, u64)>,
    /// All values.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
}

impl<const N: usize> Histogram<N> {
    const fn new(bounds: [u64; N]) -> Self {
        Self {
            bounds,
            buckets: [const { AtomicU64::new(0) }; N],
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }

    /// Records a value.
    pub fn record(&self, value: u64) {
        if let Some(at) = self.bounds.iter().position(|bound| value <= *bound) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a duration in microseconds.
    pub fn record_time(&self, took: Duration) {
        self.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// All since the start. A value that is being recorded meanwhile may be in a part of it.
    pub fn distribution(&self) -> Distribution {
        // read first: no bucket may hold more than the whole
        let counts = self.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed));
        let (sum, count) = (self.sum.load(Ordering::Relaxed), self.count.load(Ordering::Relaxed));
        let mut below = 0;
        let buckets = self.bounds.into_iter().zip(counts).map(|(bound, count)| {
            below += count;
            (bound, below)
        });
        let buckets: Vec<_> = buckets.collect();
        Distribution { count: count.max(below), buckets, sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_grow_and_what_was_taken_is_not_taken_again() {
        let counts = Counts::new();
        counts.record("a", "processed", Duration::from_millis(3));
        counts.record("a", "processed", Duration::from_millis(5));
        counts.record("b", "duplicate", Duration::ZERO);
        let fresh = Fresh { count: 2, sum_ms: 8, max_ms: 5 };
        assert_eq!(counts.take()[0], ("a".to_owned(), "processed", fresh));
        assert!(counts.take().is_empty());
        counts.record("a", "processed", Duration::ZERO);
        assert_eq!(counts.take().len(), 1);
        assert_eq!(counts.totals(), [("a".to_owned(), "processed", 3), ("b".to_owned(), "duplicate", 1)]);
    }

    #[test]
    fn each_value_is_below_its_bound_and_all_larger_ones() {
        let histogram = Histogram::new([1, 10, 100]);
        for value in [0, 1, 2, 10, 11, 1_000] {
            histogram.record(value);
        }
        let Distribution { buckets, count, sum } = histogram.distribution();
        assert_eq!((buckets, count, sum), (vec![(1, 2), (10, 4), (100, 5)], 6, 1_024));
    }
}
