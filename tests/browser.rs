//! The pages in a real browser, over WebDriver: where `chromedriver` and Chromium are installed (Debian: chromium,
//! chromium-driver). Elsewhere the test says that it was skipped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use support::{CONFIG, Daemon, END_TIME, HANG_TIME, invoice_event, skipped, wait_for_some};

/// A browser of its own, which ends with this.
struct Browser {
    driver: Child,
    address: String,
    session: String,
}

impl Browser {
    /// `None` where none is installed.
    fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut browser = Self { driver, address: format!("127.0.0.1:{port}"), session: String::new() };
        wait_for_some("the driver listens", || TcpStream::connect(&browser.address).ok());
        let options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        });
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let session = browser.call("POST", "/session", &wanted);
        browser.session = format!("/session/{}", session["sessionId"].as_str()?);
        Some(browser)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(HANG_TIME)).unwrap();
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        // the driver keeps the connection open, whatever it is asked
        let mut stream = BufReader::new(stream);
        let mut length = 0;
        for line in stream.by_ref().lines() {
            let line = line.unwrap().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        answer["value"].clone()
    }

    fn ask(&self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("{}{path}", self.session), body)
    }

    fn open(&self, url: &str) {
        let opened = self.ask("/url", &json!({ "url": url }));
        assert!(opened.is_null(), "{url} {opened}");
    }

    fn run(&self, script: &str) -> Value {
        self.ask("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    fn command(&self, name: &str, params: Value) -> Value {
        self.ask("/goog/cdp/execute", &json!({ "cmd": name, "params": params }))
    }

    /// What the browser complained of since the last look: a blocked script, a missing file.
    fn complaints(&self) -> Vec<String> {
        let lines = self.ask("/se/log", &json!({ "type": "browser" }));
        lines.as_array().unwrap().iter().map(|line| line["message"].to_string()).collect()
    }

    fn set(&self, width: u32, scheme: &str, has_scripts: bool) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.command("Emulation.setDeviceMetricsOverride", size);
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.command("Emulation.setEmulatedMedia", media);
        self.command("Emulation.setScriptExecutionDisabled", json!({ "value": !has_scripts }));
    }

    /// Roles of what can be used and has no name.
    fn unnamed(&self) -> Vec<String> {
        let tree = self.command("Accessibility.getFullAXTree", json!({}));
        let role = |node: &Value| node["role"]["value"].as_str().unwrap_or_default().to_owned();
        let wanted = ["button", "link", "textbox", "combobox", "image", "table", "region", "progressbar"];
        let nodes = tree["nodes"].as_array().unwrap().iter();
        let nodes = nodes.filter(|node| node["ignored"] != true && wanted.contains(&role(node).as_str()));
        nodes.filter(|node| node["name"]["value"].as_str().is_none_or(str::is_empty)).map(role).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.call("DELETE", &self.session, &Value::Null);
        }
        drop(self.driver.kill());
        drop(self.driver.wait());
    }
}

fn url_of_a_link(daemon: &Daemon) -> String {
    let ran = daemon.inboxd(&["admin", "link"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout.lines().last().unwrap().to_owned()
}

#[test]
fn every_page_fits_works_without_scripts_and_is_nothing_a_browser_complains_of() {
    let Some(browser) = Browser::start() else { return skipped("no chromedriver is installed") };
    let daemon = Daemon::with_config(CONFIG);
    daemon.stripe(&invoice_event("evt_void", "voided", "in_1", 100));
    daemon.stripe(&invoice_event("evt_paid", "paid", "in_1", 100));
    browser.open(&url_of_a_link(&daemon));
    assert_eq!(browser.run("return document.querySelector('h1').textContent"), "1 thing needs you");
    let base = format!("http://{}", daemon.admin);
    let pages = [
        "/",
        "/events",
        "/events?state=failing",
        "/events/billing/evt_paid",
        "/reviews",
        "/reviews?review=1",
        "/confirm?act=resolve-reviews",
        "/outbox",
        "/refused",
        "/books",
        "/jobs",
        "/audit",
        "/system",
    ];
    for (width, scheme, has_scripts) in
        [(1440, "light", true), (1440, "dark", false), (320, "dark", true), (320, "light", false)]
    {
        browser.set(width, scheme, has_scripts);
        for page in pages {
            browser.open(&format!("{base}{page}"));
            let widths = browser.run("return [document.documentElement.scrollWidth, innerWidth]");
            assert!(widths[0].as_u64() <= widths[1].as_u64(), "{page} is wider than {width}: {widths}");
            assert_eq!(browser.complaints(), Vec::<String>::new(), "{page}");
            assert_eq!(browser.unnamed(), Vec::<String>::new(), "{page}");
        }
    }
    // this test can see what it is for
    browser.set(1440, "light", true);
    browser.open(&base);
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.x = 1'; document.body.append(s)",
    );
    assert_eq!(browser.run("return window.x === undefined"), true);
    assert!(browser.complaints().iter().any(|line| line.contains("Content Security Policy")));
}

#[test]
fn a_person_closes_a_review_with_a_click_and_another_site_cannot() {
    let Some(browser) = Browser::start() else { return skipped("no chromedriver is installed") };
    let daemon = Daemon::with_config(CONFIG);
    daemon.stripe(&invoice_event("evt_void", "voided", "in_1", 100));
    daemon.stripe(&invoice_event("evt_paid", "paid", "in_1", 100));
    browser.open(&url_of_a_link(&daemon));
    let open = "SELECT count(*) FROM reviews WHERE resolved_at_ms IS NULL";

    // a page of another origin (another port) that sends the form in the visitor's browser
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let foreign = format!("http://{}/", other.local_addr().unwrap());
    let action = format!("http://{}/act/resolve", daemon.admin);
    std::thread::spawn(move || {
        for stream in other.incoming() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(END_TIME)).unwrap();
            let mut room = [0; 4096];
            if stream.read(&mut room).is_err() {
                continue;
            }
            let page = format!(
                "<form method=post action={action}><input name=review value=1><input name=note value=x><button>Go</button></form>"
            );
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{page}",
                page.len()
            );
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    browser.open(&foreign);
    browser.run("document.querySelector('button').click()");
    wait_for_some("an answer to the foreign form", || {
        let heading = browser.run("const h = document.querySelector('h1'); return h ? h.textContent : ''");
        heading.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    });
    assert_eq!(daemon.count(open), 1);

    browser.open(&format!("http://{}/reviews?review=1", daemon.admin));
    browser.run("document.querySelector('input[name=note]').value = 'asked the bank'; document.querySelector('form.filter button').click()");
    daemon.wait_for_count(open, 0);
    assert_eq!(daemon.text("SELECT note FROM inboxd_audit"), "asked the bank");
}
