//! How many files the process may have open, and how many of them clients may have.
//!
//! Each client is an open file, and so is each connection upstream. If clients could take them all, the hub could not connect to its
//! servers, nor answer who asks for its status. So the limit is raised as far as the system allows, some are kept for these, and clients
//! have the rest: fewer than the configuration says, if need be.

use crate::config::Config;
use crate::protocol::DoorLimits;

use super::error::StartError;

/// Descriptors that neither clients nor connections upstream use: the status and who asks it, listeners, the runtime's own, a lookup of names.
const OWN: usize = 64;

/// Descriptors of each server that its pool does not count: monitors, and connections that are being made or closed.
const BESIDE_POOL: usize = 6;

/// A pool without a limit has so many connections: drivers' own limit.
const OF_UNLIMITED: usize = 100;

/// A set has more members than its connection string names.
const MEMBERS: usize = 3;

/// With room for fewer clients than these the hub does not start.
const LEAST_CLIENTS: usize = 16;

/// The files that clients cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reserve(usize);

/// What the system allows, and what was made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fitted {
    /// How many files may be open; `None` for any number.
    limit: Option<usize>,
    reserve: Reserve,
    /// How many clients the configuration allows.
    asked: usize,
    /// How many there may be.
    pub(super) clients: usize,
}

impl Reserve {
    /// What a hub with this configuration needs for itself.
    pub(super) fn of(config: &Config) -> Self {
        let is_of_more = config.upstream.replica_set.is_some() || config.upstream.srv.host.is_some();
        let servers = config.upstream.hosts.len().max(if is_of_more { MEMBERS } else { 1 });
        let pool = match config.connections() {
            0 => config.limits.queue.running.min(u32::try_from(OF_UNLIMITED).unwrap_or(u32::MAX)),
            connections => connections,
        };
        let agents = config.reverse.as_ref().map_or(0, |reverse| {
            let options = &reverse.options;
            options.limits.max_greeting as usize + servers * usize::from(options.wanted)
        });
        Self(servers.saturating_mul(pool as usize + BESIDE_POOL).saturating_add(OWN + agents))
    }

    /// Raises the process's limit as far as these clients need, and lowers their number to what there is.
    ///
    /// # Errors
    /// There are too few for a hub.
    pub(super) fn fit(self, doors: &mut DoorLimits) -> Result<Fitted, StartError> {
        let limit = raise(self.0.saturating_add(doors.connections));
        self.share(limit, doors)
    }

    /// Lowers the number of clients to what a limit leaves.
    fn share(self, limit: Option<usize>, doors: &mut DoorLimits) -> Result<Fitted, StartError> {
        let asked = doors.connections;
        if let Some(limit) = limit {
            let left = limit.saturating_sub(self.0);
            if left < LEAST_CLIENTS.min(asked) {
                return Err(StartError::Descriptors { limit, reserve: self.0, least: LEAST_CLIENTS.min(asked) });
            }
            if left < asked {
                doors.connections = left;
                doors.strangers = doors.strangers.min(left.div_ceil(2));
            }
        }
        Ok(Fitted { limit, reserve: self, asked, clients: doors.connections })
    }
}

impl Fitted {
    /// What an operator should know: that there can be fewer clients than asked for, and what to do.
    pub(super) fn advice(&self) -> Option<String> {
        let Self { limit, reserve: Reserve(reserve), asked, clients } = *self;
        let limit = limit.filter(|_| clients < asked)?;
        Some(format!(
            "limits.connections ({asked}) is more than the system's limit of {limit} open files leaves beside the {reserve} that the hub \
             needs for itself: {clients} clients at most; raise the hard limit (LimitNOFILE=, ulimit -Hn) to {}",
            asked.saturating_add(reserve)
        ))
    }

    /// Says it in the log.
    pub(super) fn log(&self) {
        let Self { limit, reserve: Reserve(reserve), clients, .. } = *self;
        tracing::info!(target: "cmap::hub", limit, reserve, clients, "files that may be open");
        if let Some(advice) = self.advice() {
            tracing::warn!(target: "cmap::hub", "{advice}");
        }
    }
}

/// Raises the limit to `needed`, or as far as it can be; the limit as it is then, `None` for none.
#[cfg(unix)]
fn raise(needed: usize) -> Option<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let current = current?;
    let wanted = u64::try_from(needed).unwrap_or(u64::MAX).min(maximum.unwrap_or(u64::MAX));
    let raised = wanted > current && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok();
    usize::try_from(if raised { wanted } else { current }).ok()
}

#[cfg(not(unix))]
fn raise(_: usize) -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOORS: DoorLimits = DoorLimits {
        connections: 10_000,
        per_address: 5_000,
        per_user: 5_000,
        strangers: 2_000,
        strangers_per_address: 1_000,
    };

    #[test]
    fn clients_have_what_the_hub_does_not_need_x_136() {
        let mut doors = DOORS;

        let fitted = Reserve(150).share(Some(1_024), &mut doors).unwrap();

        assert_eq!((fitted.clients, doors.connections, doors.strangers), (874, 874, 437));
        assert!(fitted.advice().unwrap().ends_with("raise the hard limit (LimitNOFILE=, ulimit -Hn) to 10150"));
    }

    #[test]
    fn a_limit_that_suffices_changes_nothing() {
        for limit in [Some(10_150), None] {
            let mut doors = DOORS;

            let fitted = Reserve(150).share(limit, &mut doors).unwrap();

            assert_eq!((doors, fitted.advice()), (DOORS, None));
        }
    }

    #[test]
    fn a_limit_that_leaves_no_room_for_clients_is_an_error_that_says_what_is_needed() {
        let error = Reserve(150).share(Some(160), &mut { DOORS }).unwrap_err();

        assert_eq!(
            error.to_string(),
            "the system allows 160 open files, of which the hub needs 150 for itself, and 16 for clients at least; raise the limit \
             (LimitNOFILE=, ulimit -n), or lower maxPoolSize in upstream.uri"
        );
    }
}
