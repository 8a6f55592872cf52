//! The user's own SQL in the event's transaction: what it can do, what it cannot, and what becomes of
//! its errors. The real binary, seen from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::fs;
use std::thread;

use support::{Daemon, Ran, event, folder, inboxd};

const CONFIG: &str = r#"
data_dir = "data"
[listen]
webhooks = "127.0.0.1:0"
admin = "off"
[limits]
disk_free_min = 0
[endpoint.shop]
provider = "stripe"
path = "/webhooks/stripe"
secrets = ["file:stripe.secret"]
handlers = ["sql:shop"]
[destination.app]
url = "http://127.0.0.1:9/hooks"
sign = "none"
"#;

const PROCESSED: &str = r#"{"outcome":"processed"}"#;
const IGNORED: &str = r#"{"outcome":"ignored"}"#;
const QUARANTINED: &str = r#"{"outcome":"quarantined"}"#;
const FAILED: &str = r#"{"error":"handler_failed"}"#;

const SEEN: &str = "CREATE TABLE IF NOT EXISTS seen (what ANY, more ANY) STRICT;";

fn ok(word: &str) -> (u16, String) {
    (200, word.to_owned())
}

fn failed() -> (u16, String) {
    (500, FAILED.to_owned())
}

/// A daemon whose folder has the table `seen` and these files.
fn with(files: &[(&str, &str)]) -> Daemon {
    let mut all = vec![("shop/schema.sql", SEEN)];
    all.extend_from_slice(files);
    Daemon::with_files(CONFIG, &all)
}

/// Sends an event of a type and returns the answer.
fn send(daemon: &Daemon, id: &str, event_type: &str) -> (u16, String) {
    daemon.stripe(&event(id, event_type, r#"{"id":"ch_1","amount":5}"#))
}

/// What `check` says about one more file, in one line a problem.
fn checked(file: &str, sql: &str) -> Ran {
    let dir = folder(CONFIG, &[("shop/schema.sql", SEEN), (&format!("shop/{file}"), sql)]);
    inboxd(dir.path(), &["check"])
}

#[test]
fn each_type_runs_its_own_file_and_the_rest_run_the_default() {
    let daemon = with(&[
        ("shop/charge.succeeded.sql", "INSERT INTO seen VALUES ('charge', :type);"),
        ("shop/_default.sql", "INSERT INTO seen VALUES ('default', :type);"),
        ("shop/notes.txt", "not SQL"),
    ]);
    assert_eq!(send(&daemon, "evt_1", "charge.succeeded"), ok(PROCESSED));
    assert_eq!(send(&daemon, "evt_2", "charge.failed"), ok(PROCESSED));
    assert_eq!(send(&daemon, "evt_3", "schema"), ok(PROCESSED));
    assert_eq!(send(&daemon, "evt_4", "../charge.succeeded"), ok(PROCESSED));
    let seen = "SELECT group_concat(what || ' ' || more, ', ') FROM seen";
    assert_eq!(
        daemon.text(seen),
        "charge charge.succeeded, default charge.failed, default schema, default ../charge.succeeded"
    );
}

#[test]
fn a_type_without_a_file_is_ignored_and_stored() {
    let daemon = with(&[("shop/charge.succeeded.sql", "INSERT INTO seen VALUES (1, 1);")]);
    assert_eq!(send(&daemon, "evt_1", "charge.failed"), ok(IGNORED));
    assert_eq!(daemon.text("SELECT state FROM webhook_inbox"), "ignored");
    // github's types have a slash or a dot; a file's name has a dot
    assert_eq!(send(&daemon, "evt_2", "charge/succeeded"), ok(PROCESSED));
}

#[test]
fn parameters_are_what_the_event_says_and_the_json_is_the_senders_own_text() {
    let daemon = with(&[(
        "shop/charge.succeeded.sql",
        "INSERT INTO seen VALUES ('id', :id), ('type', :type), ('object', :object), ('event', :event),
           ('endpoint', :endpoint), ('account', :account), ('livemode', :livemode), ('now', typeof(:now_ms));
         INSERT INTO seen SELECT 'amount', :object ->> 'amount';",
    )]);
    // key order, spaces and a number that no double can hold
    let object = r#"{"z": 1, "amount": 9007199254740993, "big": 123456789012345678901234567890, "a": 1.10}"#;
    let body = event("evt_1", "charge.succeeded", object);
    assert_eq!(daemon.stripe(&body), ok(PROCESSED));
    let seen = |what: &str| {
        daemon.text(&format!("SELECT coalesce(more, 'NULL') || '' FROM seen WHERE what = '{what}'"))
    };
    assert_eq!(seen("object"), object);
    assert_eq!(seen("event"), body);
    assert_eq!(seen("amount"), "9007199254740993");
    for (what, expected) in [
        ("id", "evt_1"),
        ("type", "charge.succeeded"),
        ("endpoint", "shop"),
        ("account", "NULL"),
        ("livemode", "0"),
        ("now", "integer"),
    ] {
        assert_eq!(seen(what), expected, "{what}");
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_json() {
    let daemon = with(&[(
        "shop/charge.succeeded.sql",
        "INSERT INTO seen VALUES ('event', :event), ('object', :object)",
    )]);
    let object = r#"{"z": 1, "a": 1.10}"#;
    let body = event("evt_1", "charge.succeeded", object);
    assert_eq!(daemon.stripe(&format!("\u{feff}{body}")), ok(PROCESSED));
    assert_eq!(daemon.text("SELECT more FROM seen WHERE what = 'event'"), body);
    assert_eq!(daemon.text("SELECT more FROM seen WHERE what = 'object'"), object);
}

#[test]
fn the_json_inside_a_form_is_the_senders_own_text_too() {
    for mode in ["sync", "async"] {
        let handled = format!("provider = \"github\"\nmode = \"{mode}\"\nhandlers = [\"sql:shop\"]");
        let config = support::CONFIG.replace("provider = \"github\"", &handled);
        let push = "INSERT INTO seen VALUES ('event', :event), ('object', :object);";
        let daemon = Daemon::with_files(&config, &[("shop/schema.sql", SEEN), ("shop/push.sql", push)]);
        let json = r#"{"z": 1, "a": 1.10, "big": 123456789012345678901234567890, "text": "\u00e9 + %"}"#;
        let encoded: String = json.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let body = format!("x=1&payload={encoded}");
        let headers = [
            "Content-Type: application/x-www-form-urlencoded",
            "X-GitHub-Event: push",
            "X-GitHub-Delivery: 1",
            &support::github_signature(&body),
        ];
        assert_eq!(daemon.client().post("/webhooks/github", &headers, &body).0, 200);
        daemon.wait_for_count("SELECT count(*) FROM seen", 2);
        assert_eq!(daemon.text("SELECT group_concat(DISTINCT more) FROM seen"), json, "{mode}");
    }
}

#[test]
fn every_statement_of_a_file_is_stepped_to_its_end() {
    let daemon = with(&[(
        "shop/charge.succeeded.sql",
        "-- a SELECT with effects in its later rows; a semicolon in a text; a comment at the end
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3)
         SELECT inboxd_emit('app', 'T', 'key:' || i, '{\"a\":\";\"}') FROM n;
         INSERT INTO seen VALUES (';', 1) RETURNING what;;
         UPDATE seen SET more = 2 /* ; */",
    )]);
    assert_eq!(send(&daemon, "evt_1", "charge.succeeded"), ok(PROCESSED));
    assert_eq!(daemon.count("SELECT count(*) FROM outbox"), 3);
    assert_eq!(daemon.count("SELECT more FROM seen"), 2);
}

#[test]
fn emit_queues_a_row_once_and_says_whether_it_did() {
    let daemon = with(&[(
        "shop/charge.succeeded.sql",
        "INSERT INTO seen SELECT :id, inboxd_emit('app', 'Charged', 'charge:' || (:object ->> 'id'), '{\"n\":1}');
         INSERT INTO seen SELECT :id, inboxd_emit('app', 'Charged', 'charge:' || (:object ->> 'id'), '{\"n\":1}');",
    )]);
    assert_eq!(send(&daemon, "evt_1", "charge.succeeded"), ok(PROCESSED));
    assert_eq!(send(&daemon, "evt_2", "charge.succeeded"), ok(PROCESSED));
    assert_eq!(daemon.text("SELECT group_concat(more, '') FROM seen"), "1000");
    let row = "SELECT destination || ' ' || topic || ' ' || operation_key || ' ' || payload || ' ' || endpoint || ' ' \
               || event_id || ' ' || object_id || ' ' || content_type FROM outbox";
    assert_eq!(daemon.text(row), r#"app Charged charge:ch_1 {"n":1} shop evt_1 ch_1 application/json"#);
}

#[test]
fn emit_refuses_what_it_cannot_queue_and_the_event_comes_again() {
    let emit = "SELECT inboxd_emit(:object ->> 'to', 'T', :object ->> 'key', :object ->> 'json')";
    let daemon = with(&[("shop/charge.succeeded.sql", &format!("INSERT INTO seen VALUES (1, 1); {emit}"))]);
    let send = |id: &str, to: &str, key: &str, json: &str| {
        let object = format!(r#"{{"to":"{to}","key":"{key}","json":{json}}}"#);
        daemon.stripe(&event(id, "charge.succeeded", &object))
    };
    assert_eq!(send("evt_0", "app", "k", r#""{\"n\":1}""#), ok(PROCESSED));
    let before = daemon.count("SELECT count(*) FROM seen");
    for (to, key, json, said) in [
        ("ap", "k2", r#""{}""#, r#"there is no destination "ap"; known: app"#),
        ("app", "k", r#""{\"n\":2}""#, "k was queued before with another payload"),
        ("app", "", r#""{}""#, "1 to 255 bytes"),
        ("app", "k2", r#""{""#, "the payload of k2 is not JSON"),
        ("app", "k2", "null", "the payload is NULL"),
    ] {
        assert_eq!(send("evt_1", to, key, json), failed(), "{said}");
        daemon.wait_for_log(said);
    }
    assert_eq!(daemon.count("SELECT count(*) FROM outbox"), 1);
    assert_eq!(daemon.count("SELECT count(*) FROM seen"), before);
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox"), 1);
}

/// What one transaction queued and has not committed is seen by the next event of its batch, and an
/// undone emission is not.
#[test]
fn emit_is_right_among_simultaneous_events_about_one_fact() {
    let daemon = with(&[(
        "shop/charge.succeeded.sql",
        "INSERT INTO seen SELECT inboxd_emit('app', 'T', :object ->> 'id', '{}'), 0;
         SELECT inboxd_retry('not this one') WHERE :object ->> 'fails';",
    )]);
    thread::scope(|scope| {
        for sender in 0..8 {
            let daemon = &daemon;
            scope.spawn(move || {
                for n in 0..25 {
                    let object = format!(r#"{{"id":"fact_{n}","fails":{}}}"#, (sender + n) % 3 == 0);
                    let id = format!("evt_{sender}_{n}");
                    let expected = if (sender + n) % 3 == 0 { failed() } else { ok(PROCESSED) };
                    assert_eq!(daemon.stripe(&event(&id, "charge.succeeded", &object)), expected);
                }
            });
        }
    });
    assert_eq!(daemon.count("SELECT count(*) FROM outbox"), 25);
    assert_eq!(daemon.count("SELECT sum(what) FROM seen"), 25, "each fact was new to one event");
}

#[test]
fn the_three_verdicts_end_the_handler_and_undo_what_it_wrote() {
    let daemon = with(&[
        (
            "shop/a.sql",
            "INSERT INTO seen VALUES ('a', 1); SELECT inboxd_emit('app','T','k','{}');
             SELECT inboxd_ignore('not ours'); INSERT INTO seen VALUES ('after', 1);",
        ),
        (
            "shop/b.sql",
            "INSERT INTO seen VALUES ('b', 1);
             SELECT CASE WHEN :object ->> 'amount' > 3 THEN inboxd_quarantine('too much: ' || (:object ->> 'amount')) END;",
        ),
        ("shop/c.sql", "INSERT INTO seen VALUES ('c', 1); SELECT inboxd_retry('no order yet');"),
        ("shop/d.sql", "INSERT OR IGNORE INTO seen SELECT 'd', inboxd_quarantine(NULL);"),
    ]);
    assert_eq!(send(&daemon, "evt_a", "a"), ok(IGNORED));
    assert_eq!(send(&daemon, "evt_b", "b"), ok(QUARANTINED));
    assert_eq!(send(&daemon, "evt_c", "c"), failed());
    assert_eq!(send(&daemon, "evt_d", "d"), ok(QUARANTINED));
    assert_eq!(daemon.count("SELECT count(*) FROM seen"), 0);
    assert_eq!(daemon.count("SELECT count(*) FROM outbox"), 0);
    let states = "SELECT group_concat(event_id || ' ' || state, ', ') FROM webhook_inbox";
    assert_eq!(daemon.text(states), "evt_a ignored, evt_b quarantined, evt_d quarantined");
    let reasons = "SELECT group_concat(reason, ', ') FROM reviews";
    assert_eq!(daemon.text(reasons), "too much: 5, the handler gave no reason");
    daemon.wait_for_log("no order yet");
}

#[test]
fn an_ignoring_folder_leaves_what_the_handler_beside_it_wrote() {
    let config = CONFIG.replace(r#"["sql:shop"]"#, r#"["sql:shop", "sql:other"]"#);
    let daemon = Daemon::with_files(
        &config,
        &[
            ("shop/schema.sql", SEEN),
            ("shop/a.sql", "INSERT INTO seen VALUES ('shop', 1);"),
            ("other/a.sql", "INSERT INTO seen VALUES ('other', 1); SELECT inboxd_ignore('no');"),
        ],
    );
    assert_eq!(send(&daemon, "evt_1", "a"), ok(PROCESSED));
    assert_eq!(daemon.text("SELECT group_concat(what) FROM seen"), "shop");
}

#[test]
fn an_error_of_the_users_sql_is_told_to_the_log_and_never_to_the_sender() {
    let daemon = Daemon::with_files(
        CONFIG,
        &[
            (
                "shop/schema.sql",
                "CREATE TABLE IF NOT EXISTS credits (fact TEXT PRIMARY KEY, cents INTEGER NOT NULL) STRICT;",
            ),
            (
                "shop/unique.sql",
                "\n\nINSERT INTO credits VALUES ('x', 1);\nINSERT INTO credits VALUES ('x', 1);",
            ),
            ("shop/type.sql", "INSERT INTO credits VALUES ('y', 'canary');"),
            ("shop/null.sql", "INSERT INTO credits VALUES (:id, :object ->> 'absent');"),
        ],
    );
    for (event_type, said) in [
        ("unique", "unique.sql:4: UNIQUE constraint failed: credits.fact"),
        ("type", "type.sql:1: cannot store TEXT value in INTEGER column credits.cents"),
        ("null", "null.sql:1: NOT NULL constraint failed: credits.cents"),
    ] {
        assert_eq!(send(&daemon, "evt_1", event_type), failed());
        daemon.wait_for_log(said);
    }
    assert_eq!(daemon.count("SELECT count(*) FROM credits"), 0);
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox"), 0);
}

#[test]
fn a_column_that_is_dropped_while_it_runs_fails_the_event_until_it_is_back() {
    let daemon = with(&[("shop/a.sql", "INSERT INTO seen (what, more) VALUES (1, 2);")]);
    assert_eq!(send(&daemon, "evt_1", "a"), ok(PROCESSED));
    daemon.sql().execute_batch("ALTER TABLE seen RENAME COLUMN more TO less").unwrap();
    assert_eq!(send(&daemon, "evt_2", "a"), failed());
    daemon.wait_for_log("a.sql:1: table seen has no column named more");
    daemon.sql().execute_batch("ALTER TABLE seen RENAME COLUMN less TO more").unwrap();
    assert_eq!(send(&daemon, "evt_2", "a"), ok(PROCESSED));
}

#[test]
fn a_statement_that_never_ends_is_interrupted_and_the_next_event_is_processed() {
    let config = CONFIG.replace("[limits]", "[limits]\nhandler_timeout = \"300ms\"");
    let files = [
        ("shop/schema.sql", SEEN),
        (
            "shop/endless.sql",
            "INSERT INTO seen VALUES ('endless', 1);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO seen SELECT i, 1 FROM n;",
        ),
        ("shop/a.sql", "INSERT INTO seen VALUES ('a', 1);"),
    ];
    let daemon = Daemon::with_files(&config, &files);
    assert_eq!(send(&daemon, "evt_1", "endless"), failed());
    daemon
        .wait_for_log("longer than limits.handler_timeout and was interrupted (endless.sql:2: interrupted)");
    assert_eq!(send(&daemon, "evt_2", "a"), ok(PROCESSED));
    assert_eq!(daemon.text("SELECT group_concat(what) FROM seen"), "a");
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox"), 1);
}

#[test]
fn a_rollback_hidden_in_a_statement_harms_no_other_event() {
    let daemon = Daemon::with_files(
        CONFIG,
        &[
            (
                "shop/schema.sql",
                "CREATE TABLE IF NOT EXISTS seen (what TEXT PRIMARY KEY) STRICT;
             CREATE TRIGGER IF NOT EXISTS no_b BEFORE INSERT ON seen WHEN NEW.what = 'raise'
             BEGIN SELECT RAISE(ROLLBACK, 'rolled back by the trigger'); END;",
            ),
            ("shop/good.sql", "INSERT INTO seen VALUES (:id);"),
            ("shop/or.sql", "INSERT INTO seen VALUES (:id); INSERT OR ROLLBACK INTO seen VALUES (:id);"),
            ("shop/raise.sql", "INSERT INTO seen VALUES ('raise');"),
        ],
    );
    thread::scope(|scope| {
        for sender in 0..8 {
            let daemon = &daemon;
            scope.spawn(move || {
                for n in 0..20 {
                    let id = format!("evt_{sender}_{n}");
                    let (event_type, expected) = match (sender + n) % 4 {
                        0 => ("or", failed()),
                        1 => ("raise", failed()),
                        _ => ("good", ok(PROCESSED)),
                    };
                    assert_eq!(send(daemon, &id, event_type), expected);
                }
            });
        }
    });
    assert_eq!(daemon.count("SELECT count(*) FROM seen"), 80);
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox"), 80);
}

#[test]
fn check_refuses_and_names_each_forbidden_act() {
    for (sql, said) in [
        (
            "DROP TABLE webhook_inbox",
            "`DROP TABLE webhook_inbox` is not allowed here: tables are made in schema.sql",
        ),
        ("CREATE TEMP TABLE webhook_inbox (a)", "`CREATE TEMP TABLE webhook_inbox` is not allowed here"),
        (
            "CREATE TRIGGER t AFTER INSERT ON webhook_inbox BEGIN SELECT 1; END",
            "`CREATE TRIGGER t AFTER` is not allowed here",
        ),
        ("COMMIT", "`COMMIT` is not allowed here: the transaction is inboxd's"),
        ("END", "the transaction is inboxd's"),
        ("ROLLBACK", "the transaction is inboxd's"),
        ("SAVEPOINT a", "`SAVEPOINT a` is not allowed here: the transaction is inboxd's"),
        ("RELEASE a", "the transaction is inboxd's"),
        ("BEGIN", "the transaction is inboxd's"),
        ("ATTACH 'x.db' AS x", "`ATTACH 'x.db' AS x` is not allowed here"),
        ("DETACH main", "is not allowed here"),
        ("PRAGMA user_version = 7", "`PRAGMA user_version = 7` is not allowed here"),
        ("VACUUM", "`VACUUM` is not allowed here"),
        ("EXPLAIN SELECT 1", "is not allowed here"),
        ("UPDATE webhook_inbox SET state = 'done'", "writes webhook_inbox, which is inboxd's own"),
        ("DELETE FROM WEBHOOK_INBOX", "writes webhook_inbox, which is inboxd's own"),
        ("INSERT INTO main.outbox (id) VALUES (1)", "writes outbox, which is inboxd's own"),
        ("REPLACE INTO reviews (id) VALUES (1)", "writes reviews, which is inboxd's own"),
        ("WITH a AS (SELECT 1) DELETE FROM ledger_entries", "writes ledger_entries"),
        ("UPDATE invoices SET status = 'paid'", "writes invoices"),
        ("DELETE FROM orders", "writes orders"),
        ("INSERT INTO inboxd_meta VALUES ('a', 1)", "writes inboxd_meta"),
        ("UPDATE sqlite_schema SET sql = ''", "table sqlite_master may not be modified"),
        ("SELECT load_extension('x')", "calls load_extension()"),
        ("SELECT * FROM pragma_table_info('seen'), pragma_journal_mode", "PRAGMA"),
    ] {
        // on line 2 behind a good statement
        let ran = checked("a.sql", &format!("SELECT 1;\n  {sql};"));
        assert_eq!(ran.code, 3, "{sql}: {ran:?}");
        assert!(ran.stderr.contains("endpoint.shop.handlers: shop/a.sql:2:"), "{sql}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{sql}: {}", ran.stderr);
    }
}

#[test]
fn check_refuses_what_schema_sql_must_not_touch() {
    for (sql, said) in [
        ("DROP TABLE webhook_inbox", "changes webhook_inbox"),
        ("CREATE TABLE IF NOT EXISTS Orders (id)", "changes Orders"),
        ("CREATE TABLE inboxd_things (id)", "changes inboxd_things"),
        ("ALTER TABLE outbox ADD COLUMN x", "changes outbox"),
        ("CREATE INDEX IF NOT EXISTS i ON reviews (reason)", "changes reviews"),
        (
            "CREATE TRIGGER IF NOT EXISTS t AFTER INSERT ON webhook_inbox BEGIN SELECT 1; END",
            "changes webhook_inbox",
        ),
        ("DROP TRIGGER ledger_entries_are_not_deleted", "changes ledger_entries"),
        ("DROP INDEX webhook_inbox_key", "changes webhook_inbox"),
        ("DELETE FROM webhook_inbox", "writes webhook_inbox"),
        ("CREATE TEMP TABLE x (a)", "not allowed here: CREATE TEMP TABLE x"),
        ("CREATE TEMP TRIGGER t AFTER INSERT ON webhook_inbox BEGIN SELECT 1; END", "CREATE TEMP TRIGGER"),
        ("PRAGMA user_version = 7", "not allowed here: PRAGMA user_version"),
        ("ATTACH ':memory:' AS x", "not allowed here: ATTACH"),
        ("COMMIT", "not allowed here: COMMIT"),
        ("SAVEPOINT a", "not allowed here: SAVEPOINT"),
        ("VACUUM", "cannot VACUUM"),
        ("CREATE TABLE x (a)", "table x already exists; it runs at every start"),
    ] {
        let schema = format!("{SEEN}\n-- here:\n{sql};");
        let dir = folder(CONFIG, &[("shop/schema.sql", &schema)]);
        let ran = inboxd(dir.path(), &["check"]);
        assert_eq!(ran.code, 3, "{sql}: {ran:?}");
        assert!(ran.stderr.contains("shop/schema.sql:3:"), "{sql}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{sql}: {}", ran.stderr);
    }
}

#[test]
fn check_finds_a_mistake_with_file_line_and_column() {
    for (sql, said) in [
        (
            "SELECT 1;\nINSERT INTO seen (what, mroe) VALUES (1, 2)",
            "a.sql:2:1: table seen has no column named mroe",
        ),
        ("SELECT 1;\nSELECT wat FROM seen", "a.sql:2:8: no such column: wat"),
        ("SELECT\n  \"wat\" FROM seen", "a.sql:2:3: no such column: \"wat\""),
        ("SELCT 1", "a.sql:1:1: `SELCT 1` is not allowed here"),
        ("SELECT (1", "a.sql:1:"),
        ("SELECT 1;\nSELECT 2 WHERE :when > 1", "a.sql:2:16: there is no parameter :when; known: :id :type"),
        ("SELECT ?", "a.sql:1:8: there is no parameter ?"),
        ("INSERT INTO absent VALUES (1)", "no such table: absent"),
        ("SELECT inboxd_emit(1)", "wrong number of arguments to function inboxd_emit()"),
    ] {
        let ran = checked("a.sql", sql);
        assert_eq!(ran.code, 3, "{sql}: {ran:?}");
        assert!(ran.stderr.contains(said), "{sql}: {}", ran.stderr);
    }
    let ran = checked("a.sql.bak", "SELECT 1");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("shop/a.sql.bak is not used"), "{}", ran.stdout);
}

#[test]
fn the_folder_in_the_manual_is_accepted_by_check() {
    let manual = include_str!("../docs/handlers.md");
    let mut files = Vec::new();
    for block in manual.split("```sql\n").skip(1) {
        let text = block.split("```").next().unwrap();
        let name = text.strip_prefix("-- ").unwrap().split([':', '\n']).next().unwrap();
        files.push((name, text));
    }
    assert_eq!(files.len(), 2);
    let dir = folder(CONFIG, &files);
    let ran = inboxd(dir.path(), &["check"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn check_reports_every_mistake_at_once_and_writes_nothing() {
    let dir = folder(CONFIG, &[("shop/a.sql", "SELCT 1; COMMIT;"), ("shop/b.sql", "SELECT wat")]);
    let ran = inboxd(dir.path(), &["check", "--json"]);
    assert_eq!(ran.code, 3);
    let said: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(said["problems"].as_array().unwrap().len(), 3, "{said}");
    assert!(!dir.path().join("data").exists());
}

#[test]
fn check_knows_tables_that_the_real_database_has() {
    let daemon = with(&[]);
    daemon
        .sql()
        .execute_batch("CREATE TABLE by_hand (a, b, c); CREATE VIEW v AS SELECT a FROM by_hand")
        .unwrap();
    fs::write(daemon.dir.path().join("shop/a.sql"), "INSERT INTO by_hand SELECT a, :id, 'x' FROM v;")
        .unwrap();
    let ran = daemon.inboxd(&["check"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn serve_does_not_start_with_a_mistake_and_leaves_the_schema_as_it_was() {
    let schema = format!("{SEEN} CREATE TABLE IF NOT EXISTS other (a);");
    let dir = folder(
        CONFIG,
        &[("shop/schema.sql", &schema), ("shop/a.sql", "SELECT wat"), ("shop/b.sql", "VACUUM")],
    );
    let ran = inboxd(dir.path(), &["serve"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains("shop/a.sql:1:8: no such column: wat"), "{}", ran.stderr);
    assert!(ran.stderr.contains("shop/b.sql:1:1: `VACUUM` is not allowed here"), "{}", ran.stderr);
    let conn = support::open(&dir.path().join("data/inboxd.db"));
    let made = "SELECT count(*) FROM sqlite_schema WHERE name IN ('seen', 'other')";
    assert_eq!(conn.query_row(made, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

#[test]
fn a_restart_runs_the_schema_again_and_keeps_the_data() {
    let schema = format!(
        "{SEEN} CREATE INDEX IF NOT EXISTS seen_what ON seen (what);
        CREATE TRIGGER IF NOT EXISTS double AFTER INSERT ON seen WHEN NEW.more = 1
        BEGIN INSERT INTO seen VALUES (CASE WHEN 1 THEN 'from a trigger' END, 2); END;"
    );
    let daemon = Daemon::with_files(
        CONFIG,
        &[("shop/schema.sql", &schema), ("shop/a.sql", "INSERT INTO seen VALUES (:id, 1);")],
    );
    assert_eq!(send(&daemon, "evt_1", "a"), ok(PROCESSED));
    let daemon = Daemon::in_dir(daemon.kill());
    assert_eq!(send(&daemon, "evt_2", "a"), ok(PROCESSED));
    assert_eq!(daemon.count("SELECT count(*) FROM seen"), 4);
}

#[test]
fn a_full_text_table_of_the_users_works() {
    let daemon = Daemon::with_files(
        CONFIG,
        &[
            ("shop/schema.sql", "CREATE VIRTUAL TABLE IF NOT EXISTS search USING fts5(id, what);"),
            (
                "shop/a.sql",
                "DELETE FROM search WHERE id = :id; INSERT INTO search VALUES (:id, 'a red bicycle');
             UPDATE search SET what = what || ' sold' WHERE search MATCH 'bicycle';",
            ),
        ],
    );
    assert_eq!(send(&daemon, "evt_1", "a"), ok(PROCESSED));
    assert_eq!(send(&daemon, "evt_2", "a"), ok(PROCESSED));
    assert_eq!(daemon.count("SELECT count(*) FROM search WHERE search MATCH 'sold'"), 2);
    assert_eq!(daemon.inboxd(&["check"]).code, 0);
}

#[test]
fn a_reload_takes_all_files_or_none() {
    let daemon = with(&[
        ("shop/a.sql", "INSERT INTO seen VALUES ('a', 1);"),
        ("shop/b.sql", "INSERT INTO seen VALUES ('b', 1);"),
    ]);
    let write = |name: &str, sql: &str| fs::write(daemon.dir.path().join("shop").join(name), sql).unwrap();
    let reload = || support::signal(daemon.pid(), rustix::process::Signal::HUP);

    write("a.sql", "INSERT INTO seen VALUES ('a', 2);");
    write("b.sql", "INSERT INTO seen VALUES ('b', wat);");
    reload();
    daemon.wait_for_log(
        "not reloaded; the SQL read before stays in use: sql:shop: b.sql:1:31: no such column: wat",
    );
    assert_eq!(send(&daemon, "evt_1", "a"), ok(PROCESSED));
    assert_eq!(send(&daemon, "evt_2", "c"), ok(IGNORED));

    write("b.sql", "INSERT INTO seen VALUES ('b', 2);");
    write("c.sql", "INSERT INTO seen VALUES ('c', 2);");
    reload();
    daemon.wait_for_log("reloaded 1 folder of SQL");
    for (id, event_type) in [("evt_3", "a"), ("evt_4", "b"), ("evt_5", "c")] {
        assert_eq!(send(&daemon, id, event_type), ok(PROCESSED));
    }
    assert_eq!(daemon.text("SELECT group_concat(what || more, ' ') FROM seen"), "a1 a2 b2 c2");
}

/// A shop: orders, and a ledger of credits whose key is the business fact.
const SHOP: &[(&str, &str)] = &[
    (
        "shop/schema.sql",
        "CREATE TABLE IF NOT EXISTS shop_orders (
           id TEXT PRIMARY KEY, total INTEGER NOT NULL, paid INTEGER NOT NULL DEFAULT 0,
           refunded INTEGER NOT NULL DEFAULT 0, CHECK (paid IN (0, 1) AND refunded BETWEEN 0 AND total)
         ) STRICT;
         CREATE TABLE IF NOT EXISTS credits (
           fact TEXT PRIMARY KEY, order_id TEXT NOT NULL, cents INTEGER NOT NULL
         ) STRICT;",
    ),
    (
        "shop/order.placed.sql",
        "INSERT INTO shop_orders (id, total) VALUES (:object ->> 'order', :object ->> 'total')
         ON CONFLICT (id) DO NOTHING;",
    ),
    (
        "shop/order.paid.sql",
        "SELECT inboxd_retry('the order is not there yet')
          WHERE NOT EXISTS (SELECT 1 FROM shop_orders WHERE id = :object ->> 'order');
         SELECT inboxd_quarantine('another total than the order''s')
           FROM shop_orders WHERE id = :object ->> 'order' AND total <> :object ->> 'total';
         INSERT INTO credits (fact, order_id, cents)
         VALUES ('paid:' || (:object ->> 'order'), :object ->> 'order', :object ->> 'total')
         ON CONFLICT (fact) DO NOTHING;
         UPDATE shop_orders SET paid = 1 WHERE id = :object ->> 'order';
         SELECT inboxd_emit('app', 'OrderPaid', 'paid:' || (:object ->> 'order'),
                            json_object('order', :object ->> 'order', 'cents', :object ->> 'total'));",
    ),
    (
        "shop/order.refunded.sql",
        "SELECT inboxd_retry('the order is not paid yet')
          WHERE NOT EXISTS (SELECT 1 FROM shop_orders WHERE id = :object ->> 'order' AND paid);
         INSERT INTO credits (fact, order_id, cents)
         VALUES ('refund:' || (:object ->> 'refund'), :object ->> 'order', -(:object ->> 'cents'))
         ON CONFLICT (fact) DO NOTHING;
         UPDATE shop_orders SET refunded =
           (SELECT -coalesce(sum(cents), 0) FROM credits WHERE order_id = :object ->> 'order' AND cents < 0)
          WHERE id = :object ->> 'order';",
    ),
];

/// Each of 200 orders is placed, paid (told by two events) and refunded in part: 1,000 events with the
/// copies, in a different order from every sender, and what fails is sent again as a provider would.
#[test]
fn the_books_of_a_shop_balance_after_a_thousand_events_with_copies_in_any_order() {
    let daemon = Daemon::with_files(CONFIG, SHOP);
    let mut events = Vec::new();
    for n in 0..200 {
        let total = 1000 + n;
        let about = |more: &str| format!(r#"{{"order":"o_{n}","total":{total}{more}}}"#);
        events.push(event(&format!("evt_{n}_placed"), "order.placed", &about("")));
        events.push(event(&format!("evt_{n}_paid"), "order.paid", &about("")));
        events.push(event(&format!("evt_{n}_paid_too"), "order.paid", &about("")));
        let refund = about(&format!(r#","refund":"r_{n}","cents":{n}"#));
        events.push(event(&format!("evt_{n}_refunded"), "order.refunded", &refund));
        if n % 10 == 0 {
            let wrong = format!(r#"{{"order":"o_{n}","total":1}}"#);
            events.push(event(&format!("evt_{n}_wrong"), "order.paid", &wrong));
        }
    }
    // copies of every fifth event
    let copies: Vec<_> = events.iter().step_by(5).cloned().collect();
    events.extend(copies);
    assert!(events.len() >= 980, "{}", events.len());
    thread::scope(|scope| {
        for sender in 0..4 {
            let (daemon, events) = (&daemon, &events);
            scope.spawn(move || {
                let mut client = daemon.client();
                let mut rest: Vec<_> = (0..events.len()).filter(|index| index % 4 == sender).collect();
                // late events first
                rest.sort_by_key(|index| (index * 7919 + sender) % 1009);
                for _ in 0..50 {
                    rest.retain(|index| {
                        let body = &events[*index];
                        let signature =
                            support::stripe_signature(body, support::now_s(), support::STRIPE_SECRET);
                        client.post("/webhooks/stripe", &[&signature], body).0 != 200
                    });
                    if rest.is_empty() {
                        return;
                    }
                }
                panic!("{} events were never taken", rest.len());
            });
        }
    });
    let total: i64 = (0..200).map(|n| 1000 + n).sum();
    let refunded: i64 = (0..200).sum();
    assert_eq!(daemon.count("SELECT sum(cents) FROM credits"), total - refunded);
    assert_eq!(daemon.count("SELECT count(*) FROM credits WHERE cents >= 1000"), 200);
    assert_eq!(daemon.count("SELECT sum(paid) FROM shop_orders"), 200);
    assert_eq!(daemon.count("SELECT sum(refunded) FROM shop_orders"), refunded);
    assert_eq!(daemon.count("SELECT count(*) FROM outbox"), 200);
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox WHERE state = 'quarantined'"), 20);
    assert_eq!(daemon.count("SELECT count(*) FROM reviews"), 20);
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox"), 820);
    // with the inbox gone, the business keys still hold
    daemon.sql().execute_batch("DELETE FROM webhook_inbox").unwrap();
    for body in events.iter().take(40) {
        daemon.stripe(body);
    }
    assert_eq!(daemon.count("SELECT sum(cents) FROM credits"), total - refunded);
    assert_eq!(daemon.count("SELECT count(*) FROM outbox"), 200);
}
