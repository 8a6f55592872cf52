//! Whether a scheme of the user's own can be fulfilled by any delivery at all.
//!
//! Each key alone was read before; here is what two of them, or one and the nature of headers, rule out. A
//! configuration that is good and refuses every delivery costs its owner an evening.

use super::recipe::{CustomScheme, Recipe};
use super::words::{SchemeError, rule};

/// Keys that mean nothing where the header holds the secret itself.
///
/// # Errors
/// One sentence: the key, the value, the rule and what to do.
pub(crate) fn check_token(custom: &CustomScheme, signs_nothing: bool) -> Result<(), SchemeError> {
    if !signs_nothing {
        return Ok(());
    }
    let meaningless = [
        ("encoding", &custom.encoding),
        ("key", &custom.key),
        ("key_prefix", &custom.key_prefix),
        ("signed", &custom.signed),
        ("timestamp", &custom.timestamp),
        ("timestamp_unit", &custom.timestamp_unit),
    ];
    match meaningless.into_iter().find_map(|(key, value)| Some((key, value.as_ref()?))) {
        Some((key, value)) => Err(rule(
            key,
            value,
            "the header holds the secret itself, so nothing is signed and nothing decoded; remove this key, or name another algorithm",
        )),
        None => Ok(()),
    }
}

/// What keeps every delivery from being genuine.
///
/// # Errors
/// As [`check_token`].
pub(crate) fn check(recipe: &Recipe<'_>, custom: &CustomScheme) -> Result<(), SchemeError> {
    if let (Some(unit), "") = (&custom.timestamp_unit, recipe.timestamp) {
        let advice = "there is no timestamp it could be the unit of; set `timestamp` or remove it";
        return Err(rule("timestamp_unit", unit, advice));
    }
    challenge(recipe, custom)?;
    separator(recipe)?;
    let header = recipe.timestamp.strip_prefix("header:");
    if header.is_some_and(|name| name.eq_ignore_ascii_case(recipe.signature_header)) {
        let advice = "one header cannot be the time and the signature; where it holds both, use list_separator, pair and timestamp = \"pair:KEY\"";
        return Err(rule("timestamp", recipe.timestamp, advice));
    }
    if !recipe.pair.is_empty() && recipe.timestamp.strip_prefix("pair:") == Some(recipe.pair) {
        return Err(rule("timestamp", recipe.timestamp, "this pair is the signature; name the time's own"));
    }
    if recipe.prefix.starts_with([' ', '\t']) {
        return Err(rule(
            "prefix",
            recipe.prefix,
            "blanks before a signature are no part of it; remove them",
        ));
    }
    let pointers = [recipe.timestamp, recipe.challenge]
        .into_iter()
        .chain([recipe.event_id, recipe.event_type, recipe.object_id].into_iter().flatten().copied());
    match pointers.filter_map(|text| text.strip_prefix("json:")).find(|pointer| !is_pointer(pointer)) {
        Some(pointer) => Err(SchemeError::Pointer(pointer.to_owned())),
        None => Ok(()),
    }
}

fn challenge(recipe: &Recipe<'_>, custom: &CustomScheme) -> Result<(), SchemeError> {
    let alone = [("challenge_when", &custom.challenge_when), ("challenge_answer", &custom.challenge_answer)];
    match alone.into_iter().find_map(|(key, value)| Some((key, value.as_ref()?))) {
        Some((key, value)) if recipe.challenge.is_empty() => Err(rule(
            key,
            value,
            "there is no challenge; set challenge = \"json:/pointer\" or remove this key",
        )),
        _ => Ok(()),
    }
}

/// A separator that is part of what it separates leaves nothing whole.
fn separator(recipe: &Recipe<'_>) -> Result<(), SchemeError> {
    let separator = recipe.list_separator;
    if separator.is_empty() {
        return Ok(());
    }
    let refused = |advice: &str| Err(rule("list_separator", separator, advice));
    let digits: fn(char) -> bool = match recipe.encoding {
        "hex" => |c| c.is_ascii_hexdigit(),
        _ => |c| c.is_ascii_alphanumeric() || "+/=-_".contains(c),
    };
    if separator.chars().all(digits) {
        return refused("it also stands inside signatures, which would be cut apart");
    }
    if recipe.prefix.contains(separator) {
        return refused("it stands in `prefix` too, so no element could begin with that");
    }
    if recipe.pair.contains(separator) || separator.contains('=') && !recipe.pair.is_empty() {
        return refused("elements are KEY=VALUE, and it would cut them apart");
    }
    let time_is_text = matches!(recipe.timestamp_unit, "rfc3339" | "auto");
    if time_is_text && recipe.timestamp.starts_with("pair:") && separator.chars().all(|c| "-:+.".contains(c))
    {
        return refused("it also stands inside the time, which would be cut apart");
    }
    Ok(())
}

/// RFC 6901: a tilde is followed by 0 or 1.
fn is_pointer(pointer: &str) -> bool {
    pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
}
