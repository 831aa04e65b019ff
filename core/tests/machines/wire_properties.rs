//! Properties of the wire protocol, over random documents, messages, chunkings and damage.
use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{
    Binary, Bson, DateTime, Decimal128, Document, JavaScriptCodeWithScope, RawDocument, RawDocumentBuf, Regex,
    Timestamp,
};
use cmap_core::wire::document::{validate, validate_utf8};
use cmap_core::wire::{
    Compression, Compressor, Content, Decoder, Flags, FrameReader, Limits, Message, MessageIds, MessageWriter,
    ZlibLevel,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const LIMITS: Limits = Limits::DEFAULT;

fn value() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        any::<f64>().prop_map(Bson::Double),
        ".{0,12}".prop_map(Bson::String),
        (select(vec![0_u8, 2, 4, 0x80]), vec(any::<u8>(), 0..12))
            .prop_map(|(subtype, bytes)| { Bson::Binary(Binary { subtype: BinarySubtype::from(subtype), bytes }) }),
        Just(Bson::Undefined),
        any::<[u8; 12]>().prop_map(|bytes| Bson::ObjectId(ObjectId::from_bytes(bytes))),
        any::<bool>().prop_map(Bson::Boolean),
        any::<i64>().prop_map(|millis| Bson::DateTime(DateTime::from_millis(millis))),
        Just(Bson::Null),
        "[a-z.*]{0,8}".prop_map(|pattern| {
            Bson::RegularExpression(Regex { pattern: pattern.try_into().unwrap(), options: "i".try_into().unwrap() })
        }),
        "[a-z();]{0,8}".prop_map(Bson::JavaScriptCode),
        "[a-z]{0,8}".prop_map(Bson::Symbol),
        any::<i32>().prop_map(Bson::Int32),
        any::<(u32, u32)>().prop_map(|(time, increment)| Bson::Timestamp(Timestamp { time, increment })),
        any::<i64>().prop_map(Bson::Int64),
        any::<[u8; 16]>().prop_map(|bytes| Bson::Decimal128(Decimal128::from_bytes(bytes))),
        Just(Bson::MinKey),
        Just(Bson::MaxKey),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let document = vec(("[a-zA-Z$é]{0,6}", inner.clone()), 0..5).prop_map(|fields| fields.into_iter().collect());
        prop_oneof![
            vec(inner, 0..5).prop_map(Bson::Array),
            document.clone().prop_map(Bson::Document),
            ("[a-z]{0,6}", document)
                .prop_map(|(code, scope)| { Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code, scope }) }),
        ]
    })
}

fn document() -> impl Strategy<Value = RawDocumentBuf> {
    vec(("[a-zA-Z$é]{0,6}", value()), 0..6)
        .prop_map(|fields| RawDocumentBuf::try_from(&fields.into_iter().collect::<Document>()).unwrap())
}

/// The parts of a message.
#[derive(Clone, Debug)]
struct Parts {
    ids: MessageIds,
    flags: Flags,
    body: RawDocumentBuf,
    sequences: Vec<(String, Vec<RawDocumentBuf>)>,
    compression: Option<Compression>,
}

fn parts() -> impl Strategy<Value = Parts> {
    let flags = select(vec![
        Flags::NONE,
        Flags::CHECKSUM_PRESENT,
        Flags::MORE_TO_COME,
        Flags::CHECKSUM_PRESENT.with(Flags::MORE_TO_COME),
    ]);
    let sequences = prop::collection::btree_map("[a-z]{1,8}", vec(document(), 0..4), 0..4);
    let compression = prop::option::of(prop_oneof![
        Just(Compression::Noop),
        Just(Compression::Snappy),
        (-1..=9).prop_map(|level| Compression::Zlib(ZlibLevel::new(level).unwrap())),
        Just(Compression::Zstd),
    ]);
    (any::<(i32, i32)>(), flags, document(), sequences, compression).prop_map(
        |((request_id, response_to), flags, body, sequences, compression)| Parts {
            ids: MessageIds { request_id, response_to },
            flags,
            body,
            sequences: sequences.into_iter().collect(),
            compression,
        },
    )
}

fn encode(parts: &Parts, out: &mut Vec<u8>) {
    let start = out.len();
    let mut writer = MessageWriter::begin(out, parts.ids, parts.flags, &parts.body, &[], &LIMITS).unwrap();
    for (identifier, documents) in &parts.sequences {
        writer.sequence(identifier, documents.iter().map(|document| &**document)).unwrap();
    }
    assert_eq!(writer.finish(), out.len() - start);
    if let Some(compression) = parts.compression {
        assert!(Compressor::new(compression).unwrap().compress_reply(out, start, &LIMITS).unwrap());
    }
}

fn check(parts: &Parts, message: &Message<'_>) {
    assert_eq!((message.header.ids, message.flags, message.body), (parts.ids, parts.flags, &*parts.body));
    let found: Vec<(_, Vec<&RawDocument>)> =
        message.sequences().map(|sequence| (sequence.identifier, sequence.documents().collect())).collect();
    let sent: Vec<(_, Vec<&RawDocument>)> = parts
        .sequences
        .iter()
        .map(|(identifier, documents)| (identifier.as_str(), documents.iter().map(|document| &**document).collect()))
        .collect();
    assert_eq!(found, sent);
}

proptest! {
    #[test]
    fn messages_survive_any_compressor_and_any_chunking(
        messages in vec(parts(), 1..4),
        cuts in vec(any::<Index>(), 0..20),
    ) {
        let mut stream = Vec::new();
        messages.iter().for_each(|parts| encode(parts, &mut stream));
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.push(stream.len());
        cuts.sort_unstable();

        let (mut frames, mut decoder, mut start, mut decoded) = (FrameReader::new(), Decoder::new(), 0, 0);
        for cut in cuts {
            let mut piece = &stream[start..cut];
            start = cut;
            while let Some(frame) = frames.read(&mut piece, &LIMITS).unwrap() {
                let incoming = decoder.decode(frame, &LIMITS).unwrap();
                let parts = &messages[decoded];
                prop_assert_eq!(incoming.compressor, parts.compression.map(Compression::id));
                let Content::Message(message) = incoming.content else { panic!("not an OP_MSG") };
                check(parts, &message);
                decoded += 1;
            }
            prop_assert!(piece.is_empty());
        }
        prop_assert!(frames.is_at_boundary());
        prop_assert_eq!(decoded, messages.len());
    }

    #[test]
    fn a_message_that_ends_early_is_an_error_wherever_it_ends(parts in parts()) {
        let mut message = Vec::new();
        encode(&parts, &mut message);
        let mut decoder = Decoder::new();
        for end in 0..message.len() {
            prop_assert!(decoder.decode(&message[..end], &LIMITS).is_err());
            // The same with a header that agrees: the decoder of the body must notice.
            if end >= 16 && parts.sequences.is_empty() {
                let mut cut = message[..end].to_vec();
                cut[..4].copy_from_slice(&i32::try_from(end).unwrap().to_le_bytes());
                prop_assert!(decoder.decode(&cut, &LIMITS).is_err(), "{end} of {}", message.len());
            }
        }
    }

    #[test]
    fn a_changed_byte_gives_an_error_or_a_valid_message(parts in parts(), change in 1_u8..) {
        let mut message = Vec::new();
        encode(&parts, &mut message);
        let mut decoder = Decoder::new();
        for at in 0..message.len() {
            message[at] ^= change;
            let result = decoder.decode(&message, &LIMITS).map(drop);
            // A checksum notices every change but that of its own flag, the header's numbers included.
            if parts.flags.contains(Flags::CHECKSUM_PRESENT) && parts.compression.is_none() && at != 16 {
                prop_assert!(result.is_err(), "byte {at}");
            }
            message[at] ^= change;
        }
    }

    #[test]
    fn whatever_bson_reads_to_its_depths_is_valid_and_the_other_way_round(
        document in document(), at in any::<Index>(), byte: u8,
    ) {
        prop_assert_eq!(validate(document.as_bytes()).map(drop), Ok(()));
        let mut bytes = document.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let theirs = RawDocument::from_bytes(&bytes).ok().map(Document::try_from);
        match validate(&bytes) {
            Ok(_) => prop_assert!(theirs.is_some(), "valid here, and not even a document there"),
            Err(error) => prop_assert!(!matches!(theirs, Some(Ok(_))), "{error}: {theirs:?}"),
        }
        // With its strings checked, whoever reads the document's values meets no error.
        prop_assert_eq!(validate_utf8(&bytes).is_ok(), matches!(theirs, Some(Ok(_))), "{:?}", theirs);
    }
}
