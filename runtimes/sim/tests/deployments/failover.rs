//! A client of a replica set through failovers: whatever happens to the members, no check-out ends in an error while its
//! time lasts.
//!
//! `CMAP_SIM_SEEDS` says under how many seeds (40 without it) or which, `CMAP_SIM_SEED` names a single one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_runtime::Runtime;
use cmap_sim::bson::rawdoc;
use cmap_sim::cmap_core::options::{ReadMode, ReadPreference};
use cmap_sim::cmap_core::random::Random;
use cmap_sim::cmap_core::server::ServerType;
use cmap_sim::cmap_core::topology::{ServerSelector, TopologyType};
use cmap_sim::{Client, Servers, Sim, SimRuntime, campaign, for_seeds};

const TASKS: usize = 20;
const FAILOVERS: usize = 6;

/// The longest outage of a member.
const OUTAGE: Duration = Duration::from_secs(2);

/// How long the set is left alone after each failover.
const PAUSE: Duration = Duration::from_secs(3);

/// The longest time without a check-out that got the primary: the outage, its detection, an election and its discovery.
const RECOVERY: Duration = Duration::from_secs(5);

const OPTIONS: &str = "heartbeatFrequencyMS=500&connectTimeoutMS=500&timeoutMS=10000";

/// What the tasks of a run have met.
#[derive(Default)]
struct Tally {
    served: AtomicUsize,
    failed_commands: AtomicUsize,
    check_out_errors: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

fn set(sim: &Sim) -> Servers {
    sim.replica_set("rs", &["a.example", "b.example", "c.example"])
}

#[test]
fn no_check_out_ends_in_an_error_through_failovers() {
    campaign(40, |seed| {
        let sim = Sim::new(seed);
        let set = set(&sim);
        let tally = Arc::new(Tally::default());
        let slowest = sim.run(through_failovers(&sim, &set, Arc::clone(&tally), &mut Random::new(seed)));

        assert_eq!(*tally.check_out_errors.lock().unwrap(), [""; 0]);
        assert!(slowest <= RECOVERY, "a recovery took {slowest:?}");
    });
}

async fn through_failovers(sim: &Sim, set: &Servers, tally: Arc<Tally>, random: &mut Random) -> Duration {
    let client = Client::connect(&set.uri(OPTIONS)).await.unwrap();
    let runtime = SimRuntime::current().unwrap();
    for _ in 0..TASKS {
        runtime.spawn(ping(client.clone(), sim.runtime().clone(), Arc::clone(&tally)));
    }
    let mut slowest = Duration::ZERO;
    for _ in 0..FAILOVERS {
        let start = sim.elapsed();
        fail_over(sim, set, random).await;
        // Every task is served again.
        let served = tally.served.load(Ordering::SeqCst);
        while tally.served.load(Ordering::SeqCst) < served + TASKS {
            sim.sleep(Duration::from_millis(5)).await;
        }
        slowest = slowest.max(sim.elapsed().saturating_sub(start));
        sim.sleep(PAUSE).await;
    }
    tally.is_over.store(true, Ordering::SeqCst);
    client.close(Duration::from_secs(20)).await.unwrap();
    slowest
}

/// Something happens to the primary, or to all members one after the other.
pub(super) async fn fail_over(sim: &Sim, set: &Servers, random: &mut Random) {
    let Some(primary) = set.primary() else { return };
    match random.up_to(3) {
        0 => set.step_down(Duration::from_secs(10)),
        1 => {
            set.kill(primary);
            sim.sleep(OUTAGE).await;
            set.restart(primary);
        }
        2 => {
            set.partition(primary);
            sim.sleep(OUTAGE).await;
            set.heal(primary);
        }
        _ => {
            for (member, _) in set.members() {
                set.kill(member);
                sim.sleep(Duration::from_millis(300)).await;
                set.restart(member);
                sim.sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Uses the primary again and again. Commands may fail, because their connections are lost; check-outs may not.
async fn ping(client: Client, runtime: SimRuntime, tally: Arc<Tally>) {
    while !tally.is_over.load(Ordering::SeqCst) {
        match client.check_out().await {
            Ok(mut connection) => match connection.run_command("admin", rawdoc! { "ping": 1 }).await {
                Ok(_) => drop(tally.served.fetch_add(1, Ordering::SeqCst)),
                Err(_) => drop(tally.failed_commands.fetch_add(1, Ordering::SeqCst)),
            },
            Err(_) if tally.is_over.load(Ordering::SeqCst) => return,
            Err(error) => tally.check_out_errors.lock().unwrap().push(error.to_string()),
        }
        runtime.sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_client_finds_all_members_from_one_seed_top_32() {
    for_seeds(0..20, |seed| {
        let sim = Sim::new(seed);
        set(&sim);
        sim.run(async {
            let client = Client::connect("mongodb://b.example/?replicaSet=rs").await.unwrap();

            drop(client.check_out().await.unwrap());

            let description = client.description();
            assert_eq!(description.topology_type, TopologyType::ReplicaSetWithPrimary);
            assert_eq!(description.servers.len(), 3);
        });
    });
}

#[test]
fn reads_go_to_secondaries_where_they_may_sel_19() {
    for_seeds(0..20, |seed| {
        let sim = Sim::new(seed);
        let set = set(&sim);
        sim.run(async {
            let client = Client::connect(&set.uri("heartbeatFrequencyMS=500")).await.unwrap();

            for _ in 0..10 {
                let selector = ReadPreference::new(ReadMode::Secondary);
                let connection = client.check_out_for(selector).await.unwrap();

                let description = client.description();
                let server = description.server(connection.address()).unwrap();
                assert_eq!(server.server_type, ServerType::RsSecondary);
            }
        });
    });
}

#[test]
fn a_secondary_serves_the_reads_that_it_was_selected_for_sel_35() {
    let sim = Sim::new(1);
    let set = set(&sim);
    sim.run(async {
        let client = Client::connect(&set.uri(OPTIONS)).await.unwrap();
        let mut secondary = client.check_out_for(ReadPreference::new(ReadMode::Secondary)).await.unwrap();

        secondary.run_command("db", rawdoc! { "find": "c" }).await.unwrap();

        let mut named =
            client.check_out_for(ServerSelector::AnyOf([secondary.address().clone()].into())).await.unwrap();
        named.run_command("db", rawdoc! { "find": "c" }).await.unwrap();
    });
}

#[test]
fn without_reselection_a_check_out_tells_of_the_failure() {
    let sim = Sim::new(1);
    let set = set(&sim);
    sim.run(async {
        let options = cmap_sim::cmap_core::options::ClientOptions::parse(&set.uri(OPTIONS)).unwrap().0;
        let client = Client::builder(options).reselect(false).build().await.unwrap();
        let primary = set.primary().unwrap();
        drop(client.check_out().await.unwrap());
        let held = client.check_out().await.unwrap();

        set.kill(primary);
        let mut errors = 0;
        for _ in 0..100 {
            errors += usize::from(client.check_out().await.is_err());
        }

        assert!(errors > 0, "nothing has failed");
        drop(held);
    });
}
