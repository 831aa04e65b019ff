//! The configuration of a test server: its name and address, its users, and its features.

use std::time::Duration;

use cmap_core::connection::auth::{ScramHash, StoredKeys};
use cmap_core::options::Secret;
use cmap_core::wire::CompressorId;

use crate::ServerVersion;
use crate::store::StoreLimits;

/// How to set up a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// `host:port`, as clients reach it: what a replica set lists, and what diagnostics show.
    pub address: String,
    /// Whether clients must log in. Users can log in without it, too.
    pub authorization: bool,
    /// The initial users.
    pub users: Vec<User>,
    /// The compressors to agree on with clients. Those that this program was built without are left out.
    pub compressors: Vec<CompressorId>,
    /// Whether a hello with `loadBalanced: true` is answered with a service id (SRV-7).
    pub load_balanced: bool,
    /// Whether it is a mongos: a server of a sharded cluster, without a set of its own.
    pub mongos: bool,
    /// The name of the replica set whose only member, and primary, it is (SRV-8).
    pub replica_set: Option<String>,
    /// The version of MongoDB that it is; see [`with_version`](Self::with_version).
    pub version: ServerVersion,
    /// The oldest and the newest version of the protocol that it claims to speak.
    pub wire_versions: (i32, i32),
    /// The seed of all random choices: nonces, salts, ids. For a server that strangers can reach, take it from the
    /// operating system; even then it is not a cryptographic generator, because this is a test server.
    pub seed: u64,
    /// The time of day when the server is made, counted from 1970 on.
    pub time_of_day: Duration,
    /// SCRAM's iterations for new users, SHA-1's and SHA-256's.
    pub iterations: (u32, u32),
    /// The number of the first connection (`connectionId`). Servers behind one load balancer that count from different numbers
    /// have different connections.
    pub first_connection_id: u64,
    /// What clients may use of the store: memory, cursors, and work for one command.
    pub limits: StoreLimits,
}

/// An initial user.
#[derive(Clone, Debug)]
pub enum User {
    /// Logs in by SCRAM-SHA-1 and SCRAM-SHA-256 on `admin`, and by PLAIN on `$external`.
    Password {
        /// The name.
        name: String,
        /// The password.
        password: Secret,
    },
    /// Logs in by MONGODB-X509 on `$external`.
    Certificate {
        /// The certificate's subject, as RFC 2253 writes it.
        subject: String,
    },
    /// Logs in by MONGODB-OIDC on `$external`.
    Token {
        /// The name.
        name: String,
        /// The access token, which another server would verify.
        token: Secret,
    },
}

/// The other end of a new connection.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Peer {
    /// The client's address, to show.
    pub address: String,
    /// The subject of the certificate that the client proved to have, as RFC 2253 writes it.
    pub certificate_subject: Option<String>,
    /// Whether it may do everything without a login, as the operator of the machine.
    pub is_operator: bool,
}

impl ServerConfig {
    /// A standalone server without authorization, with every compressor that is built in.
    pub fn new(address: impl Into<String>) -> Self {
        let preferred = [CompressorId::Snappy, CompressorId::Zstd, CompressorId::Zlib];
        Self {
            address: address.into(),
            authorization: false,
            users: Vec::new(),
            compressors: preferred.into_iter().filter(|id| id.is_built_in()).collect(),
            load_balanced: false,
            mongos: false,
            replica_set: None,
            version: ServerVersion::default(),
            wire_versions: (0, ServerVersion::default().wire_version()),
            seed: 0,
            time_of_day: Duration::ZERO,
            iterations: (
                StoredKeys::default_iterations(ScramHash::Sha1),
                StoredKeys::default_iterations(ScramHash::Sha256),
            ),
            first_connection_id: 1,
            limits: StoreLimits::default(),
        }
    }

    /// A server of this version, which speaks its protocol.
    #[must_use]
    pub fn with_version(mut self, version: ServerVersion) -> Self {
        self.version = version;
        self.wire_versions = (0, version.wire_version());
        self
    }

    /// Whether clients meet a mongos, which the server behind a load balancer is, too.
    pub(crate) fn is_mongos(&self) -> bool {
        self.mongos || self.load_balanced
    }
}

impl User {
    /// A user with a password.
    pub fn with_password(name: impl Into<String>, password: impl Into<Secret>) -> Self {
        Self::Password { name: name.into(), password: password.into() }
    }

    /// A user with an access token.
    pub fn with_token(name: impl Into<String>, token: impl Into<Secret>) -> Self {
        Self::Token { name: name.into(), token: token.into() }
    }
}

impl Peer {
    /// A client at `address`.
    pub fn at(address: impl Into<String>) -> Self {
        Self { address: address.into(), certificate_subject: None, is_operator: false }
    }

    /// The operator of the machine that the server runs on, who needs no login.
    pub fn operator() -> Self {
        Self { is_operator: true, ..Self::at("127.0.0.1") }
    }

    /// The client with a certificate of this subject.
    #[must_use]
    pub fn with_certificate(mut self, subject: impl Into<String>) -> Self {
        self.certificate_subject = Some(subject.into());
        self
    }
}
