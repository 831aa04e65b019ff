//! Unpacking an OP_COMPRESSED into the message it was before.

use alloc::vec::Vec;

use super::{CompressionError, CompressorId};

/// Unpacks compressed messages, and keeps its tables from one to the next.
#[derive(Debug, Default)]
pub struct Decompressor {
    #[cfg(feature = "zlib")]
    zlib: Option<super::zlib::Decoder>,
}

impl Decompressor {
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
