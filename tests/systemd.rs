//! At home under systemd: a socket that is passed, readiness, the watchdog, restarts under load.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::print_stdout, reason = "what was skipped, and figures")]

mod support;

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use support::truth::{self, ClientLog, Senders};
use support::{CONFIG, Client, Daemon};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_inboxd");

/// As systemd does it: the socket is descriptor 3, and LISTEN_PID names the process.
const PASS_SOCKET: &str = r#"exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$0" "$@""#;

/// What holds the socket and hears the notifications.
struct Manager {
    dir: Arc<TempDir>,
    listener: TcpListener,
    heard: Arc<Mutex<Vec<String>>>,
    watchdog: Option<Duration>,
}

impl Manager {
    fn new() -> Self {
        let config = CONFIG.replacen("127.0.0.1:0", "systemd", 1);
        let dir = Arc::new(Daemon::folder(&config));
        let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        thread::spawn(move || {
            let mut message = [0; 4096];
            while let Ok(length) = socket.recv(&mut message) {
                let text = String::from_utf8_lossy(&message[..length]);
                hears.lock().unwrap().extend(text.lines().map(str::to_owned));
            }
        });
        Self { dir, listener: TcpListener::bind("127.0.0.1:0").unwrap(), heard, watchdog: None }
    }

    fn start(&self) -> Daemon {
        let mut command = Command::new("sh");
        command.args(["-c", PASS_SOCKET, BINARY]);
        command.env("NOTIFY_SOCKET", self.dir.path().join("notify"));
        command.env("RUNTIME_DIRECTORY", self.dir.path().join("run"));
        if let Some(watchdog) = self.watchdog {
            command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        }
        command.stdin(Stdio::from(OwnedFd::from(self.listener.try_clone().unwrap())));
        Daemon::spawn_with_stdin(Arc::clone(&self.dir), command)
    }

    fn address(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    fn heard(&self, message: &str) -> usize {
        self.heard.lock().unwrap().iter().filter(|heard| *heard == message).count()
    }

    fn wait_for(&self, message: &str, count: usize) {
        support::wait_for(&format!("{message} is heard"), || self.heard(message) >= count);
    }
}

#[test]
fn systemd_is_told_when_it_is_ready_alive_and_stopping() {
    let manager = Manager { watchdog: Some(Duration::from_millis(300)), ..Manager::new() };
    let daemon = manager.start();
    assert_eq!(daemon.webhooks, manager.address());
    manager.wait_for("READY=1", 1);
    manager.wait_for("WATCHDOG=1", 3);
    assert!(
        manager.dir.path().join("run/http.sock").exists(),
        "the private socket is not in the runtime directory"
    );
    assert_eq!(daemon.stop(), Some(0));
    manager.wait_for("STOPPING=1", 1);
    let heard = manager.heard.lock().unwrap();
    let place = |message: &str| heard.iter().position(|heard| heard == message).unwrap();
    assert!(place("READY=1") < place("WATCHDOG=1") && place("WATCHDOG=1") < place("STOPPING=1"), "{heard:?}");
}

#[test]
fn ten_restarts_and_five_kills_under_load_refuse_no_connection() {
    let manager = Manager::new();
    let log = Arc::new(ClientLog::new(manager.dir.path()));
    let count = 8;
    let senders = Senders::start(count, &log, 2_000);
    senders.aim(&manager.address());
    let mut daemon = manager.start();
    for restart in 0..10 {
        senders.acknowledge_more(100);
        assert_eq!(daemon.stop(), Some(0));
        daemon = manager.start();
        assert_eq!(senders.failures(), 0, "restart {restart} cut a request off");
    }
    for kill in 0..5 {
        senders.acknowledge_more(100);
        let before = senders.failures();
        daemon.kill();
        daemon = manager.start();
        senders.acknowledge_more(100);
        let failed = senders.failures() - before;
        assert!(failed <= count, "kill {kill}: {failed} requests failed, {count} were in flight at most");
    }
    assert_eq!(senders.connections_refused(), 0);
    let failed = senders.failures();
    senders.finish();
    let told = truth::check(&daemon.database(), &log);
    assert!(told.refused.is_empty(), "{:?}", told.refused);
    println!("10 restarts, 5 kills, {count} senders: {} events, {failed} requests failed", told.sent.len());
}

#[test]
fn what_arrives_while_nobody_serves_waits_and_is_answered() {
    let manager = Manager::new();
    let mut early = Client::connect(&manager.address());
    let body = support::invoice_event("evt_1", "paid", "in_1", 4200);
    let signature = support::stripe_signature(&body, support::now_s(), support::STRIPE_SECRET);
    early.send("POST", "/webhooks/stripe", &[&signature], body.as_bytes());
    let daemon = manager.start();
    assert_eq!(early.answer(), (200, r#"{"outcome":"processed"}"#.to_owned()));
    assert_eq!(daemon.count("SELECT count(*) FROM ledger_entries WHERE kind = 'payment'"), 1);
}

#[test]
fn without_a_socket_it_says_so_and_is_not_started_again() {
    let manager = Manager::new();
    let ran = support::inboxd(manager.dir.path(), &["serve"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains("no socket was passed: start inboxd.socket"), "{ran:?}");
}

#[test]
fn the_unit_is_hardened_and_well_formed() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/inboxd.service");
    let Ok(security) = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold=15", "--no-pager"])
        .arg(&unit)
        .output()
    else {
        support::skipped("systemd-analyze is not installed");
        return;
    };
    let report = String::from_utf8_lossy(&security.stdout);
    assert!(security.status.success(), "an exposure over 1.5: {report}");

    // verified with a command that exists here; whether the manual page is installed is not the unit's matter
    let dir = tempfile::tempdir().unwrap();
    for name in ["inboxd.service", "inboxd.socket"] {
        let text = std::fs::read_to_string(unit.with_file_name(name)).unwrap();
        let text = text.replace("/usr/bin/inboxd", BINARY);
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let verify = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "inboxd.service", "inboxd.socket"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&verify.stderr);
    let ours: Vec<_> = said.lines().filter(|line| line.contains("inboxd")).collect();
    assert!(ours.is_empty(), "{ours:#?}");
}

#[test]
fn the_unit_asks_for_no_credential_and_init_prints_those_of_the_provider_at_hand() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/inboxd.service");
    let text = std::fs::read_to_string(unit).unwrap();
    let settings: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(
        !settings.iter().any(|line| line.contains("Credential")),
        "a service without Stripe could not start"
    );
    assert!(settings.contains(&"LimitCORE=0") && settings.contains(&"ExecReload=/bin/kill -HUP $MAINPID"));

    for (provider, name) in [("github", "github_webhook_secret"), ("stripe", "stripe_webhook_secret")] {
        let dir = tempfile::tempdir().unwrap();
        let ran = support::inboxd(dir.path(), &["init", "--systemd", "--provider", provider]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let line = format!("LoadCredential={name}:/etc/inboxd/{name}");
        assert_eq!(
            ran.stdout.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>(),
            ["[Service]", &line]
        );
        for step in
            ["/etc/inboxd/inboxd.toml", "inboxd.service.d/", &format!("/etc/inboxd/{name}"), "daemon-reload"]
        {
            assert!(ran.stderr.contains(step), "{step}: {ran:?}");
        }
        let config = std::fs::read_to_string(dir.path().join("inboxd.toml")).unwrap();
        for part in [&format!("credential:{name}"), "= \"systemd\" ", "data_dir = \"/var/lib/inboxd\""] {
            assert!(config.contains(part), "{part}: {config}");
        }
        assert_eq!(support::inboxd(dir.path(), &["check"]).code, 0);
    }
}
