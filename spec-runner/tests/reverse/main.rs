//! A replica set behind relays, over real sockets and on each runtime: the application has no way out, and whatever happens to members,
//! relays, the application and the network, every write ends well and is there once. The same goes on in virtual time in
//! `runtimes/relay/tests/failover.rs`.
//!
//! The database's side has the host 127.0.0.1 and the application 127.0.0.2, so that the listening sockets say whose a port is.

#![allow(clippy::unwrap_used, reason = "a test stops where something is not as it should be")]

#[cfg(target_os = "linux")]
#[path = "../../../runtimes/relay/tests/listening/mod.rs"]
mod listening;
#[path = "../../../runtimes/cli/tests/members/mod.rs"]
mod members;
#[path = "../../../runtimes/relay/tests/scenario/mod.rs"]
mod scenario;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use cmap_relay::Member;
use cmap_runtime::ServerSelector::Writable;
use cmap_runtime::bson::rawdoc;
use cmap_runtime::{Client, Listen};

use self::members::{Members, order, tell};
use self::scenario::{CUT, FAULTS, Fault, OUTAGE, Stage, inward, play};

const TASKS: usize = 20;

/// Where applications listen. Only Linux has more than one loopback address from the start.
const APPLICATION: &str = if cfg!(target_os = "linux") { "127.0.0.2" } else { "127.0.0.1" };

#[test]
fn every_write_through_relays_ends_well_on_tokio() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(write_through_relays::<cmap_tokio::Tokio>());
}

#[test]
fn every_write_through_relays_ends_well_on_smol() {
    smol::block_on(write_through_relays::<cmap_smol::Smol>());
}

#[test]
fn every_write_through_relays_ends_well_on_async_std() {
    // async-std has threads of its own.
    smol::block_on(write_through_relays::<cmap_async_std::AsyncStd>());
}

struct Sockets<R> {
    runtime: R,
    members: Members,
}

async fn write_through_relays<R: Listen>() {
    let runtime = R::current().unwrap();
    let stage = Sockets { runtime: runtime.clone(), members: Members::start(env!("CARGO_BIN_EXE_spec-runner")) };

    let played = play(&stage, runtime.clone(), TASKS, &FAULTS).await;

    println!("{}: {} writes", R::NAME, played.acknowledged.iter().sum::<i64>());
    assert_eq!(played.errors, [""; 0]);
    assert_eq!(inward::CONNECTED.load(Ordering::SeqCst), 0, "the application has dialled");
    // Asked through a client that stands beside the members.
    let witness = Client::<R>::connect(&stage.members.uri("timeoutMS=10000")).await.unwrap();
    for (task, acknowledged) in (0_i64..).zip(&played.acknowledged) {
        assert!(*acknowledged > 0, "task {task} wrote nothing");
        let count = rawdoc! { "count": "log", "query": { "task": task } };
        let count = witness.operation(("db", count)).on(Writable).run().await.unwrap();
        assert_eq!(i64::from(count.get_i32("n").unwrap()), *acknowledged, "the documents of task {task}");
    }
}

impl<R: Listen> Stage for Sockets<R> {
    type Runtime = R;

    fn members(&self) -> Vec<Member> {
        let member = |host: &String| Member { name: host.parse().unwrap(), connect: host.parse().unwrap() };
        self.members.addresses.iter().map(member).collect()
    }

    fn relay_runtime(&self, _member: usize) -> R {
        self.runtime.clone()
    }

    fn application(&self) -> (&'static str, SocketAddr) {
        (APPLICATION, SocketAddr::new(APPLICATION.parse().unwrap(), 0))
    }

    async fn happen(&self, fault: Fault) {
        #[cfg(target_os = "linux")]
        self.assert_that_only_the_application_has_a_port();
        let runtime = &self.runtime;
        let (primary, other) = self.members.primary::<R>().await;
        match fault {
            Fault::StepDown => tell::<R>(&primary, rawdoc! { "replSetStepDown": 10 }).await,
            Fault::Kill => {
                tell::<R>(&other, order("kill", &primary)).await;
                runtime.sleep_until(runtime.now() + OUTAGE).await;
                tell::<R>(&other, order("restart", &primary)).await;
            }
            Fault::Cut => {
                inward::cut::<R>();
                runtime.sleep_until(runtime.now() + CUT).await;
                inward::mend::<R>();
            }
            Fault::RelaysKilled | Fault::RelayReplaced | Fault::ApplicationRestarts => {}
        }
    }
}

#[cfg(target_os = "linux")]
impl<R> Sockets<R> {
    /// Members listen on their own machine alone, and relays, which run in this process as the application does, nowhere.
    fn assert_that_only_the_application_has_a_port(&self) {
        let mut members: Vec<_> =
            listening::listening(self.members.process.id()).iter().map(ToString::to_string).collect();
        members.sort();
        let mut addresses = self.members.addresses.clone();
        addresses.sort();
        assert_eq!(members, addresses);
        let here = listening::listening(std::process::id());
        assert!(!here.is_empty(), "the application listens");
        assert!(here.iter().all(|socket| socket.ip().to_string() == APPLICATION), "{here:?}");
    }
}
