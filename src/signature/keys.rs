//! From a secret to the keys of a scheme, and what is weak or odd about it.

use super::scheme::Scheme;
use super::secret::{Algorithm, BadKey, Key, KeyForm, Keyed, Secret};
use super::words::{SchemeError, advice};

/// Keys below this are refused where the key is decoded from the secret.
const DECODED_KEY_BYTES_MIN: usize = 16;

/// The least that Standard Webhooks 1.0.0 asks for.
const DECODED_KEY_BYTES_ADVISED: usize = 24;

/// Secrets below this are refused.
const SECRET_BYTES_MIN: usize = 6;

/// What the secrets of Standard Webhooks begin with.
const WHSEC: &str = "whsec_";

impl Scheme {
    /// Whether the secret can be a key of this scheme; `Ok(Some(warning))` when it is weak or odd. `elsewhere` is the
    /// preset that such a secret would fit.
    ///
    /// # Errors
    /// See [`SchemeError::Secret`].
    pub(crate) fn check_secret(
        &self,
        secret: &Secret,
        elsewhere: Option<&'static str>,
    ) -> Result<Option<String>, SchemeError> {
        let (label, text) = (secret.label(), secret.expose().trim_ascii());
        let refused = |why| SchemeError::Secret { label: label.to_owned(), why, elsewhere: None };
        if text.is_empty() {
            return Err(refused(BadKey::Empty));
        }
        if text == b"whsec_" || text.starts_with(b"v1,whsec_") || text.starts_with(b"v1a,whsk_") {
            return Err(refused(BadKey::NotWhole));
        }
        let key = self
            .key
            .key_bytes(&self.key_prefix, secret.expose())
            .map_err(|why| SchemeError::Secret { label: label.to_owned(), why, elsewhere })?;
        Keyed::new(self.algorithm, &key).map_err(refused)?;
        if self.key != KeyForm::Text && key.len() < DECODED_KEY_BYTES_MIN {
            return Err(refused(BadKey::Weak { bytes: key.len(), min: DECODED_KEY_BYTES_MIN }));
        }
        if secret.expose().len() < SECRET_BYTES_MIN {
            return Err(refused(BadKey::Guessable { min: SECRET_BYTES_MIN }));
        }
        Ok(self.oddity(secret, key.len(), elsewhere).map(|oddity| format!("secret {label} {oddity}")))
    }

    /// What is weak or odd about a secret that can be a key, as the end of a sentence.
    fn oddity(&self, secret: &Secret, key_bytes: usize, elsewhere: Option<&'static str>) -> Option<String> {
        let bytes = secret.expose();
        let advised =
            if self.key == KeyForm::Text { DECODED_KEY_BYTES_MIN } else { DECODED_KEY_BYTES_ADVISED };
        if key_bytes < advised {
            Some(format!("is a key of {key_bytes} bytes; {advised} or more are advised"))
        } else if self.key == KeyForm::Text && bytes.trim_ascii() != bytes {
            Some(String::from(
                "begins or ends in white space, which is part of it; if deliveries do not verify, remove it",
            ))
        } else {
            let provider = elsewhere.filter(|_| self.algorithm == Algorithm::Token)?;
            Some(format!("looks like a signing secret{}", advice(provider)))
        }
    }

    /// The algorithms that a key of this scheme may be used with.
    fn algorithms(&self) -> Vec<Algorithm> {
        match self.algorithm_header {
            Some(_) => vec![Algorithm::Sha1, Algorithm::Sha256],
            None => vec![self.algorithm],
        }
    }

    /// The keys that one secret stands for, each with which one it is: the first as the scheme has it; then the
    /// other way to make one, where the provider changed from one to the other and this secret can be read so.
    ///
    /// # Errors
    /// The secret cannot be a key.
    pub(crate) fn keys_of(&self, secret: &[u8]) -> Result<Vec<Vec<u8>>, BadKey> {
        let mut keys = vec![self.key.key_bytes(&self.key_prefix, secret)?];
        if self.also_decoded && secret.trim_ascii().starts_with(WHSEC.as_bytes()) {
            let decoded = KeyForm::Base64.key_bytes(WHSEC, secret).ok();
            // a short key could be guessed from one delivery
            keys.extend(decoded.filter(|key| key.len() >= DECODED_KEY_BYTES_MIN));
        }
        Ok(keys)
    }

    /// A secret, ready for use with every algorithm of this scheme.
    ///
    /// # Errors
    /// See [`SchemeError::Secret`].
    pub(crate) fn key(&self, secret: Secret) -> Result<Key, SchemeError> {
        match self.keyed(secret.expose()) {
            Ok(keyed) => Ok(Key::new(secret, keyed)),
            Err(why) => Err(SchemeError::Secret { label: secret.label().to_owned(), why, elsewhere: None }),
        }
    }

    fn keyed(&self, secret: &[u8]) -> Result<Vec<(Algorithm, Keyed)>, BadKey> {
        if secret.is_empty() {
            return Err(BadKey::NoBytes);
        }
        let mut keyed = Vec::new();
        for bytes in self.keys_of(secret)? {
            for algorithm in self.algorithms() {
                keyed.push((algorithm, Keyed::new(algorithm, &bytes)?));
            }
        }
        Ok(keyed)
    }
}
