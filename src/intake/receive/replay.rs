//! A known body under a new, unsigned id: perhaps a captured delivery that is sent again.

use crate::config::Replay;
use crate::store::inbox::{self, State};
use crate::store::reviews::Kind;
use crate::store::writer::JobError;
use crate::work::screen::Disposition;

use super::{Outcome, Stored};

impl Stored<'_> {
    /// The event that this one repeats under another id, where the id is not signed and it matters.
    pub(super) fn first_of_replay(&self, row: i64) -> Result<Option<String>, JobError> {
        let replay = self.endpoint.config.replay_of(self.event.event_type().unwrap_or_default());
        match (self.event.replay_key(), replay) {
            (None, _) | (_, Replay::Allow) => Ok(None),
            (Some(key), Replay::Flag | Replay::Refuse) => {
                Ok(inbox::first_with_replay_key(self.tx, &self.endpoint.config.name, &key, row)?)
            }
        }
    }

    /// A known body under a new id: a captured delivery cannot be distinguished from a second event with equal
    /// content, so a person is asked, and until then nothing is done.
    pub(super) fn replayed(&self, row: i64, key: &str, first: &str) -> Result<Outcome, JobError> {
        if self.endpoint.config.replay == Replay::Refuse {
            inbox::take_back(self.tx, row)?;
            return Ok(Outcome::Replayed);
        }
        if self.event.is_test_button() {
            // the provider's own test button sends the same bytes each time: no question to a person
            inbox::take_back(self.tx, row)?;
            inbox::count_duplicate(self.tx, self.known(first)?.id)?;
            return Ok(Outcome::Duplicate);
        }
        if inbox::count_kept_replay(self.tx, row)? {
            // a captured delivery can be sent without end, and would fill the disk
            inbox::take_back(self.tx, row)?;
            return Ok(match self.disposition {
                Disposition::Ignore | Disposition::ScopeMismatch => Outcome::Ignored,
                Disposition::Handle | Disposition::Quarantine(_) => Outcome::Quarantined,
            });
        }
        let scheme = self.endpoint.config.verifier.scheme();
        let what = if scheme.signs_form_fields() { "the same signed text" } else { "the same body" };
        let reason = format!(
            "{what} came before as event {first}; the id is not signed, so this may be a captured delivery sent again"
        );
        self.open_review(Kind::Replay, key, &reason)?;
        match self.disposition {
            Disposition::Ignore | Disposition::ScopeMismatch => Ok(Outcome::Ignored),
            Disposition::Handle | Disposition::Quarantine(_) => {
                inbox::mark(self.tx, row, State::Quarantined, Some(&reason), self.now_ms)?;
                Ok(Outcome::Quarantined)
            }
        }
    }
}
