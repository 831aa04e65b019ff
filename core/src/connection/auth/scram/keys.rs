//! From a password to keys: the slow step, as a value that can be carried to another thread and run there.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::super::secret::SecretBytes;
use super::hash::ScramHash;
use crate::options::Secret;

/// A request to derive the keys of a conversation. Its iterations are at least
/// [`MIN_ITERATIONS`](super::MIN_ITERATIONS) (AUTH-13), and at most the client's limit,
/// [`MAX_ITERATIONS`](super::MAX_ITERATIONS) unless its options say otherwise.
///
/// Ask the [`KeyCache`](super::cache::KeyCache) first (AUTH-17). Deriving takes milliseconds at MongoDB's defaults and
/// some 100 milliseconds at that maximum: do not run it on a thread that others wait for.
#[must_use = "the conversation waits for these keys"]
pub struct DeriveKey {
    id: KeyId,
    password: SecretBytes,
}

/// Which keys: those of a password with a salt, a number of iterations and a mechanism (AUTH-17).
///
/// The password enters as a digest with the salt, never as itself.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyId {
    hash: ScramHash,
    salt: Vec<u8>,
    iterations: u32,
    password: SecretBytes,
}

/// The keys of a conversation: enough to log in with, so they are kept as safe as the password. Copies share one
/// memory.
#[derive(Clone)]
pub struct DerivedKeys(Arc<Keys>);

struct Keys {
    id: KeyId,
    client_key: SecretBytes,
    server_key: SecretBytes,
}

impl DeriveKey {
    pub(super) fn new(hash: ScramHash, password: SecretBytes, salt: Vec<u8>, iterations: u32) -> Self {
        // A fast digest, which a thief of memory could guess from: it lives no longer than the password itself, which
        // every new connection needs. It includes the salt, so that equal passwords do not look equal.
        let digest = hash.fingerprint(&[&salt, password.as_bytes()]);
        Self { id: KeyId { hash, salt, iterations, password: digest }, password }
    }

    /// The identity of the keys that are asked for.
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// Derives the keys.
    pub fn run(&self) -> DerivedKeys {
        let KeyId { hash, salt, iterations, .. } = &self.id;
        self.finish(&hash.salted_password(&self.password, salt, *iterations))
    }

    /// Derives the keys while `go_on` returns true; `None` if it returned false. It is called before the first
    /// iteration, and then every few milliseconds (4,096 iterations), so a derivation that no waiter needs any longer
    /// can end soon.
    pub fn run_while(&self, mut go_on: impl FnMut() -> bool) -> Option<DerivedKeys> {
        let KeyId { hash, salt, iterations, .. } = &self.id;
        let go_on = || if go_on() { Ok(()) } else { Err(()) };
        let salted = hash.try_salted_password(&self.password, salt, *iterations, go_on).ok()?;
        Some(self.finish(&salted))
    }

    /// The quick part, after the slow one.
    pub(in super::super) fn finish(&self, salted: &SecretBytes) -> DerivedKeys {
        let (client_key, server_key) = key_pair(self.id.hash, salted);
        DerivedKeys(Arc::new(Keys { id: self.id.clone(), client_key, server_key }))
    }
}

impl KeyId {
    /// The mechanism's hash.
    pub fn hash(&self) -> ScramHash {
        self.hash
    }

    /// How often the hash is iterated.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Whether the keys are those of this password.
    pub(super) fn is_of(&self, username: &str, password: &Secret) -> bool {
        let prepared = self.hash.prepare(username, password);
        prepared.is_ok_and(|prepared| self.hash.fingerprint(&[&self.salt, prepared.as_bytes()]) == self.password)
    }
}

impl DerivedKeys {
    /// The identity of these keys.
    pub fn id(&self) -> &KeyId {
        &self.0.id
    }

    pub(super) fn client_key(&self) -> &SecretBytes {
        &self.0.client_key
    }

    pub(super) fn server_key(&self) -> &SecretBytes {
        &self.0.server_key
    }
}

/// The client's key and the server's, of a salted password (RFC 5802, section 3).
pub(super) fn key_pair(hash: ScramHash, salted: &SecretBytes) -> (SecretBytes, SecretBytes) {
    (hash.hmac(salted, b"Client Key"), hash.hmac(salted, b"Server Key"))
}

impl fmt::Debug for DeriveKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeriveKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hash, iterations, salt: _, password: _ } = self;
        f.debug_struct("KeyId").field("hash", hash).field("iterations", iterations).finish_non_exhaustive()
    }
}

impl fmt::Debug for DerivedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DerivedKeys").field("id", self.id()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(feature = "auth")]
mod tests {
    use super::*;

    #[test]
    fn a_derivation_that_is_broken_off_gives_no_keys() {
        let request = DeriveKey::new(ScramHash::Sha256, SecretBytes::copy_of(b"pencil"), b"salt".to_vec(), 10_000);
        let mut calls = 0;
        let mut until = |last| {
            calls = 0;
            request.run_while(|| {
                calls += 1;
                calls <= last
            })
        };

        assert!(until(0).is_none() && until(2).is_none());
        assert_eq!(until(3).unwrap().client_key(), request.run().client_key());
    }

    #[test]
    fn every_part_of_a_key_tells_keys_apart() {
        let request = |hash, password: &[u8], salt: &[u8], iterations| {
            DeriveKey::new(hash, SecretBytes::copy_of(password), salt.to_vec(), iterations)
        };
        let one = request(ScramHash::Sha256, b"pencil", b"salt", 4096);

        assert_eq!(one.id(), request(ScramHash::Sha256, b"pencil", b"salt", 4096).id());
        for other in [
            request(ScramHash::Sha1, b"pencil", b"salt", 4096),
            request(ScramHash::Sha256, b"pencils", b"salt", 4096),
            request(ScramHash::Sha256, b"tpencil", b"sal", 4096),
            request(ScramHash::Sha256, b"pencil", b"salt", 4097),
        ] {
            assert_ne!(one.id(), other.id());
        }
    }
}
