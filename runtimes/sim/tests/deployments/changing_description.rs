//! A replica set whose members describe themselves differently a thousand times a second: a client follows twenty changes of each, and
//! then looks twice a second. No connection is opened for it or lost, no pool is cleared, and no check-out waits.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_sim::bson::rawdoc;
use cmap_sim::cmap_core::monitor::HeartbeatEvent;
use cmap_sim::cmap_core::options::ClientOptions;
use cmap_sim::{
    Client, Error, Event, MemberConfig, PoolEvent, Runtime, ServerEvent, Servers, SetConfig, Sim, SimRuntime,
};

const HOSTS: [&str; 3] = ["a.example", "b.example", "c.example"];
const TASKS: usize = 20;
const CHANGES: usize = 1_000;

/// What a client has told of.
#[derive(Default)]
struct Counts {
    checks: AtomicUsize,
    changes: AtomicUsize,
    connections: AtomicUsize,
    others: AtomicUsize,
    /// The newest configuration that a member has described.
    newest: AtomicUsize,
}

impl Counts {
    fn note(&self, event: &Event) {
        let count = match event {
            Event::Server(ServerEvent::Heartbeat(HeartbeatEvent::Succeeded { .. })) => &self.checks,
            Event::Server(ServerEvent::Heartbeat(HeartbeatEvent::Started { .. })) => return,
            Event::Server(ServerEvent::ServerDescriptionChanged { new, .. }) => {
                let number = new.tags.get("change").map_or(0, |number| number.parse().unwrap());
                self.newest.fetch_max(number, Ordering::Relaxed);
                &self.changes
            }
            Event::Topology(_) => return,
            Event::Pool(PoolEvent::ConnectionCreated { .. } | PoolEvent::PoolCleared { .. }) => &self.connections,
            Event::Pool(_) => return,
            Event::Server(_) | Event::Selection(_) | Event::Lost(_) | _ => &self.others,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts since the last call.
    fn take(&self) -> [usize; 4] {
        [&self.checks, &self.changes, &self.connections, &self.others].map(|count| count.swap(0, Ordering::Relaxed))
    }
}

/// The set in its `number`-th configuration, which the members' tags tell.
fn configure(set: &Servers, number: usize) {
    let member = |(id, host): (i32, &&str)| {
        MemberConfig::new(id, format!("{host}:27017")).with_tag("change", number.to_string())
    };
    let mut config = SetConfig::new("rs0", (0..).zip(&HOSTS).map(member).collect());
    config.version = i32::try_from(number).unwrap() + 2;
    set.reconfigure(config);
}

async fn ping_once(client: &Client) -> Result<(), Error> {
    client.check_out().await?.run_command("admin", rawdoc! { "ping": 1 }).await?;
    Ok(())
}

async fn ping(client: Client, pings: Arc<AtomicUsize>, errors: Arc<Mutex<Vec<String>>>, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::Relaxed) {
        match ping_once(&client).await {
            Ok(()) => drop(pings.fetch_add(1, Ordering::Relaxed)),
            Err(error) => errors.lock().unwrap().push(error.to_string()),
        }
    }
}

#[test]
fn a_description_that_changes_a_thousand_times_a_second_is_followed_twice_a_second_x_153() {
    let sim = Sim::new(1);
    let set = sim.replica_set("rs0", &HOSTS);
    sim.run(async {
        let counts = Arc::new(Counts::default());
        let (options, _) = ClientOptions::parse(&set.uri("replicaSet=rs0")).unwrap();
        let noted = Arc::clone(&counts);
        let client = Client::builder(options).on_event(move |_, event| noted.note(event)).build().await.unwrap();
        let (pings, errors, is_over) = (Arc::default(), Arc::default(), Arc::default());
        for _ in 0..TASKS {
            let task = ping(client.clone(), Arc::clone(&pings), Arc::clone(&errors), Arc::clone(&is_over));
            SimRuntime::current().unwrap().spawn(task);
        }
        sim.sleep(Duration::from_secs(2)).await;
        counts.take();
        pings.store(0, Ordering::Relaxed);
        sim.sleep(Duration::from_secs(1)).await;
        let quiet = pings.swap(0, Ordering::Relaxed);

        for number in 0..CHANGES {
            configure(&set, number);
            sim.sleep(Duration::from_millis(1)).await;
        }

        let changing = pings.load(Ordering::Relaxed);
        is_over.store(true, Ordering::Relaxed);
        let [checks, changes, connections, others] = counts.take();
        println!("pings: {quiet}, then {changing}; {checks} checks, {changes} changes, {connections} connections");
        assert_eq!(*errors.lock().unwrap(), [""; 0]);
        assert_eq!((connections, others), (0, 0));
        assert!((HOSTS.len() * 15..=HOSTS.len() * 23).contains(&checks), "{checks} checks of {CHANGES} changes");
        assert!(changes <= checks, "{changes} changes by {checks} checks");
        assert!(changing * 10 > quiet * 9, "{changing} pings instead of {quiet}");

        sim.sleep(Duration::from_secs(1)).await;
        assert_eq!(counts.newest.load(Ordering::Relaxed), CHANGES - 1, "the last configuration is found");
    });
}
