//! The development instance: what runs without a configuration file.
//!
//! Two endpoints in `./inboxd-data`, with the secrets of the environment where they are set and
//! secrets of its own otherwise.

use std::path::{Path, PathBuf};

use super::check::{self, Checker, DATA_DIR, FILE, OWN_SECRETS};
use super::secrets::{self, Style};
use super::values::{Typed, Values};
use super::{Config, ConfigError, HandlerFacts, Instance, MissingSecrets, Sketch, WithoutSecret, is_absent};

/// During development the reason for a refusal matters more than the memory.
const KEEP_REFUSED: u64 = 20;

struct Preset {
    endpoint: &'static str,
    provider: &'static str,
    path: &'static str,
    handlers: &'static [&'static str],
    variable: &'static str,
    style: Style,
}

const ENDPOINTS: [Preset; 2] = [
    Preset {
        endpoint: "billing",
        provider: "stripe",
        path: "/webhooks/stripe",
        handlers: &["billing"],
        variable: "STRIPE_WEBHOOK_SECRET",
        style: Style::Stripe,
    },
    Preset {
        endpoint: "github",
        provider: "github",
        path: "/webhooks/github",
        handlers: &[],
        variable: "GITHUB_WEBHOOK_SECRET",
        style: Style::Hex,
    },
];

/// The development instance in `base`, which is empty for the current directory.
pub(super) fn config(
    base: &Path,
    handlers: Vec<HandlerFacts>,
    missing: MissingSecrets,
) -> Result<Config, ConfigError> {
    let mut checker = Checker::new(base.to_owned());
    checker.handlers = handlers;
    checker.missing = missing;
    let mut endpoints = Vec::new();
    let mut without_secret = Vec::new();
    for preset in &ENDPOINTS {
        match secret(preset, base, missing, &mut checker) {
            Ok(reference) => endpoints.push((preset, reference)),
            Err(without) => without_secret.extend(without),
        }
    }
    Ok(Config { without_secret, ..check::finish(checker, &values(endpoints), None)? })
}

/// The part of the development instance that reading its data needs.
pub(super) fn instance() -> Instance {
    Instance {
        data_dir: DATA_DIR.into(),
        database: Path::new(DATA_DIR).join(check::DATABASE),
        endpoints: ENDPOINTS.iter().map(|preset| preset.endpoint.to_owned()).collect(),
        sketches: ENDPOINTS.iter().map(sketch).collect(),
        destinations: Vec::new(),
    }
}

fn sketch(preset: &Preset) -> Sketch {
    Sketch {
        name: preset.endpoint.to_owned(),
        handlers: preset.handlers.iter().map(|name| (*name).to_owned()).collect(),
        ..Sketch::default()
    }
}

/// Where a development instance keeps the secret that it makes for a provider, relative to its directory.
pub fn development_secret(provider: &str) -> Option<PathBuf> {
    ENDPOINTS.iter().find(|preset| preset.provider == provider).map(kept_at)
}

fn kept_at(preset: &Preset) -> PathBuf {
    Path::new(DATA_DIR).join(OWN_SECRETS).join(preset.endpoint)
}

/// The development instance as a file would describe it.
fn values(endpoints: Vec<(&Preset, String)>) -> Values {
    let mut file = Values::empty(&FILE, String::new());
    let mut debug = file.below("debug", "debug");
    debug.set("keep_refused", Typed::Number(KEEP_REFUSED));
    file.set("debug", Typed::Table(debug));
    let endpoints = endpoints.into_iter().map(|(preset, secret)| {
        let mut endpoint = file.below("endpoint", preset.endpoint);
        let handlers = preset.handlers.iter().map(|name| (*name).to_owned());
        endpoint.set("provider", Typed::Text(preset.provider.to_owned()));
        endpoint.set("path", Typed::Text(preset.path.to_owned()));
        endpoint.set("secrets", Typed::Texts(vec![secret]));
        endpoint.set("handlers", Typed::Texts(handlers.collect()));
        endpoint
    });
    let endpoints = endpoints.collect();
    file.set("endpoint", Typed::Tables(endpoints));
    file
}

/// Where the endpoint's secret is; otherwise what the user must do, or an error.
fn secret(
    preset: &Preset,
    base: &Path,
    missing: MissingSecrets,
    checker: &mut Checker,
) -> Result<String, Option<WithoutSecret>> {
    if secrets::environment(preset.variable).is_some() {
        return Ok(format!("env:{}", preset.variable));
    }
    let path = kept_at(preset);
    if missing == MissingSecrets::Make {
        if let Err(error) = secrets::keep(&base.join(&path), preset.style) {
            let rule = format!(
                "{}: cannot keep a secret there: {error}; start it in a directory that its user can write, or set {}",
                path.display(),
                preset.variable
            );
            checker.problem(format!("endpoint.{}.secrets", preset.endpoint), rule);
            return Err(None);
        }
    } else if let Err(error) = base.join(&path).symlink_metadata()
        && is_absent(&error)
    {
        let advice = format!("`inboxd serve` makes one in {}, or set {}", path.display(), preset.variable);
        checker.warn(format!("endpoint \"{}\" has no secret yet: {advice}", preset.endpoint));
        let (endpoint, provider) = (preset.endpoint.to_owned(), preset.provider.to_owned());
        return Err(Some(WithoutSecret { endpoint, provider, advice }));
    }
    Ok(format!("file:{}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handlers() -> Vec<HandlerFacts> {
        vec![HandlerFacts { name: "billing".to_owned(), ..HandlerFacts::default() }]
    }
    use crate::config::HandlerName;

    fn secrets(config: &Config) -> Vec<&[u8]> {
        config.endpoints.iter().map(|endpoint| endpoint.secrets[0].expose()).collect()
    }

    #[test]
    fn secrets_are_made_only_when_asked_for_and_stay_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let looked_at = config(folder.path(), handlers(), MissingSecrets::Report).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(looked_at.endpoints.len() + looked_at.warnings.len(), 2);

        let made = config(folder.path(), handlers(), MissingSecrets::Make).unwrap();
        let paths: Vec<_> = made.endpoints.iter().map(|endpoint| endpoint.path.as_str()).collect();
        assert_eq!(paths, ["/webhooks/stripe", "/webhooks/github"]);
        assert_eq!(made.endpoints[0].handlers, [HandlerName::Named("billing".to_owned())]);
        assert!(made.warnings.is_empty(), "{:?}", made.warnings);

        let again = config(folder.path(), handlers(), MissingSecrets::Report).unwrap();
        assert_eq!(secrets(&made), secrets(&again));
    }
}
