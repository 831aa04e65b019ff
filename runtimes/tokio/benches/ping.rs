//! A `ping` by cmap beside the official driver, on tokio: first on one thread that shares a CPU with the server; then on
//! two threads, wherever the kernel puts them.
//!
//! `cargo bench -p cmap-tokio --bench ping`.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a benchmark fails by panicking")]

mod harness;

use std::process::ExitCode;

use cmap_benchmarks::contender::SIZE;
use cmap_benchmarks::cpu::OneCpu;
use cmap_benchmarks::pings::{Line, Pinger, compare};
use cmap_benchmarks::server::Server;
use cmap_benchmarks::{Harness, Threads};
use mongodb::bson::doc;

use self::harness::{OneThread, TwoThreads};

fn main() -> ExitCode {
    cmap_benchmarks::program(|report| {
        {
            let _one_cpu = OneCpu::keep();
            let server = Server::start();
            let official = official::<OneThread>(&server);
            compare::<OneThread>("tokio, one CPU", Threads::One, &server, report, Some(official));
        }
        let server = Server::start();
        let official = official::<TwoThreads>(&server);
        compare::<TwoThreads>("tokio, two threads", Threads::Many, &server, report, Some(official));
    })
}

/// The official driver's client.
#[derive(Clone)]
struct Official(mongodb::Client);

fn official<H: Harness>(server: &Server) -> Line {
    let client = H::block_on(async {
        let uri = server.uri(&format!("maxPoolSize={SIZE}&directConnection=true"));
        mongodb::Client::with_uri_str(uri).await.unwrap()
    });
    Line::new::<H>("official driver", Official(client))
}

impl Pinger for Official {
    async fn ping(&self) {
        self.0.database("admin").run_command(doc! { "ping": 1 }).await.unwrap();
    }
}
