//! Which names of members an application takes.

use alloc::borrow::Cow;
use alloc::string::ToString;

use thiserror::Error;

use crate::address::ServerAddress;
use crate::error_text::presentable;

/// The longest name of a member, with its port: that of a host in DNS has 253 bytes.
const LONGEST: usize = 260;

/// No application takes an agent of a member of this name.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemberNameError {
    /// It is too long.
    #[error("the name of a member has at most 260 bytes with its port, not {0}; write it as the replica set knows it")]
    TooLong(usize),
    /// It could forge a line of a log, into which it gets before anybody has proven anything.
    #[error("the name of a member has no control characters; write it as the replica set knows it")]
    ControlCharacters,
    /// It is no host.
    #[error("a replica set knows its members by host and port, not by a Unix socket; give both")]
    UnixSocket,
}

crate::error_text::readable_debug!(MemberNameError);

/// Whether an application takes an agent that speaks for a member of this name.
///
/// # Errors
/// It does not.
pub fn check_member_name(member: &ServerAddress) -> Result<(), MemberNameError> {
    if matches!(member, ServerAddress::Unix { .. }) {
        return Err(MemberNameError::UnixSocket);
    }
    let name = member.to_string();
    if name.len() > LONGEST {
        return Err(MemberNameError::TooLong(name.len()));
    }
    match presentable(&name) {
        Cow::Borrowed(_) => Ok(()),
        Cow::Owned(_) => Err(MemberNameError::ControlCharacters),
    }
}
