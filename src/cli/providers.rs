//! `providers`: prints the table of providers.

use crate::config::closest;
use crate::providers::{self, Preset, Provider};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args::Names;
use super::init::{endpoint_table, secret_variable};
use super::store::table;
use super::{Exit, Failure, put, put_lines};

/// Look at the providers that can be named in the configuration
#[derive(Debug, Subcommand)]
pub(crate) enum ProvidersVerb {
    /// List every provider with its peculiarities
    List(ProvidersListArgs),
    /// Show one provider: how to set it up, its headers, its retries, and what to configure
    Show(ProviderArgs),
}

/// `providers list`
#[derive(Debug, Args)]
pub(crate) struct ProvidersListArgs {
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// `providers show`
#[derive(Debug, Args)]
pub(crate) struct ProviderArgs {
    /// The provider's name, e.g. shopify
    #[arg(value_parser = Names::of_providers(), hide_possible_values = true)]
    pub(crate) name: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `list` and `show`.
pub(crate) fn run(verb: &ProvidersVerb) -> Result<(), Failure> {
    match verb {
        ProvidersVerb::List(args) => list(args),
        ProvidersVerb::Show(args) => show(args),
    }
}

fn list(args: &ProvidersListArgs) -> Result<(), Failure> {
    if args.json {
        let all: Result<Vec<_>, _> = providers::all().iter().map(|preset| to_json(preset)).collect();
        return put_lines(all?);
    }
    let row = |preset: &&Preset| {
        vec![
            preset.name.to_owned(),
            preset.title.to_owned(),
            signature_place(preset),
            if preset.retries_by_itself { "yes" } else { "never" }.to_owned(),
            remarks(preset).join(", "),
        ]
    };
    let head = ["PROVIDER", "TITLE", "SIGNATURE", "RETRIES", "REMARKS"];
    put(&table(&head, &providers::all().iter().map(row).collect::<Vec<_>>()))
}

fn show(args: &ProviderArgs) -> Result<(), Failure> {
    let preset = providers::find(&args.name).ok_or_else(|| unknown(&args.name))?;
    if args.json {
        return put(&format!("{}\n", to_json(preset)?));
    }
    let mut text = format!("{} ({})\n\n", preset.title, preset.name);
    for (what, said) in facts(preset)? {
        text.push_str(&wrapped(&format!("{what}:"), &said));
    }
    text.push_str("\nIn inboxd.toml:\n\n");
    if preset.recipe.signed.contains("{url}") {
        text.push_str("public_url = \"https://hooks.example.com\"\n\n");
    }
    let (path, secret) =
        (format!("/webhooks/{}", preset.name), format!("env:{}", secret_variable(preset.name)));
    text.push_str(&endpoint_table(preset.name, preset.name, &path, &secret, Some(preset)));
    put(&text)
}

fn unknown(name: &str) -> Failure {
    let advice = match closest(name, providers::all().iter().map(|preset| preset.name)) {
        Some(word) => format!("did you mean {word}?"),
        None => "`inboxd providers list` names them".to_owned(),
    };
    Failure::new(Exit::NotFound, format!("there is no provider {name:?}; {advice}"))
}

/// The facts about a provider, in the order in which a user needs them. The manual page has the same.
pub(crate) fn facts(preset: &Preset) -> Result<Vec<(&'static str, String)>, Failure> {
    let provider = provider_of(preset)?;
    let scheme = provider.scheme();
    let recipe = &preset.recipe;
    let sources = |list: &[&str]| list.join(" or ");
    let mut facts = vec![
        ("Set up", preset.setup.to_owned()),
        ("Secret", preset.secret.to_owned()),
        ("Documentation", preset.docs.to_owned()),
        ("Signature", signature(preset)),
        (
            "Signed",
            if recipe.signed.is_empty() { "nothing".to_owned() } else { recipe.signed.replace('\n', "\\n") },
        ),
    ];
    if !recipe.timestamp.is_empty() {
        facts.push((
            "Signed time",
            format!(
                "{} in {}, at most {} s from now",
                recipe.timestamp,
                if recipe.timestamp_unit == "ms" { "milliseconds" } else { "seconds" },
                preset.tolerance_s
            ),
        ));
    }
    if recipe.batch.is_some() {
        facts.push(("Batch", "several events in one delivery, each stored by itself".to_owned()));
    }
    let key = format!("the key is made of {}", recipe.event_key.join(", "));
    let signed = if scheme.id_is_signed() { "signed" } else { "NOT signed" };
    let id = match (recipe.event_id, recipe.event_key) {
        ([], _) => format!("none; {key}"),
        (id, []) => format!("{}, {signed}", sources(id)),
        (id, _) => format!("{}, {signed}; where there is none, {key}", sources(id)),
    };
    facts.push(("Event id", id));
    facts.push(("One event", one_event(preset)));
    let action =
        if recipe.event_action.is_empty() { String::new() } else { format!(" and {}", recipe.event_action) };
    facts.push(("Event type", format!("{}{action}", sources(recipe.event_type))));
    facts.push(("Object", sources(recipe.object_id)));
    facts.push(("Account", sources(recipe.account)));
    facts.push(("Replays", replays(&provider).to_owned()));
    facts.push(("Handed on", handed_on(&provider)));
    facts.push(("Handshake", preset.handshake.title.to_owned()));
    facts.push(("Waits", preset.deadline_s.map_or(String::new(), |s| format!("{s} s for an answer"))));
    facts.push(("Sends again", preset.retries.to_owned()));
    let signer = if scheme.can_sign() {
        ""
    } else {
        "`inboxd send` cannot sign for it: that takes the provider's private key"
    };
    facts.push(("Test sends", signer.to_owned()));
    facts.push(("Also called", preset.aliases.join(", ")));
    facts.push(("Note", preset.notes.to_owned()));
    facts.push(("Confirmed", preset.confirmed.to_owned()));
    facts.push(("Unconfirmed", preset.unconfirmed.to_owned()));
    facts.retain(|(_, said)| !said.is_empty());
    Ok(facts)
}

/// Which deliveries are one event, if the id alone does not decide it.
fn one_event(preset: &Preset) -> String {
    let recipe = &preset.recipe;
    if !recipe.fact.is_empty() {
        return format!(
            "the same {}, type and object is one event, whatever its id and body: it came through another subscription",
            recipe.fact.join(" and ")
        );
    }
    if !recipe.told_apart_by.is_empty() {
        return format!(
            "the same id with another body is another event where {} differs; with the same body it is one",
            recipe.told_apart_by.join(" or ")
        );
    }
    if !recipe.api_version.is_empty() {
        return "the same id in the shape of another API version is the same event".to_owned();
    }
    String::new()
}

fn provider_of(preset: &Preset) -> Result<Provider, Failure> {
    Provider::named(preset.name).map_err(|reason| Failure::new(Exit::Internal, reason))
}

fn signature_place(preset: &Preset) -> String {
    match preset.recipe.signature_header {
        "" => preset.recipe.signature_field.to_owned(),
        header => header.to_owned(),
    }
}

fn signature(preset: &Preset) -> String {
    let recipe = &preset.recipe;
    let label = match (recipe.pair, recipe.prefix) {
        ("", "") => String::new(),
        ("", prefix) => format!(", after {prefix}"),
        (pair, _) => format!(", as {pair}=…"),
    };
    let how = match recipe.algorithm {
        "sha256" => "HMAC-SHA256",
        "sha1" => "HMAC-SHA1",
        "ed25519" => "Ed25519",
        "ecdsa-p256" => "ECDSA P-256",
        _ => return format!("{}: the token itself", signature_place(preset)),
    };
    format!("{}: {how} in {}{label}", signature_place(preset), recipe.encoding)
}

fn remarks(preset: &Preset) -> Vec<&'static str> {
    let Ok(provider) = Provider::named(preset.name) else {
        return Vec::new();
    };
    let scheme = provider.scheme();
    [
        (!scheme.body_signed(), "body NOT signed"),
        (provider.has_replay_key() && !scheme.id_is_signed(), "id not signed"),
        (scheme.is_batch(), "batches"),
        (scheme.signs_url(), "needs public_url"),
        (!preset.handshake.title.is_empty(), "handshake"),
        (!scheme.can_sign(), "public key"),
    ]
    .into_iter()
    .filter_map(|(holds, remark)| holds.then_some(remark))
    .collect()
}

fn replays(provider: &Provider) -> &'static str {
    let scheme = provider.scheme();
    if !scheme.body_signed() {
        "the body is not signed: whoever saw one delivery can make others; money handlers refuse it"
    } else if !provider.has_replay_key() {
        ""
    } else if scheme.signs_form_fields() {
        "URL and fields are signed as one text: the same text cut into other fields is kept for a person (replay = \"flag\")"
    } else if scheme.key_is_unsigned() {
        "the same body and type under a new key is kept for a person (replay = \"flag\"), since a header in the key is not signed"
    } else {
        "the same body under a new id is kept for a person (replay = \"flag\"), since the id is not signed"
    }
}

/// How a destination gets the events with `sign = "provider"`.
fn handed_on(provider: &Provider) -> String {
    let scheme = provider.scheme();
    let envelope = match scheme.is_batch() {
        true => "each event by itself, inside the delivery's envelope; ",
        false => "",
    };
    let signature = if !scheme.can_sign() {
        "sign = \"provider\" is impossible, since only the provider has the key; use standard or none"
            .to_owned()
    } else if scheme.has_time_in_body() {
        format!(
            "sign = \"provider\" holds for {} s only, since the signed time is inside the body; use standard",
            provider.preset().tolerance_s
        )
    } else if scheme.signs_form_fields() {
        "signed anew; a body that is not a form by bodySHA256 in the destination's URL".to_owned()
    } else if scheme.body_signed() {
        "signed anew".to_owned()
    } else {
        "with the token, which does not sign the body".to_owned()
    };
    format!("{envelope}{signature}")
}

/// Fields for programs: the texts of the table, and properties of the scheme.
fn to_json(preset: &Preset) -> Result<Value, Failure> {
    let provider = provider_of(preset)?;
    let scheme = provider.scheme();
    let recipe = &preset.recipe;
    Ok(json!({
        "name": preset.name, "aliases": preset.aliases, "title": preset.title, "docs": preset.docs,
        "setup": preset.setup, "secret": preset.secret, "notes": preset.notes, "unconfirmed": preset.unconfirmed, "confirmed": preset.confirmed,
        "signature": signature_place(preset), "algorithm": recipe.algorithm, "encoding": recipe.encoding,
        "key": recipe.key, "key_prefix": recipe.key_prefix, "signed": recipe.signed,
        "timestamp": recipe.timestamp, "timestamp_unit": recipe.timestamp_unit, "tolerance_s": preset.tolerance_s,
        "event_id": recipe.event_id, "event_key": recipe.event_key, "event_type": recipe.event_type,
        "object_id": recipe.object_id, "account": recipe.account,
        "fact": recipe.fact, "told_apart_by": recipe.told_apart_by,
        "body_signed": scheme.body_signed(), "id_signed": scheme.id_is_signed(), "batch": scheme.is_batch(), "handed_on": handed_on(&provider),
        "signs_url": scheme.signs_url(), "can_send": scheme.can_sign(), "handshake": preset.handshake.title,
        "retries_by_itself": preset.retries_by_itself, "retries": preset.retries, "deadline_s": preset.deadline_s,
        "bad_signature_status": preset.bad_signature_status, "body_bytes_max": preset.body_bytes_max,
    }))
}

/// `What:  text`, the text in lines of a readable width.
fn wrapped(what: &str, said: &str) -> String {
    const INDENT: usize = 15;
    const WIDTH: usize = 78;
    let mut lines = vec![format!("{what:<INDENT$}")];
    for word in said.split_whitespace() {
        let full = lines.last().is_some_and(|line| {
            line.chars().count() > INDENT && line.chars().count() + word.chars().count() >= INDENT + WIDTH
        });
        if full {
            lines.push(" ".repeat(INDENT));
        }
        if let Some(line) = lines.last_mut() {
            if line.chars().count() > INDENT {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}
