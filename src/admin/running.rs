//! The running instance, as far as pages and figures look at it: what is configured, how the daemon is, its files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use maud::html;

use crate::clock;
use crate::config::Instance;
use crate::intake::deliveries::App;
use crate::intake::exchange::Response;
use crate::intake::front::Gauge;
use crate::store::open;
use crate::wake::lock;

use super::frame::{Frame, shown};
use super::http;
use super::jobs::Jobs;
use super::login::Visitor;
use super::metrics::Known;
use super::reading::{self, Connection, Reading};

/// What runs here.
#[derive(Debug)]
pub struct Running {
    /// The database file.
    pub database: PathBuf,
    /// What is configured.
    pub instance: Arc<Instance>,
    /// Answers deliveries, and knows how the daemon is.
    pub app: Arc<App>,
    /// When the daemon started, in milliseconds since the epoch.
    pub started_at_ms: i64,
    /// The configuration in effect, without secrets.
    pub effective: String,
    /// Acts over many rows.
    pub jobs: Jobs,
    /// What counts the connections of each listener: they are opened after all this is made.
    pub gauges: Mutex<Vec<(&'static str, Gauge)>>,
}

impl Running {
    /// Reads for one answer.
    ///
    /// # Errors
    /// In one sentence.
    pub fn read<T>(&self, work: impl FnOnce(&Connection) -> Reading<T>) -> Result<T, String> {
        reading::read(&self.database, work)
    }

    /// What is known without the database.
    pub fn known(&self, now_ms: i64) -> Known {
        let gauges = lock(&self.gauges);
        let counts: Vec<_> = gauges.iter().map(|(listener, gauge)| (*listener, gauge.read())).collect();
        Known {
            endpoints: self.instance.endpoints.clone(),
            destinations: self.instance.destinations.clone(),
            wal_bytes: self.wal_bytes(),
            disk_free_bytes: self.disk_free_bytes(),
            connections: counts.iter().map(|(listener, (open, _))| (*listener, *open)).collect(),
            evicted: counts.iter().map(|(listener, (_, evicted))| (*listener, *evicted)).collect(),
            is_ready: self.app.condition().reasons().is_empty(),
            started_at_ms: self.started_at_ms,
            now_ms,
        }
    }

    fn wal_bytes(&self) -> u64 {
        std::fs::metadata(open::sibling(&self.database, "-wal")).map_or(0, |file| file.len())
    }

    fn disk_free_bytes(&self) -> u64 {
        let dir = self.database.parent().filter(|dir| !dir.as_os_str().is_empty());
        let disk = rustix::fs::statvfs(dir.unwrap_or(Path::new(".")));
        disk.map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// The frame of a page, made now.
    pub fn frame<'a>(&self, visitor: &'a Visitor, title: &'a str, here: &'a str) -> Frame<'a> {
        Frame { title, here, visitor, now_ms: clock::now_ms(), is_live: false }
    }

    /// A page that says one thing: what was done, or why it was not.
    pub fn said(&self, visitor: &Visitor, status: u16, title: &str, sentence: &str) -> Response {
        let content =
            html! { p .note role="status" { (shown(sentence)) } p { a href="/" { "Back to Now" } } };
        http::page(status, self.frame(visitor, title, "").around(content))
    }
}
