//! `verify`: judges one delivery with the verifier the daemon uses, and says what to look at.

use std::time::Duration;

use inboxd::clock;
use inboxd::config::{preset_names, secret_from_env};
use inboxd::verify::{Delivery, Headers, Scheme, report};

use super::args::VerifyArgs;
use super::send::BODY_BYTES_MAX;
use super::{Exit, Failure, provider_advice, put, read_bounded, secret_of};

/// Prints one line of JSON, with the first and last bytes of what is signed. Exit 0 when the signature holds, 7 when it does not.
pub(crate) fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let usage = |reason: String| Failure::new(Exit::Usage, reason);
    let scheme = Scheme::named(&args.provider).map_err(|_| no_preset(&args.provider))?;
    let mut secrets = Vec::new();
    for variable in &args.secret_env {
        secrets.push(secret_from_env(variable).map_err(usage)?);
    }
    for path in &args.secret_file {
        secrets.push(secret_of(path)?);
    }
    let headers = args.header.iter().map(|line| header(line)).collect::<Result<Headers, _>>()?;
    let body = read_bounded(&args.body, BODY_BYTES_MAX, "the body")?;
    let delivery = Delivery {
        method: &args.method,
        url: args.url.as_deref().unwrap_or_default(),
        headers: &headers,
        body: &body[..],
    };
    let tolerance = Duration::from_secs(scheme.tolerance_s().into());
    let now_s = args.now.unwrap_or_else(|| clock::now_ms() / 1000);
    let report = report(scheme, secrets, tolerance, &delivery, now_s);
    put(&format!("{}\n", report.to_json()))?;
    if report.is_ok() { Ok(()) } else { Err(Failure::new(Exit::Unverified, "")) }
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
        "custom" => format!(
            "a scheme of your own stands in the configuration, which verify does not read; it judges {}",
            preset_names().join(", ")
        ),
        _ => format!("there is no such preset; {}", provider_advice(typed)),
    };
    Failure::new(Exit::Usage, format!("--provider {typed}: {advice}"))
}
