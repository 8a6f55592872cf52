//! `send`: correctly signed test deliveries, to the configured instance or to any URL.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use inboxd::clock;
use inboxd::config::{Address, Config, MissingSecrets, secret_from_env, secret_from_file};
use inboxd::verify::presets::{self, Preset};
use inboxd::verify::{Scheme, Secret, Unsigned, sign};
use serde_json::Value;

use super::args::SendArgs;
use super::{Context, Exit, Failure, put, say};

/// How long one answer may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// Where the deliveries go and with what they are signed.
struct Target {
    url: String,
    scheme: Scheme,
    secret: Secret,
}

/// One delivery to make.
struct Message {
    event_type: String,
    event_id: String,
    body: Vec<u8>,
}

/// How a delivery was answered.
struct Answer {
    status: u16,
    body: String,
    took: Duration,
}

/// Prints a line per answer. Exit 0 when each was as it should be: a 2xx, or a refusal where the
/// signature was spoiled on purpose.
pub(crate) fn run(args: &SendArgs, context: &Context) -> Result<(), Failure> {
    let preset = preset(&args.provider)?;
    let target = target(args, preset, context)?;
    let messages = messages(args, preset)?;
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::new());
    let agent = agent();
    thread::scope(|scope| {
        for _ in 0..usize::from(args.concurrency).min(messages.len()) {
            scope.spawn(|| {
                while let Some(message) = messages.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answer = deliver(&agent, args, &target, message);
                    tell(message, &answer);
                    answers.lock().unwrap_or_else(|e| e.into_inner()).push(answer);
                }
            });
        }
    });
    conclude(args, answers.into_inner().unwrap_or_else(|e| e.into_inner()), &target)
}

fn preset(provider: &str) -> Result<&'static Preset, Failure> {
    presets::find(provider).ok_or_else(|| {
        let known: Vec<_> = presets::all().iter().map(|preset| preset.name).collect();
        Failure::new(
            Exit::Usage,
            format!("there is no provider {provider:?}; known are {}", known.join(", ")),
        )
    })
}

fn target(args: &SendArgs, preset: &Preset, context: &Context) -> Result<Target, Failure> {
    let usage = |reason: String| Failure::new(Exit::Usage, reason);
    let scheme = Scheme::named(preset.name).map_err(usage)?;
    if let Some(url) = &args.to {
        let secret = match (&args.secret_env, &args.secret_file) {
            (Some(variable), _) => secret_from_env(variable),
            (None, Some(path)) => secret_from_file(path),
            (None, None) => Err("--to needs --secret-env or --secret-file".to_owned()),
        };
        return Ok(Target { url: url.clone(), scheme, secret: secret.map_err(usage)? });
    }
    let config = context.load(MissingSecrets::Make)?;
    let is_meant = |endpoint: &&inboxd::config::Endpoint| match &args.endpoint {
        Some(name) => endpoint.name == *name,
        None => endpoint.provider == preset.name,
    };
    let endpoint = config.endpoints.iter().find(is_meant).ok_or_else(|| no_endpoint(args, &config))?;
    if endpoint.provider != preset.name {
        let (name, provider) = (&endpoint.name, &endpoint.provider);
        return Err(usage(format!(
            "the endpoint {name} is for {provider}; write `inboxd send {provider} …`"
        )));
    }
    let Address::Tcp(address) = config.listen.webhooks else {
        return Err(usage(
            "the daemon listens on a Unix socket or on one that systemd holds; name the URL with --to"
                .to_owned(),
        ));
    };
    let secret =
        endpoint.secrets.first().cloned().ok_or_else(|| usage("the endpoint has no secret".to_owned()))?;
    let host = if address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { address.ip().to_string() };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Ok(Target { url: format!("http://{host}:{}{}", address.port(), endpoint.path), scheme, secret })
}

fn no_endpoint(args: &SendArgs, config: &Config) -> Failure {
    let names: Vec<_> = config.endpoints.iter().map(|e| format!("{} ({})", e.name, e.provider)).collect();
    let wanted = match &args.endpoint {
        Some(name) => format!("there is no endpoint {name}"),
        None => format!("no endpoint is for {}", args.provider),
    };
    Failure::new(Exit::NotFound, format!("{wanted}; configured are {}", names.join(", ")))
}

/// The deliveries in the order in which they are sent. Several types, separated by commas, are events
/// about one object; `--times` makes copies of each.
fn messages(args: &SendArgs, preset: &Preset) -> Result<Vec<Message>, Failure> {
    let seed = unique_seed()?;
    let mut messages = Vec::new();
    for (n, event_type) in args.event_type.split(',').enumerate() {
        let event_id = match (&args.id, n) {
            (Some(id), 0) => id.clone(),
            (Some(id), n) => format!("{id}_{n}"),
            (None, n) => preset.sample_id(&format!("{seed}.{n}")),
        };
        let (event_id, body) = body(args, preset, event_type, event_id, &seed)?;
        for _ in 0..args.times {
            messages.push(Message {
                event_type: event_type.to_owned(),
                event_id: event_id.clone(),
                body: body.clone(),
            });
        }
    }
    if args.shuffle {
        shuffle(&mut messages)?;
    }
    Ok(messages)
}

/// A sample, or the file as it is; with `--id`, the file under that id.
fn body(
    args: &SendArgs,
    preset: &Preset,
    event_type: &str,
    event_id: String,
    seed: &str,
) -> Result<(String, Vec<u8>), Failure> {
    let Some(path) = &args.file else {
        let sample = preset.sample(event_type, &event_id, seed, clock::now_ms() / 1000);
        return Ok((event_id, sample.into_bytes()));
    };
    let bytes = std::fs::read(path).map_err(|error| {
        Failure::new(Exit::NotFound, format!("cannot read {}", path.display())).because(error)
    })?;
    if !preset.has_id_in_body() {
        return Ok((event_id, bytes));
    }
    match (serde_json::from_slice::<Value>(&bytes), &args.id) {
        (Ok(mut json @ Value::Object(_)), Some(_)) => {
            json["id"] = Value::String(event_id.clone());
            Ok((event_id, json.to_string().into_bytes()))
        }
        (_, Some(_)) => Err(Failure::new(
            Exit::Usage,
            format!("{} is no JSON object: --id cannot be put in", path.display()),
        )),
        (Ok(json), None) => {
            let id = json.get("id").and_then(Value::as_str).unwrap_or("(without an id)");
            Ok((id.to_owned(), bytes))
        }
        (Err(_), None) => Ok(("(not JSON)".to_owned(), bytes)),
    }
}

fn deliver(
    agent: &ureq::Agent,
    args: &SendArgs,
    target: &Target,
    message: &Message,
) -> Result<Answer, String> {
    let skew_s = args.skew.map_or(0, |skew| skew.as_secs());
    let unsigned = Unsigned {
        method: "POST",
        url: &target.url,
        content_type: "application/json",
        event_id: &message.event_id,
        event_type: Some(&message.event_type),
        signed_at_s: clock::now_ms() / 1000 + skew_s,
        body: &message.body,
    };
    let mut headers = sign(&target.scheme, &target.secret, &unsigned)?;
    if args.bad_signature
        && let Some((_, signature)) = headers.last_mut()
    {
        spoil(signature);
    }
    let mut request = agent.post(&target.url).content_type("application/json");
    for (name, value) in &headers {
        request = request.header(name, value);
    }
    let start = Instant::now();
    let mut response = request.send(&message.body[..]).map_err(|error| error.to_string())?;
    let body = response.body_mut().with_config().limit(4096).read_to_string().unwrap_or_default();
    Ok(Answer { status: response.status().as_u16(), body: body.trim().to_owned(), took: start.elapsed() })
}

/// Swaps the last digit that differs: the signature stays well-formed.
fn spoil(signature: &mut String) {
    let position = signature.rfind(|c: char| c.is_ascii_digit() || ('a'..='f').contains(&c));
    if let Some(at) = position {
        let other = if &signature[at..=at] == "0" { "1" } else { "0" };
        signature.replace_range(at..=at, other);
    }
}

fn tell(message: &Message, answer: &Result<Answer, String>) {
    let Message { event_id, event_type, .. } = message;
    match answer {
        Ok(Answer { status, body, took }) => {
            let ms = took.as_millis();
            drop(put(&format!("{status} {body}  {event_type} {event_id}  {ms} ms\n")));
        }
        Err(reason) => say(&format!("no answer  {event_type} {event_id}: {reason}")),
    }
}

fn conclude(args: &SendArgs, answers: Vec<Result<Answer, String>>, target: &Target) -> Result<(), Failure> {
    let url = &target.url;
    if answers.iter().any(Result::is_err) {
        let start = if args.to.is_some() { "is it running?" } else { "start it with `inboxd serve`" };
        return Err(Failure::new(Exit::Busy, format!("{url} did not answer; {start}")));
    }
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    if answers.len() > 1 {
        let mut counts = BTreeMap::<String, usize>::new();
        for answer in &answers {
            *counts.entry(format!("{} {}", answer.status, answer.body)).or_default() += 1;
        }
        for (answer, count) in counts {
            say(&format!("{count} x {answer}"));
        }
    }
    let is_good = |answer: &Answer| (200..300).contains(&answer.status) != args.bad_signature;
    if answers.iter().all(is_good) {
        return Ok(());
    }
    let complaint =
        if args.bad_signature { "accepted a spoiled signature" } else { "refused a genuine delivery" };
    Err(Failure::new(Exit::Failed, format!("{url} {complaint}")))
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

fn unique_seed() -> Result<String, Failure> {
    Ok(format!("{:016x}", getrandom::u64().map_err(no_randomness)?))
}

fn shuffle(messages: &mut [Message]) -> Result<(), Failure> {
    for last in (1..messages.len()).rev() {
        let random = getrandom::u64().map_err(no_randomness)?;
        let other = usize::try_from(random % (u64::try_from(last).unwrap_or(u64::MAX) + 1)).unwrap_or(0);
        messages.swap(last, other);
    }
    Ok(())
}

fn no_randomness(error: getrandom::Error) -> Failure {
    Failure::new(Exit::Temporary, "the system gives no random numbers").because(error)
}
