//! Traces of incidents that were recorded with each version of the behaviour (`traces/<version>`): those of this version
//! replay bit for bit and are explained rightly, those of others are refused by their version or replay until a call that is
//! named.
//!
//! A trace that no longer replays means that outputs have changed: raise `BEHAVIOUR` in `core/src/trace`, and record the incidents
//! anew (`runtimes/sim/tests/incidents.rs`).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops where something is not as it should be")]

use std::fs;
use std::path::{Path, PathBuf};

use cmap_core::trace::{BEHAVIOUR, Header, History, Question, Replay, Trace, TraceErrorKind, Wait, explain};

/// The incidents, and the limit that bound the wait in question longest.
const INCIDENTS: [(&str, Question, &str); 12] = [
    ("callers-give-up", Question::Slowest(1), "maxPoolSize"),
    ("dns", Question::Failures(1), "server selection"),
    ("failover", Question::Slowest(1), "server selection"),
    ("leak", Question::Failures(1), "maxPoolSize"),
    ("login", Question::Failures(1), "establishment"),
    ("one-bad-connection", Question::Slowest(1), "server selection"),
    ("partition", Question::Failures(1), "server selection"),
    ("pool-too-small", Question::Slowest(1), "maxPoolSize"),
    ("rotation", Question::Slowest(1), "maxConnecting"),
    ("slow-server", Question::Slowest(1), "maxPoolSize"),
    ("starved-executor", Question::Slowest(1), "late wake-up"),
    ("storm", Question::Slowest(1), "maxConnecting"),
];

fn directory(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join(version.to_string())
}

fn read(version: u32, name: &str) -> Vec<u8> {
    fs::read(directory(version).join(name).with_extension("trace")).unwrap()
}

fn cause(wait: &Wait) -> &'static str {
    wait.cause().unwrap().limit.name()
}

#[test]
fn traces_of_this_version_replay_bit_for_bit() {
    for (name, ..) in INCIDENTS {
        let trace = Trace::read(&read(BEHAVIOUR, name)).unwrap();
        let mut replay = Replay::new(&trace).unwrap();
        let mut calls = 0;
        while replay.step().unwrap_or_else(|divergence| panic!("{name}: {divergence}")).is_some() {
            calls += 1;
        }
        assert!(calls > 0, "{name}");
    }
}

#[test]
fn traces_of_this_version_are_explained_by_their_causes() {
    for (name, question, limit) in INCIDENTS {
        let trace = Trace::read(&read(BEHAVIOUR, name)).unwrap();

        let wait = explain(&trace, question).unwrap().remove(0);

        assert_eq!(cause(&wait), limit, "{name}: {wait:?}");
        assert_eq!(
            wait.intervals.iter().map(|interval| interval.duration()).sum::<std::time::Duration>(),
            wait.duration()
        );
    }
}

#[test]
fn a_sparse_recorder_names_the_same_causes() {
    for (name, question, limit) in INCIDENTS {
        let trace = Trace::read(&read(BEHAVIOUR, name)).unwrap();
        let history = History::of(&trace, 1 << 20).unwrap();
        let sparse = Trace::read(&history.encode(&Header::default(), &trace.texts)).unwrap();

        let (replayed, wait) =
            (explain(&trace, question).unwrap().remove(0), explain(&sparse, question).unwrap().remove(0));

        assert_eq!(cause(&wait), limit, "{name}: {wait:?}");
        assert_eq!((wait.call, wait.duration()), (replayed.call, replayed.duration()), "{name}");
        assert_eq!(
            wait.intervals.iter().map(|interval| interval.duration()).sum::<std::time::Duration>(),
            wait.duration()
        );
    }
}

#[test]
fn every_version_has_its_traces() {
    for version in 1..=BEHAVIOUR {
        for (name, ..) in INCIDENTS {
            match Trace::read(&read(version, name)) {
                Ok(trace) => assert_eq!(trace.header.behaviour, version, "{name}"),
                Err(error) => assert_eq!(error.kind, TraceErrorKind::OlderBehaviour(version), "{name}"),
            }
        }
    }
}
