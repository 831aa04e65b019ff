//! The write concern that a connection string can set for operations.
//!
//! It is only data here: the pool has no use for it. `server::CommandDefaults` makes a field of commands of it.

use alloc::string::String;
use core::time::Duration;

/// What a write must have reached before it counts as done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteConcern {
    /// `w`: the members that must have it.
    pub w: Option<W>,
    /// `journal`: whether it must be in their journals.
    pub journal: Option<bool>,
    /// `wTimeoutMS`: how long the server waits for that; zero = forever. Ignored where a timeout of the whole operation
    /// is set (CSOT-3).
    pub timeout: Option<Duration>,
}

/// The `w` of a write concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum W {
    /// The number of members; 0 = the write is not acknowledged at all (MSG-7).
    Members(u32),
    /// `majority`, or a name that the replica set's configuration defines.
    Named(String),
}
