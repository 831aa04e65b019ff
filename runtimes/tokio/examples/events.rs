//! Prints what happens in a client while it pings: `cargo run -p cmap-tokio --example tokio-events --
//! mongodb://localhost/`.
//!
//! A handler sees every event as it happens; a subscription is read at leisure.

use std::error::Error;
use std::time::Duration;

use cmap_tokio::ClientOptions;
use cmap_tokio::bson::rawdoc;
use cmap_tokio::{Client, Notice};

fn main() -> Result<(), Box<dyn Error>> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let uri = std::env::args().nth(1).unwrap_or_else(|| "mongodb://localhost:27017/".into());
    let (options, warnings) = ClientOptions::parse(&uri)?;
    for warning in warnings {
        eprintln!("{warning}");
    }
    let client =
        Client::builder(options).on_event(|server, event| println!("{server}: {}", event.name())).build().await?;
    let mut events = client.subscribe(100);

    let mut connection = client.check_out().await?;
    connection.run_command("admin", rawdoc! { "ping": 1 }).await?;
    drop(connection);
    client.close(Duration::from_secs(1)).await?;
    drop(client);

    let mut count = 0;
    while let Some(notice) = events.next().await {
        match notice {
            Notice::Event { .. } => count += 1,
            Notice::Lost(lost) => println!("{lost} events came too fast for the subscription"),
            _ => {}
        }
    }
    println!("{count} events since the subscription");
    Ok(())
}
