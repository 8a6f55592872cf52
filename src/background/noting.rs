//! What the daemon notes of itself while it runs: how deliveries were answered, and that it was there.

use std::time::Duration;

use super::given_up;
use super::stop::Stop;
use crate::clock;
use crate::intake::deliveries::Answers;
use crate::store::meta;
use crate::store::minutes::{self, Counted};
use crate::store::writer::WriterHandle;

/// The pause between two notes of the answer counts.
const ANSWERS_EVERY: Duration = Duration::from_secs(5);

/// Rounds between two signs of life, and between two searches for failing events that their providers have stopped
/// sending.
const MINUTE_ROUNDS: u32 = 12;

/// Notes the time before this start without a daemon.
pub(super) fn note_outage(writer: &WriterHandle, last_sign_ms: Option<i64>, now_ms: i64) {
    let Some(from_ms) = last_sign_ms else { return };
    if let Err(error) = writer.run(move |tx| Ok(meta::note_outage(tx, from_ms, now_ms)?)) {
        log::warn!("could not note the outage before this start: {error}");
    }
}

/// Keeps what `status` shows: `2xx 4xx 5xx` since the start, also those of the last seconds before a stop; and once a
/// minute that the daemon runs.
pub(super) fn note_answers(
    writer: &WriterHandle,
    answers: &Answers,
    patience: &[(String, Duration)],
    stop: &Stop,
) {
    let (mut noted, mut uncounted) = (None, Vec::new());
    let mut is_running = true;
    for round in (0..MINUTE_ROUNDS).cycle() {
        if round == 0 || !is_running {
            note_alive(writer);
            note_minute(writer, &mut uncounted);
        }
        if round == 0 && is_running {
            ask_about_failures(writer, patience);
        }
        let counts = answers.counts();
        if noted != Some(counts) {
            let text = counts.map(|count| count.to_string()).join(" ");
            let now_ms = clock::now_ms();
            match writer.run(move |tx| Ok(meta::note(tx, meta::ANSWERS, &text, now_ms)?)) {
                Ok(()) => noted = Some(counts),
                Err(error) => log::debug!("could not note the answer counts yet: {error}"),
            }
        }
        if !is_running {
            return;
        }
        is_running = stop.pause(ANSWERS_EVERY);
    }
}

/// Adds what was counted since the last look to this minute. What cannot be written now waits in `uncounted`.
fn note_minute(writer: &WriterHandle, uncounted: &mut Vec<Counted>) {
    uncounted.extend(minutes::take());
    let (now_ms, all) = (clock::now_ms(), uncounted.clone());
    let written = writer.run(move |tx| {
        minutes::add(tx, minutes::minute_of(now_ms), &all)?;
        Ok(minutes::remove_old(tx, now_ms)?)
    });
    match written {
        Ok(_) => uncounted.clear(),
        Err(error) => log::debug!("could not write the counts of this minute yet: {error}"),
    }
}

fn note_alive(writer: &WriterHandle) {
    let now_ms = clock::now_ms();
    if let Err(error) = writer.run(move |tx| Ok(meta::note(tx, meta::ALIVE, "", now_ms)?)) {
        log::debug!("could not note yet that the daemon runs: {error}");
    }
}

fn ask_about_failures(writer: &WriterHandle, patience: &[(String, Duration)]) {
    match given_up::ask_about_failures(writer, patience, clock::now_ms()) {
        Ok(0) => {}
        Ok(count) => log::error!(
            "{count} events failed until their providers stopped sending them, and are not stored: inboxd reviews list"
        ),
        Err(error) => log::debug!("could not look for failing events yet: {error}"),
    }
}
