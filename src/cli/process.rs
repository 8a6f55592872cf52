//! Protects the process before it does anything else, because it holds secrets.

use rustix::fs::Mode;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask,
};

/// No core dump holds the secrets, other processes of this user cannot read its memory, and what it creates is
/// for its user only, whatever the shell's umask.
pub(crate) fn keep_to_itself() {
    umask(Mode::RWXG | Mode::RWXO);
    // giving up a right cannot fail; if it did, the process would be no less safe than before
    set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap_or_default();
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum }).unwrap_or_default();
}
