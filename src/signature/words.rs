//! The words of `[endpoint.NAME.scheme]`: how the value of a key is read, and what is said of one that cannot be used.

use std::error::Error;
use std::fmt;

use super::secret::BadKey;

/// Why a scheme, a provider or a secret cannot be used: one sentence with the key, the value, the rule and what to do.
/// Of a secret it names the label and never a byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemeError {
    /// A key of `[endpoint.NAME.scheme]` has a value that cannot be used.
    Value {
        /// The key.
        key: String,
        /// What was typed.
        value: String,
        /// What it breaks, and what to write instead.
        rule: String,
    },
    /// No header is named for the signature.
    NoSignatureHeader,
    /// A JSON pointer breaks RFC 6901.
    Pointer(String),
    /// There is no preset of this name.
    UnknownProvider {
        /// What was typed.
        name: String,
        /// Those that exist.
        known: Vec<&'static str>,
    },
    /// No secret is named.
    NoSecret,
    /// A secret cannot be a key.
    Secret {
        /// Where it came from.
        label: String,
        /// Why it cannot.
        why: BadKey,
        /// The preset that it fits, where that is known.
        elsewhere: Option<&'static str>,
    },
    /// Only the provider can sign: the configured key is its public one.
    PrivateKey,
    /// The body lacks what this provider signs.
    Unsignable,
}

impl fmt::Display for SchemeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value { key, value, rule } => write!(f, "scheme.{key} = {value:?}: {rule}"),
            Self::NoSignatureHeader => {
                f.write_str("lacks \"signature_header\"; write e.g. signature_header = \"X-Signature\"")
            }
            Self::Pointer(pointer) => write!(
                f,
                "scheme: json:{pointer}: in a JSON pointer ~ is written ~0, and ~1 means a slash"
            ),
            Self::UnknownProvider { name, known } => write!(
                f,
                "provider = {name:?}: there is no such preset; use one of {}, or \"custom\" with a [scheme] table",
                known.join(", ")
            ),
            Self::NoSecret => {
                f.write_str("there is no secret: nothing could be verified; name at least one in `secrets`")
            }
            Self::Secret { label, why, elsewhere } => {
                write!(f, "secret {label} {why}")?;
                elsewhere.map_or(Ok(()), |provider| f.write_str(&advice(provider)))
            }
            Self::PrivateKey => f.write_str(
                "the provider signs with a private key that only it has (the configured key is the public one): \
                 inboxd can verify its deliveries but not make them",
            ),
            Self::Unsignable => {
                f.write_str("the body is neither a form nor JSON with the fields this provider signs")
            }
        }
    }
}

impl Error for SchemeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Secret { why, .. } => Some(why),
            Self::Value { .. }
            | Self::NoSignatureHeader
            | Self::Pointer(_)
            | Self::UnknownProvider { .. }
            | Self::NoSecret
            | Self::PrivateKey
            | Self::Unsignable => None,
        }
    }
}

/// For those who only show it.
impl From<SchemeError> for String {
    fn from(error: SchemeError) -> Self {
        error.to_string()
    }
}

/// Where a secret would fit, as the end of a sentence.
pub(crate) fn advice(provider: &str) -> String {
    format!("; if it is another kind of secret, write provider = {provider:?}")
}

/// `scheme.KEY = "VALUE": RULE`
pub(crate) fn rule(key: &str, value: &str, rule: &str) -> SchemeError {
    SchemeError::Value { key: key.to_owned(), value: value.to_owned(), rule: rule.to_owned() }
}

pub(crate) fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&byte))
}

/// The pointer of a `json:/pointer`; `None` where nothing is named.
pub(crate) fn json_pointer(key: &str, text: &str) -> Result<Option<String>, SchemeError> {
    match text.strip_prefix("json:") {
        None if text.is_empty() => Ok(None),
        Some(pointer) if pointer.starts_with('/') => Ok(Some(pointer.to_owned())),
        _ => Err(rule(key, text, "write json:/pointer")),
    }
}

pub(crate) fn one_of<T: Copy>(key: &str, value: &str, choices: &[(&str, T)]) -> Result<T, SchemeError> {
    choices.iter().find(|(word, _)| *word == value).map(|(_, choice)| *choice).ok_or_else(|| {
        let words: Vec<_> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
        rule(key, value, &format!("use {}", words.join(" or ")))
    })
}

pub(crate) fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
