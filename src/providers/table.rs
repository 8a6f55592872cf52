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

#[cfg(test)]
mod tests {
    use super::super::provider::Provider;
    use super::*;

    #[test]
    fn every_row_is_a_valid_scheme_and_keeps_no_credential() {
        for preset in all() {
            let provider = Provider::named(preset.name).unwrap();
            let scheme = provider.scheme();
            let unsigned = ["payjp_token", "gitlab_token", "mailgun"].contains(&preset.name);
            assert_eq!(scheme.body_signed(), !unsigned, "{}", preset.name);
            assert!(preset.docs.starts_with("https://"), "{}", preset.name);
            assert!(preset.confirmed.starts_with("202"), "{}", preset.name);
            for text in [preset.setup, preset.secret, preset.title] {
                assert!(!text.is_empty(), "{}", preset.name);
            }
            for header in preset.kept_headers {
                let header = header.to_ascii_lowercase();
                assert!(
                    !["signature", "authorization", "cookie", "token", "secret"]
                        .iter()
                        .any(|word| header.contains(word)),
                    "{header}"
                );
            }
        }
        let names = || all().iter().flat_map(|preset| preset.aliases.iter().copied().chain([preset.name]));
        assert_eq!(names().collect::<std::collections::BTreeSet<_>>().len(), names().count());
        assert!(Provider::named("strpe").unwrap_err().to_string().contains("stripe"));
    }

    #[test]
    fn ids_are_signed_where_they_are_in_the_message() {
        let signed = |name: &str| Provider::named(name).unwrap().scheme().id_is_signed();
        assert!(signed("stripe") && signed("svix") && signed("standardwebhooks"));
        assert!(!signed("github"));
    }
}
