//! Secrets, the keys derived from them, and the check of a signature with those keys.
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
use sha2::{Digest, Sha256, Sha384, Sha512};
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

    /// Eight hex digits by which people compare secrets. They are keyed, so that guesses cannot be tried against them.
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
pub(crate) enum Encoding {
    /// Digits in either case.
    Hex,
    /// The standard or the URL-safe alphabet, padded or not.
    Base64,
}

/// The algorithm of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// HMAC-SHA256
    Sha256,
    /// HMAC-SHA1, which is still a sound MAC although SHA-1 is no sound hash.
    Sha1,
    /// HMAC-SHA384
    Sha384,
    /// HMAC-SHA512
    Sha512,
    /// No signature at all: the header holds the secret itself.
    Token,
    /// The same as HTTP Basic authentication: the header holds `user:password` in base64.
    Basic,
    /// Ed25519, with the provider's public key.
    Ed25519,
    /// ECDSA on P-256 over SHA-256, with the provider's public key.
    EcdsaP256,
}

impl Algorithm {
    /// The length of a signature, where it has only one.
    pub(crate) fn signature_bytes(self) -> Option<usize> {
        match self {
            Self::Sha256 => Some(32),
            Self::Sha1 => Some(20),
            Self::Sha384 => Some(48),
            Self::Sha512 | Self::Ed25519 => Some(64),
            Self::Token | Self::Basic | Self::EcdsaP256 => None,
        }
    }

    /// Whether the header holds the secret itself, so that nothing is signed.
    pub(crate) fn is_token(self) -> bool {
        match self {
            Self::Token | Self::Basic => true,
            Self::Sha256 | Self::Sha1 | Self::Sha384 | Self::Sha512 | Self::Ed25519 | Self::EcdsaP256 => {
                false
            }
        }
    }

    /// What a person calls it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Sha256 => "HMAC-SHA256",
            Self::Sha1 => "HMAC-SHA1",
            Self::Sha384 => "HMAC-SHA384",
            Self::Sha512 => "HMAC-SHA512",
            Self::Token => "static token",
            Self::Basic => "HTTP Basic",
            Self::Ed25519 => "Ed25519 signature",
            Self::EcdsaP256 => "ECDSA P-256 signature",
        }
    }

    /// Whether inboxd can make such signatures: it never holds a provider's private key.
    pub(crate) fn can_sign(self) -> bool {
        match self {
            Self::Sha256 | Self::Sha1 | Self::Sha384 | Self::Sha512 | Self::Token | Self::Basic => true,
            Self::Ed25519 | Self::EcdsaP256 => false,
        }
    }
}

/// Why a secret cannot be a key: the end of a sentence that names it, without a byte of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadKey {
    /// Not even one byte, for a check by hand.
    NoBytes,
    /// Nothing but white space.
    Empty,
    /// Only the beginning of one, or one with the version before it that signatures have.
    NotWhole,
    /// The version of a signature stands before it; what follows the version.
    VersionBefore(String),
    /// Nothing is left of it after this decoding.
    EmptyDecoded(&'static str),
    /// It is not written in this encoding.
    NotEncoded(&'static str),
    /// For HTTP Basic, without user or password.
    NoColon,
    /// Not 32 bytes of a point on that curve.
    NotEd25519,
    /// Not the one DER spelling of a point on that curve.
    NotP256,
    /// A decoded key so short that it was cut off or is weak.
    Weak {
        /// Its length.
        bytes: usize,
        /// The least that is taken.
        min: usize,
    },
    /// A text so short that it can be guessed.
    Guessable {
        /// The least that is taken, in bytes.
        min: usize,
    },
    /// The algorithm takes no key of this length.
    Length,
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBytes => f.write_str("is empty"),
            Self::Empty => {
                f.write_str("is empty: anybody could sign with it; set it to what the provider shows")
            }
            Self::NotWhole => f.write_str(
                "is not the whole secret, or has more around it: copy what begins with whsec_, all of it and nothing else",
            ),
            Self::VersionBefore(prefix) => write!(
                f,
                "begins with \"v1,{prefix}\": \"v1,\" belongs to signatures; leave it out"
            ),
            Self::EmptyDecoded(encoding) => {
                write!(f, "is empty after {encoding} decoding; copy the whole secret")
            }
            Self::NotEncoded(encoding) => {
                write!(f, "is not {encoding}; copy the secret again, exactly as the provider shows it")
            }
            Self::NoColon => f.write_str(
                "has no colon; for HTTP Basic it is the user's name, a colon and the password",
            ),
            Self::NotEd25519 => {
                f.write_str("is no Ed25519 public key (32 bytes); copy the application's public key")
            }
            Self::NotP256 => {
                f.write_str("is no P-256 public key (91 bytes of DER); copy the whole verification key")
            }
            Self::Weak { bytes, min } => write!(
                f,
                "decodes to {bytes} bytes, below {min}: it was cut off or is too weak; copy the whole secret"
            ),
            Self::Guessable { min } => {
                write!(f, "is under {min} bytes and can be guessed; use a longer one")
            }
            Self::Length => f.write_str("has a length that this algorithm takes no key of"),
        }
    }
}

impl std::error::Error for BadKey {}

/// How the configured secret becomes the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyForm {
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
    /// See [`BadKey`].
    pub(crate) fn key_bytes(self, prefix: &str, secret: &[u8]) -> Result<Vec<u8>, BadKey> {
        if self == Self::Text {
            return Ok(strip(secret, prefix.as_bytes()).to_vec());
        }
        let secret = secret.trim_ascii();
        if !prefix.is_empty() && secret.starts_with(format!("v1,{prefix}").as_bytes()) {
            return Err(BadKey::VersionBefore(prefix.to_owned()));
        }
        let encoded = strip(secret, prefix.as_bytes());
        let (decoded, name) = match self {
            Self::Hex => (unhex_any_case(encoded), "hex"),
            Self::Text | Self::Base64 => (LENIENT_BASE64.decode(encoded).ok(), "base64"),
        };
        match decoded {
            Some(key) if key.is_empty() => Err(BadKey::EmptyDecoded(name)),
            Some(key) => Ok(key),
            None => Err(BadKey::NotEncoded(name)),
        }
    }
}

/// Secrets are accepted with loose last bits, as the Python library of Standard Webhooks does: the worst a
/// lenient reading can do is fail to match.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Some senders leave the padding out.
const PADDED_OR_NOT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Base64 in either alphabet, padded or not.
fn unbase64(text: &str) -> Option<Vec<u8>> {
    let standard = text.replace('-', "+").replace('_', "/");
    PADDED_OR_NOT.decode(standard).ok()
}

/// A key ready for use; an HMAC has absorbed it already.
#[derive(Clone)]
pub(crate) enum Keyed {
    Sha256(Hmac<Sha256>),
    Sha1(Hmac<Sha1>),
    Sha384(Hmac<Sha384>),
    Sha512(Hmac<Sha512>),
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
    /// The bytes cannot be a key of this algorithm.
    pub(crate) fn new(algorithm: Algorithm, key: &[u8]) -> Result<Self, BadKey> {
        match algorithm {
            Algorithm::Sha256 => Hmac::new_from_slice(key).map(Self::Sha256).map_err(|_| BadKey::Length),
            Algorithm::Sha1 => Hmac::new_from_slice(key).map(Self::Sha1).map_err(|_| BadKey::Length),
            Algorithm::Sha384 => Hmac::new_from_slice(key).map(Self::Sha384).map_err(|_| BadKey::Length),
            Algorithm::Sha512 => Hmac::new_from_slice(key).map(Self::Sha512).map_err(|_| BadKey::Length),
            Algorithm::Basic if !key.contains(&b':') => Err(BadKey::NoColon),
            Algorithm::Token | Algorithm::Basic => Ok(Self::Token(Tag::of_token(key))),
            Algorithm::Ed25519 => key
                .try_into()
                .ok()
                .and_then(|bytes| ed25519_dalek::VerifyingKey::from_bytes(bytes).ok())
                .filter(|key| !key.is_weak())
                .map(|key| Self::Ed25519(Box::new(key)))
                .ok_or(BadKey::NotEd25519),
            Algorithm::EcdsaP256 => key
                .strip_prefix(&P256_SPKI_PREFIX)
                .and_then(|point| p256::ecdsa::VerifyingKey::from_sec1_bytes(point).ok())
                .map(|key| Self::EcdsaP256(Box::new(key)))
                .ok_or(BadKey::NotP256),
        }
    }

    /// The tag over the pieces, fed one after the other: the body is never copied. `None` for a public
    /// key, which makes none.
    pub(crate) fn tag<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> Option<Tag> {
        match self {
            Self::Sha256(mac) => Some(mac_tag(mac, pieces)),
            Self::Sha1(mac) => Some(mac_tag(mac, pieces)),
            Self::Sha384(mac) => Some(mac_tag(mac, pieces)),
            Self::Sha512(mac) => Some(mac_tag(mac, pieces)),
            Self::Token(tag) => Some(tag.clone()),
            Self::Ed25519(_) | Self::EcdsaP256(_) => None,
        }
    }

    /// Ready to judge signatures over the pieces.
    pub(crate) fn judge<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> Judge<'_> {
        match self {
            Self::Ed25519(key) => Judge::Ed25519(key, joined(pieces)),
            Self::EcdsaP256(key) => Judge::EcdsaP256(key, joined(pieces)),
            Self::Sha256(_) | Self::Sha1(_) | Self::Sha384(_) | Self::Sha512(_) | Self::Token(_) => {
                self.tag(pieces).map_or(Judge::Nobody, Judge::Tag)
            }
        }
    }
}

/// A secret with the keys derived from it.
pub(crate) struct Key {
    pub(crate) secret: Secret,
    /// One for each algorithm of the scheme and each way to make a key from the secret.
    keyed: Vec<(Algorithm, Keyed)>,
}

impl Key {
    pub(crate) fn new(secret: Secret, keyed: Vec<(Algorithm, Keyed)>) -> Self {
        Self { secret, keyed }
    }

    /// The keys for this algorithm.
    pub(crate) fn keyed(&self, algorithm: Algorithm) -> impl Iterator<Item = &Keyed> {
        self.keyed.iter().filter(move |(own, _)| *own == algorithm).map(|(_, keyed)| keyed)
    }
}

/// The pieces as one message, for what cannot be fed with them.
pub(crate) fn joined<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    pieces.fold(Vec::new(), |mut message, piece| {
        message.extend_from_slice(piece);
        message
    })
}

/// One key and one message: what a signature is held against.
pub(crate) enum Judge<'k> {
    Tag(Tag),
    Ed25519(&'k ed25519_dalek::VerifyingKey, Vec<u8>),
    EcdsaP256(&'k p256::ecdsa::VerifyingKey, Vec<u8>),
    Nobody,
}

impl Judge<'_> {
    /// In constant time for MACs and tokens; nothing about a public key is secret.
    pub(crate) fn accepts(&self, signature: &Signature) -> Choice {
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
pub(crate) enum Signature {
    Tag(Tag),
    Ed25519(Box<ed25519_dalek::Signature>),
    EcdsaP256(Box<p256::ecdsa::Signature>),
}

/// Why a text cannot be a signature. Says how it is written, never what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadDigest {
    /// Another alphabet than hex digits or base64.
    Alphabet(Encoding),
    /// So many bytes instead of those that the algorithm makes.
    Length(usize),
    /// Not the form that this algorithm's signatures have.
    Shape,
}

impl Signature {
    /// Reads a signature of exactly the right length. How the digits are spelled is not what is compared.
    pub(crate) fn decode(text: &str, encoding: Encoding, algorithm: Algorithm) -> Result<Self, BadDigest> {
        if algorithm == Algorithm::Token {
            return Ok(Self::Tag(Tag::of_token(text.as_bytes())));
        }
        let bytes = match encoding {
            Encoding::Hex => unhex_any_case(text.as_bytes()),
            Encoding::Base64 => unbase64(text),
        };
        let bytes = bytes.ok_or(BadDigest::Alphabet(encoding))?;
        if algorithm.signature_bytes().is_some_and(|wanted| wanted != bytes.len()) {
            return Err(BadDigest::Length(bytes.len()));
        }
        match algorithm {
            Algorithm::Sha256 | Algorithm::Sha1 | Algorithm::Sha384 | Algorithm::Sha512 => {
                Ok(Self::Tag(Tag::of(&bytes)))
            }
            Algorithm::Token | Algorithm::Basic => Ok(Self::Tag(Tag::of_token(&bytes))),
            Algorithm::Ed25519 => ed25519_dalek::Signature::from_slice(&bytes)
                .map(|signature| Self::Ed25519(Box::new(signature)))
                .map_err(|_| BadDigest::Shape),
            Algorithm::EcdsaP256 => p256::ecdsa::Signature::from_der(&bytes)
                .map(|signature| Self::EcdsaP256(Box::new(signature)))
                .map_err(|_| BadDigest::Shape),
        }
    }
}

/// The longest MAC's length.
const TAG_BYTES: usize = 64;

/// A MAC's bytes; shorter ones are followed by zeros. Deliberately without `PartialEq`.
#[derive(Clone)]
pub(crate) struct Tag([u8; TAG_BYTES]);

impl Tag {
    /// At most [`TAG_BYTES`] of them.
    fn of(bytes: &[u8]) -> Self {
        let mut tag = [0; TAG_BYTES];
        tag.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        Self(tag)
    }

    /// Of a token its hash, so that comparing says nothing of its length either.
    fn of_token(token: &[u8]) -> Self {
        Self::of(&Sha256::digest(token))
    }

    pub(crate) fn encode(&self, encoding: Encoding, algorithm: Algorithm) -> String {
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

/// The MAC of the pieces, with a key that was absorbed before.
fn mac_tag<'a, M: hmac::Mac + Clone>(mac: &M, pieces: impl Iterator<Item = &'a [u8]>) -> Tag {
    let mut mac = mac.clone();
    pieces.for_each(|piece| mac.update(piece));
    Tag::of(&mac.finalize().into_bytes())
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

    fn decodes(text: &str, encoding: Encoding) -> bool {
        Signature::decode(text, encoding, Algorithm::Sha256).is_ok()
    }

    #[test]
    fn a_hex_signature_may_be_written_in_either_case_and_must_be_whole() {
        let good = "ab".repeat(32);
        for good in [good.clone(), good.to_uppercase(), good.replacen('a', "A", 3)] {
            assert!(decodes(&good, Encoding::Hex), "{good}");
        }
        for bad in [
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
    }

    #[test]
    fn a_base64_signature_may_be_unpadded_or_url_safe_and_must_be_whole() {
        let good = STANDARD.encode([0xfb; 32]);
        for good in
            [good.clone(), good.trim_end_matches('=').to_owned(), good.replace('+', "-").replace('/', "_")]
        {
            assert!(decodes(&good, Encoding::Base64), "{good}");
        }
        for bad in [
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
    fn what_is_wrong_with_a_signature_is_named_without_it() {
        let wrong = |text: &str| Signature::decode(text, Encoding::Hex, Algorithm::Sha512).err();
        assert_eq!(wrong(&"ab".repeat(32)), Some(BadDigest::Length(32)));
        assert_eq!(wrong("xyz"), Some(BadDigest::Alphabet(Encoding::Hex)));
        assert_eq!(wrong(&"ab".repeat(64)), None);
    }

    #[test]
    fn a_short_mac_is_no_prefix_of_a_long_one() {
        let long = Tag::of(&[7; 64]);
        assert!(!bool::from(long.ct_eq(&Tag::of(&[7; 32]))) && bool::from(long.ct_eq(&Tag::of(&[7; 64]))));
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
        assert!(key(KeyForm::Base64, "v1,whsec_AAEC").unwrap_err().to_string().contains("v1,"));
        assert!(key(KeyForm::Base64, "whsec_").unwrap_err().to_string().contains("empty"));
        assert!(key(KeyForm::Base64, "whsec_!!!!").unwrap_err().to_string().contains("not base64"));
        assert!(key(KeyForm::Hex, "abc").unwrap_err().to_string().contains("not hex"));
    }
}
