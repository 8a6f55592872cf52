//! `check`: says whether `serve` would start with this configuration, and what it would do.

use std::fmt::Write;

use inboxd::config::{Address, Config, ConfigError, Endpoint, MissingSecrets, Problem};
use serde_json::{Value, json};

use super::args::CheckArgs;
use super::{Context, Failure, put, say};

/// Exit 0, or 3 with every problem on stderr. Reads secrets, makes none, writes nothing.
pub(crate) fn run(args: &CheckArgs, context: &Context) -> Result<(), Failure> {
    let config = match Config::load(context.config_file(), MissingSecrets::Report) {
        Ok(config) => config,
        Err(error) => {
            if args.json {
                put(&format!("{}\n", refusal(&error)))?;
            }
            return Err(error.into());
        }
    };
    if args.json {
        return put(&format!("{}\n", approval(&config)));
    }
    if args.print {
        for warning in &config.warnings {
            say(&format!("warning: {warning}"));
        }
        return put(&config.to_toml());
    }
    put(&summary(&config))
}

fn approval(config: &Config) -> Value {
    json!({
        "ok": true,
        "file": config.file,
        "problems": [],
        "warnings": config.warnings,
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

fn summary(config: &Config) -> String {
    let mut text = match &config.file {
        Some(file) => format!("{} is good\n\n", file.display()),
        None => "no configuration file: `inboxd serve` runs a development instance\n\n".to_owned(),
    };
    let admin = config.listen.admin.as_ref().map_or("off".to_owned(), reachable);
    let database = match config.database.exists() {
        true => config.database.display().to_string(),
        false => format!("{} (does not exist yet; `inboxd serve` makes it)", config.database.display()),
    };
    push(&mut text, "webhooks", &reachable(&config.listen.webhooks));
    push(&mut text, "admin", &admin);
    push(&mut text, "database", &database);
    for endpoint in &config.endpoints {
        push_endpoint(&mut text, config, endpoint);
    }
    for destination in &config.destinations {
        text.push_str(&format!("\ndestination {}\n", destination.name));
        push(&mut text, "url", &destination.url);
    }
    if !config.warnings.is_empty() {
        text.push('\n');
    }
    for warning in &config.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text
}

fn push_endpoint(text: &mut String, config: &Config, endpoint: &Endpoint) {
    text.push_str(&format!("\nendpoint {}\n", endpoint.name));
    let base = match (&config.public_url, &config.listen.webhooks) {
        (Some(url), _) => url.clone(),
        (None, Address::Tcp(address)) => format!("http://{address}"),
        (None, Address::Unix(_) | Address::Systemd) => String::new(),
    };
    let handlers = match endpoint.handlers.as_slice() {
        [] => "none: events are stored and ignored".to_owned(),
        names => names.join(", "),
    };
    push(text, "url", &format!("{base}{}", endpoint.path));
    push(text, "provider", &endpoint.provider);
    push(text, "handlers", &handlers);
    for secret in &endpoint.secrets {
        push(text, "secret", &format!("{} {}", secret.label(), secret.fingerprint()));
    }
}

fn push(text: &mut String, what: &str, value: &str) {
    // writing to a String cannot fail
    writeln!(text, "  {what:<9} {value}").unwrap_or_default();
}

fn reachable(address: &Address) -> String {
    match address {
        Address::Tcp(address) => format!("http://{address}"),
        Address::Unix(_) | Address::Systemd => address.to_string(),
    }
}
