//! A connection is established with the test server and used; the input decides which bytes each side receives.
//!
//! The conversation of SCRAM stops before the keys are derived, because that takes too long to do it a thousand times a
//! second; the target `auth` goes on from there.

use std::sync::Arc;

use bson::RawDocumentBuf;
use cmap_core::connection::{
    ClientMetadata, Command, Connection, ConnectionOptions, Establish, Progress, ProtocolError,
};
use cmap_core::options::{Credential, Mechanism};
use cmap_core::time::Instant;
use cmap_core::wire::{CommandReply, Compression};
use cmap_test_server::{ClientId, Peer, ServerConfig, ServerOutput, TestServer, User};

/// The subject of the certificate, who may log in by it.
const SUBJECT: &str = "CN=client";

/// The network between the two, which changes bytes as the input says.
struct Network<'a> {
    server: TestServer,
    client: ClientId,
    input: &'a [u8],
    /// Whether each side has received the other's bytes unchanged.
    is_faithful: bool,
}

/// Runs one input.
///
/// # Panics
/// A property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) {
    let Some((&choice, input)) = data.split_first() else { return };
    let mut config = ServerConfig::new("localhost:27017");
    config.authorization = choice & 1 != 0;
    config.load_balanced = choice & 2 != 0;
    config.iterations = (1, 1);
    config.users.push(User::with_password("user", "pencil"));
    config.users.push(User::Certificate { subject: SUBJECT.into() });
    let mut server = TestServer::new(config, Instant::ORIGIN);
    let client = server.accept(Instant::ORIGIN, Peer::at("127.0.0.1:50000").with_certificate(SUBJECT));
    let mut network = Network { server, client, input, is_faithful: true };

    let mut options = ConnectionOptions::new(ClientMetadata::new("Linux"));
    options.load_balanced = choice & 2 != 0;
    options.compressors = if choice & 4 != 0 { Vec::from([Compression::Noop]) } else { Vec::new() };
    options.credential = credential(choice / 64).map(Arc::new);
    let needs_keys = choice / 64 == 3;
    match establish(&mut network, options) {
        Some(connection) => use_it(&mut network, connection),
        None => assert!(needs_keys || !network.is_faithful, "a faithful network did not establish the connection"),
    }
}

fn credential(choice: u8) -> Option<Credential> {
    let (mechanism, source) = match choice {
        0 => return None,
        1 => (Mechanism::Plain, "$external"),
        2 => (Mechanism::MongoDbX509, "$external"),
        _ => (Mechanism::ScramSha256, "admin"),
    };
    let mut credential = Credential::new("user", "pencil".into(), source).with_mechanism(mechanism);
    if mechanism == Mechanism::MongoDbX509 {
        (credential.username, credential.password) = (None, None);
    }
    Some(credential)
}

fn establish(network: &mut Network<'_>, options: ConnectionOptions) -> Option<Connection> {
    let mut establish = Establish::new(Arc::new(options), [1; 24]).ok()?;
    loop {
        let mut request = Vec::new();
        establish.write_to(&mut request);
        if request.is_empty() {
            // It waits for bytes that got lost.
            return None;
        }
        match network.exchange(&request, |bytes| establish.handle_bytes(bytes)).ok()?? {
            Progress::Established => return establish.finish(),
            Progress::Derive(_) | Progress::Token => return None,
            Progress::Exchange => {}
        }
    }
}

/// A ping is answered, or the connection reports that it is broken.
fn use_it(network: &mut Network<'_>, mut connection: Connection) {
    let mut ping = RawDocumentBuf::new();
    ping.append(bson::cstr!("ping"), 1);
    for _ in 0..3 {
        let mut request = Vec::new();
        if connection.send(&mut request, &Command::new("admin", &ping)).is_err() {
            assert!(!connection.is_idle(), "an idle connection takes no command");
            return;
        }
        let mut is_ok = None;
        let outcome = network.exchange(&request, |bytes| {
            let mut rest = bytes;
            if let Some(reply) = connection.read(&mut rest)? {
                is_ok = Some(CommandReply::read(reply.body).ok);
            }
            Ok::<_, ProtocolError>(())
        });
        assert!(!network.is_faithful || is_ok == Some(true), "a faithful network lost a ping");
        assert!(outcome.is_ok() || !connection.is_idle(), "a broken connection calls itself idle");
    }
}

impl Network<'_> {
    /// Takes `request` to the server and its reply to `hear`, in pieces; returns the last result of `hear`.
    fn exchange<T, E>(&mut self, request: &[u8], mut hear: impl FnMut(&[u8]) -> Result<T, E>) -> Result<Option<T>, E> {
        let sent = self.distort(request);
        self.server.handle_bytes(Instant::ORIGIN, self.client, &sent);
        let mut reply = Vec::new();
        while let Some(output) = self.server.poll_output() {
            if let ServerOutput::Send { bytes, .. } = output {
                reply.extend_from_slice(&bytes);
            }
        }
        let heard = self.distort(&reply);
        let piece = usize::from(self.byte()) + 1;
        let mut last = None;
        for bytes in heard.chunks(piece) {
            last = Some(hear(bytes)?);
        }
        Ok(last)
    }

    /// The bytes as they are, or with some of them replaced, left out or added.
    fn distort(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let changes = self.byte();
        // Most inputs have no bytes left here: then everything arrives as it was sent.
        for _ in 0..changes % 4 {
            let place = usize::from(u16::from_le_bytes([self.byte(), self.byte()])) % (bytes.len() + 1);
            let (kind, value) = (self.byte(), self.byte());
            self.is_faithful = false;
            match kind % 4 {
                0 => bytes.truncate(place),
                1 => bytes.insert(place, value),
                2 if place < bytes.len() => {
                    bytes.remove(place);
                }
                _ => {
                    if let Some(byte) = bytes.get_mut(place) {
                        *byte = value;
                    }
                }
            }
        }
        bytes
    }

    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.input.split_first() else { return 0 };
        self.input = rest;
        first
    }
}
