//! The limit on new connections.

use core::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use cmap_core::connection::Fault;
use cmap_test_server::Peer;

use super::network::{Client, Network, anonymous, config};

const MS: Duration = Duration::from_millis(1);

/// A server that admits 10 connections in a second, one of them at once, and lets one wait; and a client from before.
fn limited() -> (Network, Client) {
    let mut network = Network::new(config());
    let mut admin = network.connect();
    for set in [
        rawdoc! { "setParameter": 1, "ingressConnectionEstablishmentRatePerSec": 10 },
        rawdoc! { "setParameter": 1, "ingressConnectionEstablishmentBurstCapacitySecs": 0.1 },
        rawdoc! { "setParameter": 1, "ingressConnectionEstablishmentMaxQueueDepth": 1 },
        rawdoc! { "setParameter": 1, "ingressConnectionEstablishmentRateLimiterEnabled": true },
    ] {
        network.admin(&mut admin, &set);
    }
    (network, admin)
}

#[test]
fn a_connection_without_a_token_waits_and_one_too_many_is_closed() {
    let (mut network, mut admin) = limited();
    let hello = super::network::query(1, &rawdoc! { "hello": 1 });

    let [first, second, third] = [(); 3].map(|()| network.accept());
    for client in [first, second, third] {
        network.send(client, &hello);
    }

    assert!(!network.receive(first).is_empty());
    assert!(network.receive(second).is_empty(), "it waits for its token");
    assert!(network.has_hung_up_on(third) && network.receive(third).is_empty());
    network.pass(99 * MS);
    assert!(network.receive(second).is_empty());
    network.pass(2 * MS);
    assert!(!network.receive(second).is_empty());
    let status = network.admin(&mut admin, &rawdoc! { "serverStatus": 1 });
    let queue = status.get_document("queues").unwrap().get_document("ingressSessionEstablishment").unwrap();
    assert_eq!((queue.get_i64("rejectedAdmissions").unwrap(), queue.get_i64("addedToQueue").unwrap()), (1, 1));
}

#[test]
fn our_client_sees_a_lost_connection() {
    let (mut network, _admin) = limited();
    network.connect();
    network.accept();

    let refused = network.establish(&anonymous()).unwrap_err();

    assert_eq!(refused.fault, Fault::Network);
}

#[test]
fn an_operator_is_exempt_and_so_is_everybody_when_it_is_off() {
    let (mut network, mut admin) = limited();
    network.connect();
    network.accept();

    assert!(network.establish_as(Peer::operator(), &anonymous()).is_ok());
    let off = rawdoc! { "setParameter": 1, "ingressConnectionEstablishmentRateLimiterEnabled": false };
    network.admin(&mut admin, &off);
    for _ in 0..10 {
        network.connect();
    }
}

#[test]
fn parameters_have_mongodbs_defaults_and_are_validated() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    let get = |network: &mut Network, client: &mut Client| -> RawDocumentBuf {
        let all = rawdoc! {
            "getParameter": 1,
            "ingressConnectionEstablishmentRateLimiterEnabled": 1,
            "ingressConnectionEstablishmentRatePerSec": 1,
            "ingressConnectionEstablishmentBurstCapacitySecs": 1,
            "ingressConnectionEstablishmentMaxQueueDepth": 1,
        };
        network.admin(client, &all)
    };

    let before = get(&mut network, &mut client);
    assert!(!before.get_bool("ingressConnectionEstablishmentRateLimiterEnabled").unwrap());
    assert_eq!(before.get_i32("ingressConnectionEstablishmentRatePerSec").unwrap(), i32::MAX);
    assert_eq!(before.get_f64("ingressConnectionEstablishmentBurstCapacitySecs").unwrap(), f64::MAX);
    assert_eq!(before.get_i32("ingressConnectionEstablishmentMaxQueueDepth").unwrap(), 0);
    let several = rawdoc! {
        "setParameter": 1, "ingressConnectionEstablishmentRatePerSec": 20, "ingressConnectionEstablishmentMaxQueueDepth": 3,
    };
    network.admin(&mut client, &several);
    let after = get(&mut network, &mut client);
    assert_eq!(after.get_i32("ingressConnectionEstablishmentRatePerSec").unwrap(), 20);
    assert_eq!(after.get_i32("ingressConnectionEstablishmentMaxQueueDepth").unwrap(), 3);
    for wrong in [
        rawdoc! { "setParameter": 1, "ingressConnectionEstablishmentRatePerSec": 0 },
        rawdoc! { "setParameter": 1, "ingressConnectionEstablishmentBurstCapacitySecs": -1 },
        rawdoc! { "setParameter": 1, "ingressConnectionEstablishmentMaxQueueDepth": "many" },
        rawdoc! { "setParameter": 1, "ingressConnectionEstablishmentRateLimiterEnabled": "yes" },
    ] {
        assert_eq!(network.fail(&mut client, "admin", &wrong).code, Some(2), "{wrong:?}");
    }
}
