//! The versions of MongoDB that the server can be.

/// A version of MongoDB, whose commands, arguments and protocol the server has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ServerVersion {
    /// MongoDB 7.0, the default.
    #[default]
    V7_0,
    /// MongoDB 8.0: `bulkWrite`, and `sort` in the statements of `update`.
    V8_0,
}

impl ServerVersion {
    /// Every version, the oldest first.
    pub const ALL: [Self; 2] = [Self::V7_0, Self::V8_0];

    /// The version of that name, `major.minor`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Its name, `major.minor`, which is its feature compatibility version, too.
    pub fn name(self) -> &'static str {
        match self {
            Self::V7_0 => "7.0",
            Self::V8_0 => "8.0",
        }
    }

    /// The version as `buildInfo` shows it.
    pub(crate) fn number(self) -> &'static str {
        match self {
            Self::V7_0 => "7.0.0",
            Self::V8_0 => "8.0.0",
        }
    }

    /// The parts of the number.
    pub(crate) fn parts(self) -> [i32; 4] {
        match self {
            Self::V7_0 => [7, 0, 0, 0],
            Self::V8_0 => [8, 0, 0, 0],
        }
    }

    /// The newest version of the protocol that it speaks.
    pub(crate) fn wire_version(self) -> i32 {
        match self {
            Self::V7_0 => 21,
            Self::V8_0 => 25,
        }
    }
}
