//! The rules of discovery once more, as the specification's prose puts them: names, strings and lists, one server after the
//! other, without a table and without a thought for speed. It shares no code with the machine.

use std::collections::{BTreeMap, BTreeSet};

/// What a server says of itself, or that it does not answer.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Reply(Reply),
    Failure,
}

/// The fields of a reply that discovery reads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) kind: &'static str,
    pub(crate) set_name: Option<&'static str>,
    pub(crate) me: Option<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) passives: Vec<String>,
    pub(crate) arbiters: Vec<String>,
    pub(crate) election: Option<u8>,
    pub(crate) version: Option<i64>,
    pub(crate) newest_wire_version: i32,
}

/// What is known of a server: its last reply, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Known {
    Reply(Reply),
    Unknown(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pool {
    Ready,
    Paused,
}

pub(crate) struct Reference {
    pub(crate) kind: &'static str,
    pub(crate) set_name: Option<&'static str>,
    pub(crate) max: (Option<u8>, Option<i64>),
    pub(crate) servers: Vec<(String, Known)>,
    /// The pools that exist.
    pub(crate) pools: BTreeMap<String, Pool>,
    pub(crate) events: Vec<String>,
    seeds: usize,
    /// What the answer made of its server, before it may have been removed.
    answered: Option<Known>,
    /// The primaries that the answer has replaced (TOP-31).
    replaced: Vec<String>,
}

impl Known {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Reply(reply) => reply.kind,
            Self::Unknown(_) => "Unknown",
        }
    }
}

impl Reference {
    /// TOP-4.
    pub(crate) fn new(seeds: &[String], direct: bool, set_name: Option<&'static str>) -> Self {
        let kind = match (direct, set_name) {
            (true, _) => "Single",
            (false, Some(_)) => "ReplicaSetNoPrimary",
            (false, None) => "Unknown",
        };
        let servers = seeds.iter().map(|seed| (seed.clone(), Known::Unknown("not checked yet".into()))).collect();
        let (pools, events) = (BTreeMap::new(), Vec::new());
        Self {
            kind,
            set_name,
            max: (None, None),
            servers,
            pools,
            events,
            seeds: seeds.len(),
            answered: None,
            replaced: Vec::new(),
        }
    }

    pub(crate) fn take(&mut self, address: &str, outcome: &Outcome) {
        // TOP-14.
        if !self.has(address) {
            return;
        }
        let before = (self.kind, self.set_name, self.max, self.servers.clone());
        let mut known = match outcome {
            Outcome::Reply(reply) => Known::Reply(reply.clone()),
            Outcome::Failure => Known::Unknown("gone".into()),
        };
        // TOP-19.
        if let (Known::Reply(reply), "Single", Some(wanted)) = (&known, self.kind, self.set_name)
            && reply.set_name != Some(wanted)
        {
            known = Known::Unknown(format!("wrong set {:?}", reply.set_name));
        }
        self.put(address, known.clone());
        // TOP-18, TOP-20.
        match (known, self.kind) {
            (_, "Single") | (Known::Unknown(_), "Unknown" | "Sharded" | "ReplicaSetNoPrimary") => {}
            (Known::Unknown(_), _) => self.check_if_has_primary(),
            (Known::Reply(reply), _) => self.take_reply(address, &reply),
        }
        self.tell_servers(address, &before.3);
        if before != (self.kind, self.set_name, self.max, self.servers.clone()) {
            self.events.push(format!("topology {} -> {}", before.0, self.kind));
        }
        self.update_pools(address, outcome, &before.3);
    }

    fn take_reply(&mut self, address: &str, reply: &Reply) {
        match (reply.kind, self.kind) {
            ("Standalone", "Unknown") if self.seeds == 1 => self.kind = "Single",
            ("Standalone", "Unknown") => self.remove(address),
            ("Mongos", "Unknown") => self.kind = "Sharded",
            ("RSGhost", "Unknown" | "ReplicaSetNoPrimary") | ("Mongos", "Sharded") => {}
            ("RSGhost", "ReplicaSetWithPrimary") => self.check_if_has_primary(),
            (_, "Sharded") => self.remove(address),
            ("Standalone" | "Mongos", "ReplicaSetNoPrimary") => self.remove(address),
            ("Standalone" | "Mongos", _) => {
                self.remove(address);
                self.check_if_has_primary();
            }
            ("RSPrimary", _) => self.update_from_primary(address, reply),
            (_, "ReplicaSetWithPrimary") => self.update_with_primary_from_member(address, reply),
            _ => self.update_without_primary(address, reply),
        }
    }

    /// TOP-22 to TOP-24.
    fn update_without_primary(&mut self, address: &str, reply: &Reply) {
        self.kind = "ReplicaSetNoPrimary";
        if self.set_name.is_none() {
            self.set_name = reply.set_name;
        }
        if self.set_name != reply.set_name {
            return self.remove(address);
        }
        self.add_listed(reply);
        if is_mismatched(address, reply) {
            self.remove(address);
        }
    }

    /// TOP-25.
    fn update_with_primary_from_member(&mut self, address: &str, reply: &Reply) {
        if self.set_name != reply.set_name || is_mismatched(address, reply) {
            self.remove(address);
        }
        self.check_if_has_primary();
    }

    /// TOP-26 to TOP-33.
    fn update_from_primary(&mut self, address: &str, reply: &Reply) {
        if self.set_name.is_none() {
            self.set_name = reply.set_name;
        }
        if self.set_name != reply.set_name {
            self.remove(address);
            return self.check_if_has_primary();
        }
        let is_stale = if reply.newest_wire_version >= 17 {
            let is_stale = (reply.election, reply.version) < self.max;
            if !is_stale {
                self.max = (reply.election, reply.version);
            }
            is_stale
        } else {
            self.is_stale_by_version(reply)
        };
        if is_stale {
            self.put(address, Known::Unknown(format!("stale {:?} {:?}", (reply.election, reply.version), self.max)));
            return self.check_if_has_primary();
        }
        for (other, known) in &mut self.servers {
            if other != address && known.kind() == "RSPrimary" {
                *known = Known::Unknown("replaced".into());
                self.replaced.push(other.clone());
            }
        }
        self.add_listed(reply);
        let listed = listed(reply);
        self.servers.retain(|(name, _)| listed.contains(name));
        self.check_if_has_primary();
    }

    /// TOP-28.
    fn is_stale_by_version(&mut self, reply: &Reply) -> bool {
        if let (Some(election), Some(version)) = (reply.election, reply.version) {
            if let (Some(max_election), Some(max_version)) = self.max
                && (max_version > version || max_version == version && max_election > election)
            {
                return true;
            }
            self.max.0 = Some(election);
        }
        if let Some(version) = reply.version
            && self.max.1.is_none_or(|max| version > max)
        {
            self.max.1 = Some(version);
        }
        false
    }

    /// TOP-21.
    fn check_if_has_primary(&mut self) {
        let has_one = self.servers.iter().any(|(_, known)| known.kind() == "RSPrimary");
        self.kind = if has_one { "ReplicaSetWithPrimary" } else { "ReplicaSetNoPrimary" };
    }

    fn add_listed(&mut self, reply: &Reply) {
        for address in listed(reply) {
            if !self.has(&address) {
                self.servers.push((address, Known::Unknown("not checked yet".into())));
            }
        }
    }

    /// TOP-41.
    fn tell_servers(&mut self, answering: &str, before: &[(String, Known)]) {
        let find = |servers: &[(String, Known)], address: &str| {
            servers.iter().find(|(name, _)| name == address).map(|(_, known)| known.clone())
        };
        if find(before, answering) != self.answered {
            self.events.push(format!("described {answering}"));
        }
        for replaced in std::mem::take(&mut self.replaced) {
            self.events.push(format!("described {replaced}"));
        }
        for (name, _) in self.servers.iter().filter(|(name, _)| find(before, name).is_none()) {
            self.events.push(format!("opening {name}"));
        }
        for (name, _) in before.iter().filter(|(name, _)| find(&self.servers, name).is_none()) {
            self.events.push(format!("closed {name}"));
        }
    }

    /// The table of pools, by the final description.
    fn update_pools(&mut self, address: &str, outcome: &Outcome, before: &[(String, Known)]) {
        let known = self.servers.iter().find(|(name, _)| name == address).map(|(_, known)| known.kind());
        let wants_pool = match known {
            Some("Mongos" | "RSPrimary" | "RSSecondary" | "Standalone") => true,
            Some(kind) => self.kind == "Single" && kind != "Unknown",
            None => false,
        };
        if wants_pool {
            if !self.pools.contains_key(address) {
                self.events.push(format!("created {address}"));
            }
            if self.pools.insert(address.into(), Pool::Ready) != Some(Pool::Ready) {
                self.events.push(format!("ready {address}"));
            }
        }
        let servers = &self.servers;
        let has_left = |name: &String| servers.iter().all(|(own, _)| own != name);
        for (name, _) in before.iter().filter(|(name, _)| has_left(name)) {
            if self.pools.remove(name).is_some() {
                self.events.push(format!("pool closed {name}"));
            }
        }
        if matches!(outcome, Outcome::Failure)
            && let Some(pool @ Pool::Ready) = self.pools.get_mut(address)
        {
            *pool = Pool::Paused;
            self.events.push(format!("cleared {address}"));
        }
    }

    fn has(&self, address: &str) -> bool {
        self.servers.iter().any(|(name, _)| name == address)
    }

    fn put(&mut self, address: &str, known: Known) {
        self.answered = Some(known.clone());
        self.servers.iter_mut().filter(|(name, _)| name == address).for_each(|(_, own)| *own = known.clone());
    }

    fn remove(&mut self, address: &str) {
        self.servers.retain(|(name, _)| name != address);
    }
}

///
fn is_mismatched(address: &str, reply: &Reply) -> bool {
    reply.me.as_ref().is_some_and(|me| me != address)
}

/// The members that a reply names, each once.
fn listed(reply: &Reply) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let all = reply.hosts.iter().chain(&reply.passives).chain(&reply.arbiters);
    all.filter(|name| seen.insert((*name).clone())).cloned().collect()
}
