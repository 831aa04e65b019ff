//! topologyVersion: which of two things that one process of a server said is the newer (SDAM-6).

use serde::{Deserialize, Serialize};

/// topologyVersion: orders what one process of a server says (SDAM-6).
///
/// Two replies of one process can overtake each other on their way. The older one, which arrives later, is ignored. But the
/// counter is only the server's word: a server that once named a greater one than it has would be ignored for as long as its
/// process lives. So the monitor's checks have the last word: of those that find something older than what is known, two in
/// a row are ignored and the third is believed. They come one after another, so a real race delays one of them, not three.
/// The hello of a connection is always ignored if it is older.
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

/// Counts the checks in a row that found something older than what was known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Disbelief(u8);

impl Disbelief {
    /// The number of older checks in a row at which one is believed.
    const MOST: u8 = 3;

    /// Records a check, which found something `older` than what is known or not; returns whether to believe it.
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
