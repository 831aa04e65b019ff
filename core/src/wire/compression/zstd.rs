//! Zstandard, by a library without C and without `unsafe` of ours.
//!
//! Its encoder has one level that compresses, about the original's level 1, and a window of one block, 128 KiB.
//! Everything that reads Zstandard reads what it writes. Its decoder leaves two checks to its user: how much comes out
//! of a frame, and whether the frame's checksum is right.

use alloc::vec::Vec;
use core::fmt;

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::encoding::{CompressionLevel, FrameCompressor, MatchGeneratorDriver};
use ruzstd::io::{Error, Read};

use super::{CompressionError, CompressorId};
use crate::wire::buffer_pool::KEPT;

/// The window that every decoder should support, by RFC 8878: encoders use it whatever the size of the message.
const COMMON_WINDOW: u64 = 8 * 1024 * 1024;

/// A compressor with its tables, for many messages.
pub(super) struct Encoder(FrameCompressor<Input, Vec<u8>, MatchGeneratorDriver>);

/// What is compressed. The compressor wants to own what it reads, so it reads a copy.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    at: usize,
}

impl Encoder {
    /// How many bytes its tables and its windows take, at most.
    const TABLES: usize = 2816 * 1024;

    pub(super) fn new() -> Self {
        Self(FrameCompressor::new(CompressionLevel::Fastest))
    }

    /// How many bytes it takes, tables and buffers.
    pub(super) fn size(&self) -> usize {
        Self::TABLES + self.0.source().map_or(0, |input| input.bytes.capacity())
    }

    /// Appends `plain`, compressed.
    pub(super) fn compress(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut input = self.0.source_mut().map(core::mem::take).unwrap_or_default();
        input.bytes.clear();
        input.bytes.extend_from_slice(plain);
        input.at = 0;
        self.0.set_source(input);
        self.0.set_drain(core::mem::take(out));
        self.0.compress();
        *out = self.0.take_drain()?;
        if let Some(input) = self.0.source_mut() {
            input.bytes.clear();
            input.bytes.shrink_to(KEPT);
        }
        Some(())
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

/// Appends the `announced` bytes that `packed` stands for, which is one frame.
///
/// Each message gets a decoder of its own: one that is used again sets aside the whole window that a frame asks for
/// before anything comes out of it, a new one grows with what comes out.
pub(super) fn decompress(mut packed: &[u8], announced: usize, out: &mut Vec<u8>) -> Result<(), CompressionError> {
    const MALFORMED: CompressionError = CompressionError::Malformed(CompressorId::Zstd);
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(COMMON_WINDOW.max(announced as u64));
    decoder.init(&mut packed).map_err(|_| MALFORMED)?;

    // Stops at the first block, of at most 128 KiB, that goes beyond what is announced.
    let one_too_many = BlockDecodingStrategy::UptoBytes(announced + 1);
    let finished = decoder.decode_blocks(&mut packed, one_too_many).map_err(|_| MALFORMED)?;
    let found = decoder.can_collect();
    if !finished || found > announced {
        return Err(CompressionError::TooLong { announced });
    }
    if found < announced {
        return Err(CompressionError::TooShort { announced, found });
    }
    out.reserve(found);
    decoder.collect_to_writer(out).map_err(|_| MALFORMED)?;
    if let Some(checksum) = decoder.get_checksum_from_data()
        && decoder.get_calculated_checksum() != Some(checksum)
    {
        return Err(CompressionError::Checksum(CompressorId::Zstd));
    }
    match packed.len() {
        0 => Ok(()),
        count => Err(CompressionError::TrailingBytes { count }),
    }
}
