//! The table `inboxd_minutes`: what came in and went out in each minute, counted in memory and written once a minute.
//!
//! A chart over a day reads a few thousand small rows, however many events there are. A minute without a row is one in
//! which nothing happened; a stretch in which no daemon ran is told by [`meta::outages`](super::meta::outages).

use rusqlite::{Connection, Transaction};

use crate::measure::{self, Counts, Fresh};

/// How long they are kept.
const KEPT_MINUTES: i64 = 90 * 24 * 60;

/// Rows that are removed in one transaction: deliveries come in between.
const REMOVED_MAX: u32 = 500;

/// A minute, counted from the epoch.
pub fn minute_of(time_ms: i64) -> i64 {
    time_ms.div_euclid(60_000)
}

/// What is counted in one minute of one endpoint, or of one destination, and one outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The endpoint's name. Of an outcome that begins with `outbox_` the destination's; empty for requests that
    /// reached no endpoint.
    pub endpoint: String,
    /// The word of the answer; `worked`; `outbox_` and the result of an attempt.
    pub outcome: String,
    /// How often.
    pub count: i64,
    /// How long all of them took together, in milliseconds.
    pub sum_ms: i64,
    /// The slowest.
    pub max_ms: i64,
}

/// What is counted, and what its outcomes begin with here.
const COUNTS: [(&Counts, &str); 3] =
    [(&measure::DELIVERIES, ""), (&measure::WORKED, ""), (&measure::ATTEMPTS, "outbox_")];

/// What was counted in memory since this was last asked.
pub fn take() -> Vec<Counted> {
    COUNTS.into_iter().flat_map(|(counts, prefix)| counted(counts.take(), prefix)).collect()
}

/// What is still in memory only: the minute that is not over.
pub fn unwritten() -> Vec<Counted> {
    COUNTS.into_iter().flat_map(|(counts, prefix)| counted(counts.fresh(), prefix)).collect()
}

fn counted(fresh: Vec<(String, &'static str, Fresh)>, prefix: &str) -> Vec<Counted> {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let one = |(endpoint, outcome, fresh): (String, &str, Fresh)| Counted {
        endpoint,
        outcome: format!("{prefix}{outcome}"),
        count: number(fresh.count),
        sum_ms: number(fresh.sum_ms),
        max_ms: number(fresh.max_ms),
    };
    fresh.into_iter().map(one).collect()
}

/// Adds to a minute.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn add(tx: &Transaction<'_>, minute: i64, counted: &[Counted]) -> rusqlite::Result<()> {
    let mut add = tx.prepare_cached(ADD)?;
    for Counted { endpoint, outcome, count, sum_ms, max_ms } in counted {
        add.execute((minute, endpoint, outcome, count, sum_ms, max_ms))?;
    }
    Ok(())
}

/// Removes what is older than ninety days, a few rows at a time. Returns how many it were.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn remove_old(tx: &Transaction<'_>, now_ms: i64) -> rusqlite::Result<usize> {
    tx.prepare_cached(REMOVE_OLD)?.execute((minute_of(now_ms) - KEPT_MINUTES, REMOVED_MAX))
}

/// Stretches of so many minutes, with the first minute of each, from a minute on: in order.
///
/// # Errors
/// Any SQLite error, also when the read takes too long.
pub fn since(conn: &Connection, from_minute: i64, stretch: i64) -> rusqlite::Result<Vec<(i64, Counted)>> {
    conn.prepare_cached(SINCE)?
        .query_map((from_minute, stretch), |row| {
            let counted = Counted {
                endpoint: row.get(1)?,
                outcome: row.get(2)?,
                count: row.get(3)?,
                sum_ms: row.get(4)?,
                max_ms: row.get(5)?,
            };
            Ok((row.get(0)?, counted))
        })?
        .collect()
}

const ADD: &str = "
    INSERT INTO main.inboxd_minutes (minute, endpoint, outcome, count, sum_ms, max_ms)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (minute, endpoint, outcome) DO UPDATE
       SET count = count + ?4, sum_ms = sum_ms + ?5, max_ms = max(max_ms, ?6)";

const REMOVE_OLD: &str = "
    DELETE FROM main.inboxd_minutes
     WHERE (minute, endpoint, outcome) IN (SELECT minute, endpoint, outcome
                                             FROM main.inboxd_minutes
                                            WHERE minute < ?1
                                            ORDER BY minute
                                            LIMIT ?2)";

const SINCE: &str = "
    SELECT minute - minute % ?2, endpoint, outcome, sum(count), sum(sum_ms), max(max_ms)
      FROM main.inboxd_minutes
     WHERE minute >= ?1
     GROUP BY 1, endpoint, outcome
     ORDER BY 1";
