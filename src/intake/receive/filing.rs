//! Finds the key of a delivery: its event's id, the key of an event it repeats, or a key made from its body.
//!
//! Contradictory bodies under one key are kept for a person; the first one counts.

use crate::providers::BodyVaries;
use crate::store::inbox::conflicts::{self, Kept};
use crate::store::inbox::{self, Known};
use crate::store::reviews::Kind;
use crate::store::writer::JobError;

use super::Stored;

/// The key of a delivery.
pub(super) enum Filed<T> {
    /// A new key, and the result of storing the event.
    New(T),
    /// A known key: the same event with the same body, by the provider's rules.
    Again(Known),
    /// A known key with another body: another shape of the event, or a contradiction, about which a review was opened.
    Told(Known),
}

impl Stored<'_> {
    /// Finds the key of this delivery, and stores it with `insert` if the key is new.
    pub(super) fn file<T>(
        &self,
        insert: impl Fn(&str) -> Result<Option<T>, JobError>,
    ) -> Result<Filed<T>, JobError> {
        if let Some(known) = self.told_by_another_subscription()? {
            inbox::count_duplicate(self.tx, known.id)?;
            let is_same = known.body_sha256 == self.event.body_sha256();
            return Ok(if is_same { Filed::Again(known) } else { Filed::Told(known) });
        }
        let key = self.event.event_id();
        if let Some(new) = insert(key)? {
            return Ok(Filed::New(new));
        }
        let known = self.known(key)?;
        if self.is_same_fact(&known)? {
            inbox::count_duplicate(self.tx, known.id)?;
            return Ok(Filed::Again(known));
        }
        let (provider, name) = (self.event.provider(), &self.endpoint.config.name);
        let mut beside = inbox::known_beside(self.tx, provider, name, key)?;
        if let Some(at) = beside.iter().position(|other| other.body_sha256 == self.event.body_sha256()) {
            let same = beside.swap_remove(at);
            inbox::count_duplicate(self.tx, same.id)?;
            return Ok(Filed::Again(same));
        }
        if self.is_another_event(&known, &beside)? {
            let key = format!("{key}:{}", self.event.body_key());
            return match insert(&key)? {
                Some(new) => Ok(Filed::New(new)),
                None => {
                    Err(JobError::Failed(format!("the inbox row {key} can neither be inserted nor found")))
                }
            };
        }
        inbox::count_duplicate(self.tx, known.id)?;
        if !self.is_another_version(&known) {
            self.keep_conflict(&known)?;
        }
        Ok(Filed::Told(known))
    }

    /// The event that another subscription delivered under an id of its own.
    fn told_by_another_subscription(&self) -> Result<Option<Known>, JobError> {
        let Some(fact_key) = self.event.fact_key() else { return Ok(None) };
        let (provider, name) = (self.event.provider(), &self.endpoint.config.name);
        let known = inbox::known_by_fact(self.tx, provider, name, &fact_key)?;
        Ok(known.filter(|known| known.key != self.event.event_id()))
    }

    pub(super) fn known(&self, key: &str) -> Result<Known, JobError> {
        let (provider, name) = (self.event.provider(), &self.endpoint.config.name);
        inbox::known(self.tx, provider, name, key)?
            .ok_or_else(|| JobError::Failed(format!("the inbox row {key} can neither be inserted nor found")))
    }

    /// Whether another body under a known id is another event: a provider's test button sends one constant id for
    /// every type, and some ids name what happened, which several hooks or apps deliver with different bodies.
    fn is_another_event(&self, known: &Known, beside: &[Known]) -> Result<bool, JobError> {
        if self.event.is_test_send() {
            return Ok(true);
        }
        let ours = self.event.told_apart_by();
        if ours.is_empty() {
            return Ok(false);
        }
        for known in std::iter::once(known).chain(beside) {
            let body = inbox::payload_of(self.tx, known.id)?;
            let theirs = self.endpoint.config.verifier.told_apart_by(&known.headers, body.as_deref());
            let differs = |(ours, theirs): (&Option<String>, &Option<String>)| {
                // the content of a purged body is not known
                ours != theirs && (body.is_some() || theirs.is_some())
            };
            if !ours.iter().zip(&theirs).any(differs) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same event in the shape of another API version, as a second subscription gets it, is no contradiction.
    fn is_another_version(&self, known: &Known) -> bool {
        let versions = (known.api_version.as_deref(), self.event.api_version());
        matches!(versions, (Some(theirs), Some(ours)) if theirs != ours)
    }

    /// Keeps the other body and opens a review, once per body.
    fn keep_conflict(&self, known: &Known) -> Result<(), JobError> {
        let reason = match conflicts::keep(self.tx, known.id, self.event, self.now_ms)? {
            Kept::Before => return Ok(()),
            Kept::New => {
                "the same event id came again with another body; the first body counts, and the other is kept with this \
                 review: `inboxd retry --conflict REVIEW` makes it an event of its own"
                    .to_owned()
            }
            Kept::Full => format!(
                "the same event id came again with another body, which was not kept: {} others are",
                conflicts::KEPT_MAX
            ),
        };
        self.open_review(Kind::BodyConflict, &known.key, &reason)
    }

    fn is_same_fact(&self, known: &Known) -> Result<bool, JobError> {
        if known.body_sha256 == self.event.body_sha256() {
            return Ok(true);
        }
        let varies = self.endpoint.config.verifier.provider().preset().body_varies;
        Ok(match inbox::payload_of(self.tx, known.id)? {
            Some(first) => varies.same_event(&first, self.event.body()),
            // purged: only its hash is left, which proves nothing if the provider's attempts differ
            None => varies != BodyVaries::No,
        })
    }
}
