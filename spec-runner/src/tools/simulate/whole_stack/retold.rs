//! The trace of a client, with another reason for which it was written.

use cmap_core::topology::Answer;
use cmap_core::trace::{Note, Recorded, RecorderOptions, Replay, Trace};

/// Room for any run that is worth reading.
const TRACE_BYTES: usize = 64 << 20;

/// A copy of a trace that names `trigger`: the calls are made again, and recorded. `None` if they do not repeat.
pub(super) fn retold(trace: &[u8], trigger: String) -> Option<Vec<u8>> {
    let trace = Trace::read(trace).ok()?;
    let mut replay = Replay::new(&trace)?;
    let mut copy = Recorded::from(replay.machine().clone());
    let mut options = RecorderOptions::default();
    options.bytes = TRACE_BYTES;
    copy.start_recording(options);
    while let Some(step) = replay.step().ok()? {
        let answer = copy.call(step.at, step.input.clone(), Some(()));
        for _ in &step.outputs {
            // The replay has compared it.
            let _ = copy.poll_output();
        }
        for note in &step.notes {
            match note {
                Note::Holder(text) => {
                    if let Answer::CheckOut(check_out, _) = &answer {
                        copy.note_holder(*check_out, *text);
                    }
                }
                Note::Taken(check_out, at) => copy.note_taken(*at, *check_out),
                // Whatever a later schema adds stays out.
                _ => {}
            }
        }
    }
    let mut header = trace.header.clone();
    header.trigger = trigger;
    copy.recording().map(|contents| contents.with_texts(trace.texts.clone()).encode(&header))
}
