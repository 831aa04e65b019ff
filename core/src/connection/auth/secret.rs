//! Secret bytes: wiped when dropped, compared in constant time, never printed.
//!
//! The password as the user gave it is text, a [`Secret`](crate::options::Secret).
//!
//! They live on the heap. A vector that moves leaves no copy of its contents behind. An array on the stack does, and
//! only the last copy would be wiped. For the same reason every buffer is made in its final size: one that grew would
//! leave its smaller self behind.

use alloc::vec::Vec;
use core::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The bytes of one SASL message, to be sent as they are.
///
/// PLAIN's payload holds the password itself, so no payload is shown by `Debug` and each is wiped when dropped. A
/// caller that copies it, into a command or a write buffer, must wipe the copy.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(SecretBytes);

/// Secret bytes of any kind: keys, digests, prepared passwords.
#[derive(Clone)]
pub(super) struct SecretBytes(Zeroizing<Vec<u8>>);

impl Payload {
    pub(super) fn new(bytes: SecretBytes) -> Self {
        Self(bytes)
    }

    pub(super) fn from_text(text: &str) -> Self {
        Self(SecretBytes::copy_of(text.as_bytes()))
    }

    /// An empty payload, which is a message too (AUTH-15).
    pub(super) fn empty() -> Self {
        Self(SecretBytes::copy_of(&[]))
    }

    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl SecretBytes {
    pub(super) fn copy_of(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }

    /// Takes over `bytes`, which must never have grown.
    pub(super) fn from_vec(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The requested number of zeros, to be filled in place.
    #[cfg(feature = "auth")]
    pub(super) fn zeros(len: usize) -> Self {
        Self(Zeroizing::new(alloc::vec![0; len]))
    }

    /// `parts`, one after the other.
    pub(super) fn concat(parts: &[&[u8]]) -> Self {
        Self(Zeroizing::new(parts.concat()))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Each byte XOR that of `other`, which is as long.
    pub(super) fn xor(&self, other: &[u8]) -> Self {
        let mut result = self.clone();
        for (byte, other) in result.as_mut_bytes().iter_mut().zip(other) {
            *byte ^= other;
        }
        result
    }

    /// Whether the bytes are equal, in a time that depends on their number only.
    pub(super) fn is(&self, bytes: &[u8]) -> bool {
        self.0.ct_eq(bytes).into()
    }
}

impl PartialEq for SecretBytes {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Eq for SecretBytes {}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Payload(..)")
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBytes(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_equal_when_their_bytes_are() {
        assert_eq!(SecretBytes::copy_of(b"pencil"), SecretBytes::copy_of(b"pencil"));
        assert_ne!(SecretBytes::copy_of(b"pencil"), SecretBytes::copy_of(b"pencils"));
        assert_eq!(SecretBytes::concat(&[b"a", b"", b"bc"]), SecretBytes::copy_of(b"abc"));
        assert!(!SecretBytes::zeros(3).is(&[0; 4]));
    }
}
