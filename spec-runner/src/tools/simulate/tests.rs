//! The oracle sees bugs: each machine here has one, and a law breaks that names it, in a script of few steps.

use std::time::Duration;

use cmap_core::monitor::Finding;
use cmap_core::options::{ReadMode, ReadPreference, Reuse};
use cmap_core::pool::{Action, Condition, Counts, Handle, IdentityId, Output as PoolOutput};
use cmap_core::server::ServerId;
use cmap_core::time::Instant;
use cmap_core::topology::{Answer, Criteria, Input, Output, ServerSelector, Topology};
use cmap_core::trace::{Replay, Trace};

use super::finding::trace;
use super::machine::Machine;
use super::shrink::{play, shrink, sound};
use super::simulate;
use super::step::ClientCase;
use super::twins::Twins;
use super::world::{Weather, World};

/// Enough seeds to meet each bug.
const SEEDS: u64 = 2000;
const STEPS: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// A check-in never reaches the pool, once in a while: a connection leaks.
    LosesCheckIns,
    /// A caller is never told that it has failed.
    ForgetsFailures,
    /// A smaller maxPoolSize has no effect.
    IgnoresResize,
    /// A connection in bad condition counts as usable.
    TrustsErroredConnections,
    /// Timeouts are not handled.
    LetsTimePass,
    /// A socket is handed to its driver, who closes it, a second time.
    ClosesTwice,
    /// Every connection has the credential of the options, whichever identity asks for it.
    MixesIdentities,
    /// A new credential retires no connection.
    KeepsOutdatedConnections,
    /// Nobody is told that DNS is to be asked.
    NeverAsksDns,
    /// What DNS says has no effect.
    IgnoresDns,
    /// A connection that came back unusable makes it panic.
    Panics,
    /// An error says nothing of its server.
    ForgivesFailures,
    /// A write goes to any server.
    WritesAnywhere,
    /// All servers seem to be equally far away.
    ForgetsDistances,
    /// Timeouts come a second too early.
    HurriesOn,
    /// A suspension has no effect.
    SleepsOn,
    /// A connection that was looked at is to be looked at again.
    NeverRests,
}

struct Wrong {
    machine: Topology<()>,
    bug: Bug,
    calls: u32,
    again: Option<Output<()>>,
}

impl Machine for Wrong {
    fn call(&mut self, now: Instant, input: Input) -> Answer<()> {
        self.calls += 1;
        match (self.bug, input) {
            (Bug::LosesCheckIns, Input::CheckIn(..)) if self.calls.is_multiple_of(7) => Answer::CheckedIn(None),
            (Bug::IgnoresResize, Input::Resize(limits)) => {
                let sizes = limits.sizes.max_pool_size(0);
                self.machine.call(now, Input::Resize(limits.sizes(sizes)), Some(()))
            }
            (Bug::ForgivesFailures, Input::OperationFailed(..)) => Answer::Done,
            (Bug::WritesAnywhere, Input::CheckOut(_, request)) => {
                let selector = ServerSelector::from(ReadPreference::new(ReadMode::Nearest));
                let criteria = Criteria { selector, ..Criteria::default() };
                self.machine.call(now, Input::CheckOut(Box::new(criteria), request), Some(()))
            }
            (Bug::ForgetsDistances, Input::Check(server, Finding::Description(mut description))) => {
                description.round_trip_time = None;
                self.machine.call(now, Input::Check(server, Finding::Description(description)), Some(()))
            }
            (Bug::HurriesOn, Input::Timeout) => {
                self.machine.call(now + Duration::from_secs(1), Input::Timeout, Some(()))
            }
            (Bug::SleepsOn, Input::Resume) => Answer::Done,
            (Bug::TrustsErroredConnections, Input::CheckIn(check_out, connection, _)) => {
                self.machine.call(now, Input::CheckIn(check_out, connection, Condition::Usable), Some(()))
            }
            (Bug::LetsTimePass, Input::Timeout) | (Bug::IgnoresDns, Input::Srv(Ok(_))) => Answer::Done,
            (Bug::KeepsOutdatedConnections, Input::RenewCredential(_)) => Answer::Done,
            (Bug::Panics, Input::CheckIn(_, connection, Condition::Errored)) => panic!("{connection:?} came back"),
            (Bug::NeverRests, Input::Checked(connection, true)) => {
                let output = PoolOutput::Action(Action::Check { connection });
                self.again = self.machine.pool_of(connection).map(|server| Output::Pool { server, output });
                Answer::Done
            }
            (Bug::MixesIdentities, Input::CheckOut(criteria, mut request)) => {
                request.identity = None;
                self.machine.call(now, Input::CheckOut(criteria, request), Some(()))
            }
            (_, input) => self.machine.call(now, input, Some(())),
        }
    }

    fn poll_output(&mut self) -> Option<Output<()>> {
        let output = self.again.take().or_else(|| self.machine.poll_output())?;
        match (&output, self.bug) {
            (Output::Pool { output: PoolOutput::Action(Action::Fail { .. }), .. }, Bug::ForgetsFailures) => {
                self.poll_output()
            }
            (Output::ResolveSrv { .. }, Bug::NeverAsksDns) => self.poll_output(),
            (Output::Pool { output: PoolOutput::Action(Action::Close { .. }), .. }, Bug::ClosesTwice)
                if self.calls.is_multiple_of(3) =>
            {
                self.calls += 1;
                self.again = Some(output.clone());
                Some(output)
            }
            _ => Some(output),
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        Machine::next_timeout(&self.machine)
    }

    fn counts(&self) -> Counts {
        self.machine.counts()
    }

    fn contradiction(&self) -> Option<String> {
        self.machine.contradiction()
    }

    fn identity_of(&self, connection: Handle) -> Option<IdentityId> {
        self.machine.identity_of(connection)
    }

    fn member_of(&self, pool: ServerId) -> ServerId {
        self.machine.member_of(pool)
    }

    fn outdated(&self) -> u32 {
        self.machine.outdated()
    }

    fn holds_back(&self, is_meant: impl Fn(ServerId) -> bool) -> bool {
        self.machine.holds_back(is_meant)
    }
}

/// The law that the first failing seed breaks, and how many steps are enough for that.
fn found(bug: Bug) -> (&'static str, usize) {
    found_in(&|case: &ClientCase| Some(Wrong { machine: sound(case)?, bug, calls: 0, again: None }))
}

/// The same of the machines that `make` makes.
fn found_in<M: Machine>(make: &dyn Fn(&ClientCase) -> Option<M>) -> (&'static str, usize) {
    let failed = (0..SEEDS).find_map(|seed| {
        let done = simulate(world(seed), STEPS, make);
        done.result.err().map(|_| done.script)
    });
    let script = shrink(failed.expect("no seed finds it"), make);
    let (_, played) = play(&script, make(&script.client).expect("it has a machine"));
    (played.expect_err("a law still breaks").law, script.steps.len())
}

fn world(seed: u64) -> World {
    World::new(seed, None, Weather::Drawn)
}

#[test]
fn no_seed_breaks_a_law() {
    for seed in 0..300 {
        let done = simulate(world(seed), STEPS, sound);

        assert_eq!(done.result, Ok(()), "seed {seed}:\n{}", done.script);
    }
}

#[test]
fn in_calm_worlds_every_check_out_gets_a_connection() {
    for seed in 0..50 {
        let done = simulate(World::new(seed, None, Weather::Calm), STEPS, sound);

        assert_eq!(done.result, Ok(()), "seed {seed}:\n{}", done.script);
        assert!(done.check_outs > 100, "seed {seed}: {} check-outs", done.check_outs);
        assert!(done.marks.missed().contains(&"a check-out failed in a pool"), "seed {seed}:\n{}", done.script);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let steps = |seed| simulate(world(seed), STEPS, sound).script.steps;

    assert_eq!(steps(7), steps(7));
    assert_ne!(steps(7), steps(8));
}

#[test]
fn a_run_repeats_from_its_trace() {
    let script = simulate(world(7), STEPS, sound).script;

    let trace = Trace::read(&trace(&script, "a test").expect("it is recorded")).expect("it can be read");

    let mut replay = Replay::new(&trace).expect("it has a beginning");
    let mut calls = 0;
    while replay.step().expect("it repeats").is_some() {
        calls += 1;
    }
    assert!(calls > STEPS, "{calls}");
    assert_eq!(replay.machine().connections(), 0);
}

#[test]
fn a_lost_check_in_is_found() {
    let (law, steps) = found(Bug::LosesCheckIns);

    assert!(
        ["the client's numbers are what was seen", "nobody waits while a connection is available"].contains(&law),
        "{law}"
    );
    assert!(steps <= 10, "{steps}");
}

#[test]
fn a_caller_that_is_told_nothing_is_found() {
    let (law, steps) = found(Bug::ForgetsFailures);

    assert_eq!(law, "the client's numbers are what was seen");
    assert!(steps <= 10, "{steps}");
}

#[test]
fn a_limit_that_has_no_effect_is_found() {
    let (law, steps) = found(Bug::IgnoresResize);

    assert!(
        ["a pool has at most maxPoolSize connections", "a pool with too many connections keeps none available"]
            .contains(&law),
        "{law}"
    );
    assert!(steps <= 20, "{steps}");
}

#[test]
fn a_connection_that_failed_but_counts_as_usable_is_found() {
    let (law, steps) = found(Bug::TrustsErroredConnections);

    assert_eq!(law, "a broken connection is never delivered");
    assert!(steps <= 10, "{steps}");
}

#[test]
fn a_timeout_that_is_not_handled_is_found() {
    let (law, steps) = found(Bug::LetsTimePass);

    assert!(["nobody waits beyond a deadline", "a timeout that was handled is over"].contains(&law), "{law}");
    assert!(steps <= 10, "{steps}");
}

#[test]
fn a_socket_that_is_closed_twice_is_found() {
    let (law, steps) = found(Bug::ClosesTwice);

    assert_eq!(law, "a socket is closed once");
    assert!(steps <= 10, "{steps}");
}

#[test]
fn a_connection_of_another_identity_is_found() {
    let (law, steps) = found(Bug::MixesIdentities);

    assert_eq!(law, "a connection belongs to the identity that asked");
    assert!(steps <= 10, "{steps}");
}

#[test]
fn a_credential_that_is_replaced_without_effect_is_found() {
    let (law, steps) = found(Bug::KeepsOutdatedConnections);

    assert_eq!(law, "the client's number of outdated connections is what was seen");
    assert!(steps <= 10, "{steps}");
}

#[test]
fn a_seed_list_that_is_never_looked_up_is_found() {
    let (law, steps) = found(Bug::NeverAsksDns);

    assert_eq!(law, "a seed list is looked up when its time has come");
    assert!(steps <= 10, "{steps}");
}

#[test]
fn an_answer_of_dns_without_effect_is_found() {
    let (law, steps) = found(Bug::IgnoresDns);

    assert!(
        ["the servers are those that DNS has named last", "a seed list is looked up when its time has come"]
            .contains(&law),
        "{law}"
    );
    assert!(steps <= 10, "{steps}");
}

#[test]
fn a_panic_is_found_and_shrunk() {
    let (law, steps) = found(Bug::Panics);

    assert_eq!(law, "nothing panics");
    assert!(steps <= 4, "{steps}");
}

#[test]
fn a_machine_that_never_rests_is_found() {
    let make = |case: &ClientCase| Some(Wrong { machine: sound(case)?, bug: Bug::NeverRests, calls: 0, again: None });

    // Not shrunk: each script that breaks this law goes on for a hundred rounds.
    let broken = (0..SEEDS).find_map(|seed| simulate(world(seed), STEPS, make).result.err());

    assert_eq!(broken.map(|broken| broken.law), Some("when all is well, a client comes to rest"));
}

#[test]
fn a_machine_that_does_otherwise_while_nobody_observes_it_is_found() {
    let make = |case: &ClientCase| {
        let mut other = case.clone();
        other.pool.reuse = Some(Reuse::Fifo);
        Some(Twins::of(case, sound(case)?, sound(&other)?))
    };

    let (law, steps) = found_in(&make);

    assert_eq!(law, "a client does the same whether anybody observes it");
    assert!(steps <= 10, "{steps}");
}

#[test]
fn a_failure_that_clears_nothing_is_found() {
    let (law, steps) = found(Bug::ForgivesFailures);

    assert!(
        [
            "what blames a server clears its pools",
            "what speaks against a service clears its part of the pool",
            // One that is no primary any more is still written to.
            "a check-out begins at a server that suits it",
        ]
        .contains(&law),
        "{law}"
    );
    assert!(steps <= 10, "{steps}");
}

#[test]
fn a_write_at_a_secondary_is_found() {
    let (law, steps) = found(Bug::WritesAnywhere);

    assert_eq!(law, "a check-out begins at a server that suits it");
    assert!(steps <= 10, "{steps}");
}

#[test]
fn a_server_that_is_too_far_away_is_found() {
    let (law, steps) = found(Bug::ForgetsDistances);

    assert_eq!(law, "a check-out begins at one of the nearest servers");
    assert!(steps <= 10, "{steps}");
}

#[test]
fn a_check_out_that_fails_too_early_is_found() {
    let (law, steps) = found(Bug::HurriesOn);

    assert!(
        [
            "a check-out fails for a reason that is there",
            "a selection fails for a reason that is there",
            "when all is well, everybody who waits is answered soon",
        ]
        .contains(&law),
        "{law}"
    );
    assert!(steps <= 10, "{steps}");
}

#[test]
fn a_suspension_without_effect_is_found() {
    let (law, steps) = found(Bug::SleepsOn);

    assert_eq!(law, "after a suspension a connection is looked at before it is delivered");
    assert!(steps <= 15, "{steps}");
}
