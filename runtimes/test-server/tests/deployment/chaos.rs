//! Sets to which everything happens, in an order of chance: what must hold whatever it is.

use core::time::Duration;
use std::collections::BTreeSet;

use bson::rawdoc;
use cmap_core::random::Random;
use cmap_core::wire::CommandReply;
use cmap_test_server::MemberRole;

use super::network::{Client, Network, insert, member, set};

const SEEDS: u64 = 300;
const STEPS: usize = 120;

/// A set under test, and what its clients were promised.
struct Chaos {
    network: Network,
    random: Random,
    next: i32,
    /// Writes that wait for a majority.
    waiting: Vec<(Client, i32)>,
    /// Writes that a majority has.
    promised: BTreeSet<i32>,
}

#[test]
fn what_a_majority_has_acknowledged_is_never_lost_and_members_agree_in_the_end() {
    for seed in 0..SEEDS {
        let mut chaos = Chaos::new(seed);
        for _ in 0..STEPS {
            chaos.step();
            chaos.check_primaries(seed);
        }
        chaos.check_end(seed);
    }
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let members = 3 + 2 * i32::try_from(random.up_to(2)).unwrap();
        let has_arbiter = random.up_to(3) == 0;
        let role = |id: i32| if has_arbiter && id == members - 1 { MemberRole::Arbiter } else { member(id).role };
        let network = Network::new(set((0..members).map(|id| member(id).with_role(role(id)))));
        Self { network, random, next: 0, waiting: Vec::new(), promised: BTreeSet::new() }
    }

    fn step(&mut self) {
        let victim = i32::try_from(self.random.up_to(self.network.deployment.members().count() as u64 - 1)).unwrap();
        match self.random.up_to(9) {
            0..=3 => self.write(),
            4 => self.network.kill(victim),
            5 | 6 => self.network.restart(victim),
            7 => {
                let lag = Duration::from_millis(10 * self.random.up_to(20));
                self.network.set_lag(victim, lag);
            }
            8 => self.order(victim),
            _ => {
                let time = Duration::from_millis(self.random.up_to(700));
                self.network.pass(time);
            }
        }
        self.collect();
    }

    /// A write to the primary; every other one waits for a majority.
    fn write(&mut self) {
        let Some(primary) = self.network.primary() else { return };
        let client = self.network.connect(primary);
        self.next += 1;
        if self.next % 2 == 0 {
            self.network.start(client, "db", &insert(self.next));
        } else {
            let documents: bson::RawArrayBuf = [rawdoc! { "_id": self.next }].into_iter().collect();
            let concern = rawdoc! { "w": "majority" };
            let insert = rawdoc! { "insert": "c", "documents": documents, "writeConcern": concern };
            self.network.start(client, "db", &insert);
            self.waiting.push((client, self.next));
        }
    }

    /// Asks a member to step down or up. It may refuse.
    fn order(&mut self, member: i32) {
        let client = self.network.connect(member);
        let force = self.random.up_to(1) == 0;
        let command = match self.random.up_to(1) {
            0 => rawdoc! { "replSetStepDown": 1, "force": force },
            _ => rawdoc! { "replSetStepUp": 1 },
        };
        self.network.start(client, "admin", &command);
    }

    fn collect(&mut self) {
        for (client, id) in std::mem::take(&mut self.waiting) {
            match self.network.finish(client) {
                Some(reply) => {
                    let is_done = CommandReply::read(&reply).ok && reply.get("writeConcernError").unwrap().is_none();
                    self.promised.extend(is_done.then_some(id));
                }
                None => self.waiting.push((client, id)),
            }
        }
    }

    fn check_primaries(&mut self, seed: u64) {
        let up: Vec<_> = self.network.deployment.members().map(|(id, _)| id).collect();
        let up: Vec<_> = up.into_iter().filter(|id| self.network.deployment.is_up(*id)).map(|id| id.get()).collect();
        let writable = |id: &i32| self.network.hello(*id).get_bool("isWritablePrimary").unwrap();
        let primaries: Vec<_> = up.into_iter().filter(writable).collect();
        assert!(primaries.len() <= 1, "seed {seed}: {primaries:?}");
        assert_eq!(primaries.first().copied(), self.network.primary(), "seed {seed}");
    }

    fn check_end(&mut self, seed: u64) {
        let members: Vec<_> = self.network.deployment.members().map(|(id, _)| id.get()).collect();
        for member in &members {
            self.network.restart(*member);
            self.network.set_lag(*member, Duration::ZERO);
        }
        self.network.pass(Duration::from_secs(10));
        self.collect();
        assert!(self.network.primary().is_some(), "seed {seed}");
        assert!(self.waiting.iter().all(|(client, _)| self.network.has_hung_up_on(*client)), "seed {seed}");
        let bearing: Vec<_> = members
            .into_iter()
            .filter(|id| !self.network.hello(*id).get_bool("arbiterOnly").unwrap_or_default())
            .collect();
        let found: Vec<_> = bearing.into_iter().map(|id| self.ids(id)).collect();
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}: {found:?}");
        let lost: Vec<_> = self.promised.difference(&found[0]).collect();
        assert!(lost.is_empty(), "seed {seed}: {lost:?}");
    }

    fn ids(&mut self, member: i32) -> BTreeSet<i32> {
        let client = self.network.connect(member);
        let find = rawdoc! { "find": "c", "batchSize": 1000, "$readPreference": { "mode": "nearest" } };
        let reply = self.network.run(client, "db", &find);
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch.into_iter().map(|it| it.unwrap().as_document().unwrap().get_i32("_id").unwrap()).collect()
    }
}
