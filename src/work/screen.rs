//! Whether an event reaches the handlers: its defects, its scope, and whether anything here takes it. Decided before
//! the database is touched, by the same rule for new deliveries and for events that are put back to work.

use crate::config::{ACCOUNT_REQUIRED, OnScopeMismatch};
use crate::verify::VerifiedEvent;
use crate::work::endpoint::Endpoint;

/// What an endpoint does with an event, decided before the database is touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// The handlers run, and the forwards are queued.
    Handle,
    /// Stored as ignored.
    Ignore,
    /// Stored for a person, with the reason.
    Quarantine(String),
    /// Refused: of another mode or account than the endpoint's.
    ScopeMismatch,
}

/// Decides what the endpoint does with the event.
pub fn disposition(endpoint: &Endpoint, event: &VerifiedEvent) -> Disposition {
    let hindrance = hindrance(endpoint, event.defect(), event.account(), event.livemode());
    match hindrance {
        None => {}
        Some(Hindrance::Question(reason)) => return Disposition::Quarantine(reason),
        Some(Hindrance::Foreign(OnScopeMismatch::Refuse)) => return Disposition::ScopeMismatch,
        Some(Hindrance::Foreign(OnScopeMismatch::Ignore)) => return Disposition::Ignore,
    }
    let event_type = event.event_type().unwrap_or_default();
    if !endpoint.config.forward.is_empty() || has_handler_for(endpoint, event_type) {
        Disposition::Handle
    } else {
        Disposition::Ignore
    }
}

/// The same for a stored event that is put back to work: the configuration may have changed since it was stored, and
/// whoever requeued it did not see its content.
pub fn disposition_again(
    endpoint: &Endpoint,
    defect: Option<&str>,
    account: Option<&str>,
    livemode: Option<bool>,
) -> Disposition {
    match hindrance(endpoint, defect, account, livemode) {
        None => Disposition::Handle,
        Some(Hindrance::Question(reason)) => Disposition::Quarantine(reason),
        Some(Hindrance::Foreign(OnScopeMismatch::Refuse)) => {
            Disposition::Quarantine("the event is of another mode or account than the endpoint".to_owned())
        }
        Some(Hindrance::Foreign(OnScopeMismatch::Ignore)) => Disposition::Ignore,
    }
}

pub(crate) fn has_handler_for(endpoint: &Endpoint, event_type: &str) -> bool {
    endpoint.handlers.iter().any(|handler| handler.takes(event_type))
}

/// Why an event is not for the handlers.
#[derive(Debug)]
enum Hindrance {
    /// A person has to look at it.
    Question(String),
    /// It is of another mode or account than the endpoint takes.
    Foreign(OnScopeMismatch),
}

/// Why an event must not reach the handlers: a defect of its content if anything here reads it, else its scope. An
/// event without an account belongs to the endpoint's own, unless one is required; an event without a mode goes to a
/// person where the endpoint fixes one.
fn hindrance(
    endpoint: &Endpoint,
    defect: Option<&str>,
    account: Option<&str>,
    livemode: Option<bool>,
) -> Option<Hindrance> {
    let config = &endpoint.config;
    let foreign = Some(Hindrance::Foreign(config.on_scope_mismatch));
    if let Some(defect) = defect.filter(|_| reads_content(endpoint)) {
        return Some(Hindrance::Question(defect.to_owned()));
    }
    match (config.account.as_deref(), account) {
        (Some(ACCOUNT_REQUIRED), None) => {
            return Some(Hindrance::Question("the event names no account, and one is required".to_owned()));
        }
        (Some(ACCOUNT_REQUIRED), Some(_)) | (None, _) | (Some(_), None) => {}
        (Some(wanted), Some(account)) if wanted == account => {}
        (Some(_), Some(_)) => return foreign,
    }
    match (config.livemode, livemode) {
        (Some(wanted), Some(livemode)) if wanted != livemode => foreign,
        (Some(_), None) => {
            Some(Hindrance::Question("the event does not say whether it is live or a test".to_owned()))
        }
        _ => None,
    }
}

/// Whether anything here reads the event's content. If it is only forwarded, the application reads it.
fn reads_content(endpoint: &Endpoint) -> bool {
    let config = &endpoint.config;
    let checks_scope = config.livemode.is_some() || config.account.is_some();
    !endpoint.handlers.is_empty() || config.forward.is_empty() || checks_scope
}

/// Decides what the endpoint does with the events of one delivery; `None` refuses it, because all of them
/// are of another mode or account. In a mixed batch the foreign ones are stored and ignored.
pub fn dispositions(
    endpoint: &Endpoint,
    events: Vec<VerifiedEvent>,
) -> Option<Vec<(VerifiedEvent, Disposition)>> {
    let decide = |event| (disposition(endpoint, &event), event);
    let mut decided: Vec<_> = events.into_iter().map(decide).map(|(what, event)| (event, what)).collect();
    if !decided.is_empty() && decided.iter().all(|(_, what)| *what == Disposition::ScopeMismatch) {
        return None;
    }
    for (_, what) in &mut decided {
        if *what == Disposition::ScopeMismatch {
            *what = Disposition::Ignore;
        }
    }
    Some(decided)
}
