//! The compressors of the wire protocol (COMP-6).

/// A compressor of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// Snappy.
    Snappy,
    /// zlib, at the level of `zlibCompressionLevel` (COMP-8).
    Zlib,
    /// Zstandard.
    Zstd,
}

impl Compressor {
    /// Its name in options and in the hello.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    /// Its id in the header of a compressed message (COMP-6).
    pub fn id(self) -> u8 {
        match self {
            Self::Snappy => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        [Self::Snappy, Self::Zlib, Self::Zstd].into_iter().find(|compressor| compressor.name() == name)
    }
}
