//! The words of `[endpoint.NAME.scheme]`: how the value of a key is read, and what is said of one that cannot be used.

/// `scheme.KEY = "VALUE": RULE`
pub(crate) fn rule(key: &str, value: &str, rule: &str) -> String {
    format!("scheme.{key} = {value:?}: {rule}")
}

pub(crate) fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&byte))
}

/// The pointer of a `json:/pointer`; `None` where nothing is named.
pub(crate) fn json_pointer(key: &str, text: &str) -> Result<Option<String>, String> {
    match text.strip_prefix("json:") {
        None if text.is_empty() => Ok(None),
        Some(pointer) if pointer.starts_with('/') => Ok(Some(pointer.to_owned())),
        _ => Err(rule(key, text, "write json:/pointer")),
    }
}

pub(crate) fn one_of<T: Copy>(key: &str, value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    choices.iter().find(|(word, _)| *word == value).map(|(_, choice)| *choice).ok_or_else(|| {
        let words: Vec<_> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
        rule(key, value, &format!("use {}", words.join(" or ")))
    })
}

pub(crate) fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
