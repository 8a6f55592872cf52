//! A disk on which every fsync takes longer: SQLite's own file system layer with one function exchanged.
//!
//! (strace can delay fsync as well, but it also stops every thread that starts or ends, of which there
//! are many here.)

#![allow(unsafe_code, reason = "SQLite's interface for file systems is one of C pointers")]

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use rusqlite::ffi;

static DELAY_US: AtomicU64 = AtomicU64::new(0);
static SYNCS: AtomicU64 = AtomicU64::new(0);
static ORIGINAL: OnceLock<Original> = OnceLock::new();
static TABLES: Mutex<Vec<&'static Table>> = Mutex::new(Vec::new());
static ORIGINAL_SYNC: OnceLock<Sync> = OnceLock::new();

type Sync = unsafe extern "C" fn(*mut ffi::sqlite3_file, c_int) -> c_int;

struct Original {
    vfs: *mut ffi::sqlite3_vfs,
}

// SAFETY: the default VFS lives as long as the process and is not changed after this.
unsafe impl Send for Original {}
// SAFETY: as above.
unsafe impl std::marker::Sync for Original {}

/// A table of functions and its copy with another `xSync`; the log's table differs from the file's.
struct Table {
    original: usize,
    delayed: ffi::sqlite3_io_methods,
}

// SAFETY: the copy is a table of functions, and is not written to after it was made.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl std::marker::Sync for Table {}

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
            (*file).pMethods = &raw const delayed((*file).pMethods).delayed;
        }
        result
    }
}

/// # Safety
/// `methods` is a table of SQLite's own layer.
unsafe fn delayed(methods: *const ffi::sqlite3_io_methods) -> &'static Table {
    let mut tables = TABLES.lock().unwrap();
    if let Some(known) = tables.iter().find(|table| table.original == methods.addr()) {
        return known;
    }
    // SAFETY: as promised.
    let mut copy = unsafe { *methods };
    let original = copy.xSync.replace(sync).unwrap();
    // every table of the layer has the same one
    ORIGINAL_SYNC.get_or_init(|| original);
    let table: &'static Table = Box::leak(Box::new(Table { original: methods.addr(), delayed: copy }));
    tables.push(table);
    table
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    SYNCS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: called by SQLite in the place of that function.
    let result = unsafe { ORIGINAL_SYNC.get().unwrap()(file, flags) };
    std::thread::sleep(Duration::from_micros(DELAY_US.load(Ordering::Relaxed)));
    result
}
