//! `money`: what the books say, and what they are made from.
//!
//! Amounts are in the provider's minor units in JSON and CSV, and with their decimal point for people. Live and test money
//! never stand in one figure.

mod back_fill;
mod export;
mod object;
mod open;
mod rehearsal;
mod statement;
mod tie_out;

use clap::Subcommand;

use super::store;
use super::{Context, Exit, Failure};
use crate::store::Connection;
use crate::store::meta;

/// Look at the books: statements, open invoices, exports, and how they tie out
#[derive(Debug, Subcommand)]
pub(crate) enum MoneyVerb {
    Statement(statement::StatementArgs),
    Open(open::OpenArgs),
    Object(object::ObjectArgs),
    Export(export::ExportArgs),
    TieOut(tie_out::TieOutArgs),
    Try(rehearsal::TryArgs),
    Replay(back_fill::ReplayArgs),
}

/// Runs one of them.
pub(crate) fn run(verb: &MoneyVerb, context: &Context) -> Result<(), Failure> {
    match verb {
        MoneyVerb::Statement(args) => statement::run(args, context),
        MoneyVerb::Open(args) => open::run(args, context),
        MoneyVerb::Object(args) => object::run(args, context),
        MoneyVerb::Export(args) => export::run(args, context),
        MoneyVerb::TieOut(args) => tie_out::run(args, context),
        MoneyVerb::Try(args) => rehearsal::run(args, context),
        MoneyVerb::Replay(args) => back_fill::run(args, context),
    }
}

/// Opens the books for reading.
fn books(context: &Context) -> Result<Connection, Failure> {
    let (_, conn) = store::open(context)?;
    require_books(&conn)?;
    Ok(conn)
}

/// In an application's own file there are none.
fn require_books(conn: &Connection) -> Result<(), Failure> {
    if meta::schema_version(conn).map_err(store::read_failed)?.is_none() {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Refused,
        "there are no books in an application's own database: the handlers `billing` and `money` need a file of inboxd's own \
         (data_dir)",
    ))
}

/// Live, test, or not known, as people read it.
fn mode(livemode: Option<bool>) -> &'static str {
    match livemode {
        Some(true) => "live",
        Some(false) => "test",
        None => "-",
    }
}
