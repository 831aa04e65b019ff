//! A client, a server, a partition and a restart, in virtual time: `cargo run -p cmap-sim --example partition`.

use std::error::Error;
use std::time::Duration;

use cmap_sim::bson::rawdoc;
use cmap_sim::{Client, Data, Sim};

fn main() -> Result<(), Box<dyn Error>> {
    let sim = Sim::new(7);
    let server = sim.server("db.example");
    sim.run(async {
        let client = Client::connect("mongodb://db.example/?timeoutMS=2000&heartbeatFrequencyMS=1000").await?;
        let order = |number: i32| rawdoc! { "insert": "orders", "documents": [{ "_id": number }] };
        client.check_out().await?.run_command("shop", order(1)).await?;

        server.partition();
        let lost = client.check_out().await?.run_command("shop", order(2)).await;
        println!("{:?}: {}", sim.elapsed(), lost.err().map_or_else(String::new, |error| error.to_string()));
        server.heal();

        server.crash();
        sim.sleep(Duration::from_secs(60)).await;
        server.restart(Data::Kept);
        let count = client.check_out().await?.run_command("shop", rawdoc! { "count": "orders" }).await?;
        println!("{:?}: {} orders", sim.elapsed(), count.get_i32("n")?);
        Ok(())
    })
}
