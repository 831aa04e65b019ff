//! Network traffic, as `serverStatus` counts it.

use bson::RawDocumentBuf;
use cmap_core::wire::CompressorId;

use super::document::document;
use super::request::append;

/// Counts of bytes and requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) requests: u64,
    compressed: [Flow; CompressorId::ALL.len()],
    decompressed: [Flow; CompressorId::ALL.len()],
}

/// Bytes into a compressor or decompressor, and out of it.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    bytes_in: u64,
    bytes_out: u64,
}

impl Traffic {
    /// A reply of `plain` bytes was compressed to `packed`.
    pub(super) fn count_compressed(&mut self, id: CompressorId, plain: usize, packed: usize) {
        self.compressed[usize::from(id.id())].count(plain, packed);
    }

    /// A request of `packed` bytes was unpacked to `plain`.
    pub(super) fn count_decompressed(&mut self, id: CompressorId, packed: usize, plain: usize) {
        self.decompressed[usize::from(id.id())].count(packed, plain);
    }

    /// `network` of `serverStatus`.
    pub(super) fn to_document(&self, compressors: &[CompressorId]) -> RawDocumentBuf {
        let mut compression = RawDocumentBuf::new();
        for id in compressors {
            let at = usize::from(id.id());
            let flows = document! {
                "compressor": self.compressed[at].to_document(),
                "decompressor": self.decompressed[at].to_document(),
            };
            append(&mut compression, id.name(), flows);
        }
        document! {
            "bytesIn": long(self.bytes_in), "bytesOut": long(self.bytes_out), "numRequests": long(self.requests),
            "compression": compression,
        }
    }
}

impl Flow {
    fn count(&mut self, bytes_in: usize, bytes_out: usize) {
        self.bytes_in += bytes_in as u64;
        self.bytes_out += bytes_out as u64;
    }

    fn to_document(self) -> RawDocumentBuf {
        document! { "bytesIn": long(self.bytes_in), "bytesOut": long(self.bytes_out) }
    }
}

/// A count as BSON has it.
pub(super) fn long(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
