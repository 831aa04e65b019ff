//! A client's faults while it logs in. No error holds a part of a password or of a key.

use std::fmt;

use cmap_core::connection::auth::MAX_MESSAGE;
use thiserror::Error;

/// The client's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientFault {
    /// A message does not follow its grammar.
    #[error("the client sent a malformed {message}: {problem}")]
    Malformed {
        /// Which message.
        message: Message,
        /// The fault.
        problem: Malformed,
    },
    /// It asked for channel binding, or its final message repeats another header than its first had.
    #[error("the client asked for channel binding, or contradicted itself about it")]
    ChannelBinding,
    /// It wants to act as another user.
    #[error("the client asked for another authorization identity")]
    AuthorizationIdentity,
    /// Its final message has another nonce than this conversation.
    #[error("the client answered with a nonce of another conversation")]
    Nonce,
    /// Its proof is wrong: it does not know the password.
    #[error("the client did not prove that it knows the password")]
    Proof,
}

/// The messages that are parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// SCRAM: the client's user name and nonce.
    ClientFirst,
    /// SCRAM: the client's proof.
    ClientFinal,
    /// PLAIN's only message.
    Plain,
}

/// How a message can be malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// It is longer than any message needs to be.
    #[error("it is longer than {MAX_MESSAGE} bytes")]
    TooLong,
    /// It is not UTF-8.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// An attribute is missing, in the wrong place, or empty.
    #[error("the attribute `{0}=` is missing, misplaced or empty")]
    Attribute(char),
    /// Something after the known attributes is not an attribute.
    #[error("an extension is not an attribute")]
    Extension,
    /// It needs an extension (`m=`), and none is known.
    #[error("it requires an extension")]
    MandatoryExtension,
    /// The nonce has characters that are not printable ASCII.
    #[error("the nonce is not printable ASCII")]
    Nonce,
    /// The header before the client's first attributes (`n,,`) is wrong.
    #[error("the GS2 header is wrong")]
    Header,
    /// A user name has an `=` that is neither `=2C` nor `=3D`.
    #[error("the user name is not escaped")]
    Username,
    /// The client's proof is not base64 of a digest.
    #[error("the proof is not base64 of the right length")]
    Proof,
    /// PLAIN's message is not three fields between two NULs.
    #[error("it has not three fields")]
    Fields,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClientFirst => "client-first message",
            Self::ClientFinal => "client-final message",
            Self::Plain => "PLAIN message",
        })
    }
}
