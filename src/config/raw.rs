//! The configuration as typed: names and shapes of all keys, and nothing about their meaning.
//!
//! Every table denies unknown keys: a typo must not become a silent default.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize as DeserializeDerive;
use serde::de::{Deserialize, Deserializer, Visitor};

use crate::signature::CustomScheme;

/// The whole file.
#[derive(Debug, Default, DeserializeDerive)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawConfig {
    pub(super) data_dir: Option<String>,
    pub(super) database: Option<String>,
    pub(super) public_url: Option<RawTexts>,
    pub(super) listen: RawListen,
    pub(super) secrets: RawSecrets,
    pub(super) limits: RawLimits,
    pub(super) endpoint: BTreeMap<String, RawEndpoint>,
    pub(super) destination: BTreeMap<String, RawDestination>,
    pub(super) worker: RawWorker,
    pub(super) retention: RawRetention,
    pub(super) alert: Option<RawAlert>,
    pub(super) debug: RawDebug,
    pub(super) database_options: Option<RawDatabaseOptions>,
}

/// `[listen]`
#[derive(Debug, Default, DeserializeDerive)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawListen {
    pub(super) webhooks: Option<String>,
    pub(super) admin: Option<String>,
    pub(super) trusted_proxies: Vec<String>,
}

/// `[secrets]`
#[derive(Debug, Default, DeserializeDerive)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSecrets {
    pub(super) allow_shared_files: Option<bool>,
}

/// `[debug]`
#[derive(Debug, Default, DeserializeDerive)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawDebug {
    pub(super) keep_refused: Option<u64>,
}

/// `[limits]`
#[derive(Debug, Default, DeserializeDerive)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLimits {
    pub(super) body_bytes_max: Option<RawSize>,
    pub(super) connections_max: Option<u64>,
    pub(super) handler_timeout: Option<RawDuration>,
    pub(super) disk_free_min: Option<RawSize>,
}

/// `[endpoint.NAME]`
#[derive(Debug, Default, DeserializeDerive)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawEndpoint {
    pub(super) provider: Option<String>,
    pub(super) path: Option<String>,
    pub(super) secrets: Vec<String>,
    pub(super) mode: Option<String>,
    pub(super) handlers: Vec<String>,
    pub(super) notify: Option<String>,
    pub(super) forward: Vec<String>,
    pub(super) tolerance: Option<RawDuration>,
    pub(super) livemode: Option<bool>,
    pub(super) account: Option<String>,
    pub(super) on_scope_mismatch: Option<String>,
    pub(super) on_redelivery: Option<String>,
    pub(super) replay: Option<String>,
    pub(super) replay_allow: Vec<String>,
    pub(super) proxy_timeout: Option<RawDuration>,
    pub(super) body_bytes_max: Option<RawSize>,
    pub(super) scheme: Option<CustomScheme>,
}

/// `[destination.NAME]`
#[derive(Debug, Default, DeserializeDerive)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawDestination {
    pub(super) url: Option<String>,
    pub(super) sign: Option<String>,
    pub(super) secrets: Vec<String>,
    pub(super) order: Option<String>,
    pub(super) timeout: Option<RawDuration>,
    pub(super) threads: Option<u64>,
    pub(super) give_up_after: Option<RawDuration>,
    pub(super) backoff_cap: Option<RawDuration>,
    pub(super) lease: Option<RawDuration>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body_format: Option<String>,
    pub(super) result: Option<String>,
    pub(super) key_lifetime: Option<RawDuration>,
    pub(super) allow_networks: Vec<String>,
    pub(super) ca_file: Option<String>,
}

/// `[worker]`
#[derive(Debug, Default, DeserializeDerive)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawWorker {
    pub(super) threads: Option<u64>,
    pub(super) lease: Option<RawDuration>,
    pub(super) max_attempts: Option<u64>,
    pub(super) backoff_cap: Option<RawDuration>,
}

/// `[retention]`
#[derive(Debug, Default, DeserializeDerive)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRetention {
    pub(super) payload: Option<RawDuration>,
    pub(super) key: Option<RawDuration>,
}

/// `[alert]`
#[derive(Debug, Default, DeserializeDerive)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAlert {
    pub(super) url: Option<String>,
    pub(super) command: Option<String>,
    pub(super) format: Option<String>,
    pub(super) on: Option<Vec<String>>,
    pub(super) remind: Option<RawDuration>,
}

/// `[database_options]`
#[derive(Debug, DeserializeDerive)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDatabaseOptions {
    pub(super) allow_wal: Option<bool>,
}

/// A duration as typed.
#[derive(Debug, Clone)]
pub(super) struct RawDuration(pub(super) String);

impl<'de> Deserialize<'de> for RawDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Typed;
        impl Visitor<'_> for Typed {
            type Value = RawDuration;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration in quotes such as \"5m\"")
            }
            fn visit_str<E>(self, text: &str) -> Result<RawDuration, E> {
                Ok(RawDuration(text.to_owned()))
            }
        }
        deserializer.deserialize_str(Typed)
    }
}

/// One text, or a list of them.
#[derive(Debug, Clone)]
pub(super) struct RawTexts(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for RawTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Typed;
        impl<'de> Visitor<'de> for Typed {
            type Value = RawTexts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes, or a list of them")
            }
            fn visit_str<E>(self, text: &str) -> Result<RawTexts, E> {
                Ok(RawTexts(vec![text.to_owned()]))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<RawTexts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(RawTexts(texts))
            }
        }
        deserializer.deserialize_any(Typed)
    }
}

/// A size as typed: `67108864` or `"64MiB"`.
#[derive(Debug, Clone)]
pub(super) struct RawSize(pub(super) String);

impl<'de> Deserialize<'de> for RawSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Typed;
        impl Visitor<'_> for Typed {
            type Value = RawSize;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size in bytes, or in quotes such as \"64MiB\"")
            }
            fn visit_i64<E>(self, bytes: i64) -> Result<RawSize, E> {
                Ok(RawSize(bytes.to_string()))
            }
            fn visit_u64<E>(self, bytes: u64) -> Result<RawSize, E> {
                Ok(RawSize(bytes.to_string()))
            }
            fn visit_str<E>(self, text: &str) -> Result<RawSize, E> {
                Ok(RawSize(text.to_owned()))
            }
        }
        deserializer.deserialize_any(Typed)
    }
}
