//! Many tasks share a few connections: how many pings a second, and how long a check-out waits.
//! `cargo run --release -p cmap-tokio --example tokio-load -- mongodb://localhost/?maxPoolSize=8 64 5` runs 64 tasks
//! for 5 seconds.

use std::error::Error;
use std::io::{Write, stdout};
use std::time::{Duration, Instant};

use cmap_tokio::bson::rawdoc;
use cmap_tokio::{Client, Error as ClientError};

/// How often the progress bar moves.
const STEP: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run())
}

#[expect(clippy::disallowed_methods, reason = "this example measures time")]
async fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().unwrap_or_else(|| "mongodb://localhost:27017/".into());
    let tasks = arguments.next().map_or(Ok(64), |tasks| tasks.parse::<usize>())?;
    let seconds = arguments.next().map_or(Ok(5), |seconds| seconds.parse::<u64>())?;
    let client = Client::connect(&uri).await?;

    let (start, time) = (Instant::now(), Duration::from_secs(seconds));
    let tasks: Vec<_> = (0..tasks).map(|_| tokio::spawn(work(client.clone(), start + time))).collect();
    while start.elapsed() < time {
        let percent = 100 * start.elapsed().as_millis() / time.as_millis().max(1);
        let done = usize::try_from(percent / 2)?;
        print!("\r[{}{}] {percent} %", "#".repeat(done), " ".repeat(50_usize.saturating_sub(done)));
        stdout().flush()?;
        tokio::time::sleep(STEP).await;
    }
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await??);
    }
    println!("\r[{}] 100 %", "#".repeat(50));

    waits.sort_unstable();
    let quantile =
        |percent: usize| waits.get(waits.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default();
    println!("{} pings, {:.0} per second", waits.len(), waits.len() as f64 / start.elapsed().as_secs_f64());
    println!(
        "waited for a connection: median {:?}, 99 % {:?}, at most {:?}",
        quantile(50),
        quantile(99),
        quantile(100)
    );
    println!("{:#?}", client.stats());
    Ok(())
}

/// Pings until `end`; returns how long each check-out waited.
#[expect(clippy::disallowed_methods, reason = "this example measures time")]
async fn work(client: Client, end: Instant) -> Result<Vec<Duration>, ClientError> {
    let ping = rawdoc! { "ping": 1 };
    let mut waits = Vec::new();
    while Instant::now() < end {
        let asked = Instant::now();
        let mut connection = client.check_out().await?;
        waits.push(asked.elapsed());
        connection.run_command("admin", ping.as_ref()).await?;
    }
    Ok(waits)
}
