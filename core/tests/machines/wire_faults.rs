//! Every fault of a message has its own error, and costs nothing before it is found.
use bson::{RawDocument, RawDocumentBuf, doc, rawdoc};
use cmap_core::wire::document::{MAX_DEPTH, validate, validate_utf8};
use cmap_core::wire::{
    Compression, CompressionError, Compressor, CompressorId, Content, Decoder, DocumentError, EncodeError, Field,
    Flags, FrameReader, HEADER_LEN, Header, Limits, MAX_IDENTIFIER, MAX_SECTIONS, Message, MessageIds, MessageWriter,
    OpCode, Query, Reply, SHOWN, WireError, ZlibLevel, encode_query, encode_reply,
};

const LIMITS: Limits = Limits::DEFAULT;

/// A message of these parts behind a header that fits.
fn message(op_code: OpCode, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let header = Header { length: HEADER_LEN + content.len(), ids: MessageIds::reply(1, 2), op_code };
    [&header.encode(), &content[..]].concat()
}

fn op_msg(flags: u32, sections: &[&[u8]]) -> Vec<u8> {
    message(OpCode::Msg, &[&flags.to_le_bytes(), &sections.concat()])
}

fn body() -> Vec<u8> {
    [&[0], rawdoc! { "ok": 1 }.as_bytes()].concat()
}

fn sequence(identifier: &str, documents: &[&RawDocument]) -> Vec<u8> {
    let content = documents.iter().fold(identifier.as_bytes().to_vec(), |mut all, document| {
        if all.len() == identifier.len() {
            all.push(0);
        }
        all.extend_from_slice(document.as_bytes());
        all
    });
    let content = if documents.is_empty() { [identifier.as_bytes(), &[0]].concat() } else { content };
    let length = i32::try_from(4 + content.len()).unwrap();
    [&[1][..], &length.to_le_bytes(), &content].concat()
}

fn fault(bytes: &[u8]) -> WireError {
    Message::decode(bytes, &LIMITS).map(drop).unwrap_err()
}

#[test]
fn sections_come_in_any_order_and_number() {
    let (one, two) = (rawdoc! { "a": 1 }, rawdoc! { "b": 2 });
    let bytes = op_msg(0, &[&sequence("x", &[&one, &two]), &body(), &sequence("y", &[]), &sequence("z", &[&two])]);

    let message = Message::decode(&bytes, &LIMITS).unwrap();

    assert_eq!(message.body, &*rawdoc! { "ok": 1 });
    let sequences: Vec<_> = message.sequences().map(|s| (s.identifier, s.documents().collect::<Vec<_>>())).collect();
    assert_eq!(sequences, [("x", vec![&*one, &*two]), ("y", vec![]), ("z", vec![&*two])]);
}

#[test]
fn broken_messages_are_named() {
    let document = rawdoc! { "a": 1 };
    for (bytes, expected) in [
        (op_msg(0, &[]), WireError::NoBody),
        (op_msg(0, &[&sequence("x", &[])]), WireError::NoBody),
        (op_msg(0, &[&body(), &body()]), WireError::TwoBodies),
        (op_msg(0, &[&body(), &[2]]), WireError::UnknownSection(2)),
        (
            op_msg(0, &[&sequence("x", &[]), &body(), &sequence("x", &[&document])]),
            WireError::DuplicateIdentifier { identifier: "x".into() },
        ),
        (op_msg(4, &[&body()]), WireError::UnknownFlags(4)),
        (op_msg(0x8002, &[&body()]), WireError::UnknownFlags(0x8000)),
        (op_msg(0, &[&body(), &[1, 3, 0, 0, 0]]), WireError::SequenceTooShort { length: 3, min: 4 }),
        (
            op_msg(0, &[&body(), &[1, 9, 0, 0, 0, b'x', 0]]),
            WireError::Truncated { what: "a document sequence", needed: 5, found: 2 },
        ),
        (
            op_msg(0, &[&body(), &[1, 5, 0, 0, 0, b'x']]),
            WireError::InvalidText { what: "a document sequence's identifier", problem: "has no end" },
        ),
        (
            op_msg(0, &[&body(), &[1, 6, 0, 0, 0, 0xff, 0]]),
            WireError::InvalidText { what: "a document sequence's identifier", problem: "is not UTF-8" },
        ),
        (op_msg(0, &[&[0, 4, 0, 0, 0]]), WireError::DocumentTooShort { length: 4, min: 5 }),
        (
            op_msg(0, &[&[0], &i32::MAX.to_le_bytes()]),
            WireError::DocumentTooLong { length: 0x7fff_ffff, max: 16 * 1024 * 1024 + 16 * 1024 },
        ),
        (op_msg(0, &[&[0, 6, 0, 0, 0, 0]]), WireError::Truncated { what: "a document", needed: 6, found: 5 }),
        (op_msg(1, &[&[1, 2]]), WireError::Truncated { what: "the checksum of an OP_MSG", needed: 4, found: 2 }),
        (message(OpCode::Msg, &[]), WireError::Truncated { what: "the flags of an OP_MSG", needed: 4, found: 0 }),
        (message(OpCode::Reply, &[]), WireError::UnexpectedOpCode { expected: OpCode::Msg, found: OpCode::Reply }),
    ] {
        assert_eq!(fault(&bytes), expected);
    }
}

#[test]
fn a_million_sections_are_refused_at_once() {
    let names: Vec<_> = (0..MAX_SECTIONS).map(|index| sequence(&index.to_string(), &[])).collect();
    let names: Vec<_> = names.iter().map(Vec::as_slice).collect();

    assert_eq!(fault(&op_msg(0, &[&body(), &names.concat()])), WireError::TooManySections { max: MAX_SECTIONS });
    assert!(Message::decode(&op_msg(0, &[&body(), &names[1..].concat()]), &LIMITS).is_ok());
}

#[test]
fn a_long_name_of_a_sequence_is_refused_before_others_are_compared_with_it() {
    let name = "x".repeat(MAX_IDENTIFIER + 1);

    let expected = WireError::LongIdentifier { identifier: "x".repeat(SHOWN), max: MAX_IDENTIFIER };
    assert_eq!(fault(&op_msg(0, &[&body(), &sequence(&name, &[])])), expected);
    assert!(Message::decode(&op_msg(0, &[&body(), &sequence(&name[1..], &[])]), &LIMITS).is_ok());
}

#[test]
fn a_reply_with_sequences_is_refused_before_they_are_looked_at() {
    let malformed = op_msg(0, &[&body(), &[1, 3, 0, 0, 0]]);

    let refused = Decoder::of_replies().decode(&malformed, &LIMITS).unwrap_err();

    assert_eq!(refused, WireError::Sequences);
}

#[test]
fn flags_are_kept_and_a_wrong_checksum_is_noticed() {
    let mut out = Vec::new();
    let flags = Flags::CHECKSUM_PRESENT.with(Flags::MORE_TO_COME);
    let length = MessageWriter::begin(&mut out, MessageIds::request(5), flags, &rawdoc! { "a": 1 }, &[], &LIMITS)
        .unwrap()
        .finish();
    assert_eq!(length, out.len());
    let decoded = Message::decode(&out, &LIMITS).unwrap();
    assert!(decoded.more_to_come() && !decoded.exhaust_allowed());

    let last = out.len() - 5;
    out[last - 1] ^= 1;
    assert!(matches!(fault(&out), WireError::Checksum { .. }));
}

#[test]
fn broken_documents_are_named() {
    let nested = |depth: usize| {
        let mut document = rawdoc! {};
        for _ in 1..depth {
            document = rawdoc! { "d": document };
        }
        document
    };
    assert!(validate(nested(MAX_DEPTH).as_bytes()).is_ok());
    assert!(matches!(validate(nested(MAX_DEPTH + 1).as_bytes()), Err(DocumentError::TooDeep { max: MAX_DEPTH, .. })));

    for (bytes, expected) in [
        (&b""[..], DocumentError::LengthMismatch { announced: None, found: 0 }),
        (b"\x04\0\0\0", DocumentError::LengthMismatch { announced: Some(4), found: 4 }),
        (b"\x06\0\0\0\0", DocumentError::LengthMismatch { announced: Some(6), found: 5 }),
        (b"\x05\0\0\0\x01", DocumentError::Unterminated { at: 4 }),
        (b"\x07\0\0\0\0\0\0", DocumentError::EndsEarly { at: 4 }),
        (b"\x08\0\0\0\x0aab\0", DocumentError::Unterminated { at: 5 }),
        (b"\x08\0\0\0\x20a\0\0", DocumentError::UnknownType { at: 7, tag: 0x20 }),
        (b"\x08\0\0\0\x0a\xff\0\0", DocumentError::NotUtf8 { at: 5 }),
        (b"\x09\0\0\0\x08a\0\x02\0", DocumentError::NotBoolean { at: 7, found: 2 }),
        (b"\x09\0\0\0\x10a\0\x02\0", DocumentError::Truncated { at: 7, needed: 4, left: 1 }),
        (b"\x0d\0\0\0\x02a\0\0\0\0\0\0", DocumentError::LengthMismatch { announced: Some(13), found: 12 }),
        (b"\x0d\0\0\0\x02a\0\0\0\0\0\0\0", DocumentError::Length { at: 7, found: 0, min: 1, max: 1 }),
        (b"\x0d\0\0\0\x02a\0\x01\0\0\0\x01\0", DocumentError::Unterminated { at: 11 }),
        (b"\x0d\0\0\0\x03a\0\x06\0\0\0\0\0", DocumentError::Length { at: 7, found: 6, min: 5, max: 5 }),
        (b"\x0d\0\0\0\x05a\0\xff\xff\xff\xff\0\0", DocumentError::Length { at: 7, found: -1, min: 0, max: 0 }),
    ] {
        assert_eq!(validate(bytes), Err(expected), "{bytes:?}");
    }
}

/// A document with one field, `x`, of this type and these bytes.
fn one_field(tag: u8, value: &[u8]) -> RawDocumentBuf {
    let content = [&[tag, b'x', 0], value, &[0]].concat();
    let length = i32::try_from(4 + content.len()).unwrap();
    RawDocumentBuf::from_bytes([&length.to_le_bytes(), &content[..]].concat()).unwrap()
}

/// Documents with a string that is not UTF-8, by what the string is.
fn not_utf8() -> Vec<(&'static str, RawDocumentBuf)> {
    const STRING: &[u8] = b"\x02\0\0\0\xff\0";
    let nested = one_field(0x02, STRING);
    vec![
        ("string", one_field(0x02, STRING)),
        ("code", one_field(0x0d, STRING)),
        ("symbol", one_field(0x0e, STRING)),
        ("database pointer", one_field(0x0c, &[STRING, &[0; 12]].concat())),
        ("code with scope", one_field(0x0f, &[&15_i32.to_le_bytes(), STRING, &[5, 0, 0, 0, 0]].concat())),
        ("in a document", one_field(0x03, nested.as_bytes())),
        ("in an array", one_field(0x04, nested.as_bytes())),
        ("in a scope", {
            let code: &[u8] = b"\x01\0\0\0\0";
            let length = i32::try_from(4 + code.len() + nested.as_bytes().len()).unwrap();
            one_field(0x0f, &[&length.to_le_bytes(), code, nested.as_bytes()].concat())
        }),
    ]
}

#[test]
fn a_string_that_is_not_utf8_is_a_fault_where_strings_are_checked() {
    let mut deep = one_field(0x02, b"\x02\0\0\0\xff\0");
    (1..MAX_DEPTH).for_each(|_| deep = one_field(0x03, deep.as_bytes()));
    for (what, document) in not_utf8().into_iter().chain([("at the greatest depth", deep)]) {
        assert!(validate(document.as_bytes()).is_ok(), "{what}");
        let checked = validate_utf8(document.as_bytes());
        assert!(matches!(checked, Err(DocumentError::NotUtf8 { .. })), "{what}: {checked:?}");
    }
    assert_eq!(validate_utf8(one_field(0x02, b"\x02\0\0\0\xff\0").as_bytes()), Err(DocumentError::NotUtf8 { at: 11 }));
    let text = rawdoc! { "é": "é", "code": bson::RawBson::Symbol("é".into()), "array": ["é", { "deep": "é" }] };
    assert!(validate_utf8(text.as_bytes()).is_ok());
}

#[test]
fn an_old_binary_that_repeats_another_length_is_a_fault_where_values_are_checked() {
    /// Its length, the old subtype 2, and its content, which begins with the length of the rest.
    fn old(content: &[&[u8]]) -> RawDocumentBuf {
        let content = content.concat();
        let length = i32::try_from(content.len()).unwrap();
        one_field(0x05, &[&length.to_le_bytes()[..], &[2], &content[..]].concat())
    }
    let wrong = [-1_i32, 0, 2, i32::MAX].map(|length| old(&[&length.to_le_bytes(), &[7]]));
    for binary in wrong.into_iter().chain([old(&[&[1, 0]])]) {
        for document in [one_field(0x03, binary.as_bytes()), binary] {
            assert!(validate(document.as_bytes()).is_ok(), "{document:?}");
            assert!(validate_utf8(document.as_bytes()).is_err(), "{document:?}");
            let message = op_msg(0, &[&[0], document.as_bytes()]);
            assert!(Decoder::of_replies().decode(&message, &LIMITS).is_ok(), "{document:?}");
            assert!(Message::decode_utf8(&message, &LIMITS).is_err(), "{document:?}");
        }
    }
    let right = old(&[&1_i32.to_le_bytes(), &[7]]);
    assert!(validate_utf8(right.as_bytes()).is_ok());
}

#[test]
fn strings_are_checked_in_the_body_the_sequences_and_a_query() {
    let wrong = one_field(0x02, b"\x02\0\0\0\xff\0");
    let in_body = op_msg(0, &[&[0], wrong.as_bytes()]);
    let in_sequence = op_msg(0, &[&body(), &sequence("documents", &[&rawdoc! {}, &wrong])]);
    for message in [in_body, in_sequence] {
        assert!(Message::decode(&message, &LIMITS).is_ok());
        let error = Message::decode_utf8(&message, &LIMITS).map(drop).unwrap_err();
        assert_eq!(error, WireError::Document(DocumentError::NotUtf8 { at: 11 }));
    }
    let mut query = Vec::new();
    encode_query(&mut query, MessageIds::request(1), "admin", &wrong, &LIMITS).unwrap();
    assert!(Query::decode(&query, &LIMITS).is_ok());
    let error = Query::decode_utf8(&query, &LIMITS).map(drop).unwrap_err();
    assert_eq!(error, WireError::Document(DocumentError::NotUtf8 { at: 11 }));
}

fn announced(op_code: i32, length: i32, compressor: u8, content: &[u8]) -> Vec<u8> {
    message(OpCode::Compressed, &[&op_code.to_le_bytes(), &length.to_le_bytes(), &[compressor], content])
}

fn unpacking(bytes: &[u8]) -> WireError {
    Decoder::new().decode(bytes, &LIMITS).map(drop).unwrap_err()
}

#[test]
fn lying_compressed_messages_are_named() {
    let max = 48_000_000 - 16;
    for (bytes, expected) in [
        (announced(2012, 5, 0, b"hello"), CompressionError::Nested),
        (announced(2013, 5, 4, b"hello"), CompressionError::UnknownCompressor(4)),
        (announced(2013, -1, 0, b""), CompressionError::AnnouncedLength { announced: -1, max }),
        (announced(2013, 47_999_985, 2, b""), CompressionError::AnnouncedLength { announced: 47_999_985, max }),
        (announced(2013, 4, 0, b"hello"), CompressionError::TooLong { announced: 4 }),
        (announced(2013, 6, 0, b"hello"), CompressionError::TooShort { announced: 6, found: 5 }),
        (announced(2013, 6, 1, b""), CompressionError::TooShort { announced: 6, found: 0 }),
        (announced(2013, 6, 1, b"\x06\x01"), CompressionError::Malformed(CompressorId::Snappy)),
        (announced(2013, 6, 2, b"hello"), CompressionError::Malformed(CompressorId::Zlib)),
        (announced(2013, 6, 3, b"hello"), CompressionError::Malformed(CompressorId::Zstd)),
    ] {
        assert_eq!(unpacking(&bytes), WireError::Compression(expected));
    }
    assert_eq!(unpacking(&announced(7, 5, 0, b"hello")), WireError::UnknownOpCode(7));
}

/// An OP_MSG whose body is large and simple, compressed.
fn compressed(compression: Compression, text: usize) -> Vec<u8> {
    let (mut out, body) = (Vec::new(), rawdoc! { "insert": "a".repeat(text) });
    MessageWriter::begin(&mut out, MessageIds::reply(1, 2), Flags::NONE, &body, &[], &LIMITS).unwrap().finish();
    assert!(Compressor::new(compression).unwrap().compress_command(&mut out, 0, &LIMITS).unwrap());
    out
}

const COMPRESSIONS: [Compression; 4] =
    [Compression::Noop, Compression::Snappy, Compression::Zlib(ZlibLevel::DEFAULT), Compression::Zstd];

#[test]
fn a_bomb_is_stopped_at_the_length_that_it_announces() {
    for compression in COMPRESSIONS {
        let mut bytes = compressed(compression, 10_000_000);
        // The announced length is in bytes 20 to 24; claim to be small, then too large.
        bytes[20..24].copy_from_slice(&100_i32.to_le_bytes());
        let mut error = None;
        let allocated = allocation_counter::measure(|| error = Some(unpacking(&bytes)));
        assert_eq!(
            error,
            Some(WireError::Compression(CompressionError::TooLong { announced: 100 })),
            "{compression:?}"
        );
        assert!(allocated.bytes_max < 1_000_000, "{compression:?}: {allocated:?}");

        bytes[20..24].copy_from_slice(&20_000_000_i32.to_le_bytes());
        assert!(
            matches!(
                unpacking(&bytes),
                WireError::Compression(CompressionError::TooShort { announced: 20_000_000, .. })
            ),
            "{compression:?}"
        );
    }
}

#[test]
fn a_few_bytes_that_announce_the_maximum_do_not_allocate_it() {
    let length = 48_000_000 - 16;
    let snappy = [&[0xf0, 0xd7, 0xf1, 0x16][..], b"\x04ab"].concat();
    assert_eq!(snap::raw::decompress_len(&snappy).unwrap(), 47_999_984);
    for (compressor, content) in [(0, &b"x"[..]), (1, &snappy), (2, b"\x78\x9c\x03\0\0\0\0\x01"), (3, b"\x28\xb5")] {
        let bytes = announced(2013, length, compressor, content);
        let allocated = allocation_counter::measure(|| drop(unpacking(&bytes)));
        assert!(allocated.bytes_max < 100_000, "{compressor}: {allocated:?}");
    }
}

#[test]
fn a_window_of_gigabytes_is_refused() {
    // Magic number, a descriptor without content size, and the greatest window there is.
    let frame = b"\x28\xb5\x2f\xfd\x00\xff\x01\x00\x00";
    let bytes = announced(2013, 100, 3, frame);
    let allocated = allocation_counter::measure(|| {
        assert_eq!(unpacking(&bytes), WireError::Compression(CompressionError::Malformed(CompressorId::Zstd)));
    });
    assert!(allocated.bytes_max < 100_000, "{allocated:?}");
}

#[test]
fn data_behind_the_compressed_data_and_wrong_checksums_are_noticed() {
    for compression in [Compression::Zlib(ZlibLevel::DEFAULT), Compression::Zstd] {
        let mut bytes = compressed(compression, 100);
        bytes.extend_from_slice(b"!!!");
        let length = i32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        assert_eq!(unpacking(&bytes), WireError::Compression(CompressionError::TrailingBytes { count: 3 }));

        let mut bytes = compressed(compression, 100);
        *bytes.last_mut().unwrap() ^= 1;
        assert_eq!(unpacking(&bytes), WireError::Compression(CompressionError::Checksum(compression.id())));
    }
}

#[test]
fn what_must_not_be_compressed_is_left_alone() {
    for compression in COMPRESSIONS {
        let mut compressor = Compressor::new(compression).unwrap();
        for (command, expected) in [("hello", false), ("isMaster", false), ("saslContinue", false), ("ping", true)] {
            let (mut out, body) = (b"before".to_vec(), RawDocumentBuf::try_from(&doc! { command: 1 }).unwrap());
            MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, &body, &[], &LIMITS).unwrap().finish();
            let plain = out.clone();

            assert_eq!(compressor.compress_command(&mut out, 6, &LIMITS), Ok(expected), "{command}");

            assert_eq!(out == plain, !expected);
            let mut decoder = Decoder::new();
            let incoming = decoder.decode(&out[6..], &LIMITS).unwrap();
            assert_eq!(incoming.compressor, expected.then_some(compression.id()));
            let Content::Message(message) = incoming.content else { panic!("{incoming:?}") };
            assert_eq!(message.body, &*body);
        }
    }
}

#[test]
fn a_message_that_would_grow_beyond_the_limit_stays_plain() {
    let (mut out, body) = (Vec::new(), rawdoc! { "ping": "0123456789abcdef" });
    MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, &body, &[], &LIMITS).unwrap().finish();
    let limits = Limits { max_message_size: u32::try_from(out.len()).unwrap(), ..LIMITS };

    for compression in COMPRESSIONS {
        let mut copy = out.clone();
        assert_eq!(Compressor::new(compression).unwrap().compress_command(&mut copy, 0, &limits), Ok(false));
        assert_eq!(copy, out);
    }
}

#[test]
fn what_cannot_be_sent_leaves_the_buffer_as_it_was() {
    let limits = Limits { max_message_size: 300, max_document_size: 100, ..LIMITS };
    let large: RawDocumentBuf = rawdoc! { "a": "x".repeat(90) };
    let ping = rawdoc! { "ping": 1 };
    let mut out = b"before".to_vec();

    let mut writer = MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, &ping, &[], &limits).unwrap();
    let length = large.as_bytes().len();
    assert_eq!(writer.sequence("documents", [&*large]), Err(EncodeError::DocumentTooLong { length, max: 100 }));
    assert_eq!(writer.sequence("a\0b", [&*ping]), Err(EncodeError::NulInName { name: "a\0b".into() }));
    assert_eq!(writer.sequence("updates", [&*large; 2]), Ok(()), "an update wraps a user's document");
    assert_eq!(
        writer.sequence("updates", [&*ping]),
        Err(EncodeError::DuplicateIdentifier { identifier: "updates".into() })
    );
    assert!(matches!(writer.sequence("deletes", [&*large; 2]), Err(EncodeError::MessageTooLong { max: 300, .. })));
    writer.finish();
    let message = Message::decode(&out[6..], &limits).unwrap();
    assert_eq!(message.sequences().map(|sequence| sequence.documents().count()).collect::<Vec<_>>(), [2]);

    out.truncate(6);
    let field = [Field::Int32("ping", 2)];
    let failed = MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, &ping, &field, &limits);
    assert_eq!(failed.map(drop), Err(EncodeError::DuplicateField { name: "ping".into() }));
    assert_eq!(out, b"before");
    let exhaust = Flags::EXHAUST_ALLOWED;
    let failed = MessageWriter::begin(&mut out, MessageIds::request(1), exhaust, &ping, &[], &limits);
    assert_eq!(failed.map(drop), Err(EncodeError::ExhaustNotAllowed { command: "ping".into() }));
    drop(MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, &ping, &[], &limits).unwrap());
    assert_eq!(out, b"before");
}

#[test]
fn documents_that_are_passed_on_are_the_servers_to_judge() {
    let large = rawdoc! { "text": "x".repeat(200) };
    let mut read = Vec::new();
    let mut writer = MessageWriter::begin(
        &mut read,
        MessageIds::request(1),
        Flags::NONE,
        &rawdoc! { "insert": "c" },
        &[],
        &Limits::DEFAULT,
    )
    .unwrap();
    writer.sequence("documents", [&*large]).unwrap();
    writer.finish();
    let read = Message::decode(&read, &Limits::DEFAULT).unwrap();
    let few = Limits { max_document_size: 100, ..Limits::DEFAULT };
    let mut out = Vec::new();
    let mut writer = MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, read.body, &[], &few).unwrap();

    let passed: Vec<_> = read.sequences().map(|sequence| writer.pass_on(&sequence)).collect();
    writer.finish();

    assert_eq!(passed, [Ok(())]);
    let sent = Message::decode(&out, &Limits::DEFAULT).unwrap();
    assert_eq!(sent.sequences().next().unwrap().documents().next(), Some(&*large));
}

#[test]
fn the_old_handshake_is_understood() {
    let hello = rawdoc! { "isMaster": 1, "helloOk": true };
    let mut out = Vec::new();
    encode_query(&mut out, MessageIds::request(9), "admin", &hello, &LIMITS).unwrap();
    let query = Query::decode(&out, &LIMITS).unwrap();
    assert_eq!((query.command_database(), query.query, query.number), (Some("admin"), &*hello, -1));
    assert_eq!(query.fields, None);

    let answer = rawdoc! { "ismaster": true, "ok": 1.0 };
    let mut out = Vec::new();
    encode_reply(&mut out, MessageIds::reply(1, 9), &answer, &LIMITS).unwrap();
    let reply = Reply::decode(&out, &LIMITS).unwrap();
    assert_eq!(reply.header.ids.response_to, 9);
    assert_eq!(reply.documents().collect::<Vec<_>>(), [&*answer]);

    out[32] = 2;
    assert_eq!(Reply::decode(&out, &LIMITS).map(drop), Err(WireError::DocumentCount { announced: 2, found: 1 }));
}

#[test]
fn a_database_with_a_nul_is_not_cut_off_at_it() {
    let (hello, mut out) = (rawdoc! { "isMaster": 1 }, b"before".to_vec());

    let refused = encode_query(&mut out, MessageIds::request(9), "admin\0x", &hello, &LIMITS);

    assert_eq!((refused, &out[..]), (Err(EncodeError::NulInName { name: "admin\0x".into() }), &b"before"[..]));
}

#[test]
fn a_frame_that_is_too_long_is_refused_by_its_first_four_bytes() {
    let mut frames = FrameReader::new();
    let limits = Limits { max_message_size: 100, ..LIMITS };
    let mut input = &[101, 0, 0][..];
    assert_eq!(frames.read(&mut input, &limits), Ok(None));
    assert!(!frames.is_at_boundary() && input.is_empty());
    for _ in 0..2 {
        assert_eq!(frames.read(&mut &[0][..], &limits), Err(WireError::MessageTooLong { length: 101, max: 100 }));
    }
    assert!(frames.capacity() < 10);
}

#[test]
fn a_frame_that_announces_the_maximum_allocates_what_arrives() {
    let mut frames = FrameReader::new();
    let header = Header { length: 48_000_000, ids: MessageIds::request(1), op_code: OpCode::Msg };
    assert_eq!(frames.read(&mut &header.encode()[..], &LIMITS), Ok(None));
    assert!(frames.capacity() <= 32);
    for _ in 0..100 {
        frames.read(&mut &[0; 1000][..], &LIMITS).unwrap();
        assert!(frames.capacity() <= 2 * frames.pending());
    }

    let mut rest = vec![0; 48_000_000 - 16 - 100_000 + 7];
    rest[48_000_000 - 16 - 100_000..].copy_from_slice(b"further");
    let mut input = &rest[..];
    assert_eq!(frames.read(&mut input, &LIMITS).unwrap().map(<[u8]>::len), Some(48_000_000));
    assert_eq!(input, b"further");
    assert_eq!(frames.capacity(), 48_000_000, "never more than the message");
    assert!(frames.is_at_boundary());

    assert_eq!(frames.read(&mut &[16][..], &LIMITS), Ok(None));
    assert!(frames.capacity() <= 256 * 1024, "a large message is not paid for ever");
}
