//! Secrets: references (`env:VAR`, `file:PATH`, `credential:NAME`), reading, and making new ones. Who else may
//! read a secret's file is checked in `sharing`, suspicious values in `wrapping`.
//!
//! No message of this module contains a secret's value, nor a reference that looks like one.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use super::sharing::{self, Sharing};
use crate::signature::Secret;

/// More than any real secret; a bound for `file:/dev/zero`.
const SECRET_BYTES_MAX: u64 = 64 * 1024;
const HOW_TO_REFER: &str = "write \"env:VAR\", \"file:PATH\" or \"credential:NAME\"";

/// The variable's value, verbatim, however short.
///
/// # Errors
/// The variable is not set.
pub fn secret_from_env(variable: &str) -> Result<Secret, String> {
    match environment(variable) {
        Some(value) => Ok(Secret::new(format!("env:{variable}"), value.into_vec())),
        None => Err(format!("the variable {variable} is not set")),
    }
}

/// The file's content without one final newline, however short and whatever its mode.
///
/// # Errors
/// The file cannot be read, or is too large to be a secret.
pub fn secret_from_file(path: &Path) -> io::Result<Secret> {
    let (bytes, _file) = read_bounded(path)?;
    Ok(Secret::new(format!("file:{}", path.display()), bytes))
}

/// How secrets of the configuration are read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// What relative files are relative to.
    pub(super) base: PathBuf,
    /// `secrets.allow_shared_files`
    pub(super) allow_shared_files: bool,
    /// The folder of the secrets that inboxd makes itself.
    pub(super) own_folder: PathBuf,
    /// Whether the modes of files in that folder may be set.
    pub(super) may_repair: bool,
}

/// A secret that was read, with a warning about its file's mode.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) secret: Secret,
    /// A complete sentence, in which the file is named.
    pub(super) warning: Option<String>,
}

impl Reading {
    /// A secret of the configuration, by its reference.
    ///
    /// # Errors
    /// Reference, rule and what to do.
    pub(super) fn resolve(&self, reference: &str) -> Result<Found, String> {
        let read = match Reference::parse(reference)? {
            Reference::Env(variable) => from_env(variable).map(|bytes| (bytes, None)),
            Reference::File(path) => self.private_file(&self.base.join(path)),
            Reference::Credential(name) => self.credential(name),
        };
        let (bytes, warning) = read.map_err(|reason| format!("\"{reference}\": {reason}"))?;
        let warning = warning.map(|warning| format!("\"{reference}\": {warning}"));
        match bytes.len() {
            0 => Err(format!("\"{reference}\": the secret is empty; anybody could sign with it")),
            1..6 => Err(format!(
                "\"{reference}\": the secret is shorter than 6 bytes and can be guessed; use the provider's, or 32 random characters"
            )),
            _ => Ok(Found { secret: Secret::new(reference, bytes), warning }),
        }
    }

    fn private_file(&self, path: &Path) -> Result<(Vec<u8>, Option<String>), String> {
        let (bytes, file) = read_file(path)?;
        let mode = mode_of(&file, path)?;
        if mode & 0o077 == 0 {
            return Ok((bytes, None));
        }
        if plain(path).starts_with(plain(&self.own_folder)) && sharing::is_ours(&file) {
            return Ok((bytes, Some(self.repair(&file, mode))));
        }
        self.judge_sharing(&file, path, mode).map(|warning| (bytes, warning))
    }

    fn credential(&self, name: &str) -> Result<(Vec<u8>, Option<String>), String> {
        let Some(directory) = environment(CREDENTIALS_DIRECTORY) else {
            return Err(format!(
                "{CREDENTIALS_DIRECTORY} is not set; systemd sets it for a unit with LoadCredential={name}:PATH"
            ));
        };
        let path = Path::new(&directory).join(name);
        let (bytes, file) = read_file(&path)?;
        let mode = mode_of(&file, &path)?;
        // systemd grants the service's user access by an ACL, whose mask shows as a group bit
        if mode & 0o027 == 0 {
            return Ok((bytes, None));
        }
        self.judge_sharing(&file, &path, mode).map(|warning| (bytes, warning))
    }

    fn judge_sharing(&self, file: &File, path: &Path, mode: u32) -> Result<Option<String>, String> {
        let path_shown = path.display();
        let sharing = sharing::of(file, path, mode);
        // the switch is for files whose group is reset by other software
        if matches!(sharing, Sharing::Written) && (!self.allow_shared_files || mode & 0o002 != 0) {
            return Err(format!(
                "mode {mode:04o} lets others write the secret, and so sign with one of their own; run: chmod 600 {path_shown}"
            ));
        }
        match sharing {
            _ if self.allow_shared_files => Ok(None),
            Sharing::Given(why) => Ok(Some(format!(
                "mode {mode:04o} lets others read the secret; it is used, since {why} \
                 (allow_shared_files = true under [secrets] ends this warning)"
            ))),
            Sharing::Written | Sharing::Chosen => Err(format!(
                "mode {mode:04o} lets others read the secret; run: chmod 600 {path_shown}, or where something else sets \
                 the mode again, write allow_shared_files = true under [secrets]"
            )),
        }
    }

    /// Secrets that inboxd has made itself become private again, like its other files.
    fn repair(&self, file: &File, mode: u32) -> String {
        if !self.may_repair {
            return format!("mode {mode:04o} lets others read the secret; `inboxd serve` makes it 0600");
        }
        match file.set_permissions(Permissions::from_mode(0o600)) {
            Ok(()) => format!("mode {mode:04o} let others read the secret; it is 0600 now"),
            Err(error) => {
                format!("mode {mode:04o} lets others read the secret and cannot be changed: {error}")
            }
        }
    }
}

/// A secret that stays unread: only its reference is known.
///
/// # Errors
/// The text is not a reference.
pub(super) fn unread(reference: &str) -> Result<Secret, String> {
    Reference::parse(reference)?;
    Ok(Secret::new(reference, []))
}

/// Whether this secret is a credential and no service manager has provided it.
pub(super) fn needs_service(reference: &str) -> bool {
    matches!(Reference::parse(reference), Ok(Reference::Credential(_)))
        && environment(CREDENTIALS_DIRECTORY).is_none()
}

/// What systemd tells a unit with `LoadCredential=`.
const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// The path without `.` in it, for comparing.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
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
            Some(("credential", name)) if name.contains('/') || name == ".." || name == "." => {
                Err(format!("\"{text}\": a credential's name is a plain file name"))
            }
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

/// Long and without separators of names or paths: 24 hex digits or more, or digits mixed with letters of both
/// cases.
fn looks_random(text: &str) -> bool {
    let has = |of: fn(&u8) -> bool| text.bytes().any(|byte| of(&byte));
    let is_mixed = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    text.len() >= 24
        && has(u8::is_ascii_digit)
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=".contains(&byte))
        && (is_mixed || text.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn from_env(variable: &str) -> Result<Vec<u8>, String> {
    environment(variable)
        .map(OsString::into_vec)
        .ok_or_else(|| format!("the variable {variable} is not set; set it: export {variable}=…"))
}

fn mode_of(file: &File, path: &Path) -> Result<u32, String> {
    let found =
        file.metadata().map_err(|error| format!("{} cannot be looked at: {error}", path.display()))?;
    Ok(found.permissions().mode() & 0o7777)
}

fn read_file(path: &Path) -> Result<(Vec<u8>, File), String> {
    read_bounded(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

/// The content and the open file itself, so that mode and owner are those of the file that was read.
fn read_bounded(path: &Path) -> io::Result<(Vec<u8>, File)> {
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    (&file).take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SECRET_BYTES_MAX {
        return Err(io::Error::other("it is larger than 64 KiB and cannot be a secret"));
    }
    drop_final_newline(&mut bytes);
    Ok((bytes, file))
}

fn drop_final_newline(bytes: &mut Vec<u8>) {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
}

/// A variable of the environment.
#[allow(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn environment(variable: &str) -> Option<OsString> {
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
            let message = Reading::default().resolve(typed).expect_err(typed);
            assert!(!message.contains("canary") && !message.contains("can-ary"), "{message}");
            assert!(message.contains("env:"), "{message}");
        }
    }
}
