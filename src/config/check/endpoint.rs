//! The rules of `[endpoint.NAME]`.

use std::time::Duration;

use super::{Checker, suggest};
use crate::config::raw::RawEndpoint;
use crate::config::{
    Endpoint, Limits, Mode, OnRedelivery, OnScopeMismatch, Replay, preset_exists, preset_name, preset_names,
    preset_never_retries, scheme_of,
};
use crate::verify::{CustomScheme, Scheme, Verifier};

/// Handlers that this version has.
const HANDLERS: [&str; 1] = ["billing"];
/// Handlers of the file format that it has not.
const HANDLERS_TO_COME: [&str; 1] = ["orders"];
/// Handlers that move money: what they read must be signed.
const MONEY_HANDLERS: [&str; 2] = ["billing", "orders"];
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
        self.absent_keys(&key, &raw);
        self.mode(&key, &raw);
        self.handlers(&key, &raw);
        self.notify(&key, &raw, destinations);
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
        let scheme = scheme_of(&provider, raw.scheme.as_ref())
            .map_err(|reason| self.problem(format!("{key}.scheme"), reason))
            .ok()?;
        self.fits(&key, &raw, &scheme, limits);
        let usual = Duration::from_secs(scheme.tolerance_s().into());
        let tolerance = self.duration(&format!("{key}.tolerance"), raw.tolerance.as_ref(), usual);
        let body_bytes_max = body_bytes_max.or(scheme.body_bytes_max()).unwrap_or(limits.body_bytes_max);
        let verifier = Verifier::new(scheme, secrets.clone(), tolerance)
            .map_err(|reason| self.problem(format!("{key}.secrets"), reason))
            .ok()?;
        Some(Endpoint {
            body_bytes_max,
            name,
            provider,
            path,
            secrets,
            scheme: raw.scheme,
            verifier,
            mode: Mode::Sync,
            handlers: raw.handlers,
            notify: raw.notify,
            forward: Vec::new(),
            tolerance,
            livemode: raw.livemode,
            account: raw.account,
            on_scope_mismatch,
            on_redelivery,
            replay,
        })
    }

    /// What the provider's way of signing and waiting rules out.
    fn fits(&mut self, key: &str, raw: &RawEndpoint, scheme: &Scheme, limits: &Limits) {
        let name = scheme.name();
        for handler in raw.handlers.iter().filter(|name| MONEY_HANDLERS.contains(&name.as_str())) {
            if !scheme.body_signed() {
                self.problem(format!("{key}.handlers"), format!(
                    "\"{handler}\": books money, and {name} does not sign the body; take it out, and fetch the object from the provider instead"
                ));
            }
        }
        if raw.replay.is_some() && !scheme.has_replay_key() {
            self.warn(format!(
                "{key}.replay: has no effect: {name} signs the event's id, so ids tell replays"
            ));
        }
        let deadline = scheme.behaviour().deadline_s.map(|seconds| Duration::from_secs(seconds.into()));
        if let Some(deadline) = deadline.filter(|deadline| *deadline < limits.handler_timeout)
            && !raw.handlers.is_empty()
        {
            self.warn(format!(
                "{key}: {name} waits {} s for an answer, and limits.handler_timeout allows handlers more",
                deadline.as_secs()
            ));
        }
    }

    fn absent_keys(&mut self, key: &str, raw: &RawEndpoint) {
        self.absent_from_this_version(&format!("{key}.forward"), !raw.forward.is_empty());
        self.absent_from_this_version(&format!("{key}.proxy_timeout"), raw.proxy_timeout.is_some());
    }

    fn mode(&mut self, key: &str, raw: &RawEndpoint) {
        let key = format!("{key}.mode");
        match raw.mode.as_deref() {
            Some("sync") => {}
            Some(later @ ("async" | "proxy")) => {
                self.problem(
                    key,
                    format!("\"{later}\": is not available in this version; write mode = \"sync\""),
                );
            }
            Some(other) => {
                let advice = suggest::advice(other, ["sync", "async", "proxy"]);
                self.problem(key, format!("\"{other}\": is unknown; {advice}"));
            }
            None => {
                let provider = raw.provider.as_deref().unwrap_or_default();
                if preset_never_retries(provider) && !raw.handlers.is_empty() {
                    self.problem(key, format!(
                        "{provider} does not send again by itself, so its handlers run in mode \"async\", which is not available \
                         in this version; write mode = \"sync\" and redeliver failed events by hand, or remove handlers"
                    ));
                }
            }
        }
    }

    fn handlers(&mut self, key: &str, raw: &RawEndpoint) {
        let key = format!("{key}.handlers");
        for (index, handler) in raw.handlers.iter().enumerate() {
            if HANDLERS_TO_COME.contains(&handler.as_str()) || handler.starts_with("sql:") {
                self.problem(
                    &key,
                    format!("\"{handler}\": is not available in this version; known: \"billing\""),
                );
            } else if !HANDLERS.contains(&handler.as_str()) {
                let known = HANDLERS.into_iter().chain(HANDLERS_TO_COME);
                self.problem(&key, format!("\"{handler}\": is unknown; {}", suggest::advice(handler, known)));
            } else if raw.handlers[..index].contains(handler) {
                self.problem(&key, format!("\"{handler}\": is listed twice; name each handler once"));
            }
        }
        let is_other = |provider: &str| provider != "stripe" && provider != "custom";
        if raw.handlers.iter().any(|handler| handler == "billing")
            && raw.provider.as_deref().is_some_and(is_other)
        {
            self.warn(format!(
                "{key}: \"billing\" understands Stripe's events and ignores what this provider sends"
            ));
        }
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
    fn endpoint_secrets(&mut self, key: &str, references: &[String]) -> Option<Vec<crate::verify::Secret>> {
        let key = format!("{key}.secrets");
        if references.is_empty() {
            self.missing(key, "is missing; without a secret nothing can be verified; write e.g. secrets = [\"env:STRIPE_WEBHOOK_SECRET\"]");
            return None;
        }
        let secrets = self.secrets(&key, references);
        (secrets.len() == references.len()).then_some(secrets)
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
