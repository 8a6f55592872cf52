//! Turns the handlers' names in the configuration into running handlers: finds them, starts them in one transaction,
//! tries folders of SQL before they are used, and reads them again on demand.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{StartError, WAIT_TOLD_EVERY};
use crate::admin::site::Configured;
use crate::config::{Config, Endpoint, HandlerName, Instance, Mode, Problem, Sign, Sketch};
use crate::handlers::sql::{self, Engine, SqlHandler, SqlScope};
use crate::handlers::{Handler, Registry};
use crate::store::open::{self, Home, OpenError};
use crate::store::outbox;
use crate::store::{Connection, SqlError, SqlResult, Transaction};

/// The time limit for `check` to read the database.
const LOOK_TIME_MAX: Duration = Duration::from_secs(2);

/// Whose file the database is.
pub(super) fn home(config: &Config) -> Home {
    match config.embedded {
        None => Home::Own,
        Some(embedded) => Home::Application { allow_wal: embedded.allow_wal },
    }
}

/// The handlers of every endpoint, in the order of the configuration, and the folders among them.
pub(super) struct Assembly {
    pub(super) of_endpoints: Vec<Vec<Arc<dyn Handler>>>,
    pub(super) folders: Folders,
}

/// Finds and starts the handlers, on the writer's connection and before anything else runs there.
pub(super) fn assemble(
    conn: &mut Connection,
    config: &Config,
    registry: &Registry,
) -> Result<Assembly, StartError> {
    let storage = |source| StartError::from(OpenError::of_sqlite(&config.database, source));
    let sql_scope = sql_scope(config).map_err(storage)?;
    let engine = if folders_named(config).next().is_some() {
        let committed = sql::committed_view(&config.database).map_err(storage)?;
        Some(Engine::install(conn, sql_scope.clone(), Some(committed)).map_err(storage)?)
    } else {
        None
    };
    let mut finder = Finder { registry, engine, distinct: Vec::new(), folders: Vec::new() };
    let endpoints = config.endpoints.iter();
    let of_endpoints = endpoints
        .map(|endpoint| endpoint.handlers.iter().map(|name| finder.find(name)).collect())
        .collect::<Result<_, _>>()?;
    start(conn, &finder.distinct, storage)?;
    let folders = Folders {
        handlers: finder.folders,
        sql_scope,
        database: config.database.clone(),
        home: home(config),
    };
    Ok(Assembly { of_endpoints, folders })
}

/// Starts all handlers, or none.
fn start(
    conn: &Connection,
    handlers: &[Arc<dyn Handler>],
    storage: impl Fn(SqlError) -> StartError,
) -> Result<(), StartError> {
    if !handlers.iter().any(|handler| handler.has_start()) {
        // the start need not wait for other writers of the file
        return Ok(());
    }
    let tx = begin(conn).map_err(&storage)?;
    for handler in handlers {
        handler
            .start(&tx)
            .map_err(|error| StartError::Handlers(format!("handler {}: {error}", handler.name())))?;
    }
    tx.commit().map_err(storage)
}

/// Waits for the process that holds the write lock: an application may be in a long transaction.
fn begin(conn: &Connection) -> SqlResult<Transaction<'_>> {
    // a short timeout, so that the wait is logged at once; the writer, which gets the connection, sets its own
    conn.busy_timeout(open::START_BUSY_TIMEOUT)?;
    let mut told_at: Option<Instant> = None;
    loop {
        match open::begin_immediate(conn) {
            Err(error) if open::is_busy_error(&error) => {
                if told_at.is_none_or(|at| at.elapsed() >= WAIT_TOLD_EVERY) {
                    told_at = Some(Instant::now());
                    log::warn!(
                        "another process is writing to the database; the handlers start when it has finished"
                    );
                }
            }
            begun => return begun,
        }
    }
}

/// Makes each handler once, however many endpoints name it.
struct Finder<'a> {
    registry: &'a Registry,
    engine: Option<Arc<Engine>>,
    distinct: Vec<Arc<dyn Handler>>,
    folders: Vec<Arc<SqlHandler>>,
}

impl Finder<'_> {
    fn find(&mut self, name: &HandlerName) -> Result<Arc<dyn Handler>, StartError> {
        let text = name.to_string();
        if let Some(known) = self.distinct.iter().find(|handler| handler.name() == text) {
            return Ok(Arc::clone(known));
        }
        let handler = match (name, &self.engine) {
            (HandlerName::Sql { dir, .. }, Some(engine)) => {
                let folder = Arc::new(SqlHandler::new(text, dir.clone(), Arc::clone(engine)));
                self.folders.push(Arc::clone(&folder));
                folder
            }
            _ => self
                .registry
                .find(&text)
                .ok_or_else(|| StartError::Handlers(format!("there is no handler {text}")))?,
        };
        self.distinct.push(Arc::clone(&handler));
        Ok(handler)
    }
}

/// The folders of SQL at work.
#[derive(Debug)]
pub(super) struct Folders {
    handlers: Vec<Arc<SqlHandler>>,
    sql_scope: SqlScope,
    database: PathBuf,
    home: Home,
}

impl Folders {
    /// Reads all folders again and uses all of them, or none.
    pub(super) fn reload(&self) {
        if self.handlers.is_empty() {
            log::info!("nothing to reload: no endpoint has a folder of SQL; settings are read at a start");
            return;
        }
        match self.recompile() {
            Ok(all) => {
                let count = all.len();
                for (handler, programs) in self.handlers.iter().zip(all) {
                    handler.replace(programs);
                }
                let folders = if count == 1 { "folder" } else { "folders" };
                log::info!("reloaded {count} {folders} of SQL");
            }
            Err(reason) => log::error!("not reloaded; the SQL read before stays in use: {reason}"),
        }
    }

    fn recompile(&self) -> Result<Vec<sql::Programs>, String> {
        let mut scratch = open::scratch(&self.database, self.home).map_err(|error| error.to_string())?;
        let engine =
            Engine::install(&mut scratch, self.sql_scope.clone(), None).map_err(|error| error.to_string())?;
        let compile = |handler: &Arc<SqlHandler>| {
            handler.recompile(&scratch, &engine).map_err(|mistakes| {
                let lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
                format!("{}: {}", handler.name(), lines.join("; "))
            })
        };
        self.handlers.iter().map(compile).collect()
    }
}

/// Sentences about rows for destinations that the configuration doesn't have.
pub(super) fn undeliverable(conn: &Connection, config: &Config) -> SqlResult<Vec<String>> {
    let names: Vec<_> = config.destinations.iter().map(|destination| &destination.name).collect();
    let waiting = outbox::waiting_elsewhere(conn, &serde_json::json!(names).to_string())?;
    let in_words = |(name, count): (String, i64)| {
        let rows = if count == 1 {
            "1 row of the outbox waits"
        } else {
            &format!("{count} rows of the outbox wait")
        };
        format!(
            "{rows} for the destination {name}, which is not in the configuration: \
             put [destination.{name}] back until all is delivered; `inboxd outbox list --destination {name}` shows what waits"
        )
    };
    Ok(waiting.into_iter().map(in_words).collect())
}

/// The mistakes outside the configuration file: in the application's database, and in folders of SQL, which are tried
/// on a throw-away copy of the schema. Changes nothing.
///
/// The second value has warnings.
pub fn check(config: &Config) -> (Vec<Problem>, Vec<String>) {
    let problem = |key: &str, message| Problem { line: None, key: key.to_owned(), message };
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    if let Some(embedded) = config.embedded {
        match open::objection_to(&config.database, embedded.allow_wal) {
            Ok(objection) => problems.extend(objection.map(|objection| problem("database", objection))),
            Err(error) => problems.push(problem("database", error.to_string())),
        }
    }
    for (key, typed, dir) in folders_named(config) {
        match report(config, dir) {
            Err(error) => problems.push(problem(&key, error)),
            Ok(report) => {
                let shown = typed.trim_start_matches("sql:").trim_end_matches('/');
                let mistakes = report.mistakes.iter();
                problems.extend(mistakes.map(|mistake| problem(&key, format!("{shown}/{mistake}"))));
                let doubts = report.doubts.iter();
                warnings.extend(doubts.map(|doubt| format!("{key}: {shown}/{doubt}")));
                let unused = report.unused.iter();
                warnings.extend(
                    unused.map(|file| format!("{key}: {shown}/{file} is not used: it is not a .sql file")),
                );
                problems.extend(cannot_be_signed(config, dir, &report.sends_to));
            }
        }
    }
    warnings.extend(look_at_the_outbox(config));
    (problems, warnings)
}

/// Rows that these files emit are signed as the endpoint's provider signs, which needs a key that we have.
fn cannot_be_signed(config: &Config, dir: &PathBuf, sends_to: &BTreeSet<String>) -> Vec<Problem> {
    let runs_it = |endpoint: &&Endpoint| {
        let is_dir =
            |handler: &HandlerName| matches!(handler, HandlerName::Sql { dir: own, .. } if own == dir);
        endpoint.handlers.iter().any(is_dir) && !endpoint.verifier.scheme().can_sign()
    };
    let signs =
        config.destinations.iter().filter(|to| to.sign == Sign::Provider && sends_to.contains(&to.name));
    let problems = signs.flat_map(|to| {
        config.endpoints.iter().filter(runs_it).map(|endpoint| Problem {
            line: None,
            key: format!("destination.{}.sign", to.name),
            message: format!(
                "\"provider\": the SQL of endpoint {} sends to it, and {} signs with a private key that only it has; \
                 write sign = \"standard\" or \"none\"",
                endpoint.name, endpoint.provider
            ),
        })
    });
    problems.collect()
}

/// Empty if the file cannot be read, does not exist yet or is not inboxd's: a start says why.
fn look_at_the_outbox(config: &Config) -> Vec<String> {
    let Ok(conn) = open::open_reader(&config.database, LOOK_TIME_MAX) else { return Vec::new() };
    undeliverable(&conn, config).unwrap_or_default()
}

fn report(config: &Config, dir: &std::path::Path) -> Result<sql::Report, String> {
    let mut scratch = open::scratch(&config.database, home(config)).map_err(|error| error.to_string())?;
    let sql_scope = sql_scope(config).map_err(|error| error.to_string())?;
    let engine = Engine::install(&mut scratch, sql_scope, None).map_err(|error| error.to_string())?;
    let tx = open::begin_immediate(&scratch).map_err(|error| error.to_string())?;
    Ok(sql::check(dir, &tx, &engine))
}

/// Key, value and folder of every `sql:DIR`, each folder once.
fn folders_named(config: &Config) -> impl Iterator<Item = (String, &str, &PathBuf)> {
    let mut seen = std::collections::BTreeSet::new();
    let all = config.endpoints.iter().flat_map(|endpoint| {
        endpoint.handlers.iter().filter_map(|handler| match handler {
            HandlerName::Sql { typed, dir } => {
                Some((format!("endpoint.{}.handlers", endpoint.name), typed.as_str(), dir))
            }
            HandlerName::Named(_) => None,
        })
    });
    all.filter(move |(_, _, dir)| seen.insert(*dir))
}

fn sql_scope(config: &Config) -> SqlResult<SqlScope> {
    Ok(SqlScope {
        own_tables: open::own_tables(home(config))?,
        destinations: config.destinations.iter().map(|destination| destination.name.clone()).collect(),
    })
}

/// What the pages and the acts need to know of the configuration.
pub(super) fn shown(config: &Config) -> Configured {
    let sketch = |endpoint: &Endpoint| Sketch {
        name: endpoint.name.clone(),
        is_proxy: endpoint.mode == Mode::Proxy,
        handlers: endpoint.handlers.iter().map(ToString::to_string).collect(),
        forward: endpoint.forward.clone(),
        livemode: endpoint.livemode,
        account: endpoint.account.clone(),
    };
    let instance = Instance {
        data_dir: config.data_dir.clone(),
        database: config.database.clone(),
        endpoints: config.endpoints.iter().map(|endpoint| endpoint.name.clone()).collect(),
        sketches: config.endpoints.iter().map(sketch).collect(),
        destinations: config.destinations.iter().map(|destination| destination.name.clone()).collect(),
    };
    Configured { instance, effective: effective(config), hosts: config.admin.hosts.clone() }
}

/// The configuration in effect as a page shows it. Whoever knows the URL of a chat's hook can write there, so that it is
/// left out.
fn effective(config: &Config) -> String {
    let mut section = String::new();
    let text = config.to_toml();
    let lines = text.lines().map(|line| {
        if line.starts_with('[') {
            line.clone_into(&mut section);
        }
        let is_hook = section == "[alert]" && line.trim_start().starts_with("url");
        if is_hook { "url = \"…\" # not shown: whoever knows it can write there" } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}
