//! Large messages and coders borrow spare memory for one use, and give it back.

use std::sync::Arc;

use allocation_counter::measure;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::connection::{ClientMetadata, Command, Connection, ConnectionOptions, Establish, Progress};
use cmap_core::wire::{
    BufferPool, Compression, Compressor, Content, Decoder, Flags, FrameReader, KEPT, Lender, Limits, MessageIds,
    MessageWriter, ZlibLevel,
};

const MIB: usize = 1024 * 1024;
const LIMITS: Limits = Limits::DEFAULT;
const ZLIB: Compression = Compression::Zlib(ZlibLevel::DEFAULT);
const COMPRESSIONS: [Compression; 4] = [Compression::Noop, Compression::Snappy, ZLIB, Compression::Zstd];

/// Pooled buffers that nobody may ask for.
struct Forbidden;

impl Lender for Forbidden {
    fn visit<T>(&mut self, _: impl FnOnce(&mut BufferPool) -> T) -> T {
        panic!("nothing is to be borrowed or given back")
    }
}

#[test]
fn a_large_message_borrows_its_buffer_and_gives_it_back() {
    let (mut frames, mut buffers, message) = (FrameReader::new(), pooled_buffer(2 * MIB), reply(1, MIB));

    assert_eq!(read_in_pieces(&mut frames, &message, &mut buffers), Some(message.len()));
    let while_read = (frames.capacity(), buffers.held());
    frames.give_back(&mut buffers);

    assert_eq!(while_read, (2 * MIB, 0));
    assert_eq!((frames.capacity(), buffers.held()), (0, 2 * MIB));
    assert!(frames.is_at_boundary());
}

#[test]
fn a_buffer_that_was_allocated_is_lent_to_the_next_reader() {
    let (mut buffers, message) = (BufferPool::new(), reply(1, MIB));
    let mut read = || {
        let mut frames = FrameReader::new();
        assert!(read_in_pieces(&mut frames, &message, &mut buffers).is_some());
        frames.give_back(&mut buffers);
    };
    read();

    let allocated = measure(read);

    assert!(allocated.bytes_total < KEPT as u64, "{allocated:?}");
}

#[test]
fn a_part_of_a_message_stays_where_it_is() {
    let (mut frames, mut buffers, message) = (FrameReader::new(), BufferPool::new(), reply(1, MIB));
    let (first, second) = message.split_at(MIB / 2);
    assert_eq!(frames.read_borrowing(&mut &first[..], &LIMITS, &mut buffers), Ok(None));

    frames.give_back(&mut buffers);

    assert_eq!((frames.pending(), buffers.held()), (MIB / 2, 0));
    assert_eq!(frames.read_borrowing(&mut &second[..], &LIMITS, &mut buffers), Ok(Some(&message[..])));
}

#[test]
fn small_messages_borrow_nothing() {
    let (mut frames, mut decoder, message) = (FrameReader::new(), Decoder::new(), reply(1, KEPT / 2));

    let (first, second) = message.split_at(10);
    assert_eq!(frames.read_borrowing(&mut &first[..], &LIMITS, &mut Forbidden), Ok(None));
    let mut input = second;
    let frame = frames.read_borrowing(&mut input, &LIMITS, &mut Forbidden).unwrap().unwrap();
    assert!(decoder.decode_borrowing(frame, &LIMITS, &mut Forbidden).is_ok());

    frames.give_back(&mut Forbidden);
    decoder.give_back(&mut Forbidden);
}

#[test]
fn a_decoder_gives_back_what_a_compressed_message_took_and_the_next_one_borrows_it() {
    for compression in COMPRESSIONS {
        let (mut buffers, plain) = (BufferPool::new(), reply(1, MIB));
        let packed = compressed(compression, plain.clone());
        let mut decode = || {
            let mut decoder = Decoder::new();
            let Content::Message(message) = decoder.decode_borrowing(&packed, &LIMITS, &mut buffers).unwrap().content
            else {
                panic!()
            };
            assert_eq!(message.header.length, plain.len());
            decoder.give_back(&mut buffers);
        };

        decode();
        let allocated = measure(decode);

        assert!((MIB..3 * MIB).contains(&buffers.held()), "{compression:?}: {}", buffers.held());
        // Zstandard's decoder has a window of its own for each message.
        if compression != Compression::Zstd {
            assert!(allocated.bytes_total < KEPT as u64, "{compression:?}: {allocated:?}");
        }
    }
}

#[test]
fn a_connection_keeps_no_compressor_between_commands() {
    for compression in COMPRESSIONS {
        let (mut buffers, mut first, mut second) =
            (BufferPool::new(), established(compression), established(compression));

        send(&mut first, &mut buffers);
        let after_the_first = buffers.held();
        let allocated = measure(|| send(&mut second, &mut buffers));

        assert_eq!(
            buffers.held(),
            after_the_first,
            "{compression:?}: the second has borrowed what the first gave back"
        );
        // Zstandard's encoder allocates for every message.
        if compression != Compression::Zstd {
            assert!(allocated.bytes_total < 16 * 1024, "{compression:?}: {allocated:?}");
        }
    }
}

#[test]
fn a_compressor_takes_no_more_than_it_says() {
    for compression in COMPRESSIONS {
        let (mut size, message) = (0, reply(1, 3 * MIB));
        let mut out = Vec::with_capacity(4 * MIB);

        let allocated = measure(|| {
            let mut compressor = Compressor::new(compression).unwrap();
            for _ in 0..2 {
                out.clear();
                out.extend_from_slice(&message);
                assert!(compressor.compress_reply(&mut out, 0, &LIMITS).unwrap());
            }
            size = compressor.size();
            std::mem::forget(compressor);
        });

        let taken = usize::try_from(allocated.bytes_current).unwrap();
        assert!(taken <= size && size <= 2 * taken.max(KEPT), "{compression:?} takes {taken} and says {size}");
    }
}

#[test]
fn an_established_connection_keeps_nothing_of_a_large_greeting() {
    let mut hello = hello(ZLIB);
    hello.append(bson::cstr!("padding"), "x".repeat(1_000_000));

    let mut kept = None;
    let allocated = measure(|| kept = Some(establish(ZLIB, &hello)));

    assert!(allocated.bytes_current < 64 * 1024, "{allocated:?}");
}

fn pooled_buffer(capacity: usize) -> BufferPool {
    let (mut buffers, mut buffer) = (BufferPool::new(), Vec::with_capacity(capacity));
    buffers.take_back(&mut buffer);
    buffers
}

/// A reply of so many bytes that do not compress well, and a few more.
fn reply(response_to: i32, bytes: usize) -> Vec<u8> {
    let mut random = 1_u32;
    let noise = (0..bytes).map(|_| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + u8::try_from(random >> 28).unwrap())
    });
    message(response_to, &rawdoc! { "ok": 1, "noise": noise.collect::<String>() })
}

fn message(response_to: i32, body: &RawDocument) -> Vec<u8> {
    let (mut out, ids) = (Vec::new(), MessageIds::reply(1000, response_to));
    MessageWriter::begin(&mut out, ids, Flags::NONE, body, &[], &LIMITS).unwrap().finish();
    out
}

fn compressed(compression: Compression, mut message: Vec<u8>) -> Vec<u8> {
    assert!(Compressor::new(compression).unwrap().compress_reply(&mut message, 0, &LIMITS).unwrap());
    message
}

/// The length of the frame that comes of `message`, sixteen kilobytes at a time.
fn read_in_pieces(frames: &mut FrameReader, message: &[u8], buffers: &mut BufferPool) -> Option<usize> {
    message
        .chunks(16 * 1024)
        .fold(None, |_, mut piece| frames.read_borrowing(&mut piece, &LIMITS, buffers).unwrap().map(<[u8]>::len))
}

fn hello(compression: Compression) -> RawDocumentBuf {
    let name = compression.id().name();
    rawdoc! { "ok": 1, "minWireVersion": 0, "maxWireVersion": 25, "compression": [name] }
}

fn established(compression: Compression) -> Connection {
    establish(compression, &hello(compression))
}

fn establish(compression: Compression, hello: &RawDocument) -> Connection {
    let mut options = ConnectionOptions::new(ClientMetadata::new("Linux"));
    options.compressors = vec![compression];
    let mut establish = Establish::new(Arc::new(options), [5; 24]).unwrap();
    let mut last = Progress::Exchange;
    for piece in message(1, hello).chunks(4096) {
        last = establish.handle_bytes(piece).unwrap();
    }
    assert!(matches!(last, Progress::Established));
    establish.finish().unwrap()
}

/// A command and its reply, as an adapter does it.
fn send(connection: &mut Connection, buffers: &mut BufferPool) {
    let (mut out, ping) = (Vec::with_capacity(4096), rawdoc! { "ping": 1 });
    connection.borrow_compressor(buffers);
    connection.send(&mut out, &Command::new("admin", &ping)).unwrap();
    connection.give_back(buffers);
    let pong = message(2, &rawdoc! { "ok": 1 });
    assert!(connection.read_borrowing(&mut &pong[..], buffers).unwrap().is_some());
    connection.give_back(buffers);
}
