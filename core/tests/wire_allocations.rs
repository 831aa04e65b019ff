//! A round trip in warm buffers allocates nothing.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use bson::{RawDocument, rawdoc};
use cmap_core::wire::{
    CommandReply, Content, Decoder, Field, Flags, FrameReader, Limits, MessageIds, MessageWriter, Query, encode_query,
    encode_reply,
};

const LIMITS: Limits = Limits::DEFAULT;

/// The two sides of a connection, with all the buffers they need.
#[derive(Default)]
struct Sides {
    out: Vec<u8>,
    frames: FrameReader,
    decoder: Decoder,
}

impl Sides {
    /// A message to the other side, in pieces of `size` bytes.
    fn transfer(&mut self, fields: &[Field<'_>], flags: Flags, body: &RawDocument, size: usize) -> bool {
        self.out.clear();
        MessageWriter::begin(&mut self.out, MessageIds::request(1), flags, body, fields, &LIMITS).unwrap().finish();
        let mut ok = false;
        for mut piece in self.out.chunks(size) {
            while let Some(frame) = self.frames.read(&mut piece, &LIMITS).unwrap() {
                let Content::Message(message) = self.decoder.decode(frame, &LIMITS).unwrap().content else { panic!() };
                ok = CommandReply::read(message.body).ok;
            }
        }
        ok
    }
}

#[test]
fn a_ping_allocates_nothing_once_warm() {
    let (ping, pong, lsid) = (rawdoc! { "ping": 1 }, rawdoc! { "ok": 1.0 }, rawdoc! { "id": 1 });
    let fields = [Field::String("$db", "admin"), Field::Document("lsid", &lsid), Field::Int64("txnNumber", 1)];
    for size in [7, 4096] {
        for flags in [Flags::NONE, Flags::CHECKSUM_PRESENT] {
            let mut sides = Sides::default();
            let mut round_trip = || {
                assert!(!sides.transfer(&fields, flags, &ping, size));
                assert!(sides.transfer(&[], flags, &pong, size));
            };
            round_trip();

            let allocations = allocation_counter::measure(|| (0..1000).for_each(|_| round_trip()));

            assert_eq!(allocations.count_total, 0, "{size}, {flags:?}");
        }
    }
}

#[test]
fn the_old_handshake_allocates_nothing_once_warm() {
    let (hello, answer) = (rawdoc! { "isMaster": 1 }, rawdoc! { "ok": 1.0 });
    let mut out = Vec::with_capacity(200);

    let allocations = allocation_counter::measure(|| {
        encode_query(&mut out, MessageIds::request(1), "admin", &hello, &LIMITS).unwrap();
        assert!(Query::decode(&out, &LIMITS).is_ok());
        encode_reply(&mut out, MessageIds::reply(1, 1), &answer, &LIMITS).unwrap();
    });

    assert_eq!(allocations.count_total, 0);
}

#[test]
fn snappy_and_zlib_allocate_nothing_once_warm() {
    use cmap_core::wire::{Compression, Compressor, ZlibLevel};

    let body = rawdoc! { "find": "collection".repeat(200) };
    for compression in [Compression::Snappy, Compression::Zlib(ZlibLevel::DEFAULT)] {
        let (mut out, mut decoder) = (Vec::new(), Decoder::new());
        let mut compressor = Compressor::new(compression).unwrap();
        let mut round_trip = || {
            out.clear();
            MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, &body, &[], &LIMITS).unwrap().finish();
            assert!(compressor.compress_command(&mut out, 0, &LIMITS).unwrap());
            assert!(decoder.decode(&out, &LIMITS).is_ok());
        };
        round_trip();

        let allocations = allocation_counter::measure(|| (0..100).for_each(|_| round_trip()));

        assert_eq!(allocations.count_total, 0, "{compression:?}: {allocations:?}");
    }
}
