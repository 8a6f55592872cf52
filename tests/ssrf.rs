//! The way out leads to what the configuration means, and to nothing else.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use inboxd::internals::config::{AlertFormat, AlertVia};
use inboxd::internals::outgoing::{Client, Network, Reach};
use support::app::App;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// What the URL alone shows.
const REFUSED_BY_CHECK: &[&str] = &[
    "http://0x7f.1/",
    "http://0x7f000001/",
    "http://0X7F.0.0.1/",
    "http://127.0.0.0x1/",
    "http://2130706433/",
    "http://017700000001/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://0/",
    "http://00/",
    "http://0.0.0.0/",
    "http://0.1.2.3/",
    "http://127.0.0.1./",
    "http://localhost./",
    "http://example.com./",
    "http://example..com/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[::]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://[ff02::1]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.1.1/",
    "http://100.100.100.200/latest/",
    "http://192.0.0.192/",
    "http://224.0.0.1/",
    "http://239.255.255.250/",
    "http://255.255.255.255/",
    "http://user@127.0.0.1/",
    "http://user:password@example.com/",
    "http://example.com@169.254.169.254/",
    "http://169.254.169.254:80@example.com/",
    "http://example.com%2f@127.0.0.1/",
    "http://127.0.0.1%00.example.com/",
    "http://exa mple.com/",
    "http://１２７.0.0.1/",
    "http://ⓔxample.com/",
    "http:///path",
    "http://",
    "//example.com/",
    "example.com/hook",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_",
    "unix:/run/app.sock",
];

/// What a name leads to, as only the resolver sees it.
const REFUSED_FOR_A_NAME: &[&str] = &[
    "127.0.0.1",
    "127.8.8.8",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "198.18.0.1",
    "192.0.2.1",
    "203.0.113.9",
    "240.0.0.1",
    "0.0.0.0",
    "0.0.0.1",
    "169.254.169.254",
    "100.100.100.200",
    "168.63.129.16",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:0:127.0.0.1",
    "::10.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::a00:1",
    "64:ff9b:1::a00:1",
    "2002:a00:1::1",
    "2002:c0a8:101::1",
    "fe80::1",
    "fc00::1",
    "fd00:ec2::254",
    "fd12:3456::1",
    "fec0::1",
    "ff02::1",
    "2001::1",
    "2001:db8::1",
    "100::1",
];

#[derive(Debug)]
struct Fake(Mutex<Vec<Vec<SocketAddr>>>);

impl Fake {
    /// Answers with one list after the other; the last one stays.
    fn answering(lists: &[&[&str]], port: u16) -> Self {
        let address = |ip: &&str| SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port);
        Self(Mutex::new(lists.iter().rev().map(|list| list.iter().map(address).collect()).collect()))
    }
}

impl Resolver for Fake {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut lists = self.0.lock().unwrap();
        let list = if lists.len() > 1 { lists.pop().unwrap() } else { lists[0].clone() };
        let mut found = self.empty();
        list.into_iter().for_each(|address| found.push(address));
        Ok(found)
    }
}

fn post(client: &Client) -> Result<u16, String> {
    let answer = client.post(&[], b"x", support::HANG_TIME);
    answer.map(|answer| answer.status).map_err(|error| error.reason)
}

/// Nothing that is refused may be tried: the refusal names the address and comes before a connection.
fn assert_blocked(client: &Client, what: &str) {
    let error = client.post(&[], b"x", support::HANG_TIME).unwrap_err();
    assert!(error.reason.contains("blocked") && error.is_unsent, "{what}: {error:?}");
}

#[test]
fn a_hostile_spelling_is_refused_by_check() {
    let dir = tempfile::tempdir().unwrap();
    support::write_secret(dir.path(), "stripe.secret", support::STRIPE_SECRET);
    support::write_secret(dir.path(), "github.secret", support::GITHUB_SECRET);
    let mut config = support::CONFIG.to_owned();
    for (n, url) in REFUSED_BY_CHECK.iter().enumerate() {
        config += &format!("[destination.d{n}]\nurl = \"{url}\"\nsign = \"none\"\n");
    }
    std::fs::write(dir.path().join("inboxd.toml"), &config).unwrap();
    let ran = support::inboxd(dir.path(), &["check"]);
    assert_eq!(ran.code, 3);
    for (n, url) in REFUSED_BY_CHECK.iter().enumerate() {
        assert!(ran.stderr.contains(&format!("destination.d{n}.url: ")), "{url} passed the check");
        assert!(Client::new(url, &[], None).is_err(), "{url} makes a client");
    }
    assert!(!ran.stderr.contains("password@"), "a password is not shown: {}", ran.stderr);
    let alert = config.split("[destination.d0]").next().unwrap().to_owned()
        + "[alert]\nurl = \"http://169.254.169.254/\"\n";
    std::fs::write(dir.path().join("inboxd.toml"), alert).unwrap();
    let ran = support::inboxd(dir.path(), &["check"]);
    assert!(ran.code == 3 && ran.stderr.contains("alert.url"), "{ran:?}");
}

#[test]
fn a_name_that_leads_to_a_private_address_is_refused_when_the_connection_is_made() {
    for address in REFUSED_FOR_A_NAME {
        let lists: [&[&str]; 2] = [&[address], &["93.184.215.14", address]];
        for list in lists {
            let fake = Fake::answering(&[list], 80);
            let client = Client::with_resolver("http://app.example/", &[], None, fake).unwrap();
            assert_blocked(&client, address);
        }
    }
}

#[test]
fn a_resolver_that_answers_public_first_and_private_afterwards_gains_nothing() {
    let app = App::answering(200);
    let port = app.url.rsplit(':').next().unwrap().split('/').next().unwrap().parse().unwrap();
    // nobody answers at the first address; the second look finds this machine
    let fake = Fake::answering(&[&["192.88.99.1"], &["127.0.0.1"]], port);
    let client = Client::with_resolver("http://rebind.example/", &[], None, fake).unwrap();
    let first = client.post(&[], b"x", Duration::from_millis(200)).unwrap_err();
    assert!(!first.reason.contains("blocked"), "{first:?}");
    assert_blocked(&client, "the second look");
    assert!(app.seen().is_empty());
}

#[test]
fn a_name_is_looked_up_once_for_each_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let app = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for connection in ["keep-alive", "close"] {
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\nx") {
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            write!(stream, "HTTP/1.1 200 OK\r\nConnection: {connection}\r\nContent-Length: 0\r\n\r\n")
                .unwrap();
        }
    });
    let fake = Fake::answering(&[&["127.0.0.1"], &["10.0.0.1"]], port);
    let networks = ["127.0.0.0/8".parse().unwrap()];
    let client = Client::with_resolver("http://app.internal/", &networks, None, fake).unwrap();
    assert_eq!(post(&client), Ok(200));
    assert_eq!(post(&client), Ok(200), "the same connection");
    app.join().unwrap();
    assert_blocked(&client, "another connection");
}

#[test]
fn a_literal_address_and_localhost_mean_what_they_say() {
    let app = App::answering(200);
    assert_eq!(post(&Client::new(&app.url, &[], None).unwrap()), Ok(200));
    let by_name = app.url.replace("127.0.0.1", "localhost");
    assert_eq!(post(&Client::new(&by_name, &[], None).unwrap()), Ok(200));
    // localhost that leads elsewhere
    for address in ["10.0.0.1", "93.184.215.14", "169.254.169.254"] {
        let fake = Fake::answering(&[&[address]], 80);
        assert_blocked(&Client::with_resolver("http://localhost/", &[], None, fake).unwrap(), address);
    }
    // a literal that leads elsewhere
    let fake = Fake::answering(&[&["10.0.0.2"]], 80);
    assert_blocked(&Client::with_resolver("http://10.0.0.1/", &[], None, fake).unwrap(), "another literal");
}

#[test]
fn allow_networks_opens_what_it_names_and_never_the_metadata() {
    let app = App::answering(200);
    let port = app.url.rsplit(':').next().unwrap().split('/').next().unwrap().parse().unwrap();
    let networks: Vec<Network> =
        ["127.0.0.0/8", "0.0.0.0/0", "::/0"].map(|text| text.parse().unwrap()).to_vec();
    let fake = Fake::answering(&[&["127.0.0.1"]], port);
    let client = Client::with_resolver("http://app.internal/", &networks[..1], None, fake).unwrap();
    assert_eq!(post(&client), Ok(200));
    let fake = Fake::answering(&[&["10.0.0.1"]], port);
    assert_blocked(
        &Client::with_resolver("http://app.internal/", &networks[..1], None, fake).unwrap(),
        "another network",
    );
    for address in
        ["169.254.169.254", "fe80::1", "fd00:ec2::254", "224.0.0.1", "0.0.0.0", "::", "64:ff9b::a9fe:a9fe"]
    {
        let fake = Fake::answering(&[&[address]], port);
        assert_blocked(
            &Client::with_resolver("http://app.internal/", &networks, None, fake).unwrap(),
            address,
        );
    }
}

#[test]
fn a_network_ends_where_its_bits_end() {
    let reach = |network: &str| Reach::of_host("app.internal", &[network.parse().unwrap()]);
    let cases = [
        ("10.0.0.0/8", "10.255.255.255", true),
        ("10.0.0.0/9", "10.128.0.0", false),
        ("192.168.1.4/32", "192.168.1.4", true),
        ("192.168.1.4/32", "192.168.1.5", false),
        ("fd12::/16", "fd12:ffff::1", true),
        ("fd12::/16", "fd13::1", false),
        ("10.0.0.0/8", "::ffff:10.1.1.1", true),
        ("::/0", "10.0.0.1", false),
    ];
    for (network, address, is_open) in cases {
        let refusal = reach(network).refusal(address.parse().unwrap());
        assert_eq!(refusal.is_none(), is_open, "{address} in {network}: {refusal:?}");
    }
    for odd in ["10.0.0.0", "10.0.0.0/33", "::/129", "10.0.0/8", "/8", "a/8"] {
        assert!(odd.parse::<Network>().is_err(), "{odd}");
    }
}

#[test]
fn a_public_address_may_be_reached() {
    for address in ["93.184.215.14", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450::1", "64:ff9b::101:101"] {
        let reach = Reach::of_host("app.example", &[]);
        assert_eq!(reach.refusal(address.parse().unwrap()), None, "{address}");
    }
}

#[test]
fn an_alert_uses_the_same_door() {
    let app = App::answering(200);
    let send = |url: &str| {
        let via = AlertVia::Url { url: url.to_owned(), format: AlertFormat::Text };
        inboxd::internals::background::alerts::send(&via, "hello")
    };
    send(&app.url).unwrap();
    assert!(app.bodies()[0].ends_with(": hello"));
    let refused = send("http://169.254.169.254/");
    assert!(refused.is_err());
    let failing = App::answering(500);
    assert!(send(&failing.url).is_err());
}

#[test]
fn the_daemon_takes_no_proxy_from_its_environment() {
    let (app, proxy) = (App::answering(200), App::answering(200));
    let dir = tempfile::tempdir().unwrap();
    let config = support::CONFIG.replace("handlers = [\"billing\"]", "forward = [\"app\"]")
        + &format!("[destination.app]\nurl = \"{}\"\nsign = \"none\"\n", app.url);
    std::fs::write(dir.path().join("inboxd.toml"), config).unwrap();
    support::write_secret(dir.path(), "stripe.secret", support::STRIPE_SECRET);
    support::write_secret(dir.path(), "github.secret", support::GITHUB_SECRET);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_inboxd"));
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env(name, &proxy.url);
    }
    let daemon = support::Daemon::spawn(std::sync::Arc::new(dir), command);
    daemon.stripe(r#"{"id":"evt_1","type":"foo.bar"}"#);
    app.wait_for(1);
    assert_eq!((app.seen().len(), proxy.seen().len()), (1, 0));
}
