//! The compressors that two sides can agree on, and what must never be compressed.
//!
//! Each is pure Rust, behind a cargo feature of its name. Unpacking trusts nothing: a message says how long it will be,
//! that length is checked against the limit first, and no compressor writes or allocates beyond it. Lying about the
//! length, in either direction, is an error of its own.

#[cfg(feature = "snappy")]
mod snappy;
#[cfg(feature = "zlib")]
mod zlib;
#[cfg(feature = "zstd")]
mod zstd;

mod compressor;
mod decompressor;

pub use compressor::Compressor;
pub(crate) use compressor::is_compressible_command;
pub use decompressor::Decompressor;

use core::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The compressors of the protocol (COMP-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum CompressorId {
    /// No compression, in the clothes of it.
    Noop = 0,
    /// Snappy, in its raw format.
    Snappy = 1,
    /// zlib.
    Zlib = 2,
    /// Zstandard.
    Zstd = 3,
}

/// How to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compression {
    /// Not at all, only wrap.
    Noop,
    /// With Snappy, which has no levels.
    Snappy,
    /// With zlib.
    Zlib(ZlibLevel),
    /// With Zstandard, at the one level of the encoder, which is about the original's level 1.
    Zstd,
}

/// zlibCompressionLevel (COMP-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZlibLevel(u8);

/// A compressed message cannot be unpacked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompressionError {
    /// A compressor that the protocol does not know.
    #[error("unknown compressor {0}")]
    UnknownCompressor(u8),
    /// A compressor that this program was built without.
    #[error("the message is compressed with {}, which this program was built without", .0.name())]
    NotBuiltIn(CompressorId),
    /// A compressed message within a compressed message.
    #[error("a compressed message contains another")]
    Nested,
    /// The length that is announced is negative, or more than is allowed.
    #[error("a compressed message announces {announced} bytes; at most {max} are allowed")]
    AnnouncedLength {
        /// The announced length.
        announced: i32,
        /// The greatest length allowed.
        max: usize,
    },
    /// More comes out than was announced.
    #[error("a compressed message has more than the {announced} bytes it announces")]
    TooLong {
        /// The announced length.
        announced: usize,
    },
    /// Less comes out than was announced.
    #[error("a compressed message announces {announced} bytes and has {found}")]
    TooShort {
        /// The announced length.
        announced: usize,
        /// What it has.
        found: usize,
    },
    /// What was compressed ends before the message does.
    #[error("{count} bytes follow the compressed data")]
    TrailingBytes {
        /// How many bytes follow.
        count: usize,
    },
    /// The bytes are not what the compressor makes.
    #[error("malformed {} data", .0.name())]
    Malformed(CompressorId),
    /// The data's own checksum is wrong.
    #[error("the checksum of the {} data is wrong", .0.name())]
    Checksum(CompressorId),
}

/// Commands that hold credentials, or come before compression is agreed on (COMP-7).
const NEVER_COMPRESSED: [&str; 11] = [
    "hello",
    "isMaster",
    "saslStart",
    "saslContinue",
    "getnonce",
    "authenticate",
    "createUser",
    "updateUser",
    "copydbSaslStart",
    "copydbgetnonce",
    "copydb",
];

/// Whether a command may be compressed (COMP-7). Case is ignored: to send a password in another spelling of its command
/// is no reason to compress it.
pub fn is_compressible(command: &str) -> bool {
    !NEVER_COMPRESSED.iter().any(|never| never.eq_ignore_ascii_case(command))
}

impl CompressorId {
    /// All compressors, by number.
    pub const ALL: [Self; 4] = [Self::Noop, Self::Snappy, Self::Zlib, Self::Zstd];

    /// The compressor of this number.
    pub fn from_id(id: u8) -> Result<Self, CompressionError> {
        Self::ALL.into_iter().find(|known| known.id() == id).ok_or(CompressionError::UnknownCompressor(id))
    }

    /// The compressor of this name, as connection strings and handshakes spell it (COMP-2).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// The compressor's number.
    pub fn id(self) -> u8 {
        self as u8
    }

    /// The compressor's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    /// Whether this program was built with the compressor.
    pub fn is_built_in(self) -> bool {
        match self {
            Self::Noop => true,
            Self::Snappy => cfg!(feature = "snappy"),
            Self::Zlib => cfg!(feature = "zlib"),
            Self::Zstd => cfg!(feature = "zstd"),
        }
    }
}

impl fmt::Display for CompressorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Compression {
    /// Which compressor it is.
    pub fn id(self) -> CompressorId {
        match self {
            Self::Noop => CompressorId::Noop,
            Self::Snappy => CompressorId::Snappy,
            Self::Zlib(_) => CompressorId::Zlib,
            Self::Zstd => CompressorId::Zstd,
        }
    }
}

impl ZlibLevel {
    /// The level of zlib's own choice, which is written -1 and means 6.
    pub const DEFAULT: Self = Self(6);

    /// The level -1 to 9, if it is one (COMP-8).
    pub fn new(level: i32) -> Option<Self> {
        match level {
            -1 => Some(Self::DEFAULT),
            0..=9 => u8::try_from(level).ok().map(Self),
            _ => None,
        }
    }

    /// The level, 0 to 9.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Default for ZlibLevel {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_with_secrets_are_not_compressed() {
        for command in ["hello", "isMaster", "ismaster", "saslStart", "saslContinue", "createUser", "copydb"] {
            assert!(!is_compressible(command), "{command}");
        }
        for command in ["ping", "insert", "find", "getMore", "hell", ""] {
            assert!(is_compressible(command), "{command}");
        }
    }

    #[test]
    fn zlib_levels_are_minus_one_to_nine() {
        for (level, expected) in [(-2, None), (-1, Some(6)), (0, Some(0)), (9, Some(9)), (10, None)] {
            assert_eq!(ZlibLevel::new(level).map(ZlibLevel::get), expected, "{level}");
        }
    }

    #[test]
    fn names_and_numbers_lead_back_to_their_compressor() {
        for compressor in CompressorId::ALL {
            assert_eq!(CompressorId::from_name(compressor.name()), Some(compressor));
            assert_eq!(CompressorId::from_id(compressor.id()), Ok(compressor));
        }
        assert_eq!(CompressorId::from_name("lz4"), None);
        assert_eq!(CompressorId::from_id(4), Err(CompressionError::UnknownCompressor(4)));
    }
}
