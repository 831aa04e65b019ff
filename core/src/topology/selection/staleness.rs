//! How far a secondary lags behind, and whether a read preference may ask for it.
//!
//! The lag is estimated from what two servers said of their last writes, never from the present time (SEL-28).

use core::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error_text::readable_debug;
use crate::monitor::{ServerDescription, ServerType};
use crate::options::ReadPreference;
use crate::topology::TopologyDescription;

/// How often a primary without other work writes: a lag below this cannot be seen (SEL-24).
pub const IDLE_WRITE_PERIOD: Duration = Duration::from_secs(10);

/// The smallest maxStalenessSeconds that a replica set serves (SEL-24).
pub const SMALLEST_MAX_STALENESS: Duration = Duration::from_secs(90);

/// maxStalenessSeconds is too small for a replica set: monitoring cannot tell lags apart that are so short (SEL-24).
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("maxStalenessSeconds is {} s, but a replica set needs at least {} s: raise it{}", .max_staleness.as_secs(),
    .smallest.as_secs_f64(), if *.smallest > SMALLEST_MAX_STALENESS { ", or lower heartbeatFrequencyMS" } else { "" })]
pub struct MaxStalenessError {
    /// The value.
    pub max_staleness: Duration,
    /// The smallest value that is possible with the client's heartbeatFrequencyMS.
    pub smallest: Duration,
}

readable_debug!(MaxStalenessError);

/// A limit of the lag, and what it is measured by.
pub(super) struct StalenessLimit {
    /// Nanoseconds.
    limit: i128,
    reference: Reference,
}

/// What the lag of a secondary is measured by.
enum Reference {
    /// What a primary said: when its reply was read, less when it last wrote, in nanoseconds (SEL-26).
    Primary(i128),
    /// The last write of the secondary that has the newest one, in nanoseconds since 1970 (SEL-27).
    NewestSecondary(i128),
    /// No server said when it last wrote.
    Nothing,
}

impl StalenessLimit {
    /// The limit that `preference` sets in `topology`; `None` without one, and where lags do not matter (SEL-25).
    pub(super) fn of(
        preference: &ReadPreference,
        topology: &TopologyDescription,
        heartbeat_frequency: Duration,
    ) -> Result<Option<Self>, MaxStalenessError> {
        let is_set = topology.topology_type.is_replica_set();
        let Some(max_staleness) = preference.max_staleness().filter(|_| is_set) else { return Ok(None) };
        let smallest = SMALLEST_MAX_STALENESS.max(heartbeat_frequency.saturating_add(IDLE_WRITE_PERIOD));
        if max_staleness < smallest {
            return Err(MaxStalenessError { max_staleness, smallest });
        }
        // The lag is judged when the next reply comes, not when the last one came.
        let limit = nanos(max_staleness) - nanos(heartbeat_frequency);
        Ok(Some(Self { limit, reference: Reference::of(topology) }))
    }

    /// Whether `server` lags no further behind. Only secondaries lag. One that does not say when it last wrote is taken to lag
    /// too far.
    pub(super) fn admits(&self, server: &ServerDescription) -> bool {
        if server.server_type != ServerType::RsSecondary {
            return true;
        }
        let lag = match self.reference {
            Reference::Primary(of_primary) => reply_after_write(server).map(|of_secondary| of_secondary - of_primary),
            Reference::NewestSecondary(newest) => last_write(server).map(|own| newest - own),
            Reference::Nothing => None,
        };
        lag.is_some_and(|lag| lag <= self.limit)
    }
}

impl Reference {
    /// All servers count, whichever are deprioritised.
    fn of(topology: &TopologyDescription) -> Self {
        let of_type = |wanted| topology.servers.iter().filter(move |server| server.server_type == wanted);
        // A primary that does not say when it last wrote is no measure.
        let primary = of_type(ServerType::RsPrimary).find_map(|server| reply_after_write(server));
        let newest = || of_type(ServerType::RsSecondary).filter_map(|server| last_write(server)).max();
        match primary {
            Some(of_primary) => Self::Primary(of_primary),
            None => newest().map_or(Self::Nothing, Self::NewestSecondary),
        }
    }
}

/// When a reply of `server` was read, less when it had last written by that reply, in nanoseconds. The clocks differ, so only
/// the difference between two servers has a meaning.
fn reply_after_write(server: &ServerDescription) -> Option<i128> {
    Some(i128::from(server.last_update_time?.as_nanos()) - last_write(server)?)
}

/// Nanoseconds since 1970.
fn last_write(server: &ServerDescription) -> Option<i128> {
    server.last_write_date.map(|millis| i128::from(millis) * 1_000_000)
}

fn nanos(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use super::super::topologies::{names, server, suitable, topology};
    use super::*;
    use crate::options::{MaxStaleness, ReadMode};
    use crate::time::Instant;
    use crate::topology::TopologyType;
    use crate::topology::selection::ServerSelector;

    /// The secondaries that may lag `seconds` behind, with a heartbeat every 10 s.
    fn within(seconds: u64, topology: &TopologyDescription) -> Vec<&str> {
        names(topology, &suitable(topology, &at_most(seconds)))
    }

    fn at_most(seconds: u64) -> ServerSelector {
        let limit = MaxStaleness::AtMost(Duration::from_secs(seconds));
        ReadPreference::new(ReadMode::Secondary).with_max_staleness(limit).unwrap().into()
    }

    /// A server whose reply was read at `update`, and that had last written at `write`; both in seconds.
    fn wrote(name: &str, server_type: ServerType, update: u64, write: i64) -> ServerDescription {
        let mut server = server(name, server_type);
        server.last_update_time = Some(Instant::from_millis(update * 1000));
        server.last_write_date = Some(write * 1000);
        server
    }

    #[test]
    fn a_lag_is_measured_by_the_primary_and_lasts_until_the_next_reply_sel_26() {
        let set = topology(
            TopologyType::ReplicaSetWithPrimary,
            [
                wrote("p", ServerType::RsPrimary, 100, 1000),
                wrote("a", ServerType::RsSecondary, 105, 915),
                wrote("b", ServerType::RsSecondary, 105, 914),
            ],
        );

        // a: (105 - 915) - (100 - 1000) + 10 = 100.
        assert_eq!(within(100, &set), ["a"]);
        assert_eq!(within(101, &set), ["a", "b"]);
    }

    #[test]
    fn without_a_primary_the_newest_secondary_is_the_measure_sel_27() {
        let set = topology(
            TopologyType::ReplicaSetNoPrimary,
            [wrote("a", ServerType::RsSecondary, 1, 1000), wrote("b", ServerType::RsSecondary, 999, 910)],
        );

        assert_eq!((within(99, &set), within(100, &set)), (["a"].to_vec(), ["a", "b"].to_vec()));
    }

    #[test]
    fn a_secondary_that_does_not_say_when_it_wrote_is_not_admitted_x_41() {
        let set = topology(
            TopologyType::ReplicaSetNoPrimary,
            [wrote("a", ServerType::RsSecondary, 1, 1000), server("b", ServerType::RsSecondary)],
        );

        assert_eq!(within(1000, &set), ["a"]);
    }

    #[test]
    fn a_primary_that_does_not_say_when_it_wrote_is_no_measure_x_41() {
        let set = topology(
            TopologyType::ReplicaSetWithPrimary,
            [
                server("p", ServerType::RsPrimary),
                wrote("a", ServerType::RsSecondary, 1, 1000),
                wrote("b", ServerType::RsSecondary, 1, 800),
            ],
        );

        assert_eq!(within(100, &set), ["a"]);
    }

    #[test]
    fn a_limit_below_what_monitoring_can_tell_is_an_error_in_a_set_sel_24() {
        let set = topology(TopologyType::ReplicaSetNoPrimary, [server("a", ServerType::RsSecondary)]);
        let error = |seconds, heartbeat_frequency| {
            let suitable = set.suitable_servers(&at_most(seconds), &[], Duration::from_secs(heartbeat_frequency));
            suitable.unwrap_err().to_string()
        };

        assert_eq!(error(0, 10), "maxStalenessSeconds is 0 s, but a replica set needs at least 90 s: raise it");
        assert_eq!(error(89, 10), "maxStalenessSeconds is 89 s, but a replica set needs at least 90 s: raise it");
        assert_eq!(
            error(90, 81),
            "maxStalenessSeconds is 90 s, but a replica set needs at least 91 s: raise it, or lower heartbeatFrequencyMS"
        );
    }
}
