//! `verify`: judges one delivery with the verifier the daemon uses, and says what to look at.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use crate::clock;
use crate::config::{MissingSecrets, secret_from_env};
use crate::providers::Provider;
use crate::signature::{Delivery, Headers, SchemeError};
use crate::verify::{Verifier, report_of};
use clap::{ArgGroup, Args};

use super::args::Names;
use super::send::{BODY_BYTES_MAX, unread};
use super::store::fields;
use super::{Context, Exit, Failure, provider_advice, put, read_bounded, say, secret_of};

/// Judge one delivery with the verifier the daemon uses
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("verify_secret").args(["secret_env", "secret_file"]).multiple(true)))]
pub(crate) struct VerifyArgs {
    /// Whose delivery it is: a name from `inboxd providers list`
    #[arg(
        long,
        required_unless_present = "endpoint",
        requires = "verify_secret",
        value_parser = Names::of_providers(),
        hide_possible_values = true
    )]
    pub(crate) provider: Option<String>,
    /// Scheme, secrets, tolerance and URL of this configured endpoint
    #[arg(long, value_name = "NAME", conflicts_with_all = ["provider", "secret_env", "secret_file"])]
    pub(crate) endpoint: Option<String>,
    /// A variable that holds a secret, verbatim; may be repeated
    #[arg(long, value_name = "VAR")]
    pub(crate) secret_env: Vec<String>,
    /// A file that holds a secret, without one final newline; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Vec<PathBuf>,
    /// A header line 'Name: value'; may be repeated
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,
    /// The body's exact bytes; - reads stdin
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub(crate) body: PathBuf,
    /// The time of the judgement, in seconds since 1970 [default: now]
    #[arg(long, value_name = "UNIX", allow_negative_numbers = true)]
    pub(crate) now: Option<i64>,
    /// The public URL, for providers that sign it [default: none, or public_url and the endpoint's path]
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// The request's method
    #[arg(long, default_value = "POST")]
    pub(crate) method: String,
}

/// Prints one line of JSON, with the first and last bytes of the signed string. Exit 0 when the signature holds, 7
/// when it does not.
pub(crate) fn run(args: &VerifyArgs, context: &Context) -> Result<(), Failure> {
    let headers = args.header.iter().map(|line| header(line)).collect::<Result<Headers, _>>()?;
    let now_s = args.now.unwrap_or_else(|| clock::now_ms() / 1000);
    let judge = match &args.endpoint {
        Some(name) => of_endpoint(name, context)?,
        None => of_provider(args)?,
    };
    let body = read_bounded(&args.body, BODY_BYTES_MAX, "the body")?;
    let url = args.url.as_deref().unwrap_or(&judge.url);
    let delivery = Delivery { method: &args.method, url, headers: &headers, body: &body[..] };
    let report = report_of(&judge.verifier, &judge.problems, &delivery, now_s);
    let json = report.to_json();
    put(&format!("{json}\n"))?;
    say_to_a_person(&json);
    if report.is_ok() { Ok(()) } else { Err(Failure::new(Exit::Unverified, "")) }
}

/// The verifier, and what else a judgement needs.
struct Judge {
    verifier: Verifier,
    /// Secrets that cannot be keys, in one sentence each.
    problems: Vec<SchemeError>,
    /// The URL if --url is absent.
    url: String,
}

fn of_provider(args: &VerifyArgs) -> Result<Judge, Failure> {
    let usage = |reason: String| Failure::new(Exit::Usage, reason);
    let provider = args.provider.as_deref().unwrap_or_default();
    let provider = Provider::named(provider).map_err(|_| no_preset(provider))?;
    let mut secrets = Vec::new();
    for variable in &args.secret_env {
        secrets.push(secret_from_env(variable).map_err(usage)?);
    }
    for path in &args.secret_file {
        secrets.push(secret_of(path)?);
    }
    let tolerance = Duration::from_secs(provider.preset().tolerance_s.into());
    let (verifier, problems) = Verifier::any_length(provider, secrets, tolerance);
    Ok(Judge { verifier, problems, url: String::new() })
}

fn of_endpoint(name: &str, context: &Context) -> Result<Judge, Failure> {
    let config = context.load(MissingSecrets::LeaveCredentials)?;
    let public_url = config.public_url.clone().unwrap_or_default();
    let names: Vec<_> = config.endpoints.iter().map(|endpoint| endpoint.name.clone()).collect();
    let endpoint = config.endpoints.into_iter().find(|endpoint| endpoint.name == name).ok_or_else(|| {
        let known = names.join(", ");
        Failure::new(Exit::NotFound, format!("there is no endpoint {name}; configured are {known}"))
    })?;
    if let Some(secret) = endpoint.secrets.iter().find(|secret| secret.is_unread()) {
        return Err(unread(secret, "verify"));
    }
    let url = format!("{public_url}{}", endpoint.path);
    Ok(Judge { verifier: endpoint.verifier, problems: Vec::new(), url })
}

/// Repeats the JSON on stderr with one line per field, if stdout is a terminal, where one long line is hard to read.
fn say_to_a_person(json: &str) {
    if io::stdout().is_terminal()
        && let Ok(object) = serde_json::from_str(json)
    {
        say(fields(&object, &[]).trim_end());
    }
}

/// One space after the colon is not part of the value; all else is, so that a stray blank is seen.
fn header(line: &str) -> Result<(String, String), Failure> {
    let (name, value) = line.split_once(':').ok_or_else(|| {
        Failure::new(Exit::Usage, format!("--header {line:?} has no colon; write 'Name: value'"))
    })?;
    Ok((name.trim().to_owned(), value.strip_prefix(' ').unwrap_or(value).to_owned()))
}

fn no_preset(typed: &str) -> Failure {
    let advice = match typed {
        "custom" => String::from(
            "a scheme of your own stands in the configuration; write --endpoint NAME instead, which takes its secrets too",
        ),
        _ => format!("no provider has this name; {}", provider_advice(typed)),
    };
    Failure::new(Exit::Usage, format!("--provider {typed}: {advice}"))
}
