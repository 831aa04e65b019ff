//! What the new description of one server makes of the topology (TOP-14 to TOP-35): a function from description to
//! description, without any effect.
//!
//! The server's description is stored first. Then [`transition`](super::transition) names the step for the types of both,
//! and the steps stand here. Only lists of a set's configuration decide which servers belong to it (TOP-34).

use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::description::{TopologyDescription, TopologyType};
use super::transition::{Step, step};
use crate::address::ServerAddress;
use crate::error_text::presentable;
use crate::monitor::{ServerDescription, ServerType};
use crate::pool::Cause;

/// The most servers of a topology besides its seeds: hellos are not authenticated, and each server costs a monitor and two
/// sockets. MongoDB allows 50 members.
const MOST_DISCOVERED: usize = 100;

/// The greatest length of a host's name, in bytes.
const MAX_NAME: usize = 255;

/// The protocol version (MongoDB 6.0) from which on a primary's election counts more than its configuration (TOP-27).
const ELECTION_FIRST: i32 = 17;

/// What the description of one server has led to.
pub(super) struct Update {
    /// The topology now.
    pub(super) topology: TopologyDescription,
    /// The description that counts for the server: it may have been replaced by an unknown one.
    pub(super) server: Arc<ServerDescription>,
    /// Primaries that the server has replaced, as they are described now (TOP-31).
    pub(super) replaced: Vec<Arc<ServerDescription>>,
}

impl TopologyDescription {
    /// This topology after `server` was described anew. `seeds` is the number of seeds that the client began with.
    /// `None` if the server does not belong to the topology (TOP-14).
    ///
    /// A description with which the topology would outgrow its bound is refused as a whole: the server is unknown, with that
    /// error. What counts is the topology after the update, so a primary's list has room whatever others have named.
    pub(super) fn update(&self, server: ServerDescription, seeds: usize) -> Option<Update> {
        let position = self.servers.iter().position(|known| known.address == server.address)?;
        let address = Arc::clone(&server.address);
        let update = self.after(position, self.admit(server), seeds);
        let (count, most) = (update.topology.servers.len(), seeds.saturating_add(MOST_DISCOVERED));
        // More than that are there if DNS listed them; these stay.
        if count <= most.max(self.servers.len()) {
            return Some(update);
        }
        let text = format!(
            "with the members that the server names the topology would have {count} servers, and it may have {most}: {seeds} \
             seeds and {MOST_DISCOVERED} others; check that the server is one of your set, and list the set's members in the \
             connection string"
        );
        Some(self.after(position, ServerDescription::unknown(address, Cause::new(&text)), seeds))
    }

    /// This topology after the server at `position` was described so.
    fn after(&self, position: usize, server: ServerDescription, seeds: usize) -> Update {
        let server = Arc::new(server);
        let mut update = Update { topology: self.clone(), server: Arc::clone(&server), replaced: Vec::new() };
        if let Some(known) = update.topology.servers.get_mut(position) {
            *known = Arc::clone(&server);
        }
        match step(self.topology_type, server.server_type) {
            Step::Keep => {}
            Step::Standalone if seeds == 1 => update.become_single(),
            Step::BecomeSharded => update.topology.topology_type = TopologyType::Sharded,
            Step::Standalone => {
                update.remove("it is a standalone server, and the connection string names others beside it");
            }
            Step::Remove => update.remove_stranger(),
            Step::RemoveAndCheckPrimary => {
                update.remove_stranger();
                update.check_primary();
            }
            Step::CheckPrimary => update.check_primary(),
            Step::FromPrimary => update.learn_from_primary(),
            Step::WithoutPrimary => update.learn_without_primary(),
            Step::FromMember => update.learn_from_member(),
        }
        update
    }

    /// The description to keep of a server that describes itself so.
    fn admit(&self, server: ServerDescription) -> ServerDescription {
        match &self.set_name {
            // TOP-19.
            Some(wanted)
                if self.topology_type == TopologyType::Single
                    && server.server_type != ServerType::Unknown
                    && server.set_name.as_ref() != Some(wanted) =>
            {
                let found = of_set(&server);
                let text = format!("the server belongs to {found}, not to {wanted:?}: correct replicaSet or the host");
                ServerDescription::unknown(server.address, Cause::new(&text))
            }
            _ => server,
        }
    }
}

impl Update {
    /// The server is the whole topology (TOP-18). DNS may have listed others since.
    fn become_single(&mut self) {
        let address = &self.server.address;
        self.topology.topology_type = TopologyType::Single;
        self.topology.remove_unless(|known| *known == **address, "a standalone server is the whole deployment");
    }

    /// The server leaves the topology (TOP-35).
    fn remove(&mut self, why: &str) {
        let address = &self.server.address;
        self.topology.remove_unless(|known| *known != **address, why);
    }

    /// The server leaves a topology of another kind.
    fn remove_stranger(&mut self) {
        let why = match (self.server.server_type, &self.topology.set_name) {
            (server_type, Some(set)) => format!("it is {server_type}, and no member of the set {set:?}"),
            (server_type, None) => format!("it is {server_type}, and the deployment {}", self.topology.topology_type),
        };
        self.remove(&why);
    }

    /// The server leaves the topology's set, or has never been of it.
    fn remove_member(&mut self) {
        let wanted = self.topology.set_name.as_deref().unwrap_or_default();
        let why = match &self.server.me {
            Some(me) if self.server.set_name.as_deref() == Some(wanted) => format!("it calls itself {me:?}"),
            Some(_) | None => format!("it belongs to {}, not to {wanted:?}", of_set(&self.server)),
        };
        self.remove(&why);
    }

    /// TOP-21.
    fn check_primary(&mut self) {
        self.topology.topology_type = match self.topology.has_primary() {
            true => TopologyType::ReplicaSetWithPrimary,
            false => TopologyType::ReplicaSetNoPrimary,
        };
    }

    /// A member of a set whose primary is not known (TOP-22 to TOP-24).
    fn learn_without_primary(&mut self) {
        self.topology.topology_type = TopologyType::ReplicaSetNoPrimary;
        if !self.adopt_set_name() {
            return self.remove_member();
        }
        self.add_members();
        if self.names_itself_otherwise() {
            self.remove_member();
        }
    }

    /// A member of a set whose primary is known, or was until now (TOP-25).
    fn learn_from_member(&mut self) {
        if self.topology.set_name != self.server.set_name || self.names_itself_otherwise() {
            self.remove_member();
        }
        self.check_primary();
    }

    /// A primary: its word counts if its election is not older than the last one known (TOP-26 to TOP-33).
    fn learn_from_primary(&mut self) {
        if !self.adopt_set_name() {
            self.remove_member();
            return self.check_primary();
        }
        if let Err(stale) = self.accept_election() {
            self.mark_unknown(&stale);
            return self.check_primary();
        }
        self.replace_other_primaries();
        self.add_members();
        let members: BTreeSet<ServerAddress> = self.members().collect();
        let why = format!("the primary {} does not name it as a member", self.server.address);
        self.topology.remove_unless(|address| members.contains(address), &why);
        self.check_primary();
    }

    /// Whether the server belongs to the topology's set, which takes its name from the first member.
    fn adopt_set_name(&mut self) -> bool {
        if self.topology.set_name.is_none() {
            self.topology.set_name.clone_from(&self.server.set_name);
        }
        self.topology.set_name == self.server.set_name
    }

    /// Whether the server gives itself another address than the one it was found at.
    fn names_itself_otherwise(&self) -> bool {
        self.server.me.as_ref().is_some_and(|me| *me != self.server.address.to_string())
    }

    /// Records the election and the configuration of a primary; or says why it is not the primary any more.
    fn accept_election(&mut self) -> Result<(), String> {
        let newest = self.server.wire_versions.map_or(0, |(_, newest)| newest);
        let (known, own) = (
            (self.topology.max_election_id, self.topology.max_set_version),
            (self.server.election_id, self.server.set_version),
        );
        if newest >= ELECTION_FIRST {
            // TOP-27.
            if own < known {
                return Err(stale(own, known));
            }
            (self.topology.max_election_id, self.topology.max_set_version) = own;
            return Ok(());
        }
        // TOP-28.
        if let (Some(election), Some(version)) = own {
            if let (Some(max_election), Some(max_version)) = known
                && (max_version, max_election) > (version, election)
            {
                return Err(stale(own, known));
            }
            self.topology.max_election_id = Some(election);
        }
        self.topology.max_set_version = known.1.max(own.1);
        Ok(())
    }

    fn mark_unknown(&mut self, reason: &str) {
        let unknown = Arc::new(ServerDescription::unknown(Arc::clone(&self.server.address), Cause::new(reason)));
        if let Some(known) = self.topology.servers.iter_mut().find(|known| known.address == unknown.address) {
            *known = Arc::clone(&unknown);
        }
        self.server = unknown;
    }

    /// There is one primary: this one (TOP-31).
    fn replace_other_primaries(&mut self) {
        for known in &mut self.topology.servers {
            if known.server_type == ServerType::RsPrimary && known.address != self.server.address {
                let reason = Cause::new("primary marked stale due to discovery of newer primary");
                *known = Arc::new(ServerDescription::unknown(Arc::clone(&known.address), reason));
                self.replaced.push(Arc::clone(known));
            }
        }
    }

    /// Adds the members that the server names and the topology does not have.
    fn add_members(&mut self) {
        let members: Vec<ServerAddress> = self.members().collect();
        let mut known = self.topology.addresses();
        let added: Vec<_> = members.iter().filter(|member| known.insert(member)).collect();
        self.topology.add(added);
    }

    /// The members that the server names. What is no address names no server, nor does what no host can be called: names stand in logs
    /// and errors. No server names sockets of this host: only a seed may be one.
    fn members(&self) -> impl Iterator<Item = ServerAddress> {
        let lists = [&self.server.hosts, &self.server.passives, &self.server.arbiters];
        let members = lists.into_iter().flatten().filter_map(|member| member.parse().ok());
        members.filter(|member| match member {
            ServerAddress::Tcp { host, .. } => host.len() <= MAX_NAME && matches!(presentable(host), Cow::Borrowed(_)),
            ServerAddress::Unix { .. } => self.topology.server(member).is_some(),
        })
    }
}

/// The error of a primary that was elected before the last one known (TOP-30).
fn stale(own: (Option<[u8; 12]>, Option<i64>), known: (Option<[u8; 12]>, Option<i64>)) -> String {
    let pair = |(election, version): (Option<[u8; 12]>, Option<i64>)| {
        let hexadecimal = |id: [u8; 12]| id.iter().map(|byte| format!("{byte:02x}")).collect();
        let election: String = election.map_or_else(|| "null".into(), hexadecimal);
        let version = version.map_or_else(|| "null".into(), |version| version.to_string());
        format!("({election}, {version})")
    };
    format!(
        "primary marked stale due to electionId/setVersion mismatch, {} is stale compared to {}",
        pair(own),
        pair(known)
    )
}

/// The set of a server, in words.
fn of_set(server: &ServerDescription) -> String {
    server.set_name.as_deref().map_or_else(|| "no set".into(), |found| format!("the set {found:?}"))
}

#[cfg(test)]
mod tests {
    use super::super::description::unknown;
    use super::*;

    #[test]
    fn a_server_that_names_a_socket_of_this_host_does_not_make_it_a_member() {
        let [seed, other] = ["/run/seed.sock", "/run/other.sock"].map(|path| ServerAddress::Unix { path: path.into() });
        for server_type in [ServerType::RsPrimary, ServerType::RsSecondary] {
            let topology = TopologyDescription::of_servers(TopologyType::Unknown, [unknown(&seed)].into());
            let mut member = ServerDescription::new(Arc::clone(&topology.servers[0].address), server_type);
            member.set_name = Some("rs".into());
            member.hosts = [&seed, &other, &ServerAddress::tcp("a", 1)].map(ToString::to_string).into();

            let updated = topology.update(member, 1).unwrap().topology;

            let addresses: Vec<_> = updated.servers.iter().map(|server| server.address.to_string()).collect();
            assert_eq!(addresses, ["/run/seed.sock", "a:1"], "{server_type}");
        }
    }

    #[test]
    fn members_are_believed_that_name_servers_which_dns_has_listed_however_many_x_154() {
        let addresses: Vec<_> = (1..=200).map(|port| ServerAddress::tcp("a", port)).collect();
        let servers = addresses.iter().map(unknown).collect();
        let topology = TopologyDescription::of_servers(TopologyType::Unknown, servers);
        let address = Arc::clone(&topology.servers[0].address);
        let mut member = ServerDescription::new(address, ServerType::RsSecondary);
        member.set_name = Some("rs".into());
        member.hosts = addresses.iter().take(50).map(ToString::to_string).collect();

        let believed = topology.update(member.clone(), 1).unwrap();
        member.hosts = ["b:1".into()].into();
        let refused = topology.update(member, 1).unwrap();

        assert_eq!((believed.server.server_type, believed.topology.servers.len()), (ServerType::RsSecondary, 200));
        assert_eq!((refused.server.server_type, refused.topology.servers.len()), (ServerType::Unknown, 200));
    }
}
