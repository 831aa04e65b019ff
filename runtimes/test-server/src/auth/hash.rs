//! SCRAM's arithmetic (RFC 5802, section 2.2), and MongoDB's preparation of a password before it.

use cmap_core::connection::auth::{LoginError, ScramHash};
use cmap_core::options::Secret;
use hmac::digest::{FixedOutput, Key};
use hmac::{EagerHash, Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use stringprep::saslprep;
use zeroize::{Zeroize, Zeroizing};

/// A key, a digest or a prepared password: wiped from memory when it is dropped.
pub(super) type SecretBytes = Zeroizing<Vec<u8>>;

/// H: the digest of `parts`, one after the other.
pub(super) fn digest(hash: ScramHash, parts: &[&[u8]]) -> SecretBytes {
    match hash {
        ScramHash::Sha1 => digest_by::<Sha1>(parts),
        ScramHash::Sha256 => digest_by::<Sha256>(parts),
    }
}

/// HMAC.
pub(super) fn hmac(hash: ScramHash, key: &[u8], message: &[u8]) -> SecretBytes {
    match hash {
        ScramHash::Sha1 => hmac_by::<Sha1>(key, message),
        ScramHash::Sha256 => hmac_by::<Sha256>(key, message),
    }
}

/// Hi: PBKDF2 with one block. The only slow step.
pub(super) fn salted_password(hash: ScramHash, password: &[u8], salt: &[u8], iterations: u32) -> SecretBytes {
    match hash {
        ScramHash::Sha1 => hi::<Sha1>(password, salt, iterations),
        ScramHash::Sha256 => hi::<Sha256>(password, salt, iterations),
    }
}

/// `left` XOR `right`, of one length.
pub(super) fn xor(left: &[u8], right: &[u8]) -> SecretBytes {
    Zeroizing::new(left.iter().zip(right).map(|(byte, other)| byte ^ other).collect())
}

/// The key material of a user's password: for SCRAM-SHA-1 MongoDB's old digest of name and password (AUTH-11), for
/// SCRAM-SHA-256 the password prepared by SASLprep (AUTH-12).
pub(super) fn prepare(hash: ScramHash, username: &str, password: &Secret) -> Result<SecretBytes, LoginError> {
    let password = password.expose();
    match hash {
        ScramHash::Sha1 => Ok(hex(&digest_by::<Md5>(&[username.as_bytes(), b":mongo:", password.as_bytes()]))),
        ScramHash::Sha256 => match saslprep(password) {
            Ok(prepared) => Ok(Zeroizing::new(prepared.into_owned().into_bytes())),
            Err(_) => Err(LoginError::PasswordProhibited),
        },
    }
}

fn digest_by<D: Digest>(parts: &[&[u8]]) -> SecretBytes {
    let mut hash = D::new();
    for part in parts {
        hash.update(part);
    }
    Zeroizing::new(hash.finalize().to_vec())
}

fn hmac_by<D: EagerHash>(key: &[u8], message: &[u8]) -> SecretBytes {
    let mut mac = keyed::<D>(key);
    Mac::update(&mut mac, message);
    Zeroizing::new(mac.finalize().into_bytes().to_vec())
}

fn hi<D: EagerHash>(password: &[u8], salt: &[u8], iterations: u32) -> SecretBytes {
    // The password's two blocks are hashed here, and not in every iteration.
    let keyed = keyed::<D>(password);
    let mut mac = keyed.clone();
    Mac::update(&mut mac, salt);
    Mac::update(&mut mac, &1_u32.to_be_bytes());
    let mut last = mac.finalize_fixed();
    let mut salted = Zeroizing::new(last.to_vec());
    for _ in 1..iterations {
        let mut mac = keyed.clone();
        Mac::update(&mut mac, &last);
        last = mac.finalize_fixed();
        for (byte, other) in salted.iter_mut().zip(&last) {
            *byte ^= other;
        }
    }
    last.as_mut_slice().zeroize();
    salted
}

/// HMAC with its key. A key that is longer than a block is digested and a shorter one padded with zeros (RFC 2104);
/// doing this here leaves no step that can fail.
fn keyed<D: EagerHash>(key: &[u8]) -> Hmac<D> {
    let mut block = Key::<Hmac<D>>::default();
    if key.len() > block.len() {
        return keyed(&digest_by::<D>(&[key]));
    }
    for (byte, of_key) in block.iter_mut().zip(key) {
        *byte = *of_key;
    }
    let mac = Hmac::<D>::new(&block);
    block.as_mut_slice().zeroize();
    mac
}

/// In lower-case hexadecimal digits.
fn hex(bytes: &[u8]) -> SecretBytes {
    let digit = |number: u8| if number < 10 { b'0' + number } else { b'a' + number - 10 };
    Zeroizing::new(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6070, by one block; the same with SHA-256, and a password longer than a block, by Python's hashlib.
    #[test]
    fn hi_is_pbkdf2_with_one_block() {
        let long = "p".repeat(100);
        for (hash, password, iterations, expected) in [
            (ScramHash::Sha1, "password", 1, "0c60c80f961f0e71f3a9b524af6012062fe037a6"),
            (ScramHash::Sha1, &long, 4097, "55121faa73df5fb056c5a2cdf4b6d3b65ccf232d"),
            (ScramHash::Sha256, "password", 2, "ae4d0c95af6b46d32d0adff928f06dd02a303f8ef3c251dfd6e2d85a95474c43"),
        ] {
            let salted = salted_password(hash, password.as_bytes(), b"salt", iterations);
            assert_eq!(*hex(&salted), expected.as_bytes(), "{hash:?}, {iterations} iterations");
        }
    }
}
