//! How an application finds its own mistake: one that shows only if a connection breaks at the wrong moment.

use std::time::Duration;

use cmap_sim::bson::{RawDocumentBuf, rawdoc};
use cmap_sim::cmap_core::random::Random;
use cmap_sim::{Client, Server, Sim, SimRuntime};

const DEPOSITS: i32 = 5;

/// Adds 10 to the account, and tries again if there was no answer.
async fn deposit(client: &Client, number: i32, is_careful: bool) {
    loop {
        let Ok(mut connection) = client.check_out().await else { continue };
        if connection.run_command("bank", statement(number, is_careful)).await.is_ok() {
            return;
        }
    }
}

/// The careful one does nothing the second time: it notes which deposits are in.
fn statement(number: i32, is_careful: bool) -> RawDocumentBuf {
    if is_careful {
        rawdoc! { "update": "accounts", "updates": [{
            "q": { "_id": 1, "deposits": { "$ne": number } },
            "u": { "$inc": { "balance": 10 }, "$push": { "deposits": number } },
        }] }
    } else {
        rawdoc! { "update": "accounts", "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "balance": 10 } } }] }
    }
}

/// The balance after five deposits, while connections break now and then.
fn balance_after_deposits(seed: u64, is_careful: bool) -> i32 {
    let sim = Sim::new(seed);
    let server = sim.server("db.example");
    server.run_command(
        "bank",
        rawdoc! { "insert": "accounts", "documents": [{ "_id": 1, "balance": 0, "deposits": [] }] },
    );
    sim.run(async {
        let client = Client::connect("mongodb://db.example/?heartbeatFrequencyMS=500").await.unwrap();
        sim.spawn(break_connections(server.clone(), sim.runtime().clone(), Random::new(seed)));
        for number in 0..DEPOSITS {
            deposit(&client, number, is_careful).await;
        }
    });
    let found = server.run_command("bank", rawdoc! { "find": "accounts" });
    let account = found[0].get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    account.get_document(0).unwrap().get_i32("balance").unwrap()
}

async fn break_connections(server: Server, runtime: SimRuntime, mut chance: Random) {
    loop {
        runtime.sleep(Duration::from_micros(1000 + chance.up_to(9000))).await;
        server.reset_connections();
    }
}

#[test]
fn a_deposit_that_is_tried_again_is_counted_twice_under_some_seed() {
    let wrong = (0..1000).find(|&seed| balance_after_deposits(seed, false) != 10 * DEPOSITS);

    let seed = wrong.expect("the mistake was not found");
    println!("seed {seed}: {} instead of {}", balance_after_deposits(seed, false), 10 * DEPOSITS);
    // The seed is all that is needed to see it again.
    assert_ne!(balance_after_deposits(seed, false), 10 * DEPOSITS);
}

#[test]
fn a_deposit_that_knows_what_was_done_is_counted_once_under_every_seed() {
    cmap_sim::for_seeds(0..300, |seed| assert_eq!(balance_after_deposits(seed, true), 10 * DEPOSITS));
}
