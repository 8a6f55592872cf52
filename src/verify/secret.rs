//! Secrets, the keys made from them, and the signatures judged with those keys.
//!
//! A [`Secret`] is known by its label and fingerprint and never shown. A `Tag` has no `PartialEq`:
//! two tags can only be compared in constant time, so `==` on a signature does not compile.
//! Public keys, which some providers hand out instead of a secret, go through the same door.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use p256::ecdsa::signature::Verifier as _;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use crate::encode::hex;

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

    /// Eight hex digits that tell two secrets apart. Without the key nobody can try guesses against them.
    pub fn fingerprint(&self, key: &[u8]) -> String {
        // an HMAC takes a key of any length
        let mac = Hmac::<Sha256>::new_from_slice(key).map(|mac| mac.chain_update(&self.bytes));
        mac.map(|mac| hex(&mac.finalize().into_bytes()[..4])).unwrap_or_default()
    }

    /// Whether only its reference is known: it was not to be read.
    pub fn is_unread(&self) -> bool {
        self.bytes.is_empty()
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

/// How a signature is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// HMAC-SHA256
    Sha256,
    /// HMAC-SHA1, which is still a sound MAC although SHA-1 is no sound hash.
    Sha1,
    /// No signature at all: the header holds the secret itself.
    Token,
    /// Ed25519, with the provider's public key.
    Ed25519,
    /// ECDSA on P-256 over SHA-256, with the provider's public key.
    EcdsaP256,
}

impl Algorithm {
    /// The length of a signature, where it has only one.
    fn signature_bytes(self) -> Option<usize> {
        match self {
            Self::Sha256 => Some(32),
            Self::Sha1 => Some(20),
            Self::Ed25519 => Some(64),
            Self::Token | Self::EcdsaP256 => None,
        }
    }

    /// What a person calls it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Sha256 => "HMAC-SHA256",
            Self::Sha1 => "HMAC-SHA1",
            Self::Token => "static token",
            Self::Ed25519 => "Ed25519 signature",
            Self::EcdsaP256 => "ECDSA P-256 signature",
        }
    }

    /// Whether inboxd can make such signatures: it never holds a provider's private key.
    pub(super) fn can_sign(self) -> bool {
        match self {
            Self::Sha256 | Self::Sha1 | Self::Token => true,
            Self::Ed25519 | Self::EcdsaP256 => false,
        }
    }
}

/// How the configured secret becomes the key.
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

/// A key ready for use; an HMAC has absorbed it already.
#[derive(Clone)]
pub(super) enum Keyed {
    Sha256(Hmac<Sha256>),
    Sha1(Hmac<Sha1>),
    Token(Tag),
    Ed25519(Box<ed25519_dalek::VerifyingKey>),
    EcdsaP256(Box<p256::ecdsa::VerifyingKey>),
}

/// All that stands before the point in a DER-encoded P-256 public key (RFC 5480): one spelling only.
const P256_SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

impl Keyed {
    /// # Errors
    /// The bytes cannot be a key of this algorithm; the end of a sentence that names the secret.
    pub(super) fn new(algorithm: Algorithm, key: &[u8]) -> Result<Self, String> {
        match algorithm {
            Algorithm::Sha256 => {
                Hmac::new_from_slice(key).map(Self::Sha256).map_err(|error| error.to_string())
            }
            Algorithm::Sha1 => Hmac::new_from_slice(key).map(Self::Sha1).map_err(|error| error.to_string()),
            Algorithm::Token => Ok(Self::Token(Tag::of_token(key))),
            Algorithm::Ed25519 => key
                .try_into()
                .ok()
                .and_then(|bytes| ed25519_dalek::VerifyingKey::from_bytes(bytes).ok())
                .filter(|key| !key.is_weak())
                .map(|key| Self::Ed25519(Box::new(key)))
                .ok_or_else(|| {
                    String::from("is no Ed25519 public key (32 bytes); copy the application's public key")
                }),
            Algorithm::EcdsaP256 => key
                .strip_prefix(&P256_SPKI_PREFIX)
                .and_then(|point| p256::ecdsa::VerifyingKey::from_sec1_bytes(point).ok())
                .map(|key| Self::EcdsaP256(Box::new(key)))
                .ok_or_else(|| {
                    String::from("is no P-256 public key (91 bytes of DER); copy the whole verification key")
                }),
        }
    }

    /// The tag over the pieces, fed one after the other: the body is never copied. `None` for a public
    /// key, which makes none.
    pub(super) fn tag<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> Option<Tag> {
        match self {
            Self::Sha256(mac) => {
                let mut mac = mac.clone();
                pieces.for_each(|piece| mac.update(piece));
                Some(Tag(mac.finalize().into_bytes().into()))
            }
            Self::Sha1(mac) => {
                let mut mac = mac.clone();
                pieces.for_each(|piece| mac.update(piece));
                let mut bytes = [0; 32];
                bytes[..20].copy_from_slice(&mac.finalize().into_bytes());
                Some(Tag(bytes))
            }
            Self::Token(tag) => Some(tag.clone()),
            Self::Ed25519(_) | Self::EcdsaP256(_) => None,
        }
    }

    /// Ready to judge signatures over the pieces.
    pub(super) fn judge<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> Judge<'_> {
        match self {
            Self::Ed25519(key) => Judge::Ed25519(key, joined(pieces)),
            Self::EcdsaP256(key) => Judge::EcdsaP256(key, joined(pieces)),
            Self::Sha256(_) | Self::Sha1(_) | Self::Token(_) => match self.tag(pieces) {
                Some(tag) => Judge::Tag(tag),
                None => Judge::Nobody,
            },
        }
    }
}

/// The pieces as one message, for what cannot be fed with them.
pub(super) fn joined<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    pieces.fold(Vec::new(), |mut message, piece| {
        message.extend_from_slice(piece);
        message
    })
}

/// One key and one message: what a signature is held against.
pub(super) enum Judge<'k> {
    Tag(Tag),
    Ed25519(&'k ed25519_dalek::VerifyingKey, Vec<u8>),
    EcdsaP256(&'k p256::ecdsa::VerifyingKey, Vec<u8>),
    Nobody,
}

impl Judge<'_> {
    /// In constant time for MACs and tokens; nothing about a public key is secret.
    pub(super) fn accepts(&self, signature: &Signature) -> Choice {
        match (self, signature) {
            (Self::Tag(tag), Signature::Tag(other)) => tag.ct_eq(other),
            (Self::Ed25519(key, message), Signature::Ed25519(signature)) => {
                Choice::from(u8::from(key.verify_strict(message, signature).is_ok()))
            }
            (Self::EcdsaP256(key, message), Signature::EcdsaP256(signature)) => {
                Choice::from(u8::from(key.verify(message, signature.as_ref()).is_ok()))
            }
            _ => Choice::from(0),
        }
    }
}

/// A signature as presented: well-formed, and nothing more is known of it.
pub(super) enum Signature {
    Tag(Tag),
    Ed25519(Box<ed25519_dalek::Signature>),
    EcdsaP256(Box<p256::ecdsa::Signature>),
}

impl Signature {
    /// Reads a signature: exact length, one spelling only.
    pub(super) fn decode(text: &str, encoding: Encoding, algorithm: Algorithm) -> Option<Self> {
        if algorithm == Algorithm::Token {
            return Some(Self::Tag(Tag::of_token(text.as_bytes())));
        }
        let bytes = match encoding {
            Encoding::Hex => unhex_lower(text.as_bytes())?,
            Encoding::Base64 => STANDARD.decode(text).ok()?,
        };
        if algorithm.signature_bytes().is_some_and(|wanted| wanted != bytes.len()) {
            return None;
        }
        match algorithm {
            Algorithm::Sha256 | Algorithm::Sha1 => {
                let mut tag = [0; 32];
                tag.get_mut(..bytes.len())?.copy_from_slice(&bytes);
                Some(Self::Tag(Tag(tag)))
            }
            Algorithm::Ed25519 => {
                Some(Self::Ed25519(Box::new(ed25519_dalek::Signature::from_slice(&bytes).ok()?)))
            }
            Algorithm::EcdsaP256 => {
                Some(Self::EcdsaP256(Box::new(p256::ecdsa::Signature::from_der(&bytes).ok()?)))
            }
            Algorithm::Token => None,
        }
    }
}

/// A MAC's bytes; shorter ones are followed by zeros. Deliberately without `PartialEq`.
#[derive(Clone)]
pub(super) struct Tag([u8; 32]);

impl Tag {
    /// Of a token its hash, so that comparing says nothing of its length either.
    fn of_token(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    pub(super) fn encode(&self, encoding: Encoding, algorithm: Algorithm) -> String {
        let length = algorithm.signature_bytes().unwrap_or_default();
        let bytes = self.0.get(..length).unwrap_or_default();
        match encoding {
            Encoding::Hex => hex(bytes),
            Encoding::Base64 => STANDARD.encode(bytes),
        }
    }

    fn ct_eq(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

fn unhex_lower(text: &[u8]) -> Option<Vec<u8>> {
    if text.iter().any(u8::is_ascii_uppercase) { None } else { unhex_any_case(text) }
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
        assert_eq!(secret.fingerprint(b"a key").len(), 8);
        assert_ne!(secret.fingerprint(b"a key"), secret.fingerprint(b"another"));
    }

    #[test]
    fn a_signature_has_one_spelling() {
        let good = "ab".repeat(32);
        let decodes = |text: &str, encoding| Signature::decode(text, encoding, Algorithm::Sha256).is_some();
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
