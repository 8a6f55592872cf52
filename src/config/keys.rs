//! The shape of a declaration: what a key is called, what may stand there, what it is where nothing is written, and
//! what it does.
//!
//! A key is declared once, beside the rules of its table in `check/`. The reader of the file, the suggestions for a
//! misspelt key, `check --print` and the table of keys in docs/configuration.md are all made from that declaration;
//! none of them names a key of its own.

/// `[NAME]`, a table of the file.
#[derive(Debug)]
pub(super) struct Table {
    /// As in its header, with `NAME` where the user writes a name; empty for the top of the file.
    pub(super) header: &'static str,
    /// What it is about, in one sentence.
    pub(super) doc: &'static str,
    /// In the order in which people should read them.
    pub(super) keys: &'static [Key],
}

/// One key of a table.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) default: Default,
    /// What it does, in one sentence.
    pub(super) doc: &'static str,
}

/// What may stand at a key.
#[derive(Debug)]
pub(super) enum Kind {
    /// A text in quotes.
    Text,
    /// A list of them.
    Texts,
    /// One text, or a list of them.
    TextOrTexts,
    /// One of these words.
    Choice(fn() -> Vec<&'static str>),
    /// `true` or `false`
    Flag,
    /// A whole number, from one to the other.
    Count(u64, u64),
    /// Bytes: a whole number, or a text such as `"64MiB"`.
    Size,
    /// A text such as `"5m"`.
    Duration,
    /// A list of references to secrets.
    Secrets,
    /// Header names, each with a reference to its value.
    Headers,
    /// `[NAME]`: all defaults where it is missing.
    Table(&'static Table),
    /// `[NAME]`, which may be missing altogether.
    OptionalTable(&'static Table),
    /// `[KEY.NAME]`: as many as there are names.
    Named(&'static Table),
    /// `[[KEY]]`: a list of tables.
    Tables(&'static Table),
}

/// What a key is where the file does not say.
#[derive(Debug)]
pub(super) enum Default {
    /// Not set.
    Unset,
    /// This value, as it would be typed.
    Is(&'static str),
    /// These values.
    List(&'static [&'static str]),
    /// What other keys make of it, in words.
    Follows(&'static str),
    /// There is none: the key must be written.
    Required,
}

pub(super) const fn key(name: &'static str, kind: Kind, default: Default, doc: &'static str) -> Key {
    Key { name, kind, default, doc }
}

impl Table {
    /// This table and all below it.
    pub(super) fn all(&'static self) -> Vec<&'static Self> {
        let below = self.keys.iter().filter_map(Key::table).flat_map(Self::all);
        std::iter::once(self).chain(below).collect()
    }

    pub(super) fn find(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.keys.iter().map(|key| key.name)
    }
}

impl Key {
    /// The declared default, as it would be typed.
    pub(super) fn default(&self) -> Option<&'static str> {
        match self.default {
            Default::Is(text) => Some(text),
            Default::Unset | Default::List(_) | Default::Follows(_) | Default::Required => None,
        }
    }

    /// The tables below this key.
    pub(super) fn table(&self) -> Option<&'static Table> {
        match self.kind {
            Kind::Table(table) | Kind::OptionalTable(table) | Kind::Named(table) | Kind::Tables(table) => {
                Some(table)
            }
            Kind::Text
            | Kind::Texts
            | Kind::TextOrTexts
            | Kind::Choice(_)
            | Kind::Flag
            | Kind::Count(..)
            | Kind::Size
            | Kind::Duration
            | Kind::Secrets
            | Kind::Headers => None,
        }
    }
}

impl Kind {
    /// What must be written there, after "must be".
    pub(super) fn expected(&self) -> &'static str {
        match self {
            Self::Text | Self::Choice(_) => "a text in quotes",
            Self::Texts | Self::Secrets => "a list such as [\"…\"]",
            Self::TextOrTexts => "a text in quotes, or a list of them",
            Self::Flag => "true or false",
            Self::Count(..) => "a whole number, not negative",
            Self::Size => "a size in bytes, or in quotes such as \"64MiB\"",
            Self::Duration => "a duration in quotes such as \"5m\"",
            Self::Headers | Self::Table(_) | Self::OptionalTable(_) | Self::Named(_) => "a table",
            Self::Tables(_) => "a list of tables, each under a header in double brackets",
        }
    }

    /// Whether secrets are named there: what is typed instead of a reference may be the secret itself.
    pub(super) fn names_secrets(&self) -> bool {
        matches!(self, Self::Secrets | Self::Headers)
    }
}

/// The words of a choice, each with what it means; the declared default need not be the first.
pub(super) type Words<T> = [(&'static str, T)];

/// The words alone.
pub(super) fn words<T>(of: &Words<T>) -> Vec<&'static str> {
    of.iter().map(|(word, _)| *word).collect()
}

/// How a value is written.
pub(super) fn word<T: PartialEq>(of: &Words<T>, value: &T) -> &'static str {
    of.iter().find(|(_, meant)| meant == value).map_or("", |(word, _)| word)
}
