//! Who asks: links that work once, tokens, sessions, and the peer of a Unix socket.
//!
//! Links and sessions live in memory and end with the process. Of a token only its SHA-256 is kept, and what is
//! presented is compared in constant time. A token has 256 random bits, so that no slow hash is needed; guesses are
//! slowed all the same.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Mutex;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::config::{AdminToken, Role};
use crate::encode::hex;
use crate::wake::lock;

/// How long a link may be used, once.
pub const LINK_LIFE_MS: i64 = 30 * 60 * 1_000;

/// How long a session lasts at most.
pub const SESSION_LIFE_MS: i64 = 12 * 60 * 60 * 1_000;

/// A session that nobody used for so long is over.
const SESSION_IDLE_MS: i64 = 20 * 60 * 1_000;

/// Links that wait at one time; the oldest makes room.
const LINKS_MAX: usize = 8;

/// Sessions at one time; the one that was used least recently makes room.
const SESSIONS_MAX: usize = 64;

/// Wrong tokens that are answered at once.
const FREE_GUESSES: u32 = 5;

/// The longest wait between two guesses.
const GUESS_WAIT_MAX_MS: i64 = 60_000;

/// Somebody who may see the pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visitor {
    /// As the audit trail names them.
    pub actor: String,
    /// What they may do.
    pub role: Role,
    /// What a form of theirs must carry. `None`: their browser sends nothing by itself that proves who they are, so
    /// that no other site can act in their name.
    pub csrf: Option<String>,
}

/// Why somebody was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such link or token, or the link was used or is too old.
    Wrong,
    /// Too many were wrong; the next is looked at after so many seconds.
    Wait(u64),
}

/// All who may come in.
pub struct Logins {
    tokens: Vec<AdminToken>,
    /// Makes the form tokens of this process.
    key: [u8; 32],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    links: Vec<Link>,
    sessions: BTreeMap<[u8; 32], Session>,
    wrong: u32,
    next_guess_at_ms: i64,
}

struct Link {
    sha256: [u8; 32],
    actor: String,
    made_at_ms: i64,
}

struct Session {
    actor: String,
    role: Role,
    began_at_ms: i64,
    used_at_ms: i64,
}

impl Session {
    fn is_over(&self, now_ms: i64) -> bool {
        now_ms - self.began_at_ms >= SESSION_LIFE_MS || now_ms - self.used_at_ms >= SESSION_IDLE_MS
    }
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logins").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl Logins {
    /// Nobody is in yet.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn new(tokens: Vec<AdminToken>) -> io::Result<Self> {
        Ok(Self { tokens, key: random()?, state: Mutex::default() })
    }

    /// A token that works once as a link. Times are of a clock that nobody sets.
    ///
    /// Whoever makes one is on this machine: guesses before that are forgotten.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn make_link(&self, actor: &str, now_ms: i64) -> io::Result<String> {
        let token = hex(&random()?);
        let mut state = lock(&self.state);
        state.links.retain(|link| now_ms - link.made_at_ms < LINK_LIFE_MS);
        if state.links.len() >= LINKS_MAX {
            state.links.remove(0);
        }
        state.links.push(Link { sha256: sha256(&token), actor: actor.to_owned(), made_at_ms: now_ms });
        (state.wrong, state.next_guess_at_ms) = (0, 0);
        Ok(token)
    }

    /// Begins a session for a link, which is used up, or for a token of the configuration. Returns its cookie.
    ///
    /// # Errors
    /// See [`Refusal`]; or when the system gives no random numbers.
    pub fn log_in(&self, presented: &str, now_ms: i64) -> io::Result<Result<String, Refusal>> {
        let found = self.guess(now_ms, |state| {
            let wanted = sha256(presented);
            state.links.retain(|link| now_ms - link.made_at_ms < LINK_LIFE_MS);
            let at = state.links.iter().position(|link| is_same(&link.sha256, &wanted));
            match at.map(|at| state.links.remove(at)) {
                Some(link) => Some((link.actor, Role::Operator)),
                None => self.of_token(&wanted),
            }
        });
        let (actor, role) = match found {
            Ok(found) => found,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let cookie = hex(&random()?);
        let mut state = lock(&self.state);
        state.sessions.retain(|_, session| !session.is_over(now_ms));
        if state.sessions.len() >= SESSIONS_MAX {
            let idle =
                state.sessions.iter().min_by_key(|(_, session)| session.used_at_ms).map(|(key, _)| *key);
            idle.and_then(|key| state.sessions.remove(&key));
        }
        let session = Session { actor, role, began_at_ms: now_ms, used_at_ms: now_ms };
        state.sessions.insert(sha256(&cookie), session);
        Ok(Ok(cookie))
    }

    /// Whose session this cookie is. Using it keeps it alive.
    pub fn visitor_of_cookie(&self, cookie: &str, now_ms: i64) -> Option<Visitor> {
        let key = sha256(cookie);
        let mut state = lock(&self.state);
        let session = state.sessions.get_mut(&key)?;
        if session.is_over(now_ms) {
            state.sessions.remove(&key);
            return None;
        }
        session.used_at_ms = now_ms;
        let (actor, role) = (session.actor.clone(), session.role);
        Some(Visitor { actor, role, csrf: Some(self.form_token(&key)) })
    }

    /// Whose bearer token this is.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn visitor_of_bearer(&self, presented: &str, now_ms: i64) -> Result<Visitor, Refusal> {
        let (actor, role) = self.guess(now_ms, |_| self.of_token(&sha256(presented)))?;
        Ok(Visitor { actor, role, csrf: None })
    }

    /// Somebody whom the system names at the other end of a Unix socket: who may connect to it was decided by its
    /// mode. A browser may be behind it (`ssh -L`), so that forms must prove where they come from.
    pub fn visitor_of_socket(&self, user: &str) -> Visitor {
        let csrf = Some(self.form_token(&sha256(&format!("socket {user}"))));
        Visitor { actor: format!("socket:{user}"), role: Role::Operator, csrf }
    }

    /// Ends a session.
    pub fn log_out(&self, cookie: &str) {
        lock(&self.state).sessions.remove(&sha256(cookie));
    }

    fn of_token(&self, wanted: &[u8; 32]) -> Option<(String, Role)> {
        // all are compared, whichever it is
        let mut found = None;
        for token in &self.tokens {
            if is_same(&token.sha256, wanted) {
                found = Some((format!("token:{}", token.name), token.role));
            }
        }
        found
    }

    /// Looks whether something that was presented is right, unless too many were wrong just now.
    fn guess<T>(&self, now_ms: i64, look: impl FnOnce(&mut State) -> Option<T>) -> Result<T, Refusal> {
        let mut state = lock(&self.state);
        let wait_ms = state.next_guess_at_ms - now_ms;
        if wait_ms > 0 {
            return Err(Refusal::Wait(wait_ms.unsigned_abs().div_ceil(1_000)));
        }
        if let Some(found) = look(&mut state) {
            state.wrong = 0;
            return Ok(found);
        }
        state.wrong = state.wrong.saturating_add(1);
        let doubled = state.wrong.saturating_sub(FREE_GUESSES).min(16);
        if doubled > 0 {
            state.next_guess_at_ms = now_ms + (1_000_i64 << doubled).min(GUESS_WAIT_MAX_MS);
        }
        Err(Refusal::Wrong)
    }

    fn form_token(&self, session: &[u8; 32]) -> String {
        let digest = Sha256::new().chain_update(self.key).chain_update(session).finalize();
        hex(&digest)
    }
}

/// Compares two texts without telling by the time where they differ.
pub fn is_same_text(one: &str, other: &str) -> bool {
    is_same(&sha256(one), &sha256(other))
}

fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.ct_eq(other).into()
}

fn sha256(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logins() -> Logins {
        let token = |name: &str, role| AdminToken { name: name.to_owned(), role, sha256: sha256(name) };
        Logins::new(vec![token("eve", Role::Viewer), token("ann", Role::Operator)]).unwrap()
    }

    #[test]
    fn a_link_works_once_and_for_half_an_hour() {
        let logins = logins();
        let link = logins.make_link("link:ann", 0).unwrap();
        let cookie = logins.log_in(&link, LINK_LIFE_MS - 1).unwrap().unwrap();
        assert_eq!(logins.log_in(&link, LINK_LIFE_MS - 1).unwrap(), Err(Refusal::Wrong));
        let visitor = logins.visitor_of_cookie(&cookie, LINK_LIFE_MS).unwrap();
        assert_eq!((visitor.actor.as_str(), visitor.role), ("link:ann", Role::Operator));
        let late = logins.make_link("link:ann", 0).unwrap();
        assert_eq!(logins.log_in(&late, LINK_LIFE_MS).unwrap(), Err(Refusal::Wrong));
    }

    #[test]
    fn a_session_ends_when_nobody_uses_it_and_after_twelve_hours() {
        let logins = logins();
        let cookie = logins.log_in("eve", 0).unwrap().unwrap();
        assert_eq!(logins.visitor_of_cookie(&cookie, SESSION_IDLE_MS - 1).unwrap().role, Role::Viewer);
        assert!(logins.visitor_of_cookie(&cookie, 2 * SESSION_IDLE_MS).is_none());
        let cookie = logins.log_in("eve", 0).unwrap().unwrap();
        for at in (0..SESSION_LIFE_MS).step_by(60_000) {
            assert!(logins.visitor_of_cookie(&cookie, at).is_some());
        }
        assert!(logins.visitor_of_cookie(&cookie, SESSION_LIFE_MS).is_none());
        let cookie = logins.log_in("ann", 0).unwrap().unwrap();
        logins.log_out(&cookie);
        assert!(logins.visitor_of_cookie(&cookie, 1).is_none());
    }

    #[test]
    fn guesses_are_slowed_and_a_new_link_ends_the_wait() {
        let logins = logins();
        for _ in 0..=FREE_GUESSES {
            assert_eq!(logins.visitor_of_bearer("wrong", 0), Err(Refusal::Wrong));
        }
        assert_eq!(logins.visitor_of_bearer("ann", 0), Err(Refusal::Wait(2)));
        assert_eq!(logins.visitor_of_bearer("wrong", 2_000), Err(Refusal::Wrong));
        assert_eq!(logins.visitor_of_bearer("ann", 2_000), Err(Refusal::Wait(4)));
        logins.make_link("link:ann", 2_001).unwrap();
        assert_eq!(logins.visitor_of_bearer("ann", 2_002).unwrap().actor, "token:ann");
    }

    #[test]
    fn each_session_has_a_form_token_of_its_own() {
        let logins = logins();
        let cookies = [(); 2].map(|()| logins.log_in("ann", 0).unwrap().unwrap());
        let tokens = cookies.each_ref().map(|cookie| logins.visitor_of_cookie(cookie, 0).unwrap().csrf);
        assert_ne!(tokens[0], tokens[1]);
        assert_eq!(tokens[0], logins.visitor_of_cookie(&cookies[0], 1).unwrap().csrf);
    }
}
