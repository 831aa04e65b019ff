//! What the type of a server's new description does to its topology (TOP-20): the table.
//!
//! `docs/topology.md` shows it; a test compares. The columns are the topology's type before, the rows the server's type
//! now. [`update`](super::update) carries the steps out.

use super::description::TopologyType;
use crate::monitor::ServerType;

/// A step of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The topology's type stays as it is.
    Keep,
    /// A standalone server is a topology of its own if it is the only seed, and belongs to none otherwise.
    Standalone,
    /// The topology is a sharded cluster.
    BecomeSharded,
    /// The server does not belong here and is removed (TOP-35).
    Remove,
    /// It is removed, and may have been the primary (TOP-21).
    RemoveAndCheckPrimary,
    /// It may have been the primary (TOP-21).
    CheckPrimary,
    /// A primary says which servers belong to the set (TOP-26 to TOP-33).
    FromPrimary,
    /// A member of a set without a primary names further members (TOP-22 to TOP-24).
    WithoutPrimary,
    /// A member of a set with a primary (TOP-25).
    FromMember,
}

/// The types of topology that change: the columns of [`TABLE`]. Single and load-balanced ones never do (TOP-18).
const COLUMNS: [TopologyType; 4] = [
    TopologyType::Unknown,
    TopologyType::Sharded,
    TopologyType::ReplicaSetNoPrimary,
    TopologyType::ReplicaSetWithPrimary,
];

use Step::{
    BecomeSharded, CheckPrimary, FromMember, FromPrimary, Keep, Remove, RemoveAndCheckPrimary, Standalone,
    WithoutPrimary,
};

/// A row for each type of server, and a step for each of [`COLUMNS`].
const TABLE: [(ServerType, [Step; 4]); 8] = [
    (ServerType::Unknown, [Keep, Keep, Keep, CheckPrimary]),
    (ServerType::Standalone, [Standalone, Remove, Remove, RemoveAndCheckPrimary]),
    (ServerType::Mongos, [BecomeSharded, Keep, Remove, RemoveAndCheckPrimary]),
    (ServerType::RsPrimary, [FromPrimary, Remove, FromPrimary, FromPrimary]),
    (ServerType::RsSecondary, [WithoutPrimary, Remove, WithoutPrimary, FromMember]),
    (ServerType::RsArbiter, [WithoutPrimary, Remove, WithoutPrimary, FromMember]),
    (ServerType::RsOther, [WithoutPrimary, Remove, WithoutPrimary, FromMember]),
    (ServerType::RsGhost, [Keep, Remove, Keep, CheckPrimary]),
];

/// The step for a server that is now of type `server`, in a topology of type `topology`.
pub(super) fn step(topology: TopologyType, server: ServerType) -> Step {
    let column = COLUMNS.iter().position(|&column| column == topology);
    let row = TABLE.iter().find(|&&(row, _)| row == server);
    match (column, row) {
        (Some(column), Some((_, steps))) => steps.get(column).copied().unwrap_or(Keep),
        _ => Keep,
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use super::*;

    fn words(step: Step) -> &'static str {
        match step {
            Keep => "",
            Standalone => "one seed: Single; several: removed",
            BecomeSharded => "Sharded",
            Remove => "removed",
            RemoveAndCheckPrimary => "removed; is there a primary?",
            CheckPrimary => "is there a primary?",
            FromPrimary => "the primary's list counts",
            WithoutPrimary => "its list is added",
            FromMember => "set and `me` must match",
        }
    }

    fn page() -> String {
        let mut page =
            String::from("<!-- Made from the table in core/src/topology/transition.rs; a test there compares. -->\n");
        page += "\nA server's new type, and what follows for the topology. A topology of type Single or LoadBalanced keeps its type and\nits server.\n\n| server |";
        COLUMNS.iter().for_each(|column| page += &format!(" {column} |"));
        page += "\n|---|---|---|---|---|\n";
        for (server, steps) in TABLE {
            page += &format!("| {server} |");
            steps.iter().for_each(|&step| page += &format!(" {} |", words(step)));
            page += "\n";
        }
        page
    }

    #[test]
    fn the_documented_table_is_the_one_in_use() {
        assert_eq!(include_str!("../../docs/topology.md"), page(), "replace docs/topology.md by the right-hand side");
    }

    #[test]
    fn a_single_and_a_load_balanced_topology_keep_their_server_top_18() {
        for topology in [TopologyType::Single, TopologyType::LoadBalanced] {
            for (server, _) in TABLE {
                assert_eq!(step(topology, server), Keep, "{topology} {server}");
            }
        }
    }
}
