//! The arithmetic of SCRAM for either hash: H, HMAC and Hi of RFC 5802, section 2.2.

use core::convert::Infallible;

use hmac::digest::{FixedOutput, Key};
use hmac::{EagerHash, Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use zeroize::Zeroize;

use super::super::error::LoginError;
use super::super::secret::SecretBytes;
use crate::options::Mechanism;

/// How many iterations of Hi are a chunk: some milliseconds of work, even on a slow machine.
const CHUNK: u32 = 4096;

/// The hash that a SCRAM conversation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScramHash {
    /// 20 bytes.
    Sha1,
    /// 32 bytes.
    Sha256,
}

impl ScramHash {
    /// The hash of a mechanism, if that is SCRAM.
    pub(in super::super) fn of(mechanism: Mechanism) -> Result<Self, LoginError> {
        match mechanism {
            Mechanism::ScramSha1 => Ok(Self::Sha1),
            Mechanism::ScramSha256 => Ok(Self::Sha256),
            Mechanism::Plain
            | Mechanism::MongoDbX509
            | Mechanism::Gssapi
            | Mechanism::MongoDbAws
            | Mechanism::MongoDbOidc => Err(LoginError::NotCarriedOut { mechanism }),
        }
    }

    /// H: the digest of `parts`, one after the other.
    pub(in super::super) fn digest(self, parts: &[&[u8]]) -> SecretBytes {
        match self {
            Self::Sha1 => digest::<Sha1>(parts),
            Self::Sha256 => digest::<Sha256>(parts),
        }
    }

    /// A digest that tells passwords apart: SHA-256, whichever hash the conversation uses.
    pub(super) fn fingerprint(self, parts: &[&[u8]]) -> SecretBytes {
        digest::<Sha256>(parts)
    }

    /// HMAC.
    pub(super) fn hmac(self, key: &SecretBytes, message: &[u8]) -> SecretBytes {
        match self {
            Self::Sha1 => hmac::<Sha1>(key.as_bytes(), message),
            Self::Sha256 => hmac::<Sha256>(key.as_bytes(), message),
        }
    }

    /// Hi: PBKDF2 with one block. The only slow step.
    pub(super) fn salted_password(self, password: &SecretBytes, salt: &[u8], iterations: u32) -> SecretBytes {
        let Ok(salted) = self.try_salted_password(password, salt, iterations, || Ok::<_, Infallible>(()));
        salted
    }

    /// Hi, stopped as soon as `before_chunk` fails, which is called before every [`CHUNK`] iterations.
    pub(super) fn try_salted_password<E>(
        self,
        password: &SecretBytes,
        salt: &[u8],
        iterations: u32,
        before_chunk: impl FnMut() -> Result<(), E>,
    ) -> Result<SecretBytes, E> {
        match self {
            Self::Sha1 => hi::<Sha1, E>(password, salt, iterations, before_chunk),
            Self::Sha256 => hi::<Sha256, E>(password, salt, iterations, before_chunk),
        }
    }
}

/// MD5 of `parts`, in lower-case hexadecimal digits: what MongoDB makes of a password before SCRAM-SHA-1 (AUTH-11).
pub(super) fn md5_hex(parts: &[&[u8]]) -> SecretBytes {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digest = digest::<Md5>(parts);
    let mut hex = SecretBytes::zeros(2 * digest.as_bytes().len());
    for (pair, byte) in hex.as_mut_bytes().chunks_exact_mut(2).zip(digest.as_bytes()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    hex
}

fn digest<D: Digest>(parts: &[&[u8]]) -> SecretBytes {
    let mut hash = D::new();
    for part in parts {
        hash.update(part);
    }
    keep(&mut hash.finalize())
}

fn hmac<D: EagerHash>(key: &[u8], message: &[u8]) -> SecretBytes {
    let mut mac = keyed::<D>(key);
    Mac::update(&mut mac, message);
    keep(&mut mac.finalize().into_bytes())
}

fn hi<D: EagerHash, E>(
    password: &SecretBytes,
    salt: &[u8],
    iterations: u32,
    mut before_chunk: impl FnMut() -> Result<(), E>,
) -> Result<SecretBytes, E> {
    // The password's two blocks are hashed here, and not in every iteration.
    let keyed = keyed::<D>(password.as_bytes());
    let mut mac = keyed.clone();
    Mac::update(&mut mac, salt);
    Mac::update(&mut mac, &1_u32.to_be_bytes());
    let mut last = mac.finalize_fixed();
    let mut salted = SecretBytes::copy_of(&last);
    let mut left = iterations.saturating_sub(1);
    let outcome = loop {
        if let Err(error) = before_chunk() {
            break Err(error);
        }
        let chunk = left.min(CHUNK);
        for _ in 0..chunk {
            let mut mac = keyed.clone();
            Mac::update(&mut mac, &last);
            last = mac.finalize_fixed();
            for (byte, other) in salted.as_mut_bytes().iter_mut().zip(&last) {
                *byte ^= other;
            }
        }
        left -= chunk;
        if left == 0 {
            break Ok(salted);
        }
    };
    last.as_mut_slice().zeroize();
    outcome
}

/// HMAC with its key. A key that is longer than a block is digested and a shorter one padded with zeros (RFC 2104);
/// doing this here leaves no step that can fail.
fn keyed<D: EagerHash>(key: &[u8]) -> Hmac<D> {
    let mut block = Key::<Hmac<D>>::default();
    if key.len() > block.len() {
        return keyed(digest::<D>(&[key]).as_bytes());
    }
    for (byte, of_key) in block.iter_mut().zip(key) {
        *byte = *of_key;
    }
    let mac = Hmac::<D>::new(&block);
    block.as_mut_slice().zeroize();
    mac
}

/// Moves a result off the stack.
fn keep(bytes: &mut [u8]) -> SecretBytes {
    let secret = SecretBytes::copy_of(bytes);
    bytes.zeroize();
    secret
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 2202, 2.2, test case 2, and RFC 4231, 4.3.
    #[test]
    fn hmac_pads_its_key_as_the_standard_says() {
        let [key, message] = [SecretBytes::copy_of(b"Jefe"), SecretBytes::copy_of(b"what do ya want for nothing?")];

        assert_eq!(hex(&ScramHash::Sha1.hmac(&key, message.as_bytes())), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        assert_eq!(
            hex(&ScramHash::Sha256.hmac(&key, message.as_bytes())),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    /// RFC 2202, 3, test case 6, and RFC 4231, 4.7: keys that are longer than a block.
    #[test]
    fn hmac_digests_a_long_key_first() {
        let message = b"Test Using Larger Than Block-Size Key - Hash Key First";

        let sha_1 = ScramHash::Sha1.hmac(&SecretBytes::copy_of(&[0xaa; 80]), message);
        let sha_256 = ScramHash::Sha256.hmac(&SecretBytes::copy_of(&[0xaa; 131]), message);

        assert_eq!(hex(&sha_1), "aa4ae5e15272d00e95705637ce8a3b55ed402112");
        assert_eq!(hex(&sha_256), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    /// RFC 6070, the cases of one block; the same with SHA-256, and a password longer than a block, by Python's hashlib.
    #[test]
    fn hi_is_pbkdf2_with_one_block() {
        let long = "p".repeat(100);
        let [sha_1, sha_256] = [ScramHash::Sha1, ScramHash::Sha256];
        for (hash, password, iterations, expected) in [
            (sha_1, "password", 1, "0c60c80f961f0e71f3a9b524af6012062fe037a6"),
            (sha_1, "password", 2, "ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957"),
            (sha_1, "password", 4096, "4b007901b765489abead49d926f721d065a429c1"),
            (sha_1, &long, 4097, "55121faa73df5fb056c5a2cdf4b6d3b65ccf232d"),
            (sha_256, "password", 1, "120fb6cffcf8b32c43e7225256c4f837a86548c92ccc35480805987cb70be17b"),
            (sha_256, "password", 4096, "c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a"),
            (sha_256, &long, 4097, "d892de77c1bbcce979aca0f5f779e4898f9b647fa8fa2527da9399c015672937"),
        ] {
            let salted = hash.salted_password(&SecretBytes::copy_of(password.as_bytes()), b"salt", iterations);
            assert_eq!(hex(&salted), expected, "{hash:?}, {iterations} iterations");
        }
    }

    #[test]
    fn hi_asks_before_each_chunk_and_stops_when_told() {
        for (iterations, chunks) in [(1, 1), (4097, 1), (4098, 2), (u32::MAX, 3)] {
            let mut calls = 0;
            let outcome =
                ScramHash::Sha1.try_salted_password(&SecretBytes::copy_of(b"pencil"), b"salt", iterations, || {
                    calls += 1;
                    if calls == 3 { Err(()) } else { Ok(()) }
                });
            assert_eq!((calls, outcome.is_ok()), (chunks, chunks < 3), "{iterations} iterations");
        }
    }

    /// RFC 1321, A.5.
    #[test]
    fn md5_is_printed_in_lower_case() {
        assert_eq!(md5_hex(&[b"message ", b"digest"]).as_bytes(), b"f96b697d7cb7938d525a2f31aaf161d0");
    }

    fn hex(secret: &SecretBytes) -> alloc::string::String {
        secret.as_bytes().iter().map(|byte| alloc::format!("{byte:02x}")).collect()
    }
}
