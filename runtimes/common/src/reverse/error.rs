//! Why there is no listener, and why a socket is not parked.

use std::io;
use std::net::SocketAddr;

use cmap_core::address::ServerAddress;
use cmap_core::reverse::{Ending, ProofError, Refusal, TurnedAway};
use thiserror::Error;

use crate::error::RuntimeGone;
use crate::tls::{TlsConfigError, TlsError};

/// Why a [`ReverseListener`](super::ReverseListener) was not made.
#[derive(Error)]
#[non_exhaustive]
pub enum BindError {
    /// The certificate, its key, or the authorities of agents cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// Nobody could be let in.
    #[error("a listener without tokens and without authorities lets no agent in; add a token, or set authorities")]
    NobodyIsLetIn,
    /// The address cannot be listened at.
    #[error("no listening at {address}; check that the address is this host's and no other program has the port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// There is no runtime to live in.
    #[error(transparent)]
    RuntimeGone(#[from] RuntimeGone),
}

/// Why a socket that was accepted was not parked, or is not parked any more. For the application's log: an agent hears less.
#[derive(Error)]
#[non_exhaustive]
pub enum SocketEnded {
    /// There are too many of its kind.
    #[error(transparent)]
    TurnedAway(#[from] TurnedAway),
    /// TLS failed.
    #[error(transparent)]
    Tls(Box<TlsError>),
    /// The client has another protocol in mind.
    #[error(
        "the client does not ask for the protocol cmap-reverse/1 in TLS; check that it is an agent, and not a client of MongoDB"
    )]
    OtherProtocol,
    /// The agent has not proven that it may speak for the member.
    #[error(transparent)]
    Unproven(#[from] ProofError),
    /// The agent's certificate is for others.
    #[error("the agent's certificate does not name the host of {member}; give it one that does, or a token")]
    OtherCertificate {
        /// The member that it wants to speak for.
        member: ServerAddress,
        /// The error of rustls.
        source: Box<TlsError>,
    },
    /// The agent may speak for the member, but has no place.
    #[error("the agent of {member} is refused: {refusal}")]
    Refused {
        /// The member.
        member: ServerAddress,
        /// What the agent hears.
        refusal: Refusal,
    },
    /// The member said something before it was asked, which no MongoDB does.
    #[error("{0} said something before it was asked; check that its agent connects to a MongoDB")]
    SpokeFirst(ServerAddress),
    /// The connection failed.
    #[error("the connection failed")]
    Lost(#[source] io::Error),
    /// The protocol came to its end.
    #[error(transparent)]
    Ended(#[from] Ending),
}

crate::readable_debug::readable_debug!(BindError, SocketEnded);

impl From<TlsError> for SocketEnded {
    fn from(error: TlsError) -> Self {
        Self::Tls(Box::new(error))
    }
}

impl SocketEnded {
    /// Whether it counts as a failure of the peer's address, if the socket was not parked. A peer that hangs up counts as well: it has
    /// taken the place of another one, and a handshake's work.
    pub(super) fn is_a_failure(&self) -> bool {
        match self {
            Self::TurnedAway(_) | Self::Refused { .. } | Self::Ended(Ending::Left) => false,
            Self::Tls(_)
            | Self::Lost(_)
            | Self::Ended(_)
            | Self::OtherProtocol
            | Self::Unproven(_)
            | Self::OtherCertificate { .. }
            | Self::SpokeFirst(_) => true,
        }
    }
}
