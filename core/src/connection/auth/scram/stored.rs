//! What a server keeps of a password: enough to verify a proof and to sign, too little to log in with (RFC 5802, section 3).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

use super::super::error::LoginError;
use super::super::secret::SecretBytes;
use super::hash::ScramHash;
use super::keys::key_pair;
use super::{MAX_ITERATIONS, MIN_ITERATIONS};
use crate::options::Secret;

/// One user's record for one mechanism.
#[derive(Clone)]
pub struct StoredKeys {
    pub(super) hash: ScramHash,
    pub(super) salt: Vec<u8>,
    pub(super) iterations: u32,
    pub(super) stored_key: SecretBytes,
    pub(super) server_key: SecretBytes,
}

/// A text is no record of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoredKeysError {
    /// It has not the parts of RFC 5803.
    #[error("it is not of the form MECHANISM$ITERATIONS:SALT$STOREDKEY:SERVERKEY")]
    Form,
    /// It is for a mechanism that has no such records.
    #[error("its mechanism is neither SCRAM-SHA-1 nor SCRAM-SHA-256")]
    Mechanism,
    /// Clients refuse such a number (AUTH-13).
    #[error("its iterations are not between {MIN_ITERATIONS} and {MAX_ITERATIONS}")]
    Iterations,
    /// Salt or keys are not base64, or of the wrong length.
    #[error("its salt or its keys are not base64 of the right length")]
    Keys,
}

impl StoredKeys {
    /// MongoDB's iterations for a mechanism.
    pub const fn default_iterations(hash: ScramHash) -> u32 {
        match hash {
            ScramHash::Sha1 => 10_000,
            ScramHash::Sha256 => 15_000,
        }
    }

    /// How many bytes of salt MongoDB takes.
    pub const fn salt_length(hash: ScramHash) -> usize {
        match hash {
            ScramHash::Sha1 => 16,
            ScramHash::Sha256 => 28,
        }
    }

    /// The record of a password. The salt is random. The cost grows with the iterations: milliseconds at the default.
    /// They are not bounded, so that a server for tests can announce what clients refuse (AUTH-13).
    ///
    /// # Errors
    /// SASLprep does not allow the password (AUTH-12).
    pub fn new(
        hash: ScramHash,
        username: &str,
        password: &Secret,
        salt: &[u8],
        iterations: u32,
    ) -> Result<Self, LoginError> {
        Ok(Self::with_prepared(hash, &hash.prepare(username, password)?, salt, iterations))
    }

    /// The RFCs' examples are SCRAM without MongoDB's digest.
    pub(in super::super) fn with_prepared(
        hash: ScramHash,
        password: &SecretBytes,
        salt: &[u8],
        iterations: u32,
    ) -> Self {
        let salted = hash.salted_password(password, salt, iterations);
        let (client_key, server_key) = key_pair(hash, &salted);
        let stored_key = hash.digest(&[client_key.as_bytes()]);
        Self { hash, salt: salt.to_vec(), iterations, stored_key, server_key }
    }

    /// A record for a user that does not exist: the conversation goes on as any other, and ends with
    /// [`ClientFault::Proof`](super::server::ClientFault::Proof), so that it does not tell which users there are. The same `secret`,
    /// which is the server's own, gives the same name the same salt each time, as a real user has it.
    pub fn decoy(hash: ScramHash, username: &str, secret: &[u8]) -> Self {
        let key = hash.digest(&[secret]);
        let part = |role: &[u8]| {
            let of_user = hash.hmac(&key, username.as_bytes());
            hash.hmac(&of_user, role)
        };
        let (first, second) = (part(b"salt"), part(b"more salt"));
        let salt = first.as_bytes().iter().chain(second.as_bytes()).copied().take(Self::salt_length(hash)).collect();
        Self {
            hash,
            salt,
            iterations: Self::default_iterations(hash),
            stored_key: part(b"stored key"),
            server_key: part(b"server key"),
        }
    }

    /// The hash of the mechanism that it is for.
    pub fn hash(&self) -> ScramHash {
        self.hash
    }

    /// The record in the form of RFC 5803, to be kept in a file that few may read: who has it can pose as the server, and try
    /// passwords.
    pub fn to_text(&self) -> String {
        let encode = |bytes: &[u8]| STANDARD.encode(bytes);
        let (stored, server) = (encode(self.stored_key.as_bytes()), encode(self.server_key.as_bytes()));
        alloc::format!("{}${}:{}${stored}:{server}", name(self.hash), self.iterations, encode(&self.salt))
    }
}

impl FromStr for StoredKeys {
    type Err = StoredKeysError;

    fn from_str(text: &str) -> Result<Self, StoredKeysError> {
        let mut parts = text.split('$');
        let (Some(mechanism), Some(salted), Some(keys), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(StoredKeysError::Form);
        };
        let (iterations, salt) = salted.split_once(':').ok_or(StoredKeysError::Form)?;
        let (stored_key, server_key) = keys.split_once(':').ok_or(StoredKeysError::Form)?;
        let hash = [ScramHash::Sha1, ScramHash::Sha256].into_iter().find(|hash| name(*hash) == mechanism);
        let hash = hash.ok_or(StoredKeysError::Mechanism)?;
        let iterations = iterations.parse().ok().filter(|count| (MIN_ITERATIONS..=MAX_ITERATIONS).contains(count));
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| StoredKeysError::Keys);
        let key = |text: &str| {
            let key = SecretBytes::from_vec(decode(text)?);
            let length = hash.digest(&[]).as_bytes().len();
            if key.as_bytes().len() == length { Ok(key) } else { Err(StoredKeysError::Keys) }
        };
        let salt = decode(salt)?;
        if salt.is_empty() {
            return Err(StoredKeysError::Keys);
        }
        let iterations = iterations.ok_or(StoredKeysError::Iterations)?;
        Ok(Self { hash, salt, iterations, stored_key: key(stored_key)?, server_key: key(server_key)? })
    }
}

fn name(hash: ScramHash) -> &'static str {
    match hash {
        ScramHash::Sha1 => "SCRAM-SHA-1",
        ScramHash::Sha256 => "SCRAM-SHA-256",
    }
}

impl fmt::Debug for StoredKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hash, salt: _, iterations, stored_key: _, server_key: _ } = self;
        f.debug_struct("StoredKeys").field("hash", hash).field("iterations", iterations).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for hash in [ScramHash::Sha1, ScramHash::Sha256] {
            let record = StoredKeys::new(hash, "user", &"pencil".into(), b"0123456789abcdef", 4096).unwrap();

            let read: StoredKeys = record.to_text().parse().unwrap();

            assert_eq!(read.to_text(), record.to_text());
            assert_eq!((read.hash(), read.iterations), (hash, 4096));
        }
    }

    #[test]
    fn what_is_no_record_is_refused_with_the_reason() {
        let keys = "AAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        for (text, error) in [
            ("", StoredKeysError::Form),
            ("SCRAM-SHA-1$4096:AA==", StoredKeysError::Form),
            (&alloc::format!("SCRAM-MD5$4096:AA==${keys}"), StoredKeysError::Mechanism),
            (&alloc::format!("SCRAM-SHA-1$1:AA==${keys}"), StoredKeysError::Iterations),
            (&alloc::format!("SCRAM-SHA-1$4096:${keys}"), StoredKeysError::Keys),
            (&alloc::format!("SCRAM-SHA-256$4096:AA==${keys}"), StoredKeysError::Keys),
        ] {
            assert_eq!(text.parse::<StoredKeys>().unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn a_record_shows_no_key() {
        let record = StoredKeys::new(ScramHash::Sha1, "user", &"pencil".into(), b"salt", 4096).unwrap();

        assert_eq!(alloc::format!("{record:?}"), "StoredKeys { hash: Sha1, iterations: 4096, .. }");
    }

    #[test]
    fn a_decoy_is_the_same_each_time_and_another_for_each_name() {
        let decoy = |name| StoredKeys::decoy(ScramHash::Sha256, name, b"secret").to_text();

        assert_eq!(decoy("nobody"), decoy("nobody"));
        assert_ne!(decoy("nobody"), decoy("anybody"));
        assert!(decoy("nobody").parse::<StoredKeys>().is_ok());
    }
}
