//! `purge`: retention by hand, beside a daemon that may be running.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::admin::acts::Trail;
use crate::background::retention::{Change, Changes, Purge};
use crate::clock;
use crate::config::MissingSecrets;
use crate::store::open;
use crate::store::writer::{JobError, WriteError};
use crate::store::{Connection, SqlError};
use crate::work::timeline;
use clap::Args;
use serde_json::json;

use super::store::{self, read_failed, time};
use super::{Context, Exit, Failure, put, say};

/// Purge payloads and keys that are older than [retention], now
#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    /// Only count
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Trust the clock, now and when the events came: count ages by it, in spite of noticed jumps
    #[arg(long)]
    pub(crate) accept_clock: bool,
}

/// The shortest pause between two steps.
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// Small transactions of its own, between those of the daemon; the first begins a row of the audit trail.
struct Operator {
    conn: Connection,
    trail: RefCell<Trail>,
}

impl Changes for Operator {
    fn change(&self, change: Change) -> Result<(), WriteError> {
        let apply = || {
            let tx = open::begin_immediate(&self.conn)?;
            let rows = change.apply(&tx)?;
            let rows = i64::try_from(rows).unwrap_or(i64::MAX);
            let row = self.trail.borrow().count(&tx, rows, clock::now_ms())?;
            tx.commit()?;
            self.trail.borrow_mut().row = row;
            Ok(())
        };
        apply().map_err(|error: SqlError| WriteError::Job(JobError::Sql(error)))
    }
}

/// The exit code that all verbs have for this error, and SQLite's message.
fn why(error: &WriteError) -> (Exit, String) {
    match error {
        WriteError::Job(JobError::Sql(error)) => {
            (store::write_failed(error).exit(), open::without_sql(error))
        }
        other => (Exit::Temporary, other.to_string()),
    }
}

/// Purges payloads and keys that are older than `[retention]`, or counts them.
pub(crate) fn run(args: &PurgeArgs, context: &Context) -> Result<(), Failure> {
    let retention = context.load(MissingSecrets::ReadNone)?.retention;
    let (instance, conn) = store::open_to_write(context)?;
    let now_ms = clock::now_ms();
    let mut purge = Purge::new(retention.payload, retention.key, now_ms, args.dry_run);
    if args.accept_clock {
        purge = purge.believing_the_clock();
    } else {
        require_known_clock(&conn, now_ms)?;
    }
    let trail = Trail { by: store::by(), act: "purge", filter: json!({}), row: None };
    let operator = Operator { conn, trail: RefCell::new(trail) };
    let mut steps = 0u64;
    let mut reported = String::new();
    loop {
        let began = Instant::now();
        let goes_on =
            purge.step(|| store::reader(&instance), &operator, clock::now_ms()).map_err(|error| {
                let (exit, word) = why(&error);
                let message = format!("the purge stopped after {}: {word}; run it again", purge.summary());
                Failure::new(exit, message)
            })?;
        if !goes_on {
            break;
        }
        steps += 1;
        // pause as long as the step took, so that the daemon has priority
        if !args.dry_run {
            std::thread::sleep(began.elapsed().max(PAUSE_MIN));
        }
        if steps.is_multiple_of(1_000) && purge.summary() != reported {
            reported = purge.summary();
            say(&format!("so far {reported}"));
        }
    }
    let verb = if args.dry_run { "would purge" } else { "purged" };
    put(&format!("{verb} {}\n", purge.summary()))?;
    Ok(())
}

/// Refuses a clock that is far ahead: no row may be deleted by an age that a wrong clock makes.
fn require_known_clock(conn: &Connection, now_ms: i64) -> Result<(), Failure> {
    let seen = timeline::Seen::look(conn).map_err(read_failed)?;
    let Some(jump) = seen.jump(now_ms).filter(|jump| jump.shift_ms > 0) else { return Ok(()) };
    let last = time(seen.last_ms.unwrap_or_default());
    let days = jump.shift_ms / timeline::JUMP_MIN_MS;
    Err(Failure::new(
        Exit::Refused,
        format!(
            "the clock says {}, {days} days after inboxd last saw it ({last}); nothing was purged: set the clock, or if it is \
             right, start inboxd first, or add --accept-clock",
            time(now_ms)
        ),
    ))
}
