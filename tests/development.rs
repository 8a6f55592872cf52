//! The development instance: `inboxd serve` in an empty folder, as somebody meets it who tries inboxd.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

/// A running instance and the lines it says.
struct Instance {
    child: Child,
    lines: Receiver<String>,
}

impl Instance {
    fn start(dir: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_inboxd"));
        command.arg("serve").args(args).current_dir(dir).env_remove("RUST_LOG");
        for variable in ["STRIPE_WEBHOOK_SECRET", "GITHUB_WEBHOOK_SECRET"] {
            command.env_remove(variable);
        }
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (said, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                drop(said.send(line));
            }
        });
        Self { child, lines }
    }

    /// All lines up to the one with these words, that one last.
    fn until(&self, words: &str) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            let next = self.lines.recv_timeout(support::HANG_TIME);
            heard.push(next.unwrap_or_else(|_| panic!("no line with {words:?}: {heard:#?}")));
            if heard.last().is_some_and(|line| line.contains(words)) {
                return heard;
            }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn the_banner_comes_first_and_each_delivery_is_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let instance = Instance::start(dir.path(), &["--port", "0"]);
    let banner = instance.until("Each delivery is a line here");
    assert!(banner[0].starts_with("inboxd "), "{banner:#?}");
    // the command that it proposes is run as it stands
    let proposed = banner.iter().find_map(|line| line.split_once("inboxd send ")).unwrap().1;
    let send = |more: &[&str]| {
        let args: Vec<_> =
            ["send"].into_iter().chain(proposed.split(' ')).chain(more.iter().copied()).collect();
        support::inboxd(dir.path(), &args)
    };
    let sent = send(&["--id", "evt_mine"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    let line = instance.until("stored endpoint=billing").pop().unwrap();
    assert!(line.contains("event_id=evt_mine type=invoice.paid outcome=processed"), "{line}");
    assert_eq!(send(&["--id", "evt_mine"]).code, 0);
    let line = instance.until("event_id=evt_mine").pop().unwrap();
    assert!(line.contains("outcome=duplicate"), "{line}");
    assert_eq!(send(&["--bad-signature"]).code, 0);
    let line = instance.until("refused").pop().unwrap();
    assert!(line.contains("endpoint=billing") && line.contains("reason=signature_mismatch"), "{line}");
}

#[test]
fn a_port_that_another_process_has_is_told_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let said = support::inboxd(dir.path(), &["serve", "--port", &port]);
    assert_eq!(said.code, 6, "{said:?}");
    for words in [&format!("127.0.0.1:{port}"), "ss -ltnp", "inboxd serve --port N"] {
        assert!(said.stderr.contains(words), "{words}: {said:?}");
    }
}

#[test]
fn a_port_is_not_for_a_listener_that_has_none() {
    let config = "[listen]\nwebhooks = \"unix:in.sock\"\nadmin = \"off\"\n";
    let dir = support::folder(config, &[]);
    let said = support::inboxd(dir.path(), &["serve", "--port", "9000"]);
    assert!(said.code == 2 && said.stderr.contains("not a host:port"), "{said:?}");
}
