//! topologyVersion: which of two things that one process of a server said is the newer (SDAM-6).

use serde::{Deserialize, Serialize};

/// topologyVersion: orders what one process of a server says (SDAM-6).
///
/// Two replies of one process can overtake each other on their way, and then the older one, which comes later, has to be
/// ignored. But a counter is only what somebody said: a server that once named a greater one than it has, or its greatest,
/// would be ignored for as long as its process lives. So a monitor's check that finds something older than what is known is
/// ignored twice and believed at the third time in a row: of the replies to one monitor's checks, which come one after
/// another, one can have been overtaken by that of a connection's hello, and not three. What the hello of a connection says
/// is ignored for as long as it is older.
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

/// How many checks in a row have found something older than what was known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Disbelief(u8);

impl Disbelief {
    /// The check that finds something older for so many times in a row is believed.
    const MOST: u8 = 3;

    /// Whether to believe a check that found something `older` than what is known, or not.
    pub(super) fn believes(&mut self, older: bool) -> bool {
        self.0 = if older { self.0.saturating_add(1) } else { 0 };
        let believes = !older || self.0 >= Self::MOST;
        if believes {
            self.0 = 0;
        }
        believes
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
    fn the_third_older_check_in_a_row_is_believed() {
        let mut disbelief = Disbelief::default();

        let believed = [true, true, false, true, true, true, true].map(|older| disbelief.believes(older));

        assert_eq!(believed, [false, false, true, false, false, true, false]);
    }

    #[test]
    fn an_equal_version_counts_in_a_reply_and_not_in_an_error() {
        assert!(!TopologyVersion::is_reply_stale(version(1, 2), version(1, 2)));
        assert!(TopologyVersion::is_error_stale(version(1, 2), version(1, 2)));
        assert!(TopologyVersion::is_reply_stale(version(1, 2), version(1, 1)));
    }
}
