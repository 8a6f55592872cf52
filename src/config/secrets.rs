//! Secrets: references (`env:VAR`, `file:PATH`, `credential:NAME`), reading, and making new ones.
//!
//! No message of this module contains a secret's value, nor a reference that looks like one.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::verify::Secret;

/// More than any real secret; a bound for `file:/dev/zero`.
const SECRET_BYTES_MAX: u64 = 64 * 1024;
const HOW_TO_REFER: &str = "write \"env:VAR\", \"file:PATH\" or \"credential:NAME\"";

/// The variable's value, verbatim, however short.
///
/// # Errors
/// The variable is not set.
pub fn secret_from_env(variable: &str) -> Result<Secret, String> {
    match env(variable) {
        Some(value) => Ok(Secret::new(format!("env:{variable}"), value.into_vec())),
        None => Err(format!("the variable {variable} is not set")),
    }
}

/// The file's content without one final newline, however short and whatever its mode.
///
/// # Errors
/// The file cannot be read, or is too large to be a secret.
pub fn secret_from_file(path: &Path) -> io::Result<Secret> {
    let (bytes, _mode) = read_bounded(path)?;
    Ok(Secret::new(format!("file:{}", path.display()), bytes))
}

/// A secret of the configuration, by its reference. Relative files are relative to `base`.
///
/// # Errors
/// Reference, rule and what to do.
pub(super) fn resolve(reference: &str, base: &Path) -> Result<Secret, String> {
    let bytes = match Reference::parse(reference)? {
        Reference::Env(variable) => from_env(variable),
        Reference::File(path) => from_private_file(&base.join(path)),
        Reference::Credential(name) => from_credential(name),
    }
    .map_err(|reason| format!("\"{reference}\": {reason}"))?;
    match bytes.len() {
        0 => Err(format!("\"{reference}\": the secret is empty; anybody could sign with it")),
        1..6 => Err(format!(
            "\"{reference}\": the secret is shorter than 6 bytes and can be guessed; use the provider's, or 32 random characters"
        )),
        _ => Ok(Secret::new(reference, bytes)),
    }
}

/// What is odd about a secret that may be used.
pub(super) fn oddities(secret: &Secret) -> Vec<&'static str> {
    let bytes = secret.expose();
    let mut odd = Vec::new();
    if bytes.len() < 16 {
        odd.push("the secret is shorter than 16 bytes; a longer one is harder to guess");
    }
    if bytes.trim_ascii().len() != bytes.len() {
        odd.push("the secret begins or ends in white space, which is part of it; was it pasted with it?");
    }
    odd
}

enum Reference<'a> {
    Env(&'a str),
    File(&'a str),
    Credential(&'a str),
}

impl<'a> Reference<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        match text.split_once(':') {
            _ if text.is_empty() => Err(format!("\"\": names no secret; {HOW_TO_REFER}")),
            Some((_, rest)) if looks_secret(rest) => Err(literal()),
            Some(("env" | "file" | "credential", "")) => {
                Err(format!("\"{text}\": names nothing; {HOW_TO_REFER}"))
            }
            Some(("env", variable)) if is_variable(variable) => Ok(Self::Env(variable)),
            Some(("file", path)) => Ok(Self::File(path)),
            Some(("credential", name)) => Ok(Self::Credential(name)),
            _ => Err(literal()),
        }
    }
}

fn literal() -> String {
    format!(
        "a secret stands in the file itself (not shown here); put it into the environment or a file and {HOW_TO_REFER}"
    )
}

fn is_variable(text: &str) -> bool {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_word && !text.starts_with(|first: char| first.is_ascii_digit())
}

/// What real secrets begin with, pasted behind `env:` by mistake: webhook secrets, API keys and tokens of
/// Stripe, GitHub, GitLab, Shopify, Slack, SendGrid and AWS, JSON Web Tokens, PEM, whole headers.
const SECRET_PREFIXES: [&str; 31] = [
    "whsec_",
    "whsec-",
    "whsk_",
    "whpk_",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "rk_test_",
    "pk_live_",
    "sk-",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "shpss_",
    "shpat_",
    "shpca_",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "SG.",
    "AKIA",
    "eyJ",
    "-----BEGIN",
    "v1,",
    "v1a,",
    "Bearer ",
    "Basic ",
];

fn looks_secret(text: &str) -> bool {
    SECRET_PREFIXES.iter().any(|prefix| text.starts_with(prefix)) || looks_random(text)
}

/// Long and without any of what divides a name or a path: 24 hex digits or more, or letters of both cases
/// among digits.
fn looks_random(text: &str) -> bool {
    let has = |of: fn(&u8) -> bool| text.bytes().any(|byte| of(&byte));
    let is_mixed = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    text.len() >= 24
        && has(u8::is_ascii_digit)
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=".contains(&byte))
        && (is_mixed || text.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn from_env(variable: &str) -> Result<Vec<u8>, String> {
    env(variable)
        .map(OsString::into_vec)
        .ok_or_else(|| format!("the variable {variable} is not set; set it: export {variable}=…"))
}

fn from_private_file(path: &Path) -> Result<Vec<u8>, String> {
    let (bytes, mode) = read_file(path)?;
    if mode & 0o077 != 0 {
        return Err(format!(
            "mode {:04o} lets others read the secret; run: chmod 600 {}",
            mode & 0o7777,
            path.display()
        ));
    }
    Ok(bytes)
}

fn from_credential(name: &str) -> Result<Vec<u8>, String> {
    if name.contains('/') || name == ".." || name == "." {
        return Err("a credential's name is a plain file name".to_owned());
    }
    let Some(directory) = env("CREDENTIALS_DIRECTORY") else {
        return Err(format!(
            "CREDENTIALS_DIRECTORY is not set; systemd sets it for a unit with LoadCredential={name}:PATH"
        ));
    };
    let (bytes, mode) = read_file(&Path::new(&directory).join(name))?;
    // systemd grants the service's user access by an ACL, whose mask shows as a group bit
    if mode & 0o007 != 0 {
        return Err(format!("mode {:04o} lets everybody read the secret", mode & 0o7777));
    }
    Ok(bytes)
}

fn read_file(path: &Path) -> Result<(Vec<u8>, u32), String> {
    read_bounded(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

/// Content and mode of the same open file, so that neither can be exchanged in between.
fn read_bounded(path: &Path) -> io::Result<(Vec<u8>, u32)> {
    let file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    let mut bytes = Vec::new();
    file.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SECRET_BYTES_MAX {
        return Err(io::Error::other("it is larger than 64 KiB and cannot be a secret"));
    }
    drop_final_newline(&mut bytes);
    Ok((bytes, mode))
}

fn drop_final_newline(bytes: &mut Vec<u8>) {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub(super) fn env(variable: &str) -> Option<OsString> {
    std::env::var_os(variable)
}

/// What a secret made here looks like.
#[derive(Debug, Clone, Copy)]
pub(super) enum Style {
    /// `whsec_` and 32 letters and digits, as `stripe listen` prints.
    Stripe,
    /// 32 hex digits.
    Hex,
}

/// The secret kept in `path`; made first where the file does not exist. Directories are made 0700,
/// the file 0600. Two processes that start together end up with the same secret.
pub(super) fn keep(path: &Path, style: Style) -> io::Result<()> {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let directory = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let draft = draft_path(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = write_new(&mut file, style).and_then(|()| fs::hard_link(&draft, path));
    fs::remove_file(&draft)?;
    match written {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn draft_path(path: &Path) -> PathBuf {
    path.with_extension(format!("{}.tmp", std::process::id()))
}

fn write_new(file: &mut File, style: Style) -> io::Result<()> {
    let secret = match style {
        Style::Stripe => format!("whsec_{}", random_text(BASE62)?),
        Style::Hex => random_text(HEX)?,
    };
    writeln!(file, "{secret}")?;
    file.sync_all()
}

const BASE62: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const HEX: &[u8] = b"0123456789abcdef";

/// 32 characters, each equally likely.
fn random_text(alphabet: &[u8]) -> io::Result<String> {
    let mut text = String::new();
    while text.len() < 32 {
        let mut bytes = [0; 64];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let chosen = bytes.iter().filter_map(|byte| alphabet.get(usize::from(byte & 63)));
        text.extend(chosen.take(32 - text.len()).map(|byte| char::from(*byte)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_final_newline_is_dropped_and_no_more() {
        for (content, secret) in [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a"), ("\n", "")] {
            let mut bytes = content.as_bytes().to_vec();
            drop_final_newline(&mut bytes);
            assert_eq!(bytes, secret.as_bytes());
        }
    }

    #[test]
    fn made_secrets_have_the_providers_shape() {
        for alphabet in [BASE62, HEX] {
            let text = random_text(alphabet).unwrap();
            assert_eq!(text.len(), 32);
            assert!(text.bytes().all(|byte| alphabet.contains(&byte)));
            assert_ne!(text, random_text(alphabet).unwrap());
        }
    }

    #[test]
    fn a_kept_secret_is_private_and_stays_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/secrets/billing");
        keep(&path, Style::Stripe).unwrap();
        let first = fs::read(&path).unwrap();
        keep(&path, Style::Stripe).unwrap();
        assert_eq!(fs::read(&path).unwrap(), first);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let directory = path.parent().unwrap();
        assert_eq!(fs::metadata(directory).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(directory).unwrap().count(), 1, "no draft is left behind");
    }

    #[test]
    fn what_looks_like_a_secret_is_never_quoted() {
        for typed in [
            "whsec_canary",
            "env:whsec_canary",
            "file:whsec_canary",
            "canary",
            "env:can-ary",
            "vault:canary",
            "env:ghp_canary",
            "env:sk-canary",
            "file:xoxb-canary",
            "env:0123456789abcdef0123456789abcdef",
            "env:canaryCANARY0123456789AZ",
            "credential:github_pat_canary",
        ] {
            let message = resolve(typed, Path::new("")).expect_err(typed);
            assert!(!message.contains("canary") && !message.contains("can-ary"), "{message}");
            assert!(message.contains("env:"), "{message}");
        }
    }
}
