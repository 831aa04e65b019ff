//! The engine `core`: the pool machine alone, without an adapter, in virtual time.
//!
//! The engine `sim` carries out the same files with the whole client. This one has no adapter that could hide a fault of the
//! machine. It checks the invariants of every pool after every move, and it alone carries out the tests in which a client
//! notices at once that a server hung up.
//!
//! Nothing here sleeps. A test's threads are virtual, too: each is a queue of operations and what it waits for (FMT-3), the
//! main thread among them. As long as some thread can go on, time stands still; when all wait, it jumps to the next moment
//! at which anything happens. Where two things could happen at the same moment, the seed decides.

mod aftermath;
mod network;
mod setup;
mod simulation;
#[cfg(test)]
mod tests;
mod thread;

use std::collections::BTreeMap;
use std::sync::Arc;

use cmap_core::pool::{CheckOutError, CheckOutId, Handle, IdentityId, Pool};
use cmap_core::random::Random;
use cmap_core::time::Instant;
use cmap_core::topology::{WarmUpError, WarmUpId};

use self::simulation::{News, Simulation};
use self::thread::{Thread, Wait};
use super::{Chance, Engine, Run, event};
use crate::suites::cmap::format::{Case, Deployment, WarmUpFailure};

/// The pool machine itself, driven by a simulation.
pub struct CoreEngine;

impl Engine for CoreEngine {
    fn name(&self) -> &'static str {
        "core"
    }

    fn chance(&self) -> Chance {
        Chance::Seeded
    }

    fn deployment(&self) -> Deployment {
        Deployment::VIRTUAL
    }

    fn unsupported(&self, _: &Case) -> Option<String> {
        None
    }

    fn run(&self, case: &Case, seed: u64) -> Run {
        match setup::simulation(case, seed) {
            Ok(simulation) => Session::new(case, simulation, seed).run(),
            Err(error) => Run { violations: vec![error.to_string()], ..Run::default() },
        }
    }
}

/// The name of the thread that carries out what no other is told to; no test gives it to one of its own.
const MAIN: &str = "\0main";

/// The most moves of a test; more means that it runs in circles.
const MOST_MOVES: u32 = 10_000_000;

/// The most connections with which every move is checked. With more, only one move in a thousand is: a check looks at each
/// connection.
const CHECKED_EVERY_MOVE: u32 = 100;

/// One test while it runs.
struct Session<'a> {
    case: &'a Case,
    simulation: Simulation,
    random: Random,
    threads: BTreeMap<&'a str, Thread<'a>>,
    /// The connections that operations can name.
    labels: BTreeMap<&'a str, (CheckOutId, Handle)>,
    /// The connections that are checked out, and their check-outs.
    held: BTreeMap<Handle, CheckOutId>,
    /// The users of the pool beside that of its options.
    users: BTreeMap<&'a str, IdentityId>,
    /// How check-outs ended whose thread has not gone on yet.
    ended: BTreeMap<CheckOutId, Result<Handle, Arc<CheckOutError>>>,
    /// How warm-ups ended whose thread has not gone on yet.
    warmed: BTreeMap<WarmUpId, Option<WarmUpFailure>>,
    /// How often each type of event happened.
    occurred: BTreeMap<&'static str, u32>,
    run: Run,
}

impl<'a> Session<'a> {
    fn new(case: &'a Case, mut simulation: Simulation, seed: u64) -> Self {
        let users = setup::add_users(case, &mut simulation);
        let mut session = Self {
            case,
            simulation,
            // Another sequence than the simulation's own, so that one does not echo the other.
            random: Random::new(!seed),
            threads: BTreeMap::from([(MAIN, Thread::new(case.operations.iter()))]),
            labels: BTreeMap::new(),
            held: BTreeMap::new(),
            users,
            ended: BTreeMap::new(),
            warmed: BTreeMap::new(),
            occurred: BTreeMap::new(),
            run: Run::default(),
        };
        session.read_news();
        session
    }

    fn run(mut self) -> Run {
        for move_number in 0..MOST_MOVES {
            // What the main thread has given to others is begun before it ends.
            if self.threads.get(MAIN).is_none_or(Thread::is_done) && self.next_at_work().is_none() {
                return self.finish();
            }
            if !self.make_a_move() {
                self.violation("every thread waits, and nothing will happen any more");
                return self.finish();
            }
            let is_small = self.simulation.stats().counts.total() <= CHECKED_EVERY_MOVE;
            if is_small || move_number.is_multiple_of(1000) {
                let checked = self.simulation.pools().try_for_each(Pool::check_invariants);
                if let Err(broken) = checked {
                    self.violation(broken);
                    return self.finish();
                }
            }
        }
        self.violation("the test does not come to an end");
        self.finish()
    }

    /// Ends the main thread's part and looks at what is left.
    fn finish(mut self) -> Run {
        self.run.error = self.threads.get_mut(MAIN).and_then(|main| main.error.take());
        self.settle();
        self.run
    }

    /// Lets one thread go on, or one thing happen, or time pass. Returns false if none of that is possible.
    fn make_a_move(&mut self) -> bool {
        if let Some(name) = self.next_at_work() {
            self.carry_out_next(name);
            return true;
        }
        let now = self.simulation.now();
        let is_due = self.simulation.next_at().is_some_and(|at| at <= now);
        let wakeable: Vec<&str> =
            self.threads.iter().filter(|(_, thread)| self.may_go_on(thread)).map(|(&name, _)| name).collect();
        let others_first = is_due && self.random.up_to(1) == 0;
        if !wakeable.is_empty() && !others_first {
            let chosen = self.choose(&wakeable);
            self.go_on(chosen);
            return true;
        }
        if self.simulation.step() {
            self.read_news();
            return true;
        }
        match self.next_moment() {
            Some(next) => self.simulation.wait_until(next),
            None => return false,
        }
        true
    }

    /// A thread that has something to do and waits for nothing; the main thread last, so that what it gives to others is
    /// begun before it goes on.
    fn next_at_work(&mut self) -> Option<&'a str> {
        let at_work = |(&name, thread): (&&'a str, &Thread<'a>)| thread.is_at_work().then_some(name);
        let others: Vec<&'a str> = self.threads.iter().filter_map(at_work).filter(|&name| name != MAIN).collect();
        if others.is_empty() {
            self.threads.get(MAIN).filter(|main| main.is_at_work()).map(|_| MAIN)
        } else {
            Some(self.choose(&others))
        }
    }

    fn choose(&mut self, names: &[&'a str]) -> &'a str {
        let last = names.len().saturating_sub(1) as u64;
        let index = usize::try_from(self.random.up_to(last)).unwrap_or_default();
        names.get(index).copied().unwrap_or(MAIN)
    }

    /// The next moment at which a thread or the simulation has something to do.
    fn next_moment(&self) -> Option<Instant> {
        let threads = self.threads.values().filter_map(|thread| thread.wait.as_ref()?.until());
        threads.chain(self.simulation.next_at()).min()
    }

    fn may_go_on(&self, thread: &Thread<'a>) -> bool {
        let now = self.simulation.now();
        thread.wait.as_ref().is_some_and(|wait| match wait {
            Wait::Time { until } => *until <= now,
            Wait::Event { event, count, until, .. } => self.occurrences(*event) >= *count || *until <= now,
            Wait::Thread { target } => self.threads.get(target).is_none_or(Thread::is_done),
            Wait::WarmUp { id, .. } => self.warmed.contains_key(id),
            Wait::CheckOut { id, .. } => self.ended.contains_key(id),
        })
    }

    fn occurrences(&self, event_type: crate::suites::cmap::format::EventType) -> u32 {
        self.occurred.get(event_type.name()).copied().unwrap_or_default()
    }

    /// Notes what the pool's callers learn.
    fn read_news(&mut self) {
        while let Some(news) = self.simulation.poll_news() {
            match news {
                News::Event(event) => {
                    *self.occurred.entry(event.name()).or_default() += 1;
                    let address = self.simulation.pool().address().to_string();
                    let name_of = |id| setup::service_name(&self.case.server, id);
                    self.run.events.push(event::to_json(&event, &address, self.case, name_of));
                }
                News::CheckedOut(check_out, result) => {
                    self.held.extend(result.as_ref().ok().map(|&connection| (connection, check_out)));
                    self.ended.insert(check_out, result);
                }
                News::WarmedUp(warm_up, result) => {
                    let failure = result.err().and_then(|error| match error {
                        WarmUpError::Pool(error) => WarmUpFailure::of(&error.kind),
                        WarmUpError::Selection(_) | _ => None,
                    });
                    self.warmed.insert(warm_up, failure);
                }
            }
        }
    }

    fn violation(&mut self, what: impl ToString) {
        self.run.violations.push(what.to_string());
    }
}
