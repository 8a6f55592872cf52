//! The providers inboxd knows, one row each.
//!
//! A row says how the provider signs (in the words of `[endpoint.NAME.scheme]`), where it writes the
//! id, type and scope of an event, and how it delivers. No code is needed to read or add one:
//! what a row does not mention is as in [`Preset::PLAIN`].

use serde_json::Value;

use super::scheme::Recipe;

/// One provider.
#[derive(Debug)]
pub struct Preset {
    /// The name used in the configuration.
    pub name: &'static str,
    /// The name people know.
    pub title: &'static str,
    /// Where the provider's own description of its signatures is.
    pub docs: &'static str,
    /// What one should know before using it, in a sentence or two.
    pub notes: &'static str,
    /// How it signs, and where it says what.
    pub recipe: Recipe<'static>,
    /// How far a signed time may be from now, in seconds, either way.
    pub tolerance_s: u32,
    /// Headers stored with the event, besides the content type and those that carry id and type.
    pub kept_headers: &'static [&'static str],
    /// Whether it delivers again after a failure.
    pub retries_by_itself: bool,
    /// Whether two attempts of one event may have different bodies.
    pub body_varies: BodyVaries,
    /// The status it wants for a bad signature.
    pub bad_signature_status: u16,
    /// Its own limit on bodies, in bytes, where that is above the usual default.
    pub body_bytes_max: Option<usize>,
}

/// Whether two attempts of one event may have different bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyVaries {
    /// Never: another body under the same id is worth a person's look.
    No,
    /// Only at these JSON pointers.
    Fields(&'static [&'static str]),
    /// Anywhere.
    Yes,
}

impl Preset {
    /// A provider that retries, repeats bodies byte for byte and has no wishes.
    pub const PLAIN: Self = Self {
        name: "",
        title: "",
        docs: "",
        notes: "",
        recipe: Recipe::PLAIN,
        tolerance_s: 300,
        kept_headers: &[],
        retries_by_itself: true,
        body_varies: BodyVaries::No,
        bad_signature_status: 400,
        body_bytes_max: None,
    };
}

const PRESETS: &[Preset] = &[
    Preset {
        name: "stripe",
        title: "Stripe",
        docs: "https://docs.stripe.com/webhooks#verify-manually",
        notes: "The secret is the endpoint's own, the whole text with whsec_. Account, Connect and `stripe listen` secrets differ.",
        recipe: Recipe {
            signature_header: "Stripe-Signature",
            list_separator: ",",
            pair: "v1",
            signed: "{ts}.{body}",
            timestamp: "pair:t",
            event_id: &["json:/id"],
            event_type: &["json:/type"],
            // snapshot events first, then thin events (v2)
            object_id: &["json:/data/object/id", "json:/related_object/id"],
            account: &["json:/account", "json:/context"],
            livemode: &["json:/livemode"],
            api_version: &["json:/api_version"],
            ..Recipe::PLAIN
        },
        body_varies: BodyVaries::Fields(&["/pending_webhooks"]),
        ..Preset::PLAIN
    },
    Preset {
        name: "github",
        title: "GitHub",
        docs: "https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries",
        notes: "Never retries by itself. The delivery id is not signed. The object is the issue or pull request, else the repository.",
        recipe: Recipe {
            signature_header: "X-Hub-Signature-256",
            prefix: "sha256=",
            // the signature covers the raw form, not the JSON inside
            form_field: "payload",
            event_id: &["header:X-GitHub-Delivery"],
            event_type: &["header:X-GitHub-Event"],
            event_action: "json:/action",
            object_id: &["json:/issue/node_id", "json:/pull_request/node_id", "json:/repository/full_name"],
            account: &[
                "json:/organization/login",
                "json:/repository/owner/login",
                "json:/installation/account/login",
            ],
            ..Recipe::PLAIN
        },
        kept_headers: &[
            "X-GitHub-Hook-ID",
            "X-GitHub-Hook-Installation-Target-ID",
            "X-GitHub-Hook-Installation-Target-Type",
        ],
        retries_by_itself: false,
        body_bytes_max: Some(25 * 1024 * 1024),
        ..Preset::PLAIN
    },
    Preset {
        name: "standardwebhooks",
        title: "Standard Webhooks",
        docs: "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md",
        notes: "For every sender that follows the specification with a whsec_ secret. Asymmetric v1a signatures are skipped.",
        recipe: Recipe {
            signature_header: "webhook-signature",
            event_id: &["header:webhook-id"],
            timestamp: "header:webhook-timestamp",
            ..STANDARD_WEBHOOKS
        },
        kept_headers: &["svix-id"],
        ..Preset::PLAIN
    },
    Preset {
        name: "svix",
        title: "Svix",
        docs: "https://docs.svix.com/receiving/verifying-payloads/how-manual",
        notes: "Standard Webhooks under svix-* names; webhook-* names are taken too.",
        recipe: SVIX,
        kept_headers: &["webhook-id"],
        ..Preset::PLAIN
    },
    Preset {
        name: "clerk",
        title: "Clerk",
        docs: "https://clerk.com/docs/guides/development/webhooks/overview",
        notes: "Delivered by Svix.",
        recipe: Recipe { account: &["json:/instance_id"], ..SVIX },
        kept_headers: &["webhook-id"],
        ..Preset::PLAIN
    },
    Preset {
        name: "resend",
        title: "Resend",
        docs: "https://resend.com/docs/webhooks/verify-webhooks-requests",
        notes: "Delivered by Svix.",
        recipe: Recipe { object_id: &["json:/data/email_id", "json:/data/id"], ..SVIX },
        kept_headers: &["webhook-id"],
        ..Preset::PLAIN
    },
];

/// What the Standard Webhooks family has in common.
const STANDARD_WEBHOOKS: Recipe<'static> = Recipe {
    list_separator: " ",
    prefix: "v1,",
    encoding: "base64",
    key: "base64",
    key_prefix: "whsec_",
    signed: "{id}.{ts}.{body}",
    header_families: ["webhook-", "svix-"],
    event_type: &["json:/type"],
    object_id: &["json:/data/id"],
    ..Recipe::PLAIN
};

const SVIX: Recipe<'static> = Recipe {
    signature_header: "svix-signature",
    event_id: &["header:svix-id"],
    timestamp: "header:svix-timestamp",
    ..STANDARD_WEBHOOKS
};

/// Every preset, in the order of the table.
pub fn all() -> &'static [Preset] {
    PRESETS
}

/// The preset of that name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

impl Preset {
    /// Whether the event's id stands in the body rather than in a header.
    pub fn has_id_in_body(&self) -> bool {
        self.recipe.event_id.iter().all(|source| source.starts_with("json:"))
    }
}

impl BodyVaries {
    /// Whether two bodies under one id are the same event as far as the provider is concerned.
    pub fn same_event(self, first: &[u8], second: &[u8]) -> bool {
        if first == second {
            return true;
        }
        match self {
            Self::No => false,
            Self::Yes => true,
            Self::Fields(pointers) => match (without(first, pointers), without(second, pointers)) {
                (Some(first), Some(second)) => first == second,
                _ => false,
            },
        }
    }
}

fn without(body: &[u8], pointers: &[&str]) -> Option<Value> {
    let mut json: Value = serde_json::from_slice(body).ok()?;
    for (parent, key) in pointers.iter().filter_map(|pointer| pointer.rsplit_once('/')) {
        if let Some(Value::Object(fields)) = json.pointer_mut(parent) {
            fields.remove(key);
        }
    }
    Some(json)
}

#[cfg(test)]
mod tests {
    use super::super::Scheme;
    use super::*;

    #[test]
    fn every_row_is_a_valid_scheme_and_keeps_no_credential() {
        for preset in all() {
            let scheme = Scheme::named(preset.name).unwrap();
            assert!(scheme.body_signed(), "{}", preset.name);
            assert!(preset.docs.starts_with("https://"), "{}", preset.name);
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
        let names: std::collections::BTreeSet<_> = all().iter().map(|preset| preset.name).collect();
        assert_eq!(names.len(), all().len());
        assert!(Scheme::named("strpe").unwrap_err().contains("stripe"));
    }

    #[test]
    fn ids_are_signed_where_they_are_in_the_message() {
        let signed = |name: &str| Scheme::named(name).unwrap().id_is_signed();
        assert!(signed("stripe") && signed("svix") && signed("standardwebhooks"));
        assert!(!signed("github"));
    }

    #[test]
    fn a_counter_in_the_body_does_not_make_it_another_event() {
        let varies = find("stripe").unwrap().body_varies;
        let body = |pending: u8, kind: &str| {
            format!(r#"{{"id":"evt_1","type":"{kind}","pending_webhooks":{pending}}}"#)
        };
        assert!(varies.same_event(body(1, "a").as_bytes(), body(2, "a").as_bytes()));
        assert!(!varies.same_event(body(1, "a").as_bytes(), body(1, "b").as_bytes()));
        assert!(!varies.same_event(b"x", b"y"));
        assert!(!BodyVaries::No.same_event(b"1", b"2") && BodyVaries::Yes.same_event(b"1", b"2"));
    }
}
