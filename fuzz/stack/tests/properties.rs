//! The properties of `embedded_server`, for a conversation with changed bytes and for random ones.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, rawdoc};
use cmap_core::wire::{Field, Flags, Limits, MessageIds, MessageWriter, encode_query};
use cmap_fuzz_stack::embedded_server;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// The first requests of a client, one after the other.
fn conversation() -> Vec<u8> {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: b"n,,n=user,r=abc".to_vec() };
    let start = rawdoc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload };
    let hello = rawdoc! {
        "isMaster": 1, "compression": ["zlib"], "saslSupportedMechs": "admin.user",
        "client": { "application": { "name": "a" }, "driver": { "name": "d", "version": "1" }, "os": { "type": "L" } },
        "speculativeAuthenticate": start.clone(),
    };
    let fail = rawdoc! {
        "configureFailPoint": "failCommand", "mode": { "times": 1 },
        "data": { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 10 },
    };
    let create = rawdoc! { "createUser": "u", "pwd": "p", "roles": ["root"] };
    let bodies = [hello, start, fail, create, rawdoc! { "ping": 1 }, rawdoc! { "insert": "c", "documents": [{}] }];
    let mut bytes = Vec::new();
    encode_query(&mut bytes, MessageIds::request(0), "admin", &rawdoc! { "isMaster": 1 }, &Limits::DEFAULT).unwrap();
    for (number, body) in (1..).zip(&bodies) {
        message(&mut bytes, number, body);
    }
    bytes
}

fn message(out: &mut Vec<u8>, request: i32, body: &RawDocument) {
    let (ids, fields) = (MessageIds::request(request), [Field::String("$db", "admin")]);
    MessageWriter::begin(out, ids, Flags::NONE, body, &fields, &Limits::DEFAULT).unwrap().finish();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_mutation_or_truncation_of_a_conversation_panics_or_reaches_others(
        choice: u8,
        changes in vec((any::<Index>(), any::<u8>()), 0..4),
        end in any::<Index>(),
    ) {
        let mut bytes = conversation();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        bytes.insert(0, choice);

        embedded_server::run(&bytes);
    }

    #[test]
    fn no_bytes_panic(data in vec(any::<u8>(), 0..300)) {
        embedded_server::run(&data);
    }
}
