//! What no compiler checks: who may use whom, which module names which table, which crates are direct.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules in reading order, each with those of the crate it may use. `lib.rs` declares the same order.
const EDGES: &[(&str, &[&str])] = &[
    ("config", &["outgoing", "printable", "verify"]),
    (
        "daemon",
        &[
            "bookkeeping",
            "config",
            "front",
            "http",
            "receive",
            "writer",
            "handlers",
            "worker",
            "dispatcher",
            "outbox",
            "proxy",
            "retention",
            "inbox",
            "alerts",
            "db",
            "clock",
            "sync",
            "timeline",
            "verify",
            "failpoint",
        ],
    ),
    ("front", &["logging", "sync"]),
    (
        "http",
        &["clock", "config", "front", "logging", "proxy", "receive", "refused", "sync", "verify", "writer"],
    ),
    ("verify", &["encode"]),
    ("refused", &["sync", "verify"]),
    (
        "receive",
        &[
            "clock",
            "config",
            "held",
            "verify",
            "writer",
            "handlers",
            "inbox",
            "outbox",
            "retry",
            "reviews",
            "timeline",
            "failpoint",
        ],
    ),
    (
        "proxy",
        &[
            "dispatcher",
            "held",
            "inbox",
            "outbox",
            "outgoing",
            "receive",
            "retry",
            "reviews",
            "sync",
            "timeline",
            "verify",
            "writer",
        ],
    ),
    ("writer", &["db", "failpoint", "sync"]),
    ("handlers", &["inbox", "invoices", "ledger", "orders", "outbox", "sync"]),
    (
        "worker",
        &[
            "bookkeeping",
            "clock",
            "config",
            "handlers",
            "inbox",
            "receive",
            "retry",
            "reviews",
            "sync",
            "verify",
            "writer",
        ],
    ),
    (
        "dispatcher",
        &[
            "clock", "config", "encode", "held", "outbox", "outgoing", "receive", "retry", "reviews", "sync",
            "verify", "writer",
        ],
    ),
    (
        "retention",
        &["bookkeeping", "db", "inbox", "outbox", "printable", "retry", "stretch", "timeline", "writer"],
    ),
    ("timeline", &["bookkeeping", "inbox", "outbox"]),
    ("inbox", &["stretch", "verify"]),
    ("ledger", &[]),
    ("invoices", &[]),
    ("orders", &[]),
    ("outbox", &["encode", "stretch"]),
    ("reviews", &[]),
    ("bookkeeping", &[]),
    ("alerts", &["config", "inbox", "outbox", "outgoing", "reviews", "sync"]),
    ("outgoing", &["encode"]),
    ("db", &["bookkeeping", "clock", "failpoint"]),
    ("encode", &[]),
    ("stretch", &[]),
    ("logging", &["clock", "printable", "sync"]),
    ("printable", &[]),
    ("clock", &[]),
    ("held", &["sync"]),
    ("sync", &[]),
    ("retry", &[]),
    ("failpoint", &[]),
];

/// Each table belongs to one module; the others ask that module.
const TABLES: &[(&str, &str)] = &[
    ("webhook_inbox", "inbox"),
    ("webhook_attempts", "inbox"),
    ("webhook_counts", "inbox"),
    ("webhook_failures", "inbox"),
    ("webhook_conflicts", "inbox"),
    ("ledger_entries", "ledger"),
    ("invoices", "invoices"),
    ("orders", "orders"),
    ("inboxd_meta", "bookkeeping"),
    ("outbox", "outbox"),
    ("outbox_attempts", "outbox"),
    ("outbox_destinations", "outbox"),
    ("reviews", "reviews"),
];

/// The direct dependencies; each is argued for in the commit that added it.
const DEPENDENCIES: &[&str] = &[
    "base64",
    "clap",
    "clap_complete",
    "clap_mangen",
    "ed25519-dalek",
    "env_logger",
    "getrandom",
    "hmac",
    "jiff",
    "listenfd",
    "log",
    "p256",
    "rusqlite",
    "rustix",
    "sd-notify",
    "serde",
    "serde_json",
    "sha1",
    "sha2",
    "signal-hook",
    "subtle",
    "tiny_http",
    "toml",
    "ureq",
];

fn source_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(source_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// Every file under `src`, by the top-level module it belongs to, without its unit tests.
fn modules() -> BTreeMap<String, String> {
    let mut modules = BTreeMap::<String, String>::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in source_files(&src) {
        let relative = file.strip_prefix(&src).unwrap();
        let first = relative.iter().next().unwrap().to_str().unwrap();
        let name = first.trim_end_matches(".rs").to_owned();
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        modules.entry(name).or_default().push_str(code);
    }
    modules
}

fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with("//"))
}

#[test]
fn modules_use_only_those_they_may_use() {
    let modules = modules();
    let mut wrong = Vec::new();
    for (module, text) in &modules {
        if matches!(module.as_str(), "lib" | "main" | "cli") {
            continue;
        }
        let (_, allowed) = EDGES
            .iter()
            .find(|(name, _)| name == module)
            .unwrap_or_else(|| panic!("src/{module}.rs has no line in EDGES"));
        for line in code_lines(text) {
            for (used, _) in EDGES {
                let path = format!("crate::{used}");
                let is_used = line.match_indices(&path).any(|(at, _)| {
                    line[at + path.len()..]
                        .chars()
                        .next()
                        .is_none_or(|next| !next.is_alphanumeric() && next != '_')
                });
                if is_used && used != module && !allowed.contains(used) {
                    wrong.push(format!("{module} uses {used}: {}", line.trim()));
                }
            }
            if line.contains("crate::{") {
                wrong.push(format!(
                    "{module}: write `use crate::module::…`, one line a module: {}",
                    line.trim()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn lib_rs_declares_the_modules_in_reading_order() {
    let lib = &modules()["lib"];
    let declared: Vec<_> = lib
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    let expected: Vec<_> = EDGES.iter().map(|(name, _)| *name).collect();
    assert_eq!(declared, expected);
}

#[test]
fn each_table_is_named_in_one_module() {
    let mut wrong = Vec::new();
    for (module, text) in &modules() {
        for (table, owner) in TABLES {
            let names_it = code_lines(text).any(|line| line.contains(&format!("main.{table}")));
            if names_it && module != owner {
                wrong.push(format!("{module} names {table}, which belongs to {owner}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn statements_name_the_database_and_their_conflict_target() {
    let mut wrong = Vec::new();
    for (module, text) in &modules() {
        let words: Vec<_> = code_lines(text).flat_map(str::split_whitespace).collect();
        for pair in words.windows(2) {
            let names_a_table = matches!(pair[0], "INTO" | "UPDATE" | "FROM" | "JOIN");
            if names_a_table
                && TABLES.iter().any(|(table, _)| pair[1].trim_end_matches([';', ',', '"']) == *table)
            {
                wrong.push(format!("{module}: `{} {}` without main.", pair[0], pair[1]));
            }
        }
        for line in code_lines(text) {
            if line.contains("OR IGNORE") || line.contains("OR REPLACE") {
                wrong.push(format!("{module}: {}: hides failures; name the conflict target", line.trim()));
            }
            if line.contains("datetime('now')") {
                wrong.push(format!("{module}: {}: times are integers that are passed in", line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn direct_dependencies_are_the_ones_agreed_on() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let section = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let mut direct: Vec<_> = section
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('=').map(|(name, _)| name.trim()))
        .collect();
    direct.sort_unstable();
    assert_eq!(direct, DEPENDENCIES);
}

#[test]
fn every_module_says_what_it_owns() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let silent: Vec<_> = source_files(&src)
        .into_iter()
        .filter(|file| !fs::read_to_string(file).unwrap().starts_with("//!"))
        .filter(|file| !file.ends_with("lib.rs"))
        .collect();
    assert!(silent.is_empty(), "no `//!` at the top: {silent:?}");
}
