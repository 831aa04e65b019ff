//! topologyVersion: which of two things that one process of a server said is the newer (SDAM-6).

use serde::{Deserialize, Serialize};

/// topologyVersion: orders what one process of a server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyVersion {
    /// The process. A restarted server is another one.
    pub process_id: [u8; 12],
    /// Grows with every change.
    pub counter: i64,
}

impl TopologyVersion {
    /// Whether a hello's reply of `new` says less than what is known by `current`: then it is ignored. An equal one
    /// counts.
    pub fn is_reply_stale(current: Option<Self>, new: Option<Self>) -> bool {
        compare(current, new).is_some_and(|(current, new)| new < current)
    }

    /// Whether an error of `new` was known by `current` already: then it is ignored. An equal one is old news.
    pub fn is_error_stale(current: Option<Self>, new: Option<Self>) -> bool {
        compare(current, new).is_some_and(|(current, new)| new <= current)
    }
}

/// The counters, where they can be compared: what is missing, or another process's, is newer.
fn compare(current: Option<TopologyVersion>, new: Option<TopologyVersion>) -> Option<(i64, i64)> {
    let (current, new) = (current?, new?);
    (current.process_id == new.process_id).then_some((current.counter, new.counter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(process: u8, counter: i64) -> Option<TopologyVersion> {
        Some(TopologyVersion { process_id: [process; 12], counter })
    }

    #[test]
    fn only_counters_of_one_process_are_compared() {
        for new in [None, version(2, 1), version(1, 3)] {
            assert!(!TopologyVersion::is_reply_stale(version(1, 2), new), "{new:?}");
            assert!(!TopologyVersion::is_error_stale(version(1, 2), new), "{new:?}");
        }
        assert!(!TopologyVersion::is_error_stale(None, version(1, 1)));
    }

    #[test]
    fn an_equal_version_counts_in_a_reply_and_not_in_an_error() {
        assert!(!TopologyVersion::is_reply_stale(version(1, 2), version(1, 2)));
        assert!(TopologyVersion::is_error_stale(version(1, 2), version(1, 2)));
        assert!(TopologyVersion::is_reply_stale(version(1, 2), version(1, 1)));
    }
}
