//! `check`: says all that is wrong with the configuration, and what `serve` would do with it.
//!
//! It changes nothing and binds no address, since a daemon may be running: whether the database is sound and
//! the ports are free is found out by `serve`. Of an existing database it reads the schema and what waits there.

mod unsubscribed;

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::config::{
    Address, Config, ConfigError, Endpoint, Fingerprints, MissingSecrets, Problem, is_absent,
};
use crate::daemon;
use crate::handlers::Registry;
use crate::terminal::printable;
use clap::Args;
use rustix::fs::Access;
use serde_json::{Value, json};

use super::{Context, Failure, put, say};

/// Check the configuration and say everything that is wrong with it
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Print the configuration in effect, all defaults included, as TOML
    #[arg(long)]
    pub(crate) print: bool,
    /// Print one JSON object: ok, file, problems, warnings, config
    #[arg(long)]
    pub(crate) json: bool,
}

/// Exit 0, or 3 with every problem on stderr. Reads secrets, makes none, writes nothing.
pub(crate) fn run(args: &CheckArgs, context: &Context) -> Result<(), Failure> {
    let config = match load(context) {
        Ok(config) => config,
        Err(error) => {
            if args.json {
                put(&format!("{}\n", refusal(&error)))?;
            }
            return Err(error.into());
        }
    };
    let warnings: Vec<_> = config.warnings.iter().cloned().chain(data_dir_oddity(&config.data_dir)).collect();
    if args.json {
        return put(&format!("{}\n", approval(&config, &warnings)));
    }
    if args.print {
        for warning in &warnings {
            say(&format!("warning: {}", printable(warning)));
        }
        return put(&config.to_toml());
    }
    put(&summary(&config, &warnings))
}

/// The configuration, and what it names: the application's database, folders of SQL.
fn load(context: &Context) -> Result<Config, ConfigError> {
    let mut config = context.read(MissingSecrets::LeaveCredentials)?;
    let (problems, warnings) = daemon::check(&config);
    config.warnings.extend(warnings);
    config.warnings.extend(of_either_mode(&config, context.registry()));
    config.warnings.extend(unsubscribed::warnings(&config));
    if problems.is_empty() {
        return Ok(config);
    }
    Err(ConfigError::beyond(config.file.as_deref(), problems, config.warnings))
}

/// Test events move no money, so they must not be booked with real ones.
fn of_either_mode(config: &Config, registry: &Registry) -> Vec<String> {
    let books = |endpoint: &&Endpoint| {
        let names = endpoint.handlers.iter().map(ToString::to_string);
        endpoint.provider == "stripe"
            && names.into_iter().any(|name| registry.find(&name).is_some_and(|handler| handler.is_money()))
    };
    // a development instance is for test events
    let endpoints = config.endpoints.iter().filter(|_| config.file.is_some()).filter(books);
    let unset = endpoints.filter(|endpoint| endpoint.livemode.is_none());
    unset
        .map(|endpoint| {
            format!(
                "endpoint.{}.livemode: is not set, so that test events are booked like real ones; write livemode = true, \
                 or false where only tests are to be booked",
                endpoint.name
            )
        })
        .collect()
}

/// Only a warning: `serve` may run as another user.
fn data_dir_oddity(data_dir: &Path) -> Option<String> {
    let path = data_dir.display();
    match fs::metadata(data_dir) {
        Ok(_) if !may_write(data_dir) => Some(format!(
            "data_dir {path} cannot be written by this user; run `inboxd serve` as the user that owns it"
        )),
        Ok(found) if found.mode() & 0o077 != 0 => {
            let mode = found.mode() & 0o777;
            Some(format!(
                "data_dir {path}: mode {mode:04o} lets others in; unless that is meant, run: chmod 700 {path}"
            ))
        }
        Ok(_) => None,
        Err(error) if is_absent(&error) => {
            let parent = data_dir.ancestors().skip(1).map(or_here).find(|parent| parent.exists())?;
            (!may_write(parent)).then(|| {
                let advice = format!(
                    "make it for the user that `inboxd serve` runs as: install -d -m 700 -o USER {path}"
                );
                format!("data_dir {path} does not exist and cannot be created by this user; {advice}")
            })
        }
        Err(error) => Some(format!("data_dir {path} cannot be looked at: {error}")),
    }
}

fn may_write(dir: &Path) -> bool {
    rustix::fs::access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// The parent of `data` is the current directory.
fn or_here(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() { Path::new(".") } else { dir }
}

fn database(config: &Config) -> String {
    let path = config.database.display();
    match fs::metadata(&config.database) {
        Ok(_) => path.to_string(),
        Err(error) if is_absent(&error) => format!("{path} (does not exist yet; `inboxd serve` makes it)"),
        Err(error) => format!("{path} (cannot be looked at: {error}; run this as the user that owns it)"),
    }
}

fn approval(config: &Config, warnings: &[String]) -> Value {
    json!({
        "ok": true,
        "file": config.file,
        "problems": [],
        "warnings": warnings,
        "config": config.to_json(),
    })
}

fn refusal(error: &ConfigError) -> Value {
    let object =
        |problem: &Problem| json!({ "line": problem.line, "key": problem.key, "message": problem.message });
    json!({
        "ok": false,
        "file": error.file,
        "problems": error.problems.iter().map(object).collect::<Value>(),
        "warnings": error.warnings,
        "config": null,
    })
}

fn summary(config: &Config, warnings: &[String]) -> String {
    let mut text = match &config.file {
        Some(file) => format!("{} is good\n\n", printable(&file.display().to_string())),
        None => "no configuration file: `inboxd serve` runs a development instance\n\n".to_owned(),
    };
    let admin = config.listen.admin.as_ref().map_or("off".to_owned(), Address::url);
    push(&mut text, "webhooks", &config.listen.webhooks.url());
    push(&mut text, "admin", &admin);
    push(&mut text, "database", &database(config));
    let fingerprints = Fingerprints::of(&config.data_dir);
    for endpoint in &config.endpoints {
        push_endpoint(&mut text, config, endpoint, &fingerprints);
    }
    for destination in &config.destinations {
        text.push_str(&format!("\ndestination {}\n", destination.name));
        push(&mut text, "url", &destination.url);
    }
    if !warnings.is_empty() {
        text.push('\n');
    }
    for warning in warnings {
        text.push_str(&format!("warning: {}\n", printable(warning)));
    }
    text
}

fn push_endpoint(text: &mut String, config: &Config, endpoint: &Endpoint, fingerprints: &Fingerprints) {
    text.push_str(&format!("\nendpoint {}\n", endpoint.name));
    let base = match (&config.public_url, &config.listen.webhooks) {
        (Some(url), _) => url.clone(),
        (None, Address::Tcp(address)) => format!("http://{address}"),
        (None, Address::Unix(_) | Address::Systemd) => String::new(),
    };
    let handlers = match endpoint.handlers.as_slice() {
        [] if endpoint.forward.is_empty() => "none: events are stored and ignored".to_owned(),
        [] => "none".to_owned(),
        names => names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    push(text, "url", &format!("{base}{}", endpoint.path));
    push(text, "provider", &endpoint.provider);
    push(text, "handlers", &handlers);
    for secret in &endpoint.secrets {
        push(text, "secret", &format!("{} {}", secret.label(), fingerprints.text(secret)));
    }
}

fn push(text: &mut String, what: &str, value: &str) {
    // writing to a String cannot fail
    writeln!(text, "  {what:<9} {}", printable(value)).unwrap_or_default();
}
