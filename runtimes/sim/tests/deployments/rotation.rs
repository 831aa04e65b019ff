//! A password that is changed at the server first, and in the client afterwards, under load: the client is served again at once,
//! and the rotation clears nothing.
//!
//! `CMAP_SIM_SEEDS` says under how many seeds (50 without it) or which, `CMAP_SIM_SEED` names a single one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_runtime::RotationError;
use cmap_sim::bson::rawdoc;
use cmap_sim::cmap_core::options::{Credential, ReadMode, ReadPreference, Secret};
use cmap_sim::cmap_core::random::Random;
use cmap_sim::cmap_core::topology::ServerSelector;
use cmap_sim::{
    Client, DeploymentConfig, MemberConfig, MemberRole, Servers, SetConfig, Sim, SimRuntime, User, campaign,
};

/// Tasks whose connections log in before the password is changed, and tasks that come afterwards.
const EARLY: usize = 2;
const LATE: usize = 4;

/// The shortest that the client goes on with the old password: a login is refused meanwhile.
const DELAY: Duration = Duration::from_millis(50);

/// Within this time the new password is set.
const LIMIT: Duration = Duration::from_secs(2);

/// Within this time after that every task is served again: the servers that were left unknown are checked half a second after their
/// last checks.
const RECOVERY: Duration = Duration::from_secs(1);

/// What the tasks of a run have met.
#[derive(Default)]
struct Tally {
    served: [AtomicUsize; EARLY + LATE],
    errors: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Tally {
    fn served(&self) -> Vec<usize> {
        self.served.iter().map(|served| served.load(Ordering::SeqCst)).collect()
    }
}

fn standalone(sim: &Sim) -> Servers {
    sim.deployment(|mut server| {
        server.address = "db.example:27017".into();
        set_users(&mut server);
        DeploymentConfig::single(server)
    })
}

fn replica_set(sim: &Sim) -> Servers {
    sim.deployment(|mut server| {
        set_users(&mut server);
        let hosts = ["a.example", "b.example", "c.example"];
        let members = (0..).zip(hosts).map(|(id, host)| MemberConfig::new(id, format!("{host}:27017")));
        DeploymentConfig::replica_set(server, SetConfig::new("rs", members.collect()))
    })
}

/// A set with a hidden member, which a client can be connected to directly alone.
fn hidden(sim: &Sim) -> Servers {
    sim.deployment(|mut server| {
        set_users(&mut server);
        let hidden = MemberConfig::new(1, "hidden.example:27017".to_owned()).with_role(MemberRole::Hidden);
        let members = vec![MemberConfig::new(0, "a.example:27017".to_owned()), hidden];
        DeploymentConfig::replica_set(server, SetConfig::new("rs", members))
    })
}

fn set_users(server: &mut cmap_sim::ServerConfig) {
    server.authorization = true;
    server.users = vec![User::with_password("app", "old")];
    server.iterations = (4096, 4096);
}

async fn connect(servers: &Servers, min_pool_size: u32) -> Client {
    let uri = servers.uri(&format!("authSource=admin&minPoolSize={min_pool_size}"));
    Client::connect(&uri.replace("mongodb://", "mongodb://app:old@")).await.unwrap()
}

fn password(password: &str) -> Option<Credential> {
    Some(Credential::new("app", Secret::from(password), "admin"))
}

fn change_password(servers: &Servers) {
    let member = servers.primary().unwrap_or_else(|| servers.members()[0].0);
    let reply = servers.run_command(member, "admin", rawdoc! { "updateUser": "app", "pwd": "new" }).unwrap();
    assert!(matches!(reply.get("errmsg"), Ok(None)), "{reply:?}");
}

/// Uses the client again and again: every other task the server that takes writes, the others any server.
async fn work(client: Client, runtime: SimRuntime, tally: Arc<Tally>, task: usize) {
    let nearest = ServerSelector::from(ReadPreference::new(ReadMode::Nearest));
    let selector = if task.is_multiple_of(2) { ServerSelector::Writable } else { nearest };
    while !tally.is_over.load(Ordering::SeqCst) {
        match client.operation(("db", rawdoc! { "count": "things" })).on(selector.clone()).run().await {
            Ok(_) => drop(tally.served[task].fetch_add(1, Ordering::SeqCst)),
            Err(error) => tally.errors.lock().unwrap().push(error.to_string()),
        }
        runtime.sleep(Duration::from_millis(50)).await;
    }
}

async fn change_password_under_load(sim: &Sim, servers: &Servers, min_pool_size: u32, random: &mut Random) {
    let client = connect(servers, min_pool_size).await;
    let tally = Arc::new(Tally::default());
    let begin = |task| sim.spawn(work(client.clone(), sim.runtime().clone(), Arc::clone(&tally), task));
    (0..EARLY).for_each(begin);
    sim.sleep(Duration::from_secs(1)).await;
    change_password(servers);
    // New connections are needed everywhere.
    (EARLY..EARLY + LATE).for_each(begin);
    client.replace_connections(Duration::ZERO);
    sim.sleep(DELAY + Duration::from_millis(random.up_to(3000))).await;
    if random.up_to(1) == 0 {
        // The call comes during a login, which will be refused.
        while client.stats().counts.pending == 0 {
            sim.sleep(Duration::from_micros(100)).await;
        }
    }
    let (asked, cleared) = (sim.elapsed(), client.stats().cleared);
    assert!(cleared > 0, "no login was refused, so nothing is tried");
    tally.errors.lock().unwrap().clear();

    client.set_credential(password("new")).await.unwrap();

    let took = sim.elapsed() - asked;
    assert!(took <= LIMIT, "it took {took:?}");
    let before = tally.served();
    sim.sleep(RECOVERY).await;
    let after = tally.served();
    assert!(before.iter().zip(&after).all(|(before, after)| after > before), "{before:?}, then {after:?}");
    sim.sleep(Duration::from_secs(1)).await;
    assert_eq!(client.stats().cleared, cleared, "the rotation has cleared a pool");
    assert_eq!(*tally.errors.lock().unwrap(), [""; 0]);
    assert_eq!(client.outdated_connections(), 0);
    tally.is_over.store(true, Ordering::SeqCst);
    assert_eq!(client.close(Duration::from_secs(20)).await.unwrap(), 0);
}

/// A password that is wrong, too, changes nothing: those whose logins are refused meanwhile learn of it, and the right one is set after
/// it.
async fn mistype_under_load(sim: &Sim, servers: &Servers) {
    let client = connect(servers, 0).await;
    let tally = Arc::new(Tally::default());
    change_password(servers);
    (0..EARLY).for_each(|task| sim.spawn(work(client.clone(), sim.runtime().clone(), Arc::clone(&tally), task)));
    let mut errors = 0;
    for _ in 0..5 {
        let error = client.set_credential(password("mistyped")).await.unwrap_err();
        assert!(matches!(error, RotationError::Refused { .. }), "{error}");
        sim.sleep(Duration::from_secs(1)).await;
        let before = std::mem::replace(&mut errors, tally.errors.lock().unwrap().len());
        assert!(errors > before, "nobody has learned that a login was refused");
    }

    client.set_credential(password("new")).await.unwrap();

    sim.sleep(RECOVERY).await;
    assert!(tally.served()[..EARLY].iter().all(|served| *served > 0), "{:?}", tally.served());
    tally.is_over.store(true, Ordering::SeqCst);
    assert_eq!(client.close(Duration::from_secs(20)).await.unwrap(), 0);
}

/// Two rotations at once: the wrong one ends first, and the logins that are refused meanwhile wait for the right one.
async fn rotate_twice_at_once(sim: &Sim, servers: &Servers) {
    let client = connect(servers, 0).await;
    let tally = Arc::new(Tally::default());
    client.operation(("db", rawdoc! { "count": "things" })).on(ServerSelector::Writable).run().await.unwrap();
    change_password(servers);
    let (wrong, right) = (client.clone(), client.clone());
    sim.spawn(async move { drop(wrong.set_credential(password("mistyped")).await) });
    // It logs in, and is refused, while the wrong one is being proven.
    client.replace_connections(Duration::ZERO);
    sim.spawn(work(client.clone(), sim.runtime().clone(), Arc::clone(&tally), 0));
    sim.sleep(Duration::from_micros(100)).await;

    right.set_credential(password("new")).await.unwrap();

    sim.sleep(RECOVERY).await;
    assert_eq!(client.stats().cleared, 0, "a refused login was told before the last rotation had ended");
    tally.is_over.store(true, Ordering::SeqCst);
    assert_eq!(client.close(Duration::from_secs(20)).await.unwrap(), 0);
}

/// Nothing is changed at a hidden member, and it is neither primary nor secondary to its clients: it proves the credential all the same.
async fn rotate_at_a_hidden_member(servers: &Servers) {
    let uri = "mongodb://app:old@hidden.example:27017/?authSource=admin&directConnection=true";
    let client = Client::connect(uri).await.unwrap();
    change_password(servers);

    client.set_credential(password("new")).await.unwrap();

    assert_eq!(client.close(Duration::from_secs(20)).await.unwrap(), 0);
}

fn change_password_first(deployment: fn(&Sim) -> Servers, min_pool_size: u32) {
    campaign(50, |seed| {
        let sim = Sim::new(seed);
        let servers = deployment(&sim);
        sim.run(change_password_under_load(&sim, &servers, min_pool_size, &mut Random::new(seed)));
    });
}

#[test]
fn a_password_that_a_standalone_server_changed_first_is_set_at_once() {
    change_password_first(standalone, 0);
}

#[test]
fn a_password_that_a_standalone_server_changed_first_is_set_at_once_with_min_pool_size() {
    change_password_first(standalone, 2);
}

#[test]
fn a_password_that_a_replica_set_changed_first_is_set_at_once() {
    change_password_first(replica_set, 0);
}

#[test]
fn a_password_that_a_replica_set_changed_first_is_set_at_once_with_min_pool_size() {
    change_password_first(replica_set, 2);
}

#[test]
fn a_mistyped_password_changes_nothing_where_the_old_one_is_refused_as_well() {
    campaign(50, |seed| {
        let sim = Sim::new(seed);
        let servers = standalone(&sim);
        sim.run(mistype_under_load(&sim, &servers));
    });
}

#[test]
fn of_two_rotations_at_once_the_one_that_fails_first_reports_no_refused_login() {
    campaign(50, |seed| {
        let sim = Sim::new(seed);
        let servers = standalone(&sim);
        sim.run(rotate_twice_at_once(&sim, &servers));
    });
}

#[test]
fn a_password_is_proven_to_a_hidden_member_that_is_connected_to_directly() {
    campaign(5, |seed| {
        let sim = Sim::new(seed);
        let servers = hidden(&sim);
        sim.run(rotate_at_a_hidden_member(&servers));
    });
}
