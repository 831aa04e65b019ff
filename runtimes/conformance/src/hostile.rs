//! Servers that lie: in any field, at any byte, at any speed. Whatever they send, every call of the client ends in time,
//! nothing is lost, and the client works as soon as the server tells the truth.

use std::time::Duration;

use bson::rawdoc;
use cmap_core::random::Random;
use cmap_runtime::Client;
use cmap_runtime::runtime::Runtime;

use super::virtual_time::Virtual;
use super::{Harness, LocalServer, Setup, Whim, assert_nothing_lost, is_virtual, run, until, yield_now};

/// The client's limits: of an operation, and of an establishment.
/// A direct connection keeps its server whatever it calls itself. Any other client drops one that lies about its set (TOP-22).
const OPTIONS: &str =
    "directConnection=true&maxPoolSize=3&heartbeatFrequencyMS=500&timeoutMS=400&connectTimeoutMS=200&compressors=zlib";

/// The longest that an operation may take in virtual time: a check-out and a command, timeoutMS each, and then some.
const LONGEST: Duration = Duration::from_secs(2);

/// The longest that it may take on sockets, where the machine adds to it.
const LONGEST_ON_SOCKETS: Duration = Duration::from_secs(30);

/// How often the client tries while the server lies.
const OPERATIONS: usize = 15;

/// How long a client may take to find out that the server tells the truth.
const RECOVERY: Duration = Duration::from_secs(90);

pub fn a_server_that_lies_costs_errors_and_nothing_else<H: Harness>() {
    run::<H>(survive::<H>(Whim::Seeded(Random::new(1)), true));
}

/// Survives a server that lies, in virtual time, by the lies of a seed.
pub fn run_seed(seed: u64) {
    simulate(seed, seed.is_multiple_of(2), || Whim::Seeded(Random::new(seed)));
}

/// Survives a server that lies, in virtual time, by the lies of `whim`.
pub fn simulate(seed: u64, login: bool, whim: impl Fn() -> Whim) {
    Virtual::simulate(seed, || run::<Virtual>(survive::<Virtual>(whim(), login)));
}

/// A client uses a server that lies, and then one that tells the truth.
async fn survive<H: Harness>(whim: Whim, login: bool) {
    let server = LocalServer::start_lying(Setup { authorization: login, ..Setup::default() }, whim);
    let uri = if login { server.uri_as("app:secret", OPTIONS) } else { server.uri(OPTIONS) };
    let runtime = H::Runtime::current().unwrap();
    let client = super::connect::<H>(&uri).await.unwrap();

    let longest = if is_virtual::<H>() { LONGEST } else { LONGEST_ON_SOCKETS };
    let mut failed = 0;
    for _ in 0..OPERATIONS {
        let began = runtime.now();
        failed += usize::from(!works(&client).await);
        let took = runtime.now() - began;
        assert!(took <= longest, "an operation took {took:?}");
    }

    println!("{failed} of {OPERATIONS} operations failed");
    server.tell_the_truth();
    let began = runtime.now();
    while !works(&client).await {
        let took = runtime.now() - began;
        assert!(
            took < RECOVERY,
            "the server tells the truth, and the client does not work: {:?}",
            client.description()
        );
        yield_now().await;
    }
    until(|| client.stats().counts.in_use == 0).await;
    assert_nothing_lost(&client);
    assert_eq!(client.close(Duration::from_secs(1)).await.unwrap(), 0);
}

async fn works<R: Runtime>(client: &Client<R>) -> bool {
    match client.check_out().await {
        Ok(mut connection) => connection.run_command("shop", rawdoc! { "ping": 1 }).await.is_ok(),
        Err(_) => false,
    }
}
