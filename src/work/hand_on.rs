//! A stored event handed to its application by hand, in proxy mode.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::store::inbox;
use crate::store::inbox::queue::{self, OneClaim};
use crate::store::{SqlResult, Transaction};
use crate::work::Worked;
use crate::work::apply::{self, Row};
use crate::work::content::Content;
use crate::work::forward::forward_to;
use crate::work::retry;

/// No claim of a delivery is longer: the longest `proxy_timeout` and what its lease adds are less.
const HAND_LEASE: Duration = Duration::from_secs(60);

/// The result of handing a stored event to its application by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandedOn {
    /// It is in the outbox, and done for the inbox: from now on its sender gets `duplicate`.
    Queued,
    /// A delivery of it is with the application.
    Held,
    /// The application took it before.
    Settled,
    /// Its body was purged.
    Purged,
}

/// Hands a stored event to its application without a delivery that waits for the answer: the outbox sends it, to the
/// same destination, signed in the same way and under the same key, with the retries and the end that rows there have.
///
/// # Errors
/// Any SQLite error; nothing was written then.
pub fn hand_on(tx: &Transaction<'_>, id: i64, destination: &str, now_ms: i64) -> SqlResult<HandedOn> {
    if inbox::payload_of(tx, id)?.is_none() {
        return Ok(HandedOn::Purged);
    }
    queue::requeue(tx, id, now_ms)?;
    let claimed = match queue::claim_one(tx, id, ("by hand", retry::as_ms(HAND_LEASE)), None, now_ms)? {
        OneClaim::Work(claimed) => claimed,
        OneClaim::HeldUntil(_) => return Ok(HandedOn::Held),
        OneClaim::Settled => return Ok(HandedOn::Settled),
    };
    let kept: BTreeMap<String, String> = serde_json::from_str(&claimed.headers).unwrap_or_default();
    let content_type = kept.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let content = Content::of_row(&claimed, content_type.map(|(_, value)| value.as_str()));
    forward_to(tx, &claimed.endpoint, &[destination.to_owned()], &content, now_ms)?;
    let note = format!("handed to {destination} by hand");
    apply::settle(tx, Row::Held(&claimed), &Worked::Done, Some(&note), now_ms)?;
    Ok(HandedOn::Queued)
}
