//! The pools of one deployment: limits that change, minimums that follow, hosts that nobody uses, a limit for all of them.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};
use cmap_core::address::ServerAddress;
use cmap_core::options::{ClientOptions, PoolSizes};
use cmap_core::topology::{MinPoolSizePolicy, ServerSelector, SizesByRole};
use cmap_runtime::Client;
use cmap_runtime::runtime::Runtime;

use super::rogue::Rogue;
use super::{ClientOf, Harness, LocalServer, client, options, poll_once, run, until, yield_now};

/// Three servers that say what the test wants them to be.
struct Deployment {
    servers: Vec<Rogue>,
    places: Arc<Mutex<Vec<String>>>,
    /// The primary, of a set.
    primary: Arc<AtomicUsize>,
}

impl Deployment {
    fn routers() -> Self {
        Self::start(|_, _, _| rawdoc! { "ok": 1, "isWritablePrimary": true, "msg": "isdbgrid", "maxWireVersion": 25 })
    }

    /// A replica set whose primary is the first of them.
    fn set() -> Self {
        Self::start(|places, own, primary| {
            let mut hello = rawdoc! {
                "ok": 1, "isWritablePrimary": own == primary, "secondary": own != primary, "setName": "rs",
                "setVersion": 1, "maxWireVersion": 25,
            };
            hello.append(cstr!("hosts"), places.iter().map(String::as_str).collect::<bson::RawArrayBuf>());
            if own == primary {
                // A later election each time.
                let election = bson::oid::ObjectId::from_bytes([u8::try_from(primary).unwrap(); 12]);
                hello.append(cstr!("electionId"), election);
            }
            hello
        })
    }

    fn start(hello: fn(&[String], usize, usize) -> RawDocumentBuf) -> Self {
        let (places, primary) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let server = |own| {
            let (places, primary) = (Arc::clone(&places), Arc::clone(&primary));
            Rogue::start(move || {
                let (places, primary) = (Arc::clone(&places), Arc::clone(&primary));
                move |_, _| hello(&places.lock().unwrap(), own, primary.load(Ordering::SeqCst))
            })
        };
        let servers: Vec<Rogue> = (0..3).map(server).collect();
        *places.lock().unwrap() = servers.iter().map(Rogue::place).collect();
        Self { servers, places, primary }
    }

    fn options(&self, query: &str) -> ClientOptions {
        assert_eq!(self.servers.len(), 3);
        let hosts = self.places.lock().unwrap().join(",");
        ClientOptions::parse(&format!("mongodb://{hosts}/?{query}")).unwrap().0
    }

    fn address(&self, server: usize) -> ServerAddress {
        self.places.lock().unwrap()[server].parse().unwrap()
    }

    /// A selector of one server.
    fn at(&self, server: usize) -> ServerSelector {
        ServerSelector::AnyOf([self.address(server)].into())
    }

    fn connections<H: Harness>(&self, client: &ClientOf<H>, server: usize) -> u32 {
        let address = self.address(server);
        let status = client.servers().into_iter().find(|status| *status.description.address == address);
        status.map_or(0, |status| status.stats.counts.total())
    }
}

pub fn higher_limits_serve_those_who_wait_at_once_x_70<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let _in_use = client.check_out().await.unwrap();
        let mut waiter = Box::pin(client.check_out());
        assert!(poll_once(&mut waiter).await.is_none());

        client.resize(PoolSizes::default().max_pool_size(2)).unwrap();

        let _served = waiter.await.unwrap();
        assert_eq!(client.stats().counts.in_use, 2);
    });
}

pub fn lower_limits_close_what_comes_back_x_70<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=4").await;
        let mut in_use = Vec::new();
        for _ in 0..4 {
            in_use.push(client.check_out().await.unwrap());
        }
        drop(in_use.pop());

        client.resize(PoolSizes::default().max_pool_size(1)).unwrap();
        assert_eq!(client.stats().counts.total(), 3, "those in use stay");
        let mut last = in_use.pop().unwrap();
        drop(in_use);

        assert_eq!((client.stats().counts.total(), client.stats().closed.surplus), (1, 3));
        last.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
    });
}

pub fn limits_that_contradict_each_other_are_refused_x_70<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=4").await;

        let error = client.resize(PoolSizes::default().min_pool_size(5)).unwrap_err();

        assert_eq!((error.option, error.value.as_str()), ("minPoolSize", "5"));
        assert!(error.to_string().contains("maxPoolSize"), "{error}");
    });
}

pub fn other_members_have_as_many_connections_as_the_primary_x_71<H: Harness>() {
    run::<H>(async {
        let set = Deployment::set();
        let builder = super::builder::<H>(set.options("replicaSet=rs"));
        let client = builder.min_pool_size_policy(MinPoolSizePolicy::MatchPrimaryNode).build().await.unwrap();
        let mut in_use = Vec::new();

        for _ in 0..3 {
            in_use.push(client.check_out().await.unwrap());
        }

        until(|| [0, 1, 2].map(|server| set.connections::<H>(&client, server)) == [3, 3, 3]).await;
    });
}

pub fn a_host_that_nobody_uses_has_no_connections_x_72<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let builder = super::builder::<H>(options(&server, "minPoolSize=2"));
        let client = builder.host_timeout(Duration::from_millis(300)).build().await.unwrap();
        until(|| client.stats().counts.available == 2).await;

        until(|| client.stats().counts.total() == 0).await;
        drop(client.check_out().await.unwrap());

        until(|| client.stats().counts.available == 2).await;
    });
}

pub fn all_pools_together_keep_to_their_limit_x_73<H: Harness>() {
    const TASKS: u32 = 300;
    run::<H>(async {
        let routers = Deployment::routers();
        let client = super::builder::<H>(routers.options("")).max_connections(4).build().await.unwrap();
        let served = Arc::new(AtomicU32::new(0));
        let runtime = H::Runtime::current().unwrap();

        for task in 0..TASKS {
            let (client, served): (Client<H::Runtime>, _) = (client.clone(), Arc::clone(&served));
            let selector = routers.at(usize::try_from(task).unwrap() % 3);
            runtime.spawn(async move {
                let mut connection = client.check_out_for(selector).await.unwrap();
                connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
                drop(connection);
                served.fetch_add(1, Ordering::SeqCst);
            });
        }
        while served.load(Ordering::SeqCst) < TASKS {
            assert!(client.stats().counts.total() <= 4, "{}", client.stats().counts);
            yield_now().await;
        }

        assert_eq!(client.stats().check_outs_failed.total(), 0);
    });
}

pub fn limits_follow_the_primary_x_74<H: Harness>() {
    run::<H>(async {
        let set = Deployment::set();
        let (large, small) = (PoolSizes::default().max_pool_size(5), PoolSizes::default().max_pool_size(1));
        let sizes = SizesByRole::default().primary(large).secondary(small);
        let builder = super::builder::<H>(set.options("replicaSet=rs&heartbeatFrequencyMS=500"));
        let client = builder.sizes_by_role(sizes).build().await.unwrap();
        let mut in_use = vec![client.check_out_for(set.at(1)).await.unwrap()];
        let mut waiter = Box::pin(client.check_out_for(set.at(1)));
        assert!(poll_once(&mut waiter).await.is_none(), "a secondary has room for one");

        set.primary.store(1, Ordering::SeqCst);

        in_use.push(waiter.await.unwrap());
        for _ in 0..3 {
            in_use.push(client.check_out().await.unwrap());
        }
        assert_eq!(set.connections::<H>(&client, 1), 5);
    });
}
