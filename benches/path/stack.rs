//! The path of a delivery inside this process, so that parts of it can be left out.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use inboxd::config::{Config, MissingSecrets};
use inboxd::handlers;
use inboxd::handlers::Registry;
use inboxd::internals::intake::deliveries::App;
use inboxd::internals::intake::exchange::{Request, Response, Service};
use inboxd::internals::intake::front::{self, Bounds, Front, Listener};
use inboxd::internals::intake::proxy::Proxy;
use inboxd::internals::intake::receive;
use inboxd::internals::signature::{Delivery, Headers};
use inboxd::internals::store::open;
use inboxd::internals::store::writer::{self, Writer};
use inboxd::internals::verify::{Verified, Verifier};
use inboxd::internals::work::endpoint::Endpoint;
use inboxd::internals::work::screen;
use tempfile::TempDir;

pub(crate) const CONFIG: &str = r#"
data_dir = "data"
[listen]
webhooks = "127.0.0.1:0"
admin = "off"
[limits]
disk_free_min = 0
[endpoint.billing]
provider = "stripe"
path = "/webhooks/stripe"
secrets = ["file:secret"]
handlers = ["billing"]
"#;

/// Below `target/`: on a disk, not in memory.
pub(crate) fn base() -> PathBuf {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned();
    std::fs::create_dir_all(&base).unwrap();
    base
}

/// A folder with a configuration and its secret.
pub(crate) fn folder() -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir_in(base()).unwrap();
    std::fs::write(dir.path().join("inboxd.toml"), CONFIG).unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, crate::load::SECRET).unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    dir
}

/// What stands behind the front.
pub(crate) enum Upstream {
    /// Verification; whatever verifies is answered 200.
    Verifier,
    /// All of it.
    Daemon { batch_jobs_max: usize },
}

pub(crate) struct Stack {
    pub(crate) address: String,
    front: front::Handle,
    front_thread: JoinHandle<()>,
    writer: Option<JoinHandle<rusqlite::Result<()>>>,
    dir: TempDir,
}

impl Stack {
    pub(crate) fn start(upstream: Upstream) -> Self {
        let dir = folder();
        let config = Config::load(
            Some(&dir.path().join("inboxd.toml")),
            MissingSecrets::Report,
            Registry::new().facts(),
        )
        .unwrap();
        let (database, endpoints, _) = config.into_parts();
        let endpoint = endpoints.into_iter().next().unwrap();
        let (respond, writer): (Service, _) = match upstream {
            Upstream::Verifier => (Box::new(move |request| verify_one(request, &endpoint.verifier)), None),
            Upstream::Daemon { batch_jobs_max } => {
                std::fs::create_dir(database.parent().unwrap()).unwrap();
                let conn = open::open_writer(&database).unwrap();
                let mut settings = writer::Settings::new(database, Duration::from_secs(2), 0);
                settings.batch_jobs_max = batch_jobs_max;
                let (writer, handle) = Writer::new(conn, settings).unwrap();
                let writer = thread::spawn(move || writer.run());
                let billing = Arc::new(handlers::Billing);
                let endpoint = Endpoint::new(endpoint, vec![billing]);
                let proxy = Arc::new(Proxy::new(handle.clone(), &[]));
                let wakes = Default::default();
                let app = App::new(&[Arc::new(endpoint)], None, handle, wakes, proxy);
                (Box::new(move |request| app.respond(request)), Some(writer))
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let settings = front::Settings {
            listener: front::WEBHOOKS,
            respond,
            connections_max: 512,
            descriptors_max: front::raise_descriptor_limit(),
            body_bytes_max: Box::new(|_| 1 << 20),
            waits_for_application: None,
            trusted_proxies: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            bounds: Bounds::default(),
        };
        let front = Front::new(Listener::Tcp(listener), settings).unwrap();
        let handle = front.handle();
        let front_thread = thread::spawn(move || front.run());
        Self { address, front: handle, front_thread, writer, dir }
    }

    /// Ends it, and looks whether it stored so many events.
    pub(crate) fn stop(self, events: usize) {
        self.front.stop_accepting();
        assert_eq!(self.front.drain(Duration::from_secs(10)), 0);
        self.front_thread.join().unwrap();
        // its service holds the writer's queue
        drop(self.front);
        if let Some(writer) = self.writer {
            writer.join().unwrap().unwrap();
            let database = self.dir.path().join("data/inboxd.db");
            let reader = open::open_reader(&database, Duration::from_secs(10)).unwrap();
            let entries: i64 = reader
                .query_row("SELECT count(*) FROM main.ledger_entries WHERE kind = 'payment'", [], |row| {
                    row.get(0)
                })
                .unwrap();
            assert_eq!(usize::try_from(entries).unwrap(), events, "events and effects");
        }
    }
}

fn verify_one(request: Request, verifier: &Verifier) -> Response {
    let headers = Headers::from_iter(request.headers);
    let delivery =
        Delivery { method: &request.method, url: &request.target, headers: &headers, body: request.body };
    let is_good = verifier.verify(delivery, inboxd::internals::clock::now_ms()).is_ok();
    Response::new(if is_good { 200 } else { 400 }, r#"{"outcome":"processed"}"#)
}

/// The writer alone: events that are verified already, as many queued as HTTP would queue.
pub(crate) fn writer_rate(events: &crate::load::Events) -> f64 {
    let dir = folder();
    let config =
        Config::load(Some(&dir.path().join("inboxd.toml")), MissingSecrets::Report, Registry::new().facts())
            .unwrap();
    let (database, endpoints, _) = config.into_parts();
    let endpoint = endpoints.into_iter().next().unwrap();
    std::fs::create_dir(database.parent().unwrap()).unwrap();
    let conn = open::open_writer(&database).unwrap();
    let settings = writer::Settings::new(database, Duration::from_secs(2), 0);
    let (writer, handle) = Writer::new(conn, settings).unwrap();
    let writer = thread::spawn(move || writer.run());
    let billing = Arc::new(handlers::Billing);
    let endpoint = Arc::new(Endpoint::new(endpoint, vec![billing]));
    let now_ms = inboxd::internals::clock::now_ms();
    let verified: Vec<_> = events
        .all
        .iter()
        .map(|event| {
            let signature = crate::load::signature(&event.body, now_ms / 1000);
            let headers = Headers::from_iter([("Stripe-Signature", signature)]);
            let body = event.body.clone().into_bytes();
            let delivery = Delivery { method: "POST", url: "/", headers: &headers, body };
            match endpoint.config.verifier.verify(delivery, now_ms).unwrap() {
                Verified::Events(mut events) => events.pop().unwrap(),
                Verified::Handshake(reply) => panic!("{reply:?}"),
            }
        })
        .collect();
    // a token for each event that may be under way
    let (give_back, tokens) = std::sync::mpsc::channel();
    (0..64).for_each(|_| give_back.send(true).unwrap());
    let started = std::time::Instant::now();
    for event in verified {
        assert!(tokens.recv().unwrap());
        let (endpoint, give_back) = (Arc::clone(&endpoint), give_back.clone());
        let disposition = screen::disposition(&endpoint, &event);
        handle.submit(
            move |tx| receive::store(tx, &endpoint, &event, &disposition, now_ms),
            move |result| give_back.send(result.is_ok()).unwrap(),
        );
    }
    (0..64).for_each(|_| assert!(tokens.recv().unwrap()));
    drop(handle);
    let rate = crate::rate(events.all.len(), started);
    writer.join().unwrap().unwrap();
    rate
}
