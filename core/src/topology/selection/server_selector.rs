//! What an operation wants of its server, and which operation that is.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
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

impl ServerSelector {
    /// The preference, if it wants a server for reads.
    pub(in crate::topology) fn read_preference(&self) -> Option<&ReadPreference> {
        if let Self::ReadPreference(preference) = self { Some(preference) } else { None }
    }

    /// The servers that it names, if it wants one of them whatever it is.
    pub(super) fn named(&self) -> Option<&[ServerAddress]> {
        match self {
            Self::AnyOf(addresses) => Some(addresses),
            Self::Pinned(address) => Some(core::slice::from_ref(&**address)),
            Self::Writable | Self::ReadPreference(_) | Self::Among { .. } => None,
        }
    }
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
            Self::AnyOf(addresses) if addresses.is_empty() => f.write_str("operations for no server at all"),
            Self::AnyOf(addresses) => {
                let names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                write!(f, "operations for {}", listed(&names, "or"))
            }
        }
    }
}

/// Names as they are listed in a sentence: `a, b and c`.
pub(super) fn listed(names: &[String], conjunction: &str) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => alloc::format!("{} {conjunction} {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// What a check-out wants of its server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Criteria {
    /// Which servers suit it. Default any that takes writes.
    pub selector: ServerSelector,
    /// Servers on which the operation has failed already: they are taken only if no other one suits (SEL-10).
    pub deprioritized: Vec<ServerAddress>,
    /// What the server is for, in the words of the log. It has no part in the choice.
    pub operation: Option<Arc<Operation>>,
}

impl Criteria {
    /// Any server that takes writes.
    pub const WRITABLE: &'static Self =
        &Self { selector: ServerSelector::Writable, deprioritized: Vec::new(), operation: None };

    /// Whether both want the same of their servers.
    pub(in crate::topology) fn wants_same(&self, other: &Self) -> bool {
        self.selector == other.selector && self.deprioritized == other.deprioritized
    }

    #[inline]
    pub(in crate::topology) fn wants_any_writable(&self) -> bool {
        matches!(self.selector, ServerSelector::Writable) && self.deprioritized.is_empty()
    }

    /// Whether it wants any server that takes writes, for an operation that nobody named.
    #[inline]
    pub(crate) fn is_default(&self) -> bool {
        self.wants_any_writable() && self.operation.is_none()
    }
}

/// The operation that a check-out is for, as the log names it (SEL-41). A check-out that a user makes by hand has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its number, which is the same for all attempts, and for the events of their commands.
    pub id: i64,
    /// The name of its command.
    pub name: String,
}

#[cfg(test)]
mod tests {
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
