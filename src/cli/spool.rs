//! The result of a query, kept until stdout has taken it.
//!
//! A reader at the other end of a pipe may stall without limit. The statement must not wait for the reader: while it
//! waits, the WAL cannot be cut and grows with every write. So the whole result is read first, within the time limit
//! of a read, and written afterwards.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use super::{Exit, Failure};

/// Bytes kept in memory; a longer result goes to a file.
const MEMORY_BYTES_MAX: usize = 8 << 20;

/// Bytes on their way to stdout.
#[derive(Debug, Default)]
pub(crate) struct Spool {
    memory: Vec<u8>,
    /// Its name is removed at once, so it goes away with this process.
    file: Option<BufWriter<File>>,
}

impl Spool {
    /// Adds to it.
    pub(crate) fn put(&mut self, data: &str) -> Result<(), Failure> {
        self.memory.extend_from_slice(data.as_bytes());
        if self.memory.len() < MEMORY_BYTES_MAX {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(BufWriter::new(nameless_file().map_err(no_room)?)),
        };
        file.write_all(&self.memory).map_err(no_room)?;
        self.memory.clear();
        Ok(())
    }

    /// Writes all of it to stdout, after the read of the database has ended.
    pub(crate) fn pour(self) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        if let Some(file) = self.file {
            let mut file = file.into_inner().map_err(|error| no_room(error.into_error()))?;
            file.seek(SeekFrom::Start(0)).map_err(no_room)?;
            let mut part = vec![0; 64 << 10];
            loop {
                match file.read(&mut part).map_err(no_room)? {
                    0 => break,
                    length => stdout.write_all(&part[..length]).map_err(Failure::of_stdout)?,
                }
            }
        }
        stdout.write_all(&self.memory).and_then(|()| stdout.flush()).map_err(Failure::of_stdout)
    }
}

/// A private file in the directory for temporary ones.
fn nameless_file() -> io::Result<File> {
    let random = getrandom::u64().map_err(io::Error::other)?;
    let path = std::env::temp_dir().join(format!("inboxd-query-{random:016x}"));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

fn no_room(error: io::Error) -> Failure {
    let dir = std::env::temp_dir();
    Failure::new(
        Exit::Temporary,
        format!("the result cannot be kept in {}; set TMPDIR, or narrow the query down", dir.display()),
    )
    .because(error)
}
