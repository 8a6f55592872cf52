//! An event's content, from a delivery whose signature was just verified or from a stored row.

use crate::signature::{self, Envelope};
use crate::store::inbox::queue::Claimed;
use crate::verify::VerifiedEvent;

/// An event as the work on it needs it. The body's JSON is not a part: who has parsed the body hands it in.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// The preset's name, or `custom`.
    pub provider: &'a str,
    /// The key in the inbox.
    pub event_id: &'a str,
    /// e.g. `invoice.paid`
    pub event_type: Option<&'a str>,
    /// The business object it is about.
    pub object_id: Option<&'a str>,
    /// The provider's account.
    pub account: Option<&'a str>,
    /// Live or test.
    pub livemode: Option<bool>,
    /// The delivery's query string without `?`.
    pub query: Option<&'a str>,
    /// JSON of the kept headers.
    pub headers: &'a str,
    /// The body's media type.
    pub content_type: Option<&'a str>,
    /// The exact bytes.
    pub payload: &'a [u8],
    /// The body's text around the bytes in a batch, which is added again when they are forwarded.
    pub envelope: Option<&'a Envelope>,
    /// A test delivery with a constant id: never business.
    pub is_test_send: bool,
}

impl<'a> Content<'a> {
    /// Of an event that has just been verified. `key` is its id, except where several events share one.
    pub fn of_verified(event: &'a VerifiedEvent, key: &'a str) -> Self {
        Self {
            provider: event.provider(),
            event_id: key,
            event_type: event.event_type(),
            object_id: event.object_id(),
            account: event.account(),
            livemode: event.livemode(),
            query: event.query(),
            headers: event.kept_headers(),
            content_type: event.content_type(),
            payload: event.body(),
            envelope: event.envelope(),
            is_test_send: event.is_test_send(),
        }
    }

    /// Of a stored event; the media type is one of its kept headers.
    pub fn of_row(row: &'a Claimed, content_type: Option<&'a str>) -> Self {
        Self {
            provider: &row.provider,
            event_id: &row.event_id,
            event_type: row.event_type.as_deref(),
            object_id: row.object_id.as_deref(),
            account: row.account.as_deref(),
            livemode: row.livemode,
            query: row.query.as_deref(),
            headers: &row.headers,
            content_type,
            payload: &row.payload,
            envelope: row.envelope.as_ref(),
            is_test_send: signature::is_test_send(&row.event_id, row.object_id.as_deref()),
        }
    }
}
