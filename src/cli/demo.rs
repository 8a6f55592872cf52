//! `demo`: the guarantees, shown with the real daemon and real requests in a temporary folder.
//!
//! Every line of the table at the end was observed from outside: the answers over HTTP, and the rows in the database
//! afterwards.

use std::fs::DirBuilder;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::books::ledger;
use crate::clock;
use crate::providers::Provider;
use crate::signature::{Secret, Unsigned, sign};
use crate::store::Connection;
use crate::store::inbox;
use crate::store::open;
use crate::store::reviews;
use clap::Args;

use super::send::agent;
use super::store::table;
use super::{Exit, Failure, put, say};

/// Show the guarantees with a real daemon in a temporary folder
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {}

const CONFIG: &str = r#"
data_dir = "data"
[listen]
webhooks = "127.0.0.1:0"
admin = "off"
[endpoint.billing]
provider = "stripe"
path = "/webhooks/stripe"
secrets = ["file:secret"]
handlers = ["billing"]
"#;

/// Exit 0 only when every line holds.
pub(crate) fn run() -> Result<(), Failure> {
    let mut demo = Demo::start()?;
    say("A real inboxd runs in a temporary folder; every request below is a signed HTTP delivery.\n");
    demo.simultaneous_copies()?;
    demo.paid_before_created()?;
    demo.second_event_object()?;
    demo.payment_of_a_void_invoice()?;
    demo.tampered_and_expired()?;
    demo.failing_handler()?;
    demo.kill_between_two_requests()?;
    put(&demo.table())?;
    let broken = demo.lines.iter().filter(|line| !line.holds()).count();
    if broken > 0 {
        return Err(Failure::new(Exit::Failed, format!("{broken} lines do not hold; see above")));
    }
    say(
        "\nEvery line holds. Next:  inboxd serve   and, in another terminal:  inboxd send stripe invoice.paid",
    );
    Ok(())
}

/// One line of the table.
struct Line {
    what: &'static str,
    expected: String,
    seen: String,
}

impl Line {
    fn holds(&self) -> bool {
        self.expected == self.seen
    }
}

struct Demo {
    folder: Folder,
    daemon: Daemon,
    provider: Provider,
    secret: Secret,
    lines: Vec<Line>,
}

impl Demo {
    fn start() -> Result<Self, Failure> {
        let provider = Provider::named("stripe").map_err(internal)?;
        let folder = Folder::create()?;
        let secret = format!("whsec_{}", random()?);
        folder.write("inboxd.toml", CONFIG)?;
        folder.write("secret", &secret)?;
        let daemon = Daemon::start(&folder.path)?;
        Ok(Self { folder, daemon, provider, secret: Secret::new("demo", secret), lines: Vec::new() })
    }

    fn simultaneous_copies(&mut self) -> Result<(), Failure> {
        let body = self.event("invoice.paid", "evt_copies", "copies");
        let barrier = Barrier::new(8);
        let demo = &*self;
        let answers: Vec<Result<String, Failure>> = thread::scope(|scope| {
            let senders: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        demo.deliver(&body, 0)
                    })
                })
                .collect();
            let joined = senders.into_iter().map(|sender| sender.join());
            joined.map(|answer| answer.unwrap_or_else(|_| Err(internal("a sender panicked")))).collect()
        });
        let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
        let count = |word: &str| answers.iter().filter(|answer| answer.contains(word)).count();
        let counts = format!("{} processed, {} duplicate", count("processed"), count("duplicate"));
        let seen = format!("{counts}, {}", self.books("in_copies")?);
        self.line("8 copies of one event at the same moment", "1 processed, 7 duplicate, 1 entry", seen);
        Ok(())
    }

    fn paid_before_created(&mut self) -> Result<(), Failure> {
        let paid = self.deliver(&self.event("invoice.paid", "evt_early", "early"), 0)?;
        let created = self.deliver(&self.event("invoice.created", "evt_late", "early"), 0)?;
        let seen = format!("{paid}, {created}, {}", self.books("in_early")?);
        self.line("invoice.paid before invoice.created", "200 processed, 200 processed, 1 entry", seen);
        Ok(())
    }

    fn second_event_object(&mut self) -> Result<(), Failure> {
        let first = self.deliver(&self.event("invoice.paid", "evt_one", "twice"), 0)?;
        let second = self.deliver(&self.event("invoice.payment_succeeded", "evt_two", "twice"), 0)?;
        let seen = format!("{first}, {second}, {}", self.books("in_twice")?);
        self.line("two Event objects for one payment", "200 processed, 200 processed, 1 entry", seen);
        Ok(())
    }

    fn payment_of_a_void_invoice(&mut self) -> Result<(), Failure> {
        let voided = self.deliver(&self.event("invoice.voided", "evt_void", "void"), 0)?;
        let paid = self.deliver(&self.event("invoice.paid", "evt_paid", "void"), 0)?;
        let open = reviews::open_count(&self.reader()?).map_err(broken)?;
        let seen = format!("{voided}, {paid}, {}, {open} review", self.books("in_void")?);
        let expected = "200 processed, 200 quarantined, 0 entries, 1 review";
        self.line("payment of a voided invoice", expected, seen);
        Ok(())
    }

    fn tampered_and_expired(&mut self) -> Result<(), Failure> {
        let body = self.event("invoice.paid", "evt_forged", "forged");
        let signed = self.signed(&body, 0)?;
        let tampered = post(&self.daemon.url, &signed, body.replace("in_forged", "in_changed").as_bytes())?;
        let seen = format!("{tampered}, {}", self.stored("evt_forged")?);
        self.line("a body changed after it was signed", "400 signature_mismatch, nothing stored", seen);
        let expired = self.deliver(&body, -3600)?;
        let seen = format!("{expired}, {}", self.stored("evt_forged")?);
        self.line("a signature of an hour ago", "400 timestamp_outside_tolerance, nothing stored", seen);
        Ok(())
    }

    /// A trigger makes the billing handler fail; without it the redelivery succeeds.
    fn failing_handler(&mut self) -> Result<(), Failure> {
        let body = self.event("invoice.paid", "evt_fails", "fails");
        let conn = open::open_operator(&self.database()).map_err(broken)?;
        ledger::refuse_entries(&conn, true).map_err(broken)?;
        let failed = self.deliver(&body, 0)?;
        let between = self.stored("evt_fails")?;
        ledger::refuse_entries(&conn, false).map_err(broken)?;
        let redelivered = self.deliver(&body, 0)?;
        let seen = format!("{failed}, {between}, {redelivered}, {}", self.books("in_fails")?);
        let expected = "500 handler_failed, nothing stored, 200 processed, 1 entry";
        self.line("a handler that fails once, then a redelivery", expected, seen);
        Ok(())
    }

    fn kill_between_two_requests(&mut self) -> Result<(), Failure> {
        let before = self.event("invoice.paid", "evt_before", "before");
        let first = self.deliver(&before, 0)?;
        self.daemon.kill();
        self.daemon = Daemon::start(&self.folder.path)?;
        let again = self.deliver(&before, 0)?;
        let after = self.deliver(&self.event("invoice.paid", "evt_after", "after"), 0)?;
        let (kept, new) = (self.books("in_before")?, self.books("in_after")?);
        let seen = format!("{first}, {again}, {kept}; {after}, {new}");
        let expected = "200 processed, 200 duplicate, 1 entry; 200 processed, 1 entry";
        self.line("kill -9 and a restart between two deliveries", expected, seen);
        Ok(())
    }

    fn event(&self, event_type: &str, id: &str, invoice: &str) -> String {
        self.provider.sample(event_type, id, invoice, clock::now_ms() / 1000)
    }

    fn signed(&self, body: &str, skew_s: i64) -> Result<Vec<(String, String)>, Failure> {
        let unsigned = Unsigned {
            method: "POST",
            url: &self.daemon.url,
            content_type: "application/json",
            event_id: "",
            event_type: None,
            signed_at_s: clock::now_ms() / 1000 + skew_s,
            body: body.as_bytes(),
        };
        sign(self.provider.scheme(), &self.secret, &unsigned).map_err(internal)
    }

    /// Sends a signed delivery and returns status and word of the answer.
    fn deliver(&self, body: &str, skew_s: i64) -> Result<String, Failure> {
        post(&self.daemon.url, &self.signed(body, skew_s)?, body.as_bytes())
    }

    fn database(&self) -> PathBuf {
        self.folder.path.join("data/inboxd.db")
    }

    fn reader(&self) -> Result<Connection, Failure> {
        open::open_reader(&self.database(), Duration::from_secs(5)).map_err(broken)
    }

    fn books(&self, invoice: &str) -> Result<String, Failure> {
        Ok(match ledger::payments_of(&self.reader()?, invoice).map_err(broken)? {
            1 => "1 entry".to_owned(),
            count => format!("{count} entries"),
        })
    }

    fn stored(&self, event_id: &str) -> Result<String, Failure> {
        Ok(match inbox::find(&self.reader()?, event_id, None).map_err(broken)?.len() {
            0 => "nothing stored".to_owned(),
            count => format!("{count} stored"),
        })
    }

    fn line(&mut self, what: &'static str, expected: &str, seen: String) {
        self.lines.push(Line { what, expected: expected.to_owned(), seen });
    }

    fn table(&self) -> String {
        let row = |line: &Line| {
            let (verdict, seen) = if line.holds() {
                ("ok", line.seen.clone())
            } else {
                ("BROKEN", format!("{} (expected: {})", line.seen, line.expected))
            };
            vec![verdict.to_owned(), line.what.to_owned(), seen]
        };
        table(&["", "WHAT HAPPENED", "WHAT WAS SEEN"], &self.lines.iter().map(row).collect::<Vec<_>>())
    }
}

fn post(url: &str, headers: &[(String, String)], body: &[u8]) -> Result<String, Failure> {
    let mut request = agent().post(url).content_type("application/json");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let mut response = request.send(body).map_err(broken)?;
    let status = response.status().as_u16();
    let answer: serde_json::Value =
        serde_json::from_str(&response.body_mut().read_to_string().map_err(broken)?).map_err(broken)?;
    let word = ["outcome", "error"].into_iter().find_map(|key| answer[key].as_str()).unwrap_or("(no word)");
    Ok(format!("{status} {word}"))
}

/// The daemon as a process of its own, so that it can be killed.
struct Daemon {
    process: Child,
    url: String,
}

impl Daemon {
    fn start(folder: &Path) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(broken)?;
        let mut process = Command::new(program)
            .args(["--config", "inboxd.toml", "serve"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(broken)?;
        let stderr = process.stderr.take().ok_or_else(|| internal("the daemon has no stderr"))?;
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let mut talk = Vec::new();
        let ready =
            lines.by_ref().inspect(|line| talk.push(line.clone())).find(|line| line.starts_with("ready"));
        let base = ready.and_then(|line| line.split_whitespace().nth(2).map(str::to_owned));
        let mut daemon = Self { process, url: String::new() };
        let Some(base) = base else {
            daemon.kill();
            return Err(Failure::new(
                Exit::Failed,
                format!("the daemon did not start: {}", talk.join(" / ")),
            ));
        };
        // its later output is read and dropped, or the daemon would wait for a reader
        thread::spawn(move || lines.for_each(drop));
        daemon.url = format!("{base}/webhooks/stripe");
        Ok(daemon)
    }

    fn kill(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A private folder that goes away with the demo.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn create() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("inboxd-demo-{}", random()?));
        // not recursive: an existing folder belongs to another user
        DirBuilder::new().mode(0o700).create(&path).map_err(broken)?;
        Ok(Self { path })
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(self.path.join(name));
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(broken)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.path));
    }
}

fn random() -> Result<String, Failure> {
    getrandom::u64().map(|number| format!("{number:016x}")).map_err(broken)
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::new(Exit::Failed, "the demo could not go on").because(error)
}

fn internal(reason: impl Into<String>) -> Failure {
    Failure::new(Exit::Internal, reason)
}
