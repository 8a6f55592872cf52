//! `init`: writes a configuration file to start from. It asks nothing and knows no secret.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use inboxd::config::{
    DEFAULT_FILES, closest, development_secret, duration_text, preset_exists, preset_names,
    preset_never_retries,
};
use inboxd::verify::presets::{self, Preset};

use super::args::InitArgs;
use super::{Context, Exit, Failure, say};

/// Exit 0, or 5 where the file exists and `--force` is not given.
pub(crate) fn run(args: &InitArgs, context: &Context) -> Result<(), Failure> {
    let path = path(args, context)?;
    let provider = presets::find(&args.provider).map_or(args.provider.as_str(), |preset| preset.name);
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
        kept: kept_secret(&path, provider),
    };
    write(&path, &draft.text(&path), args.force)?;
    say_what_is_next(&path, &draft);
    Ok(())
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
}

impl Draft<'_> {
    fn text(&self, path: &Path) -> String {
        let Self { provider, endpoint, path: url_path, variable, kept } = self;
        let secret = match kept {
            Some(kept) => format!("file:{}", kept.display()),
            None => format!("env:{variable}"),
        };
        let data_dir = if path.starts_with("/etc") { "/var/lib/inboxd" } else { "./inboxd-data" };
        let preset = presets::find(provider);
        let public_url = match preset.is_some_and(signs_url) {
            true => {
                "\npublic_url = \"https://hooks.example.com\"   # as the provider knows it: the URL is signed\n"
            }
            false => "",
        };
        let scheme = match *provider {
            "custom" => format!("\n[endpoint.{endpoint}.scheme]\n{CUSTOM_SCHEME}"),
            _ => String::new(),
        };
        let table = endpoint_table(provider, endpoint, url_path, &secret, preset);
        format!(
            "# inboxd. `inboxd check` says what is wrong, `inboxd check --print` shows every default.
# Relative paths are relative to this file.

data_dir = \"{data_dir}\"
{public_url}
[listen]
webhooks = \"127.0.0.1:8787\"          # put a TLS proxy in front of it
admin    = \"127.0.0.1:8788\"          # never public; \"off\" disables it

{table}{scheme}"
        )
    }
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
    } else if preset_never_retries(provider) {
        "# no handlers: events are stored and marked as ignored\n"
    } else {
        "# handlers = [\"billing\"]           # without handlers events are stored and marked as ignored\n"
    };
    let tolerance = match preset {
        Some(preset) if preset.recipe.timestamp.is_empty() => String::new(),
        preset => {
            let seconds = preset.map_or(Preset::PLAIN.tolerance_s, |preset| preset.tolerance_s);
            let text = format!("\"{}\"", duration_text(std::time::Duration::from_secs(seconds.into())));
            format!("tolerance = {text:<22}   # how far the signed time may be from now\n")
        }
    };
    let livemode = match preset {
        Some(preset) if preset.recipe.livemode.is_empty() => "",
        _ => "# livemode = true                    # refuse events of the other mode\n",
    };
    format!(
        "[endpoint.{endpoint}]
provider  = \"{provider}\"
path      = \"{path}\"
# No secret stands in this file: \"env:VAR\", \"file:PATH\" (mode 0600) or \"credential:NAME\" (systemd).
# List the old and the new one while rotating.
secrets   = [\"{secret}\"]
{handlers}{tolerance}{livemode}"
    )
}

const CUSTOM_SCHEME: &str = r#"signature_header = "X-Signature"
encoding  = "hex"                    # hex | base64
algorithm = "sha256"                 # sha256 | sha1
key       = "text"                   # text | base64 | hex
signed    = "{ts}.{body}"            # {ts} {id} {body} {url} {method}
timestamp = "header:X-Timestamp"
event_id  = "json:/id"               # header:NAME | json:/pointer; likewise event_type, object_id
"#;

fn write(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let written = if force { replace(path, text) } else { create(path, text) };
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

fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Through a second file, so that a crash leaves the old one or the new one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension(format!("toml.{}.tmp", std::process::id()));
    let mut file = File::create_new(&draft)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&draft, path)).inspect_err(|_| drop(fs::remove_file(&draft)))
}

fn say_what_is_next(path: &Path, draft: &Draft<'_>) {
    let is_found = DEFAULT_FILES.iter().any(|default| path == Path::new(default));
    let path = path.display();
    let inboxd = if is_found { "inboxd".to_owned() } else { format!("inboxd --config {path}") };
    say(&format!("wrote {path}; next:"));
    match &draft.kept {
        Some(kept) => say(&format!(
            "  its secret is the development instance's; write the one that {} shows you into {}",
            draft.provider,
            kept.display()
        )),
        None => say(&format!(
            "  export {}=…    # {}",
            draft.variable,
            presets::find(draft.provider).map_or_else(
                || "the signing secret that the sender shows you".to_owned(),
                |preset| format!("{}: {}", preset.title, preset.secret)
            )
        )),
    }
    say(&format!("  {inboxd} check"));
    say(&format!("  {inboxd} serve"));
}
