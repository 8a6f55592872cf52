//! Secrets, the keys made from them, and the tags made with those keys.
//!
//! A [`Secret`] is known by its label and fingerprint and never shown. A `Tag` has no `PartialEq`:
//! two tags can only be compared in constant time, so `==` on a signature does not compile.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

/// A signing secret as configured, verbatim.
#[derive(Clone)]
pub struct Secret {
    label: String,
    bytes: Vec<u8>,
}

impl Secret {
    /// A secret and where it came from (`env:NAME`, `file:PATH`), which is what people are shown.
    pub fn new(label: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { label: label.into(), bytes: bytes.into() }
    }

    /// Where it came from.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The first eight hex digits of its SHA-256: enough to tell two secrets apart.
    pub fn fingerprint(&self) -> String {
        format!("sha256:{}", hex(&Sha256::digest(&self.bytes)[..4]))
    }

    /// The key material, verbatim. For signing and verifying only.
    pub fn expose(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} ***)", self.label)
    }
}

/// How signatures are written in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Lower-case digits only.
    Hex,
    /// The standard alphabet, padded, canonical.
    Base64,
}

/// The hash under the HMAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Sha256,
}

impl Algorithm {
    fn tag_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
        }
    }
}

/// How the configured secret becomes the HMAC key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyForm {
    /// Its bytes, verbatim.
    Text,
    Base64,
    Hex,
}

impl KeyForm {
    /// The key's bytes. White space around an encoded key is never part of it and is dropped;
    /// a text key is taken to the byte.
    ///
    /// # Errors
    /// What is wrong with the secret, without quoting it.
    pub(super) fn key_bytes(self, prefix: &str, secret: &[u8]) -> Result<Vec<u8>, String> {
        if self == Self::Text {
            return Ok(strip(secret, prefix.as_bytes()).to_vec());
        }
        let secret = secret.trim_ascii();
        if !prefix.is_empty() && secret.starts_with(format!("v1,{prefix}").as_bytes()) {
            return Err(format!("begins with \"v1,{prefix}\": \"v1,\" belongs to signatures; leave it out"));
        }
        let encoded = strip(secret, prefix.as_bytes());
        let (decoded, name) = match self {
            Self::Hex => (unhex_any_case(encoded), "hex"),
            Self::Text | Self::Base64 => (LENIENT_BASE64.decode(encoded).ok(), "base64"),
        };
        match decoded {
            Some(key) if key.is_empty() => {
                Err(format!("is empty after {name} decoding; copy the whole secret"))
            }
            Some(key) => Ok(key),
            None => Err(format!("is not {name}; copy the secret again, exactly as the provider shows it")),
        }
    }
}

/// Secrets (unlike signatures) are accepted without padding and with loose last bits, as the Python
/// library of Standard Webhooks does: the worst a lenient reading can do is fail to match.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// An HMAC with its key already absorbed.
#[derive(Clone)]
pub(super) enum Keyed {
    Sha256(Hmac<Sha256>),
}

impl Keyed {
    pub(super) fn new(algorithm: Algorithm, key: &[u8]) -> Result<Self, String> {
        match algorithm {
            Algorithm::Sha256 => {
                Hmac::new_from_slice(key).map(Self::Sha256).map_err(|error| error.to_string())
            }
        }
    }

    /// The tag over the pieces, fed one after the other: the body is never copied.
    pub(super) fn tag<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> Tag {
        match self {
            Self::Sha256(mac) => {
                let mut mac = mac.clone();
                pieces.for_each(|piece| mac.update(piece));
                Tag(mac.finalize().into_bytes().into())
            }
        }
    }
}

/// A signature's bytes; shorter ones are followed by zeros. Deliberately without `PartialEq`.
pub(super) struct Tag([u8; 32]);

impl Tag {
    /// Reads a signature: exact length, one spelling only.
    pub(super) fn decode(text: &str, encoding: Encoding, algorithm: Algorithm) -> Option<Self> {
        let mut bytes = [0; 32];
        let wanted = bytes.get_mut(..algorithm.tag_bytes())?;
        match encoding {
            Encoding::Hex => unhex_lower(text.as_bytes(), wanted)?,
            Encoding::Base64 => {
                let decoded = STANDARD.decode(text).ok()?;
                (decoded.len() == wanted.len()).then(|| wanted.copy_from_slice(&decoded))?;
            }
        }
        Some(Self(bytes))
    }

    pub(super) fn encode(&self, encoding: Encoding, algorithm: Algorithm) -> String {
        let bytes = &self.0[..algorithm.tag_bytes()];
        match encoding {
            Encoding::Hex => hex(bytes),
            Encoding::Base64 => STANDARD.encode(bytes),
        }
    }

    pub(super) fn ct_eq(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

/// Lower-case hex digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

fn unhex_lower(text: &[u8], out: &mut [u8]) -> Option<()> {
    if text.len() != out.len() * 2 || text.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    out.copy_from_slice(&unhex_any_case(text)?);
    Some(())
}

fn unhex_any_case(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

fn strip<'a>(bytes: &'a [u8], prefix: &[u8]) -> &'a [u8] {
    bytes.strip_prefix(prefix).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown() {
        let secret = Secret::new("env:KEY", "whsec_hunter2");
        assert_eq!(format!("{secret:?}"), "Secret(env:KEY ***)");
        assert_eq!(secret.fingerprint().len(), "sha256:".len() + 8);
    }

    #[test]
    fn a_signature_has_one_spelling() {
        let good = "ab".repeat(32);
        let decodes = |text: &str, encoding| Tag::decode(text, encoding, Algorithm::Sha256).is_some();
        assert!(decodes(&good, Encoding::Hex));
        for bad in [
            good.to_uppercase(),
            good[..63].to_owned(),
            good[..32].to_owned(),
            format!("{good}ab"),
            format!(" {good}"),
            format!("{good} "),
            good.replacen('a', "g", 1),
            good.replacen("ab", "+b", 1),
            good.replacen("ab", "é", 1),
            String::new(),
        ] {
            assert!(!decodes(&bad, Encoding::Hex), "{bad}");
        }
        let good = STANDARD.encode([0xfb; 32]);
        assert!(decodes(&good, Encoding::Base64));
        for bad in [
            good.trim_end_matches('=').to_owned(),
            good.replace('+', "-").replace('/', "_"),
            // the same bytes, with loose last bits
            good.replace("s=", "t="),
            STANDARD.encode([0xfb; 31]),
            STANDARD.encode([0xfb; 33]),
            format!("{good}\n"),
            format!("{good}="),
        ] {
            assert!(!decodes(&bad, Encoding::Base64), "{bad}");
        }
    }

    #[test]
    fn keys_are_decoded_leniently_and_refused_clearly() {
        let key = |form: KeyForm, secret: &str| form.key_bytes("whsec_", secret.as_bytes());
        assert_eq!(key(KeyForm::Base64, "whsec_AAEC").unwrap(), [0, 1, 2]);
        assert_eq!(key(KeyForm::Base64, "AAEC").unwrap(), [0, 1, 2]);
        assert_eq!(key(KeyForm::Base64, "  whsec_AAEC\n").unwrap(), [0, 1, 2]);
        assert_eq!(key(KeyForm::Base64, "whsec_AAE").unwrap(), [0, 1]);
        assert_eq!(key(KeyForm::Hex, "00FFab").unwrap(), [0, 255, 171]);
        assert_eq!(KeyForm::Text.key_bytes("", b"a\n").unwrap(), b"a\n");
        assert!(key(KeyForm::Base64, "v1,whsec_AAEC").unwrap_err().contains("v1,"));
        assert!(key(KeyForm::Base64, "whsec_").unwrap_err().contains("empty"));
        assert!(key(KeyForm::Base64, "whsec_!!!!").unwrap_err().contains("not base64"));
        assert!(key(KeyForm::Hex, "abc").unwrap_err().contains("not hex"));
    }
}
