//! Secrets as people and container engines hand them over: mounts, wrapped values, API keys, credentials.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use support::{Daemon, Ran};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_inboxd");

/// Appears in no output.
const SECRET: &str = "whsec_canary0123456789";

fn config(reference: &str) -> String {
    format!(
        "data_dir = \"data\"\n[listen]\nwebhooks = \"127.0.0.1:0\"\nadmin = \"off\"\n\
         [endpoint.billing]\nprovider = \"stripe\"\nsecrets = [\"{reference}\"]\n"
    )
}

fn folder(config: &str) -> TempDir {
    support::folder(config, &[])
}

fn write(path: &Path, content: impl AsRef<[u8]>, mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn ran(command: &mut Command, dir: &Path) -> Ran {
    let output = command.current_dir(dir).stdin(Stdio::null()).output().unwrap();
    let ran = Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    assert!(!ran.stdout.contains("canary") && !ran.stderr.contains("canary"), "a secret is shown: {ran:?}");
    ran
}

fn check_with(dir: &Path, variables: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(BINARY);
    ran(command.arg("check").envs(variables.iter().copied()), dir)
}

fn check(dir: &Path) -> Ran {
    check_with(dir, &[])
}

#[test]
fn a_secret_that_kubernetes_mounts_is_used_whatever_its_readers() {
    let dir = folder(&config("file:mounted/api/stripe"));
    let volume = dir.path().join("mounted/api");
    let file = volume.join("..2026_01_31_09_00_00.1/stripe");
    write(&file, SECRET, 0o600);
    symlink("..2026_01_31_09_00_00.1", volume.join("..data")).unwrap();
    symlink("..data/stripe", volume.join("stripe")).unwrap();
    for mode in [0o644, 0o640, 0o444, 0o440, 0o604] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let said = check(dir.path());
        assert_eq!(said.code, 0, "{mode:04o}: {said:?}");
        assert!(
            said.stdout.contains(&format!("mode {mode:04o} lets others read the secret; it is used")),
            "{said:?}"
        );
    }
    for mode in [0o620, 0o666] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let said = check(dir.path());
        assert!(
            said.code == 3 && said.stderr.contains("lets others write the secret"),
            "{mode:04o}: {said:?}"
        );
    }
    fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
    assert!(!check(dir.path()).stdout.contains("warning"));
}

#[test]
fn a_credentials_directory_that_is_such_a_mount_may_be_read_by_all() {
    let dir = folder(&config("credential:stripe"));
    let volume = dir.path().join("mounted");
    write(&volume.join("..1/stripe"), SECRET, 0o444);
    let directory = volume.to_str().unwrap();
    symlink("..1", volume.join("..data")).unwrap();
    symlink("..data/stripe", volume.join("stripe")).unwrap();
    let said = check_with(dir.path(), &[("CREDENTIALS_DIRECTORY", directory)]);
    assert_eq!(said.code, 0, "{said:?}");
    fs::remove_file(volume.join("stripe")).unwrap();
    write(&volume.join("stripe"), SECRET, 0o444);
    let said = check_with(dir.path(), &[("CREDENTIALS_DIRECTORY", directory)]);
    assert!(said.code == 3 && said.stderr.contains("chmod 600"), "an ordinary file: {said:?}");
}

#[test]
fn a_secret_of_another_user_that_others_can_only_read_is_used() {
    if !rustix::process::geteuid().is_root() {
        return support::skipped("needs root, to be two users");
    }
    let dir = folder(&config("file:a.secret"));
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let file = dir.path().join("a.secret");
    let as_user = || {
        let mut command = Command::new("setpriv");
        ran(command.args(["--reuid=65534", "--regid=65534", "--clear-groups", BINARY, "check"]), dir.path())
    };
    write(&file, SECRET, 0o444);
    let said = as_user();
    assert!(said.code == 0 && said.stdout.contains("user 0 owns it"), "{said:?}");
    write(&file, SECRET, 0o646);
    assert_eq!(as_user().code, 3, "others can write it");
    write(&file, SECRET, 0o644);
    chown(&file, Some(65534), None).unwrap();
    let said = as_user();
    assert!(said.code == 3 && said.stderr.contains("chmod 600 a.secret"), "its own: {said:?}");
}

#[test]
fn shared_secret_files_are_allowed_by_a_switch() {
    let dir = folder(&format!("{}[secrets]\nallow_shared_files = true\n", config("file:a.secret")));
    let file = dir.path().join("a.secret");
    for mode in [0o644, 0o440, 0o660] {
        write(&file, SECRET, mode);
        let said = check(dir.path());
        assert!(said.code == 0 && !said.stdout.contains("warning"), "{mode:04o}: {said:?}");
    }
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    let said = check(dir.path());
    assert!(said.code == 3 && said.stderr.contains("lets others write"), "{said:?}");
    let said = support::inboxd(dir.path(), &["check", "--print"]);
    assert_eq!(said.code, 3);
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    assert!(support::inboxd(dir.path(), &["check", "--print"]).stdout.contains("allow_shared_files = true"));
}

#[test]
fn a_secret_that_inboxd_has_made_itself_is_made_private_again() {
    let dir = Arc::new(folder(&config("file:data/secrets/billing")));
    let file = dir.path().join("data/secrets/billing");
    write(&file, SECRET, 0o660);
    let said = check(dir.path());
    assert!(said.code == 0 && said.stdout.contains("`inboxd serve` makes it 0600"), "{said:?}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o660, "check changes nothing");
    let daemon = Daemon::in_dir(dir);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(
        daemon.log().contains("mode 0660 let others read the secret; it is 0600 now"),
        "{}",
        daemon.log()
    );
}

#[test]
fn a_value_with_its_wrapping_is_told_at_check_and_at_the_start() {
    let dir = Arc::new(folder(&config("env:WRAPPED")));
    for (value, said) in [
        (format!("\"{SECRET}\""), "begins and ends in a quotation mark"),
        (format!("'{SECRET}'"), "begins and ends in a quotation mark"),
        (format!("export STRIPE={SECRET}"), "begins with \"export \""),
        (format!("STRIPE_WEBHOOK_SECRET={SECRET}"), "a name and a sign such as NAME="),
        (format!("\u{feff}{SECRET}"), "byte order mark"),
        (format!("{SECRET} "), "white space"),
    ] {
        let checked = check_with(dir.path(), &[("WRAPPED", &value)]);
        assert!(checked.code == 0 && checked.stdout.contains(said), "{said}: {checked:?}");
        assert!(checked.stdout.contains("endpoint.billing.secrets: \"env:WRAPPED\""), "{checked:?}");
        let mut command = Command::new(BINARY);
        command.env("WRAPPED", &value);
        let daemon = Daemon::spawn(Arc::clone(&dir), command);
        let log = daemon.log();
        assert!(log.lines().any(|line| line.contains("WARN") && line.contains(said)), "{said}: {log}");
        assert!(!log.contains("canary"), "{log}");
    }
    write(&dir.path().join("a.secret"), format!("{SECRET}\r\r\n"), 0o600);
    fs::write(dir.path().join("inboxd.toml"), config("file:a.secret")).unwrap();
    let checked = check(dir.path());
    assert!(checked.stdout.contains("a Windows line end"), "{checked:?}");
}

#[test]
fn a_wrapped_key_that_cannot_be_decoded_is_refused_with_the_wrapping_named() {
    let dir = folder(&config("env:WRAPPED").replace("stripe", "standardwebhooks"));
    let value = "\"whsec_Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5\"";
    let checked = check_with(dir.path(), &[("WRAPPED", value)]);
    assert!(checked.code == 3 && checked.stderr.contains("quotation mark"), "{checked:?}");
    assert!(!checked.stderr.contains("Y2Fu"), "{checked:?}");
}

#[test]
fn an_api_key_in_place_of_the_signing_secret_is_refused_or_warned_about() {
    let dir = folder(&config("env:KEY"));
    for key in [
        "sk_live_canary0123456789",
        "sk_test_canary0123456789",
        "rk_live_canary012345",
        "pk_test_canary012345",
    ] {
        let checked = check_with(dir.path(), &[("KEY", key)]);
        assert_eq!(checked.code, 3, "{checked:?}");
        for words in ["env:KEY", "of Stripe", "not a signing secret", "begins with whsec_"] {
            assert!(checked.stderr.contains(words), "{words}: {checked:?}");
        }
    }
    let checked = check_with(dir.path(), &[("KEY", "ghp_canary0123456789")]);
    assert!(
        checked.code == 0 && checked.stdout.contains("begins like an access token of GitHub"),
        "{checked:?}"
    );
    fs::write(dir.path().join("inboxd.toml"), config("env:KEY").replace("stripe", "github")).unwrap();
    let checked = check_with(dir.path(), &[("KEY", "sk_live_canary0123456789")]);
    assert!(checked.code == 0 && checked.stdout.contains("begins like an API key of Stripe"), "{checked:?}");
}

#[test]
fn with_credentials_of_the_service_a_shell_can_check_purge_and_test_alerts() {
    let more = "[alert]\ncommand = \"/bin/true\"\n\
        [endpoint.b]\nprovider = \"github\"\nsecrets = [\"credential:one\", \"credential:two\"]\n";
    let dir = Arc::new(folder(&format!("{}{more}", config("credential:stripe"))));
    let credentials = dir.path().join("credentials");
    for name in ["stripe", "one", "two"] {
        write(&credentials.join(name), SECRET, 0o400);
    }
    let mut command = Command::new(BINARY);
    command.env("CREDENTIALS_DIRECTORY", &credentials);
    let daemon = Daemon::spawn(Arc::clone(&dir), command);
    for verb in [
        &["check"][..],
        &["check", "--json"],
        &["check", "--print"],
        &["purge", "--dry-run"],
        &["purge"],
        &["alert", "test"],
    ] {
        let mut command = Command::new(BINARY);
        let said = ran(command.args(verb), dir.path());
        assert_eq!(said.code, 0, "{verb:?}: {said:?}");
    }
    let said = check(dir.path());
    let warning = "3 secrets come from systemd credentials and were not read; to try them, name the folder of their \
                   files: CREDENTIALS_DIRECTORY=/etc/inboxd inboxd check";
    assert!(said.stdout.contains(warning) && said.stdout.contains("credential:one not read"), "{said:?}");
    let said = check_with(dir.path(), &[("CREDENTIALS_DIRECTORY", credentials.to_str().unwrap())]);
    assert!(said.code == 0 && !said.stdout.contains("not read"), "{said:?}");
    assert_eq!(daemon.stop(), Some(0));
    // the daemon itself still needs them
    let mut command = Command::new(BINARY);
    let said = ran(command.arg("serve"), dir.path());
    assert!(said.code == 3 && said.stderr.contains("LoadCredential=stripe"), "{said:?}");
}

#[test]
fn verbs_that_need_no_secret_read_none() {
    let dir = folder(&format!("{}[alert]\ncommand = \"/bin/true\"\n", config("env:NOT_SET_IN_THIS_SHELL")));
    let said = support::inboxd(dir.path(), &["alert", "test"]);
    assert_eq!(said.code, 0, "{said:?}");
    let said = support::inboxd(dir.path(), &["check"]);
    assert!(said.code == 3 && said.stderr.contains("is not set"), "{said:?}");
}

#[test]
fn fingerprints_in_the_log_cannot_be_searched_with_guesses() {
    let dir = Arc::new(folder(&config("env:GUESSABLE")));
    let start = |dir: &Arc<TempDir>| {
        let mut command = Command::new(BINARY);
        command.env("GUESSABLE", "hunter");
        let daemon = Daemon::spawn(Arc::clone(dir), command);
        let log = daemon.log();
        let line = log.lines().find(|line| line.contains("secret env:GUESSABLE")).unwrap().trim().to_owned();
        assert_eq!(daemon.stop(), Some(0));
        line
    };
    let shown = start(&dir);
    assert!(shown.contains("(sha256:") && !shown.contains("boot"), "{shown}");
    assert_eq!(start(&dir), shown, "it stays the same, so that it can be compared");
    let key = dir.path().join("data/fingerprint.key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let checked = check_with(dir.path(), &[("GUESSABLE", "hunter")]).stdout;
    let print = shown.split(['(', ')']).nth(1).unwrap();
    assert!(checked.contains(print), "{checked}");
    // the same secret elsewhere shows another: nothing can be computed beforehand
    let other = Arc::new(folder(&config("env:GUESSABLE")));
    assert_ne!(start(&other), shown);
}
