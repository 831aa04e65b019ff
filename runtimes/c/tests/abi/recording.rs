//! What a pool has recorded is a file that can be repeated, and that explains its waits.

use cmap::*;
use cmap_core::time::Instant;
use cmap_core::trace::{Limit, Question, Replay, Trace, explain};

use crate::pool::AbiPool;

const MILLISECOND: u64 = 1_000_000;

/// One caller keeps the only connection, and another one waits for it in vain.
fn incident() -> Vec<u8> {
    let pool = AbiPool::new("{\"maxPoolSize\": 1, \"waitQueueTimeoutMS\": 50}", 0).unwrap();
    pool.start_recording();
    pool.ready(MILLISECOND).unwrap();
    let (leaked, _) = pool.check_out(MILLISECOND, None, None);
    pool.note_holder(leaked, "nightly export");
    let connection = pool.drain().into_iter().find(|output| output.kind == CMAP_CONNECT).unwrap().connection;
    pool.established(2 * MILLISECOND, connection, 7).unwrap();
    pool.drain();
    let (waiting, _) = pool.check_out(3 * MILLISECOND, None, None);
    pool.note_holder(waiting, "web");
    pool.drain();
    pool.handle_timeout(53 * MILLISECOND).unwrap();
    let failed = pool.drain().into_iter().find(|output| output.kind == CMAP_FAIL).unwrap();
    assert_eq!((failed.check_out, failed.reason), (waiting, CMAP_FAILED_WAIT_QUEUE_TIMEOUT));
    pool.recording("a check-out failed").unwrap()
}

#[test]
fn a_recording_repeats_call_by_call_with_the_same_outputs() {
    let trace = Trace::read(&incident()).unwrap();

    let mut replay = Replay::new(&trace).unwrap();
    let mut calls = 0;
    while replay.step().unwrap().is_some() {
        calls += 1;
    }

    assert!(calls >= 5, "{calls}");
    assert!(trace.header.producer.starts_with("cmap-c "), "{:?}", trace.header);
    assert_eq!(trace.header.trigger, "a check-out failed");
    assert_eq!(trace.header.written_at, Instant::from_millis(53));
}

#[test]
fn the_explanation_of_a_failure_names_who_kept_the_connection() {
    let trace = Trace::read(&incident()).unwrap();

    let waits = explain(&trace, Question::Failures(9)).unwrap();

    assert_eq!(waits.len(), 1, "{waits:?}");
    assert_eq!(waits[0].holder.as_deref(), Some("web"));
    let limit = &waits[0].intervals[0].limit;
    assert!(matches!(limit, Limit::MaxPoolSize { .. }), "{limit:?}");
    assert!(format!("{limit:?}").contains("nightly export"), "{limit:?}");
}
