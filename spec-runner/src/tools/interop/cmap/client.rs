//! One connection to one server, blocking: connect, establish, then a command and its reply at a time.

use std::io;
use std::sync::Arc;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{
    ClientMetadata, Command, CommandError, Connection, ConnectionOptions, Description, Establish, EstablishError,
    Fault, Phase, Progress, ProtocolError,
};
use cmap_core::options::{ClientOptions, ConnectionStringError};
use cmap_core::wire::bson::{Document, RawDocument, RawDocumentBuf};
use cmap_core::wire::{CommandReply, ServerError};

use super::transport::Transport;

/// A connection and its socket.
#[derive(Debug)]
pub(crate) struct Client {
    transport: Transport,
    connection: Connection,
}

/// Why a call of a client failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The connection string cannot be used.
    #[error("the connection string cannot be used")]
    Uri(#[from] ConnectionStringError),
    /// The connection was not established.
    #[error(transparent)]
    Establish(#[from] EstablishError),
    /// The command was not sent.
    #[error("the command was not sent")]
    Command(#[from] CommandError),
    /// Reading or writing failed.
    #[error("the connection broke")]
    Network(#[from] io::Error),
    /// The data received is not a reply.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The reply is not BSON of the kind that the check reads.
    #[error("the reply cannot be read")]
    Reply(#[from] cmap_core::wire::bson::error::Error),
    /// The server refused the command, or one of its writes.
    #[error("the server refused: {0}")]
    Server(Box<ServerError>),
}

impl ClientError {
    /// The server's code, if it refused.
    pub(super) fn code(&self) -> Option<i32> {
        match self {
            Self::Server(error) => error.code,
            Self::Establish(EstablishError { fault: Fault::Server { code }, .. }) => *code,
            Self::Uri(_)
            | Self::Establish(_)
            | Self::Command(_)
            | Self::Network(_)
            | Self::Protocol(_)
            | Self::Reply(_) => None,
        }
    }

    /// The step of the establishment that failed.
    pub(super) fn phase(&self) -> Option<Phase> {
        match self {
            Self::Establish(error) => Some(error.phase),
            Self::Uri(_)
            | Self::Command(_)
            | Self::Network(_)
            | Self::Protocol(_)
            | Self::Reply(_)
            | Self::Server(_) => None,
        }
    }

    /// As an error of an establishment.
    pub(super) fn into_establish_error(self) -> EstablishError {
        match self {
            Self::Establish(error) => error,
            Self::Uri(_)
            | Self::Command(_)
            | Self::Network(_)
            | Self::Protocol(_)
            | Self::Reply(_)
            | Self::Server(_) => EstablishError::new(Phase::Hello, Fault::Other, self.to_string()),
        }
    }
}

impl Client {
    /// Connects to the first server of a connection string.
    pub(crate) fn connect(uri: &str) -> Result<Self, ClientError> {
        let (options, _warnings) = ClientOptions::parse(uri)?;
        let address = options.hosts.first().cloned().unwrap_or_else(|| ServerAddress::tcp("localhost", 27017));
        let mut transport = Transport::connect(&address, &options.tls)?;
        let metadata = ClientMetadata::new(std::env::consts::OS);
        let connection = establish(&mut transport, ConnectionOptions::of_client(&options, metadata))?;
        Ok(Self { transport, connection })
    }

    /// The server's description of itself.
    pub(super) fn description(&self) -> &Description {
        self.connection.description()
    }

    /// Runs a command. A write that the server refused is an error, too.
    pub(crate) fn run(&mut self, database: &str, body: &RawDocument) -> Result<Document, ClientError> {
        self.send(&Command::new(database, body), &[])?;
        self.receive()
    }

    /// Inserts documents in one command, as a document sequence.
    pub(super) fn insert(&mut self, collection: &str, documents: &[RawDocumentBuf]) -> Result<Document, ClientError> {
        let insert = cmap_core::wire::bson::rawdoc! { "insert": collection };
        self.send(&Command::new("test", &insert), documents)?;
        self.receive()
    }

    /// Sends a command without waiting for its reply. `documents` go in a sequence.
    pub(super) fn send(&mut self, command: &Command<'_>, documents: &[RawDocumentBuf]) -> Result<(), ClientError> {
        let mut out = Vec::new();
        let documents = documents.iter().map(|document| &**document);
        let sequence = (documents.len() > 0).then_some(("documents", documents));
        self.connection.send_with_sequences(&mut out, command, sequence)?;
        Ok(self.transport.write_all(&out)?)
    }

    /// Waits for the reply.
    pub(super) fn receive(&mut self) -> Result<Document, ClientError> {
        loop {
            let mut input = self.transport.receive()?;
            if let Some(reply) = self.connection.read(&mut input)? {
                return succeeded(reply.body);
            }
        }
    }

    /// The socket alone, for a conversation of another kind.
    pub(super) fn into_transport(self) -> Transport {
        self.transport
    }
}

/// The reply to a command that succeeded.
pub(super) fn succeeded(reply: &RawDocument) -> Result<Document, ClientError> {
    if let Some(error) = CommandReply::read(reply).failure() {
        return Err(ClientError::Server(Box::new(error)));
    }
    let reply = Document::try_from(reply)?;
    match reply.get_array("writeErrors").ok().and_then(|errors| errors.first()?.as_document()) {
        None => Ok(reply),
        Some(error) => Err(ClientError::Server(Box::new(ServerError {
            code: error.get_i32("code").ok(),
            code_name: None,
            message: error.get_str("errmsg").unwrap_or_default().to_owned(),
            labels: Vec::new(),
            topology_version: None,
            base_backoff_ms: None,
        }))),
    }
}

fn establish(transport: &mut Transport, options: ConnectionOptions) -> Result<Connection, ClientError> {
    let mut random = [0; 24];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let mut establish = Establish::new(Arc::new(options), random)?;
    let mut progress = Progress::Exchange;
    loop {
        progress = match progress {
            Progress::Derive(keys) => establish.handle_keys(&keys.run())?,
            Progress::Token => {
                let error = EstablishError::new(Phase::Authenticate, Fault::Other, "there is no access token");
                return Err(error.into());
            }
            Progress::Exchange => {
                let mut out = Vec::new();
                establish.write_to(&mut out);
                let phase = establish.phase();
                let failed = |error: io::Error| EstablishError::new(phase, Fault::Network, error.to_string());
                transport.write_all(&out).map_err(failed)?;
                establish.handle_bytes(transport.receive().map_err(failed)?)?
            }
            Progress::Established => {
                let missing = || EstablishError::new(Phase::Authenticate, Fault::Other, "not established");
                return Ok(establish.finish().ok_or_else(missing)?);
            }
        };
    }
}
