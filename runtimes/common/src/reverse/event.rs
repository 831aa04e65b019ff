//! What happens at a listener, for handlers and for the log.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cmap_core::ErrorChain;
use cmap_core::address::ServerAddress;
use cmap_core::time::Instant;

use super::error::NotTaken;
use super::options::Handler;

/// Something happened at a [`ReverseListener`](super::ReverseListener). With the feature `tracing` it is also a record, of the target
/// `cmap::reverse`.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReverseEvent {
    /// A socket is parked.
    Parked {
        /// The member that it leads to.
        member: ServerAddress,
        /// Where it comes from.
        from: SocketAddr,
    },
    /// A socket was not parked, or is not parked any more. Not told of a socket that became a connection.
    Ended {
        /// The member that it leads to, once its agent has proven that.
        member: Option<ServerAddress>,
        /// Where it comes from.
        from: SocketAddr,
        /// The true reason, which an agent is not told.
        why: NotTaken,
    },
    /// Sockets were closed as soon as they were accepted. Told once in a second at most.
    TurnedAway {
        /// Where the last of them came from.
        from: SocketAddr,
        /// The reason for the last of them.
        why: NotTaken,
        /// How many others there were since the last event of this kind.
        others: u64,
    },
    /// The system gave no connection, though it was asked. Told once in a second at most.
    AcceptFailed {
        /// The system's error.
        error: std::io::Error,
        /// How many others there were since the last event of this kind.
        others: u64,
    },
}

/// How often one kind of event is told at most: strangers must not fill the log.
const SELDOM: Duration = Duration::from_secs(1);

/// Tells events.
pub(super) struct Teller {
    handler: Option<Handler>,
    turned_away: Mutex<Seldom>,
    failed: Mutex<Seldom>,
}

/// Counts what was not told.
#[derive(Default)]
struct Seldom {
    again_at: Option<Instant>,
    others: u64,
}

impl Teller {
    pub(super) fn new(handler: Option<Handler>) -> Self {
        Self { handler, turned_away: Mutex::default(), failed: Mutex::default() }
    }

    pub(super) fn tell(&self, event: &ReverseEvent) {
        #[cfg(feature = "tracing")]
        record(event);
        if let Some(handler) = &self.handler {
            handler(event);
        }
    }

    pub(super) fn tell_turned_away(&self, now: Instant, from: SocketAddr, why: NotTaken) {
        if let Some(others) = Seldom::may_tell(&self.turned_away, now) {
            self.tell(&ReverseEvent::TurnedAway { from, why, others });
        }
    }

    pub(super) fn tell_accept_failed(&self, now: Instant, error: std::io::Error) {
        if let Some(others) = Seldom::may_tell(&self.failed, now) {
            self.tell(&ReverseEvent::AcceptFailed { error, others });
        }
    }
}

impl Seldom {
    /// How many were not told since the last one, if it is time to tell one.
    fn may_tell(this: &Mutex<Self>, now: Instant) -> Option<u64> {
        let mut this = this.lock().unwrap_or_else(PoisonError::into_inner);
        if this.again_at.is_some_and(|at| now < at) {
            this.others += 1;
            return None;
        }
        this.again_at = Some(now + SELDOM);
        Some(std::mem::take(&mut this.others))
    }
}

impl fmt::Display for ReverseEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parked { member, from } => write!(f, "a socket of {member} is parked, from {from}"),
            Self::Ended { member: Some(member), from, why } => {
                write!(f, "a socket of {member} from {from} has ended: {}", ErrorChain(why))
            }
            Self::Ended { member: None, from, why } => {
                write!(f, "a socket from {from} is not parked: {}", ErrorChain(why))
            }
            Self::TurnedAway { from, why, others } => {
                write!(f, "a socket from {from} is turned away, as {others} others: {}", ErrorChain(why))
            }
            Self::AcceptFailed { error, others } => {
                write!(
                    f,
                    "no connection was accepted, {others} other times as well: {error}{}",
                    crate::net::advice(error)
                )
            }
        }
    }
}

#[cfg(feature = "tracing")]
fn record(event: &ReverseEvent) {
    const TARGET: &str = "cmap::reverse";
    match event {
        ReverseEvent::Parked { .. } | ReverseEvent::Ended { member: Some(_), .. } => {
            tracing::debug!(target: TARGET, "{event}");
        }
        ReverseEvent::Ended { member: None, .. }
        | ReverseEvent::TurnedAway { .. }
        | ReverseEvent::AcceptFailed { .. } => tracing::warn!(target: TARGET, "{event}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_told_once_in_a_second_with_its_number() {
        let seldom = Mutex::default();
        let at = |millis| Instant::ORIGIN + Duration::from_millis(millis);

        let told = [0, 1, 999, 1000, 1001, 2500].map(|millis| Seldom::may_tell(&seldom, at(millis)));

        assert_eq!(told, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
