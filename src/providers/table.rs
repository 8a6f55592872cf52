//! The table of all providers: its rows stand in six files, by what the providers are for.

use std::sync::LazyLock;

use super::preset::Preset;
use super::{code, messages, other, payments, shops, standard};

/// Every preset, in the order of the table.
pub fn all() -> &'static [&'static Preset] {
    static ALL: LazyLock<Vec<&'static Preset>> = LazyLock::new(|| {
        [payments::ROWS, code::ROWS, standard::ROWS, shops::ROWS, messages::ROWS, other::ROWS]
            .into_iter()
            .flatten()
            .collect()
    });
    &ALL
}

/// The preset of that name, or with that alias.
pub fn find(name: &str) -> Option<&'static Preset> {
    all().iter().copied().find(|preset| preset.name == name || preset.aliases.contains(&name))
}
