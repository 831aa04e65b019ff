//! The random text that makes a conversation different from every other.

use alloc::string::String;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The random part of a conversation, one for each (AUTH-14).
///
/// This crate has no randomness of its own. A nonce that repeats, or can be guessed, lets an old conversation be
/// replayed: take the bytes from the operating system's generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nonce(String);

impl Nonce {
    /// The number of bytes that a nonce is made of.
    pub const RANDOM_BYTES: usize = 24;

    /// A nonce of cryptographically random bytes.
    pub fn from_random(bytes: [u8; Self::RANDOM_BYTES]) -> Self {
        // Base64 has neither comma nor anything unprintable, which is all that the grammar asks.
        Self(STANDARD.encode(bytes))
    }

    /// The nonces of the RFCs' examples have other lengths.
    #[cfg(test)]
    #[cfg(feature = "auth")]
    pub(in super::super) fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
