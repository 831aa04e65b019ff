// An application that keeps its only connection for too long. RUNTIME and BLOCK_ON are replaced.
use std::env;
use std::error::Error;
use std::time::Duration;

use RUNTIME::{Client, ClientOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let uri = env::args().nth(1).ok_or("the connection string is missing")?;
    let (options, _) = ClientOptions::parse(&uri)?;
    BLOCK_ON(async {
        let client = Client::builder(options).watch_holders(true).build().await?;
        let kept = client.check_out().label("sign-up page").await?;
        println!("{}", client.status());
        if let Err(error) = client.check_out_within(Duration::from_millis(200)).label("health page").await {
            println!("{error}");
        }
        drop(kept);
        // A trace goes on for a second after what it is written because of.
        std::thread::sleep(Duration::from_secs(2));
        client.close(Duration::from_secs(5)).await?;
        Ok(())
    })
}
