//! Errors of authentication, by blame: the user, the server, the calling code.
//!
//! No error holds a password, a key or a part of one. Texts of the other side are quoted and at most
//! [`MAX_MESSAGE`] long.

use alloc::string::{String, ToString};
use core::fmt;

use thiserror::Error;

use super::{MAX_MESSAGE, MIN_ITERATIONS};
use crate::connection::{EstablishError, Fault, Phase};
use crate::error_text::readable_debug;
use crate::options::{CredentialError, Mechanism};

/// Authentication failed. The connection is of no further use.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The credential cannot be used; none of it was sent.
    #[error("the credential cannot be used: {0}")]
    Login(LoginError),
    /// The server refused, or did not prove that it knows the password, or broke the protocol.
    #[error("the server {0}")]
    Server(ServerFault),
    /// The conversation was called out of turn.
    #[error(transparent)]
    Misuse(#[from] AuthMisuse),
}

/// Why a login cannot begin. The user has to correct the credential.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The credential lacks what its mechanism needs, or has what it has no use for.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// This crate cannot carry the mechanism out.
    #[error("{} cannot be carried out; use SCRAM-SHA-256, SCRAM-SHA-1, PLAIN or MONGODB-X509", mechanism.name())]
    NotCarriedOut {
        /// The mechanism.
        mechanism: Mechanism,
    },
    /// This build lacks the mechanism.
    #[error("this build has no {}: enable the feature `auth` of the cmap crate that you use", mechanism.name())]
    NotBuiltIn {
        /// The mechanism.
        mechanism: Mechanism,
    },
    /// SASLprep does not allow the password (AUTH-12).
    #[error("SASLprep prohibits a character of the password, or its mix of writing directions")]
    PasswordProhibited,
}

readable_debug!(AuthError, LoginError);

/// A fault or a refusal of the server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ServerFault {
    /// A message does not follow the grammar of RFC 5802.
    #[error("sent a malformed {message}: {problem}")]
    Malformed {
        /// Which message.
        message: Message,
        /// The fault.
        problem: Malformed,
    },
    /// Its nonce does not extend ours: the answer belongs to another conversation (AUTH-16).
    #[error("answered with a nonce that does not extend the client's")]
    Nonce,
    /// The keys would be too cheap to guess the password from (AUTH-13).
    #[error("asked for {0} iterations, fewer than {MIN_ITERATIONS}")]
    TooFewIterations(u32),
    /// The keys would cost the client more work than it allows.
    #[error(
        "asked for {asked} iterations, and {allowed} are allowed; if it is to be trusted, raise max_scram_iterations"
    )]
    TooManyIterations {
        /// The server's number; more than 64 bits read as the largest.
        asked: u64,
        /// The client's maximum.
        allowed: u32,
    },
    /// Its signature is wrong: it does not know the password (AUTH-16).
    #[error("did not prove that it knows the password")]
    Signature,
    /// It refused with SCRAM's own `e=`.
    #[error("refused: {0:?}")]
    Refused(String),
    /// It ended the conversation before its last message.
    #[error("ended the conversation early")]
    EndedEarly,
    /// It did not end the conversation after its last message.
    #[error("did not end the conversation")]
    NotEnded,
}

/// The messages that are parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// SCRAM: nonce, salt and iteration count.
    ServerFirst,
    /// SCRAM: the server's signature.
    ServerFinal,
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
    /// The salt is not base64.
    #[error("the salt is not base64")]
    Salt,
    /// The iteration count is not a positive number.
    #[error("the iteration count is not a positive number")]
    Iterations,
    /// The server's signature is not base64.
    #[error("the signature is not base64")]
    Signature,
}

/// The conversation was called out of turn.
///
/// Only the calling code can cause it, never data from a network. The conversation is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AuthMisuse {
    /// A reply was handed in while none was awaited.
    #[error("no reply is awaited: derive the keys first, and hand in each reply once")]
    UnexpectedReply,
    /// Keys were handed in that the conversation did not ask for.
    #[error("these keys were not asked for: answer each Derive once, with the keys of that request")]
    UnexpectedKeys,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ServerFirst => "server-first message",
            Self::ServerFinal => "server-final message",
        })
    }
}

impl From<AuthError> for EstablishError {
    fn from(error: AuthError) -> Self {
        let fault = match &error {
            AuthError::Server(ServerFault::Refused(_)) => Fault::Server { code: None },
            AuthError::Login(_) | AuthError::Server(_) | AuthError::Misuse(_) => Fault::Other,
        };
        Self::new(Phase::Authenticate, fault, error.to_string())
    }
}

impl From<LoginError> for AuthError {
    fn from(error: LoginError) -> Self {
        Self::Login(error)
    }
}

impl From<ServerFault> for AuthError {
    fn from(fault: ServerFault) -> Self {
        Self::Server(fault)
    }
}
