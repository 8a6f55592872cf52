//! From files to programs: what a folder holds, cut into statements and tried against the database.
//!
//! Nothing here runs for an event. A program exists only when every one of its statements could be
//! prepared under the authorizer and names only parameters that exist.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;

use rusqlite::{Connection, Error};

use super::engine::{Engine, Mode};
use super::split::{self, Piece};

/// The file for events that have none of their own.
const DEFAULT: &str = "_default.sql";

/// The only file that may change the schema.
const SCHEMA: &str = "schema.sql";

/// What a handler's statements begin with. `PRAGMA` and `VACUUM` slip past SQLite's authorizer.
const VERBS: [&str; 7] = ["SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES"];

/// Larger than any hand-written file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Something wrong in a folder, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file's name in the folder, or the folder itself.
    pub file: String,
    /// From 1; 0 where it is about the file as a whole.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { file, line: 0, message, .. } => write!(f, "{file}: {message}"),
            Self { file, line, column, message } => write!(f, "{file}:{line}:{column}: {message}"),
        }
    }
}

/// What a statement may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parameter {
    Id,
    Type,
    Object,
    Event,
    Endpoint,
    Account,
    Livemode,
    Query,
    NowMs,
}

const PARAMETERS: [(&str, Parameter); 9] = [
    (":id", Parameter::Id),
    (":type", Parameter::Type),
    (":object", Parameter::Object),
    (":event", Parameter::Event),
    (":endpoint", Parameter::Endpoint),
    (":account", Parameter::Account),
    (":livemode", Parameter::Livemode),
    (":query", Parameter::Query),
    (":now_ms", Parameter::NowMs),
];

/// A statement that could be prepared.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) sql: String,
    pub(super) line: usize,
    /// By their indexes in the statement.
    pub(super) parameters: Vec<(usize, Parameter)>,
}

/// What one file does.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) file: String,
    pub(super) steps: Vec<Step>,
    /// Whether it may ask for outbox rows.
    pub(super) emits: bool,
}

impl Program {
    /// Whether a statement asks for the event's JSON, which may be large.
    pub(super) fn reads_body(&self) -> bool {
        let mut parameters = self.steps.iter().flat_map(|step| &step.parameters);
        parameters.any(|(_, parameter)| matches!(parameter, Parameter::Object | Parameter::Event))
    }
}

/// The programs of a folder.
#[derive(Debug, Default)]
pub struct Programs {
    by_type: HashMap<String, Program>,
    default: Option<Program>,
    /// As read: it runs at a start.
    pub(super) schema: Option<String>,
}

impl Programs {
    /// The program for a type of event: names are compared, no path is ever built from an event.
    pub(super) fn of(&self, event_type: &str) -> Option<&Program> {
        self.by_type.get(&event_type.replace('/', ".")).or(self.default.as_ref())
    }
}

/// The files of a folder, as read.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) schema: Option<String>,
    /// By file name, in order.
    files: Vec<(String, String)>,
    /// Files that are not used.
    pub(super) unused: Vec<String>,
}

impl Sources {
    /// The destinations that are written out in the files.
    pub(super) fn sends_to(&self) -> BTreeSet<String> {
        let named = |(_, text): &(String, String)| split::literal_arguments(text, "inboxd_emit");
        self.files.iter().flat_map(named).map(|(name, _)| name).collect()
    }
}

/// Reads every `.sql` file of the folder.
pub(super) fn read(dir: &Path) -> Result<Sources, Vec<Mistake>> {
    let of_dir = |message: String| {
        let file = dir.display().to_string();
        vec![Mistake { file, line: 0, column: 0, message }]
    };
    let entries = std::fs::read_dir(dir).map_err(|error| of_dir(format!("cannot be read: {error}")))?;
    let mut sources = Sources { schema: None, files: Vec::new(), unused: Vec::new() };
    let mut mistakes = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| of_dir(format!("cannot be read: {error}")))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || entry.path().is_dir() {
            continue;
        }
        if !name.ends_with(".sql") {
            sources.unused.push(name);
            continue;
        }
        match read_file(&entry.path()) {
            Ok(text) if name == SCHEMA => sources.schema = Some(text),
            Ok(text) => sources.files.push((name, text)),
            Err(message) => mistakes.push(Mistake { file: name, line: 0, column: 0, message }),
        }
    }
    sources.files.sort();
    sources.unused.sort();
    if mistakes.is_empty() { Ok(sources) } else { Err(mistakes) }
}

fn read_file(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?.len();
    if size > FILE_BYTES_MAX {
        return Err("is larger than 1 MiB".to_owned());
    }
    let bytes = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Runs `schema.sql`, which must be inside a transaction.
pub(super) fn run_schema(conn: &Connection, engine: &Engine, sql: &str) -> Result<(), Mistake> {
    for piece in split::statements(sql) {
        let entered = engine.enter(Mode::Schema);
        let ran = step_to_the_end(conn, piece.text);
        let denied = engine.take_denied();
        drop(entered);
        ran.map_err(|error| mistake(SCHEMA, sql, &piece, denied, &error))?;
    }
    Ok(())
}

fn step_to_the_end(conn: &Connection, sql: &str) -> rusqlite::Result<()> {
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.raw_query();
    while rows.next()?.is_some() {}
    Ok(())
}

/// Prepares every statement of every file.
pub(super) fn compile(
    conn: &Connection,
    engine: &Engine,
    sources: Sources,
) -> Result<Programs, Vec<Mistake>> {
    let mut programs = Programs { schema: sources.schema, ..Programs::default() };
    let mut mistakes = Vec::new();
    for (file, text) in sources.files {
        match program(conn, engine, &file, &text) {
            Err(found) => mistakes.extend(found),
            Ok(program) if file == DEFAULT => programs.default = Some(program),
            Ok(program) => {
                let event_type = file.trim_end_matches(".sql").to_owned();
                programs.by_type.insert(event_type, program);
            }
        }
    }
    if mistakes.is_empty() { Ok(programs) } else { Err(mistakes) }
}

fn program(conn: &Connection, engine: &Engine, file: &str, text: &str) -> Result<Program, Vec<Mistake>> {
    let (mut steps, mut mistakes) = (Vec::new(), Vec::new());
    for piece in split::statements(text) {
        match step(conn, engine, file, text, &piece) {
            Ok(step) => steps.push(step),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    let emits = text.to_ascii_lowercase().contains("inboxd_emit");
    if mistakes.is_empty() { Ok(Program { file: file.to_owned(), steps, emits }) } else { Err(mistakes) }
}

fn step(
    conn: &Connection,
    engine: &Engine,
    file: &str,
    text: &str,
    piece: &Piece<'_>,
) -> Result<Step, Mistake> {
    let at = |offset: usize, message: String| {
        let (line, column) = split::position(text, piece.start + offset);
        Mistake { file: file.to_owned(), line, column, message }
    };
    let verb = piece.verb.to_ascii_uppercase();
    if !VERBS.contains(&verb.as_str()) {
        return Err(at(0, refusal(&verb, piece.text)));
    }
    let entered = engine.enter(Mode::Handler);
    // not from the cache: there the same text may have been prepared as inboxd's own
    let prepared = conn.prepare(piece.text);
    let denied = engine.take_denied();
    drop(entered);
    let statement = prepared.map_err(|error| mistake(file, text, piece, denied, &error))?;
    for (destination, offset) in split::literal_arguments(piece.text, "inboxd_emit") {
        if let Some(rule) = engine.unknown_destination(&destination) {
            return Err(at(offset, rule));
        }
    }
    let mut parameters = Vec::new();
    for index in 1..=statement.parameter_count() {
        let name = statement.parameter_name(index).unwrap_or("?");
        let Some((_, parameter)) = PARAMETERS.iter().find(|(known, _)| *known == name) else {
            let known = PARAMETERS.map(|(name, _)| name).join(" ");
            let offset = piece.text.find(name).unwrap_or(0);
            return Err(at(offset, format!("there is no parameter {name}; known: {known}")));
        };
        parameters.push((index, *parameter));
    }
    let (line, _) = split::position(text, piece.start);
    Ok(Step { sql: piece.text.to_owned(), line, parameters })
}

/// Warnings: allowed in the files, but rarely intended.
pub(super) fn doubts(sources: &Sources) -> Vec<Mistake> {
    let schema = sources.schema.iter().map(|text| (SCHEMA, text.as_str()));
    let files = sources.files.iter().map(|(file, text)| (file.as_str(), text.as_str()));
    schema.chain(files).flat_map(|(file, text)| silent(file, text)).collect()
}

fn silent(file: &str, text: &str) -> Vec<Mistake> {
    let doubt = |(offset, clause): (usize, String)| {
        let (line, column) = split::position(text, offset);
        let rule = if clause.ends_with("IGNORE") {
            "leaves out a row that has a NULL or fails a CHECK as well, without an error, and the event counts as processed; \
             write ON CONFLICT (KEY) DO NOTHING"
        } else {
            "deletes the row that was there, with all that this statement does not write; \
             write ON CONFLICT (KEY) DO UPDATE SET …"
        };
        Mistake { file: file.to_owned(), line, column, message: format!("{clause} {rule}") }
    };
    split::silent_clauses(text).into_iter().map(doubt).collect()
}

/// Why a handler may not contain this statement.
fn refusal(verb: &str, text: &str) -> String {
    let start: Vec<_> = text.split_whitespace().take(4).collect();
    let rule = match verb {
        "CREATE" | "DROP" | "ALTER" | "REINDEX" | "ANALYZE" => {
            "tables are made in schema.sql, which runs at a start"
        }
        "BEGIN" | "COMMIT" | "END" | "ROLLBACK" | "SAVEPOINT" | "RELEASE" => {
            "the transaction is inboxd's: the event and its effects are committed together"
        }
        _ => "a handler's statements begin with SELECT, INSERT, UPDATE, DELETE, REPLACE, WITH or VALUES",
    };
    format!("`{}` is not allowed here: {rule}", start.join(" ").trim_end_matches(';'))
}

fn mistake(file: &str, text: &str, piece: &Piece<'_>, denied: Option<String>, error: &Error) -> Mistake {
    let offset = match error {
        Error::SqlInputError { offset, .. } => usize::try_from(*offset).unwrap_or(0),
        _ => 0,
    };
    let (line, column) = split::position(text, piece.start + offset);
    let message = match denied {
        Some(what) => format!("not allowed here: {what}"),
        None => said(error),
    };
    Mistake { file: file.to_owned(), line, column, message }
}

/// SQLite's own words, without the statement's text.
pub(super) fn said(error: &Error) -> String {
    match error {
        Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}
