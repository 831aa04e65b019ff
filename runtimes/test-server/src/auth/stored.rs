//! The server's record of a user's password: enough to verify a proof and to sign, too little to log in with.

use std::fmt;

use cmap_core::connection::auth::{LoginError, ScramHash};
use cmap_core::options::Secret;

use super::hash::{SecretBytes, digest, hmac, prepare, salted_password};

/// One user's credential for one mechanism (RFC 5802, section 3).
#[derive(Clone)]
pub struct StoredCredential {
    pub(super) hash: ScramHash,
    pub(super) salt: Vec<u8>,
    pub(super) iterations: u32,
    pub(super) stored_key: SecretBytes,
    pub(super) server_key: SecretBytes,
}

impl StoredCredential {
    /// MongoDB's iterations for SCRAM-SHA-1.
    pub const SHA_1_ITERATIONS: u32 = 10_000;
    /// MongoDB's iterations for SCRAM-SHA-256.
    pub const SHA_256_ITERATIONS: u32 = 15_000;

    /// The record of `password`. Its cost grows with the iterations, which are not bounded, so that iterations that a
    /// client refuses (AUTH-13) can be tried out. The salt is random and not empty; MongoDB's have 16 bytes for SHA-1
    /// and 28 for SHA-256.
    pub fn new(
        hash: ScramHash,
        username: &str,
        password: &Secret,
        salt: &[u8],
        iterations: u32,
    ) -> Result<Self, LoginError> {
        Ok(Self::with_prepared(hash, &prepare(hash, username, password)?, salt, iterations))
    }

    /// The RFCs' examples are SCRAM without MongoDB's digest.
    pub(super) fn with_prepared(hash: ScramHash, password: &[u8], salt: &[u8], iterations: u32) -> Self {
        Self::with_salted(hash, &salted_password(hash, password, salt, iterations), salt, iterations)
    }

    /// Without the slow part.
    pub(crate) fn with_salted(hash: ScramHash, salted: &[u8], salt: &[u8], iterations: u32) -> Self {
        let stored_key = digest(hash, &[&hmac(hash, salted, b"Client Key")]);
        let server_key = hmac(hash, salted, b"Server Key");
        Self { hash, salt: salt.to_vec(), iterations, stored_key, server_key }
    }

    /// A credential for a user that does not exist: the conversation goes on as for any other and ends with
    /// [`ClientFault::Proof`](super::ClientFault::Proof), so that it does not reveal which users exist. The same
    /// `secret`, which is the server's own, gives the same salt to the same name each time, as a real user has.
    pub fn decoy(hash: ScramHash, username: &str, secret: &[u8], iterations: u32) -> Self {
        let part = |role: &[u8]| {
            let key = digest(ScramHash::Sha256, &[secret]);
            digest(hash, &[&hmac(ScramHash::Sha256, &key, username.as_bytes()), role])
        };
        let salt_len = match hash {
            ScramHash::Sha1 => 16,
            ScramHash::Sha256 => 28,
        };
        Self {
            hash,
            salt: part(b"salt").iter().copied().take(salt_len).collect(),
            iterations,
            stored_key: part(b"stored key"),
            server_key: part(b"server key"),
        }
    }

    /// The hash of the mechanism it is for.
    pub fn hash(&self) -> ScramHash {
        self.hash
    }
}

impl fmt::Debug for StoredCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hash, salt: _, iterations, stored_key: _, server_key: _ } = self;
        f.debug_struct("StoredCredential").field("hash", hash).field("iterations", iterations).finish_non_exhaustive()
    }
}
