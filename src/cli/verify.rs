//! `verify`: judges one delivery with the verifier the daemon uses, and says what to look at.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use inboxd::clock;
use inboxd::config::{secret_from_env, secret_from_file};
use inboxd::verify::{Delivery, Headers, Scheme, report};

use super::args::VerifyArgs;
use super::{Exit, Failure, put};

/// Prints one line of JSON, with the first and last bytes of what is signed. Exit 0 when the signature holds, 7 when it does not.
pub(crate) fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let usage = |reason: String| Failure::new(Exit::Usage, reason);
    let scheme = Scheme::named(&args.provider).map_err(usage)?;
    let mut secrets = Vec::new();
    for variable in &args.secret_env {
        secrets.push(secret_from_env(variable).map_err(usage)?);
    }
    for path in &args.secret_file {
        secrets.push(secret_from_file(path).map_err(usage)?);
    }
    let headers = args.header.iter().map(|line| header(line)).collect::<Result<Headers, _>>()?;
    let body = read(&args.body)?;
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

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    read.map_err(|error| {
        Failure::new(Exit::NotFound, format!("cannot read the body from {}", path.display())).because(error)
    })
}
