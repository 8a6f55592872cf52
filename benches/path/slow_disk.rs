//! A disk on which every fsync takes longer: SQLite's own file system layer with one function exchanged.
//!
//! (strace can delay fsync as well, but it also stops every thread that starts or ends, of which there
//! are many here.)

#![allow(unsafe_code, reason = "SQLite's interface for file systems is one of C pointers")]

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::ffi;

static DELAY_US: AtomicU64 = AtomicU64::new(0);
static SYNCS: AtomicU64 = AtomicU64::new(0);
static ORIGINAL: OnceLock<Original> = OnceLock::new();
static DELAYED_METHODS: OnceLock<Methods> = OnceLock::new();

struct Original {
    vfs: *mut ffi::sqlite3_vfs,
}

// SAFETY: the default VFS lives as long as the process and is not changed after this.
unsafe impl Send for Original {}
// SAFETY: as above.
unsafe impl Sync for Original {}

struct Methods {
    original: *const ffi::sqlite3_io_methods,
    delayed: ffi::sqlite3_io_methods,
}

// SAFETY: tables of functions, never written to after they were made.
unsafe impl Send for Methods {}
// SAFETY: as above.
unsafe impl Sync for Methods {}

/// Makes every fsync of this process longer; call it before anything is opened.
pub(crate) fn install() {
    ORIGINAL.get_or_init(|| {
        // SAFETY: the default VFS exists once SQLite is initialised; the copy differs in its name and in
        // `xOpen` only, and is leaked, since SQLite keeps the pointer.
        unsafe {
            assert_eq!(ffi::sqlite3_initialize(), ffi::SQLITE_OK);
            let original = ffi::sqlite3_vfs_find(std::ptr::null());
            let mut copy = *original;
            copy.zName = c"slow-disk".as_ptr();
            copy.pNext = std::ptr::null_mut();
            copy.xOpen = Some(open);
            let copy = Box::leak(Box::new(copy));
            assert_eq!(ffi::sqlite3_vfs_register(copy, 1), ffi::SQLITE_OK);
            Original { vfs: original }
        }
    });
}

/// How much longer an fsync takes from now on.
pub(crate) fn delay(time: Duration) {
    DELAY_US.store(u64::try_from(time.as_micros()).unwrap(), Ordering::Relaxed);
}

/// How many there were so far.
pub(crate) fn syncs() -> u64 {
    SYNCS.load(Ordering::Relaxed)
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: called by SQLite with what its own `xOpen` wants; on success that has set `pMethods`.
    unsafe {
        let vfs = ORIGINAL.get().unwrap().vfs;
        let result = (*vfs).xOpen.unwrap()(vfs, name, file, flags, out_flags);
        if result == ffi::SQLITE_OK {
            let methods = (*file).pMethods;
            let ours = DELAYED_METHODS.get_or_init(|| {
                let mut delayed = *methods;
                delayed.xSync = Some(sync);
                Methods { original: methods, delayed }
            });
            // another kind of lock would bring another table; then its files are left as they are
            if ours.original == methods {
                (*file).pMethods = &raw const ours.delayed;
            }
        }
        result
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    SYNCS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: only files whose table was this one get here.
    let result = unsafe { (*DELAYED_METHODS.get().unwrap().original).xSync.unwrap()(file, flags) };
    std::thread::sleep(Duration::from_micros(DELAY_US.load(Ordering::Relaxed)));
    result
}
