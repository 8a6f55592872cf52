//! `money export`: the books as a journal of hledger or beancount, or as CSV.
//!
//! One transaction for each line of the books, balanced, with the line's key and event. At the end stand the balances, so
//! that the other program proves that it has read the same books.

use std::collections::{BTreeMap, BTreeSet};

use clap::{ArgGroup, Args};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::books;
use super::statement::zone;
use crate::books::currencies::{decimal, exponent, provider_of};
use crate::books::ledger::{self, Entry};
use crate::cli::spool::Spool;
use crate::cli::store::read_failed;
use crate::cli::{Context, Exit, Failure};
use crate::store::SqlError;

/// Print the books for a bookkeeping program
///
/// Live money; with --test, test money instead. The two are never in one journal
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("format").required(true))]
pub(crate) struct ExportArgs {
    /// A journal for hledger
    #[arg(long, group = "format")]
    hledger: bool,
    /// A file for beancount
    #[arg(long, group = "format")]
    beancount: bool,
    /// CSV: one row per line of the books, amounts in minor units
    #[arg(long, group = "format")]
    csv: bool,
    /// Test money instead of live money
    #[arg(long)]
    test: bool,
    /// Only this account of the provider
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// The zone of the dates, e.g. Europe/Berlin
    #[arg(long, default_value = "UTC", value_name = "ZONE")]
    zone: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Hledger,
    Beancount,
    Csv,
}

pub(super) fn run(args: &ExportArgs, context: &Context) -> Result<(), Failure> {
    let zone = zone(&args.zone)?;
    let conn = books(context)?;
    let format = match (args.hledger, args.beancount) {
        (true, _) => Format::Hledger,
        (_, true) => Format::Beancount,
        _ => Format::Csv,
    };
    let mut entries = Vec::new();
    ledger::each(&conn, |entry| {
        let is_meant = (entry.livemode == Some(false)) == args.test
            && args.account.as_ref().is_none_or(|account| entry.account.as_ref() == Some(account));
        if is_meant {
            entries.push(entry);
        }
        Ok::<_, SqlError>(())
    })
    .map_err(read_failed)?;
    drop(conn);
    let mut journal = Journal { format, zone, data: Spool::default(), balances: BTreeMap::new(), last: None };
    journal.begin(&entries)?;
    entries.iter().try_for_each(|entry| journal.put(entry))?;
    journal.end()?;
    journal.data.pour()
}

struct Journal {
    format: Format,
    zone: TimeZone,
    data: Spool,
    /// (account, currency) -> balance and the provider whose digits count.
    balances: BTreeMap<(String, String), (i128, String)>,
    last: Option<jiff::civil::Date>,
}

impl Journal {
    fn begin(&mut self, entries: &[Entry]) -> Result<(), Failure> {
        match self.format {
            Format::Csv => self.data.put(CSV_HEAD),
            Format::Hledger => {
                let mut currencies = BTreeMap::new();
                for entry in entries {
                    currencies
                        .entry(entry.currency.clone())
                        .or_insert_with(|| provider_of(&entry.object).to_owned());
                }
                for (currency, provider) in &currencies {
                    let digits = exponent(provider, currency).unwrap_or(0);
                    let sample =
                        decimal(provider, 1000 * 10_i128.pow(u32::try_from(digits).unwrap_or(0)), currency);
                    // without a point hledger takes the next sign for a thousands mark
                    let point = if digits == 0 { "." } else { "" };
                    self.data
                        .put(&format!("commodity {sample}{point} {}\n", currency.to_ascii_uppercase()))?;
                }
                Ok(())
            }
            Format::Beancount => {
                let accounts: BTreeSet<_> = entries.iter().flat_map(|entry| self.accounts(entry)).collect();
                for account in accounts {
                    self.data.put(&format!("1970-01-01 open {account}\n"))?;
                }
                Ok(())
            }
        }
    }

    fn put(&mut self, entry: &Entry) -> Result<(), Failure> {
        if self.format == Format::Csv {
            return self.data.put(&csv_row(entry));
        }
        let date = self.date(entry)?;
        self.last = self.last.max(Some(date));
        let provider = provider_of(&entry.object);
        let [account, contra] = self.accounts(entry);
        let currency = entry.currency.to_ascii_uppercase();
        let Entry { entry_key, event_id, object, kind, .. } = entry;
        let head = match self.format {
            Format::Beancount => format!(
                "\n{date} * \"{kind}\"\n  key: {}\n  event: {}\n  object: {}\n",
                quoted(entry_key),
                quoted(event_id),
                quoted(object)
            ),
            Format::Hledger | Format::Csv => {
                format!("\n{date} * {kind}  ; key:{}, event:{}\n", tag(entry_key), tag(event_id))
            }
        };
        self.data.put(&head)?;
        for (account, amount) in [(account, i128::from(entry.amount)), (contra, -i128::from(entry.amount))] {
            let text = decimal(provider, amount, &entry.currency);
            self.data.put(&format!("  {account}  {text} {currency}\n"))?;
            let balance = self.balances.entry((account, entry.currency.clone()));
            balance.or_insert_with(|| (0, provider.to_owned())).0 += amount;
        }
        Ok(())
    }

    /// What the other program must come to as well.
    fn end(&mut self) -> Result<(), Failure> {
        let Some(last) = self.last else { return Ok(()) };
        // beancount's balances are those at the beginning of a day
        let after = last.tomorrow().map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        let balances = std::mem::take(&mut self.balances);
        for ((account, currency), (amount, provider)) in &balances {
            let text = decimal(provider, *amount, currency);
            let code = currency.to_ascii_uppercase();
            let line = match self.format {
                Format::Beancount => format!("\n{after} balance {account}  {text} {code}\n"),
                Format::Hledger | Format::Csv => {
                    format!("\n{after} * balance\n  {account}  0 {code} = {text} {code}\n")
                }
            };
            self.data.put(&line)?;
        }
        Ok(())
    }

    fn date(&self, entry: &Entry) -> Result<jiff::civil::Date, Failure> {
        let at_ms = entry.occurred_at_ms.unwrap_or(entry.booked_at_ms);
        let time = Timestamp::from_millisecond(at_ms)
            .map_err(|_| Failure::new(Exit::Failed, format!("{} has no usable time", entry.entry_key)))?;
        Ok(time.to_zoned_datetime(self.zone.clone()).date())
    }

    fn accounts(&self, entry: &Entry) -> [String; 2] {
        let provider = provider_of(&entry.object);
        [entry.kind.book(), entry.kind.contra()].map(|book| {
            let account = account(book, provider);
            if self.format == Format::Beancount { capitalised(&account) } else { account }
        })
    }
}

/// An account of the books in the tree that both programs know.
fn account(book: &str, provider: &str) -> String {
    match book {
        "provider" => format!("assets:{provider}"),
        "bank" | "outside" | "receivable" => format!("assets:{book}"),
        "customer_credit" => "liabilities:customer-credit".to_owned(),
        "sales" | "refunds" => format!("income:{book}"),
        "conversion" => "equity:conversion".to_owned(),
        book => format!("expenses:{}", book.replace('_', "-")),
    }
}

/// beancount wants every part of an account to begin with a capital.
fn capitalised(account: &str) -> String {
    let part = |part: &str| {
        let part = part.replace('_', "-");
        let mut letters = part.chars();
        letters
            .next()
            .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
            .unwrap_or_default()
    };
    account.split(':').map(part).collect::<Vec<_>>().join(":")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A tag of hledger ends at a comma.
fn tag(text: &str) -> String {
    text.replace([',', '\n', '\r'], " ")
}

const CSV_HEAD: &str = "entry_key,kind,book,contra,amount,currency,object,invoice_id,account,livemode,event_id,endpoint,occurred_at_ms,booked_at_ms\r\n";

fn csv_row(entry: &Entry) -> String {
    let number = |number: Option<i64>| number.map(|number| number.to_string()).unwrap_or_default();
    let cells = [
        entry.entry_key.clone(),
        entry.kind.to_string(),
        entry.kind.book().to_owned(),
        entry.kind.contra().to_owned(),
        entry.amount.to_string(),
        entry.currency.clone(),
        entry.object.clone(),
        entry.invoice_id.clone().unwrap_or_default(),
        entry.account.clone().unwrap_or_default(),
        number(entry.livemode.map(i64::from)),
        entry.event_id.clone(),
        entry.endpoint.clone(),
        number(entry.occurred_at_ms),
        entry.booked_at_ms.to_string(),
    ];
    cells.map(|cell| csv_cell(&cell)).join(",") + "\r\n"
}

fn csv_cell(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
