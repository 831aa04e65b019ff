//! The seed list in DNS: routers that join and leave while the client runs (DNS-12 to DNS-19).

use std::time::Duration;

use cmap_core::options::ClientOptions;
use cmap_core::pool::Cause;
use cmap_core::topology::Input;
use cmap_core::topology::seed_list::{PolledSeedList, SeedList, SrvRecord};

use super::super::machine::Machine;
use super::super::oracle::Broken;
use super::super::step::{ClientCase, Deployment, Lookup};
use super::Driver;

/// How long the records may be kept that the seeds came from.
pub(in super::super) const FIRST_TIME_TO_LIVE: Duration = Duration::from_secs(60);

/// The seed list of a client whose servers stand in DNS.
pub(super) fn polled(case: &ClientCase) -> Option<PolledSeedList> {
    if case.deployment != Deployment::SeedList {
        return None;
    }
    let (mut options, _) = ClientOptions::parse("mongodb+srv://cluster.example.com/").ok()?;
    options.srv.max_hosts = case.srv_max_hosts.map(Into::into);
    Some(PolledSeedList::new(SeedList::of(&options)?, FIRST_TIME_TO_LIVE))
}

impl<M: Machine> Driver<M> {
    /// DNS answers, perhaps though nobody has asked.
    pub(super) fn end_lookup(&mut self, lookup: Lookup) -> Result<(), Broken> {
        if self.deployment != Deployment::SeedList {
            return Ok(());
        }
        self.oracle.looked_up(self.now, lookup);
        self.call(Input::Srv(self.answer_of_dns(lookup)))?;
        self.oracle.judge_servers()
    }

    fn answer_of_dns(&self, lookup: Lookup) -> Result<Vec<SrvRecord>, Cause> {
        let Lookup::Found { routers, has_stranger, time_to_live } = lookup else {
            return Err(Cause::new("the name server does not answer"));
        };
        let listed = (0..).zip(self.deployment.hosts()).filter(|(member, _)| routers >> member & 1 == 1);
        let stranger = has_stranger.then_some("router-1.example.org");
        let hosts = stranger.into_iter().chain(listed.map(|(_, host)| *host));
        Ok(hosts.map(|host| SrvRecord::new(host, 27017, time_to_live)).collect())
    }
}
