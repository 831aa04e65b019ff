//! Snappy, in its raw format, which begins with the length of what comes out.

use alloc::vec::Vec;
use core::fmt;

use super::{CompressionError, CompressorId};

/// More than one byte of Snappy data can become: a copy of three bytes stands for 64 at most.
const GREATEST_RATIO: usize = 22;

/// A compressor with its tables, for many messages.
pub(super) struct Encoder(snap::raw::Encoder);

impl Encoder {
    /// How many bytes its tables take, at most.
    pub(super) const SIZE: usize = 40 * 1024;

    pub(super) fn new() -> Self {
        Self(snap::raw::Encoder::new())
    }

    /// Appends `plain`, compressed.
    pub(super) fn compress(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        out.resize(start + snap::raw::max_compress_len(plain.len()), 0);
        let result = self.0.compress(plain, &mut out[start..]);
        out.truncate(start + result.as_ref().copied().unwrap_or(0));
        result.ok().map(drop)
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

/// Appends the `announced` bytes that `packed` stands for.
pub(super) fn decompress(packed: &[u8], announced: usize, out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let malformed = CompressionError::Malformed(CompressorId::Snappy);
    let found = snap::raw::decompress_len(packed).map_err(|_| malformed.clone())?;
    if found > announced {
        return Err(CompressionError::TooLong { announced });
    }
    if found < announced {
        return Err(CompressionError::TooShort { announced, found });
    }
    // Before the allocation: both lengths may lie in unison.
    if announced / GREATEST_RATIO > packed.len() {
        return Err(malformed);
    }
    let start = out.len();
    out.resize(start + announced, 0);
    match snap::raw::Decoder::new().decompress(packed, &mut out[start..]) {
        Ok(_) => Ok(()),
        Err(_) => Err(malformed),
    }
}
