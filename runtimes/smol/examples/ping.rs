//! Connects, pings, and says how long it took:
//! `cargo run -p cmap-smol --example smol-ping -- mongodb://user:password@localhost/`.

use std::error::Error;
use std::time::Instant;

use cmap_smol::Client;
use cmap_smol::bson::rawdoc;

fn main() -> Result<(), Box<dyn Error>> {
    smol::block_on(run())
}

#[expect(clippy::disallowed_methods, reason = "this example measures time")]
async fn run() -> Result<(), Box<dyn Error>> {
    let uri = std::env::args().nth(1).unwrap_or_else(|| "mongodb://localhost:27017/".into());
    let start = Instant::now();
    let client = Client::connect(&uri).await?;
    let mut connection = client.check_out().await?;
    let connected = start.elapsed();
    let reply = connection.run_command("admin", rawdoc! { "ping": 1 }).await?;
    println!("{reply:?} after {:?}, of which {connected:?} to connect", start.elapsed());
    Ok(())
}
