//! The bytes read from a socket.

use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument};
use cmap_core::wire::document::validate;
use cmap_core::wire::{
    CommandReply, Content, Decoder, Flags, FrameReader, HEADER_LEN, Header, Limits, Message, MessageIds, MessageWriter,
    OpCode,
};

/// Small enough that a fuzzer meets every limit.
const LIMITS: Limits = Limits { max_message_size: 1 << 20, max_document_size: 1 << 18, max_write_batch: 100 };

/// Treats `data` as a stream in pieces, as the body of each kind of message, and as a document.
///
/// # Panics
/// A property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    stream(data, usize::from(choice / 8) + 1);
    let op_codes = [OpCode::Msg, OpCode::Query, OpCode::Reply, OpCode::Compressed];
    let op_code = op_codes[usize::from(choice % 4)];
    let length = HEADER_LEN + data.len();
    let mut message = Vec::with_capacity(length);
    message.extend_from_slice(&Header { length, ids: MessageIds::reply(1, 2), op_code }.encode());
    message.extend_from_slice(data);
    decode(&mut Decoder::new(), &message);
    if let Ok(document) = validate(data) {
        walk(document);
    }
}

fn stream(data: &[u8], size: usize) {
    let (mut frames, mut decoder) = (FrameReader::new(), Decoder::new());
    for mut piece in data.chunks(size) {
        loop {
            match frames.read(&mut piece, &LIMITS) {
                Ok(Some(frame)) => decode(&mut decoder, frame),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(piece.is_empty(), "bytes were left behind");
        assert!(frames.capacity() <= (2 * frames.pending()).max(256 * 1024), "the buffer grew ahead of the bytes");
    }
}

fn decode(decoder: &mut Decoder, frame: &[u8]) {
    let Ok(incoming) = decoder.decode(frame, &LIMITS) else { return };
    match incoming.content {
        Content::Message(message) => {
            walk(message.body);
            message.sequences().for_each(|sequence| sequence.documents().for_each(walk));
            encode_again(&message);
        }
        Content::Query(query) => {
            walk(query.query);
            query.fields.into_iter().for_each(walk);
        }
        Content::Reply(reply) => reply.documents().for_each(walk),
    }
}

/// A decoded message can be encoded, and is then the same.
fn encode_again(message: &Message<'_>) {
    let mut flags = Flags::from_bits(message.flags.bits() & 0xffff).unwrap_or_default();
    if message.body.as_bytes().len().is_multiple_of(2) {
        flags = flags.with(Flags::CHECKSUM_PRESENT);
    }
    let mut out = Vec::new();
    let Ok(mut writer) = MessageWriter::begin(&mut out, message.header.ids, flags, message.body, &[], &LIMITS) else {
        return;
    };
    for sequence in message.sequences() {
        if writer.sequence(sequence.identifier, sequence.documents()).is_err() {
            return;
        }
    }
    writer.finish();
    let Ok(again) = Message::decode(&out, &LIMITS) else { unreachable!("an encoded message is malformed") };
    assert_eq!((again.header.ids, again.flags, again.body), (message.header.ids, flags, message.body));
    assert!(again.sequences().map(|s| s.identifier).eq(message.sequences().map(|s| s.identifier)));
    assert!(again.sequences().flat_map(|s| s.documents()).eq(message.sequences().flat_map(|s| s.documents())));
}

/// Reads all of a document that was found valid, as its users do.
fn walk(document: &RawDocument) {
    CommandReply::read(document).failure();
    Limits::from_hello(document);
    values(document);
}

/// Descends as deep as documents may be.
fn values(document: &RawDocument) {
    for element in document.iter_elements() {
        let Ok(element) = element else { unreachable!("a valid document has a malformed element") };
        match element.value() {
            Ok(RawBsonRef::Document(inner)) => values(inner),
            Ok(RawBsonRef::Array(array)) => RawDocument::from_bytes(array.as_bytes()).into_iter().for_each(values),
            Ok(RawBsonRef::JavaScriptCodeWithScope(code)) => values(code.scope),
            Ok(_) => {}
            // Only texts may turn out not to be UTF-8, and old binaries to repeat another length.
            Err(error) => assert!(may_fail(element.element_type()), "a valid document has a malformed value: {error}"),
        }
    }
}

fn may_fail(element_type: ElementType) -> bool {
    use ElementType::{Binary, DbPointer, JavaScriptCode, JavaScriptCodeWithScope, String, Symbol};
    [String, JavaScriptCode, JavaScriptCodeWithScope, Symbol, DbPointer, Binary].contains(&element_type)
}
