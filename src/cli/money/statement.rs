//! `money statement`: a month of the books.

use clap::Args;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{books, mode};
use crate::books::currencies::{decimal, shown};
use crate::books::ledger::statement::{self, Late, Line, Period};
use crate::cli::store::{read_failed, short_time, table};
use crate::cli::{Context, Exit, Failure, put, put_lines, say};
use crate::clock;

/// Late lines that are named one by one.
const LATE_SHOWN: u32 = 20;

/// Show what moved in a month, and the balances at its end
///
/// One line for each account, mode (live or test) and currency. A line of the books counts in the month in which it happened
#[derive(Debug, Args)]
pub(crate) struct StatementArgs {
    /// The month
    #[arg(value_name = "YYYY-MM")]
    month: String,
    /// The zone whose months are meant, e.g. Europe/Berlin
    #[arg(long, default_value = "UTC", value_name = "ZONE")]
    zone: String,
    /// As the books were at this time, and what has changed since
    #[arg(long, value_name = "RFC3339")]
    as_of: Option<Timestamp>,
    /// Print one JSON object per line, amounts in minor units
    #[arg(long)]
    json: bool,
    /// Print CSV, amounts in minor units
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

pub(super) fn run(args: &StatementArgs, context: &Context) -> Result<(), Failure> {
    let zone = zone(&args.zone)?;
    let period = period(&args.month, &zone, args.as_of)?;
    let conn = books(context)?;
    let lines = statement::statement(&conn, &period).map_err(read_failed)?;
    if args.json {
        put_lines(lines.iter().map(|line| to_json(&args.month, line)))?;
    } else if args.csv {
        put(&to_csv(&args.month, &lines))?;
    } else if lines.is_empty() {
        say(&format!("the books have no line up to the end of {}", args.month));
    } else {
        put(&to_text(&lines))?;
    }
    let since = args.as_of.map_or(period.to_ms, Timestamp::as_millisecond);
    let (late, count) =
        statement::late(&conn, &Period { as_of_ms: since, ..period }, LATE_SHOWN).map_err(read_failed)?;
    if args.as_of.is_some() {
        tell_changes(since, &late, count);
    }
    Ok(())
}

/// A printed statement stays what it was; what came later is named.
fn tell_changes(since_ms: i64, late: &[Late], count: i64) {
    if count == 0 {
        return say(&format!("nothing has changed since {}", short_time(since_ms)));
    }
    say(&format!("changed since {}: {count} more in the books", short_time(since_ms)));
    for Late { entry_key, kind, amount, currency, booked_at_ms, object } in late {
        let provider = crate::books::currencies::provider_of(object);
        let amount = shown(provider, (*amount).into(), currency);
        say(&format!("  {} {kind} {amount} ({entry_key})", short_time(*booked_at_ms)));
    }
    if count > i64::from(LATE_SHOWN) {
        say("  …");
    }
}

/// A time zone by its name.
pub(super) fn zone(name: &str) -> Result<TimeZone, Failure> {
    if name.eq_ignore_ascii_case("utc") {
        return Ok(TimeZone::UTC);
    }
    TimeZone::get(name).map_err(|_| {
        let message = format!("{name} is no time zone of this system; write one like Europe/Berlin, or UTC");
        Failure::new(Exit::Usage, message)
    })
}

fn period(month: &str, zone: &TimeZone, as_of: Option<Timestamp>) -> Result<Period, Failure> {
    let wrong = || Failure::new(Exit::Usage, format!("{month} is no month; write it like 2026-11"));
    let is_written_so = month.len() == 7 && month.as_bytes()[4] == b'-';
    let first: Date = format!("{month}-01").parse().ok().filter(|_| is_written_so).ok_or_else(wrong)?;
    let next = first.last_of_month().tomorrow().map_err(|_| wrong())?;
    let start = |date: Date| {
        let zoned = date.to_zoned_datetime(zone.clone()).map_err(|_| wrong())?;
        Ok::<_, Failure>(zoned.timestamp().as_millisecond())
    };
    let as_of_ms = as_of.map_or_else(clock::now_ms, Timestamp::as_millisecond);
    Ok(Period { from_ms: start(first)?, to_ms: start(next)?, as_of_ms: as_of_ms.max(0) })
}

fn to_json(month: &str, line: &Line) -> Value {
    let mut json = json!({
        "month": month,
        "account": line.account,
        "livemode": line.livemode,
        "currency": line.currency,
    });
    for (name, amount) in figures(line) {
        // beyond 64 bits a number would lose digits in most readers
        json[name] = i64::try_from(amount).map_or_else(|_| json!(amount.to_string()), |amount| json!(amount));
    }
    json
}

fn to_csv(month: &str, lines: &[Line]) -> String {
    let names: Vec<_> = figures(&Line::default()).iter().map(|(name, _)| *name).collect();
    let mut csv = format!("month,account,livemode,currency,{}\r\n", names.join(","));
    for line in lines {
        let amounts: Vec<_> = figures(line).iter().map(|(_, amount)| amount.to_string()).collect();
        let account = line.account.as_deref().unwrap_or_default();
        csv.push_str(&format!(
            "{month},{account},{},{},{}\r\n",
            mode(line.livemode),
            line.currency,
            amounts.join(",")
        ));
    }
    csv
}

fn to_text(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        let account = line.account.as_deref().map(|account| format!(" {account}")).unwrap_or_default();
        let mode = match line.livemode {
            Some(true) => "live",
            Some(false) => "TEST MONEY",
            None => "before the books knew live from test",
        };
        text.push_str(&format!("{}{account}, {mode}\n", line.currency.to_ascii_uppercase()));
        let rows: Vec<_> = figures(line)
            .iter()
            .map(|(name, amount)| {
                let is_balance = matches!(*name, "receivable" | "provider" | "customer_credit");
                let name = name.replace('_', " ");
                let name = if is_balance { format!("at the end: {name}") } else { name };
                vec![name, decimal("stripe", *amount, &line.currency)]
            })
            .collect();
        text.push_str(&table(&["", "AMOUNT"], &rows));
    }
    text
}

fn figures(line: &Line) -> [(&'static str, i128); 11] {
    [
        ("invoiced", line.invoiced),
        ("credited", line.credited),
        ("cash_in", line.cash_in),
        ("outside", line.outside),
        ("refunds", line.refunds),
        ("disputes", line.disputes),
        ("fees", line.fees),
        ("payouts", line.payouts),
        ("receivable", line.receivable),
        ("provider", line.provider),
        ("customer_credit", line.customer_credit),
    ]
}
