//! `init`: writes a configuration file to start from. It asks nothing and knows no secret.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{
    DEFAULT_FILES, closest, default_of, development_secret, duration_text, preset_exists, preset_names,
    remark,
};
use crate::providers::{self, Preset};
use clap::Args;

use super::args::Names;
use super::{Context, Exit, Failure, put, say};

/// Write a short configuration file to start from
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Where to write it [default: --config, else inboxd.toml]
    pub(crate) path: Option<PathBuf>,
    /// Who sends: a name from `inboxd providers list`, or custom
    #[arg(long, default_value = "stripe", value_parser = Names::of_providers(), hide_possible_values = true)]
    pub(crate) provider: String,
    /// The endpoint's name [default: billing for stripe, else the provider's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) endpoint: Option<String>,
    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,
    /// For the units in systemd/: secrets as credentials, the unit's drop-in to stdout, and the next steps
    #[arg(long)]
    pub(crate) systemd: bool,
}

/// What the unit reads.
const SERVICE_FILE: &str = "/etc/inboxd/inboxd.toml";

/// Exit 0, or 5 where the file exists and `--force` is not given.
pub(crate) fn run(args: &InitArgs, context: &Context) -> Result<(), Failure> {
    let path = path(args, context)?;
    let provider = providers::find(&args.provider).map_or(args.provider.as_str(), |preset| preset.name);
    if !preset_exists(provider) && provider != "custom" {
        return Err(unknown_provider(provider));
    }
    let endpoint =
        args.endpoint.as_deref().unwrap_or(if provider == "stripe" { "billing" } else { provider });
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    if !(1..=64).contains(&endpoint.len()) || !endpoint.chars().all(is_plain) {
        let rule = "an endpoint's name has 1 to 64 characters of a-z, 0-9, _ and -";
        return Err(Failure::new(Exit::Usage, format!("--endpoint: {rule}")));
    }
    let draft = Draft {
        provider,
        endpoint,
        // the development instance's, unless it is to stand beside another
        path: format!("/webhooks/{}", args.endpoint.as_deref().unwrap_or(provider)),
        variable: secret_variable(provider),
        kept: kept_secret(&path, provider).filter(|_| !args.systemd),
        is_service: args.systemd || path.starts_with("/etc"),
        is_unit: args.systemd,
    };
    let mode = if draft.is_service { 0o640 } else { 0o600 };
    write(&path, &draft.text(), args.force, mode)?;
    if !args.systemd {
        say_what_is_next(&path, &draft, mode);
        return Ok(());
    }
    say_what_the_service_needs(&path, &draft);
    put(&draft.drop_in())
}

/// `inboxd init FILE` and `inboxd --config FILE init` mean the same.
fn path(args: &InitArgs, context: &Context) -> Result<PathBuf, Failure> {
    match (&args.path, context.config_file()) {
        (Some(path), Some(other)) if path != other => Err(Failure::new(
            Exit::Usage,
            format!("write to {} or to {}? Name one file", path.display(), other.display()),
        )),
        (Some(path), _) => Ok(path.clone()),
        (None, Some(path)) => Ok(path.to_owned()),
        (None, None) => Ok(PathBuf::from("inboxd.toml")),
    }
}

/// The secret that a development instance in the same directory has made for this provider.
fn kept_secret(path: &Path, provider: &str) -> Option<PathBuf> {
    let secret = development_secret(provider)?;
    let base = path.parent().unwrap_or(Path::new(""));
    base.join(&secret).is_file().then_some(secret)
}

fn unknown_provider(typed: &str) -> Failure {
    let known = || preset_names().into_iter().chain(["custom"]);
    let advice = match closest(typed, known()) {
        Some(word) => format!("did you mean {word}?"),
        None => format!("known: {}", known().collect::<Vec<_>>().join(", ")),
    };
    Failure::new(Exit::Usage, format!("--provider {typed}: is unknown; {advice}"))
}

struct Draft<'a> {
    provider: &'a str,
    endpoint: &'a str,
    path: String,
    variable: String,
    kept: Option<PathBuf>,
    /// Whether a user of its own is to read the file.
    is_service: bool,
    /// Whether it is for the units in `systemd/`.
    is_unit: bool,
}

impl Draft<'_> {
    /// The credential's name, which is its file's as well.
    fn credential(&self) -> String {
        self.variable.to_lowercase()
    }

    /// The unit's drop-in for this configuration.
    fn drop_in(&self) -> String {
        let name = self.credential();
        format!(
            "# the secrets that inboxd.toml names as credential:NAME; a line for each\n\
             [Service]\nLoadCredential={name}:/etc/inboxd/{name}\n"
        )
    }

    fn text(&self) -> String {
        let Self { provider, endpoint, path: url_path, variable, kept, .. } = self;
        let secret = match kept {
            _ if self.is_unit => format!("credential:{}", self.credential()),
            Some(kept) => format!("file:{}", kept.display()),
            None => format!("env:{variable}"),
        };
        let webhooks = match self.is_unit {
            true => {
                with_remark("webhooks", "systemd", "inboxd.socket holds it; put a TLS proxy in front of it")
            }
            false => {
                with_remark("webhooks", default_of("listen", "webhooks"), "put a TLS proxy in front of it")
            }
        };
        let admin = with_remark("admin", default_of("listen", "admin"), "never public; \"off\" disables it");
        let data_dir = if self.is_service { "/var/lib/inboxd" } else { default_of("", "data_dir") };
        let preset = providers::find(provider);
        let public_url = match preset.is_some_and(signs_url) {
            true => {
                "\npublic_url = \"https://hooks.example.com\"   # as the provider knows it: the URL is signed\n"
            }
            false => "",
        };
        let scheme = match *provider {
            "custom" => format!("\n[endpoint.{endpoint}.scheme]\n{}", custom_scheme()),
            _ => String::new(),
        };
        let table = endpoint_table(provider, endpoint, url_path, &secret, preset);
        let destination = destination_table(url_path, preset);
        format!(
            "# inboxd. `inboxd check` says what is wrong, `inboxd check --print` shows every default.
# Relative paths are relative to this file.

data_dir = \"{data_dir}\"
{public_url}
[listen]
{webhooks}{admin}
{table}{scheme}{destination}"
        )
    }
}

/// `[destination.app]` as a comment, signed in the way that the provider allows.
fn destination_table(path: &str, preset: Option<&Preset>) -> String {
    let scheme = preset.and_then(|preset| preset.scheme().ok());
    let sign = match scheme {
        Some(scheme) if !scheme.can_sign() => {
            "# sign = \"standard\"                 # Standard Webhooks: only the provider can sign as it does\n\
             # secrets = [\"env:APP_SECRET\"]\n"
        }
        Some(scheme) if scheme.has_time_in_body() => {
            "# sign = \"standard\"                 # Standard Webhooks: the provider's time is inside the body, and grows old\n\
             # secrets = [\"env:APP_SECRET\"]\n"
        }
        _ => "# sign = \"provider\"                 # signed anew as the provider signs; or standard, none\n",
    };
    format!("\n# [destination.app]\n# url  = \"http://127.0.0.1:3000{path}\"\n{sign}")
}

/// The variable that is proposed for a provider's secret.
pub(crate) fn secret_variable(provider: &str) -> String {
    format!("{}_WEBHOOK_SECRET", provider.to_uppercase().replace('-', "_"))
}

fn signs_url(preset: &Preset) -> bool {
    preset.recipe.signed.contains("{url}")
}

/// `[endpoint.NAME]` to start from; also shown by `providers show`.
pub(crate) fn endpoint_table(
    provider: &str,
    endpoint: &str,
    path: &str,
    secret: &str,
    preset: Option<&Preset>,
) -> String {
    let handlers = if provider == "stripe" {
        "handlers  = [\"billing\"]              # books paid invoices, in the same transaction as the event\n"
    } else {
        "# without handlers and forward events are stored and marked as ignored\n\
         # handlers = [\"sql:handlers\"]       # your own SQL, a file per type of event in the folder handlers\n"
    };
    let forward = "# forward = [\"app\"]                 # hands events on to [destination.app]\n";
    let tolerance = match preset {
        Some(preset) if preset.recipe.timestamp.is_empty() => String::new(),
        preset => {
            let seconds = preset.map_or(Preset::PLAIN.tolerance_s, |preset| preset.tolerance_s);
            let usual = duration_text(Duration::from_secs(seconds.into()));
            with_remark("tolerance", &usual, &remark("endpoint.NAME", "tolerance"))
        }
    };
    let livemode = match preset {
        Some(preset) if preset.recipe.livemode.is_empty() => "",
        _ if provider == "stripe" => {
            "livemode  = true                    # books real payments only; false while you try it with test events\n"
        }
        _ => "# livemode = true                    # refuse events of the other mode\n",
    };
    format!(
        "[endpoint.{endpoint}]
provider  = \"{provider}\"
path      = \"{path}\"
# No secret stands in this file: \"env:VAR\", \"file:PATH\" (mode 0600) or \"credential:NAME\" (systemd).
# List the old and the new one while rotating.
secrets   = [\"{secret}\"]
{handlers}{forward}{tolerance}{livemode}"
    )
}

/// `[endpoint.NAME.scheme]` to start from.
fn custom_scheme() -> String {
    let table = "endpoint.NAME.scheme";
    let usual = |key| (key, default_of(table, key));
    let lines = [
        ("signature_header", "X-Signature"),
        usual("encoding"),
        usual("algorithm"),
        usual("key"),
        ("signed", "{ts}.{body}"),
        ("timestamp", "header:X-Timestamp"),
        ("event_id", "json:/id"),
    ];
    lines.into_iter().map(|(key, value)| with_remark(key, value, &remark(table, key))).collect()
}

/// A line of the file; the remarks of several stand below each other.
fn with_remark(key: &str, value: &str, remark: &str) -> String {
    let line = format!("{key:<9} = \"{value}\"");
    format!("{line:<37}# {remark}\n")
}

fn write(path: &Path, text: &str, force: bool, mode: u32) -> Result<(), Failure> {
    let written = if force { replace(path, text, mode) } else { create(path, text, mode) };
    written.map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            let message = format!("{} exists and is left as it is; --force replaces it", path.display());
            return Failure::new(Exit::Refused, message);
        }
        let advice = match error.kind() {
            io::ErrorKind::NotFound => "; make its directory first",
            io::ErrorKind::PermissionDenied => "; run this as a user who may write there",
            _ => "",
        };
        Failure::new(Exit::Failed, format!("{} cannot be written: {error}{advice}", path.display()))
    })
}

fn create(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    // whatever the umask
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

/// Through a second file, so that a crash leaves the old one or the new one.
fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let draft = path.with_extension(format!("toml.{}.tmp", std::process::id()));
    let written = create(&draft, text, mode);
    written.and_then(|()| fs::rename(&draft, path)).inspect_err(|_| drop(fs::remove_file(&draft)))
}

fn say_what_the_service_needs(path: &Path, draft: &Draft<'_>) {
    let (path_shown, name) = (path.display(), draft.credential());
    say(&format!("wrote {path_shown} (mode 0640), and the unit's drop-in to stdout; next, as root:"));
    say("  systemd-sysusers                       # makes the user, from inboxd.sysusers.conf");
    if path == Path::new(SERVICE_FILE) {
        say(&format!("  chgrp inboxd {SERVICE_FILE}"));
    } else {
        say(&format!("  install -D -m 0640 -g inboxd {path_shown} {SERVICE_FILE}"));
    }
    say("  write what this printed to /etc/systemd/system/inboxd.service.d/credentials.conf");
    say(&format!("  install -m 0600 /dev/stdin /etc/inboxd/{name}      # paste the secret, then Ctrl-D"));
    say("  systemctl daemon-reload && systemctl enable --now inboxd.socket inboxd.service");
    say("  CREDENTIALS_DIRECTORY=/etc/inboxd inboxd check");
}

fn say_what_is_next(path: &Path, draft: &Draft<'_>, mode: u32) {
    let is_found = DEFAULT_FILES.iter().any(|default| path == Path::new(default));
    let path = path.display();
    let inboxd = if is_found { "inboxd".to_owned() } else { format!("inboxd --config {path}") };
    say(&format!("wrote {path} (mode {mode:04o}); next:"));
    if draft.is_service {
        say(&format!("  chgrp inboxd {path}    # or whichever group its user is in"));
    }
    match &draft.kept {
        Some(kept) => say(&format!(
            "  its secret is the development instance's; write the one that {} shows you into {}",
            draft.provider,
            kept.display()
        )),
        None => say(&format!(
            "  export {}=…    # {}",
            draft.variable,
            providers::find(draft.provider).map_or_else(
                || "the signing secret that the sender shows you".to_owned(),
                |preset| format!("{}: {}", preset.title, preset.secret)
            )
        )),
    }
    say(&format!("  {inboxd} check"));
    say(&format!("  {inboxd} serve"));
}
