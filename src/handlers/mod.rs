//! Handlers: the business work done inside the event's own transaction.
//!
//! A handler sees one verified [`Event`] and one open transaction. It never begins or ends a
//! transaction, never talks to the network, and never sees an unverified byte. What it returns
//! decides what happens to everything it wrote.

mod billing;
mod fields;
mod money;
mod orders;
pub(crate) mod sql;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Transaction;
use serde_json::Value;

pub use billing::Billing;
pub use money::Money;
pub use orders::Orders;

use crate::config::HandlerFacts;
use crate::store::outbox::{self, NewOperation};

/// The event as a handler sees it. All of it was verified, or read back from the inbox.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// The endpoint's name in the configuration.
    pub endpoint: &'a str,
    /// The preset's name, or `custom`.
    pub provider: &'a str,
    /// The event's key in the inbox.
    pub id: &'a str,
    /// e.g. `invoice.paid`; empty where the provider names none.
    pub event_type: &'a str,
    /// The business object the event is about.
    pub object_id: Option<&'a str>,
    /// The provider's account, where the event names one.
    pub account: Option<&'a str>,
    /// `Some(true)` live, `Some(false)` test.
    pub livemode: Option<bool>,
    /// The query string of the delivery's URL, without `?`, where it had one. Only the providers that sign the URL vouch
    /// for it.
    pub query: Option<&'a str>,
    /// The body as JSON (for form bodies: the JSON inside the form): all of it, unless every handler of
    /// the endpoint says what it [reads](Handler::reads).
    pub body: &'a Value,
    /// The sender's own text of the body's JSON (of a form: the decoded field), all of it. `None` where the body is a form
    /// of fields: then [`Event::body`] is an object of them, whose values are texts.
    pub text: Option<&'a str>,
    /// A test delivery with a constant id: never business.
    pub is_test_send: bool,
    /// The destination of rows this handler emits, where the endpoint names one (`notify`).
    pub notify: Option<&'a str>,
    /// This step's time, in milliseconds since the epoch.
    pub now_ms: i64,
}

/// How a handler ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handled {
    /// The effects stand (or stood already).
    Applied,
    /// Not an event for this handler.
    Ignored,
    /// Permanently inconsistent: undo what the handlers wrote and keep the event for a person.
    /// The sentence says why, without personal data.
    Quarantine(String),
    /// As [`Handled::Quarantine`]: what the event says cannot be true together with what is known.
    Contradiction(String),
    /// As [`Handled::Quarantine`]: the event says that something happened, and not what.
    Thin(String),
    /// Something it needs is not there yet: undo what the handlers wrote, keep the event, and try it again until
    /// that is there. The sender is answered 2xx, since it need not wait.
    Park(Park),
}

/// What an event waits for, and what happens if that does not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Park {
    /// A thing with its name, such as `order o_1`; no personal data.
    pub waits_for: String,
    /// How long the event waits, counted from its receipt.
    pub time_max: Duration,
    /// Whether a review is opened then; otherwise the event is ignored.
    pub asks: bool,
}

/// A handler's failure: everything is rolled back and the provider's redelivery tries again.
#[derive(Debug)]
pub enum HandlerError {
    /// SQLite refused a statement.
    Sql(rusqlite::Error),
    /// Any other failure, in one sentence.
    Failed(String),
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sql(error) => write!(f, "SQL: {error}"),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for HandlerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Sql(error) => Some(error),
            Self::Failed(_) => None,
        }
    }
}

impl HandlerError {
    /// The same with the handler's name, if the error is a sentence.
    fn of(self, handler: &str) -> Self {
        match self {
            Self::Failed(reason) => Self::Failed(format!("handler {handler}: {reason}")),
            sql @ Self::Sql(_) => sql,
        }
    }
}

impl From<rusqlite::Error> for HandlerError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// A table of inboxd's schema that a handler keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Its name in `schema.sql`.
    pub name: &'static str,
    /// Whether the application and SQL handlers may insert into it and update it as well.
    pub is_shared: bool,
}

impl Table {
    /// One that only inboxd writes.
    pub const fn own(name: &'static str) -> Self {
        Self { name, is_shared: false }
    }

    /// One that the application writes as well.
    pub const fn shared(name: &'static str) -> Self {
        Self { name, is_shared: true }
    }
}

/// Business work inside the event's transaction.
pub trait Handler: Send + Sync {
    /// The name used in the configuration and in logs.
    fn name(&self) -> &str;

    /// Whether this handler wants events of this type.
    fn takes(&self, event_type: &str) -> bool;

    /// JSON pointers of all that it reads of [`Event::body`]; `None`: it may read everything. Where all
    /// handlers of an endpoint say so, the rest of a body is not made into a tree for each event. A tree takes many
    /// times the memory of its text: an event that would need more than 128 MiB (4 MiB for what the pointers lead
    /// to) is quarantined.
    fn reads(&self) -> Option<&[&'static str]> {
        None
    }

    /// Tables of inboxd's own schema that it keeps. An application's file (`database = …`) has none of them, so
    /// such a handler cannot be named there.
    fn tables(&self) -> &[Table] {
        &[]
    }

    /// Whether it acts on what only the body says: it cannot be named where the provider does not sign the body.
    fn needs_signed_body(&self) -> bool {
        false
    }

    /// Whether it books money: `check` asks for `livemode` then, so that no test event is booked like a real one.
    fn is_money(&self) -> bool {
        false
    }

    /// The presets whose events it understands; empty: any provider's.
    fn providers(&self) -> &[&'static str] {
        &[]
    }

    /// Whether [`Event::notify`] is the only destination that it writes outbox rows for.
    fn writes_to_notify_only(&self) -> bool {
        false
    }

    /// Whether [`start`](Handler::start) does anything. Where no handler has a start, inboxd begins without waiting
    /// for the lock on the file.
    fn has_start(&self) -> bool {
        true
    }

    /// Runs once before the first event, in a transaction that is committed only when every handler
    /// has started: the place to make tables.
    ///
    /// # Errors
    /// Any error ends the start.
    fn start(&self, _tx: &Transaction<'_>) -> Result<(), HandlerError> {
        Ok(())
    }

    /// Does the work. May run more than once for one delivery (the transaction is rolled back in between).
    ///
    /// # Errors
    /// Any error rolls back everything this delivery wrote; the sender is asked to try again.
    fn handle(&self, tx: &Transaction<'_>, event: &Event<'_>) -> Result<Handled, HandlerError>;
}

/// Runs the handlers that take the event, in order, in a savepoint of their own: what one quarantines or parks, none
/// of them has written. `Ignored` only if all ignore it.
///
/// # Errors
/// The first failure, with the handler's name; the caller rolls back.
pub(crate) fn run(
    tx: &Transaction<'_>,
    handlers: &[Arc<dyn Handler>],
    event: &Event<'_>,
) -> Result<Handled, HandlerError> {
    run_each(tx, handlers, event, true)
}

/// As [`run`], after the event has waited in vain for something that is nobody's question: the handler that waits for it
/// ignores the event, and the others do their part.
///
/// # Errors
/// As [`run`].
pub fn run_without_waiting(
    tx: &Transaction<'_>,
    handlers: &[Arc<dyn Handler>],
    event: &Event<'_>,
) -> Result<Handled, HandlerError> {
    run_each(tx, handlers, event, false)
}

fn run_each(
    tx: &Transaction<'_>,
    handlers: &[Arc<dyn Handler>],
    event: &Event<'_>,
    may_wait: bool,
) -> Result<Handled, HandlerError> {
    tx.prepare_cached("SAVEPOINT handlers")?.execute([])?;
    let mut handled = Handled::Ignored;
    for handler in handlers.iter().filter(|handler| handler.takes(event.event_type)) {
        if !may_wait {
            tx.prepare_cached("SAVEPOINT one_handler")?.execute([])?;
        }
        let one = handler.handle(tx, event).map_err(|error| error.of(handler.name()))?;
        if !may_wait {
            if matches!(one, Handled::Park(_)) {
                tx.prepare_cached("ROLLBACK TO one_handler")?.execute([])?;
            }
            tx.prepare_cached("RELEASE one_handler")?.execute([])?;
        }
        match one {
            Handled::Applied => handled = Handled::Applied,
            Handled::Ignored => {}
            Handled::Park(_) if !may_wait => {}
            undone @ (Handled::Quarantine(_)
            | Handled::Contradiction(_)
            | Handled::Thin(_)
            | Handled::Park(_)) => {
                tx.prepare_cached("ROLLBACK TO handlers")?.execute([])?;
                handled = undone;
                break;
            }
        }
    }
    tx.prepare_cached("RELEASE handlers")?.execute([])?;
    Ok(handled)
}

/// A row of the outbox about an effect of a built-in handler.
struct Message {
    /// What happened, e.g. `InvoicePaymentBooked`.
    topic: &'static str,
    /// The effect's own key: however many events report it, there is one row.
    operation_key: String,
    /// The business object it is about.
    object_id: String,
    /// An object; topic, endpoint and event are added.
    facts: Value,
}

/// Queues the message, where the endpoint names a destination for it.
fn notify(tx: &Transaction<'_>, event: &Event<'_>, message: Message) -> rusqlite::Result<()> {
    let Some(destination) = event.notify else {
        return Ok(());
    };
    let Message { topic, operation_key, object_id, mut facts } = message;
    facts["type"] = Value::from(topic);
    facts["endpoint"] = Value::from(event.endpoint);
    facts["event_id"] = Value::from(event.id);
    let payload = facts.to_string();
    let operation = NewOperation {
        destination,
        topic,
        operation_key: &operation_key,
        endpoint: event.endpoint,
        event_id: event.id,
        object_id: Some(&object_id),
        payload: payload.as_bytes(),
        content_type: "application/json",
        headers: None,
        event_type: (!event.event_type.is_empty()).then_some(event.event_type),
        query: None,
    };
    outbox::enqueue(tx, &operation, event.now_ms)?;
    Ok(())
}

/// The handlers that every inboxd has: the one list of them.
fn built_in() -> [Arc<dyn Handler>; 3] {
    [Arc::new(Billing), Arc::new(Money), Arc::new(Orders)]
}

/// Tables of inboxd's that the application and SQL handlers may write as well.
fn shared_tables() -> Vec<&'static str> {
    let mut shared = Vec::new();
    for handler in built_in() {
        shared.extend(handler.tables().iter().filter(|table| table.is_shared).map(|table| table.name));
    }
    shared
}

fn facts_of(handler: &dyn Handler) -> HandlerFacts {
    HandlerFacts {
        name: handler.name().to_owned(),
        keeps_tables: !handler.tables().is_empty(),
        needs_signed_body: handler.needs_signed_body(),
        is_money: handler.is_money(),
        providers: handler.providers().to_vec(),
        writes_to_notify_only: handler.writes_to_notify_only(),
    }
}

/// The handlers that a configuration can name: the built-in ones, and those of a program that uses
/// inboxd as a library.
///
/// ```
/// use inboxd::handlers::{Event, Handled, Handler, HandlerError, Registry};
/// use inboxd::rusqlite::Transaction;
///
/// struct Counts;
///
/// impl Handler for Counts {
///     fn name(&self) -> &str {
///         "counts"
///     }
///     fn takes(&self, _event_type: &str) -> bool {
///         true
///     }
///     fn handle(&self, tx: &Transaction<'_>, _event: &Event<'_>) -> Result<Handled, HandlerError> {
///         tx.execute("UPDATE counter SET events = events + 1", [])?;
///         Ok(Handled::Applied)
///     }
/// }
///
/// let registry = Registry::new().with(Counts);
/// assert_eq!(registry.names().collect::<Vec<_>>(), ["billing", "counts", "money", "orders"]);
/// ```
#[derive(Clone)]
pub struct Registry {
    handlers: BTreeMap<String, Arc<dyn Handler>>,
}

impl Registry {
    /// The built-in handlers.
    pub fn new() -> Self {
        let named = built_in().map(|handler| (handler.name().to_owned(), handler));
        Self { handlers: BTreeMap::from(named) }
    }

    /// Adds a handler under its name; one of the same name is replaced.
    #[must_use]
    pub fn with(mut self, handler: impl Handler + 'static) -> Self {
        self.handlers.insert(handler.name().to_owned(), Arc::new(handler));
        self
    }

    /// The names that `handlers` in a configuration may list, beside `sql:DIR`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.handlers.keys().map(String::as_str)
    }

    /// What the rules of a configuration ask of each handler.
    pub fn facts(&self) -> Vec<HandlerFacts> {
        self.handlers.values().map(|handler| facts_of(handler.as_ref())).collect()
    }

    /// The handler of that name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<dyn Handler>> {
        self.handlers.get(name).cloned()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::store::open::{Home, own_tables};

    #[test]
    fn the_tables_of_the_built_in_handlers_are_those_that_an_applications_file_lacks() {
        let of = |home| own_tables(home).expect("schema.sql").into_iter().collect::<BTreeSet<_>>();
        let application = of(Home::Application { allow_wal: true });
        let lacking: BTreeSet<_> = of(Home::Own).difference(&application).cloned().collect();
        let handlers = built_in();
        let named = handlers.iter().flat_map(|handler| handler.tables());
        assert_eq!(named.map(|table| table.name.to_owned()).collect::<BTreeSet<_>>(), lacking);
    }
}
