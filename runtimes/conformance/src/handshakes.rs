//! A proxy between client and server, which passes a handshake on byte by byte, or cuts it off after every byte.
//!
//! Where it cuts and waits, it stands for a load balancer: without a monitor, every byte that passes is the pool's, and
//! a client that was cut off may connect again at once (LB-9, LB-10).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bson::{RawDocument, rawdoc};
use cmap_core::connection::{Fault, Phase};
use cmap_core::options::ClientOptions;
use cmap_runtime::{Client, Pool};

use super::lab::Lab;
use super::proxy::{Passage, Proxy};
use super::recovery::recovered;
use super::rogue::Rogue;
use super::{
    Harness, Hosts, LocalServer, Setup, assert_nothing_lost, establish_error, outspoken, run, the_server, until,
};

/// What is between client and server.
struct Scene {
    server: LocalServer,
    proxy: Proxy,
}

impl Scene {
    /// Behind a load balancer.
    fn new(tls: Option<Hosts>) -> Self {
        Self::of(Setup { authorization: true, services: 1, tls, ..Setup::default() })
    }

    /// With a server that is known by its monitor.
    fn monitored() -> Self {
        Self::of(Setup { authorization: true, ..Setup::default() })
    }

    fn of(setup: Setup) -> Self {
        let server = LocalServer::start_as(setup);
        let proxy = Proxy::start(server.place());
        Self { server, proxy }
    }

    /// The options of a client that logs in, behind a load balancer.
    fn options(&self, tls: bool) -> ClientOptions {
        let mut uri = format!("{}&loadBalanced=true", self.uri());
        if tls {
            uri = format!("{uri}&tls=true&tlsCAFile={}", self.server.authority().display());
        }
        ClientOptions::parse(&uri).unwrap().0
    }

    /// The connection string of a client that logs in.
    fn uri(&self) -> String {
        format!("mongodb://app:secret@{}/?appName=suite", self.proxy.place())
    }
}

pub fn a_handshake_comes_byte_by_byte<H: Harness>() {
    run::<H>(byte_by_byte::<H>(None));
}

pub fn a_handshake_under_tls_comes_byte_by_byte<H: Harness>() {
    run::<H>(byte_by_byte::<H>(Some(Hosts::Local)));
}

async fn byte_by_byte<H: Harness>(tls: Option<Hosts>) {
    let scene = Scene::new(tls);
    let lab = Lab::<H::Runtime>::new();
    let (reader, pieces) = (lab.reader(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&pieces);
    scene.proxy.set_passage(Passage::ByteWise(Arc::new(move |bytes| {
        let (reader, counted) = (reader.clone(), Arc::clone(&counted));
        Box::pin(async move {
            reader.wait_and_send(bytes).await;
            counted.fetch_add(1, Ordering::SeqCst);
        })
    })));
    let client = Client::builder(scene.options(tls.is_some())).runtime(lab).build().await.unwrap();

    let mut connection = client.check_out().await.unwrap();

    connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
    // The hello's answer, two of SCRAM, and the command's: each byte came when all before it had been read.
    let pieces = pieces.load(Ordering::SeqCst);
    println!("{pieces} pieces came to the client");
    assert!(pieces > 500, "only {pieces} pieces came to the client");
    assert_eq!(client.stats().created, 1);
}

pub fn a_handshake_cut_at_every_byte_is_an_error_and_recovers<H: Harness>() {
    run::<H>(async {
        let cuts = cut_off::<H>(None).await;

        assert_eq!(cuts.keys().collect::<Vec<_>>(), [&Phase::Hello, &Phase::Authenticate]);
        assert!(cuts.values().sum::<usize>() > 1000, "{cuts:?}");
    });
}

pub fn a_handshake_under_tls_cut_at_every_byte_is_an_error_and_recovers<H: Harness>() {
    run::<H>(async {
        let cuts = cut_off::<H>(Some(Hosts::Local)).await;

        assert_eq!(cuts.keys().collect::<Vec<_>>(), [&Phase::Tls, &Phase::Hello, &Phase::Authenticate]);
        assert!(cuts.values().sum::<usize>() > 2000, "{cuts:?}");
    });
}

/// Cuts handshakes off after 0, 1, 2 bytes and so on, until one is whole. Returns how many were cut off in each phase.
async fn cut_off<H: Harness>(tls: Option<Hosts>) -> BTreeMap<Phase, usize> {
    let scene = Scene::new(tls);
    let mut options = scene.options(tls.is_some());
    // Thousands of handshakes fail in a row.
    options.pool.backoff = Some(false);
    let client = Client::<H::Runtime>::builder(options).reselect(false).build().await.unwrap();
    let mut cuts = BTreeMap::new();
    for bytes in 0.. {
        scene.proxy.set_passage(Passage::Cut(bytes));
        let outcome = client.check_out().await;
        if outcome.is_ok() {
            break;
        }
        let error = establish_error(outcome);
        assert_eq!(error.fault, Fault::Network, "after {bytes} bytes: {error}");
        *cuts.entry(error.phase).or_default() += 1;
    }
    println!("handshakes cut off, by phase: {cuts:?}");

    scene.proxy.set_passage(Passage::Whole);
    recovered("a handshake that was cut off", &client).await;
    assert_nothing_lost(&client);
    cuts
}

pub fn a_handshake_with_a_monitor_beside_it_that_is_cut_is_an_error_and_recovers<H: Harness>() {
    run::<H>(async {
        for cut in [0, 1, 15, 16, 200, 500, 800] {
            let scene = Scene::monitored();
            let client = outspoken::<H>(&scene.uri()).await;
            let in_use = client.check_out().await.unwrap();
            scene.proxy.set_passage(Passage::Cut(cut));

            let error = establish_error(client.check_out().await);

            assert_eq!(error.fault, Fault::Network, "after {cut} bytes: {error}");
            scene.proxy.set_passage(Passage::Whole);
            recovered("a handshake that was cut off beside a monitor", &client).await;
            drop(in_use);
            assert_nothing_lost(&client);
        }
    });
}

pub fn a_library_around_the_client_is_named_by_connections_yet_to_come_hs_14<H: Harness>() {
    run::<H>(async {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let rogue = Rogue::start(move || {
            let hears = Arc::clone(&hears);
            move |_: &str, command: &RawDocument| {
                let client = command.get_document("client");
                let name = client.and_then(|client| client.get_document("driver")?.get_str("name"));
                hears.lock().unwrap().extend(name.map(ToOwned::to_owned));
                rawdoc! { "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 25 }
            }
        });
        let mut options = rogue.options("");
        options.credential = None;
        let pool = Pool::<H::Runtime>::with_options(options).await.unwrap();
        pool.ready();
        let _first = pool.check_out().await.unwrap();

        pool.append_metadata("odm", "1.0", "").unwrap();
        let _second = pool.check_out().await.unwrap();

        let heard = heard.lock().unwrap();
        assert_eq!(heard.len(), 2);
        assert_eq!(heard[1], format!("{}|odm", heard[0]));
    });
}

pub fn a_library_around_the_client_is_named_by_checks_yet_to_come_hs_14<H: Harness>() {
    run::<H>(async {
        let (heard, loses) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicBool::new(false)));
        let (hears, refuses) = (Arc::clone(&heard), Arc::clone(&loses));
        let rogue = Rogue::start(move || {
            let (hears, refuses) = (Arc::clone(&hears), Arc::clone(&refuses));
            move |_: &str, command: &RawDocument| {
                let client = command.get_document("client");
                match client.and_then(|client| client.get_document("driver")?.get_str("name")) {
                    Ok(name) => hears.lock().unwrap().push(name.to_owned()),
                    // A check that fails has another connection follow.
                    Err(_) if refuses.load(Ordering::SeqCst) => return rawdoc! { "ok": 0, "errmsg": "no" },
                    Err(_) => {}
                }
                rawdoc! { "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 25 }
            }
        });
        let client = super::builder::<H>(rogue.options("heartbeatFrequencyMS=500")).build().await.unwrap();
        until(|| heard.lock().unwrap().len() == 1).await;

        client.append_metadata("odm", "1.0", "").unwrap();
        loses.store(true, Ordering::SeqCst);

        until(|| heard.lock().unwrap().len() == 2).await;
        let heard = heard.lock().unwrap();
        assert_eq!(heard[1], format!("{}|odm", heard[0]));
    });
}

pub fn the_hello_of_a_connection_says_what_a_check_would<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let proxy = Proxy::start(server.place());
        let uri = format!("mongodb://{}/?heartbeatFrequencyMS=60000", proxy.place());
        let client = Client::<H::Runtime>::connect(&uri).await.unwrap();
        let _first = client.check_out().await.unwrap();
        // Another server at the same address: the monitor still listens to the first one.
        let newer = LocalServer::start_as(Setup { wire_versions: Some((0, 20)), ..Setup::default() });
        proxy.set_server(newer.place());

        let _second = client.check_out().await.unwrap();

        assert_eq!(the_server(&client).wire_versions, Some((0, 20)), "MON-5");
    });
}
