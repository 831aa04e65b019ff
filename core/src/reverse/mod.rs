//! Connections that the database's side opens (X-117 to X-119): the protocol between an agent next to a mongod and an application,
//! both sides, without I/O.
//!
//! The agent dials out to the application, so that no port of the database is open. Each socket is *parked* until the application's
//! pool wants a connection; then the agent connects to its mongod, and from there on bytes are passed on as they are, so that mongod's
//! own TLS, authentication and limits hold from end to end. One socket becomes one pooled connection; nothing is multiplexed.
//!
//! ```text
//! agent                                   application
//!   HELLO version, member, boot, proof  ->
//!                                       <-  PARK keep-alive, wanted     or REFUSE reason, retry after
//!   PING                               <->  PING                        while neither has anything else to say
//!                                       <-  DEMAND n                    more sockets, beyond the wanted ones
//!                                       <-  START
//!   STARTED or FAILED phase, error      ->
//!   bytes                              <->  bytes
//! ```
//!
//! GOING_AWAY tells the other side that the socket is about to be closed. From START on the application says nothing before it has heard
//! STARTED, because the agent passes on what comes as soon as it has said so. Both sides speak under TLS, as the protocol [`ALPN`].
//!
//! Drive a side as the pool is driven: make a call, drain `poll_output`, send what `poll_transmit` returns, and come back at
//! `poll_timeout`. Nothing that the other side sends makes a call panic, wait, or keep more than [`MAX_MESSAGE`] bytes.
//!
//! | file | content |
//! |---|---|
//! | `agent`, `application` | the two sides of one socket |
//! | `idle_tunnels` | an application's parked sockets, and who is turned away |
//! | `message` | messages, and their bytes |
//! | `member_name` | which names of members an application takes |
//! | `inbox` | bytes as they come, cut into messages |
//! | `line` | what both sides have in common: bytes out, the time of greetings and pings |
//! | `keep_alive` | pings, and the end of a silent peer |
//! | `proof` | who may speak for a member |

mod agent;
mod application;
mod idle_tunnels;
mod inbox;
mod keep_alive;
mod line;
mod member_name;
mod message;
mod proof;

pub use agent::{AgentOutput, AgentSide, Greeting};
pub use application::{ApplicationOutput, ApplicationSide};
pub use idle_tunnels::{IdleTunnelOptions, IdleTunnels, NotParked, SocketId, Taken, TurnedAway};
pub use inbox::MAX_MESSAGE;
pub use member_name::{MemberNameError, check_member_name};
pub use message::{BootId, Hello, ProtocolError, Refusal, StartFailure, StartPhase};
pub use proof::{ChannelBinding, MemberProof, ProofError, Token, TokenError, Tokens};

use alloc::string::String;
use core::time::Duration;

use thiserror::Error;

/// The protocol's name in TLS (ALPN).
pub const ALPN: &[u8] = b"cmap-reverse/1";

/// The label by which TLS exports the bytes that a [`ChannelBinding`] is made of, without a context.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-cmap-reverse-1";

/// The longest time until both sides have agreed to park a socket (X-117).
pub const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// Why a socket is to be closed.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Ending {
    /// The application does not take this agent.
    #[error("the application refuses the agent: {reason}; try again in {retry_after:?}")]
    Refused {
        /// Why.
        reason: Refusal,
        /// When the agent may come again.
        retry_after: Duration,
    },
    /// The other side closes the socket, as it has said.
    #[error("the other side is going away; dial again")]
    PeerLeaves,
    /// This side closes it, and has said so.
    #[error("this side is going away")]
    Left,
    /// HELLO or its answer did not come in time.
    #[error("the other side did not greet within {GREETING_LIMIT:?}; check that it speaks cmap-reverse/1")]
    NoGreeting,
    /// Nothing came for three intervals of the keep-alive.
    #[error("the other side was silent for {0:?}; check the network between them")]
    Silent(Duration),
    /// The agent could not connect to its member.
    #[error(transparent)]
    StartFailed(StartFailure),
    /// What came is not the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

crate::error_text::readable_debug!(Ending);

/// The text of another side's error, fit for logs, and short.
fn short(text: &str) -> String {
    const LONGEST: usize = 512;
    let end = (0..=text.len().min(LONGEST)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    crate::error_text::presentable(&text[..end]).into_owned()
}
