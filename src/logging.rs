//! The log: lines on stderr, written by a thread of its own.
//!
//! A stalled reader of stderr delays no thread. A line goes into a bounded queue; if the queue is full, the line is
//! dropped and counted, and a later line reports the count. Lines that strangers can cause are limited per second
//! and kind. This module knows nothing about the contents of lines.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use log::{Level, Metadata, Record};
use rustix::event::{PollFd, PollFlags, poll};

use crate::clock;
use crate::terminal::printable;
use crate::wake::lock;

/// How long the end of the process waits for the last lines to be written.
pub const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// The most bytes that wait to be written; as many again may be in the writing thread.
const QUEUE_BYTES_MAX: usize = 256 << 10;

/// The part of the queue for lines below a warning: the rest is kept for lines that someone must see.
const QUEUE_BYTES_MAX_FOR_INFO: usize = QUEUE_BYTES_MAX / 4 * 3;

/// The most bytes of a line; a longer one is cut.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Lines of one kind are counted over this time.
const SECOND: Duration = Duration::from_secs(1);

static LOG: OnceLock<Log> = OnceLock::new();
static TELLS_EACH_DELIVERY: AtomicBool = AtomicBool::new(false);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static LIMITS: Limits = Limits { kinds: Mutex::new(BTreeMap::new()), pending: AtomicBool::new(false) };

/// From now on every `log!`, every panic and every text of [`say`] goes to stderr through the queue.
/// `RUST_LOG` changes the level, which is `info`.
///
/// # Errors
/// If the thread cannot be started. A second call changes nothing.
pub fn start() -> io::Result<()> {
    if LOG.get().is_some() {
        return Ok(());
    }
    let queue = Arc::new(Queue::default());
    let writing = Arc::clone(&queue);
    std::thread::Builder::new().name("log".to_owned()).spawn(move || writing.write_to(&mut Stderr))?;
    let filter = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).build();
    let level = filter.filter();
    let log = LOG.get_or_init(|| Log { filter, queue });
    if log::set_logger(log).is_ok() {
        log::set_max_level(level);
    }
    std::panic::set_hook(Box::new(tell_of_panic));
    Ok(())
}

/// From now on each delivery is a line at level `info`, as a development instance shows it.
pub fn tell_each_delivery() {
    TELLS_EACH_DELIVERY.store(true, Ordering::Relaxed);
}

/// The level of the line for an accepted delivery.
pub fn delivery_level() -> Level {
    if TELLS_EACH_DELIVERY.load(Ordering::Relaxed) { Level::Info } else { Level::Debug }
}

/// Prints a message to the person at the terminal, whatever the log's level. Before [`start`] the caller waits until
/// it is written.
pub fn say(line: &str) {
    match LOG.get() {
        Some(log) => log.queue.push(line, true),
        // with stderr closed there is no reader
        None => drop(io::stderr().lock().write_all(format!("{line}\n").as_bytes())),
    }
}

/// Waits until all lines are written, but no longer than `time_max`: a stalled reader must not keep the process alive.
pub fn flush(at_most: Duration) {
    if let Some(log) = LOG.get() {
        LIMITS.tell_overdue(Duration::ZERO);
        log.queue.flush(at_most);
    }
}

/// Lines dropped since the start, because the log was not read fast enough or could not be written.
pub fn lines_dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Logs a line that strangers can cause, with a limit per second and kind. Further lines are counted, and the count
/// is in the next line of the kind, or in a line of its own. `kind` begins the line and is made of our own words and
/// names; `detail` ends it, and is called only if the line is logged.
pub fn limited(level: Level, per_second: u32, kind: &str, detail: impl FnOnce() -> String) {
    if level > log::max_level() {
        return;
    }
    match LIMITS.pass(kind, level, per_second, Instant::now()) {
        Some(earlier) => log::log!(level, "{kind}{}{earlier}", detail()),
        None => {
            if !LIMITS.pending.swap(true, Ordering::SeqCst)
                && let Some(log) = LOG.get()
            {
                // so that the count is reported even if no other line of the kind follows
                log.queue.wake();
            }
        }
    }
}

/// The first `chars_max` characters of a stranger's text, [`printable`].
pub fn short(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        None => printable(text),
        Some((end, _)) => Cow::Owned(format!("{}…", printable(&text[..end]))),
    }
}

struct Log {
    filter: env_logger::Logger,
    queue: Arc<Queue>,
}

impl log::Log for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.filter.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if self.filter.matches(record) {
            self.queue.push(&line(record.level(), &record.args().to_string()), record.level() <= Level::Warn);
        }
    }

    fn flush(&self) {
        self.queue.flush(FLUSH_TIME_MAX);
    }
}

/// Formats one line; an id that a sender has chosen cannot break it into two.
fn line(level: Level, text: &str) -> String {
    let at = jiff::Timestamp::from_millisecond(clock::now_ms()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let mut line = format!("[{at:.3} {level:<5}] {}", printable(text));
    if line.len() > LINE_BYTES_MAX {
        line.truncate(line.floor_char_boundary(LINE_BYTES_MAX));
        line.push('…');
    }
    line
}

/// Replaces std's panic hook, which writes to stderr itself and would wait for its reader.
fn tell_of_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let text = format!("a bug: thread {} {panic}", thread.name().unwrap_or("without a name"));
    say(&line(Level::Error, &text.replace('\n', " ")));
    let backtrace = std::backtrace::Backtrace::capture();
    if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
        backtrace.to_string().lines().for_each(|frame| say(&printable(frame)));
    }
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    emptied: Condvar,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    lines: u64,
    /// Dropped lines that the log has not reported yet.
    dropped: u64,
    is_writing: bool,
}

impl Queue {
    /// Adds a line; never waits for the writing thread.
    fn push(&self, line: &str, is_urgent: bool) {
        let bytes_max = if is_urgent { QUEUE_BYTES_MAX } else { QUEUE_BYTES_MAX_FOR_INFO };
        let mut state = lock(&self.state);
        if state.bytes.len() + line.len() < bytes_max {
            state.bytes.extend_from_slice(line.as_bytes());
            state.bytes.push(b'\n');
            state.lines += 1;
        } else {
            state.dropped += 1;
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        if !state.is_writing {
            self.filled.notify_one();
        }
    }

    /// Wakes the writing thread, so that it reports [pending](Limits) counts as well.
    fn wake(&self) {
        // a thread that has checked already is waiting by then
        drop(lock(&self.state));
        self.filled.notify_one();
    }

    fn flush(&self, at_most: Duration) {
        let is_busy = |state: &mut State| state.is_writing || !state.bytes.is_empty() || state.dropped > 0;
        drop(self.emptied.wait_timeout_while(lock(&self.state), at_most, is_busy));
    }

    /// Writes for ever. A line that cannot be written is lost; the next ones are tried all the same, because the disk
    /// may have room again.
    fn write_to(&self, out: &mut impl Write) {
        let (mut batch, mut untold, mut is_cut) = (Vec::new(), 0, false);
        loop {
            let (lines, dropped) = self.take(&mut batch);
            untold += dropped;
            if std::mem::take(&mut is_cut) {
                batch.insert(0, b'\n');
            }
            if out.write_all(&batch).is_err() {
                is_cut = true;
                untold += lines;
                DROPPED.fetch_add(lines, Ordering::Relaxed);
            } else if untold > 0 {
                let text = format!("{untold} lines dropped: the log was not read, or could not be written");
                if out.write_all(format!("{}\n", line(Level::Warn, &text)).as_bytes()).is_ok() {
                    untold = 0;
                }
            }
        }
    }

    /// Waits for lines. Returns them and the number of dropped ones.
    fn take(&self, batch: &mut Vec<u8>) -> (u64, u64) {
        batch.clear();
        let mut state = lock(&self.state);
        state.is_writing = false;
        self.emptied.notify_all();
        while state.bytes.is_empty() && state.dropped == 0 {
            if !LIMITS.pending.load(Ordering::SeqCst) {
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            (state, _) = self.filled.wait_timeout(state, SECOND).unwrap_or_else(PoisonError::into_inner);
            drop(state);
            LIMITS.tell_overdue(SECOND * 2);
            state = lock(&self.state);
        }
        state.is_writing = true;
        std::mem::swap(&mut state.bytes, batch);
        (std::mem::take(&mut state.lines), std::mem::take(&mut state.dropped))
    }
}

/// The standard error of this process, also if another process has made it non-blocking.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr();
        loop {
            match stderr.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None)?;
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many lines of each kind were logged recently.
struct Limits {
    /// By the words that begin their lines.
    kinds: Mutex<BTreeMap<String, Kind>>,
    /// Some lines were counted and not reported yet.
    pending: AtomicBool,
}

struct Kind {
    level: Level,
    since: Instant,
    logged: u32,
    counted: u64,
}

impl Limits {
    /// The text about earlier lines to add to this one; `None`: this line is only counted.
    fn pass(&self, kind: &str, level: Level, per_second: u32, now: Instant) -> Option<String> {
        let mut kinds = lock(&self.kinds);
        let Some(known) = kinds.get_mut(kind) else {
            kinds.insert(kind.to_owned(), Kind { level, since: now, logged: 1, counted: 0 });
            return Some(String::new());
        };
        let elapsed = now.saturating_duration_since(known.since);
        if elapsed < SECOND && known.logged >= per_second {
            known.counted += 1;
            return None;
        }
        if elapsed < SECOND {
            known.logged += 1;
            return Some(String::new());
        }
        (known.since, known.logged) = (now, 1);
        Some(more(std::mem::take(&mut known.counted), elapsed))
    }

    /// Logs the counts of kinds without a new line for a while.
    fn tell_overdue(&self, age: Duration) {
        self.pending.store(false, Ordering::SeqCst);
        let mut lines = Vec::new();
        for (name, kind) in lock(&self.kinds).iter_mut().filter(|(_, kind)| kind.counted > 0) {
            let elapsed = kind.since.elapsed();
            if elapsed >= age {
                lines.push((
                    kind.level,
                    format!("{name}{}", more(std::mem::take(&mut kind.counted), elapsed)),
                ));
            } else {
                self.pending.store(true, Ordering::SeqCst);
            }
        }
        for (level, line) in lines {
            log::log!(level, "{line}");
        }
    }
}

fn more(counted: u64, within: Duration) -> String {
    match (counted, within.as_secs()) {
        (0, _) => String::new(),
        (counted, ..2) => format!(" (and {counted} more in the last second)"),
        (counted, seconds) => format!(" (and {counted} more in the last {seconds} s)"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Accepts nothing before the test allows it, and fails when the test says so.
    struct Reader {
        turns: mpsc::Receiver<bool>,
        taken: mpsc::Sender<String>,
    }

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.turns.recv() {
                Ok(true) => self.taken.send(String::from_utf8(bytes.to_vec()).unwrap()).unwrap(),
                Ok(false) => return Err(io::ErrorKind::StorageFull.into()),
                // the test is over
                Err(_) => std::thread::park(),
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn queue() -> (Arc<Queue>, mpsc::Sender<bool>, mpsc::Receiver<String>) {
        let ((turn, turns), (taken, took)) = (mpsc::channel(), mpsc::channel());
        let queue = Arc::new(Queue::default());
        let writing = Arc::clone(&queue);
        std::thread::spawn(move || writing.write_to(&mut Reader { turns, taken }));
        (queue, turn, took)
    }

    fn next(took: &mpsc::Receiver<String>) -> String {
        took.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn who_logs_never_waits_for_a_reader_and_what_was_dropped_is_told_when_there_is_room() {
        let (queue, turn, took) = queue();
        let info = "x".repeat(1000);
        let count = 2 * QUEUE_BYTES_MAX / info.len();
        for _ in 0..count {
            queue.push(&info, false);
        }
        queue.push("someone must see this", true);
        queue.flush(Duration::from_millis(1));
        let mut written = String::new();
        while !written.contains("lines dropped") {
            turn.send(true).unwrap();
            written.push_str(&next(&took));
        }
        assert!(written.contains("someone must see this"), "room is kept for warnings");
        let kept = written.matches(&info).count();
        let dropped = format!("{} lines dropped", count - kept);
        assert!(
            kept > 100 && written.contains(&dropped),
            "{kept} of {count}: {}",
            &written[written.len() - 200..]
        );
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_the_next_are_tried() {
        let (queue, turn, took) = queue();
        queue.push("lost", true);
        turn.send(false).unwrap();
        queue.flush(Duration::from_secs(60));
        queue.push("kept", true);
        turn.send(true).unwrap();
        turn.send(true).unwrap();
        assert_eq!(next(&took), "\nkept\n");
        assert!(next(&took).contains(" 1 lines dropped"));
        queue.flush(Duration::from_secs(60));
    }

    #[test]
    fn of_each_kind_so_many_lines_a_second_pass_and_the_others_are_counted() {
        let limits = Limits { kinds: Mutex::default(), pending: AtomicBool::new(false) };
        let begun = Instant::now();
        let pass = |kind, ms| limits.pass(kind, Level::Info, 2, begun + Duration::from_millis(ms));
        let none = || Some(String::new());
        assert_eq!([pass("a", 0), pass("a", 1), pass("a", 2), pass("b", 3)], [none(), none(), None, none()]);
        assert_eq!(pass("a", 999), None);
        assert_eq!(pass("a", 1000).as_deref(), Some(" (and 2 more in the last second)"));
        assert_eq!([pass("a", 1001), pass("a", 1002)], [none(), None]);
        assert_eq!(pass("a", 8000).as_deref(), Some(" (and 1 more in the last 7 s)"));
        assert_eq!(pass("a", 20_000), none());
    }

    #[test]
    fn a_strangers_text_is_cut_between_characters_and_shows_what_it_is() {
        assert_eq!(short("/a\u{1b}[31m", 200), "/a?[31m");
        assert_eq!(short("h\u{e9}llo", 2), "h\u{e9}…");
        assert_eq!(short("h\u{e9}", 2), "h\u{e9}");
        assert!(line(Level::Info, &"\u{e9}".repeat(5000)).len() <= LINE_BYTES_MAX + '…'.len_utf8());
    }
}
