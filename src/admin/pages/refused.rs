//! *Refused*: the latest requests that were refused, from memory: "the provider says 400, why".

use maud::{Markup, html};
use serde_json::Value;

use crate::admin::frame::{cell, choice, facts, or_dash, shown, table, time};
use crate::intake::refused::{LINES_KEPT, Line, latest};

use super::{Asked, Shown, gone};

pub(super) fn show(asked: Asked<'_>) -> Shown {
    let (endpoint, reason) = (asked.query.value("endpoint"), asked.query.value("reason"));
    let all = latest();
    let is_wanted = |line: &&Line| {
        endpoint.is_none_or(|name| line.endpoint.as_deref() == Some(name))
            && reason.is_none_or(|reason| line.reason == reason)
    };
    let mut reasons: Vec<&str> = all.iter().map(|line| line.reason).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let endpoints: Vec<&str> = asked.running.instance.endpoints.iter().map(String::as_str).collect();
    let rows: Vec<_> = all.iter().rev().filter(is_wanted).take(200).map(|line| row(&asked, line)).collect();
    let kept = kept(&asked);
    let content = html! {
        p { "The latest " (LINES_KEPT) " requests that were refused since the start, from memory: what strangers send is never written to a disk. " code { "inboxd verify" } " explains a delivery that you have a copy of." }
        form .filter method="get" action="/refused" role="search" aria-label="Filter refused requests" {
            (choice("Endpoint", "endpoint", &endpoints, endpoint))
            (choice("Reason", "reason", &reasons, reason))
            button { "Filter" }
        }
        @if rows.is_empty() { p .quiet { "No request was refused that matches." } }
        @else { (table("Refused requests, the latest first", &["When", "Answer", "Reason", "Endpoint", "Path", "Method", "From", "Bytes"], &rows)) }
        h2 { "Kept whole" }
        (kept)
    };
    Ok(asked.frame.around(content))
}

fn row(asked: &Asked<'_>, line: &Line) -> Vec<Markup> {
    vec![
        asked.frame.ago(line.at_ms),
        cell(line.status.to_string()),
        html! { (line.reason) div .quiet { (explained(line.reason)) } },
        cell(or_dash(line.endpoint.as_deref())),
        html! { code { (shown(&line.path)) } },
        cell(&line.method),
        cell(line.peer.map_or_else(|| "local".to_owned(), |peer| peer.to_string())),
        cell(line.body_bytes.to_string()),
    ]
}

/// What to look at first.
fn explained(reason: &str) -> &'static str {
    match reason {
        "signature_missing" => {
            "no signature came: is the hook set up to sign, and does a proxy drop headers?"
        }
        "signature_malformed" => "the signature is not in the provider's form: is it the right provider?",
        "signature_mismatch" => "another secret, or the body was changed on the way",
        "timestamp_outside_tolerance" => "a clock is wrong, or the delivery is an old one",
        "event_id_missing" => "the header with the event's id is missing: does a proxy drop it?",
        "scope_mismatch" => "of another mode or account than the endpoint takes",
        "not_found" => "no endpoint has this path",
        "unavailable" => "it could not be stored then; the provider sends it again",
        "handler_failed" => "the handler failed; the provider sends it again",
        "method_not_allowed" => "webhooks are sent with POST",
        "body_too_large" | "head_too_large" => {
            "larger than the limit: see [limits] and the endpoint's body_bytes_max"
        }
        _ => "",
    }
}

/// Whole deliveries, where the configuration asks for them.
fn kept(asked: &Asked<'_>) -> Markup {
    let kept = asked.running.app.refused();
    if !kept.is_on() {
        return html! { p .quiet { "To keep the latest refused deliveries whole and have them judged again, write " code { "keep_refused = 20" } " under " code { "[debug]" } " and start again." } };
    }
    let all = kept.all();
    let row = |number: u64, line: &Value| {
        let text = |name: &str| line[name].as_str().map_or_else(|| line[name].to_string(), str::to_owned);
        vec![
            html! { a href=(format!("/refused/{number}")) { (number) } },
            time(line["received_at_ms"].as_i64().unwrap_or_default()),
            cell(text("endpoint")),
            cell(text("reason")),
            cell(text("body_bytes")),
        ]
    };
    let rows: Vec<_> = all.iter().rev().map(|refused| row(refused.number, &refused.line())).collect();
    html! {
        @if rows.is_empty() { p .quiet { "None was refused since the start." } }
        @else { (table("Refused deliveries that are kept whole", &["Number", "Received", "Endpoint", "Reason", "Bytes"], &rows)) }
    }
}

pub(super) fn show_one(asked: Asked<'_>, number: &str) -> Shown {
    let missing = || gone("There is no such refused delivery, or it is kept no more.");
    let number: u64 = number.parse().map_err(|_| missing())?;
    let found = asked.running.app.refused().all().into_iter().find(|refused| refused.number == number);
    let refused = found.ok_or_else(missing)?;
    let verifier = asked.running.app.verifier_of(&refused.endpoint).ok_or_else(missing)?;
    let whole = refused.whole(verifier);
    let report = refused.report(verifier).map(|report| report.to_json());
    let text = |name: &str| whole[name].as_str().map_or_else(|| whole[name].to_string(), str::to_owned);
    let headers = whole["headers"].as_array().into_iter().flatten();
    let pair = |header: &Value| {
        let of = |at: usize| header[at].as_str().unwrap_or_default();
        vec![cell(of(0)), cell(of(1))]
    };
    let rows: Vec<_> = headers.map(pair).collect();
    let content = html! {
        (facts(&[
            ("Received", time(whole["received_at_ms"].as_i64().unwrap_or_default())),
            ("Endpoint", cell(text("endpoint"))),
            ("Reason", cell(text("reason"))),
            ("Path", html! { code { (shown(&text("path"))) } }),
            ("From", cell(text("peer"))),
        ]))
        h2 { "Judged again, as of when it came" }
        @match report {
            Some(report) => pre .wrap { (shown(&report)) },
            None => p .quiet { "Its body was larger than 1 MiB and is not kept." },
        }
        (table("Headers, without what may be a credential", &["Name", "Value"], &rows))
        h2 { "Body" }
        @match whole["body"].as_str() {
            Some(body) => pre .wrap { @for line in body.split('\n') { (shown(line)) "\n" } },
            None => p .quiet { (shown(whole["body_missing"].as_str().unwrap_or("it is no text"))) },
        }
    };
    Ok(asked.frame.around(content))
}
