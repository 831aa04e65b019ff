//! What happens at a listener.

use std::fmt;
use std::net::SocketAddr;

use cmap_core::ErrorChain;
use cmap_core::address::ServerAddress;

use super::error::SocketEnded;

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
    /// A parked socket has ended. Not told of a socket that became a connection.
    Ended {
        /// The member that it leads to.
        member: ServerAddress,
        /// Where it comes from.
        from: SocketAddr,
        /// The true reason, which an agent is not told.
        why: SocketEnded,
    },
    /// A socket was not parked. Told ten times in a second at most: anybody can connect.
    NotParked {
        /// Where it comes from.
        from: SocketAddr,
        /// The true reason, which an agent is not told.
        why: SocketEnded,
        /// How many others there were since the last event of this kind.
        others: u64,
    },
    /// Sockets were closed as soon as they were accepted. Told once in a second at most.
    TurnedAway {
        /// Where the last of them came from.
        from: SocketAddr,
        /// The reason for the last of them.
        why: SocketEnded,
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

impl fmt::Display for ReverseEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parked { member, from } => write!(f, "a socket of {member} is parked, from {from}"),
            Self::Ended { member, from, why } => {
                write!(f, "a socket of {member} from {from} has ended: {}", ErrorChain(why))
            }
            Self::NotParked { from, why, others: 0 } => {
                write!(f, "a socket from {from} is not parked: {}", ErrorChain(why))
            }
            Self::NotParked { from, why, others } => {
                write!(f, "a socket from {from} is not parked, as {others} others: {}", ErrorChain(why))
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
