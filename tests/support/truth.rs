//! Who sent what and who was told what, and the one check of it against the database.
//!
//! Every event is the payment of an invoice of its own, so that rows, effects and answers can be
//! compared one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;

use super::{Client, END_TIME, STRIPE_SECRET, now_s, open, stripe_signature};

/// The senders' own log: what leaves is written down before it leaves, what is answered after it came.
pub struct ClientLog {
    path: PathBuf,
    file: Mutex<File>,
}

/// What a sender's log says.
#[derive(Debug, Default)]
pub struct Told {
    pub sent: BTreeSet<String>,
    /// With how often it was told `processed`.
    pub acknowledged: BTreeMap<String, usize>,
    pub acknowledgements: usize,
    /// Sent and not answered.
    pub unanswered: usize,
    /// Answers other than 200, by status.
    pub refused: BTreeMap<String, usize>,
}

impl ClientLog {
    pub fn new(dir: &Path) -> Self {
        let path = dir.join("client.log");
        let file = File::options().create(true).append(true).open(&path).unwrap();
        Self { path, file: Mutex::new(file) }
    }

    fn sent(&self, event: &str) {
        self.write(&format!("sent {event} - -\n"));
    }

    fn answered(&self, event: &str, status: u16, body: &str) {
        self.write(&format!("told {event} {status} {body}\n"));
    }

    fn write(&self, line: &str) {
        self.file.lock().unwrap().write_all(line.as_bytes()).unwrap();
    }

    pub fn read(&self) -> Told {
        let text = std::fs::read_to_string(&self.path).unwrap();
        let mut told = Told::default();
        let (mut requests, mut answers) = (0, 0);
        for line in text.lines() {
            let parts: Vec<_> = line.splitn(4, ' ').collect();
            match parts[..] {
                ["sent", event, ..] => {
                    requests += 1;
                    told.sent.insert(event.to_owned());
                }
                ["told", event, "200", body] => {
                    answers += 1;
                    told.acknowledgements += 1;
                    let processed = told.acknowledged.entry(event.to_owned()).or_default();
                    *processed += usize::from(body.contains("processed"));
                }
                ["told", _, status, _] => {
                    answers += 1;
                    *told.refused.entry(status.to_owned()).or_default() += 1;
                }
                _ => panic!("{line}"),
            }
        }
        told.unanswered = requests - answers;
        told
    }
}

/// Acknowledged ⊆ stored ⊆ sent; one effect for every row that is done, and no other; a sound file.
pub fn check(database: &Path, log: &ClientLog) -> Told {
    let told = log.read();
    let conn = open(database);
    // the next start finds the log as the kill has left it
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    let column = |sql: &str| -> Vec<String> {
        let mut statement = conn.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    assert_eq!(column("PRAGMA integrity_check"), ["ok"]);
    let done = column("SELECT event_id FROM webhook_inbox NOT INDEXED WHERE state = 'done'");
    let rows = column("SELECT event_id FROM webhook_inbox NOT INDEXED");
    assert_eq!(rows.len(), done.len(), "every event of the test can be processed");
    let stored: BTreeSet<_> = rows.iter().cloned().collect();
    assert_eq!(stored.len(), rows.len(), "an event is stored twice");
    let lost: Vec<_> = told.acknowledged.keys().filter(|event| !stored.contains(*event)).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    let unheard: Vec<_> = stored.difference(&told.sent).collect();
    assert!(unheard.is_empty(), "stored and never sent: {unheard:?}");
    let again: Vec<_> = told.acknowledged.iter().filter(|(_, processed)| **processed > 1).collect();
    assert!(again.is_empty(), "told twice to be the one that was processed: {again:?}");

    let booked = column("SELECT event_id FROM ledger_entries NOT INDEXED WHERE kind = 'payment'");
    let invoices = column("SELECT invoice_id FROM ledger_entries NOT INDEXED WHERE kind = 'payment'");
    assert_eq!(invoices.iter().collect::<BTreeSet<_>>().len(), invoices.len(), "a payment is booked twice");
    assert_eq!(
        booked.iter().cloned().collect::<BTreeSet<_>>(),
        stored,
        "rows that are done and effects differ"
    );
    assert_eq!(booked.len(), stored.len());
    let paid = column("SELECT id FROM invoices NOT INDEXED WHERE status = 'paid' AND amount_paid = 4200");
    assert_eq!(paid.len(), stored.len(), "invoices that are paid and effects differ");
    told
}

/// Senders that go on, whatever happens to the daemon: what was not acknowledged is sent again.
pub struct Senders {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    log: Arc<ClientLog>,
    address: Mutex<Option<String>>,
    unacknowledged: Mutex<Vec<String>>,
    next: AtomicU64,
    body_bytes: usize,
    /// Only what is unacknowledged is sent.
    is_ending: AtomicBool,
    in_flight: AtomicUsize,
    failures: AtomicUsize,
    connections_refused: AtomicUsize,
    acknowledged: AtomicUsize,
}

impl Senders {
    pub fn start(count: usize, log: &Arc<ClientLog>, body_bytes: usize) -> Self {
        let shared = Arc::new(Shared {
            log: Arc::clone(log),
            address: Mutex::new(None),
            unacknowledged: Mutex::default(),
            next: AtomicU64::new(0),
            body_bytes,
            is_ending: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            failures: AtomicUsize::new(0),
            connections_refused: AtomicUsize::new(0),
            acknowledged: AtomicUsize::new(0),
        });
        let sender = |_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.send_on())
        };
        let threads = (0..count).map(sender).collect();
        Self { shared, threads }
    }

    /// Where the daemon listens now.
    pub fn aim(&self, address: &str) {
        *self.shared.address.lock().unwrap() = Some(address.to_owned());
    }

    /// Requests that got no answer so far.
    pub fn failures(&self) -> usize {
        self.shared.failures.load(Ordering::SeqCst)
    }

    /// Attempts to connect that failed so far.
    pub fn connections_refused(&self) -> usize {
        self.shared.connections_refused.load(Ordering::SeqCst)
    }

    /// Waits for so many more acknowledgements; that none comes for long is a failure.
    pub fn acknowledge_more(&self, count: usize) {
        let before = self.acknowledged();
        let (mut latest, mut came_at) = (before, Instant::now());
        while latest < before + count {
            let is_late = came_at.elapsed() >= END_TIME;
            let now = self.acknowledged();
            if now > latest {
                (latest, came_at) = (now, Instant::now());
            } else {
                let got = latest - before;
                assert!(!is_late, "{got} of {count} more were acknowledged, then none for {END_TIME:?}");
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Acknowledgements so far.
    pub fn acknowledged(&self) -> usize {
        self.shared.acknowledged.load(Ordering::SeqCst)
    }

    /// Sends until everything that was ever sent is acknowledged, then everything once more.
    pub fn finish(self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().unwrap();
        }
        let told = self.shared.log.read();
        assert_eq!(told.sent.len(), told.acknowledged.len(), "a sender gave up");
        let address = self.shared.address.lock().unwrap().clone().unwrap();
        let mut client = Client::connect(&address);
        let step = told.sent.len().div_ceil(REDELIVERED_MAX).max(1);
        for event in told.sent.iter().step_by(step) {
            let (status, body) = self.shared.deliver(&mut client, event).expect("an answer");
            assert_eq!((status, body.as_str()), (200, r#"{"outcome":"duplicate"}"#), "{event}");
        }
    }
}

/// Redeliveries at the end; of more events than that a sample.
const REDELIVERED_MAX: usize = 500;

impl Shared {
    fn send_on(&self) {
        let mut connection: Option<Client> = None;
        let mut waits_since = Instant::now();
        loop {
            let again = self.unacknowledged.lock().unwrap().pop();
            let is_ending = self.is_ending.load(Ordering::SeqCst);
            let event = match again {
                Some(event) => event,
                None if is_ending && self.in_flight.load(Ordering::SeqCst) == 0 => return,
                None if is_ending => {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                // one in eight is sent by two at the same time
                None => match self.next.fetch_add(1, Ordering::SeqCst) {
                    number if number % 8 == 7 => format!("evt_{}", number - 1),
                    number => format!("evt_{number}"),
                },
            };
            self.in_flight.fetch_add(1, Ordering::SeqCst);
            let answer = match connection.take().or_else(|| self.connect()) {
                None => None,
                Some(mut client) => {
                    let answer = self.deliver(&mut client, &event);
                    if answer.is_none() {
                        self.failures.fetch_add(1, Ordering::SeqCst);
                    }
                    connection = answer.as_ref().filter(|_| !client.is_closing()).map(|_| client);
                    answer
                }
            };
            if answer.as_ref().is_some_and(|(status, _)| *status == 200) {
                self.acknowledged.fetch_add(1, Ordering::SeqCst);
                waits_since = Instant::now();
            } else {
                self.unacknowledged.lock().unwrap().push(event);
                let waits = waits_since.elapsed();
                assert!(waits < END_TIME, "nothing was acknowledged for {waits:?}");
                thread::sleep(Duration::from_millis(2));
            }
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn connect(&self) -> Option<Client> {
        let address = self.address.lock().unwrap().clone()?;
        let connected = Client::try_connect(&address);
        if connected.is_err() {
            self.connections_refused.fetch_add(1, Ordering::SeqCst);
        }
        connected.ok()
    }

    fn deliver(&self, client: &mut Client, event: &str) -> Option<(u16, String)> {
        let body = body(event, self.body_bytes);
        let signature = stripe_signature(&body, now_s(), STRIPE_SECRET);
        self.log.sent(event);
        let answer = client.try_post("/webhooks/stripe", &[&signature], &body)?;
        self.log.answered(event, answer.0, &answer.1);
        Some(answer)
    }
}

/// The payment of the invoice that belongs to the event, in a body of about so many bytes.
pub fn body(event: &str, bytes: usize) -> String {
    let invoice = event.replace("evt_", "in_");
    let event = super::invoice_event(event, "paid", &invoice, 4200);
    let filler = "x".repeat(bytes.saturating_sub(event.len()));
    event.replacen("\"object\":\"event\",", &format!("\"object\":\"event\",\"filler\":\"{filler}\","), 1)
}
