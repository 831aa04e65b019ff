//! zlib, by a library that can be told when to stop.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use miniz_oxide::DataFormat;
use miniz_oxide::deflate::core::{
    CompressionStrategy, CompressorOxide, TDEFLFlush, TDEFLStatus, compress, create_comp_flags_from_zip_params,
};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_PARSE_ZLIB_HEADER, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use super::{CompressionError, CompressorId, ZlibLevel};

/// How far the output grows at once, at least.
const STEP: usize = 4096;

/// A compressor with its tables, for many messages.
pub(super) struct Encoder(Box<CompressorOxide>);

/// A decompressor with its tables, for many messages.
#[derive(Default)]
pub(super) struct Decoder(Box<DecompressorOxide>);

impl Encoder {
    /// How many bytes its tables take, at most.
    pub(super) const SIZE: usize = 400 * 1024;

    pub(super) fn new(level: ZlibLevel) -> Self {
        let flags = create_comp_flags_from_zip_params(
            level.get().into(),
            DataFormat::Zlib.to_window_bits(),
            CompressionStrategy::Default as i32,
        );
        Self(Box::new(CompressorOxide::new(flags)))
    }

    /// Appends `plain`, compressed.
    pub(super) fn compress(&mut self, mut plain: &[u8], out: &mut Vec<u8>) -> Option<()> {
        self.0.reset();
        let mut end = out.len();
        loop {
            out.resize(end + STEP.max(plain.len() / 2), 0);
            let (status, read, written) = compress(&mut self.0, plain, &mut out[end..], TDEFLFlush::Finish);
            end += written;
            plain = plain.get(read..)?;
            match status {
                TDEFLStatus::Okay => {}
                TDEFLStatus::Done => {
                    out.truncate(end);
                    return Some(());
                }
                TDEFLStatus::BadParam | TDEFLStatus::PutBufFailed => return None,
            }
        }
    }
}

impl Decoder {
    /// How many bytes its tables take.
    pub(super) fn size(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Appends the `announced` bytes that `packed` stands for.
    ///
    /// The output grows with what comes out, one byte beyond what is announced, where an excess shows.
    pub(super) fn decompress(
        &mut self,
        mut packed: &[u8],
        announced: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), CompressionError> {
        self.0.init();
        let flags = TINFL_FLAG_PARSE_ZLIB_HEADER | TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let start = out.len();
        let mut room = announced.min(packed.len().saturating_mul(2).max(STEP)) + 1;
        let mut end = 0;
        loop {
            out.resize(start + room, 0);
            let (status, read, written) = decompress(&mut self.0, packed, &mut out[start..], end, flags);
            end += written;
            packed = packed.get(read..).unwrap_or_default();
            if end > announced {
                return Err(CompressionError::TooLong { announced });
            }
            #[expect(clippy::wildcard_enum_match_arm, reason = "there may be new ways to fail")]
            match status {
                TINFLStatus::HasMoreOutput if room <= announced => room = announced.min(room.saturating_mul(2)) + 1,
                TINFLStatus::Done => break,
                TINFLStatus::Adler32Mismatch => return Err(CompressionError::Checksum(CompressorId::Zlib)),
                _ => return Err(CompressionError::Malformed(CompressorId::Zlib)),
            }
        }
        out.truncate(start + end);
        if end < announced {
            return Err(CompressionError::TooShort { announced, found: end });
        }
        match packed.len() {
            0 => Ok(()),
            count => Err(CompressionError::TrailingBytes { count }),
        }
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decoder")
    }
}
