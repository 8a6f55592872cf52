//! A page of rows in the order of their ids, judged by age: a reader finds the rows, the writer changes them.
//!
//! Ids rise with the order of commits, so all rows after a young one are young too: the page with the first young row
//! is the last. A time ahead of the clock proves nothing: such a row stays and does not end the walk.

use rusqlite::{Connection, Params};

/// How far a row's time may be ahead of the step's time, because other threads read the clock as well.
const AHEAD_MAX_MS: i64 = 86_400_000;

/// A row, with what decides whether it may be purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Rises with the order of commits.
    pub id: i64,
    /// When it came, by the clock at that time, in milliseconds since the epoch.
    pub at_ms: i64,
    /// It may be purged once it is old.
    pub may_go: bool,
    /// It has a payload or key that it still needs: look at it again later.
    pub waits: bool,
}

impl Row {
    /// What a statement finds that tells id, time, whether the row may go, and whether it waits.
    ///
    /// # Errors
    /// Any SQLite error.
    pub fn find(conn: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<Vec<Self>> {
        conn.prepare_cached(sql)?
            .query_map(params, |row| {
                Ok(Self { id: row.get(0)?, at_ms: row.get(1)?, may_go: row.get(2)?, waits: row.get(3)? })
            })?
            .collect()
    }
}

/// The judgement of a page of rows, in the order of their ids.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Old rows that may be purged.
    pub ids: Vec<i64>,
    /// Old rows that still wait, and may be purged later.
    pub waiting: Vec<i64>,
    /// The last row before the first that is young.
    pub last_id: Option<i64>,
    /// A young row was found: there is nothing to do after this page.
    pub is_over: bool,
}

impl Page {
    /// Judges rows: a row is old if it came before `before_ms`; `shift_ms` returns by how much the clock was wrong
    /// when a row came.
    pub fn of(rows: &[Row], before_ms: i64, now_ms: i64, shift_ms: impl Fn(i64) -> i64) -> Self {
        let mut stretch = Self::default();
        for row in rows {
            let at_ms = row.at_ms.saturating_add(shift_ms(row.id));
            let is_ahead = at_ms > now_ms.saturating_add(AHEAD_MAX_MS);
            let is_old = at_ms < before_ms;
            stretch.is_over |= !is_old && !is_ahead;
            if is_old && row.may_go {
                stretch.ids.push(row.id);
            }
            // the next walk begins at the first young row
            if !stretch.is_over {
                stretch.last_id = Some(row.id);
                if (row.may_go && !is_old) || (row.waits && !row.may_go) {
                    stretch.waiting.push(row.id);
                }
            }
        }
        stretch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 86_400_000;
    const NOW_MS: i64 = 1_000 * DAY_MS;

    fn row(id: i64, days: i64) -> Row {
        Row { id, at_ms: days * DAY_MS, may_go: true, waits: false }
    }

    fn judge(rows: &[Row], shift_ms: impl Fn(i64) -> i64) -> Page {
        Page::of(rows, NOW_MS - 30 * DAY_MS, NOW_MS, shift_ms)
    }

    #[test]
    fn a_walk_goes_on_where_the_first_young_row_was() {
        let stretch = judge(&[row(1, 900), row(2, 969), row(3, 971), row(4, 999)], |_| 0);
        assert_eq!(stretch, Page { ids: vec![1, 2], waiting: vec![], last_id: Some(2), is_over: true });
        let stretch = judge(&[row(3, 971), row(4, 10)], |_| 0);
        assert_eq!(stretch, Page { ids: vec![4], waiting: vec![], last_id: None, is_over: true });
    }

    #[test]
    fn a_time_ahead_of_the_clock_stays_and_stands_in_nobodys_way() {
        let stretch = judge(&[row(1, 900), row(2, 1_400), row(3, 950)], |_| 0);
        assert_eq!(stretch.ids, [1, 3]);
        assert_eq!((stretch.waiting, stretch.last_id, stretch.is_over), (vec![2], Some(3), false));
    }

    #[test]
    fn what_waits_is_passed_over_and_remembered() {
        let waits = Row { may_go: false, waits: true, ..row(2, 900) };
        let bare = Row { may_go: false, ..row(3, 900) };
        let stretch = judge(&[row(1, 900), waits, bare], |_| 0);
        assert_eq!((stretch.ids, stretch.waiting, stretch.last_id), (vec![1], vec![2], Some(3)));
    }

    #[test]
    fn a_row_whose_clock_was_wrong_is_as_old_as_that_makes_it() {
        let stretch = judge(&[row(1, 0)], |_| 995 * DAY_MS);
        assert_eq!(stretch, Page { is_over: true, ..Page::default() });
        let stretch = judge(&[row(1, 1_400)], |_| -500 * DAY_MS);
        assert_eq!(stretch.ids, [1]);
    }
}
