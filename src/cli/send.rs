//! `send`: correctly signed test deliveries, to the configured instance or to any URL.
//!
//! Memory does not grow with the number of deliveries: a body is held once per event, and answers are only counted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock;
use crate::config::{
    ACCOUNT_REQUIRED, Address, Config, Endpoint, Fingerprints, MissingSecrets, duration_text,
    parse_signed_duration, secret_from_env, url_problem,
};
use crate::outgoing::in_words;
use crate::providers::{self, Preset, Provider};
use crate::signature::{Secret, Unsigned, sign, with_body_hash, with_time_and_signature};
use crate::terminal::printable;
use crate::wake::lock;
use clap::{ArgGroup, Args};
use jiff::SignedDuration;
use serde_json::Value;
use ureq::http::HeaderValue;

use super::args::Names;
use super::{Context, Exit, Failure, provider_advice, put, read_bounded, say, secret_of};

/// Send a correctly signed test delivery
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("send_secret").args(["secret_env", "secret_file"]).requires("to")))]
pub(crate) struct SendArgs {
    /// The provider to imitate, e.g. stripe; not needed with --endpoint
    #[arg(value_name = "PROVIDER", value_parser = Names::of_providers(), hide_possible_values = true)]
    pub(crate) provider_or_type: String,
    /// The event's type, e.g. invoice.paid; several, separated by commas, are events about one object
    #[arg(value_name = "TYPE[,TYPE...]", value_parser = parse_types, required_unless_present = "endpoint")]
    pub(crate) event_types: Option<EventTypes>,
    /// The endpoint to send to, with its scheme and secret [default: the first of this provider]
    #[arg(long, value_name = "NAME")]
    pub(crate) endpoint: Option<String>,
    /// Copies of each event
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) times: u32,
    /// Deliveries at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) concurrency: u16,
    /// The event's id [default: a new one]; if the provider has no ids, deliveries with the same --id are equal
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Send this file as the body, byte for byte
    #[arg(long, value_name = "BODY")]
    pub(crate) file: Option<PathBuf>,
    /// Shift the signed time, e.g. -10m
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_signed_duration)]
    pub(crate) skew: Option<SignedDuration>,
    /// Send in random order
    #[arg(long)]
    pub(crate) shuffle: bool,
    /// Send a wrong signature, which the receiver must refuse
    #[arg(long)]
    pub(crate) bad_signature: bool,
    /// Send to this URL instead of the configured instance, with a secret or with --endpoint's
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<String>,
    /// The variable that holds the secret for --to
    #[arg(long, value_name = "VAR")]
    pub(crate) secret_env: Option<String>,
    /// The file that holds the secret for --to
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
}

/// The types to send, in this order.
#[derive(Debug, Clone)]
pub(crate) struct EventTypes(pub(crate) Vec<String>);

impl SendArgs {
    /// The provider, unless only the endpoint was named.
    pub(crate) fn provider(&self) -> Option<&str> {
        self.event_types.as_ref().map(|_| self.provider_or_type.as_str())
    }

    /// The types to send.
    pub(crate) fn types(&self) -> Result<EventTypes, String> {
        self.event_types.clone().map_or_else(|| parse_types(&self.provider_or_type), Ok)
    }
}

fn parse_types(text: &str) -> Result<EventTypes, String> {
    let types: Vec<_> = text.split(',').map(str::to_owned).collect();
    if types.iter().any(|name| name.is_empty() || !name.chars().all(|c| c.is_ascii_graphic())) {
        return Err("write TYPE or TYPE,TYPE,… without blanks, e.g. invoice.created,invoice.paid".to_owned());
    }
    if types.len() > 100 {
        return Err("at most 100 types".to_owned());
    }
    Ok(EventTypes(types))
}

/// The largest body that any endpoint takes.
pub(crate) const BODY_BYTES_MAX: u64 = 64 << 20;

/// How long one answer may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// How much of an answer is read.
const ANSWER_BYTES_MAX: u64 = 4096;

/// Deliveries of one run.
const DELIVERIES_MAX: usize = 1_000_000;

/// Different answers that are counted apart; any more are counted together.
const ANSWERS_MAX: usize = 100;

/// Refusals that are the right answer to a spoiled signature.
const SIGNATURE_REFUSALS: [u16; 4] = [400, 401, 403, 498];

/// The receiver of the deliveries, and the secret that signs them.
struct Target {
    url: String,
    /// The URL as the provider knows it, for providers that sign it.
    public_url: String,
    provider: Provider,
    secret: Secret,
    /// The secret's reference, with its fingerprint if there is one to compare with.
    secret_shown: String,
    tolerance: Duration,
    scope: Scope,
}

/// The mode and account that the endpoint takes, for the sample.
#[derive(Default)]
struct Scope {
    livemode: Option<bool>,
    account: Option<String>,
}

/// One event, to be sent once or more.
struct Message {
    event_type: String,
    event_id: String,
    content_type: &'static str,
    body: Arc<[u8]>,
}

/// A message as it goes out: for some providers the signature and its time are in the body or the URL.
struct Signed {
    url: String,
    headers: Vec<(String, String)>,
    body: Arc<[u8]>,
}

/// How a delivery was answered.
struct Answer {
    status: u16,
    body: String,
    took: Duration,
}

impl Answer {
    /// inboxd's word for a refusal.
    fn error(&self) -> Option<String> {
        if let Some(word) = self.body.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            return Some(word.to_owned());
        }
        let json: Value = serde_json::from_str(&self.body).ok()?;
        json["error"].as_str().map(str::to_owned)
    }
}

/// Prints a line per answer. Exit 0 if each is the right one: a 2xx, or the refusal of a signature that was
/// spoiled on purpose.
pub(crate) fn run(args: &SendArgs, context: &Context) -> Result<(), Failure> {
    let target = target(args, context)?;
    let messages = messages(args, &target)?;
    for message in &messages {
        check(args, &target, message)?;
    }
    if args.skew.is_some() && !target.provider.scheme().signs_time() {
        say(&format!("warning: --skew changes nothing: {} signs no time", target.provider.title()));
    }
    let order = order(args, messages.len())?;
    let next = AtomicUsize::new(0);
    let tally = Mutex::new(Tally { tolerance: target.tolerance, ..Tally::default() });
    let agent = agent();
    thread::scope(|scope| {
        for _ in 0..usize::from(args.concurrency).min(order.len()) {
            scope.spawn(|| {
                while let Some(index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let message = &messages[*index as usize];
                    let answer = deliver(&agent, args, &target, message);
                    lock(&tally).take(args, &target.provider, message, answer);
                }
            });
        }
    });
    tally.into_inner().unwrap_or_else(|e| e.into_inner()).conclude(args, &target)
}

fn usage(reason: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, reason)
}

fn target(args: &SendArgs, context: &Context) -> Result<Target, Failure> {
    let provider =
        args.provider().map(|provider| provider_of(args, provider, context)).transpose()?.flatten();
    let target = match &args.to {
        Some(url) => named_target(args, url, provider, context)?,
        None => {
            let config = context.load(MissingSecrets::LeaveCredentials)?;
            configured_target(&config, endpoint_of(args, provider.as_ref(), &config)?)?
        }
    };
    if !target.provider.scheme().can_sign() {
        return Err(usage(format!(
            "{} signs with a private key that only it has, so no test delivery can be made here; \
             use the provider's own test button, or `inboxd verify` on a captured delivery",
            target.provider.title()
        )));
    }
    Ok(target)
}

/// The preset; `None` for a scheme of the user's own, which the endpoint has.
fn provider_of(args: &SendArgs, provider: &str, context: &Context) -> Result<Option<Provider>, Failure> {
    if provider != "custom" {
        let known = providers::find(provider).and_then(|preset| Provider::named(preset.name).ok());
        return known
            .map(Some)
            .ok_or_else(|| usage(format!("there is no provider {provider}; {}", provider_advice(provider))));
    }
    if args.endpoint.is_some() {
        return Ok(None);
    }
    let config = context.load(MissingSecrets::LeaveCredentials);
    let endpoints = config.map_or(Vec::new(), |config| config.endpoints);
    let names = endpoints.iter().filter(|endpoint| endpoint.provider == "custom");
    let names: Vec<_> = names.map(|endpoint| endpoint.name.as_str()).collect();
    let configured = if names.is_empty() { "none is configured".to_owned() } else { names.join(", ") };
    Err(usage(format!(
        "a scheme of your own stands in the configuration; write `inboxd send --endpoint NAME TYPE` ({configured})"
    )))
}

/// The URL of --to, with the secret that was named or the endpoint's.
fn named_target(
    args: &SendArgs,
    url: &str,
    provider: Option<Provider>,
    context: &Context,
) -> Result<Target, Failure> {
    if let Some(problem) = url_problem(url) {
        return Err(usage(format!("--to {problem}")));
    }
    let (url, public_url) = (url.to_owned(), url.to_owned());
    let secret = match (&args.secret_env, &args.secret_file) {
        (Some(variable), _) => secret_from_env(variable).map_err(usage)?,
        (None, Some(path)) => secret_of(path)?,
        (None, None) if args.endpoint.is_some() => {
            let config = context.load(MissingSecrets::LeaveCredentials)?;
            let endpoint = endpoint_of(args, provider.as_ref(), &config)?;
            return Ok(Target { url, public_url, ..target_of(&config, endpoint)? });
        }
        (None, None) => return Err(usage("--to needs --secret-env or --secret-file, or --endpoint")),
    };
    let Some(provider) = provider else {
        return Err(usage(
            "name the provider, or leave out --secret-env and --secret-file: the endpoint has its own",
        ));
    };
    let tolerance = Duration::from_secs(provider.preset().tolerance_s.into());
    let secret_shown = secret.label().to_owned();
    Ok(Target { url, public_url, provider, secret, secret_shown, tolerance, scope: Scope::default() })
}

fn endpoint_of<'a>(
    args: &SendArgs,
    provider: Option<&Provider>,
    config: &'a Config,
) -> Result<&'a Endpoint, Failure> {
    let is_meant = |endpoint: &&Endpoint| match &args.endpoint {
        Some(name) => endpoint.name == *name,
        None => provider.is_some_and(|provider| endpoint.provider == provider.name()),
    };
    let endpoint = config.endpoints.iter().find(is_meant).ok_or_else(|| no_endpoint(args, config))?;
    let wanted = args.provider().map(|typed| provider.map_or(typed, |provider| provider.name()));
    if wanted.is_some_and(|wanted| wanted != endpoint.provider) {
        let (name, provider) = (&endpoint.name, &endpoint.provider);
        return Err(usage(format!(
            "the endpoint {name} is for {provider}; write `inboxd send --endpoint {name} …`"
        )));
    }
    Ok(endpoint)
}

/// The endpoint's scheme and secret; the receiver is not known yet.
fn target_of(config: &Config, endpoint: &Endpoint) -> Result<Target, Failure> {
    let secret = endpoint.secrets.first().cloned().ok_or_else(|| usage("the endpoint has no secret"))?;
    if secret.is_unread() {
        return Err(unread(&secret, "send"));
    }
    let secret_shown = format!("{} {}", secret.label(), Fingerprints::of(&config.data_dir).text(&secret));
    Ok(Target {
        url: String::new(),
        public_url: String::new(),
        provider: endpoint.verifier.provider().clone(),
        secret,
        secret_shown,
        tolerance: endpoint.tolerance,
        scope: Scope {
            livemode: endpoint.livemode,
            account: endpoint.account.clone().filter(|account| account != ACCOUNT_REQUIRED),
        },
    })
}

/// The secret is a credential that only the service gets.
pub(crate) fn unread(secret: &Secret, verb: &str) -> Failure {
    let message = format!(
        "the secret {} is a credential of the service; name the folder of its file: CREDENTIALS_DIRECTORY=/etc/inboxd inboxd {verb} …",
        secret.label()
    );
    Failure::new(Exit::Config, message)
}

fn configured_target(config: &Config, endpoint: &Endpoint) -> Result<Target, Failure> {
    let Address::Tcp(address) = config.listen.webhooks else {
        return Err(usage(
            "the daemon listens on a Unix socket or on one that systemd holds; name the URL with --to",
        ));
    };
    if address.port() == 0 {
        let rule = "listen.webhooks has port 0, so that each start chooses another";
        return Err(usage(format!("{rule}; name the URL that `inboxd serve` printed with --to")));
    }
    let host = if address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { address.ip().to_string() };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let url = format!("http://{host}:{}{}", address.port(), endpoint.path);
    let public_url =
        config.public_url.as_ref().map_or_else(|| url.clone(), |base| format!("{base}{}", endpoint.path));
    Ok(Target { url, public_url, ..target_of(config, endpoint)? })
}

fn no_endpoint(args: &SendArgs, config: &Config) -> Failure {
    let waits = config.without_secret.iter().find(|without| match &args.endpoint {
        Some(name) => without.endpoint == *name,
        None => Some(without.provider.as_str()) == args.provider(),
    });
    if let Some(without) = waits {
        let message = format!("the endpoint {} has no secret yet: {}", without.endpoint, without.advice);
        return Failure::new(Exit::Busy, message);
    }
    let names: Vec<_> = config.endpoints.iter().map(|e| format!("{} ({})", e.name, e.provider)).collect();
    let wanted = match &args.endpoint {
        Some(name) => format!("there is no endpoint {name}"),
        None => format!("no endpoint is for {}", args.provider().unwrap_or_default()),
    };
    Failure::new(Exit::NotFound, format!("{wanted}; configured are {}", names.join(", ")))
}

/// One message per type; several are events about one object.
fn messages(args: &SendArgs, target: &Target) -> Result<Vec<Message>, Failure> {
    let Target { provider, scope, .. } = target;
    let seed = format!("{:016x}", getrandom::u64().map_err(no_randomness)?);
    let file = args.file.as_ref().map(|path| read_bounded(path, BODY_BYTES_MAX, "the body")).transpose()?;
    let file: Option<Arc<[u8]>> = file.map(Arc::from);
    let message = |(n, event_type): (usize, &String)| {
        let event_id = match (&args.id, n) {
            (Some(id), 0) => id.clone(),
            (Some(id), n) => format!("{id}_{n}"),
            (None, n) => provider.preset().sample_id(&format!("{seed}.{n}")),
        };
        let (event_id, body) = match &file {
            Some(bytes) => from_file(args, provider, event_id, bytes)?,
            None => {
                // without ids of the provider's, --id makes bodies that differ, and equal ones that are equal
                let seed = if provider.has_ids() || args.id.is_none() { &seed } else { &event_id };
                let sample = provider.sample(event_type, &event_id, seed, clock::now_ms() / 1000);
                (event_id, Arc::from(adopt(sample, provider.preset(), scope).into_bytes()))
            }
        };
        let content_type =
            if file.is_some() { "application/json" } else { provider.preset().sample_content_type() };
        Ok(Message { event_type: event_type.clone(), event_id, content_type, body })
    };
    args.types().map_err(usage)?.0.iter().enumerate().map(message).collect()
}

/// The file's bytes, unchanged; only --id replaces the id, if the provider has it in the body.
fn from_file(
    args: &SendArgs,
    provider: &Provider,
    event_id: String,
    bytes: &Arc<[u8]>,
) -> Result<(String, Arc<[u8]>), Failure> {
    let Some(pointer) = provider.id_in_body() else {
        return Ok((event_id, Arc::clone(bytes)));
    };
    match (serde_json::from_slice::<Value>(bytes), &args.id) {
        (Ok(mut json @ (Value::Object(_) | Value::Array(_))), Some(_)) => {
            provider.put_id(&mut json, &event_id);
            Ok((event_id, Arc::from(json.to_string().into_bytes())))
        }
        (_, Some(_)) => Err(usage("--file is not a JSON object, so --id has no place in it")),
        (Ok(json), None) => {
            let id = json.pointer(&pointer).and_then(Value::as_str).unwrap_or("(without an id)");
            Ok((id.to_owned(), Arc::clone(bytes)))
        }
        (Err(_), None) => Ok(("(not JSON)".to_owned(), Arc::clone(bytes))),
    }
}

/// Gives the sample the mode and account that the endpoint takes, if the provider's events name them.
fn adopt(sample: String, preset: &Preset, scope: &Scope) -> String {
    let recipe = &preset.recipe;
    if scope.livemode.is_none() && scope.account.is_none() {
        return sample;
    }
    let Ok(mut json) = serde_json::from_str::<Value>(&sample) else { return sample };
    if let Some(livemode) = scope.livemode {
        put_at(&mut json, recipe.livemode, &Value::Bool(livemode));
        if let Some(object) = json.pointer_mut("/data/object/livemode") {
            *object = Value::Bool(livemode);
        }
    }
    if let Some(account) = &scope.account {
        put_at(&mut json, recipe.account, &Value::String(account.clone()));
    }
    json.to_string()
}

/// Writes the value at the first source that has a place in the body.
fn put_at(json: &mut Value, sources: &[&str], value: &Value) {
    for pointer in sources.iter().filter_map(|source| source.strip_prefix("json:")) {
        if let Some((parent, key)) = pointer.rsplit_once('/')
            && let Some(Value::Object(fields)) = json.pointer_mut(parent)
        {
            fields.insert(key.to_owned(), value.clone());
            return;
        }
    }
}

/// Refuses messages that cannot be sent, before any message is sent.
fn check(args: &SendArgs, target: &Target, message: &Message) -> Result<(), Failure> {
    for (name, value) in signed(args, target, message).map_err(usage)?.headers {
        if HeaderValue::from_str(&value).is_err() {
            return Err(usage(format!("the header {name} cannot have this value: {value}")));
        }
    }
    Ok(())
}

/// Indices of the messages, in the order of sending.
fn order(args: &SendArgs, messages: usize) -> Result<Vec<u32>, Failure> {
    let count = messages.saturating_mul(args.times as usize);
    if count > DELIVERIES_MAX {
        return Err(usage(format!(
            "{count} deliveries are more than {DELIVERIES_MAX}; write a smaller --times"
        )));
    }
    let indices = 0..u32::try_from(messages).unwrap_or(u32::MAX);
    let mut order: Vec<u32> =
        indices.flat_map(|index| std::iter::repeat_n(index, args.times as usize)).collect();
    if args.shuffle {
        for last in (1..order.len()).rev() {
            let random = getrandom::u64().map_err(no_randomness)?;
            let other = usize::try_from(random % (u64::try_from(last).unwrap_or(u64::MAX) + 1)).unwrap_or(0);
            order.swap(last, other);
        }
    }
    Ok(order)
}

fn signed(args: &SendArgs, target: &Target, message: &Message) -> Result<Signed, String> {
    let Target { provider, secret, .. } = target;
    let scheme = provider.scheme();
    let skew_s = args.skew.map_or(0, |skew| skew.as_secs());
    let signed_at_s = (clock::now_ms() / 1000).saturating_add(skew_s);
    // a signature in the body is spoiled by another key, one in a header afterwards
    let is_in_body = scheme.signature_in_body();
    let wrong = Secret::new(secret.label(), [secret.expose(), b"?"].concat());
    let signing = if args.bad_signature && is_in_body { &wrong } else { secret };
    let body = with_time_and_signature(scheme, signing, message.body.to_vec(), signed_at_s)?;
    let (mut url, mut public_url) = (target.url.clone(), target.public_url.clone());
    if scheme.signs_form_fields() && message.content_type == "application/json" {
        (url, public_url) = (with_body_hash(&url, &body), with_body_hash(&public_url, &body));
    }
    let unsigned = Unsigned {
        method: "POST",
        url: &public_url,
        content_type: message.content_type,
        event_id: &message.event_id,
        event_type: Some(&message.event_type),
        signed_at_s,
        body: &body,
    };
    let mut headers = sign(scheme, secret, &unsigned)?;
    if args.bad_signature
        && !is_in_body
        && let Some((_, signature)) = headers.last_mut()
    {
        spoil(signature);
    }
    Ok(Signed { url, headers, body: Arc::from(body) })
}

fn deliver(
    agent: &ureq::Agent,
    args: &SendArgs,
    target: &Target,
    message: &Message,
) -> Result<Answer, String> {
    let Signed { url, headers, body } = signed(args, target, message)?;
    let mut request = agent.post(&url).content_type(message.content_type);
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in headers.chain(target.provider.preset().sample_headers().iter().copied()) {
        request = request.header(name, value);
    }
    let start = Instant::now();
    let mut response = request.send(&body[..]).map_err(|error| in_words(&error, &url, ANSWER_TIME_MAX))?;
    let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().unwrap_or_default();
    // for some providers the outcome is in a header, because they prescribe the body
    let outcome = response.headers().get("inboxd-outcome").and_then(|value| value.to_str().ok());
    let text = outcome.map_or_else(|| text.trim().to_owned(), |word| format!("({word})"));
    Ok(Answer {
        status: response.status().as_u16(),
        body: printable(&text).into_owned(),
        took: start.elapsed(),
    })
}

/// Changes the last hex digit, so that the signature stays well-formed.
fn spoil(signature: &mut String) {
    let position = signature.rfind(|c: char| c.is_ascii_digit() || ('a'..='f').contains(&c));
    match position {
        Some(at) => {
            let other = if &signature[at..=at] == "0" { "1" } else { "0" };
            signature.replace_range(at..=at, other);
        }
        None => signature.push('0'),
    }
}

/// An answer, compared with the expected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    AsItShouldBe,
    /// 503: the receiver takes nothing now.
    Unavailable,
    /// 409: the receiver is at work on another copy.
    InProgress,
    /// Any other 5xx: the receiver failed.
    Failed,
    /// Of a genuine delivery.
    Refused,
    /// Of a spoiled signature.
    Accepted,
    /// A spoiled signature was refused, but not for its signature.
    NotJudged,
}

fn judge(args: &SendArgs, tolerance: Duration, answer: &Answer) -> Verdict {
    let is_success = (200..300).contains(&answer.status);
    // PagerDuty's endpoint answers 503 where others answer 400; another receiver may have no words at all
    let speaks_of_signature = answer.error().is_some_and(|error| error.starts_with("signature_"));
    let is_refusal = SIGNATURE_REFUSALS.contains(&answer.status) && args.to.is_some();
    // --skew asked for a time beyond the tolerance, so this refusal is the right answer
    let speaks_of_time = answer.error().is_some_and(|error| error == "timestamp_outside_tolerance");
    let is_late = args.skew.is_some_and(|skew| skew.unsigned_abs() > tolerance);
    match (args.bad_signature, is_success) {
        (false, true) => Verdict::AsItShouldBe,
        (true, true) => Verdict::Accepted,
        (true, false) if speaks_of_signature || is_refusal => Verdict::AsItShouldBe,
        (_, false) if is_late && (speaks_of_time || is_refusal) => Verdict::AsItShouldBe,
        (_, false) if answer.status == 503 => Verdict::Unavailable,
        (_, false) if answer.status == 409 => Verdict::InProgress,
        (_, false) if answer.status >= 500 => Verdict::Failed,
        (false, false) => Verdict::Refused,
        (true, false) => Verdict::NotJudged,
    }
}

/// Counts of all answers.
#[derive(Default)]
struct Tally {
    /// The endpoint's.
    tolerance: Duration,
    answers: BTreeMap<String, u64>,
    other_answers: u64,
    as_it_should_be: u64,
    unanswered: u64,
    unavailable: u64,
    in_progress: u64,
    failed: u64,
    /// The status of the latest of those.
    failed_with: u16,
    refused: u64,
    accepted: u64,
    not_judged: u64,
    /// Words of refusal with advice, and their counts.
    errors: BTreeMap<String, u64>,
    stdout: Option<Failure>,
}

impl Tally {
    fn take(
        &mut self,
        args: &SendArgs,
        provider: &Provider,
        message: &Message,
        answer: Result<Answer, String>,
    ) {
        // where the provider has no ids the daemon makes the key, and this one is only in the body
        let event_id = if provider.has_ids() { message.event_id.as_str() } else { "-" };
        let (event_type, event_id) = (&message.event_type, printable(event_id));
        let answer = match answer {
            Ok(answer) => answer,
            Err(reason) => {
                self.unanswered += 1;
                return say(&format!("no answer  {event_type} {event_id}: {}", printable(&reason)));
            }
        };
        let Answer { status, body, took } = &answer;
        if self.stdout.is_none() {
            let line = format!("{status} {body}  {event_type} {event_id}  {} ms\n", took.as_millis());
            self.stdout = put(&line).err();
        }
        let text = format!("{status} {body}");
        if self.answers.len() < ANSWERS_MAX || self.answers.contains_key(&text) {
            *self.answers.entry(text).or_default() += 1;
        } else {
            self.other_answers += 1;
        }
        let verdict = judge(args, self.tolerance, &answer);
        // a right answer that may surprise is explained as well
        if let Some(error) = answer.error().filter(|error| explains(verdict, error)) {
            *self.errors.entry(error).or_default() += 1;
        }
        match verdict {
            Verdict::AsItShouldBe => self.as_it_should_be += 1,
            Verdict::Unavailable => self.unavailable += 1,
            Verdict::InProgress => self.in_progress += 1,
            Verdict::Failed => {
                self.failed += 1;
                self.failed_with = answer.status;
            }
            Verdict::Accepted => self.accepted += 1,
            Verdict::NotJudged => self.not_judged += 1,
            Verdict::Refused => self.refused += 1,
        }
    }

    fn conclude(self, args: &SendArgs, target: &Target) -> Result<(), Failure> {
        let url = &target.url;
        if self.answers.values().sum::<u64>() > 1 {
            for (answer, count) in &self.answers {
                say(&format!("{count} x {answer}"));
            }
            if self.other_answers > 0 {
                say(&format!("{} x other answers", self.other_answers));
            }
        }
        for error in self.errors.keys() {
            say(&advice(error, args, target));
        }
        let failed = |exit, complaint: &str| Err(Failure::new(exit, format!("{url} {complaint}")));
        if let Some(failure) = self.stdout.filter(|failure| failure.exit() != Exit::Ok) {
            Err(failure)
        } else if self.unanswered > 0 {
            let start = if args.to.is_some() {
                "is it running?"
            } else {
                "start it with `inboxd serve`; where it listens on another port than the configuration says, \
                 say so with --to, as the banner of `serve` shows"
            };
            failed(Exit::Busy, &format!("did not answer; {start}"))
        } else if self.accepted > 0 {
            failed(Exit::Failed, "accepted a spoiled signature")
        } else if self.refused > 0 {
            failed(Exit::Failed, "refused a genuine delivery")
        } else if self.failed > 0 {
            let status = self.failed_with;
            failed(Exit::Failed, &format!("failed ({status}); its log says why"))
        } else if self.not_judged > 0 {
            failed(Exit::Failed, "refused, but not because of the signature")
        } else if self.unavailable > 0 {
            failed(Exit::Busy, "is unavailable; its log says why")
        } else if self.in_progress > 0 && self.as_it_should_be == 0 {
            failed(Exit::Busy, "is at work on another copy of the event (409); send it again in a moment")
        } else {
            Ok(())
        }
    }
}

fn explains(verdict: Verdict, error: &str) -> bool {
    match verdict {
        Verdict::Refused => {
            matches!(error, "signature_mismatch" | "timestamp_outside_tolerance" | "scope_mismatch")
        }
        Verdict::AsItShouldBe => error == "timestamp_outside_tolerance",
        Verdict::Unavailable
        | Verdict::InProgress
        | Verdict::Failed
        | Verdict::Accepted
        | Verdict::NotJudged => false,
    }
}

fn advice(error: &str, args: &SendArgs, target: &Target) -> String {
    match (error, args.skew) {
        ("signature_mismatch", _) => {
            let signed = format!("signed with the secret {}", target.secret_shown);
            if args.to.is_some() {
                format!("{signed}; the receiver has another")
            } else {
                format!("{signed}; compare with what `inboxd serve` printed: same directory and environment?")
            }
        }
        ("timestamp_outside_tolerance", Some(skew)) => format!(
            "--skew={skew:#} is beyond the tolerance of {}: this refusal is the right answer",
            duration_text(target.tolerance)
        ),
        ("timestamp_outside_tolerance", None) => {
            "the clock here and the receiver's differ too much; compare `date -u` on both".to_owned()
        }
        _ => "the event's mode or account is not the endpoint's (livemode, account)".to_owned(),
    }
}

/// An agent for test deliveries: no redirects, no proxy from the environment, answers of any status.
pub(crate) fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(ANSWER_TIME_MAX))
        .build()
        .into()
}

fn no_randomness(error: getrandom::Error) -> Failure {
    Failure::new(Exit::Temporary, "the system provides no random numbers").because(error)
}
