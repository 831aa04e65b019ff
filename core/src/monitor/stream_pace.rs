//! Whether a server that streams answers too often, or too late: an awaited reply is due when the topology changes, or after
//! heartbeatFrequencyMS (MON-7).
//!
//! A server that answers sooner, again and again, without a newer topologyVersion, keeps its client busy with no news.
//! It is polled instead, until another process answers in its place. One with a newer topologyVersion each time is polled, too,
//! but more often, and may soon stream again.
//!
//! MongoDB 7.0 keeps an awaited reply back for ten seconds at least. Where the monitor would not wait for so long, it polls.

use core::time::Duration;

use super::{MIN_HEARTBEAT_FREQUENCY, MonitorOptions, ServerDescription};
use crate::time::Instant;
use crate::topology_version::TopologyVersion;

/// The number of early replies in a row after which a server is polled.
const EARLY_REPLIES: u32 = 10;

/// The number of replies with news within heartbeatFrequencyMS after which a server is polled. An election or a
/// reconfiguration changes a member's topologyVersion a few times; several in a row still fit.
const NEWS: u32 = 20;

/// The maxWireVersion of the servers that keep an awaited reply back for [`SHORTEST_DELAY`]: MongoDB 7.0 (SERVER-128517).
const LATE_VERSION: i32 = 21;
const SHORTEST_DELAY: Duration = Duration::from_secs(10);

/// Whether a server's awaited replies come within the time that its monitor has for them.
pub(super) fn comes_in_time(server: &ServerDescription, options: &MonitorOptions) -> bool {
    let is_late = server.wire_versions.is_some_and(|(_, newest)| newest == LATE_VERSION);
    !is_late || options.awaited_timeout().is_none_or(|timeout| timeout > SHORTEST_DELAY)
}

/// The pace at which one server has answered.
#[derive(Debug)]
pub(super) struct StreamPace {
    heartbeat_frequency: Duration,
    newest: Option<TopologyVersion>,
    early: u32,
    is_too_fast: bool,
    /// The awaited replies with news in heartbeatFrequencyMS from `first_news` on.
    news: u32,
    first_news: Instant,
}

impl StreamPace {
    /// The pace of a server that has not answered yet. `heartbeat_frequency` is heartbeatFrequencyMS.
    pub(super) fn new(heartbeat_frequency: Duration) -> Self {
        let first_news = Instant::ORIGIN;
        Self { heartbeat_frequency, newest: None, early: 0, is_too_fast: false, news: 0, first_news }
    }

    /// Records a reply that is not awaited, which came at `now`.
    pub(super) fn observe(&mut self, now: Instant, version: Option<TopologyVersion>) {
        self.forget_old_news(now);
        self.is_news(version);
    }

    /// Records an awaited reply, which came at `now`, `after` the hello or the reply before.
    pub(super) fn observe_awaited(&mut self, now: Instant, version: Option<TopologyVersion>, after: Duration) {
        self.forget_old_news(now);
        if self.is_news(version) {
            if self.news == 0 {
                self.first_news = now;
            }
            self.news = self.news.saturating_add(1);
            return;
        }
        self.early = if after < self.heartbeat_frequency / 2 { self.early.saturating_add(1) } else { 0 };
        self.is_too_fast |= self.early >= EARLY_REPLIES;
    }

    /// Whether the server may stream.
    pub(super) fn allows_streaming(&self) -> bool {
        !self.is_too_fast && self.news < NEWS
    }

    /// How long a server that does not stream is left alone.
    pub(super) fn pause(&self) -> Duration {
        if self.news < NEWS || self.is_too_fast { self.heartbeat_frequency } else { MIN_HEARTBEAT_FREQUENCY }
    }

    fn forget_old_news(&mut self, now: Instant) {
        if now.saturating_since(self.first_news) >= self.heartbeat_frequency {
            self.news = 0;
        }
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
    const NOW: Instant = Instant::from_millis(1);

    /// The pace of a server of version 1, after this many early replies.
    fn after(early: u32) -> StreamPace {
        let mut pace = StreamPace::new(FREQUENCY);
        pace.observe(NOW, version(1, 1));
        (0..early).for_each(|_| pace.observe_awaited(NOW, version(1, 1), EARLY));
        pace
    }

    /// The pace of a server of version 1 that has streamed this many newer ones.
    fn after_news(news: i64) -> StreamPace {
        let mut pace = after(0);
        (0..news).for_each(|news| pace.observe_awaited(NOW, version(1, 2 + news), EARLY));
        pace
    }

    #[test]
    fn ten_early_replies_in_a_row_are_too_many() {
        assert!(after(9).allows_streaming());
        assert!(!after(10).allows_streaming());
        assert_eq!(after(10).pause(), FREQUENCY);
    }

    #[test]
    fn a_timely_reply_or_a_newer_version_begins_the_count_anew() {
        for (reply, after_so_long) in [(version(1, 1), TIMELY), (version(1, 2), EARLY), (version(2, 0), EARLY)] {
            let mut pace = after(9);

            pace.observe_awaited(NOW, reply, after_so_long);
            (0..9).for_each(|_| pace.observe_awaited(NOW, reply, EARLY));
            assert!(pace.allows_streaming(), "{reply:?}");

            pace.observe_awaited(NOW, reply, EARLY);
            assert!(!pace.allows_streaming(), "{reply:?}");
        }
    }

    #[test]
    fn an_older_version_and_a_missing_one_are_no_news() {
        for reply in [version(1, 0), None] {
            let mut pace = after(9);

            pace.observe_awaited(NOW, reply, EARLY);

            assert!(!pace.allows_streaming(), "{reply:?}");
        }
    }

    #[test]
    fn versions_that_go_back_and_forth_are_no_news() {
        let mut pace = after(0);

        for counter in [2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2] {
            pace.observe_awaited(NOW, version(1, counter), EARLY);
        }

        assert!(!pace.allows_streaming());
    }

    #[test]
    fn only_another_process_may_stream_again() {
        let mut pace = after(10);

        pace.observe(NOW, version(1, 2));
        assert!(!pace.allows_streaming());

        pace.observe(NOW, version(2, 0));
        assert!(pace.allows_streaming());
    }

    #[test]
    fn twenty_replies_with_news_within_a_heartbeat_are_too_many_x_153() {
        assert!(after_news(19).allows_streaming());
        assert!(!after_news(20).allows_streaming());
        assert_eq!((after_news(19).pause(), after_news(20).pause()), (FREQUENCY, MIN_HEARTBEAT_FREQUENCY));
    }

    #[test]
    fn news_of_ever_other_processes_are_too_many_alike_x_153() {
        let mut pace = after(0);

        (2..22).for_each(|process| pace.observe_awaited(NOW, version(process, 1), EARLY));

        assert!(!pace.allows_streaming());
    }

    #[test]
    fn news_are_forgotten_a_heartbeat_after_the_first_x_153() {
        let mut pace = after_news(20);

        pace.observe(NOW + Duration::from_millis(9_999), version(1, 50));
        assert!(!pace.allows_streaming());

        pace.observe(NOW + FREQUENCY, version(1, 51));
        assert!(pace.allows_streaming());
    }
}
