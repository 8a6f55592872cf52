//! What the tests from outside share: the real binary, a plain HTTP client, a signer written by hand,
//! and a look into the database.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

pub mod app;
pub mod noise;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use inboxd::internals::providers::Provider;
use inboxd::internals::signature::{Delivery, Headers};
use inboxd::internals::verify::{Verified, VerifiedEvent, Verifier};
use rusqlite::Connection;
use sha2::Sha256;
use tempfile::TempDir;

pub mod truth;

pub const STRIPE_SECRET: &str = "whsec_a_secret_of_the_tests";
pub const GITHUB_SECRET: &str = "a secret of the github tests";

/// A configuration with one Stripe endpoint that bills and one GitHub endpoint that only stores.
pub const CONFIG: &str = r#"
data_dir = "data"
[listen]
webhooks = "127.0.0.1:0"
admin = "127.0.0.1:0"
[limits]
disk_free_min = 0
[endpoint.billing]
provider = "stripe"
path = "/webhooks/stripe"
secrets = ["file:stripe.secret"]
handlers = ["billing"]
[endpoint.github]
provider = "github"
secrets = ["file:github.secret"]
"#;

/// Whether two texts spell one signature: hex has no case, and blanks around it are not part of it.
pub fn same_signature(provider: &Provider, one: &str, other: &str) -> bool {
    let is_hex = provider.preset().recipe.encoding == "hex";
    is_hex && one.eq_ignore_ascii_case(other)
}

/// The real binary at work in a folder of its own.
pub struct Daemon {
    pub dir: Arc<TempDir>,
    child: Child,
    pub webhooks: String,
    pub admin: String,
    log: Arc<Mutex<String>>,
}

impl Daemon {
    /// With [`CONFIG`].
    pub fn start() -> Self {
        Self::with_config(CONFIG)
    }

    pub fn with_config(config: &str) -> Self {
        Self::with_files(config, &[])
    }

    /// With further files beside the configuration.
    pub fn with_files(config: &str, files: &[(&str, &str)]) -> Self {
        Self::in_dir(Arc::new(folder(config, files)))
    }

    /// A folder with a configuration and its secrets.
    pub fn folder(config: &str) -> TempDir {
        folder(config, &[])
    }

    /// Starts (again) on what the folder holds, and waits until it is ready.
    pub fn in_dir(dir: Arc<TempDir>) -> Self {
        let command = Command::new(env!("CARGO_BIN_EXE_inboxd"));
        Self::spawn(dir, command)
    }

    /// As [`Daemon::in_dir`], through a prepared command (`sh -c "ulimit …; exec …"`).
    pub fn spawn(dir: Arc<TempDir>, mut command: Command) -> Self {
        command.stdin(Stdio::null());
        Self::spawn_with_stdin(dir, command)
    }

    /// As [`Daemon::spawn`], with the standard input that the command has.
    pub fn spawn_with_stdin(dir: Arc<TempDir>, command: Command) -> Self {
        Self::try_spawn(dir, command).unwrap_or_else(|(_, log)| panic!("the daemon did not get ready: {log}"))
    }

    /// As [`Daemon::spawn_with_stdin`]; how it ended, and what it said, where it did before it was ready.
    pub fn try_spawn(dir: Arc<TempDir>, mut command: Command) -> Result<Self, (ExitStatus, String)> {
        let mut child = command
            .args(["--config", "inboxd.toml", "serve"])
            .current_dir(dir.path())
            .env("RUST_LOG", "info")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(command);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let ready = within_limit(child.id(), || {
            lines
                .by_ref()
                .map_while(Result::ok)
                .inspect(|line| log.lock().unwrap().push_str(&format!("{line}\n")))
                .find(|line| line.starts_with("ready"))
        });
        let ready = ready.unwrap_or_else(|| {
            panic!("the daemon was not ready after {HANG_TIME:?}: {}", log.lock().unwrap())
        });
        let Some(ready) = ready else {
            let log = log.lock().unwrap().clone();
            return Err((ended(&mut child), log));
        };
        let address = |name: &str| {
            let rest = ready.split(&format!("{name} http://")).nth(1).unwrap_or_default();
            rest.split_whitespace().next().unwrap_or_default().to_owned()
        };
        let (webhooks, admin) = (address("webhooks"), address("admin"));
        let log_end = Arc::clone(&log);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                log_end.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        Ok(Self { dir, child, webhooks, admin, log })
    }

    /// A thread of the daemon, by its name, which a thread that is new takes when it has its first turn.
    pub fn thread(&self, name: &str) -> u32 {
        let named = || {
            let mut tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
            tasks.find_map(|task| {
                let path = task.ok()?.path();
                let comm = fs::read_to_string(path.join("comm")).ok()?;
                (comm.trim_end() == name).then(|| path.file_name()?.to_str()?.parse().ok())?
            })
        };
        wait_for_some(&format!("there is a thread {name}"), named)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to stderr so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until it says so on stderr: a line may arrive a little after the answer it is about.
    pub fn wait_for_log(&self, words: &str) {
        self.wait_for(&format!("it says {words:?}"), || self.log().contains(words));
    }

    /// As [`wait_for`]; a failure shows what the daemon said.
    pub fn wait_for(&self, what: &str, is_so: impl FnMut() -> bool) {
        assert!(is_so_in_time(is_so), "waited in vain until {what}: {}", self.log());
    }

    /// As [`Daemon::wait_for`], for what a daemon that works comes to in a second or two.
    pub fn wait_briefly_for(&self, what: &str, is_so: impl FnMut() -> bool) {
        assert!(is_so_within(END_TIME, is_so), "waited in vain until {what}: {}", self.log());
    }

    /// Waits until the query gives this number.
    pub fn wait_for_count(&self, sql: &str, wanted: i64) {
        let (conn, mut found) = (self.sql(), None);
        let is_so = is_so_in_time(|| {
            found = Some(conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap());
            found == Some(wanted)
        });
        assert!(is_so, "{found:?} instead of {wanted}: {sql}\n{}", self.log());
    }

    pub fn kill(mut self) -> Arc<TempDir> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        Arc::clone(&self.dir)
    }

    /// SIGTERM; returns the exit code.
    pub fn stop(mut self) -> Option<i32> {
        terminate(self.child.id());
        self.exit_status().code()
    }

    /// Waits until the process ends by itself; the signal that ended it.
    pub fn exit_signal(&mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        self.exit_status().signal()
    }

    /// Waits until the process ends by itself.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.exit_status().code()
    }

    fn exit_status(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let status = find_within(END_TIME, || child.try_wait().unwrap());
        status.unwrap_or_else(|| panic!("the daemon did not end within {END_TIME:?}: {}", self.log()))
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn database(&self) -> PathBuf {
        self.dir.path().join("data/inboxd.db")
    }

    pub fn sql(&self) -> Connection {
        open(&self.database())
    }

    /// One number out of the database.
    pub fn count(&self, sql: &str) -> i64 {
        self.sql().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// One text out of the database.
    pub fn text(&self, sql: &str) -> String {
        self.sql().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.webhooks)
    }

    /// Sends a signed Stripe event and returns status and body.
    pub fn stripe(&self, body: &str) -> (u16, String) {
        self.client().post("/webhooks/stripe", &[&stripe_signature(body, now_s(), STRIPE_SECRET)], body)
    }

    /// Runs a verb of the command line in the daemon's folder.
    pub fn inboxd(&self, args: &[&str]) -> Ran {
        inboxd(self.dir.path(), args)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends a signed Stripe event to a daemon that may be ending: the answer, where there is one.
pub fn signed_stripe(address: &str, body: &str) -> Option<(u16, String)> {
    let signature = stripe_signature(body, now_s(), STRIPE_SECRET);
    Client::try_connect(address).ok()?.try_post("/webhooks/stripe", &[&signature], body)
}

/// Says that a test is not made here, and why. The harness keeps what a test prints that passes; this is seen.
pub fn skipped(why: &str) {
    let test = thread::current().name().unwrap_or_default().to_owned();
    drop(std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes()));
}

/// An address that stays free until it is used: a loopback address of this process, on which nobody else listens
/// and from which nobody connects.
pub fn own_address() -> String {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let ip = std::net::Ipv4Addr::new(127, 64 + high, middle, low);
    std::net::TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap().to_string()
}

/// What only bounds a hang: nothing is too slow before this.
pub const HANG_TIME: Duration = Duration::from_secs(120);

/// For what a process does at once where it works: it ends. A broken one is found out within a minute.
pub const END_TIME: Duration = Duration::from_secs(40);

/// Waits until a process that should end has ended; one that does not is killed, and the test fails.
pub fn ended(child: &mut Child) -> ExitStatus {
    find_within(END_TIME, || child.try_wait().unwrap()).unwrap_or_else(|| {
        drop(child.kill());
        drop(child.wait());
        panic!("process {} did not end within {END_TIME:?}", child.id())
    })
}

/// Does what may wait for a process; where that takes too long, the process is killed and there is no result.
pub fn within_limit<T>(pid: u32, work: impl FnOnce() -> T) -> Option<T> {
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        let is_late = is_done.recv_timeout(HANG_TIME) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        if is_late {
            signal(pid, rustix::process::Signal::KILL);
        }
        is_late
    });
    let result = work();
    drop(done);
    (!watchdog.join().unwrap()).then_some(result)
}

/// Waits until it is so.
pub fn wait_for(what: &str, is_so: impl FnMut() -> bool) {
    assert!(is_so_in_time(is_so), "waited in vain until {what}");
}

/// Waits until there is one.
pub fn wait_for_some<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    wait_for(what, || {
        found = find();
        found.is_some()
    });
    found.unwrap()
}

fn find_within<T>(time: Duration, mut find: impl FnMut() -> Option<T>) -> Option<T> {
    let mut found = None;
    is_so_within(time, || {
        found = find();
        found.is_some()
    });
    found
}

fn is_so_in_time(is_so: impl FnMut() -> bool) -> bool {
    is_so_within(HANG_TIME, is_so)
}

fn is_so_within(time: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        // looked at before the time: whoever gets no turn for long has one look left
        let is_late = begun.elapsed() >= time;
        if is_so() {
            return true;
        }
        if is_late {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// A folder with a configuration, the secrets it names, and further files.
pub fn folder(config: &str, files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("inboxd.toml"), config).unwrap();
    write_secret(dir.path(), "stripe.secret", STRIPE_SECRET);
    write_secret(dir.path(), "github.secret", GITHUB_SECRET);
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

/// A finished command.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the binary with `--config inboxd.toml` where the folder has one.
pub fn inboxd(dir: &Path, args: &[&str]) -> Ran {
    let child = Command::new(env!("CARGO_BIN_EXE_inboxd"))
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = within_limit(child.id(), || child.wait_with_output().unwrap())
        .unwrap_or_else(|| panic!("`inboxd {}` did not end within {HANG_TIME:?}", args.join(" ")));
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

pub fn terminate(pid: u32) {
    signal(pid, rustix::process::Signal::TERM);
}

pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

pub fn write_secret(dir: &Path, name: &str, secret: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(dir.join(name)).unwrap();
    file.write_all(secret.as_bytes()).unwrap();
}

/// One number out of the database in this folder.
pub fn count(dir: &TempDir, sql: &str) -> i64 {
    open(&dir.path().join("inboxd.db")).query_row(sql, [], |row| row.get(0)).unwrap()
}

/// One text out of the database in this folder; `""` for NULL.
pub fn text(dir: &TempDir, sql: &str) -> String {
    let conn = open(&dir.path().join("inboxd.db"));
    conn.query_row(sql, [], |row| row.get::<_, Option<String>>(0)).unwrap().unwrap_or_default()
}

pub fn open(path: &Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.busy_timeout(Duration::from_secs(10)).unwrap();
    conn
}

/// One keep-alive connection.
pub struct Client {
    stream: BufReader<TcpStream>,
    is_closing: bool,
}

impl Client {
    pub fn connect(address: &str) -> Self {
        Self::try_connect(address).unwrap()
    }

    pub fn try_connect(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANG_TIME))?;
        Ok(Self { stream: BufReader::new(stream), is_closing: false })
    }

    /// Whether the latest answer said that no other follows.
    pub fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// The answer, or `None` when the daemon went away.
    pub fn try_post(
        &mut self,
        path: &str,
        headers: &[&str],
        body: impl AsRef<[u8]>,
    ) -> Option<(u16, String)> {
        self.try_send("POST", path, headers, body.as_ref()).ok()?;
        self.try_answer()
    }

    pub fn post(&mut self, path: &str, headers: &[&str], body: impl AsRef<[u8]>) -> (u16, String) {
        self.request("POST", path, headers, body.as_ref())
    }

    pub fn get(&mut self, path: &str) -> (u16, String) {
        self.request("GET", path, &[], b"")
    }

    pub fn request(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> (u16, String) {
        self.send(method, path, headers, body);
        self.answer()
    }

    pub fn send(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) {
        self.try_send(method, path, headers, body).unwrap();
    }

    fn try_send(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> std::io::Result<()> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        for header in headers {
            write!(head, "{header}\r\n").unwrap();
        }
        write!(head, "Content-Length: {}\r\n\r\n", body.len()).unwrap();
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.stream.get_mut().write_all(&bytes)
    }

    pub fn answer(&mut self) -> (u16, String) {
        self.try_answer().expect("an answer")
    }

    /// The answer, or `None` when the connection ended without one.
    pub fn try_answer(&mut self) -> Option<(u16, String)> {
        let (status, _, body) = self.try_answer_with_head()?;
        Some((status, body))
    }

    pub fn try_answer_with_head(&mut self) -> Option<(u16, String, String)> {
        let mut head = String::new();
        loop {
            if self.stream.read_line(&mut head).ok()? == 0 {
                return None;
            }
            if head.ends_with("\r\n\r\n") {
                break;
            }
        }
        let status = head.split(' ').nth(1)?.parse().ok()?;
        self.is_closing = head.to_ascii_lowercase().contains("connection: close");
        let length = head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .map_or(0, |(_, value)| value.trim().parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).ok()?;
        Some((status, head, String::from_utf8(body).unwrap()))
    }
}

pub fn now_s() -> i64 {
    #[allow(clippy::disallowed_methods, reason = "the sender's clock, not the daemon's")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

/// HMAC-SHA256 in lower-case hex.
pub fn hmac_hex(secret: &[u8], parts: &[&[u8]]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The `Stripe-Signature` line for a body.
pub fn stripe_signature(body: impl AsRef<[u8]>, t: i64, secret: &str) -> String {
    let t = t.to_string();
    let v1 = hmac_hex(secret.as_bytes(), &[t.as_bytes(), b".", body.as_ref()]);
    format!("Stripe-Signature: t={t},v1={v1}")
}

/// The `X-Hub-Signature-256` line for a body.
pub fn github_signature(body: impl AsRef<[u8]>) -> String {
    format!("X-Hub-Signature-256: sha256={}", hmac_hex(GITHUB_SECRET.as_bytes(), &[body.as_ref()]))
}

/// The one event of a delivery.
pub fn only_event(verified: Verified) -> VerifiedEvent {
    match verified {
        Verified::Events(mut events) if events.len() == 1 => events.remove(0),
        other => panic!("{other:?}"),
    }
}

/// A delivery as the HTTP side hands it on: signed as Stripe signs, and verified, at this time.
pub fn stripe_event(verifier: &Verifier, body: &str, now_ms: i64) -> VerifiedEvent {
    let line = stripe_signature(body, now_ms / 1000, STRIPE_SECRET);
    let headers = Headers::from_iter([line.split_once(": ").unwrap()]);
    let delivery = Delivery { method: "POST", url: "/", headers: &headers, body: body.as_bytes().to_vec() };
    only_event(verifier.verify(delivery, now_ms).unwrap())
}

/// A Stripe event about any object, which is given as JSON.
pub fn event(id: &str, event_type: &str, object: &str) -> String {
    format!(
        r#"{{"id":"{id}","object":"event","created":1764000000,"livemode":false,"type":"{event_type}","data":{{"object":{object}}}}}"#
    )
}

/// A Stripe event about an invoice; `amount` is what was paid.
pub fn invoice_event(event: &str, kind: &str, invoice: &str, amount: i64) -> String {
    let status = match kind {
        "created" => "draft",
        "paid" | "payment_succeeded" => "paid",
        "voided" => "void",
        "marked_uncollectible" => "uncollectible",
        _ => "open",
    };
    format!(
        r#"{{"id":"{event}","object":"event","api_version":"2025-03-31.basil","created":1764000000,"livemode":false,"type":"invoice.{kind}","data":{{"object":{{"id":"{invoice}","object":"invoice","customer":"cus_1","currency":"eur","status":"{status}","amount_due":{amount},"amount_paid":{amount},"total":{amount}}}}}}}"#
    )
}
