//! Makes the C library's allocator return large blocks to the system.
//!
//! glibc keeps freed memory: after one body of 25 MB it serves the next ones from arenas, one per few threads, and
//! hardly ever returns an arena. The 64 MiB that the front allows became 600 MiB of memory, and stayed so. With a
//! fixed threshold every block of 128 KiB or more is a mapping of its own, which goes back when it is freed. Only
//! the environment at the start can set the threshold (calling `mallopt` would be unsafe code), so `serve` starts
//! itself once more in its own process, with that environment.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::config::environment;

/// Marks the second start. The allocator's own variables cannot mark it: the C library removes them for a binary
/// with capabilities.
const STARTED_AGAIN: &str = "INBOXD_ALLOCATOR_SET";

/// From this size in bytes a block is a mapping of its own.
const MMAP_THRESHOLD: &str = "131072";

/// Arenas for smaller blocks; the default grows with the processors.
const ARENAS_MAX: &str = "8";

/// Starts the process again with the allocator's settings, unless this process or the user has set them. If that is
/// not possible the process continues without them, and needs more memory under large bodies.
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
    // returns only if it failed
    let _failed = Command::new(program)
        .arg0(name)
        .args(arguments)
        .env("MALLOC_MMAP_THRESHOLD_", MMAP_THRESHOLD)
        .env("MALLOC_ARENA_MAX", ARENAS_MAX)
        .env(STARTED_AGAIN, "1")
        .exec();
}
