//! Traces of incidents (`traces/<behaviour>`) replay bit for bit and are explained rightly.
//!
//! A trace that does not replay means that outputs have changed: raise `BEHAVIOUR` in `core/src/trace`, and record the incidents
//! anew (`traces/README.md`).

use std::fs;
use std::path::Path;

use cmap_core::trace::{BEHAVIOUR, Header, History, Question, Replay, Trace, Wait, explain};

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

fn read(name: &str) -> Trace {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join(BEHAVIOUR.to_string());
    Trace::read(&fs::read(directory.join(name).with_extension("trace")).unwrap()).unwrap()
}

fn cause(wait: &Wait) -> &'static str {
    wait.cause().unwrap().limit.name()
}

#[test]
fn traces_replay_bit_for_bit() {
    for (name, ..) in INCIDENTS {
        let trace = read(name);
        let mut replay = Replay::new(&trace).unwrap();
        let mut calls = 0;
        while replay.step().unwrap_or_else(|divergence| panic!("{name}: {divergence}")).is_some() {
            calls += 1;
        }
        assert!(calls > 0, "{name}");
    }
}

#[test]
fn traces_are_explained_by_their_causes() {
    for (name, question, limit) in INCIDENTS {
        let trace = read(name);

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
        let trace = read(name);
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
