//! Connects, pings, and says how long it took:
//! `cargo run -p cmap-tokio --example tokio-ping -- mongodb://user:password@localhost/`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use cmap_tokio::Client;
use cmap_tokio::bson::doc;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this example measures time")]
async fn run() -> Result<(), Box<dyn Error>> {
    let uri = std::env::args().nth(1).unwrap_or_else(|| "mongodb://localhost:27017/".into());
    let start = Instant::now();
    let client = Client::connect(&uri).await?;
    let mut connection = client.check_out().await?;
    let connected = start.elapsed();
    let reply = connection.run_command("admin", doc! { "ping": 1 }).await?;
    let took = start.elapsed();
    println!("{reply} after {took:?}, of which {connected:?} to connect");
    Ok(())
}
