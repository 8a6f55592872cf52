//! What no compiler checks: who may use whom, which module names which table, which crates are direct.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms that are judged file by file.
const ROOMS: &[&str] = &["background", "admin", "intake", "work", "books", "store"];

/// The modules from the top of the house to the ground, each with those of the crate it may use. `lib.rs` declares the
/// rooms in the same order, and no arrow leads upwards. `cli` may use all of them.
const EDGES: &[(&str, &[&str])] = &[
    (
        "daemon",
        &[
            "background",
            "background::worker",
            "background::dispatcher",
            "admin::site",
            "admin::login",
            "admin::people",
            "intake::front",
            "intake::exchange",
            "intake::answer",
            "intake::deliveries",
            "intake::proxy",
            "work::endpoint",
            "work::target",
            "work::timeline",
            "handlers",
            "config",
            "store",
            "store::open",
            "store::writer",
            "store::inbox",
            "store::outbox",
            "store::meta",
            "store::overview",
            "providers",
            "clock",
            "wake",
        ],
    ),
    ("background", &["intake::deliveries", "work::timeline", "config", "store::writer", "clock", "wake"]),
    ("background::poller", &["work::lease", "work::retry", "store", "store::writer", "clock", "wake"]),
    (
        "background::worker",
        &[
            "measure",
            "work::endpoint",
            "work::content",
            "work::screen",
            "work::apply",
            "work::retry",
            "config",
            "store",
            "store::writer",
            "store::inbox",
            "store::reviews",
            "store::meta",
            "clock",
        ],
    ),
    (
        "background::dispatcher",
        &[
            "measure",
            "work::target",
            "work::lease",
            "work::retry",
            "config",
            "store",
            "store::writer",
            "store::outbox",
            "store::reviews",
            "outgoing",
            "clock",
            "wake",
        ],
    ),
    ("background::circuit", &["work::retry"]),
    (
        "background::given_up",
        &["work::timeline", "work::retry", "store::writer", "store::inbox", "store::reviews"],
    ),
    (
        "background::retention",
        &[
            "work::timeline",
            "work::retry",
            "store",
            "store::open",
            "store::writer",
            "store::inbox",
            "store::outbox",
            "store::meta",
            "store::page",
            "terminal",
        ],
    ),
    ("background::upkeep", &["work::timeline", "config", "store::open", "store::writer", "clock"]),
    (
        "background::noting",
        &["store::minutes", "intake::deliveries", "store::writer", "store::meta", "clock"],
    ),
    (
        "background::alerts",
        &[
            "store::minutes",
            "store::meta",
            "store::overview",
            "terminal",
            "background::stop",
            "config",
            "store",
            "store::open",
            "store::writer",
            "store::inbox",
            "store::outbox",
            "store::reviews",
            "outgoing",
            "clock",
            "wake",
        ],
    ),
    ("background::stop", &["store::writer", "wake"]),
    ("admin", &[]),
    (
        "admin::site",
        &[
            "intake::front",
            "intake::exchange",
            "intake::deliveries",
            "config",
            "store::writer",
            "store::inbox",
            "store::outbox",
            "clock",
            "wake",
        ],
    ),
    (
        "admin::pages",
        &[
            "admin::running",
            "admin::bulk",
            "admin::filter",
            "admin::jobs",
            "admin::chart",
            "admin::json",
            "admin::frame",
            "admin::login",
            "admin::http",
            "admin::reading",
            "intake::exchange",
            "intake::refused",
            "books::ledger",
            "store",
            "store::inbox",
            "store::outbox",
            "store::reviews",
            "store::meta",
            "store::audit",
            "store::minutes",
            "store::overview",
            "logging",
            "encode",
        ],
    ),
    (
        "admin::running",
        &[
            "intake::front",
            "intake::exchange",
            "intake::deliveries",
            "config",
            "store::open",
            "clock",
            "wake",
        ],
    ),
    (
        "admin::bulk",
        &["config", "store::writer", "store::inbox", "store::outbox", "store::reviews", "clock", "terminal"],
    ),
    (
        "admin::acts",
        &[
            "work::hand_on",
            "config",
            "store",
            "store::inbox",
            "store::outbox",
            "store::reviews",
            "store::audit",
        ],
    ),
    ("admin::retry", &["work::hand_on", "config", "store", "store::inbox", "store::outbox"]),
    ("admin::filter", &["config", "store::inbox", "store::outbox", "store::reviews"]),
    ("admin::jobs", &["clock", "wake"]),
    ("admin::metrics", &["store", "store::inbox", "store::outbox", "store::reviews", "logging", "measure"]),
    ("admin::chart", &[]),
    ("admin::json", &[]),
    ("admin::frame", &["config", "terminal"]),
    ("admin::login", &["config", "encode", "wake"]),
    ("admin::http", &["intake::exchange", "encode"]),
    ("admin::reading", &["store", "store::open"]),
    ("admin::people", &[]),
    ("intake", &[]),
    (
        "intake::front",
        &[
            "intake::exchange",
            "intake::answer",
            "intake::permit",
            "intake::refused",
            "logging",
            "measure",
            "clock",
            "wake",
        ],
    ),
    (
        "intake::deliveries",
        &[
            "measure",
            "intake::front",
            "intake::exchange",
            "intake::answer",
            "intake::permit",
            "intake::receive",
            "intake::refused",
            "intake::proxy",
            "work::endpoint",
            "work::screen",
            "config",
            "store::writer",
            "verify",
            "providers",
            "signature",
            "logging",
            "clock",
            "wake",
        ],
    ),
    ("intake::exchange", &["clock", "wake"]),
    ("intake::answer", &["intake::exchange", "intake::receive", "providers", "signature"]),
    ("intake::permit", &["wake"]),
    (
        "intake::receive",
        &[
            "work",
            "work::endpoint",
            "work::content",
            "work::screen",
            "work::apply",
            "work::forward",
            "work::lease",
            "work::retry",
            "config",
            "store",
            "store::writer",
            "store::inbox",
            "store::reviews",
            "verify",
            "providers",
            "clock",
            "failpoint",
        ],
    ),
    ("intake::refused", &["verify", "signature", "wake"]),
    (
        "intake::proxy",
        &[
            "intake::receive",
            "work",
            "work::endpoint",
            "work::apply",
            "work::target",
            "work::lease",
            "work::retry",
            "store::writer",
            "store::inbox",
            "store::outbox",
            "verify",
            "outgoing",
        ],
    ),
    ("work", &["handlers", "store::writer", "store::inbox", "store::reviews"]),
    ("work::endpoint", &["handlers", "config"]),
    ("work::screen", &["work::endpoint", "config", "verify"]),
    ("work::content", &["store::inbox", "signature", "verify"]),
    (
        "work::apply",
        &[
            "measure",
            "work",
            "work::endpoint",
            "work::content",
            "work::screen",
            "work::forward",
            "work::parking",
            "handlers",
            "store",
            "store::writer",
            "store::inbox",
            "store::reviews",
        ],
    ),
    ("work::forward", &["work::content", "config", "store", "store::outbox"]),
    (
        "work::hand_on",
        &["work", "work::apply", "work::content", "work::forward", "work::retry", "store", "store::inbox"],
    ),
    (
        "work::parking",
        &["work", "work::timeline", "work::retry", "handlers", "store", "store::inbox", "store::reviews"],
    ),
    (
        "work::target",
        &["work::endpoint", "work::retry", "config", "providers", "signature", "outgoing", "encode"],
    ),
    ("work::timeline", &["store", "store::inbox", "store::outbox", "store::meta"]),
    ("work::lease", &["wake"]),
    ("work::retry", &[]),
    (
        "handlers",
        &[
            "books",
            "books::kinds",
            "books::facts",
            "books::ledger",
            "books::invoices",
            "books::receivables",
            "books::charges",
            "books::sales",
            "books::disputes",
            "books::credit_notes",
            "books::payouts",
            "books::described",
            "books::currencies",
            "books::subscriptions",
            "books::orders",
            // what a handler says of itself, in the words of the configuration's rules
            "config",
            "store::inbox",
            "store::outbox",
            "store::reviews",
            "wake",
        ],
    ),
    ("books", &[]),
    ("books::kinds", &[]),
    ("books::facts", &[]),
    ("books::ledger", &["books::facts", "books::kinds"]),
    ("books::invoices", &["books::facts"]),
    // what the books should hold of each kind of object: pure
    ("books::receivables", &["books::facts", "books::invoices", "books::kinds", "books::ledger"]),
    ("books::charges", &["books::facts", "books::kinds", "books::ledger"]),
    ("books::sales", &["books::facts", "books::kinds", "books::ledger"]),
    ("books::disputes", &["books::facts", "books::kinds", "books::ledger"]),
    ("books::credit_notes", &["books::facts", "books::kinds", "books::ledger"]),
    ("books::payouts", &["books::facts", "books::kinds", "books::ledger"]),
    ("books::described", &["books::facts", "books::kinds", "books::ledger"]),
    ("books::currencies", &[]),
    ("books::subscriptions", &[]),
    ("books::orders", &[]),
    ("config", &["verify", "providers", "signature", "outgoing", "terminal"]),
    ("store", &[]),
    ("store::open", &["store::meta", "clock", "failpoint"]),
    ("store::writer", &["measure", "store::open", "wake", "failpoint"]),
    ("store::inbox", &["store::page", "verify", "signature"]),
    ("store::outbox", &["store::page", "encode"]),
    ("store::reviews", &[]),
    ("store::meta", &[]),
    ("store::audit", &[]),
    ("store::minutes", &["measure"]),
    ("store::page", &[]),
    ("store::query", &[]),
    (
        "store::overview",
        &["store::inbox", "store::outbox", "store::reviews", "store::meta", "clock", "terminal"],
    ),
    ("verify", &["providers", "signature"]),
    ("providers", &["signature", "encode"]),
    ("signature", &["encode"]),
    ("outgoing", &["encode"]),
    ("logging", &["clock", "wake", "terminal"]),
    ("measure", &["wake"]),
    ("clock", &[]),
    ("encode", &[]),
    ("wake", &[]),
    ("terminal", &[]),
    ("failpoint", &[]),
];

/// Rooms whose files use each other in one direction only: `mod.rs` declares them from the top to the ground, and has
/// nothing else but what it shows of them.
const LAYERED: &[&str] = &["verify", "providers", "signature"];

/// Each table belongs to one module; the others ask that module.
const TABLES: &[(&str, &str)] = &[
    ("webhook_inbox", "store::inbox"),
    ("webhook_attempts", "store::inbox"),
    ("webhook_counts", "store::inbox"),
    ("webhook_failures", "store::inbox"),
    ("webhook_conflicts", "store::inbox"),
    ("ledger_entries", "books::ledger"),
    ("ledger_kinds", "books::ledger"),
    ("money_facts", "books::facts"),
    ("subscription_states", "books::subscriptions"),
    ("invoices", "books::invoices"),
    ("orders", "books::orders"),
    ("inboxd_meta", "store::meta"),
    ("inboxd_audit", "store::audit"),
    ("inboxd_minutes", "store::minutes"),
    ("outbox", "store::outbox"),
    ("outbox_attempts", "store::outbox"),
    ("outbox_destinations", "store::outbox"),
    ("reviews", "store::reviews"),
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
    "maud",
    "p256",
    "rusqlite",
    "rustix",
    "sd-notify",
    "serde",
    "serde_json",
    "sha1",
    "sha2",
    "signal-hook",
    "strsim",
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

/// Every file under `src`, by the module it belongs to, without its unit tests; of a room that is judged file by
/// file, by `room::file`.
fn modules() -> BTreeMap<String, String> {
    let mut modules = BTreeMap::<String, String>::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in source_files(&src) {
        let relative = file.strip_prefix(&src).unwrap();
        let mut parts = relative.iter().map(|part| part.to_str().unwrap().trim_end_matches(".rs"));
        let first = parts.next().unwrap();
        let name = match parts.next().filter(|_| ROOMS.contains(&first)) {
            Some(second) if second != "mod" => format!("{first}::{second}"),
            _ => first.to_owned(),
        };
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        modules.entry(name).or_default().push_str(code);
    }
    modules
}

fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with("//"))
}

/// Whether what follows `crate::MODULE` ends the name, and does not go on to a file that is judged by itself.
fn names(module: &str, rest: &str) -> bool {
    if rest.starts_with(|next: char| next.is_alphanumeric() || next == '_') {
        return false;
    }
    let next = rest.strip_prefix("::").map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        format!("{module}::{}", &rest[..end])
    });
    !next.is_some_and(|longer| EDGES.iter().any(|(name, _)| *name == longer))
}

#[test]
fn no_arrow_leads_upwards() {
    let room = |name: &str| name.split("::").next().unwrap().to_owned();
    let mut floors: Vec<_> = EDGES.iter().map(|(name, _)| room(name)).collect();
    floors.dedup();
    let floor = |name: &str| floors.iter().position(|floor| *floor == room(name)).unwrap();
    let up = |(from, to): &(&str, &str)| floor(to) < floor(from);
    let edges = EDGES.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, *to)));
    let wrong: Vec<_> = edges.filter(up).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(floors.len() <= 24, "{floors:?}");
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
                let is_used = line.match_indices(&path).any(|(at, _)| names(used, &line[at + path.len()..]));
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

/// The files of a room that a line names, as `super::file` or `super::{file, file::{…}}`.
fn siblings(line: &str) -> Vec<String> {
    let word = |text: &str| {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        text[..end].to_owned()
    };
    let mut named = Vec::new();
    for (at, _) in line.match_indices("super::") {
        let rest = &line[at + "super::".len()..];
        match rest.strip_prefix('{') {
            None => named.push(word(rest)),
            Some(list) => named.extend(list.split(',').map(|item| word(item.trim()))),
        }
    }
    named
}

#[test]
fn inside_a_room_files_use_only_those_that_are_declared_below_them() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for room in LAYERED {
        let front = fs::read_to_string(src.join(room).join("mod.rs")).unwrap();
        let declared = |line: &str| {
            let line = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
            Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned())
        };
        let files: Vec<_> = code_lines(&front).filter_map(declared).collect();
        assert!(files.len() > 2 && !front.contains("fn "), "src/{room}/mod.rs only declares its files");
        for (floor, file) in files.iter().enumerate() {
            let path = src.join(room).join(format!("{file}.rs"));
            let path = if path.exists() { path } else { src.join(room).join(file).join("mod.rs") };
            let text = fs::read_to_string(path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            // a `use` of several lines is read as one
            let code = code.replace(",\n    ", ", ").replace("{\n    ", "{");
            for line in code_lines(&code) {
                for used in siblings(line) {
                    if !files[floor + 1..].contains(&used) {
                        wrong.push(format!("{room}/{file} uses {used}: {}", line.trim()));
                    }
                }
                if line.contains(&format!("crate::{room}::")) {
                    wrong.push(format!("{room}/{file}: write super::…: {}", line.trim()));
                }
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
    let mut expected: Vec<_> = EDGES.iter().map(|(name, _)| name.split("::").next().unwrap()).collect();
    expected.dedup();
    expected.insert(0, "cli");
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

/// The rooms that know that what is stored is stored in SQLite. The others pass on `store`'s types; the crate itself
/// shows the transaction's type to handlers.
const SQLITE_ROOMS: &[&str] = &["store", "handlers", "books", "lib"];

#[test]
fn sqlite_is_named_in_its_own_rooms_only() {
    let mut wrong = Vec::new();
    for (module, text) in &modules() {
        let room = module.split("::").next().unwrap();
        let named = code_lines(text).filter(|line| line.contains("rusqlite"));
        if !SQLITE_ROOMS.contains(&room) {
            wrong.extend(named.map(|line| format!("{module}: {}: ask `store`", line.trim())));
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

/// What strangers wrote reaches a page through maud's escaping alone.
#[test]
fn no_page_is_made_of_text_that_was_not_escaped() {
    let modules = modules();
    let pages = modules.iter().filter(|(module, _)| module.starts_with("admin"));
    let raw: Vec<_> =
        pages.filter(|(_, text)| text.contains("PreEscaped")).map(|(module, _)| module).collect();
    assert!(raw.is_empty(), "{raw:?}");
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
