//! What README and docs/ promise can be looked up: links lead somewhere, named tests exist, no verb, exit code or
//! table is missing, and what is shown as a configuration is one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn inboxd() -> Command {
    Command::new(env!("CARGO_BIN_EXE_inboxd"))
}

fn printed(args: &[&str]) -> String {
    let Output { status, stdout, .. } = inboxd().args(args).output().unwrap();
    assert!(status.success(), "{args:?}: {status}");
    String::from_utf8(stdout).unwrap()
}

/// README, CHANGELOG and all of docs/, by their path from the root.
fn pages() -> Vec<(PathBuf, String)> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = docs.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    paths.extend([root().join("README.md"), root().join("CHANGELOG.md")]);
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The lines of a page that are prose: no code block, fenced or indented. An indented line after prose goes on with it.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let (mut is_fenced, mut is_indented, mut after_blank) = (false, false, true);
    text.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        is_fenced ^= is_fence;
        is_indented = line.starts_with("    ") && (after_blank || is_indented);
        after_blank = line.is_empty();
        !is_fence && !is_fenced && !is_indented
    })
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    prose(text)
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor(line.trim_start_matches(['#', ' '])))
        .collect()
}

/// The texts between backticks, of the whole page: a piece of code may go on in the next line.
fn code_pieces(text: &str) -> Vec<String> {
    let joined = prose(text).collect::<Vec<_>>().join(" ");
    joined.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn readme_has_at_most_150_lines() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 150, "README.md has {lines} lines; details belong in docs/");
}

#[test]
fn every_link_leads_to_a_page_and_a_heading_that_exist() {
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        for line in prose(&text) {
            for link in line.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
                if link.starts_with("http") {
                    continue;
                }
                let (file, heading) = link.split_once('#').unwrap_or((link, ""));
                let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
                let exists = target.exists();
                let found = exists
                    && (heading.is_empty()
                        || anchors(&fs::read_to_string(&target).unwrap()).contains(heading));
                if !found {
                    wrong.push(format!("{}: {link}", page.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_page_can_be_reached_from_readme() {
    let readme = read("README.md");
    for (page, _) in pages() {
        let name = page.strip_prefix(root()).unwrap().to_str().unwrap();
        assert!(
            name == "README.md" || readme.contains(&format!("({name})")),
            "README.md has no link to {name}"
        );
    }
}

#[test]
fn every_test_that_is_named_as_a_proof_exists() {
    let mut wrong = Vec::new();
    let mut found = 0;
    for (page, text) in pages().iter().filter(|(page, _)| !page.ends_with("CHANGELOG.md")) {
        for piece in code_pieces(text) {
            let Some((file, name)) = piece.split_once("::") else { continue };
            let path = root().join("tests").join(format!("{file}.rs"));
            let Ok(source) = fs::read_to_string(path) else { continue };
            found += 1;
            if !source.contains(&format!("fn {name}(")) {
                wrong.push(format!("{}: {piece}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(found >= 40, "only {found} proofs were found");
}

#[test]
fn each_guarantee_names_a_proof() {
    let guarantees = read("docs/guarantees.md");
    let listed = guarantees.split("\n## ").next().unwrap();
    let numbered =
        |text: &str| text.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    let mut count = 0;
    for guarantee in listed.split("\n\n").flat_map(|block| split_items(block, numbered)) {
        count += 1;
        let proofs = code_pieces(&guarantee);
        let is_proof = |piece: &String| {
            let file = piece.split("::").next().unwrap();
            root().join("tests").join(format!("{file}.rs")).exists()
        };
        assert!(proofs.iter().any(is_proof), "no test: {guarantee}");
    }
    assert_eq!(count, 21);
    assert!(read("README.md").contains(&format!("[All {count}]")));
}

/// The items of a list, each with the lines that go on with it.
fn split_items(block: &str, is_first: impl Fn(&str) -> bool) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    for line in block.lines() {
        if is_first(line) {
            items.push(String::new());
        }
        if let Some(item) = items.last_mut() {
            item.push_str(line);
            item.push('\n');
        }
    }
    items
}

#[test]
fn every_room_has_a_row_in_the_map_in_the_order_of_lib_rs() {
    let lib = read("src/lib.rs");
    let rooms = lib
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
    let architecture = read("docs/architecture.md");
    let rows = architecture.lines().skip_while(|line| !line.starts_with("| room |"));
    let cells = rows.take_while(|line| line.starts_with('|')).filter_map(|line| line.split('|').nth(1));
    let named: Vec<_> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert_eq!(named, rooms.collect::<Vec<_>>());
}

#[test]
fn the_tables_that_are_made_in_an_applications_file_are_named() {
    let schema = read("schema.sql");
    let (before, rest) = schema.split_once("-- BOOKS:").unwrap();
    let (_, after) = rest.split_once("-- END OF BOOKS").unwrap();
    let manual = read("docs/handlers.md");
    let section =
        manual.split("\n## Inside your application's file\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let lines = before.lines().chain(after.lines());
    for table in lines.filter_map(|line| line.strip_prefix("CREATE TABLE ")?.split_whitespace().next()) {
        assert!(section.contains(&format!("`{table}`")), "docs/handlers.md does not name {table}");
    }
}

#[test]
fn every_verb_of_the_help_is_in_the_manual() {
    let help = printed(&["--help"]);
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let verbs: Vec<_> = commands.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(verbs.len() > 15 && verbs.contains(&"serve"), "{verbs:?}");
    let manual = read("docs/operating.md");
    for verb in verbs.into_iter().filter(|verb| *verb != "help") {
        let row = format!("| `inboxd {verb}` |");
        assert!(manual.contains(&row), "docs/operating.md has no row for `inboxd {verb}`");
    }
}

#[test]
fn every_exit_code_is_in_the_manual_and_no_other() {
    let man = printed(&["man"]);
    let listed = man.split("EXIT STATUS").nth(1).unwrap();
    let code = |line: &str| line.strip_prefix("\\fB")?.strip_suffix("\\fR")?.parse().ok();
    let of_man: BTreeSet<u8> = listed.lines().filter_map(code).collect();
    let manual = read("docs/operating.md");
    let section = manual.split("\n## Exit codes\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let row = |line: &str| line.strip_prefix("| ")?.split(' ').next()?.parse().ok();
    assert_eq!(section.lines().filter_map(row).collect::<BTreeSet<u8>>(), of_man);
    assert!(of_man.len() > 8, "{of_man:?}");
}

#[test]
fn every_kind_of_review_is_in_the_manual() {
    let source = read("src/store/reviews.rs");
    let words = source.split("fn as_str").nth(1).unwrap().split("\n    }\n").next().unwrap();
    let kinds: Vec<_> = words.split('"').skip(1).step_by(2).collect();
    assert!(kinds.len() > 5 && kinds.contains(&"replay"), "{kinds:?}");
    let manual = read("docs/operating.md");
    let section =
        manual.split("\n## What waits for a person\n").nth(1).unwrap().split("\n## ").next().unwrap();
    for kind in kinds {
        assert!(
            section.contains(&format!("kind `{kind}`")),
            "docs/operating.md does not explain reviews of kind {kind}"
        );
    }
}

#[test]
fn every_provider_is_in_the_manual() {
    let manual = read("docs/providers.md");
    let table = manual.split("\n\n").find(|block| block.starts_with("| kind |")).unwrap();
    let words: BTreeSet<_> = table.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    for line in printed(&["providers", "list"]).lines().skip(1) {
        let name = line.split_whitespace().next().unwrap();
        assert!(words.contains(name), "docs/providers.md does not name {name}");
    }
}

#[test]
fn every_configuration_that_is_shown_is_accepted_by_check() {
    let secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
    let mut shown = 0;
    for (page, text) in pages() {
        for block in text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
            shown += 1;
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("secret");
            fs::write(&file, secret).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            let own = block.replace("data_dir = \"/data\"", "data_dir = \"data\"");
            let mut pieces = own.split("\"file:");
            let mut config = pieces.next().unwrap().to_owned();
            for piece in pieces {
                let (_, rest) = piece.split_once('"').unwrap();
                config.push_str("\"file:secret\"");
                config.push_str(rest);
            }
            fs::write(dir.path().join("inboxd.toml"), &config).unwrap();
            let variables = config.split("\"env:").skip(1).map(|rest| rest.split('"').next().unwrap());
            let mut command = inboxd();
            command.arg("check").current_dir(dir.path()).envs(variables.map(|name| (name, secret)));
            let Output { status, stderr, .. } = command.output().unwrap();
            let said = String::from_utf8_lossy(&stderr);
            assert!(status.success(), "{}: {said}\n{block}", page.display());
        }
    }
    assert!(shown >= 5, "only {shown} configurations were found");
}
