//! The rules of `[worker]` and `[alert]`.

use std::path::Path;
use std::time::Duration;

use ureq::http::Uri;

use super::destination::private_name;
use super::{Checker, suggest};
use crate::config::raw::{RawAlert, RawWorker};
use crate::config::{Alert, AlertFormat, AlertOn, AlertVia, Worker, duration_text, parse_duration};
use crate::outgoing::url_rule;

/// What `on` is where it is not written.
const ALERT_ON: [&str; 6] = ["review", "oldest>10m", "failing>10m", "dead", "disk", "store"];

impl Checker {
    pub(super) fn worker(&mut self, raw: &RawWorker, handler_timeout: Duration) -> Worker {
        let threads = self.count("worker.threads", raw.threads, 4, 64);
        let max_attempts = self.count("worker.max_attempts", raw.max_attempts, 10, 1_000);
        let lease = self.duration("worker.lease", raw.lease.as_ref(), Duration::from_secs(120));
        if lease <= handler_timeout {
            let (lease, timeout) = (duration_text(lease), duration_text(handler_timeout));
            let rule = format!(
                "\"{lease}\": must be longer than limits.handler_timeout ({timeout}), or work is taken away while it runs"
            );
            self.problem("worker.lease", rule);
        }
        Worker {
            threads,
            lease,
            max_attempts: u32::try_from(max_attempts).unwrap_or(u32::MAX),
            backoff_cap: self.duration(
                "worker.backoff_cap",
                raw.backoff_cap.as_ref(),
                Duration::from_secs(300),
            ),
        }
    }

    pub(super) fn alert(&mut self, raw: &RawAlert) -> Option<Alert> {
        let via = match (&raw.url, &raw.command) {
            (Some(url), None) => {
                let advice = "write e.g. \"https://ntfy.sh/topic\"";
                if let Some(host) = private_name(url) {
                    self.warn(format!(
                        "alert.url: \"{host}\" is a name of a private network, which is blocked; write its address"
                    ));
                }
                let format = self.alert_format(raw.format.as_deref(), url);
                self.url("alert.url", url, url_rule, advice).map(|url| AlertVia::Url { url, format })
            }
            (None, Some(command)) => {
                if raw.format.is_some() {
                    self.problem("alert.format", "is for a url; a command gets the text as its argument");
                }
                self.command(command)
            }
            (Some(_), Some(_)) => {
                self.problem("alert", "has both url and command; write one of them");
                None
            }
            (None, None) => {
                self.problem(
                    "alert",
                    "says nobody whom to tell; write url = \"https://…\" or command = \"/path\"",
                );
                None
            }
        };
        let typed = raw.on.clone().unwrap_or_else(|| ALERT_ON.map(str::to_owned).to_vec());
        let on = typed.iter().filter_map(|typed| self.alert_on(typed)).collect();
        let remind = self.duration("alert.remind", raw.remind.as_ref(), Duration::from_secs(4 * 3600));
        Some(Alert { via: via?, on, remind })
    }

    fn alert_format(&mut self, typed: Option<&str>, url: &str) -> AlertFormat {
        let known = [AlertFormat::Text, AlertFormat::Slack, AlertFormat::Discord, AlertFormat::Teams];
        match typed {
            Some(typed) => {
                self.choice("alert.format", Some(typed), &known.map(|format| (format.as_str(), format)))
            }
            None => format_by_host(url),
        }
    }

    fn command(&mut self, typed: &str) -> Option<AlertVia> {
        let path = self.base.join(typed);
        if !is_executable(&path) {
            self.problem(
                "alert.command",
                format!("\"{typed}\": is not a program that can be run; write its full path"),
            );
            return None;
        }
        Some(AlertVia::Command(path))
    }

    fn alert_on(&mut self, typed: &str) -> Option<AlertOn> {
        match typed.split_once('>') {
            None if typed == "review" => Some(AlertOn::Review),
            None if typed == "dead" => Some(AlertOn::Dead),
            None if typed == "disk" => Some(AlertOn::Disk),
            None if typed == "store" => Some(AlertOn::Store),
            Some((what @ ("oldest" | "failing"), age)) => match parse_duration(age) {
                Ok(age) if what == "failing" => Some(AlertOn::Failing(age)),
                Ok(age) => Some(AlertOn::Oldest(age)),
                Err(rule) => {
                    self.problem("alert.on", format!("\"{typed}\": {rule}"));
                    None
                }
            },
            _ => {
                let advice = suggest::advice(typed, ALERT_ON);
                self.problem("alert.on", format!("\"{typed}\": is unknown; {advice}"));
                None
            }
        }
    }
}

/// Chats that take no plain text, by the addresses that they hand out.
fn format_by_host(url: &str) -> AlertFormat {
    let url: Option<Uri> = url.parse().ok();
    let host = url.as_ref().and_then(Uri::host).unwrap_or_default().to_ascii_lowercase();
    let path = url.as_ref().map_or("", Uri::path);
    let is_at = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
    if ["hooks.slack.com", "hooks.slack-gov.com", "chat.googleapis.com"].into_iter().any(is_at) {
        AlertFormat::Slack
    } else if ["discord.com", "discordapp.com"].into_iter().any(is_at) {
        // Discord takes Slack's shape there
        if path.ends_with("/slack") { AlertFormat::Slack } else { AlertFormat::Discord }
    } else if ["webhook.office.com", "outlook.office.com", "logic.azure.com", "powerplatform.com"]
        .into_iter()
        .any(is_at)
    {
        AlertFormat::Teams
    } else {
        AlertFormat::Text
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
