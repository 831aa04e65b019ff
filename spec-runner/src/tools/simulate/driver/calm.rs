//! The end of a run: all is well, nobody uses the client any more, and it is closed.

use std::time::Duration;

use cmap_core::topology::Input;

use super::super::machine::Machine;
use super::super::oracle::{Broken, law};
use super::super::step::{Establishment, Heard, Step};
use super::Driver;

/// A client that keeps its driver busy for so many rounds of answers, and one more for each caller who waits, without a moment in which all
/// are still, makes no progress. Each warm-up may need a round for each connection.
const ROUNDS_AT_ONCE: usize = 100;

/// When all is well, everybody is answered within this time: longer than any pause that a pool makes by itself.
const CALM: Duration = Duration::from_secs(5);

/// How long nobody uses it.
const REST: Duration = Duration::from_secs(2);

impl<M: Machine> Driver<M> {
    /// The faults stop, callers return what they have, and servers answer: everybody who waits gets an answer soon. Then
    /// the client closes, and nothing is left over.
    pub(in super::super) fn calm_down(&mut self, election: u64) -> Result<(), Broken> {
        let end = self.now + CALM;
        self.give_up_warm_ups()?;
        let most = ROUNDS_AT_ONCE + self.oracle.waiting();
        let mut rounds = 0;
        loop {
            rounds += 1;
            let left = || format!("{} wait at {:?}", self.oracle.waiting(), self.now);
            law("when all is well, a client comes to rest", rounds <= most, left)?;
            self.answer_all(election)?;
            if self.oracle.waiting() == 0 && self.oracle.warm_ups() == 0 {
                break;
            }
            let is_busy = !self.pending.is_empty() || !self.checking.is_empty() || !self.in_use.is_empty();
            if is_busy {
                continue;
            }
            rounds = 0;
            if !self.handle_timeout_by(end)? {
                let left = format!("{} and {} warm-ups at {:?}", self.oracle.waiting(), self.warm_ups.len(), self.now);
                law("when all is well, everybody who waits is answered soon", false, || left)?;
            }
        }
        self.rest()?;
        self.oracle.closing();
        self.call(Input::Close)?;
        while !self.in_use.is_empty() {
            self.step(Step::CheckIn { nth: 0, is_usable: true })?;
        }
        while !self.pending.is_empty() {
            self.step(Step::Establish { nth: 0, end: Establishment::Done })?;
        }
        while !self.checking.is_empty() {
            self.step(Step::Check { nth: 0, is_alive: true })?;
        }
        while !self.refreshing.is_empty() {
            self.step(Step::Refresh { nth: 0, is_alive: true })?;
        }
        self.look_inside()?;
        self.oracle.after_close()
    }

    /// Nobody uses the client for a while.
    fn rest(&mut self) -> Result<(), Broken> {
        if !self.has_rest {
            return Ok(());
        }
        self.oracle.rest_began();
        let end = self.now + REST;
        loop {
            self.answer_connections()?;
            // What an answer begins at once waits for the next timeout: so nothing goes on for ever here.
            if !self.handle_timeout_by(end)? {
                break;
            }
        }
        self.answer_connections()?;
        self.oracle.judge_rest(REST)
    }

    /// One answer to everything that there is to answer.
    fn answer_all(&mut self, election: u64) -> Result<(), Broken> {
        for member in 0..self.members.len() {
            let primary_of = (self.deployment.is_replica_set() && member == 0).then_some(election);
            self.step(Step::Heard { member, finding: Heard::Answer { primary_of, round_trip_millis: 1 } })?;
        }
        self.answer_connections()
    }

    fn answer_connections(&mut self) -> Result<(), Broken> {
        for _ in 0..self.pending.len() {
            self.step(Step::Establish { nth: 0, end: Establishment::Done })?;
        }
        for _ in 0..self.checking.len() {
            self.step(Step::Check { nth: 0, is_alive: true })?;
        }
        for _ in 0..self.refreshing.len() {
            self.step(Step::Refresh { nth: 0, is_alive: true })?;
        }
        for _ in 0..self.in_use.len() {
            self.step(Step::CheckIn { nth: 0, is_usable: true })?;
        }
        Ok(())
    }
}
