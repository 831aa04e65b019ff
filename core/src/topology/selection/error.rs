//! Why no server was selected: what was wanted, and what is known of each server (SEL-40).

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::server_selector::{ServerSelector, listed};
use super::staleness::MaxStalenessError;
use crate::connection::{RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR};
use crate::error_text::readable_debug;
use crate::monitor::{ServerDescription, ServerType};
use crate::options::ReadMode;
use crate::pool::IdentityId;
use crate::topology::{TopologyDescription, TopologyType};

/// No server was selected for an operation, so nothing was sent.
///
/// It displays as one sentence with what was wanted and the state of every server. Servers in the same state share a clause,
/// and long lists are cut.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SelectionError {
    /// Why.
    pub kind: SelectionErrorKind,
    /// What was wanted.
    pub selector: ServerSelector,
    /// What is known of the servers.
    pub topology: Arc<TopologyDescription>,
    /// How long the operation waited.
    pub waited: Duration,
}

readable_debug!(SelectionError);

/// Why no server was selected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SelectionErrorKind {
    /// No server became suitable before serverSelectionTimeoutMS, or the operation's own deadline, was over (SEL-17).
    Timeout,
    /// A server and this client speak different versions of the protocol (SDAM-19); in words for the user.
    Incompatible(String),
    /// The read preference asks for what no monitoring can tell (SEL-24).
    MaxStaleness(MaxStalenessError),
    /// The server to which the operation was pinned does not belong to the topology any more (X-58).
    ServerLeft,
    /// The client has no such identity, or not any more (X-91).
    UnknownIdentity(IdentityId),
    /// The client was closed.
    Closed,
    /// The process was forked: the callers that waited are in the parent.
    Forked,
    /// As many check-outs waited for a server already as the option maxWaitQueueDepth allows (X-80). It may be tried again, after
    /// a pause.
    WaitQueueFull {
        /// How many check-outs may wait.
        max_wait_queue_depth: u32,
    },
}

impl SelectionError {
    /// The error of an operation that wanted `selector`, waited this long, and ends with this knowledge of the servers.
    pub fn new(
        kind: SelectionErrorKind,
        selector: ServerSelector,
        topology: Arc<TopologyDescription>,
        waited: Duration,
    ) -> Self {
        Self { kind, selector, topology, waited }
    }

    /// Whether the error carries this label: both labels of an overload, where too many waited (X-80).
    pub fn has_label(&self, label: &str) -> bool {
        let is_overload = matches!(self.kind, SelectionErrorKind::WaitQueueFull { .. });
        is_overload && [SYSTEM_OVERLOADED_ERROR, RETRYABLE_ERROR].contains(&label)
    }

    /// The error without the state of the servers, for a log record that describes them by itself (SEL-42).
    pub fn without_description(&self) -> impl fmt::Display + '_ {
        Briefly(self)
    }

    /// What to do about a time that was over, or about too many that wait.
    fn advice(&self) -> &'static str {
        let servers = &self.topology.servers;
        let is_available = |server: &ServerDescription| server.server_type != ServerType::Unknown;
        if matches!(self.kind, SelectionErrorKind::WaitQueueFull { .. }) {
            "try again after a pause, or raise maxWaitQueueDepth"
        } else if servers.is_empty() && !self.topology.removed.is_empty() {
            "correct the hosts or replicaSet in the connection string"
        } else if servers.is_empty() {
            "see whether the hosts of the connection string belong to one deployment"
        } else if self.lacks_tags() {
            "no member has these tags: see which they have (rs.conf()), or widen the read preference"
        } else if servers.iter().any(|server| is_available(server)) {
            match (self.topology.topology_type, &self.selector) {
                (TopologyType::ReplicaSetNoPrimary, ServerSelector::Writable) => "see why the set elects no primary",
                (_, ServerSelector::ReadPreference(_)) => {
                    "see why other servers are missing, or widen the read preference"
                }
                (_, ServerSelector::Writable | ServerSelector::AnyOf(_)) => "see why other servers are missing",
                (_, ServerSelector::Pinned(_)) => "see why that server is missing",
                (_, ServerSelector::Among { .. }) => {
                    "see why other servers are missing, or what the custom selector left"
                }
            }
        } else if servers.iter().all(|server| server.error.is_none()) {
            "none has answered yet: see whether the addresses are right and the servers run"
        } else {
            "see whether the servers run and can be reached"
        }
    }

    /// Whether there are members for the read preference, but none with its tags.
    fn lacks_tags(&self) -> bool {
        let Some(preference) = self.selector.read_preference() else { return false };
        let is_meant = |server: &ServerDescription| {
            server.server_type == ServerType::RsSecondary
                || (server.server_type == ServerType::RsPrimary && preference.mode() == ReadMode::Nearest)
        };
        let sets = preference.tag_sets();
        let mut meant = self.topology.servers.iter().filter(|server| is_meant(server)).peekable();
        !sets.is_empty() && meant.peek().is_some() && !meant.any(|server| sets.iter().any(|set| server.has_tags(set)))
    }
}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Briefly(self).fmt(f)?;
        if matches!(self.kind, SelectionErrorKind::Timeout | SelectionErrorKind::WaitQueueFull { .. }) {
            write!(f, ": {}; {}", States(&self.topology), self.advice())?;
        }
        Ok(())
    }
}

impl core::error::Error for SelectionError {}

/// The error without the state of the servers, and what to do about that.
struct Briefly<'a>(&'a SelectionError);

impl fmt::Display for Briefly<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SelectionError { kind, selector, waited, .. } = self.0;
        match kind {
            SelectionErrorKind::Timeout => write!(f, "no server became suitable for {selector} within {waited:?}"),
            SelectionErrorKind::WaitQueueFull { max_wait_queue_depth: depth } => {
                write!(f, "too many check-outs wait for a server already, and maxWaitQueueDepth allows {depth}")
            }
            SelectionErrorKind::Incompatible(text) => write!(f, "no server was selected for {selector}: {text}"),
            SelectionErrorKind::MaxStaleness(error) => write!(f, "no server was selected for {selector}: {error}"),
            SelectionErrorKind::ServerLeft => {
                write!(f, "the server of {selector} has left the deployment: begin the cursor or the transaction anew")
            }
            SelectionErrorKind::UnknownIdentity(identity) => {
                write!(
                    f,
                    "the client has no identity {identity}, or not any more: add it, and check out with what that returns"
                )
            }
            SelectionErrorKind::Closed => f.write_str("the client was closed: make a new one"),
            SelectionErrorKind::Forked => f.write_str("the process was forked while this waited: ask again"),
        }
    }
}

/// The servers of a topology by their states: `a:1 and b:1 are Unknown (connection refused), c:1 is RSSecondary`.
struct States<'a>(&'a TopologyDescription);

/// How many items of a list are shown.
const SHOWN: usize = 8;

impl fmt::Display for States<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut states: Vec<Vec<&ServerDescription>> = Vec::new();
        for server in &self.0.servers {
            let is_same =
                |other: &ServerDescription| other.server_type == server.server_type && other.error == server.error;
            match states.iter_mut().find(|state| state.first().is_some_and(|other| is_same(other))) {
                Some(state) => state.push(server),
                None => states.push(alloc::vec![server]),
            }
        }
        let mut clauses: Vec<String> = states.iter().take(SHOWN).map(|state| clause(state)).collect();
        if states.len() > SHOWN {
            clauses.push(format!("and {} other states", states.len() - SHOWN));
        }
        let left_out = |server: &Arc<ServerDescription>| format!("{} was left out{}", server.address, reason(server));
        clauses.extend(self.0.removed.iter().map(left_out));
        let text = clauses.join(", ");
        f.write_str(if text.is_empty() { "the topology has no servers" } else { &text })
    }
}

/// The clause of the servers of one state.
fn clause(state: &[&ServerDescription]) -> String {
    let [first, others @ ..] = state else { return String::new() };
    let mut names: Vec<String> = state.iter().take(SHOWN).map(|server| server.address.to_string()).collect();
    if state.len() > SHOWN {
        names.push(format!("{} others", state.len() - SHOWN));
    }
    let verb = if others.is_empty() { "is" } else { "are" };
    format!("{} {verb} {}{}", listed(&names, "and"), first.server_type, reason(first))
}

/// Why a server is in its state, if that is known.
fn reason(server: &ServerDescription) -> String {
    server.error.as_ref().map_or_else(String::new, |error| format!(" ({error})"))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::super::topologies::{address, server, set_of_three, topology};
    use super::*;
    use crate::options::ReadPreference;
    use crate::pool::Cause;

    fn timeout(topology: TopologyDescription, selector: ServerSelector) -> String {
        let waited = Duration::from_secs(30);
        SelectionError::new(SelectionErrorKind::Timeout, selector, Arc::new(topology), waited).to_string()
    }

    fn refused(name: &str) -> ServerDescription {
        ServerDescription::unknown(Arc::new(address(name)), Cause::new("connection refused"))
    }

    #[test]
    fn the_error_that_all_servers_share_is_said_once_sel_40() {
        let error = timeout(
            topology(TopologyType::ReplicaSetNoPrimary, [refused("a"), refused("b"), refused("c")]),
            ServerSelector::Writable,
        );

        assert_eq!(
            error,
            "no server became suitable for writes within 30s: a:27017, b:27017 and c:27017 are Unknown (connection \
             refused); see whether the servers run and can be reached"
        );
    }

    #[test]
    fn what_is_known_of_each_server_is_said_sel_40() {
        let set = topology(
            TopologyType::ReplicaSetNoPrimary,
            [server("a", ServerType::RsSecondary), refused("b"), server("c", ServerType::RsArbiter)],
        );

        assert_eq!(
            timeout(set, ServerSelector::Writable),
            "no server became suitable for writes within 30s: a:27017 is RSSecondary, b:27017 is Unknown (connection \
             refused), c:27017 is RSArbiter; see why the set elects no primary"
        );
    }

    #[test]
    fn a_read_preference_that_no_server_meets_is_named_sel_40() {
        let tags = [("dc".into(), "la".into())].into();
        let preference = ReadPreference::new(ReadMode::Secondary).with_tag_sets(alloc::vec![tags]).unwrap();

        let error = timeout(set_of_three(), preference.into());

        assert!(error.contains(r#"suitable for reads (mode secondary, tag sets [{"dc": "la"}]) within"#), "{error}");
        assert!(error.ends_with("or widen the read preference"), "{error}");
    }

    #[test]
    fn servers_that_have_not_answered_are_told_from_servers_that_failed() {
        let silent = topology(TopologyType::Unknown, [server("a", ServerType::Unknown)]);

        assert!(timeout(silent, ServerSelector::Writable).contains("none has answered yet"));
        assert!(timeout(topology(TopologyType::Sharded, []), ServerSelector::Writable).contains("has no servers"));
    }

    #[test]
    fn a_long_list_of_servers_is_cut() {
        let refused = core::array::from_fn::<_, 50, _>(|index| refused(&alloc::format!("s{index}")));
        let error = timeout(topology(TopologyType::Sharded, refused), ServerSelector::Writable);

        assert!(error.contains("s6:27017, s7:27017 and 42 others are Unknown (connection refused)"), "{error}");
    }
}
