//! The command line against a running daemon and its database.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use support::{Daemon, Ran, inboxd, invoice_event};

/// The usual configuration with a fixed address, where `send` finds the daemon.
fn with_address() -> String {
    let webhooks = format!("webhooks = \"{}\"", support::own_address());
    support::CONFIG.replace("webhooks = \"127.0.0.1:0\"", &webhooks)
}

fn reachable() -> Daemon {
    Daemon::with_config(&with_address())
}

#[test]
fn send_signs_what_serve_accepts() {
    let daemon = reachable();
    let sent = daemon.inboxd(&["send", "stripe", "invoice.paid", "--id", "evt_sent"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    assert!(sent.stdout.starts_with(r#"200 {"outcome":"processed"}  invoice.paid evt_sent"#), "{sent:?}");
    let github = daemon.inboxd(&["send", "github", "issues.opened"]);
    assert_eq!(github.code, 0, "{github:?}");
    assert_eq!(
        daemon.text("SELECT event_type FROM webhook_inbox WHERE endpoint = 'github'"),
        "issues.opened"
    );
}

#[test]
fn send_makes_copies_of_one_event() {
    let daemon = reachable();
    let sent = daemon.inboxd(&["send", "stripe", "invoice.paid", "--times", "20", "--concurrency", "4"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    assert!(sent.stderr.contains(r#"1 x 200 {"outcome":"processed"}"#), "{sent:?}");
    assert!(sent.stderr.contains(r#"19 x 200 {"outcome":"duplicate"}"#), "{sent:?}");
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries WHERE kind = 'payment'"), 1);
}

#[test]
fn send_plays_a_history_about_one_object_in_any_order() {
    let daemon = reachable();
    let history = "invoice.created,invoice.finalized,invoice.paid";
    let sent = daemon.inboxd(&["send", "stripe", history, "--times", "3", "--shuffle"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    assert_eq!(daemon.text("SELECT group_concat(status) FROM invoices"), "paid");
}

#[test]
fn a_spoiled_signature_and_a_shifted_clock_are_refused() {
    let daemon = reachable();
    let spoiled = daemon.inboxd(&["send", "stripe", "invoice.paid", "--bad-signature"]);
    assert_eq!(spoiled.code, 0, "a refusal is what was asked for: {spoiled:?}");
    assert!(spoiled.stdout.contains("400 {\"error\":\"signature_mismatch\"}"), "{spoiled:?}");
    let late = daemon.inboxd(&["send", "stripe", "invoice.paid", "--skew=-10m"]);
    assert_eq!(late.code, 0, "so is this one: {late:?}");
    assert!(late.stdout.contains("timestamp_outside_tolerance"), "{late:?}");
    assert!(late.stderr.contains("this refusal is the right answer"), "{late:?}");
    assert!(!late.stderr.contains("genuine"), "{late:?}");
    let both = daemon.inboxd(&["send", "stripe", "invoice.paid", "--skew=-10m", "--bad-signature"]);
    assert_eq!(both.code, 0, "{both:?}");
}

#[test]
fn a_failure_at_the_receivers_side_is_not_called_a_refusal() {
    let daemon = reachable();
    let broken = "CREATE TRIGGER broken BEFORE INSERT ON invoices BEGIN SELECT RAISE(ABORT, 'broken'); END";
    daemon.sql().execute_batch(broken).unwrap();
    let failed = daemon.inboxd(&["send", "stripe", "invoice.paid", "--id", "evt_f"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stderr.contains("failed (500); its log says why"), "{failed:?}");
    assert!(!failed.stderr.contains("genuine"), "{failed:?}");
    // nothing of it is stored, and whoever looks for it is told why
    for verb in [&["events", "show", "evt_f"][..], &["retry", "evt_f"]] {
        let ran = daemon.inboxd(verb);
        assert_eq!(ran.code, 4, "{ran:?}");
        for words in ["evt_f is not stored", "failed once on billing (broken)", "mend the handler"] {
            assert!(ran.stderr.contains(words), "{words}: {ran:?}");
        }
    }
}

#[test]
fn a_copy_that_is_told_to_wait_for_the_other_is_no_refusal() {
    let status = std::sync::atomic::AtomicU16::new(409);
    let app = support::app::App::start(move |_, back| {
        let status = status.swap(200, std::sync::atomic::Ordering::SeqCst);
        support::app::respond(back, status, "", r#"{"error":"in_progress"}"#);
    });
    let dir = support::folder("", &[("s", "a secret of this test")]);
    let send = |times: &str| {
        let to = ["--to", app.url.as_str(), "--secret-file", "s", "--times", times];
        inboxd(dir.path(), &[&["send", "github", "ping"][..], &to].concat())
    };
    let one = send("1");
    assert!(one.code == 6 && one.stderr.contains("another copy of the event (409)"), "{one:?}");
    assert_eq!(send("2").code, 0);
}

#[test]
fn completions_know_the_names_of_providers_endpoints_and_destinations() {
    let destination = "[destination.warehouse]\nurl = \"http://127.0.0.1:9/\"\nsign = \"none\"\n";
    let dir = support::folder(&format!("{}{destination}", support::CONFIG), &[]);
    for shell in ["bash", "zsh", "fish"] {
        let script = inboxd(dir.path(), &["completions", shell]).stdout;
        for name in ["shopify", "billing", "warehouse"] {
            assert!(script.contains(name), "{shell}: {name}");
        }
    }
    // and help is no longer than it was
    assert!(!inboxd(dir.path(), &["send", "--help"]).stdout.contains("shopify"));
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("inboxd.toml"), "no configuration").unwrap();
    assert_eq!(inboxd(elsewhere.path(), &["completions", "bash"]).code, 0);
}

#[test]
fn a_wrong_query_is_told_where_it_is_wrong_and_how_to_see_what_there_is() {
    let daemon = Daemon::start();
    let ran = daemon.inboxd(&["query", "SELECT count(*) FORM webhook_inbox"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    for words in ["syntax error", "at character ", "webhook_inbox", "`inboxd query --tables`"] {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
    let ran = daemon.inboxd(&["query", "SELECT * FROM webhook_inbx"]);
    assert!(ran.stderr.contains("did you mean webhook_inbox?"), "{ran:?}");
    let tables = daemon.inboxd(&["query", "--tables"]);
    assert_eq!(tables.code, 0, "{tables:?}");
    let orders = tables.stdout.lines().find(|line| line.starts_with("orders ")).unwrap();
    assert!(orders.contains("account, id, status, currency, total"), "{orders}");
    assert!(!tables.stdout.contains("sqlite_"), "{tables:?}");
    assert_eq!(
        daemon.inboxd(&["query", "--tables", "--json"]).stdout.lines().next().unwrap().chars().next(),
        Some('{')
    );
    assert_eq!(daemon.inboxd(&["query"]).code, 2);
}

#[test]
fn on_a_terminal_of_80_columns_no_line_of_a_list_is_longer() {
    let daemon = Daemon::start();
    let long = "evt_0123456789abcdefghijklmnopqrstuvwxyz";
    daemon.stripe(&invoice_event(long, "voided", "in_0123456789abcdefghijklmnop", 4200));
    daemon.stripe(&invoice_event(&format!("{long}2"), "paid", "in_0123456789abcdefghijklmnop", 4200));
    let on_terminal = |verb: &str| {
        let line = format!("stty cols 80 && {} {verb}", env!("CARGO_BIN_EXE_inboxd"));
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(daemon.dir.path()).stdin(Stdio::null());
        script.output().ok().map(|output| String::from_utf8(output.stdout).unwrap())
    };
    for verb in ["events list", "reviews list", "reviews list --all", "outbox list"] {
        let Some(text) = on_terminal(verb) else { return support::skipped("script is not installed") };
        assert!(verb == "outbox list" || text.lines().count() >= 2, "{text}");
        for line in text.lines().map(str::trim_end) {
            assert!(line.chars().count() <= 80, "{verb}: {line}");
        }
    }
    assert!(on_terminal("events list --wide").unwrap().contains(&format!("{long}2")));
    assert!(daemon.inboxd(&["events", "list"]).stdout.contains(&format!("{long}2")));
}

#[test]
fn send_without_a_daemon_says_how_to_start_one() {
    let daemon = reachable();
    let dir = daemon.kill();
    let sent = inboxd(dir.path(), &["send", "stripe", "invoice.paid"]);
    assert_eq!(sent.code, 6, "{sent:?}");
    assert!(sent.stderr.contains("inboxd serve"), "{sent:?}");
}

#[test]
fn send_takes_a_file_and_another_id() {
    let daemon = reachable();
    let path = daemon.dir.path().join("body.json");
    fs::write(&path, invoice_event("evt_in_the_file", "paid", "in_1", 700)).unwrap();
    let sent = daemon.inboxd(&["send", "stripe", "invoice.paid", "--file", "body.json"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    let sent = daemon.inboxd(&["send", "stripe", "invoice.paid", "--file", "body.json", "--id", "evt_other"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    let ids = "SELECT group_concat(event_id) FROM (SELECT event_id FROM webhook_inbox ORDER BY id)";
    assert_eq!(daemon.text(ids), "evt_in_the_file,evt_other");
}

#[test]
fn events_are_listed_shown_and_printed_byte_for_byte() {
    let daemon = Daemon::start();
    let body = invoice_event("evt_1", "paid", "in_1", 4200);
    daemon.stripe(&body);
    daemon.stripe(&invoice_event("evt_2", "voided", "in_1", 4200));

    let list = daemon.inboxd(&["events", "list"]);
    assert!(list.stdout.contains("evt_1") && list.stdout.contains("quarantined"), "{list:?}");
    let list = daemon.inboxd(&["events", "list", "--type", "invoice.paid", "--object", "in_1", "--json"]);
    let line: serde_json::Value = serde_json::from_str(list.stdout.trim()).unwrap();
    assert_eq!((&line["event_id"], &line["state"]), (&"evt_1".into(), &"done".into()));
    let none = daemon.inboxd(&["events", "list", "--since", "2099-01-01T00:00:00Z"]);
    assert_eq!((none.code, none.stdout.as_str()), (0, ""));

    let show = daemon.inboxd(&["events", "show", "evt_2", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&show.stdout).unwrap();
    assert_eq!(shown["reviews"][0]["kind"], "contradiction");
    assert_eq!(daemon.inboxd(&["events", "body", "evt_1"]).stdout, body);
    let missing = daemon.inboxd(&["events", "show", "evt_9"]);
    assert_eq!(missing.code, 4, "{missing:?}");
}

#[test]
fn status_counts_what_is_stored_and_what_waits_for_a_person() {
    let daemon = Daemon::start();
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200));
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200));
    daemon.stripe(&invoice_event("evt_2", "voided", "in_1", 4200));
    let status = daemon.inboxd(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    let numbers = ["done", "ignored", "quarantined", "pending", "reviews_open"]
        .map(|key| status[key].as_i64().unwrap());
    assert_eq!(numbers, [1, 0, 1, 0, 1]);
    assert_eq!(status["endpoints"][0]["duplicates"], 1);
    assert!(daemon.inboxd(&["status"]).stdout.contains("need a person 1"));
}

#[test]
fn query_reads_and_never_writes() {
    let daemon = Daemon::start();
    daemon.stripe(&invoice_event("evt_1", "paid", "in_1", 4200));
    let sql = "SELECT entry_key, amount FROM cash_entries";
    assert_eq!(daemon.inboxd(&["query", sql, "--csv"]).stdout, "entry_key,amount\r\npayment:in_1,4200\r\n");
    let json = daemon.inboxd(&["query", sql, "--json"]).stdout;
    assert_eq!(json, "{\"amount\":4200,\"entry_key\":\"payment:in_1\"}\n");
    assert!(daemon.inboxd(&["query", sql]).stdout.contains("payment:in_1  4200"));
    for forbidden in
        ["DELETE FROM webhook_inbox", "CREATE TABLE t (x)", "SELECT 1; DELETE FROM webhook_inbox", "BEGIN"]
    {
        let refused = daemon.inboxd(&["query", forbidden]);
        assert_ne!(refused.code, 0, "{forbidden}: {refused:?}");
    }
    assert_eq!(daemon.count("SELECT count(*) FROM webhook_inbox"), 1);
}

#[test]
fn verify_judges_as_the_daemon_does_and_explains() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("body"), r#"{"test": 2432232314}"#).unwrap();
    support::write_secret(dir.path(), "secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let judge = |body: &str, now: &str| {
        inboxd(
            dir.path(),
            &[
                "verify",
                "--provider",
                "standardwebhooks",
                "--secret-file",
                "secret",
                "--header",
                "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek",
                "--header",
                "webhook-timestamp: 1614265330",
                "--header",
                "webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
                "--body",
                body,
                "--now",
                now,
            ],
        )
    };
    // the vector of the specification's own libraries
    let good = judge("body", "1614265330");
    assert_eq!(good.code, 0, "{good:?}");
    let good: serde_json::Value = serde_json::from_str(&good.stdout).unwrap();
    assert_eq!((&good["ok"], &good["event_id"]), (&true.into(), &"msg_p5jXN8AQM9LWM0D4loKWxJek".into()));

    let late = judge("body", "1614265931");
    assert_eq!(late.code, 7);
    assert!(late.stdout.contains("timestamp_outside_tolerance") && late.stdout.contains("601"), "{late:?}");

    fs::write(dir.path().join("again"), r#"{"test":2432232314}"#).unwrap();
    let again = judge("again", "1614265330");
    assert_eq!(again.code, 7);
    assert!(again.stdout.contains("signature_mismatch") && again.stdout.contains("serialised"), "{again:?}");
}

#[test]
fn without_a_configuration_serve_and_send_agree_on_everything() {
    let dir = tempfile::tempdir().unwrap();
    // the fixed ports of the development instance may be taken on this machine: only the secrets are tried here
    let check = inboxd(dir.path(), &["check"]);
    assert_eq!(check.code, 0, "{check:?}");
    assert!(!dir.path().join("inboxd-data").exists(), "check makes nothing");
    let sent = inboxd(
        dir.path(),
        &["send", "stripe", "invoice.paid", "--to", "http://127.0.0.1:1/", "--secret-file", "no"],
    );
    assert_eq!(sent.code, 4, "{sent:?}");
}

#[test]
fn send_makes_no_secret_and_says_who_does() {
    let dir = tempfile::tempdir().unwrap();
    let sent = inboxd(dir.path(), &["send", "github", "ping"]);
    assert_eq!(sent.code, 6, "{sent:?}");
    assert!(
        sent.stderr.contains("inboxd serve") && sent.stderr.contains("GITHUB_WEBHOOK_SECRET"),
        "{sent:?}"
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn send_says_with_which_secret_it_signed_what_was_refused() {
    let daemon = reachable();
    support::write_secret(daemon.dir.path(), "stripe.secret", "whsec_another_secret");
    let sent = daemon.inboxd(&["send", "stripe", "invoice.paid"]);
    assert_eq!(sent.code, 1, "{sent:?}");
    let fingerprint = daemon.inboxd(&["check", "--json"]).stdout;
    let check: serde_json::Value = serde_json::from_str(&fingerprint).unwrap();
    let fingerprint = check["config"]["endpoint"]["billing"]["secrets"][0]["fingerprint"].as_str().unwrap();
    for words in ["file:stripe.secret", fingerprint, "same directory"] {
        assert!(sent.stderr.contains(words), "{words}: {sent:?}");
    }
}

#[test]
fn a_shifted_time_beyond_the_tolerance_is_explained_and_one_that_nobody_signs_too() {
    let daemon = reachable();
    let late = daemon.inboxd(&["send", "stripe", "invoice.paid", "--skew=-10m"]);
    assert!(late.stderr.contains("tolerance of 5m") && late.stderr.contains("10m"), "{late:?}");
    let unsigned = daemon.inboxd(&["send", "github", "ping", "--skew=-10m"]);
    assert_eq!(unsigned.code, 0, "{unsigned:?}");
    assert!(unsigned.stderr.contains("--skew changes nothing"), "{unsigned:?}");
}

#[test]
fn a_sample_is_of_the_mode_and_account_that_the_endpoint_takes() {
    let config = with_address().replace(
        "handlers = [\"billing\"]",
        "handlers = [\"billing\"]\nlivemode = true\naccount = \"acct_1\"",
    ) + "account = \"octo-org\"\n";
    let daemon = Daemon::with_config(&config);
    for (provider, event_type) in [("stripe", "invoice.paid"), ("github", "issues.opened")] {
        let sent = daemon.inboxd(&["send", provider, event_type]);
        assert_eq!(sent.code, 0, "{sent:?}");
    }
    let scopes = "SELECT group_concat(account || coalesce(livemode, '')) FROM (SELECT * FROM webhook_inbox ORDER BY id)";
    assert_eq!(daemon.text(scopes), "acct_11,octo-org");
    let object =
        "SELECT json_extract(payload, '$.data.object.livemode') FROM webhook_inbox WHERE provider = 'stripe'";
    assert_eq!(daemon.count(object), 1);
}

/// A server that gives every request the same answer.
fn answering(status: &str, body: &str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let answer =
        format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut bytes = [0; 4096];
            // the samples end in a brace; nothing after it is waited for
            while !request.ends_with(b"}") {
                let count = stream.read(&mut bytes).unwrap();
                request.extend_from_slice(&bytes[..count]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    url
}

fn send_to(url: &str, more: &[&str]) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    support::write_secret(dir.path(), "secret", support::STRIPE_SECRET);
    let args = ["send", "stripe", "invoice.paid", "--to", url, "--secret-file", "secret"];
    inboxd(dir.path(), &[&args[..], more].concat())
}

#[test]
fn only_the_refusal_of_a_signature_satisfies_bad_signature() {
    for (status, body, code) in [
        ("400 Bad Request", r#"{"error":"signature_mismatch"}"#, 0),
        ("401 Unauthorized", "", 0),
        ("403 Forbidden", "no", 0),
        ("404 Not Found", r#"{"error":"not_found"}"#, 1),
        ("500 Internal Server Error", "", 1),
        ("200 OK", "", 1),
        ("503 Service Unavailable", "", 6),
    ] {
        let sent = send_to(&answering(status, body), &["--bad-signature"]);
        assert_eq!(sent.code, code, "{status}: {sent:?}");
    }
    let daemon = reachable();
    let stale = daemon.inboxd(&["send", "stripe", "invoice.paid", "--bad-signature"]);
    assert_eq!(stale.code, 0, "{stale:?}");
}

#[test]
fn unavailable_is_not_a_refusal() {
    let sent = send_to(&answering("503 Service Unavailable", r#"{"error":"unavailable"}"#), &[]);
    assert_eq!(sent.code, 6, "{sent:?}");
    assert!(sent.stderr.contains("unavailable"), "{sent:?}");
}

#[test]
fn what_a_server_answers_cannot_move_the_cursor() {
    let sent =
        send_to(&answering("200 OK", "\u{1b}[2J\u{202e}\u{200b}ok\nsecond\u{e0041}"), &["--times", "2"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    assert!(sent.stdout.starts_with("200 ?[2J??ok?second?  invoice.paid"), "{sent:?}");
    assert!(sent.stderr.contains("2 x 200 ?[2J??ok?second?"), "{sent:?}");
}

#[test]
fn what_cannot_be_sent_at_all_is_a_usage_error_and_shows_no_password() {
    for (url, words) in [
        ("not a url", "is not a URL"),
        ("127.0.0.1:8787/x", "is not a URL"),
        ("ftp://example.com/", "must begin with http"),
        ("http://me:canary@example.com/", "***@example.com"),
    ] {
        let sent = send_to(url, &[]);
        assert_eq!(sent.code, 2, "{url}: {sent:?}");
        assert!(sent.stderr.contains(words) && !sent.stderr.contains("canary"), "{url}: {sent:?}");
    }
    let daemon = reachable();
    let sent = daemon.inboxd(&["send", "github", "ping", "--id", "a\nb"]);
    assert_eq!(sent.code, 2, "{sent:?}");
    assert!(sent.stderr.contains("X-GitHub-Delivery"), "{sent:?}");
    for types in ["", "invoice.paid,", "a,,b", "in voice"] {
        assert_eq!(daemon.inboxd(&["send", "stripe", types]).code, 2, "{types}");
    }
    let many = daemon.inboxd(&["send", "stripe", "a,b,c,d,e,f,g,h,i,j,k", "--times", "100000"]);
    assert_eq!(many.code, 2, "{many:?}");
}

#[test]
fn send_cannot_know_a_port_that_each_start_chooses() {
    let daemon = Daemon::start();
    let sent = daemon.inboxd(&["send", "stripe", "invoice.paid"]);
    assert_eq!(sent.code, 2, "{sent:?}");
    assert!(sent.stderr.contains("port 0") && sent.stderr.contains("--to"), "{sent:?}");
}

#[test]
fn a_file_that_is_missing_is_exit_4_and_one_that_never_ends_is_refused() {
    let daemon = reachable();
    let verify = ["verify", "--provider", "stripe", "--secret-file"];
    for (args, code) in [
        (vec!["send", "stripe", "a.b", "--file", "absent"], 4),
        (vec!["send", "stripe", "a.b", "--to", "http://127.0.0.1:1/", "--secret-file", "absent"], 4),
        ([&verify[..], &["absent"]].concat(), 4),
        ([&verify[..], &["stripe.secret", "--body", "absent"]].concat(), 4),
        (vec!["send", "stripe", "a.b", "--file", "/dev/zero"], 2),
        ([&verify[..], &["stripe.secret", "--body", "/dev/zero"]].concat(), 2),
        (vec!["--config", "/dev/zero", "check"], 3),
    ] {
        let ran = daemon.inboxd(&args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.stderr.contains("absent") || ran.stderr.contains("larger than"), "{args:?}: {ran:?}");
    }
}

#[test]
fn hundreds_of_copies_of_a_large_body_need_the_memory_of_one() {
    let dir = tempfile::tempdir().unwrap();
    support::write_secret(dir.path(), "secret", support::STRIPE_SECRET);
    fs::write(dir.path().join("body"), vec![b'x'; 4 << 20]).unwrap();
    let send = "ulimit -v 1000000; exec \"$0\" send stripe invoice.paid --file body --times 300 --to http://127.0.0.1:1/ --secret-file secret";
    let output = Command::new("sh")
        .args(["-c", send, env!("CARGO_BIN_EXE_inboxd")])
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_stdout_that_takes_nothing_is_a_failure() {
    let daemon = reachable();
    for args in [
        &["send", "stripe", "invoice.paid"][..],
        &["events", "list", "--json"],
        &["query", "SELECT 1", "--csv"],
        &["status"],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_inboxd"))
            .args(args)
            .current_dir(daemon.dir.path())
            .stdout(fs::File::create("/dev/full").unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert_eq!(support::ended(&mut child).code(), Some(1), "{args:?}");
    }
}

#[test]
fn what_a_sender_put_into_an_event_cannot_move_the_cursor() {
    let daemon = Daemon::start();
    daemon.stripe(&invoice_event("evt_1", "voided", "in_1", 4200));
    daemon.stripe(&invoice_event("evt_2", "paid", "in_1", 4200));
    daemon
        .sql()
        .execute("UPDATE reviews SET reason = char(27) || '[2J' || char(8206) || char(65279) || 'void'", [])
        .unwrap();
    daemon
        .sql()
        .execute("UPDATE webhook_inbox SET object_id = 'in' || char(10) || 'x' || char(1564)", [])
        .unwrap();
    let show = daemon.inboxd(&["events", "show", "evt_2"]);
    assert!(show.stdout.contains("?[2J??void") && show.stdout.contains("in?x?"), "{show:?}");
    let columns = daemon.inboxd(&["query", "SELECT 1 AS \"a\u{1b}b\""]);
    assert!(columns.stdout.starts_with("a?b"), "{columns:?}");
}

#[test]
fn a_body_is_bytes_and_has_no_json_flag() {
    let daemon = Daemon::start();
    assert_eq!(daemon.inboxd(&["events", "body", "evt_1", "--json"]).code, 2);
}

#[test]
fn a_misspelt_endpoint_is_told_of_beside_the_empty_list() {
    let daemon = Daemon::start();
    let list = daemon.inboxd(&["events", "list", "--endpoint", "biling"]);
    assert_eq!((list.code, list.stdout.as_str()), (0, ""));
    assert!(
        list.stderr.contains("no endpoint biling") && list.stderr.contains("did you mean billing?"),
        "{list:?}"
    );
    assert_eq!(daemon.inboxd(&["events", "list", "--limit", "100001"]).code, 2);
}

#[test]
fn a_list_that_does_not_show_everything_says_so() {
    let daemon = Daemon::start();
    for n in 1..=3 {
        daemon.stripe(&invoice_event(&format!("evt_{n}"), "voided", &format!("in_{n}"), 4200));
        daemon.stripe(&invoice_event(&format!("evt_p{n}"), "paid", &format!("in_{n}"), 4200));
    }
    for (verb, all, which) in [("events", 6, "latest"), ("reviews", 3, "oldest")] {
        let list = |limit: u32, json: &[&str]| {
            let limit = limit.to_string();
            daemon.inboxd(&[&[verb, "list", "--limit", limit.as_str()][..], json].concat())
        };
        assert_eq!(list(all, &[]).stderr, "");
        let cut = list(all - 1, &["--json"]);
        assert_eq!(cut.stdout.lines().count(), (all - 1) as usize);
        assert_eq!(cut.stderr, format!("only the {which} {}; a larger --limit shows more\n", all - 1));
    }
    let counted = daemon.inboxd(&["retry", "--state", "quarantined", "--limit", "2"]);
    assert!(counted.stderr.contains("there are more") && counted.stderr.contains("would retry 2 events ("));
    for verb in ["events", "reviews", "outbox"] {
        assert_eq!(daemon.inboxd(&[verb, "list", "--limit", "100001"]).code, 2, "{verb}");
        assert_eq!(daemon.inboxd(&[verb, "list", "--limit", "0"]).code, 2, "{verb}");
    }
}

#[test]
fn a_long_answer_is_cut_as_a_table_and_whole_as_csv_or_json() {
    let daemon = Daemon::start();
    let sql =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10002) SELECT i FROM n";
    let table = daemon.inboxd(&["query", sql]);
    assert_eq!(table.stdout.lines().count(), 10_001);
    assert!(table.stderr.contains("first 10000 rows") && table.stderr.contains("LIMIT"), "{}", table.stderr);
    for (flag, lines) in [("--csv", 10_003), ("--json", 10_002)] {
        let whole = daemon.inboxd(&["query", sql, flag]);
        assert_eq!((whole.stdout.lines().count(), whole.stderr.as_str()), (lines, ""), "{flag}");
    }
}

#[test]
fn no_column_is_lost_and_no_number_becomes_null() {
    let daemon = Daemon::start();
    let sql =
        "SELECT 1 AS a, 2 AS a, 3 AS a_2, 4 AS a, 5 AS b, 6 AS b, 9e999 AS up, -9e999 AS down, NULL AS none";
    let json: serde_json::Value =
        serde_json::from_str(&daemon.inboxd(&["query", sql, "--json"]).stdout).unwrap();
    let expected = serde_json::json!({
        "a": 1, "a_3": 2, "a_2": 3, "a_4": 4, "b": 5, "b_2": 6, "up": "Infinity", "down": "-Infinity", "none": null,
    });
    assert_eq!(json, expected);
}

#[test]
fn verify_sends_a_scheme_of_ones_own_to_its_endpoint() {
    let dir = tempfile::tempdir().unwrap();
    let judge =
        |provider: &str| inboxd(dir.path(), &["verify", "--provider", provider, "--secret-env", "PATH"]);
    let custom = judge("custom");
    assert_eq!(custom.code, 2);
    assert!(custom.stderr.contains("--endpoint NAME"), "{custom:?}");
    assert!(judge("strip").stderr.contains("did you mean stripe?"));
}

#[test]
fn the_demo_shows_that_every_line_holds() {
    let dir = tempfile::tempdir().unwrap();
    let demo = inboxd(dir.path(), &["demo"]);
    assert_eq!(demo.code, 0, "{demo:?}");
    assert_eq!(demo.stdout.lines().filter(|line| line.starts_with("ok ")).count(), 8, "{demo:?}");
    assert!(!demo.stdout.contains("BROKEN"), "{demo:?}");
}

#[test]
fn there_is_nothing_to_show_before_the_first_start() {
    let dir = tempfile::tempdir().unwrap();
    let status = inboxd(dir.path(), &["status"]);
    assert_eq!(status.code, 4, "{status:?}");
    assert!(status.stderr.contains("inboxd serve"), "{status:?}");
}

#[test]
fn a_verdict_is_one_line_of_json_and_on_a_terminal_a_line_for_each_field_as_well() {
    let dir = support::folder(support::CONFIG, &[("body", "{}")]);
    let verb = "verify --provider github --secret-file github.secret --body body --header 'X-Hub-Signature-256: sha256=00'";
    let line = format!(
        "{} {verb} 2>/dev/null | cat; {} {verb}",
        env!("CARGO_BIN_EXE_inboxd"),
        env!("CARGO_BIN_EXE_inboxd")
    );
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).current_dir(dir.path()).stdin(Stdio::null());
    let Ok(output) = script.output() else { return support::skipped("script is not installed") };
    let text = String::from_utf8(output.stdout).unwrap();
    let json = text.lines().filter(|line| line.starts_with("{\"ok\":false"));
    assert_eq!(json.count(), 2, "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("reason ")).count(), 1, "{text}");
}
