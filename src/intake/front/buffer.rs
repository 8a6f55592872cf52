//! What a connection has received and not used up, charged to the memory that all bodies share.

use std::ops::Range;

use super::budget::{Budget, Denied};
use super::table::Slot;

/// What has arrived and is not used up. Beyond `FREE_BYTES` its memory is charged to the budget that
/// all bodies share, until their requests are answered.
pub(super) struct Buffer<'a> {
    bytes: Vec<u8>,
    pub(super) filled: usize,
    charged: usize,
    budget: &'a Budget,
    slot: &'a Slot,
}

impl<'a> Buffer<'a> {
    const START_BYTES: usize = 4 << 10;
    const FREE_BYTES: usize = 32 << 10;

    pub(super) fn new(budget: &'a Budget, slot: &'a Slot) -> Self {
        Self { bytes: Vec::new(), filled: 0, charged: 0, budget, slot }
    }

    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    pub(super) fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.filled]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Room to read into, at least a byte, such that at most `filled_max` bytes are filled then.
    pub(super) fn room(&mut self, filled_max: usize) -> Result<&mut [u8], Denied> {
        if self.filled == self.bytes.len() {
            let grown = (self.bytes.len() * 2).max(Self::START_BYTES).min(filled_max.max(Self::START_BYTES));
            self.charge(grown.saturating_sub(Self::FREE_BYTES))?;
            self.bytes.reserve_exact(grown - self.filled);
            self.bytes.resize(grown, 0);
        }
        let end = self.bytes.len().min(filled_max);
        Ok(&mut self.bytes[self.filled..end])
    }

    fn charge(&mut self, charged: usize) -> Result<(), Denied> {
        let more = charged.saturating_sub(self.charged);
        if more > 0 {
            self.budget.take(self.slot.id(), self.slot.connection(), more)?;
            self.charged += more;
        }
        Ok(())
    }

    /// Takes a body out, with all that stands before it and up to the end of its request. A large one takes its memory
    /// along, which stays charged: see [`Buffer::release`].
    pub(super) fn take(&mut self, body: Range<usize>, request_end: usize) -> Vec<u8> {
        if self.bytes.len() <= Self::FREE_BYTES {
            let taken = self.filled()[body].to_vec();
            self.remove(0..request_end);
            return taken;
        }
        let ahead = self.bytes[request_end..self.filled].to_vec();
        self.filled = ahead.len();
        let mut taken = std::mem::replace(&mut self.bytes, ahead);
        taken.truncate(body.end);
        taken.drain(..body.start);
        taken
    }

    /// Drops the first bytes, and with them what a large request has made it grow.
    pub(super) fn consume(&mut self, count: usize) {
        self.remove(0..count);
        if self.bytes.len() > Self::FREE_BYTES {
            self.bytes.truncate(self.filled.max(Self::START_BYTES));
            self.bytes.shrink_to_fit();
            self.release();
        }
    }

    pub(super) fn clear(&mut self) {
        self.consume(self.filled);
    }

    pub(super) fn remove(&mut self, range: Range<usize>) {
        self.bytes.copy_within(range.end..self.filled, range.start);
        self.filled -= range.len();
    }

    pub(super) fn release(&mut self) {
        if std::mem::take(&mut self.charged) > 0 {
            self.budget.release(self.slot.id());
        }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.release();
    }
}
