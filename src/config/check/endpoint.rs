//! `[endpoint.NAME]`: where one provider delivers, and what is done with what it sends.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use super::{Checker, Limits, scheme, suggest};
use crate::config::keys::{Default, Kind, Table, Words, key, words};
use crate::config::values::{Shown, Values};
use crate::config::wrapping;
use crate::config::{
    ACCOUNT_REQUIRED, HandlerFacts, duration_text, preset_exists, preset_name, preset_names,
    preset_never_retries, preset_title, provider_of,
};
use crate::providers::{Preset, Provider};
use crate::signature::{CustomScheme, Secret};
use crate::verify::Verifier;

pub(in crate::config) const TABLE: Table = Table {
    header: "endpoint.NAME",
    doc: "Where one provider delivers. The name is part of each event's key in the database.",
    keys: &[
        key("provider", Kind::Text, Default::Required, "A name from `inboxd providers list`, or `custom`."),
        key("path", Kind::Text, Default::Follows("`/webhooks/NAME`"), "The path of the URL."),
        key(
            "secrets",
            Kind::Secrets,
            Default::Required,
            "The keys that deliveries are signed with; the old and the new one while rotating.",
        ),
        key(
            "mode",
            Kind::Choice(|| words(MODES)),
            Default::Follows("`sync`; `async` where the provider never sends again by itself"),
            "When handlers run: `sync` before the answer, `async` after it; `proxy`: the application of `forward` answers.",
        ),
        key(
            "handlers",
            Kind::Texts,
            Default::Unset,
            "Built-in names and folders `sql:DIR`; they run in this order in one transaction.",
        ),
        key(
            "notify",
            Kind::Text,
            Default::Unset,
            "The destination of the rows that built-in handlers write.",
        ),
        key("forward", Kind::Texts, Default::Unset, "Destinations that get the raw event."),
        key(
            "tolerance",
            Kind::Duration,
            Default::Follows("the provider's, mostly `5m`"),
            "How far the signed time may be from now, either way.",
        ),
        key(
            "livemode",
            Kind::Flag,
            Default::Unset,
            "The only mode that is taken: `true` live, `false` test.",
        ),
        key(
            "account",
            Kind::Text,
            Default::Unset,
            "The only account that is taken; `required`: any, but one.",
        ),
        key(
            "on_scope_mismatch",
            Kind::Choice(|| words(SCOPES)),
            Default::Is("refuse"),
            "An event of another mode or account: `refuse` (400), or `ignore` (200, stored, nothing done).",
        ),
        key(
            "on_redelivery",
            Kind::Choice(|| words(REDELIVERIES)),
            Default::Is("requeue"),
            "A redelivery of a quarantined event: `requeue` runs it again, `count` only counts it.",
        ),
        key(
            "replay",
            Kind::Choice(|| words(REPLAYS)),
            Default::Is("flag"),
            "A known body under a new, unsigned id: `flag` (review), `refuse` (400) or `allow`.",
        ),
        key(
            "replay_allow",
            Kind::Texts,
            Default::Unset,
            "Types whose equal bodies are events of their own; `issues` covers `issues.opened`.",
        ),
        key(
            "body_bytes_max",
            Kind::Size,
            Default::Follows("the provider's, else that of `[limits]`"),
            "The largest body, up to 64MiB.",
        ),
        key(
            "proxy_timeout",
            Kind::Duration,
            Default::Is("8s"),
            "With `mode = \"proxy\"` only: how long the application may take; less than the provider waits, at most 25s.",
        ),
        key("scheme", Kind::OptionalTable(&scheme::TABLE), Default::Unset, scheme::TABLE.doc),
    ],
};

const MODES: &Words<Mode> = &[("sync", Mode::Sync), ("async", Mode::Async), ("proxy", Mode::Proxy)];
const SCOPES: &Words<OnScopeMismatch> =
    &[("refuse", OnScopeMismatch::Refuse), ("ignore", OnScopeMismatch::Ignore)];
const REDELIVERIES: &Words<OnRedelivery> =
    &[("requeue", OnRedelivery::Requeue), ("count", OnRedelivery::Count)];
const REPLAYS: &Words<Replay> =
    &[("flag", Replay::Flag), ("refuse", Replay::Refuse), ("allow", Replay::Allow)];

/// From here on a tolerance is odd.
const TOLERANCE_ADVISED: Duration = Duration::from_secs(3600);
/// The front waits 30 s for an answer.
const PROXY_TIMEOUT_MAX: Duration = Duration::from_secs(25);
/// Paths that the listener answers itself.
const OWN_PATHS: [&str; 2] = ["/livez", "/readyz"];

/// `[endpoint.NAME]`
#[derive(Debug)]
pub struct Endpoint {
    /// Part of the inbox key.
    pub name: String,
    /// The preset's name, or `custom`.
    pub provider: String,
    /// Begins with a slash and does not end in one.
    pub path: String,
    /// Where each secret came from and how to recognise it (`env:NAME sha256:ab12cd34`); for `check --print`.
    pub secrets: Vec<Secret>,
    /// The scheme with its keys.
    pub verifier: Verifier,
    /// When the work is done.
    pub mode: Mode,
    /// In the order in which they run.
    pub handlers: Vec<HandlerName>,
    /// Destination of the rows that built-in handlers emit.
    pub notify: Option<String>,
    /// Destinations that get the raw event.
    pub forward: Vec<String>,
    /// How far a signed time may be from now, either way.
    pub tolerance: Duration,
    /// The only mode this endpoint takes.
    pub livemode: Option<bool>,
    /// The only account this endpoint takes.
    pub account: Option<String>,
    /// What becomes of an event of another mode or account.
    pub on_scope_mismatch: OnScopeMismatch,
    /// What a redelivery of a quarantined event does.
    pub on_redelivery: OnRedelivery,
    /// What a known body under a new, unsigned id does.
    pub replay: Replay,
    /// Types for which it is an event of its own: equal bodies are meant twice there. `issues` is `issues.opened` too.
    pub replay_allow: Vec<String>,
    /// The largest body, in bytes.
    pub body_bytes_max: usize,
    /// How long the application may take where the mode is [`Mode::Proxy`].
    pub proxy_timeout: Duration,
}

impl Endpoint {
    /// What a known body under a new, unsigned id does, by the event's type.
    pub fn replay_of(&self, event_type: &str) -> Replay {
        let covers = |allowed: &String| {
            event_type
                .strip_prefix(allowed.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if self.replay_allow.iter().any(covers) { Replay::Allow } else { self.replay }
    }
}

/// One entry of `handlers`. Shown as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerName {
    /// A built-in or registered handler.
    Named(String),
    /// `sql:DIR`
    Sql {
        /// As typed, with the prefix.
        typed: String,
        /// The folder.
        dir: PathBuf,
    },
}

impl fmt::Display for HandlerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) | Self::Sql { typed: name, .. } => f.write_str(name),
        }
    }
}

/// When an endpoint's handlers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the request's own transaction, before the answer.
    Sync,
    /// After the answer: a worker takes the stored event from there.
    Async,
    /// By the application that the one destination of `forward` is, before the answer.
    Proxy,
}

/// `on_scope_mismatch`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnScopeMismatch {
    /// 400, nothing stored.
    Refuse,
    /// 200, stored as ignored.
    Ignore,
}

/// `on_redelivery`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnRedelivery {
    /// The handlers run again.
    Requeue,
    /// It is only counted.
    Count,
}

/// `replay`: a known body under a new id, where the provider does not sign ids
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// Stored for a person; nothing is done.
    Flag,
    /// 400, nothing stored.
    Refuse,
    /// An event like any other.
    Allow,
}

impl Checker {
    /// `None` where too much is wrong to go on; every problem is noted.
    pub(super) fn endpoint(
        &mut self,
        table: &Values,
        limits: &Limits,
        destinations: &[String],
    ) -> Option<Endpoint> {
        let (key, name) = (table.path.as_str(), table.name.clone());
        self.name(key, &name);
        let mode = self.mode(table);
        let handlers = self.handlers(table);
        let notify = self.notify(table, destinations);
        let forward = self.forward(table, destinations);
        let proxy_timeout = self.proxy_timeout(table, mode);
        let account = self.account(table);
        let provider = self.provider(table);
        let path = self.path(table);
        let typed_bytes_max = self.optional_size(table, "body_bytes_max");
        let typed_bytes_max = typed_bytes_max.and_then(|bytes| self.body_bytes(table, bytes));
        let on_scope_mismatch = self.choice(table, "on_scope_mismatch", SCOPES);
        let on_redelivery = self.choice(table, "on_redelivery", REDELIVERIES);
        let replay = self.choice(table, "replay", REPLAYS);
        let custom = self.scheme(table, provider.as_deref());
        let secrets = self.endpoint_secrets(table);
        let (provider, path, secrets) = (provider?, path?, secrets?);
        if provider == "custom" && custom.is_none() {
            return None;
        }
        let sender = provider_of(&provider, custom.as_ref())
            .map_err(|reason| self.problem(table.key("scheme"), reason))
            .ok()?;
        self.fits(table, &sender, mode);
        self.is_in_time(table, &sender, mode, (limits.handler_timeout, proxy_timeout));
        let tolerance = self.tolerance(table, sender.preset());
        let usual_bytes_max = sender.preset().body_bytes_max.unwrap_or(limits.body_bytes_max);
        let body_bytes_max = typed_bytes_max.unwrap_or(usual_bytes_max);
        table.show("body_bytes_max", Shown::Number(body_bytes_max as u64));
        let verifier = self.verifier(key, sender, &secrets, tolerance)?;
        Some(Endpoint {
            body_bytes_max,
            name,
            provider,
            path,
            secrets,
            verifier,
            mode,
            handlers,
            notify,
            forward,
            tolerance,
            livemode: self.optional_flag(table, "livemode"),
            account,
            on_scope_mismatch,
            on_redelivery,
            replay,
            replay_allow: self.texts(table, "replay_allow"),
            proxy_timeout,
        })
    }

    fn account(&mut self, table: &Values) -> Option<String> {
        let account = self.text(table, "account");
        if account.as_deref() == Some("") {
            self.problem(
                table.key("account"),
                "\"\": names no account; remove the key to take every account",
            );
        }
        account
    }

    fn tolerance(&mut self, table: &Values, preset: &Preset) -> Duration {
        let usual = Duration::from_secs(preset.tolerance_s.into());
        let tolerance = self.duration_or(table, "tolerance", usual);
        // a preset's own is as long as it has to be
        if tolerance > TOLERANCE_ADVISED.max(usual) {
            let (key, typed) = (table.key("tolerance"), duration_text(tolerance));
            self.warn(format!(
                "{key}: \"{typed}\": a copied delivery can be sent again for this long; \"5m\" is usual"
            ));
        }
        tolerance
    }

    /// What the provider's way of signing and waiting rules out.
    fn fits(&mut self, table: &Values, provider: &Provider, mode: Mode) {
        let (key, name, scheme) = (&table.path, provider.name(), provider.scheme());
        if !scheme.body_signed() {
            self.none_needs_the_body_signed(table, name);
        }
        if table.text("account") == Some(ACCOUNT_REQUIRED) && !scheme.names_account() {
            self.problem(
                format!("{key}.account"),
                format!("\"{ACCOUNT_REQUIRED}\": {name} names no account in its events; remove the key"),
            );
        }
        for typed in ["replay", "replay_allow"] {
            let is_set = table.is_set(typed) && (typed == "replay" || !table.texts(typed).is_empty());
            if is_set && !provider.has_replay_key() {
                self.warn(format!(
                    "{key}.{typed}: has no effect: {name} signs the event's id, so ids tell replays"
                ));
            }
        }
        if table.texts("replay_allow").iter().any(String::is_empty) {
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

    fn none_needs_the_body_signed(&mut self, table: &Values, scheme: &str) {
        for typed in table.texts("handlers") {
            let needs = match self.handler(typed) {
                Some(HandlerFacts { needs_signed_body: true, is_money: true, .. }) => "books money",
                Some(HandlerFacts { needs_signed_body: true, .. }) => "acts on what the body says",
                Some(_) | None => continue,
            };
            self.problem(table.key("handlers"), format!(
                "\"{typed}\": {needs}, and {scheme} does not sign the body; take it out, and fetch the object from the provider instead"
            ));
        }
    }

    /// Whether handlers and application must answer before the provider gives up waiting.
    fn is_in_time(
        &mut self,
        table: &Values,
        provider: &Provider,
        mode: Mode,
        (handler_timeout, proxy_timeout): (Duration, Duration),
    ) {
        let Some(seconds) = provider.preset().deadline_s else { return };
        let (key, name, deadline) = (&table.path, provider.name(), Duration::from_secs(seconds.into()));
        if mode == Mode::Sync && !table.texts("handlers").is_empty() && handler_timeout > deadline {
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
    fn mode(&mut self, table: &Values) -> Mode {
        let key = table.key("mode");
        let provider = table.text("provider").unwrap_or_default();
        let never_retries = preset_never_retries(provider);
        let has_handlers = !table.texts("handlers").is_empty();
        let usual = if never_retries { ("async", Mode::Async) } else { ("sync", Mode::Sync) };
        let (word, mode) = self.optional_choice(table, "mode", MODES).unwrap_or(usual);
        table.show("mode", Shown::text(word));
        if mode == Mode::Sync && never_retries && has_handlers && table.is_set("mode") {
            self.warn(format!(
                "{key}: \"sync\": {provider} does not send again by itself, so an event whose handler fails \
                 is lost unless it is redelivered by hand; \"async\" retries it here"
            ));
        }
        if mode == Mode::Proxy && (table.texts("forward").len() != 1 || has_handlers) {
            let rule = "the application answers for the event, so forward must name its one destination and handlers must be empty";
            self.problem(key, format!("\"proxy\": {rule}; write e.g. forward = [\"app\"]"));
        }
        mode
    }

    fn handlers(&mut self, table: &Values) -> Vec<HandlerName> {
        let (key, typed_ones) = (table.key("handlers"), table.texts("handlers"));
        let mut handlers = Vec::new();
        for (index, typed) in typed_ones.iter().enumerate() {
            if typed_ones[..index].contains(typed) {
                self.problem(&key, format!("\"{typed}\": is listed twice; name each handler once"));
            } else if let Some(dir) = typed.strip_prefix("sql:") {
                handlers.push(HandlerName::Sql { typed: typed.clone(), dir: self.sql_dir(&key, typed, dir) });
            } else {
                handlers.extend(self.registered_handler(&key, typed, table.text("provider")));
            }
        }
        table.show("handlers", Shown::texts(&handlers));
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

    /// The folder of SQL files. The files themselves are checked against the database, not here.
    fn sql_dir(&mut self, key: &str, typed: &str, dir: &str) -> PathBuf {
        let path = self.base.join(dir);
        if dir.is_empty() {
            self.problem(key, format!("\"{typed}\": names no folder; write e.g. \"sql:handlers\""));
        } else if let Err(error) = std::fs::read_dir(&path) {
            let rule = format!("cannot be read as a folder: {error}; name a folder of .sql files");
            self.problem(key, format!("\"{typed}\": {rule}"));
        } else if std::fs::metadata(&path).is_ok_and(|dir| dir.permissions().mode() & 0o022 != 0) {
            self.warn(format!(
                "{key}: \"{typed}\": others may write this folder, and so change what is booked; chmod go-w {}",
                path.display()
            ));
        }
        path
    }

    fn notify(&mut self, table: &Values, destinations: &[String]) -> Option<String> {
        let notify = self.text(table, "notify")?;
        let key = table.key("notify");
        if !destinations.contains(&notify) {
            self.no_destination(&key, &notify, destinations);
        } else if table.texts("handlers").is_empty() {
            self.warn(format!("{key}: \"{notify}\": without handlers no rows are written for it"));
        }
        Some(notify)
    }

    fn forward(&mut self, table: &Values, destinations: &[String]) -> Vec<String> {
        let (key, forward) = (table.key("forward"), self.texts(table, "forward"));
        for (index, name) in forward.iter().enumerate() {
            if !destinations.contains(name) {
                self.no_destination(&key, name, destinations);
            } else if forward[..index].contains(name) {
                self.problem(&key, format!("\"{name}\": is listed twice; name each destination once"));
            }
        }
        forward
    }

    fn no_destination(&mut self, key: &str, name: &str, destinations: &[String]) {
        let advice = suggest::advice(name, destinations.iter().map(String::as_str));
        let rule = "no destination has this name";
        self.problem(key, format!("\"{name}\": {rule}; {advice}; add [destination.{name}]"));
    }

    /// Below what providers wait for, and below what the front waits for an answer.
    fn proxy_timeout(&mut self, table: &Values, mode: Mode) -> Duration {
        let key = table.key("proxy_timeout");
        let timeout = self.duration(table, "proxy_timeout");
        if mode != Mode::Proxy {
            table.show("proxy_timeout", Shown::Unset);
        }
        if table.is_set("proxy_timeout") && mode != Mode::Proxy {
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

    fn provider(&mut self, table: &Values) -> Option<String> {
        let key = table.key("provider");
        let Some(typed) = table.text("provider") else {
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
        let provider = preset_name(typed).to_owned();
        table.show("provider", Shown::text(&provider));
        Some(provider)
    }

    fn path(&mut self, table: &Values) -> Option<String> {
        let (key, name) = (table.key("path"), &table.name);
        let own = format!("/webhooks/{name}");
        let typed = table.text("path").unwrap_or(&own);
        // a final slash makes no difference in a request, so it makes none here
        let path = typed.trim_end_matches('/');
        table.show("path", Shown::text(path));
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

    fn scheme(&mut self, table: &Values, provider: Option<&str>) -> Option<CustomScheme> {
        let key = table.key("scheme");
        match (provider, table.table("scheme")) {
            (Some("custom"), None) => {
                let table = &table.path;
                let advice = format!(
                    "is missing; provider = \"custom\" needs [{table}.scheme] with signature_header, signed, …"
                );
                self.missing(key, &advice);
            }
            (Some("custom"), Some(typed)) => return Some(self.custom_scheme(typed)),
            (_, None) | (None, Some(_)) => {}
            (Some(preset), Some(_)) => {
                let message = format!(
                    "\"{preset}\" has its own scheme; remove this table, or write provider = \"custom\""
                );
                self.problem(key, message);
            }
        }
        None
    }

    /// `None` unless every secret could be read and there is one.
    fn endpoint_secrets(&mut self, table: &Values) -> Option<Vec<Secret>> {
        let references = table.texts("secrets").len();
        if references == 0 {
            let rule = "is missing; without a secret nothing can be verified; write e.g. secrets = [\"env:STRIPE_WEBHOOK_SECRET\"]";
            self.missing(table.key("secrets"), rule);
            return None;
        }
        let secrets = self.secrets(table, "secrets");
        (secrets.len() == references).then_some(secrets)
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
