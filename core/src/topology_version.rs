//! topologyVersion: which of two statements of one server process is the newer (SDAM-6).

use serde::{Deserialize, Serialize};

/// topologyVersion: orders what one process of a server says (SDAM-6).
///
/// Two replies of one process can overtake each other on their way. The older one, which arrives later, is ignored. But
/// the counter is only the server's word: a server that once named a greater counter than it has would be ignored for
/// as long as its process lives. So the monitor's checks have the last word: of the checks that find something older
/// than what is known, two in a row are ignored and the third is believed. Checks come one after another, so a real
/// race delays one of them, not three. The hello of a connection is always ignored if it is older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyVersion {
    /// The process. A restarted server has another one.
    pub process_id: [u8; 12],
    /// Grows with every change.
    pub counter: i64,
}

impl TopologyVersion {
    /// Whether a hello's reply of version `new` is older than `current`, and therefore ignored. An equal version
    /// counts.
    pub fn is_reply_stale(current: Option<Self>, new: Option<Self>) -> bool {
        compare(current, new).is_some_and(|(current, new)| new < current)
    }

    /// Whether an error of version `new` is no newer than `current`, and therefore ignored.
    pub fn is_error_stale(current: Option<Self>, new: Option<Self>) -> bool {
        compare(current, new).is_some_and(|(current, new)| new <= current)
    }
}

/// The two counters, if they can be compared. A version that is missing, or another process's, is newer.
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
