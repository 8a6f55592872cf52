//! What stands between the user's SQL and the database: the authorizer and the `inboxd_*` functions.
//!
//! Both are installed once, on a connection that nothing was prepared on yet: installing an authorizer
//! re-prepares every statement. They are switched by a shared mode, which is on only while the user's
//! SQL is prepared or stepped. A function can neither end a handler nor write: it stores its verdict here and fails
//! the statement, and the handler then acts on the verdict.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization, TransactionOperation};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error, Transaction};

use crate::handlers::shared_tables;
use crate::store::outbox::{self, Queued};
use crate::wake::lock;

/// Names with this prefix are reserved for inboxd, also for tables that do not exist yet.
const OWN_PREFIX: &str = "inboxd_";

/// Statements of all handlers and of inboxd itself that stay prepared.
const STATEMENTS_CACHED: usize = 512;

/// The key is sent in a header.
const KEY_BYTES_MAX: usize = 255;

/// A reason is a sentence for a person.
const REASON_CHARS_MAX: usize = 500;

/// Whose SQL is being prepared or stepped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Mode {
    /// inboxd's own: everything is allowed.
    Own = 0,
    /// A handler's file.
    Handler = 1,
    /// `schema.sql`.
    Schema = 2,
}

/// How a handler's SQL ended itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Ignore(String),
    Quarantine(String),
    Retry(String),
}

/// An outbox row that a handler emitted; it is inserted when the handler has succeeded.
#[derive(Debug)]
pub(super) struct Emission {
    pub(super) destination: String,
    pub(super) topic: String,
    pub(super) operation_key: String,
    pub(super) payload: String,
}

/// What the user's SQL may rely on.
#[derive(Debug, Clone, Default)]
pub struct SqlScope {
    /// The names of inboxd's tables in this database.
    pub own_tables: Vec<String>,
    /// The names that `inboxd_emit` may send to.
    pub destinations: Vec<String>,
}

/// The authorizer and the functions of one connection.
pub struct Engine {
    mode: AtomicU8,
    sql_scope: SqlScope,
    /// Of inboxd's tables, the ones that the application and its SQL may insert into and update.
    shared_tables: Vec<&'static str>,
    denied: Mutex<Option<String>>,
    call: Mutex<Call>,
    /// Sees what is committed: while the writer holds the lock, the state its transaction began with.
    committed: Option<Mutex<Connection>>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("sql_scope", &self.sql_scope).finish_non_exhaustive()
    }
}

/// What one run of a handler has emitted and decided so far.
#[derive(Debug, Default)]
struct Call {
    verdict: Option<Verdict>,
    emissions: Vec<Emission>,
    /// Operations that this transaction queued and that are not committed yet, by their keys.
    uncommitted: HashMap<String, Queued>,
}

impl Engine {
    /// Installs authorizer and functions. `committed` is a second, read-only connection to the same
    /// file, by which `inboxd_emit` sees what was queued before; without one nothing was.
    ///
    /// # Errors
    /// When SQLite refuses a hook or a function.
    pub fn install(
        conn: &mut Connection,
        sql_scope: SqlScope,
        committed: Option<Connection>,
    ) -> rusqlite::Result<Arc<Self>> {
        let engine = Arc::new(Self {
            mode: AtomicU8::new(Mode::Own as u8),
            sql_scope,
            shared_tables: shared_tables(),
            denied: Mutex::default(),
            call: Mutex::default(),
            committed: committed.map(Mutex::new),
        });
        let judge = Arc::clone(&engine);
        conn.authorizer(Some(move |context: AuthContext<'_>| judge.authorize(&context)))?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
        let emitter = Arc::clone(&engine);
        conn.create_scalar_function("inboxd_emit", 4, flags(), move |context| emitter.emit(context))?;
        engine.add_verdict(conn, "inboxd_ignore", Verdict::Ignore)?;
        engine.add_verdict(conn, "inboxd_quarantine", Verdict::Quarantine)?;
        engine.add_verdict(conn, "inboxd_retry", Verdict::Retry)?;
        Ok(engine)
    }

    fn add_verdict(
        self: &Arc<Self>,
        conn: &Connection,
        name: &str,
        verdict: fn(String) -> Verdict,
    ) -> rusqlite::Result<()> {
        let engine = Arc::clone(self);
        conn.create_scalar_function(name, 1, flags(), move |context| -> rusqlite::Result<Value> {
            let reason = reason(context.get_raw(0));
            lock(&engine.call).verdict = Some(verdict(reason));
            Err(failed("the handler ended itself"))
        })
    }

    /// Switches the authorizer to the user's SQL until the guard is dropped.
    pub(super) fn enter(&self, mode: Mode) -> Entered<'_> {
        self.mode.store(mode as u8, Ordering::Release);
        lock(&self.denied).take();
        Entered { engine: self }
    }

    /// Forgets the last run. `emits` says whether the coming one may ask for outbox rows.
    pub(super) fn begin(&self, tx: &Transaction<'_>, emits: bool) -> rusqlite::Result<()> {
        let mut call = lock(&self.call);
        *call = Call::default();
        if let Some(committed) = self.committed.as_ref().filter(|_| emits) {
            let last = outbox::last_id(&lock(committed))?;
            call.uncommitted = outbox::queued_after(tx, last)?.into_iter().collect();
        }
        Ok(())
    }

    pub(super) fn take_verdict(&self) -> Option<Verdict> {
        lock(&self.call).verdict.take()
    }

    pub(super) fn take_emissions(&self) -> Vec<Emission> {
        std::mem::take(&mut lock(&self.call).emissions)
    }

    /// What the authorizer refused since the mode was entered, in words.
    pub(super) fn take_denied(&self) -> Option<String> {
        lock(&self.denied).take()
    }

    /// What is wrong with a destination that `inboxd_emit` is to send to, if anything.
    pub(super) fn unknown_destination(&self, name: &str) -> Option<String> {
        let known = &self.sql_scope.destinations;
        if known.iter().any(|known| known == name) {
            return None;
        }
        let known = if known.is_empty() {
            "none is configured".to_owned()
        } else {
            format!("known: {}", known.join(", "))
        };
        let advice = format!("add [destination.{name}] with its url to the configuration");
        Some(format!("inboxd_emit: there is no destination \"{name}\"; {known}; {advice}"))
    }

    fn emit(&self, context: &Context<'_>) -> rusqlite::Result<i64> {
        let (destination, topic) = (text(context, 0, "destination")?, text(context, 1, "topic")?);
        let (operation_key, payload) = (text(context, 2, "operation key")?, text(context, 3, "payload")?);
        if let Some(rule) = self.unknown_destination(&destination) {
            return Err(failed(rule));
        }
        if operation_key.is_empty() || operation_key.len() > KEY_BYTES_MAX {
            return Err(failed("inboxd_emit: the operation key must have 1 to 255 bytes"));
        }
        if serde_json::from_str::<serde::de::IgnoredAny>(&payload).is_err() {
            return Err(failed(format!("inboxd_emit: the payload of {operation_key} is not JSON")));
        }
        let mut call = lock(&self.call);
        let known = match call.uncommitted.get(&operation_key) {
            Some(queued) => Some(queued.clone()),
            None => match &self.committed {
                Some(committed) => outbox::queued_as(&lock(committed), &operation_key)?,
                None => None,
            },
        };
        let asked = Queued { destination: destination.clone(), payload: Value::Text(payload.clone()) };
        match known {
            Some(known) if known.is(&asked) => Ok(0),
            Some(_) => Err(failed(format!(
                "inboxd_emit: {operation_key} was queued before with another payload or destination"
            ))),
            None => {
                call.uncommitted.insert(operation_key.clone(), asked);
                call.emissions.push(Emission { destination, topic, operation_key, payload });
                Ok(1)
            }
        }
    }

    fn authorize(&self, context: &AuthContext<'_>) -> Authorization {
        let mode = self.mode.load(Ordering::Acquire);
        if mode == Mode::Own as u8 {
            return Authorization::Allow;
        }
        let verdict =
            if mode == Mode::Schema as u8 { self.judge_schema(context) } else { self.judge(context) };
        match verdict {
            Ok(()) => Authorization::Allow,
            Err(what) => {
                lock(&self.denied).get_or_insert(what);
                Authorization::Deny
            }
        }
    }

    /// The allow list of a handler.
    fn judge(&self, context: &AuthContext<'_>) -> Result<(), String> {
        match context.action {
            // a pragma as a table would be prepared here and refused only when an event comes
            AuthAction::Read { table_name, .. } if table_name.starts_with("pragma_") => {
                Err(format!("reads {table_name}, which is a PRAGMA"))
            }
            AuthAction::Select | AuthAction::Recursive | AuthAction::Read { .. } => Ok(()),
            AuthAction::Function { function_name } => judge_function(function_name),
            AuthAction::Insert { table_name } | AuthAction::Update { table_name, .. } => {
                self.judge_write(context, table_name, true)
            }
            AuthAction::Delete { table_name } => self.judge_write(context, table_name, false),
            // full-text tables read these internally, whatever the statement says
            AuthAction::Pragma { pragma_name: "data_version" | "page_size", pragma_value: None } => Ok(()),
            other => Err(describe(&other)),
        }
    }

    fn judge_write(&self, context: &AuthContext<'_>, table: &str, is_kept: bool) -> Result<(), String> {
        if context.database_name != Some("main") {
            return Err(format!("writes {table}, which is not a table of this database"));
        }
        if table.to_ascii_lowercase().starts_with("sqlite_") {
            return Err(format!("writes {table}, which is SQLite's own"));
        }
        if self.is_own(table) && !(is_kept && self.shared_tables.contains(&table)) {
            return Err(format!("writes {table}, which is inboxd's own: it can be read, not written"));
        }
        Ok(())
    }

    /// `schema.sql` may do what a handler may, and make, change and drop what is not inboxd's.
    fn judge_schema(&self, context: &AuthContext<'_>) -> Result<(), String> {
        let changes = |names: &[&str]| match names.iter().find(|name| self.is_own(name)) {
            Some(own) => Err(format!("changes {own}, which is inboxd's own: give yours another name")),
            None => Ok(()),
        };
        match context.action {
            // SQLite's own catalogue of what was created; it refuses direct writes there itself
            AuthAction::Insert { table_name }
            | AuthAction::Update { table_name, .. }
            | AuthAction::Delete { table_name }
                if table_name.starts_with("sqlite_") =>
            {
                Ok(())
            }
            AuthAction::Reindex { .. } | AuthAction::Analyze { .. } => Ok(()),
            AuthAction::CreateTable { table_name } | AuthAction::DropTable { table_name } => {
                changes(&[table_name])
            }
            AuthAction::AlterTable { table_name, .. } => changes(&[table_name]),
            AuthAction::CreateView { view_name } | AuthAction::DropView { view_name } => {
                changes(&[view_name])
            }
            AuthAction::CreateIndex { index_name, table_name }
            | AuthAction::DropIndex { index_name, table_name } => changes(&[table_name, index_name]),
            AuthAction::CreateTrigger { trigger_name, table_name }
            | AuthAction::DropTrigger { trigger_name, table_name } => changes(&[table_name, trigger_name]),
            AuthAction::CreateVtable { table_name, .. } | AuthAction::DropVtable { table_name, .. } => {
                changes(&[table_name])
            }
            _ => self.judge(context),
        }
    }

    fn is_own(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        name.starts_with(OWN_PREFIX) || self.sql_scope.own_tables.contains(&name)
    }
}

/// A second connection for [`Engine::install`].
///
/// # Errors
/// When SQLite cannot open the file.
pub fn committed_view(database: &Path) -> rusqlite::Result<Connection> {
    use rusqlite::OpenFlags;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(database, flags)
}

/// While this exists, the authorizer judges the user's SQL.
pub(super) struct Entered<'a> {
    engine: &'a Engine,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.engine.mode.store(Mode::Own as u8, Ordering::Release);
    }
}

/// Not callable from a schema: a trigger or view of the file must not decide for a handler.
fn flags() -> FunctionFlags {
    FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY
}

fn judge_function(name: &str) -> Result<(), String> {
    match name {
        "load_extension" | "fts3_tokenizer" => Err(format!("calls {name}()")),
        _ => Ok(()),
    }
}

/// What was refused, in the words of SQL.
fn describe(action: &AuthAction<'_>) -> String {
    match action {
        AuthAction::CreateTempTable { table_name } => format!("CREATE TEMP TABLE {table_name}"),
        AuthAction::CreateTempIndex { index_name, .. } => {
            format!("CREATE INDEX {index_name} on a temp table")
        }
        AuthAction::CreateTempTrigger { trigger_name, table_name } => {
            format!("CREATE TEMP TRIGGER {trigger_name} on {table_name}")
        }
        AuthAction::CreateTempView { view_name } => format!("CREATE TEMP VIEW {view_name}"),
        AuthAction::CreateTable { table_name } => format!("CREATE TABLE {table_name}"),
        AuthAction::DropTable { table_name } => format!("DROP TABLE {table_name}"),
        AuthAction::CreateTrigger { trigger_name, table_name } => {
            format!("CREATE TRIGGER {trigger_name} on {table_name}")
        }
        AuthAction::Pragma { pragma_name, .. } => format!("PRAGMA {pragma_name}"),
        AuthAction::Attach { .. } => "ATTACH".to_owned(),
        AuthAction::Detach { .. } => "DETACH".to_owned(),
        AuthAction::Savepoint { .. } => "SAVEPOINT, RELEASE or ROLLBACK TO".to_owned(),
        AuthAction::Transaction { operation: TransactionOperation::Begin } => "BEGIN".to_owned(),
        AuthAction::Transaction { operation: TransactionOperation::Rollback } => "ROLLBACK".to_owned(),
        AuthAction::Transaction { .. } => "COMMIT".to_owned(),
        other => {
            let text = format!("{other:?}");
            text.split([' ', '{']).next().unwrap_or_default().to_owned()
        }
    }
}

fn text(context: &Context<'_>, index: usize, what: &str) -> rusqlite::Result<String> {
    match context.get_raw(index) {
        ValueRef::Text(bytes) => String::from_utf8(bytes.to_vec())
            .map_err(|_| failed(format!("inboxd_emit: the {what} is not valid UTF-8"))),
        ValueRef::Null => Err(failed(format!("inboxd_emit: the {what} is NULL"))),
        _ => Err(failed(format!("inboxd_emit: the {what} is not text"))),
    }
}

fn reason(value: ValueRef<'_>) -> String {
    let text = match value {
        ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Null | ValueRef::Blob(_) => String::new(),
    };
    let text: String = text.chars().filter(|c| !c.is_control()).take(REASON_CHARS_MAX).collect();
    if text.trim().is_empty() { "the handler gave no reason".to_owned() } else { text }
}

fn failed(message: impl Into<String>) -> Error {
    Error::UserFunctionError(message.into().into())
}
