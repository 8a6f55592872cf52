//! The memory of all bodies together until their requests are answered, to the byte; and who gives way when
//! it is used up.
//!
//! As with the connections, whoever holds most pays: the oldest unfinished body of that address is
//! answered 503 and closed. A body that is complete is never touched.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::refusal::Refusal;
use super::table::{Connection, Holder};
use crate::intake::answer::Refused;
use crate::wake::lock;

pub(super) struct Budget {
    bytes_max: usize,
    /// How long a body waits for memory that is about to come back.
    wait_max: Duration,
    /// An address loses a body of its own to a new one only if that has been coming for so long.
    slow_time: Duration,
    bodies: Mutex<Bodies>,
    /// Memory was given back, or a body was evicted.
    changed: Condvar,
}

#[derive(Default)]
struct Bodies {
    held: usize,
    of: HashMap<u64, Body>,
}

/// The memory of one request beyond its free part.
struct Body {
    connection: Arc<Connection>,
    since: Instant,
    bytes: usize,
    /// The bytes it waits for.
    wanted: usize,
    /// It was evicted: its bytes are about to come back.
    gives_way: bool,
}

/// Why there is no memory.
pub(super) enum Denied {
    Refused(Refusal),
    /// The connection was chosen to give way itself.
    Evicted,
}

impl Budget {
    pub(super) fn new(bytes_max: usize, wait_max: Duration, slow_time: Duration) -> Self {
        Self { bytes_max, wait_max, slow_time, bodies: Mutex::default(), changed: Condvar::new() }
    }

    #[cfg(any(test, feature = "internals"))]
    pub(super) fn held(&self) -> usize {
        lock(&self.bodies).held
    }

    /// Charges `more` bytes to a connection. Where there are none left, others give way for it, or it
    /// waits a moment for those that are about to come back.
    pub(super) fn take(&self, id: u64, connection: &Arc<Connection>, more: usize) -> Result<(), Denied> {
        let mut bodies = lock(&self.bodies);
        let deadline = Instant::now() + self.wait_max;
        bodies.enter(id, connection, more);
        loop {
            if bodies.held.saturating_add(more) <= self.bytes_max {
                bodies.grant(id, more);
                return Ok(());
            }
            if connection.is_closed() {
                bodies.give_up(id);
                return Err(Denied::Evicted);
            }
            let (is_coming, told) = bodies.make_room(id, self.bytes_max, self.slow_time);
            if told {
                self.changed.notify_all(); // the one who gives way may be waiting here as well
            }
            if !is_coming || Instant::now() >= deadline {
                bodies.give_up(id);
                return Err(Denied::Refused(USED_UP));
            }
            let waited = self.changed.wait_timeout(bodies, LOOK_EVERY);
            bodies = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Gives back all that a connection holds.
    pub(super) fn release(&self, id: u64) {
        lock(&self.bodies).remove(id);
        self.changed.notify_all();
    }
}

impl Bodies {
    fn enter(&mut self, id: u64, connection: &Arc<Connection>, wanted: usize) {
        let body = self.of.entry(id).or_insert_with(|| Body {
            connection: Arc::clone(connection),
            since: Instant::now(),
            bytes: 0,
            wanted: 0,
            gives_way: false,
        });
        body.wanted = wanted;
    }

    fn grant(&mut self, id: u64, more: usize) {
        if let Some(body) = self.of.get_mut(&id) {
            body.wanted = 0;
            body.bytes += more;
            self.held += more;
        }
    }

    fn give_up(&mut self, id: u64) {
        match self.of.get_mut(&id) {
            Some(body) if body.bytes > 0 => body.wanted = 0,
            _ => self.remove(id),
        }
    }

    fn remove(&mut self, id: u64) {
        self.held -= self.of.remove(&id).map_or(0, |body| body.bytes);
    }

    /// Evicts enough bodies for all waiters. Returns whether memory will be freed, and whether anyone was evicted now.
    fn make_room(&mut self, id: u64, bytes_max: usize, slow_time: Duration) -> (bool, bool) {
        let mut told = false;
        loop {
            let going = |body: &&Body| body.gives_way || body.connection.is_closed();
            let leaving: usize = self.of.values().filter(going).map(|body| body.bytes).sum();
            let wanted: usize = self.of.values().filter(|body| !going(body)).map(|body| body.wanted).sum();
            if self.held - leaving + wanted <= bytes_max {
                return (true, told);
            }
            let Some(victim) = self.victim(id, slow_time) else {
                let is_coming = leaving > 0
                    || self.of.values().any(|body| body.bytes > 0 && body.connection.is_in_progress());
                return (is_coming, told);
            };
            let Some(victim) = self.of.get_mut(&victim) else {
                return (false, told);
            };
            // It may have become complete since; then another is chosen.
            victim.gives_way = victim.connection.evict_unfinished();
            told |= victim.gives_way;
        }
    }

    /// The oldest unfinished body of whoever holds more than the one who asks: strangers before
    /// trusted proxies. Where that is the one who asks, a body of its own, but only one that is slow.
    fn victim(&self, id: u64, slow_time: Duration) -> Option<u64> {
        let mut held = HashMap::<Holder, usize>::new();
        for body in self.of.values().filter(|body| !body.gives_way) {
            *held.entry(body.connection.holder).or_default() += body.bytes;
        }
        let asking = self.of.get(&id)?;
        let (mine, my_bytes) = (asking.connection.holder, held.get(&asking.connection.holder).copied());
        let may_go = |other: &Body, bytes: usize| match other.connection.holder {
            holder if holder == mine => other.since.elapsed() > slow_time,
            holder => {
                (mine == Holder::Trusted && holder != Holder::Trusted)
                    || bytes > my_bytes.unwrap_or(0) + asking.wanted
            }
        };
        let unfinished = self.of.iter().filter(|(other, body)| {
            **other != id && body.bytes > 0 && !body.gives_way && body.connection.is_unfinished()
        });
        unfinished
            .map(|(other, body)| (other, body, held.get(&body.connection.holder).copied().unwrap_or(0)))
            .filter(|(_, body, bytes)| may_go(body, *bytes))
            .max_by_key(|(_, body, bytes)| {
                (body.connection.holder != Holder::Trusted, *bytes, Reverse(body.since))
            })
            .map(|(other, ..)| *other)
    }
}

const USED_UP: Refusal = Refusal::new(Refused::Unavailable, "unfinished bodies hold all the memory they may");

/// Who gives way for the connection cap is not announced here.
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::unix::net::UnixStream;

    use super::super::stream::Stream;
    use super::*;

    const A: Holder = Holder::V4(Ipv4Addr::new(192, 0, 2, 1));
    const B: Holder = Holder::V4(Ipv4Addr::new(192, 0, 2, 2));
    const C: Holder = Holder::V6(1);
    const TRUSTED: Holder = Holder::Trusted;

    type Held = (Holder, usize, u64);

    /// The bodies 1, 2, … with how long each has been coming; the last one wants memory.
    fn victim(those: &[Held]) -> Option<u64> {
        let mut bodies = Bodies::default();
        let mut last = 0;
        for (id, (holder, bytes, age_ms)) in (1..).zip(those) {
            let stream = Stream::Unix(UnixStream::pair().unwrap().0);
            let since = Instant::now().checked_sub(Duration::from_millis(*age_ms)).unwrap();
            bodies.enter(id, &Arc::new(Connection::unfinished(stream, *holder)), 10);
            bodies.grant(id, *bytes);
            bodies.of.get_mut(&id).unwrap().since = since;
            last = id;
        }
        bodies.of.get_mut(&last).unwrap().wanted = 10;
        bodies.victim(last, Duration::from_secs(1))
    }

    #[test]
    fn who_holds_most_gives_way_with_the_oldest_body_and_trusted_proxies_last() {
        let cases: [(&str, &[Held], Option<u64>); 10] = [
            ("the largest holder", &[(A, 50, 9), (B, 30, 9), (B, 30, 8), (C, 0, 0)], Some(2)),
            ("nobody who would hold less then", &[(A, 50, 9), (B, 45, 0)], None),
            ("the asker holds most", &[(A, 50, 9), (B, 60, 9), (B, 0, 0)], None),
            ("its own slow body", &[(A, 50, 9), (B, 60, 1500), (B, 60, 2000), (B, 0, 0)], Some(3)),
            ("another's, if that one holds more", &[(A, 90, 9), (B, 60, 2000), (B, 0, 0)], Some(1)),
            ("a stranger rather than a proxy", &[(TRUSTED, 90, 9), (A, 50, 9), (B, 0, 0)], Some(2)),
            ("a proxy if there is no other", &[(TRUSTED, 90, 9), (A, 5, 9), (B, 0, 0)], Some(1)),
            ("any stranger for a proxy", &[(TRUSTED, 90, 9), (A, 5, 9), (TRUSTED, 0, 0)], Some(2)),
            ("a slow one of the proxy", &[(TRUSTED, 90, 1500), (TRUSTED, 0, 0)], Some(1)),
            ("never itself", &[(A, 90, 5000)], None),
        ];
        for (what, bodies, expected) in cases {
            assert_eq!(victim(bodies), expected, "{what}");
        }
    }
}
