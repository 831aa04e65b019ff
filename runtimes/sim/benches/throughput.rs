//! Commands through the whole stack, client and server, for each second of CPU: `cargo bench -p cmap-sim`.
//!
//! One thread does all of it, so wall time on an idle machine is CPU time.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, reason = "a benchmark reads a clock")]

use std::time::{Duration, Instant};

use cmap_sim::bson::rawdoc;
use cmap_sim::{Client, Sim};

const TASKS: u32 = 64;
const COMMANDS: u32 = 5_000;

fn main() {
    let sim = Sim::new(1);
    let _server = sim.server("db.example");
    let client = sim.run(async {
        let client = Client::connect("mongodb://db.example/?maxPoolSize=10").await.unwrap();
        drop(client.check_out().await.unwrap());
        client
    });
    let began = Instant::now();
    for _ in 0..TASKS {
        let client = client.clone();
        sim.spawn(async move {
            for _ in 0..COMMANDS {
                let mut connection = client.check_out().await.unwrap();
                connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
            }
        });
    }
    sim.run(async {
        while client.stats().checked_in <= u64::from(TASKS * COMMANDS) {
            sim.sleep(Duration::from_millis(10)).await;
        }
    });
    let took = began.elapsed();
    println!("{:.0} commands a second of CPU", f64::from(TASKS * COMMANDS) / took.as_secs_f64());
}
