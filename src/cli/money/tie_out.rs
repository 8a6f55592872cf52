//! `money tie-out`: the provider's own balance report against the books.
//!
//! Stripe's reports "balance change from activity (itemized)" and "payout reconciliation (itemized)" name the source of each
//! row. Rows are matched by ids alone, never by amount and day. Fees and conversions are in no event: `--book-fees` books
//! them from the report, each once under the id of its balance transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::require_books;
use crate::books::currencies::{exponent, minor_units, shown};
use crate::books::facts::{self, BooksError};
use crate::books::kinds::Kind;
use crate::books::ledger::{self, Cause, Object, Target};
use crate::cli::store::{self, read_failed};
use crate::cli::{Context, Exit, Failure, put, put_lines, read_bounded, say};
use crate::clock;
use crate::store::audit::{self, Act};
use crate::store::{Connection, SqlError, SqlResult, Transaction};

/// A report of a year of a small shop.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Compare the books with Stripe's balance report (CSV, itemized)
#[derive(Debug, Args)]
pub(crate) struct TieOutArgs {
    /// The report, - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Book the fees and conversions that the report names; the same report twice books them once
    #[arg(long)]
    book_fees: bool,
    /// Print one JSON object per line: what, object, currency, report, books
    #[arg(long)]
    json: bool,
}

/// One row of the report.
#[derive(Debug)]
struct Row {
    transaction: String,
    category: String,
    source: String,
    invoice: String,
    intent: String,
    currency: String,
    gross: i64,
    fee: i64,
    /// What the customer paid, where that is another currency.
    facing: Option<(i64, String)>,
}

/// What report and books say of one object, in one currency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sides {
    report: i128,
    books: i128,
    is_in_report: bool,
    is_in_books: bool,
}

impl Sides {
    fn verdict(self) -> &'static str {
        match (self.is_in_report, self.is_in_books) {
            (true, false) => "missing_here",
            (false, _) => "missing_there",
            (true, true) if self.report == self.books => "matched",
            (true, true) => "different",
        }
    }
}

pub(super) fn run(args: &TieOutArgs, context: &Context) -> Result<(), Failure> {
    let bytes = read_bounded(&args.file, FILE_BYTES_MAX, "a balance report")?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8"))?;
    let rows = rows(&text)?;
    let (_, conn) = if args.book_fees { store::open_to_write(context)? } else { store::open(context)? };
    require_books(&conn)?;
    if args.book_fees {
        let booked = book_fees(&conn, &rows)?;
        say(&format!("{booked} fees and conversions booked"));
    }
    let sides = compare(&conn, &rows).map_err(read_failed)?;
    tell(args, &sides, &rows)
}

fn wrong(what: &str) -> Failure {
    Failure::new(Exit::Usage, format!("the file is no itemized balance report: {what}"))
}

/// Reads the report. Columns are found by their names; those that are not needed are not looked at.
fn rows(text: &str) -> Result<Vec<Row>, Failure> {
    let mut lines = csv(text.trim_start_matches('\u{feff}')).into_iter();
    let head = lines.next().ok_or_else(|| wrong("it is empty"))?;
    let column = |name: &str| head.iter().position(|cell| cell.trim().eq_ignore_ascii_case(name));
    let required = |name: &str| {
        column(name).ok_or_else(|| wrong(&format!("it has no column {name}; choose the itemized report")))
    };
    let (transaction, currency) = (required("balance_transaction_id")?, required("currency")?);
    let (gross, fee) = (required("gross")?, required("fee")?);
    let (category, source) = (required("reporting_category")?, required("source_id")?);
    let (invoice, intent) = (column("invoice_id"), column("payment_intent_id"));
    let facing = column("customer_facing_amount").zip(column("customer_facing_currency"));
    let mut rows = Vec::new();
    for (number, line) in lines.enumerate().filter(|(_, line)| line.len() > 1) {
        let cell = |at: usize| line.get(at).map_or("", |cell| cell.trim());
        let optional = |at: Option<usize>| at.map_or(String::new(), |at| cell(at).to_owned());
        let code = cell(currency).to_ascii_lowercase();
        let amount = |text: &str, code: &str| {
            let digits = exponent("stripe", code)
                .ok_or_else(|| wrong(&format!("row {}: currency {code} is not known", number + 2)))?;
            minor_units(text, digits)
                .ok_or_else(|| wrong(&format!("row {}: {text} is no amount of {code}", number + 2)))
        };
        let facing = facing.map(|(amount, currency)| (cell(amount), cell(currency).to_ascii_lowercase()));
        let facing =
            facing.filter(|(amount, facing)| !amount.is_empty() && !facing.is_empty() && *facing != code);
        rows.push(Row {
            transaction: cell(transaction).to_owned(),
            category: cell(category).to_owned(),
            source: cell(source).to_owned(),
            invoice: optional(invoice),
            intent: optional(intent),
            gross: amount(cell(gross), &code)?,
            fee: amount(cell(fee), &code)?,
            facing: facing
                .map(|(text, facing)| Ok::<_, Failure>((amount(text, &facing)?, facing)))
                .transpose()?,
            currency: code,
        });
    }
    Ok(rows)
}

/// RFC 4180, with line ends of any kind.
fn csv(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell, mut is_quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                cell.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => row.push(std::mem::take(&mut cell)),
            '\r' if !is_quoted => {}
            '\n' if !is_quoted => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            other => cell.push(other),
        }
    }
    if !cell.is_empty() || !row.is_empty() {
        row.push(cell);
        rows.push(row);
    }
    rows
}

/// The object of the books that a row is about, and what it moved there in the currency of the books; `None`: only a fee,
/// a conversion, or nothing that the books have.
fn counterpart(conn: &Connection, row: &Row) -> SqlResult<Option<(String, i64, String)>> {
    let (amount, currency) = match &row.facing {
        Some((amount, currency)) => (*amount, currency.clone()),
        None => (row.gross, row.currency.clone()),
    };
    let object = match row.category.as_str() {
        "charge" | "payment" if !row.invoice.is_empty() => format!("invoice:{}", row.invoice),
        "charge" | "payment" if !row.intent.is_empty() => format!("payment_intent:{}", row.intent),
        "charge" | "payment" => format!("charge:{}", row.source),
        "refund" | "refund_failure" | "partial_capture_reversal" => {
            let refund = format!("refund:{}", row.source);
            match facts::text(conn, &refund, "charge")? {
                Some(charge) => format!("charge:{charge}"),
                None if row.source.starts_with("ch_") || row.source.starts_with("py_") => {
                    format!("charge:{}", row.source)
                }
                None => refund,
            }
        }
        // in the currency of the balance, as the dispute's own events tell
        "dispute" | "dispute_reversal" => {
            return Ok(Some((format!("dispute:{}", row.source), row.gross, row.currency.clone())));
        }
        "payout" | "payout_reversal" => format!("payout:{}", row.source),
        "topup" | "topup_reversal" => format!("topup:{}", row.source),
        _ => return Ok(None),
    };
    Ok(Some((object, amount, currency)))
}

/// Kinds of lines that the report has rows of, apart from fees and conversions.
fn is_compared(kind: Kind) -> bool {
    matches!(kind, Kind::Payment | Kind::Sale | Kind::Refund | Kind::Dispute | Kind::Payout | Kind::Topup)
}

/// A refund and a sale can be of one charge: they are compared apart.
fn part_of(object: &str, is_refund: bool) -> String {
    if is_refund { format!("{object} refunds") } else { object.to_owned() }
}

fn compare(conn: &Connection, rows: &[Row]) -> SqlResult<BTreeMap<(String, String), Sides>> {
    let mut sides: BTreeMap<(String, String), Sides> = BTreeMap::new();
    for row in rows {
        if let Some((object, amount, currency)) = counterpart(conn, row)? {
            let is_refund = row.category.contains("refund") || row.category == "partial_capture_reversal";
            let side = sides.entry((part_of(&object, is_refund), currency)).or_default();
            side.report += i128::from(amount);
            side.is_in_report = true;
        }
    }
    ledger::each(conn, |entry| {
        if is_compared(entry.kind) && entry.livemode != Some(false) {
            let object = part_of(&entry.object, entry.kind == Kind::Refund);
            let side = sides.entry((object, entry.currency)).or_default();
            side.books += i128::from(entry.amount);
            side.is_in_books = true;
        }
        Ok::<_, SqlError>(())
    })?;
    // what comes to nothing on a side that has it is no difference to one that has it not
    sides.retain(|_, side| side.is_in_report || side.books != 0);
    for side in sides.values_mut() {
        side.is_in_books |= side.report == 0;
    }
    Ok(sides)
}

fn book_fees(conn: &Connection, rows: &[Row]) -> Result<usize, Failure> {
    let now_ms = clock::now_ms();
    let mut booked = 0;
    let disputes: BTreeSet<_> = ["dispute", "dispute_reversal"].into();
    for chunk in rows.chunks(500) {
        let made = store::change(conn, |tx| {
            let mut booked = 0;
            for row in chunk {
                booked += match book_fee(tx, row, disputes.contains(row.category.as_str()), now_ms) {
                    Ok(booked) => booked,
                    Err(BooksError::Sql(error)) => return Err(error),
                    // an amount of more than 64 bits is in no report
                    Err(BooksError::Contradiction(_)) => 0,
                };
            }
            Ok(booked)
        })?;
        booked += made;
    }
    let count = i64::try_from(booked).unwrap_or(i64::MAX);
    store::change(conn, |tx| {
        let by = store::by();
        let act = Act {
            actor: &by.actor,
            act: "money tie-out --book-fees",
            filter: "{}",
            count,
            note: by.note.as_deref(),
        };
        audit::note(tx, &act, now_ms)
    })?;
    Ok(booked)
}

fn book_fee(tx: &Transaction<'_>, row: &Row, is_dispute: bool, now_ms: i64) -> Result<usize, BooksError> {
    if row.transaction.is_empty() {
        return Ok(0);
    }
    let mut target = Target::default();
    // a dispute's fee is told by the dispute's own events
    if !is_dispute {
        target.put(Kind::Fee, &row.currency, -i128::from(row.fee));
    }
    // a fee that stands alone is the gross amount of its row
    if matches!(row.category.as_str(), "fee" | "network_cost" | "tax") {
        target.put(Kind::Fee, &row.currency, row.gross.into());
    }
    if let Some((amount, currency)) = &row.facing
        && !is_dispute
    {
        target.put(Kind::Converted, currency, -i128::from(*amount));
        target.put(Kind::Converted, &row.currency, row.gross.into());
    }
    let cause = Cause {
        event_id: "tie-out",
        endpoint: "",
        account: None,
        livemode: Some(true),
        occurred_at_ms: None,
        now_ms,
    };
    let object = format!("txn:{}", row.transaction);
    Ok(ledger::settle(tx, Object { name: &object, invoice_id: None }, &target, &cause)?.len())
}

fn tell(args: &TieOutArgs, sides: &BTreeMap<(String, String), Sides>, rows: &[Row]) -> Result<(), Failure> {
    if args.json {
        return put_lines(sides.iter().map(|((object, currency), side)| to_json(object, currency, *side)));
    }
    let count = |what: &str| sides.values().filter(|side| side.verdict() == what).count();
    for ((object, currency), side) in sides.iter().filter(|(_, side)| side.verdict() != "matched") {
        let line = match side.verdict() {
            "missing_here" => {
                format!("missing here   {object}: the report has {}", shown("stripe", side.report, currency))
            }
            "missing_there" => {
                format!("missing there  {object}: the books have {}", shown("stripe", side.books, currency))
            }
            _ => format!(
                "different      {object}: the report has {}, the books {}",
                shown("stripe", side.report, currency),
                shown("stripe", side.books, currency)
            ),
        };
        put(&format!("{line}\n"))?;
    }
    put(&format!(
        "{} rows: {} matched, {} missing here, {} missing there, {} different\n",
        rows.len(),
        count("matched"),
        count("missing_here"),
        count("missing_there"),
        count("different")
    ))
}

fn to_json(object: &str, currency: &str, side: Sides) -> Value {
    let number = |amount: i128| {
        i64::try_from(amount).map_or_else(|_| json!(amount.to_string()), |amount| json!(amount))
    };
    json!({
        "what": side.verdict(),
        "object": object,
        "currency": currency,
        "report": side.is_in_report.then(|| number(side.report)),
        "books": side.is_in_books.then(|| number(side.books)),
    })
}
