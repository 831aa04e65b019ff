//! The hub's way from its start to its end, and when clients go meanwhile.

use core::time::Duration;

use tokio::time::Instant;

use crate::protocol::Begins;

/// The hub's way from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    /// Clients that have nothing open go: when they ask for what they can have elsewhere, or else one after another.
    Draining(Spread),
    /// All go.
    Ended,
}

/// When clients have to go that have nothing open and say nothing: one after another, so that they do not all come back at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spread {
    pub(super) from: Instant,
    pub(super) over: Duration,
    /// For how long a client has said nothing that is hung up on. A command that comes just then has an error; a driver looks whether its
    /// connection is there before it uses one that it has not used for a second.
    pub(super) quiet: Duration,
}

impl Stage {
    /// What the hub begins for clients that have nothing open.
    pub(super) fn begins(self) -> Begins {
        match self {
            Self::Open => Begins::Everything,
            Self::Draining(spread) if Instant::now() < spread.from + spread.over => Begins::Unrepeatable,
            Self::Draining(_) | Self::Ended => Begins::Nothing,
        }
    }
}

impl Spread {
    /// Of a hub that another one follows, and that waits for its clients for so long.
    pub(super) fn of_upgrade(patience: Duration) -> Self {
        let quiet = patience.div_f64(5.0).min(Duration::from_secs(2));
        Self { from: Instant::now(), over: patience.mul_f64(0.7), quiet }
    }

    /// Of a hub that nobody follows: longer would keep the next start waiting.
    pub(super) fn of_end(patience: Duration) -> Self {
        let over = patience.min(Duration::from_secs(1));
        Self { from: Instant::now(), over, quiet: over.div_f64(2.0) }
    }

    /// When the connection of this number has to go, whose client was heard last at `heard`, if it was since the start.
    pub(super) fn end_of(self, connection: i64, heard: Option<Instant>) -> Instant {
        // The golden ratio spreads numbers that follow each other evenly.
        let part = u64::from_le_bytes(connection.to_le_bytes()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let moment =
            self.from + self.over.mul_f64(f64::from(u32::try_from(part).unwrap_or(u32::MAX)) / f64::from(u32::MAX));
        // It may have been heard just before the start.
        moment.max(heard.unwrap_or(self.from) + self.quiet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_drains_begins_what_nobody_repeats_until_it_is_about_to_end_x_189() {
        assert_eq!(Stage::Open.begins(), Begins::Everything);
        let spread = Spread::of_end(Duration::from_secs(60));
        assert_eq!(Stage::Draining(spread).begins(), Begins::Unrepeatable);

        tokio::time::advance(spread.over).await;

        assert_eq!([Stage::Draining(spread), Stage::Ended].map(Stage::begins), [Begins::Nothing; 2]);
    }

    #[test]
    fn silent_clients_go_one_after_another_and_those_that_are_heard_later() {
        let from = Instant::now();
        let spread = Spread { from, over: Duration::from_secs(100), quiet: Duration::from_secs(10) };
        let mut ends: Vec<_> = (1..=100).map(|number| spread.end_of(number, None) - from).collect();
        ends.sort_unstable();

        let longest = ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();

        assert!(longest < Duration::from_secs(3), "{ends:?}");
        assert!(ends[0] >= spread.quiet && ends[99] > Duration::from_secs(97), "{ends:?}");
        let heard = from + Duration::from_secs(95);
        assert!((1..=100).all(|number| spread.end_of(number, Some(heard)) >= heard + spread.quiet));
    }
}
