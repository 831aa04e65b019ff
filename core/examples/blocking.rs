//! A MongoDB client over `std::net`: connect, authenticate, ping. Run it with
//! `cargo run --example blocking -- mongodb://user:password@localhost:27017/`.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use bson::{Document, rawdoc};
use cmap_core::address::ServerAddress;
use cmap_core::connection::{ClientMetadata, Command, Connection, ConnectionOptions, Establish, Progress};
use cmap_core::options::ClientOptions;

fn main() -> Result<(), Box<dyn Error>> {
    let uri = std::env::args().nth(1).ok_or("usage: blocking MONGODB-URI")?;
    let (options, _warnings) = ClientOptions::parse(&uri)?;
    let Some(ServerAddress::Tcp { host, port }) = options.hosts.first() else { return Err("no TCP address".into()) };
    (!options.tls.is_enabled()).then_some(()).ok_or("this example speaks no TLS")?;
    let mut socket = TcpStream::connect((host.as_str(), *port))?;
    let options = ConnectionOptions::of_client(&options, ClientMetadata::new(std::env::consts::OS));
    let mut connection = establish(&mut socket, options)?;
    ping(&mut socket, &mut connection).map(|reply| println!("{reply}"))
}

fn establish(socket: &mut TcpStream, options: ConnectionOptions) -> Result<Connection, Box<dyn Error>> {
    let mut random = [0; 24];
    getrandom::fill(&mut random)?;
    let mut establish = Establish::new(Arc::new(options), random)?;
    let mut progress = Progress::Exchange;
    while !matches!(progress, Progress::Established) {
        progress = match progress {
            Progress::Derive(keys) => establish.handle_keys(&keys.run())?,
            Progress::Token => return Err("this example fetches no access token".into()),
            Progress::Exchange | Progress::Established => {
                let mut out = Vec::new();
                establish.write_to(&mut out);
                socket.write_all(&out)?;
                out.fill(0); // It may have held the password.
                establish.handle_bytes(&receive(socket)?)?
            }
        };
    }
    establish.finish().ok_or_else(|| "not established".into())
}

fn ping(socket: &mut TcpStream, connection: &mut Connection) -> Result<Document, Box<dyn Error>> {
    let mut out = Vec::new();
    connection.send(&mut out, &Command::new("admin", &rawdoc! { "ping": 1 }))?;
    socket.write_all(&out)?;
    loop {
        let bytes = receive(socket)?;
        let mut unread = bytes.as_slice();
        if let Some(reply) = connection.read(&mut unread)? {
            let reply = reply.body.try_into()?;
            // The reply is good, but the bytes after it are unasked. They would answer the next command, so they have
            // to break the connection, which then refuses that command.
            let _unasked = connection.read(&mut unread);
            return Ok(reply);
        }
    }
}

fn receive(socket: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; 4096];
    let count = socket.read(&mut buffer)?;
    if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(buffer[..count].to_vec()) }
}
