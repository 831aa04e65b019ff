//! The options that all connections of a client share when they are established.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::ClientMetadata;
use super::auth::{MAX_ITERATIONS, SaslMechanism};
use crate::options::{ClientOptions, Compressor, Credential, Secret, ServerApi};
use crate::wire::{Compression, ZlibLevel};

/// How to establish connections.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionOptions {
    /// The client's description of itself.
    pub metadata: ClientMetadata,
    /// The credential; `None` = no authentication.
    pub credential: Option<Arc<Credential>>,
    /// A mechanism of the user's own, by which every connection logs in, whatever the credential names; `None` = those that are
    /// built in.
    pub mechanism: Option<Arc<dyn SaslMechanism>>,
    /// The access token of MONGODB-OIDC that is at hand: connections log in by it, in their hello already (OIDC-6). Without one,
    /// or if it is refused, an establishment [asks](super::Progress::Token) for one.
    pub token: Option<Secret>,
    /// The most iterations of SCRAM's hash that a server may ask for; [`MAX_ITERATIONS`] by default. The server chooses
    /// the number and this client does the work: 100,000 take some 20 milliseconds.
    pub max_scram_iterations: u32,
    /// The compressors to offer, the preferred one first (COMP-1).
    pub compressors: Vec<Compression>,
    /// Whether the other side is a load balancer (LB-5).
    pub load_balanced: bool,
    /// The version of the server's API, sent with every command; `None` sends none.
    pub server_api: Option<ServerApi>,
}

impl ConnectionOptions {
    /// Connections without authentication and compression.
    pub fn new(metadata: ClientMetadata) -> Self {
        Self {
            metadata,
            credential: None,
            mechanism: None,
            token: None,
            max_scram_iterations: MAX_ITERATIONS,
            compressors: Vec::new(),
            load_balanced: false,
            server_api: None,
        }
    }

    /// Connections as a connection string asks for them. Compressors that this program was built without are not
    /// offered.
    pub fn of_client(options: &ClientOptions, mut metadata: ClientMetadata) -> Self {
        metadata.app_name.clone_from(&options.app_name);
        let level = options.zlib_compression_level.and_then(|level| ZlibLevel::new(level.into()));
        let compression = |compressor: &Compressor| match compressor {
            Compressor::Snappy => Compression::Snappy,
            Compressor::Zlib => Compression::Zlib(level.unwrap_or_default()),
            Compressor::Zstd => Compression::Zstd,
        };
        let compressors = options.compressors.iter().flatten().map(compression);
        Self {
            metadata,
            credential: options.credential.clone().map(Arc::new),
            mechanism: None,
            token: None,
            max_scram_iterations: MAX_ITERATIONS,
            compressors: compressors.filter(|compression| compression.id().is_built_in()).collect(),
            load_balanced: options.is_load_balanced(),
            server_api: options.server_api,
        }
    }
}
