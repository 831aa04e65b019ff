//! A replica set behind relays in virtual time. `CMAP_SIM_SEEDS` says under how many seeds (20 without it) or which,
//! `CMAP_SIM_SEED` names a single one.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test is told by its name and fails by panicking"
)]

mod scenario;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use cmap_core::random::Random;
use cmap_relay::Member;
use cmap_sim::bson::{Document, rawdoc};
use cmap_sim::{Servers, Sim, SimRuntime, campaign};

use crate::scenario::{CUT, FAULTS, Fault, OUTAGE, Stage, inward, play};

const TASKS: usize = 8;

/// How many faults a run has.
const ROUNDS: usize = 6;

struct Virtual<'a> {
    sim: &'a Sim,
    set: Servers,
}

impl Stage for Virtual<'_> {
    type Runtime = SimRuntime;

    fn members(&self) -> Vec<Member> {
        let member = |host: &String| Member { name: host.parse().unwrap(), connect: host.parse().unwrap() };
        self.set.members().iter().map(|(_, host)| member(host)).collect()
    }

    fn relay_runtime(&self, member: usize) -> SimRuntime {
        self.set.runtime(self.set.members()[member].0).unwrap()
    }

    fn application(&self) -> (&'static str, SocketAddr) {
        ("application", SocketAddr::new(self.sim.runtime().ip(), 27443))
    }

    async fn happen(&self, fault: Fault) {
        let Some(primary) = self.set.primary() else { return };
        match fault {
            Fault::StepDown => self.set.step_down(10 * OUTAGE),
            Fault::Kill => {
                self.set.kill(primary);
                self.sim.sleep(OUTAGE).await;
                self.set.restart(primary);
            }
            Fault::Cut => {
                let members = self.set.members();
                members.iter().for_each(|(member, _)| self.set.partition(*member));
                self.sim.sleep(CUT).await;
                members.iter().for_each(|(member, _)| self.set.heal(*member));
            }
            Fault::RelaysKilled | Fault::RelayReplaced | Fault::ApplicationRestarts => {}
        }
    }
}

#[test]
fn every_write_through_relays_ends_well_and_is_there_once() {
    campaign(20, |seed| {
        let sim = Sim::new(seed);
        let stage = Virtual { set: sim.replica_set("rs0", &["a.example", "b.example", "c.example"]), sim: &sim };
        let mut random = Random::new(seed);
        let last = FAULTS.len() as u64 - 1;
        let faults: Vec<_> = (0..ROUNDS).map(|_| FAULTS[usize::try_from(random.up_to(last)).unwrap()]).collect();

        let played = sim.run(play(&stage, sim.runtime().clone(), TASKS, &faults));

        assert_eq!(played.errors, [""; 0], "{faults:?}");
        for (task, acknowledged) in (0_i64..).zip(&played.acknowledged) {
            assert_eq!(written(&stage.set, task), *acknowledged, "the documents of task {task}, {faults:?}");
        }
        assert_eq!(inward::CONNECTED.load(Ordering::SeqCst), 0, "the application has dialled");
    });
}

/// How many documents of a task the primary has.
fn written(set: &Servers, task: i64) -> i64 {
    let count = rawdoc! { "count": "log", "query": { "task": task } };
    let reply = set.run_command(set.primary().unwrap(), "db", count).unwrap();
    i64::from(Document::try_from(&*reply).unwrap().get_i32("n").unwrap())
}
