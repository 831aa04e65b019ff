//! Whether a server that streams answers too often: an awaited reply is due when the topology changes, or after
//! heartbeatFrequencyMS (MON-7).
//!
//! A server that answers sooner, again and again, without a newer topologyVersion, keeps its client busy with no news.
//! It is polled instead, until another process answers in its place.

use core::time::Duration;

use crate::topology_version::TopologyVersion;

/// The number of early replies in a row after which a server is polled.
const EARLY_REPLIES: u32 = 10;

/// The pace at which one server has answered.
#[derive(Debug, Default)]
pub(super) struct StreamPace {
    newest: Option<TopologyVersion>,
    early: u32,
    is_too_fast: bool,
}

impl StreamPace {
    /// Records a reply that is not awaited.
    pub(super) fn observe(&mut self, version: Option<TopologyVersion>) {
        self.is_news(version);
    }

    /// Records an awaited reply, which came `after` the hello or the reply before.
    pub(super) fn observe_awaited(
        &mut self,
        version: Option<TopologyVersion>,
        after: Duration,
        heartbeat_frequency: Duration,
    ) {
        if self.is_news(version) {
            return;
        }
        self.early = if after < heartbeat_frequency / 2 { self.early.saturating_add(1) } else { 0 };
        self.is_too_fast |= self.early >= EARLY_REPLIES;
    }

    /// Whether the server may stream.
    pub(super) fn allows_streaming(&self) -> bool {
        !self.is_too_fast
    }

    /// Whether `version` is newer than those before. Unlike in SDAM-6, a missing version is no news, and neither is the
    /// first one again after a later one.
    fn is_news(&mut self, version: Option<TopologyVersion>) -> bool {
        let Some(version) = version else { return false };
        let is_same_process = self.newest.is_some_and(|newest| newest.process_id == version.process_id);
        if is_same_process && self.newest.is_some_and(|newest| newest.counter >= version.counter) {
            return false;
        }
        self.newest = Some(version);
        self.early = 0;
        self.is_too_fast &= is_same_process;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREQUENCY: Duration = Duration::from_secs(10);
    const EARLY: Duration = Duration::from_millis(4_999);
    const TIMELY: Duration = Duration::from_secs(5);

    fn version(process: u8, counter: i64) -> Option<TopologyVersion> {
        Some(TopologyVersion { process_id: [process; 12], counter })
    }

    /// The pace of a server of version 1, after this many early replies.
    fn after(early: u32) -> StreamPace {
        let mut pace = StreamPace::default();
        pace.observe(version(1, 1));
        (0..early).for_each(|_| pace.observe_awaited(version(1, 1), EARLY, FREQUENCY));
        pace
    }

    #[test]
    fn ten_early_replies_in_a_row_are_too_many() {
        assert!(after(9).allows_streaming());
        assert!(!after(10).allows_streaming());
    }

    #[test]
    fn a_timely_reply_or_a_newer_version_begins_the_count_anew() {
        for (reply, after_so_long) in [(version(1, 1), TIMELY), (version(1, 2), EARLY), (version(2, 0), EARLY)] {
            let mut pace = after(9);

            pace.observe_awaited(reply, after_so_long, FREQUENCY);
            (0..9).for_each(|_| pace.observe_awaited(reply, EARLY, FREQUENCY));
            assert!(pace.allows_streaming(), "{reply:?}");

            pace.observe_awaited(reply, EARLY, FREQUENCY);
            assert!(!pace.allows_streaming(), "{reply:?}");
        }
    }

    #[test]
    fn an_older_version_and_a_missing_one_are_no_news() {
        for reply in [version(1, 0), None] {
            let mut pace = after(9);

            pace.observe_awaited(reply, EARLY, FREQUENCY);

            assert!(!pace.allows_streaming(), "{reply:?}");
        }
    }

    #[test]
    fn versions_that_go_back_and_forth_are_no_news() {
        let mut pace = after(0);

        for counter in [2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2] {
            pace.observe_awaited(version(1, counter), EARLY, FREQUENCY);
        }

        assert!(!pace.allows_streaming());
    }

    #[test]
    fn only_another_process_may_stream_again() {
        let mut pace = after(10);

        pace.observe(version(1, 2));
        assert!(!pace.allows_streaming());

        pace.observe(version(2, 0));
        assert!(pace.allows_streaming());
    }
}
