//! Unpacking an OP_COMPRESSED into the message it was before.

use alloc::vec::Vec;

use super::{CompressionError, CompressorId};
use crate::wire::buffer_pool::Lender;

/// Unpacks compressed messages, and keeps its tables from one to the next.
#[derive(Debug, Default)]
pub struct Decompressor {
    #[cfg(feature = "zlib")]
    zlib: Option<super::zlib::Decoder>,
}

impl Decompressor {
    /// Borrows tables for what `id` has compressed, if it needs any and there are none yet.
    pub(in crate::wire) fn borrow(&mut self, id: CompressorId, lender: &mut impl Lender) {
        if id == CompressorId::Zlib
            && self.is_empty()
            && let Some(lent) = lender.visit(|buffers| buffers.take_decompressor())
        {
            *self = lent;
        }
    }

    /// Gives its tables back, if it has any.
    #[inline]
    pub(in crate::wire) fn give_back(&mut self, lender: &mut impl Lender) {
        if !self.is_empty() {
            let spare = core::mem::take(self);
            drop(lender.visit(|buffers| buffers.put_decompressor(spare)));
        }
    }

    fn is_empty(&self) -> bool {
        #[cfg(feature = "zlib")]
        return self.zlib.is_none();
        #[cfg(not(feature = "zlib"))]
        true
    }

    /// How many bytes its tables take.
    #[allow(clippy::unused_self, reason = "not every compressor has tables to keep")]
    pub(in crate::wire) fn size(&self) -> usize {
        #[cfg(feature = "zlib")]
        return self.zlib.as_ref().map_or(0, super::zlib::Decoder::size);
        #[cfg(not(feature = "zlib"))]
        0
    }

    /// Appends the `announced` bytes that `packed` stands for. After an error `out` holds whatever came out so far.
    #[allow(clippy::unused_self, reason = "not every compressor has tables to keep")]
    pub(in crate::wire) fn decompress(
        &mut self,
        id: CompressorId,
        packed: &[u8],
        announced: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), CompressionError> {
        match id {
            CompressorId::Noop if packed.len() > announced => Err(CompressionError::TooLong { announced }),
            CompressorId::Noop if packed.len() < announced => {
                Err(CompressionError::TooShort { announced, found: packed.len() })
            }
            CompressorId::Noop => {
                out.extend_from_slice(packed);
                Ok(())
            }
            #[cfg(feature = "snappy")]
            CompressorId::Snappy => super::snappy::decompress(packed, announced, out),
            #[cfg(feature = "zlib")]
            CompressorId::Zlib => self.zlib.get_or_insert_default().decompress(packed, announced, out),
            #[cfg(feature = "zstd")]
            CompressorId::Zstd => super::zstd::decompress(packed, announced, out),
            #[allow(unreachable_patterns, reason = "there are others if a feature is off")]
            other => Err(CompressionError::NotBuiltIn(other)),
        }
    }
}
