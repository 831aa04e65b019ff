//! Several servers: where they are, and which one an operation is sent to.
//!
//! | file | what it holds |
//! |---|---|
//! | [`seed_list`] | the servers that DNS names |
//! | [`selection`] | which servers suit an operation, and the one that is chosen |

pub mod seed_list;
pub mod selection;

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::monitor::ServerDescription;
pub use crate::server::{TopologyDescription, TopologyType};

impl TopologyDescription {
    /// A topology of which nothing is known but its type and its servers.
    pub fn of_servers(topology_type: TopologyType, servers: Vec<Arc<ServerDescription>>) -> Self {
        Self { topology_type, set_name: None, servers }
    }
}
