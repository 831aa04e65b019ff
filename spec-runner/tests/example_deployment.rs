//! The example `deployment` of the core, with a replica set whose primary goes away and comes back.

#![allow(clippy::unwrap_used, dead_code, reason = "the example is a program, whose main function is not called here")]

#[path = "../../core/examples/deployment.rs"]
mod deployment;
#[path = "../../runtimes/cli/tests/members/mod.rs"]
mod members;

use std::thread;
use std::time::Duration;

use cmap_smol::Smol;

use self::members::{Members, order, tell};

#[test]
fn pings_find_the_primary_and_share_a_connection() {
    let members = Members::start(env!("CARGO_BIN_EXE_spec-runner"));

    let stats = deployment::run(&members.uri("maxPoolSize=1"), 100).unwrap();

    assert_eq!((stats.checked_out, stats.checked_in), (100, 100));
    assert_eq!((stats.created, stats.closed.total()), (1, 1));
}

#[test]
fn pings_go_on_after_the_primary_was_lost() {
    let members = Members::start(env!("CARGO_BIN_EXE_spec-runner"));
    let uri = members.uri("heartbeatFrequencyMS=500");
    let (primary, other) = smol::block_on(members.primary::<Smol>());
    let pinging = thread::spawn(move || deployment::run(&uri, 20_000).unwrap());

    thread::sleep(Duration::from_millis(200));
    smol::block_on(tell::<Smol>(&other, order("kill", &primary)));
    let stats = pinging.join().unwrap();

    assert!(stats.cleared > 0, "the pings ended before the primary went away: {stats:?}");
    assert!(stats.checked_out >= 20_000, "{stats:?}");
    assert_eq!(stats.checked_out, stats.checked_in);
    assert_eq!(stats.created, stats.closed.total());
}
