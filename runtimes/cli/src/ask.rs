//! One command to a server, over a blocking socket: it needs no runtime, whose tasks and descriptors a soak would count.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{ClientMetadata, Command, Connection, ConnectionOptions, Establish, Progress};
use cmap_core::options::ClientOptions;
use cmap_core::wire::bson::{Document, RawDocument};

/// How long the server may be silent.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a command in the database `admin`, and returns the reply. `None` if anything goes wrong.
pub(crate) fn ask(uri: &str, command: &RawDocument) -> Option<Document> {
    let (options, _warnings) = ClientOptions::parse(uri).ok()?;
    let Some(ServerAddress::Tcp { host, port }) = options.hosts.first() else { return None };
    let mut socket = TcpStream::connect((host.as_str(), *port)).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    let options = ConnectionOptions::of_client(&options, ClientMetadata::new(std::env::consts::OS));
    let mut connection = establish(&mut socket, options)?;
    let mut out = Vec::new();
    connection.send(&mut out, &Command::new("admin", command)).ok()?;
    socket.write_all(&out).ok()?;
    loop {
        let bytes = receive(&mut socket)?;
        if let Some(reply) = connection.read(&mut bytes.as_slice()).ok()? {
            return reply.body.try_into().ok();
        }
    }
}

fn establish(socket: &mut TcpStream, options: ConnectionOptions) -> Option<Connection> {
    let mut random = [0; 24];
    getrandom::fill(&mut random).ok()?;
    let mut establish = Establish::new(Arc::new(options), random).ok()?;
    let mut progress = Progress::Exchange;
    loop {
        progress = match progress {
            Progress::Derive(keys) => establish.handle_keys(&keys.run()).ok()?,
            Progress::Token => return None,
            Progress::Exchange => {
                let mut out = Vec::new();
                establish.write_to(&mut out);
                socket.write_all(&out).ok()?;
                establish.handle_bytes(&receive(socket)?).ok()?
            }
            Progress::Established => return establish.finish(),
        };
    }
}

/// Waits for bytes; there is at least one.
fn receive(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 16 * 1024];
    let count = socket.read(&mut buffer).ok().filter(|&count| count > 0)?;
    buffer.truncate(count);
    Some(buffer)
}
