//! `[alert]`: where messages about problems go, and which problems.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::http::Uri;

use super::destination::private_name;
use super::{Checker, duration_text, suggest};
use crate::config::keys::{Default, Kind, Table, Words, key, word, words};
use crate::config::parse_duration;
use crate::config::values::{Shown, Values};
use crate::outgoing::url_rule;

pub(in crate::config) const TABLE: Table = Table {
    header: "alert",
    doc: "A message when a condition starts, reminders while it lasts, and one when it ends.",
    keys: &[
        key("url", Kind::Text, Default::Unset, "Receives the message in a POST."),
        key(
            "format",
            Kind::Choice(|| words(FORMATS)),
            Default::Follows("what the url's host expects"),
            "The shape of the message.",
        ),
        key(
            "command",
            Kind::Text,
            Default::Unset,
            "Instead of `url`: a program that is run with the message as its argument.",
        ),
        key(
            "on",
            Kind::Texts,
            Default::List(&ALERT_ON),
            "The conditions; also `silent>24h`, `refused>20%`, `duplicates>50%`, `clock` and `disk<24h`.",
        ),
        key(
            "remind",
            Kind::Duration,
            Default::Is("4h"),
            "How often a condition that lasts is reported again.",
        ),
    ],
};

const ALERT_ON: [&str; 6] = ["review", "oldest>10m", "failing>10m", "dead", "disk", "store"];

/// Those that are watched where they are named; with an age or a share that suits most.
const ALERT_ON_MORE: [&str; 5] = ["silent>24h", "refused>20%", "duplicates>50%", "clock", "disk<24h"];

pub(in crate::config) const REPORT: Table = Table {
    header: "report",
    doc: "A message without a cause, to the receiver of [alert]: how it went, in one line first.",
    keys: &[key("every", Kind::Choice(|| words(EVERY)), Default::Is("never"), "How often.")],
};

const EVERY: &Words<Report> = &[("never", Report::Never), ("day", Report::Daily), ("week", Report::Weekly)];

/// `[report]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// None is sent.
    Never,
    /// Every 24 hours.
    Daily,
    /// Every 7 days.
    Weekly,
}

const FORMATS: &Words<AlertFormat> = &[
    ("text", AlertFormat::Text),
    ("slack", AlertFormat::Slack),
    ("discord", AlertFormat::Discord),
    ("teams", AlertFormat::Teams),
];

/// `[alert]`
#[derive(Debug, Clone)]
pub struct Alert {
    /// Where messages go.
    pub via: AlertVia,
    /// The conditions that are reported.
    pub on: Vec<AlertOn>,
    /// How often a condition that lasts is reported again.
    pub remind: Duration,
}

/// Where messages go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlertVia {
    /// The message is POSTed there, in this format.
    Url {
        /// As typed.
        url: String,
        /// What the receiver takes.
        format: AlertFormat,
    },
    /// The program is run with the text as its argument.
    Command(PathBuf),
}

/// The shape of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertFormat {
    /// Plain text: ntfy and others.
    Text,
    /// Slack's JSON; Mattermost, Rocket.Chat and Google Chat take it as well.
    Slack,
    /// Discord's JSON.
    Discord,
    /// Microsoft Teams' JSON: an adaptive card.
    Teams,
}

impl AlertFormat {
    /// As typed in the configuration.
    pub fn as_str(self) -> &'static str {
        word(FORMATS, &self)
    }
}

/// A condition that is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertOn {
    /// A review is open.
    Review,
    /// An event has waited for work this long.
    Oldest(Duration),
    /// An outbox row was given up.
    Dead,
    /// The work of an event has been failing this long, so that it is not stored.
    Failing(Duration),
    /// Free space is below `limits.disk_free_min`, or there is none.
    Disk,
    /// Nothing can be stored, whatever the reason.
    Store,
    /// Nothing has come for an endpoint for this long, for which something came before.
    Silent(Duration),
    /// So many of a hundred deliveries of a quarter of an hour are refused.
    Refused(i64),
    /// So many of a hundred deliveries of an hour are redeliveries.
    Duplicates(i64),
    /// Most deliveries of a quarter of an hour are refused for their time.
    Clock,
    /// The disk is full in this time, if it goes on as in the last hours.
    DiskWithin(Duration),
}

/// As typed.
impl fmt::Display for AlertOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Review => f.write_str("review"),
            Self::Oldest(age) => write!(f, "oldest>{}", duration_text(*age)),
            Self::Dead => f.write_str("dead"),
            Self::Failing(age) => write!(f, "failing>{}", duration_text(*age)),
            Self::Disk => f.write_str("disk"),
            Self::Store => f.write_str("store"),
            Self::Silent(age) => write!(f, "silent>{}", duration_text(*age)),
            Self::Refused(percent) => write!(f, "refused>{percent}%"),
            Self::Duplicates(percent) => write!(f, "duplicates>{percent}%"),
            Self::Clock => f.write_str("clock"),
            Self::DiskWithin(time) => write!(f, "disk<{}", duration_text(*time)),
        }
    }
}

impl Checker {
    pub(super) fn alert(&mut self, table: &Values) -> Option<Alert> {
        let (url, command) = (self.text(table, "url"), self.text(table, "command"));
        let via = match (url, command) {
            (Some(url), None) => self.alert_url(table, &url),
            (None, Some(command)) => self.alert_command(table, &command),
            (Some(_), Some(_)) => {
                self.problem("alert", "has both url and command; write one of them");
                None
            }
            (None, None) => {
                let rule = "names no receiver; write url = \"https://…\" or command = \"/path\"";
                self.problem("alert", rule);
                None
            }
        };
        let on: Vec<_> = match table.is_set("on") {
            true => table.texts("on").iter().filter_map(|typed| self.alert_on(typed)).collect(),
            false => ALERT_ON.iter().filter_map(|typed| self.alert_on(typed)).collect(),
        };
        table.show("on", Shown::texts(&on));
        let remind = self.duration(table, "remind");
        Some(Alert { via: via?, on, remind })
    }

    fn alert_url(&mut self, table: &Values, url: &str) -> Option<AlertVia> {
        if let Some(host) = private_name(url) {
            self.warn(format!(
                "alert.url: \"{host}\" is a name of a private network, which is blocked; write its address"
            ));
        }
        let format = self.optional_choice(table, "format", FORMATS).map(|(_, format)| format);
        let format = format.unwrap_or_else(|| format_by_host(url));
        table.show("format", Shown::text(format.as_str()));
        let url = self.url("alert.url", url, url_rule, "write e.g. \"https://ntfy.sh/topic\"")?;
        Some(AlertVia::Url { url, format })
    }

    fn alert_command(&mut self, table: &Values, typed: &str) -> Option<AlertVia> {
        if table.is_set("format") {
            self.problem("alert.format", "is for a url; a command gets the text as its argument");
        }
        table.show("format", Shown::Unset);
        let path = self.base.join(typed);
        table.show("command", Shown::text(path.display()));
        if !is_executable(&path) {
            let rule = "is not a program that can be run; write its full path";
            self.problem("alert.command", format!("\"{typed}\": {rule}"));
            return None;
        }
        Some(AlertVia::Command(path))
    }

    fn alert_on(&mut self, typed: &str) -> Option<AlertOn> {
        let (what, bound) = match typed.split_once(['>', '<']) {
            Some((what, bound)) => (what, Some((typed.contains('>'), bound))),
            None => (typed, None),
        };
        let age = |text: &str| parse_duration(text).map_err(|rule| rule.to_string());
        let on = match (what, bound) {
            ("review", None) => Ok(AlertOn::Review),
            ("dead", None) => Ok(AlertOn::Dead),
            ("disk", None) => Ok(AlertOn::Disk),
            ("store", None) => Ok(AlertOn::Store),
            ("clock", None) => Ok(AlertOn::Clock),
            ("oldest", Some((true, text))) => age(text).map(AlertOn::Oldest),
            ("failing", Some((true, text))) => age(text).map(AlertOn::Failing),
            ("silent", Some((true, text))) => age(text).map(AlertOn::Silent),
            ("disk", Some((false, text))) => age(text).map(AlertOn::DiskWithin),
            ("refused", Some((true, text))) => percent(text).map(AlertOn::Refused),
            ("duplicates", Some((true, text))) => percent(text).map(AlertOn::Duplicates),
            _ => {
                let known = ALERT_ON.into_iter().chain(ALERT_ON_MORE);
                let advice = suggest::advice(typed, known);
                self.problem("alert.on", format!("\"{typed}\": is unknown; {advice}"));
                return None;
            }
        };
        on.map_err(|rule| self.problem("alert.on", format!("\"{typed}\": {rule}"))).ok()
    }

    pub(super) fn report(&mut self, table: &Values, alert: Option<&Alert>) -> Report {
        let every = self.choice(table, "every", EVERY);
        if every != Report::Never && alert.is_none() {
            self.problem("report.every", "needs a receiver: add [alert] with url or command");
        }
        every
    }
}

fn percent(typed: &str) -> Result<i64, String> {
    let number = typed.strip_suffix('%').and_then(|digits| digits.parse().ok());
    let number = number.filter(|share| (1..=100).contains(share));
    number.ok_or_else(|| "write a share of the deliveries such as \"refused>20%\"".to_owned())
}

/// Chats that accept no plain text, recognised by their hosts.
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
