//! What a sparse recorder keeps: hours of it, explained and not to be repeated.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::file::{Tag, Writer};
use super::item::{Header, Note, Trace};
use super::occurrence::{Occurrence, around};
use super::replay::{Divergence, Replay};
use super::wait::Wait;
use super::{BEHAVIOUR, Detail, Recorded, RecorderOptions};
use crate::time::Instant;
use crate::topology::Answer;

/// The check-outs that waited for a millisecond or longer, each explained, and how many others there were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct History {
    /// Since when it was recorded.
    pub from: Instant,
    /// The last call.
    pub to: Instant,
    /// The check-outs that waited, in the order in which they ended, by the numbers of their callers' texts. Those under way come
    /// last. When memory was short, the shortest of the oldest were dropped.
    pub waits: Vec<Wait<u32>>,
    /// How many were dropped, or not kept because a thousand others waited.
    pub unknown: u64,
    /// What happened, in its order: the last things.
    pub occurrences: Vec<Occurrence>,
    /// What was counted, in its order; nothing for times without a call. When memory was short, older ones were joined in pairs.
    pub periods: Vec<Period>,
    /// The names of the servers that were known.
    pub hosts: Vec<String>,
}

/// What was counted in a second, or in a longer time long ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Period {
    /// When the period began.
    pub from: Instant,
    /// When the period ended.
    pub to: Instant,
    /// Check-outs that got their connections at once.
    pub served: u32,
    /// Check-outs that began to wait.
    pub waited: u32,
    /// Check-outs that failed.
    pub failed: u32,
    /// Check-outs whose callers gave up.
    pub cancelled: u32,
    /// Connections that came back.
    pub checked_in: u32,
    /// Connections that were established.
    pub established: u32,
    /// Connections whose establishment failed.
    pub not_established: u32,
    /// The longest wait of those that ended in it and were followed.
    pub longest_wait: Duration,
    /// Connections in use at its end.
    pub in_use: u32,
    /// Connections available at its end.
    pub available: u32,
    /// Check-outs that waited in pools at its end.
    pub waiting: u32,
}

impl History {
    /// What a sparse recorder would have kept of the calls of a trace, in so many bytes.
    ///
    /// # Errors
    /// The replay differs from the recording.
    pub fn of(trace: &Trace, bytes: usize) -> Result<Self, Box<Divergence>> {
        if let Some(history) = &trace.history {
            return Ok(history.clone());
        }
        let Some(mut replay) = Replay::new(trace) else { return Ok(Self::default()) };
        let mut recorded = Recorded::from(replay.machine().clone());
        recorded.start_recording(RecorderOptions { detail: Detail::Sparse, bytes });
        while let Some(step) = replay.step()? {
            let answer = recorded.call(step.at, step.input.clone(), Some(()));
            for note in &step.notes {
                if let (Note::Holder(text), Answer::CheckOut(check_out, _)) = (note, &answer) {
                    recorded.note_holder(*check_out, *text);
                }
            }
            for _ in &step.outputs {
                // It is the same one.
                let _ = recorded.poll_output();
            }
            for note in step.notes {
                if let Note::Taken(check_out, at) = note {
                    recorded.note_taken(*at, *check_out);
                }
            }
        }
        Ok(recorded.history().unwrap_or_default())
    }

    /// The file. Its behaviour is that of this version, whatever `header` says; `texts` are those of callers, by their numbers.
    pub fn encode(&self, header: &Header, texts: &[(u32, String)]) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.section(Tag::Header, &Header { behaviour: BEHAVIOUR, ..header.clone() });
        writer.section(Tag::Texts, &texts);
        writer.section(Tag::History, self);
        writer.section(Tag::End, &0_u64);
        writer.bytes
    }

    /// All waits, in the order of their beginnings, with what happened meanwhile and with the texts of callers.
    /// Those under way last until it was written.
    pub(super) fn explained<'a>(&self, written_at: Instant, text: impl Fn(u32) -> Option<&'a str>) -> Vec<Wait> {
        let named = |wait: &Wait<u32>| {
            let wait = wait.clone().lasting_until(written_at);
            let occurrences = around(&self.occurrences, wait.began, wait.ended);
            Wait { occurrences, ..wait.named(&|number| text(number).map(ToString::to_string)) }
        };
        let mut waits: Vec<Wait> = self.waits.iter().map(named).collect();
        waits.sort_by_key(|wait| wait.began);
        waits
    }
}

impl Period {
    /// One that begins.
    pub(super) fn beginning(from: Instant, to: Instant) -> Self {
        Self { from, to, ..Self::default() }
    }

    /// Whether nothing was counted in it.
    pub(super) fn is_empty(&self) -> bool {
        let Self { served, waited, failed, cancelled, checked_in, established, not_established, .. } = *self;
        [served, waited, failed, cancelled, checked_in, established, not_established] == [0; 7]
    }

    /// It and the one that follows it, as one.
    pub(super) fn joined(self, next: Self) -> Self {
        Self {
            from: self.from,
            to: next.to,
            served: self.served.saturating_add(next.served),
            waited: self.waited.saturating_add(next.waited),
            failed: self.failed.saturating_add(next.failed),
            cancelled: self.cancelled.saturating_add(next.cancelled),
            checked_in: self.checked_in.saturating_add(next.checked_in),
            established: self.established.saturating_add(next.established),
            not_established: self.not_established.saturating_add(next.not_established),
            longest_wait: self.longest_wait.max(next.longest_wait),
            in_use: next.in_use,
            available: next.available,
            waiting: next.waiting,
        }
    }
}
