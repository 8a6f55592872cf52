//! The report: a message without a cause, so that silence means something. One line first, then the figures.

use crate::config::Report;
use crate::store::meta;
use crate::store::minutes;
use crate::store::overview::Overview;
use crate::store::{Connection, SqlResult};
use crate::terminal::counted;

use super::Traffic;

const DAY_MS: i64 = 86_400_000;

/// How long the time is that a report is about; `None`: none is sent.
fn period_ms(report: Report) -> Option<i64> {
    match report {
        Report::Never => None,
        Report::Daily => Some(DAY_MS),
        Report::Weekly => Some(7 * DAY_MS),
    }
}

/// What is to be done about the report now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing.
    No,
    /// The time begins now: nothing was noted yet.
    Begins,
    /// It is to be sent.
    Send(String),
}

/// Whether a report is due, and its text.
///
/// # Errors
/// Any SQLite error.
pub(super) fn due(conn: &Connection, report: Report, now_ms: i64) -> SqlResult<Due> {
    let Some(period_ms) = period_ms(report) else { return Ok(Due::No) };
    let Some((_, last_ms)) = meta::recall(conn, meta::LAST_REPORT)? else { return Ok(Due::Begins) };
    // a clock that was set back must not silence it for ever
    if (0..period_ms).contains(&(now_ms - last_ms)) {
        return Ok(Due::No);
    }
    Ok(Due::Send(text(conn, period_ms, now_ms)?))
}

fn text(conn: &Connection, period_ms: i64, now_ms: i64) -> SqlResult<String> {
    let traffic = Traffic::since(conn, minutes::minute_of(now_ms - period_ms))?;
    let overview = Overview::read(conn, now_ms)?;
    let dead: i64 = overview.outbox.iter().map(|standing| standing.dead).sum();
    let needs = overview.reviews_open + dead + i64::try_from(overview.complaints().len()).unwrap_or(0);
    let days = period_ms / DAY_MS;
    let outages = overview.outages.iter().filter(|(_, to_ms)| *to_ms > now_ms - period_ms);
    let without_ms: i64 = outages.map(|(from_ms, to_ms)| to_ms - from_ms).sum();
    let summary = match needs {
        0 => "all is well".to_owned(),
        count => format!(
            "{} you",
            if count == 1 { "1 thing needs".to_owned() } else { format!("{count} things need") }
        ),
    };
    Ok(format!(
        "report of {}: {summary}\n\
         deliveries {}, of which {} were redeliveries and {} refused\n\
         open reviews {}, rows given up {dead}, events that wait {}\n\
         oldest that waits {}\n\
         without a daemon {} min",
        counted(days, "day"),
        traffic.all,
        traffic.duplicates,
        traffic.refused,
        overview.reviews_open,
        overview.pending(),
        overview
            .oldest_unprocessed_age_s()
            .map_or_else(|| "none".to_owned(), |age_s| format!("{} min", age_s / 60)),
        without_ms / 60_000,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::open;

    #[test]
    fn a_report_is_sent_once_in_its_time_and_says_first_how_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open::open_writer(&dir.path().join("inboxd.db")).unwrap();
        let now_ms = 1_764_000_000_000;
        assert_eq!(due(&conn, Report::Never, now_ms).unwrap(), Due::No);
        assert_eq!(due(&conn, Report::Weekly, now_ms).unwrap(), Due::Begins);
        let note = |at_ms: i64| {
            let tx = open::begin_immediate(&conn).unwrap();
            meta::note(&tx, meta::LAST_REPORT, "", at_ms).unwrap();
            tx.commit().unwrap();
        };
        note(now_ms - 6 * DAY_MS);
        assert_eq!(due(&conn, Report::Weekly, now_ms).unwrap(), Due::No);
        let Due::Send(text) = due(&conn, Report::Daily, now_ms).unwrap() else { panic!("it is due") };
        assert!(text.starts_with("report of 1 day: all is well\n"), "{text}");
        note(now_ms + DAY_MS);
        assert!(
            matches!(due(&conn, Report::Weekly, now_ms).unwrap(), Due::Send(_)),
            "the clock was set back"
        );
    }
}
