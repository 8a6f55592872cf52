//! Sends a message: a POST in the receiver's format, or a program.
//!
//! The program gets a small environment, because the daemon's own has secrets.

use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, wait};
use serde_json::{Value, json};

use crate::config::{ALERT_ENVIRONMENT, AlertFormat, AlertVia, inherited};
use crate::outgoing::Client;
use crate::wake::lock;

/// How long a request may take.
const SEND_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a program may run, which may send mail.
const PROGRAM_TIME_MAX: Duration = Duration::from_secs(60);

/// The pause between two checks whether it has ended.
const PROGRAM_LOOK: Duration = Duration::from_millis(10);

/// Discord takes messages of 2,000 characters.
const DISCORD_CHARS_MAX: usize = 2_000;

/// The most characters shown of an answer that refuses.
const ANSWER_CHARS_MAX: usize = 200;

/// Held while a program runs, so that the reaper does not collect its exit status.
static RUNNING: Mutex<()> = Mutex::new(());

/// What was sent and answered, for `alert test`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The receiver, without secret parts.
    pub to: String,
    /// The exact body, or the program's argument.
    pub message: String,
    /// The answer, or how the program ended.
    pub answer: String,
}

/// Sends a message, with the machine's name in front.
///
/// # Errors
/// The answer of the receiver or the program. The message is lost then; a reminder follows.
pub fn send(via: &AlertVia, message: &str) -> io::Result<Sent> {
    let text = format!("inboxd on {}: {message}", rustix::system::uname().nodename().to_string_lossy());
    match via {
        AlertVia::Url { url, format } => post(url, *format, &text),
        AlertVia::Command(program) => run(program, &text),
    }
}

fn post(url: &str, format: AlertFormat, text: &str) -> io::Result<Sent> {
    let client = Client::new(url, &[], None).map_err(io::Error::other)?;
    let (content_type, body) = shaped(format, text);
    let headers = [("Content-Type".to_owned(), content_type.to_owned())];
    let answer = client.post(&headers, body.as_bytes(), SEND_TIME_MAX);
    let answer = answer.map_err(|error| io::Error::other(error.reason))?;
    let said = String::from_utf8_lossy(&answer.body);
    let said: String = said.trim().chars().take(ANSWER_CHARS_MAX).collect();
    let said = if said.is_empty() { String::new() } else { format!(" {said}") };
    match answer.status {
        status @ 200..=299 => Ok(Sent {
            to: format!("{} ({content_type})", host(url)),
            message: body,
            answer: format!("{status}{said}"),
        }),
        status => Err(io::Error::other(format!("{} answered {status}{said}", host(url)))),
    }
}

/// Scheme and host only: the path of a chat's hook is a secret.
fn host(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    format!("{scheme}://{}", rest.split(['/', '?', '#']).next().unwrap_or_default())
}

/// Content type and body, as the receiver takes them.
fn shaped(format: AlertFormat, text: &str) -> (&'static str, String) {
    let body = match format {
        AlertFormat::Text => return ("text/plain; charset=utf-8", text.to_owned()),
        AlertFormat::Slack => json!({ "text": escaped_for_slack(text) }),
        AlertFormat::Discord => discord(text),
        AlertFormat::Teams => teams(text),
    };
    ("application/json; charset=utf-8", body.to_string())
}

/// Escapes the three characters that Slack interprets.
fn escaped_for_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Mentions nobody, whatever the text contains.
fn discord(text: &str) -> Value {
    let text: String = text.chars().take(DISCORD_CHARS_MAX).collect();
    json!({ "content": text, "allowed_mentions": { "parse": [] } })
}

/// A message with one adaptive card, which workflows and the older connectors take.
fn teams(text: &str) -> Value {
    let block = json!({ "type": "TextBlock", "text": text, "wrap": true });
    let card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": [block],
    });
    let attachment = json!({ "contentType": "application/vnd.microsoft.card.adaptive", "content": card });
    json!({ "type": "message", "attachments": [attachment] })
}

fn run(program: &Path, text: &str) -> io::Result<Sent> {
    let _running = lock(&RUNNING);
    let mut child = Command::new(program)
        .arg(text)
        .env_clear()
        .envs(inherited(&ALERT_ENVIRONMENT))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    let status = ended(&mut child)?;
    if status.success() {
        return Ok(Sent {
            to: program.display().to_string(),
            message: text.to_owned(),
            answer: status.to_string(),
        });
    }
    Err(io::Error::other(format!("{}: {status}", program.display())))
}

fn ended(child: &mut Child) -> io::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > PROGRAM_TIME_MAX {
            child.kill()?;
            child.wait()?;
            let limit = PROGRAM_TIME_MAX.as_secs();
            return Err(io::Error::other(format!("the program ran for longer than {limit} s and was ended")));
        }
        thread::sleep(PROGRAM_LOOK);
    }
}

/// As process 1 (in a container without an init): collects the exit status of orphaned processes, which would stay as
/// zombies. Returns how many. It collects none while an alert program runs.
pub fn reap_orphans() -> usize {
    let Ok(_nothing_runs) = RUNNING.try_lock() else { return 0 };
    let mut count = 0;
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_receiver_gets_the_shape_that_it_takes() {
        let of = |format| shaped(format, "a <b> & \"c\"");
        assert_eq!(of(AlertFormat::Text), ("text/plain; charset=utf-8", "a <b> & \"c\"".to_owned()));
        let json = "application/json; charset=utf-8";
        assert_eq!(of(AlertFormat::Slack), (json, r#"{"text":"a &lt;b&gt; &amp; \"c\""}"#.to_owned()));
        let discord: Value = serde_json::from_str(&of(AlertFormat::Discord).1).unwrap();
        assert_eq!(discord, json!({"content": "a <b> & \"c\"", "allowed_mentions": {"parse": []}}));
        let teams: Value = serde_json::from_str(&of(AlertFormat::Teams).1).unwrap();
        assert_eq!(teams["attachments"][0]["content"]["body"][0]["text"], "a <b> & \"c\"");
        let long = shaped(AlertFormat::Discord, &"ä".repeat(3_000)).1;
        assert_eq!(
            serde_json::from_str::<Value>(&long).unwrap()["content"].as_str().unwrap().chars().count(),
            2_000
        );
    }

    #[test]
    fn what_may_be_secret_in_a_url_is_not_shown() {
        assert_eq!(host("https://hooks.slack.com/services/T0/B0/xyz?a=b"), "https://hooks.slack.com");
        assert_eq!(host("http://127.0.0.1:80?token=x"), "http://127.0.0.1:80");
    }
}
