//! Bytes that no client sends: no other client is affected.

use bson::rawdoc;
use cmap_core::wire::Flags;

use super::network::{Network, config, message};

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
