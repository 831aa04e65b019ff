//! Compresses replies. Compressors are large, so connections borrow one for each reply.

use std::io;
use std::sync::{Mutex, PoisonError};

use cmap_core::wire::{Compression, Compressor, CompressorId, Limits, ZlibLevel};

/// How many compressors are kept: one of zlib takes a third of a megabyte, one of Zstandard eight times that.
const KEPT: usize = 4;

/// What is larger is compressed on a thread where it holds up nobody else's commands.
const LARGE: usize = 256 * 1024;

/// The compressors of the hub.
#[derive(Debug, Default)]
pub(super) struct Packers(Mutex<Vec<Compressor>>);

impl Packers {
    /// Compresses a message. One that cannot be compressed stays as it is, which is allowed (COMP-5).
    pub(super) async fn pack(&self, id: CompressorId, mut message: Vec<u8>) -> io::Result<Vec<u8>> {
        let Some(mut compressor) = self.borrow(id) else { return Ok(message) };
        let is_large = message.len() > LARGE;
        let work = move || {
            // It is whole either way.
            let _ = compressor.compress_reply(&mut message, 0, &Limits::DEFAULT);
            (compressor, message)
        };
        let (compressor, message) = if is_large { tokio::task::spawn_blocking(work).await? } else { work() };
        self.give_back(compressor);
        Ok(message)
    }

    /// One that is there, or a new one; `None` if the hub was built without it.
    fn borrow(&self, id: CompressorId) -> Option<Compressor> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = kept.iter().position(|compressor| compressor.id() == id) {
            return Some(kept.swap_remove(place));
        }
        drop(kept);
        Compressor::new(match id {
            CompressorId::Noop => Compression::Noop,
            CompressorId::Snappy => Compression::Snappy,
            CompressorId::Zlib => Compression::Zlib(ZlibLevel::DEFAULT),
            CompressorId::Zstd => Compression::Zstd,
        })
        .ok()
    }

    fn give_back(&self, compressor: Compressor) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(compressor);
        }
    }
}
