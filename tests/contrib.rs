//! The rules and the board for monitors: they name only figures that exist, and promtool (Debian: prometheus) judges
//! them where it is installed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use support::{Client, Daemon, skipped};

fn contrib(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib").join(file)).unwrap()
}

/// Names of figures in a text; those of a histogram's parts are the histogram's.
fn figures(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let named = words.filter(|word| word.starts_with("inboxd_"));
    let whole = |word: &str| {
        ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word).to_owned()
    };
    named.map(whole).collect()
}

/// Runs promtool with this on its standard input; `None` where it is not installed.
fn promtool(args: &[&str], input: &str) -> Option<(bool, String)> {
    use std::io::Write as _;
    let mut child = Command::new("promtool")
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8(said).unwrap()))
}

#[test]
fn rules_and_board_name_only_figures_that_exist() {
    let daemon = Daemon::start();
    let (status, metrics) = Client::connect(&daemon.admin).get("/metrics");
    assert_eq!(status, 200);
    let declared = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let known: BTreeSet<_> = declared.map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    for file in ["alerts.yml", "alerts.test.yml", "grafana.json"] {
        let named = figures(&contrib(file));
        assert!(named.len() > 5, "{file} {named:?}");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    serde_json::from_str::<serde_json::Value>(&contrib("grafana.json")).unwrap();
    let manual = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/admin.md")).unwrap();
    let explained = figures(&manual);
    let missing: Vec<_> = known.difference(&explained).collect();
    assert!(missing.is_empty(), "docs/admin.md has no row for {missing:?}");
    match promtool(&["check", "metrics"], &metrics) {
        None => skipped("promtool is not installed"),
        Some(judged) => assert_eq!(judged, (true, String::new())),
    }
}

#[test]
fn promtool_accepts_the_rules_and_they_fire_when_they_should() {
    let Some((is_accepted, said)) = promtool(&["check", "rules", "alerts.yml"], "") else {
        return skipped("promtool is not installed");
    };
    assert!(is_accepted, "{said}");
    let (is_passed, said) = promtool(&["test", "rules", "alerts.test.yml"], "").unwrap();
    assert!(is_passed, "{said}");
}
