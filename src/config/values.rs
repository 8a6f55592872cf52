//! The values of one table: as typed, and as in effect once the rules have been applied.
//!
//! Whoever reads a value by name says what came of it, so that `check --print` can show every key that is declared
//! without a list of its own. Nothing here knows what a value means.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::keys::{Key, Kind, Table};
use crate::signature::Secret;

/// A table of the file.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) table: &'static Table,
    /// e.g. `endpoint.billing`; empty for the top of the file.
    pub(super) path: String,
    /// What the user called it, where there may be several; else its key.
    pub(super) name: String,
    typed: BTreeMap<&'static str, Typed>,
    effect: RefCell<BTreeMap<&'static str, Shown>>,
}

/// A value as typed. A size or duration is the text that its rules read.
#[derive(Debug)]
pub(super) enum Typed {
    Flag(bool),
    Number(u64),
    Text(String),
    Texts(Vec<String>),
    Pairs(BTreeMap<String, String>),
    Table(Values),
    /// In the order of the file.
    Tables(Vec<Values>),
}

/// A value as it is shown.
#[derive(Debug, Clone)]
pub(super) enum Shown {
    Unset,
    Flag(bool),
    Number(u64),
    Text(String),
    Texts(Vec<String>),
    Secrets(Vec<Secret>),
    Headers(Vec<(String, Secret)>),
}

impl Shown {
    pub(super) fn text(value: impl ToString) -> Self {
        Self::Text(value.to_string())
    }

    pub(super) fn texts(values: &[impl ToString]) -> Self {
        Self::Texts(values.iter().map(ToString::to_string).collect())
    }

    pub(super) fn optional(value: Option<impl ToString>) -> Self {
        value.map_or(Self::Unset, Self::text)
    }
}

impl Values {
    /// Nothing typed: tables that are always there are empty.
    pub(super) fn empty(table: &'static Table, path: String) -> Self {
        let name = path.rsplit('.').next().unwrap_or_default().to_owned();
        let mut values = Self { table, path, name, typed: BTreeMap::new(), effect: RefCell::default() };
        for key in table.keys {
            if let Kind::Table(inner) = key.kind {
                let inner = Self::empty(inner, values.key(key.name));
                values.typed.insert(key.name, Typed::Table(inner));
            }
        }
        values
    }

    /// An empty table below this one's key `name`, as the user calls it.
    pub(super) fn below(&self, name: &str, called: &str) -> Self {
        let key = self.declared(name);
        let path = if key.name == called { self.key(called) } else { format!("{}.{called}", self.key(name)) };
        match key.table() {
            Some(table) => Self::empty(table, path),
            None => panic!("{name} is no table"),
        }
    }

    pub(super) fn set(&mut self, name: &str, value: Typed) {
        let name = self.declared(name).name;
        self.typed.insert(name, value);
    }

    /// The full name, as people write it.
    pub(super) fn key(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A value is read under a name that is declared, or there is a mistake in the program: each start reads them all.
    pub(super) fn declared(&self, name: &str) -> &'static Key {
        match self.table.find(name) {
            Some(key) => key,
            None => panic!("[{}] has no key {name}", self.table.header),
        }
    }

    fn typed(&self, name: &str) -> Option<&Typed> {
        self.typed.get(self.declared(name).name)
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.typed(name).is_some()
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.typed(name)? {
            Typed::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Empty where nothing is typed.
    pub(super) fn texts(&self, name: &str) -> &[String] {
        match self.typed(name) {
            Some(Typed::Texts(texts)) => texts,
            _ => &[],
        }
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        match self.typed(name)? {
            Typed::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        match self.typed(name)? {
            Typed::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn pairs(&self, name: &str) -> impl Iterator<Item = (&str, &str)> {
        let pairs = match self.typed(name) {
            Some(Typed::Pairs(pairs)) => Some(pairs),
            _ => None,
        };
        pairs.into_iter().flatten().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(super) fn table(&self, name: &str) -> Option<&Self> {
        match self.typed(name)? {
            Typed::Table(table) => Some(table),
            _ => None,
        }
    }

    /// In the order of the file.
    pub(super) fn tables(&self, name: &str) -> &[Self] {
        match self.typed(name) {
            Some(Typed::Tables(tables)) => tables,
            _ => &[],
        }
    }

    /// Notes what is in effect at a key.
    pub(super) fn show(&self, name: &str, value: Shown) {
        self.effect.borrow_mut().insert(self.declared(name).name, value);
    }

    /// What is in effect, in the order of the declaration; empty where the rules made nothing of this table.
    pub(super) fn shown(&self) -> Vec<(&'static str, Shown)> {
        let effect = self.effect.borrow();
        let keys = self.table.keys.iter();
        keys.filter_map(|key| Some((key.name, effect.get(key.name)?.clone()))).collect()
    }
}
