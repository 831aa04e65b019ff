//! One server among those of a run, whatever they are together.

use cmap_sim::bson::RawDocumentBuf;
use cmap_sim::{Data, MemberId, Reachability, Server, Servers};

/// A server that stands alone or behind a load balancer, or a member.
pub(super) enum Place<'a> {
    One(&'a Server),
    Member(&'a Servers, MemberId),
}

impl Place<'_> {
    pub(super) fn crash(&self) {
        match self {
            Self::One(server) => server.crash(),
            Self::Member(servers, member) => servers.kill(*member),
        }
    }

    pub(super) fn switch_off(&self) {
        match self {
            Self::One(server) => server.switch_off(),
            Self::Member(servers, member) => servers.switch_off(*member),
        }
    }

    /// With its documents.
    pub(super) fn restart(&self) {
        match self {
            Self::One(server) => server.restart(Data::Kept),
            Self::Member(servers, member) => servers.restart(*member),
        }
    }

    pub(super) fn hang(&self, hangs: bool) {
        match self {
            Self::One(server) => server.hang(hangs),
            Self::Member(servers, member) => servers.hang(*member, hangs),
        }
    }

    pub(super) fn partition(&self) {
        match self {
            Self::One(server) => server.partition(),
            Self::Member(servers, member) => servers.partition(*member),
        }
    }

    pub(super) fn heal(&self) {
        match self {
            Self::One(server) => server.heal(),
            Self::Member(servers, member) => servers.heal(*member),
        }
    }

    pub(super) fn reset_connections(&self) {
        match self {
            Self::One(server) => server.reset_connections(),
            Self::Member(servers, member) => servers.reset_connections(*member),
        }
    }

    /// Returns whether there was one.
    pub(super) fn lose_connection(&self) -> bool {
        match self {
            Self::One(server) => server.lose_connection(),
            Self::Member(servers, member) => servers.lose_connection(*member),
        }
    }

    pub(super) fn end_lost_connections(&self) {
        match self {
            Self::One(server) => server.end_lost_connections(),
            Self::Member(servers, member) => servers.end_lost_connections(*member),
        }
    }

    pub(super) fn set_reachability(&self, reachability: Reachability) {
        match self {
            Self::One(server) => server.set_reachability(reachability),
            Self::Member(servers, member) => servers.set_reachability(*member, reachability),
        }
    }

    /// Runs a command there, beside the network. `None` if it is down.
    pub(super) fn run_command(&self, database: &str, command: &RawDocumentBuf) -> Option<RawDocumentBuf> {
        match self {
            Self::One(server) => server.run_command(database, command).into_iter().next(),
            Self::Member(servers, member) => servers.run_command(*member, database, command),
        }
    }
}
