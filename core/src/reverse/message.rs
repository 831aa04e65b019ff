//! The messages of both sides, and their bytes.
//!
//! Numbers are in network order; a text is its length in two bytes and its UTF-8. What follows the fields that this version knows is
//! ignored, so that a later one can add to them; a kind of message that is not known ends the socket.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use thiserror::Error;

use super::inbox::frame;
use super::member_name::check_member_name;
use super::proof::MemberProof;
use super::short;
use crate::address::ServerAddress;

/// The version of the protocol that is spoken here.
pub(super) const VERSION: u8 = 1;

/// What an agent says first: for which member it speaks, and why it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The member, by the name that its replica set knows it by.
    pub member: ServerAddress,
    /// This run of the agent.
    pub boot: BootId,
    /// Proof by a token. Without it the certificate of the agent has to say that it may speak for the member.
    pub proof: Option<MemberProof>,
}

/// A run of an agent. Of two for one member the later one counts: the other's process has ended, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId {
    /// When it began, in milliseconds since 1970.
    pub started: u64,
    /// Tells two that began together apart.
    pub random: u64,
}

/// Why an application does not take an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The proof does not hold, or not for this member. Which of them is not said.
    Unauthorized,
    /// The application knows no such member.
    UnknownMember,
    /// A later run of the agent is here already.
    Superseded,
    /// There are more sockets than the application takes.
    Full,
    /// The application speaks another version of the protocol.
    Version,
}

/// What an agent was at when it could not connect to its member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPhase {
    /// Looking for the addresses of its host.
    Resolve,
    /// Connecting to its member.
    Connect,
    /// Something else.
    Other,
}

/// Why an agent could not connect to its member.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("the agent cannot reach its member ({phase}): {error}; check that it runs next to the agent")]
pub struct StartFailure {
    /// What it was at.
    pub phase: StartPhase,
    /// In the agent's words: at most 512 bytes, without control characters.
    pub error: String,
}

/// Bytes that are not the protocol.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A message is longer than any.
    #[error(
        "a message of kind {kind} is {length} bytes long, at most 1024 are allowed; check that the other side speaks cmap-reverse/1"
    )]
    TooLong {
        /// Its kind.
        kind: u8,
        /// Its length.
        length: usize,
    },
    /// A kind of message that there is not, or not at this moment.
    #[error(
        "a message of kind {kind} came at a time when it makes no sense; check that both sides have the same version"
    )]
    Unexpected {
        /// The kind.
        kind: u8,
    },
    /// A message that lacks something, or has something else in its place.
    #[error(
        "the field {field} of a message of kind {kind} cannot be read; check that both sides have the same version"
    )]
    Malformed {
        /// The kind of the message.
        kind: u8,
        /// Its field.
        field: &'static str,
    },
    /// Another version of the protocol.
    #[error("the agent speaks version {version} of the protocol, and only 1 is known here; update the older side")]
    Version {
        /// That version.
        version: u8,
    },
}

crate::error_text::readable_debug!(StartFailure, ProtocolError);

/// A message of either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Hello(Hello),
    Park { keep_alive: Duration, wanted: u16 },
    Refuse { reason: Refusal, retry_after: Duration },
    Ping,
    Demand(u16),
    Start,
    Started,
    Failed(StartFailure),
    GoingAway,
}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Park { .. } => 2,
            Self::Refuse { .. } => 3,
            Self::Ping => 4,
            Self::Demand(_) => 5,
            Self::Start => 6,
            Self::Started => 7,
            Self::Failed(_) => 8,
            Self::GoingAway => 9,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Self::Hello(hello) => {
                body.push(VERSION);
                put_text(&mut body, &hello.member.to_string());
                body.extend_from_slice(&hello.boot.started.to_be_bytes());
                body.extend_from_slice(&hello.boot.random.to_be_bytes());
                put_text(&mut body, hello.proof.as_ref().map_or("", |proof| &proof.token));
                body.extend_from_slice(hello.proof.as_ref().map_or(&[], |proof| proof.code.as_slice()));
            }
            Self::Park { keep_alive, wanted } => {
                body.extend_from_slice(&millis(*keep_alive).to_be_bytes());
                body.extend_from_slice(&wanted.to_be_bytes());
            }
            Self::Refuse { reason, retry_after } => {
                body.push(reason.number());
                body.extend_from_slice(&millis(*retry_after).to_be_bytes());
            }
            Self::Demand(number) => body.extend_from_slice(&number.to_be_bytes()),
            Self::Failed(failure) => {
                body.push(failure.phase.number());
                put_text(&mut body, &short(&failure.error));
            }
            Self::Ping | Self::Start | Self::Started | Self::GoingAway => {}
        }
        frame(self.kind(), &body)
    }

    pub(super) fn decode(kind: u8, body: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields { kind, rest: body };
        Ok(match kind {
            1 => Self::Hello(fields.hello()?),
            2 => Self::Park { keep_alive: fields.duration("keepAlive")?, wanted: fields.u16("wanted")? },
            3 => Self::Refuse { reason: fields.reason()?, retry_after: fields.duration("retryAfter")? },
            4 => Self::Ping,
            5 => Self::Demand(fields.u16("number")?),
            6 => Self::Start,
            7 => Self::Started,
            8 => {
                let phase = StartPhase::of(fields.u8("phase")?);
                Self::Failed(StartFailure { phase, error: short(fields.text("error")?) })
            }
            9 => Self::GoingAway,
            _ => return Err(ProtocolError::Unexpected { kind }),
        })
    }

    /// It came when it makes no sense.
    pub(super) fn unexpected(&self) -> ProtocolError {
        ProtocolError::Unexpected { kind: self.kind() }
    }
}

/// The fields of a message that are not read yet.
struct Fields<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn hello(&mut self) -> Result<Hello, ProtocolError> {
        let version = self.u8("version")?;
        if version != VERSION {
            return Err(ProtocolError::Version { version });
        }
        let member = self.member()?;
        let boot = BootId { started: self.u64("boot")?, random: self.u64("boot")? };
        let token = self.text("token")?;
        let proof = if token.is_empty() {
            None
        } else {
            let code = self.array("proof")?;
            Some(MemberProof { token: token.to_string(), code })
        };
        Ok(Hello { member, boot, proof })
    }

    fn member(&mut self) -> Result<ServerAddress, ProtocolError> {
        let member: Option<ServerAddress> = self.text("member")?.parse().ok();
        member.filter(|member| check_member_name(member).is_ok()).ok_or_else(|| self.malformed("member"))
    }

    fn reason(&mut self) -> Result<Refusal, ProtocolError> {
        let number = self.u8("reason")?;
        Refusal::ALL.into_iter().find(|reason| reason.number() == number).ok_or_else(|| self.malformed("reason"))
    }

    fn duration(&mut self, field: &'static str) -> Result<Duration, ProtocolError> {
        Ok(Duration::from_millis(u32::from_be_bytes(self.array(field)?).into()))
    }

    fn text(&mut self, field: &'static str) -> Result<&'a str, ProtocolError> {
        let length = usize::from(self.u16(field)?);
        let (text, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.malformed(field))?;
        self.rest = rest;
        core::str::from_utf8(text).map_err(|_| self.malformed(field))
    }

    fn u8(&mut self, field: &'static str) -> Result<u8, ProtocolError> {
        self.array(field).map(u8::from_be_bytes)
    }

    fn u16(&mut self, field: &'static str) -> Result<u16, ProtocolError> {
        self.array(field).map(u16::from_be_bytes)
    }

    fn u64(&mut self, field: &'static str) -> Result<u64, ProtocolError> {
        self.array(field).map(u64::from_be_bytes)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ProtocolError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or_else(|| self.malformed(field))?;
        self.rest = rest;
        Ok(*array)
    }

    fn malformed(&self, field: &'static str) -> ProtocolError {
        ProtocolError::Malformed { kind: self.kind, field }
    }
}

fn put_text(body: &mut Vec<u8>, text: &str) {
    // Texts are shorter than a message.
    body.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    body.extend_from_slice(text.as_bytes());
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

impl Refusal {
    const ALL: [Self; 5] = [Self::Unauthorized, Self::UnknownMember, Self::Superseded, Self::Full, Self::Version];

    fn number(self) -> u8 {
        match self {
            Self::Unauthorized => 1,
            Self::UnknownMember => 2,
            Self::Superseded => 3,
            Self::Full => 4,
            Self::Version => 5,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unauthorized => {
                "it may not speak for this member; check its token or certificate, and the members that go with it"
            }
            Self::UnknownMember => {
                "the application does not know this member; check the name that the agent is configured with"
            }
            Self::Superseded => "a later run of the agent is connected; check that only one agent runs for this member",
            Self::Full => "the application has as many sockets as it takes; check its limits",
            Self::Version => "the application speaks another version of the protocol; update the older side",
        })
    }
}

impl StartPhase {
    fn number(self) -> u8 {
        match self {
            Self::Resolve => 1,
            Self::Connect => 2,
            Self::Other => 0,
        }
    }

    fn of(number: u8) -> Self {
        match number {
            1 => Self::Resolve,
            2 => Self::Connect,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for StartPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Other => "other",
        })
    }
}
