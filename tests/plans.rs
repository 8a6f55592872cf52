//! Every statement of the daemon finds its rows by an index, however large the file is and however much waits.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::{Path, PathBuf};

use inboxd::internals::store::open;
use rusqlite::Connection;

/// Statements that read a table, or an index, from one end to the other, and why that is right.
const MAY_SCAN: &[(&str, &str, &str)] = &[
    (
        "store/inbox/recent.rs",
        "TYPES_OF",
        "the newest rows up to a limit, for a person who checks the configuration",
    ),
    (
        "books/ledger/statement.rs",
        "SUMS",
        "the whole of the books up to a time, for a person, by a reader whose time is limited",
    ),
    (
        "books/ledger/statement.rs",
        "LATE",
        "the whole of the books, for a person, by a reader whose time is limited",
    ),
    (
        "books/ledger/statement.rs",
        "LATE_COUNT",
        "the whole of the books, for a person, by a reader whose time is limited",
    ),
    (
        "books/ledger/statement.rs",
        "UNSETTLED",
        "the whole of the books, for a person, by a reader whose time is limited",
    ),
    ("store/inbox/mod.rs", "LAST_ID_FAR_FROM", "the newest rows up to a limit, when the clock has jumped"),
    ("store/outbox/mod.rs", "LAST_ID_FAR_FROM", "the newest rows up to a limit, when the clock has jumped"),
    ("store/outbox/mod.rs", "SHIFT_FAILING", "the index of what is undelivered, when the clock has jumped"),
    (
        "books/ledger/mod.rs",
        "ALL",
        "the whole of the books, for an export or a statement, by a reader whose time is limited",
    ),
    (
        "store/inbox/mod.rs",
        "LIST",
        "newest first and with a limit; a filter that matches little reads far, for a person who waits",
    ),
    ("store/inbox/mod.rs", "COUNT_BY_STATE", "the counters: a row for each endpoint and state"),
    ("store/inbox/mod.rs", "COUNT_BY_ENDPOINT", "the counters: a row for each endpoint and state"),
    (
        "store/outbox/mod.rs",
        "MATCHING",
        "newest first and with a limit; a filter that matches little reads far, for a person who waits",
    ),
    (
        "store/inbox/mod.rs",
        "TALLY",
        "counts all that a person is about to put back to work, by a reader whose time is limited",
    ),
    (
        "store/outbox/mod.rs",
        "STANDINGS",
        "the indexes of what is undelivered and dead, for a person; delivered rows are not read",
    ),
    (
        "store/outbox/mod.rs",
        "WAITING_ELSEWHERE",
        "the index of what is undelivered, once at a start and by a reader",
    ),
    ("store/outbox/mod.rs", "DEAD_COUNT", "the index of what was given up: a person is asked about each"),
    ("store/inbox/failures.rs", "FIND", "a table of a bounded number of rows, for a person"),
    ("store/inbox/failures.rs", "LIST", "a table of a bounded number of rows, for a person"),
    ("store/inbox/failures.rs", "BY_TYPE", "a table of a bounded number of rows, for a person"),
    ("store/inbox/failures.rs", "STANDING", "a table of a bounded number of rows, by a reader"),
    (
        "store/inbox/failures.rs",
        "COUNT",
        "a table of a bounded number of rows, once for each event that begins to fail",
    ),
    ("store/inbox/failures.rs", "ENDPOINTS", "a table of a bounded number of rows, once a minute"),
    ("store/inbox/failures.rs", "REMOVE_OLDEST", "the oldest of a bounded number of rows"),
    ("store/outbox/browse.rs", "MARKS", "a row for each destination"),
    (
        "store/outbox/browse.rs",
        "UNDELIVERED",
        "the index of what is undelivered, for a page or a scrape; delivered rows are not read",
    ),
    ("store/outbox/browse.rs", "SENDING", "the index of what is being sent: a few rows"),
    ("store/outbox/browse.rs", "DEAD", "the index of what was given up: a person is asked about each"),
    ("store/reviews.rs", "OPEN_BY_KIND", "the index of open reviews: a person is asked about each"),
    ("store/reviews.rs", "GROUPS", "the index of open reviews, up to a limit, for a person"),
    ("store/inbox/browse.rs", "COUNTS", "the counters: a row for each endpoint and state"),
    ("store/inbox/failures.rs", "BY_ENDPOINT", "a table of a bounded number of rows, by a reader"),
    ("store/reviews.rs", "LIST", "questions to people, with a limit"),
    ("store/reviews.rs", "OPEN_COUNT", "the index of open reviews: a person is asked about each"),
];

/// Statements that sort what they found, and why that is little.
const MAY_SORT: &[(&str, &str, &str)] = &[
    ("store/inbox/recent.rs", "TYPES_OF", "a row for each type of event"),
    (
        "store/minutes.rs",
        "SINCE",
        "the counters of a day: a few thousand rows, however many events there are",
    ),
    ("store/reviews.rs", "GROUPS", "open reviews, up to a limit"),
    ("store/inbox/browse.rs", "CHOSEN", "what waits and matches, up to a limit"),
    ("store/inbox/browse.rs", "OLDEST", "a row for each state in which events wait"),
    ("books/ledger/mod.rs", "LINES_OF", "the lines of one fact"),
    ("store/inbox/mod.rs", "KNOWN_BESIDE", "the events of one id: one for each endpoint"),
    ("store/inbox/conflicts.rs", "OF_EVENT", "the other bodies of one event"),
    ("books/ledger/mod.rs", "WITH_KEYS", "the lines of one event's facts"),
    ("books/ledger/statement.rs", "SUMS", "a row for each account, currency and kind"),
    ("books/ledger/statement.rs", "UNSETTLED", "the invoices that are not settled, for a person"),
    ("store/reviews.rs", "ON_OBJECT", "the open reviews of one object: two at most"),
    ("books/ledger/mod.rs", "ABOUT", "the lines of one object, up to a limit, for a person"),
    ("books/orders.rs", "OF_PAYMENTS", "the orders of one event's payments"),
    ("store/inbox/mod.rs", "TALLY", "a row for each state"),
    ("store/inbox/mod.rs", "RETRYING", "the oldest of what waits, up to a limit"),
    ("store/query.rs", "TABLES", "a row for each table and column"),
    ("store/inbox/failures.rs", "BY_TYPE", "a row for each endpoint and type of a bounded table"),
    ("store/inbox/mod.rs", "FIND", "the events of one id: one for each endpoint"),
    ("store/inbox/recent.rs", "BY_TYPE", "the newest rows up to a limit"),
    ("store/inbox/mod.rs", "COUNT_BY_STATE", "the counters: a row for each endpoint and state"),
    ("store/outbox/mod.rs", "STANDINGS", "a row for each destination"),
];

/// A statement of the source.
#[derive(Debug)]
struct Statement {
    file: String,
    name: String,
    sql: String,
}

fn source_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { source_files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// The code of each file below `src`, without its unit tests and its comments.
fn sources() -> Vec<(String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let code = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap().lines();
        let code: Vec<_> = code.filter(|line| !line.trim_start().starts_with("//")).collect();
        (path.strip_prefix(&src).unwrap().display().to_string(), code.join("\n"))
    };
    source_files(&src).into_iter().map(code).collect()
}

/// Every `const NAME: &str = "…"` that is a statement about the tables.
fn statements() -> Vec<Statement> {
    let mut found = Vec::new();
    for (file, code) in sources() {
        for part in code.split("const ").skip(1) {
            let Some((name, rest)) = part.split_once(": &str =") else { continue };
            let Some(literal) = rest.trim_start().strip_prefix('"') else { continue };
            let sql = literal.split('"').next().unwrap().trim().to_owned();
            let verbs = ["SELECT", "UPDATE", "INSERT", "DELETE", "WITH"];
            if verbs.iter().any(|verb| sql.starts_with(verb)) {
                found.push(Statement { file: file.clone(), name: name.to_owned(), sql });
            }
        }
    }
    found
}

/// A database as a start makes it, with the planner's settings of the connection that writes.
fn database() -> (tempfile::TempDir, Connection) {
    let dir = tempfile::tempdir().unwrap();
    let conn = open::open_writer(&dir.path().join("inboxd.db")).unwrap();
    (dir, conn)
}

fn plan(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap_or_else(|error| {
        panic!("{error}: {sql}");
    });
    let mut rows = statement.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        steps.push(row.get(3).unwrap());
    }
    steps
}

/// Steps that read something from one end to the other which may be large.
fn scans(plan: &[String]) -> Vec<&String> {
    // what a subquery reads stands in steps of its own
    let small = ["VIRTUAL TABLE", "VALUES", "CONSTANT ROW", "(subquery", "sqlite_schema"];
    let is_large = |step: &&String| step.starts_with("SCAN") && !small.iter().any(|name| step.contains(name));
    plan.iter().filter(|step| is_large(step) || step.contains("AUTOMATIC")).collect()
}

fn sorts(plan: &[String]) -> Vec<&String> {
    plan.iter().filter(|step| step.contains("TEMP B-TREE")).collect()
}

fn is_listed(list: &[(&str, &str, &str)], statement: &Statement) -> bool {
    list.iter().any(|(file, name, _)| *file == statement.file && *name == statement.name)
}

#[test]
fn no_statement_reads_a_whole_table_unless_it_is_argued_for() {
    let (_dir, conn) = database();
    let mut wrong = Vec::new();
    for statement in statements() {
        let plan = plan(&conn, &statement.sql);
        let (scans, sorts) = (scans(&plan), sorts(&plan));
        if !scans.is_empty() && !is_listed(MAY_SCAN, &statement) {
            wrong.push(format!("{} {} scans: {scans:?}", statement.file, statement.name));
        }
        if !sorts.is_empty() && !is_listed(MAY_SORT, &statement) {
            wrong.push(format!("{} {} sorts: {sorts:?}", statement.file, statement.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_argued_for_is_still_there_and_still_scans() {
    let (_dir, conn) = database();
    let statements = statements();
    let plan_of = |file: &str, name: &str| {
        let statement = statements.iter().find(|s| s.file == file && s.name == name);
        plan(&conn, &statement.unwrap_or_else(|| panic!("there is no {name} in {file}")).sql)
    };
    let idle: Vec<_> =
        MAY_SCAN.iter().filter(|(file, name, _)| scans(&plan_of(file, name)).is_empty()).collect();
    assert!(idle.is_empty(), "needs no argument any more: {idle:#?}");
    let idle: Vec<_> =
        MAY_SORT.iter().filter(|(file, name, _)| sorts(&plan_of(file, name)).is_empty()).collect();
    assert!(idle.is_empty(), "needs no argument any more: {idle:#?}");
}

/// A statement that stands elsewhere than in a constant would not be looked at above.
#[test]
fn every_statement_about_the_tables_is_a_constant() {
    let seen = statements();
    for (file, code) in sources() {
        let named = code.matches("main.webhook_").count() + code.matches("main.outbox").count();
        let in_constants = seen.iter().filter(|statement| statement.file == file).map(|statement| {
            statement.sql.matches("main.webhook_").count() + statement.sql.matches("main.outbox").count()
        });
        assert_eq!(named, in_constants.sum::<usize>(), "{file} names a table outside a constant");
    }
    assert!(seen.len() > 60, "{} statements", seen.len());
}

/// The mistake that blocked the start on a large file: a state that the planner cannot see in a partial index.
#[test]
fn a_state_without_the_list_of_the_index_reads_the_table() {
    let (_dir, conn) = database();
    let statements = statements();
    let release =
        statements.iter().find(|s| s.file == "store/inbox/queue.rs" && s.name == "RELEASE_ALL").unwrap();
    assert!(scans(&plan(&conn, &release.sql)).is_empty());
    let bare: Vec<_> =
        release.sql.lines().map(|line| line.replace("state IN ('pending', 'processing')", "1")).collect();
    assert!(!scans(&plan(&conn, &bare.join("\n"))).is_empty(), "this test cannot see what it is for");
}
