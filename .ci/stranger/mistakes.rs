// What a user does wrong, or meets, by name. Each ends in an error, which is printed as `main` would show it.
use std::env;
use std::error::Error;
use std::io::{Read, stdin};
use std::time::Duration;

use RUNTIME::Client;
use RUNTIME::bson::rawdoc;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().collect();
    let (mistake, uri) = (arguments[1].as_str(), arguments[2].as_str());
    BLOCK_ON(async {
        let client = Client::connect(uri).await?;
        match mistake {
            // Nothing but the connection string is wrong.
            "connect" => drop(client.check_out().await?),
            "leak" => {
                let _kept = client.check_out().await?;
                drop(client.check_out_within(Some(Duration::from_millis(200))).await?);
            }
            "outage" => {
                let mut connection = client.check_out().await?;
                connection.run_command("admin", rawdoc! { "ping": 1 }).await?;
                println!("ready");
                // The script stops the server now.
                stdin().read_exact(&mut [0])?;
                if let Err(error) = connection.run_command("admin", rawdoc! { "ping": 1 }).await {
                    println!("the command: {error}");
                }
                drop(connection);
                drop(client.check_out().await?);
            }
            other => return Err(format!("no such mistake: {other}").into()),
        }
        Ok(())
    })
}
