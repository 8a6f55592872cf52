//! An endpoint at work: its configuration, and its handlers.

use std::sync::Arc;

use crate::config;
use crate::handlers::Handler;

/// An endpoint at work: its configuration and the handlers it names, in order.
pub struct Endpoint {
    /// As configured.
    pub config: config::Endpoint,
    /// In the order in which they run.
    pub handlers: Vec<Arc<dyn Handler>>,
}

impl Endpoint {
    /// Bodies are parsed only as far as the scheme and the handlers read them.
    pub fn new(mut config: config::Endpoint, handlers: Vec<Arc<dyn Handler>>) -> Self {
        let reads: Option<Vec<_>> = handlers.iter().map(|handler| handler.reads()).collect();
        if let Some(reads) = reads {
            config.verifier.read_only(&reads.concat());
        }
        Self { config, handlers }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("config", &self.config).finish_non_exhaustive()
    }
}
