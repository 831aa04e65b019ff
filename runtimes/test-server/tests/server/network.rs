//! A network without wires: our clients, the test server, and a clock that the test moves.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use cmap_core::connection::{
    ClientMetadata, Command, Connection, ConnectionOptions, Establish, EstablishError, Fault, Progress,
};
use cmap_core::options::{Credential, Mechanism, Secret};
use cmap_core::time::Instant;
use cmap_core::wire::{
    CommandReply, Field, Flags, FrameReader, Limits, Message, MessageIds, MessageWriter, ServerError, encode_query,
};
use cmap_test_server::{ClientId, Peer, ServerConfig, ServerOutput, TestServer, User};

pub(crate) const USER: &str = "user";
pub(crate) const PASSWORD: &str = "pencil";

/// A server, and the bytes it has sent to each client.
pub(crate) struct Network {
    pub(crate) server: TestServer,
    pub(crate) now: Instant,
    sent: BTreeMap<ClientId, Vec<u8>>,
    hung_up: Vec<ClientId>,
}

/// An established connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) connection: Connection,
}

/// A message of the server.
pub(crate) struct Received {
    pub(crate) ids: MessageIds,
    pub(crate) flags: Flags,
    pub(crate) body: RawDocumentBuf,
}

/// A server that knows [`USER`]; few iterations, as many as a client accepts.
pub(crate) fn config() -> ServerConfig {
    let mut config = ServerConfig::new("localhost:27017");
    config.iterations = (4096, 4096);
    config.time_of_day = Duration::from_secs(1_700_000_000);
    config.users.push(User::with_password(USER, PASSWORD));
    config
}

pub(crate) fn anonymous() -> ConnectionOptions {
    ConnectionOptions::new(ClientMetadata::new("Linux"))
}

pub(crate) fn login(mechanism: Option<Mechanism>, user: &str, password: &str, source: &str) -> ConnectionOptions {
    let mut credential = Credential::new(user, Secret::from(password), source);
    credential.mechanism = mechanism;
    let mut options = anonymous();
    options.credential = Some(Arc::new(credential));
    options
}

impl Network {
    pub(crate) fn new(config: ServerConfig) -> Self {
        let server = TestServer::new(config, Instant::ORIGIN);
        Self { server, now: Instant::ORIGIN, sent: BTreeMap::new(), hung_up: Vec::new() }
    }

    pub(crate) fn accept(&mut self) -> ClientId {
        self.server.accept(self.now, Peer::at("127.0.0.1:50000"))
    }

    pub(crate) fn send(&mut self, client: ClientId, bytes: &[u8]) {
        self.server.handle_bytes(self.now, client, bytes);
        self.drain();
    }

    /// Lets time pass; everything due by then happens.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(at) = self.server.poll_timeout().filter(|at| *at <= end) {
            assert!(at >= self.now, "a deadline lies behind");
            self.now = at;
            self.server.handle_timeout(at);
            self.drain();
            assert!(self.server.poll_timeout().is_none_or(|next| next > at), "the next timeout does not lie ahead");
        }
        self.now = end;
    }

    /// The bytes that the server has sent to a client since the last call.
    pub(crate) fn receive(&mut self, client: ClientId) -> Vec<u8> {
        self.sent.remove(&client).unwrap_or_default()
    }

    pub(crate) fn receive_messages(&mut self, client: ClientId) -> Vec<Received> {
        let bytes = self.receive(client);
        let (mut input, mut frames, mut received) = (&bytes[..], FrameReader::new(), Vec::new());
        while let Some(frame) = frames.read(&mut input, &Limits::DEFAULT).unwrap() {
            let message = Message::decode(frame, &Limits::DEFAULT).unwrap();
            received.push(Received { ids: message.header.ids, flags: message.flags, body: message.body.to_owned() });
        }
        assert!(frames.is_at_boundary());
        received
    }

    pub(crate) fn has_hung_up_on(&self, client: ClientId) -> bool {
        self.hung_up.contains(&client)
    }

    /// A new connection, with everything that its options ask for.
    pub(crate) fn establish(&mut self, options: &ConnectionOptions) -> Result<Client, EstablishError> {
        self.establish_as(Peer::at("127.0.0.1:50000"), options)
    }

    pub(crate) fn establish_as(&mut self, peer: Peer, options: &ConnectionOptions) -> Result<Client, EstablishError> {
        let id = self.server.accept(self.now, peer);
        let mut establish = Establish::new(Arc::new(options.clone()), [5; 24])?;
        let mut progress = Progress::Exchange;
        loop {
            progress = match progress {
                Progress::Established => return Ok(Client { id, connection: establish.finish().unwrap() }),
                Progress::Derive(request) => establish.handle_keys(&request.run())?,
                Progress::Token => panic!("no other token is at hand"),
                Progress::Exchange => {
                    let mut request = Vec::new();
                    establish.write_to(&mut request);
                    self.send(id, &request);
                    let reply = self.receive(id);
                    if reply.is_empty() {
                        return Err(EstablishError::new(establish.phase(), Fault::Network, "nothing came"));
                    }
                    establish.handle_bytes(&reply)?
                }
            };
        }
    }

    pub(crate) fn connect(&mut self) -> Client {
        self.establish(&anonymous()).unwrap()
    }

    /// A command and its reply.
    pub(crate) fn run(&mut self, client: &mut Client, database: &str, command: &RawDocument) -> RawDocumentBuf {
        self.start(client, database, command);
        self.finish(client).unwrap()
    }

    /// A command that succeeds.
    #[track_caller]
    pub(crate) fn admin(&mut self, client: &mut Client, command: &RawDocument) -> RawDocumentBuf {
        let reply = self.run(client, "admin", command);
        assert!(CommandReply::read(&reply).ok, "{reply:?}");
        reply
    }

    /// A command that fails.
    #[track_caller]
    pub(crate) fn fail(&mut self, client: &mut Client, database: &str, command: &RawDocument) -> ServerError {
        CommandReply::read(&self.run(client, database, command)).failure().unwrap()
    }

    /// Sends a command.
    pub(crate) fn start(&mut self, client: &mut Client, database: &str, command: &RawDocument) {
        let mut out = Vec::new();
        client.connection.send(&mut out, &Command::new(database, command)).unwrap();
        self.send(client.id, &out);
    }

    /// The reply to the command that was sent, if it is there.
    pub(crate) fn finish(&mut self, client: &mut Client) -> Option<RawDocumentBuf> {
        let bytes = self.receive(client.id);
        let reply = client.connection.read(&mut &bytes[..]).unwrap();
        reply.map(|reply| reply.body.to_owned())
    }

    fn drain(&mut self) {
        while let Some(output) = self.server.poll_output() {
            match output {
                ServerOutput::Send { client, bytes } => self.sent.entry(client).or_default().extend(bytes),
                ServerOutput::HangUp { client } => self.hung_up.push(client),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The bytes of an OP_MSG.
pub(crate) fn message(request: i32, flags: Flags, database: &str, body: &RawDocument) -> Vec<u8> {
    let (mut out, ids) = (Vec::new(), MessageIds::request(request));
    let fields = [Field::String("$db", database)];
    MessageWriter::begin(&mut out, ids, flags, body, &fields, &Limits::DEFAULT).unwrap().finish();
    out
}

/// The bytes of an OP_QUERY.
pub(crate) fn query(request: i32, body: &RawDocument) -> Vec<u8> {
    let mut out = Vec::new();
    encode_query(&mut out, MessageIds::request(request), "admin", body, &Limits::DEFAULT).unwrap();
    out
}
