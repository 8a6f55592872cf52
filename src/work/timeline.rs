//! The history of the wall clock: its last reading, and its jumps since the rows came.
//!
//! Nothing may be deleted, or given up, by an age that a jump made. A jump of a day or more is noted with the rows that
//! came before it, and their ages are counted without it. A stop of many days looks like a jump of the clock and is
//! treated as one: stored rows are then kept for as much longer, which is harmless.

use crate::store::inbox;
use crate::store::meta;
use crate::store::outbox;
use crate::store::{Connection, SqlResult, Transaction};

/// A smaller difference is an ordinary correction, or a short stop.
pub const JUMP_MIN_MS: i64 = 86_400_000;

/// The number of jumps remembered singly; older ones are merged.
const JUMPS_MAX: usize = 200;

/// One jump, and the latest rows before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    /// Events up to this one came before.
    pub inbox_id: i64,
    /// Outbox rows up to this one were queued before.
    pub outbox_id: i64,
    /// How far the clock jumped, in milliseconds; negative where it was set back.
    pub shift_ms: i64,
}

/// The jumps, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline(Vec<Jump>);

impl Timeline {
    /// Reads the jumps from the database.
    ///
    /// # Errors
    /// Any SQLite error.
    pub fn recall(conn: &Connection) -> SqlResult<Self> {
        let text = meta::recall(conn, meta::CLOCK_JUMPS)?.map_or_else(String::new, |(text, _)| text);
        let jumps: Vec<[i64; 3]> = serde_json::from_str(&text).unwrap_or_default();
        let jump = |[inbox_id, outbox_id, shift_ms]: [i64; 3]| Jump { inbox_id, outbox_id, shift_ms };
        Ok(Self(jumps.into_iter().map(jump).collect()))
    }

    /// The correction of the time at which this event came.
    pub fn of_event(&self, id: i64) -> i64 {
        self.0.iter().filter(|jump| id <= jump.inbox_id).map(|jump| jump.shift_ms).sum()
    }

    /// The correction of the time at which this outbox row was queued.
    pub fn of_operation(&self, id: i64) -> i64 {
        self.0.iter().filter(|jump| id <= jump.outbox_id).map(|jump| jump.shift_ms).sum()
    }

    /// The jumps as a JSON array of pairs: the latest event before, and the milliseconds.
    pub fn of_events(&self) -> String {
        let pairs: Vec<_> = self.0.iter().map(|jump| [jump.inbox_id, jump.shift_ms]).collect();
        serde_json::json!(pairs).to_string()
    }

    /// Merges two jumps without rows in between; a jump that was undone disappears.
    fn add(&mut self, jump: Jump) {
        let between = |last: &&mut Jump| (last.inbox_id, last.outbox_id) == (jump.inbox_id, jump.outbox_id);
        match self.0.last_mut().filter(between) {
            Some(last) => last.shift_ms = last.shift_ms.saturating_add(jump.shift_ms),
            None => self.0.push(jump),
        }
        self.0.retain(|jump| jump.shift_ms.abs() >= JUMP_MIN_MS);
        while self.0.len() > JUMPS_MAX {
            // of two possible ages the younger one
            let (first, second) = (self.0[0], self.0[1]);
            let both = first.shift_ms.saturating_add(second.shift_ms);
            self.0[1].shift_ms = both.max(second.shift_ms);
            self.0.remove(0);
        }
    }

    fn note(&self, tx: &Transaction<'_>, now_ms: i64) -> SqlResult<()> {
        let jumps: Vec<_> =
            self.0.iter().map(|jump| [jump.inbox_id, jump.outbox_id, jump.shift_ms]).collect();
        meta::note(tx, meta::CLOCK_JUMPS, &serde_json::json!(jumps).to_string(), now_ms)
    }
}

/// The clock's last reading and the latest rows, as a start finds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The clock's last reading; `None`: no daemon has worked on this file.
    pub last_ms: Option<i64>,
    /// The latest event.
    pub inbox_id: i64,
    /// The latest outbox row.
    pub outbox_id: i64,
}

impl Seen {
    /// Reads the database.
    ///
    /// # Errors
    /// Any SQLite error.
    pub fn look(conn: &Connection) -> SqlResult<Self> {
        let at = |name| Ok(meta::recall(conn, name)?.map(|(_, at_ms)| at_ms));
        let noted: SqlResult<Option<i64>> = at(meta::CLOCK);
        let before = [meta::LAST_START, meta::LAST_PURGE, meta::ANSWERS];
        let last_ms = match noted? {
            Some(at_ms) => Some(at_ms),
            // an earlier version noted these alone
            None => before.into_iter().map(at).collect::<SqlResult<Vec<_>>>()?.into_iter().flatten().max(),
        };
        Ok(Self { last_ms, inbox_id: inbox::last_id(conn)?, outbox_id: outbox::last_id(conn)? })
    }

    /// The jump between then and now, if there was one.
    pub fn jump(&self, now_ms: i64) -> Option<Jump> {
        let shift_ms = now_ms.saturating_sub(self.last_ms?);
        let jump = Jump { inbox_id: self.inbox_id, outbox_id: self.outbox_id, shift_ms };
        (shift_ms.abs() >= JUMP_MIN_MS).then_some(jump)
    }
}

/// A jump that was noticed at most `window_ms` after it: the rows that came since then have times around `now_ms`, and
/// those that came before do not.
///
/// # Errors
/// Any SQLite error.
pub fn noticed(conn: &Connection, shift_ms: i64, window_ms: i64, now_ms: i64) -> SqlResult<Jump> {
    Ok(Jump {
        inbox_id: inbox::last_id_far_from(conn, now_ms, window_ms)?,
        outbox_id: outbox::last_id_far_from(conn, now_ms, window_ms)?,
        shift_ms,
    })
}

/// Notes the clock's reading, and a jump, if there was one. The length of a jump does not count as time of failing for
/// outbox rows.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn note(tx: &Transaction<'_>, jump: Option<Jump>, now_ms: i64) -> SqlResult<()> {
    if let Some(jump) = jump {
        let mut timeline = Timeline::recall(tx)?;
        timeline.add(jump);
        timeline.note(tx, now_ms)?;
        outbox::shift_failing(tx, jump.shift_ms, now_ms)?;
    }
    meta::note(tx, meta::CLOCK, "", now_ms)
}

/// Trusts the clock and every time in the file: forgets all jumps.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn believe(tx: &Transaction<'_>, now_ms: i64) -> SqlResult<()> {
    Timeline::default().note(tx, now_ms)?;
    meta::note(tx, meta::CLOCK, "", now_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 86_400_000;

    fn jump(inbox_id: i64, days: i64) -> Jump {
        Jump { inbox_id, outbox_id: 0, shift_ms: days * DAY_MS }
    }

    #[test]
    fn a_jump_counts_for_the_rows_before_it_and_one_that_is_undone_for_those_in_between() {
        let mut timeline = Timeline::default();
        timeline.add(jump(5, 400));
        timeline.add(jump(9, -400));
        assert_eq!([5, 6, 9, 10].map(|id| timeline.of_event(id) / DAY_MS), [0, -400, -400, 0]);
    }

    #[test]
    fn a_jump_that_was_undone_before_anything_came_leaves_nothing() {
        let mut timeline = Timeline::default();
        timeline.add(jump(5, 400));
        timeline.add(Jump { shift_ms: -400 * DAY_MS + 90_000, ..jump(5, 0) });
        assert_eq!(timeline, Timeline::default());
    }

    #[test]
    fn many_jumps_are_put_together_and_make_nothing_older() {
        let mut timeline = Timeline::default();
        let mut exact = Timeline::default();
        for n in 0..600 {
            let one = jump(n, if n % 2 == 0 { 10_000 } else { -10_000 });
            timeline.add(one);
            exact.0.push(one);
        }
        assert_eq!(timeline.0.len(), JUMPS_MAX);
        assert!((0..601).all(|id| timeline.of_event(id) >= exact.of_event(id)));
        assert_eq!(timeline.of_event(599), exact.of_event(599));
    }

    #[test]
    fn a_stop_of_hours_is_no_jump() {
        let seen = Seen { last_ms: Some(10 * DAY_MS), inbox_id: 1, outbox_id: 1 };
        assert_eq!(seen.jump(10 * DAY_MS + DAY_MS - 1), None);
        assert_eq!(seen.jump(11 * DAY_MS).map(|jump| jump.shift_ms), Some(DAY_MS));
        assert_eq!(seen.jump(8 * DAY_MS).map(|jump| jump.shift_ms), Some(-2 * DAY_MS));
        assert_eq!(Seen { last_ms: None, ..seen }.jump(8 * DAY_MS), None);
    }
}
