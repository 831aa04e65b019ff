//! What an operation wants of its server.

use alloc::sync::Arc;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::address::ServerAddress;
use crate::options::ReadPreference;

/// What an operation wants of its server. Cheap to clone; equal ones have the same suitable servers.
///
/// It displays as the operations that it stands for: `writes`, `reads (mode secondary)`, `operations for a:27017`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ServerSelector {
    /// A server that takes writes.
    #[default]
    Writable,
    /// A server that may serve reads with this preference.
    ReadPreference(Arc<ReadPreference>),
    /// One of these, if it has data, or leads to servers that have.
    AnyOf(Arc<[ServerAddress]>),
    /// This one, on which the operation began: for cursors and transactions (PIN-1, PIN-4). Nothing is selected, so that
    /// there are no events of a selection. If the server has left, the check-out fails at once; if it is unknown, the check-out waits.
    Pinned(Arc<ServerAddress>),
    /// One of these that also suits `selector`: what a custom choice among the suitable servers has left (SEL-11). It is made
    /// outside, anew for each description of the topology, and told by
    /// [`Topology::change_criteria`](crate::topology::Topology::change_criteria).
    Among {
        /// What the operation wants.
        selector: Arc<ServerSelector>,
        /// The servers that were left.
        servers: Arc<[ServerAddress]>,
    },
}

impl From<ReadPreference> for ServerSelector {
    fn from(preference: ReadPreference) -> Self {
        Self::ReadPreference(Arc::new(preference))
    }
}

/// SEL-43.
impl fmt::Display for ServerSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writable => f.write_str("writes"),
            Self::ReadPreference(preference) => write!(f, "reads ({preference})"),
            Self::Among { selector, .. } => write!(f, "{selector}, by a custom selector"),
            Self::Pinned(address) => write!(f, "operations for {address}"),
            Self::AnyOf(addresses) => {
                f.write_str("operations for ")?;
                match addresses.split_last() {
                    None => f.write_str("no server at all"),
                    Some((last, [])) => write!(f, "{last}"),
                    Some((last, others)) => {
                        others.iter().enumerate().try_for_each(|(index, other)| {
                            write!(f, "{}{other}", if index == 0 { "" } else { ", " })
                        })?;
                        write!(f, " or {last}")
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::options::ReadMode;

    #[test]
    fn a_selector_is_displayed_as_the_operations_it_is_for_sel_43() {
        let any_of = |ports: &[u16]| {
            ServerSelector::AnyOf(ports.iter().map(|port| ServerAddress::tcp("a", *port)).collect()).to_string()
        };

        assert_eq!(ServerSelector::default().to_string(), "writes");
        assert_eq!(ServerSelector::from(ReadPreference::new(ReadMode::Nearest)).to_string(), "reads (mode nearest)");
        assert_eq!(any_of(&[1]), "operations for a:1");
        assert_eq!(any_of(&[1, 2, 3]), "operations for a:1, a:2 or a:3");
        assert_eq!(any_of(&[]), "operations for no server at all");
        let among = ServerSelector::Among { selector: Arc::default(), servers: [].into() };
        assert_eq!(among.to_string(), "writes, by a custom selector");
    }
}
