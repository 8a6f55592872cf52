//! `money open`: invoices that are not settled, and facts that wait for evidence.

use clap::Args;
use serde_json::{Value, json};

use super::{books, mode};
use crate::books::currencies::shown;
use crate::books::facts::{self, Fact, id_of};
use crate::books::ledger::statement::{self, Unsettled};
use crate::cli::args::Limit;
use crate::cli::store::{read_failed, short_time, table};
use crate::cli::{Context, Failure, put, put_lines, say};
use crate::clock;
use crate::store::{Connection, SqlResult};

/// Show invoices that are not settled, by age, and what waits for evidence
#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    #[command(flatten)]
    limit: Limit,
    /// Print one JSON object per line: what, object, …
    #[arg(long)]
    json: bool,
}

/// Rows of each part where nothing is said.
const ROWS: u32 = 100;

const DAY_MS: i64 = 86_400_000;

pub(super) fn run(args: &OpenArgs, context: &Context) -> Result<(), Failure> {
    let conn = books(context)?;
    let limit = args.limit.limit.unwrap_or(ROWS);
    let invoices = statement::unsettled(&conn, limit).map_err(read_failed)?;
    let mut waiting = Vec::new();
    for (what, find) in WAITING {
        let found = find(&conn, limit).map_err(read_failed)?;
        waiting.extend(found.into_iter().map(|fact| (*what, fact)));
    }
    if args.json {
        let invoices = invoices.iter().map(invoice_json);
        let waiting = waiting.iter().map(|(what, fact)| waiting_json(what, fact));
        return put_lines(invoices.chain(waiting));
    }
    if invoices.is_empty() && waiting.is_empty() {
        say("every invoice is settled, and nothing waits for evidence");
        return Ok(());
    }
    if !invoices.is_empty() {
        let rows: Vec<_> = invoices.iter().map(invoice_row).collect();
        put(&table(&["INVOICE", "SINCE (UTC)", "DAYS", "OWED", "MODE", "ACCOUNT", ""], &rows))?;
    }
    for (what, fact) in &waiting {
        put(&format!("{} {}: {}\n", id_of(&fact.object), fact.value, sentence(what)))?;
    }
    Ok(())
}

type Find = fn(&Connection, u32) -> SqlResult<Vec<Fact>>;

const WAITING: &[(&str, Find)] = &[
    ("note_waits_for_refund", facts::waiting_notes),
    ("unnamed_refund", facts::unnamed_refunds),
    ("unknown_charge", facts::unknown_charges),
];

fn sentence(what: &str) -> &'static str {
    match what {
        "note_waits_for_refund" => {
            "the credit note names a refund whose amount no event has told; its part for the customer's balance waits for that"
        }
        "unnamed_refund" => {
            "so much (minor units) was refunded that no refund's own event has told: a later failure of it cannot be seen; \
             subscribe refund.created, refund.updated and refund.failed"
        }
        _ => {
            "a refund or dispute names this charge, and no event has told of it: whether it was ever captured is not known; \
             subscribe charge.succeeded and charge.captured"
        }
    }
}

fn invoice_row(invoice: &Unsettled) -> Vec<String> {
    let days = (clock::now_ms() - invoice.since_ms).max(0) / DAY_MS;
    let note = if invoice.was_invoiced { "" } else { "before the books: what it asked for is not known" };
    vec![
        invoice.invoice.clone(),
        short_time(invoice.since_ms),
        days.to_string(),
        shown("stripe", invoice.receivable.into(), &invoice.currency),
        mode(invoice.livemode).to_owned(),
        invoice.account.clone().unwrap_or_else(|| "-".to_owned()),
        note.to_owned(),
    ]
}

fn invoice_json(invoice: &Unsettled) -> Value {
    json!({
        "what": if invoice.was_invoiced { "open_invoice" } else { "before_the_books" },
        "object": format!("invoice:{}", invoice.invoice),
        "account": invoice.account,
        "livemode": invoice.livemode,
        "currency": invoice.currency,
        "receivable": invoice.receivable,
        "since_ms": invoice.since_ms,
    })
}

fn waiting_json(what: &str, fact: &Fact) -> Value {
    json!({
        "what": what,
        "object": fact.object,
        "field": fact.field,
        "value": fact.value,
        "event_id": fact.event_id,
    })
}
