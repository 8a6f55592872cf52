//! The providers inboxd knows, one row each.
//!
//! A row says how the provider signs (in the words of `[endpoint.NAME.scheme]`), where it writes the
//! id, type and scope of an event, how it delivers and what it wants of us. No code is needed to read or
//! add one. `inboxd providers` and the manual print these rows; there is no second copy.

pub(crate) mod handshake;
mod provider;
mod table;
mod payments;
mod shops;
mod standard;
mod code;
mod messages;
mod other;
mod patience;
mod sample;
mod preset;

pub use handshake::Reply;
pub use patience::gives_up_after;
pub use preset::{Acceptance, BodyVaries, Handshake, OtherKind, Preset, TestSign};
pub use provider::Provider;
pub use table::{all, find};

#[cfg(test)]
mod tests {
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
        assert!(Provider::named("strpe").unwrap_err().contains("stripe"));
    }

    #[test]
    fn ids_are_signed_where_they_are_in_the_message() {
        let signed = |name: &str| Provider::named(name).unwrap().scheme().id_is_signed();
        assert!(signed("stripe") && signed("svix") && signed("standardwebhooks"));
        assert!(!signed("github"));
    }
}
