//! Why a connection string, or a set of options, cannot be used. No error holds any part of a user name or password.

use alloc::borrow::Cow;
use alloc::string::String;

use serde::Serialize;
use thiserror::Error;

use super::credential::CredentialError;
use super::hosts::HostProblem;
use super::percent::EncodingError;
use super::read_preference::ReadPreferenceError;
use super::secret::Shown;
use crate::error_text::readable_debug;

/// The longest connection string that is read, in bytes: room for a thousand hosts, and a bound for the work.
pub const MAX_LENGTH: usize = 65_536;

/// A connection string, or the options in it, cannot be used.
///
/// It displays as one sentence that names the part, its value if that is not secret, and what to write instead.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectionStringError {
    /// The scheme is missing or unknown.
    #[error("the connection string does not begin with mongodb:// or mongodb+srv://; write mongodb://host:port")]
    Scheme,
    /// The connection string is longer than [`MAX_LENGTH`].
    #[error("the connection string is {length} bytes long; write at most {MAX_LENGTH}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// User name and password are not encoded as they must be.
    #[error("the user name or password {0}")]
    UserInfo(UserInfoProblem),
    /// An `@` stands where it does not end user name and password.
    #[error("an @ stands after {after}; write it as %40, and in a user name or password write / as %2F, ? as %3F")]
    StrayAt {
        /// What comes before the `@`.
        after: &'static str,
    },
    /// A host cannot be used.
    #[error("host {position}, {host}, {problem}")]
    Host {
        /// Which one, counted from 1.
        position: usize,
        /// The host as written, without its port.
        host: Shown,
        /// What is wrong.
        problem: HostProblem,
    },
    /// There is no host.
    #[error("there is no host; write mongodb://host:port, and a Unix socket as %2Fpath%2Fto%2Fname.sock")]
    NoHost,
    /// The database has a character that the name of a database cannot have.
    #[error("the database has the character {character:?}; write a name without / \\ space \" $ and NUL")]
    DatabaseCharacter {
        /// The first such character.
        character: char,
    },
    /// A text has a NUL, which would cut it off in the server or in the system.
    #[error("option {option} has a NUL in it; write a text without %00")]
    NulInOption {
        /// The option's name as the specification spells it.
        option: &'static str,
    },
    /// An option has a value outside of its bounds that is not simply ignored: code has set it, or it protects.
    #[error("option {option} has a value that it cannot have; set {expected}")]
    Value {
        /// The option's name as the specification spells it.
        option: &'static str,
        /// What the value must be.
        expected: Cow<'static, str>,
    },
    /// The database is not encoded as it must be.
    #[error("the database cannot be decoded: {0}")]
    DatabaseEncoding(EncodingError),
    /// An option has no `=`.
    #[error("option {position}{name} has no = and no value; write name=value, and an & in a value as %26",
        name = name.map_or_else(Default::default, |name| alloc::format!(", {name},")))]
    IncompleteOption {
        /// Which one, counted from 1.
        position: usize,
        /// Its name, if that is the name of an option.
        name: Option<&'static str>,
    },
    /// An option that must not be repeated is there more than once.
    #[error("option {option} is there more than once; write it once")]
    Repeated {
        /// The option's name as the specification spells it.
        option: &'static str,
    },
    /// `tls` and `ssl` are the same option, but have different values.
    #[error("the values of tls and ssl are not all the same; write tls once")]
    TlsDisagrees,
    /// Two options, or an option and the rest of the connection string, exclude each other.
    #[error("{first} cannot be used with {second}; {advice}")]
    Conflict {
        /// One option, with its value if that matters.
        first: &'static str,
        /// The other, or a part of the connection string.
        second: &'static str,
        /// The rule's id.
        rule: &'static str,
        /// What to do about it.
        advice: &'static str,
    },
    /// An option needs another one.
    #[error("{option} needs {needed}; add it, or remove {option}")]
    Missing {
        /// The option that is present.
        option: &'static str,
        /// The option that is missing.
        needed: &'static str,
        /// The rule's id.
        rule: &'static str,
    },
    /// The credential is incomplete or contradicts itself.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The options of the pool contradict each other.
    #[error(transparent)]
    Pool(#[from] PoolOptionsError),
    /// The read preference contradicts itself.
    #[error(transparent)]
    ReadPreference(#[from] ReadPreferenceError),
    /// The host of a `mongodb+srv` connection string cannot be looked up.
    #[error("a mongodb+srv:// connection string {0}; write mongodb+srv://host.domain")]
    SrvHost(&'static str),
    /// The hosts behind a `mongodb+srv` connection string are not known yet.
    #[error(
        "the hosts behind mongodb+srv:// have to be looked up in DNS before a client is made, which did not happen; write \
         mongodb:// and the hosts that its SRV records name"
    )]
    NotLookedUp,
    /// A TXT record sets an option that only the connection string may set (DNS-8).
    #[error(
        "option {name} is not allowed in a TXT record; keep authSource, loadBalanced and replicaSet, and remove it"
    )]
    TxtOption {
        /// The option as written.
        name: Shown,
    },
}

readable_debug!(ConnectionStringError);

/// An option has a value that it cannot have: the option, the value and the rule.
#[derive(Clone, PartialEq, Eq, Error, Serialize)]
#[error("option {option} is {value}, but {rule}")]
#[non_exhaustive]
pub struct PoolOptionsError {
    /// The option's name as the specification spells it.
    pub option: &'static str,
    /// The value it was given.
    pub value: String,
    /// The values that it can have.
    pub rule: String,
}

readable_debug!(PoolOptionsError);

/// What is wrong with user name and password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UserInfoProblem {
    /// An `@` that is not encoded.
    #[error("has an @ that is not encoded; write it as %40")]
    At,
    /// More than one `:`.
    #[error("has a : that is not encoded; write it as %3A")]
    Colon,
    /// It cannot be decoded.
    #[error("cannot be decoded: {0}")]
    Encoding(EncodingError),
}

impl From<EncodingError> for UserInfoProblem {
    fn from(error: EncodingError) -> Self {
        Self::Encoding(error)
    }
}
