//! The rules of `[endpoint.NAME]`.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use super::{Checker, suggest};
use crate::config::raw::RawEndpoint;
use crate::config::wrapping;
use crate::config::{
    ACCOUNT_REQUIRED, Endpoint, HandlerFacts, HandlerName, Limits, Mode, OnRedelivery, OnScopeMismatch,
    Replay, duration_text, preset_exists, preset_name, preset_names, preset_never_retries, preset_title,
    provider_of,
};
use crate::providers::{Preset, Provider};
use crate::signature::{CustomScheme, Secret};
use crate::verify::Verifier;

/// From here on a tolerance is odd.
const TOLERANCE_ADVISED: Duration = Duration::from_secs(3600);
/// The front waits 30 s for an answer.
const PROXY_TIMEOUT_MAX: Duration = Duration::from_secs(25);
/// Paths that the listener answers itself.
const OWN_PATHS: [&str; 2] = ["/livez", "/readyz"];

impl Checker {
    /// `None` where too much is wrong to go on; every problem is noted.
    pub(super) fn endpoint(
        &mut self,
        name: String,
        raw: RawEndpoint,
        limits: &Limits,
        destinations: &[String],
    ) -> Option<Endpoint> {
        let key = format!("endpoint.{name}");
        self.name(&key, &name);
        let mode = self.mode(&key, &raw);
        let handlers = self.handlers(&key, &raw);
        self.notify(&key, &raw, destinations);
        self.forward(&key, &raw, destinations);
        let proxy_timeout = self.proxy_timeout(&key, &raw, mode);
        if raw.account.as_deref() == Some("") {
            self.problem(
                format!("{key}.account"),
                "\"\": names no account; remove the key to take every account",
            );
        }
        let provider = self.provider(&key, raw.provider.as_deref());
        let path = self.path(&key, &name, raw.path.as_deref());
        let body_bytes_max =
            self.body_bytes_max(&format!("{key}.body_bytes_max"), raw.body_bytes_max.as_ref());
        let on_scope_mismatch = self.choice(
            &format!("{key}.on_scope_mismatch"),
            raw.on_scope_mismatch.as_deref(),
            &[("refuse", OnScopeMismatch::Refuse), ("ignore", OnScopeMismatch::Ignore)],
        );
        let on_redelivery = self.choice(
            &format!("{key}.on_redelivery"),
            raw.on_redelivery.as_deref(),
            &[("requeue", OnRedelivery::Requeue), ("count", OnRedelivery::Count)],
        );
        let replay = self.choice(
            &format!("{key}.replay"),
            raw.replay.as_deref(),
            &[("flag", Replay::Flag), ("refuse", Replay::Refuse), ("allow", Replay::Allow)],
        );
        self.scheme(&key, provider.as_deref(), raw.scheme.as_ref());
        let secrets = self.endpoint_secrets(&key, &raw.secrets);
        let (provider, path, secrets) = (provider?, path?, secrets?);
        if provider == "custom" && raw.scheme.is_none() {
            return None;
        }
        let sender = provider_of(&provider, raw.scheme.as_ref())
            .map_err(|reason| self.problem(format!("{key}.scheme"), reason))
            .ok()?;
        self.fits(&key, &raw, &sender, mode);
        self.is_in_time(&key, &raw, &sender, mode, (limits.handler_timeout, proxy_timeout));
        let tolerance = self.tolerance(&key, &raw, sender.preset());
        let body_bytes_max =
            body_bytes_max.or(sender.preset().body_bytes_max).unwrap_or(limits.body_bytes_max);
        let verifier = self.verifier(&key, sender, &secrets, tolerance)?;
        Some(Endpoint {
            body_bytes_max,
            name,
            provider,
            path,
            secrets,
            scheme: raw.scheme,
            verifier,
            mode,
            handlers,
            notify: raw.notify,
            forward: raw.forward,
            tolerance,
            livemode: raw.livemode,
            account: raw.account,
            on_scope_mismatch,
            on_redelivery,
            replay,
            replay_allow: raw.replay_allow,
            proxy_timeout,
        })
    }

    fn tolerance(&mut self, key: &str, raw: &RawEndpoint, preset: &Preset) -> Duration {
        let key = format!("{key}.tolerance");
        let usual = Duration::from_secs(preset.tolerance_s.into());
        let tolerance = self.duration(&key, raw.tolerance.as_ref(), usual);
        // a preset's own is as long as it has to be
        if tolerance > TOLERANCE_ADVISED.max(usual) {
            let typed = duration_text(tolerance);
            self.warn(format!(
                "{key}: \"{typed}\": a delivery that somebody has copied can be sent again for so long; \"5m\" is usual"
            ));
        }
        tolerance
    }

    /// What the provider's way of signing and waiting rules out.
    fn fits(&mut self, key: &str, raw: &RawEndpoint, provider: &Provider, mode: Mode) {
        let (name, scheme) = (provider.name(), provider.scheme());
        if !scheme.body_signed() {
            self.none_needs_the_body_signed(key, raw, name);
        }
        if raw.account.as_deref() == Some(ACCOUNT_REQUIRED) && !scheme.names_account() {
            self.problem(
                format!("{key}.account"),
                format!("\"{ACCOUNT_REQUIRED}\": {name} names no account in its events; remove the key"),
            );
        }
        for (typed, set) in [("replay", raw.replay.is_some()), ("replay_allow", !raw.replay_allow.is_empty())]
        {
            if set && !provider.has_replay_key() {
                self.warn(format!(
                    "{key}.{typed}: has no effect: {name} signs the event's id, so ids tell replays"
                ));
            }
        }
        if raw.replay_allow.iter().any(String::is_empty) {
            self.problem(
                format!("{key}.replay_allow"),
                "\"\": names no type; write e.g. [\"repository_dispatch\"], or replay = \"allow\" for all of them",
            );
        }
        if mode == Mode::Proxy && scheme.is_batch() {
            let rule = "sends several events in one request, and the application can answer for one only";
            let advice = "write mode = \"async\" and keep forward: each event is sent to it by itself";
            self.problem(format!("{key}.mode"), format!("\"proxy\": {name} {rule}; {advice}"));
        }
    }

    fn none_needs_the_body_signed(&mut self, key: &str, raw: &RawEndpoint, scheme: &str) {
        for typed in &raw.handlers {
            let needs = match self.handler(typed) {
                Some(HandlerFacts { needs_signed_body: true, is_money: true, .. }) => "books money",
                Some(HandlerFacts { needs_signed_body: true, .. }) => "acts on what the body says",
                Some(_) | None => continue,
            };
            self.problem(format!("{key}.handlers"), format!(
                "\"{typed}\": {needs}, and {scheme} does not sign the body; take it out, and fetch the object from the provider instead"
            ));
        }
    }

    /// Whether what is allowed to take time ends before the provider gives up waiting.
    fn is_in_time(
        &mut self,
        key: &str,
        raw: &RawEndpoint,
        provider: &Provider,
        mode: Mode,
        (handler_timeout, proxy_timeout): (Duration, Duration),
    ) {
        let Some(seconds) = provider.preset().deadline_s else { return };
        let (name, deadline) = (provider.name(), Duration::from_secs(seconds.into()));
        if mode == Mode::Sync && !raw.handlers.is_empty() && handler_timeout > deadline {
            self.warn(format!(
                "{key}: {name} waits {seconds} s for an answer, and limits.handler_timeout allows handlers more"
            ));
        }
        if mode == Mode::Proxy && proxy_timeout >= deadline {
            let typed = duration_text(proxy_timeout);
            self.warn(format!(
                "{key}.proxy_timeout: \"{typed}\": {name} waits {seconds} s for an answer and then counts the delivery as \
                 failed, whatever the application says later; write less, or forward without mode = \"proxy\""
            ));
        }
    }

    /// Sync where the provider sends a failed event again; else its work must not depend on that.
    fn mode(&mut self, key: &str, raw: &RawEndpoint) -> Mode {
        let key = format!("{key}.mode");
        let provider = raw.provider.as_deref().unwrap_or_default();
        let never_retries = preset_never_retries(provider);
        match raw.mode.as_deref() {
            None if never_retries => Mode::Async,
            None => Mode::Sync,
            Some("async") => Mode::Async,
            Some("sync") => {
                if never_retries && !raw.handlers.is_empty() {
                    self.warn(format!(
                        "{key}: \"sync\": {provider} does not send again by itself, so an event whose handler fails \
                         is lost unless somebody redelivers it by hand; \"async\" retries it here"
                    ));
                }
                Mode::Sync
            }
            Some("proxy") => {
                if raw.forward.len() != 1 || !raw.handlers.is_empty() {
                    let rule = "the application answers for the event, so forward must name its one destination and handlers must be empty";
                    self.problem(key, format!("\"proxy\": {rule}; write e.g. forward = [\"app\"]"));
                }
                Mode::Proxy
            }
            Some(other) => {
                let advice = suggest::advice(other, ["sync", "async", "proxy"]);
                self.problem(key, format!("\"{other}\": is unknown; {advice}"));
                Mode::Sync
            }
        }
    }

    fn handlers(&mut self, key: &str, raw: &RawEndpoint) -> Vec<HandlerName> {
        let key = format!("{key}.handlers");
        let mut handlers = Vec::new();
        for (index, typed) in raw.handlers.iter().enumerate() {
            if raw.handlers[..index].contains(typed) {
                self.problem(&key, format!("\"{typed}\": is listed twice; name each handler once"));
            } else if let Some(dir) = typed.strip_prefix("sql:") {
                handlers.push(HandlerName::Sql { typed: typed.clone(), dir: self.sql_dir(&key, typed, dir) });
            } else {
                handlers.extend(self.registered_handler(&key, typed, raw.provider.as_deref()));
            }
        }
        handlers
    }

    fn registered_handler(&mut self, key: &str, typed: &str, provider: Option<&str>) -> Option<HandlerName> {
        let Some(facts) = self.handler(typed).cloned() else {
            let known = self.handlers.iter().map(|handler| handler.name.as_str()).chain(["sql:DIR"]);
            let advice = suggest::advice(typed, known);
            self.problem(key, format!("\"{typed}\": is unknown; {advice}"));
            return None;
        };
        if self.is_embedded && facts.keeps_tables {
            let rule = "keeps its tables in inboxd's own file; with `database` write a folder \"sql:DIR\" for your own tables, or use data_dir";
            self.problem(key, format!("\"{typed}\": {rule}"));
            return None;
        }
        // what a custom scheme's sender sends is not known here
        let understands = |provider: &str| provider == "custom" || facts.providers.contains(&provider);
        if !facts.providers.is_empty() && provider.map(preset_name).is_some_and(|it| !understands(it)) {
            let whose: Vec<_> = facts.providers.iter().map(|name| preset_title(name)).collect();
            self.warn(format!(
                "{key}: \"{typed}\" understands {}'s events and ignores what this provider sends",
                whose.join(" and ")
            ));
        }
        Some(HandlerName::Named(typed.to_owned()))
    }

    /// The folder of SQL files; what is in them is tried against the database, not here.
    fn sql_dir(&mut self, key: &str, typed: &str, dir: &str) -> PathBuf {
        let path = self.base.join(dir);
        if dir.is_empty() {
            self.problem(key, format!("\"{typed}\": names no folder; write e.g. \"sql:handlers\""));
        } else if let Err(error) = std::fs::read_dir(&path) {
            let rule = format!("cannot be read as a folder: {error}; name a folder of .sql files");
            self.problem(key, format!("\"{typed}\": {rule}"));
        } else if std::fs::metadata(&path).is_ok_and(|dir| dir.permissions().mode() & 0o022 != 0) {
            self.warn(format!(
                "{key}: \"{typed}\": others may write this folder, and so decide what is booked; chmod go-w {}",
                path.display()
            ));
        }
        path
    }

    fn notify(&mut self, key: &str, raw: &RawEndpoint, destinations: &[String]) {
        let Some(notify) = &raw.notify else { return };
        if !destinations.contains(notify) {
            let advice = suggest::advice(notify, destinations.iter().map(String::as_str));
            let message = format!("\"{notify}\": is no destination; {advice}; add [destination.{notify}]");
            self.problem(format!("{key}.notify"), message);
        } else if raw.handlers.is_empty() {
            self.warn(format!("{key}.notify: \"{notify}\": without handlers no rows are written for it"));
        }
    }

    fn forward(&mut self, key: &str, raw: &RawEndpoint, destinations: &[String]) {
        let key = format!("{key}.forward");
        for (index, name) in raw.forward.iter().enumerate() {
            if !destinations.contains(name) {
                let advice = suggest::advice(name, destinations.iter().map(String::as_str));
                let message = format!("\"{name}\": is no destination; {advice}; add [destination.{name}]");
                self.problem(&key, message);
            } else if raw.forward[..index].contains(name) {
                self.problem(&key, format!("\"{name}\": is listed twice; name each destination once"));
            }
        }
    }

    /// Below what providers wait for, and below what the front waits for an answer.
    fn proxy_timeout(&mut self, key: &str, raw: &RawEndpoint, mode: Mode) -> Duration {
        let key = format!("{key}.proxy_timeout");
        let timeout = self.duration(&key, raw.proxy_timeout.as_ref(), Duration::from_secs(8));
        if raw.proxy_timeout.is_some() && mode != Mode::Proxy {
            self.problem(&key, "is for mode = \"proxy\" only; remove it, or write that mode");
        } else if timeout > PROXY_TIMEOUT_MAX {
            let typed = duration_text(timeout);
            self.problem(
                &key,
                format!("\"{typed}\": must be at most 25s; write less than the provider waits, e.g. \"8s\""),
            );
        }
        timeout
    }

    fn provider(&mut self, key: &str, typed: Option<&str>) -> Option<String> {
        let key = format!("{key}.provider");
        let Some(typed) = typed else {
            self.missing(
                key,
                "is missing; write e.g. provider = \"stripe\", or \"custom\" with a [endpoint.NAME.scheme]",
            );
            return None;
        };
        if !preset_exists(typed) && typed != "custom" {
            let known = preset_names().into_iter().chain(["custom"]);
            self.problem(key, format!("\"{typed}\": is unknown; {}", suggest::advice(typed, known)));
            return None;
        }
        Some(preset_name(typed).to_owned())
    }

    fn path(&mut self, key: &str, name: &str, typed: Option<&str>) -> Option<String> {
        let key = format!("{key}.path");
        let own = format!("/webhooks/{name}");
        let typed = typed.unwrap_or(&own);
        // a final slash makes no difference in a request, so it makes none here
        let path = typed.trim_end_matches('/');
        if let Some(rule) = path_rule(typed, path) {
            self.problem(key, format!("\"{typed}\": {rule}; write e.g. \"/webhooks/stripe\""));
            return None;
        }
        if let Some(other) = self.paths.insert(path.to_owned(), name.to_owned()) {
            self.problem(
                key,
                format!("\"{typed}\": is the path of endpoint \"{other}\" as well; give one of them another"),
            );
        }
        Some(path.to_owned())
    }

    fn scheme(&mut self, key: &str, provider: Option<&str>, scheme: Option<&CustomScheme>) {
        match (provider, scheme) {
            (Some("custom"), None) => {
                let advice = format!(
                    "is missing; provider = \"custom\" needs [{key}.scheme] with signature_header, signed, …"
                );
                self.missing(format!("{key}.scheme"), &advice);
            }
            (Some("custom"), Some(_)) | (_, None) | (None, Some(_)) => {}
            (Some(preset), Some(_)) => {
                let message = format!(
                    "\"{preset}\" has its own scheme; remove this table, or write provider = \"custom\""
                );
                self.problem(format!("{key}.scheme"), message);
            }
        }
    }

    /// `None` unless every secret could be read and there is one.
    fn endpoint_secrets(&mut self, key: &str, references: &[String]) -> Option<Vec<Secret>> {
        let key = format!("{key}.secrets");
        if references.is_empty() {
            self.missing(key, "is missing; without a secret nothing can be verified; write e.g. secrets = [\"env:STRIPE_WEBHOOK_SECRET\"]");
            return None;
        }
        let secrets = self.secrets(&key, references);
        (secrets.len() == references.len()).then_some(secrets)
    }

    /// `None` where a secret cannot be a key, or is one of another kind.
    fn verifier(
        &mut self,
        key: &str,
        provider: Provider,
        secrets: &[Secret],
        tolerance: Duration,
    ) -> Option<Verifier> {
        let key = format!("{key}.secrets");
        for secret in secrets {
            self.api_key(&key, &provider, secret)?;
        }
        if secrets.iter().any(Secret::is_unread) {
            // nothing is verified with it: the verbs that read no secrets only look at the provider
            let read = secrets.iter().filter(|secret| !secret.is_unread()).cloned().collect();
            return Some(Verifier::any_length(provider, read, tolerance).0);
        }
        let of_wrapped = secrets.iter().find_map(|secret| wrapping::wrapping(secret.expose()));
        let made = Verifier::new(provider, secrets.to_vec(), tolerance);
        made.map_err(|reason| match of_wrapped {
            Some(wrapping) => self.problem(key, format!("{reason} ({wrapping})")),
            None => self.problem(key, reason),
        })
        .ok()
    }

    /// Where an API key stands in place of the signing secret nothing ever verifies. At Stripe, where both
    /// are always told apart, that is refused.
    fn api_key(&mut self, key: &str, provider: &Provider, secret: &Secret) -> Option<()> {
        let Some(whose) = wrapping::api_key(secret) else { return Some(()) };
        let label = secret.label();
        let advice = "with it no delivery verifies; write the signing secret of the webhook endpoint";
        if provider.name() == "stripe" && wrapping::is_stripe_api_key(secret) {
            self.problem(
                key,
                format!("\"{label}\": is {whose}, not a signing secret: {advice}, which begins with whsec_"),
            );
            return None;
        }
        self.warn(format!("{key}: \"{label}\": begins like {whose}: {advice}"));
        Some(())
    }
}

/// What a path breaks, if anything; `path` is `typed` without the final slash.
fn path_rule(typed: &str, path: &str) -> Option<&'static str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    if !typed.starts_with('/') {
        Some("must begin with a slash")
    } else if path.is_empty() {
        Some("must name more than the root")
    } else if OWN_PATHS.contains(&path) {
        Some("is answered by inboxd itself")
    } else if !path.bytes().all(is_plain) {
        Some("may contain only letters, digits and - . _ ~ /")
    } else if path.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) {
        Some("must not contain // or /./ or /../")
    } else {
        None
    }
}
