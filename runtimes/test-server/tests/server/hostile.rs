//! Bytes that no client sends: nothing panics, and no other client is affected.

use bson::rawdoc;
use cmap_core::wire::Flags;
use cmap_test_server::fuzz::server as fuzz;
use proptest::prelude::*;

use super::network::{Network, config, message, query};

/// The first requests of a client, one after the other.
fn conversation() -> Vec<u8> {
    let payload = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: b"n,,n=user,r=abc".to_vec() };
    let start = rawdoc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload.clone() };
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
    let mut bytes = query(0, &rawdoc! { "isMaster": 1 });
    for (number, body) in (1..).zip(&bodies) {
        bytes.extend(message(number, Flags::NONE, "admin", body));
    }
    bytes
}

#[test]
fn a_client_that_breaks_the_protocol_loses_its_connection_and_no_other_does() {
    let good = message(1, Flags::NONE, "admin", &rawdoc! { "ping": 1 });
    for place in [0, 3, 12, 16, 20, 21] {
        let mut network = Network::new(config());
        let (bad, mut other) = (network.accept(), network.connect());
        let mut bytes = good.clone();
        bytes[place] = 0xff;

        network.send(bad, &bytes);

        assert!(network.has_hung_up_on(bad) || network.receive(bad).is_empty(), "byte {place}");
        network.admin(&mut other, &rawdoc! { "ping": 1 });
        network.send(bad, &good);
        assert!(network.receive(bad).is_empty(), "who was hung up on is not heard");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_mutation_or_truncation_of_a_conversation_panics_or_reaches_others(
        choice in any::<u8>(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        end in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = conversation();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        bytes.insert(0, choice);
        fuzz::run(&bytes);
    }

    #[test]
    fn no_bytes_panic(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzz::run(&data);
    }
}
