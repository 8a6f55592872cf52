//! The pages of the private listener from outside: who gets in, what they see, what they do, and what stays text.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::fmt::Write as _;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use support::{CONFIG, Client, Daemon, github_signature, invoice_event};

/// Adds a handler that quarantines some, a destination where nobody listens, and two tokens.
const MORE: &str = r#"
handlers = ["sql:pushes"]
forward = ["app"]
[destination.app]
url = "http://127.0.0.1:9"
sign = "none"
"#;

const PUSHES: [(&str, &str); 1] =
    [("pushes/push.sql", "SELECT inboxd_quarantine('nobody knows this branch') WHERE :id LIKE 'q%'")];

const PAGES: [&str; 12] = [
    "/",
    "/events",
    "/events?state=pending",
    "/events?state=quarantined",
    "/events?state=failing",
    "/reviews",
    "/outbox",
    "/refused",
    "/books",
    "/jobs",
    "/audit",
    "/system",
];

fn config() -> String {
    let mut config = format!("{CONFIG}{MORE}");
    for (name, role) in [("ops", "operator"), ("eye", "viewer")] {
        let sha256: String = Sha256::digest(token(name)).iter().map(|byte| format!("{byte:02x}")).collect();
        write!(config, "[[admin.token]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{sha256}\"\n")
            .unwrap();
    }
    config
}

fn token(name: &str) -> String {
    format!("a token of the tests that nobody would guess: {name}")
}

fn daemon() -> Daemon {
    Daemon::with_files(&config(), &PUSHES)
}

fn push(daemon: &Daemon, id: &str, more: &str) {
    let body = format!(r#"{{"ref":"refs/heads/{id}","more":{more}}}"#);
    let headers =
        [github_signature(&body), format!("X-GitHub-Delivery: {id}"), "X-GitHub-Event: push".to_owned()];
    let (status, _) = daemon.client().post("/webhooks/github", &headers.each_ref().map(String::as_str), body);
    assert_eq!(status, 200);
}

/// An answer.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    fn csrf(&self) -> String {
        let rest = self.body.split("name=\"csrf\" value=\"").nth(1).expect("a form");
        rest.split('"').next().unwrap().to_owned()
    }
}

/// One request over its own connection, with exactly these headers.
fn ask(
    mut stream: impl std::io::Read + std::io::Write,
    method: &str,
    path: &str,
    headers: &[String],
    body: &str,
) -> Answer {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    for header in headers {
        write!(text, "{header}\r\n").unwrap();
    }
    write!(text, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// A browser at the private listener.
struct Browser {
    address: String,
    headers: Vec<String>,
}

impl Browser {
    fn new(daemon: &Daemon) -> Self {
        let address = daemon.admin.clone();
        Self { headers: vec![format!("Host: {address}")], address }
    }

    /// With a link of the command line.
    fn logged_in(daemon: &Daemon) -> Self {
        let mut browser = Self::new(daemon);
        let answer = browser.get(&link(daemon));
        assert_eq!(answer.status, 303, "{answer:?}");
        let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap();
        browser.headers.push(format!("Cookie: {cookie}"));
        browser
    }

    fn with_token(daemon: &Daemon, name: &str) -> Self {
        let mut browser = Self::new(daemon);
        browser.headers.push(format!("Authorization: Bearer {}", token(name)));
        browser
    }

    fn get(&self, path: &str) -> Answer {
        ask(TcpStream::connect(&self.address).unwrap(), "GET", path, &self.headers, "")
    }

    /// A form of one of the pages.
    fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let csrf = if self.headers.iter().any(|header| header.starts_with("Cookie")) {
            self.get("/").csrf()
        } else {
            String::new()
        };
        self.post_from(path, fields, &csrf, &[format!("Origin: http://{}", self.address)])
    }

    fn post_from(&self, path: &str, fields: &[(&str, &str)], csrf: &str, more: &[String]) -> Answer {
        let headers =
            [&self.headers[..], &["Content-Type: application/x-www-form-urlencoded".to_owned()], more]
                .concat();
        let mut body = format!("csrf={csrf}");
        for (name, value) in fields {
            write!(body, "&{name}={}", encoded(value)).unwrap();
        }
        ask(TcpStream::connect(&self.address).unwrap(), "POST", path, &headers, &body)
    }
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            },
        )
        .collect()
}

/// The path of a new link.
fn link(daemon: &Daemon) -> String {
    let ran = daemon.inboxd(&["admin", "link"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let url = ran.stdout.lines().last().unwrap().to_owned();
    let path = url.strip_prefix(&format!("http://{}", daemon.admin)).unwrap_or_else(|| panic!("{url}"));
    assert!(path.starts_with("/login?token="), "{path}");
    path.to_owned()
}

/// The names of a page's tags, sorted: what happened in one millisecond has no order.
fn structure(page: &str) -> Vec<String> {
    let mut tags = Vec::new();
    for part in page.split('<').skip(1) {
        let end = part.find(|c: char| c.is_whitespace() || c == '>').unwrap_or(part.len());
        // bars stand for counts and times, which differ from run to run
        if !matches!(&part[..end], "rect" | "/rect") {
            tags.push(part[..end].to_owned());
        }
    }
    tags.sort_unstable();
    tags
}

#[test]
fn nothing_is_shown_without_a_session_but_the_login_and_the_metrics() {
    let daemon = daemon();
    push(&daemon, "d1", "1");
    let browser = Browser::new(&daemon);
    for path in PAGES.into_iter().chain(["/events/github/d1", "/events/github/d1/body", "/nowhere"]) {
        let answer = browser.get(path);
        assert_eq!(answer.status, 401, "{path}");
        assert!(
            !answer.body.contains("github") && answer.body.contains("inboxd admin link"),
            "{path} {answer:?}"
        );
    }
    let answer = browser.post("/act/retry", &[("endpoint", "github"), ("event_id", "d1")]);
    assert_eq!(answer.status, 401, "{answer:?}");
    assert_eq!(browser.get("/metrics").status, 200);
    // and nothing of it is on the public listener
    let mut public = Client::connect(&daemon.webhooks);
    for path in ["/login", "/metrics", "/events", "/style.css"] {
        assert_eq!(public.get(path).0, 404, "{path}");
    }
}

#[test]
fn a_link_opens_the_page_once_and_its_cookie_is_for_this_site_alone() {
    let daemon = daemon();
    let path = link(&daemon);
    let browser = Browser::new(&daemon);
    let answer = browser.get(&path);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict"), "{cookie}");
    let again = browser.get(&path);
    assert_eq!((again.status, again.header("set-cookie")), (401, None), "{again:?}");
    let browser = Browser::logged_in(&daemon);
    assert_eq!(browser.get("/").status, 200);
    assert_eq!(browser.post("/logout", &[]).status, 200);
    assert_eq!(browser.get("/").status, 401);
}

#[test]
fn a_wrong_token_is_refused_and_guesses_are_slowed_until_somebody_makes_a_link() {
    let daemon = daemon();
    let browser = Browser::new(&daemon);
    let guesses: Vec<u16> =
        (0..8).map(|guess| browser.get(&format!("/login?token={guess}")).status).collect();
    assert_eq!(guesses, [401, 401, 401, 401, 401, 401, 429, 429]);
    let answer = Browser::with_token(&daemon, "ops").get("/");
    assert_eq!(answer.status, 429, "a right one waits as well, so that a guess learns nothing");
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    assert_eq!(Browser::logged_in(&daemon).get("/").status, 200);
}

#[test]
fn a_foreign_host_name_is_refused_and_an_address_or_localhost_is_not() {
    let daemon = daemon();
    let port = daemon.admin.rsplit(':').next().unwrap();
    let with_host = |host: &str| {
        let mut browser = Browser::with_token(&daemon, "ops");
        browser.headers[0] = format!("Host: {host}");
        [browser.get("/").status, browser.get("/metrics").status]
    };
    for host in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1.evil.example"] {
        assert_eq!(with_host(host), [403, 403], "{host}");
    }
    for host in [&daemon.admin, "localhost", &format!("localhost:{port}"), "[::1]:1"] {
        assert_eq!(with_host(host), [200, 200], "{host}");
    }
}

#[test]
fn every_page_is_whole_with_an_empty_store_and_with_a_filled_one() {
    let daemon = daemon();
    let browser = Browser::logged_in(&daemon);
    let look = |more: &[&str]| {
        for path in PAGES.iter().chain(more) {
            let answer = browser.get(path);
            assert_eq!(answer.status, 200, "{path} {answer:?}");
            assert_eq!(answer.body.matches("<h1").count(), 1, "{path}");
            assert!(answer.body.ends_with("</html>"), "{path}");
            let policy = answer.header("content-security-policy").unwrap();
            assert_eq!(
                policy,
                "default-src 'none'; style-src 'self'; script-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
                "{path}"
            );
            assert_eq!(answer.header("referrer-policy"), Some("same-origin"), "{path}");
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
            let foreign = ["style=\"", "<script>", " onclick", " onload", "javascript:"];
            assert!(!foreign.iter().any(|word| answer.body.contains(word)), "{path}");
        }
    };
    look(&[]);
    daemon.stripe(&invoice_event("evt_void", "voided", "in_1", 100));
    daemon.stripe(&invoice_event("evt_paid", "paid", "in_1", 100));
    daemon.stripe(&invoice_event("evt_ok", "paid", "in_2", 100));
    push(&daemon, "q1", "1");
    push(&daemon, "d1", "12345678901234567890.10");
    let (status, _) = daemon.client().post(
        "/webhooks/stripe",
        &[&support::stripe_signature("{}", 1, support::STRIPE_SECRET)],
        "{}",
    );
    assert_eq!(status, 400);
    daemon.wait_for_count("SELECT count(*) FROM outbox WHERE attempts > 0", 2);
    look(&[
        "/events/github/d1",
        "/events/billing/evt_paid",
        "/outbox/1",
        "/reviews?review=1",
        "/events?id=d1",
        "/outbox?destination=app&state=pending",
        "/confirm?act=retry-events&state=quarantined",
        "/confirm?act=resolve-reviews",
        "/books?about=in_2",
    ]);
    let event = browser.get("/events/github/d1").body;
    assert!(event.contains("12345678901234567890.10"), "a number keeps its digits");
    assert!(browser.get("/refused").body.contains("timestamp_outside_tolerance"));
    assert!(browser.get("/books").body.contains("payment:in_2"));
    let now = browser.get("/").body;
    assert!(!now.contains("All is well") && now.contains("2 reviews wait for a decision"), "{now}");
    for path in
        ["/events/github/none", "/events/none/d1", "/outbox/77", "/jobs/77", "/nowhere", "/reviews?review=77"]
    {
        assert_eq!(browser.get(path).status, 404, "{path}");
    }
}

#[test]
fn the_exact_body_is_a_download_that_no_browser_opens() {
    let daemon = daemon();
    push(&daemon, "d1", "\"<script>alert(1)</script>\"");
    let answer = Browser::logged_in(&daemon).get("/events/github/d1/body");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    assert!(answer.header("content-disposition").unwrap().starts_with("attachment"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.body, r#"{"ref":"refs/heads/d1","more":"<script>alert(1)</script>"}"#);
}

/// What strangers may write where: each of these stands for a way out of a place in a page.
const HOSTILE: [&str; 8] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'-alert(1)-'",
    "</pre></main><h1>",
    "<!--",
    "]]>&lt;&#60;",
    "javascript:alert(1)",
    "${7*7}{{7*7}}",
];

#[test]
fn what_strangers_wrote_is_text_on_every_page() {
    let pages = |canary: &str| {
        let daemon = daemon();
        // nothing is tried meanwhile, so that the pages differ in the canary alone
        let pause = daemon.inboxd(&["outbox", "pause", "app"]);
        assert_eq!(pause.code, 0, "{pause:?}");
        let json = serde_json::json!(canary).to_string();
        let stripe = format!(
            r#"{{"id":{json},"object":"event","created":1,"livemode":false,"type":{json},"account":{json},"api_version":{json},"data":{{"object":{{"id":{json},"object":"invoice"}}}}}}"#
        );
        assert_eq!(daemon.stripe(&stripe).0, 200);
        push(&daemon, "q1", &json);
        push(&daemon, "d1", &json);
        daemon.wait_for_count("SELECT count(*) FROM reviews WHERE event_id = 'q1'", 1);
        daemon
            .wait_for_count("SELECT count(*) FROM webhook_inbox WHERE state IN ('pending', 'processing')", 0);
        daemon.sql().execute("INSERT INTO outbox_attempts (outbox_id, number, started_at_ms, result, status, excerpt, error) SELECT id, 1, 1, 'failed', 500, ?1, ?1 FROM outbox", [canary]).unwrap();
        daemon.sql().execute("UPDATE reviews SET reason = ?1", [canary]).unwrap();
        daemon.sql().execute("UPDATE outbox SET last_error = ?1, response_excerpt = ?1", [canary]).unwrap();
        daemon
            .sql()
            .execute("UPDATE webhook_inbox SET last_error = ?1, headers = ?2", [canary, &json])
            .unwrap();
        daemon.sql().execute("UPDATE outbox_destinations SET paused_because = ?1", [canary]).unwrap();
        daemon.sql().execute("UPDATE inboxd_audit SET note = ?1, actor = ?1", [canary]).unwrap();
        let path = format!("/webhooks/{}", encoded(canary));
        assert_eq!(Client::connect(&daemon.webhooks).get(&path).0, 404);
        let browser = Browser::logged_in(&daemon);
        let id = encoded(canary);
        let more = [
            format!("/events/billing/{id}"),
            "/events/github/q1".to_owned(),
            "/outbox/1".to_owned(),
            "/reviews?review=1".to_owned(),
            format!("/events?error={id}&type={id}&state={id}&endpoint={id}&object={id}&since={id}"),
            format!("/confirm?act=resolve-reviews&reason={id}"),
            format!("/refused?endpoint={id}&reason={id}"),
            format!("/{id}"),
        ];
        let all = PAGES.iter().map(|path| (*path).to_owned()).chain(more);
        let of = |path: String| {
            let body = browser.get(&path).body;
            (path, structure(&body), body)
        };
        all.map(of).collect::<Vec<_>>()
    };
    let harmless = pages("harmless");
    for canary in HOSTILE {
        for ((path, wanted, _), (_, found, body)) in harmless.iter().zip(pages(canary)) {
            assert_eq!(*wanted, found, "{canary} on {path}: {body}");
            assert!(!canary.contains('<') || !body.contains(canary), "{canary} on {path}");
        }
    }
}

#[test]
fn a_form_that_did_not_come_from_a_page_of_this_session_changes_nothing() {
    let daemon = daemon();
    push(&daemon, "q1", "1");
    daemon.wait_for_count("SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL", 1);
    let browser = Browser::logged_in(&daemon);
    let (csrf, other) = (browser.get("/").csrf(), Browser::logged_in(&daemon).get("/").csrf());
    let fields = [("review", "1"), ("note", "x")];
    let own = format!("Origin: http://{}", daemon.admin);
    let site = |value: &str| format!("Sec-Fetch-Site: {value}");
    for (csrf, more) in [
        (csrf.as_str(), vec![]),
        (&csrf, vec!["Origin: http://127.0.0.1:1".to_owned()]),
        (&csrf, vec!["Origin: null".to_owned()]),
        (&csrf, vec![site("cross-site"), own.clone()]),
        (&csrf, vec![site("same-site"), own.clone()]),
        ("", vec![own.clone()]),
        (&other, vec![own.clone()]),
    ] {
        let answer = browser.post_from("/act/resolve", &fields, csrf, &more);
        assert_eq!(answer.status, 403, "{more:?} {answer:?}");
    }
    assert_eq!(browser.get("/act/resolve?review=1&note=x").status, 404, "an act is no GET");
    assert_eq!(daemon.count("SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL"), 1);
    let answer = browser.post_from("/act/resolve", &fields, &csrf, &[site("same-origin")]);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(daemon.count("SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL"), 0);
}

#[test]
fn a_viewer_sees_everything_and_changes_nothing() {
    let daemon = daemon();
    push(&daemon, "q1", "1");
    daemon.wait_for_count("SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL", 1);
    let (viewer, operator) = (Browser::with_token(&daemon, "eye"), Browser::with_token(&daemon, "ops"));
    for path in PAGES {
        let answer = viewer.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.body.contains("action=\"/act/"), "{path} has no act for a viewer");
    }
    assert_eq!(viewer.post("/act/resolve", &[("review", "1"), ("note", "x")]).status, 403);
    assert_eq!(viewer.get("/confirm?act=resolve-reviews").status, 403);
    assert_eq!(
        operator.post("/act/resolve", &[("review", "1"), ("note", "")]).status,
        400,
        "a note is needed"
    );
    let answer = operator.post("/act/resolve", &[("review", "1"), ("note", "asked the team")]);
    assert!(answer.status == 200 && answer.body.contains("review 1 is closed"), "{answer:?}");
    assert_eq!(
        daemon.text("SELECT actor || ' ' || act || ' ' || note FROM inboxd_audit"),
        "token:ops resolve asked the team"
    );
}

#[test]
fn each_act_does_what_its_verb_does_and_leaves_its_row() {
    let daemon = daemon();
    push(&daemon, "q1", "1");
    push(&daemon, "d1", "1");
    daemon.wait_for_count("SELECT count(*) FROM webhook_inbox WHERE state = 'quarantined'", 1);
    let browser = Browser::logged_in(&daemon);
    let row = daemon.count("SELECT id FROM outbox WHERE event_id = 'd1'").to_string();
    type Act<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
    let acts: [Act<'_>; 4] = [
        ("/act/pause", &[("destination", "app"), ("note", "maintenance")], "is paused"),
        ("/act/retry", &[("endpoint", "github"), ("event_id", "q1"), ("note", "again")], "is tried again"),
        ("/act/outbox-retry", &[("row", &row)], "waits: its destination is paused"),
        ("/act/resume", &[("destination", "app")], "is sent to again"),
    ];
    for (path, fields, said) in acts {
        let answer = browser.post(path, fields);
        assert!(answer.status == 200 && answer.body.contains(said), "{path} {answer:?}");
    }
    let trail =
        "SELECT group_concat(act || ' ' || filter, '; ') FROM (SELECT * FROM inboxd_audit ORDER BY id)";
    let wanted = format!(
        r#"outbox pause {{"destination":"app"}}; retry {{"endpoint":"github","event_id":"q1"}}; outbox retry {{"row":{row}}}; outbox resume {{"destination":"app"}}"#
    );
    assert_eq!(daemon.text(trail), wanted);
    assert!(daemon.text("SELECT actor FROM inboxd_audit WHERE id = 1").starts_with("link:"));
    assert_eq!(daemon.text("SELECT note FROM inboxd_audit WHERE id = 1"), "maintenance");
    for (path, fields) in [
        ("/act/retry", &[("endpoint", "github"), ("event_id", "none")][..]),
        ("/act/pause", &[("destination", "none")]),
        ("/act/outbox-retry", &[("row", "77")]),
        ("/act/nothing", &[]),
    ] {
        assert_eq!(browser.post(path, fields).status, 404, "{path}");
    }
    assert_eq!(daemon.count("SELECT count(*) FROM inboxd_audit"), 4);
}

#[test]
fn an_act_over_all_that_matches_is_confirmed_runs_as_a_job_and_is_one_row() {
    let daemon = daemon();
    for number in 0..130 {
        push(&daemon, &format!("q{number}"), "1");
    }
    daemon.wait_for_count("SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL", 130);
    let browser = Browser::logged_in(&daemon);
    let list = browser.get("/events?state=quarantined&endpoint=github");
    assert!(
        list.body.contains("act=retry-events") && list.body.contains("50 of 130 events"),
        "{}",
        list.body
    );
    let confirm = browser.get("/confirm?state=quarantined&endpoint=github&act=retry-events");
    assert!(confirm.status == 200 && confirm.body.contains("<b>130</b>"), "{}", confirm.body);
    let until_ms =
        confirm.body.split("name=\"until_ms\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let fields =
        [("act", "retry-events"), ("state", "quarantined"), ("endpoint", "github"), ("until_ms", until_ms)];
    assert_eq!(browser.post("/act/bulk", &fields).status, 400, "a note is needed");
    let begun = browser.post("/act/bulk", &[&fields[..], &[("note", "branches are known now")]].concat());
    assert_eq!((begun.status, begun.header("location")), (303, Some("/jobs/1")), "{begun:?}");
    daemon.wait_for("the job is done", || browser.get("/jobs/1").body.contains("state good"));
    let job = browser.get("/jobs/1").body;
    assert!(job.contains("130 of 130") && job.contains("130 rows: each is tried again"), "{job}");
    assert_eq!(
        daemon.text("SELECT act || ' ' || count || ' ' || note FROM inboxd_audit"),
        "retry 130 branches are known now"
    );
    // they are quarantined again, and their reviews with them
    daemon.wait_for_count("SELECT count(*) FROM webhook_inbox WHERE state = 'quarantined'", 130);
    let reviews = browser.get("/reviews").body;
    assert!(reviews.contains("Resolve all"), "{reviews}");
    let begun = browser
        .post("/act/bulk", &[("act", "resolve-reviews"), ("kind", "quarantined"), ("note", "not ours")]);
    assert_eq!(begun.status, 303, "{begun:?}");
    daemon.wait_for_count("SELECT count(*) FROM reviews WHERE note = 'not ours'", 130);
    daemon.wait_for("the job is done", || browser.get("/jobs/2").body.contains("state good"));
    assert_eq!(daemon.count("SELECT count FROM inboxd_audit WHERE act = 'resolve'"), 130);
}

#[test]
fn behind_a_unix_socket_the_system_says_who_it_is() {
    let config = config().replace("admin = \"127.0.0.1:0\"", "admin = \"unix:admin.sock\"");
    let daemon = Daemon::in_dir(Arc::new(support::folder(&config, &PUSHES)));
    push(&daemon, "q1", "1");
    daemon.wait_for_count("SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL", 1);
    let connect = || UnixStream::connect(daemon.dir.path().join("admin.sock")).unwrap();
    let host = "Host: localhost:8788".to_owned();
    let page = ask(connect(), "GET", "/reviews", std::slice::from_ref(&host), "");
    assert_eq!(page.status, 200, "{page:?}");
    let fields = "review=1&note=seen";
    let form = |csrf: &str, more: &str| {
        ask(
            connect(),
            "POST",
            "/act/resolve",
            &[host.clone(), more.to_owned()],
            &format!("csrf={csrf}&{fields}"),
        )
    };
    assert_eq!(form("", "Origin: http://localhost:8788").status, 403, "a browser may be behind it");
    assert_eq!(
        form(
            &ask(connect(), "GET", "/reviews?review=1", std::slice::from_ref(&host), "").csrf(),
            "Origin: http://localhost:8788"
        )
        .status,
        200
    );
    assert!(daemon.text("SELECT actor FROM inboxd_audit").starts_with("socket:"));
    let ran = daemon.inboxd(&["admin", "link"]);
    assert!(ran.code == 0 && ran.stderr.contains("ssh -L"), "{ran:?}");
}

#[test]
fn the_metrics_have_every_name_of_the_contract_and_nothing_personal() {
    let daemon = daemon();
    daemon.stripe(&invoice_event("evt_secret_id", "paid", "in_secret", 100));
    push(&daemon, "q1", "1");
    daemon.wait_for_count("SELECT count(*) FROM outbox WHERE attempts > 0", 1);
    daemon.wait_for_count("SELECT count(*) FROM webhook_inbox WHERE state = 'quarantined'", 1);
    let answer = Browser::new(&daemon).get("/metrics");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for name in [
        "inboxd_deliveries_total{endpoint=\"billing\",outcome=\"processed\"} 1",
        "inboxd_deliveries_total{endpoint=\"github\",outcome=\"accepted\"} 1",
        "# TYPE inboxd_refused_total counter",
        "inboxd_handler_seconds_bucket{le=\"+Inf\"}",
        "inboxd_commit_seconds_count",
        "inboxd_batch_events_sum",
        "inboxd_oldest_unprocessed_seconds ",
        "inboxd_inbox_waiting{endpoint=\"github\",state=\"quarantined\"} 1",
        "inboxd_reviews_open{kind=\"quarantined\"} 1",
        "inboxd_handler_failing{endpoint=\"billing\"} 0",
        "inboxd_outbox_rows{destination=\"app\",state=\"pending\"}",
        "inboxd_outbox_oldest_seconds{destination=\"app\"}",
        "inboxd_outbox_attempts_total{destination=\"app\",result=\"no_answer\"}",
        "inboxd_circuit_open{destination=\"app\"}",
        "inboxd_last_event_timestamp_seconds{endpoint=\"billing\"}",
        "inboxd_wal_bytes ",
        "inboxd_disk_free_bytes ",
        "inboxd_connections{listener=\"admin\"} 1",
        "inboxd_log_lines_dropped_total 0",
        "# TYPE inboxd_backup_age_seconds gauge",
        "# TYPE inboxd_reconcile_missing gauge",
        "inboxd_build_info{version=\"",
    ] {
        assert!(answer.body.contains(name), "{name} is missing in {}", answer.body);
    }
    for personal in ["evt_secret_id", "in_secret", "cus_1", "q1\""] {
        assert!(!answer.body.contains(personal), "{personal}");
    }
    for line in answer.body.lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn what_was_counted_is_in_the_database_after_a_stop_and_in_the_chart_after_the_next_start() {
    let daemon = daemon();
    for number in 0..7 {
        push(&daemon, &format!("d{number}"), "1");
    }
    let dir = Arc::clone(&daemon.dir);
    assert_eq!(daemon.stop(), Some(0));
    let daemon = Daemon::in_dir(dir);
    let counted = "SELECT sum(count) FROM inboxd_minutes WHERE endpoint = 'github' AND outcome = 'accepted'";
    assert_eq!(daemon.count(counted), 7);
    let now = Browser::logged_in(&daemon).get("/").body;
    assert!(now.contains("github: 7 deliveries"), "{now}");
}
