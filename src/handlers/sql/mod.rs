//! The handler `sql:DIR`: the user's own SQL, run in the event's transaction.
//!
//! One file per event type (`invoice.paid.sql`), `_default.sql` for the rest, `schema.sql` at a start.
//! The files are read and tried at a start and at a reload, all of them or none; an event
//! never names a path. What the SQL may do is decided by [`Engine`]'s authorizer, how long it may take
//! by the writer. An error of the user's SQL is a failed handler; its text goes to the log and to
//! `last_error`, never into an answer.

mod engine;
mod program;
mod split;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Error, Transaction};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Event, Handled, Handler, HandlerError};
use crate::store::outbox::{self, NewOperation};

pub use engine::{Engine, SqlScope, committed_view};
pub use program::{Mistake, Programs};

use engine::{Mode, Verdict};
use program::{Parameter, Program, Step};

/// A folder of SQL files at work.
#[derive(Debug)]
pub struct SqlHandler {
    name: String,
    dir: PathBuf,
    engine: Arc<Engine>,
    programs: RwLock<Arc<Programs>>,
}

impl SqlHandler {
    /// A folder, to be run on the connection that `engine` is installed on. It takes no event before
    /// it was started.
    pub fn new(name: String, dir: PathBuf, engine: Arc<Engine>) -> Self {
        Self { name, dir, engine, programs: RwLock::default() }
    }

    /// Reads the folder again and tries it on another connection with an engine of its own; nothing
    /// changes before [`SqlHandler::replace`].
    ///
    /// # Errors
    /// Every mistake found.
    pub fn recompile(&self, conn: &Connection, engine: &Engine) -> Result<Programs, Vec<Mistake>> {
        let programs = program::compile(conn, engine, program::read(&self.dir)?)?;
        if programs.schema != self.current().schema {
            log::warn!("{}/schema.sql has changed: it runs at the next start", self.dir.display());
        }
        Ok(programs)
    }

    /// Puts the programs of [`SqlHandler::recompile`] to work.
    pub fn replace(&self, programs: Programs) {
        *self.programs.write().unwrap_or_else(|e| e.into_inner()) = Arc::new(programs);
    }

    fn current(&self) -> Arc<Programs> {
        Arc::clone(&self.programs.read().unwrap_or_else(|e| e.into_inner()))
    }

    /// Runs every statement to its end, or to the first that fails.
    fn run(&self, tx: &Transaction<'_>, program: &Program, event: &Event<'_>) -> rusqlite::Result<()> {
        let texts = if program.reads_body() { Texts::of(event) } else { Texts::default() };
        let _entered = self.engine.enter(Mode::Handler);
        for step in &program.steps {
            run_step(tx, step, event, &texts).map_err(|error| locate(error, program, step))?;
        }
        Ok(())
    }

    fn enqueue(&self, tx: &Transaction<'_>, event: &Event<'_>) -> Result<(), HandlerError> {
        for emission in self.engine.take_emissions() {
            let operation = NewOperation {
                destination: &emission.destination,
                topic: &emission.topic,
                operation_key: &emission.operation_key,
                endpoint: event.endpoint,
                event_id: event.id,
                object_id: event.object_id,
                payload: emission.payload.as_bytes(),
                content_type: "application/json",
                headers: None,
                event_type: (!event.event_type.is_empty()).then_some(event.event_type),
                query: None,
            };
            if !outbox::enqueue(tx, &operation, event.now_ms)? {
                let key = &emission.operation_key;
                return Err(HandlerError::Failed(format!("{key} was queued by another writer meanwhile")));
            }
        }
        Ok(())
    }
}

impl Handler for SqlHandler {
    fn name(&self) -> &str {
        &self.name
    }

    fn takes(&self, event_type: &str) -> bool {
        self.current().of(event_type).is_some()
    }

    /// Nothing of the tree, so a large body costs only the memory of its text.
    fn reads(&self) -> Option<&[&'static str]> {
        Some(&[])
    }

    fn start(&self, tx: &Transaction<'_>) -> Result<(), HandlerError> {
        let failed = |mistakes: &[Mistake]| {
            let lines: Vec<_> =
                mistakes.iter().map(|mistake| format!("{}/{mistake}", self.dir.display())).collect();
            HandlerError::Failed(lines.join("\n"))
        };
        let sources = program::read(&self.dir).map_err(|mistakes| failed(&mistakes))?;
        if let Some(schema) = &sources.schema {
            program::run_schema(tx, &self.engine, schema).map_err(|mistake| failed(&[mistake]))?;
        }
        let programs = program::compile(tx, &self.engine, sources).map_err(|mistakes| failed(&mistakes))?;
        self.replace(programs);
        Ok(())
    }

    fn handle(&self, tx: &Transaction<'_>, event: &Event<'_>) -> Result<Handled, HandlerError> {
        let programs = self.current();
        let Some(program) = programs.of(event.event_type).filter(|_| !event.is_test_send) else {
            return Ok(Handled::Ignored);
        };
        self.engine.begin(tx, program.emits)?;
        tx.prepare_cached("SAVEPOINT sql_handler")?.execute([])?;
        let ran = self.run(tx, program, event);
        let verdict = self.engine.take_verdict();
        match (ran, verdict) {
            (Ok(()), _) => {
                tx.prepare_cached("RELEASE sql_handler")?.execute([])?;
                self.enqueue(tx, event)?;
                Ok(Handled::Applied)
            }
            // where SQLite has ended the transaction there is no savepoint to go back to
            (Err(error), Some(verdict)) if !tx.is_autocommit() => {
                tx.prepare_cached("ROLLBACK TO sql_handler")?.execute([])?;
                tx.prepare_cached("RELEASE sql_handler")?.execute([])?;
                log::debug!("{}: {}: {error}: {verdict:?}", self.name, program.file);
                match verdict {
                    Verdict::Ignore(_) => Ok(Handled::Ignored),
                    Verdict::Quarantine(reason) => Ok(Handled::Quarantine(reason)),
                    Verdict::Retry(reason) => Err(HandlerError::Failed(reason)),
                }
            }
            (Err(error), _) => Err(error.into()),
        }
    }
}

/// What `check` found in a folder.
#[derive(Debug, Default)]
pub struct Report {
    /// Mistakes; with any of them the folder is not used.
    pub mistakes: Vec<Mistake>,
    /// Files that are not used.
    pub unused: Vec<String>,
    /// The destinations that its files name.
    pub sends_to: BTreeSet<String>,
    /// Allowed, but rarely intended.
    pub doubts: Vec<Mistake>,
}

/// Tries a folder on a throw-away copy of the database: `schema.sql` twice, since it runs at every
/// start, then every statement.
pub fn check(dir: &Path, conn: &Connection, engine: &Engine) -> Report {
    let sources = match program::read(dir) {
        Ok(sources) => sources,
        Err(mistakes) => return Report { mistakes, ..Report::default() },
    };
    let (unused, doubts) = (sources.unused.clone(), program::doubts(&sources));
    let sends_to = sources.sends_to();
    let mut mistakes = Vec::new();
    if let Some(schema) = &sources.schema {
        let first = program::run_schema(conn, engine, schema);
        let again = first.and_then(|()| {
            program::run_schema(conn, engine, schema).map_err(|mut mistake| {
                mistake.message = format!(
                    "{}; it runs at every start, so running it again must change nothing (IF NOT EXISTS, ON CONFLICT DO NOTHING)",
                    mistake.message
                );
                mistake
            })
        });
        mistakes.extend(again.err());
    }
    mistakes.extend(program::compile(conn, engine, sources).err().unwrap_or_default());
    Report { mistakes, unused, sends_to, doubts }
}

fn run_step(tx: &Transaction<'_>, step: &Step, event: &Event<'_>, texts: &Texts<'_>) -> rusqlite::Result<()> {
    fn text(text: &str) -> ValueRef<'_> {
        ValueRef::Text(text.as_bytes())
    }
    let mut statement = tx.prepare_cached(&step.sql)?;
    for (index, parameter) in &step.parameters {
        let value = match parameter {
            Parameter::Id => text(event.id),
            Parameter::Type if event.event_type.is_empty() => ValueRef::Null,
            Parameter::Type => text(event.event_type),
            Parameter::Object => texts.object.as_deref().map_or(ValueRef::Null, text),
            Parameter::Event => text(&texts.event),
            Parameter::Endpoint => text(event.endpoint),
            Parameter::Account => event.account.map_or(ValueRef::Null, text),
            Parameter::Livemode => {
                event.livemode.map_or(ValueRef::Null, |live| ValueRef::Integer(live.into()))
            }
            Parameter::Query => event.query.map_or(ValueRef::Null, text),
            Parameter::NowMs => ValueRef::Integer(event.now_ms),
        };
        statement.raw_bind_parameter(*index, ToSqlOutput::Borrowed(value))?;
    }
    let mut rows = statement.raw_query();
    while rows.next()?.is_some() {}
    Ok(())
}

/// SQLite's message with the file and line in front; the code, by which the writer judges, is kept.
fn locate(error: Error, program: &Program, step: &Step) -> Error {
    let message = format!("{}:{}: {}", program.file, step.line, program::said(&error));
    match error {
        Error::SqliteFailure(code, _) | Error::SqlInputError { error: code, .. } => {
            Error::SqliteFailure(code, Some(message))
        }
        other => other,
    }
}

/// The event's JSON as text.
#[derive(Default)]
struct Texts<'a> {
    event: Cow<'a, str>,
    object: Option<Cow<'a, str>>,
}

impl<'a> Texts<'a> {
    /// The sender's own text where there is one: writing it anew would sort names and round what does not fit a double.
    fn of(event: &Event<'a>) -> Self {
        let whole = event.text.map_or_else(|| Cow::Owned(event.body.to_string()), Cow::Borrowed);
        let object = if event.provider == "stripe" {
            let written = || event.body.pointer("/data/object").map(|object| Cow::Owned(object.to_string()));
            event.text.map_or_else(written, |text| data_object(text).map(Cow::Borrowed))
        } else {
            Some(whole.clone())
        };
        Self { event: whole, object }
    }
}

fn data_object(event: &str) -> Option<&str> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        data: Data<'a>,
    }
    #[derive(Deserialize)]
    struct Data<'a> {
        #[serde(borrow)]
        object: &'a RawValue,
    }
    serde_json::from_str::<Envelope<'_>>(event).ok().map(|event| event.data.object.get())
}
