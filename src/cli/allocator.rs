//! The C library's memory allocator, told to give large blocks back.
//!
//! glibc keeps what was freed: after one body of 25 MB it serves the next ones from heaps of its own, one for each
//! few threads, and a heap is hardly ever given back. What the front counts as 64 MiB was 600 MiB of memory,
//! and stayed so. With a fixed threshold every block of 128 KiB or more is memory of its own, and is gone when it
//! is freed. Only the environment of a start can say so (a call of `mallopt` would be unsafe code), so `serve`
//! starts itself once more in its own process, with that environment.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::config::environment;

/// Says that this is the second start. The allocator's own variables would not do: for a binary with
/// capabilities the C library takes them away.
const STARTED_AGAIN: &str = "INBOXD_ALLOCATOR_SET";

/// Bytes from which a block is memory of its own.
const MMAP_THRESHOLD: &str = "131072";

/// Heaps for all that is smaller; the default grows with the processors.
const ARENAS_MAX: &str = "8";

/// Starts the process again with the allocator's settings, unless they are there or are the user's own. Where that is
/// not possible the process goes on without: it then needs more memory under large bodies.
pub(crate) fn give_back_large_blocks() {
    let is_set = |variable| environment(variable).is_some();
    if !cfg!(target_env = "gnu")
        || ["MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", STARTED_AGAIN].into_iter().any(is_set)
    {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| program.clone().into());
    // `ld-linux.so inboxd serve` is the loader's process: started again it would take `serve` for the program
    if program.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"ld")) {
        return;
    }
    // returns only where it failed
    let _failed = Command::new(program)
        .arg0(name)
        .args(arguments)
        .env("MALLOC_MMAP_THRESHOLD_", MMAP_THRESHOLD)
        .env("MALLOC_ARENA_MAX", ARENAS_MAX)
        .env(STARTED_AGAIN, "1")
        .exec();
}
