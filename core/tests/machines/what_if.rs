//! Counterfactuals: with nothing changed they are what was recorded, and known remedies help where they should.

use std::collections::BTreeMap;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::monitor::Finding;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{Action, CheckOutId, CheckOutRequest, Condition, Handle, Output as PoolOutput};
use cmap_core::server::{ServerDescription, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Answer, CheckOut, Criteria, Input, Output, Topology, TopologyOptions};
use cmap_core::trace::{
    Change, Changes, Estimate, Header, Question, Recorded, RecorderOptions, Trace, WhatIfError, explain, what_if,
};
use proptest::prelude::*;

/// One caller: when it comes, how long it keeps its connection (`None`: for ever), and when it gives up.
#[derive(Clone, Copy, Debug)]
struct Caller {
    at: u64,
    holds: Option<u64>,
    patience: Option<u64>,
    deadline: Option<u64>,
}

/// What a history is made of; times in milliseconds.
#[derive(Clone, Debug)]
struct History {
    max_pool_size: u32,
    callers: Vec<Caller>,
    /// How long the n-th establishment takes, and whether it succeeds; the last one is that of all that follow.
    establishments: Vec<(u64, bool)>,
}

#[derive(Clone, Copy)]
enum Event {
    Find,
    Call(usize),
    GiveUp(usize),
    CheckIn(CheckOutId, Handle),
    Established(Handle, bool),
}

/// A client of one router in virtual time, driven as a runtime drives it.
struct Simulation<'a> {
    history: &'a History,
    topology: Recorded<()>,
    now: Instant,
    queue: BTreeMap<(Instant, usize), Event>,
    number: usize,
    establishments: usize,
    waiting: BTreeMap<CheckOut, usize>,
}

impl History {
    fn record(&self) -> Trace {
        let options = TopologyOptions::of_seeds(vec![ServerAddress::tcp("db", 27017)]);
        let mut pool_options = PoolOptions::default();
        pool_options.max_pool_size = Some(self.max_pool_size);
        let mut topology = Recorded::from(Topology::new(options, pool_options).unwrap());
        topology.start_recording(RecorderOptions::default());
        let (queue, waiting) = (BTreeMap::new(), BTreeMap::new());
        let now = Instant::from_millis(1);
        let mut simulation = Simulation { history: self, topology, now, queue, number: 0, establishments: 0, waiting };
        simulation.run();
        let header = Header::default();
        Trace::read(&simulation.topology.recording().unwrap().encode(&header)).unwrap()
    }

    fn what_if(&self, changes: &str) -> Estimate {
        what_if(&self.record(), &changes.parse().unwrap()).unwrap()
    }
}

impl Simulation<'_> {
    fn run(&mut self) {
        self.call(Input::Open);
        self.drain();
        self.later(1, Event::Find);
        for (at, caller) in self.history.callers.iter().enumerate() {
            self.later(2 + caller.at, Event::Call(at));
        }
        let end = Instant::from_millis(20_000);
        loop {
            let timeout = self.topology.poll_timeout().map(|timeout| timeout.at).filter(|&at| at < end);
            let next = self.queue.first_key_value().map(|(key, _)| key.0);
            match (next, timeout) {
                (next, Some(at)) if next.is_none_or(|next| at < next) => {
                    self.now = self.now.max(at);
                    self.call(Input::Timeout);
                }
                (Some(at), _) if at < end => {
                    self.now = at;
                    let (_, event) = self.queue.pop_first().unwrap();
                    self.happen(event);
                }
                _ => break,
            }
            self.drain();
        }
    }

    fn call(&mut self, input: Input) -> Answer<()> {
        self.topology.call(self.now, input, Some(()))
    }

    fn later(&mut self, millis: u64, event: Event) {
        self.number += 1;
        self.queue.insert((self.now + Duration::from_millis(millis), self.number), event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Find => {
                let address = ServerAddress::tcp("db", 27017);
                let mut description = ServerDescription::new(address.into(), ServerType::Mongos);
                description.wire_versions = Some((0, 21));
                description.round_trip_time = Some(Duration::from_micros(300));
                let id = self.topology.servers().next().unwrap().0;
                self.call(Input::Check(id, Finding::Description(Box::new(description)))).done().unwrap();
            }
            Event::Call(at) => {
                let caller = self.history.callers[at];
                let mut request = CheckOutRequest::default();
                request.deadline = caller.deadline.map(|millis| self.now + Duration::from_millis(millis));
                let (check_out, delivery) = self.topology.check_out(self.now, Criteria::WRITABLE, request);
                self.waiting.insert(check_out, at);
                if let Some(delivery) = delivery {
                    self.deliver(delivery.check_out, delivery.connection);
                } else if let Some(patience) = caller.patience {
                    self.later(patience, Event::GiveUp(at));
                }
            }
            Event::GiveUp(caller) => {
                let found = self.waiting.iter().find(|(_, at)| **at == caller).map(|(name, _)| *name);
                if let Some(check_out) = found {
                    self.waiting.remove(&check_out);
                    self.call(Input::CancelCheckOut(check_out));
                }
            }
            Event::CheckIn(check_out, connection) => {
                let checked_in =
                    self.topology.check_in(self.now, check_out, connection, (), Condition::Usable).unwrap();
                if let Some(delivery) = checked_in.delivery() {
                    self.deliver(delivery.check_out, delivery.connection);
                }
            }
            Event::Established(connection, true) => {
                self.call(Input::Established(connection)).done().unwrap();
            }
            Event::Established(connection, false) => {
                let error = EstablishError::new(Phase::Connect, Fault::Network, "refused");
                self.call(Input::EstablishFailed(connection, error));
            }
        }
    }

    fn deliver(&mut self, check_out: CheckOutId, connection: Handle) {
        let caller = self.waiting.remove(&CheckOut::Started(check_out)).unwrap();
        if let Some(holds) = self.history.callers[caller].holds {
            self.later(holds, Event::CheckIn(check_out, connection));
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.topology.poll_output() {
            match output {
                Output::Pool { output: PoolOutput::Action(action), .. } => self.act(action),
                Output::Selected { selection, check_out } => {
                    self.rename(CheckOut::Selecting(selection), CheckOut::Started(check_out));
                }
                Output::Reselecting { check_out, selection } => {
                    self.rename(CheckOut::Started(check_out), CheckOut::Selecting(selection));
                }
                Output::SelectionFailed { selection, .. } => drop(self.waiting.remove(&CheckOut::Selecting(selection))),
                _ => {}
            }
        }
    }

    fn rename(&mut self, from: CheckOut, to: CheckOut) {
        if let Some(caller) = self.waiting.remove(&from) {
            self.waiting.insert(to, caller);
        }
    }

    fn act(&mut self, action: Action<()>) {
        match action {
            Action::Connect { connection } => {
                let last = self.history.establishments.len() - 1;
                let (millis, succeeds) = self.history.establishments[self.establishments.min(last)];
                self.establishments += 1;
                self.later(millis, Event::Established(connection, succeeds));
            }
            Action::Check { connection } => self.call(Input::Checked(connection, true)).done().unwrap(),
            Action::Deliver { check_out, connection, .. } => self.deliver(check_out, connection),
            Action::Fail { check_out, .. } => drop(self.waiting.remove(&CheckOut::Started(check_out))),
            Action::Interrupt { connection } => self.later(0, Event::Established(connection, false)),
            Action::Close { .. } | Action::Refresh { .. } | Action::WarmedUp { .. } => {}
        }
    }
}

/// Callers that come together and keep their connections for as long.
fn crowd(callers: usize, max_pool_size: u32, holds: u64, establishing: u64) -> History {
    let caller = Caller { at: 0, holds: Some(holds), patience: None, deadline: None };
    History { max_pool_size, callers: vec![caller; callers], establishments: vec![(establishing, true)] }
}

fn waited(estimate: &Estimate) -> (Duration, Duration) {
    let (recorded, estimated) = estimate.totals();
    (recorded.waited, estimated.waited)
}

fn history() -> impl Strategy<Value = History> {
    let millis = |most: u64| 0..most;
    let caller = (
        millis(2_000),
        proptest::option::weighted(0.95, millis(300)),
        proptest::option::of(millis(400)),
        proptest::option::of(1..400_u64),
    );
    let callers = proptest::collection::vec(
        caller.prop_map(|(at, holds, patience, deadline)| Caller { at, holds, patience, deadline }),
        1..60,
    );
    let establishments = proptest::collection::vec((millis(200), proptest::bool::weighted(0.9)), 1..20);
    (1..6_u32, callers, establishments).prop_map(|(max_pool_size, callers, mut establishments)| {
        establishments.push((5, true));
        History { max_pool_size, callers, establishments }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Also where establishments fail, callers give up or run out of time, and connections leak.
    #[test]
    fn with_nothing_changed_every_check_out_ends_when_it_did(history in history()) {
        let estimate = what_if(&history.record(), &Changes::default()).unwrap();

        prop_assert_eq!(estimate.recorded.len(), history.callers.len());
        prop_assert_eq!(estimate.estimated, estimate.recorded);
    }

    /// The outcomes of the recording are the waits that it explains.
    #[test]
    fn what_was_recorded_is_what_is_explained(history in history()) {
        let trace = history.record();
        let estimate = what_if(&trace, &Changes::default()).unwrap();

        for wait in explain(&trace, Question::Slowest(usize::MAX)).unwrap() {
            let (recorded, _) = estimate.of(&wait).unwrap();
            prop_assert_eq!(recorded.duration(), wait.duration());
        }
    }
}

#[test]
fn a_pool_that_is_too_small_is_helped_by_a_larger_one_only() {
    let history = crowd(8, 1, 100, 5);

    let (recorded, larger) = waited(&history.what_if("maxPoolSize=8,maxConnecting=8"));
    let (_, more_at_once) = waited(&history.what_if("maxConnecting=8"));

    assert!(recorded > Duration::from_secs(2) && larger < Duration::from_millis(100), "{recorded:?}, {larger:?}");
    assert_eq!(more_at_once, recorded);
}

#[test]
fn a_storm_of_establishing_is_helped_by_more_at_once() {
    let history = crowd(20, 100, 1_000, 100);

    let (recorded, estimated) = waited(&history.what_if("maxConnecting=20"));

    // Two at a time: 100 ms for the first two, 1 s for the last two. All at once: 100 ms each.
    assert_eq!((recorded, estimated), (Duration::from_secs(11), Duration::from_secs(2)));
}

#[test]
fn nothing_helps_those_who_wait_for_a_server() {
    let mut history = crowd(3, 1, 5, 5);
    history.establishments = vec![(30, false)];
    history.callers.iter_mut().for_each(|caller| caller.deadline = Some(500));

    let (recorded, estimated) = history.what_if("maxPoolSize=10,maxConnecting=10").totals();

    assert_eq!((recorded.failed, estimated.failed), (3, 3));
}

#[test]
fn a_shorter_limit_turns_waits_into_failures() {
    let history = crowd(8, 1, 100, 5);

    let (recorded, estimated) = history.what_if("waitQueueTimeoutMS=250").totals();

    assert_eq!((recorded.failed, estimated.failed), (0, 5));
}

#[test]
fn limits_that_contradict_each_other_are_refused() {
    let changes = Changes(vec![Change::MinPoolSize(4)]);

    let error = what_if(&crowd(2, 1, 5, 5).record(), &changes).unwrap_err();

    assert!(matches!(error, WhatIfError::Options(_)), "{error}");
}

#[test]
fn what_is_no_change_is_refused_with_what_to_give() {
    for text in ["", "maxConnecting", "maxConnecting=0", "maxPoolSize=many", "maxpoolsize=4"] {
        let error = text.parse::<Changes>().unwrap_err().to_string();
        assert!(error.contains("is no change: give maxPoolSize"), "{error}");
    }
}
