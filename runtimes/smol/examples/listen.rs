//! Waits for the agents of servers, takes a connection from them, and pings. Agents dial in; this program connects to nobody:
//!
//! ```sh
//! TOKEN=$(openssl rand -hex 32) cargo run -p cmap-smol --features reverse --example smol-listen -- \
//!     0.0.0.0:7443 listener.pem 'mongodb://db1.example,db2.example/?replicaSet=rs'
//! ```
//!
//! `docs/reverse.md` says how to make `listener.pem`, and what an agent needs.

use std::error::Error;
use std::process::ExitCode;

use cmap_smol::ClientOptions;
use cmap_smol::bson::doc;
use cmap_smol::cmap_core::reverse::Token;
use cmap_smol::reverse::{PemSource, ReverseOptions};
use cmap_smol::{Client, ReverseListener};

fn main() -> ExitCode {
    match smol::block_on(run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(certificate_key), Some(uri)) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("name an address to listen at, a PEM file, and a connection string".into());
    };
    let (options, _) = ClientOptions::parse(&uri)?;
    let secret = std::env::var("TOKEN").map_err(|_| "set TOKEN to the secret of the agents' token")?;

    let mut listen = ReverseOptions::new(PemSource::File(certificate_key.into()));
    listen.tokens.add(Token::new("agents", secret.as_bytes())?, options.hosts.clone());
    let listener = ReverseListener::bind(address.parse()?, listen.on_event(|event| println!("{event}"))).await?;
    println!("agents may dial {}", listener.local_address());

    let client = Client::builder(options).reverse(listener).build().await?;
    let mut connection = client.check_out().await?;
    println!("{}", connection.run_command("admin", doc! { "ping": 1 }).await?);
    Ok(())
}
