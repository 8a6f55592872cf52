//! `status`: one screen of what is stored, what waits and what needs a person.

use crate::clock;
use crate::store::inbox::failures::FailingType;
use crate::store::inbox::recent::{self, OfType};
use crate::store::outbox::Standing;
use crate::store::overview::{Liveness, Overview, Status};
use crate::terminal::{counted, printable};
use clap::Args;

use super::health;
use super::store::{self, read_failed, table, time};
use super::{Context, Exit, Failure, put};

/// Show what is stored, what waits and what needs a person
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints the state of the instance, running or not.
pub(crate) fn run(args: &StatusArgs, context: &Context) -> Result<(), Failure> {
    let (instance, conn) = store::open(context)?;
    let overview = Overview::read(&conn, clock::now_ms()).map_err(read_failed)?;
    let status = Status {
        database: instance.database.display().to_string(),
        daemon: health::ask(&instance),
        destinations: instance.destinations,
        overview,
    };
    if args.json { put(&format!("{}\n", status.to_json())) } else { put(&to_text(&status)) }?;
    // stdout has the reasons
    if status.complaints().is_empty() { Ok(()) } else { Err(Failure::new(Exit::Unhealthy, "")) }
}

/// The daemon, the counts and the complaints.
fn head(status: &Status) -> String {
    let overview = &status.overview;
    let daemon = match &status.daemon {
        Liveness::Runs(report) if report.ready => format!("process {}, ready", report.pid),
        Liveness::Runs(report) => format!("process {}, NOT READY", report.pid),
        Liveness::NotRunning => "NOT RUNNING".to_owned(),
        Liveness::Unknown(reason) => reason.clone(),
    };
    let mut text = format!(
        "daemon        {}\ndatabase      {}\ndone          {}\nignored       {}\npending       {}\nquarantined   {}\nneed a person {}\n",
        printable(&daemon),
        printable(&status.database),
        overview.count("done"),
        overview.count("ignored"),
        overview.pending(),
        overview.count("quarantined"),
        overview.reviews_open,
    );
    if let Some(age_s) = overview.oldest_unprocessed_age_s() {
        text.push_str(&format!("oldest waiting event: {age_s} s\n"));
    }
    for complaint in status.complaints() {
        text.push_str(&format!("UNHEALTHY     {}\n", printable(&complaint)));
    }
    for failing in &overview.failing {
        text.push_str(&in_words(failing));
    }
    text
}

fn to_text(status: &Status) -> String {
    let overview = &status.overview;
    let mut text = head(status);
    if let Some((what, at_ms)) = &overview.last_purge {
        text.push_str(&format!("last purge    {} ({what})\n", time(*at_ms)));
    }
    if !overview.inbox.endpoints.is_empty() {
        let row = |(name, events, duplicates, last_ms): &(String, i64, i64, i64)| {
            vec![name.clone(), events.to_string(), duplicates.to_string(), time(*last_ms)]
        };
        let rows: Vec<_> = overview.inbox.endpoints.iter().map(row).collect();
        text.push('\n');
        text.push_str(&table(&["ENDPOINT", "EVENTS", "DUPLICATES", "LATEST"], &rows));
    }
    for (from_ms, to_ms) in &overview.outages {
        text.push_str(&format!(
            "no daemon ran from {} to {}: check the providers' delivery logs\n",
            time(*from_ms),
            time(*to_ms)
        ));
    }
    if !overview.last_hour.is_empty() {
        let row = |of: &OfType| {
            vec![of.event_type.clone(), of.events.to_string(), of.duplicates.to_string(), of.rate()]
        };
        let rows: Vec<_> = overview.last_hour.iter().map(row).collect();
        text.push('\n');
        text.push_str(&table(&["LAST HOUR", "EVENTS", "DUPLICATES", "RATE"], &rows));
        if overview.last_hour_is_cut {
            text.push_str(&format!("more events came; only the latest {} are counted\n", recent::ROWS_MAX));
        }
    }
    if let Some([accepted, refused, failed]) = status.answers() {
        text.push_str(&format!(
            "answers since the latest start: {accepted} accepted (2xx), {refused} refused (4xx), {failed} to be sent again (5xx)\n"
        ));
    }
    if let Some(count) = status.unavailable().filter(|count| *count > 0) {
        text.push_str(&format!("{count} of these could not be stored\n"));
    }
    // an event that is done in the commit that stores it takes no time
    if let Some(took) = overview.took.filter(|took| took.max_ms > 0) {
        text.push_str(&format!(
            "from receipt to done: half within {} ms, 95 of 100 within {} ms, all within {} ms\n",
            took.p50_ms, took.p95_ms, took.max_ms
        ));
    }
    if !overview.outbox.is_empty() {
        let row = |standing: &Standing| {
            let age = overview
                .oldest_pending_age_s(standing)
                .map_or_else(|| "-".to_owned(), |age| format!("{age} s"));
            let (pending, dead) = (standing.pending.to_string(), standing.dead.to_string());
            let state = state(standing, status.destinations.contains(&standing.name));
            vec![standing.name.clone(), pending, age, dead, state]
        };
        let rows: Vec<_> = overview.outbox.iter().map(row).collect();
        text.push('\n');
        text.push_str(&table(&["DESTINATION", "PENDING", "OLDEST", "DEAD", "STATE"], &rows));
    }
    text
}

fn in_words(failing: &FailingType) -> String {
    let FailingType { events, deliveries, .. } = failing;
    let delivered =
        if *deliveries == 1 { "1 delivery".to_owned() } else { format!("{deliveries} deliveries") };
    format!(
        "FAILING       {} {}: {} in {delivered} from {} to {}, and nothing of them is stored: {}\n",
        printable(&failing.endpoint),
        printable(failing.event_type.as_deref().unwrap_or("(without a type)")),
        counted(*events, "event"),
        time(failing.first_at_ms),
        time(failing.last_at_ms),
        printable(&failing.error),
    )
}

/// Why rows are not sent, in words.
fn state(standing: &Standing, is_configured: bool) -> String {
    if !is_configured {
        return "not in the configuration: its rows wait".to_owned();
    }
    match (&standing.paused, standing.circuit_open_since_ms, standing.failing_since_ms) {
        (Some((at_ms, because)), ..) => format!("paused since {}: {because}", time(*at_ms)),
        (None, Some(at_ms), _) => format!("failing since {}: one request at a time", time(at_ms)),
        (None, None, Some(at_ms)) => format!("rows fail since {}: inboxd outbox list", time(at_ms)),
        (None, None, None) => "ok".to_owned(),
    }
}
