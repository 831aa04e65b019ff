//! No law breaks under the first seeds, a seed is one run, a recorder changes nothing, and the ledger sees what is wrong.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::ClientOptions;
use cmap_core::trace::{Replay, Trace};
use cmap_sim::bson::rawdoc;
use cmap_sim::{Client, Data, Event, PoolEvent, Sim};

use super::OPERATIONS;
use super::ledger::{Ledger, Limits};
use super::plan::Plan;
use super::run::run;

#[test]
fn no_law_breaks_under_the_first_seeds() {
    for seed in 0..60 {
        let outcome = run(&Plan::of(seed, None, OPERATIONS), false);

        assert_eq!(outcome.result, Ok(()), "seed {seed}");
    }
}

#[test]
fn a_seed_is_one_run_and_its_recording_repeats() {
    for seed in 0..12 {
        let plan = Plan::of(seed, None, OPERATIONS);

        let (plain, recorded) = (run(&plan, false), run(&plan, true));

        assert_eq!((plain.commands, plain.simulated), (recorded.commands, recorded.simulated), "seed {seed}");
        let trace = Trace::read(&recorded.trace.expect("it is recorded")).expect("it can be read");
        let mut replay = Replay::new(&trace).expect("it has a beginning");
        while replay.step().expect("it repeats").is_some() {}
    }
}

/// The events of a client that reads, whose server restarts.
fn events() -> Vec<(ServerAddress, Event)> {
    let events = Arc::new(Mutex::new(Vec::new()));
    let sim = Sim::new(1);
    let server = sim.server("db.example");
    sim.run(async {
        let (options, _) = ClientOptions::parse(&server.uri("heartbeatFrequencyMS=500")).expect("it can be parsed");
        let noted = Arc::clone(&events);
        let note = move |address: &ServerAddress, event: &Event| {
            noted.lock().expect("nothing panics").push((address.clone(), event.clone()));
        };
        let client = Client::builder(options).on_event(note).build().await.expect("it is made");
        for _ in 0..2 {
            let mut connection = client.check_out().await.expect("the server is up");
            server.restart(Data::Kept);
            connection.run_command("admin", rawdoc! { "ping": 1 }).await.expect_err("its server is gone");
        }
        client.close(Duration::from_secs(1)).await.expect("the runtime is there");
        sim.sleep(Duration::from_secs(1)).await;
    });
    std::mem::take(&mut *events.lock().expect("nothing panics"))
}

fn judge<'a>(events: impl IntoIterator<Item = &'a (ServerAddress, Event)>) -> Ledger {
    let mut ledger = Ledger::new(Limits { max_pool_size: 100, max_connecting: 2, is_calm: false });
    events.into_iter().for_each(|(address, event)| ledger.note(address, event));
    ledger
}

#[test]
fn an_event_that_comes_twice_breaks_a_law() {
    let events = events();
    assert_eq!(judge(&events).broken, None);
    let mut seen = std::collections::BTreeSet::new();
    for at in 0..events.len() {
        let Event::Pool(event) = &events[at].1 else { continue };
        if matches!(event, PoolEvent::PoolCreated { .. } | PoolEvent::PoolClosed) {
            continue;
        }

        let broken = judge(events[..=at].iter().chain(&events[at..])).broken;

        assert!(broken.is_some(), "{event:?}");
        seen.insert(event.name());
    }
    assert!(seen.len() >= 7, "{seen:?}");
}

#[test]
fn a_connection_that_never_comes_back_is_left_over() {
    let events = events();
    let is_end =
        |(_, event): &&(ServerAddress, Event)| matches!(event, Event::Pool(PoolEvent::ConnectionClosed { .. }));

    let ledger = judge(events.iter().filter(|event| !is_end(event)));

    assert_eq!(ledger.broken, None);
    assert!(ledger.nothing_is_left().is_err());
    assert_eq!(judge(&events).nothing_is_left(), Ok(()));
}
