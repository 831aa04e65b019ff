//! How long the pool takes to recover: from the server being up again to the first operation that succeeds.

use std::mem;
use std::time::{Duration, Instant};

/// The outages of a server, and their marks on operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outages {
    number: u64,
    up_since: Option<Instant>,
    is_over: bool,
    recoveries: Vec<Duration>,
    unrecovered: u64,
}

impl Outages {
    /// The server is about to be killed.
    pub(crate) fn begin(&mut self) {
        if self.number > 0 && !mem::take(&mut self.is_over) {
            self.unrecovered += 1;
        }
        self.number += 1;
        self.up_since = None;
    }

    /// It accepts connections again.
    pub(crate) fn server_is_up(&mut self, now: Instant) {
        self.up_since = Some(now);
    }

    /// The outages so far: an operation's mark, to take when it has got its connection.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// An operation has succeeded whose connection was checked out when there had been `number` outages. An earlier one
    /// may owe its success to the server before.
    pub(crate) fn succeeded(&mut self, number: u64, now: Instant) {
        if let Some(up_since) = self.up_since
            && number == self.number
            && !self.is_over
        {
            self.is_over = true;
            self.recoveries.push(now.saturating_duration_since(up_since));
        }
    }

    /// How long each recovery took.
    pub(crate) fn recoveries(&self) -> &[Duration] {
        &self.recoveries
    }

    /// After how many outages no operation succeeded, until the next one or until now.
    pub(crate) fn unrecovered(&self) -> u64 {
        self.unrecovered + u64::from(self.number > 0 && !self.is_over)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an instant can be had from the clock alone")]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_recovery_lasts_from_the_servers_return_to_the_first_success() {
        let (mut outages, start) = (Outages::default(), Instant::now());
        outages.begin();
        outages.server_is_up(start + 100 * MS);
        outages.succeeded(outages.number(), start + 130 * MS);
        outages.succeeded(outages.number(), start + 140 * MS);

        assert_eq!((outages.recoveries(), outages.unrecovered()), (&[30 * MS][..], 0));
    }

    #[test]
    fn a_success_on_a_connection_from_before_is_no_recovery() {
        let (mut outages, start) = (Outages::default(), Instant::now());
        let before = outages.number();
        outages.begin();
        outages.server_is_up(start);
        outages.succeeded(before, start + MS);

        assert_eq!((outages.recoveries(), outages.unrecovered()), (&[][..], 1));
    }

    #[test]
    fn an_outage_without_a_success_until_the_next_is_counted() {
        let (mut outages, start) = (Outages::default(), Instant::now());
        outages.begin();
        outages.server_is_up(start);
        outages.begin();
        outages.server_is_up(start + MS);
        outages.succeeded(outages.number(), start + 3 * MS);

        assert_eq!((outages.recoveries(), outages.unrecovered()), (&[2 * MS][..], 1));
    }
}
