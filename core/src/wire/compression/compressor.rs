//! Compressing a message that was just written.
//!
//! The message is replaced in place by its compressed form, an OP_COMPRESSED. A compressor keeps its tables and its
//! buffer from one message to the next, and belongs to no connection: with zlib it takes a third of a megabyte, with
//! Zstandard eight times that, and connections [borrow](crate::wire::BufferPool) one for each command.

#[cfg(any(feature = "snappy", feature = "zstd"))]
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use bson::RawDocument;

use super::{Compression, CompressionError, CompressorId, is_compressible};
use crate::wire::buffer_pool::KEPT;
use crate::wire::cursor::Cursor;
use crate::wire::document::command_name;
use crate::wire::error::EncodeError;
use crate::wire::header::{HEADER_LEN, Header, OpCode, length_field, patch_length};
use crate::wire::limits::Limits;
use crate::wire::op_compressed::{PREFIX_LEN, prefix};

/// Compresses messages.
pub struct Compressor {
    compression: Compression,
    codec: Codec,
    packed: Vec<u8>,
}

#[derive(Debug)]
enum Codec {
    Noop,
    #[cfg(feature = "snappy")]
    Snappy(Box<super::snappy::Encoder>),
    #[cfg(feature = "zlib")]
    Zlib(super::zlib::Encoder),
    #[cfg(feature = "zstd")]
    Zstd(Box<super::zstd::Encoder>),
}

// What was compressed is nobody's business but its user's, so it is not shown.
impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Compressor {
    /// A compressor, if this program was built with it.
    pub fn new(compression: Compression) -> Result<Self, CompressionError> {
        let codec = match compression {
            Compression::Noop => Codec::Noop,
            #[cfg(feature = "snappy")]
            Compression::Snappy => Codec::Snappy(Box::new(super::snappy::Encoder::new())),
            #[cfg(feature = "zlib")]
            Compression::Zlib(level) => Codec::Zlib(super::zlib::Encoder::new(level)),
            #[cfg(feature = "zstd")]
            Compression::Zstd => Codec::Zstd(Box::new(super::zstd::Encoder::new())),
            #[allow(unreachable_patterns, reason = "there are others if a feature is off")]
            other => return Err(CompressionError::NotBuiltIn(other.id())),
        };
        Ok(Self { compression, codec, packed: Vec::new() })
    }

    /// Which compressor it is.
    pub fn id(&self) -> CompressorId {
        self.compression.id()
    }

    /// How it compresses.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// How many bytes it takes, tables and buffers.
    pub fn size(&self) -> usize {
        let codec = match &self.codec {
            Codec::Noop => 0,
            #[cfg(feature = "snappy")]
            Codec::Snappy(_) => super::snappy::Encoder::SIZE,
            #[cfg(feature = "zlib")]
            Codec::Zlib(_) => super::zlib::Encoder::SIZE,
            #[cfg(feature = "zstd")]
            Codec::Zstd(encoder) => encoder.size(),
        };
        codec + self.packed.capacity()
    }

    /// Compresses the OP_MSG of a command that `out` holds from `start` to its end, and says whether it did.
    ///
    /// It does not if the command must not be compressed (COMP-7), or if the result would be longer than the server
    /// takes, which a message that does not shrink can be. On an error the message stays as it was.
    pub fn compress_command(&mut self, out: &mut Vec<u8>, start: usize, limits: &Limits) -> Result<bool, EncodeError> {
        if is_compressible_command(&out[start..]) { self.compress(out, start, limits) } else { Ok(false) }
    }

    /// Compresses the reply that `out` holds from `start` to its end, as [`Compressor::compress_command`] does. Which
    /// command it answers, and thus whether it may be compressed, is for the caller to know.
    pub fn compress_reply(&mut self, out: &mut Vec<u8>, start: usize, limits: &Limits) -> Result<bool, EncodeError> {
        self.compress(out, start, limits)
    }

    fn compress(&mut self, out: &mut Vec<u8>, start: usize, limits: &Limits) -> Result<bool, EncodeError> {
        let Ok((header, plain)) = Header::split(&out[start..], limits) else { return Ok(false) };
        if header.op_code == OpCode::Compressed {
            return Ok(false);
        }
        let id = self.id();
        self.packed.clear();
        let packed = &mut self.packed;
        let compressed = match &mut self.codec {
            Codec::Noop => {
                packed.extend_from_slice(plain);
                Some(())
            }
            #[cfg(feature = "snappy")]
            Codec::Snappy(encoder) => encoder.compress(plain, packed),
            #[cfg(feature = "zlib")]
            Codec::Zlib(encoder) => encoder.compress(plain, packed),
            #[cfg(feature = "zstd")]
            Codec::Zstd(encoder) => encoder.compress(plain, packed),
        };
        compressed.ok_or(EncodeError::Compressor(id))?;

        let length = HEADER_LEN + PREFIX_LEN + self.packed.len();
        if length > limits.message() {
            self.packed.clear();
            self.packed.shrink_to(KEPT);
            return Ok(false);
        }
        let prefix = prefix(header.op_code, length_field(plain.len()), id);
        let header = Header { length, op_code: OpCode::Compressed, ..header };
        out.truncate(start);
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(&prefix);
        out.extend_from_slice(&self.packed);
        patch_length(out, start, length);
        self.packed.clear();
        self.packed.shrink_to(KEPT);
        Ok(true)
    }
}

/// Whether the OP_MSG of a command, as the writer wrote it, may be compressed (COMP-7).
pub(crate) fn is_compressible_command(message: &[u8]) -> bool {
    command(message).is_some_and(is_compressible)
}

/// The name of the command in an OP_MSG that the writer wrote, which puts the body first.
fn command(message: &[u8]) -> Option<&str> {
    let mut cursor = Cursor::new(message.get(HEADER_LEN + 4 + 1..)?);
    let length = Cursor::new(cursor.rest()).i32("").ok()?;
    let body = cursor.take(usize::try_from(length).ok()?, "").ok()?;
    command_name(RawDocument::from_bytes(body).ok()?)
}
