//! A proxy between client and server, which hands a handshake over byte by byte, or cuts it off after every one of them.
//!
//! Where it cuts and waits, it stands for a load balancer: without a monitor, every byte that passes is the pool's, and whoever was cut off
//! may connect again at once (LB-9, LB-10).

use std::sync::Arc;

use bson::rawdoc;
use cmap_core::connection::{Fault, Phase};
use cmap_core::options::ClientOptions;

use super::lab::Lab;
use super::proxy::{Passage, Proxy};
use super::recovery::recovered;
use super::{Harness, Hosts, Setup, TestServer, establish_error, run};
use crate::Client;

/// What is between client and server.
struct Scene {
    server: TestServer,
    proxy: Proxy,
}

impl Scene {
    fn new(tls: Option<Hosts>) -> Self {
        let server = TestServer::start_as(Setup { authorization: true, services: 1, tls, ..Setup::default() });
        let proxy = Proxy::start(server.place());
        Self { server, proxy }
    }

    /// The options of a client that logs in.
    fn options(&self, tls: bool) -> ClientOptions {
        let mut uri = format!("mongodb://app:secret@{}/?loadBalanced=true", self.proxy.place());
        if tls {
            uri = format!("{uri}&tls=true&tlsCAFile={}", self.server.authority().display());
        }
        ClientOptions::parse(&uri).unwrap().0
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
    scene.proxy.set_passage(Passage::ByteWise(Arc::new(lab.reader())));
    let client = Client::builder(scene.options(tls.is_some())).runtime(lab).build().await.unwrap();

    let mut connection = client.check_out().await.unwrap();

    connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
}

pub fn a_handshake_cut_at_every_byte_is_an_error_and_recovers<H: Harness>() {
    run::<H>(async {
        let cuts = cut_off::<H>(None, 1).await;

        assert!(cuts > 1000, "a whole handshake with SCRAM has {cuts} bytes");
    });
}

pub fn a_handshake_under_tls_that_is_cut_is_an_error_and_recovers<H: Harness>() {
    run::<H>(async {
        // Every byte would take thousands of handshakes; in memory `tests/tls/broken.rs` cuts at each.
        const STEP: usize = 7;

        let cuts = cut_off::<H>(Some(Hosts::Local), STEP).await;

        assert!(cuts > 2000 / STEP, "a whole handshake has {} bytes", cuts * STEP);
    });
}

/// Cuts handshakes off after 0, `step`, 2 `step` bytes and so on, until one is whole. Returns how many were cut off.
async fn cut_off<H: Harness>(tls: Option<Hosts>, step: usize) -> usize {
    let scene = Scene::new(tls);
    let client = Client::<H::Runtime>::with_options(scene.options(tls.is_some())).await.unwrap();
    let mut cuts = 0;
    let mut reached = Phase::Resolve;
    loop {
        scene.proxy.set_passage(Passage::Cut(cuts * step));
        let outcome = client.check_out().await;
        if outcome.is_ok() {
            break;
        }
        let error = establish_error(outcome);
        assert_eq!(error.fault, Fault::Network, "after {} bytes: {error}", cuts * step);
        assert!(error.phase >= reached, "after {} bytes: {error}", cuts * step);
        reached = error.phase;
        cuts += 1;
    }
    assert_eq!(reached, Phase::Authenticate);

    scene.proxy.set_passage(Passage::Whole);
    recovered("a handshake that was cut off", &client).await;
    cuts
}

pub fn the_hello_of_a_connection_says_what_a_check_would<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
        let proxy = Proxy::start(server.place());
        let uri = format!("mongodb://{}/?heartbeatFrequencyMS=60000", proxy.place());
        let client = Client::<H::Runtime>::connect(&uri).await.unwrap();
        let _first = client.check_out().await.unwrap();
        // Another server at the same address: the monitor still listens to the first one.
        let newer = TestServer::start_as(Setup { wire_versions: Some((0, 20)), ..Setup::default() });
        proxy.set_server(newer.place());

        let _second = client.check_out().await.unwrap();

        assert_eq!(client.description().wire_versions, Some((0, 20)), "MON-5");
    });
}
