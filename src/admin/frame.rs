//! What all pages have in common: the frame around them, times, numbers, and the parts they are made of.
//!
//! Every text goes through maud, which escapes it; what strangers wrote goes through [`shown`] as well, so that nothing
//! invisible changes how the rest is read.

use std::borrow::Cow;

use maud::{DOCTYPE, Markup, html};

use crate::config::Role;
use crate::terminal::printable;

use super::login::Visitor;

/// The stylesheet of all pages.
pub const STYLE: &str = include_str!("style.css");

/// The script of all pages. Each page works without it.
pub const SCRIPT: &str = include_str!("script.js");

/// The pages, in the order of the menu.
const MENU: [(&str, &str); 9] = [
    ("/", "Now"),
    ("/events", "Events"),
    ("/reviews", "Reviews"),
    ("/outbox", "Outbox"),
    ("/refused", "Refused"),
    ("/books", "Books"),
    ("/jobs", "Jobs"),
    ("/audit", "Audit"),
    ("/system", "System"),
];

/// What the frame says of a page.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The page's heading.
    pub title: &'a str,
    /// The menu's entry.
    pub here: &'a str,
    /// Who looks.
    pub visitor: &'a Visitor,
    /// When the page was made, in milliseconds since the epoch.
    pub now_ms: i64,
    /// Whether it is to be loaded again every few seconds.
    pub is_live: bool,
}

impl Frame<'_> {
    /// The whole page.
    pub fn around(&self, content: Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" data-live=[self.is_live.then_some("5")] {
                (head(self.title))
                body {
                    a .skip href="#main" { "Skip to the content" }
                    header {
                        nav aria-label="Pages" {
                            @for (path, name) in MENU {
                                a href=(path) aria-current=[(path == self.here).then_some("page")] { (name) }
                            }
                        }
                    }
                    main #main tabindex="-1" {
                        h1 { (self.title) }
                        (content)
                    }
                    footer {
                        span { "inboxd " (env!("CARGO_PKG_VERSION")) }
                        span { "made at " (time(self.now_ms)) }
                        span { (shown(&self.visitor.actor)) ", " (role(self.visitor.role)) }
                        button #pause type="button" hidden { "Pause" }
                        @if self.visitor.csrf.is_some() && !self.visitor.actor.starts_with("socket:") {
                            form method="post" action="/logout" { (self.csrf()) button { "Log out" } }
                        }
                    }
                }
            }
        }
    }

    /// Proves that a form was sent from one of these pages.
    pub fn csrf(&self) -> Markup {
        html! { @if let Some(csrf) = &self.visitor.csrf { input type="hidden" name="csrf" value=(csrf); } }
    }

    /// Whether the visitor may act.
    pub fn may_act(&self) -> bool {
        self.visitor.role == Role::Operator
    }

    /// How long ago a time was, with the time itself.
    pub fn ago(&self, at_ms: i64) -> Markup {
        html! { time datetime=(rfc3339(at_ms)) title=(rfc3339(at_ms)) { (age(self.now_ms - at_ms)) " ago" } }
    }
}

/// A page for whoever is not logged in.
pub fn outside(title: &str, content: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body { main #main { h1 { (title) } (content) } }
        }
    }
}

fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " – inboxd" }
            link rel="stylesheet" href="/style.css";
            script src="/script.js" defer {}
        }
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Operator => "operator",
    }
}

/// A stranger's text, without what cannot be seen.
pub fn shown(text: &str) -> Cow<'_, str> {
    printable(text)
}

/// The same, or a dash.
pub fn or_dash(text: Option<&str>) -> Cow<'_, str> {
    text.map_or(Cow::Borrowed("–"), shown)
}

/// A time, in full.
pub fn time(at_ms: i64) -> Markup {
    html! { time datetime=(rfc3339(at_ms)) { (rfc3339(at_ms)) } }
}

/// RFC 3339 in UTC, to the second.
pub fn rfc3339(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms)
        .map_or_else(|_| format!("{at_ms} ms"), |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A length of time, by its largest unit.
pub fn age(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A number with its thousands apart.
pub fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

/// A number of bytes, by its largest unit.
pub fn size(bytes: i64) -> String {
    match bytes {
        ..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// So many of a hundred.
pub fn percent(part: i64, whole: i64) -> String {
    if whole <= 0 { "–".to_owned() } else { format!("{} %", part.saturating_mul(100) / whole) }
}

/// A state, told by its word and, beside that, by a colour.
pub fn state(word: &str) -> Markup {
    let class = match word {
        "done" | "delivered" | "ok" | "ready" => "good",
        "pending" | "processing" | "sending" | "paused" | "held" | "running" => "waits",
        "quarantined" | "dead" | "failing" | "open" | "failed" | "not ready" => "bad",
        _ => "quiet",
    };
    html! { span .state .(class) { (word) } }
}

/// A table for people who read it, and for those who have it read to them.
pub fn table(caption: &str, columns: &[&str], rows: &[Vec<Markup>]) -> Markup {
    html! {
        div .scroll tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead { tr { @for column in columns { th scope="col" { (column) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                @if at == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Names and what they are.
pub fn facts(pairs: &[(&str, Markup)]) -> Markup {
    html! { dl { @for (name, value) in pairs { dt { (name) } dd { (value) } } } }
}

/// A text as a cell.
pub fn cell(text: impl AsRef<str>) -> Markup {
    html! { (shown(text.as_ref())) }
}

/// A field of a form with its label.
pub fn field(label: &str, name: &str, value: Option<&str>) -> Markup {
    html! { label { (label) input type="text" name=(name) value=[value] autocomplete="off"; } }
}

/// A choice of a form with its label; the first is none.
pub fn choice(label: &str, name: &str, options: &[&str], chosen: Option<&str>) -> Markup {
    // a value that is none of the options is not lost when the form is sent again
    let other = chosen.filter(|chosen| !options.contains(chosen));
    html! {
        label {
            (label)
            select name=(name) {
                option value="" { "any" }
                @for option in options.iter().copied().chain(other) {
                    option value=(option) selected[chosen == Some(option)] { (shown(option)) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lengths_of_time_are_written_for_people() {
        assert_eq!([0, 999, 1_000, -1_234_567].map(grouped), ["0", "999", "1,000", "-1,234,567"]);
        let ages = [-5, 119_999, 120_000, 7_200_000, 172_800_000].map(age);
        assert_eq!(ages, ["0 s", "119 s", "2 min", "2 h", "2 d"]);
        assert_eq!([10, 20_480, 20 << 20].map(size), ["10 B", "20 KiB", "20 MiB"]);
        assert_eq!(percent(1, 3), "33 %");
    }

    #[test]
    fn what_strangers_wrote_is_text() {
        let hostile = "<script>\"'&\u{202e}";
        let page = table("c", &["a"], &[vec![cell(hostile)]]).into_string();
        assert!(page.contains("&lt;script&gt;&quot;'&amp;?") && !page.contains("<script"), "{page}");
        let form = choice("l", "n", &["a"], Some(hostile)).into_string();
        assert!(!form.contains("<script"), "{form}");
    }
}
