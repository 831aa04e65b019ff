//! Defaults for operations that a connection string can set: read and write concern, and read preference.
//!
//! They are only data here: the pool has no use for them. `server::CommandDefaults` makes fields of
//! commands of them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
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

/// Which members may serve a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadPreference {
    /// `readPreference`: the kind of member. Default primary.
    pub mode: Option<ReadMode>,
    /// `readPreferenceTags`: tag sets; the first that matches any member counts, and the empty set matches all.
    pub tag_sets: Option<Vec<TagSet>>,
    /// `maxStalenessSeconds`: how far a member may lag behind the primary.
    pub max_staleness: Option<MaxStaleness>,
}

/// Tags of a member, by name.
pub type TagSet = BTreeMap<String, String>;

/// The kind of member that may serve a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// The primary.
    Primary,
    /// The primary if there is one, else a secondary.
    PrimaryPreferred,
    /// A secondary.
    Secondary,
    /// A secondary if there is one, else the primary.
    SecondaryPreferred,
    /// Any, by latency alone.
    Nearest,
}

/// How far a member may lag behind the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxStaleness {
    /// Any distance; written -1.
    Unlimited,
    /// At most this duration, at least 90 s.
    AtMost(Duration),
}

impl ReadMode {
    /// Its name in options and commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::PrimaryPreferred => "primaryPreferred",
            Self::Secondary => "secondary",
            Self::SecondaryPreferred => "secondaryPreferred",
            Self::Nearest => "nearest",
        }
    }

    /// The modes by their names.
    pub(super) const NAMED: [(&'static str, Self); 5] = [
        ("primary", Self::Primary),
        ("primaryPreferred", Self::PrimaryPreferred),
        ("secondary", Self::Secondary),
        ("secondaryPreferred", Self::SecondaryPreferred),
        ("nearest", Self::Nearest),
    ];
}
