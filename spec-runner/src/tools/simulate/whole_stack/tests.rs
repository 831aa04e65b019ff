//! No law breaks under the first seeds, a seed is one run, a recorder changes nothing, and the ledger sees what is wrong.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::ClientOptions;
use cmap_core::trace::{Replay, Trace};
use cmap_sim::bson::rawdoc;
use cmap_sim::{Client, Data, Event, PoolEvent, Sim};

use super::OPERATIONS;
use super::fault::FaultKind;
use super::ledger::{Ledger, Limits};
use super::mark::Mark;
use super::plan::Plan;
use super::retold::retold;
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
        let trace = recorded.trace.expect("it is recorded");
        let trace = retold(&trace, "a law broke".to_owned()).expect("it repeats");
        let trace = Trace::read(&trace).expect("it can be read");
        assert_eq!(trace.header.trigger, "a law broke");
        let mut replay = Replay::new(&trace).expect("it has a beginning");
        while replay.step().expect("it repeats").is_some() {}
    }
}

#[test]
fn each_fault_alone_breaks_no_law_and_can_be_carried_out() {
    let mut missed: Vec<_> = FaultKind::ALL.to_vec();
    for seed in 0..200 {
        let mut plan = Plan::of(seed, None, 20);
        plan.faults.truncate(1);
        let Some(fault) = plan.faults.first().copied() else { continue };
        if !missed.contains(&fault.kind) {
            continue;
        }

        let outcome = run(&plan, false);

        assert_eq!(outcome.result, Ok(()), "seed {seed}: {fault:?}");
        missed.retain(|kind| *kind != fault.kind || !outcome.marks.contains(&Mark::Befell(fault.kind)));
    }
    assert_eq!(missed, [], "never carried out");
}

/// The pools of a member that left its set and came back, while a connection was in use.
#[test]
fn the_sums_of_pools_with_the_same_numbers_are_judged() {
    let created = |events: &[(ServerAddress, Event)]| {
        let is_creation =
            |(_, event): &&(ServerAddress, Event)| matches!(event, Event::Pool(PoolEvent::PoolCreated { .. }));
        events.iter().find(is_creation).expect("the pool was created").clone()
    };
    let events = events();
    let is_borrowed =
        |(_, event): &(ServerAddress, Event)| matches!(event, Event::Pool(PoolEvent::ConnectionCheckedOut { .. }));
    let lent = events.iter().position(is_borrowed).expect("a connection was lent");
    let leaving = &events[..=lent];

    let open = judge(leaving.iter().chain([&created(&events)]).chain(&events[1..]));
    let closed = judge(leaving.iter().chain([&created(&events)]).chain(&events[lent + 1..]));

    assert_eq!((open.broken.clone(), closed.broken.clone()), (None, None));
    assert!(open.nothing_is_left().is_err());
    assert_eq!(closed.nothing_is_left(), Ok(()));
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
