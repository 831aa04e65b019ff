//! OP_COMPRESSED: another message, compressed (COMP-6).
//!
//! ```text
//! header | originalOpcode i32 | uncompressedSize i32, without a header | compressorId u8 | compressed body
//! ```
//!
//! Either side may send any message in this form or plain, whatever was agreed on (COMP-5). [`unpack`] restores the
//! plain message with its header, so that all later code sees only plain messages.

use alloc::vec::Vec;

use super::compression::{CompressionError, CompressorId, Decompressor};
use super::error::WireError;
use super::header::{HEADER_LEN, Header, OpCode};
use super::limits::Limits;

/// The fields between the header and the compressed body.
pub(super) const PREFIX_LEN: usize = 9;

/// The bytes between the header and the compressed body.
pub(super) fn prefix(original: OpCode, length: i32, compressor: CompressorId) -> [u8; PREFIX_LEN] {
    let [a, b, c, d] = original.code().to_le_bytes();
    let [e, f, g, h] = length.to_le_bytes();
    [a, b, c, d, e, f, g, h, compressor.id()]
}

/// A compressed message that is not unpacked yet.
pub(super) struct Packed<'a> {
    /// The header of the message that comes out.
    header: Header,
    pub(super) compressor: CompressorId,
    bytes: &'a [u8],
}

/// Replaces the contents of `out` by the message that was compressed into `message`, and returns the compressor.
///
/// Nothing is allocated before the announced length is known to be allowed. After an error the contents of `out` are
/// useless.
pub fn unpack(
    message: &[u8],
    limits: &Limits,
    decompressor: &mut Decompressor,
    out: &mut Vec<u8>,
) -> Result<CompressorId, WireError> {
    let packed = Packed::read(message, limits)?;
    packed.unpack(decompressor, out)?;
    Ok(packed.compressor)
}

impl<'a> Packed<'a> {
    /// Reads what stands before the compressed bytes. The announced length is one that is allowed.
    pub(super) fn read(message: &'a [u8], limits: &Limits) -> Result<Self, WireError> {
        let (header, mut cursor) = Header::split_of(OpCode::Compressed, message, limits)?;
        let original = OpCode::from_code(cursor.i32("originalOpcode")?)?;
        let announced = cursor.i32("uncompressedSize")?;
        let compressor = CompressorId::from_id(cursor.u8("compressorId")?)?;
        if original == OpCode::Compressed {
            return Err(CompressionError::Nested.into());
        }
        let max = limits.message() - HEADER_LEN.min(limits.message());
        let length = match usize::try_from(announced) {
            Ok(length) if length <= max => length,
            Ok(_) | Err(_) => return Err(CompressionError::AnnouncedLength { announced, max }.into()),
        };

        let header = Header { length: HEADER_LEN + length, op_code: original, ..header };
        Ok(Self { header, compressor, bytes: cursor.rest() })
    }

    /// The room that unpacking takes: the message, and for zlib one byte where an excess shows.
    pub(super) fn room(&self) -> usize {
        self.header.length + usize::from(self.compressor == CompressorId::Zlib)
    }

    /// Replaces what `out` holds by the message.
    pub(super) fn unpack(&self, decompressor: &mut Decompressor, out: &mut Vec<u8>) -> Result<(), CompressionError> {
        out.clear();
        out.extend_from_slice(&self.header.encode());
        decompressor.decompress(self.compressor, self.bytes, self.header.length - HEADER_LEN, out)
    }
}
