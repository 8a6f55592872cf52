//! Points at which a test kills the process: between two steps that a crash could separate.
//!
//! Only a build with the feature `failpoints` contains them; in any other, [`reach`] compiles to nothing. A point
//! never changes what the program does: it ends the process, as SIGKILL would, or does nothing.

/// Ends the process when the point is reached for the n-th time, if `INBOXD_FAILPOINT=name:n` says so.
#[cfg(feature = "failpoints")]
pub(crate) fn reach(point: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static ARMED: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static HITS: AtomicU64 = AtomicU64::new(0);

    let armed = ARMED.get_or_init(|| {
        #[allow(clippy::disallowed_methods, reason = "not a setting: no release build reads it")]
        let typed = std::env::var("INBOXD_FAILPOINT").ok()?;
        let (name, hit) = typed.split_once(':')?;
        Some((name.to_owned(), hit.parse().ok()?))
    });
    if let Some((name, hit)) = armed
        && name == point
        && HITS.fetch_add(1, Ordering::SeqCst) + 1 == *hit
    {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).ok();
        loop {
            std::thread::park();
        }
    }
}

/// Nothing: this build has no failpoints.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn reach(_point: &str) {}
