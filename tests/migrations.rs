//! Older files are upgraded as a whole or not at all, with a copy beside them; newer ones are left alone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use inboxd::internals::store::open::{self, Migration, OpenError, SCHEMA, Schema};
use rusqlite::Connection;
use support::{Daemon, invoice_event};
use tempfile::TempDir;

/// Every schema that a release has had, oldest first.
const RELEASED: [(i64, &str); 3] = [
    (1, include_str!("fixtures/schema-1.sql")),
    (2, include_str!("fixtures/schema-2.sql")),
    (3, include_str!("fixtures/schema-3.sql")),
];

/// Rows as that release wrote them.
const ROWS: &str = include_str!("fixtures/rows-1.sql");

/// Since version 3 a line of the books says what it is about.
fn rows_of(version: i64) -> String {
    if version < 3 {
        return ROWS.to_owned();
    }
    let rows = ROWS.replace("endpoint, booked_at_ms)", "endpoint, booked_at_ms, object)");
    rows.replace(
        "'evt_old_1', 'billing', 1764000000000);\nINSERT INTO outbox",
        "'evt_old_1', 'billing', 1764000000000, 'invoice:in_old_1');\nINSERT INTO outbox",
    )
}

/// A file as version `version` left it: with its rows, its mode and its settings.
fn file_of(version: i64, sql: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("inboxd.db");
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL").unwrap();
    conn.pragma_update(None, "application_id", 0x696e_6278).unwrap();
    conn.execute_batch(sql).unwrap();
    conn.execute_batch(&rows_of(version)).unwrap();
    conn.pragma_update(None, "user_version", version).unwrap();
    (dir, path)
}

fn count(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn version(conn: &Connection) -> i64 {
    conn.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

/// `schema.sql` with another column, and the way there.
const NEXT: Schema = Schema {
    version: 3,
    sql: "CREATE TABLE webhook_inbox (id INTEGER PRIMARY KEY, event_id TEXT NOT NULL, note TEXT,
                                      CHECK (event_id <> '')) STRICT;
          CREATE TABLE kept (k TEXT PRIMARY KEY, v INTEGER NOT NULL) STRICT; -- made anew by the second step",
    migrations: &[
        Migration { to: 2, sql: "ALTER TABLE webhook_inbox ADD COLUMN note TEXT", books: "" },
        Migration {
            to: 3,
            sql: "ALTER TABLE kept RENAME TO kept_before;
                  CREATE TABLE kept (k TEXT PRIMARY KEY, v INTEGER NOT NULL) STRICT;
                  INSERT INTO kept (k, v) SELECT k, 1 FROM kept_before;
                  DROP TABLE kept_before",
            books: "",
        },
    ],
};
const FIRST: Schema = Schema {
    version: 1,
    sql: "CREATE TABLE webhook_inbox (id INTEGER PRIMARY KEY, event_id TEXT NOT NULL, CHECK (event_id <> '')) STRICT;
          CREATE TABLE kept (k TEXT PRIMARY KEY) STRICT;",
    migrations: &[],
};

fn file_of_first() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("inboxd.db");
    let conn = open::open_writer_as(&path, &FIRST).unwrap();
    conn.execute_batch(
        "INSERT INTO webhook_inbox (event_id) VALUES ('evt_1'), ('evt_2'); INSERT INTO kept VALUES ('a')",
    )
    .unwrap();
    (dir, path)
}

fn copies(dir: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(dir.join("backups")).into_iter().flatten();
    let mut copies: Vec<_> = found.map(|entry| entry.unwrap().path()).collect();
    copies.sort();
    copies
}

#[test]
fn the_fixture_of_the_current_version_is_schema_sql() {
    let (version, fixture) = RELEASED[RELEASED.len() - 1];
    assert_eq!(version, SCHEMA.version, "keep the schema of every version as tests/fixtures/schema-N.sql");
    assert!(
        fixture == SCHEMA.sql,
        "schema.sql has changed. Before the first release: cp schema.sql tests/fixtures/schema-1.sql. After it: \
         raise SCHEMA.version in src/store/open/migrations.rs, add a Migration that leads to the new text, put the new \
         text into tests/fixtures/schema-{}.sql, add it to RELEASED, and leave the older fixtures alone",
        version + 1
    );
}

#[test]
fn a_file_of_every_released_version_is_opened_with_its_rows_and_takes_deliveries() {
    for (released, sql) in RELEASED {
        let (dir, path) = file_of(released, sql);
        let conn = open::open_writer(&path).unwrap();
        assert_eq!(version(&conn), SCHEMA.version);
        assert_eq!(count(&conn, "SELECT count(*) FROM webhook_inbox"), 3);
        assert_eq!(copies(dir.path()).len(), usize::from(released < SCHEMA.version));
        let events =
            "SELECT json_group_array(endpoint || ' ' || state || ' ' || events || ' ' || duplicates) FROM (";
        let kept = "SELECT endpoint, state, events, duplicates FROM webhook_counts ORDER BY 1, 2)";
        let counted = "SELECT endpoint, state, count(*) AS events, sum(duplicates) AS duplicates \
                         FROM webhook_inbox GROUP BY 1, 2 ORDER BY 1, 2)";
        let text =
            |of: &str| -> String { conn.query_row(&format!("{events}{of}"), [], |row| row.get(0)).unwrap() };
        assert_eq!(text(kept), text(counted), "version {released}");
        drop(conn);

        let home = Daemon::folder(support::CONFIG);
        fs::create_dir(home.path().join("data")).unwrap();
        fs::copy(&path, home.path().join("data/inboxd.db")).unwrap();
        let daemon = Daemon::in_dir(Arc::new(home));
        let again = daemon.stripe(&invoice_event("evt_old_1", "paid", "in_old_1", 4200));
        assert_eq!(again, (200, r#"{"outcome":"duplicate"}"#.to_owned()), "version {released}");
        let same_payment = daemon.stripe(&invoice_event("evt_new_1", "paid", "in_old_1", 4200));
        assert_eq!(same_payment.0, 200);
        let new = daemon.stripe(&invoice_event("evt_new_2", "paid", "in_new_2", 4200));
        assert_eq!(new, (200, r#"{"outcome":"processed"}"#.to_owned()));
        assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries WHERE kind = 'payment'"), 2);
    }
}

#[test]
fn an_older_file_is_upgraded_over_several_versions_and_a_copy_is_kept() {
    let (dir, path) = file_of_first();
    let conn = open::open_writer_as(&path, &NEXT).unwrap();
    assert_eq!(version(&conn), 3);
    assert_eq!(count(&conn, "SELECT count(*) FROM webhook_inbox WHERE note IS NULL"), 2);
    assert_eq!(count(&conn, "SELECT sum(v) FROM kept"), 1);
    let copies = copies(dir.path());
    assert_eq!(copies.len(), 1, "{copies:?}");
    let name = copies[0].file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("pre-migration-v1-2") && name.ends_with("Z.db"), "{name}");
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&copies[0]).unwrap().permissions().mode() & 0o777, 0o600);
    }
    drop(conn);
    // the way back
    fs::rename(&copies[0], &path).unwrap();
    let conn = open::open_writer_as(&path, &FIRST).unwrap();
    assert_eq!(count(&conn, "SELECT count(*) FROM webhook_inbox"), 2);
}

#[test]
fn a_users_view_and_foreign_key_on_a_table_that_is_made_anew_hold_after_the_upgrade() {
    let (_dir, path) = file_of(1, RELEASED[0].1);
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(
        "CREATE VIEW paid AS SELECT id FROM invoices WHERE status = 'paid';
         CREATE TABLE access (invoice TEXT NOT NULL REFERENCES invoices (id) ON DELETE CASCADE) STRICT;
         INSERT INTO access VALUES ('in_old_1')",
    )
    .unwrap();
    drop(conn);
    let conn = open::open_writer(&path).unwrap();
    assert_eq!(count(&conn, "SELECT count(*) FROM paid"), 1);
    assert_eq!(count(&conn, "SELECT count(*) FROM access JOIN invoices ON id = invoice"), 1);
    conn.execute("INSERT INTO access VALUES ('in_none')", []).unwrap_err();
}

#[test]
fn an_upgrade_that_fails_changes_nothing_and_leaves_no_copy() {
    let (dir, path) = file_of_first();
    const BROKEN: Schema = Schema {
        migrations: &[
            Migration { to: 2, sql: "ALTER TABLE webhook_inbox ADD COLUMN note TEXT", books: "" },
            Migration { to: 3, sql: "INSERT INTO nowhere VALUES (1)", books: "" },
        ],
        ..NEXT
    };
    let error = open::open_writer_as(&path, &BROKEN).unwrap_err();
    assert!(matches!(error, OpenError::Upgrade { from: 1, to: 3, .. }), "{error}");
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    assert_eq!(copies(dir.path()), Vec::<PathBuf>::new());
    assert_eq!(version(&open::open_writer_as(&path, &FIRST).unwrap()), 1);
}

#[test]
fn a_migration_that_leads_elsewhere_than_schema_sql_is_refused() {
    let (_dir, path) = file_of_first();
    const ELSEWHERE: Schema = Schema {
        version: 2,
        migrations: &[Migration { to: 2, sql: "ALTER TABLE webhook_inbox ADD COLUMN notes TEXT", books: "" }],
        ..NEXT
    };
    let error = open::open_writer_as(&path, &ELSEWHERE).unwrap_err();
    assert!(error.to_string().contains("the table"), "{error}");
    assert_eq!(version(&open::open_writer_as(&path, &FIRST).unwrap()), 1);
}

#[test]
fn a_newer_file_is_refused_and_not_touched() {
    let (dir, path) = file_of(SCHEMA.version + 1, SCHEMA.sql);
    let before = fs::read(&path).unwrap();
    let error = open::open_writer(&path).unwrap_err().to_string();
    assert!(error.contains("start the newer inboxd again") && error.contains("pre-migration-v"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(copies(dir.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_table_that_was_altered_by_hand_is_refused_and_a_comment_is_no_alteration() {
    let other_words = SCHEMA.sql.replace("-- the provider's id;", "-- the id of the provider;");
    assert_ne!(other_words, SCHEMA.sql);
    let (_dir, path) = file_of(SCHEMA.version, &other_words);
    open::open_writer(&path).unwrap();
    let (_dir, path) = file_of(SCHEMA.version, &SCHEMA.sql.replace("CHECK (event_id <> ''),", ""));
    let error = open::open_writer(&path).unwrap_err().to_string();
    assert!(error.contains("webhook_inbox is missing or was altered"), "{error}");
}

/// Where the process under the knife finds its file.
#[cfg(feature = "failpoints")]
const FILE: &str = "INBOXD_TEST_UPGRADE";

#[test]
#[ignore = "is started by another test, as a process"]
#[cfg(feature = "failpoints")]
#[allow(clippy::disallowed_methods, reason = "the parent's word to its child")]
fn as_a_process_that_upgrades() {
    open::open_writer_as(Path::new(&std::env::var(FILE).unwrap()), &NEXT).unwrap();
}

/// Upgrades the file in a process that dies at the n-th hit of a failpoint. Whether it died.
#[cfg(feature = "failpoints")]
fn killed_at(path: &Path, point: &str, hit: u64) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "as_a_process_that_upgrades"])
        .env(FILE, path)
        .env("INBOXD_FAILPOINT", format!("{point}:{hit}"))
        .output()
        .unwrap()
        .status;
    assert!(status.success() || status.signal() == Some(9), "{status}");
    !status.success()
}

#[test]
#[cfg(feature = "failpoints")]
fn a_kill_anywhere_in_an_upgrade_leaves_the_old_file_or_the_new_one() {
    let points = [
        ("migration_copied", 1, 1),
        ("migration_step", 1, 1),
        ("migration_step", 2, 1),
        ("migration_commit_before", 1, 1),
        ("migration_commit_after", 1, 3),
    ];
    for (point, hit, version_then) in points {
        let (dir, path) = file_of_first();
        assert!(killed_at(&path, point, hit), "{point}:{hit} was not reached");
        let found = version(&Connection::open(&path).unwrap());
        assert_eq!(found, version_then, "{point}:{hit}");
        let conn = open::open_writer_as(&path, &NEXT).unwrap();
        assert_eq!(count(&conn, "SELECT count(*) FROM webhook_inbox"), 2);
        assert_eq!(count(&conn, "SELECT sum(v) FROM kept"), 1);
        let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
        assert_eq!(copies(dir.path()).len(), 1, "{point}:{hit}");
    }
    let (_dir, path) = file_of_first();
    assert!(!killed_at(&path, "migration_step", 3), "there are two steps");
}

const IN_AN_APPLICATION: &str = r#"
database = "app.db"
[listen]
webhooks = "127.0.0.1:0"
admin = "off"
[limits]
disk_free_min = 0
[endpoint.github]
provider = "github"
secrets = ["file:github.secret"]
"#;

/// An application's file with inboxd's tables as the first version made them there, and one event.
fn application_of_version_1() -> TempDir {
    let dir = Daemon::folder(IN_AN_APPLICATION);
    let conn = Connection::open(dir.path().join("app.db")).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA user_version = 77; CREATE TABLE customers (id TEXT)",
    )
    .unwrap();
    let (_, schema) = RELEASED[0];
    let whole = Connection::open_in_memory().unwrap();
    whole.execute_batch(schema).unwrap();
    let objects = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL
                      AND tbl_name NOT IN ('ledger_entries', 'invoices', 'orders') ORDER BY rowid";
    let mut objects = whole.prepare(objects).unwrap();
    for object in objects.query_map([], |row| row.get::<_, String>(0)).unwrap() {
        conn.execute_batch(&object.unwrap()).unwrap();
    }
    conn.execute_batch(
        "INSERT INTO inboxd_meta (key, value) VALUES ('schema_version', 1);
         INSERT INTO webhook_inbox (provider, endpoint, event_id, headers, payload, body_sha256, state, attempts,
                                    available_at_ms, received_at_ms, processed_at_ms)
         VALUES ('github', 'github', 'd-1', '{}', '{}', zeroblob(32), 'ignored', 1, 1, 1, 1)",
    )
    .unwrap();
    dir
}

fn assert_is_upgraded(dir: TempDir) {
    let conn = Connection::open(dir.path().join("app.db")).unwrap();
    assert_eq!(version(&conn), 77, "the application's");
    assert_eq!(count(&conn, "SELECT value FROM inboxd_meta WHERE key = 'schema_version'"), SCHEMA.version);
    assert_eq!(count(&conn, "SELECT sum(events) FROM webhook_counts WHERE state = 'ignored'"), 1);
    assert_eq!(count(&conn, "SELECT count(*) FROM customers"), 0);
    drop(conn);
    let daemon = Daemon::in_dir(Arc::new(dir));
    let lines = [
        support::github_signature("{}"),
        "X-GitHub-Delivery: d-2".to_owned(),
        "X-GitHub-Event: ping".to_owned(),
    ];
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    assert_eq!(daemon.client().post("/webhooks/github", &lines, "{}").0, 200);
    assert_eq!(daemon.inboxd(&["upgrade"]).stdout, "app.db is up to date\n");
}

#[test]
fn an_applications_file_is_upgraded_by_a_person_alone() {
    let dir = application_of_version_1();
    let before = fs::read(dir.path().join("app.db")).unwrap();
    for args in [&["--config", "inboxd.toml", "serve"][..], &["status"], &["upgrade"]] {
        let ran = support::inboxd(dir.path(), args);
        assert_eq!(ran.code, 5, "{args:?} {ran:?}");
    }
    let refused = support::inboxd(dir.path(), &["--config", "inboxd.toml", "serve"]);
    assert!(refused.stderr.contains("inboxd upgrade"), "{refused:?}");
    assert!(fs::read(dir.path().join("app.db")).unwrap() == before, "nothing was changed");
    let ran = support::inboxd(dir.path(), &["upgrade", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_is_upgraded(dir);
}

#[test]
fn the_statements_of_an_upgrade_may_be_run_by_hand() {
    let dir = application_of_version_1();
    let script = support::inboxd(dir.path(), &["upgrade", "--print"]);
    assert_eq!(script.code, 0, "{script:?}");
    Connection::open(dir.path().join("app.db")).unwrap().execute_batch(&script.stdout).unwrap();
    assert_is_upgraded(dir);
}

#[test]
fn an_upgrade_says_what_it_does_and_how_long_it_may_take() {
    let (version, sql) = RELEASED[0];
    let (file, path) = file_of(version, sql);
    let dir = Daemon::folder(support::CONFIG);
    fs::create_dir(dir.path().join("data")).unwrap();
    fs::copy(&path, dir.path().join("data/inboxd.db")).unwrap();
    drop(file);
    let daemon = Daemon::in_dir(Arc::new(dir));
    let log = daemon.log();
    assert!(
        log.contains("upgrading from schema version 1 to 3: a copy is made") && log.contains("MB a second"),
        "{log}"
    );
}

/// Entries of the file that is upgraded and killed, and how often it is.
fn given(name: &str, default: u32) -> u32 {
    #[allow(clippy::disallowed_methods, reason = "what the person who runs the test wants")]
    let given = std::env::var(name);
    given.ok().map_or(default, |text| text.parse().unwrap())
}

/// A file of version 2 whose books have so many payments.
fn books_of_version_2(entries: u32) -> (TempDir, PathBuf) {
    let (dir, path) = file_of(2, RELEASED[1].1);
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(&format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {entries})
         INSERT INTO ledger_entries (entry_key, invoice_id, kind, amount, currency, event_id, endpoint, booked_at_ms)
         SELECT 'payment:in_' || i, 'in_' || i, 'payment', i * 7 % 1000 + 1, 'eur', 'evt_' || i, 'billing', i FROM n;
         PRAGMA wal_checkpoint(TRUNCATE)"
    ))
    .unwrap();
    (dir, path)
}

const SUM_OF_PAYMENTS: &str = "SELECT sum(amount) FROM ledger_entries WHERE kind = 'payment'";

/// Where the process that is killed at any moment finds its file.
const BOOKS_FILE: &str = "INBOXD_TEST_UPGRADE_BOOKS";

#[test]
#[ignore = "is started by another test, as a process"]
#[allow(clippy::disallowed_methods, reason = "the parent's word to its child")]
fn as_a_process_that_upgrades_the_books() {
    open::open_writer(Path::new(&std::env::var(BOOKS_FILE).unwrap())).unwrap();
}

#[test]
fn a_kill_at_any_moment_of_the_upgrade_leaves_every_payment_to_the_cent() {
    let (entries, kills) = (given("INBOXD_ENTRIES", 2_000), given("INBOXD_KILLS", 8));
    let (mut time, mut old) = (std::time::Duration::from_millis(400), 0);
    for kill in 0..=kills {
        let (dir, path) = books_of_version_2(entries);
        let before = count(&Connection::open(&path).unwrap(), SUM_OF_PAYMENTS);
        let begun = std::time::Instant::now();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "as_a_process_that_upgrades_the_books"])
            .env(BOOKS_FILE, &path)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        if kill == 0 {
            // how long it takes here when nobody ends it
            assert!(support::ended(&mut child).success());
            time = begun.elapsed();
        } else {
            std::thread::sleep(time * kill / kills);
            drop(child.kill());
            child.wait().unwrap();
        }
        let conn = Connection::open(&path).unwrap();
        let found = version(&conn);
        assert!(found == 2 || found == SCHEMA.version, "version {found}");
        old += u32::from(found == 2);
        assert_eq!(count(&conn, SUM_OF_PAYMENTS), before, "kill {kill}");
        drop(conn);
        let conn = open::open_writer(&path).unwrap();
        assert_eq!(count(&conn, SUM_OF_PAYMENTS), before);
        assert_eq!(
            count(&conn, "SELECT count(*) FROM ledger_entries"),
            i64::from(entries) + 1,
            "nothing is booked"
        );
        assert_eq!(
            count(&conn, "SELECT count(*) FROM ledger_entries WHERE object <> 'invoice:' || invoice_id"),
            0
        );
        let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
        assert_eq!(copies(dir.path()).len(), 1);
    }
    let said =
        format!("{kills} kills of an upgrade of {entries} entries in {time:?}: {old} left the old file\n");
    drop(std::io::Write::write_all(&mut std::io::stderr(), said.as_bytes()));
}
