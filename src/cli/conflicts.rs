//! Other bodies that came under an event's id: shows them, and puts them to work.

use crate::admin::acts;
use crate::clock;
use crate::config::Instance;
use crate::store::Connection;
use crate::store::inbox::Event;
use crate::store::inbox::conflicts::{self, Conflict};
use crate::store::reviews::{self, Kind};
use serde_json::{Value, json};

use super::store::{self, read_failed, time};
use super::{Exit, Failure, put};

/// The other bodies of an event, each with its number from 1.
pub(crate) fn of(conn: &Connection, endpoint: &str, event_id: &str) -> Result<Vec<Conflict>, Failure> {
    conflicts::of_event(conn, endpoint, event_id).map_err(read_failed)
}

/// As `--json` prints them.
pub(crate) fn to_json(conflicts: &[Conflict]) -> Value {
    let one = |(number, conflict): (usize, &Conflict)| {
        json!({
            "number": number,
            "event_type": conflict.event_type,
            "object_id": conflict.object_id,
            "payload_bytes": conflict.payload_bytes,
            "received_at_ms": conflict.received_at_ms,
            "put_to_work_as": conflict.worked_as,
        })
    };
    (1..).zip(conflicts).map(one).collect()
}

/// As people read them, a line for each.
pub(crate) fn lines(event_id: &str, conflicts: &[Conflict]) -> impl Iterator<Item = String> {
    let line = move |(number, conflict): (usize, &Conflict)| {
        let what = match (&conflict.worked_as, conflict.payload_bytes) {
            (Some(key), _) => format!("put to work as {key}"),
            (None, None) => "purged".to_owned(),
            (None, Some(bytes)) => {
                format!("{bytes} bytes; `inboxd events body {event_id} --conflict {number}` prints it")
            }
        };
        format!("other body {number} {}: {what}", time(conflict.received_at_ms))
    };
    (1..).zip(conflicts).map(line)
}

/// The bytes of one of them, by its number.
pub(crate) fn body(conn: &Connection, event: &Event, number: usize) -> Result<Vec<u8>, Failure> {
    let found = of(conn, &event.endpoint, &event.event_id)?;
    let Some(conflict) = number.checked_sub(1).and_then(|at| found.get(at)) else {
        let message = format!(
            "{} other bodies came under {}; `inboxd events show` lists them",
            found.len(),
            event.event_id
        );
        return Err(Failure::new(Exit::NotFound, message));
    };
    conflicts::payload_of(conn, conflict.id).map_err(read_failed)?.ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("the other body {number} of {} was purged", event.event_id))
    })
}

/// `retry --conflict`: makes events of the bodies that were kept with a review, and closes it.
pub(crate) fn retry(conn: &Connection, instance: &Instance, review_id: i64) -> Result<(), Failure> {
    let review = reviews::find(conn, review_id).map_err(read_failed)?;
    let review = review.filter(|review| review.kind == Kind::BodyConflict.as_str()).ok_or_else(|| {
        let message = format!(
            "there is no review {review_id} about another body; `inboxd reviews list` shows what there is"
        );
        Failure::new(Exit::NotFound, message)
    })?;
    let lines = put_to_work(conn, instance, &review.endpoint, &review.event_id)?;
    if lines.is_empty() {
        let message = format!(
            "no other body of {} is left to put to work: it was done before, or purged ([retention] payload)",
            review.event_id
        );
        return Err(Failure::new(Exit::Refused, message));
    }
    lines.iter().try_for_each(|line| put(line))
}

/// Makes events of the other bodies of an event, in one transaction, and closes the open review about them. Returns a
/// line for each.
pub(crate) fn put_to_work(
    conn: &Connection,
    instance: &Instance,
    endpoint: &str,
    event_id: &str,
) -> Result<Vec<String>, Failure> {
    let (by, now_ms) = (store::by(), clock::now_ms());
    store::change(conn, |tx| acts::put_conflicts_to_work(tx, instance, (endpoint, event_id), &by, now_ms))
}
