//! The arithmetic of SCRAM for either hash: H, HMAC and Hi of RFC 5802, section 2.2.

use hmac::digest::Key;
use hmac::{EagerHash, Hmac, KeyInit, Mac};
use md5::Md5;
use pbkdf2::pbkdf2_hmac;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use zeroize::Zeroize;

use super::super::secret::SecretBytes;

/// The hash that a SCRAM conversation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScramHash {
    /// 20 bytes.
    Sha1,
    /// 32 bytes.
    Sha256,
}

impl ScramHash {
    /// The number of bytes of a digest, and of every key.
    pub(super) fn size(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// H: the digest of `parts`, one after the other.
    pub(in super::super) fn digest(self, parts: &[&[u8]]) -> SecretBytes {
        match self {
            Self::Sha1 => digest::<Sha1>(parts),
            Self::Sha256 => digest::<Sha256>(parts),
        }
    }

    /// HMAC, with a key that is itself a digest.
    pub(super) fn hmac(self, key: &SecretBytes, message: &[u8]) -> SecretBytes {
        match self {
            Self::Sha1 => hmac::<Sha1>(key, message),
            Self::Sha256 => hmac::<Sha256>(key, message),
        }
    }

    /// Hi: PBKDF2 with one block. The only slow step.
    pub(super) fn salted_password(self, password: &SecretBytes, salt: &[u8], iterations: u32) -> SecretBytes {
        let mut salted = SecretBytes::zeros(self.size());
        match self {
            Self::Sha1 => pbkdf2_hmac::<Sha1>(password.as_bytes(), salt, iterations, salted.as_mut_bytes()),
            Self::Sha256 => pbkdf2_hmac::<Sha256>(password.as_bytes(), salt, iterations, salted.as_mut_bytes()),
        }
        salted
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

/// `left` XOR `right`, of one length.
pub(super) fn xor(left: &SecretBytes, right: &[u8]) -> SecretBytes {
    let mut result = left.clone();
    for (byte, other) in result.as_mut_bytes().iter_mut().zip(right) {
        *byte ^= other;
    }
    result
}

fn digest<D: Digest>(parts: &[&[u8]]) -> SecretBytes {
    let mut hash = D::new();
    for part in parts {
        hash.update(part);
    }
    keep(&mut hash.finalize())
}

/// HMAC pads keys up to its block with zeros; a digest is shorter than any block, so doing it here leaves nothing that
/// can fail.
fn hmac<D: EagerHash>(key: &SecretBytes, message: &[u8]) -> SecretBytes {
    let mut block = Key::<Hmac<D>>::default();
    debug_assert!(key.as_bytes().len() <= block.len(), "a longer key would have to be hashed first");
    for (byte, of_key) in block.iter_mut().zip(key.as_bytes()) {
        *byte = *of_key;
    }
    let mut mac = Hmac::<D>::new(&block);
    block.as_mut_slice().zeroize();
    mac.update(message);
    keep(&mut mac.finalize().into_bytes())
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

    /// RFC 1321, A.5.
    #[test]
    fn md5_is_printed_in_lower_case() {
        assert_eq!(md5_hex(&[b"message ", b"digest"]).as_bytes(), b"f96b697d7cb7938d525a2f31aaf161d0");
    }

    fn hex(secret: &SecretBytes) -> alloc::string::String {
        secret.as_bytes().iter().map(|byte| alloc::format!("{byte:02x}")).collect()
    }
}
