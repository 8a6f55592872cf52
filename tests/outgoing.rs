//! The way out: what becomes of a request whose connection fails, and what is said of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use inboxd::internals::outgoing::{Client, NoAnswer};
use rustix::net::sockopt::set_socket_linger;
use support::app::Absent;
use support::{Daemon, github_signature};

/// How a connection of [`Fickle`] ends at its second request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// With a reset, before anything is answered.
    Reset,
    /// It is closed after the request was read.
    Closed,
    /// With a reset in the middle of the answer.
    InTheAnswer,
}

/// Answers the first request of each connection, and ends it at the second.
struct Fickle {
    url: String,
    /// Each request: the number of its connection, and its key.
    seen: Arc<Mutex<Vec<(usize, String)>>>,
}

impl Fickle {
    fn start(end: End) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hooks", listener.local_addr().unwrap());
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let all = Arc::clone(&seen);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let all = Arc::clone(&all);
                thread::spawn(move || serve(stream, number, end, &all));
            }
        });
        Self { url, seen }
    }

    fn seen(&self) -> Vec<(usize, String)> {
        self.seen.lock().unwrap().clone()
    }

    fn connections(&self) -> Vec<usize> {
        self.seen().into_iter().map(|(connection, _)| connection).collect()
    }
}

fn serve(stream: TcpStream, number: usize, end: End, all: &Mutex<Vec<(usize, String)>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    for request in 0.. {
        let key = read(&mut reader)?;
        all.lock().unwrap().push((number, key));
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        if request == 0 {
            reader.get_mut().write_all(answer).ok()?;
            continue;
        }
        if end == End::InTheAnswer {
            reader.get_mut().write_all(&answer[..10]).ok()?;
            // what is only in a buffer would be lost with the reset
            thread::sleep(Duration::from_millis(50));
        }
        if end == End::Closed {
            reader.get_mut().shutdown(Shutdown::Both).ok()?;
        } else {
            set_socket_linger(reader.get_ref(), Some(Duration::ZERO)).ok()?;
        }
        return None;
    }
    None
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let (mut key, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            if line.trim_end().is_empty() {
                break;
            }
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => key = value.to_owned(),
            "content-length" => length = value.parse().unwrap(),
            _ => {}
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    Some(key)
}

fn post(client: &Client, key: &str) -> Result<u16, NoAnswer> {
    let headers = [("Idempotency-Key".to_owned(), key.to_owned())];
    client.post(&headers, b"body", support::HANG_TIME).map(|answer| answer.status)
}

#[test]
fn a_request_on_a_kept_connection_that_ends_before_an_answer_is_made_once_more_on_a_new_one() {
    for end in [End::Reset, End::Closed] {
        let app = Fickle::start(end);
        let client = Client::new(&app.url, &[], None).unwrap();
        for key in ["a", "b", "c"] {
            assert_eq!(post(&client, key), Ok(200), "{end:?}");
        }
        let wanted = [(0, "a"), (0, "b"), (1, "b"), (2, "c")].map(|(n, key)| (n, key.to_owned()));
        assert_eq!(app.seen(), wanted, "{end:?}");
    }
}

#[test]
fn an_answer_that_had_begun_is_not_asked_for_again() {
    let app = Fickle::start(End::InTheAnswer);
    let client = Client::new(&app.url, &[], None).unwrap();
    assert_eq!(post(&client, "a"), Ok(200));
    let error = post(&client, "b").unwrap_err();
    assert_eq!(error.reason, "the connection was reset in the middle of the answer");
    assert!(!error.is_unsent);
    assert_eq!(app.connections(), [0, 0]);
}

#[test]
fn a_new_connection_that_ends_is_not_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(&format!("http://{}/", listener.local_addr().unwrap()), &[], None).unwrap();
    let app = thread::spawn(move || {
        let mut reader = BufReader::new(listener.accept().unwrap().0);
        read(&mut reader);
        listener
    });
    let error = post(&client, "a").unwrap_err();
    assert_eq!(error.reason, "the connection was closed before an answer came");
    app.join().unwrap().set_nonblocking(true).unwrap();
}

#[test]
fn neither_a_forward_nor_a_proxied_request_pays_for_a_connection_that_the_application_ended() {
    let app = Fickle::start(End::Reset);
    let config = format!(
        "{}forward = [\"app\"]\n[endpoint.proxied]\nprovider = \"github\"\nsecrets = [\"file:github.secret\"]\n\
         mode = \"proxy\"\nforward = [\"app\"]\n[destination.app]\nurl = \"{}\"\n",
        support::CONFIG,
        app.url
    );
    let daemon = Daemon::with_config(&config);
    let deliver = |path: &str, id: &str| {
        let body = format!(r#"{{"id":"{id}"}}"#);
        let lines =
            [github_signature(&body), format!("X-GitHub-Delivery: {id}"), "X-GitHub-Event: push".to_owned()];
        daemon.client().post(path, &lines.each_ref().map(String::as_str), body)
    };
    for n in 0..4 {
        let (status, answer) = deliver("/webhooks/proxied", &format!("p{n}"));
        assert_eq!((status, answer.as_str()), (200, r#"{"outcome":"processed"}"#), "{n}: {}", daemon.log());
    }
    for n in 0..4 {
        assert_eq!(deliver("/webhooks/github", &format!("f{n}")).0, 200);
        daemon.wait_for_count("SELECT count(*) FROM outbox WHERE state = 'delivered'", n + 1);
    }
    assert_eq!(daemon.count("SELECT max(attempts) FROM outbox"), 1);
    assert_eq!(daemon.count("SELECT max(attempts) FROM webhook_inbox"), 1);
    let seen = app.seen();
    assert!(seen.len() > 8, "some were asked for again: {seen:?}");
}

#[test]
fn a_failed_connection_names_every_address_that_was_tried() {
    let absent = Absent::new();
    let error = post(&Client::new(&absent.url, &[], None).unwrap(), "a").unwrap_err();
    let address = absent.url.trim_start_matches("http://").trim_end_matches("/hooks");
    assert_eq!(error.reason, format!("connection refused by {address}"));
    assert!(error.is_unsent && !error.is_timeout && !error.is_final);
    let port = address.rsplit(':').next().unwrap();
    let error =
        post(&Client::new(&format!("http://localhost:{port}/"), &[], None).unwrap(), "a").unwrap_err();
    assert!(error.reason.contains(&format!("127.0.0.1:{port}")), "{error:?}");
    if ("localhost", 1).to_socket_addrs().unwrap().any(|address| address.is_ipv6()) {
        assert!(error.reason.contains(&format!("[::1]:{port}")), "{error:?}");
    }
}

#[test]
fn what_fails_is_said_in_plain_words() {
    let error = post(&Client::new("http://no-such-host.invalid/", &[], None).unwrap(), "a").unwrap_err();
    assert!(error.reason.starts_with("the host no-such-host.invalid "), "{error:?}");
    assert!(error.is_unsent && !error.is_final);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = Client::new(&url, &[], None).unwrap();
    let error = client.post(&[], b"x", Duration::from_millis(250)).unwrap_err();
    assert_eq!(error.reason, "no answer within 0.25 s");
    assert!(error.is_timeout && !error.is_unsent);
    let secure = Client::new(&url.replace("http:", "https:"), &[], None).unwrap();
    let app = thread::spawn(move || {
        drop(listener.accept());
        listener.accept().unwrap().0.write_all(b"HTTP/1.0 400 no TLS here\r\n\r\n").unwrap();
    });
    let error = post(&secure, "a").unwrap_err();
    app.join().unwrap();
    for jargon in ["io:", "timeout:", "other:", "os error", "rustls:"] {
        assert!(!error.reason.contains(jargon), "{error:?}");
    }
    let line_break = [("X-Text".to_owned(), "a\nb".to_owned())];
    let error = client.post(&line_break, b"x", support::HANG_TIME).unwrap_err();
    assert!(error.is_final && error.reason.starts_with("the request cannot be made"), "{error:?}");
}

// ---- what `check` finds before it costs an event

/// What `check` says of a configuration with these handlers' files.
fn check(config: &str, files: &[(&str, &str)]) -> support::Ran {
    let dir = support::folder(config, files);
    support::inboxd(dir.path(), &["check"])
}

#[test]
fn a_destination_that_is_written_out_in_sql_and_not_configured_is_an_error_with_file_and_line() {
    let config = support::CONFIG.replace("\"billing\"", "\"sql:shop\"");
    let sql = "-- a first line\nSELECT inboxd_emit('app', 'T', :id, '{}') WHERE :type = 'x';\n";
    let ran = check(&config, &[("shop/a.sql", sql)]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let wanted = "shop/a.sql:2:20: inboxd_emit: there is no destination \"app\"; none is configured; \
                  add [destination.app] with its url to the configuration";
    assert!(ran.stderr.contains(wanted), "{ran:?}");
    let other = format!("{config}[destination.shop]\nurl = \"http://127.0.0.1:1/\"\nsign = \"none\"\n");
    let ran = check(&other, &[("shop/a.sql", sql)]);
    assert!(ran.stderr.contains("there is no destination \"app\"; known: shop; add"), "{ran:?}");
    let ran = check(&other.replace("destination.shop", "destination.app"), &[("shop/a.sql", sql)]);
    assert_eq!(ran.code, 0, "{ran:?}");
    // what is not written out is known only when an event comes
    let computed = sql.replace("'app'", ":object ->> 'to'");
    assert_eq!(check(&other, &[("shop/a.sql", &computed)]).code, 0);
}

#[test]
fn what_sql_sends_from_a_provider_with_a_private_key_cannot_be_signed_as_it_signs() {
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let config = support::CONFIG.to_owned()
        + "[endpoint.d]\nprovider = \"discord\"\nsecrets = [\"file:key\"]\nhandlers = [\"sql:shop\"]\n\
           [destination.app]\nurl = \"http://127.0.0.1:1/\"\n";
    let files = [("key", key), ("shop/a.sql", "SELECT inboxd_emit('app', 'T', :id, '{}')")];
    let dir = support::folder(&config, &files);
    support::write_secret(dir.path(), "key", key);
    let checked = |config: &str| {
        std::fs::write(dir.path().join("inboxd.toml"), config).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(dir.path().join("key"), mode).unwrap();
        support::inboxd(dir.path(), &["check"])
    };
    let ran = checked(&config);
    assert!(
        ran.code == 3 && ran.stderr.contains("destination.app.sign: \"provider\": the SQL of endpoint d"),
        "{ran:?}"
    );
    assert_eq!(checked(&format!("{config}sign = \"none\"\n")).code, 0);
}

#[test]
fn a_name_of_a_private_network_is_told_before_it_is_blocked() {
    let config = |url: &str, more: &str| {
        format!("{}forward = [\"app\"]\n[destination.app]\nurl = \"{url}\"\n{more}", support::CONFIG)
    };
    for host in ["app", "app.internal", "nas.lan", "shop.default.svc.cluster.local", "Pi.HOME.arpa"] {
        let ran = check(&config(&format!("http://{host}:3000/hooks"), ""), &[]);
        assert!(ran.code == 0 && ran.stdout.contains("is a name of a private network"), "{host}: {ran:?}");
        let ran =
            check(&config(&format!("http://{host}:3000/"), "allow_networks = [\"172.16.0.0/12\"]"), &[]);
        assert!(!ran.stdout.contains("private network"), "{host}: {ran:?}");
    }
    for host in ["localhost", "127.0.0.1", "[::1]", "10.0.0.1", "app.example.com"] {
        let ran = check(&config(&format!("http://{host}:3000/hooks"), ""), &[]);
        assert!(ran.code == 0 && !ran.stdout.contains("private network"), "{host}: {ran:?}");
    }
    let alert = format!("{}[alert]\nurl = \"http://ntfy/topic\"\n", support::CONFIG);
    assert!(check(&alert, &[]).stdout.contains("alert.url: \"ntfy\" is a name of a private network"));
}

#[test]
fn send_says_in_plain_words_why_there_is_no_answer() {
    let absent = Absent::new();
    let dir = support::folder(support::CONFIG, &[]);
    let ran = support::inboxd(
        dir.path(),
        &["send", "stripe", "invoice.paid", "--to", &absent.url, "--secret-file", "stripe.secret"],
    );
    let address = absent.url.trim_start_matches("http://").trim_end_matches("/hooks");
    assert!(ran.stderr.contains(&format!("connection refused by {address}")), "{ran:?}");
    assert!(!ran.stderr.contains("io:") && !ran.stderr.contains("os error"), "{ran:?}");
}

#[test]
fn of_every_provider_it_is_said_how_its_events_are_handed_on() {
    let dir = tempfile::tempdir().unwrap();
    let handed_on = |provider: &str| {
        let ran = support::inboxd(dir.path(), &["providers", "show", provider, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        json["handed_on"].as_str().unwrap().to_owned()
    };
    assert_eq!(handed_on("stripe"), "signed anew");
    assert_eq!(handed_on("line"), "each event by itself, inside the delivery's envelope; signed anew");
    assert!(handed_on("discord").contains("impossible"));
    for provider in ["linear", "mailgun"] {
        assert!(handed_on(provider).contains("inside the body; use standard"), "{provider}");
    }
    assert!(handed_on("twilio").contains("bodySHA256"));
}
