//! A pool between threads and the server.

use std::sync::Barrier;
use std::thread;

use cmap_core::wire::bson::{doc, rawdoc};

use super::commands::{first_batch, no_collection, number};
use crate::tools::interop::cmap::expect::{self, Mismatch};
use crate::tools::interop::cmap::pool::SharedPool;
use crate::tools::interop::cmap::servers::Servers;

const THREADS: i32 = 32;
const ROUNDS: i32 = 20;

pub(super) fn threads_32(servers: &Servers) -> Result<(), Mismatch> {
    let pool = SharedPool::new(&servers.uri("open", "", &[("maxPoolSize", "32")])?)?;
    pool.with(|client| client.run("test", &rawdoc! { "drop": "threads" }).or_else(no_collection))?;
    let barrier = Barrier::new(32);
    let work = |thread: i32| -> Result<(), Mismatch> {
        barrier.wait();
        for n in 0..ROUNDS {
            let (id, text) = (thread * 100 + n, format!("{thread}-{n}"));
            pool.with(|client| client.insert("threads", &[rawdoc! { "_id": id, "text": &*text }]))?;
            let find = rawdoc! { "find": "threads", "filter": { "_id": id } };
            let found = pool.with(|client| client.run("test", &find))?;
            expect::equal(first_batch(&found), vec![doc! { "_id": id, "text": text }], "documents")?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<(), Mismatch>>| {
            thread.join().map_err(|_| Mismatch::Other("a thread panicked".into()))?
        };
        threads.into_iter().try_for_each(join)
    })?;
    let counted = pool.with(|client| client.run("test", &rawdoc! { "count": "threads" }))?;
    expect::equal(number(&counted, "n"), Some((THREADS * ROUNDS).into()), "count")
}

pub(super) fn pool_events(servers: &Servers) -> Result<(), Mismatch> {
    let pool = SharedPool::new(&servers.uri("open", "", &[])?)?;
    pool.with(|client| client.run("admin", &rawdoc! { "ping": 1 }))?;
    let expected = vec![
        "ConnectionPoolCreated",
        "ConnectionPoolReady",
        "ConnectionCheckOutStarted",
        "ConnectionCreated",
        "ConnectionReady",
        "ConnectionCheckedOut",
        "ConnectionCheckedIn",
    ];
    expect::equal(pool.events(), expected, "events")
}
