//! The hub in virtual time: many clients with cursors and transactions, some of which vanish in the middle, while the primary of the set
//! steps down and is killed, and all connections upstream are lost, again and again. Every client knows what its replies have to say
//! (`load/worker.rs`), and at the end nothing is left over.
//!
//! It is the hub as it is, on tokio with its clock stopped: time goes on when all tasks wait. That needs sockets on which nothing is under
//! way, so all are Unix sockets in this process, whose bytes are there as soon as they are written. What the seed decides is what clients
//! do and what befalls the servers; the hub's own random choices (of a server, of a pause) are not among it.
//!
//! `CMAP_HUB_MINUTES` says how long each lasts (2), `CMAP_SIM_SEEDS` how many seeds there are (2).

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "hub/servers.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod servers;
#[path = "load/worker.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod worker;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::random::Random;
use cmap_hub::config;
use cmap_hub::hub::Hub;
use cmap_hub::users::{self, NewUser};
use cmap_tokio::Client;
use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::rawdoc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::servers::Servers;
use crate::worker::{Tally, Turn, Worker, wait_until_unlocked};

const USERS: u64 = 4;
const CLIENTS_PER_USER: u64 = 50;
/// A second of time between the commands of a client: more would only take longer.
const PACE: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Longer than anything takes that ends.
const STUCK: Duration = Duration::from_secs(300);
/// How soon what a client leaves behind has to be ended.
const SOON: Duration = Duration::from_secs(10);

/// How one seed went.
struct Played {
    tally: Tally,
    vanished: u64,
    troubles: u64,
}

#[test]
fn nothing_is_lost_doubled_mixed_up_or_left_over_in_virtual_time_x_131_x_134_x_137() {
    let (minutes, seeds) = (setting("CMAP_HUB_MINUTES", 2), setting("CMAP_SIM_SEEDS", 2));
    for seed in 0..seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let Played { tally, vanished, troubles } =
            runtime.block_on(play(seed, MINUTE * u32::try_from(minutes).unwrap()));
        let Tally { commands, cursors, transactions, repeated, wrong, slowest, .. } = tally;
        println!(
            "seed {seed}, {minutes} min: {commands} commands, {cursors} cursors, {transactions} transactions, {vanished} clients \
             vanished, {troubles} troubles; repeated, by code: {repeated:?}; the slowest in {slowest:?}"
        );
        assert_eq!(wrong, [""; 0], "what was not as it has to be under seed {seed}");
        assert!(cursors > 0 && transactions > 0 && vanished > 0 && troubles > 0);
    }
}

async fn play(seed: u64, time: Duration) -> Played {
    // Hosts in hellos are compared in lower case.
    let name = format!("cmap-hub-{}-{seed}", std::process::id());
    let folder = tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir().unwrap();
    let servers = Arc::new(Servers::replica_set_in(folder.path()).await);
    let hub = start_hub(folder.path(), &servers).await;
    let socket = folder.path().join("hub.sock").display().to_string().replace('/', "%2F");
    let end = Instant::now() + time;
    let mut random = Random::new(seed);

    let mut tasks = JoinSet::new();
    for user in 0..USERS {
        let uri = format!("mongodb://user-{user}:secret@{socket}/?loadBalanced=true&maxPoolSize={CLIENTS_PER_USER}");
        let client = Client::connect(&uri).await.unwrap();
        for index in 0..CLIENTS_PER_USER {
            let number = i64::try_from(user * CLIENTS_PER_USER + index).unwrap();
            tasks.spawn(act(client.clone(), number, random.next_u64(), end));
        }
    }
    let troubling = tokio::spawn(trouble(Arc::clone(&servers), random, end));
    let (mut tally, mut vanished) = (Tally::default(), 0);
    while let Some(ended) = tasks.join_next().await {
        let (one, times) = ended.unwrap();
        tally.add(one);
        vanished += times;
    }
    let troubles = troubling.await.unwrap();

    let directly = Client::connect(&servers.uri("timeoutMS=10000")).await.unwrap();
    eventually("no client is left at the hub", async || hub.connections() == 0).await;
    eventually("no cursor is left upstream", async || {
        let stats = directly.operation(("load", rawdoc! { "dbStats": 1 })).on(Writable).run().await.unwrap();
        stats.get_i32("openCursors").unwrap() == 0
    })
    .await;
    wait_until_unlocked(&directly, 0..i64::try_from(USERS * CLIENTS_PER_USER).unwrap(), SOON).await;
    assert_eq!(hub.drain(std::future::pending()).await, 0);
    Played { tally, vanished, troubles }
}

/// A client, from its first command to the end; how often it has vanished.
async fn act(client: Client, number: i64, seed: u64, end: Instant) -> (Tally, u64) {
    let mut worker = Worker::new(&client, number, seed, Duration::ZERO).await;
    worker.set_pace(PACE);
    let mut vanished = 0;
    while Instant::now() < end && worker.tally.wrong.is_empty() {
        let turn = tokio::time::timeout(STUCK, worker.turn(true)).await;
        let turn =
            turn.unwrap_or_else(|_| panic!("client {number} has had no reply for {STUCK:?}: {:?}", worker.doing));
        if turn == Turn::Abandoned {
            vanished += 1;
            let returned = tokio::time::timeout(STUCK, worker.vanish_and_return(&client)).await;
            worker = returned.unwrap_or_else(|_| panic!("client {number} has not come back for {STUCK:?}"));
        }
    }
    (worker.tally, vanished)
}

/// What befalls the set; how often.
async fn trouble(servers: Arc<Servers>, mut random: Random, end: Instant) -> u64 {
    let mut count = 0;
    loop {
        sleep(Duration::from_secs(10 + random.up_to(80))).await;
        if Instant::now() >= end {
            return count;
        }
        count += 1;
        match random.up_to(3) {
            0 => servers.step_down(),
            1 | 2 => servers.cut_connections(),
            _ => {
                servers.kill_primary();
                sleep(Duration::from_secs(1 + random.up_to(20))).await;
                servers.restart();
            }
        }
    }
}

async fn start_hub(folder: &std::path::Path, servers: &Servers) -> Hub {
    for user in 0..USERS {
        let user = NewUser { name: format!("user-{user}"), password: "secret".into(), upstream: None };
        users::add(&folder.join("users.toml"), &user).unwrap();
    }
    let (uri, socket) = (servers.uri("maxPoolSize=20"), folder.join("hub.sock"));
    let text =
        format!("users = 'users.toml'\nupstream.uri = '{uri}'\nlisten = [{{ unix = '{}' }}]\n", socket.display());
    fs::write(folder.join("hub.toml"), text).unwrap();
    Hub::start(config::read(&folder.join("hub.toml")).unwrap()).await.unwrap()
}

async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < SOON, "{what}: not within {SOON:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}
